"""`treeproof attack`: near changes of every row that break its label."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.asking import Asking, FiniteNumber, data_argument, run_options
from treeproof.cli.options import model_argument

if TYPE_CHECKING:
    from treeproof.cli.running import Answered

ATTACKS = ("attack", "hard_label")


@click.command(short_help="Look for near changes of every row that break its label.")
@model_argument
@data_argument
@click.option(
    "--eps",
    type=FiniteNumber(min=0.0),
    metavar="EPS",
    help="Look for any change within this radius, instead of the nearest one.",
)
@run_options
def command(model_path: str, data_path: str, eps: float | None, **options: Any) -> None:
    """Look for a near change of every row of DATA that breaks its label for the model MODEL.

    What is found was tried on the model: `upper` is its distance, and the minimal perturbation is
    at most that. A row without a find is not proved; ask `radius` or `verify` for proofs. The
    engine `attack` sees the trees, `hard_label` only asks for labels.
    """
    from treeproof.cli.run_output import print_answers
    from treeproof.cli.running import answered

    asking, loading = Asking.split(options)
    if asking.engine not in ATTACKS:
        raise click.UsageError(f"--engine of attack must be one of {', '.join(ATTACKS)}.")
    if asking.evidence:
        raise click.UsageError("--evidence is about proofs, and an attack gives none.")
    asks_radius = eps is None and asking.threat.eps is None
    with answered(
        model_path, data_path, asking, loading, eps=eps, asks_radius=asks_radius
    ) as found:
        summary = _summary(found)
        broken = summary["broken"]
        lines = [
            f"{summary['rows']} rows: changes found for {summary['found']},"
            + (" wrong ones among them," if broken is None else f" broken as they stand {broken},")
            + f" none found {summary['none_found']}"
        ]
        if summary["mean_upper"] is not None:
            lines.append(f"mean distance of what was found: {summary['mean_upper']:.6g}")
        print_answers(found, summary, lines, asking)
        found.end(asking)


def _summary(found: "Answered") -> dict[str, Any]:
    tally = found.run.tally
    n_rows, broken = tally.n_rows, tally.verdicts["falsified"]
    if not tally.asks_radius:
        return {
            "rows": n_rows,
            "found": broken,
            "broken": None,
            "none_found": n_rows - broken,
            "mean_upper": None,
        }
    # Rows that are broken as they stand have a distance of 0 and are no find.
    n_found = tally.upper.count - broken
    return {
        "rows": n_rows,
        "found": n_found,
        "broken": broken,
        "none_found": n_rows - n_found - broken,
        "mean_upper": tally.upper.total / n_found if n_found else None,
    }


for _parameter in command.params:
    if isinstance(_parameter, click.Option) and _parameter.name == "engine":
        _parameter.default = ATTACKS[0]
        _parameter.help = "Who attacks: attack or hard_label."
