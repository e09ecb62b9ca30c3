"""Gates: whether enough rows are verified, by a number or compared with an earlier run."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.options import FILE, FiniteNumber, all_of
from treeproof.errors import InvalidInput, listed

if TYPE_CHECKING:
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
_SAME = ("goal", "arithmetic", "attacker_class", "labels")
_BLOCK = 4096


@dataclass(frozen=True)
class Gate:
    """What must be verified for a command to end well; without anything given, nothing."""

    fail_under: float | None = None
    not_worse_than: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether there is a gate at all."""
        return self.fail_under is not None or self.not_worse_than is not None

    @cached_property
    def _baseline(self) -> "Results":
        from treeproof.results.run_file import load_results

        return load_results(self.not_worse_than or "")

    def check(self, header: dict[str, Any]) -> None:
        """Refuse, before any work, an earlier run whose rows may change in other ways."""
        if self.not_worse_than is None:
            return
        from treeproof.query.arithmetic import arithmetic_of

        here, there = (dict(h["question"]) for h in (header, self._baseline.header))
        for question in (here, there):
            question["arithmetic"] = arithmetic_of(question)
            question["perturbation"] = {**question["perturbation"], "eps": None}
        for name in ("perturbation", *_SAME):
            if here.get(name) != there.get(name):
                raise InvalidInput(
                    f"The run '{self.not_worse_than}' must be about the same changes and claim. Its"
                    f" {name} is {str(there.get(name))[:120]}, here it is"
                    f" {str(here.get(name))[:120]}."
                )

    def failure(self, runner: "Runner", share: float, eps: float) -> str | None:
        """Why it fails with a share of rows that is verified at a radius; None if it passes."""
        from treeproof.results.curves import certified_rows, certified_share
        from treeproof.results.numbers import share_down

        proved = f"{share_down(share)} {runner.tally.who()} are verified"
        if self.fail_under is not None and share < self.fail_under:
            return f"{proved}, below {self.fail_under:g}"
        if self.not_worse_than is None:
            return None
        before = self._baseline
        now = _certified(runner, eps)
        if set(before.row.tolist()) != set(now):
            raise InvalidInput(
                f"The run '{self.not_worse_than}' must be about the same rows. It has"
                f" {len(before)}, this one {len(now)}."
            )
        needed = float(certified_share(before, [eps])[0])
        if share >= needed:
            return None
        kept = before.row[certified_rows(before, eps)].tolist()
        lost = [row for row in kept if not now[row]]
        return (
            f"{proved}, {share_down(needed)} in '{self.not_worse_than}'; no longer verified are"
            f" rows {listed(lost)}"
        )


def _certified(runner: "Runner", eps: float) -> dict[int, bool]:
    """Whether each row of a run is proved at a radius."""
    import itertools

    from treeproof.results.curves import certified_rows
    from treeproof.results.run_file import table_of

    records, found = runner.records(), dict[int, bool]()
    while block := list(itertools.islice(records, _BLOCK)):
        table = table_of(runner.header, block)
        found |= zip(table.row.tolist(), certified_rows(table, eps).tolist(), strict=True)
    return found
