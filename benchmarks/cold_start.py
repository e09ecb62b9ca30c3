"""Processor seconds and memory of first answers with an empty cache of compiled kernels.

    python benchmarks/cold_start.py [--before FOLDER] [--out FILE]

Every line is a process of its own that starts with an empty cache, or for "compiled already" with
the cache that the line before left. `FOLDER` is the `src` of an older version to measure in the
same run. Seconds are of the processor, of the question alone, without importing and training.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "cold_start.md"
SOURCE = Path(__file__).parents[1] / "src"

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


def measured(source: Path, cache: str, steps: tuple[str, ...]) -> tuple[float, float]:
    """Processor seconds of the last step, and megabytes of the process."""
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", PROGRAM, ",".join(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"][steps[-1]], found["memory"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sources = [SOURCE] if options.before is None else [options.before, SOURCE]
    lines = []
    before_steps: tuple[str, ...] = ()
    caches = [tempfile.mkdtemp() for _ in sources]
    for title, steps in QUESTIONS.items():
        cells = []
        for number, source in enumerate(sources):
            if steps is not None:
                caches[number] = tempfile.mkdtemp()
            seconds, memory = measured(source, caches[number], steps or before_steps)
            cells += [f"{seconds:.1f}", f"{memory:.0f}"]
        before_steps = steps or before_steps
        lines.append(f"| {title} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    names = ["now"] if options.before is None else ["0.1.0", "now"]
    head = " | ".join(f"{name}, s | {name}, MB" for name in names)
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite", "numpy"))
    options.out.write_text(
        "# First answers, with an empty cache of compiled kernels\n\n"
        "Processor seconds of the question alone, and the largest memory of the process; in one"
        " run.\n"
        f"Python {platform.python_version()}, {packages}, {platform.machine()}.\n\n"
        f"| question | {head} |\n|{'---|' * (1 + 2 * len(names))}\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
