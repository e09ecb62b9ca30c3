"""`treeproof check`: whether the evidence of a run proves its answers."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, printable
from treeproof.cli.options import libsvm_options, libsvm_reading, load_options
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.model.ensemble import Ensemble

EXIT_REJECTED = 3
SHOWN = 20
LONGEST = 1000


@click.command(short_help="Check the evidence of a run without trusting the engine.")
@click.argument("run_path", metavar="RUN", type=click.Path())
@click.option(
    "--model",
    "model_path",
    metavar="MODEL",
    type=click.Path(),
    help="The model file. [default: the one that the run names]",
)
@click.option(
    "--data",
    "data_path",
    metavar="DATA",
    type=click.Path(),
    help="Also compare the rows of the run with this data file.",
)
@click.option("--label", metavar="COLUMN", help="Column of DATA with the labels of the rows.")
@libsvm_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
@load_options
def command(
    run_path: str,
    model_path: str | None,
    data_path: str | None,
    label: str | None,
    first_column: str,
    absent: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Check that the evidence in the run file RUN proves its answers.

    The checker shares no code with the engines, computes in exact integers, and replays witnesses
    itself. Exit status: 0 when every answer is proved, 3 when evidence is rejected or missing, or
    the run is not complete.
    """
    from treeproof.checker import check_run
    from treeproof.spec.arithmetic import arithmetic_of

    ensemble, question = _model(run_path, model_path, options)
    rows = None
    if data_path is not None:
        rounded = arithmetic_of(question) != "float64"
        rows = _rows(
            ensemble, data_path, rounded, label=label, first_column=first_column, absent=absent
        )
    counts: Counter[str] = Counter()
    failures = []
    for check in check_run(run_path, ensemble, rows):
        counts[check.status] += 1
        if check.status in ("rejected", "unproved"):
            failures.append(check)
    words = ("accepted", "rejected", "unproved", "claims nothing")
    if as_json:
        found = [{"row": f.row, "status": f.status, "reason": f.reason} for f in failures]
        print_json(
            {"question": question, "model": ensemble.fingerprint}
            | {word: counts[word] for word in words}
            | {"failures": found}
        )
    else:
        click.echo(printable(f"model {ensemble.fingerprint}"))
        words_asked = json.dumps(question, ensure_ascii=False)
        cut = "" if len(words_asked) <= LONGEST else "… (--json shows all)"
        click.echo(printable(f"question {words_asked[:LONGEST]}{cut}"))
        click.echo(", ".join(f"{counts[word]} {word}" for word in words))
        for failure in failures[:SHOWN]:
            where = f"row {failure.row}: " if failure.row >= 0 else ""
            click.echo(printable(f"{where}{failure.status}: {failure.reason}"))
        if len(failures) > SHOWN:
            click.echo(f"… {len(failures) - SHOWN} more (--json shows them)")
    if failures:
        raise click.exceptions.Exit(EXIT_REJECTED)


def _model(
    run_path: str, model_path: str | None, options: dict[str, Any]
) -> tuple["Ensemble", dict[str, Any]]:
    """Load the model without anything compiled, by default the file that the run names.

    Returns the question of the run, too: what is proved is no more than what was asked.
    """
    from treeproof.model.loaders import load_ensemble
    from treeproof.model.loaders.base import LoadOptions

    try:
        with Path(run_path).open("rb") as file:
            line = file.readline()
        if line.startswith(b"PAR1"):
            raise InvalidInput(
                f"A run file must be JSON lines to be checked. Got Parquet in '{run_path}'."
                f" Turn it into JSON lines: treeproof merge {run_path} --out RUN.jsonl."
            )
        header = json.loads(line)
        source = str(header["model"]["source"])
        question = dict(header["question"])
    except OSError as error:
        raise InvalidInput(f"The run file '{run_path}' must be readable. Got: {error}.") from error
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(f"The run file '{run_path}' must start with a header record.") from error
    if model_path is None:
        if not Path(source).is_file():
            named = (
                f"'{source}', which the run names, is no file here" if source else "no name of it"
            )
            raise InvalidInput(
                f"The model of the run must be given with --model. Got none, and {named}."
            )
        model_path = source
    self_test = not options.pop("no_self_test")
    return load_ensemble(model_path, options=LoadOptions(**options), self_test=self_test), question


def _rows(
    ensemble: "Ensemble",
    data_path: str,
    rounded: bool,
    *,
    label: str | None,
    first_column: str,
    absent: str,
) -> dict[int, list[float]]:
    """Rows of a data file by number, as the checker compares them: as the model rounds them."""
    from treeproof.model.evaluate import cast_rows
    from treeproof.scale.readers import ReadOptions, open_data

    rows: dict[int, list[float]] = {}
    read = ReadOptions(
        label=label,
        n_features=ensemble.n_features,
        **libsvm_reading(first_column, absent),
    )
    for chunk in open_data(data_path, read).chunks():
        matrix = chunk.matrix(ensemble)
        for values in (cast_rows(ensemble, matrix) if rounded else matrix).tolist():
            rows[len(rows)] = values
    return rows
