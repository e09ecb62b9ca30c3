"""`treeproof verify`: whether every row keeps its label within a radius."""

from typing import Any

import click

from treeproof.cli.gate import Gate, gate_options
from treeproof.cli.options import DISTANCE, Command, data_argument, model_argument
from treeproof.cli.question_options import QuestionOptions, run_options, shown_rows_options


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
@run_options()
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

    gate = Gate(fail_under, not_worse_than)
    options = QuestionOptions.parse(given)
    if eps is None and not options.threat.has_radius:
        raise click.MissingParameter(param_hint="'--eps'", param_type="option")
    with run_question(model_path, data_path, options, "verify", eps=eps, gate=gate) as (
        run,
        runner,
    ):
        tally, at = run.tally, run.header["question"]["perturbation"]["eps"]
        counts = {name: tally.verdicts[name] for name in ("verified", "falsified", "unknown")}
        share = tally.share(counts["verified"])
        lines = [*tally.lines(), f"verified at radius {at:g}: {share_down(share)} {tally.who()}"]
        rows = {"rows": tally.n_rows, "attacked": tally.n_attacked}
        summary = rows | counts | {"at": at, "share_verified": share}
        conclude(run, runner, options, summary, lines, gate=gate, verified=(share, at))
