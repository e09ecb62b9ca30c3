"""Rewrites the trees of a model so that they test raw columns.

Most nodes become one node each, with another feature, threshold and perhaps sides. A node that
always answers the same is left out. A test that holds on several intervals of a raw column becomes
several nodes, and what hangs below is copied, without the parts that cannot be reached.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import UnsupportedModel
from treeproof.loaders.pipelines.flow import REFUSED, Column, Flow, numbers_of
from treeproof.loaders.pipelines.sides import LARGEST, BoolArray, IntArray, Sides
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.domain import accept_float64_rows, smallest_double_rounding_up_to
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    TreeArrays,
)

_GROWTH = 64
"""How many times more nodes a model may have after copying."""

_CATEGORY = CATEGORICAL + WHOLE_CATEGORY + NONNEGATIVE_CATEGORY
UNDECIDED, LEFT, RIGHT = -1, 1, 0


@dataclass(slots=True)
class Nodes:
    """What becomes of every node of a model, by its number.

    Attributes
    ----------
    feature, threshold, flags, category_set
        The new test, as in `TreeArrays`; sets are those of `builder`.
    swap : bool (n_nodes,)
        Whether the test answers the other way round.
    decided : int8 (n_nodes,)
        The only child that is ever reached, or UNDECIDED.
    intervals : dict of int to array
        Where the test of a node changes, if it does more than once; left is where `swap` is not
        set, up to the first of these floats.
    """

    feature: IntArray
    threshold: FloatArray
    flags: NDArray[np.uint8]
    category_set: IntArray
    swap: BoolArray
    decided: NDArray[np.int8]
    builder: TreeBuilder
    intervals: dict[int, FloatArray] = field(default_factory=dict)


class Folded(NamedTuple):
    """Trees over raw columns, and what the raw columns may hold."""

    trees: TreeArrays
    accepted: list[tuple[float, float]]
    """Smallest and largest number of each raw column that the pipeline answers."""


def fold(
    deployed: Ensemble,
    flow: Flow,
    columns: list[Column],
    *,
    zero_is_missing: bool,
    ranges: tuple[tuple[float, float], ...] = (),
) -> Folded:
    """Trees over doubles that say about raw columns what a model says about transformed ones.

    `zero_is_missing` says that the model takes an exact zero for a missing value, whatever its
    nodes say, because the pipeline hands it sparse rows. `ranges` are those of its `Reference`.
    """
    model = accept_float64_rows(deployed)
    trees = model.trees
    inner = trees.feature >= 0
    raw_of = np.array([column.raw for column in columns], dtype=np.int64)
    nodes = Nodes(
        feature=np.where(inner, raw_of[np.maximum(trees.feature, 0)], -1),
        threshold=trees.threshold.copy(),
        flags=trees.flags.copy(),
        category_set=trees.category_set.astype(np.int64),
        swap=np.zeros(len(inner), dtype=bool),
        decided=np.full(len(inner), UNDECIDED, dtype=np.int8),
        builder=TreeBuilder(leaf_width=trees.leaf_value.shape[1]),
    )
    nodes.builder.add_category_sets(trees)  # under the same numbers
    tests: list[tuple[Column, Sides]] = []
    owners: list[IntArray] = []
    for number, column in enumerate(columns):
        own = np.flatnonzero(trees.feature == number)
        if not len(own):
            continue
        if column.raw in flow.codes:
            values = numbers_of(column, model.categories.get(number))
            if zero_is_missing:
                values = np.where(values == 0.0, np.nan, values)
            _by_category(model, flow, column, values, own, nodes)
        elif not _by_itself(model, flow, column, own, nodes, zero_is_missing):
            tests.append((column, _tests_of(trees, own, zero_is_missing)))
            owners.append(own)
    limits = _range_tests(deployed, flow, columns, ranges)
    pulled = flow.pull_back(tests + limits)
    accepted = _accepted(flow, limits, pulled[len(tests) :])
    for own, sides in zip(owners, pulled, strict=False):
        raw = int(nodes.feature[own[0]])
        _by_number(own, sides.within(*accepted[raw]), nodes, flow.is_never_missing(raw))
    return Folded(_rewritten(trees, nodes), accepted)


def _by_itself(
    model: Ensemble,
    flow: Flow,
    column: Column,
    own: IntArray,
    nodes: Nodes,
    zero_is_missing: bool,
) -> bool:
    """Keep nodes whose column is the raw one; whether that was possible."""
    trees = model.trees
    is_categorical = (trees.flags[own] & CATEGORICAL) > 0
    missing = column.values[-1]
    stays_missing = missing is REFUSED or np.isnan(missing)
    if column.is_plain and stays_missing and not zero_is_missing:
        return True
    if not is_categorical.any():
        return False
    if not column.is_plain or not is_categorical.all() or zero_is_missing:
        raise UnsupportedModel(
            f"Column {column.raw} must reach the model unchanged, because the model splits it by"
            " category codes. Got a pipeline that computes with it. Encode it by an OrdinalEncoder."
        )
    left = evaluate.goes_left(model, own, np.full(len(own), float(missing)))
    nodes.flags[own] = (trees.flags[own] & ~np.uint8(MISSING_LEFT)) + MISSING_LEFT * left
    return True


def _tests_of(trees: TreeArrays, own: IntArray, zero_is_missing: bool) -> Sides:
    """The tests of numeric nodes of one column."""
    flags = trees.flags[own]
    sides = Sides.below(trees.threshold[own], (flags & MISSING_LEFT) > 0)
    if zero_is_missing:
        return _turned(sides, np.ones(len(own), dtype=bool), 0.0)
    return _turned(sides, (flags & ZERO_IS_MISSING) > 0, ZERO_BAND)


def _turned(sides: Sides, chosen: BoolArray, band: float) -> Sides:
    """Tests of which the chosen ones take numbers up to a size for missing ones."""
    after = float(np.nextafter(band, np.inf))
    before = sides.at(float(np.nextafter(-band, -np.inf)))
    inside = chosen[sides.owner] & (sides.cut >= -band) & (sides.cut <= after)
    enter = np.flatnonzero(chosen & (before != sides.missing))
    leave = np.flatnonzero(chosen & (sides.at(after) != sides.missing))
    return Sides.of(
        sides.first,
        sides.missing,
        np.concatenate([sides.owner[~inside], enter, leave]),
        np.concatenate(
            [sides.cut[~inside], np.full(len(enter), -band), np.full(len(leave), after)]
        ),
    )


def _by_number(own: IntArray, sides: Sides, nodes: Nodes, is_never_missing: bool) -> None:
    """Set the nodes of a column by their tests of the raw one."""
    count = np.bincount(sides.owner, minlength=len(own))
    start = np.searchsorted(sides.owner, np.arange(len(own)))
    single = count == 1
    threshold = np.full(len(own), -np.inf)
    threshold[single] = sides.cut[start[single]]
    # Below minus infinity there is nothing: all numbers go right, unless the sides change.
    swap = np.where(count == 0, sides.first, ~sides.first)
    nodes.threshold[own] = threshold
    nodes.swap[own] = swap
    nodes.flags[own] = np.where(sides.missing, MISSING_LEFT, 0)
    same = (count == 0) & ((sides.missing == sides.first) | is_never_missing)
    nodes.decided[own[same]] = sides.first[same]
    for test in np.flatnonzero(count > 1):
        nodes.intervals[int(own[test])] = sides.changes(int(test))


def _by_category(
    model: Ensemble,
    flow: Flow,
    column: Column,
    values: FloatArray,
    own: IntArray,
    nodes: Nodes,
) -> None:
    """Set the nodes of a column by what they make of every category of the raw one."""
    raw, codes = column.raw, flow.codes[column.raw]
    n_codes = len(codes)
    refused = flow.refused[raw]
    if flow.lists_missing(raw):
        codes = [*codes, n_codes]
    sets: dict[bytes, int] = {}
    for node in own:
        left = evaluate.goes_left(model, np.full(len(values), node), values)
        unknown, missing = bool(left[n_codes]), bool(left[n_codes + 1])
        if n_codes in refused:
            unknown = missing
        if n_codes + 1 in refused:
            missing = unknown
        # What has no code is no category to a node, and goes right: what unknown categories do
        # decides about the sides.
        chosen = left[: len(codes)] != unknown
        if flow.lists_missing(raw):
            chosen[n_codes] = missing != unknown
            missing = unknown
        key = chosen.tobytes()
        if key not in sets:
            sets[key] = nodes.builder.add_category_set(np.array(codes, dtype=np.int64)[chosen])
        nodes.category_set[node] = sets[key]
        nodes.swap[node] = unknown
        nodes.flags[node] = _CATEGORY + MISSING_LEFT * missing
        nodes.threshold[node] = 0.0
        if not chosen.any() and missing == unknown:
            nodes.decided[node] = unknown


def _range_tests(
    model: Ensemble,
    flow: Flow,
    columns: list[Column],
    ranges: tuple[tuple[float, float], ...],
) -> list[tuple[Column, Sides]]:
    """Tests for what steps and model accept of columns that are no longer raw."""
    tests = []
    for step in flow.steps:
        for place, column in enumerate(step.inputs):
            if column.step is None or column.raw in flow.codes:
                continue
            outputs = [output for output in step.outputs if output.source == place]
            low = max((output.low for output in outputs), default=-LARGEST)
            high = min((output.high for output in outputs), default=LARGEST)
            tests.append((column, _inside(low, high, is_missing_inside=True)))
    high = LARGEST
    if model.input_precision == "float32":
        high = float(np.nextafter(smallest_double_rounding_up_to(np.array([np.inf]))[0], -np.inf))
    ranges = ranges or ((-high, high),) * len(columns)
    for number, column in enumerate(columns):
        if column.raw in flow.codes:
            continue
        takes_missing = model.missing_allowed and number not in model.required
        if not model.infinite_allowed or not takes_missing:
            tests.append((column, _inside(*ranges[number], is_missing_inside=takes_missing)))
    return tests


def _inside(low: float, high: float, *, is_missing_inside: bool) -> Sides:
    """The test for numbers between two others, inclusive."""
    after = math.nextafter(high, math.inf)
    return Sides.of(
        np.zeros(1, dtype=bool),
        np.array([is_missing_inside]),
        np.zeros(2, dtype=np.int64),
        np.array([low, after]),
    )


def _accepted(
    flow: Flow, ranges: list[tuple[Column, Sides]], pulled: list[Sides]
) -> list[tuple[float, float]]:
    """Numbers around the base value that every step and the model accept, by raw column."""
    accepted = [(-LARGEST, LARGEST)] * len(flow.raw)
    limits = [(column.raw, sides) for (column, _), sides in zip(ranges, pulled, strict=True)]
    for step in flow.steps:
        for output in step.outputs:
            source = step.inputs[output.source]
            if source.step is None and source.raw not in flow.codes:
                inside = _inside(output.low, output.high, is_missing_inside=True)
                limits.append((source.raw, inside))
    for raw, sides in limits:
        base = flow.raw[raw].base
        cut = sides.cut[np.isfinite(sides.cut)]
        low, high = accepted[raw]
        below, above = cut[cut <= base], cut[cut > base]
        if bool(sides.at(float(base))[0]):
            low = max(low, float(below[-1]) if len(below) else low)
            high = min(high, float(np.nextafter(above[0], -np.inf)) if len(above) else high)
        accepted[raw] = (low, high)
    return accepted


def _rewritten(trees: TreeArrays, nodes: Nodes) -> TreeArrays:
    """Canonical arrays of the trees with their new tests."""
    left, right = _without_decided(trees, nodes)
    sizes = np.diff(trees.root)
    tree_of = np.repeat(np.arange(len(sizes)), sizes)
    value = np.zeros((len(left), trees.leaf_value.shape[1]))
    source = np.zeros(len(left), dtype=np.int64)
    is_leaf = left < 0
    leaf = trees.leaf[_behind(trees, nodes)]
    value[is_leaf] = trees.leaf_value[leaf[is_leaf]]
    source[is_leaf] = trees.leaf_source[leaf[is_leaf]]
    split = {int(tree_of[node]) for node in nodes.intervals}
    copier = _Copier(nodes, left, right)
    most = _GROWTH * len(left)
    for tree, output in enumerate(trees.tree_output.tolist()):
        start, stop = int(trees.root[tree]), int(trees.root[tree + 1])
        if tree in split:
            chosen, own_left, own_right, tests = copier.copy(start, most)
        else:
            chosen = np.arange(start, stop)
            own_left, own_right = (
                np.where(is_leaf[start:stop], -1, side[start:stop] - start)
                for side in (left, right)
            )
            tests = _tests_at(nodes, chosen)
        nodes.builder.add_tree(
            left=own_left,
            right=own_right,
            output=output,
            value=value[chosen],
            source=source[chosen],
            **tests,
        )
    return nodes.builder.finish()


def _tests_at(nodes: Nodes, chosen: IntArray) -> dict[str, Any]:
    return {
        name: getattr(nodes, name)[chosen]
        for name in ("feature", "threshold", "flags", "category_set", "swap")
    }


def _behind(trees: TreeArrays, nodes: Nodes) -> IntArray:
    """For each node the one whose test it takes over: the first undecided one below it."""
    decided = nodes.decided
    child = np.where(decided == LEFT, trees.left, trees.right)
    behind = np.where(decided == UNDECIDED, np.arange(len(decided)), child).astype(np.int64)
    while True:
        further = behind[behind]
        if np.array_equal(further, behind):
            return behind
        behind = further


def _without_decided(trees: TreeArrays, nodes: Nodes) -> tuple[IntArray, IntArray]:
    """Children of each node after what is decided was left out; roots keep their place."""
    behind = _behind(trees, nodes)
    left = np.where(trees.left[behind] < 0, -1, behind[trees.left[behind]])
    right = np.where(trees.right[behind] < 0, -1, behind[trees.right[behind]])
    for name in ("feature", "threshold", "flags", "category_set", "swap"):
        setattr(nodes, name, getattr(nodes, name)[behind])
    for node in np.flatnonzero(behind != np.arange(len(behind))).tolist():
        if int(behind[node]) in nodes.intervals:
            nodes.intervals[node] = nodes.intervals[int(behind[node])]
    return left, right


class _Reach(NamedTuple):
    """Values of one raw column that reach a node."""

    low: float = -np.inf
    high: float = np.inf
    missing: bool = True

    @property
    def has_numbers(self) -> bool:
        return self.low < self.high


class _Copier:
    """Copies trees in which some tests hold on several intervals."""

    def __init__(self, nodes: Nodes, left: IntArray, right: IntArray) -> None:
        self._nodes, self._left, self._right = nodes, left, right
        self._total = 0

    def copy(self, root: int, most: int) -> tuple[IntArray, IntArray, IntArray, dict[str, Any]]:
        """Nodes behind the new ones, their children, and their tests."""
        new = _NewTree()
        waiting: list[tuple[int, dict[int, _Reach], int, bool]] = [(root, {}, -1, False)]
        while waiting:
            node, reach, parent, is_left = waiting.pop()
            self._add(new, waiting, node, reach, (parent, is_left))
            if self._total + len(new.behind) > most:
                raise UnsupportedModel(
                    f"Tests of intervals, as of binned columns, make the model more than {_GROWTH}"
                    " times as large over your own columns. Encode bins by their number"
                    " (encode='ordinal')."
                )
        self._total += len(new.behind)
        return new.finish(self._nodes)

    def _add(
        self,
        new: "_NewTree",
        waiting: list[tuple[int, dict[int, _Reach], int, bool]],
        node: int,
        reach: dict[int, _Reach],
        parent: tuple[int, bool],
    ) -> None:
        nodes = self._nodes
        if self._left[node] < 0:
            new.add(node, parent)
            return
        children = int(self._left[node]), int(self._right[node])
        feature = int(nodes.feature[node])
        flags = int(nodes.flags[node])
        if flags & (CATEGORICAL | ZERO_IS_MISSING):
            place = new.add(node, parent)
            for is_left, child in zip((True, False), children, strict=True):
                waiting.append((child, reach, place, is_left != bool(nodes.swap[node])))
            return
        own = reach.get(feature, _Reach())
        cuts = nodes.intervals.get(node)
        is_first = not nodes.swap[node]
        if cuts is None:
            threshold = float(nodes.threshold[node])
            cuts = np.array([threshold]) if threshold > -np.inf else np.zeros(0)
            is_first = bool(nodes.swap[node]) if not len(cuts) else is_first
        to_left = bool(flags & MISSING_LEFT)
        inside = cuts[(cuts > own.low) & (cuts < own.high)]
        # Sound: cuts at or below the lowest float that gets here have all been passed.
        starts_left = is_first != (int((cuts <= own.low).sum()) % 2 == 1)
        slots = [
            (bool(starts_left) != (number % 2 == 1), low, high)
            for number, (low, high) in enumerate(
                zip([own.low, *inside.tolist()], [*inside.tolist(), own.high], strict=True)
            )
            if own.has_numbers
        ]
        plan = _Plan(feature, children, to_left, own.missing, node)
        self._grow(new, waiting, reach, plan, slots, parent)

    def _grow(
        self,
        new: "_NewTree",
        waiting: list[tuple[int, dict[int, _Reach], int, bool]],
        reach: dict[int, _Reach],
        plan: "_Plan",
        slots: list[tuple[bool, float, float]],
        parent: tuple[int, bool],
    ) -> None:
        """Add the nodes that lead to the slots, and the missing value to its own side."""
        sides = {is_left for is_left, _, _ in slots}
        if plan.missing and plan.to_left not in sides:
            # No number goes there: the missing value alone does.
            below = _Reach(np.inf, -np.inf, missing=True)
            child = plan.children[0 if plan.to_left else 1]
            if not slots:
                waiting.append((child, {**reach, plan.feature: below}, *parent))
                return
            place = new.add_split(plan, -np.inf, missing_left=True, parent=parent)
            waiting.append((child, {**reach, plan.feature: below}, place, True))
            parent, plan = (place, False), plan._replace(missing=False)
        if len(slots) == 1:
            is_left, low, high = slots[0]
            child = plan.children[0 if is_left else 1]
            own = _Reach(low, high, plan.missing)
            waiting.append((child, {**reach, plan.feature: own}, *parent))
            return
        middle = len(slots) // 2
        parts = slots[:middle], slots[middle:]
        with_missing = plan.missing and any(side == plan.to_left for side, _, _ in parts[0])
        place = new.add_split(plan, slots[middle][1], missing_left=with_missing, parent=parent)
        for is_left, part in zip((True, False), parts, strict=True):
            has_missing = plan.missing and is_left == with_missing
            below_plan = plan._replace(missing=has_missing)
            self._grow(new, waiting, reach, below_plan, part, (place, is_left))


class _Plan(NamedTuple):
    feature: int
    children: tuple[int, int]
    to_left: bool  # where a missing value goes
    missing: bool  # whether one can get here
    node: int


class _NewTree:
    """A tree that grows, as lists."""

    def __init__(self) -> None:
        self.behind: list[int] = []
        self.left: list[int] = []
        self.right: list[int] = []
        self.split: dict[int, tuple[float, bool]] = {}

    def add(self, node: int, parent: tuple[int, bool]) -> int:
        """Add a copy of a node; return its place."""
        place = len(self.behind)
        self.behind.append(node)
        self.left.append(-1)
        self.right.append(-1)
        if parent[0] >= 0:
            (self.left if parent[1] else self.right)[parent[0]] = place
        return place

    def add_split(
        self, plan: _Plan, threshold: float, *, missing_left: bool, parent: tuple[int, bool]
    ) -> int:
        """Add a numeric split of the plan's column."""
        place = self.add(plan.node, parent)
        self.split[place] = (threshold, missing_left)
        return place

    def finish(self, nodes: Nodes) -> tuple[IntArray, IntArray, IntArray, dict[str, Any]]:
        """Nodes behind the new ones, their children, and their tests."""
        behind = np.array(self.behind, dtype=np.int64)
        columns = {name: part.copy() for name, part in _tests_at(nodes, behind).items()}
        # The sides of copied nodes have changed already.
        columns["flags"] = columns["flags"] ^ np.where(columns["swap"], MISSING_LEFT, 0).astype(
            np.uint8
        )
        columns["swap"] = np.zeros(len(behind), dtype=bool)
        for place, (threshold, missing_left) in self.split.items():
            columns["threshold"][place] = threshold
            columns["flags"][place] = MISSING_LEFT if missing_left else 0
            columns["category_set"][place] = -1
        return behind, np.array(self.left), np.array(self.right), columns
