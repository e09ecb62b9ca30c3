"""A CatBoost model as read from either of its file formats, and its canonical form.

A tree asks splits by their numbers in one list, and goes right where the answer is "yes". CatBoost
answers a numeric split with "yes" iff ``float32(x) > border``; "no" is the left side here, and the
canonical threshold is the float32 after the border. A one-hot split says "yes" to a single
category; a set of one category goes left, so there "yes" is the left side.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.rules import next_float32
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

MAX_TREE_DEPTH = 16
"""CatBoost grows no deeper oblivious trees."""

_ABOVE_FLOAT32 = 2.0**128
"""Between the largest float32 and infinity: what "beyond the largest float32" compares with."""

_SMALL_NUMBERS = 10_000
"""Categories that are whole numbers below keep their numbers as codes."""

CTR_REFUSAL = (
    "compares statistics of the target over categories (CTR), which depend on combinations of"
    " features. Train with one_hot_max_size above the number of categories of every feature, or"
    " encode categories before training."
)

Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
IntArray = NDArray[np.int64]


class _Feature(msgspec.Struct, frozen=True, kw_only=True):
    feature_index: Index
    flat_feature_index: Index
    feature_id: str = ""
    feature_name: str = ""


class FloatFeature(_Feature, frozen=True, kw_only=True):
    """A numeric feature, its borders, and where missing values go."""

    has_nans: bool
    nan_value_treatment: Literal["AsIs", "AsFalse", "AsTrue"]
    borders: tuple[float, ...] | None = ()


class CategoricalFeature(_Feature, frozen=True, kw_only=True):
    """A categorical feature; `values` are hashes that trees compare it with."""

    values: tuple[int, ...] | None = ()


class CategoryHash(msgspec.Struct, frozen=True):
    """A category of the training data, listed when the model was saved with its pool."""

    hash: int
    value: str


class FeaturesInfo(msgspec.Struct, frozen=True):
    """All features; what other kinds there are is refused by the trees that use them."""

    float_features: tuple[FloatFeature, ...] | None = ()
    categorical_features: tuple[CategoricalFeature, ...] | None = ()
    cat_features_hash: tuple[CategoryHash, ...] | None = ()
    text_features: Any = None
    embedding_features: Any = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree, its root first; `left` and `right` are -1 at leaves."""

    left: IntArray
    right: IntArray
    split: IntArray  # number of the split that an inner node asks, 0 at leaves
    value: FloatArray  # (n_nodes, n_outputs), of leaves
    number: IntArray  # CatBoost's own number of each leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class CatBoostModel:
    """Everything in a model that decides its answers."""

    features_info: FeaturesInfo
    n_outputs: int
    trees: list[Tree]
    scale: float
    bias: tuple[float, ...]
    info: dict[str, Any]

    @property
    def features(self) -> list[_Feature]:
        """All features."""
        return [*self.float_features, *self.categorical_features]

    @property
    def float_features(self) -> tuple[FloatFeature, ...]:
        """Numeric features in the order of their index."""
        return self.features_info.float_features or ()

    @property
    def categorical_features(self) -> tuple[CategoricalFeature, ...]:
        """Categorical features in the order of their index."""
        return self.features_info.categorical_features or ()


def check_features(info: FeaturesInfo) -> None:
    """Refuse features in other places than CatBoost's numbers of splits take for granted."""
    floats, categories = info.float_features or (), info.categorical_features or ()
    for word, present in (("text", info.text_features), ("embedding", info.embedding_features)):
        if present:
            raise UnsupportedModel(
                f"Models with {word} features cannot be represented. Train without them."
            )
    features: list[_Feature] = [*floats, *categories]
    places = [feature.flat_feature_index for feature in features]
    if sorted(places) != list(range(len(places))) or not places:
        raise BrokenModelFile("The features must have the columns 0, 1, 2, … each once.")
    numbers = [feature.feature_index for feature in features]
    if numbers != [*range(len(floats)), *range(len(categories))]:
        raise BrokenModelFile("Features of a kind must be listed in order of their index.")
    for numeric in floats:
        borders = np.array(numeric.borders or (), dtype=np.float64)
        with np.errstate(over="ignore"):
            single = borders.astype(np.float32)
        if not np.isfinite(single).all() or np.any(single[1:] <= single[:-1]):
            raise BrokenModelFile(
                f"Feature {numeric.flat_feature_index}: borders must rise and be finite float32"
                " numbers. The model file is damaged."
            )
    for categorical in categories:
        values = categorical.values or ()
        if len(set(values)) != len(values) or not all(-(2**31) <= v < 2**31 for v in values):
            raise BrokenModelFile(
                f"Feature {categorical.flat_feature_index}: one-hot values must be different"
                " 32-bit hashes. The model file is damaged."
            )


def split_table(info: FeaturesInfo) -> list[tuple[str, int, float]]:
    """Kind, index of the feature, and border or hash, of each split by CatBoost's own number."""
    table = [
        ("FloatFeature", feature.feature_index, border)
        for feature in info.float_features or ()
        for border in feature.borders or ()
    ]
    table += [
        ("OneHotFeature", feature.feature_index, value)
        for feature in info.categorical_features or ()
        for value in feature.values or ()
    ]
    return table


def oblivious_tree(splits: IntArray, leaf_values: FloatArray) -> Tree:
    """Tree with one split per level; `leaf_values` are (2**depth, n_outputs).

    Bit k of a leaf's number is the answer to split k. Level l from the root asks split
    ``depth - 1 - l``, so the way from the root spells the bits, highest first.
    """
    depth, n_inner = len(splits), len(leaf_values) - 1
    nodes = np.arange(2 * n_inner + 1)
    level = np.frexp((nodes[:n_inner] + 1).astype(np.float64))[1] - 1
    split, number = np.zeros(len(nodes), dtype=np.int64), nodes - n_inner
    split[:n_inner] = splits[depth - 1 - level]
    left = np.where(nodes < n_inner, 2 * nodes + 1, -1)
    right = np.where(left < 0, -1, left + 1)
    return Tree(left, right, split, leaf_values[np.maximum(number, 0)], np.maximum(number, 0))


@dataclass(slots=True)
class _Tests:
    """Canonical form of every split of the model, by CatBoost's number of the split."""

    feature: IntArray
    threshold: FloatArray
    flags: IntArray
    category_set: IntArray


def tree_arrays(model: CatBoostModel, categories: dict[int, tuple[str | int, ...]]) -> TreeArrays:
    """Canonical arrays of all trees; `categories` are those of `raw_categories`."""
    builder = TreeBuilder(leaf_width=model.n_outputs)
    tests = _canonical_tests(model, categories, builder)
    for number, tree in enumerate(model.trees):
        if np.any(tree.split[tree.left >= 0] >= len(tests.feature) - 1):
            raise BrokenModelFile(f"Tree {number} asks a split that does not exist. It is damaged.")
        sets = tests.category_set[tree.split]
        builder.add_tree(
            feature=tests.feature[tree.split],
            threshold=tests.threshold[tree.split],
            left=tree.left,
            right=tree.right,
            flags=tests.flags[tree.split],
            value=tree.value,
            output=0 if model.n_outputs == 1 else -1,
            source=tree.number,
            category_set=sets,
            swap=(tree.left >= 0) & (sets >= 0),
        )
    return builder.finish()


def _canonical_tests(
    model: CatBoostModel, categories: dict[int, tuple[str | int, ...]], builder: TreeBuilder
) -> _Tests:
    """Tests whose left side is CatBoost's "no", as its trees have it."""
    table = split_table(model.features_info)
    # One row more than there are splits: leaves need a row to point at, too.
    n = len(table) + 1
    feature, flags = np.zeros(n, dtype=np.int64), np.full(n, MISSING_LEFT)
    tests = _Tests(feature, np.zeros(n), flags, np.full(n, -1))
    code = {
        place: {category_key(entry): c for c, entry in enumerate(entries)}
        for place, entries in categories.items()
    }
    for number, (kind, index, value) in enumerate(table):
        if kind == "OneHotFeature":
            place = model.categorical_features[index].flat_feature_index
            members = [code[place][int(value) % 2**32]]
            tests.flags[number] |= CATEGORICAL | WHOLE_CATEGORY | NONNEGATIVE_CATEGORY
            tests.category_set[number] = builder.add_category_set(members)
        else:
            numeric = model.float_features[index]
            place = numeric.flat_feature_index
            # Without NaN in training CatBoost replaces nothing, and NaN > border is false.
            if numeric.has_nans and numeric.nan_value_treatment == "AsTrue":
                tests.flags[number] = 0
            tests.threshold[number] = value
        feature[number] = place
    with np.errstate(over="ignore"):
        above = next_float32(tests.threshold.astype(np.float32).astype(np.float64))
    tests.threshold = np.where(np.isinf(above), _ABOVE_FLOAT32, above)
    return tests


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
