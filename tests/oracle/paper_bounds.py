"""The paper's Algorithms 1 and 2 as printed: lists of boxes, merged one by one.

Slow and obvious, without kernels and engines. Leaves are found by walking the tree, boxes are
dictionaries of cell ranges, and every merged box is stored.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from tests.oracle.brute_force import _cells_of_box, is_fixed, thresholds
from treeproof.model import evaluate
from treeproof.model.ensemble import ZERO_BAND, ZERO_IS_MISSING
from treeproof.query.query import Query

CellSet = dict[int, frozenset[int]]
"""Cells per constrained feature; a set, since zero-as-missing gives no ranges."""


@dataclass(frozen=True)
class Node:
    """A leaf, or a clique of leaves as a pseudo node."""

    leaves: tuple[int, ...]
    cells: CellSet
    gain: float


def intersection(first: CellSet, second: CellSet) -> CellSet | None:
    """Common cells, or None when some feature has none."""
    common = dict(first)
    for feature, cells in second.items():
        common[feature] = common[feature] & cells if feature in common else cells
        if not common[feature]:
            return None
    return common


def parts_of(query: Query, row: int, constraint: int) -> list[list[Node]]:
    """Leaves of each tree with a say that meet the query's own set."""
    ensemble = query.ensemble
    trees = ensemble.trees
    coefficient = query.alternatives.coefficient[constraint]
    free = {
        feature: frozenset(_cells_of_box(query, row, feature))
        for feature in range(ensemble.n_features)
        if not is_fixed(query, row, feature)
    }
    cuts = {feature: thresholds(ensemble, feature) for feature in free}
    parts = []
    for tree in range(ensemble.n_trees):
        output = int(trees.tree_output[tree])
        if output >= 0 and coefficient[output] == 0.0:
            continue
        nodes: list[Node] = []
        stack: list[tuple[int, CellSet]] = [(int(trees.root[tree]), {})]
        while stack:
            node, cells = stack.pop()
            if trees.feature[node] < 0:
                leaf = int(trees.leaf[node])
                value = trees.leaf_value[leaf]
                gain = coefficient[output] * value[0] if output >= 0 else float(coefficient @ value)
                nodes.append(Node((leaf,), cells, float(gain)))
                continue
            feature = int(trees.feature[node])
            if feature not in free:
                left = evaluate.goes_left(ensemble, np.array([node]), query.rows[row, [feature]])[0]
                stack.append((int(trees.left[node] if left else trees.right[node]), cells))
                continue
            here = cells.get(feature, free[feature])
            left_cells = frozenset(c for c in here if _left(query, node, cuts[feature], c))
            for child, kept in (
                (trees.left[node], left_cells),
                (trees.right[node], here - left_cells),
            ):
                if kept:
                    stack.append((int(child), cells | {feature: kept}))
        parts.append(nodes)
    return parts


def _left(query: Query, node: int, cuts: np.ndarray, cell: int) -> bool:
    """Whether the values of a cell go left at a node."""
    trees = query.ensemble.trees
    value = cuts[cell - 1] if cell > 0 else np.nextafter(cuts[0], -np.inf)
    if trees.flags[node] & ZERO_IS_MISSING and abs(value) <= ZERO_BAND:
        return bool(trees.flags[node] & 1)
    return bool(value < trees.threshold[node])


def enumerate_cliques(parts: list[list[Node]]) -> list[Node]:
    """Algorithm 1."""
    merged = parts[0]
    for part in parts[1:]:
        merged = [
            Node(old.leaves + new.leaves, common, old.gain + new.gain)
            for old, new in itertools.product(merged, part)
            if (common := intersection(old.cells, new.cells)) is not None
        ]
    return merged


def merge_levels(parts: list[list[Node]], size: int, levels: int) -> list[list[Node]]:
    """The merging of Algorithm 2: groups of `size` consecutive parts, level after level."""
    for _ in range(levels):
        parts = [enumerate_cliques(parts[i : i + size]) for i in range(0, len(parts), size)]
    return parts


def sum_bound(parts: list[list[Node]]) -> float:
    """Eq. 6."""
    return sum(max(node.gain for node in part) for part in parts)


def path_bound(parts: list[list[Node]]) -> float:
    """Eq. 7."""
    best = [node.gain for node in parts[0]]
    for before, part in itertools.pairwise(parts):
        best = [
            node.gain
            + max(
                value
                for value, other in zip(best, before, strict=True)
                if intersection(node.cells, other.cells) is not None
            )
            for node in part
        ]
    return max(best)


def base_gain(query: Query, constraint: int) -> float:
    """Gain before any tree."""
    start = np.array(query.ensemble.aggregation.start)
    return float(query.alternatives.coefficient[constraint] @ start)
