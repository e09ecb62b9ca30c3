"""The trees in the operators TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble.

The first two list nodes with tree and node numbers and the weights of leaves apart from them; the
third, of version 5 of ai.onnx.ml, lists inner nodes and leaves. Both become the same `Forest`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.onnx.columns import Column, Table
from treeproof.loaders.onnx.format import Node
from treeproof.loaders.rules import Precision, canonical_splits
from treeproof.model.builder import MAX_CATEGORY, TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    WHOLE_CATEGORY,
    FloatArray,
    TreeArrays,
)

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
    "LEAF",
)
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER, _LEAF = range(len(_MODES))

_SMALL_SET = 30
"""Largest size and largest member of a set whose members onnxruntime compares one by one."""

MAX_LEAF_VALUES = 1 << 27
"""Nodes times outputs of leaves that are vectors (1 GB)."""


@dataclass(slots=True)
class Forest:
    """Nodes of all trees, one tree after another, each with its root first."""

    sizes: IntArray
    column: IntArray
    mode: IntArray
    value: FloatArray
    """The number that a node compares with; anything at leaves."""
    true: IntArray
    false: IntArray
    """Children, numbered within their tree; -1 at leaves."""
    missing_true: BoolArray
    members: dict[int, FloatArray]
    """What the sets of nodes hold, by the number of the node over all trees."""
    weight_node: IntArray
    weight_output: IntArray
    weight: FloatArray
    """What leaves add: node over all trees, output, and number; sorted by node and output."""
    n_outputs: int
    precision: Precision
    """In which thresholds are compared and weights are summed."""

    @property
    def tree(self) -> IntArray:
        """Number of the tree of each node."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def reached(self) -> BoolArray:
        """Nodes that some path from a root could reach."""
        first = np.cumsum(self.sizes) - self.sizes
        found = np.zeros(len(self.mode), dtype=bool)
        nodes = first
        base = np.repeat(first, self.sizes)
        # Every round marks nodes that were not marked before, so there are at most as many rounds.
        while len(nodes):
            found[nodes] = True
            inner = nodes[self.true[nodes] >= 0]
            after = np.concatenate(
                [base[inner] + self.true[inner], base[inner] + self.false[inner]]
            )
            nodes = np.unique(after[~found[after]])
        return found

    def always(self, output: int | None, above: float = -np.inf) -> bool:
        """Whether some tree adds a weight above a number to an output, or any, at every leaf."""
        leaf = (self.mode == _LEAF) & self.reached()
        mine = self.weight > above
        if output is not None:
            mine &= self.weight_output == output
        has = np.zeros(len(self.mode), dtype=bool)
        has[self.weight_node[mine]] = True
        without = np.zeros(len(self.sizes), dtype=bool)
        without[self.tree[leaf & ~has]] = True
        return bool((~without).any())

    def only(self, output: int) -> "Forest":
        """These trees with the weights of one output only."""
        mine = self.weight_output == output
        zero = np.zeros(int(mine.sum()), dtype=np.int64)
        return Forest(
            **{name: getattr(self, name) for name in self.__slots__ if "weight" not in name}
            | {"n_outputs": 1},
            weight_node=self.weight_node[mine],
            weight_output=zero,
            weight=self.weight[mine],
        )


def read_forest(node: Node, precision: Precision) -> Forest:
    """The trees of an operator; precision is that of its input, in which it computes."""
    return _version_5(node, precision) if node.op == "TreeEnsemble" else _version_1(node, precision)


def _reals(node: Node, name: str, precision: Precision) -> FloatArray:
    """Numbers of an attribute, or of its tensor, in the precision of the operator."""
    numbers, exact = node.numbers(name), node.numbers(f"{name}_as_tensor")
    if len(numbers) and len(exact):
        raise BrokenModelFile(f"The attributes '{name}' and '{name}_as_tensor' exclude each other.")
    found = exact if len(exact) else numbers
    if found.dtype.kind != "f":
        raise BrokenModelFile(f"The attribute '{name}' of {node.op} must hold floats.")
    with np.errstate(over="ignore", invalid="ignore"):
        return found.astype(precision).astype(np.float64)


def base_values(node: Node, precision: Precision) -> FloatArray:
    """Numbers that are added to the sums."""
    return _reals(node, "base_values", precision)


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise BrokenModelFile(f"The trees of the ONNX model are damaged: {rule}.")


def _version_1(node: Node, precision: Precision) -> Forest:
    is_classifier = node.op == "TreeEnsembleClassifier"
    tree_number, number = node.integers("nodes_treeids"), node.integers("nodes_nodeids")
    n = len(number)
    _require(n > 0, "there are no nodes")
    modes = np.array([_mode(word) for word in node.texts("nodes_modes")], dtype=np.int64)
    column, value = node.integers("nodes_featureids"), _reals(node, "nodes_values", precision)
    true, false = node.integers("nodes_truenodeids"), node.integers("nodes_falsenodeids")
    arrays = (tree_number, modes, column, value, true, false)
    _require(all(len(array) == n for array in arrays), "nodes have attributes of many lengths")
    tracks = node.integers("nodes_missing_value_tracks_true")
    _require(len(tracks) in (0, n), "the directions of missing values are not one per node")
    tracks = tracks if len(tracks) else np.zeros(n, dtype=np.int64)
    _require(bool(np.isin(tracks, (0, 1)).all()), "a direction of missing values is not 0 or 1")
    starts = np.flatnonzero(np.concatenate([[True], tree_number[1:] != tree_number[:-1]]))
    _require(len(np.unique(tree_number[starts])) == len(starts), "a tree is in two parts")
    sizes = np.diff(np.concatenate([starts, [n]]))
    places = _Places(tree_number[starts], np.repeat(np.arange(len(starts)), sizes), number, starts)
    is_leaf = modes == _LEAF
    prefix, names = ("class", "class_ids") if is_classifier else ("target", "target_ids")
    output, weight = node.integers(names), _reals(node, f"{prefix}_weights", precision)
    owner = node.integers(f"{prefix}_treeids")
    leaf_number = node.integers(f"{prefix}_nodeids")
    _require(len({len(output), len(weight), len(owner), len(leaf_number)}) == 1, "leaves disagree")
    at = places.find(places.tree_of(owner), leaf_number, "a weight belongs to a node")
    # Old converters gave weights to inner nodes, too, which onnxruntime ignores.
    of_leaf = is_leaf[at]
    tree = places.tree
    inner = np.where(is_leaf, number[starts][tree], 0)
    return _checked(
        Forest(
            sizes=sizes,
            column=column,
            mode=modes,
            value=value,
            true=_children(places, tree, np.where(is_leaf, inner, true), is_leaf, starts),
            false=_children(places, tree, np.where(is_leaf, inner, false), is_leaf, starts),
            missing_true=tracks == 1,
            members={},
            weight_node=at[of_leaf],
            weight_output=output[of_leaf],
            weight=weight[of_leaf],
            n_outputs=_n_outputs(node, is_classifier),
            precision=precision,
        )
    )


def _n_outputs(node: Node, is_classifier: bool) -> int:
    if not is_classifier:
        return node.integer("n_targets", 0)
    strings, numbers = node.texts("classlabels_strings"), node.integers("classlabels_int64s")
    return len(strings) or len(numbers)


def _mode(word: str) -> int:
    if word not in _MODES or word == "BRANCH_MEMBER":
        raise UnsupportedModel(f"A node must compare by one of {', '.join(_MODES)}. Got {word!r}.")
    return _MODES.index(word)


class _Places:
    """Where the nodes of trees are, by number of the tree and of the node."""

    def __init__(
        self, tree_numbers: IntArray, tree: IntArray, number: IntArray, starts: IntArray
    ) -> None:
        n = len(number)
        _require(bool(((number >= 0) & (number < n)).all()), "a node number is out of range")
        self.tree, self._n = tree, n
        self._tree_order = np.argsort(tree_numbers)
        self._tree_numbers = tree_numbers[self._tree_order]
        key = tree * n + number
        self._order = np.argsort(key, kind="stable")
        self._key = key[self._order]
        _require(bool((np.diff(self._key) > 0).all()), "two nodes of a tree have the same number")

    def tree_of(self, tree_number: IntArray) -> IntArray:
        """Which tree, in the order of the file, has each number."""
        at = np.minimum(
            np.searchsorted(self._tree_numbers, tree_number), len(self._tree_numbers) - 1
        )
        _require(bool((self._tree_numbers[at] == tree_number).all()), "a tree does not exist")
        found: IntArray = self._tree_order[at]
        return found

    def find(self, tree: IntArray, number: IntArray, what: str) -> IntArray:
        """Position over all trees of nodes of trees."""
        inside = (number >= 0) & (number < self._n)
        _require(bool(inside.all()), f"{what} that does not exist")
        key = tree * self._n + number
        at = np.minimum(np.searchsorted(self._key, key), self._n - 1)
        _require(bool((self._key[at] == key).all()), f"{what} that does not exist")
        found: IntArray = self._order[at]
        return found


def _children(
    places: _Places, tree: IntArray, number: IntArray, is_leaf: BoolArray, starts: IntArray
) -> IntArray:
    """Children by their position in their tree; -1 at leaves."""
    at = places.find(tree, number, "a node leads to one")
    return np.where(is_leaf, -1, at - starts[tree])


def _version_5(node: Node, precision: Precision) -> Forest:
    roots, column = node.integers("tree_roots"), node.integers("nodes_featureids")
    n, weight = len(column), _reals(node, "leaf_weights", precision)
    modes, value = node.integers("nodes_modes"), _reals(node, "nodes_splits", precision)
    sides = [node.integers(f"nodes_{side}nodeids") for side in ("true", "false")]
    leaves = [node.integers(f"nodes_{side}leafs") for side in ("true", "false")]
    output, tracks = (
        node.integers("leaf_targetids"),
        node.integers("nodes_missing_value_tracks_true"),
    )
    _require(n > 0 and len(roots) > 0, "there are no nodes")
    lengths = {len(array) for array in (modes, value, *sides, *leaves)}
    _require(lengths == {n} and len(output) == len(weight), "attributes have many lengths")
    _require(len(tracks) in (0, n), "the directions of missing values are not one per node")
    _require(bool(((modes >= 0) & (modes < _LEAF)).all()), "a mode is unknown")
    _require(bool(((roots >= 0) & (roots < n)).all()), "a root does not exist")
    # Leaves come after the inner nodes: number n is leaf 0.
    child = [np.where(leaf != 0, n + side, side) for side, leaf in zip(sides, leaves, strict=True)]
    for side, leaf in zip(sides, leaves, strict=True):
        limit = np.where(leaf != 0, len(weight), n)
        _require(bool(((side >= 0) & (side < limit)).all()), "a child does not exist")
    order, sizes = _by_tree(roots, child, n, len(weight))
    position = np.full(n + len(weight), -1, dtype=np.int64)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    position[order] = np.arange(len(order)) - first
    is_leaf = order >= n
    # A root whose children are the same leaf stands for that leaf.
    inner = np.where(is_leaf, 0, order)
    members = _member_sets(node, modes)
    place = {int(old): new for new, old in enumerate(order.tolist())}
    at = np.flatnonzero(is_leaf)
    missing = tracks[inner] == 1 if len(tracks) else np.zeros(len(order), dtype=bool)
    return _checked(
        Forest(
            sizes=sizes,
            column=np.where(is_leaf, 0, column[inner]),
            mode=np.where(is_leaf, _LEAF, modes[inner]),
            value=np.where(is_leaf, 0.0, value[inner]),
            true=np.where(is_leaf, -1, position[child[0][inner]]),
            false=np.where(is_leaf, -1, position[child[1][inner]]),
            missing_true=missing & ~is_leaf,
            members={place[old]: found for old, found in members.items() if old in place},
            weight_node=at,
            weight_output=output[order[at] - n],
            weight=weight[order[at] - n],
            n_outputs=node.integer("n_targets", 0),
            precision=precision,
        )
    )


def _by_tree(
    roots: IntArray, child: list[IntArray], n: int, n_leaves: int
) -> tuple[IntArray, IntArray]:
    """Nodes and leaves in the order of their trees, roots first, and the sizes of the trees."""
    single = (child[0][roots] == child[1][roots]) & (child[0][roots] >= n)
    nodes = np.where(single, child[0][roots], roots)
    owner = np.full(n + n_leaves, -1, dtype=np.int64)
    tree = np.arange(len(roots))
    while len(nodes):
        _require(bool((owner[nodes] < 0).all()), "a node is reached twice")
        owner[nodes] = tree
        _require(bool((owner[nodes] == tree).all()), "a node is reached twice")
        inner = nodes < n
        parents, tree = nodes[inner], tree[inner]
        nodes = np.concatenate([child[0][parents], child[1][parents]])
        _require(len(np.unique(nodes)) == len(nodes), "a node is reached twice")
        tree = np.concatenate([tree, tree])
    used = np.flatnonzero(owner >= 0)
    is_first = np.ones(n + n_leaves, dtype=bool)
    is_first[np.where(single, child[0][roots], roots)] = False
    order = used[np.lexsort((used, is_first[used], owner[used]))]
    return order, np.bincount(owner[order], minlength=len(roots))


def _member_sets(node: Node, modes: IntArray) -> dict[int, FloatArray]:
    """Members of each set; NaN ends a set."""
    values = node.numbers("membership_values").astype(np.float64)
    nodes = np.flatnonzero(modes == _MEMBER)
    parts = np.split(values, np.flatnonzero(np.isnan(values)))
    sets = [part[~np.isnan(part)] for part in parts]
    _require(len(nodes) <= len(sets) or not len(nodes), "a node has no set")
    return {int(at): sets[number] for number, at in enumerate(nodes)}


def _checked(forest: Forest) -> Forest:
    """The same trees with the rules kept that every later step relies on."""
    _require(0 < forest.n_outputs < 1 << 20, f"there are {forest.n_outputs} outputs")
    output = forest.weight_output
    _require(bool(((output >= 0) & (output < forest.n_outputs)).all()), "an output does not exist")
    inner = forest.mode != _LEAF
    _require(bool((forest.column[inner] >= 0).all()), "a node tests a column that does not exist")
    order = np.lexsort((output, forest.weight_node))
    forest.weight_node, forest.weight_output = forest.weight_node[order], output[order]
    forest.weight = forest.weight[order]
    same = (np.diff(forest.weight_node) == 0) & (np.diff(forest.weight_output) == 0)
    if same.any():
        raise UnsupportedModel("A leaf must have at most one weight per output. Got two of them.")
    return forest


def canonical_trees(
    forest: Forest, columns: tuple[Column, ...], raw_precision: Precision
) -> tuple[TreeArrays, dict[int, tuple[str, ...]]]:
    """Canonical trees over the raw columns, and the names of the categories of raw columns."""
    inner = forest.mode != _LEAF
    if inner.any() and int(forest.column[inner].max()) >= len(columns):
        raise BrokenModelFile(
            f"The trees must test one of {len(columns)} columns."
            f" Got column {int(forest.column[inner].max())}."
        )
    _join_chains(forest)
    names = _category_names(columns)
    width, value, output = _leaves(forest)
    builder = TreeBuilder(leaf_width=width)
    n = len(forest.mode)
    feature = np.full(n, -1, dtype=np.int64)
    tests = _Tests(
        threshold=np.zeros(n),
        flags=np.zeros(n, dtype=np.int64),
        category_set=np.full(n, -1, dtype=np.int64),
        swap=np.zeros(n, dtype=bool),
    )
    tested = np.flatnonzero(inner)
    for number in np.unique(forest.column[tested]):
        nodes = tested[forest.column[tested] == number]
        column = columns[number]
        feature[nodes] = column.feature
        if column.table is not None:
            _look_up(forest, nodes, column.table, names.get(column.feature), tests, builder)
            continue
        is_set = forest.mode[nodes] >= _EQ
        _compare(forest, nodes[~is_set], column, tests, raw_precision)
        _members(forest, nodes[is_set], column, tests, builder)
    builder.add_forest(
        sizes=forest.sizes,
        output=output,
        feature=feature,
        threshold=tests.threshold,
        left=forest.true,
        right=forest.false,
        flags=tests.flags,
        value=value,
        category_set=tests.category_set,
        swap=tests.swap,
    )
    return builder.finish(), names


@dataclass(slots=True)
class _Tests:
    """The tests of all nodes in canonical form, filled in column by column."""

    threshold: FloatArray
    flags: IntArray
    category_set: IntArray
    swap: BoolArray


def _join_chains(forest: Forest) -> None:
    """Make one set of equalities on one column that lead to the same node one after another.

    Converters of LightGBM write a set of categories so. The later nodes of a chain are left behind.
    """
    first = np.cumsum(forest.sizes) - forest.sizes
    base = first[forest.tree]
    for node in np.flatnonzero(np.isin(forest.mode, (_EQ, _NEQ)))[::-1].tolist():
        forest.members[node] = forest.value[node : node + 1]
    for node in np.flatnonzero(forest.mode == _EQ).tolist():
        found = [forest.members[node]]
        after = int(base[node] + forest.false[node])
        seen = {node}
        while (
            after not in seen
            and forest.mode[after] == _EQ
            and forest.column[after] == forest.column[node]
            and forest.true[after] == forest.true[node]
            and forest.missing_true[after] == forest.missing_true[node]
        ):
            seen.add(after)
            found.append(forest.value[after : after + 1])
            after = int(base[after] + forest.false[after])
        if len(found) > 1:
            forest.members[node] = np.concatenate(found)
            forest.false[node] = after - base[node]


def _category_names(columns: tuple[Column, ...]) -> dict[int, tuple[str, ...]]:
    """Names of the categories of raw columns of strings, in the order of first mention."""
    names: dict[int, dict[str, None]] = {}
    for column in columns:
        if column.table is not None and isinstance(column.table.keys[0], str):
            names.setdefault(column.feature, {}).update(dict.fromkeys(column.table.keys))
    return {feature: tuple(found) for feature, found in names.items()}


def _is_true(forest: Forest, nodes: IntArray, values: FloatArray) -> BoolArray:
    """Whether nodes send values of their columns to the true side; shapes are broadcast."""
    limit, mode = forest.value[nodes], forest.mode[nodes]
    result = np.where(mode == _LEQ, values <= limit, values < limit)
    result = np.where(mode == _GTE, values >= limit, result)
    result = np.where(mode == _GT, values > limit, result)
    return result | (np.isnan(values) & forest.missing_true[nodes])


def _compare(
    forest: Forest, nodes: IntArray, column: Column, tests: _Tests, precision: Precision
) -> None:
    """Tests of numbers: true is left, unless the raw column must be turned for it."""
    if not len(nodes):
        return
    missing = column.values(np.full(1, np.nan))[0]
    missing_true = _is_true(forest, nodes, np.full(len(nodes), missing))
    tests.flags[nodes] = np.where(missing_true, MISSING_LEFT, 0)
    mode = forest.mode[nodes]
    # "x > t" is true where "x <= t" is not, and likewise for "x >= t" and "x < t".
    swap = (mode == _GT) | (mode == _GTE)
    if column.steps:
        threshold, always = _raw_thresholds(forest, nodes, column, swap ^ column.falls, precision)
        tests.threshold[nodes] = threshold
        tests.swap[nodes] = swap ^ column.falls ^ always
        return
    limit = forest.value[nodes]
    if np.isnan(limit).any():
        raise BrokenModelFile("A node of the ONNX model compares with NaN.")
    is_closed = (mode == _LEQ) | (mode == _GT)
    # Nothing is above infinity, which the canonical form says by changing sides.
    threshold, always = canonical_splits(limit, precision, is_closed)
    never = np.isposinf(threshold)
    tests.threshold[nodes] = np.where(never, -np.inf, threshold)
    tests.swap[nodes] = swap ^ always ^ never
    if np.any(never & ~np.isposinf(limit)):
        raise UnsupportedModel("A node of the ONNX model tells infinity from all other numbers.")


def _raw_thresholds(
    forest: Forest, nodes: IntArray, column: Column, turned: BoolArray, precision: Precision
) -> tuple[FloatArray, BoolArray]:
    """Smallest raw number that goes right at each node, and which nodes send every number left.

    Left is the true side, or the other one where turned. Sound: every step rises or falls and maps
    numbers to numbers, so numbers that go left are below all that do not, and halving the range of
    floats finds the first of these exactly, through the very roundings of the steps.
    """
    dtype, integer = (np.float64, np.int64) if precision == "float64" else (np.float32, np.int32)

    def number(key: NDArray[Any]) -> FloatArray:
        size = np.abs(key).astype(integer).view(dtype).astype(np.float64)
        return np.where(key < 0, -size, size)

    def goes_left(key: NDArray[Any]) -> BoolArray:
        values = column.values(number(key))
        return _is_true(forest, nodes, values) ^ turned

    end = int(np.array(np.inf, dtype).view(integer))
    low, high = np.full(len(nodes), -end, np.int64), np.full(len(nodes), end, np.int64)
    always, never = goes_left(high), ~goes_left(low)
    # Halves of each, because their sum may not fit.
    while np.any((middle := (low >> 1) + (high >> 1) + (low & high & 1)) != low):
        left = goes_left(middle)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    threshold = number(high)
    settled = always | never
    if np.any(np.isposinf(threshold) & ~settled):
        raise UnsupportedModel("A node of the ONNX model tells infinity from all other numbers.")
    return np.where(settled, -np.inf, threshold), always


def _members(
    forest: Forest, nodes: IntArray, column: Column, tests: _Tests, builder: TreeBuilder
) -> None:
    """Tests of numbers for equality: sets of whole numbers, which are categories."""
    if len(nodes) and column.steps:
        raise UnsupportedModel(
            "A node that tests for equality must test a raw column. Got one that was changed."
        )
    for node in nodes.tolist():
        found = forest.members[node]
        # onnxruntime compares the members of small sets, and looks up whole parts in larger ones.
        is_large = forest.mode[node] == _MEMBER and (
            len(found) > _SMALL_SET or found.max(initial=0) > _SMALL_SET
        )
        tests.category_set[node] = builder.add_category_set(_codes(found))
        tests.flags[node] = CATEGORICAL | (0 if is_large else WHOLE_CATEGORY)
        is_other = forest.mode[node] == _NEQ
        tests.swap[node] = is_other
        if forest.missing_true[node] or is_other:
            tests.flags[node] |= MISSING_LEFT


def _codes(values: FloatArray) -> IntArray:
    """Whole numbers that can be categories."""
    if np.any(values != np.floor(values)) or np.any((values < 0) | (values >= MAX_CATEGORY)):
        raise UnsupportedModel(
            f"A node that tests for equality must list whole numbers from 0 to {MAX_CATEGORY - 1}."
            f" Got {values[:5].tolist()}."
        )
    return values.astype(np.int64)


def _look_up(
    forest: Forest,
    nodes: IntArray,
    table: Table,
    names: tuple[str, ...] | None,
    tests: _Tests,
    builder: TreeBuilder,
) -> None:
    """Tests of a column that is looked up: a set of the categories that go another way."""
    if (forest.mode[nodes] >= _EQ).any():
        raise UnsupportedModel("A node must not test an encoded column for equality.")
    if names is None:
        codes = _codes(np.array(table.keys, dtype=np.float64))
    else:
        place = {name: number for number, name in enumerate(names)}
        codes = np.array([place[key] for key in table.keys], dtype=np.int64)
    values = np.asarray(table.values, dtype=np.float64)
    sets: dict[bytes, int] = {}
    is_true = _is_true(forest, nodes[:, np.newaxis], values[np.newaxis, :])
    for node, sides in zip(nodes.tolist(), is_true, strict=True):
        differs = sides[:-1] != sides[-1]
        key = differs.tobytes()
        if key not in sets:
            sets[key] = builder.add_category_set(codes[differs])
        tests.category_set[node] = sets[key]
        tests.flags[node] = CATEGORICAL | (0 if table.truncates else WHOLE_CATEGORY)
        # Canonical is "in the set goes left"; what is in no set, missing values too, goes with
        # the value of all other categories.
        if sides[-1]:
            tests.flags[node] |= MISSING_LEFT
            tests.swap[node] = True


def _leaves(forest: Forest) -> tuple[int, FloatArray, IntArray]:
    """Width of leaves, what every node adds, and the output of every tree."""
    n, tree = len(forest.mode), forest.tree[forest.weight_node]
    low = np.full(len(forest.sizes), forest.n_outputs, dtype=np.int64)
    high = np.full(len(forest.sizes), -1, dtype=np.int64)
    np.minimum.at(low, tree, forest.weight_output)
    np.maximum.at(high, tree, forest.weight_output)
    if np.all(low == high):
        value = np.zeros(n)
        value[forest.weight_node] = forest.weight
        return 1, value, low
    if n * forest.n_outputs > MAX_LEAF_VALUES:
        raise UnsupportedModel(
            f"A model may have at most {MAX_LEAF_VALUES:,} leaf values."
            f" Got {n:,} nodes of {forest.n_outputs} outputs."
        )
    vector = np.zeros((n, forest.n_outputs))
    vector[forest.weight_node, forest.weight_output] = forest.weight
    return forest.n_outputs, vector, np.full(len(forest.sizes), -1, dtype=np.int64)


def leaves_without_weight(forest: Forest) -> bool:
    """Whether some leaf that can be reached adds nothing, not even zero."""
    has = np.zeros(len(forest.mode), dtype=bool)
    has[forest.weight_node] = True
    return bool(((forest.mode == _LEAF) & forest.reached() & ~has).any())
