"""CatBoost's JSON format, read without CatBoost.

Trees name their splits twice: by feature and border, and by the number that CatBoost itself uses, a
position in the list of all borders and one-hot values. Both must agree, or CatBoost would run
another model than the one that people read.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from treeproof.errors import BrokenModelFile, UnsupportedModel

MAX_TREE_DEPTH = 16
"""CatBoost grows no deeper oblivious trees."""

_POWERS = tuple(float(f"1e{power}") for power in range(309))
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


class JsonModel(msgspec.Struct, frozen=True):
    """Everything in a model file that decides its answers."""

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


def parse_model(text: bytes, *, as_catboost_reads: bool) -> JsonModel:
    """Read and check a model.

    Parameters
    ----------
    text : bytes
        Content of the file.
    as_catboost_reads : bool
        True for the numbers that CatBoost makes of the file, whose reader is off by one bit now and
        then; False for those that were written, the numbers of the model that was saved.
    """
    try:
        content = json.loads(
            text,
            parse_float=catboost_number if as_catboost_reads else float,
            parse_int=_catboost_integer if as_catboost_reads else _integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
        model = msgspec.convert(content, JsonModel)
    except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BrokenModelFile(f"This is no CatBoost model in JSON: {reason}.") from error
    _check_features(model)
    return model


def checked_json(text: bytes) -> bytes:
    """The same model for CatBoost's reader, without any part that plays no role in predictions.

    Numbers stay as they are written, since CatBoost's reader may round another spelling otherwise.
    """
    parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    info = msgspec.json.decode(parts.get("model_info", b"{}"), type=dict[str, msgspec.Raw])
    kept: dict[str, Any] = {
        key: parts[key]
        for key in ("features_info", "oblivious_trees", "trees", "scale_and_bias")
        if key in parts
    }
    kept["model_info"] = {
        key: info[key] for key in ("class_params", "binclass_probability_threshold") if key in info
    }
    return msgspec.json.encode(kept)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 18 else float(digits)


def _catboost_integer(digits: str) -> int | str:
    """Whole number, or its digits where CatBoost would take a leaf value of that size for zero."""
    small = len(digits) <= 17 and abs(int(digits)) <= 2**53
    return int(digits) if small else digits


def _refuse_constant(word: str) -> float:
    raise ValueError(f"numbers must be finite, got {word}")


def catboost_number(text: str) -> float:
    """Decimal number as CatBoost's JSON reader rounds it, mostly the nearest double.

    It gathers digits in an integer up to 53 bits, then in a double up to 17 digits, and multiplies
    by or divides by a power of ten.
    """
    match = re.fullmatch(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]{1,5}))?", text)
    if match is None:
        raise ValueError(f"a number must have fewer digits, got {text[:40]}")
    sign, whole, fraction, exponent = match.groups()
    gathered = int(whole)
    if gathered >= 2**63:
        raise ValueError(f"a number must have fewer digits, got {text[:40]}")
    n_digits = max(len(whole.lstrip("0")) - 1, 0)
    digits, n_used = fraction or "", 0
    while n_used < len(digits) and gathered <= 2**53 - 1:
        gathered = 10 * gathered + int(digits[n_used])
        n_used += 1
        n_digits += gathered != 0
    value = float(gathered)
    power = -n_used
    for digit in digits[n_used:]:
        if n_digits < 17:
            value = value * 10.0 + int(digit)
            power -= 1
            n_digits += value > 0.0
    value = _scaled(value, power + int(exponent or 0))
    if math.isinf(value):
        raise ValueError(f"a number must be finite, got {text[:40]}")
    return -value if sign else value


def _scaled(value: float, power: int) -> float:
    """Value times a power of ten, rounded as CatBoost's reader does it."""
    if power > 308:
        return math.inf
    if power < -308:
        value, power = value / _POWERS[308], power + 308
    if power < -308:
        return 0.0
    return value * _POWERS[power] if power >= 0 else value / _POWERS[-power]


def _check_features(model: JsonModel) -> None:
    """Features must have the places that CatBoost's numbering of splits takes for granted."""
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


def split_table(model: JsonModel) -> list[tuple[str, int, float]]:
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
