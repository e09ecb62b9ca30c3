"""What must not happen: the model changes its label, says a target, or leaves a score range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from treeproof.errors import InvalidInput
from treeproof.query.rounding import FloatArray, move_rounded_down


@dataclass(frozen=True, slots=True)
class KeepsLabel:
    """The model must keep the label of the row."""


@dataclass(frozen=True, slots=True)
class AvoidsTarget:
    """The model must not predict a given class.

    Parameters
    ----------
    target : object
        A class label of the model.
    """

    target: object


@dataclass(frozen=True, slots=True)
class ScoreWithin:
    """The score must stay within bounds, inclusive.

    Parameters
    ----------
    low, high : float or array-like of shape (n_rows,)
        Bounds of the raw score (margin).
    """

    low: ArrayLike = -np.inf
    high: ArrayLike = np.inf

    def __post_init__(self) -> None:
        """Refuse empty and undefined ranges."""
        if np.any(np.isnan(self.low)) or np.any(np.isnan(self.high)):
            raise InvalidInput("The bounds of ScoreWithin must not be NaN.")
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise InvalidInput(
                f"'low' of ScoreWithin must not exceed 'high'. Got {self.low!r} and {self.high!r}."
            )


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """The score must not move by more than `delta` from its value at the row.

    Parameters
    ----------
    delta : float
        Largest allowed change of the raw score, >= 0.
    """

    delta: float

    def __post_init__(self) -> None:
        """Refuse changes that are no distance."""
        if not float(self.delta) >= 0.0:
            raise InvalidInput(f"'delta' of ScoreChange must be a number >= 0. Got {self.delta!r}.")

    def range_around(self, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest double that differ from each score by at most `delta`, exactly.

        Parameters
        ----------
        score : float64 (n_rows,)
            Scores of the unchanged rows.
        """
        delta, unit = float(self.delta), np.ones(len(score))
        high = move_rounded_down(score, delta, unit, +1)
        return -move_rounded_down(-score, delta, unit, +1), high


Goal = KeepsLabel | AvoidsTarget | ScoreWithin | ScoreChange
