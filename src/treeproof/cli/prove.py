"""`treeproof prove`: properties that hold for every input of a domain, or do not."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, print_note, printable
from treeproof.cli.options import (
    ABOVE_ZERO,
    FILE,
    POSITIVE,
    Command,
    load_model,
    load_options,
    model_argument,
    section,
)
from treeproof.cli.run_output import EXIT_GATE_FAILED, EXIT_UNDECIDED, check_out

if TYPE_CHECKING:
    from treeproof.results.properties import PropertyResult

_limits = section("Limits")
_output = section("Output")


@click.command(cls=Command, example="treeproof prove model.json --property fair.toml")
@model_argument
@click.option(
    "--property",
    "property_path",
    metavar="FILE",
    type=FILE,
    required=True,
    help="A TOML file with a domain and properties.",
)
@_limits(
    "--time-limit",
    "time_limit_s",
    type=ABOVE_ZERO,
    default=60.0,
    metavar="SECONDS",
    help="For each question that a property consists of.",
)
@_limits(
    "--memory-limit",
    "memory_limit_mb",
    type=ABOVE_ZERO,
    default=4096.0,
    metavar="MB",
    help="For open boxes of the search.",
)
@_limits("--jobs", type=POSITIVE, default=1, help="Number of threads, over rows.")
@_output(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How answers are printed.",
)
@_output(
    "--out", metavar="FILE", type=FILE, help="Save the answers, as JSON, for treeproof report."
)
@_output("--evidence", is_flag=True, help="Prove every answer once more, for treeproof check.")
@_output("--strict", is_flag=True, help="End with exit status 3 when a property stays unknown.")
@load_options
def command(
    model_path: str,
    property_path: str,
    time_limit_s: float,
    memory_limit_mb: float,
    jobs: int,
    output_format: str,
    out: str | None,
    evidence: bool,
    strict: bool,
    **loading: Any,
) -> None:
    """Decide for every property of FILE whether MODEL has it everywhere in the file's domain.

    A property is verified (proved for every input), falsified (two inputs were found that break it,
    and tried on the model) or unknown. Exit status 1 when one is falsified: a gate.
    """
    import treeproof
    from treeproof.query.property_files import load_properties
    from treeproof.results.property_file import save_property_results

    if evidence and out is None:
        raise click.UsageError("--evidence must come with --out, since it is kept in that file.")
    asked = load_properties(property_path)
    if out is not None:
        check_out(out, "The file")
    model = load_model(model_path, **loading)
    domain = asked.box(model.feature_names, model.n_features)
    results: list[tuple[str, PropertyResult]] = []
    for number, (name, claim) in enumerate(asked.claims):
        if sys.stderr.isatty():
            print_note(f"{name} ({number + 1} of {len(asked.claims)})")
        result = treeproof.prove(
            model,
            claim,
            domain,
            missing=asked.missing,
            time_limit_s=time_limit_s,
            memory_limit_mb=memory_limit_mb,
            n_jobs=jobs,
            evidence=evidence,
        )
        results.append((name, result))
        if output_format == "text":
            click.echo(printable(f"{name}: {_told(result)}"))
    if out is not None:
        save_property_results(out, model, domain, results)
    counts = _counts(results)
    if output_format == "json":
        records = [{"name": name} | result.record() for name, result in results]
        print_json({"summary": counts, "properties": json.loads(json.dumps(records, default=str))})
    else:
        click.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts["falsified"]:
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    if strict and counts["unknown"]:
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def _told(result: "PropertyResult") -> str:
    """The summary without the claim, which the name of the property stands for."""
    first, *others = result.summary().splitlines()
    return "\n".join([first.rpartition("): ")[2], *others])


def _counts(results: "list[tuple[str, PropertyResult]]") -> dict[str, int]:
    verdicts = [str(result.verdict) for _, result in results]
    return {verdict: verdicts.count(verdict) for verdict in ("verified", "falsified", "unknown")}
