"""`treeproof verify`: whether every row keeps its label within a radius."""

from typing import Any

import click

from treeproof.cli.asking import (
    Asking,
    FiniteNumber,
    data_argument,
    fail_under_option,
    run_options,
)
from treeproof.cli.options import model_argument


@click.command(short_help="Decide for every row whether the answer holds within a radius.")
@model_argument
@data_argument
@click.option(
    "--eps",
    type=FiniteNumber(min=0.0),
    metavar="EPS",
    help="How far every feature may move, both ways; needed unless --threat says it.",
)
@fail_under_option
@run_options
def command(
    model_path: str, data_path: str, eps: float | None, fail_under: float | None, **options: Any
) -> None:
    """Decide for every row of DATA whether the model MODEL keeps its label within a radius.

    A row is verified (no change within the radius breaks it), falsified (a changed row was found,
    and tried on the model) or unknown. With --label the labels are those of the data, otherwise
    the model's own.
    """
    from treeproof.cli.run_output import print_answers
    from treeproof.cli.running import answered

    asking, loading = Asking.split(options)
    if eps is None and asking.threat.eps is None:
        raise click.MissingParameter(param_hint="'--eps'", param_type="option")
    with answered(model_path, data_path, asking, loading, eps=eps, asks_radius=False) as found:
        tally, at = found.run.tally, found.ball.eps
        counts = {name: tally.verdicts[name] for name in ("verified", "falsified", "unknown")}
        share = counts["verified"] / tally.n_rows
        lines = tally.lines()
        lines.append(f"verified at radius {at:g}: {share:.6g} of the rows")
        summary = {"rows": tally.n_rows} | counts | {"at": at, "share_verified": share}
        print_answers(found, summary, lines, asking)
        found.end(asking, fail_under=fail_under, share=share)
