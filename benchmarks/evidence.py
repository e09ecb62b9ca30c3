"""Evidence on the paper's models: every row's open ball of its exact radius, recorded and checked.

Run ``python -m benchmarks.evidence [--rows N] [--models a,b] [--state FILE]``; the table goes to
``benchmarks/results/evidence.md``, or only to the terminal with ``--dry``. Needs the paper's data
and models: TREEPROOF_PAPER_DATA, by default ../shared.

Rows are asked about in portions, each once without and once with evidence, in turn, and every
portion is written to the state file, so that a run that was stopped goes on where it was. Times are
processor times of one thread. "The compiled proof" is what the exact engine spent on the row.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from benchmarks.subjects import Subject, subjects

import treeproof
from treeproof.checker import RunChecker
from treeproof.results.run_file import row_records

RESULTS = Path(__file__).parent / "results" / "evidence.md"
PORTION = 50
COLUMNS = (
    "model (trees)",
    "rows",
    "accepted",
    "claim nothing to prove",
    "others",
    "evidence run / plain run",
    "kB, median",
    "kB, mean",
    "kB, largest",
    "check ms, mean",
    "check / compiled proof",
    "check / recording alone",
)


def measure(subject: Subject, first: int) -> dict[str, Any]:
    """Answer, record and check one portion of the rows."""
    X, y = subject.X[first : first + PORTION], subject.y[first : first + PORTION]
    times = {False: 0.0, True: 0.0}
    results: dict[bool, Any] = {}
    # Which comes first changes from portion to portion, so that neither is always the warmer one.
    for evidence in (False, True) if first % (2 * PORTION) else (True, False):
        began = time.process_time()
        results[evidence] = treeproof.radius(
            subject.model, X, y, evidence=evidence, arithmetic="real"
        )
        times[evidence] = time.process_time() - began
    found = results[True]
    header, *records = json.loads(json.dumps([found.header, *row_records(found)]))
    checker = RunChecker(header, subject.model.ensemble)
    began = time.process_time()
    checks = checker.check_all(records)
    check_s = time.process_time() - began
    return {
        "model": subject.name,
        "n_trees": subject.n_trees,
        "first": first,
        "plain_s": times[False],
        "evidence_s": times[True],
        "statuses": [c.status if c.status != "rejected" else c.reason for c in checks],
        "falsified": int((found.verdict == "falsified").sum()),
        "exact": int(found.exact.sum()),
        "bytes": [len(text or "") for text in found.evidence],
        "check_s": check_s,
        "row_s": results[False].seconds.tolist(),
        "record_s": found.statistics["evidence_seconds"].tolist(),
    }


def line_of(portions: list[dict[str, Any]]) -> list[str]:
    """One line of the table."""

    def all_of(name: str) -> Any:
        return np.array([value for portion in portions for value in portion[name]])

    statuses = all_of("statuses")
    sizes, check_s = all_of("bytes") / 1000.0, sum(p["check_s"] for p in portions)
    ratio = sum(p["evidence_s"] for p in portions) / sum(p["plain_s"] for p in portions)
    n_good = int((statuses == "accepted").sum())
    n_nothing = sum(p["falsified"] for p in portions)
    others = sorted({s for s in statuses.tolist() if s != "accepted"})
    return [
        f"{portions[0]['model']} ({portions[0]['n_trees']})",
        str(len(statuses)),
        str(n_good),
        str(n_nothing),
        ", ".join(others) or "none",
        f"{ratio:.2f}",
        f"{np.median(sizes):.2f}",
        f"{np.mean(sizes):.2f}",
        f"{np.max(sizes):.1f}",
        f"{1e3 * check_s / len(statuses):.2f}",
        f"{check_s / all_of('row_s').sum():.1f}",
        f"{check_s / all_of('record_s').sum():.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument(
        "--state", type=Path, default=Path(tempfile.gettempdir()) / "treeproof-evidence.jsonl"
    )
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after so much time")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    lines = options.state.read_text().splitlines() if options.state.exists() else []
    done = [json.loads(line) for line in lines]
    stop = time.monotonic() + options.seconds
    for subject in subjects(options.models, options.rows):
        known = {p["first"] for p in done if p["model"] == subject.name}
        left = [f for f in range(0, len(subject.X), PORTION) if f not in known]
        if left and time.monotonic() < stop:
            # Compiles and warms everything up.
            treeproof.radius(
                subject.model, subject.X[:1], subject.y[:1], evidence=True, arithmetic="real"
            )
        for first in left:
            if time.monotonic() >= stop:
                break
            done.append(measure(subject, first))
            with options.state.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    report(done, dry=options.dry)


def report(done: list[dict[str, Any]], *, dry: bool) -> None:
    names = list(dict.fromkeys(portion["model"] for portion in done))
    table = [list(COLUMNS), ["---"] * len(COLUMNS)]
    table += [line_of([portion for portion in done if portion["model"] == name]) for name in names]
    text = "\n".join("| " + " | ".join(row) + " |" for row in table)
    words = (
        "# Evidence\n\n"
        f"{__doc__.strip().splitlines()[0]} Written by `python -m benchmarks.evidence`"
        f" (treeproof {treeproof.__version__}, Python {platform.python_version()},"
        f" {platform.machine()}).\n\n"
        "Every row is claimed for the open ball of its exact radius, and for the closed one where\n"
        "the radius is not attained; rows that the model gets wrong as they stand have nothing to\n"
        "prove but their witness. Sizes are those of the text in the run file. Ratios of runs are\n"
        "processor times of one thread, with and without evidence, portion by portion in turn.\n"
        "The compiled proof is what the exact engine spent on the row, witnesses included;\n"
        "recording alone is the compiled time of proving the final ball once more. A portion of\n"
        f"{PORTION} rows is checked at a time.\n\n"
    )
    print(text)
    if not dry:
        RESULTS.write_text(words + text + "\n")


if __name__ == "__main__":
    main()
