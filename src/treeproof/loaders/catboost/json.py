"""CatBoost's JSON format, read without CatBoost."""

import json
import math
import re
from typing import Any

import msgspec
import numpy as np

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.files import prepare_records
from treeproof.loaders.catboost.model import (
    CTR_REFUSAL,
    MAX_TREE_DEPTH,
    CatBoostModel,
    FeaturesInfo,
    Index,
    Tree,
    check_features,
    oblivious_tree,
    split_table,
)

_POWERS = tuple(float(f"1e{power}") for power in range(309))


class _Split(msgspec.Struct, frozen=True):
    split_type: str
    split_index: Index
    float_feature_index: Index = 0
    border: float = math.nan
    cat_feature_index: Index = 0
    value: int = 0

    def described(self) -> tuple[str, int, float]:
        """What the split says of itself, as `split_table` lists it."""
        if self.split_type == "OneHotFeature":
            return self.split_type, self.cat_feature_index, self.value
        return self.split_type, self.float_feature_index, self.border


class _ObliviousTree(msgspec.Struct, frozen=True):
    leaf_values: tuple[float, ...]
    splits: tuple[_Split, ...] | None = ()


class _Node(msgspec.Struct, frozen=True):
    split: _Split | None = None
    left: "_Node | None" = None
    right: "_Node | None" = None
    value: float | tuple[float, ...] | None = None


class _Document(msgspec.Struct, frozen=True):
    features_info: FeaturesInfo
    oblivious_trees: tuple[_ObliviousTree, ...] | None = None
    trees: tuple[_Node, ...] | None = None
    scale_and_bias: tuple[float, tuple[float, ...] | None] = (1.0, ())
    model_info: dict[str, Any] = msgspec.field(default_factory=dict)


prepare_records(_Document)


def parse_json(text: bytes) -> CatBoostModel:
    """Read and check a model, with the numbers that CatBoost makes of the file.

    CatBoost's reader is off by one bit now and then.
    """
    try:
        content = json.loads(
            text,
            parse_float=catboost_number,
            parse_int=_catboost_integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
        document = msgspec.convert(content, _Document)
    except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
        nested = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if nested else str(error)[:200]
        raise BrokenModelFile(f"This is no CatBoost model in JSON: {reason}.") from error
    check_features(document.features_info)
    reader = _Trees(document)
    return CatBoostModel(
        features_info=document.features_info,
        n_outputs=reader.n_outputs,
        trees=reader.trees(),
        scale=document.scale_and_bias[0],
        bias=document.scale_and_bias[1] or (),
        info=document.model_info,
    )


class _Trees:
    """Turns the trees of a document into numbered nodes."""

    def __init__(self, document: _Document) -> None:
        if (document.oblivious_trees is None) == (document.trees is None):
            raise BrokenModelFile(
                "A CatBoost model must have 'oblivious_trees' or 'trees', not both."
            )
        self._oblivious, self._free = document.oblivious_trees or (), document.trees or ()
        self._table = split_table(document.features_info)
        self.n_outputs = self._width()

    def _width(self) -> int:
        """Values per leaf, by the first tree."""
        if self._oblivious:
            first = self._oblivious[0]
            return max(len(first.leaf_values) >> len(first.splits or ()), 1)
        if self._free:
            node = self._free[0]
            while node.left is not None:
                node = node.left
            return len(node.value) if isinstance(node.value, tuple) else 1
        raise UnsupportedModel("A model must have at least one tree. Got none. Train it first.")

    def trees(self) -> list[Tree]:
        """All trees, in order; a model has one kind of them."""
        found = [self._oblivious_tree(number, tree) for number, tree in enumerate(self._oblivious)]
        return found + [self._free_tree(number, root) for number, root in enumerate(self._free)]

    def _split(self, split: _Split, tree: int, node: int) -> int:
        """CatBoost's number of a split; refuses splits that cannot be represented."""
        where = f"Tree {tree}, split {node}"
        if split.split_type == "OnlineCtr":
            raise UnsupportedModel(f"{where} {CTR_REFUSAL}")
        if split.split_type not in ("FloatFeature", "OneHotFeature"):
            raise UnsupportedModel(
                f"{where} is of the kind '{split.split_type[:40]}', which cannot be represented."
                " Train without text and embedding features."
            )
        number = split.split_index
        if number >= len(self._table) or self._table[number] != split.described():
            raise BrokenModelFile(
                f"{where}: the split and its number {number} in CatBoost's list of splits differ,"
                " so CatBoost runs another model than people read. The model file is damaged."
            )
        return number

    def _oblivious_tree(self, number: int, tree: _ObliviousTree) -> Tree:
        splits = tree.splits or ()
        depth = len(splits)
        if depth > MAX_TREE_DEPTH or len(tree.leaf_values) != 2**depth * self.n_outputs:
            raise BrokenModelFile(
                f"Tree {number} must have at most {MAX_TREE_DEPTH} splits and 2**splits leaves with"
                f" {self.n_outputs} values each. Got {depth} splits and {len(tree.leaf_values)}"
                " values. The model file is damaged."
            )
        asked = [self._split(split, number, place) for place, split in enumerate(splits)]
        values = np.reshape(tree.leaf_values, (2**depth, self.n_outputs))
        return oblivious_tree(np.array(asked, dtype=np.int64), values)

    def _free_tree(self, number: int, root: _Node) -> Tree:
        """Nodes of a tree of any shape, left before right; leaves count in that order."""
        left: list[int] = []
        right: list[int] = []
        split: list[int] = []
        value: list[tuple[float, ...]] = []
        stack = [(root, -1)]
        while stack:
            node, parent = stack.pop()
            place = len(left)
            if parent >= 0:
                (left if left[parent] < 0 else right)[parent] = place
            left.append(-1)
            right.append(-1)
            if node.split is None:
                split.append(0)
                value.append(self._leaf_value(node, number, place))
            elif node.left is None or node.right is None or node.value is not None:
                raise BrokenModelFile(
                    f"Tree {number}, node {place} must have two children and no value."
                    " The model file is damaged."
                )
            else:
                split.append(self._split(node.split, number, place))
                value.append((0.0,) * self.n_outputs)
                stack += [(node.right, place), (node.left, place)]
        leaf = np.array(left) < 0
        order = np.where(leaf, np.cumsum(leaf) - 1, 0)
        return Tree(np.array(left), np.array(right), np.array(split), np.array(value), order)

    def _leaf_value(self, node: _Node, tree: int, place: int) -> tuple[float, ...]:
        value = node.value if isinstance(node.value, tuple) else (node.value,)
        if node.left is not None or node.right is not None or len(value) != self.n_outputs:
            raise BrokenModelFile(
                f"Tree {tree}, node {place} must be a leaf with {self.n_outputs} values."
                " The model file is damaged."
            )
        if None in value:
            raise BrokenModelFile(f"Tree {tree}, node {place} has neither a split nor a value.")
        return tuple(number for number in value if number is not None)


def loss_and_classes(parameters: Any) -> tuple[str, list[Any]]:
    """Loss and names of classes in the parameters of training; empty where there are none."""
    found = parameters if isinstance(parameters, dict) else {}
    loss, options = found.get("loss_function"), found.get("data_processing_options")
    name = loss.get("type") if isinstance(loss, dict) else loss
    names = options.get("class_names") if isinstance(options, dict) else None
    return str(name)[:100] if name else "", names if isinstance(names, list) else []


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
    if "class_params" not in info:
        # CatBoost then takes classes from the parameters of training, where the loss has classes.
        parameters = msgspec.json.decode(info.get("params", b"{}"))
        loss, names = loss_and_classes(parameters)
        if loss:
            kept["model_info"]["params"] = {
                "loss_function": {"type": loss},
                "data_processing_options": {"class_names": names},
            }
    return msgspec.json.encode(kept)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


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
