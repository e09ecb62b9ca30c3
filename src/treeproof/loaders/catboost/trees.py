"""CatBoost's trees and categories in canonical form.

CatBoost answers a numeric split with "yes" iff ``float32(x) > border``; "no" is the left side here,
and the canonical threshold is the float32 after the border. A one-hot split says "yes" to a single
category; a set of one category goes left, so there "yes" is the left side.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.catboost.model import (
    MAX_TREE_DEPTH,
    CatBoostModel,
    Node,
    ObliviousTree,
    Split,
    described,
    nodes_in_order,
    split_table,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.category_hashes import category_hash
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    FloatArray,
    TreeArrays,
)

_ABOVE_FLOAT32 = 2.0**128
"""Between the largest float32 and infinity: what "beyond the largest float32" compares with."""

_SMALL_NUMBERS = 10_000
"""Categories that are whole numbers below keep their numbers as codes."""


@dataclass(slots=True)
class _Tests:
    """Canonical form of every split of the model, by CatBoost's number of the split."""

    feature: NDArray[np.int64]
    threshold: FloatArray
    flags: NDArray[np.int64]
    category_set: NDArray[np.int64]


class CatBoostTrees:
    """Translates the trees of one model.

    Parameters
    ----------
    model : CatBoostModel
        The parsed model.
    n_outputs : int
        Number of margins per row.
    """

    def __init__(self, model: CatBoostModel, n_outputs: int) -> None:
        self._model = model
        self._builder = TreeBuilder(leaf_width=n_outputs)
        self._output = 0 if n_outputs == 1 else -1
        self._n_outputs = n_outputs
        self._table = split_table(model)
        self.categories = raw_categories(model)
        self._tests = self._canonical_tests()

    def arrays(self, leaf_numbers: list[list[int]] | None) -> TreeArrays:
        """Canonical arrays; `leaf_numbers` are CatBoost's own, in order, for trees of any shape."""
        for number, oblivious in enumerate(self._model.oblivious_trees or ()):
            self._add_oblivious(number, oblivious)
        for number, root in enumerate(self._model.trees or ()):
            self._add_free(number, root, leaf_numbers[number] if leaf_numbers else None)
        return self._builder.finish()

    def _canonical_tests(self) -> _Tests:
        # One row more than there are splits: leaves need a row to point at, too.
        n = len(self._table) + 1
        tests = _Tests(
            np.zeros(n, dtype=np.int64),
            np.zeros(n),
            np.zeros(n, dtype=np.int64),
            np.full(n, -1),
        )
        code = {
            feature: {category_key(entry): c for c, entry in enumerate(entries)}
            for feature, entries in self.categories.items()
        }
        for number, (kind, index, value) in enumerate(self._table):
            if kind == "OneHotFeature":
                place = self._model.categorical_features[index].flat_feature_index
                members = [code[place][int(value) % 2**32]]
                tests.flags[number] = CATEGORICAL | WHOLE_CATEGORY | NONNEGATIVE_CATEGORY
                tests.category_set[number] = self._builder.add_category_set(members)
            else:
                feature = self._model.float_features[index]
                place = feature.flat_feature_index
                # Without NaN in training CatBoost replaces nothing, and NaN > border is false.
                missing_right = feature.has_nans and feature.nan_value_treatment == "AsTrue"
                tests.flags[number] = 0 if missing_right else MISSING_LEFT
                tests.threshold[number] = _above(value)
            tests.feature[number] = place
        return tests

    def _number(self, split: Split, tree: int, node: int) -> int:
        """CatBoost's number of a split; refuses splits that cannot be represented."""
        where = f"Tree {tree}, split {node}"
        if split.split_type == "OnlineCtr":
            raise UnsupportedModel(
                f"{where} compares statistics of the target over categories (CTR), which depend on"
                " combinations of features. Train with one_hot_max_size above the number of"
                " categories of every feature, or encode categories before training."
            )
        if split.split_type not in ("FloatFeature", "OneHotFeature"):
            raise UnsupportedModel(
                f"{where} is of the kind '{split.split_type[:40]}', which cannot be represented."
                " Train without text and embedding features."
            )
        number = split.split_index
        if number >= len(self._table) or self._table[number] != described(split):
            raise BrokenModelFile(
                f"{where}: the split and its number {number} in CatBoost's list of splits differ,"
                " so CatBoost runs another model than people read. The model file is damaged."
            )
        return number

    def _add_oblivious(self, number: int, tree: ObliviousTree) -> None:
        """Add a tree whose level l from the root asks split ``depth - 1 - l``.

        So the way from the root spells the bits of the leaf's number, highest first.
        """
        splits = tree.splits or ()
        depth = len(splits)
        if depth > MAX_TREE_DEPTH or len(tree.leaf_values) != 2**depth * self._n_outputs:
            raise BrokenModelFile(
                f"Tree {number} must have at most {MAX_TREE_DEPTH} splits and 2**splits leaves with"
                f" {self._n_outputs} values each. Got {depth} splits and {len(tree.leaf_values)}"
                " values. The model file is damaged."
            )
        asked = np.array([self._number(s, number, k) for k, s in enumerate(splits)], dtype=np.int64)
        n_inner = 2**depth - 1
        nodes = np.arange(2 * n_inner + 1)
        level = np.frexp((nodes[:n_inner] + 1).astype(np.float64))[1] - 1
        test = np.zeros(len(nodes), dtype=np.int64)
        test[:n_inner] = asked[depth - 1 - level]
        # "Yes" to a category goes left, so its bit is the other way round.
        turned = np.flatnonzero(self._tests.category_set[asked] >= 0)
        leaf_number = np.arange(2**depth) ^ int(np.sum(2**turned))
        values = np.zeros((len(nodes), self._n_outputs))
        values[n_inner:] = np.reshape(tree.leaf_values, (2**depth, -1))[leaf_number]
        source = np.concatenate([np.zeros(n_inner, dtype=np.int64), leaf_number])
        child = np.where(nodes < n_inner, 2 * nodes + 1, -1)
        self._add(test, child, np.where(child < 0, -1, child + 1), values, source)

    def _add_free(self, number: int, root: Node, leaf_numbers: list[int] | None) -> None:
        """Add a tree of any shape, its nodes numbered in order."""
        left: list[int] = []
        right: list[int] = []
        test: list[int] = []
        value: list[tuple[float, ...]] = []
        nothing = (0.0,) * self._n_outputs
        for place, (node, parent) in enumerate(nodes_in_order(root)):
            if parent >= 0:
                (left if left[parent] < 0 else right)[parent] = place
            left.append(-1)
            right.append(-1)
            if node.split is None:
                test.append(0)
                value.append(self._leaf_value(node, number, place))
            elif node.left is None or node.right is None or node.value is not None:
                raise BrokenModelFile(
                    f"Tree {number}, node {place} must have two children and no value."
                    " The model file is damaged."
                )
            else:
                test.append(self._number(node.split, number, place))
                value.append(nothing)
        first, second, tests = np.array(left), np.array(right), np.array(test)
        leaf = first < 0
        source = np.where(leaf, np.cumsum(leaf) - 1, 0)
        if leaf_numbers is not None and len(leaf_numbers) == leaf.sum():
            source[leaf] = leaf_numbers
        turned = ~leaf & (self._tests.category_set[tests] >= 0)
        first, second = np.where(turned, second, first), np.where(turned, first, second)
        self._add(tests, first, second, np.array(value), source)

    def _leaf_value(self, node: Node, tree: int, place: int) -> tuple[float, ...]:
        value = node.value if isinstance(node.value, tuple) else (node.value,)
        if node.left is not None or node.right is not None or len(value) != self._n_outputs:
            raise BrokenModelFile(
                f"Tree {tree}, node {place} must be a leaf with {self._n_outputs} values."
                " The model file is damaged."
            )
        if None in value:
            raise BrokenModelFile(f"Tree {tree}, node {place} has neither a split nor a value.")
        return tuple(number for number in value if number is not None)

    def _add(
        self,
        test: NDArray[np.int64],
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        value: FloatArray,
        source: NDArray[np.int64],
    ) -> None:
        tests = self._tests
        self._builder.add_tree(
            feature=tests.feature[test],
            threshold=tests.threshold[test],
            left=left,
            right=right,
            flags=tests.flags[test],
            value=value,
            output=self._output,
            source=source,
            category_set=tests.category_set[test],
        )


def _above(border: float) -> float:
    """Float32 number after a border; beyond the largest one a number that only infinity exceeds."""
    single = np.float32(border)
    if single == np.finfo(np.float32).max:
        return _ABOVE_FLOAT32
    return float(np.nextafter(single, np.float32(np.inf)))


def category_key(entry: str | int) -> int:
    """Hash of an entry of the category tables."""
    return entry if isinstance(entry, int) else category_hash(entry)


def raw_categories(model: CatBoostModel) -> dict[int, tuple[str | int, ...]]:
    """What the codes of each categorical feature stand for; for CatBoost see `category_hashes`.

    Where all categories that trees ask for are small whole numbers, codes are these numbers.
    Otherwise codes count the categories that trees ask for, by their text where it is known.
    """
    listed = model.features_info.cat_features_hash or ()
    text = {h.hash % 2**32: h.value for h in listed if category_hash(h.value) == h.hash % 2**32}
    if any(feature.values for feature in model.categorical_features):
        text = {**_small_numbers(), **text}
    categories: dict[int, tuple[str | int, ...]] = {}
    for feature in model.categorical_features:
        hashes = [value % 2**32 for value in feature.values or ()]
        entries = tuple(text.get(number, number) for number in hashes)
        numbers = [_small_number(entry) for entry in entries]
        if entries and min(numbers) >= 0:
            entries = tuple(str(number) for number in range(max(numbers) + 1))
        categories[feature.flat_feature_index] = entries
    return categories


@cache
def _small_numbers() -> dict[int, str]:
    return {category_hash(str(number)): str(number) for number in range(_SMALL_NUMBERS)}


def _small_number(entry: str | int) -> int:
    """The small whole number that a category's text spells, or -1."""
    if isinstance(entry, int) or not (entry.isascii() and entry.isdigit() and len(entry) <= 4):
        return -1
    return int(entry) if str(int(entry)) == entry else -1
