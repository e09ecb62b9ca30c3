"""Reasons: which features suffice to fix an answer, by leaving out what a search proves needless.

Features are asked about in *units*, which are kept or freed together. A set of units is sufficient
when no point breaks the claim while its features keep the row's values and all others range over
their domain. Every witness names units that must not all be freed; it is remembered, and questions
whose box holds it are not asked.
"""

from typing import Any, NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grown, sorted_order
from treeproof.kernels.core.cells import (
    FIXED,
    NEXT,
    NOTHING,
    TESTED,
    CellBox,
    Region,
    new_box,
    part_of,
)
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import ONE, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import BROKEN, Forest, judge
from treeproof.kernels.core.leaves import combination_up, gain_of_leaf
from treeproof.kernels.core.status import FOUND, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.core.trees import is_left
from treeproof.kernels.exact.primal import NODES, Found, new_found
from treeproof.kernels.exact.row import claim_of, explore
from treeproof.kernels.exact.search import Budget

FREE, HELD, TRIED, NEEDED, HARD, OPEN, STAYS = 0, 1, 2, 3, 4, 5, 6
"""What is known of a unit: the answer stays without it; not yet asked; in the question at hand; a
witness tells that the answer changes without it; to be asked again with more nodes; neither can be
decided; it is kept whatever it is for."""

FIRST_NODES, MORE_NODES = 64, 16
"""Nodes of search for a question at first, and by how much more when nothing else is left."""

ANY, ALWAYS, NEVER = 0, 1, 2
"""Whether a reason may, must or must not use a unit."""


class Units(NamedTuple):
    """What reasons are made of.

    owner    int64   (n_features,)   unit of each feature
    start    int64   (n_units + 1,)  where the features of each unit start in `feature`
    feature  int64   (n_features,)
    weight   float64 (n_units,)      units of larger weight are left out first
    use      int64   (n_units,)      ANY, ALWAYS, NEVER
    """

    owner: np.ndarray
    start: np.ndarray
    feature: np.ndarray
    weight: np.ndarray
    use: np.ndarray


class Gains(NamedTuple):
    """Scratch of `weigh_units`.

    score  float64 (n_units,)        how near to breaking the claim freeing a unit leads
    gain   float64 (n_units,)        what freeing a unit could add
    peak   float64 (n_units,)        of one tree
    stamp  int64   (n_units,)        the last tree that a unit matters to
    units  int64   (n_units,)        units that matter to one tree
    stack  int64   (max_depth + 2, 2)
    """

    score: np.ndarray
    gain: np.ndarray
    peak: np.ndarray
    stamp: np.ndarray
    units: np.ndarray
    stack: np.ndarray


@inner_kernel
def new_gains(n_units, max_depth):
    """Scratch for some units."""
    return Gains(
        np.zeros(n_units, dtype=np.float64),
        np.zeros(n_units, dtype=np.float64),
        np.zeros(n_units, dtype=np.float64),
        np.zeros(n_units, dtype=np.int64),
        np.zeros(n_units, dtype=np.int64),
        np.zeros((max_depth + 2, 2), dtype=np.int64),
    )


class Asked(NamedTuple):
    """A row whose reasons are sought, and the box that is asked about.

    whole    CellBox                               cells of the domain
    box      CellBox                               the question: cells of the domain, or the row's
    order    int64   (n_alternatives,)               those that were broken last come first
    proved   int32   (n_alternatives, 2, n_features) a box that is free of each alternative
    moves    bool    (n_units,)                      whether the domain holds other values
    place    int64   (n_units,)                      FREE, HELD, ...
    gains    Gains                                   scratch
    total    float64 (n_outputs,)                    scratch
    """

    forest: Forest
    alternatives: Any
    group: int
    units: Units
    region: Region
    whole: CellBox
    box: CellBox
    order: np.ndarray
    proved: np.ndarray
    moves: np.ndarray
    place: np.ndarray
    gains: Gains
    total: np.ndarray
    found: Found
    budget: Budget


class Known(NamedTuple):
    """Points that break the claim, as the cells of features in which they differ from the row.

    start    int64 (capacity + 1,)
    feature  int32 (entry capacity,)
    cell     int32 (entry capacity,)
    size     int64 (1,)
    """

    start: np.ndarray
    feature: np.ndarray
    cell: np.ndarray
    size: np.ndarray


@inner_kernel
def new_known():
    """No points."""
    return Known(
        np.zeros(17, dtype=np.int64),
        np.empty(128, dtype=np.int32),
        np.empty(128, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def remember(known, home, cells):
    """The points with one more, in larger arrays where they are full."""
    number = known.size[0]
    end = known.start[number]
    start, feature, cell = known.start, known.feature, known.cell
    if number + 2 > len(start):
        start = grown(start, number + 2)
    if end + len(home) > len(feature):
        feature = grown(feature, end + len(home))
        cell = grown(cell, end + len(home))
    for index in range(len(home)):
        if cells[index] != home[index]:
            feature[end] = index
            cell[end] = cells[index]
            end += 1
    start[number + 1] = end
    known.size[0] = number + 1
    return Known(start, feature, cell, known.size)


@noalloc_kernel
def point_inside(known, box):
    """Number of a remembered point that lies in a box, or -1."""
    for number in range(known.size[0] - 1, -1, -1):
        is_inside = True
        for index in range(known.start[number], known.start[number + 1]):
            feature = known.feature[index]
            if not box.low[feature] <= known.cell[index] <= box.high[feature]:
                is_inside = False
                break
        if is_inside:
            return number
    return -1


@inner_kernel
def new_asked(forest, alternatives, group, units, region, budget):
    """The question about a row; `begin` says what is freed."""
    n_features = len(region.row)
    n_units = len(units.use)
    whole = new_box(forest.space, region)
    moves = np.zeros(n_units, dtype=np.bool_)
    for feature in range(n_features):
        if whole.low[feature] != whole.high[feature]:
            moves[units.owner[feature]] = True
    first = alternatives.group_start[group]
    n_alternatives = alternatives.group_start[group + 1] - first
    order = np.empty(n_alternatives, dtype=np.int64)
    proved = np.empty((n_alternatives, 2, n_features), dtype=np.int32)
    for number in range(n_alternatives):
        order[number] = number
        for feature in range(n_features):
            # Sound: an empty box holds nothing; only a box that was searched replaces it.
            proved[number, 0, feature] = 1
            proved[number, 1, feature] = 0
    return Asked(
        forest, alternatives, group, units, region, whole,
        CellBox(np.empty(n_features, dtype=np.int32), np.empty(n_features, dtype=np.int32)),
        order, proved, moves, np.zeros(n_units, dtype=np.int64),
        new_gains(n_units, forest.space.max_depth),
        np.empty(len(forest.semantics.start), dtype=np.float64), new_found(n_features), budget,
    )  # fmt: skip


@noalloc_kernel
def begin(asked, chosen, of_chosen, of_others):
    """Give chosen units one place, and others another; those that cannot move are FREE.

    chosen  int64 (n_units,)  1 for units that are chosen
    """
    for unit in range(len(asked.place)):
        place = of_chosen if chosen[unit] == 1 else of_others
        if asked.units.use[unit] == ALWAYS:
            place = STAYS
        if asked.units.use[unit] == NEVER or not asked.moves[unit]:
            place = FREE
        asked.place[unit] = place
        set_unit(asked, unit, place == FREE)


@noalloc_kernel
def set_unit(asked, unit, is_free):
    """Give a unit of the question its domain, or the row's own values."""
    for index in range(asked.units.start[unit], asked.units.start[unit + 1]):
        feature = asked.units.feature[index]
        home = asked.region.home[feature]
        asked.box.low[feature] = asked.whole.low[feature] if is_free else home
        asked.box.high[feature] = asked.whole.high[feature] if is_free else home


@noalloc_kernel
def is_inside(box, proved):
    """Whether a box of cells lies in another one."""
    for feature in range(len(box.low)):
        if box.low[feature] < proved[0, feature] or box.high[feature] > proved[1, feature]:
            return False
    return True


@inner_kernel
def ask(asked, n_nodes):
    """Whether something in the box breaks the claim, with so many nodes of search at most.

    Returns PROVED: nothing; FOUND: ``found.witness``; or why this could not be decided. The number
    of the alternative that is broken is first in the order.
    """
    budget = asked.budget
    if seconds_now(np.empty(2, dtype=np.int64)) > budget.deadline:
        return TIME_LIMIT
    most = min(budget.nodes, asked.found.counts[NODES] + n_nodes)
    limits = Budget(most, budget.memory_bytes, budget.deadline)
    order, found, box = asked.order, asked.found, asked.box
    first = asked.alternatives.group_start[asked.group]
    worst = PROVED
    for turn in range(len(order)):
        number = order[turn]
        if is_inside(box, asked.proved[number]):
            continue
        claim = claim_of(asked.alternatives, asked.group, first + number)
        found.upper[0] = np.inf
        status = explore(
            asked.forest, claim, asked.region, box, np.inf, np.bool_(False), found, limits
        )
        if found.upper[0] < np.inf:
            for other in range(turn, 0, -1):
                order[other] = order[other - 1]
            order[0] = number
            return FOUND
        if status == PROVED:
            for feature in range(len(box.low)):
                asked.proved[number, 0, feature] = box.low[feature]
                asked.proved[number, 1, feature] = box.high[feature]
        elif status in (NODE_LIMIT, TIME_LIMIT):
            return status
        worst = max(worst, status)
    return worst


@inner_kernel
def put_back(asked, known, place):
    """Remember ``found.witness`` with as few units changed as it goes, one after another.

    place  int  units of this place are given the row's values first

    Returns the points with this one, how many units of that place it changes, and the last of them.
    """
    forest, region, units, cells = asked.forest, asked.region, asked.units, asked.found.witness
    first = asked.alternatives.group_start[asked.group]
    claim = claim_of(asked.alternatives, asked.group, first + asked.order[0])
    saved = np.empty(len(cells), dtype=np.int32)
    n_changed = 0
    changed = -1
    for turn in range(2):
        for unit in range(len(asked.place)):
            if (asked.place[unit] == place) != (turn == 0):
                continue
            is_changed = False
            for index in range(units.start[unit], units.start[unit + 1]):
                feature = units.feature[index]
                saved[feature] = cells[feature]
                is_changed = is_changed or cells[feature] != region.home[feature]
                cells[feature] = region.home[feature]
            if is_changed and judge(forest, claim, region.row, cells, asked.total) != BROKEN:
                for index in range(units.start[unit], units.start[unit + 1]):
                    cells[units.feature[index]] = saved[units.feature[index]]
                if turn == 0:
                    n_changed += 1
                    changed = unit
    return remember(known, region.home, cells), n_changed, changed


@noalloc_kernel
def weigh_tree(asked, claim, tree, gains):
    """Best leaf of a tree in the box, and of those that freeing one more unit would add.

    Fills ``peak`` for the units it lists; returns the best, and how many are listed. What paths say
    twice about a feature is not looked at: this is for choosing, and proves nothing.
    """
    forest, box, whole = asked.forest, asked.box, asked.whole
    nodes, trees = forest.space.nodes, forest.trees
    stack, peak = gains.stack, gains.peak
    best = -np.inf
    n_listed = 0
    stack[0, 0] = trees.root[tree]
    stack[0, 1] = -1
    top = 1
    while top > 0:
        top -= 1
        node = np.uint64(stack[top, 0])
        unit = stack[top, 1]
        while nodes[node, TESTED] != NOTHING:
            feature = nodes[node, TESTED]
            left = node + ONE
            right = np.uint64(nodes[node, NEXT])
            if box.low[feature] == FIXED:
                value = asked.region.row[feature]
                is_near = is_left(trees, node, value, forest.semantics.zero_band)
                node = left if is_near else right
                continue
            low, high = np.int64(box.low[feature]), np.int64(box.high[feature])
            goes_left, end = part_of(forest.space, node, low, high)
            if end < high:
                stack[top, 0] = right
                stack[top, 1] = unit
                top += 1
                node = left
                continue
            owner = asked.units.owner[feature]
            # The other side is open to the unit alone, if the path needs no other one.
            low, high = np.int64(whole.low[feature]), np.int64(whole.high[feature])
            is_open = part_of(forest.space, node, low, high)[1] < high
            if is_open and (unit < 0 or unit == owner):
                stack[top, 0] = right if goes_left else left
                stack[top, 1] = owner
                top += 1
            node = left if goes_left else right
        gain = gain_of_leaf(trees, tree, nodes[node, NEXT], claim.coefficient)
        if unit < 0:
            best = max(best, gain)
        elif gains.stamp[unit] != tree + 1:
            gains.stamp[unit] = tree + 1
            gains.units[n_listed] = unit
            peak[unit] = gain
            n_listed += 1
        else:
            peak[unit] = max(peak[unit], gain)
    return best, n_listed


@inner_kernel
def weigh_units(asked):
    """How near to breaking the claim best leaves come once a unit is freed, too: ``score``."""
    forest, alternatives, gains = asked.forest, asked.alternatives, asked.gains
    first = alternatives.group_start[asked.group]
    for unit in range(len(gains.score)):
        gains.score[unit] = -np.inf
    for number in range(len(asked.order)):
        claim = claim_of(alternatives, asked.group, first + number)
        level = combination_up(claim.coefficient, forest.semantics.start) - claim.need
        for unit in range(len(gains.score)):
            gains.gain[unit] = 0.0
            gains.stamp[unit] = 0
        for tree in range(len(forest.trees.tree_output)):
            output = forest.trees.tree_output[tree]
            if output >= 0 and claim.coefficient[output] == 0.0:
                continue
            best, n_listed = weigh_tree(asked, claim, tree, gains)
            level += best
            for index in range(n_listed):
                unit = gains.units[index]
                gains.gain[unit] += max(gains.peak[unit] - best, 0.0)
        for unit in range(len(gains.score)):
            gains.score[unit] = max(gains.score[unit], level + gains.gain[unit])


@inner_kernel
def order_units(asked):
    """Units that are HELD, those first that are to be left out first."""
    weigh_units(asked)
    place = asked.place
    n_held = 0
    for unit in range(len(place)):
        n_held += place[unit] == HELD
    held = np.empty(n_held, dtype=np.int64)
    score = np.empty(n_held, dtype=np.float64)
    n_held = 0
    for unit in range(len(place)):
        if place[unit] == HELD:
            held[n_held] = unit
            score[n_held] = asked.gains.score[unit]
            n_held += 1
    order = sorted_order(score, True)
    for index in range(n_held):
        order[index] = held[order[index]]
    for index in range(n_held):
        score[index] = asked.units.weight[order[index]]
    heavy = sorted_order(score, False)
    for index in range(n_held):
        heavy[index] = order[heavy[index]]
    return heavy


@noalloc_kernel
def gather(asked, known, order, size):
    """Free units of an order, at most so many, but those with which a known point lies in the box.

    They become TRIED; one that alone lets a point in is NEEDED. Returns how many are TRIED.
    """
    place = asked.place
    n_tried = 0
    for index in range(len(order)):
        unit = order[index]
        if place[unit] != HELD:
            continue
        set_unit(asked, unit, True)
        number = point_inside(known, asked.box)
        if number >= 0:
            set_unit(asked, unit, False)
            if n_tried == 0:
                # Sound: the point needs no unit but this one and those that are free for good.
                place[unit] = NEEDED
            continue
        place[unit] = TRIED
        n_tried += 1
        if n_tried == size:
            break
    return n_tried


@noalloc_kernel
def settle(asked, becomes, keeps_free):
    """End a question: what was TRIED becomes something else, and stays free or not."""
    for unit in range(len(asked.place)):
        if asked.place[unit] == TRIED:
            asked.place[unit] = becomes
            if not keeps_free:
                set_unit(asked, unit, False)


@noalloc_kernel
def count_places(asked, place):
    """How many units have a place."""
    count = 0
    for unit in range(len(asked.place)):
        count += asked.place[unit] == place
    return count


@noalloc_kernel
def replace_places(asked, place, other):
    """Give all units of one place another one."""
    for unit in range(len(asked.place)):
        if asked.place[unit] == place:
            asked.place[unit] = other


@inner_kernel
def leave_out(asked, known):
    """Free HELD units while the answer stays; returns the status, and the points with new ones.

    Sound: boxes only grow, so a unit without which a point broke the claim stays needed, and what
    was proved last is the whole box; before that, what the caller began with. Whatever ends the
    search, the units that are not FREE suffice.
    """
    status = PROVED
    n_nodes = FIRST_NODES
    order = order_units(asked)
    size = max(len(order) // 2, 1)
    # Ends: each question frees units, finds what one needs, or asks about half as many; then nodes
    # end it.
    while True:
        n_tried = gather(asked, known, order, size)
        if n_tried == 0:
            if count_places(asked, HELD) > 0:
                continue
            if count_places(asked, HARD) == 0:
                return status, known
            replace_places(asked, HARD, HELD)
            n_nodes *= MORE_NODES
            order = order_units(asked)
            continue
        answer = ask(asked, n_nodes)
        if answer == PROVED:
            settle(asked, FREE, True)
            size = 2 * n_tried
            order = order_units(asked)
        elif answer == FOUND:
            known, n_changed, changed = put_back(asked, known, np.int64(TRIED))
            settle(asked, HELD, False)
            size = max(n_tried // 2, 1)
            if n_changed == 1:
                asked.place[changed] = NEEDED
                size = max(n_tried - 1, 1)
        elif answer == TIME_LIMIT or asked.found.counts[NODES] >= asked.budget.nodes:
            settle(asked, HELD, False)
            return answer, known
        else:
            becomes = np.int64(HELD)
            if n_tried == 1:
                becomes = np.int64(HARD if answer == NODE_LIMIT else OPEN)
                status = status if answer == NODE_LIMIT else answer
            settle(asked, becomes, False)
            size = max(n_tried // 2, 1)


@noalloc_kernel
def set_face(asked, feature, is_upper, cell):
    """Move one end of a feature in the box."""
    if is_upper:
        asked.box.high[feature] = cell
    else:
        asked.box.low[feature] = cell


@inner_kernel
def widen(asked, known, n_nodes):
    """Move the ends of features that are not FREE outwards as far as the answer stays.

    The box that is asked about becomes the widest: every end is at the domain's, or a point that
    breaks the claim lies one cell further. Ends take turns, each asking for half of what it may
    still get, so that no feature takes all at the cost of the others.

    Sound: boxes only grow, so what keeps an end from moving stays in its way.
    """
    box, whole = asked.box, asked.whole
    n_features = len(box.low)
    limit = np.empty((n_features, 2), dtype=np.int32)
    for feature in range(n_features):
        limit[feature, 0] = whole.low[feature]
        limit[feature, 1] = whole.high[feature]
    status = PROVED
    # Ends: each turn halves the gaps of ends that are still open.
    while True:
        n_open = 0
        for turn in range(2 * n_features):
            feature = turn // 2
            side = turn % 2
            here = box.high[feature] if side == 1 else box.low[feature]
            gap = limit[feature, side] - here
            if gap == 0:
                continue
            n_open += 1
            there = here + (gap + 1) // 2 if side == 1 else here - (1 - gap) // 2
            set_face(asked, feature, side == 1, there)
            number = point_inside(known, box)
            if number < 0:
                answer = ask(asked, n_nodes)
                if answer == PROVED:
                    continue
                if answer == FOUND:
                    known, _, _ = put_back(asked, known, np.int64(TRIED))
                    number = known.size[0] - 1
                else:
                    status = answer
            set_face(asked, feature, side == 1, here)
            limit[feature, side] = there - 1 if side == 1 else there + 1
            if number >= 0:
                # The point lies in the larger box and not in the smaller one: its cell tells.
                cell = cell_in(known, number, feature)
                limit[feature, side] = cell - 1 if side == 1 else cell + 1
        if n_open == 0:
            return status, known


@noalloc_kernel
def cell_in(known, number, feature):
    """Cell of a feature that a remembered point changes."""
    for index in range(known.start[number], known.start[number + 1]):
        if known.feature[index] == feature:
            return known.cell[index]
    return np.int32(FIXED)
