"""Gates: whether enough rows are verified, by a number or compared with an earlier run."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.attack import ATTACKS
from treeproof.cli.console import print_note
from treeproof.cli.options import FILE, FiniteNumber, all_of
from treeproof.errors import InvalidInput, listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from treeproof.results.results import Results
    from treeproof.runs.runner import Runner

gate_options = all_of(
    click.option(
        "--fail-under",
        type=FiniteNumber(0.0, 1.0),
        metavar="SHARE",
        help="End with exit status 1 when a smaller share of the rows is verified.",
    ),
    click.option(
        "--not-worse-than",
        metavar="RUN",
        type=FILE,
        help="End with exit status 1 when a smaller share is verified than in this earlier run.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What a gate says of a run.

    Attributes
    ----------
    failure : str
        Why it fails; empty where it is passed.
    share, rows : float and int
        Share of the attacked rows that is verified, and their number.
    at : float or None
        The radius; None where each row has its own.
    fail_under : float or None
        Smallest share that passes.
    before : dict or None
        The earlier run that is compared with: its file, the same of it, and the rows that changed
        sides, by their numbers and identifiers.
    """

    failure: str
    share: float
    rows: int
    at: float | None
    fail_under: float | None
    before: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"passed": not self.failure} | {
            name: getattr(self, name)
            for name in ("failure", "share", "rows", "at", "fail_under", "before")
        }

    def lines(self) -> list[str]:
        """Sentences about the gate, for people."""
        from treeproof.results.numbers import counted, share_down

        where = "" if self.at is None else f" at radius {self.at:g}"
        said = [f"verified{where}: {share_down(self.share)} of {counted(self.rows, 'row')}"]
        if self.fail_under is not None:
            said.append(f"needed: {100.0 * self.fail_under:.6g} %")
        if self.before is not None:
            rows = counted(self.before["rows"], "row")
            said.append(f"in {self.before['run']}: {share_down(self.before['share'])} of {rows}")
            for name, words in (("lost", "no longer verified"), ("gained", "newly verified")):
                if named := [_row_words(row) for row in self.before[name]]:
                    said.append(f"{words}: rows {listed(named)}")
        return said


def _row_words(row: dict[str, Any]) -> str:
    from treeproof.results.numbers import row_name

    return row_name(row["row"], row["id"])


@dataclass(frozen=True)
class Gate:
    """What must be verified for a command to end well; without anything given, nothing.

    `at` is the radius of all rows, where it is not the question's own.
    """

    fail_under: float | None = None
    not_worse_than: str | None = None
    at: float | None = None

    @property
    def is_given(self) -> bool:
        """Whether there is a gate at all."""
        return self.fail_under is not None or self.not_worse_than is not None

    @cached_property
    def _baseline(self) -> "Results":
        from treeproof.results.run_file import load_results

        return load_results(self.not_worse_than or "")

    def refuse_as_output(self, out: str | None) -> None:
        """Refuse to write over the earlier run: a gate that failed would pass the next time."""
        if None not in (out, self.not_worse_than) and (
            Path(out or "").resolve() == Path(self.not_worse_than or "").resolve()
        ):
            raise click.UsageError(
                "--out must not replace the run of --not-worse-than. Give another file."
            )

    def check(self, header: dict[str, Any]) -> None:
        """Refuse, before any work, an earlier run that cannot be compared with the one to come."""
        if self.not_worse_than is None:
            return
        from treeproof.results.compared import refuse_other_question
        from treeproof.results.run_file import unfinished
        from treeproof.results.threat import limit_of

        missing = unfinished(self._baseline.header, len(self._baseline))
        if missing:
            raise InvalidInput(
                f"The run '{self.not_worse_than}' must be complete to be compared with. {missing}"
                " Go on with it by --resume."
            )
        here = header["question"]
        if self._baseline.header["question"]["engine"]["name"] in ATTACKS:
            raise InvalidInput(
                f"The run '{self.not_worse_than}' must say what is verified. Got attacks, which"
                " verify nothing: give a run of treeproof radius or treeproof verify."
            )
        refuse_other_question(self._baseline.header, header, self.not_worse_than)
        if here["labels"] != "given" and here.get("attacker_class") is not None:
            raise InvalidInput(
                "--not-worse-than with a class that is attacked needs the true labels of the rows:"
                " by the models' own labels each is asked about other rows, and one that stops"
                " nothing would pass. Give the column of the labels with --label."
            )
        known = limit_of(self._baseline.header)
        asked = limit_of(header) if self.at is None else self.at
        if None not in (known, asked) and known != asked:
            raise self._other_radius(f"{known:g}", f"{asked:g}")

    def _other_radius(self, known: str, asked: str) -> InvalidInput:
        return InvalidInput(
            f"The run '{self.not_worse_than}' says what is verified at radius {known} only. Got a"
            f" gate at radius {asked}: ask at the same one, or compare with a run of treeproof"
            " radius, which tells all."
        )

    def judge(self, runner: "Runner", share: float, eps: float | None) -> GateResult:
        """What it says of a share of rows that is verified at a radius.

        The radius is that of all rows, or None where each has its own.
        """
        from treeproof.results.numbers import counted, share_down

        n, failure, before = runner.tally.n_attacked, "", None
        proved = f"{share_down(share)} {runner.tally.who()} are verified"
        if self.fail_under is not None and share < self.fail_under:
            failure = f"{proved}, below {100.0 * self.fail_under:.6g} %"
        if self.not_worse_than is not None:
            before = self._before(runner, eps)
            print_note(
                f"verified here {share_down(share)} of {counted(n, 'row')}, in"
                f" '{self.not_worse_than}' {share_down(before['share'])} of"
                f" {counted(before['rows'], 'row')}."
            )
            if not failure and share < before["share"]:
                lost = [_row_words(row) for row in before["lost"]]
                why = f"no longer verified are rows {listed(lost)}"
                if not lost:  # the model's own labels are others, and with them the rows of a class
                    why = f"{n} rows are attacked, there {before['rows']}"
                needed = share_down(before["share"])
                failure = f"{proved}, {needed} in '{self.not_worse_than}'; {why}"
        return GateResult(
            failure=failure, share=share, rows=n, at=eps, fail_under=self.fail_under, before=before
        )

    def _before(self, runner: "Runner", eps: float | None) -> dict[str, Any]:
        """What the earlier run says at the same radii, and which rows changed sides since."""
        import numpy as np

        from treeproof.results.curves import attacked_rows, certified_rows

        before = self._baseline
        is_proved, limits, names = self._compared(runner, eps)
        kept, attacked = certified_rows(before, limits), attacked_rows(before)

        def rows(chosen: "NDArray[np.bool_]") -> list[dict[str, Any]]:
            return [
                {"row": int(before.row[at]), "id": names[at]}
                for at in np.flatnonzero(chosen).tolist()
            ]

        return {
            "run": self.not_worse_than,
            "share": int(kept.sum()) / max(int(attacked.sum()), 1),
            "rows": int(attacked.sum()),
            "lost": rows(kept & ~is_proved),
            "gained": rows(~kept & is_proved),
        }

    def _compared(
        self, runner: "Runner", eps: float | None
    ) -> "tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[Any]]":
        """Which rows of the earlier run are proved in this one, at which radius, and their names.

        Rows are called what this run calls them, or the earlier one where this one does not.
        Refused where the rows, or the radii at which they are known to be verified, are others.
        """
        import numpy as np

        from treeproof.results.curves import certified_rows

        before = self._baseline
        position = {row: at for at, row in enumerate(before.row.tolist())}
        is_proved, limits = np.zeros(len(before), dtype=bool), np.full(len(before), np.nan)
        names = np.full(len(before), None) if before.id is None else before.id.copy()
        n_rows = runner.tally.n_rows
        for table in runner.tables():
            there = [position[row] for row in table.row.tolist() if row in position]
            if n_rows != len(before) or len(there) != len(table):
                raise self._other_rows(f"It has {len(before)}, this one {n_rows}.")
            if difference := _difference(before.take(np.array(there)), table):
                raise self._other_rows(difference)
            limits[there] = eps if table.eps is None else table.eps
            is_proved[there] = certified_rows(table, limits[there])
            if table.id is not None:
                names[there] = table.id
        if before.eps is not None and not before.asks_radius:
            for at in np.flatnonzero(before.eps != limits)[:1]:
                where = f"of row {before.row[at]}"
                raise self._other_radius(f"{before.eps[at]:g} {where}", f"{limits[at]:g} {where}")
        return is_proved, limits, names

    def _other_rows(self, difference: str) -> InvalidInput:
        return InvalidInput(
            f"The run '{self.not_worse_than}' must be about the same rows. {difference}"
        )


def _difference(there: "Results", here: "Results") -> str:
    """A sentence about the first row that two tables of the same numbers do not share.

    Values are compared where both models have the same features, but for codes of categories, which
    each model counts in its own order; labels where they are the data's, and classes the same.
    """
    import numpy as np

    from treeproof.results.threat import feature_name

    models = [table.header["model"] for table in (there, here)]
    same_features = models[0].get("feature_names") == models[1].get("feature_names")
    if same_features and there.values is not None and here.values is not None:
        # Real rows are rounded to the precision of their model.
        kind = np.float64 if here.header["question"]["arithmetic"] == "float64" else np.float32
        old, new = there.values.astype(kind), here.values.astype(kind)
        differs = (old != new) & ~(np.isnan(old) & np.isnan(new))
        differs[:, [number for model in models for number in model.get("categorical") or ()]] = (
            False
        )
        for row, feature in np.argwhere(differs)[:1]:
            values = f"{old[row, feature]} there, and {new[row, feature]} here"
            return f"{feature_name(here.header, feature)} of row {here.row[row]} is {values}."
    if (
        here.header["question"]["labels"] == "given"
        and models[0]["classes"] == models[1]["classes"]
    ):
        for row, old, new in zip(here.row, there.label, here.label, strict=True):
            if old != new:
                return f"The label of row {row} is {old!r} there, and {new!r} here."
    return ""
