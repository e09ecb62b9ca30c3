"""XGBoost: Booster, the XGB* estimators, and .json and .ubj files (which need no xgboost)."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import (
    CannotAnswer,
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    has_base_class,
    read_model_file,
    version_notes,
)
from treeproof.loaders.rules import refuse_threshold
from treeproof.loaders.xgboost.document import (
    MAX_FEATURES,
    MAX_OUTPUTS,
    Learner,
    XGBoostDocument,
    joined,
    parse_int,
    parse_json,
    parse_ubjson,
)
from treeproof.loaders.xgboost.objectives import (
    NO_LABELS,
    LabelRule,
    Objective,
    binary_rule,
    class_rule,
    objective_named,
    parse_base_score,
    starting_margin,
)
from treeproof.loaders.xgboost.trees import (
    raw_categories,
    tree_arrays,
    trees_after_rounds,
)
from treeproof.model.ensemble import Aggregation, Ensemble, FloatArray, Provenance

OLDEST_VERSION = (1, 7)
NEWEST_VERSION = (3, 2)
"""Versions whose models were compared with the library itself, both ends included."""

_DART_NOTE = (
    "dart: XGB* estimators and Booster.predict differ in the last bits; here as the given one does,"
    " and of a file the one that saved it."
)
_BINARY_MAGIC = (b"binf", b"bs64")
_BOOSTER_NAME = re.compile(
    rb"(?:\x06\0{7}gbtree|\x08\0{7}gblinear|\x04\0{7}dart)"  # as the old format writes names
)
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Who predicts with the model, and how."""

    name: str
    sha256: str = ""
    is_classifier: bool = False  # XGBClassifier decides on the label
    is_estimator: bool = False  # predicts in place, and with the rounds up to best_iteration
    is_live: bool = True  # the predictor itself, not a file that others may open


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """Rounds of boosting that prediction uses, and what to say about them."""

    used: int
    n_trees: int
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()


class XGBoostLoader(Loader):
    """Loads XGBoost models exactly as XGBoost predicts with them."""

    def accepts_object(self, source: Any) -> bool:
        """Whether an object is a Booster or an XGB* estimator."""
        return has_base_class(source, "xgboost", "Booster", "XGBModel")

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file is an XGBoost document, by its content."""
        start = head.lstrip(_SPACE)
        if _is_old_binary(head):
            return True
        if not start.startswith(b"{"):
            return False
        # UBJSON begins with the length of the first of its sorted keys.
        return b"learner" in start[:24] if _is_ubjson(head) else b'"learner"' in head

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a Booster or an estimator."""
        if has_base_class(source, "xgboost", "XGBModel"):
            return _load_estimator(source, options)
        document = _document_of(source)
        return _load(
            document,
            _Source(name="Booster object"),
            options,
            lambda rule, rounds: _booster_reference(lambda: source, document, rule, rounds),
        )

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a .json or .ubj file."""
        file = read_model_file(path)
        if _is_old_binary(file.content):
            raise UnsupportedModel(
                f"The file '{path.name}' has XGBoost's old binary format, which is not documented."
                " Load it with XGBoost 1.0 to 3.0 (xgboost.Booster(model_file=...)), and save it as"
                " .json or .ubj (save_model)."
            )
        parse = parse_ubjson if _is_ubjson(file.content) else parse_json
        document = parse(file.content)
        saved_by = document.learner.attributes.get("scikit_learn")
        source = _Source(
            name=path.name,
            sha256=file.sha256,
            is_classifier='"classifier"' in (saved_by or ""),
            is_estimator=saved_by is not None,
            is_live=False,
        )
        opened = cache(lambda: _opened(file.content, document))
        return _load(
            document,
            source,
            options,
            lambda rule, rounds: _booster_reference(
                opened, document, rule, rounds, in_place=source.is_estimator
            ),
        )


def _is_old_binary(content: bytes) -> bool:
    """Whether a file has the binary format of XGBoost before 1.0, which 3.1 gave up.

    Some of its files have a magic word. Others begin with a block of parameters, after which the
    objective and the booster are named.
    """
    return content.startswith(_BINARY_MAGIC) or _BOOSTER_NAME.search(content[:400]) is not None


def _is_ubjson(content: bytes) -> bool:
    return content[:1] == b"{" and content[1:2] in (b"i", b"U", b"I", b"l", b"L", b"#", b"$")


def _document_of(booster: Any) -> XGBoostDocument:
    return parse_ubjson(bytes(booster.save_raw(raw_format="ubj")))


def _load_estimator(estimator: Any, options: LoadOptions) -> Loaded:
    kind = type(estimator).__name__
    if any(".dask" in base.__module__ for base in type(estimator).__mro__):
        raise UnsupportedModel(
            f"A {kind} predicts on a cluster. Pass its get_booster(), or the estimator of the same"
            " name without 'Dask' that holds it."
        )
    if not estimator.__sklearn_is_fitted__():
        raise InvalidInput(f"The {kind} must be fitted. It has no trees yet. Call fit first.")
    missing = estimator.missing
    if missing is not None and not (isinstance(missing, float) and math.isnan(missing)):
        raise UnsupportedModel(
            f"Missing values must be NaN. The {kind} has missing={missing!r}, so that number is"
            " missing to it. Put NaN in its place in the data, and set_params(missing=nan)."
        )
    is_classifier = has_base_class(estimator, "xgboost", "XGBClassifier")
    document = _document_of(estimator.get_booster())
    source = _Source(name=f"{kind} object", is_classifier=is_classifier, is_estimator=True)
    # With two outputs, predict of a multi-class objective gives a matrix of indicators.
    is_pair = _sizes(document.learner)[1] == 2
    use_predict = is_classifier and options.decision_threshold is None and not is_pair
    return _load(
        document,
        source,
        options,
        lambda rule, rounds: _estimator_reference(estimator, rule, rounds, use_predict),
    )


def _load(
    document: XGBoostDocument,
    source: _Source,
    options: LoadOptions,
    answers: Callable[[LabelRule, int], Reference],
) -> Loaded:
    """Translate a document as its source predicts with it, given its labels and rounds."""
    learner = document.learner
    n_features, n_outputs = _sizes(learner)
    name = learner.objective.name
    objective = objective_named(name)
    rounds = _rounds(document, source, options, n_outputs)
    notes = rounds.notes
    if document.tree_weight is not None:
        notes += (_DART_NOTE,)
    rule, rule_notes = _label_rule(name, objective, source, options, n_outputs)
    version = ".".join(map(str, document.version)) or "unknown"
    start = tuple(
        starting_margin(name, objective, score, document.version)
        for score in parse_base_score(learner.learner_model_param.get("base_score", ""), n_outputs)
    )
    categories, category_notes = raw_categories(document, n_features)
    ensemble = Ensemble(
        trees=tree_arrays(document, rounds.n_trees, start, in_place=source.is_estimator),
        n_features=n_features,
        n_outputs=n_outputs,
        input_precision="float32",
        aggregation=Aggregation(precision="float32", start=start),
        decision=rule.decision,
        classes=_classes(rule, n_outputs),
        feature_names=tuple(learner.feature_names),
        categories=categories,
        categorical=tuple(f for f, kind in enumerate(learner.feature_types) if kind == "c"),
        missing_allowed=True,
        # Prediction in place takes infinite values as they are; DMatrix refuses them.
        infinite_allowed=source.is_estimator,
        provenance=Provenance(
            library="xgboost",
            library_version=version,
            source=source.name,
            file_sha256=source.sha256,
            objective=name,
            notes=(
                *version_notes("XGBoost", version, OLDEST_VERSION, NEWEST_VERSION),
                *notes,
                *rule_notes,
                *category_notes,
            ),
        ),
    )
    return Loaded(ensemble, answers(rule, rounds.used), cautions=rounds.cautions)


def _sizes(learner: Learner) -> tuple[int, int]:
    """Number of features and of outputs."""
    params = learner.learner_model_param
    n_features = parse_int(params, "num_feature", default=0, most=MAX_FEATURES)
    n_classes = parse_int(params, "num_class", default=0, most=MAX_OUTPUTS)
    n_targets = parse_int(params, "num_target", default=1, most=MAX_OUTPUTS)
    if len(learner.feature_types) not in (0, n_features):
        raise BrokenModelFile(
            f"'feature_types' must have one entry per feature ({n_features})."
            f" Got {len(learner.feature_types)}. The file is damaged."
        )
    return n_features, max(n_classes, n_targets, 1)


def _classes(rule: LabelRule, n_outputs: int) -> tuple[int, ...]:
    """Class labels; XGBoost itself numbers them from 0."""
    sizes = {"score": 0, "threshold": 2, "argmax": n_outputs}
    return tuple(range(sizes[rule.decision.kind]))


def _rounds(
    document: XGBoostDocument, source: _Source, options: LoadOptions, n_outputs: int
) -> _Rounds:
    """Rounds that are used of a model that may have stopped early.

    Estimators use the rounds up to best_iteration, a Booster uses all of them; a file is opened by
    both, so only the one that saved it tells which is meant.
    """
    n_trees = trees_after_rounds(document, n_outputs)
    n_rounds = len(n_trees) - 1
    attributes = document.learner.attributes
    if "best_iteration" not in attributes:
        if options.rounds == "best":
            raise InvalidInput(
                "The option 'rounds' can be 'best' only for a model that stopped early. This one"
                " has no best_iteration. Leave the option out."
            )
        return _Rounds(used=n_rounds, n_trees=n_trees[n_rounds])
    best = parse_int(attributes, "best_iteration", default=0, most=2**31) + 1
    uses_best = options.rounds == "best" or (options.rounds is None and source.is_estimator)
    if uses_best and best > n_rounds:
        raise BrokenModelFile(
            f"'best_iteration' must be below the number of rounds ({n_rounds})."
            f" Got {best - 1}. The file is damaged."
        )
    used = best if uses_best else n_rounds
    if best >= n_rounds:
        return _Rounds(used=used, n_trees=n_trees[used])
    first = f"the first {best} of {n_rounds} rounds"
    said = f"Early stopping: {first if uses_best else f'all {n_rounds} rounds'} are used"
    if options.rounds is not None or (source.is_live and source.is_estimator):
        asked = "as the estimator does" if options.rounds is None else f"rounds={options.rounds!r}"
        return _Rounds(used=used, n_trees=n_trees[used], notes=(f"{said} ({asked}).",))
    who = (
        "as the XGB* estimator does that saved the file; Booster.predict uses all of them"
        if uses_best
        else f"as Booster.predict does; an XGB* estimator uses {first} (best_iteration)"
    )
    caution = f"{said}, {who}. Say which are deployed by rounds='best' or rounds='all' (--rounds)."
    return _Rounds(used=used, n_trees=n_trees[used], cautions=(caution,))


def _label_rule(
    name: str, objective: Objective, source: _Source, options: LoadOptions, n_outputs: int
) -> tuple[LabelRule, tuple[str, ...]]:
    threshold = options.decision_threshold
    decides = source.is_classifier or objective.task == "binary"
    if objective.task != "classes" and decides and n_outputs == 1:
        notes: tuple[str, ...] = ()
        if name == "binary:logitraw" and threshold is None:
            rule_text = (
                "margin > 0.5, as XGBClassifier.predict does"
                if source.is_classifier
                else "margin > 0; XGBClassifier would say margin > 0.5"
            )
            notes = (f"binary:logitraw: the label is 1 iff {rule_text}.",)
        rule = binary_rule(name, objective, by_estimator=source.is_classifier, threshold=threshold)
        return rule, notes
    refuse_threshold(threshold, f"{name} with {n_outputs} outputs")
    if objective.task == "classes":
        return class_rule(objective), ()
    if decides:
        return NO_LABELS, (
            f"Multi-label: each of the {n_outputs} outputs has a label of its own; here they are"
            " scores.",
        )
    return NO_LABELS, ()


def _booster_reference(
    booster: Callable[[], Any],
    document: XGBoostDocument,
    rule: LabelRule,
    rounds: int,
    *,
    in_place: bool = False,
) -> Reference:
    """Answers of a Booster, which predicts in place, as estimators do, or on a DMatrix."""
    types = document.learner.feature_types or None

    def predict(rows: FloatArray, *, margin: bool) -> NDArray[np.floating]:
        import xgboost

        how = {"iteration_range": (0, rounds), "validate_features": False}
        if in_place:
            kind = "margin" if margin else "value"
            return np.asarray(booster().inplace_predict(rows, predict_type=kind, **how))
        matrix = xgboost.DMatrix(rows, feature_types=types, enable_categorical=True)
        return np.asarray(booster().predict(matrix, output_margin=margin, **how))

    labels = rule.labels
    return Reference(
        margins=lambda rows: predict(rows, margin=True).reshape(len(rows), -1),
        labels=None if labels is None else lambda rows: labels(predict(rows, margin=False)),
    )


def _estimator_reference(
    estimator: Any, rule: LabelRule, rounds: int, use_predict: bool
) -> Reference:
    """Answers of an XGB* estimator; labels of its `predict`, or made from `predict_proba`."""
    how = {"iteration_range": (0, rounds), "validate_features": False}

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        answers = estimator.predict(rows, output_margin=True, **how)
        return np.asarray(answers).reshape(len(rows), -1)

    def predicted(rows: FloatArray) -> NDArray[np.int64]:
        return np.asarray(estimator.predict(rows, **how)).astype(np.int64)

    def probabilities(rows: FloatArray) -> NDArray[np.floating]:
        answers = np.asarray(estimator.predict_proba(rows, **how))
        return answers if rule.decision.kind == "argmax" else answers[:, 1]

    labels = rule.labels
    if use_predict and rule.decision.kind != "score":
        return Reference(margins=margins, labels=predicted)
    if labels is None or not hasattr(estimator, "predict_proba"):
        return Reference(margins=margins)
    return Reference(margins=margins, labels=lambda rows: labels(probabilities(rows)))


def _opened(content: bytes, document: XGBoostDocument) -> Any:
    import xgboost

    _require_loadable(document, xgboost.__version__)
    return xgboost.Booster(model_file=bytearray(content))


def _require_loadable(document: XGBoostDocument, installed: str) -> None:
    """Refuse to hand a file to XGBoost that could take the process down.

    XGBoost trusts what it loads, also in fields that this loader has no use for, and in fields that
    one version expects and another did not write.
    """
    version = tuple(map(int, re.findall(r"\d+", installed)[:2]))
    start = 0
    for number, tree in enumerate(document.trees):
        n_nodes, width = len(tree.left_children), tree.leaf_width
        is_old_vector = width > 1 and not len(tree.leaf_weights)
        if is_old_vector and version >= (3, 2):
            raise CannotAnswer("XGBoost 3.2 and newer cannot load vector leaves of older versions")
        sizes = {"parents": n_nodes, "base_weights": n_nodes * width}
        if not is_old_vector:
            sizes |= {"loss_changes": n_nodes, "sum_hessian": n_nodes}
        for name, size in sizes.items():
            if len(getattr(tree, name)) != size:
                raise _damaged(number, f"'{name}' must have {size} entries")
        if parse_int(tree.tree_param, "num_nodes", default=0, most=2**31) != n_nodes:
            raise _damaged(number, f"'num_nodes' must be {n_nodes}")
        if not (type(tree.id) is int and 0 <= tree.id < 2**31):
            raise _damaged(number, "'id' must be a number")
        part = slice(start, start + n_nodes)
        left, right = document.nodes.left[part], document.nodes.right[part]
        parents = joined([tree.parents], np.int64, f"Tree {number}: 'parents'")
        inner = np.flatnonzero(left >= 0)
        for child in (left[inner], right[inner]):
            if child.size and (child.max() >= n_nodes or np.any(parents[child] != inner)):
                raise _damaged(number, "'parents' must be those of the children")
        start += n_nodes


def _damaged(tree: int, rule: str) -> BrokenModelFile:
    return BrokenModelFile(f"Tree {tree}: {rule}. The file is damaged.")
