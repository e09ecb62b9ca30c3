"""`treeproof bundle`: a run and all that it takes to check it, in one file for an auditor."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import (
    FILE,
    Command,
    load_model_of_run,
    load_options,
    partial_option,
    refuse_unfinished,
)
from treeproof.cli.run_output import check_out
from treeproof.errors import InvalidInput


@click.command(cls=Command, example="treeproof bundle run.jsonl --model model.json --out audit.zip")
@click.argument("run_path", metavar="RUN", type=FILE)
@click.option(
    "--model", "model_path", metavar="MODEL", type=FILE, required=True, help="The model file."
)
@click.option("--data", "data_path", metavar="DATA", type=FILE, help="The data file, for its hash.")
@click.option("--threat", "threat_path", metavar="FILE", type=FILE, help="The threat file.")
@click.option("--title", metavar="TEXT", help="Heading of the page.")
@click.option("--out", metavar="ZIP", type=FILE, default="evidence.zip", help="Where it goes.")
@partial_option
@load_options
def command(
    run_path: str,
    model_path: str,
    data_path: str | None,
    threat_path: str | None,
    title: str | None,
    out: str,
    partial: bool,
    **options: Any,
) -> None:
    """Put the run RUN, its model, its page and how to check them into one zip file.

    `treeproof check` of that file needs nothing else. The answers are checked before it is written,
    and the page shows only what is accepted. The data stay where they are: their hash is in it.
    """
    from treeproof.checker import check_run
    from treeproof.model.file_format import save_ensemble
    from treeproof.report.page import write_report
    from treeproof.results.run_file import load_results, unfinished
    from treeproof.runs.bundles import MODEL, PAGE, RUN, THREAT, write_bundle
    from treeproof.runs.merge import header_of

    check_out(out, "The bundle")
    if Path(run_path).suffix == ".parquet":
        raise InvalidInput(
            f"A bundle holds a run as JSON lines. Got '{run_path}': write it so with"
            " treeproof merge RUN --out run.jsonl."
        )
    header = header_of(Path(run_path))
    if unfinished(header, 0):
        refuse_unfinished(header, len(load_results(run_path)), run_path, partial=partial)
    if threat_path is not None:
        from treeproof.query.threats import load_threat

        load_threat(threat_path)
    ensemble, _ = load_model_of_run(header, model_path, **options)
    checks = list(check_run(run_path, ensemble))
    files = {RUN: Path(run_path)}
    if threat_path is not None:
        files[THREAT] = Path(threat_path)
    facts: dict[str, Any] = {
        "model": {"fingerprint": ensemble.fingerprint, **_hashed("deployed_file", model_path)},
        "data": {} if data_path is None else _hashed("file", data_path),
        "made_by": dict(header.get("versions") or {}),
    }
    with tempfile.TemporaryDirectory(prefix="treeproof-") as folder:
        files |= {MODEL: Path(folder) / MODEL, PAGE: Path(folder) / PAGE}
        save_ensemble(ensemble, files[MODEL])
        write_report(run_path, files[PAGE], title=title or "Evidence", checks=[checks])
        write_bundle(Path(out), files, facts)
    open_rows = sum(check.status in ("rejected", "unproved") for check in checks)
    if open_rows:
        print_note(f"{open_rows} answers are not proved, and treeproof check will say so.")
    digest = hashlib.sha256(Path(out).read_bytes()).hexdigest()
    print_note(f"the bundle is in {out}. Its SHA-256 is {digest}.")


def _hashed(what: str, path: str) -> dict[str, str]:
    """Name and SHA-256 of a file; a folder, such as a model of YDF, has a name only."""
    file = Path(path)
    try:
        if file.is_dir():
            return {what: file.name}
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"'{path}' must be a file that can be read. Got: {error}.") from error
    return {what: file.name, "sha256": digest}
