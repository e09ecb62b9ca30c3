"""scikit-learn's single trees, forests, AdaBoost and isolation forests."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import Loaded
from treeproof.loaders.rules import SMALLEST_POSITIVE, cut_decision, refuse_threshold
from treeproof.loaders.sklearn.shared import (
    add_library_tree,
    class_labels,
    class_names,
    feature_count,
    loaded_trees,
    require_fitted,
    require_single_output,
    sequential,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, FloatArray
from treeproof.model.sums import accumulator_grid


def load_single_tree(estimator: Any, threshold: float | None) -> Loaded:
    """DecisionTree and ExtraTree, classifiers and regressors."""
    require_fitted(estimator, "tree_")
    return _load_average(estimator, [estimator.tree_], threshold)


def load_forest(estimator: Any, threshold: float | None) -> Loaded:
    """RandomForest and ExtraTrees: the mean of what the trees say, classifiers by argmax of it."""
    require_fitted(estimator, "estimators_")
    trees = [_library_tree(member, estimator) for member in estimator.estimators_]
    loaded = _load_average(estimator, trees, threshold)
    return replace(loaded, cautions=_order_cautions(estimator, loaded.ensemble))


def _order_cautions(estimator: Any, ensemble: Ensemble) -> tuple[str, ...]:
    """Caution where the library itself does not fix the order of a sum that depends on it."""
    if getattr(estimator, "n_jobs", None) in (None, 1):
        return ()
    # Sound: exact sums do not depend on the order of the trees, and neither does the sum of two.
    if accumulator_grid(ensemble) > 0.0 or ensemble.n_trees < 3:
        return ()
    return (
        f"n_jobs={estimator.n_jobs}: scikit-learn adds these trees in the order in which its"
        " threads finish, so the last bits of its scores, and labels that hang on them, vary from"
        " call to call. Answers here are about the trees added in order, as with n_jobs=1. Deploy"
        " the forest with n_jobs=1, by set_params(n_jobs=1), to have exactly that.",
    )


def _load_average(estimator: Any, trees: list[Any], threshold: float | None) -> Loaded:
    require_single_output(estimator)
    labels = class_labels(estimator, threshold)
    twin = sequential(estimator)
    # With a threshold of the user's own, the probability of class 1 is the one output.
    n_outputs = 1 if threshold is not None else max(len(labels), 1)
    builder = TreeBuilder(leaf_width=n_outputs)
    for tree in trees:
        # Since 1.3 the library stores class fractions, so nothing is left to normalise.
        value = _node_values(tree, max(len(labels), 1))
        add_library_tree(
            builder,
            tree,
            values=value if threshold is None else value[:, 1],
            output=0 if n_outputs == 1 else -1,
            n_features=feature_count(estimator),
        )

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        answers: NDArray[np.floating] = (twin.predict_proba if labels else twin.predict)(rows)
        return answers if threshold is None else answers[:, 1]

    decision = Decision(kind="argmax" if labels else "score")
    if threshold is not None:
        decision = Decision(kind="threshold", cut=threshold)
    return loaded_trees(
        twin,
        builder,
        aggregation=_mean(estimator, len(trees), n_outputs),
        decision=decision,
        margins=margins,
        objective=f"{'classification' if labels else 'regression'}, {estimator.criterion}",
        classes=labels,
        threshold=threshold,
    )


def _mean(estimator: Any, n_trees: int, n_outputs: int) -> Aggregation:
    start = (0.0,) * n_outputs
    if not hasattr(estimator, "estimators_"):
        # A single tree is not summed: minus zero leaves every value as it is, even minus zero.
        return Aggregation(precision="float64", start=(-0.0,) * n_outputs)
    return Aggregation(precision="float64", start=start, finish="divide", divisor=float(n_trees))


def load_adaboost(estimator: Any, threshold: float | None) -> Loaded:
    """AdaBoostClassifier by SAMME: every tree votes for one class with its weight."""
    require_fitted(estimator, "estimators_")
    if getattr(estimator, "algorithm", "SAMME") == "SAMME.R":
        raise UnsupportedModel(
            "AdaBoost must use the algorithm SAMME. Got 'SAMME.R', which scikit-learn itself has"
            " dropped. Train with algorithm='SAMME'."
        )
    labels = class_labels(estimator, threshold)
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
    divisor = float(weights.sum())
    start = (0.0,) * n_outputs
    return loaded_trees(
        estimator,
        builder,
        aggregation=Aggregation(precision="float64", start=start, finish="divide", divisor=divisor),
        decision=_vote_decision(estimator, labels, threshold),
        margins=estimator.decision_function,
        objective="classification, SAMME",
        classes=labels,
        threshold=threshold,
    )


def _vote_decision(estimator: Any, labels: tuple[Any, ...], threshold: float | None) -> Decision:
    if threshold is not None:
        probabilities = estimator._compute_proba_from_decision
        return cut_decision(lambda margins: probabilities(margins, 2)[:, 1] >= threshold)
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


def load_isolation_forest(estimator: Any, threshold: float | None) -> Loaded:
    """IsolationForest: path lengths are summed, the sum becomes a score; classes -1 and 1."""
    from sklearn.ensemble._iforest import _average_path_length

    require_fitted(estimator, "estimators_")
    refuse_threshold(threshold, f"an {type(estimator).__name__}")
    twin = sequential(estimator)
    builder = _isolation_trees(estimator, feature_count(estimator))
    typical = float(_average_path_length([estimator._max_samples])[0])
    divisor = len(estimator.estimators_) * typical
    if divisor == 0.0:
        # Trees of one training row have no depth, and the library then sets the exponent to 1.
        start, divisor = 1.0, 1.0
    else:
        start = 0.0
    return loaded_trees(
        twin,
        builder,
        aggregation=Aggregation(
            precision="float64",
            start=(start,),
            finish="isolation",
            divisor=divisor,
            bias=(float(estimator.offset_),),
        ),
        decision=Decision(kind="threshold", cut=0.0),
        margins=twin.decision_function,
        objective="outlier detection",
        classes=(-1, 1),
    )


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
