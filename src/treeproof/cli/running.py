"""Runs from the command line: rows are streamed, answers go to the run file as they come."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treeproof.cli.asking import Asking, ball_of, check_has_claim, unit_of
from treeproof.cli.console import print_note
from treeproof.cli.options import load_model

if TYPE_CHECKING:
    from treeproof.prediction import Model
    from treeproof.query.perturbations import LInf
    from treeproof.runs.questions import Question
    from treeproof.runs.runner import Run, Runner


class Answered:
    """What a command found, while its records can still be read.

    Attributes
    ----------
    run : Run
        Summary of all rows.
    runner : Runner
        Holds the first rows, and gives all records.
    ball : LInf
        The perturbation that was asked about.
    """

    def __init__(self, run: "Run", runner: "Runner", ball: "LInf") -> None:
        self.run = run
        self.runner = runner
        self.ball = ball

    def end(
        self, asking: Asking, *, fail_under: float | None = None, share: float | None = None
    ) -> None:
        """End the command with the exit status that its answers ask for."""
        from treeproof.cli.asking import finish

        finish(
            n_rows=len(self.run),
            n_undecided=self.run.tally.verdicts["unknown"],
            is_complete=self.run.is_complete,
            strict=asking.strict,
            fail_under=fail_under,
            share=share,
        )


@contextlib.contextmanager
def answered(
    model_path: str,
    data_path: str,
    asking: Asking,
    loading: dict[str, Any],
    *,
    eps: float | None = None,
    asks_radius: bool,
    radii: Sequence[float] = (),
) -> Iterator[Answered]:
    """Load, ask, and save the run where that is wanted.

    Parameters
    ----------
    model_path, data_path : str
        The files.
    asking, loading
        What `Asking.split` made of the options.
    eps : float, optional
        Radius to verify; without it that of the threat model.
    asks_radius : bool
        Whether the radius is what is asked for.
    radii : sequence of float
        Radii at which proved and attacked rows are counted.
    """
    from treeproof.cli.run_output import ROWS_SHOWN, check_out, progress_bar
    from treeproof.runs.runner import Runner, workers_for

    if asking.out is not None:
        # A long run must not end with answers that have nowhere to go.
        check_out(asking.out)
    model = load_model(model_path, **loading)
    check_has_claim(model, asking)
    source = asking.source(model, data_path)
    ball = ball_of(model, asking, unit_of(source, asking), eps, has_radius=not asks_radius)
    question = _question(model, asking, ball)
    shows_all = asking.output_format != "table" or asking.all_rows
    runner = Runner(
        model,
        question,
        source,
        out=None if asking.out is None else Path(asking.out),
        resume=asking.resume,
        radii=radii,
        keeps_records=shows_all,
        first_rows=ROWS_SHOWN,
    )
    # The cluster comes first: where there is none, an earlier run file stays as it is.
    with _client(asking.dask) as client, runner.opened():
        total = source.estimated_rows() if sys.stderr.isatty() else None
        with progress_bar(total) as advance:
            workers = workers_for(model, question, n_jobs=asking.jobs or -1, client=client)
            advance(runner.tally.n_rows)
            run = runner.answer(workers, on_progress=lambda done, _: advance(done))
        if not run.is_complete:
            of_all = "" if source.n_rows is None else f" of {source.n_rows}"
            print_note(f"interrupted after {len(run)}{of_all} rows; these are kept.")
        yield Answered(run, runner, ball)


def _question(model: "Model", asking: Asking, ball: "LInf") -> "Question":
    from treeproof.query.goals import ScoreChange
    from treeproof.runs.questions import Question

    threat = asking.threat
    return Question(
        kind="radius" if ball.eps is None else "verify",
        perturbation=ball,
        engine=asking.engine,
        goal=None if threat.score_change is None else ScoreChange(threat.score_change),
        arithmetic=threat.arithmetic,
        attacker_class=_class_named(model, threat.attacker_class),
        evidence=asking.evidence,
        **asking.limits,
    )


def _class_named(model: "Model", label: Any) -> Any:
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
