"""`treeproof radius`: the minimal perturbation of every row."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.asking import (
    Asking,
    FiniteNumber,
    answer,
    data_argument,
    fail_under_option,
    finish,
    n_proved,
    question_options,
)
from treeproof.cli.options import model_argument

if TYPE_CHECKING:
    from treeproof.results.results import Results


@click.command(short_help="Find how far every row may change before the answer does.")
@model_argument
@data_argument
@click.option(
    "--at",
    type=FiniteNumber(min=0.0),
    metavar="EPS",
    help="Also say which share of the rows is verified at this radius.",
)
@fail_under_option
@question_options
def command(
    model_path: str, data_path: str, at: float | None, fail_under: float | None, **options: Any
) -> None:
    """Find the minimal perturbation of every row of DATA for the model MODEL.

    A row keeps its label wherever every feature moves by less than `lower`; at `upper`, or just
    beyond it, a changed row breaks it. With --label the labels are those of the data, otherwise
    the model's own.
    """
    from treeproof.cli.run_output import print_answers

    if fail_under is not None and at is None:
        raise click.UsageError("--fail-under needs a radius: give it with --at.")
    answered = answer(model_path, data_path, options)
    results = answered.results
    share = None if at is None else n_proved(results, at) / len(results)
    lines = results.summary().splitlines()
    if share is not None:
        lines.append(f"verified at radius {at:g}: {share:.6g} of the rows")
    summary = _summary(results) | {"at": at, "share_verified": share}
    asking, _ = Asking.split(options)
    print_answers(answered, summary, lines, asking)
    finish(answered, strict=asking.strict, fail_under=fail_under, share=share)


def _summary(results: "Results") -> dict[str, Any]:
    import numpy as np

    from treeproof.results.run_file import plain

    return {
        "rows": len(results),
        "exact": int(results.exact.sum()),
        "broken": int((results.verdict == "falsified").sum()),
        "undecided": int((results.verdict == "unknown").sum()),
        "mean_lower": plain(np.mean(results.lower)),
        "median_lower": plain(np.median(results.lower)),
    }
