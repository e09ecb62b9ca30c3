"""Exact radii on the paper's models, beside treeVerification's times, Veritas and a plain pass.

Run ``python -m benchmarks.exact [--rows N] [--models a,b] [--live-veritas N] [--live-sketch N]
[--threads]``; the tables go to ``benchmarks/results/exact.md``, or only to the terminal with
``--dry``. Needs the paper's data and models: TREEPROOF_PAPER_DATA, by default ../shared.

One thread, one run, one batch per model, seconds of the processor (processor_clock.py); rows that
the model gets wrong need no search and are left out. treeVerification's seconds were measured in
another run, on a machine like this one under load; they vary by up to 2.5 times, and it gives lower
bounds only. Ratios are over the rows that the other tool answered.

"A pass" goes from a row and r* to the leaves of all trees in that ball and does nothing else: ours,
and `build_strict` of the sketch in the paper's data (models with one output). The columns give the
median over rows of the time for the whole answer divided by the faster of the two passes on that
row, and divided by the sketch's. Passes go through the rows as the answers do, so that neither
finds its row in the processor's cache; ours are the median of three runs, for answers and passes.

Two threads and one take turns by the wall clock, five times each, and the best counts.

Veritas runs here, in the same process, with tight settings (30 steps, guard 1e-8, 10 s per row),
from twice treeVerification's bound or, without one, twice the radius; its trees are handed over as
they are, because its reader changes them. Times include its pruning.
It and the sketch are run on models with two classes, and get no further rows of a model after 15
seconds; rows count that it finishes, with a bracket of a thousandth.
"""

import argparse
import importlib.util
import os
import platform
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np
from benchmarks.processor_clock import UNIT
from benchmarks.subjects import DATA, Subject, subjects
from numpy.typing import NDArray

import treeproof
from treeproof.engines.spaces import rank_space
from treeproof.kernels.core.cells import box_cells
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import memory_kernel
from treeproof.kernels.core.leaves import restrict

RESULTS = Path(__file__).parent / "results" / "exact.md"

N_RUNS = 3
"""Of our own batches and passes; the median of a row's times counts."""
LIVE_SECONDS = 15.0
"""No further rows are given to another tool once it has had that long on a model."""

COLUMNS = (
    "model (trees)",
    "rows",
    "exact",
    "mean ms",
    "median ms",
    "99 % ms",
    "max ms",
    "at the root",
    "nodes",
    "sweeps",
    "tV rows",
    "tV / ours, mean",
    "tV / ours, median",
    "r* compared",
    "r* different",
    "our pass, µs",
    "sketch's pass, µs",
    "answer / faster pass, median",
    "answer / sketch's pass, median",
    "rows above 100 medians",
)
LIVE_COLUMNS = (
    "model (trees)",
    "rows",
    "mean ms",
    "median ms",
    "99 % ms",
    "theirs / ours, mean",
    "theirs / ours, median",
    "theirs / ours, 99 %",
    "brackets that miss r*",
)


def numbers(peers: dict[int, dict[str, str]], column: str, n_rows: int) -> NDArray[np.float64]:
    """A column of the peers' table per row; NaN where it has no entry."""
    values = np.full(n_rows, np.nan)
    for row, entry in peers.items():
        if row < n_rows and entry.get(column):
            values[row] = float(entry[column])
    return values


def ratios(theirs: NDArray[np.float64], ours: NDArray[np.float64]) -> tuple[str, str]:
    """Ratio of the means and of the medians, over the rows that the other tool has."""
    has = ~np.isnan(theirs) & (ours > 0.0)
    if not has.any():
        return "–", "–"
    mean = theirs[has].mean() / ours[has].mean()
    return f"{mean:.1f}", f"{np.median(theirs[has]) / np.median(ours[has]):.1f}"


@cache
def sketch() -> Any:
    """The sketch beside the paper's data, as a module; what it compiles is kept in memory only."""
    location = importlib.util.spec_from_file_location("sketch", DATA / "sketch" / "sketch.py")
    if location is None or location.loader is None:
        raise SystemExit(f"there is no sketch in {DATA}")
    module = importlib.util.module_from_spec(location)
    sys.modules["sketch"] = module
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(numba.config, "CACHE_DIR", folder),
    ):
        location.loader.exec_module(module)
    return module


def pass_ms(subject: Subject, radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """Milliseconds to restrict all trees to a ball, row after row: ours, and the sketch's.

    NaN for radii 0 and infinite, and where the sketch cannot read the model.
    """
    ensemble = subject.model.ensemble
    space = rank_space(ensemble)
    rows = subject.X.astype(np.float64)
    ones = np.ones(ensemble.n_outputs)

    # Compiled loops: a call from Python would cost as much as a pass.
    @memory_kernel
    def ours(trees, space, rows, radii, ones, times):  # type: ignore[no-untyped-def]
        clock = np.empty(2, dtype=np.int64)
        cells = np.empty((2, rows.shape[1]), dtype=np.int32)
        for number, radius in enumerate(radii):
            if 0.0 < radius < np.inf:
                row = rows[number]
                began = seconds_now(clock)
                box_cells(space, row, row - radius, row + radius, cells[0], cells[1])
                restrict(trees, space, row, cells[0], cells[1], ones, 0.0)
                times[number] = seconds_now(clock) - began

    runs = [(ours, (ensemble.trees, space, rows, radii, ones))]
    if ensemble.n_outputs == 1:
        plain = sketch()
        build_strict = plain.build_strict

        @memory_kernel
        def theirs(feature, threshold, left, right, value, root, rows, radii, times):  # type: ignore[no-untyped-def]
            clock = np.empty(2, dtype=np.int64)
            for number, radius in enumerate(radii):
                if 0.0 < radius < np.inf:
                    row = rows[number]
                    began = seconds_now(clock)
                    build_strict(feature, threshold, left, right, value, root, 1.0, row, radius)
                    times[number] = seconds_now(clock) - began

        runs.append((theirs, (*plain.load_xgboost_json(subject.path), rows, radii)))
    medians = np.full((2, len(radii)), np.nan)
    for index, (run, arguments) in enumerate(runs):
        times = np.full((N_RUNS + 1, len(radii)), np.nan)
        for number in range(N_RUNS + 1):  # the first one compiles
            run(*arguments, times[number])
        medians[index] = np.median(times[1:], axis=0)
    return 1e3 * medians


def median_of(values: NDArray[np.float64], digits: int) -> str:
    """The median of the values that are known."""
    known = values[~np.isnan(values)]
    return f"{np.median(known):.{digits}f}" if known.size else "–"


def measure(subject: Subject) -> tuple[list[str], Any]:
    """One line of the table, and the results."""
    treeproof.radius(
        subject.model, subject.X[:1], subject.y[:1], engine="exact", arithmetic="real"
    )  # compiles
    runs = [
        treeproof.radius(
            subject.model,
            subject.X,
            subject.y,
            engine="exact",
            time_limit_s=60.0,
            arithmetic="real",
        )
        for _ in range(N_RUNS)
    ]
    found = runs[0]
    found.seconds[:] = np.median([run.seconds for run in runs], axis=0)
    n_rows = len(subject.X)
    # Rows that the model gets wrong need no search; they are in no time.
    asked = found.verdict != "falsified"
    ms = 1e3 * found.seconds[asked]
    nodes, sweeps = found.statistics["nodes"][asked], found.statistics["sweeps"][asked]
    tv = 1e3 * np.where(asked, numbers(subject.peers, "tv_seconds", n_rows), np.nan)[asked]
    truth = numbers(subject.peers, "r_star_exact", n_rows)
    known = ~np.isnan(truth)
    all_ms = 1e3 * found.seconds
    our_pass, sketch_pass = pass_ms(subject, np.where(asked, found.upper, 0.0))
    line = [
        f"{subject.name} ({subject.n_trees:,})",
        f"{int(asked.sum())} of {n_rows}",
        f"{100 * found.exact.mean():.1f} %",
        f"{ms.mean():.3f}",
        f"{np.median(ms):.3f}",
        f"{np.percentile(ms, 99):.3f}",
        f"{ms.max():.3f}",
        f"{100 * np.mean(nodes <= 2):.1f} %",
        f"{nodes.mean():.1f}",
        f"{sweeps.mean():.1f}",
        f"{int(np.sum(~np.isnan(tv)))}",
        *ratios(tv, ms),
        f"{int(known.sum())}",
        f"{int(np.sum(found.upper[known] != truth[known]))}",
        median_of(1e3 * our_pass, 0),
        median_of(1e3 * sketch_pass, 0),
        median_of(all_ms / np.fmin(our_pass, sketch_pass), 1),
        median_of(all_ms / sketch_pass, 1),
        f"{int(np.sum(ms > 100 * np.median(ms)))}",
    ]
    return line, found


def veritas_line(subject: Subject, found: Any, n_rows: int) -> list[str]:
    """Run Veritas on the first rows of a model with two classes; rows whose bracket it closes."""
    from benchmarks.scoreboard_peers import live_veritas

    asked = (found.verdict != "falsified") & (np.arange(len(subject.X)) < n_rows)
    peer = live_veritas(subject, found.upper, asked, LIVE_SECONDS)
    theirs = 1e3 * peer.seconds[:n_rows]
    radius = found.upper[: len(theirs)]
    # Its boxes are float32 and its guard widens the bracket.
    low, high = peer.lower[:n_rows] - 1e-6, peer.upper[:n_rows] + 1e-6
    n_missed = int(np.sum(~np.isnan(theirs) & ~((low <= radius) & (radius <= high))))
    return live_line(subject, found, theirs, n_missed)


def live_line(
    subject: Subject, found: Any, theirs: NDArray[np.float64], n_missed: int
) -> list[str]:
    ours = 1e3 * found.seconds[: len(theirs)]
    has = ~np.isnan(theirs)
    if not has.any():
        return [f"{subject.name} ({subject.n_trees:,})", "0", *["–"] * 7]
    tails = np.percentile(theirs[has], 99), np.percentile(ours[has], 99)
    return [
        f"{subject.name} ({subject.n_trees:,})",
        f"{int(has.sum())}",
        f"{theirs[has].mean():.3f}",
        f"{np.median(theirs[has]):.3f}",
        f"{tails[0]:.3f}",
        *ratios(theirs, ours),
        f"{tails[0] / tails[1]:.1f}",
        f"{n_missed}",
    ]


def sketch_line(subject: Subject, found: Any, n_rows: int) -> list[str]:
    """Run the sketch on the first rows of a model with one output, as its own main does."""
    module = sketch()
    arrays = module.load_xgboost_json(subject.path)
    n_rows = min(n_rows, len(subject.X))
    rows = subject.X[:n_rows].astype(np.float64)
    theirs = np.full(n_rows, np.nan)
    start, radii, n_missed = 0.001, [], 0
    counts = np.zeros(5, np.int64)
    module.radius(*arrays, 1.0, rows[0], rows.shape[1], 1e-9, counts)  # compiles
    for row in range(n_rows):
        if found.verdict[row] == "falsified":
            continue
        if np.nansum(theirs) > 1e3 * LIVE_SECONDS:
            break
        sign = -1.0 if module.predict(*arrays, rows[row]) > 0 else 1.0
        began = time.perf_counter()
        low, high = module.radius(*arrays, sign, rows[row], rows.shape[1], start, counts)
        theirs[row] = 1e3 * (time.perf_counter() - began)
        radii.append(high)
        start = 0.5 * float(np.median(radii))
        n_missed += not low <= found.upper[row] <= high
    return live_line(subject, found, theirs, n_missed)


def threads_line(subject: Subject) -> list[str]:
    """Rows per second with one thread and with two, in turns, the best of five each."""
    seconds = [np.inf, np.inf]
    for _ in range(5):
        for index, n_jobs in enumerate((1, 2)):
            began = time.monotonic()
            treeproof.radius(subject.model, subject.X, subject.y, n_jobs=n_jobs, arithmetic="real")
            seconds[index] = min(seconds[index], time.monotonic() - began)
    rate = [len(subject.X) / second for second in seconds]
    name = f"{subject.name} ({subject.n_trees:,})"
    return [name, f"{rate[0]:.0f}", f"{rate[1]:.0f}", f"{rate[1] / rate[0]:.2f}"]


def table(columns: tuple[str, ...], lines: list[list[str]]) -> str:
    rows = [list(columns), ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def versions(with_veritas: bool) -> str:
    words = (
        f"treeproof {treeproof.__version__}, Python {platform.python_version()},"
        f" numba {numba.__version__}, NumPy {np.__version__}, {platform.machine()},"
        f" {os.cpu_count()} processors, {UNIT}"
    )
    if with_veritas:
        import veritas

        words += f", Veritas {veritas.__version__}"
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--models", help="names in models.json, with commas between")
    parser.add_argument("--live-veritas", type=int, default=0, metavar="N")
    parser.add_argument("--live-sketch", type=int, default=0, metavar="N")
    parser.add_argument("--threads", action="store_true", help="also compare two threads with one")
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    names = options.models.split(",") if options.models else None
    lines, veritas_lines, sketch_lines, thread_lines = [], [], [], []
    for subject in subjects(names, options.rows):
        line, found = measure(subject)
        lines.append(line)
        print(dict(zip(COLUMNS, line, strict=True)), file=sys.stderr, flush=True)
        if options.threads:
            thread_lines.append(threads_line(subject))
        if subject.model.ensemble.n_outputs > 1:
            continue
        if options.live_sketch:
            sketch_lines.append(sketch_line(subject, found, options.live_sketch))
            print("sketch", sketch_lines[-1], file=sys.stderr, flush=True)
        if options.live_veritas:
            veritas_lines.append(veritas_line(subject, found, options.live_veritas))
            print("Veritas", veritas_lines[-1], file=sys.stderr, flush=True)
    text = f"# Exact radii\n\n{versions(bool(veritas_lines))}.\n\n" + table(COLUMNS, lines)
    if veritas_lines:
        text += "\n## Veritas on the same rows, in the same run\n\n"
        text += table(LIVE_COLUMNS, veritas_lines)
    if sketch_lines:
        text += "\n## The sketch on the same rows, in the same run\n\n"
        text += table(LIVE_COLUMNS, sketch_lines)
    if thread_lines:
        text += "\n## Two threads, rows per second\n\n"
        text += table(("model (trees)", "one thread", "two threads", "times"), thread_lines)
    text += "\n## How\n\n" + "\n\n".join((__doc__ or "").split("\n\n")[2:])
    print(text)
    if not options.dry:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
