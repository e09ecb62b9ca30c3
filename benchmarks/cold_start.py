"""Processor seconds and memory of first answers with an empty cache of compiled kernels.

    python benchmarks/cold_start.py [--before FOLDER] [--out FILE]

Every line is a process of its own that starts with an empty cache, or for "compiled already" with
the cache that the line before left. `FOLDER` is a checkout of an older version to measure in the
same run. Seconds are of the processor, of the question alone, without importing and training; those
of `make demo`, in a new clone without an environment, are of everything that it starts, installing
included.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "cold_start.md"
CHECKOUT = Path(__file__).parents[1]

PROGRAM = """
import json, logging, resource, sys, time, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
import numpy as np
import treeproof as tp
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier

X, y = load_breast_cancer(return_X_y=True)
classifier = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(X, y)
model = tp.load(classifier, self_test=False)
steps = {
    "radius": lambda: tp.radius(model, X[:20], y[:20]),
    "evidence": lambda: tp.radius(model, X[:20], y[:20], evidence=True),
    "attack": lambda: tp.radius(model, X[:20], y[:20], engine="attack"),
    "compat": lambda: tp.radius(
        model,
        X[:20],
        y[:20],
        engine=tp.multilevel(T=2, L=2),
        search=tp.PaperProtocol(first_eps=0.1),
    ),
}
def train():
    from treeproof.training import RobustGBDTClassifier
    RobustGBDTClassifier(n_estimators=3).fit(X, y)
steps["training"] = train
seconds = {}
for name in sys.argv[1].split(","):
    began = time.process_time()
    steps[name]()
    seconds[name] = time.process_time() - began
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "memory": memory}))
"""

QUESTIONS = {
    "first `tp.radius`": ("radius",),
    "the same, compiled already": None,
    "first `tp.radius` with evidence, all in all": ("evidence",),
    "robust training": ("training",),
    "`attack`, after a radius": ("radius", "attack"),
    "treeVerification's question (`compat`), after a radius": ("radius", "compat"),
}


Cost = tuple[float, float]
"""Processor seconds, and megabytes of the largest process."""


def measured(source: Path, cache: str, steps: tuple[str, ...]) -> Cost:
    """What the last step takes."""
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", PROGRAM, ",".join(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"][steps[-1]], found["memory"]


def questions(checkouts: list[Path]) -> Iterator[tuple[str, list[Cost | None]]]:
    """First answers, question by question."""
    before_steps: tuple[str, ...] = ()
    caches = [tempfile.mkdtemp() for _ in checkouts]
    for title, steps in QUESTIONS.items():
        costs: list[Cost | None] = []
        for number, checkout in enumerate(checkouts):
            if steps is not None:
                caches[number] = tempfile.mkdtemp()
            costs.append(measured(checkout / "src", caches[number], steps or before_steps))
        before_steps = steps or before_steps
        yield title, costs


def wheel() -> Cost:
    """What the first answer takes with the wheel that carries compiled kernels."""
    with tempfile.TemporaryDirectory() as folder:
        clone = cloned(CHECKOUT, folder)
        command = [sys.executable, str(clone / "scripts" / "build-wheel")]
        environment = {**os.environ, "PYTHONPATH": str(clone / "src")}
        subprocess.run(command, cwd=clone, env=environment, capture_output=True, check=True)
        (built,) = (clone / "dist").glob("*.whl")
        with zipfile.ZipFile(built) as archive:
            archive.extractall(clone / "installed")
        return measured(clone / "installed", tempfile.mkdtemp(), ("radius",))


def demo(checkout: Path) -> Cost:
    """What `make demo` takes on a fresh machine: no environment, no compiled kernels."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "NUMBA_CACHE_DIR": tempfile.mkdtemp()}
        command = ["make", "demo", f"PYTHON={sys.base_prefix}/bin/python3"]
        clone = cloned(checkout, folder)
        subprocess.run(command, cwd=clone, env=environment, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1024


def cloned(checkout: Path, folder: str) -> Path:
    clone = Path(folder) / "clone"
    subprocess.run(["git", "clone", "--quiet", str(checkout), str(clone)], check=True)
    return clone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    checkouts = [CHECKOUT] if options.before is None else [options.before, CHECKOUT]
    lines = []

    def add(title: str, costs: list[Cost | None]) -> None:
        cells = [f"{c[0]:.1f} | {c[1]:.0f}" if c is not None else "– | –" for c in costs]
        lines.append(f"| {title} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)

    # The demo first: memory of children is the largest of all that were started.
    add("`make demo`, from a clone to the report", [demo(checkout) for checkout in checkouts])
    for title, costs in questions(checkouts):
        add(title, costs)
    add("first `tp.radius`, from the wheel", [None] * (len(checkouts) - 1) + [wheel()])
    names = ["now"] if options.before is None else ["0.1.0", "now"]
    head = " | ".join(f"{name}, s | {name}, MB" for name in names)
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite", "numpy"))
    options.out.write_text(
        "# First answers, with an empty cache of compiled kernels\n\n"
        "Processor seconds of the question alone, or of everything that `make demo` starts, and the"
        " memory of the largest process; in one run. Made by `benchmarks/cold_start.py`.\n"
        f"Python {platform.python_version()}, {packages}, {platform.machine()}.\n\n"
        f"| question | {head} |\n|{'---|' * (1 + 2 * len(names))}\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
