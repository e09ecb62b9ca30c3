"""`RobustnessScorer`: prediction and certified radius for a stream of rows, for monitoring."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from treeproof.api import loaded, radius
from treeproof.errors import InvalidInput, require_backend
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.goals import ScoreChange
from treeproof.query.perturbations import LInf

require_backend("sklearn", "sklearn")

from sklearn.base import BaseEstimator, TransformerMixin  # noqa: E402 - after its check
from sklearn.utils.validation import check_is_fitted  # noqa: E402

if TYPE_CHECKING:
    from treeproof.engines.base import Engine
    from treeproof.results.results import Results


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """What a scorer says of one row.

    No change below the radius changes the prediction (moves the score too far).
    """

    prediction: Any  # the model's label, or its score
    certified_radius: float
    is_exact: bool  # whether it is the radius, or the bound that was reached in time
    seconds: float  # time that it took


class RobustnessScorer(TransformerMixin, BaseEstimator):  # type: ignore[misc] # sklearn is untyped
    """Gives the prediction and the certified radius of every row, as a scikit-learn transformer.

    Parameters
    ----------
    model : Model, model object or path
        The deployed model, or anything that `load` takes; it is not trained here.
    perturbation : LInf, optional
        Scales, directions, frozen features and bounds; without a radius.
    latency_s : float, default=inf
        Time limit per row. A row that needs more gets the bound that was reached: less than the
        radius, but certified all the same.
    score_change : float, optional
        For models that give scores: by how much the score may move.
    engine : str or engine, default="exact"
        Verification engine.
    arithmetic : {"float64", "real"}, default="float64"
        What rows are, see `verify`.
    n_jobs : int, default=1
        Threads over rows; -1 for all cores.
    """

    def __init__(
        self,
        model: Any = None,
        *,
        perturbation: LInf | None = None,
        latency_s: float = math.inf,
        score_change: float | None = None,
        engine: "str | Engine" = "exact",
        arithmetic: Arithmetic = "float64",
        n_jobs: int = 1,
    ) -> None:
        self.model = model
        self.perturbation = perturbation
        self.latency_s = latency_s
        self.score_change = score_change
        self.engine = engine
        self.arithmetic = arithmetic
        self.n_jobs = n_jobs

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Load the model; rows and labels are not looked at.

        Parameters
        ----------
        X, y
            Taken for pipelines only.
        """
        del X, y
        if self.model is None:
            raise InvalidInput("'model' must be the deployed model. Got None.")
        model = loaded(self.model)
        if not model.classes and self.score_change is None:
            raise InvalidInput(
                "A model that gives scores has no label to keep."
                " Say with 'score_change' by how much its score may move."
            )
        self.model_ = model
        self.n_features_in_ = model.n_features
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def results(self, X: Any) -> "Results":
        """All that is known of rows: both bounds, witnesses, times.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        Results
            The radius of every row around the model's own prediction.
        """
        check_is_fitted(self)
        goal = None if self.score_change is None else ScoreChange(self.score_change)
        return radius(
            self.model_,
            X,
            None,
            self.perturbation,
            engine=self.engine,
            goal=goal,
            arithmetic=self.arithmetic,
            time_limit_s=self.latency_s,
            n_jobs=self.n_jobs,
        )

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Prediction and certified radius of every row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        float64 (n_rows, 2)
            Position of the predicted label in ``classes_`` (or the score), and the radius.
        """
        results = self.results(X)
        predict = self.model_.label_indices if self.model_.classes else self.model_.margins
        predictions = np.asarray(predict(X, n_jobs=self.n_jobs), dtype=np.float64)
        return np.column_stack([predictions, results.lower])

    def score_row(self, row: Any) -> ScoredRow:
        """Prediction and certified radius of one row.

        Parameters
        ----------
        row : array-like of shape (n_features,)
            The row.

        Returns
        -------
        ScoredRow
            What is known of it.
        """
        rows = np.asarray(row)[np.newaxis]
        results = self.results(rows)
        prediction = self.model_.predict(rows)[0]
        return ScoredRow(
            prediction=prediction.item() if isinstance(prediction, np.generic) else prediction,
            certified_radius=float(results.lower[0]),
            is_exact=bool(results.exact[0]),
            seconds=float(results.seconds[0]),
        )

    @property
    def classes_(self) -> tuple[Any, ...]:
        """Labels of the model."""
        check_is_fitted(self)
        return self.model_.classes

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the two columns.

        Parameters
        ----------
        input_features
            Not looked at.
        """
        del input_features
        return np.array(["prediction", "certified_radius"], dtype=object)
