"""A CatBoost model as read from either of its file formats, before it becomes canonical.

The classes follow CatBoost's JSON, so that `msgspec` can check and convert it as a whole.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from treeproof.errors import BrokenModelFile, UnsupportedModel

MAX_TREE_DEPTH = 16
"""CatBoost grows no deeper oblivious trees."""

_Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class FloatFeature(msgspec.Struct, frozen=True):
    """A numeric feature, its borders, and where missing values go."""

    feature_index: _Index
    flat_feature_index: _Index
    has_nans: bool
    nan_value_treatment: Literal["AsIs", "AsFalse", "AsTrue"]
    borders: tuple[float, ...] | None = ()
    feature_id: str = ""
    feature_name: str = ""


class CategoricalFeature(msgspec.Struct, frozen=True):
    """A categorical feature; `values` are hashes that trees compare it with."""

    feature_index: _Index
    flat_feature_index: _Index
    values: tuple[int, ...] | None = ()
    feature_id: str = ""
    feature_name: str = ""


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


class Split(msgspec.Struct, frozen=True):
    """One test of one feature."""

    split_type: str
    split_index: _Index
    float_feature_index: _Index = 0
    border: float = math.nan
    cat_feature_index: _Index = 0
    value: int = 0


class ObliviousTree(msgspec.Struct, frozen=True):
    """A tree with one split per level; bit k of a leaf's number is the answer of split k."""

    leaf_values: tuple[float, ...]
    splits: tuple[Split, ...] | None = ()


class Node(msgspec.Struct, frozen=True):
    """A node of a tree of any shape: a split with two children, or a leaf's value."""

    split: Split | None = None
    left: "Node | None" = None
    right: "Node | None" = None
    value: float | tuple[float, ...] | None = None


class CatBoostModel(msgspec.Struct, frozen=True):
    """Everything in a model that decides its answers, as its JSON spells it."""

    features_info: FeaturesInfo
    oblivious_trees: tuple[ObliviousTree, ...] | None = None
    trees: tuple[Node, ...] | None = None
    scale_and_bias: tuple[float, tuple[float, ...] | None] = (1.0, ())
    model_info: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def float_features(self) -> tuple[FloatFeature, ...]:
        """Numeric features, in order of their index."""
        return self.features_info.float_features or ()

    @property
    def categorical_features(self) -> tuple[CategoricalFeature, ...]:
        """Categorical features, in order of their index."""
        return self.features_info.categorical_features or ()


def check_features(model: CatBoostModel) -> None:
    """Refuse features in other places than CatBoost's numbers of splits take for granted."""
    info = model.features_info
    for word, present in (("text", info.text_features), ("embedding", info.embedding_features)):
        if present:
            raise UnsupportedModel(
                f"Models with {word} features cannot be represented. Train without them."
            )
    places = [feature.flat_feature_index for feature in model.float_features]
    places += [feature.flat_feature_index for feature in model.categorical_features]
    if sorted(places) != list(range(len(places))) or not places:
        raise BrokenModelFile("The features must have the columns 0, 1, 2, … each once.")
    numbers = [feature.feature_index for feature in model.float_features]
    numbers += [feature.feature_index for feature in model.categorical_features]
    kinds = (range(len(model.float_features)), range(len(model.categorical_features)))
    if numbers != [index for kind in kinds for index in kind]:
        raise BrokenModelFile("Features of a kind must be listed in order of their index.")
    for numeric in model.float_features:
        borders = np.array(numeric.borders or (), dtype=np.float64)
        with np.errstate(over="ignore"):
            single = borders.astype(np.float32)
        if not np.isfinite(single).all() or np.any(np.diff(single) <= 0):
            raise BrokenModelFile(
                f"Feature {numeric.flat_feature_index}: borders must rise and be finite float32"
                " numbers. The model file is damaged."
            )
    for categorical in model.categorical_features:
        values = categorical.values or ()
        if len(set(values)) != len(values) or not all(-(2**31) <= v < 2**31 for v in values):
            raise BrokenModelFile(
                f"Feature {categorical.flat_feature_index}: one-hot values must be different"
                " 32-bit hashes. The model file is damaged."
            )


def split_table(model: CatBoostModel) -> list[tuple[str, int, float]]:
    """Kind, index of the feature, and border or hash, of each split by CatBoost's own number."""
    table = [
        ("FloatFeature", feature.feature_index, border)
        for feature in model.float_features
        for border in feature.borders or ()
    ]
    table += [
        ("OneHotFeature", feature.feature_index, value)
        for feature in model.categorical_features
        for value in feature.values or ()
    ]
    return table


def described(split: Split) -> tuple[str, int, float]:
    """What a split says of itself, as `split_table` lists it."""
    if split.split_type == "OneHotFeature":
        return split.split_type, split.cat_feature_index, split.value
    return split.split_type, split.float_feature_index, split.border


def nodes_in_order(root: Node) -> Iterator[tuple[Node, int]]:
    """Nodes of a tree from the root, left before right, each with the place of its parent."""
    stack = [(root, -1)]
    place = 0
    while stack:
        node, parent = stack.pop()
        yield node, parent
        if node.right is not None:
            stack.append((node.right, place))
        if node.left is not None:
            stack.append((node.left, place))
        place += 1
