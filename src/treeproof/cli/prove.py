"""`treeproof prove`: properties that hold for every input of a domain, or do not."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, print_note
from treeproof.cli.options import (
    FILE,
    Command,
    domain_options,
    id_option,
    label_option,
    libsvm_options,
    load_model,
    load_options,
    model_argument,
    rows_option,
    section,
)
from treeproof.cli.run_output import check_domain_out, count_verdicts, finish_claims
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from treeproof.query.property_files import PropertyFile
    from treeproof.results.properties import PropertyResult


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
@section("Rows")(
    "--data",
    "data_path",
    metavar="DATA",
    type=FILE,
    help="Count the decisions about these rows, beside every Fair, by the protected features.",
)
@label_option
@id_option
@rows_option
@libsvm_options
@domain_options("For each question that a property consists of.")
@load_options
def command(
    model_path: str,
    property_path: str,
    data_path: str | None,
    label: str | None,
    id: str | None,
    rows: str | None,
    first_index: Any,
    absent: Any,
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

    check_domain_out(out, evidence)
    asked = load_properties(property_path)
    model = load_model(model_path, **loading)
    domain = asked.box(model.feature_names, model.n_features)
    given = {"label": label, "id": id, "rows": rows, "first_index": first_index, "absent": absent}
    data = None if data_path is None else _counted_rows(model, asked, data_path, given)
    results: list[tuple[str, PropertyResult]] = []
    for number, (name, claim) in enumerate(asked.claims):
        if sys.stderr.isatty():
            print_note(f"{name} ({number + 1} of {len(asked.claims)})")
        result = treeproof.prove(
            model,
            claim,
            domain,
            data=data if isinstance(claim, treeproof.Fair) else None,
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
        save_property_results(out, model, results)
    counts = count_verdicts(result for _, result in results)
    if output_format == "json":
        records = [{"name": name} | result.record() for name, result in results]
        print_json({"summary": counts, "properties": json.loads(json.dumps(records, default=str))})
    else:
        click.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    finish_claims(counts, strict)


def _counted_rows(
    model: Any, asked: "PropertyFile", data_path: str, given: dict[str, Any]
) -> "NDArray[np.float64]":
    """Rows whose decisions are counted beside claims of fairness."""
    from treeproof.data.sources import FileSource, Rows
    from treeproof.query.properties import Fair

    if not any(isinstance(claim, Fair) for _, claim in asked.claims):
        raise InvalidInput(
            "--data is for properties of kind Fair. Got none in the file of --property."
            " Leave it out, or say there which features are protected."
        )
    return Rows.join(list(FileSource(model.ensemble, data_path, **given).parts())).values


def _told(result: "PropertyResult") -> str:
    """The summary without the claim, which the name of the property stands for."""
    first, *others = result.summary().splitlines()
    return "\n".join([first.rpartition("): ")[2], *others])
