"""`treeproof diff`: whether two models are the same for every input of a domain."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json
from treeproof.cli.options import (
    DISTANCE,
    FILE,
    Command,
    FiniteNumber,
    by_name_option,
    domain_options,
    libsvm_options,
    load_model,
    rows_option,
    section,
)
from treeproof.cli.run_output import (
    ROWS_SHOWN,
    check_domain_out,
    count_verdicts,
    finish_claims,
)
from treeproof.errors import printable

if TYPE_CHECKING:
    from treeproof.results.differences import DiffResult

_same = section("What counts as the same")
_where = section("Rows")


@click.command(cls=Command, example="treeproof diff model.txt model.onnx --domain domain.toml")
@click.argument("first_path", metavar="FIRST", type=FILE)
@click.argument("second_path", metavar="SECOND", type=FILE)
@_same(
    "--delta",
    type=DISTANCE,
    help="Scores that differ by no more are the same."
    " [default: 1e-4, or the rounding of both models' sums where that is more, up to 0.01]",
)
@_same("--labels", is_flag=True, help="Every row must get the same label, however near a tie.")
@_where(
    "--domain",
    "domain_path",
    metavar="FILE",
    type=FILE,
    help="A TOML file with a [domain], as of 'treeproof prove'. [default: every row]",
)
@_where(
    "--data",
    "data_path",
    metavar="DATA",
    type=FILE,
    help="Ask around the rows of this data file, within --eps.",
)
@_where("--eps", type=DISTANCE, help="How far every feature of a row may move.")
@rows_option
@libsvm_options
@by_name_option
@domain_options("For all questions together; around rows, for each row.")
@section("Limits")(
    "--gap",
    type=FiniteNumber(min=0.0, max=1.0, max_open=True),
    default=0.0,
    metavar="PART",
    help="Part of the largest difference by which it may be missed, such as 0.01.",
)
@click.option(
    "--no-self-test", is_flag=True, help="Do not compare the loaded models with their libraries."
)
def command(
    first_path: str,
    second_path: str,
    domain_path: str | None,
    data_path: str | None,
    eps: float | None,
    rows: str | None,
    first_index: Any,
    absent: Any,
    by_name: bool,
    no_self_test: bool,
    output_format: str,
    out: str | None,
    strict: bool,
    jobs: int,
    **options: Any,
) -> None:
    """Decide whether the models FIRST and SECOND are the same, or find where they differ most.

    Both must take the same columns and give the same classes; their libraries, numbers of trees and
    arithmetic may differ. The same is proved for every row of the domain; what differs is shown
    with a row, tried on both models. Exit status 1 when they are not the same: a gate. A model that
    needs options to be loaded can be converted first.
    """
    import treeproof
    from treeproof.query.property_files import load_domain
    from treeproof.results.property_file import save_differences

    check_domain_out(out, options["evidence"])
    if (data_path is None) != (eps is None):
        raise click.UsageError("--data and --eps must come together.")
    if data_path is not None and domain_path is not None:
        raise click.UsageError("--domain and --data must not come together.")
    asked = load_domain(domain_path)
    first, second = (load_model(path, no_self_test=no_self_test)
                     for path in (first_path, second_path))  # fmt: skip
    around, numbers = None, [-1]
    domain: Any = asked.box(first.feature_names, first.n_features)
    if data_path is not None:
        from treeproof.data.sources import FileSource, Rows

        source = FileSource(
            first.ensemble,
            data_path,
            rows=rows,
            first_index=first_index,
            absent=absent,
            by_name=by_name,
        )
        found = Rows.join(list(source.parts()))
        around, numbers = found.values, found.number.tolist()
        domain = treeproof.LInf(eps)
    options["labels"] = options["labels"] or None
    answers = treeproof.diff(
        first, second, domain, around, missing=asked.missing, n_jobs=jobs, **options
    )
    results: list[DiffResult] = [answers] if around is None else answers
    if out is not None:
        pairs = list(zip(numbers, results, strict=True))
        save_differences(out, (first, second), pairs)
    counts = count_verdicts(results)
    _print(results, numbers, counts, output_format)
    finish_claims(counts, strict)


def _print(
    results: "list[DiffResult]", numbers: list[int], counts: dict[str, int], output_format: str
) -> None:
    if output_format == "json":
        records = [
            result.record() | {"row": number}
            for number, result in zip(numbers, results, strict=True)
        ]
        print_json({"summary": counts, "answers": records})
        return
    for number, result in list(zip(numbers, results, strict=True))[:ROWS_SHOWN]:
        *lines, _ = result.summary().splitlines()
        where = f"row {number}: " if number >= 0 else ""
        click.echo(printable(where + "\n".join(lines)))
    if len(results) > ROWS_SHOWN:
        click.echo(f"… {len(results) - ROWS_SHOWN} more rows (--format json shows them)")
    click.echo(printable(f"trees: {results[0].trees.summary()}"))
    if len(results) > 1:
        click.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
