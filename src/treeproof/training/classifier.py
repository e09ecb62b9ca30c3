"""What both estimators share: checked input, prediction, and export."""

import numbers
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from treeproof.errors import InvalidInput, check_choice, check_integer, require_backend
from treeproof.kernels.training.histograms import TrainingTable
from treeproof.model.ensemble import Ensemble
from treeproof.prediction import Model, thread_count
from treeproof.query.boxes import RowBoxes, boxes_around
from treeproof.query.perturbations import LInf
from treeproof.training.attacked import AttackedTable
from treeproof.training.binning import training_table
from treeproof.training.export import (
    TrainedTrees,
    save_document,
    to_ensemble,
    to_onnx,
    to_ubjson,
    write_file,
)
from treeproof.training.parameters import MAX_BINS, feature_reach, monotone_directions
from treeproof.training.robust_boosting import RobustFit, constant_answer, robust_error
from treeproof.training.rows import TrainingRows

if TYPE_CHECKING:
    import xgboost

_NAMES_REFUSED = frozenset("[]<")
"""Characters that XGBoost does not allow in feature names."""


class TreeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Base of the estimators; `fit` leaves a `TrainedTrees` and its `Ensemble` behind."""

    _trained: TrainedTrees
    _ensemble: Ensemble
    classes_: NDArray[Any]
    n_features_in_: int
    reach_: NDArray[np.float64]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def n_outputs_(self) -> int:
        """Number of margins per row: 1 for two classes, else one per class."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Margins, bit-equal to those of the exported XGBoost model.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing.

        Returns
        -------
        float32 ndarray
            (n_rows,) for two classes, (n_rows, n_classes) for more.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        margins = Model(self._ensemble).margins(rows, n_jobs=self._n_threads())
        return np.asarray(margins, dtype=np.float32)

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        numbers_ = Model(self._ensemble).label_indices(rows, n_jobs=self._n_threads())
        return np.asarray(self.classes_[numbers_])

    def robust_error(self, X: Any, y: Any) -> float:
        """Share of rows that the attacker of this estimator can break, or not proved to be safe.

        Decided by the exact engine for every row; the attacker moves rows as he does in training,
        anywhere in a box. Of a perturbation that is none, `treeproof.verify` says how much less.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing.
        y : array-like of shape (n_rows,)
            Class labels; a label that the model does not know is wrong everywhere.
        """
        around = self.boxes(X)
        labels, rows = np.asarray(y), around.rows
        if labels.shape != (len(rows),):
            raise InvalidInput(
                f"There must be one label for each of the {len(rows)} rows."
                f" Got labels of shape {labels.shape}."
            )
        known = np.isin(labels, self.classes_)
        targets = np.searchsorted(self.classes_, labels[known]).astype(np.int64)
        if not known.any():
            return 1.0
        weights = np.ones(len(targets))
        error = robust_error(
            self._ensemble, around.taken(known), targets, weights, n_jobs=self._n_threads()
        )
        return float((~known).mean() + known.mean() * error)

    def boxes(self, X: Any) -> RowBoxes:
        """Where the attacker of this estimator can put rows, as the doubles that they are.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing.
        """
        check_is_fitted(self)
        values = validate_data(
            self, X, reset=False, dtype=[np.float32, np.float64], ensure_all_finite="allow-nan"
        )
        return self._boxes(values)

    def to_ensemble(self) -> Ensemble:
        """Return the trained model in the form that treeproof's engines verify."""
        check_is_fitted(self)
        return self._ensemble

    def save_xgboost(self, path: str | PathLike[str]) -> None:
        """Write the model as an XGBoost file, without needing XGBoost.

        Parameters
        ----------
        path : str or path
            Where to; it must end in .json or .ubj.
        """
        check_is_fitted(self)
        save_document(self._trained, path)

    def save_onnx(self, path: str | PathLike[str]) -> None:
        """Write the model for ONNX runtimes; `onnx` must be installed.

        Classes that are neither whole numbers nor texts become their numbers. Runtimes may add
        leaves up in another order, so margins can differ in the last bits: `treeproof.load` of the
        file says what is deployed.

        Parameters
        ----------
        path : str or path
            Where to.
        """
        check_is_fitted(self)
        write_file(to_onnx(self._trained), path)

    def to_xgboost(self) -> "xgboost.Booster":
        """Return an XGBoost Booster with bit-equal margins; it knows classes by their numbers."""
        check_is_fitted(self)
        require_backend("xgboost", "xgboost")
        import xgboost

        return xgboost.Booster(model_file=bytearray(to_ubjson(self._trained)))

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Mean gain of the splits on each feature, as shares; under attack, robust gain."""
        check_is_fitted(self)
        trees = self._trained.trees
        feature = np.concatenate([tree.feature[tree.left >= 0] for tree in trees])
        gain = np.concatenate([tree.gain[tree.left >= 0] for tree in trees])
        total = np.bincount(feature, gain, self.n_features_in_).astype(np.float64)
        mean = total / np.maximum(np.bincount(feature, minlength=self.n_features_in_), 1.0)
        return mean / mean.sum() if mean.any() else mean

    def _n_threads(self) -> int:
        n_jobs = self.n_jobs
        if n_jobs is None:
            return 1
        if not isinstance(n_jobs, numbers.Integral):
            raise InvalidInput(f"'n_jobs' must be a whole number or None. Got {n_jobs!r}.")
        return thread_count(int(n_jobs))

    def _rows(self, X: Any, *, reset: bool) -> NDArray[np.float32]:
        """Checked rows in float32, the precision in which thresholds are compared."""
        values = validate_data(
            self, X, reset=reset, dtype=[np.float32, np.float64], ensure_all_finite="allow-nan"
        )
        return _as_float32(values)

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        """Check the arguments of `fit` and set the attributes that depend on them."""
        values, labels = validate_data(
            self, X, y, dtype=[np.float32, np.float64], ensure_all_finite="allow-nan"
        )
        check_classification_targets(labels)
        self.classes_, targets = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                "Training needs rows of at least two classes."
                f" Got only one class: {self.classes_[:1].tolist()[0]!r}."
            )
        weights = _check_sample_weight(sample_weight, values, dtype=np.float64)
        if np.any(weights < 0.0) or not np.any(weights > 0.0):
            raise InvalidInput(
                "'sample_weight' must not be negative, and some weight must be positive."
                f" Got weights from {weights.min():g} to {weights.max():g}."
            )
        rows = TrainingRows(_as_float32(values), targets.astype(np.int64), weights)
        return rows if np.all(weights > 0.0) else rows.taken(weights > 0.0)

    def _table(self, rows: TrainingRows) -> TrainingTable:
        """Bin the rows, with the attacker and the constraints of this estimator."""
        method = check_choice("tree_method", self.tree_method, ("hist", "exact"))
        self._measure_reach(rows)
        names = self._names or None
        return training_table(
            rows.X,
            rows.weights,
            tree_method="hist" if method == "hist" else "exact",
            max_bin=check_integer("max_bin", self.max_bin, low=2, high=MAX_BINS),
            reach=self.reach_,
            monotone=monotone_directions(self.monotone_constraints, names, self.n_features_in_),
        )

    def _generator(self) -> np.random.Generator:
        state = check_random_state(self.random_state)
        return np.random.default_rng(state.randint(np.iinfo(np.int32).max))

    @property
    def _names(self) -> list[str]:
        """Names of the columns, where `fit` saw any."""
        return [str(name) for name in getattr(self, "feature_names_in_", ())]

    def _measure_reach(self, rows: TrainingRows) -> None:
        """How far the attacker moves each feature of the training rows."""
        if self.perturbation is None:
            self.reach_ = feature_reach(
                rows.X,
                self._names or None,
                eps=self.eps,
                feature_scale=self.feature_scale,
                frozen_features=self.frozen_features,
            )
            return
        if self.eps != 0.0 or self.feature_scale is not None or self.frozen_features is not None:
            raise InvalidInput(
                "'perturbation' says all about the attacker: leave 'eps', 'feature_scale' and"
                f" 'frozen_features' out. Got eps={self.eps!r}."
            )
        boxes = self._boxes(rows.X)
        moves = np.maximum(boxes.high - boxes.rows, boxes.rows - boxes.low)
        self.reach_ = np.nan_to_num(moves, nan=0.0, posinf=np.inf).max(axis=0)

    def _boxes(self, values: NDArray[np.floating]) -> RowBoxes:
        """Where the attacker can put rows; `_measure_reach` comes before."""
        perturbation = self.perturbation
        if perturbation is None:
            perturbation = LInf(1.0, scale=self.reach_)
        return boxes_around(values, perturbation, self._names)

    def _is_attacked(self, rows: TrainingRows) -> bool:
        """Whether an attacker can move any value, and is trained against with exact worst cases."""
        method = check_choice("method", self.method, ("exact", "chen2019"))
        if method == "chen2019":
            if self.perturbation is not None:
                raise InvalidInput("The method 'chen2019' takes 'eps' and no 'perturbation'.")
            return False
        self._measure_reach(rows)
        boxes = self._boxes(rows.X)
        return bool(np.any(boxes.low < boxes.high))

    def _attacked_table(self, rows: TrainingRows) -> tuple[TrainingRows, RowBoxes, AttackedTable]:
        """Rows without copies, where the attacker can put them, and the thresholds between."""
        if self.monotone_constraints is not None:
            raise InvalidInput(
                "'monotone_constraints' are kept by method='chen2019' only where rows can move."
                f" Got {self.monotone_constraints!r}."
            )
        merged = rows.merged()
        boxes = self._boxes(merged.X)
        max_bin = check_integer("max_bin", self.max_bin, low=2, high=MAX_BINS)
        return merged, boxes, AttackedTable.of(boxes, max_bin)

    def _keep_robust(self, fitted: RobustFit, trained: TrainedTrees) -> Self:
        """Keep a model, or a constant answer where that is as safe on the training rows."""
        constant = constant_answer(trained, fitted.targets, fitted.weights)
        errors = [
            robust_error(
                to_ensemble(part),
                fitted.boxes,
                fitted.targets,
                fitted.weights,
                n_jobs=fitted.n_jobs,
            )
            for part in (trained, constant)
        ]
        self.is_constant_ = errors[1] <= errors[0]
        self.robust_error_ = min(errors)
        if self.is_constant_:
            trained = constant
        self.n_estimators_ = len(trained.trees) // self.n_outputs_
        return self._keep(trained)

    def _finish(self, trees: Any, base_score: float) -> Self:
        return self._keep(self._trained_trees(trees, base_score))

    def _keep(self, trained: TrainedTrees) -> Self:
        self._trained, self._ensemble = trained, to_ensemble(trained)
        return self

    def _trained_trees(self, trees: Any, base_score: float) -> TrainedTrees:
        names = self._names
        if any(_NAMES_REFUSED & set(name) for name in names) or len(set(names)) < len(names):
            names = []
        return TrainedTrees(
            trees=tuple(trees),
            n_features=self.n_features_in_,
            n_outputs=self.n_outputs_,
            base_score=base_score,
            classes=tuple(self.classes_.tolist()),
            feature_names=tuple(names),
            attributes={"treeproof": type(self).__name__, "treeproof_eps": repr(float(self.eps))},
        )


def _as_float32(values: NDArray[np.floating]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if np.isinf(single).any():
        row, column = np.argwhere(np.isinf(single))[0]
        raise InvalidInput(
            "Values must fit into float32, in which thresholds are compared."
            f" Got {values[row, column]} in row {row}, column {column}."
        )
    return single
