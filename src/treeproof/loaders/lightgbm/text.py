"""LightGBM's text format, read without LightGBM.

A header of ``key=value`` lines, one block per tree, then parameters and the categories of pandas
columns. LightGBM's own reader ends the process at many damaged files; this one checks every length
and index, and LightGBM is later given nothing but lines that passed (`TextModel.checked_text`).
"""

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.ensemble import FloatArray

FORMAT_VERSIONS = ("v3", "v4")
"""Written by LightGBM 3 and 4; LightGBM 4 reads both."""

_MAX_TREE_LINES = 22
"""LightGBM reads no more lines of a tree."""

_INTEGERS = re.compile(r"-?[0-9]+(?: -?[0-9]+)*")
_NUMBER = r"(?:-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?|-?inf|-?nan)"
_NUMBERS = re.compile(f"{_NUMBER}(?: {_NUMBER})*")
_TREE_KEYS = (
    "num_leaves",
    "num_cat",
    "split_feature",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "leaf_value",
    "cat_boundaries",
    "cat_threshold",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTree:
    """One tree: inner nodes in LightGBM's order; a negative child c is leaf ``-c - 1``."""

    number: int
    feature: NDArray[np.int64]
    threshold: FloatArray
    decision_type: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    leaf_value: FloatArray
    category_words: tuple[NDArray[np.int64], ...]
    checked_lines: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """Everything in a model file that decides its answers."""

    version: str
    n_outputs: int
    feature_names: tuple[str, ...]
    feature_infos: tuple[str, ...]
    objective: str
    averaged: bool
    trees: tuple[TextTree, ...]
    pandas_categories: tuple[tuple[Any, ...], ...]
    categorical_parameter: frozenset[int]

    @property
    def checked_text(self) -> str:
        """The same model for LightGBM's reader, without any line that was not checked."""
        names = " ".join(f"f{number}" for number in range(len(self.feature_names)))
        infos = " ".join("none" for _ in self.feature_names)
        lines = [
            "tree",
            f"version={self.version}",
            f"num_class={self.n_outputs}",
            f"num_tree_per_iteration={self.n_outputs}",
            "label_index=0",
            f"max_feature_idx={len(self.feature_names) - 1}",
            *([f"objective={self.objective}"] if self.objective else []),
            *(["average_output"] if self.averaged else []),
            f"feature_names={names}",
            f"feature_infos={infos}",
            "",
            *(f"Tree={tree.number}\n{tree.checked_lines}\n\n" for tree in self.trees),
            "end of trees",
            "",
        ]
        return "\n".join(lines)


def parse_model(text: str) -> TextModel:
    """Read a model as LightGBM's ``model_to_string`` and ``save_model`` write it."""
    head, *blocks = text.split("\nTree=")
    header = _header(head)
    version = header.get("version", "")
    if version not in FORMAT_VERSIONS:
        raise UnsupportedModel(
            f"LightGBM's text format must be {' or '.join(FORMAT_VERSIONS)}. Got {version!r}."
            " Load the model with LightGBM 4 and save it again."
        )
    if not blocks:
        raise UnsupportedModel("A model must have at least one tree. Got none. Train it first.")
    blocks[-1], mark, tail = blocks[-1].partition("\nend of trees\n")
    if not mark:
        raise BrokenModelFile("The line 'end of trees' is missing: the model file is cut off.")
    n_outputs = _whole_number(header, "num_tree_per_iteration")
    names = _words(header, "feature_names")
    infos = _words(header, "feature_infos")
    if not len(names) == len(infos) == _whole_number(header, "max_feature_idx", least=0) + 1:
        raise BrokenModelFile(
            "There must be one name and one description per feature."
            f" Got {len(names)} names and {len(infos)} descriptions."
        )
    if n_outputs != _whole_number(header, "num_class") or len(blocks) % n_outputs:
        raise BrokenModelFile(
            f"Each of the {header['num_class']} classes must have one tree per iteration."
            f" Got {n_outputs} trees per iteration and {len(blocks)} trees."
        )
    _check_sizes(header, blocks)
    return TextModel(
        version=version,
        n_outputs=n_outputs,
        feature_names=names,
        feature_infos=infos,
        objective=header.get("objective", ""),
        averaged="average_output" in header,
        trees=tuple(_tree(number, block, len(names)) for number, block in enumerate(blocks)),
        pandas_categories=_pandas_categories(tail),
        categorical_parameter=_categorical_parameter(tail, len(names)),
    )


def _header(head: str) -> dict[str, str]:
    lines = head.split("\n")
    if lines[0] != "tree":
        raise BrokenModelFile("A LightGBM model must begin with the line 'tree'.")
    header: dict[str, str] = {}
    for line in lines[1:]:
        if not line:
            continue
        key, _, value = line.partition("=")
        if key in header or ("=" in value and key not in ("feature_names", "monotone_constraints")):
            raise BrokenModelFile(f"The header line '{line[:60]}' is damaged or stands twice.")
        header[key] = value
    for key in ("version", "num_class", "label_index", "max_feature_idx", "feature_names"):
        if key not in header:
            raise BrokenModelFile(f"The header must have a line '{key}='. The file is damaged.")
    return header


def _whole_number(fields: dict[str, str], key: str, *, least: int = 1) -> int:
    text = fields.get(key, "")
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise BrokenModelFile(f"'{key}' must be a whole number from {least}. Got {text[:40]!r}.")
    return int(text)


def _words(header: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(word for word in header.get(key, "").split(" ") if word)


def _check_sizes(header: dict[str, str], blocks: list[str]) -> None:
    """LightGBM finds trees by these sizes, so a wrong one makes it read another model."""
    if "tree_sizes" not in header:
        return
    sizes = [str(len(f"Tree={block}\n".encode())) for block in blocks]
    if list(_words(header, "tree_sizes")) != sizes:
        raise BrokenModelFile(
            "The lengths of the trees differ from the line 'tree_sizes': the file was cut, edited"
            " or had its line ends changed, and LightGBM cannot read it either. Save it again."
        )


def _tree(number: int, block: str, n_features: int) -> TextTree:
    lines = block.rstrip("\n").split("\n")
    if lines[0] != str(number) or len(lines) > _MAX_TREE_LINES + 1:
        raise BrokenModelFile(
            f"Tree {number} must begin with 'Tree={number}' and have at most {_MAX_TREE_LINES}"
            f" lines. Got 'Tree={lines[0][:20]}' and {len(lines) - 1} lines."
        )
    fields: dict[str, str] = {}
    for line in lines[1:]:
        key, equals, value = line.partition("=")
        if not equals or key in fields:
            raise BrokenModelFile(f"Tree {number}: line '{line[:60]}' is damaged or stands twice.")
        fields[key] = value
    if fields.get("is_linear", "0") != "0":
        raise UnsupportedModel(
            f"Tree {number}, leaf 0 holds a linear function of the row (linear_tree=true), so its"
            " answers are not constant on boxes. Train with linear_tree=false."
        )
    n_leaves = _whole_number(fields, "num_leaves")
    n_inner = n_leaves - 1
    # Sound: a count beyond the text fails at the first array, before anything is allocated.
    tree = TextTree(
        number=number,
        leaf_value=_numbers(fields, "leaf_value", n_leaves, number),
        feature=_integers(fields, "split_feature", n_inner, number),
        threshold=_numbers(fields, "threshold", n_inner, number),
        decision_type=_integers(fields, "decision_type", n_inner, number),
        left=_integers(fields, "left_child", n_inner, number),
        right=_integers(fields, "right_child", n_inner, number),
        category_words=_category_words(fields, number),
        checked_lines="\n".join(f"{key}={fields[key]}" for key in _TREE_KEYS if key in fields),
    )
    _check_nodes(tree, n_features)
    return tree


def _category_words(fields: dict[str, str], tree: int) -> tuple[NDArray[np.int64], ...]:
    count = _whole_number(fields, "num_cat", least=0)
    if count == 0:
        return ()
    bounds = _integers(fields, "cat_boundaries", count + 1, tree)
    if bounds[0] != 0 or np.any(np.diff(bounds) < 0):
        raise BrokenModelFile(f"Tree {tree}: 'cat_boundaries' must rise from 0.")
    words = _integers(fields, "cat_threshold", int(bounds[-1]), tree)
    if np.any((words < 0) | (words >= 2**32)):
        raise BrokenModelFile(f"Tree {tree}: 'cat_threshold' must hold unsigned 32-bit numbers.")
    return tuple(words[first:last] for first, last in pairwise(bounds))


def _integers(fields: dict[str, str], key: str, count: int, tree: int) -> NDArray[np.int64]:
    words = _array_words(fields, key, count, tree, _INTEGERS)
    try:
        return np.array([int(word) for word in words], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise BrokenModelFile(f"Tree {tree}: '{key}' holds a number of absurd size.") from error


def _numbers(fields: dict[str, str], key: str, count: int, tree: int) -> FloatArray:
    words = _array_words(fields, key, count, tree, _NUMBERS)
    return np.array([float(word) for word in words], dtype=np.float64)


def _array_words(
    fields: dict[str, str], key: str, count: int, tree: int, pattern: re.Pattern[str]
) -> list[str]:
    text = fields.get(key, "").rstrip(" ")
    words = text.split(" ") if text else []
    if len(words) != count or (words and not pattern.fullmatch(text)):
        raise BrokenModelFile(
            f"Tree {tree}: '{key}' must hold {count} numbers. Got {text[:60]!r}."
            " The model file is damaged."
        )
    return words


def _check_nodes(tree: TextTree, n_features: int) -> None:
    n_leaves, n_inner = len(tree.leaf_value), len(tree.feature)

    def require(condition: NDArray[np.bool_], rule: str) -> None:
        if not condition.all():
            node = int(np.flatnonzero(~condition)[0])
            raise BrokenModelFile(
                f"Tree {tree.number}, node {node}: {rule}. The model file is damaged."
            )

    for child in (tree.left, tree.right):
        require((child < n_inner) & (child >= -n_leaves), "a child must exist")
    require((tree.feature >= 0) & (tree.feature < n_features), f"must test one of {n_features}")
    kind = tree.decision_type
    require((kind >= 0) & (kind < 12), "the decision type must be known")
    require(~np.isnan(tree.threshold), "the threshold must be a number")
    category = tree.threshold[(kind & 1) == 1]
    numbers = np.isin(category, np.arange(len(tree.category_words)))
    if not numbers.all():
        raise BrokenModelFile(f"Tree {tree.number}: a categorical split names no category set.")


def _categorical_parameter(tail: str, n_features: int) -> frozenset[int]:
    """Features that training was told to take as categories, also where no tree tests them."""
    found = re.search(r"^\[categorical_feature: ([\d,]+)\]$", tail, re.MULTILINE)
    numbers = found.group(1).split(",") if found else []
    return frozenset(int(word) for word in numbers if 0 < len(word) < 10) & frozenset(
        range(n_features)
    )


def _pandas_categories(tail: str) -> tuple[tuple[Any, ...], ...]:
    """Categories of pandas columns, which LightGBM's Python package adds as the last line."""
    last = tail.rstrip("\n").rpartition("\n")[2]
    key = "pandas_categorical:"
    if not last.startswith(key):
        return ()
    try:
        columns = json.loads(last[len(key) :])
    except (ValueError, RecursionError) as error:
        raise BrokenModelFile("The last line, 'pandas_categorical:', is no JSON.") from error
    if columns is None:
        return ()
    scalar = str | int | float | bool | None
    if not isinstance(columns, list) or not all(
        isinstance(column, list) and all(isinstance(value, scalar) for value in column)
        for column in columns
    ):
        raise BrokenModelFile("'pandas_categorical:' must hold a list of lists of categories.")
    return tuple(tuple(column) for column in columns)
