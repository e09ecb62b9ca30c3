"""First answers with an empty cache of compiled kernels, from the start of a process to its answer.

    python benchmarks/cold_start.py [--demo] [--out FILE]

Every line is a process of its own, imports included, that starts with an empty cache and asks about
50 rows; models were trained and saved before. Processor seconds are those of the process and, in a
column of their own, of the one that compiles for it meanwhile. ``--demo`` also measures `make demo`
in a new clone without an environment.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "cold_start.md"
CHECKOUT = Path(__file__).parents[1]

PREPARE = """
import sys, pathlib
import numpy as np
import treeproof as tp
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier
folder = pathlib.Path(sys.argv[1])
X, y = load_breast_cancer(return_X_y=True)
D, d = load_digits(return_X_y=True)
tp.load(XGBClassifier(n_estimators=20, max_depth=4).fit(X, y)).save(folder / "boosted")
tp.load(RandomForestClassifier(random_state=0).fit(X, y)).save(folder / "forest")
tp.load(XGBClassifier(n_estimators=20, max_depth=4).fit(D, d)).save(folder / "digits")
np.savez(folder / "rows.npz", X=X, y=y, D=D, d=d)
"""

START = """
import json, os, sys, time, pathlib, resource
import numpy as np
import treeproof as tp
folder = pathlib.Path(sys.argv[1])
data = np.load(folder / "rows.npz")
X, y, D, d = (data[name] for name in ("X", "y", "D", "d"))
boosted = lambda: tp.load(folder / "boosted")
box = tp.Box(X.min(axis=0), X.max(axis=0))
"""

END = """
used = resource.getrusage(resource.RUSAGE_SELF)
from treeproof.kernels.core import background
background._compiler.end()
others = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, others.ru_utime + others.ru_stime]))
"""

QUESTIONS = {
    "L-infinity radii, 20 boosted trees": "tp.radius(boosted(), X[:50], y[:50])",
    "one of them": "tp.radius(boosted(), X[:1], y[:1])",
    "with evidence": "tp.radius(boosted(), X[:50], y[:50], evidence=True)",
    "L1": "tp.radius(boosted(), X[:50], y[:50], tp.L1())",
    "L0": "tp.radius(boosted(), X[:50], y[:50], tp.L0())",
    "`score_range`": "tp.score_range(boosted(), box)",
    "`prove` (monotone)": "tp.prove(boosted(), tp.Monotone({0: 1}), box)",
    "`reasons`": "tp.reasons(boosted(), X[:50], y[:50])",
    "`attack`": "tp.radius(boosted(), X[:50], y[:50], engine='attack')",
    "default random forest": "tp.radius(tp.load(folder / 'forest'), X[:50], y[:50])",
    "targets of digits": (
        "tp.radius(tp.load(folder / 'digits'), D[:50], d[:50], goal=tp.AvoidsTarget(1))"
    ),
    "robust training": (
        "__import__('treeproof.training').training.RobustGBDTClassifier().fit(X, y)"
    ),
}

Cost = tuple[float, float, float]
"""Wall seconds, processor seconds of the process, of its compiler."""


def measured(folder: Path, question: str) -> Cost:
    """What an answer takes."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "TREEPROOF_PLAIN": "auto"}
        command = [sys.executable, "-c", f"{START}{question}{END}", str(folder)]
        began = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - began
    own, compiler = json.loads(done.stdout.splitlines()[-1])
    return seconds, own, compiler


def measured_command(command: list[str], folder: Path | None = None) -> Cost:
    """What a command takes, with everything that it starts."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "TREEPROOF_PLAIN": "auto"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, float("nan")


def demo(folder: str) -> list[tuple[str, Cost]]:
    """`make demo` in a new clone, and once more when everything is installed."""
    clone = Path(folder) / "clone"
    subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(clone)], check=True)
    command = ["make", "demo", f"PYTHON={sys.base_prefix}/bin/python3"]
    return [
        ("`make demo`, from a clone to the report", measured_command(command, clone)),
        ("`make demo` after installation", measured_command(command, clone)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = []

    def add(title: str, cost: Cost) -> None:
        cells = " | ".join(f"{seconds:.1f}" if seconds == seconds else "–" for seconds in cost)
        lines.append(f"| {title} | {cells} |")
        print(lines[-1], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", PREPARE, folder], check=True)
        shell = str(Path(sys.executable).with_name("treeproof"))
        add("`treeproof --help`", measured_command([shell, "--help"]))
        for title, question in QUESTIONS.items():
            add(title, measured(Path(folder), question))
        if options.demo:
            for title, cost in demo(folder):
                add(title, cost)
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite", "numpy"))
    git = ["git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    options.out.write_text(
        "# First answers, with an empty cache of compiled kernels\n\n"
        "From the start of a process to its answer about 50 rows, imports included. The compiler is"
        " another process, which works beside it and ends with it. Made by"
        " `benchmarks/cold_start.py`.\n"
        f"Commit {commit}, Python {platform.python_version()}, {packages},"
        f" {platform.machine()}, {os.cpu_count()} cores.\n\n"
        "| question | wall s | processor s | processor s of the compiler |\n|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
