"""`treeproof verify`: whether every row keeps its label within a radius."""

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
    cls=Command,
    example="treeproof verify model.json rows.csv --label target --eps 0.1 --out run.jsonl",
)
@model_argument
@data_argument
@click.option(
    "--eps",
    type=DISTANCE,
    metavar="EPS",
    help="How far every feature may move, both ways; needed unless --threat says it.",
)
@gate_options
@run_options(formats=(*FORMATS, *SUMMARIES))
@shown_rows_options
def command(
    model_path: str,
    data_path: str,
    eps: float | None,
    fail_under: float | None,
    not_worse_than: str | None,
    **given: Any,
) -> None:
    """Decide for every row of DATA whether the model MODEL keeps its label within a radius.

    A row is verified (no change within the radius breaks it), falsified (a changed row was found,
    and tried on the model) or unknown. With --label the labels are those of the data, otherwise
    the model's own.
    """
    from treeproof.cli.execute import run_question
    from treeproof.cli.run_output import conclude
    from treeproof.results.numbers import share_down
    from treeproof.results.threat import limit_of, own_limit

    gate = Gate(fail_under, not_worse_than)
    options = QuestionOptions.parse(given)
    if eps is None and not options.threat.has_radius:
        raise click.MissingParameter(param_hint="'--eps'", param_type="option")
    with run_question(model_path, data_path, options, "verify", eps=eps, gate=gate) as (
        run,
        runner,
    ):
        tally, at = run.tally, limit_of(run.header)
        counts = {name: tally.verdicts[name] for name in ("verified", "falsified", "unknown")}
        share = tally.share(counts["verified"])
        measure = "cost" if "budget" in run.header["question"]["perturbation"] else "radius"
        own = f"each row within {own_limit(run.header)}"
        where = own if at is None else f"at {measure} {at:g}"
        lines = [*tally.lines(), f"verified {where}: {share_down(share)} {tally.who()}"]
        rows = {"rows": tally.n_rows, "attacked": tally.n_attacked}
        summary = rows | counts | {"at": at, "share_verified": share}
        conclude(run, runner, options, summary, lines, gate=gate, verified=(share, at))
