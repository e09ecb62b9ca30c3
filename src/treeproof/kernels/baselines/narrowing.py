"""Boxes of cells that a search narrows leaf by leaf, and how it takes a choice back.

What is passed as parts has ``range_start``, ``feature``, ``low`` and ``high`` of leaves; what is
passed as walk has the box ``low_cell``, ``high_cell`` and the ``trail`` of its narrowings with
``trail_start``.
"""

from treeproof.kernels.core.compiler import noalloc_kernel


@noalloc_kernel
def enter(parts, walk, leaf, depth):
    """Narrow the cell box to a leaf; undone, and False, when they do not meet."""
    top = walk.trail_start[depth]
    for r in range(parts.range_start[leaf], parts.range_start[leaf + 1]):
        feature = parts.feature[r]
        low = walk.low_cell[feature]
        high = walk.high_cell[feature]
        if parts.low[r] > high or parts.high[r] < low:
            walk.trail_start[depth + 1] = top
            leave(walk, depth)
            return False
        if parts.low[r] > low or parts.high[r] < high:
            walk.trail[top, 0] = feature
            walk.trail[top, 1] = low
            walk.trail[top, 2] = high
            top += 1
            walk.low_cell[feature] = max(low, parts.low[r])
            walk.high_cell[feature] = min(high, parts.high[r])
    walk.trail_start[depth + 1] = top
    return True


@noalloc_kernel
def leave(walk, depth):
    """Undo the narrowings of the choice at a depth."""
    for t in range(walk.trail_start[depth + 1] - 1, walk.trail_start[depth] - 1, -1):
        feature = walk.trail[t, 0]
        walk.low_cell[feature] = walk.trail[t, 1]
        walk.high_cell[feature] = walk.trail[t, 2]


@noalloc_kernel
def meets(parts, leaf, low_cell, high_cell):
    """Whether a restricted leaf meets a box of cells."""
    for r in range(parts.range_start[leaf], parts.range_start[leaf + 1]):
        feature = parts.feature[r]
        if parts.low[r] > high_cell[feature] or parts.high[r] < low_cell[feature]:
            return False
    return True
