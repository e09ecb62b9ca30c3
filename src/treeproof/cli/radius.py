"""`treeproof radius`: the minimal perturbation of every row."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.asking import (
    Asking,
    FiniteNumber,
    data_argument,
    fail_under_option,
    run_options,
)
from treeproof.cli.options import model_argument

if TYPE_CHECKING:
    from treeproof.results.summary import RunSummary


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
@run_options
def command(
    model_path: str, data_path: str, at: float | None, fail_under: float | None, **options: Any
) -> None:
    """Find the minimal perturbation of every row of DATA for the model MODEL.

    A row keeps its label wherever every feature moves by less than `lower`; at `upper`, or just
    beyond it, a changed row breaks it. With --label the labels are those of the data, otherwise
    the model's own.
    """
    from treeproof.cli.run_output import print_answers
    from treeproof.cli.running import answered

    if fail_under is not None and at is None:
        raise click.UsageError("--fail-under needs a radius: give it with --at.")
    asking, loading = Asking.split(options)
    radii = () if at is None else (at,)
    with answered(model_path, data_path, asking, loading, asks_radius=True, radii=radii) as found:
        tally = found.run.tally
        share = None if at is None else tally.share_proved(at)
        lines = tally.lines()
        if share is not None:
            lines.append(f"verified at radius {at:g}: {share:.6g} of the rows")
        summary = _summary(tally) | {"at": at, "share_verified": share}
        print_answers(found, summary, lines, asking)
        found.end(asking, fail_under=fail_under, share=share)


def _summary(tally: "RunSummary") -> dict[str, Any]:
    from treeproof.query.description import plain

    return {
        "rows": tally.n_rows,
        "exact": tally.n_exact,
        "broken": tally.verdicts["falsified"],
        "undecided": tally.verdicts["unknown"],
        "mean_lower": plain(tally.lower.mean),
        "median_lower": plain(tally.lower.median),
    }
