"""XGBoost's text dump: ``dump_model(path, dump_format="json")``, the format of treeVerification.

A dump is made for people. It rounds numbers to nine digits or fewer and carries neither the base
score, nor the number of classes and features; these are options, and the model says so in a note.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Never

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.files import prepare_records
from treeproof.loaders.base import (
    CannotAnswer,
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    read_model_file,
)
from treeproof.loaders.rules import refuse_threshold
from treeproof.loaders.xgboost.document import MAX_FEATURES, MAX_OUTPUTS
from treeproof.loaders.xgboost.objectives import (
    NO_LABELS,
    OBJECTIVES,
    LabelRule,
    binary_rule,
    class_rule,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    Aggregation,
    Ensemble,
    FloatArray,
    Provenance,
)

_POSITION = re.compile(r"f?(\d{1,9})")


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Node(msgspec.Struct):
    nodeid: _Number
    leaf: float | None = None
    split: _Number | str | None = None
    split_condition: float | list[_Number] | None = None
    yes: _Number | None = None
    no: _Number | None = None
    missing: _Number | None = None
    children: "list[_Node]" = []


prepare_records(list[_Node])


class XGBoostDumpLoader(Loader):
    """Loads the list of trees that XGBoost's `dump_model` writes."""

    name: ClassVar[str] = "xgboost dump"

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file is a JSON list of trees."""
        start = head.lstrip(b" \t\r\n")
        return start.startswith(b"[") and (b'"nodeid"' in start or b'"leaf"' in start)

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a dump."""
        file = read_model_file(path)
        try:
            roots = msgspec.json.decode(file.content, type=list[_Node])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BrokenModelFile(
                f"The file is no XGBoost dump, or damaged: {str(error)[:200]}."
            ) from error
        n_classes = 2 if options.n_classes is None else options.n_classes
        if not 1 <= n_classes <= MAX_OUTPUTS:
            raise InvalidInput(
                f"'n_classes' must be between 1 (a score) and {MAX_OUTPUTS}. Got {n_classes}."
            )
        n_outputs = n_classes if n_classes > 2 else 1
        forest = _Forest(roots, n_outputs)
        start = float(_float32([options.base_score or 0.0])[0])
        if not np.isfinite(start):
            raise InvalidInput(f"'base_score' must be a finite float32. Got {options.base_score}.")
        objective, rule = _rule(n_classes, options.decision_threshold)
        ensemble = Ensemble(
            trees=forest.trees,
            n_features=_n_features(forest, options.n_features),
            n_outputs=n_outputs,
            input_precision="float32",
            aggregation=Aggregation(precision="float32", start=(start,) * n_outputs),
            decision=rule.decision,
            classes=() if n_classes == 1 else tuple(range(n_classes)),
            feature_names=forest.names,
            missing_allowed=True,
            infinite_allowed=False,
            provenance=Provenance(
                library="xgboost text dump",
                source=path.name,
                file_sha256=file.sha256,
                objective=f"{objective} (assumed)",
                notes=_notes(options, start, n_classes, forest.names),
            ),
        )
        return Loaded(ensemble, Reference(margins=_no_answer))


def _no_answer(_: FloatArray) -> Never:
    raise CannotAnswer("XGBoost does not load its own text dumps")


def _rule(n_classes: int, threshold: float | None) -> tuple[str, LabelRule]:
    """Objective that a dump is taken to have been trained for, and its labels."""
    if n_classes == 2:
        name = "binary:logistic"
        return name, binary_rule(name, OBJECTIVES[name], by_estimator=False, threshold=threshold)
    refuse_threshold(threshold, f"n_classes={n_classes}")
    if n_classes == 1:
        return "score", NO_LABELS
    return "multi:softprob", class_rule(OBJECTIVES["multi:softprob"])


def _n_features(forest: "_Forest", wanted: int | None) -> int:
    used = forest.n_features
    if wanted is None:
        return used
    least = f"exactly {used}, one per name" if forest.names else f"at least {used}"
    if wanted < used or wanted > MAX_FEATURES or (forest.names and wanted != used):
        raise InvalidInput(f"'n_features' must be {least}. Got {wanted}.")
    return wanted


def _notes(
    options: LoadOptions, start: float, n_classes: int, names: tuple[str, ...]
) -> tuple[str, ...]:
    assumed = "" if options.base_score is not None else " (not given)"
    classes = "" if options.n_classes is not None else " (not given)"
    notes = [
        "A text dump has at most nine digits per number, so thresholds and leaves may differ in"
        " their last bits from the model that was dumped. Save that one with save_model instead.",
        f"A text dump has no base score; margins start at {start:g}{assumed}.",
        f"A text dump does not say how many classes there are; taken as {n_classes}{classes}.",
    ]
    if names:
        notes.append("Features are numbered in the order in which the dump first names them.")
    return tuple(notes)


class _Forest:
    """Canonical trees of a dump, and the features that they test."""

    def __init__(self, roots: list[_Node], n_outputs: int) -> None:
        self._columns: dict[int | str, int] = {}
        self._builder = TreeBuilder()
        is_position = all(
            isinstance(split, int) or _POSITION.fullmatch(split) for split in _splits(roots)
        )
        self._is_named = not is_position
        for number, root in enumerate(roots):
            self._add(root, number, number % n_outputs)
        self.trees = self._builder.finish()
        self.names = tuple(str(name) for name in self._columns) if self._is_named else ()
        self.n_features = max(self._columns.values(), default=-1) + 1

    def _column(self, split: int | str, place: str) -> int:
        """Column that a node tests: a number, ``f`` and a number, or a name."""
        if self._is_named:
            return self._columns.setdefault(str(split), len(self._columns))
        column = int(str(split).removeprefix("f"))
        if not 0 <= column < MAX_FEATURES:
            raise BrokenModelFile(f"{place}: the feature must be below {MAX_FEATURES}.")
        self._columns[column] = column
        return column

    def _add(self, root: _Node, number: int, output: int) -> None:
        fields = (
            "category_set",
            "feature",
            "threshold",
            "left",
            "right",
            "flags",
            "value",
            "source",
        )
        rows: list[dict[str, Any]] = []
        stack: list[tuple[_Node, int, str]] = [(root, -1, "")]
        while stack:
            node, parent, side = stack.pop()
            if parent >= 0:
                rows[parent][side] = len(rows)
            place = f"Tree {number}, node {node.nodeid}"
            row: dict[str, Any] = dict.fromkeys(fields, 0)
            row |= {"left": -1, "right": -1, "category_set": -1}
            row["source"] = node.nodeid
            if node.leaf is not None:
                row["value"] = node.leaf
            else:
                yes, no = _children(node, place)
                row["feature"] = self._column(_split(node, place), place)
                row["flags"] = MISSING_LEFT if node.missing == node.yes else 0
                if isinstance(node.split_condition, list):
                    # A listed category answers yes, and goes left here as everywhere.
                    row["flags"] |= CATEGORICAL | NONNEGATIVE_CATEGORY
                    row["category_set"] = self._builder.add_category_set(node.split_condition)
                else:
                    row["threshold"] = node.split_condition
                stack += [(no, len(rows), "right"), (yes, len(rows), "left")]
            rows.append(row)
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in fields}
        columns |= {name: _float32(columns[name]) for name in ("threshold", "value")}
        self._builder.add_tree(output=output, **columns)


def _splits(roots: list[_Node]) -> Iterator[int | str]:
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.split is not None:
            yield node.split
        stack.extend(node.children)


def _float32(values: list[float]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float64).astype(np.float32).astype(np.float64)


def _split(node: _Node, place: str) -> int | str:
    if node.split is None:
        raise BrokenModelFile(f"{place} must have a leaf value or a split. The file is damaged.")
    if node.split_condition is None:
        raise UnsupportedModel(
            f"{place} tests an indicator without a threshold. Save the model with save_model."
        )
    return node.split


def _children(node: _Node, place: str) -> tuple[_Node, _Node]:
    """Children for yes and no."""
    by_number = {child.nodeid: child for child in node.children}
    wanted = {node.yes, node.no}
    # Both numbers must differ: taking one child twice at every level would double the tree each
    # time.
    if not len(node.children) == len(wanted) == 2 or set(by_number) != wanted:
        wanted = set()
    if node.missing not in wanted:
        raise BrokenModelFile(
            f"{place}: 'yes', 'no' and 'missing' must name its two children. The file is damaged."
        )
    return by_number[node.yes], by_number[node.no]  # type: ignore[index]
