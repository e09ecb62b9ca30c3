"""`treeproof attack`: near changes of every row that break its label."""

from typing import TYPE_CHECKING, Any, Literal

import click

from treeproof.cli.options import DISTANCE, Command, data_argument, model_argument
from treeproof.cli.question_options import QuestionOptions, run_options, shown_rows_options

if TYPE_CHECKING:
    from treeproof.results.summary import RunSummary

ATTACKS = ("attack", "hard_label")


@click.command(cls=Command, example="treeproof attack model.json rows.csv --label target")
@model_argument
@data_argument
@click.option(
    "--eps",
    type=DISTANCE,
    metavar="EPS",
    help="Look for any change within this radius, instead of the nearest one.",
)
@run_options(ATTACKS[0], "Attack: attack or hard_label.")
@shown_rows_options
def command(model_path: str, data_path: str, eps: float | None, **given: Any) -> None:
    """Look for a near change of every row of DATA that breaks its label for the model MODEL.

    What is found was tried on the model: `upper` is its distance, and the minimal perturbation is
    at most that. A row without a find is not proved; ask `radius` or `verify` for proofs. The
    engine `attack` sees the trees, `hard_label` only asks for labels.
    """
    from treeproof.cli.execute import run_question
    from treeproof.cli.run_output import conclude

    options = QuestionOptions.parse(given)
    if options.engine not in ATTACKS:
        raise click.UsageError(f"--engine of attack must be one of {', '.join(ATTACKS)}.")
    if options.evidence:
        raise click.UsageError("--evidence is about proofs, and an attack gives none.")
    has_radius = eps is not None or options.threat.has_radius
    kind: Literal["verify", "radius"] = "verify" if has_radius else "radius"
    with run_question(model_path, data_path, options, kind, eps=eps) as (run, runner):
        summary = _summary(run.tally)
        broken = summary["broken"]
        lines = [
            f"{run.tally.rows_in_words()}: changes found for {summary['found']},"
            + (" wrong ones among them," if broken is None else f" already broken {broken},")
            + f" none found {summary['none_found']}"
        ]
        if summary["mean_upper"] is not None:
            lines.append(f"mean distance of what was found: {summary['mean_upper']:.6g}")
        conclude(run, runner, options, summary, lines)


def _summary(tally: "RunSummary") -> dict[str, Any]:
    n_found, broken, mean = tally.verdicts["falsified"], None, None
    if tally.asks_radius:
        # Rows that are already broken have a distance of 0 and are no find.
        broken = n_found
        n_found = tally.upper.count - broken
        mean = tally.upper.total / n_found if n_found else None
    return {
        "rows": tally.n_rows,
        "attacked": tally.n_attacked,
        "found": n_found,
        "broken": broken,
        "none_found": tally.n_attacked - n_found - (broken or 0),
        "mean_upper": mean,
    }
