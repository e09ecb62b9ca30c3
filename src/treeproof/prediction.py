"""`Model`: an ensemble ready for use, with compiled prediction."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from html import escape
from os import PathLike
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.ensemble import ZERO_BAND, Ensemble, FloatArray, IntArray, cached_per_ensemble
from treeproof.model.inspection import describe, summary_lines
from treeproof.model.rows import numeric_rows
from treeproof.model.score_meaning import require_own_score

_BLOCK, _SMALL_BLOCK = 1024, 64
_FEW = 16
"""Fewer rows are not worth laying out the trees for."""

_WORTH_THREADS = 1 << 18
"""Rows times trees that take longer than to start threads."""

_Meaning = Callable[[FloatArray], NDArray[Any]]

_TURNS = 4
"""How often each thread should still have its turn, when slices become smaller."""


@dataclass(frozen=True, slots=True, repr=False)
class Model:
    """A loaded model: the exact meaning of the source model, and fast prediction with it.

    Parameters
    ----------
    ensemble : Ensemble
        The canonical form; everything that decides margins and labels is in it.
    """

    ensemble: Ensemble

    @property
    def n_features(self) -> int:
        """Number of columns of a row."""
        return self.ensemble.n_features

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels as the source library reports them; empty for scores."""
        return self.ensemble.classes

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Feature names of the model, or an empty tuple."""
        return self.ensemble.feature_names

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides margins and labels."""
        return self.ensemble.fingerprint

    def margins(self, X: Any, *, n_jobs: int = 1) -> NDArray[np.floating]:
        """Raw scores, bit-equal to the source library's.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_features)
            Rows; columns of data frames are matched to the model's feature names, or must be in
            their order where the source library takes them by position.
        n_jobs : int
            Threads; -1 for all cores.

        Returns
        -------
        ndarray
            (n_rows,) for one output, (n_rows, n_outputs) otherwise, in the library's own dtype.
        """
        scores = self._scores(X, n_jobs)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any, *, n_jobs: int = 1) -> NDArray[Any]:
        """Class labels as the source library gives them; for score models, the margins.

        Parameters
        ----------
        X, n_jobs
            See `margins`.

        Returns
        -------
        ndarray of shape (n_rows,)
            One label per row.
        """
        scores = self._scores(X, n_jobs)
        if self.ensemble.decision.kind == "score":
            require_own_score(self.ensemble)
            return scores[:, 0] if scores.shape[1] == 1 else scores
        return _label_array(self.classes)[evaluate.label_indices(self.ensemble, scores)]

    def label_indices(self, X: Any, *, n_jobs: int = 1) -> NDArray[np.int64]:
        """Index into `classes` of the predicted label of each row.

        Parameters
        ----------
        X, n_jobs
            See `margins`.

        Returns
        -------
        ndarray of int64, shape (n_rows,)
            Positions in `classes`.
        """
        if self.ensemble.decision.kind == "score":
            raise UnsupportedQuery("A model that gives scores has no labels. Ask for margins.")
        return evaluate.label_indices(self.ensemble, self._scores(X, n_jobs))

    def leaf_indices(self, X: Any, *, n_jobs: int = 1) -> IntArray:
        """Leaf that each row reaches in each tree, in the source library's own numbering.

        Parameters
        ----------
        X, n_jobs
            See `margins`.

        Returns
        -------
        ndarray of int32, shape (n_rows, n_trees)
            Leaf numbers.
        """
        from treeproof.kernels.core.trees import reach_leaves, reach_packed

        rows, ensemble = self._rows(X), self.ensemble
        leaves = np.empty((len(rows), ensemble.n_trees), dtype=np.int32)
        plain = partial(evaluate.leaf_rows, ensemble)
        self._run(rows, n_jobs, (reach_leaves, reach_packed, plain), leaves)
        return ensemble.trees.leaf_source[leaves]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model in treeproof's own format; loading it gives the same bits.

        Parameters
        ----------
        path : str or path
            Where to; the ending ``.treeproof`` is a convention.
        """
        from treeproof.model.file_format import save_ensemble

        save_ensemble(self.ensemble, path)

    def inspect(self) -> dict[str, Any]:
        """What was understood of the model, as plain data.

        Returns
        -------
        dict
            The keys are documented in docs/reference/model-file.md.
        """
        return describe(self.ensemble)

    def __repr__(self) -> str:
        ensemble, provenance = self.ensemble, self.ensemble.provenance
        kind = f"{ensemble.n_classes} classes" if ensemble.classes else "scores"
        return (
            f"<treeproof.Model: {provenance.library} {provenance.library_version},"
            f" {ensemble.n_trees} trees, {ensemble.n_features} features, {kind},"
            f" self-test {provenance.self_test}>"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(caption)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for caption, text in summary_lines(self.inspect())
        )
        return f"<table><caption>treeproof model</caption><tbody>{rows}</tbody></table>"

    def _rows(self, X: Any) -> FloatArray:
        return evaluate.cast_rows(self.ensemble, numeric_rows(self.ensemble, X))

    def _scores(self, X: Any, n_jobs: int) -> NDArray[np.floating]:
        return evaluate.finish(self.ensemble, self._sums(self._rows(X), n_jobs))

    def _sums(self, rows: FloatArray, n_jobs: int) -> NDArray[np.floating]:
        from treeproof.kernels.core.trees import accumulate, accumulate_packed

        ensemble = self.ensemble
        start = np.array(ensemble.aggregation.start, ensemble.aggregation.precision)
        total = np.tile(start, (len(rows), 1))

        def plain(some: FloatArray) -> NDArray[np.floating]:
            return evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, some))

        self._run(rows, n_jobs, (accumulate, accumulate_packed, plain), total)
        return total

    def _run(
        self, rows: FloatArray, n_jobs: int, ways: tuple[Any, Any, _Meaning], out: NDArray[Any]
    ) -> None:
        """Walk rows down the trees, one by one for few rows, in the packed layout for many.

        Where there is no machine code for that, NumPy does it, as `evaluate` says.
        """
        from treeproof.kernels.core.plain import is_plain, spent
        from treeproof.kernels.core.trees import buffer_for, room_for

        few, many, plain = ways
        ensemble, trees = self.ensemble, self.ensemble.trees
        is_few = len(rows) < _FEW
        kernel = few if is_few else many
        threads = thread_count(n_jobs)
        if len(rows) * ensemble.n_trees < _WORTH_THREADS:
            threads = 1

        def arguments(part: slice, packed: Any) -> tuple[Any, ...]:
            last = (rows[part], ZERO_BAND, *(() if is_few else (buffer_for(packed),)), out[part])
            return (trees, *last) if is_few else (trees, packed, *last)

        def run(part: slice) -> None:
            if not is_plain(kernel):
                kernel(*arguments(part, None if is_few else _packed(ensemble)))
                return
            began = perf_counter()
            out[part] = plain(rows[part])
            room = room_for(trees, ensemble.n_features)
            spent(kernel, arguments(part, room), perf_counter() - began)

        in_slices(range(0, len(rows), _BLOCK), threads, run, smallest=_SMALL_BLOCK)


@cached_per_ensemble
def _packed(ensemble: Ensemble) -> Any:
    """The trees laid out for speed."""
    from treeproof.kernels.core.trees import pack_trees

    return pack_trees(ensemble.trees, ensemble.n_features)


def accumulators(ensemble: Ensemble, rows: FloatArray, n_jobs: int = 1) -> NDArray[np.floating]:
    """Sums of leaf values in the library's order and precision, before they are finished.

    Rows must be in the model's input precision.
    """
    return Model(ensemble)._sums(rows, n_jobs)


def _label_array(classes: tuple[Any, ...]) -> NDArray[Any]:
    # Labels of different types would all become strings or numbers in one plain array.
    mixed = len({type(label) for label in classes}) > 1
    return np.array(classes, dtype=object if mixed else None)


def thread_count(n_jobs: int) -> int:
    """Number of threads that an `n_jobs` argument asks for."""
    if not isinstance(n_jobs, int | np.integer) or n_jobs == 0 or n_jobs < -1:
        raise InvalidInput(
            f"'n_jobs' must be a positive whole number, or -1 for all cores. Got {n_jobs!r}."
        )
    if n_jobs != -1:
        return n_jobs
    from treeproof.kernels.core.processors import usable_processors

    return usable_processors()


def in_slices(
    rows: range, threads: int, run: Callable[[slice], None], *, smallest: int = 1
) -> None:
    """Run over slices of rows, in threads when asked; every slice writes its own rows.

    The step of `rows` is the size of a slice. For several threads, slices become smaller towards
    the end, down to the rows that are worth a call, so that all threads end at about the same time.
    """
    parts = _slices(rows, threads, smallest)
    if threads == 1 or len(parts) < 2:
        for part in parts:
            run(part)
        return
    is_failed = False

    def run_next(part: slice) -> None:
        nonlocal is_failed
        if is_failed:
            return  # nobody needs the rest
        try:
            run(part)
        except BaseException:
            is_failed = True
            raise

    from treeproof.kernels.core.interrupts import STOP

    try:
        with ThreadPoolExecutor(min(threads, len(parts))) as pool:
            try:
                list(pool.map(run_next, parts))
            except BaseException:  # Ctrl-C among them
                # Sound: nobody sees the answers of searches that it ends.
                is_failed, STOP[0] = True, 1
                raise
    finally:
        if is_failed:  # else it is not ours
            STOP[0] = 0


def _slices(rows: range, threads: int, smallest: int) -> list[slice]:
    parts = []
    first = rows.start
    while first < rows.stop:
        size = rows.step
        if threads > 1:
            fair = (rows.stop - first) // (_TURNS * threads)
            size = min(size, max(fair, smallest))
        parts.append(slice(first, min(first + size, rows.stop)))
        first += size
    return parts
