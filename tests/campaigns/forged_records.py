"""Forged records and runs by the hundred thousand: none that says something false is accepted.

    python -m tests.campaigns.forged_records --count 300000 [--seed N]

Genuine runs of trained models are forged, one to three lies at a time, and put to the checker. What
it accepts is compared with the truth by enumeration (claims_truth.py). Whole files are forged, too:
rows left out, doubled or swapped, and counts changed, with the data at hand and without. Time and
memory are measured.
"""

import argparse
import copy
import json
import math
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaigns.claims_truth import falsehoods, meanings_of, values_of
from tests.campaigns.forgeries import FORGERS, IMPOSSIBLE, Forgery
from tests.campaigns.genuine_runs import GenuineRun, genuine_run, some_model
from treeproof.checker import RunChecker, check_run
from treeproof.errors import InvalidInput

PER_RUN, PER_MODEL = 120, 8
"""Forgeries of each run, and runs of each model."""

FILES = 0.06
"""Share of forgeries that are whole files."""


class Tally:
    """What came of the forgeries."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.false: list[str] = []
        self.slowest = 0.0
        self.largest = 0

    def add(self, kind: str, outcome: str, seconds: float) -> None:
        """Count a forgery."""
        self.counts[f"{kind}: {outcome}"] += 1
        self.counts[outcome] += 1
        self.counts["forged"] += 1
        self.slowest = max(self.slowest, seconds)


def forge_records(
    rng: np.random.Generator, run: GenuineRun, meanings: Any, count: int, tally: Tally
) -> None:
    """Forge single records of a run, and check them in this process."""
    genuine = RunChecker(run.header, run.ensemble)
    for _ in range(count):
        forgery = Forgery(rng, run)
        kinds = rng.choice(list(FORGERS), size=int(rng.choice([1, 1, 1, 2, 2, 3])))
        for kind in kinds:
            try:
                FORGERS[kind](forgery)
            except IMPOSSIBLE:
                continue  # an earlier lie has left nothing to lie about
        header, record = forgery.header, forgery.record
        if record == run.records[forgery.at] and header == run.header:
            continue
        given_data = rng.random() < 0.3
        if "bomb" in kinds:
            tracemalloc.start()
        began = time.perf_counter()
        try:
            checker = RunChecker(header, run.ensemble) if forgery.is_new_header else genuine
            values = run.rows[forgery.at].tolist() if given_data else None
            label = run.labels[forgery.at] if given_data and run.labels else None
            # Alone, or among others that must not hide it.
            others = run.records[: int(rng.integers(4)) * (rng.random() < 0.3)]
            given = [None] * len(others)
            found = checker.check_all([*others, record], [*given, values], [*given, label])[-1]
            status = found.status
            if found.reason.startswith("record: it cannot be checked"):
                tally.false.append(f"{run.name} {kinds}: {found.reason} {header} {record}")
        except InvalidInput:
            status = "refused"
        tally.add(str(kinds[0]), status, time.perf_counter() - began)
        if "bomb" in kinds:
            tally.largest = max(tally.largest, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        if status in ("accepted", "claims nothing"):
            if given_data and record.get("values") is None:  # then the data tell the row
                own = [None if math.isnan(v) else v for v in run.rows[forgery.at].tolist()]
                record = record | {"values": own}
            wrong = falsehoods(run.header, header, record, meanings)
            if given_data:
                wrong += data_falsehoods(run, header, record, forgery.at)
            if wrong:
                tally.false.append(f"{run.name} {kinds}: {wrong} {header['question']} {record}")


def data_falsehoods(run: GenuineRun, header: Any, record: Any, at: int) -> list[str]:
    """What is false of a record beside the row of the data that it was put next to."""
    wrong = (
        [] if np.array_equal(values_of(record), run.rows[at], equal_nan=True) else ["another row"]
    )
    if run.labels is not None and header["question"]["labels"] == "given":
        wrong += ["another label"] if record["label"] != run.labels[at] else []
    return wrong


def forge_file(rng: np.random.Generator, run: GenuineRun, path: Path, tally: Tally) -> None:
    """Forge a whole file: leave rows out, double or swap them, and let the header agree."""
    header, records = copy.deepcopy(run.header), copy.deepcopy(run.records)
    kind = str(rng.choice(["drop", "double", "swap", "renumber", "foreign", "count", "lines"]))
    at = int(rng.integers(len(records)))
    if kind == "drop":
        del records[at]
    elif kind == "double":
        records.append(records[at] | {"row": int(rng.choice([at, len(records), 10**13]))})
    elif kind == "swap":
        other = int(rng.integers(len(records)))
        records[at], records[other] = (
            records[other] | {"row": records[at]["row"]},
            records[at] | {"row": records[other]["row"]},
        )
    elif kind == "renumber":
        for record in records:
            record["row"] += int(rng.choice([1, 5]))
    elif kind == "foreign":
        records[at] |= {"row": int(rng.integers(len(records)))}
    lines = [json.dumps(record) for record in records]
    if kind == "lines":
        lines.insert(
            at, str(rng.choice(["", "{}", "[" * 5000, json.dumps(header), "\x00", "null"]))
        )
    if rng.random() < 0.8 and kind != "count":
        header |= {"n_rows": len(records), "data": {"n_asked": len(records)}}
    elif kind == "count":
        header["n_rows"] += int(rng.choice([-1, 1]))
    if rng.random() < 0.15:
        header["data"] = {"n_asked": len(records), "rows": f"0:{len(records)}"}
    if rng.random() < 0.05:
        header["state"] = "underway"
    path.write_text("\n".join([json.dumps(header), *lines]) + "\n")
    given_data = rng.random() < 0.6
    began = time.perf_counter()
    rows = (run.rows, run.labels) if given_data else (None, None)
    checks = list(check_run(path, run.ensemble, *rows))
    accepted = all(check.status in ("accepted", "claims nothing") for check in checks)
    tally.add(f"file {kind}", "accepted" if accepted else "rejected", time.perf_counter() - began)
    if accepted:
        numbers = [record["row"] for record in records]
        limited = header["data"].get("rows") is not None
        all_rows = list(range(len(run.records)))
        wrong = len(set(numbers)) != len(numbers) or header["n_rows"] != len(numbers)
        wrong |= header["state"] != "complete" or len(lines) != len(records)
        if given_data:
            wrong |= sorted(numbers) != (all_rows[: len(records)] if limited else all_rows)
            for record in records:
                wrong |= bool(data_falsehoods(run, header, record, record["row"]))
        if wrong:
            tally.false.append(f"file {kind} {run.name}: {header} {numbers}")


def campaign(count: int, seed: int, *, says: Any = None) -> Tally:
    """Forge so many records and files."""
    tally, number, model = Tally(), 0, None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        while tally.counts["forged"] < count:
            rng = np.random.default_rng([seed, number])
            if number % PER_MODEL == 0:
                model = some_model(rng)
                meanings = meanings_of(model[1])
            number += 1
            run = genuine_run(rng, model)
            checker = RunChecker(run.header, run.ensemble)
            for record in run.records:
                status = checker.check(record).status
                tally.counts[f"genuine: {status}"] += 1
                wrong = falsehoods(run.header, run.header, record, meanings)
                if status not in ("accepted", "claims nothing") or wrong:
                    tally.false.append(f"genuine {run.name}: {status} {wrong} {record}")
            before = tally.counts["forged"]
            wanted = min(PER_RUN, count - before)
            n_files = int(rng.binomial(wanted, FILES))
            forge_records(rng, run, meanings, wanted - n_files, tally)
            for _ in range(n_files):
                forge_file(rng, run, path, tally)
            if says is not None and number % 100 == 0:
                says(f"{tally.counts['forged']} forged, {len(tally.false)} false claims accepted")
    return tally


def main() -> None:
    """Run the campaign, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    tally = campaign(options.count, options.seed, says=lambda text: print(text, flush=True))
    for name, number in sorted(tally.counts.items()):
        print(f"{number:8} {name}")
    for text in tally.false[:20]:
        print("FALSE", text[:2000])
    print(
        f"{tally.counts['forged']} forged in {time.perf_counter() - began:.0f} s,"
        f" {len(tally.false)} false claims accepted; the slowest check took {tally.slowest:.2f} s,"
        f" the largest bomb {tally.largest / 1e6:.1f} MB"
    )
    sys.exit(bool(tally.false))


if __name__ == "__main__":
    main()
