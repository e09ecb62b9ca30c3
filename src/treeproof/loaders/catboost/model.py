"""A CatBoost model as read from either of its file formats, before it becomes canonical.

A tree asks splits by their numbers in one list, and goes right where the answer is "yes".
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.ensemble import FloatArray

MAX_TREE_DEPTH = 16
"""CatBoost grows no deeper oblivious trees."""

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
        if not np.isfinite(single).all() or np.any(np.diff(single) <= 0):
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
