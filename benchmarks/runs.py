"""Runs over many rows: a million rows in bounded memory at a constant rate; Dask beside threads.

Run ``python benchmarks/runs.py [million|dask] [--rows N]``; the table and the picture in
``benchmarks/results/runs.md`` and ``runs.png`` are updated for what was run. Needs nothing but the
development installation; the data is generated. Run it on an idle machine: the throughput of two
workers against one means nothing where others use the cores.
"""

import argparse
import itertools
import json
import math
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import treeproof as tp

RESULTS = Path(__file__).parent / "results"
N_FEATURES = 20
EPS = 0.02
IDLE_S = 3.0

SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    " quiet": {
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
    },
}
"""Settings of Dask: as it comes, and as docs/how-to/many-rows.md advises."""


def trained_model() -> tp.Model:
    """A hundred trees of depth 6 on 10,000 generated rows."""
    import xgboost
    from sklearn.datasets import make_classification

    X, y = make_classification(10_000, N_FEATURES, n_informative=10, random_state=0)
    classifier = xgboost.XGBClassifier(
        n_estimators=100, max_depth=6, learning_rate=0.2, n_jobs=1, random_state=0
    )
    return tp.load(classifier.fit(X.astype(np.float32), y))


def generated_rows(path: Path, n_rows: int) -> None:
    """Rows like those of the training data, written a few at a time."""
    from sklearn.datasets import make_classification

    block = make_classification(10_000, N_FEATURES, n_informative=10, random_state=0)[0]
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, N_FEATURES))
    random = np.random.default_rng(0)
    for first in range(0, n_rows, len(block)):
        part = rows[first : first + len(block)]
        part[:] = block[: len(part)] + random.normal(scale=0.1, size=part.shape)
    rows.flush()


def resident_mb() -> float:
    """Memory of this process that is in use now, without files mapped into it."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (int(fields["RssAnon"].split()[0])) / 1024.0


def million(n_rows: int) -> dict[str, Any]:
    """One run with threads on all cores; memory and progress are noted as it goes."""
    model = trained_model()
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "rows.npy", Path(folder) / "run.jsonl"
        generated_rows(data, n_rows)
        # Compiled code and thread stacks belong to the program, not to the number of rows.
        tp.run(model, data, None, tp.LInf(EPS), rows="0:2000")
        before = resident_mb()
        noted: list[tuple[float, int, float, float]] = []
        began, processor = time.perf_counter(), time.process_time()

        def note(done: int, _: int | None) -> None:
            used = time.process_time() - processor
            noted.append((time.perf_counter() - began, done, resident_mb() - before, used))

        run = tp.run(model, data, None, tp.LInf(EPS), out=out, progress=note)
        seconds = time.perf_counter() - began
        return {
            "rows": len(run),
            "seconds": seconds,
            "processor_seconds": time.process_time() - processor,
            "verified": run.tally.verdicts["verified"] / len(run),
            "undecided": run.tally.verdicts["unknown"],
            "file_mb": out.stat().st_size / 2**20,
            "before_mb": before,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
            "noted": noted,
            "load": os.getloadavg()[1],
        }


def rates(noted: list[tuple[float, int, float, float]], clock: int) -> list[float]:
    """Rows per second in each tenth of the rows; clock 0 is on the wall, 3 the processors'."""
    n_parts = 10
    seconds, done = (np.array([line[k] for line in noted]) for k in (clock, 1))
    marks = np.linspace(0, done[-1], n_parts + 1)
    at = np.interp(marks, np.concatenate([[0], done]), np.concatenate([[0.0], seconds]))
    return (np.diff(marks) / np.diff(at)).tolist()


def dask(n_rows: int) -> dict[str, Any]:
    """Radii with threads, and with one and two Dask workers, taking turns."""
    import dask
    from distributed import Client, LocalCluster

    model = trained_model()
    found: dict[str, list[tuple[float, float]]] = {}
    idle: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.npy"
        generated_rows(data, n_rows)

        def measured(name: str, client: Any, processor: Any, **options: Any) -> None:
            out = Path(folder) / "run.jsonl"
            out.unlink(missing_ok=True)
            before, began = processor(), time.perf_counter()
            tp.run(model, data, None, out=out, client=client, **options)
            used = (time.perf_counter() - began, processor() - before)
            found.setdefault(name, []).append(used)
            print(name, *(f"{value:.2f} s" for value in used), flush=True)

        for _ in range(3):
            for size in (100, 400):
                measured(
                    f"2 threads, batches of {size}",
                    None,
                    time.process_time,
                    n_jobs=2,
                    batch_rows=size,
                )
            for (named, settings), n_workers in itertools.product(SETTINGS.items(), (1, 2)):
                with (
                    dask.config.set(settings),
                    LocalCluster(
                        n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
                    ) as cluster,
                    Client(cluster) as client,
                ):

                    def processor(client: Any = client) -> float:
                        return time.process_time() + sum(client.run(time.process_time).values())

                    tp.run(model, data, None, client=client, rows="0:640", batch_rows=32)
                    for size in (100, 400):
                        measured(
                            dask_name(named, n_workers, size), client, processor, batch_rows=size
                        )
                    if n_workers == 2:
                        before = processor()
                        time.sleep(IDLE_S)
                        idle.setdefault(named, []).append((processor() - before) / IDLE_S)
    best = {
        name: [min(column) for column in zip(*times, strict=True)] for name, times in found.items()
    }
    return {
        "rows": n_rows,
        "best": best,
        "idle": {named: min(shares) for named, shares in idle.items()},
        "load": os.getloadavg()[1],
    }


def dask_name(settings: str, n_workers: int, size: int) -> str:
    return f"Dask{settings}, {n_workers} worker{'s' * (n_workers - 1)}, batches of {size}"


def draw(noted: list[tuple[float, int, float, float]]) -> None:
    """Rows and memory over time, side by side."""
    import matplotlib.pyplot as plt

    seconds, done, memory, _ = (np.array(column) for column in zip(*noted, strict=True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot(seconds, done / 1e6)
    left.set(xlabel="seconds", ylabel="million rows answered", xlim=0, ylim=0)
    right.plot(seconds, memory)
    right.axhline(1024, color="grey", linestyle="--")
    right.text(0, 1000, "1 GiB", va="top", color="grey")
    right.set(xlabel="seconds", ylabel="MiB above the model", xlim=0, ylim=0)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "runs.png", dpi=120, metadata={"Software": None})


def write(state: dict[str, Any]) -> None:
    """The page of results, from what has been measured so far."""
    lines = [
        "# Runs over many rows",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()},"
        f" treeproof {tp.__version__}. A model of 100 trees of depth 6 with {N_FEATURES} features.",
        "",
    ]
    if "million" in state:
        lines += million_lines(state["million"])
    if "dask" in state:
        lines += dask_lines(state["dask"])
    (RESULTS / "runs.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def million_lines(found: dict[str, Any]) -> list[str]:
    on_wall, of_processors = (rates(found["noted"], clock) for clock in (0, 3))
    memory = [line[2] for line in found["noted"]]
    return [
        f"## {found['rows']:,} rows on one machine",
        "",
        f"`verify` at eps {EPS}, rows from an NPY file, answers flushed to a run file.",
        "Aims: less than 1 GiB above the model, constant rate.",
        "",
        "| what | measured |",
        "|---|---|",
        f"| time | {found['seconds']:.0f} s, {found['processor_seconds']:.0f} s of processors |",
        f"| rate | {found['rows'] / found['seconds']:,.0f} rows/s |",
        f"| rows per second, in each tenth of the rows | {listed(on_wall)} |",
        f"| rows per processor second, in each tenth | {listed(of_processors)} |",
        f"| slowest tenth / fastest tenth, of processor seconds |"
        f" {min(of_processors) / max(of_processors):.2f} |",
        f"| memory above the model, largest | {max(memory):.0f} MiB |",
        f"| memory above the model, in the middle and at the end |"
        f" {memory[len(memory) // 2]:.0f} and {memory[-1]:.0f} MiB |",
        f"| whole process, largest | {found['peak_mb']:.0f} MiB |",
        f"| run file | {found['file_mb']:.0f} MiB |",
        f"| load of the machine, this run included | {found.get('load', math.nan):.1f} |",
        f"| verified, undecided | {found['verified']:.4f} of the rows, {found['undecided']} rows |",
        "",
        "![rows answered and memory over time](runs.png)",
        "",
    ]


def listed(values: list[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


def dask_lines(found: dict[str, Any]) -> list[str]:
    best = found["best"]
    lines = [
        f"## Dask beside threads, radii of {found['rows']:,} rows",
        "",
        "Best of three, taking turns; workers are processes with one thread on the same machine,",
        "warmed up; quiet ones sample less, see docs/how-to/many-rows.md. Processor seconds are",
        "those of all processes, the scheduler's included. Aims on an idle machine: two",
        "workers at least 1.8 times as fast as one; at most 5 % more than threads. The load of the",
        f"machine was {found['load']:.1f}, these processes included: where that is far above the"
        " number of",
        "cores, only processor seconds can be compared.",
        "",
        "| who | seconds | processor seconds |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {wall:.2f} | {cpu:.2f} |" for name, (wall, cpu) in best.items()]
    lines += ["", "| comparison | seconds | processor seconds |", "|---|---|---|"]
    idle = found.get("idle", {"": math.nan})
    for settings, size in itertools.product(idle, (100, 400)):
        one, two = (best[dask_name(settings, n_workers, size)] for n_workers in (1, 2))
        threads = best[f"2 threads, batches of {size}"]
        lines += [
            f"| Dask{settings}, 1 worker / 2 workers, batches of {size} |"
            f" {one[0] / two[0]:.2f} | |",
            f"| Dask{settings}, 2 workers / 2 threads, batches of {size} |"
            f" {two[0] / threads[0]:.3f} | {two[1] / threads[1]:.3f} |",
        ]
    lines += ["", "| Dask with 2 workers and nothing to do | share of one core |", "|---|---|"]
    lines += [f"| Dask{settings} | {share:.3f} |" for settings, share in idle.items()]
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["million", "dask"], default=["million", "dask"])
    parser.add_argument("--rows", type=int)
    arguments = parser.parse_args()
    saved = RESULTS / "runs.json"
    state = json.loads(saved.read_text()) if saved.exists() else {}
    if "million" in arguments.what:
        state["million"] = million(arguments.rows or 1_000_000)
        draw(state["million"]["noted"])
    if "dask" in arguments.what:
        state["dask"] = dask(arguments.rows or 12_800)
    saved.write_text(json.dumps(state))
    write(state)


if __name__ == "__main__":
    sys.exit(main())
