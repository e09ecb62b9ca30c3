"""`RobustSearchCV`: parameters chosen by the exact robust error of rows that were held out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import ParameterGrid, RepeatedStratifiedKFold
from sklearn.utils.validation import check_is_fitted

from treeproof.errors import InvalidInput, check_integer
from treeproof.model.ensemble import Ensemble
from treeproof.prediction import Model
from treeproof.training.boosting import RobustGBDTClassifier
from treeproof.training.export import TrainedTrees, to_ensemble
from treeproof.training.robust_boosting import constant_answer, robust_error
from treeproof.training.rows import TrainingRows

DEFAULT_GRID: tuple[dict[str, list[Any]], ...] = (
    {"max_depth": [1], "n_estimators": [60], "conflicts": ["drop", "keep"]},
    {"max_depth": [2], "n_estimators": [40], "conflicts": ["drop"]},
    {"max_depth": [3], "n_estimators": [40], "conflicts": ["drop", "keep"]},
    {
        "max_depth": [2], "n_estimators": [100], "colsample_bytree": [0.3], "subsample": [0.5],
        "learning_rate": [0.1], "min_samples_leaf": [5], "conflicts": ["keep"],
    },
    {
        "max_depth": [4], "n_estimators": [60], "colsample_bytree": [0.3], "learning_rate": [0.05],
        "min_samples_leaf": [3], "conflicts": ["keep"],
    },
)  # fmt: skip
"""Structures that are tried where no others are given."""

PENALTIES = (2.0, 5.0, 20.0, 60.0)
"""Penalties of leaves that are tried with each structure."""

FEW_ROWS = 1000
"""Fewer rows are shared out to folds several times."""


class RobustSearchCV(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Choose parameters of robust training by cross-validation with exact proofs.

    Every candidate is trained on all folds but one, and the rows of that one are decided exactly;
    the candidate whose held-out rows can be broken least often is trained again on all rows. Where
    no candidate does better than the label of most rows for all, that label is the model.

    Parameters
    ----------
    estimator : RobustGBDTClassifier, optional
        What is trained, with the attacker as its `eps` or `perturbation`.
    param_grid : dict, sequence of dict, optional
        Structures that are tried, as in scikit-learn; by default stumps, small and deeper trees.
    leaf_penalties : sequence of float
        Penalties of leaves that are tried with each structure, which is grown once.
    cv : int, default=5
        Number of folds.
    n_repeats : int or None, default=None
        How often rows are shared out to folds anew. One sharing out says little of a few hundred
        rows; None is 3 times for fewer than 1,000 rows and once for more.
    random_state : int, default=0
        How rows are shared out to folds.
    progress : callable, optional
        Called with the number of candidates done and of all, and the least error so far.

    Attributes
    ----------
    best_estimator_ : RobustGBDTClassifier
        Trained on all rows.
    best_params_, best_score_ : dict, float
        The chosen parameters, empty for a constant answer, and their robust error on held-out rows.
    is_constant_ : bool
        Whether no candidate did better than a constant answer.
    cv_results_ : dict
        ``params``, ``robust_error``, ``error`` and ``std_robust_error`` of every candidate, on
        held-out rows; the last one is the constant answer. See `plot_trade_off`.
    classes_, n_features_in_, feature_names_in_
        See `RobustGBDTClassifier`.
    """

    def __init__(
        self,
        estimator: RobustGBDTClassifier | None = None,
        param_grid: Mapping[str, Sequence[Any]]
        | Sequence[Mapping[str, Sequence[Any]]]
        | None = None,
        *,
        leaf_penalties: Sequence[float] = PENALTIES,
        cv: int = 5,
        n_repeats: int | None = None,
        random_state: int = 0,
        progress: Callable[[int, int, float], object] | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.leaf_penalties = leaf_penalties
        self.cv = cv
        self.n_repeats = n_repeats
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose parameters and train.

        Parameters
        ----------
        X, y, sample_weight
            See `RobustGBDTClassifier.fit`.

        Returns
        -------
        RobustSearchCV
            The fitted search.
        """
        base = RobustGBDTClassifier() if self.estimator is None else self.estimator
        if base.method != "exact":
            raise InvalidInput(
                f"RobustSearchCV needs an estimator of method 'exact'. Got {base.method!r}."
            )
        structures = list(
            ParameterGrid(list(DEFAULT_GRID) if self.param_grid is None else self.param_grid)
        )
        penalties = [float(penalty) for penalty in self.leaf_penalties]
        if not penalties or min(penalties) <= 0.0:
            raise InvalidInput(
                f"'leaf_penalties' must be numbers above 0, at least one. Got {penalties}."
            )
        best = clone(base)
        rows = best._training_rows(X, y, sample_weight)
        best._measure_reach(rows)
        n_folds = min(
            check_integer("cv", self.cv, low=2), int(np.bincount(rows.targets).min(initial=2))
        )
        if n_folds < 2:
            raise InvalidInput("Cross-validation needs at least two rows of every class.")
        n_repeats = 3 if len(rows.targets) < FEW_ROWS else 1
        if self.n_repeats is not None:
            n_repeats = check_integer("n_repeats", self.n_repeats, low=1)
        folds = RepeatedStratifiedKFold(
            n_splits=n_folds, n_repeats=n_repeats, random_state=self.random_state
        )
        parts = list(folds.split(rows.X, rows.targets))
        n_candidates = len(structures) * len(penalties)
        robust = np.empty((n_candidates + 1, len(parts)))
        plain = np.empty_like(robust)
        for number, params in enumerate(structures):
            for fold, (inside, outside) in enumerate(parts):
                for place, (one, other) in enumerate(
                    self._errors(best, params, penalties, rows.taken(inside), rows.taken(outside))
                ):
                    candidate = number * len(penalties) + place
                    robust[candidate, fold], plain[candidate, fold] = one, other
            if self.progress is not None:
                done = (number + 1) * len(penalties)
                self.progress(done, n_candidates, float(robust[:done].mean(axis=1).min()))
        for fold, (inside, outside) in enumerate(parts):
            counts = np.bincount(rows.targets[inside], rows.weights[inside], len(best.classes_))
            wrong = rows.targets[outside] != int(np.argmax(counts))
            error = np.average(wrong, weights=rows.weights[outside])
            robust[-1, fold] = plain[-1, fold] = error
        self._choose(base, best, structures, penalties, robust, plain, (X, y, sample_weight), rows)
        return self

    def _errors(
        self,
        base: RobustGBDTClassifier,
        params: dict[str, Any],
        penalties: list[float],
        inside: TrainingRows,
        outside: TrainingRows,
    ) -> list[tuple[float, float]]:
        """Robust and plain error on held-out rows with every penalty."""
        model = _like(base, params)
        random = model._generator()
        fitted = model._structure(inside, [], random)
        around = model._boxes(outside.X)
        errors = []
        for penalty in penalties:
            ensemble = to_ensemble(fitted.leaves(penalty, is_trial=True))
            wrong = Model(ensemble).label_indices(outside.X) != outside.targets
            errors.append(
                (
                    robust_error(ensemble, around, outside.targets, outside.weights),
                    float(np.average(wrong, weights=outside.weights)),
                )
            )
        return errors

    def _choose(
        self,
        base: RobustGBDTClassifier,
        best: RobustGBDTClassifier,
        structures: list[dict[str, Any]],
        penalties: list[float],
        robust: NDArray[np.float64],
        plain: NDArray[np.float64],
        data: tuple[Any, Any, Any],
        rows: TrainingRows,
    ) -> None:
        params = [
            structure | {"leaf_penalty": penalty}
            for structure in structures
            for penalty in penalties
        ]
        means = robust.mean(axis=1)
        self.cv_results_ = {
            "params": [*params, {}],
            "robust_error": means,
            "std_robust_error": robust.std(axis=1),
            "error": plain.mean(axis=1),
        }
        # Of candidates that are as robust, the one that is more often right where nobody attacks.
        chosen = int(np.lexsort((self.cv_results_["error"], means.round(12)))[0])
        self.is_constant_ = bool(means[chosen] >= means[-1])
        self.best_score_ = float(means[-1] if self.is_constant_ else means[chosen])
        self.best_params_ = {} if self.is_constant_ else params[chosen]
        self.best_estimator_ = clone(base).set_params(**self.best_params_)
        if self.is_constant_:
            nothing = TrainedTrees(
                trees=(), n_features=best.n_features_in_, n_outputs=best.n_outputs_,
                base_score=0.5, classes=tuple(best.classes_.tolist()), feature_names=(),
                attributes={},
            )  # fmt: skip
            answer = constant_answer(nothing, rows.targets, rows.weights)
            best.is_constant_, best.n_estimators_ = True, 1
            self.best_estimator_ = best._finish(answer.trees, 0.5)
        else:
            self.best_estimator_.fit(*data[:2], sample_weight=data[2])
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels by the chosen model."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities of the classes by the chosen model."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Margins of the chosen model."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def to_ensemble(self) -> Ensemble:
        """Return the chosen model in the form that treeproof's engines verify."""
        check_is_fitted(self)
        return self.best_estimator_.to_ensemble()

    def trade_off(self) -> list[dict[str, Any]]:
        """Candidates that no other one beats in both errors, on held-out rows.

        Returns
        -------
        list of dict
            ``error``, ``robust_error`` and ``params``, by rising plain error; empty parameters are
            the constant answer.
        """
        check_is_fitted(self)
        found = self.cv_results_
        front: list[dict[str, Any]] = []
        for place in np.lexsort((found["robust_error"], found["error"])):
            robust = float(found["robust_error"][place])
            if not front or robust < front[-1]["robust_error"]:
                error, params = float(found["error"][place]), found["params"][place]
                front.append({"error": error, "robust_error": robust, "params": params})
        return front

    def plot_trade_off(self, ax: Any = None) -> Any:
        """Draw plain error against robust error of all candidates, on held-out rows.

        A line joins those of `trade_off`.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self)
        if ax is None:
            from treeproof.errors import require_backend

            require_backend("matplotlib", "plot")
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        plain, robust = self.cv_results_["error"], self.cv_results_["robust_error"]
        ax.scatter(plain[:-1], robust[:-1], label="candidates")
        ax.scatter(plain[-1:], robust[-1:], marker="s", label="constant answer")
        front = self.trade_off()
        ends = ([part[name] for part in front] for name in ("error", "robust_error"))
        ax.plot(*ends, linewidth=0.8, label="beaten by no other in both")
        ax.axhline(self.best_score_, linewidth=0.8, linestyle="--", label="chosen")
        ax.set_xlabel("error")
        ax.set_ylabel("robust error, exact")
        ax.legend()
        return ax


def _like(base: RobustGBDTClassifier, params: dict[str, Any]) -> RobustGBDTClassifier:
    """An estimator with other parameters, and what the base has learned of the columns."""
    model: RobustGBDTClassifier = clone(base).set_params(**params)
    for name in ("classes_", "n_features_in_", "feature_names_in_", "reach_"):
        if hasattr(base, name):
            setattr(model, name, getattr(base, name))
    return model
