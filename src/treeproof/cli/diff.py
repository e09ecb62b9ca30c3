"""`treeproof diff`: whether two models are the same for every input of a domain."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, print_note, printable
from treeproof.cli.options import (
    ABOVE_ZERO,
    DISTANCE,
    FILE,
    POSITIVE,
    Command,
    FiniteNumber,
    libsvm_options,
    load_model,
    rows_option,
    section,
)
from treeproof.cli.run_output import EXIT_GATE_FAILED, EXIT_UNDECIDED, ROWS_SHOWN, check_out

if TYPE_CHECKING:
    from treeproof.results.differences import DiffResult

_same = section("What counts as the same")
_where = section("Rows")
_limits = section("Limits")
_output = section("Output")


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
@_limits(
    "--time-limit",
    "time_limit_s",
    type=ABOVE_ZERO,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="For all questions together; around rows, for each row.",
)
@_limits(
    "--memory-limit",
    "memory_limit_mb",
    type=ABOVE_ZERO,
    default=4096.0,
    metavar="MB",
    help="For open boxes of the search.",
)
@_limits(
    "--gap",
    type=FiniteNumber(min=0.0, max=1.0, max_open=True),
    default=0.0,
    metavar="PART",
    help="Part of the largest difference by which it may be missed, such as 0.01.",
)
@_limits("--jobs", type=POSITIVE, default=1, help="Number of threads, over rows.")
@_output(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How the answer is printed.",
)
@_output(
    "--out", metavar="FILE", type=FILE, help="Save the answers, as JSON, for treeproof report."
)
@_output("--evidence", is_flag=True, help="Prove the answer once more, for treeproof check.")
@_output("--strict", is_flag=True, help="End with exit status 3 when the answer stays unknown.")
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

    if options["evidence"] and out is None:
        raise click.UsageError("--evidence must come with --out, since it is kept in that file.")
    if (data_path is None) != (eps is None):
        raise click.UsageError("--data and --eps must come together.")
    if data_path is not None and domain_path is not None:
        raise click.UsageError("--domain and --data must not come together.")
    if out is not None:
        check_out(out, "The file")
    asked = load_domain(domain_path)
    first, second = (load_model(path, no_self_test=no_self_test)
                     for path in (first_path, second_path))  # fmt: skip
    around, numbers = None, [-1]
    domain: Any = asked.box(first.feature_names, first.n_features)
    if data_path is not None:
        from treeproof.data.sources import FileSource, Rows

        source = FileSource(
            first.ensemble, data_path, rows=rows, first_index=first_index, absent=absent
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
        save_differences(out, (first, second), domain, list(zip(numbers, results, strict=True)))
    _print(results, numbers, output_format)
    verdicts = [str(result.verdict) for result in results]
    if "falsified" in verdicts:
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    if strict and "unknown" in verdicts:
        print_note("Whether the models are the same is not known (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def _print(results: "list[DiffResult]", numbers: list[int], output_format: str) -> None:
    verdicts = [str(result.verdict) for result in results]
    counts = {word: verdicts.count(word) for word in ("verified", "falsified", "unknown")}
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
