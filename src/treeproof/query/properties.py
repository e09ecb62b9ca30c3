"""Properties of a model over a whole domain: claims about every input, or about pairs of inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from treeproof.errors import InvalidInput
from treeproof.query.domain import Features
from treeproof.query.perturbations import PerFeature


def _check_positive(what: str, value: float | None, *, zero: bool = True) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and math.isfinite(value)
    if not is_number or value < 0.0 or (value == 0.0 and not zero):
        raise InvalidInput(f"{what} must be a number {'>=' if zero else '>'} 0. Got {value!r}.")


def _check_confidence(what: str, value: float | None) -> None:
    if value is not None and not 0.5 <= value < 1.0:
        raise InvalidInput(f"{what} must be a probability from 0.5 to below 1. Got {value!r}.")


@dataclass(frozen=True, slots=True)
class Stable:
    """The score moves by at most `delta` when nothing but some features change.

    Parameters
    ----------
    features : str, int or sequence of them
        Features that change, by name or number; all others are the same in both rows.
    delta : float
        Largest allowed change of the raw score (margin).
    label : object, optional
        Class whose margin is meant; by default that of every class.
    """

    features: Features
    delta: float
    label: object = None

    def __post_init__(self) -> None:
        """Refuse changes that are no distance."""
        _check_positive("'delta' of Stable", self.delta)


@dataclass(frozen=True, slots=True)
class Fair:
    """The decision never depends on the protected features alone.

    Parameters
    ----------
    protected : str, int or sequence of them
        Features that must not decide; all others are the same in both rows.
    confidence : float, optional
        Only decisions that are at least this sure on both sides count: a probability from 0.5 on,
        for binary classifiers whose score is a log-odds or a probability.
    margin : float, optional
        The same in units of the score: both scores are at least this far from the decision.
    """

    protected: Features
    confidence: float | None = None
    margin: float | None = None

    def __post_init__(self) -> None:
        """Refuse confidences that are none."""
        _check_confidence("'confidence' of Fair", self.confidence)
        _check_positive("'margin' of Fair", self.margin)
        if self.confidence is not None and self.margin is not None:
            raise InvalidInput("Fair takes 'confidence' or 'margin'. Got both.")


@dataclass(frozen=True, slots=True)
class Monotone:
    """The score never falls (or never rises) when some features rise.

    Parameters
    ----------
    features : str, int or sequence of them
        Features that rise, by name or number; all others are the same in both rows.
    direction : {"increasing", "decreasing"}
        Where the score may go.
    tolerance : float
        Changes of the raw score up to this are no violation. Sums of floats are rounded, so a score
        may fall by the last digit where trees that rise and trees that fall cancel; with 0 such
        a model stays unknown, and some 1e-6 say that this does not matter.
    label : object, optional
        Class whose margin is meant, for several classes.
    """

    features: Features
    direction: Literal["increasing", "decreasing"] = "increasing"
    tolerance: float = 0.0
    label: object = None

    def __post_init__(self) -> None:
        """Refuse what is no direction."""
        if self.direction not in ("increasing", "decreasing"):
            raise InvalidInput(
                "'direction' of Monotone must be 'increasing' or 'decreasing'."
                f" Got {self.direction!r}."
            )
        _check_positive("'tolerance' of Monotone", self.tolerance)


@dataclass(frozen=True, slots=True)
class HighConfidence:
    """A confident decision is never changed by some features alone.

    Parameters
    ----------
    features : str, int or sequence of them
        Features that change, such as those that cost an attacker little.
    confidence : float, optional
        Probability from which a decision is confident, for binary classifiers whose score is a
        log-odds or a probability.
    margin : float, optional
        The same in units of the score: its distance from the decision.
    label : object, optional
        Class of the confident decision; by default either one.
    """

    features: Features
    confidence: float | None = None
    margin: float | None = None
    label: object = None

    def __post_init__(self) -> None:
        """Refuse confidences that are none."""
        _check_confidence("'confidence' of HighConfidence", self.confidence)
        _check_positive("'margin' of HighConfidence", self.margin)
        if (self.confidence is None) == (self.margin is None):
            raise InvalidInput("HighConfidence takes either 'confidence' or 'margin'.")


@dataclass(frozen=True, slots=True)
class Redundant:
    """A confident decision is never changed by one group of features alone.

    Parameters
    ----------
    groups : sequence of sequences of str or int
        Groups of features; in a pair of rows one of them changes.
    confidence, margin, label
        See `HighConfidence`.
    """

    groups: Sequence[Features]
    confidence: float | None = None
    margin: float | None = None
    label: object = None

    def __post_init__(self) -> None:
        """Refuse what HighConfidence refuses."""
        if isinstance(self.groups, str | int) or not len(self.groups):
            raise InvalidInput(f"'groups' of Redundant must list groups. Got {self.groups!r}.")
        for group in self.groups:
            HighConfidence(group, self.confidence, self.margin, self.label)


@dataclass(frozen=True, slots=True)
class SmallNeighbourhood:
    """Rows that are close have scores that are close.

    Parameters
    ----------
    eps : float
        How far apart the rows of a pair may be in every feature, in units of its scale.
    factor : float
        The score moves by at most ``factor * eps``.
    scale : dict, Series or array-like of shape (n_features,), optional
        Unit of each feature (for example its standard deviation); default 1, and 0 for features
        that are the same in both rows.
    label : object, optional
        Class whose margin is meant; by default that of every class.
    """

    eps: float
    factor: float
    scale: PerFeature | None = None
    label: object = None

    def __post_init__(self) -> None:
        """Refuse radii that are no distance."""
        _check_positive("'eps' of SmallNeighbourhood", self.eps, zero=False)
        _check_positive("'factor' of SmallNeighbourhood", self.factor)


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The score stays within bounds, inclusive, everywhere.

    Parameters
    ----------
    low, high : float
        Bounds of the raw score (margin).
    label : object, optional
        Class whose margin is meant; by default that of every class.
    """

    low: float = -math.inf
    high: float = math.inf
    label: object = None

    def __post_init__(self) -> None:
        """Refuse empty and undefined ranges."""
        if not self.low <= self.high:
            raise InvalidInput(
                f"'low' of ScoreRange must not exceed 'high'. Got {self.low!r} and {self.high!r}."
            )
        if self.low == -math.inf and self.high == math.inf:
            raise InvalidInput("ScoreRange must have a 'low' or a 'high'. Got neither.")


Property = Stable | Fair | Monotone | HighConfidence | Redundant | SmallNeighbourhood | ScoreRange
