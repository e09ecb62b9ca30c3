"""`treeproof radius`: the minimal perturbation of every row."""

from typing import Any

import click

from treeproof.cli.gate import Gate, gate_options
from treeproof.cli.options import DISTANCE, Command, data_argument, model_argument
from treeproof.cli.question_options import (
    FORMATS,
    SUMMARIES,
    QuestionOptions,
    run_options,
    shown_rows_options,
)


@click.command(
    cls=Command, example="treeproof radius model.json rows.csv --label target --out run.jsonl"
)
@model_argument
@data_argument
@click.option(
    "--at",
    type=DISTANCE,
    metavar="EPS",
    help="Also say which share of the rows is verified at this radius.",
)
@gate_options
@run_options(formats=(*FORMATS, *SUMMARIES))
@shown_rows_options
def command(
    model_path: str,
    data_path: str,
    at: float | None,
    fail_under: float | None,
    not_worse_than: str | None,
    **given: Any,
) -> None:
    """Find the minimal perturbation of every row of DATA for the model MODEL.

    A row keeps its label wherever every feature moves by less than `lower`; at `upper`, or just
    beyond it, a changed row breaks it. With --label the labels are those of the data, otherwise
    the model's own.
    """
    from treeproof.cli.execute import run_question
    from treeproof.cli.run_output import conclude
    from treeproof.query.description import plain
    from treeproof.results.numbers import share_down

    gate = Gate(fail_under, not_worse_than, at)
    if gate.is_given and at is None:
        name = "--fail-under" if fail_under is not None else "--not-worse-than"
        raise click.UsageError(f"{name} needs a radius: give it with --at.")
    options = QuestionOptions.parse(given)
    radii = () if at is None else (at,)
    with run_question(model_path, data_path, options, "radius", radii=radii, gate=gate) as (
        run,
        runner,
    ):
        tally = run.tally
        share = None if at is None else tally.share_proved(at)
        lines = tally.lines()
        if share is not None:
            lines.append(f"verified at radius {at:g}: {share_down(share)} {tally.who()}")
        summary = {
            "rows": tally.n_rows,
            "attacked": tally.n_attacked,
            "exact": tally.n_exact,
            "broken": tally.verdicts["falsified"],
            "undecided": tally.verdicts["unknown"],
            "mean_lower": plain(tally.lower.mean),
            "median_lower": plain(tally.lower.median),
            "at": at,
            "share_verified": share,
        }
        verified = None if at is None or share is None else (share, at)
        conclude(run, runner, options, summary, lines, gate=gate, verified=verified)
