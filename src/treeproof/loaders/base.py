"""What every loader offers, and what it returns."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray

_CHOICES = {
    "input_precision": ("float32", "float64"),
    "tie": ("lower", "upper"),
    "missing": ("nan", "zero", "none"),
    "rounds": ("best", "all"),
}


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int | float | np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What a user may say about a model beyond the model itself; None leaves it open."""

    decision_threshold: float | None = None
    """Probability from which (inclusive) a binary classifier says class 1; None keeps the library's
    own rule."""
    base_score: float | None = None
    """Margin to start from, only for formats that do not carry it (XGBoost text dumps)."""
    input_precision: Literal["float32", "float64"] | None = None
    tie: Literal["lower", "upper"] | None = None
    missing: Literal["nan", "zero", "none"] | None = None
    """The last three: what a treelite checkpoint does not carry, and is refused without."""
    n_classes: int | None = None
    """Number of classes of an XGBoost text dump: 1 for a score, 2 (the default) for one margin, k
    for k margins whose trees take turns."""
    n_features: int | None = None
    """Number of columns of a row, for XGBoost text dumps and ONNX models that do not state it; by
    default up to the last one used."""
    rounds: Literal["best", "all"] | None = None
    """Which rounds of an XGBoost model that stopped early are used; None does as the given object
    does, or whoever saved the file."""
    classes: Sequence[Any] | None = None
    """Names of the classes in the model's order; loaders never see them."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing: loaders compare with those that they know."""
        threshold = self.decision_threshold
        if threshold is not None and not 0.0 < threshold <= 1.0:
            raise InvalidInput(
                "'decision_threshold' must be a probability above 0 and up to 1."
                f" Got {threshold!r}."
            )
        classes: Any = self.classes
        is_list = hasattr(classes, "__iter__") and not isinstance(classes, str | bytes | dict)
        if classes is not None and not (is_list and all(map(_is_label, classes))):
            raise InvalidInput(f"'classes' must list names of classes. Got {classes!r}.")
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if given is not None and given not in choices:
                words = " or ".join(map(repr, choices))
                raise InvalidInput(f"'{name}' must be {words}. Got {given!r}.")

    def given(self) -> dict[str, Any]:
        """Those that were given, as plain data."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["classes"] = None if self.classes is None else np.asarray(self.classes).tolist()
        return {name: value for name, value in plain.items() if value is not None}


class CannotAnswer(Exception):  # noqa: N818 - reads as a statement
    """Raised by the functions of a `Reference` when the library cannot be asked; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The source library's own answers to float64 rows, for the self-test.

    The functions may raise ImportError or `CannotAnswer`; the self-test is then recorded as not
    run.
    """

    margins: Callable[[FloatArray], NDArray[np.floating]]
    """Raw scores, shape (n_rows, n_outputs), in the library's own dtype."""
    labels: Callable[[FloatArray], NDArray[np.int64]] | None = None
    """Class index of each row as the library decides it, where it does."""
    rows: Callable[[FloatArray], Any] = lambda rows: rows
    """Rows as the object that was loaded takes them, for what stands around it."""
    ranges: tuple[tuple[float, float], ...] = ()
    """Smallest and largest number that it answers, by feature, where that is not any finite one of
    the model's input precision."""
    shown: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None
    """What the library shows of the margins of the model here, where it is not the margins."""
    feedable: Callable[[FloatArray], FloatArray] | None = None
    """The nearest rows that the library takes, where it does not take all of them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An ensemble, and the library that can confirm it."""

    ensemble: Ensemble
    reference: Reference
    cautions: tuple[str, ...] = ()
    """What is open about the model that is deployed; shown at once, and kept in its notes."""


class Loader:
    """One source of models; `loaders/registry.py` lists them all.

    A loader overrides the methods for objects, those for files, or both.
    """

    def accepts_object(self, source: Any) -> bool:
        """Whether a live object is of this library; must not import the library."""
        return False

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file, by suffix and its first 4,096 bytes, is of this format."""
        return False

    def accepts_directory(self, path: Path) -> bool:
        """Whether a directory holds a model of this library; `load_file` then reads it."""
        return False

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""
        raise NotImplementedError

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a model file without executing anything in it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The content of a model file and its SHA-256."""

    content: bytes
    sha256: str


def read_model_file(path: Path) -> ModelFile:
    """Read a whole model file, once, so that the hash is the hash of what was parsed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"The model file '{path}' cannot be read: {error.strerror or error}."
        ) from error
    return ModelFile(content, hashlib.sha256(content).hexdigest())


def version_notes(
    library: str, version: str, oldest: tuple[int, int], newest: tuple[int, int]
) -> tuple[str, ...]:
    """Note for the provenance where a library version is outside the tested range, inclusive."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    if numbers is None:
        return (f"The {library} version of this model is not known; tested are {tested}.",)
    found = (int(numbers[1]), int(numbers[2]))
    if found > newest:
        return (f"{library} {version} is newer than the tested versions ({tested}).",)
    if found < oldest:
        return (f"{library} {version} is older than the tested versions ({tested}).",)
    return ()


def has_base_class(source: Any, package: str, *names: str) -> bool:
    """Whether an object's class inherits from a named class of a package, without importing it."""
    return any(
        kind.__name__ in names and kind.__module__.split(".")[0] == package
        for kind in type(source).__mro__
    )


def class_numbers(classes: tuple[Any, ...], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Position among the classes of every label that a library gives."""
    number = {label: index for index, label in enumerate(classes)}
    return np.array([number[label] for label in labels.tolist()], dtype=np.int64)
