"""`robust_refit`: new leaves for a deployed model, which stays a model of its library."""

import copy
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedModel, check_real
from treeproof.loaders import load_ensemble
from treeproof.model.ensemble import Ensemble
from treeproof.model.rows import label_numbers, numeric_rows
from treeproof.prediction import Model
from treeproof.query.boxes import boxes_around
from treeproof.query.perturbations import Ball, Box
from treeproof.training.refit import fit_against_worst_cases, measure
from treeproof.training.worst_cases import WorstCases

FloatArray = NDArray[np.float64]


def robust_refit(
    model: Any,
    X: Any,
    y: Any,
    perturbation: Ball | Box,
    *,
    leaf_penalty: float = 10.0,
    sample_weight: Any = None,
    n_jobs: int = 1,
) -> Any:
    """Fit the leaves of a model anew against the exact worst case of every row.

    The structure stays: features, thresholds, and where categories and missing values go. What is
    minimised is the robust logistic loss, the loss at the worst point of each row's set, over all
    leaves together; that is a convex problem, with the exact engine finding the worst points.
    Where the leaves found have no smaller robust loss than the old ones, or more of these rows can
    be broken, the old ones stay.

    Parameters
    ----------
    model : model object
        A classifier of XGBoost, LightGBM, CatBoost or scikit-learn, or a `Model`.
    X : array-like or data frame of shape (n_rows, n_features)
        Rows, best those that the model was trained on.
    y : array-like of shape (n_rows,)
        Labels, as the model reports them.
    perturbation : LInf, L1, L2, L0, Cost, All or Box
        How rows may move, with a limit. Worst cases are those of a box, as far as each feature gets
        alone; categories change where a domain says so.
    leaf_penalty : float
        Factor of half the sum of squared leaves; larger values give more cautious models. Choose
        it by the robust error on other rows.
    sample_weight : array-like of shape (n_rows,), optional
        Weights of the rows.
    n_jobs : int
        Threads; -1 for all cores.

    Returns
    -------
    model object
        A new model of the same kind; the given one is not changed.
    """
    penalty = check_real("leaf_penalty", leaf_penalty, low=0.0, open_low=True)
    ensemble = model.ensemble if isinstance(model, Model) else load_ensemble(model)
    if ensemble.decision.kind == "score" or not ensemble.classes:
        raise UnsupportedModel("Leaves are fitted for classifiers. Got a model of scores.")
    if ensemble.decision.link == "sigmoid_float64" or ensemble.aggregation.finish == "isolation":
        raise UnsupportedModel("Leaves are not fitted for models of one sigmoid per class.")
    writer = _writer_of(model)
    rows = numeric_rows(ensemble, X, allow_empty=False)
    targets = label_numbers(ensemble, y, n_rows=len(rows))
    weights = np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight, float)
    if weights.shape != (len(rows),) or not np.all(weights >= 0.0) or not weights.any():
        raise InvalidInput(
            f"'sample_weight' must be {len(rows)} numbers of at least 0, one per row, and some must"
            " be positive."
        )
    boxes = boxes_around(rows, perturbation, model=ensemble)
    worst = WorstCases(ensemble, boxes, targets, n_jobs=n_jobs)
    before = measure(worst, worst.values_of(ensemble.trees.leaf_value), weights)
    fitted = fit_against_worst_cases(worst, weights, penalty)
    after = measure(worst, fitted.values, weights)
    # With more than two classes a smaller loss need not mean fewer rows that can be broken.
    if after.loss >= before.loss or after.broken(weights) > before.broken(weights):
        return copy.deepcopy(model)
    return writer(model, ensemble, worst.leaf_values(fitted.values))


def _writer_of(model: Any) -> Any:
    """What puts leaves into a model of its kind."""
    if isinstance(model, Model):
        return _into_model
    names = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(model).__mro__}
    for known, writer in _WRITERS.items():
        if known in names:
            return writer
    raise UnsupportedModel(
        "Leaves can be put back into models of XGBoost, LightGBM, CatBoost and scikit-learn, and"
        f" into a treeproof Model. Got {type(model).__name__}; treeproof.load makes a Model of it."
    )


def _leaves_of(ensemble: Ensemble, tree: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of the leaf values of a tree, and its library's numbers of these leaves."""
    trees = ensemble.trees
    nodes = slice(trees.root[tree], trees.root[tree + 1])
    leaves = trees.leaf[nodes][trees.feature[nodes] < 0]
    return leaves, trees.leaf_source[leaves]


def _into_model(model: Model, ensemble: Ensemble, table: FloatArray) -> Model:
    if ensemble.aggregation.precision == "float32":
        table = table.astype(np.float32).astype(np.float64)
    trees = ensemble.trees._replace(leaf_value=np.ascontiguousarray(table))
    return replace(model, ensemble=replace(ensemble, trees=trees))


def _into_xgboost(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    import xgboost

    booster = model if isinstance(model, xgboost.Booster) else model.get_booster()
    document = json.loads(bytes(booster.save_raw("json")))
    records = document["learner"]["gradient_booster"]
    if records["name"] != "gbtree" or len(records["model"]["trees"]) != ensemble.n_trees:
        raise UnsupportedModel(
            "Leaves can be put into XGBoost models of plain trees that all count. Make one of the"
            " rounds that count with booster[: best_iteration + 1]."
        )
    for number, record in enumerate(records["model"]["trees"]):
        leaves, nodes = _leaves_of(ensemble, number)
        for leaf, node in zip(leaves.tolist(), nodes.tolist(), strict=True):
            value = float(np.float32(table[leaf, 0]))
            record["split_conditions"][node] = record["base_weights"][node] = value
    twin = xgboost.Booster(model_file=bytearray(json.dumps(document).encode()))
    if booster is model:
        return twin
    estimator = copy.deepcopy(model)
    estimator._Booster = twin
    return estimator


def _into_lightgbm(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    import lightgbm

    booster = model if isinstance(model, lightgbm.Booster) else model.booster_
    lines = booster.model_to_string().split("\n")
    number = -1
    for place, line in enumerate(lines):
        if line.startswith("Tree="):
            number += 1
        elif line.startswith("is_linear=1"):
            raise UnsupportedModel("Leaves of linear trees are no numbers to be fitted.")
        elif line.startswith("leaf_value=") and number < ensemble.n_trees:
            leaves, source = _leaves_of(ensemble, number)
            values = np.empty(len(leaves))
            values[source] = table[leaves, 0]
            lines[place] = "leaf_value=" + " ".join(repr(value) for value in values.tolist())
    # Sizes of the trees' texts, which are read one after another without them.
    text = "\n".join(line for line in lines if not line.startswith("tree_sizes="))
    twin = lightgbm.Booster(model_str=text)
    if booster is model:
        return twin
    estimator = copy.deepcopy(model)
    estimator._Booster = twin
    return estimator


def _into_catboost(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    # CatBoost changes leaves of models from JSON, not of copies.
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.json")
        model.save_model(file, format="json")
        estimator = type(model)().load_model(file, format="json")
    counts, width = np.array(estimator.get_tree_leaf_counts(), dtype=np.int64), table.shape[1]
    values = np.array(estimator.get_leaf_values(), dtype=np.float64).reshape(-1, width)
    first = np.concatenate([[0], np.cumsum(counts)])
    for number in range(ensemble.n_trees):
        leaves, source = _leaves_of(ensemble, number)
        values[first[number] + source] = table[leaves]
    estimator.set_leaf_values(values.ravel())
    return estimator


def _into_forest(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    """Shares of classes: what is the same for all of a leaf, or a factor, changes no label."""
    estimator = copy.deepcopy(model)
    centred = table - table.mean(axis=1, keepdims=True)
    n_classes = table.shape[1]
    largest = float(np.abs(centred).max(initial=0.0))
    shares = 1.0 / n_classes + centred / (n_classes * largest if largest > 0.0 else 1.0)
    members = getattr(estimator, "estimators_", [estimator])
    for number, member in enumerate(members):
        leaves, nodes = _leaves_of(ensemble, number)
        member.tree_.value[nodes, 0, :] = shares[leaves]
    return estimator


def _into_gradient_boosting(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    estimator = copy.deepcopy(model)
    for number, member in enumerate(estimator.estimators_.ravel()):
        leaves, nodes = _leaves_of(ensemble, number)
        member.tree_.value[nodes, 0, 0] = table[leaves, 0] / estimator.learning_rate
    return estimator


def _into_hist_boosting(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    estimator = copy.deepcopy(model)
    members = [member for round_ in estimator._predictors for member in round_]
    for number, member in enumerate(members):
        leaves, nodes = _leaves_of(ensemble, number)
        member.nodes["value"][nodes] = table[leaves, 0]
    return estimator


def _into_own(model: Any, ensemble: Ensemble, table: FloatArray) -> Any:
    from treeproof.training.robust_boosting import with_leaves

    return copy.deepcopy(model)._keep(with_leaves(model._trained, ensemble, table))


_WRITERS = {
    "xgboost.Booster": _into_xgboost,
    "xgboost.XGBClassifier": _into_xgboost,
    "lightgbm.Booster": _into_lightgbm,
    "lightgbm.LGBMClassifier": _into_lightgbm,
    "catboost.CatBoost": _into_catboost,
    "treeproof.TreeClassifier": _into_own,
    "sklearn.ForestClassifier": _into_forest,
    "sklearn.DecisionTreeClassifier": _into_forest,
    "sklearn.GradientBoostingClassifier": _into_gradient_boosting,
    "sklearn.HistGradientBoostingClassifier": _into_hist_boosting,
}
"""By the module and name of a class, or of one that it inherits from."""
