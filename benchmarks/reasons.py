"""Reasons: sizes and times beside XReason's, on the rows that its authors explained, and more.

Run ``python -m benchmarks.reasons [--sets a,b] [--parts xreason,minimum,paper,forest] [--rows N]``;
the tables go to ``benchmarks/results/reasons.md``, or only to the terminal with ``--dry``. Needs
models and figures of XReason and the paper's models: TREEPROOF_PAPER_DATA, by default ../shared.

XReason's sizes and seconds are those of its authors' logs (AAAI 2022, MaxSAT), on another machine.
Our means are processor times of one thread for the whole call, replay of all witnesses included;
our largest is the wall-clock time of a row in compiled code.
"""

import argparse
import csv
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from benchmarks.subjects import DATA, subjects
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import treeproof

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "reasons.md"
EXPLANATIONS = DATA / "explanations"
SMALL = 21
"""Features of the sets on which minimum sizes are sought."""
MINIMUM_S = 5.0


def explained(entry: dict[str, Any]) -> tuple[treeproof.Model, np.ndarray, dict[str, np.ndarray]]:
    """A model of XReason's authors, the rows they explained, and what they found."""
    options = {"n_features": entry["features"]}
    if entry["classes"] > 2:
        options["n_classes"] = entry["classes"]
    model = treeproof.load(EXPLANATIONS / f"{entry['name']}.dump.json", **options)
    with (EXPLANATIONS / f"{entry['name']}.rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    X = np.array([[float(row[f"f{i}"]) for i in range(entry["features"])] for row in rows])
    names = ("mx_size", "mx_seconds", "smt_size", "smt_seconds")
    return model, X, {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}


def timed(model: Any, X: np.ndarray, **options: Any) -> tuple[Any, float]:
    """Reasons for all rows, and the processor seconds that they took."""
    treeproof.reasons(model, X[:1], **options)  # compiles and warms everything up
    began = time.process_time()
    found = treeproof.reasons(model, X, **options)
    return found, time.process_time() - began


def sizes(found: Any) -> np.ndarray:
    return np.array([len(features) for features in found.features])


def beside_xreason(entries: list[dict[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """One line per set, and what they say together."""
    lines, ratios, ours_s, theirs_s, n_rows, largest = [], [], 0.0, 0.0, 0, 0.0
    for entry in entries:
        model, X, theirs = explained(entry)
        found, seconds = timed(model, X)
        assert found.sufficient.all()
        size, n = sizes(found), len(X)
        ratios.append(size.mean() / theirs["mx_size"].mean())
        ours_s, theirs_s, n_rows = (
            ours_s + seconds,
            theirs_s + theirs["mx_seconds"].sum(),
            n_rows + n,
        )
        largest = max(largest, float(found.seconds.max()))
        lines.append(
            [
                entry["name"],
                f"{entry['trees']} × {entry['features']}",
                str(n),
                str(int(found.minimal.sum())),
                f"{size.mean():.2f}",
                f"{theirs['mx_size'].mean():.2f}",
                f"{np.nanmean(theirs['smt_size']):.2f}",
                f"{1e3 * seconds / n:.2f}",
                f"{1e3 * found.seconds.max():.1f}",
                f"{1e3 * theirs['mx_seconds'].mean():.1f}",
                f"{1e3 * np.nanmean(theirs['smt_seconds']):.1f}",
            ]
        )
        print(*lines[-1], sep="  ", flush=True)
    words = [
        f"In the mean over sets, our sets have {np.mean(ratios):.3f} of the size of XReason's"
        f" (largest {max(ratios):.3f}). In the mean over all {n_rows} rows ours take"
        f" {1e3 * ours_s / n_rows:.2f} ms, theirs {1e3 * theirs_s / n_rows:.0f} ms:"
        f" {theirs_s / ours_s:.0f} times as long; our slowest row took {largest:.3f} s."
    ]
    return lines, words


def minimum_sizes(entries: list[dict[str, Any]]) -> tuple[list[list[str]], str]:
    """Sets of minimum size, where there are few features, and how many are proved to be."""
    lines, proved, n_rows = [], 0, 0
    for entry in entries:
        if entry["features"] > SMALL:
            continue
        model, X, theirs = explained(entry)
        found, seconds = timed(model, X, minimum=True, time_limit_s=MINIMUM_S)
        lines.append(
            [
                entry["name"],
                str(len(X)),
                f"{100 * found.is_minimum().mean():.1f} %",
                f"{sizes(found).mean():.3f}",
                f"{found.size_lower_bound.mean():.3f}",
                f"{sizes(treeproof.reasons(model, X)).mean():.3f}",
                f"{theirs['mx_size'].mean():.3f}",
                f"{1e3 * seconds / len(X):.1f}",
                f"{found.seconds.max():.2f}",
            ]
        )
        print(*lines[-1], sep="  ", flush=True)
        proved, n_rows = proved + int(found.is_minimum().sum()), n_rows + len(X)
    return lines, f"Together: proved on {proved} of {n_rows} rows.\n"


def plain_line(name: str, model: Any, X: np.ndarray, limit_s: float) -> list[str]:
    """Minimal sets of a model that nobody explained."""
    found, seconds = timed(model, X, time_limit_s=limit_s)
    size = sizes(found)[found.sufficient]
    line = [
        name,
        str(len(X)),
        str(int(found.sufficient.sum())),
        str(int(found.minimal.sum())),
        f"{size.mean():.2f}",
        f"{1e3 * seconds / len(X):.2f}",
        f"{found.seconds.max():.3f}",
    ]
    print(*line, sep="  ", flush=True)
    return line


def table(columns: tuple[str, ...], lines: list[list[str]]) -> str:
    rows = [list(columns), ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=lambda text: text.split(","))
    parser.add_argument("--parts", default="xreason,minimum,paper,forest")
    parser.add_argument("--rows", type=int, default=100, help="of each of the paper's models")
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per row of these")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    entries = json.loads((EXPLANATIONS / "index.json").read_text())
    entries = [e for e in entries if options.sets is None or e["name"] in options.sets]
    parts = [
        "# Reasons\n",
        f"{(__doc__ or '').strip().splitlines()[0]} Written by `python -m benchmarks.reasons`"
        f" (treeproof {treeproof.__version__}, Python {platform.python_version()},"
        f" {platform.machine()}).\n",
        (__doc__ or "").strip().split("\n\n")[-1] + "\n",
    ]
    if "xreason" in options.parts:
        lines, words = beside_xreason(entries)
        columns = ("set", "trees × features", "rows", "minimal", "size", "XReason", "its SMT")
        columns += ("ms, mean", "ms, largest", "XReason ms", "its SMT ms")
        parts += [table(columns, lines), *words, ""]
    if "minimum" in options.parts:
        columns = ("set", "rows", f"minimum proved in {MINIMUM_S:g} s", "size", "lower bound")
        columns += ("minimal sets", "XReason", "ms, mean", "s, largest")
        lines, text = minimum_sizes(entries)
        parts += ["Sets of minimum size:\n", table(columns, lines), text]
    columns = ("model", "rows", "sufficient", "minimal", "size", "ms, mean", "s, largest")
    if "forest" in options.parts:
        X, y = load_breast_cancer(return_X_y=True)
        forest = treeproof.load(RandomForestClassifier(random_state=0).fit(X, y))
        line = plain_line("scikit-learn's default forest, breast cancer", forest, X, options.limit)
        parts += ["A forest of 100 trees:\n", table(columns, [line])]
    if "paper" in options.parts:
        lines = [
            plain_line(f"{s.name} ({s.n_trees})", s.model, s.X, options.limit)
            for s in subjects(options.models, options.rows)
        ]
        parts += [
            f"The paper's models (time limit {options.limit:g} s):\n",
            table(columns, lines),
        ]
    text = "\n".join(parts)
    if not options.dry:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
