"""`run`: one question about many rows, from Python."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treeproof.data.sources import ArraySource, FileSource, Source
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic, takes_domain
from treeproof.runs.questions import Question
from treeproof.runs.runner import Progress, Run, Runner, workers_for

if TYPE_CHECKING:
    from treeproof.engines.base import Engine
    from treeproof.query.goals import Goal
    from treeproof.query.perturbations import Box, LInf


@takes_domain
def run(
    model: Any,
    data: Any,
    y: Any = None,
    perturbation: "LInf | Box | None" = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    client: Any = None,
    n_jobs: int = -1,
    label: str | None = None,
    rows: str | None = None,
    engine: "str | Engine" = "exact",
    goal: "Goal | None" = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = np.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    evidence: bool = False,
    radii: Sequence[float] = (),
    batch_rows: int | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Answer one question about many rows, into a file that survives whatever happens.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    data : str, path, array-like or data frame
        A data file, read in chunks, or rows in memory.
    y : array-like, optional
        Labels of rows in memory.
    perturbation : LInf or Box, optional
        How a row may change. With a radius, or as a box, rows are verified; otherwise the radius
        is what is asked for.
    out : str or path, optional
        The run file: JSON lines, or Parquet where it ends in .parquet. Finished rows are on disk
        within about a second.
    resume : bool
        Go on with an earlier sitting: rows that the file has are left out. Another model or
        question is refused.
    client : distributed.Client, optional
        A Dask cluster that answers instead of threads of this process.
    n_jobs : int
        Threads; -1 for all cores.
    label, rows : str, optional
        Column of the labels, and a range such as ``0:500``, for data files.
    engine, goal, arithmetic, attacker_class, time_limit_s, node_limit, memory_limit_mb, evidence
        See `verify`.
    radii : sequence of float
        Radii at which proved rows are counted in `Run.tally`.
    batch_rows : int, optional
        Rows per batch, fewer towards the end; by default as many as take about half a second.
    on_progress : callable, optional
        Called with the rows answered so far, and with all rows (or None, where that is not known).

    Returns
    -------
    Run
        Summary and file; `Run.load` reads all answers.
    """
    import treeproof
    from treeproof.query.perturbations import Box, LInf, in_order

    loaded = model if isinstance(model, Model) else treeproof.load(model)
    ball = LInf() if perturbation is None else perturbation
    question = Question(
        kind="radius" if isinstance(ball, LInf) and ball.eps is None else "verify",
        # Without names, so that workers need no data frames.
        perturbation=in_order(ball, loaded.feature_names, loaded.n_features)
        if isinstance(ball, LInf | Box)
        else ball,
        engine=engine,
        goal=goal,
        arithmetic=arithmetic,
        attacker_class=attacker_class,
        time_limit_s=time_limit_s,
        node_limit=node_limit,
        memory_limit_mb=memory_limit_mb,
        evidence=evidence,
    )
    source: Source
    if isinstance(data, str | PathLike):
        source = FileSource(loaded.ensemble, data, label=label, rows=rows)
    else:
        source = ArraySource(loaded.ensemble, data, y)
    path = None if out is None else Path(out)
    runner = Runner(loaded, question, source, out=path, resume=resume, radii=radii)
    if client is not None:
        from treeproof.runs.cluster import require_worker

        require_worker(client)  # before an earlier run file is replaced
    with runner.opened():
        workers = workers_for(loaded, question, n_jobs=n_jobs, client=client)
        return runner.answer(workers, on_progress=on_progress, batch_rows=batch_rows)
