"""What may stand around a model: searches, thresholds, calibration, votes, one model per class."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import Loaded, LoadOptions, Reference, class_numbers
from treeproof.loaders.pipelines.rows import quietly
from treeproof.loaders.registry import load_object
from treeproof.loaders.rules import Precision, cut_decision, refuse_threshold
from treeproof.loaders.self_test import self_test_rows
from treeproof.loaders.sklearn.shared import require_fitted
from treeproof.model.builder import TreeBuilder
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, FloatArray, TreeArrays
from treeproof.model.sums import accumulator_grid

Wrapper = Callable[[Any, LoadOptions], Loaded]


def _noted(loaded: Loaded, note: str) -> Loaded:
    known = loaded.ensemble.provenance
    return replace(loaded, ensemble=loaded.ensemble.with_provenance(notes=(*known.notes, note)))


def _search(source: Any, options: LoadOptions) -> Loaded:
    """GridSearchCV and kin: the estimator that was found best."""
    if getattr(source, "refit", True) is False:
        raise InvalidInput(
            f"The {type(source).__name__} must be fitted with refit=True. Got refit=False, which"
            " keeps no estimator. Search again, or pass a fitted estimator itself."
        )
    require_fitted(source, "best_estimator_")
    loaded = load_object(source.best_estimator_, options)
    return _noted(loaded, f"best_estimator_ of {type(source).__name__}.")


def _threshold(source: Any, options: LoadOptions) -> Loaded:
    """FixedThresholdClassifier and TunedThresholdClassifierCV: class 1 from a probability on."""
    inner = getattr(source, "estimator_", source.estimator)
    own = _own_threshold(source, inner)
    if options.decision_threshold is not None:
        return load_object(inner, options)
    loaded = load_object(inner, replace(options, decision_threshold=own))
    loaded = _noted(loaded, f"decision threshold {own} of {type(source).__name__}.")
    # Forests with several threads add in any order; their own loader gives labels in order.
    in_order = getattr(_last_step(inner), "n_jobs", None) in (None, 1)
    return _labelled(loaded, source, None) if in_order else loaded


def _own_threshold(source: Any, inner: Any) -> float:
    name = type(source).__name__
    require_fitted(inner, "classes_")
    if source.response_method not in ("auto", "predict_proba") or not hasattr(
        inner, "predict_proba"
    ):
        raise UnsupportedModel(
            f"{name} must apply its threshold to probabilities."
            f" Got response_method={source.response_method!r}. Use 'predict_proba'."
        )
    positive = _positive_class(source)
    last = np.asarray(inner.classes_).tolist()[-1]
    if positive is not None and positive != last:
        raise UnsupportedModel(
            f"The positive class of {name} must be the last one, {last!r}."
            f" Got {positive!r}. Swap the labels, and use one minus the threshold."
        )
    own = getattr(source, "best_threshold_", getattr(source, "threshold", "auto"))
    return 0.5 if isinstance(own, str) else float(own)


def _positive_class(source: Any) -> Any:
    """The class whose probability is compared; None for the last one."""
    scorer = getattr(source, "_curve_scorer", None)
    # A tuned threshold is one on the class that its scorer calls positive.
    return getattr(source, "pos_label", None) if scorer is None else scorer._get_pos_label()


def _frozen(source: Any, options: LoadOptions) -> Loaded:
    """FrozenEstimator: the estimator inside."""
    return load_object(source.estimator, options)


def _transformed_target(source: Any, options: LoadOptions) -> Loaded:
    """TransformedTargetRegressor: the margins are those of the regressor inside."""
    require_fitted(source, "regressor_")
    loaded = load_object(source.regressor_, options)
    return _noted(loaded, "predict() transforms the margins, which are scores of regressor_.")


def _calibrated(source: Any, options: LoadOptions) -> Loaded:
    """CalibratedClassifierCV with one calibrated model: another cut of the same score."""
    require_fitted(source, "calibrated_classifiers_")
    members = list(source.calibrated_classifiers_)
    if len(members) != 1:
        raise UnsupportedModel(
            "A CalibratedClassifierCV must hold one calibrated model, since the mean of several is"
            f" no sum of trees. Got {len(members)}. Calibrate with ensemble=False."
        )
    member = members[0]
    if len(source.classes_) != 2 or len(member.calibrators) != 1:
        raise UnsupportedModel(
            "A CalibratedClassifierCV must have two classes, since several calibrated scores are"
            f" normalised together. Got {len(source.classes_)} classes."
        )
    calibrator, inner = member.calibrators[0], member.estimator
    if type(calibrator).__name__ not in ("_SigmoidCalibration", "IsotonicRegression"):
        raise UnsupportedModel(
            "A calibrated model must use the method 'sigmoid' or 'isotonic'."
            f" Got {type(calibrator).__name__}."
        )
    threshold = options.decision_threshold

    def is_one(scores: NDArray[Any]) -> NDArray[np.bool_]:
        with np.errstate(all="ignore"):
            positive = np.asarray(calibrator.predict(scores), dtype=np.float64)
        positive = np.where((positive > 1.0) & (positive <= 1.0 + 1e-5), 1.0, positive)
        return positive > 1.0 - positive if threshold is None else positive >= threshold

    if hasattr(inner, "decision_function"):
        loaded = load_object(inner, replace(options, decision_threshold=None))
        if loaded.ensemble.decision.kind != "threshold":
            raise UnsupportedModel("A calibrated model must have one score for its two classes.")
        decision = _calibrated_cut(is_one, loaded.ensemble.aggregation.precision)
        loaded = replace(loaded, ensemble=replace(loaded.ensemble, decision=decision))
    else:
        cut = _calibrated_cut(is_one, _probability_precision(inner)).cut
        if not 0.0 < cut <= 1.0:
            raise _one_sided()
        loaded = load_object(inner, replace(options, decision_threshold=cut))
    classes = tuple(np.asarray(source.classes_).tolist())
    # Its score is that of the model inside, its probability is not: the name says so.
    objective = f"{type(source).__name__}, {loaded.ensemble.provenance.objective}"
    ensemble = replace(loaded.ensemble, classes=classes).with_provenance(objective=objective)
    return _labelled(replace(loaded, ensemble=ensemble), source, threshold)


def _probability_precision(model: Any) -> Precision:
    """Precision in which a model gives probabilities; XGBoost's are single."""
    is_single = type(_last_step(model)).__module__.partition(".")[0] == "xgboost"
    return "float32" if is_single else "float64"


def _last_step(model: Any) -> Any:
    """The model at the end of a pipeline, or the model itself."""
    while hasattr(model, "steps"):
        model = model.steps[-1][1]
    return model


def _calibrated_cut(
    is_one: Callable[[NDArray[Any]], NDArray[np.bool_]], precision: Precision
) -> Decision:
    ends = np.array([-1e30, 1e30], dtype=precision)
    if is_one(ends).tolist() != [False, True]:
        raise _one_sided()
    return cut_decision(is_one, precision)


def _one_sided() -> UnsupportedModel:
    return UnsupportedModel(
        "A calibrated model must give both classes, the second one for larger scores. Got a"
        " calibration that falls, or gives one class only. Calibrate it again with more rows."
    )


def _labelled(loaded: Loaded, source: Any, threshold: float | None) -> Loaded:
    """Let the wrapper itself give the labels of the self-test."""
    inside, classes = loaded.reference, loaded.ensemble.classes

    def labels(rows: FloatArray) -> NDArray[np.int64]:
        with quietly():
            if threshold is not None:
                probability = source.predict_proba(inside.rows(rows))[:, 1]
                return np.asarray(probability >= threshold).astype(np.int64)
            return class_numbers(classes, np.asarray(source.predict(inside.rows(rows))).ravel())

    return replace(loaded, reference=replace(inside, labels=labels))


@dataclass(frozen=True, slots=True)
class _Member:
    """A model that is added to others."""

    ensemble: Ensemble
    reference: Reference
    columns: NDArray[np.integer] | None = None
    """Columns of the whole that it takes; by default all, in order."""


def _voting_classifier(source: Any, options: LoadOptions) -> Loaded:
    """Soft votes of trees, or of forests whose sums are exact."""
    require_fitted(source, "estimators_")
    if source.voting != "soft":
        raise UnsupportedModel(
            "A VotingClassifier must vote by probabilities. Got voting='hard', which is no sum."
            " Use voting='soft'."
        )
    weights = source._weights_not_none
    classes = tuple(np.asarray(source.le_.classes_).tolist())
    members = [_probability_member(source, inner, len(classes)) for inner in source.estimators_]
    return _mean_of(source, members, weights, classes, options)


def _voting_regressor(source: Any, options: LoadOptions) -> Loaded:
    require_fitted(source, "estimators_")
    members = [_score_member(source, inner) for inner in source.estimators_]
    return _mean_of(source, members, source._weights_not_none, (), options)


def _bagging(source: Any, options: LoadOptions) -> Loaded:
    """BaggingClassifier and BaggingRegressor: the mean of their members, each on columns."""
    require_fitted(source, "estimators_")
    classes = tuple(np.asarray(getattr(source, "classes_", ())).tolist())
    members = []
    for inner, features in zip(source.estimators_, source.estimators_features_, strict=True):
        member = (
            _probability_member(source, inner, len(classes))
            if classes
            else _score_member(source, inner)
        )
        columns = np.asarray(features)
        n_features = int(source.n_features_in_)
        if len(columns) != member.ensemble.n_features or np.any(
            (columns < 0) | (columns >= n_features)
        ):
            raise BrokenModelFile(f"Members must use features below {n_features}.")
        members.append(replace(member, columns=columns))
    return _mean_of(source, members, None, classes, options)


def _probability_member(source: Any, inner: Any, n_classes: int) -> _Member:
    loaded = load_object(inner, LoadOptions())
    ensemble = loaded.ensemble
    own = np.asarray(ensemble.classes)
    is_mean = ensemble.decision.kind == "argmax" and ensemble.decision.link == "identity"
    is_mean &= ensemble.n_outputs == len(own) and ensemble.aggregation.finish in ("none", "divide")
    if not is_mean or ensemble.aggregation.precision != "float64":
        raise UnsupportedModel(
            f"Members of a {type(source).__name__} must be decision trees or forests, whose"
            f" probabilities are sums. Got {type(_last_step(inner)).__name__}."
        )
    if own.dtype.kind not in "iu" or np.any((own < 0) | (own >= n_classes)):
        raise BrokenModelFile("Classes of a member must be numbers of classes of the whole.")
    if len(own) < n_classes:
        values = np.zeros((ensemble.n_leaves, n_classes))
        values[:, own] = ensemble.trees.leaf_value
        trees = ensemble.trees._replace(leaf_value=values)
        aggregation = replace(ensemble.aggregation, start=(0.0,) * n_classes)
        ensemble = replace(
            ensemble,
            trees=trees,
            n_outputs=n_classes,
            aggregation=aggregation,
            classes=tuple(range(n_classes)),
        )
    return _Member(ensemble, loaded.reference)


def _score_member(source: Any, inner: Any) -> _Member:
    loaded = load_object(inner, LoadOptions())
    ensemble = loaded.ensemble
    if ensemble.decision.kind != "score" or ensemble.aggregation.finish not in ("none", "divide"):
        raise UnsupportedModel(
            f"Members of a {type(source).__name__} must be sums of trees."
            f" Got {type(inner).__name__}."
        )
    return _Member(ensemble, loaded.reference)


def _mean_of(
    source: Any,
    members: list[_Member],
    weights: Any,
    classes: tuple[Any, ...],
    options: LoadOptions,
) -> Loaded:
    """The (weighted) mean of members, as one sum that is divided once."""
    factors = np.ones(len(members)) if weights is None else np.asarray(weights, dtype=np.float64)
    if factors.shape != (len(members),) or not np.isfinite(factors).all():
        raise BrokenModelFile("There must be one finite weight per member.")
    divisor = float(len(members)) if weights is None else float(factors.sum())
    parts, are_single = [], True
    for member, factor in zip(members, factors.tolist(), strict=True):
        ensemble = member.ensemble
        are_single &= ensemble.n_trees == 1 and ensemble.aggregation.finish == "none"
        own = ensemble.aggregation.divisor
        values = ensemble.trees.leaf_value / own * factor
        is_exact = np.array_equal(values * own, ensemble.trees.leaf_value * factor)
        is_exact &= np.log2(own) % 1.0 == 0.0 and not any(ensemble.aggregation.start)
        parts.append((member, values, is_exact))
    trees = _joined_trees([(member, values) for member, values, _ in parts])
    n_outputs = max(len(classes), 1)
    aggregation = Aggregation(
        precision="float64", start=(0.0,) * n_outputs, finish="divide", divisor=divisor
    )
    whole = _whole(source, members, trees, classes, aggregation)
    # Sound: a single tree is one term of the library's own sum, in its order. Several trees of a
    # member are summed and divided by themselves, which is the same if nothing is ever rounded.
    if not are_single and not (all(exact for *_, exact in parts) and accumulator_grid(whole) > 0):
        raise UnsupportedModel(
            f"Members of a {type(source).__name__} must be single trees, or forests of 2, 4, 8, …"
            " trees with pure leaves: other means are rounded one by one, which is no single sum."
            " Train one forest with as many trees."
        )
    loaded = _answered(source, whole, members, options.decision_threshold)
    n_jobs = getattr(source, "n_jobs", None)
    if "Bagging" not in type(source).__name__ or n_jobs in (None, 1) or accumulator_grid(whole) > 0:
        return loaded
    return replace(
        loaded,
        cautions=(
            f"n_jobs={n_jobs}: scikit-learn adds these members in groups, one for each process, so"
            " the last bits of its scores depend on their number. Answers here are about the"
            " members added in order, as with n_jobs=1. Deploy it so, by set_params(n_jobs=1).",
        ),
    )


def _joined_trees(
    parts: list[tuple[_Member, FloatArray]], outputs: list[int] | None = None
) -> TreeArrays:
    """Trees of members, one after another, over the columns of the whole.

    A member comes with the values of its leaves, and adds to its own output where that is given.
    """
    width = parts[0][1].shape[1]
    builder = TreeBuilder(leaf_width=width)
    single = all(member.ensemble.input_precision == "float32" for member, _ in parts)
    for number, (member, values) in enumerate(parts):
        trees = (member.ensemble if single else accept_float64_rows(member.ensemble)).trees
        shift = builder.add_category_sets(trees)
        inner = trees.feature >= 0
        feature = trees.feature.astype(np.int64)
        if member.columns is not None:
            feature = np.where(inner, member.columns[np.where(inner, feature, 0)], -1)
        start = np.repeat(trees.root[:-1], np.diff(trees.root))
        output = trees.tree_output
        if outputs is not None:
            output = np.full(len(output), outputs[number])
        builder.add_forest(
            sizes=np.diff(trees.root),
            output=output,
            feature=feature,
            threshold=trees.threshold,
            left=np.where(inner, trees.left - start, -1),
            right=np.where(inner, trees.right - start, -1),
            flags=trees.flags,
            value=values[np.maximum(trees.leaf, 0)],
            source=np.where(inner, 0, trees.leaf_source[np.maximum(trees.leaf, 0)]),
            category_set=np.where(trees.category_set >= 0, trees.category_set + shift, -1),
        )
    return builder.finish()


def _whole(
    source: Any,
    members: list[_Member],
    trees: TreeArrays,
    classes: tuple[Any, ...],
    aggregation: Aggregation,
) -> Ensemble:
    """Model of a wrapper, from its joined trees and what its members have in common."""
    first = members[0].ensemble
    for member in members:
        own = member.ensemble
        if (own.categories, own.required) != (first.categories, first.required):
            raise UnsupportedModel(
                f"Members of a {type(source).__name__} must know the same categories."
                " Encode before, in one pipeline around them all."
            )
    names = tuple(str(name) for name in getattr(source, "feature_names_in_", ()))
    return replace(
        first,
        trees=trees,
        n_features=int(getattr(source, "n_features_in_", first.n_features)),
        n_outputs=len(aggregation.start),
        input_precision=(
            "float32"
            if all(member.ensemble.input_precision == "float32" for member in members)
            else "float64"
        ),
        aggregation=aggregation,
        decision=Decision(kind="argmax" if classes else "score"),
        classes=classes,
        feature_names=names or first.feature_names,
        missing_allowed=all(member.ensemble.missing_allowed for member in members),
        infinite_allowed=all(member.ensemble.infinite_allowed for member in members),
        provenance=replace(
            first.provenance,
            source=f"{type(source).__name__} object",
            objective=f"{type(source).__name__}, {first.provenance.objective}",
        ),
    )


def _answered(
    source: Any, whole: Ensemble, members: list[_Member], threshold: float | None
) -> Loaded:
    """The model with a decision threshold, where there is one, and the wrapper's own answers."""
    classes = whole.classes
    if threshold is not None:
        if len(classes) != 2:
            refuse_threshold(threshold, f"a {type(source).__name__}")
        values = np.ascontiguousarray(whole.trees.leaf_value[:, 1:])
        trees = whole.trees._replace(
            leaf_value=values, tree_output=np.zeros_like(whole.trees.tree_output)
        )
        whole = replace(
            whole,
            trees=trees,
            n_outputs=1,
            aggregation=replace(whole.aggregation, start=(0.0,)),
            decision=Decision(kind="threshold", cut=threshold),
        )
    twin = copy.copy(source)
    if hasattr(twin, "n_jobs"):
        twin.n_jobs = 1
    raw = members[0].reference.rows if members[0].columns is None else lambda rows: rows

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        with quietly():
            answer = (twin.predict_proba if classes else twin.predict)(raw(rows))
        return np.asarray(answer if threshold is None else answer[:, 1])

    ranges = members[0].reference.ranges if members[0].columns is None else ()
    loaded = Loaded(whole, Reference(margins=margins, rows=raw, ranges=ranges))
    return _labelled(loaded, twin, threshold) if classes else loaded


def _one_against_rest(source: Any, options: LoadOptions) -> Loaded:
    """OneVsRestClassifier: one score per class, the largest wins."""
    require_fitted(source, "estimators_")
    refuse_threshold(options.decision_threshold, f"a {type(source).__name__}")
    classes = tuple(np.asarray(source.classes_).tolist())
    if source.label_binarizer_.y_type_ not in ("binary", "multiclass"):
        raise UnsupportedModel(
            "A OneVsRestClassifier must give one label per row. Got several. Load its members."
        )
    members = [_score_of_two(source, inner) for inner in source.estimators_]
    if len(members) == 1:
        (member,) = members
        is_probability = member.ensemble.decision.cut == _HALF and not hasattr(
            source.estimators_[0], "decision_function"
        )
        cut = math.nextafter(_HALF if is_probability else 0.0, math.inf)
        decision = Decision(kind="threshold", cut=cut)
        whole = replace(member.ensemble, decision=decision, classes=classes)
        return _labelled(Loaded(whole, member.reference), source, None)
    if len(members) != len(classes):
        raise BrokenModelFile(f"There must be {len(classes)} members. Got {len(members)}.")
    if _last_wins(source, members[0]):
        # The first of equal scores wins here, so the classes change their order.
        members, classes = members[::-1], classes[::-1]
    loaded = _side_by_side(source, members, classes)
    return _labelled(loaded, source, None)


_HALF = 0.5


def _score_of_two(source: Any, inner: Any) -> _Member:
    """Member that tells one class from the rest by one score."""
    if hasattr(inner, "decision_function"):
        loaded = load_object(inner, LoadOptions())
        is_score = True
    else:
        loaded = load_object(inner, LoadOptions(decision_threshold=_HALF))
        # Where the score is the probability itself, the threshold is the cut.
        is_score = loaded.ensemble.decision.cut == _HALF
    if not is_score or loaded.ensemble.decision.kind != "threshold":
        raise UnsupportedModel(
            f"Members of a {type(source).__name__} must be compared by a sum of trees: forests,"
            " trees, or models with a decision_function. Got"
            f" {type(_last_step(inner)).__name__}."
        )
    return _Member(loaded.ensemble, loaded.reference)


def _last_wins(source: Any, member: _Member) -> bool:
    """Whether the last of equal scores wins, as in older releases; members all the same tell."""
    twin = copy.copy(source)
    twin.estimators_ = [source.estimators_[0]] * len(source.estimators_)
    rows = member.reference.rows(self_test_rows(member.ensemble).values[:1])
    with quietly():
        return bool(twin.predict(rows)[0] == source.classes_[-1])


def _several_targets(source: Any, options: LoadOptions) -> Loaded:
    """MultiOutputRegressor: one score per target."""
    require_fitted(source, "estimators_")
    refuse_threshold(options.decision_threshold, f"a {type(source).__name__}")
    return _side_by_side(source, [_score_member(source, e) for e in source.estimators_], ())


def _side_by_side(source: Any, members: list[_Member], classes: tuple[Any, ...]) -> Loaded:
    """Model with one output per member."""
    own = [member.ensemble.aggregation for member in members]
    if any(replace(a, start=own[0].start) != own[0] or len(a.start) != 1 for a in own):
        raise UnsupportedModel(
            f"Members of a {type(source).__name__} must add their trees in the same way."
            " Train them with the same number of trees."
        )
    start = tuple(aggregation.start[0] for aggregation in own)
    trees = _joined_trees(
        [(member, member.ensemble.trees.leaf_value) for member in members],
        outputs=list(range(len(members))),
    )
    whole = _whole(source, members, trees, classes, replace(own[0], start=start))
    margins = [member.reference.margins for member in members]
    raw = members[0].reference.rows
    return Loaded(
        whole,
        Reference(
            margins=lambda rows: np.column_stack([part(rows) for part in margins]),
            rows=raw,
            ranges=members[0].reference.ranges,
        ),
    )


WRAPPERS: dict[str, Wrapper] = {
    "BaseSearchCV": _search,
    "BaseThresholdClassifier": _threshold,
    "FrozenEstimator": _frozen,
    "TransformedTargetRegressor": _transformed_target,
    "CalibratedClassifierCV": _calibrated,
    "VotingClassifier": _voting_classifier,
    "VotingRegressor": _voting_regressor,
    "BaggingClassifier": _bagging,
    "BaggingRegressor": _bagging,
    "OneVsRestClassifier": _one_against_rest,
    "MultiOutputRegressor": _several_targets,
}
