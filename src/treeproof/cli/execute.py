"""Runs from the command line: rows are streamed, answers go to the run file as they come."""

import contextlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treeproof.cli.console import print_note
from treeproof.cli.options import load_model
from treeproof.cli.question_options import QuestionOptions
from treeproof.errors import NoEffectWarning, require_backend

if TYPE_CHECKING:
    from treeproof.cli.gate import Gate
    from treeproof.prediction import Model
    from treeproof.runs.runner import Run, Runner


@contextlib.contextmanager
def run_question(
    model_path: str,
    data_path: str,
    options: QuestionOptions,
    kind: Literal["verify", "radius"],
    *,
    eps: float | None = None,
    radii: Sequence[float] = (),
    gate: "Gate | None" = None,
) -> Iterator[tuple["Run", "Runner"]]:
    """Load, ask, and save the run where that is wanted; gives what was found, and its records.

    Verdicts are at `eps`, or at the radius of the threat model; a tally counts proved and attacked
    rows at `radii`.
    """
    from treeproof.cli.run_output import ROWS_SHOWN, progress_bar
    from treeproof.runs.runner import Runner
    from treeproof.search.question import Question

    _check_outputs(options, gate)
    model = load_model(model_path, **options.loading)
    source = options.source(model, data_path)
    question = Question(
        kind=kind,
        perturbation=options.ball(source, eps, has_radius=kind == "verify"),
        engine=options.engine,
        goal=options.goal,
        arithmetic=options.threat.arithmetic,
        attacker_class=class_named(model, options.threat.attacker_class),
        evidence=options.evidence,
        **options.limits,
    )
    runner = Runner(
        model,
        question,
        source,
        out=None if options.out is None or options.writes_table else Path(options.out),
        resume=options.resume,
        radii=radii,
        keeps_records=options.output_format != "table"
        or options.all_rows
        or bool(options.only)
        or options.sort != "row"
        or options.writes_table
        or (gate is not None and gate.not_worse_than is not None),
        first_rows=ROWS_SHOWN,
        check=None if gate is None else gate.check,
    )
    # The cluster comes first: where there is none, an earlier run file stays as it is.
    with _client(options.dask) as client, runner.opened():
        total = source.estimated_rows() if sys.stderr.isatty() else None
        with progress_bar(total) as advance:
            advance(runner.tally.n_rows)
            run = runner.answer(options.jobs, client, on_progress=lambda done, _: advance(done))
        if not run.is_complete:
            of_all = "" if source.n_rows is None else f" of {source.n_rows}"
            print_note(f"interrupted after {len(run)}{of_all} rows; these are kept.")
        yield run, runner


def _check_outputs(options: QuestionOptions, gate: "Gate | None") -> None:
    """Refuse, before any work, files that could not be written; warn of proofs that go nowhere."""
    from treeproof.cli.run_output import check_out
    from treeproof.results.run_file import check_ending

    if gate is not None:
        gate.refuse_as_output(options.out)
    if options.evidence and options.out is None and options.output_format != "json":
        warnings.warn(
            "--evidence has no effect without --out: only run files and --format json hold it.",
            NoEffectWarning,
            stacklevel=3,
        )
    if options.out is not None:
        # A long run must not end with answers that have nowhere to go.
        check_ending(options.out, or_table=True)
        check_out(options.out, "The table" if options.writes_table else "The run file")
        if Path(options.out).suffix.lower() == ".xlsx":
            require_backend("openpyxl", "excel")


def class_named(model: "Model", label: Any) -> Any:
    """The class whose label reads like a given one; shells know texts only."""
    alike = [known for known in model.classes if str(known) == str(label)]
    return alike[0] if alike else label


@contextlib.contextmanager
def _client(address: str | None) -> Iterator[Any]:
    if address is None:
        yield None
        return
    from treeproof.runs.cluster import connected, require_worker

    with connected(address) as client:
        require_worker(client)
        yield client
