"""What every loader offers, and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from treeproof.model.ensemble import Ensemble, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What a user may say about a model beyond the model itself.

    Attributes
    ----------
    decision_threshold : float or None
        Probability from which (inclusive) a binary classifier says class 1; None keeps the
        library's own rule.
    base_score : float or None
        Margin to start from, only for formats that do not carry it (XGBoost text dumps).
    input_precision, tie, missing
        What a treelite checkpoint does not carry; a model of such a format is refused without.
    """

    decision_threshold: float | None = None
    base_score: float | None = None
    input_precision: Literal["float32", "float64"] | None = None
    tie: Literal["lower", "upper"] | None = None
    missing: Literal["nan", "zero", "none"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The source library's own answers, for the self-test.

    Attributes
    ----------
    margins : callable
        Raw scores of float64 rows, shape (n_rows, n_outputs), in the library's own dtype.
    labels : callable or None
        Class index of each row as the library decides it, where it does.
    """

    margins: Callable[[FloatArray], NDArray[np.floating]]
    labels: Callable[[FloatArray], NDArray[np.int64]] | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """An ensemble, and the library that can confirm it (None where it is not importable)."""

    ensemble: Ensemble
    reference: Reference | None


class Loader(Protocol):
    """One source of models; `loaders/registry.py` lists them all."""

    name: ClassVar[str]

    def accepts_object(self, source: Any) -> bool:
        """Whether a live object is of this library; must not import the library."""

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file, by suffix and its first 4,096 bytes, is of this format."""

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a model file without executing anything in it."""
