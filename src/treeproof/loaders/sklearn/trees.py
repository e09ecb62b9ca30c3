"""scikit-learn's single trees, forests, AdaBoost and isolation forests."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import Loaded
from treeproof.loaders.sklearn.shared import (
    SMALLEST_POSITIVE,
    accepts,
    add_library_tree,
    class_labels,
    class_names,
    feature_count,
    feature_names,
    order_cautions,
    probability_decision,
    provenance,
    reference,
    require_fitted,
    require_no_threshold,
    require_single_output,
    require_two_classes,
    sequential,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, FloatArray


def load_single_tree(estimator: Any, threshold: float | None, notes: tuple[str, ...]) -> Loaded:
    """DecisionTree and ExtraTree, classifiers and regressors."""
    require_fitted(estimator, "tree_")
    return _load_average(estimator, [estimator.tree_], threshold, notes)


def load_forest(estimator: Any, threshold: float | None, notes: tuple[str, ...]) -> Loaded:
    """RandomForest and ExtraTrees: the mean of what the trees say, classifiers by argmax of it."""
    require_fitted(estimator, "estimators_")
    trees = [_library_tree(member, estimator) for member in estimator.estimators_]
    loaded = _load_average(estimator, trees, threshold, notes)
    return replace(loaded, cautions=order_cautions(estimator, loaded.ensemble))


def _load_average(
    estimator: Any, trees: list[Any], threshold: float | None, notes: tuple[str, ...]
) -> Loaded:
    require_single_output(estimator)
    if hasattr(estimator, "classes_"):
        return _load_average_classes(estimator, trees, threshold, notes)
    require_no_threshold(estimator, threshold)
    twin = sequential(estimator)
    n_features = feature_count(estimator)
    builder = TreeBuilder()
    for tree in trees:
        value = _node_values(tree, 1)[:, 0]
        add_library_tree(builder, tree, values=value, output=0, n_features=n_features)
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=1,
        input_precision="float32",
        aggregation=_mean(estimator, len(trees), 1),
        decision=Decision(kind="score"),
        feature_names=feature_names(estimator),
        missing_allowed=accepts(twin.predict, np.nan, n_features),
        infinite_allowed=accepts(twin.predict, np.inf, n_features),
        provenance=provenance(estimator, f"regression, {estimator.criterion}", notes),
    )
    return Loaded(ensemble, reference(twin, twin.predict, has_labels=False))


def _load_average_classes(
    estimator: Any, trees: list[Any], threshold: float | None, notes: tuple[str, ...]
) -> Loaded:
    labels = class_labels(estimator)
    n_classes = len(labels)
    twin = sequential(estimator)
    n_features = feature_count(estimator)
    # With a threshold of the user's own, the probability of class 1 is the one output.
    n_outputs = 1 if threshold is not None else n_classes
    builder = TreeBuilder(leaf_width=n_outputs)
    for tree in trees:
        # Since 1.3 the library stores class fractions, so nothing is left to normalise.
        value = _node_values(tree, n_classes)
        add_library_tree(
            builder,
            tree,
            values=value if threshold is None else value[:, 1],
            output=-1 if threshold is None else 0,
            n_features=n_features,
        )
    if threshold is None:
        decision = Decision(kind="argmax")
    else:
        require_two_classes(labels)
        decision = Decision(kind="threshold", cut=threshold)

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        probabilities: NDArray[np.floating] = twin.predict_proba(rows)
        return probabilities if threshold is None else probabilities[:, 1]

    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=n_outputs,
        input_precision="float32",
        aggregation=_mean(estimator, len(trees), n_outputs),
        decision=decision,
        classes=labels,
        feature_names=feature_names(estimator),
        missing_allowed=accepts(twin.predict, np.nan, n_features),
        infinite_allowed=accepts(twin.predict, np.inf, n_features),
        provenance=provenance(estimator, f"classification, {estimator.criterion}", notes),
    )
    return Loaded(ensemble, reference(twin, margins, threshold=threshold))


def _mean(estimator: Any, n_trees: int, n_outputs: int) -> Aggregation:
    start = (0.0,) * n_outputs
    if not hasattr(estimator, "estimators_"):
        # A single tree is not summed: minus zero leaves every value as it is, even minus zero.
        return Aggregation(precision="float64", start=(-0.0,) * n_outputs)
    return Aggregation(precision="float64", start=start, finish="divide", divisor=float(n_trees))


def load_adaboost(estimator: Any, threshold: float | None, notes: tuple[str, ...]) -> Loaded:
    """AdaBoostClassifier by SAMME: every tree votes for one class with its weight."""
    require_fitted(estimator, "estimators_")
    if getattr(estimator, "algorithm", "SAMME") == "SAMME.R":
        raise UnsupportedModel(
            "AdaBoost must use the algorithm SAMME. Got 'SAMME.R', which scikit-learn itself has"
            " dropped. Train with algorithm='SAMME'."
        )
    labels = class_labels(estimator)
    n_classes, n_features = len(labels), feature_count(estimator)
    weights = np.asarray(estimator.estimator_weights_, dtype=np.float64)
    n_outputs = 1 if n_classes == 2 else n_classes
    builder = TreeBuilder(leaf_width=n_outputs)
    for member, weight in zip(estimator.estimators_, weights, strict=False):
        tree = _library_tree(member, estimator)
        values = _vote_values(_votes(member, tree, estimator.classes_), weight, n_classes)
        add_library_tree(
            builder,
            tree,
            values=values,
            output=0 if n_classes == 2 else -1,
            n_features=n_features,
        )
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=n_outputs,
        input_precision="float32",
        aggregation=Aggregation(
            precision="float64",
            start=(0.0,) * n_outputs,
            finish="divide",
            divisor=float(weights.sum()),
        ),
        decision=_vote_decision(estimator, labels, threshold),
        classes=labels,
        feature_names=feature_names(estimator),
        missing_allowed=accepts(estimator.predict, np.nan, n_features),
        infinite_allowed=accepts(estimator.predict, np.inf, n_features),
        provenance=provenance(estimator, "classification, SAMME", notes),
    )
    return Loaded(ensemble, reference(estimator, estimator.decision_function, threshold=threshold))


def _vote_decision(estimator: Any, labels: tuple[Any, ...], threshold: float | None) -> Decision:
    if threshold is not None:
        require_two_classes(labels)
        return probability_decision(
            lambda margins: estimator._compute_proba_from_decision(margins, 2)[:, 1], threshold
        )
    if len(labels) == 2:
        return Decision(kind="threshold", cut=SMALLEST_POSITIVE)
    return Decision(kind="argmax")


def _vote_values(vote: NDArray[np.int64], weight: float, n_classes: int) -> FloatArray:
    """What every node of a tree of AdaBoost adds, given the class that it votes for."""
    if n_classes == 2:
        # The library adds w to the winner, -w to the loser and returns the difference of the
        # two sums. They are exact negatives, and doubling is exact, so one sum will do.
        return np.where(vote == 1, 2.0 * weight, -2.0 * weight)
    return np.where(vote[:, None] == np.arange(n_classes), weight, -1 / (n_classes - 1) * weight)


def _votes(member: Any, tree: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Class of the ensemble that each node of a tree votes for."""
    own = np.asarray(member.classes_)
    position = {label: number for number, label in enumerate(np.asarray(classes).tolist())}
    number = np.array([position.get(label, -1) for label in own.tolist()], dtype=np.int64)
    return number[np.argmax(_node_values(tree, len(own)), axis=1)]


def load_isolation_forest(
    estimator: Any, threshold: float | None, notes: tuple[str, ...]
) -> Loaded:
    """IsolationForest: path lengths are summed, the sum becomes a score; classes -1 and 1."""
    from sklearn.ensemble._iforest import _average_path_length

    require_fitted(estimator, "estimators_")
    require_no_threshold(estimator, threshold)
    n_features = feature_count(estimator)
    twin = sequential(estimator)
    builder = _isolation_trees(estimator, n_features)
    typical = float(_average_path_length([estimator._max_samples])[0])
    divisor = len(estimator.estimators_) * typical
    if divisor == 0.0:
        # Trees of one training row have no depth, and the library then sets the exponent to 1.
        start, divisor = 1.0, 1.0
    else:
        start = 0.0
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=1,
        input_precision="float32",
        aggregation=Aggregation(
            precision="float64",
            start=(start,),
            finish="isolation",
            divisor=divisor,
            bias=(float(estimator.offset_),),
        ),
        decision=Decision(kind="threshold", cut=0.0),
        classes=(-1, 1),
        feature_names=feature_names(estimator),
        missing_allowed=accepts(twin.predict, np.nan, n_features),
        infinite_allowed=accepts(twin.predict, np.inf, n_features),
        provenance=provenance(estimator, "outlier detection", notes),
    )
    return Loaded(ensemble, reference(twin, twin.decision_function))


def _isolation_trees(estimator: Any, n_features: int) -> TreeBuilder:
    # The library indexes columns only when trees see fewer features than there are.
    is_subset = int(estimator._max_features) != n_features
    builder = TreeBuilder()
    for number, member in enumerate(estimator.estimators_):
        tree = _library_tree(member, estimator)
        length = (
            np.asarray(estimator._decision_path_lengths[number])
            + np.asarray(estimator._average_path_length_per_tree[number])
            - 1.0
        )
        if length.shape != (tree.node_count,):
            raise BrokenModelFile(f"Tree {number} must have one path length per node.")
        columns = np.asarray(estimator.estimators_features_[number]) if is_subset else None
        if columns is not None and np.any((columns < 0) | (columns >= n_features)):
            raise BrokenModelFile(f"Tree {number} must use features below {n_features}.")
        add_library_tree(
            builder, tree, values=length, output=0, n_features=n_features, columns=columns
        )
    return builder


def _library_tree(member: Any, estimator: Any) -> Any:
    """Return the tree inside a member of an ensemble; refuses members of another kind."""
    if not {"DecisionTreeClassifier", "DecisionTreeRegressor"} & set(class_names(member)):
        raise UnsupportedModel(
            f"Every member of {type(estimator).__name__} must be a decision tree."
            f" Got {type(member).__name__}. Use trees as base estimators."
        )
    require_fitted(member, "tree_")
    require_single_output(member)
    return member.tree_


def _node_values(tree: Any, width: int) -> FloatArray:
    """Stored values of all nodes, (n_nodes, width)."""
    values = np.asarray(tree.value, dtype=np.float64)
    if values.shape != (tree.node_count, 1, width):
        raise BrokenModelFile(
            f"Node values of a tree must have shape ({tree.node_count}, 1, {width})."
            f" Got {values.shape}."
        )
    return values[:, 0, :]
