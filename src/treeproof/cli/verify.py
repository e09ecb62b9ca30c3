"""`treeproof verify`: whether every row keeps its label within a radius."""

from typing import Any

import click

from treeproof.cli.asking import (
    Asking,
    FiniteNumber,
    answer,
    data_argument,
    fail_under_option,
    finish,
    question_options,
)
from treeproof.cli.options import model_argument


@click.command(short_help="Decide for every row whether the answer holds within a radius.")
@model_argument
@data_argument
@click.option(
    "--eps",
    type=FiniteNumber(min=0.0),
    required=True,
    metavar="EPS",
    help="How far every feature may move, both ways.",
)
@fail_under_option
@question_options
def command(
    model_path: str, data_path: str, eps: float, fail_under: float | None, **options: Any
) -> None:
    """Decide for every row of DATA whether the model MODEL keeps its label within a radius.

    A row is verified (no change within the radius breaks it), falsified (a changed row was found,
    and tried on the model) or unknown. With --label the labels are those of the data, otherwise
    the model's own.
    """
    from treeproof.cli.run_output import print_answers

    answered = answer(model_path, data_path, options, eps=eps)
    results = answered.results
    counts = {
        name: int((results.verdict == name).sum()) for name in ("verified", "falsified", "unknown")
    }
    share = counts["verified"] / len(results)
    lines = results.summary().splitlines()
    lines.append(f"verified at radius {eps:g}: {share:.6g} of the rows")
    summary = {"rows": len(results)} | counts | {"at": eps, "share_verified": share}
    asking, _ = Asking.split(options)
    print_answers(answered, summary, lines, asking)
    finish(answered, strict=asking.strict, fail_under=fail_under, share=share)
