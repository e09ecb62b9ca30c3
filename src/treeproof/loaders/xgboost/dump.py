"""XGBoost's text dumps: ``dump_model(path)``, as plain text or as JSON (that of treeVerification).

A dump is made for people. It rounds numbers to nine digits or fewer and carries neither the base
score, nor the number of classes and features; these are options, and what is not given is warned
about. It names features in no order, so that one with names is refused.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Never

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
_BOOSTER = re.compile(r"booster\[(\d{1,9})\]:?")
_LEAF = re.compile(r"(\d{1,9}):leaf=([^,\s]+)(?:,.*)?")
_BRANCH = re.compile(
    r"(\d{1,9}):\[(.+)\] yes=(\d{1,9}),no=(\d{1,9})(?:,missing=(\d{1,9}))?(?:,.*)?"
)
_SET = re.compile(r"(.+):\{([\d, ]*)\}")


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
    """Loads the trees that XGBoost's `dump_model` writes, in either of its formats."""

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file is a JSON list of trees, or their plain text."""
        start = head.lstrip(b" \t\r\n")
        if start.startswith(b"booster["):
            return True
        return start.startswith(b"[") and (b'"nodeid"' in start or b'"leaf"' in start)

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a dump."""
        file = read_model_file(path)
        is_text = file.content.lstrip().startswith(b"booster[")
        roots = _read_text(file.content) if is_text else _read_json(file.content)
        n_classes = 2 if options.n_classes is None else options.n_classes
        if not 1 <= n_classes <= MAX_OUTPUTS:
            raise InvalidInput(
                f"'n_classes' must be between 1 (a score) and {MAX_OUTPUTS}. Got {n_classes}."
            )
        n_outputs = n_classes if n_classes > 2 else 1
        forest = _Forest(roots, n_outputs)
        start = _start(options.base_score)
        objective, rule = _rule(n_classes, options.decision_threshold)
        ensemble = Ensemble(
            trees=forest.trees,
            n_features=_n_features(forest, options.n_features),
            n_outputs=n_outputs,
            input_precision="float32",
            aggregation=Aggregation(precision="float32", start=(start,) * n_outputs),
            decision=rule.decision,
            classes=() if n_classes == 1 else tuple(range(n_classes)),
            missing_allowed=True,
            infinite_allowed=False,
            provenance=Provenance(
                library="xgboost text dump",
                source=path.name,
                file_sha256=file.sha256,
                objective=f"{objective} (assumed)",
                notes=(_DIGITS,),
            ),
        )
        cautions = _cautions(options, start, n_classes, len(roots))
        return Loaded(ensemble, Reference(margins=_no_answer), cautions)


def _start(base_score: float | None) -> float:
    """The margin to start from."""
    given = _float32(0.0 if base_score is None else base_score)
    if given.ndim != 0:
        raise InvalidInput(
            f"'base_score' must be one number. Got {given.size}. Save the model with save_model,"
            " which keeps one for each class."
        )
    if not np.isfinite(given):
        raise InvalidInput(f"'base_score' must be a finite float32. Got {base_score}.")
    return float(given)


def _read_json(content: bytes) -> list[_Node]:
    try:
        return msgspec.json.decode(content, type=list[_Node])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenModelFile(
            f"The file is no XGBoost dump, or damaged: {str(error)[:200]}."
        ) from error


def _read_text(content: bytes) -> list[_Node]:
    """Trees of a plain-text dump: one node per line, below a line for each tree."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BrokenModelFile("The file is no XGBoost dump: it is no text.") from error
    trees: list[dict[int, _Node]] = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if _BOOSTER.fullmatch(line):
            trees.append({})
        elif line:
            node = _node_of_line(line, number)
            if node.nodeid in trees[-1]:
                raise BrokenModelFile(f"Line {number} of the dump repeats node {node.nodeid}.")
            trees[-1][node.nodeid] = node
    return [_rooted(nodes, number) for number, nodes in enumerate(trees)]


def _node_of_line(line: str, number: int) -> _Node:
    try:
        if leaf := _LEAF.fullmatch(line):
            return _Node(int(leaf[1]), leaf=float(leaf[2]))
        if branch := _BRANCH.fullmatch(line):
            test, missing = branch[2], branch[5]
            condition: float | list[int] | None = None
            if listed := _SET.fullmatch(test):
                test, condition = listed[1], [int(word) for word in listed[2].split(",") if word]
            elif "<" in test:
                test, _, word = test.rpartition("<")
                condition = float(word)
            return _Node(
                int(branch[1]),
                split=test,
                split_condition=condition,
                yes=int(branch[3]),
                no=int(branch[4]),
                missing=None if missing is None else int(missing),
            )
    except ValueError:
        pass
    raise BrokenModelFile(
        f"Line {number} of the dump must be a leaf or a split. Got {line[:60]!r}."
        " The file is no XGBoost dump, or damaged."
    )


def _rooted(nodes: dict[int, _Node], tree: int) -> _Node:
    """The root of a tree, with its nodes below it.

    Sound: no node has two parents and the root has none, so what hangs below the root is a tree.
    """
    has_parent = {0}
    for node in nodes.values():
        for child in (node.yes, node.no):
            if child is None:
                continue
            if child not in nodes or child in has_parent:
                raise BrokenModelFile(
                    f"Tree {tree}, node {node.nodeid}: its children must be nodes of the tree, each"
                    f" below one node. Got {child}. The file is damaged."
                )
            has_parent.add(child)
            node.children.append(nodes[child])
    if 0 not in nodes:
        raise BrokenModelFile(f"Tree {tree} of the dump must have a node 0. The file is damaged.")
    return nodes[0]


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
    if not used <= wanted <= MAX_FEATURES:
        raise InvalidInput(f"'n_features' must be at least {used}. Got {wanted}.")
    return wanted


_DIGITS = (
    "A text dump has at most nine digits per number, so thresholds and leaves may differ in their"
    " last bits from the model that was dumped. Save that one with save_model instead."
)


def _cautions(options: LoadOptions, start: float, n_classes: int, n_trees: int) -> tuple[str, ...]:
    """What a dump leaves open and no option says."""
    cautions: tuple[str, ...] = ()
    if options.base_score is None:
        cautions += (
            f"A text dump has no base score; margins start at {start:g}. Give 'base_score' (a"
            " margin: log-odds, where XGBoost's own is a probability), or save the model with"
            " save_model.",
        )
    if options.n_classes is None:
        fitting = [str(k) for k in range(3, 11) if n_trees % k == 0]
        others = f", although its {n_trees} trees fit {', '.join(fitting)}, too" if fitting else ""
        cautions += (
            "A text dump does not say how many classes there are; taken as"
            f" {n_classes}{others}. Give 'n_classes' (1 for a score).",
        )
    return cautions


_NOTHING: dict[str, Any] = {"feature": 0, "threshold": 0.0, "flags": 0, "value": 0.0}
_NOTHING |= {"left": -1, "right": -1, "category_set": -1}
"""What a node has that is neither a leaf nor a split."""


class _Forest:
    """Canonical trees of a dump, and the features that they test."""

    def __init__(self, roots: list[_Node], n_outputs: int) -> None:
        self.n_features = 0
        self._builder = TreeBuilder()
        for split in _splits(roots):
            if isinstance(split, str) and not _POSITION.fullmatch(split):
                raise UnsupportedModel(
                    "A text dump must number its features (7, f7), because it does not say in which"
                    f" order named ones are. Got {split[:60]!r}. Save the model with save_model, or"
                    " dump it without feature names."
                )
        for number, root in enumerate(roots):
            self._add(root, number, number % n_outputs)
        self.trees = self._builder.finish()

    def _column(self, split: int | str, place: str) -> int:
        """Column that a node tests: a number, or ``f`` and a number."""
        column = int(str(split).removeprefix("f"))
        if not 0 <= column < MAX_FEATURES:
            raise BrokenModelFile(f"{place}: the feature must be below {MAX_FEATURES}.")
        self.n_features = max(self.n_features, column + 1)
        return column

    def _add(self, root: _Node, number: int, output: int) -> None:
        rows: list[dict[str, Any]] = []
        stack: list[tuple[_Node, int, str]] = [(root, -1, "")]
        while stack:
            node, parent, side = stack.pop()
            if parent >= 0:
                rows[parent][side] = len(rows)
            place = f"Tree {number}, node {node.nodeid}"
            row = _NOTHING | {"source": node.nodeid}
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
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        columns |= {name: _float32(columns[name]) for name in ("threshold", "value")}
        self._builder.add_tree(output=output, **columns)


def _splits(roots: list[_Node]) -> Iterator[int | str]:
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.split is not None:
            yield node.split
        stack.extend(node.children)


def _float32(values: float | list[float]) -> NDArray[np.float64]:
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
