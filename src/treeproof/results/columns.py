"""Columns that are worked out when they are read, and columns as data frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BackendMissing, InvalidInput

FloatArray = NDArray[np.float64]


class _Known:
    """What is known of a column by now; all selections of its rows share it."""

    def __init__(self, shape: tuple[int, ...], make: Callable[[NDArray[np.int64]], FloatArray]):
        self.values = np.full(shape, np.nan)
        self.is_known = np.zeros(shape[0], dtype=bool)
        self.make = make

    def rows(self, at: NDArray[np.int64]) -> FloatArray:
        open_rows = np.unique(at[~self.is_known[at]])
        if open_rows.size:
            self.values[open_rows] = self.make(open_rows)
            self.is_known[open_rows] = True
        return self.values[at]


class LaterColumn:
    """A column of numbers, each row of which is worked out when it is first read.

    Parameters
    ----------
    shape : tuple of int
        That of the whole column; its first length is the number of rows.
    make : callable
        Gives the values of some rows, by their numbers (n,).
    """

    def __init__(
        self, shape: tuple[int, ...], make: Callable[[NDArray[np.int64]], FloatArray]
    ) -> None:
        self._known = _Known(shape, make)
        self._at = np.arange(shape[0])

    def take(self, selection: Any) -> LaterColumn:
        """Return a selection of the rows, without working them out."""
        chosen = LaterColumn.__new__(LaterColumn)
        chosen._known, chosen._at = self._known, self._at[selection]
        return chosen

    def __len__(self) -> int:
        return len(self._at)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __getitem__(self, selection: Any) -> Any:
        if isinstance(selection, tuple):  # of rows and columns, as of any array
            return np.asarray(self)[selection]
        at = self._at[selection]
        return self._known.rows(np.atleast_1d(at))[0 if np.ndim(at) == 0 else slice(None)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        return np.asarray(self._known.rows(self._at), dtype=dtype)

    def __reduce__(self) -> Any:
        # Sent elsewhere, it is what it says: the question stays where it was asked.
        return np.asarray, (np.asarray(self),)


Column = FloatArray | LaterColumn


def array_of(column: Any) -> NDArray[Any]:
    """A column as an array, worked out where it was not."""
    return np.asarray(column)


class FrameSource(NamedTuple):
    """What answers keep of the data frame that they are about."""

    library: str | None = None
    """Name of its library, for frames of pandas and polars."""
    index: Any = None
    """Its index, which frames of pandas have."""

    def take(self, selection: Any) -> FrameSource:
        """Return the same of some rows."""
        return self if self.index is None else self._replace(index=self.index[selection])


def source_of(X: Any) -> FrameSource | None:
    """What to keep of rows as they were given; nothing of arrays."""
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    library = frame.implementation.name.lower()
    return FrameSource(
        library=library if library in _LIBRARIES else None,
        index=X.index if library == "pandas" else None,
    )


_LIBRARIES = ("pandas", "polars")


def frame_of(content: Any, library: str | None = None, index: Any = None) -> Any:
    """Columns or records as a data frame: of the given library, or the first that is installed.

    Frames of pandas have the `index`, where there is one.
    """
    for name in [library] if library else _LIBRARIES:
        if name not in _LIBRARIES:
            raise InvalidInput(f"'library' must be 'pandas' or 'polars'. Got {name!r}.")
        try:
            module: Any = __import__(name)
        except ImportError:
            continue
        if name == "pandas" and index is not None and isinstance(content, Mapping):
            return module.DataFrame(content, index=index)
        return module.DataFrame(content)
    names = [library] if library else list(_LIBRARIES)
    raise BackendMissing(
        f"A data frame needs {' or '.join(names)}. Install it with: pip install {names[0]}."
    )
