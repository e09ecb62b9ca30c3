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
            any_limit = dict.fromkeys({"eps", "budget"} & question["perturbation"].keys())
            question["perturbation"] = question["perturbation"] | any_limit
        for name in ("perturbation", *_SAME):
            if here.get(name) != there.get(name):
                raise InvalidInput(
                    f"The run '{self.not_worse_than}' must be about the same changes and claim. Its"
                    f" {name} is {str(there.get(name))[:120]}, here it is"
                    f" {str(here.get(name))[:120]}."
                )

    def failure(self, runner: "Runner", share: float, eps: float | None) -> str | None:
        """Why it fails with a share of rows that is verified at a radius; None if it passes.

        The radius is that of all rows, or None where each has its own.
        """
        import numpy as np

        from treeproof.results.curves import attacked_rows, certified_rows
        from treeproof.results.numbers import share_down

        proved = f"{share_down(share)} {runner.tally.who()} are verified"
        if self.fail_under is not None and share < self.fail_under:
            return f"{proved}, below {100.0 * self.fail_under:.6g} %"
        if self.not_worse_than is None:
            return None
        before = self._baseline
        now = _certified(runner, eps)
        if set(before.row.tolist()) != set(now):
            raise InvalidInput(
                f"The run '{self.not_worse_than}' must be about the same rows. It has"
                f" {len(before)}, this one {len(now)}."
            )
        limits = np.array([now[row][1] for row in before.row.tolist()])
        kept = certified_rows(before, limits)
        needed = int(kept.sum()) / max(int(attacked_rows(before).sum()), 1)
        if share >= needed:
            return None
        lost = [row for row in before.row[kept].tolist() if not now[row][0]]
        return (
            f"{proved}, {share_down(needed)} in '{self.not_worse_than}'; no longer verified are"
            f" rows {listed(lost)}"
        )


def _certified(runner: "Runner", eps: float | None) -> dict[int, tuple[bool, float]]:
    """Whether each row of a run is proved at a radius, that of all or its own, and at which."""
    import itertools

    import numpy as np

    from treeproof.results.curves import certified_rows
    from treeproof.results.run_file import table_of

    records, found = runner.records(), dict[int, tuple[bool, float]]()
    while block := list(itertools.islice(records, _BLOCK)):
        table = table_of(runner.header, block)
        limits = np.full(len(table), eps) if table.eps is None else table.eps
        proved = certified_rows(table, limits).tolist()
        found |= zip(table.row.tolist(), zip(proved, limits.tolist(), strict=True), strict=True)
    return found
