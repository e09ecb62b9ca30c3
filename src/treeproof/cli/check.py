"""`treeproof check`: whether the evidence of a run proves its answers."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treeproof.cli.console import print_json, print_note
from treeproof.cli.options import (
    FILE,
    Command,
    by_name_option,
    label_option,
    libsvm_options,
    load_model_of_run,
    load_options,
)
from treeproof.cli.run_output import EXIT_REJECTED
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from treeproof.checker import RowCheck
    from treeproof.checker.property_files import PropertyCheck
    from treeproof.model.ensemble import Ensemble

SHOWN = 20
LONGEST = 40
UNCHECKED = "dates, times, reasons, who answered, and the model's library, files and notes"
UNCHECKED_OF_REASONS = (
    "other sets than the one of each row, changes, bounds of sizes, which of these are all or the"
    " widest, "
)
WORDS = ("accepted", "rejected", "unproved", "claims nothing")


@click.command(cls=Command, example="treeproof check run.jsonl --model model.json")
@click.argument("run_path", metavar="RUN", type=FILE)
@click.option(
    "--model",
    "model_path",
    metavar="MODEL",
    type=FILE,
    help="The model file. [default: the one that the run names]",
)
@click.option(
    "--other",
    "other_path",
    metavar="MODEL",
    type=FILE,
    help="The second model file, for answers of 'treeproof diff'.",
)
@click.option(
    "--data",
    "data_path",
    metavar="DATA",
    type=FILE,
    help="Also compare the rows of the run with this data file.",
)
@label_option
@libsvm_options
@by_name_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
@load_options
def command(
    run_path: str,
    model_path: str | None,
    other_path: str | None,
    data_path: str | None,
    label: str | None,
    first_index: Any,
    absent: Any,
    by_name: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Check that the evidence in the run file RUN, or of 'reasons', 'prove' or 'diff', proves it.

    A bundle of 'treeproof bundle' has its model in it, and needs nothing else.

    The checker shares no code with the engines, computes in exact integers, and replays witnesses
    itself. Exit status: 0 when every answer is proved, 3 when evidence is rejected or missing, or
    the run is not complete.
    """
    from treeproof.runs.bundles import MODEL, RUN, is_bundle, opened_bundle

    reading = {"label": label, "first_index": first_index, "absent": absent, "by_name": by_name}
    if not is_bundle(run_path):
        paths = (model_path, other_path)
        _check(run_path, paths, data_path, reading, as_json, options)
        return
    with opened_bundle(run_path) as (folder, manifest):
        _say_bundle(run_path, manifest, as_json)
        paths = (model_path or str(folder / MODEL), other_path)
        run = str(folder / RUN)
        _check(run, paths, data_path, reading, as_json, options)


def _say_bundle(path: str, manifest: dict[str, Any], as_json: bool) -> None:
    """By what a bundle is known, and what the deployed files must be that it is about."""
    import hashlib

    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    said = [f"bundle {digest}"]
    for what, key in (("model", "deployed_file"), ("data", "file")):
        known = manifest.get(what) or {}
        if isinstance(known, dict) and known.get("sha256"):
            said.append(f"as the bundle says, {what} file {known.get(key)} {known['sha256']}")
    for line in said:
        if as_json:  # standard output is one JSON object
            print_note(line)
        else:
            click.echo(printable(line))


def _check(
    run_path: str,
    paths: tuple[str | None, str | None],
    data_path: str | None,
    reading: dict[str, Any],
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Check a file of answers with its model, and end with the exit status that it deserves."""
    from treeproof.checker import check_reasons, check_run
    from treeproof.checker.reasons import reasons_header
    from treeproof.checker.runs import read_header
    from treeproof.results.property_file import is_property_file

    if is_property_file(run_path):
        _check_properties(run_path, paths, data_path, reading, as_json, options)
        return
    model_path, other_path = paths
    _refuse_other(other_path)
    header = reasons_header(run_path) or read_header(run_path)
    chosen = model_path or _named_model(header, run_path)
    ensemble, loading = load_model_of_run(header, chosen, **options)
    question = header["question"]
    is_run = question["kind"] != "reasons"
    data = _NOTHING
    if data_path is not None:
        data = _data(ensemble, header, data_path, _reading(header, reading))
    counts: Counter[str] = Counter()
    failures = []
    checks = check_run(run_path, ensemble, *data) if is_run else check_reasons(run_path, ensemble)
    for check in checks:
        counts[check.status] += 1
        if check.status in ("rejected", "unproved"):
            failures.append(check)
    compared = {"rows": data.rows is not None, "labels": data.labels is not None}
    unchecked = f"{'' if is_run else UNCHECKED_OF_REASONS}{UNCHECKED}"
    if as_json:
        found = [{"row": f.row, "status": f.status, "reason": f.reason} for f in failures]
        print_json(
            {"question": question, "data": header.get("data"), "model": ensemble.fingerprint}
            | {"loading": loading, "compared": compared, "not_checked": unchecked}
            | {word: counts[word] for word in WORDS}
            | {"failures": found}
        )
    else:
        _print_model(ensemble.fingerprint, loading)
        for name, value in question.items():
            click.echo(printable(f"{name} {_shown(value)}"))
        click.echo(f"as the file says, and nobody checked: {unchecked}")
        click.echo(printable(_compared_words(header, **compared)))
        click.echo(", ".join(f"{counts[word]} {word}" for word in WORDS))
        _print_failures(failures)
    if failures:
        raise click.exceptions.Exit(EXIT_REJECTED)


def _print_model(fingerprint: str, loading: dict[str, Any]) -> None:
    click.echo(printable(f"model {fingerprint}"))
    if loading:
        click.echo(printable(f"loaded with {_shown(loading)}"))


def _print_failures(failures: "list[RowCheck]") -> None:
    for failure in failures[:SHOWN]:
        where = f"row {failure.row}: " if failure.row >= 0 else ""
        click.echo(printable(f"{where}{failure.status}: {failure.reason}"))
    if len(failures) > SHOWN:
        click.echo(f"… {len(failures) - SHOWN} more (--json shows them)")


def _refuse_other(other_path: str | None) -> None:
    if other_path is not None:
        raise InvalidInput("--other is for files of 'treeproof diff --evidence --out'.")


def _check_properties(
    path: str,
    model_paths: tuple[str | None, str | None],
    data_path: str | None,
    reading: dict[str, Any],
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Check the answers of `treeproof prove` and `treeproof diff`."""
    from treeproof.checker.property_files import check_answers
    from treeproof.data.sources import FileSource, Rows
    from treeproof.results.property_file import load_property_records

    records = load_property_records(path)
    model_path, other_path = model_paths
    if other_path is not None and "other" not in records:
        raise InvalidInput(f"The second model of '{path}' must be left out. It has none.")
    no_self_test = options.pop("no_self_test")
    header = {"model": _stated_model(records, "model", path)}
    chosen = model_path or _named_model(header, path)
    ensemble, loading = load_model_of_run(header, chosen, no_self_test=no_self_test, **options)
    other = None
    if "other" in records:
        header = {"model": _stated_model(records, "other", path)}
        chosen = other_path or _named_model(header, path, "--other")
        other, _ = load_model_of_run(header, chosen, no_self_test=no_self_test)
    rows = None
    if data_path is not None:
        if not any(isinstance(a, dict) and a.get("values") for a in records["properties"] or ()):
            raise InvalidInput("--data is for answers about rows. These are about a whole domain.")
        rows = Rows.join(list(FileSource(ensemble, data_path, **reading).parts())).values
    checks = check_answers(ensemble, records, other, rows)
    counts = Counter(check.status for check in checks)
    if as_json:
        print_json(
            {"model": ensemble.fingerprint, "loading": loading, "domain": records.get("domain")}
            | {"compared": {"rows": rows is not None}}
            | {word: counts[word] for word in WORDS}
            | {"answers": [_record(check) for check in checks]}
        )
    else:
        _print_model(ensemble.fingerprint, loading)
        if other is not None:
            click.echo(printable(f"other model {other.fingerprint}"))
        click.echo(printable(f"domain {_shown(records.get('domain'))}"))
        for number, check in enumerate(checks, 1):
            click.echo(printable(f"{number}. {_told(check)}"))
        click.echo("names are the file's own words, and nobody checks them")
        click.echo(", ".join(f"{counts[word]} {word}" for word in WORDS))
    if counts["rejected"] or counts["unproved"]:
        raise click.exceptions.Exit(EXIT_REJECTED)


def _told(check: "PropertyCheck") -> str:
    """What was claimed, by the checker's own reading, of which inputs, and what came out."""
    from treeproof.report.properties import bounds_in_words, claim_sentence

    why = f": {check.reason}" if check.reason else ""
    answer = check.answer
    if answer is None:
        return f"{check.status}{why}"
    try:
        claim = claim_sentence(answer.claim)
    except (LookupError, TypeError, ValueError):
        claim = _shown(answer.claim)  # nothing that anybody asks
    said = [f"{claim} {answer.verdict}"]
    found = {name: getattr(answer, name) for name in ("quantity", "lower", "upper", "exact")}
    bounds = bounds_in_words(found)
    said += [bounds] if bounds else []
    if answer.values is not None:
        said.append(f"around row {answer.row}, {_shown(answer.values)}")
    return f"{', '.join(said)}: {check.status}{why} (named {_shown(answer.name)})"


def _record(check: "PropertyCheck") -> dict[str, Any]:
    """A check as JSON holds it; the name is the file's own."""
    said = {"status": check.status, "reason": check.reason}
    if check.answer is None:
        return said
    shown = ("name", "claim", "verdict", "quantity", "lower", "upper", "exact", "row", "values")
    return {name: getattr(check.answer, name) for name in shown} | said


def _stated_model(records: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    words = records.get(key)
    if not isinstance(words, dict):
        raise InvalidInput(f"The file '{path}' must say under {key!r} which model it is about.")
    return words


def _shown(value: Any) -> str:
    """A part of the question as JSON; of long lists how long they are, and their ends."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list) and len(value) > LONGEST:
        ends = f"{_shown(value[0])}, …, {_shown(value[-1])}"
        return f"[{ends}] ({len(value)} in all, --json shows them)"
    return json.dumps(value, ensure_ascii=False)


def _compared_words(header: dict[str, Any], *, rows: bool, labels: bool) -> str:
    """Say what the rows and labels of the run were compared with, and which rows it is about."""
    data = header.get("data") or {}
    parts = [
        " ".join(f"{name} {part[name]}" for name in ("rows", "sample", "seed") if part.get(name))
        for part in map(dict, filter(None, data.get("merged") or [data]))
    ]
    chosen = f", of which the run asks about {', '.join(filter(None, parts))}" if any(parts) else ""
    words = f"rows compared with the data{chosen}" if rows else "rows as the run gives them"
    if header["question"].get("labels") != "given":
        return f"{words}; labels are the model's own"
    return f"{words}; labels {'compared with the data' if labels else 'as the run gives them'}"


def _named_model(header: dict[str, Any], run_path: str, option: str = "--model") -> str:
    """The model file that the run names, here or beside the run; an option names another."""
    source = str(header["model"].get("source") or "")
    for path in (Path(source), Path(run_path).parent / source):
        if path.is_file():
            return str(path)
    named = f"'{source}', which the run names, is no file here" if source else "no name of it"
    raise InvalidInput(f"The model of the run must be given with {option}. Got none, and {named}.")


def _reading(header: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """How the data file is read: as options say, otherwise as the run did."""
    from treeproof.results.threat import own_limit

    read = dict(given)
    context, data = click.get_current_context(), header.get("data") or {}
    read["id"] = data.get("id")
    read["eps"] = data.get("eps") if own_limit(header) else None
    for name, value in data.items():
        default = click.core.ParameterSource.DEFAULT
        if name in read and value is not None and context.get_parameter_source(name) is default:
            read[name] = value
    return read


class _Data(NamedTuple):
    """What the checker compares the rows of a run with, as far as there is such."""

    rows: "NDArray[np.float64] | None" = None
    labels: list[Any] | None = None
    eps: "NDArray[np.float64] | None" = None
    ids: list[Any] | None = None


_NOTHING = _Data()


def _data(
    ensemble: "Ensemble", header: dict[str, Any], path: str, reading: dict[str, Any]
) -> _Data:
    """Rows of a data file as the model rounds them; labels, eps and identifiers in its columns."""
    import numpy as np

    from treeproof.data.sources import FileSource, Rows
    from treeproof.model.evaluate import cast_rows
    from treeproof.model.inspection import plain_value
    from treeproof.query.description import plain
    from treeproof.results.threat import own_limit

    question = header["question"]
    if question["kind"] == "reasons":
        raise InvalidInput("--data is for runs: a file of reasons holds its own rows.")
    rows = Rows.join(list(FileSource(ensemble, path, **reading).parts()))
    if own_limit(header) and rows.eps is None:
        raise InvalidInput(
            "The header of the run must name the column of the data that holds the radii of its"
            " rows, so that these can be compared. Got none; leave out --data to take the radii"
            " as the run gives them."
        )
    # Codes of categories are rounded in every arithmetic, since they never move.
    rounded = question.get("arithmetic") != "float64"
    is_rounded = ensemble.is_categorical | rounded
    values = np.where(is_rounded, cast_rows(ensemble, rows.values), rows.values)
    labels = None if rows.labels is None else [plain_value(label) for label in rows.labels]
    # Where the header names no column of them, no row may have one.
    ids = [None] * len(rows) if rows.ids is None else [plain(plain_value(i)) for i in rows.ids]
    return _Data(values, labels, rows.eps, ids)
