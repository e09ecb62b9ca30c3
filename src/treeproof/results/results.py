"""`Results`: the one table of what was found about many rows, one array per column.

Engines fill an empty table; labels, the question and the rows are added to it when it is complete,
and run files, curves, summaries and reports are made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.query.arithmetic import summary_lines
from treeproof.results.changes import Change, changes_between
from treeproof.results.columns import Column, FrameSource, LaterColumn, array_of, frame_of
from treeproof.results.curves import attacked_rows, certified_share
from treeproof.results.summary import RunSummary
from treeproof.results.threat import threat_lines
from treeproof.results.verdict import UnknownReason, Verdict

if TYPE_CHECKING:
    from treeproof.results.row_answer import RowAnswer

FloatArray = NDArray[np.float64]


@dataclass(slots=True, kw_only=True, repr=False)
class Results:
    """Answers for every row; row i of each array belongs to row i of the question.

    They behave like a table: ``results[0]`` is the answer for one row, ``results[:10]``,
    ``results[mask]`` and ``results[[3, 1]]`` are fewer answers, a loop goes over rows, and
    `to_pandas` and `to_polars` make data frames.

    Parameters
    ----------
    row : int64 (n_rows,)
        Number of each row in the data it came from.
    label : object (n_rows,)
        Class label that each row should keep; None for scores.
    verdict : object (n_rows,)
        'verified', 'falsified' or 'unknown'. For a radius: 'verified' when it is exact,
        'falsified' when the unchanged row is broken already, 'unknown' while the bounds differ.
    lower, upper : float64 (n_rows,)
        No violation at a distance below `lower`; a violation at `upper`, or, where not `attained`,
        at every distance beyond it. NaN for boxes, which have no radius.
    exact : bool (n_rows,)
        Whether the row is settled.
    attained : bool (n_rows,)
        Whether the violation lies at distance `upper` itself.
    witness : float64 (n_rows, n_features)
        A row that breaks the claim, replayed: doubles, or in the model's input precision where rows
        are real numbers; NaN where there is none.
    witness_distance : float64 (n_rows,)
        Its distance, which exceeds `upper` by at most one step of the witness's precision.
    seconds : float64 (n_rows,)
        Time spent on each row.
    reason : object (n_rows,)
        Why a row is unknown; empty otherwise.
    statistics : dict of str to array
        What the engine counted, per row.
    header : dict
        The model, the question and the versions, as saved in run files.
    values : float64 (n_rows, n_features), optional
        The rows that were asked about, as precise as the witnesses; reports show them beside each
        other.
    predicted : object (n_rows,), optional
        Class label that the model gives each unchanged row; None for scores.
    witness_label : object (n_rows,), optional
        Class label that the model gives the witness; None without a witness, and for scores.
    shown : array-like of float64 (n_rows, n_features), optional
        The witness as people are shown it: in the decimals of each column, or as many more as are
        needed to break the claim as well. Replayed; NaN where there is no witness. Like the three
        columns below, it is worked out when it is first read.
    cost : array-like of float64 (n_rows,), optional
        Distance or cost of the witness as it is shown; NaN where there is none, and for boxes.
    probability : array-like of float64 (n_rows,), optional
        Probability that the model gives `predicted`; NaN where its library does not tell.
    witness_probability : array-like of float64 (n_rows,), optional
        Probability that the model gives that same label for the witness as it is shown.
    evidence : object (n_rows,), optional
        Proof of each answer, as text that a checker reads; None where there is none.
    id : object (n_rows,), optional
        What the user knows each row by: a number or a text.
    eps : float64 (n_rows,), optional
        Radius or budget of each row, where each has its own.
    way : int64 (n_rows,), optional
        Of recourse, which way of its row this is, from 1 on: rows that have several ways occur as
        often.
    source : FrameSource, optional
        The kind and the index of the data frame that was asked about; run files do not hold it.
    """

    row: NDArray[np.int64]
    label: NDArray[Any]
    verdict: NDArray[Any]
    lower: FloatArray
    upper: FloatArray
    exact: NDArray[np.bool_]
    attained: NDArray[np.bool_]
    witness: FloatArray
    witness_distance: FloatArray
    seconds: FloatArray
    reason: NDArray[Any]
    statistics: dict[str, NDArray[Any]] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    values: FloatArray | None = None
    predicted: NDArray[Any] | None = None
    witness_label: NDArray[Any] | None = None
    shown: Column | None = None
    cost: Column | None = None
    probability: Column | None = None
    witness_probability: Column | None = None
    evidence: NDArray[Any] | None = None
    id: NDArray[Any] | None = None
    eps: FloatArray | None = None
    way: NDArray[np.int64] | None = None
    source: FrameSource | None = None

    @classmethod
    def empty(cls, n_rows: int, n_features: int) -> Results:
        """Return a table that claims nothing: unknown, lower 0, upper infinite, no witness.

        Parameters
        ----------
        n_rows, n_features : int
            Its size.

        Returns
        -------
        Results
            Arrays that an engine fills, without labels and a question.
        """
        return cls(
            row=np.arange(n_rows, dtype=np.int64),
            label=np.full(n_rows, None, dtype=object),
            verdict=np.array([Verdict.UNKNOWN] * n_rows, dtype=object),
            lower=np.zeros(n_rows),
            upper=np.full(n_rows, np.inf),
            exact=np.zeros(n_rows, dtype=bool),
            attained=np.zeros(n_rows, dtype=bool),
            witness=np.full((n_rows, n_features), np.nan),
            witness_distance=np.full(n_rows, np.nan),
            seconds=np.zeros(n_rows),
            reason=np.array([UnknownReason.NONE] * n_rows, dtype=object),
            witness_label=np.full(n_rows, None, dtype=object),
        )

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, selection: int) -> RowAnswer: ...

    @overload
    def __getitem__(self, selection: Any) -> Results: ...

    def __getitem__(self, selection: Any) -> RowAnswer | Results:
        from treeproof.results.row_answer import RowAnswer

        if isinstance(selection, str | tuple):
            raise InvalidInput(
                "Results are indexed by rows: with a number, a slice, a mask or a list of numbers."
                f" Got {selection!r}. Columns are attributes, such as results.lower, and those of"
                " results.to_frame()."
            )
        if isinstance(selection, int | np.integer):
            if not -len(self) <= selection < len(self):
                # What ends a loop in Python, and no more than that is wrong.
                raise IndexError(f"There are {len(self)} rows. Got row {selection}.")
            return RowAnswer(self, int(selection) % len(self))
        return self.take(selection)

    def __iter__(self) -> Iterator[RowAnswer]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        return f"<treeproof.Results: {self.summary().splitlines()[0]}>"

    @property
    def asks_radius(self) -> bool:
        """Whether the minimal perturbation was asked for, rather than a verdict at a fixed set."""
        return bool(self.header.get("question", {}).get("kind") == "radius")

    @property
    def average_lower_bound(self) -> float:
        """Mean of `lower`; rows that are broken unchanged count as 0, as in the paper.

        With an attacker's class it is over the rows of that class.
        """
        attacked = attacked_rows(self)
        return float(np.mean(self.lower[attacked])) if attacked.any() else float("nan")

    def verified_error(self, eps: float) -> float:
        """Share of rows that are not proved to keep their claim in the closed ball of radius eps.

        With an attacker's class it is a share of the rows of that class.

        Parameters
        ----------
        eps : float
            The radius.

        Returns
        -------
        float
            An upper bound of the error under any attack within eps.
        """
        if not eps >= 0.0:
            raise InvalidInput(f"'eps' must be a number >= 0. Got {eps!r}.")
        protocol = self.header.get("question", {}).get("search", {})
        if protocol.get("first_eps") == eps and "proved_at_first_eps" in self.statistics:
            proved = self.statistics["proved_at_first_eps"][attacked_rows(self)]
            return float(1.0 - np.mean(proved)) if len(proved) else 1.0
        return float(1.0 - certified_share(self, [eps])[0])

    def summary(self) -> str:
        """Say in a few lines what was found."""
        from treeproof.results.run_file import unfinished

        missing = unfinished(self.header, len(self))
        if len(self) == 0:
            return missing or "0 rows"
        summary = RunSummary(self.asks_radius)
        summary.add(self)
        said = threat_lines(self.header, self.values, attacked_rows(self))
        said += summary_lines(self.header)
        return "\n".join([missing] * bool(missing) + summary.lines() + said)

    def changes(self, position: int) -> list[Change]:
        """What the witness of a row changes.

        Parameters
        ----------
        position : int
            Place of the row in the results.

        Returns
        -------
        list of Change
            Name, value before and after of every feature that differs; one-hot groups of a domain
            are one feature, categories have their names, and printed one reads ``age: 41 → 42``,
            in short numbers that break the claim when all of them are typed in. Empty where there
            is no witness.
        """
        witness = self.witness[position]
        if self.values is None or np.isnan(witness).all():
            return []
        shown = witness if self.shown is None else self.shown[position]
        return changes_between(self.header, self.values[position], witness, shown)

    @property
    def as_shown(self) -> FloatArray:
        """The witnesses in short numbers; of files that have none, as they are."""
        return self.witness if self.shown is None else array_of(self.shown)

    @property
    def radius(self) -> FloatArray:
        """The exact radius of each row, or its least cost; NaN where it is not exact."""
        return np.where(self.exact & self.asks_radius, self.upper, np.nan)

    @property
    def misclassified(self) -> NDArray[np.bool_]:
        """Which rows the model gets wrong as they stand; of their own labels none."""
        if self.predicted is None:
            return np.asarray(self.asks_radius & (self.verdict == Verdict.FALSIFIED))
        return np.asarray(self.predicted != self.label)

    def to_frame(
        self,
        library: str | None = None,
        *,
        changes: bool = False,
        witness: bool = False,
        internal: bool = False,
    ) -> Any:
        """One line per row as a data frame.

        Parameters
        ----------
        library : {"pandas", "polars"}, optional
            Which kind; by default that of the rows, or the first that is installed.
        changes : bool
            Add two columns for every feature that some witness changes: before and after.
        witness : bool
            Add a column for every feature of the model: the witness, as it is shown.
        internal : bool
            Add how the engine came to its answers, such as the boxes that it searched.

        Returns
        -------
        DataFrame
            In the index of the rows' own frame: identifier, label, predicted label and its
            probability; of a radius `radius`, `exact` and `misclassified`, otherwise the verdict;
            both bounds; what the witness becomes, with the probability of the label that it had,
            and what it changes and costs; time, and why a row is undecided. With an attacker's
            class also which rows are `attacked`: the others stay as they are.
        """
        from treeproof.results.table import answer_columns

        source = self.source or FrameSource(library)
        columns = answer_columns(self, changes=changes, witness=witness, internal=internal)
        return frame_of(columns, library or source.library, source.index)

    def to_pandas(
        self, *, changes: bool = False, witness: bool = False, internal: bool = False
    ) -> Any:
        """One line per row as a data frame of pandas.

        Parameters
        ----------
        changes, witness, internal
            See `to_frame`.

        Returns
        -------
        pandas.DataFrame
            The columns of `to_frame`.
        """
        return self.to_frame("pandas", changes=changes, witness=witness, internal=internal)

    def to_polars(
        self, *, changes: bool = False, witness: bool = False, internal: bool = False
    ) -> Any:
        """One line per row as a data frame of polars, which has no index.

        Parameters
        ----------
        changes, witness, internal
            See `to_frame`.

        Returns
        -------
        polars.DataFrame
            The columns of `to_frame`.
        """
        return self.to_frame("polars", changes=changes, witness=witness, internal=internal)

    @classmethod
    def join(cls, parts: Sequence[Results]) -> Results:
        """Join answers to one question about several blocks of rows.

        Parameters
        ----------
        parts : sequence of Results
            At least one; the question is that of the first.

        Returns
        -------
        Results
            All rows, block after block. Of the statistics and of the columns that may be left out,
            those that every block has.
        """
        columns: dict[str, Any] = {
            name: np.concatenate([array_of(getattr(part, name)) for part in parts])
            for name in _COLUMNS
            if all(getattr(part, name) is not None for part in parts)
        }
        statistics = {
            name: np.concatenate([part.statistics[name] for part in parts])
            for name in parts[0].statistics
            if all(name in part.statistics for part in parts)
        }
        return cls(statistics=statistics, header=dict(parts[0].header), **columns)

    def take(self, selection: Any) -> Results:
        """Answers for a selection of the rows.

        Parameters
        ----------
        selection : int, slice, mask, or list or array of int
            Which rows, by their places.

        Returns
        -------
        Results
            The same question about fewer rows.
        """
        chosen = _places(selection, len(self))
        columns: dict[str, Any] = {
            name: column.take(chosen) if isinstance(column, LaterColumn) else column[chosen]
            for name in _COLUMNS
            if (column := getattr(self, name)) is not None
        }
        statistics = {name: values[chosen] for name, values in self.statistics.items()}
        source = None if self.source is None else self.source.take(chosen)
        return Results(statistics=statistics, header=self.header, source=source, **columns)

    def plot(self, **options: Any) -> Any:
        """Draw verified accuracy over the radius; needs matplotlib.

        Parameters
        ----------
        **options
            Options of `VerifiedAccuracyDisplay.from_results`, such as ``ax`` and ``name``.

        Returns
        -------
        VerifiedAccuracyDisplay
            What was drawn, with `ax_` and `figure_`.
        """
        from treeproof.results.display import VerifiedAccuracyDisplay

        return VerifiedAccuracyDisplay.from_results(self, **options)

    def plot_features(self, *, most: int = 12, ax: Any = None) -> Any:
        """Draw which features the witnesses change, which way and by how much; needs matplotlib.

        Every dot is a row. Changes are in standard deviations of each feature among the rows;
        categories, groups and missing values have no size, and are squares at 0.

        Parameters
        ----------
        most : int
            Features that are drawn: those that most rows change.
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib axes
            What was drawn on.
        """
        from treeproof.results.pictures import draw_changed_features

        return draw_changed_features(self, most, ax)

    def plot_rows(self, *, most: int = 8, ax: Any = None) -> Any:
        """Draw the rows that the least change breaks, each with what changes; needs matplotlib.

        Parameters
        ----------
        most : int
            Rows that are drawn. Those that are wrong as they stand are left out.
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib axes
            What was drawn on.
        """
        from treeproof.results.pictures import draw_nearest_rows

        return draw_nearest_rows(self, most, ax)

    def by_group(self, groups: Any, *, eps: float | None = None) -> Any:
        """What is proved of each group of rows, as a data frame.

        Parameters
        ----------
        groups : str, int or array-like of shape (n_rows,)
            A feature, by name or number, or an entry for each row. Numbers with more than twelve
            values are cut into quarters of the rows; categories and texts never are.
        eps : float, optional
            Radius or cost. Needed where results hold those of all rows; by default that of the
            question, or the set of each row.

        Returns
        -------
        DataFrame
            For each group the number of its attacked rows, and shares of them: `correct` as they
            stand, `verified`, and `resisting`, for which no breaking change is known. NaN where
            nothing is known.
        """
        from treeproof.results.groups import group_columns

        library = None if self.source is None else self.source.library
        return frame_of(group_columns(self, groups, eps), library)

    def plot_groups(self, groups: Any, *, eps: float | None = None, ax: Any = None) -> Any:
        """Draw verified accuracy of each group of rows; needs matplotlib.

        Parameters
        ----------
        groups : str, int or array-like of shape (n_rows,)
            See `by_group`.
        eps : float, optional
            Radius or cost at which bars are drawn; without it, of results that hold radii, a curve
            for each group.
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib axes
            What was drawn on.
        """
        from treeproof.results.pictures import draw_groups

        return draw_groups(self, groups, eps, ax)

    def _repr_html_(self) -> str:
        from treeproof.results.display import results_html

        return results_html(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a run file, which `load_results` reads back, or a table for spreadsheets.

        An existing file is replaced in one step, or left alone when that fails.

        Parameters
        ----------
        path : str or path
            Where to. The ending says what is written: ``.jsonl``, or none, for JSON lines with a
            header record and one record per row; ``.parquet`` for the same as Parquet; ``.csv`` and
            ``.xlsx`` for the columns of ``to_frame(changes=True)``, in numbers and names as they
            are typed in.
        """
        from treeproof.results.run_file import check_ending, save_results
        from treeproof.results.sheets import is_table, save_table

        check_ending(path, or_table=True)
        if is_table(path):
            save_table(path, lambda: [self])
        else:
            save_results(self, path)


_COLUMNS = tuple(
    field.name for field in fields(Results) if field.name not in ("statistics", "header", "source")
)


def _places(selection: Any, n_rows: int) -> Any:
    """A selection as NumPy takes it, whatever it was given as: a slice, a mask or numbers."""
    if isinstance(selection, slice):
        return selection
    chosen = np.atleast_1d(np.asarray(selection))
    if chosen.size == 0:
        return chosen.astype(np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise InvalidInput(
            f"Rows are chosen by a number, a slice, a mask or a list of numbers. Got {selection!r}."
        )
    if chosen.dtype.kind == "b" and len(chosen) != n_rows:
        raise InvalidInput(
            f"A mask must have one entry for each of the {n_rows} rows. Got {len(chosen)}."
        )
    return chosen


def withdraw(results: Results, positions: Sequence[int], reasons: Sequence[str]) -> None:
    """Turn the answers at some positions into rows that claim nothing, in place, with reasons."""
    if len(positions) == 0:
        return
    at = list(positions)
    results.verdict[at] = str(Verdict.UNKNOWN)
    results.reason[at] = list(reasons)
    is_box = np.isnan(results.lower[at])
    results.lower[at] = np.where(is_box, np.nan, 0.0)
    results.upper[at] = np.where(is_box, np.nan, np.inf)
    results.exact[at] = results.attained[at] = False
    results.witness[at] = results.witness_distance[at] = np.nan
    for name in ("shown", "cost", "witness_probability"):
        column = getattr(results, name)
        if column is not None:
            said = array_of(column)
            said[at] = np.nan
            setattr(results, name, said)
    for column in (results.witness_label, results.evidence):
        if column is not None:
            column[at] = None
