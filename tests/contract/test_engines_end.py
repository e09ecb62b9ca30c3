"""Every engine comes to an end on models in which much ties; a watchdog sees to it.

Questions are asked in a process of their own: a compiled search that runs on hears no signal.
"""

import subprocess
import sys

import pytest

from treeproof.engines.registry import ENGINES

GENEROUS_S = 900
"""For one engine, its compilation included; questions themselves take a second or so."""

QUESTIONS = """
import faulthandler, sys
faulthandler.dump_traceback_later(int(sys.argv[2]), exit=True)

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp

engine, count = sys.argv[1], 0


def ask(model, rows, ball, limit, goal=None):
    global count
    options = {"engine": engine, "goal": goal}
    for seconds in (limit, 2.0):
        try:
            found = tp.radius(model, rows, None, ball, time_limit_s=seconds, **options)
        except tp.UnsupportedQuery:
            return
        assert (found.lower <= found.upper).all()
        count += 1
    upper = float(found.upper[0])
    eps = upper if np.isfinite(upper) else 1.0
    tp.verify(model, rows, None, type(ball)(eps), time_limit_s=limit, **options)


# A leaf in which both classes tie.
X = np.array([0] * 4 + [2] * 6 + [5] * 2 + [6] * 4, float)[:, None]
y = np.array([0, 0, 0, 1] + [0, 0, 1, 1, 1, 1] + [0, 1] + [1] * 4)
tied = tp.load(DecisionTreeClassifier(random_state=0).fit(X, y))
for ball in (tp.LInf(), tp.L1(), tp.L2(), tp.L0(), tp.Cost()):
    ask(tied, [[4.0], [5.0]], ball, 0.5)

# Fractions of many trees over one column, so that sums of classes tie, and targets that meet them.
for seed in (5008, 1, 2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 1))
    y = rng.integers(0, 3, 50)
    y[:3] = np.arange(3)
    n_trees = 50 if engine in ("exact", "attack", "milp") else 5
    model = tp.load(ExtraTreesClassifier(n_trees, random_state=seed).fit(X, y))
    for ball in (tp.LInf(), tp.L1(), tp.L2(), tp.Cost()):
        ask(model, X[2:3] + 0.05, ball, 0.5)
        ask(model, X[2:3] + 0.05, ball, 0.5, tp.AvoidsTarget(1))

# Columns of few values: many changes cost the same.
rng = np.random.default_rng(7)
X = rng.integers(0, 3, (120, 3)).astype(float)
y = (X.sum(axis=1) + rng.integers(0, 2, 120) > 3).astype(int)
model = tp.load(GradientBoostingClassifier(n_estimators=5, max_depth=3, random_state=0).fit(X, y))
for ball in (tp.LInf(), tp.L1(), tp.L2(), tp.L0()):
    ask(model, X[:2], ball, 0.5)
print("ENDED", count)
"""


QUICK = ("exact", "attack", "multilevel", "cliques")
"""Those without a solver of their own, whose limits are kept to within its steps."""


@pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ENGINES],
)
def test_an_engine_ends_on_models_full_of_ties(engine: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUESTIONS, engine, str(GENEROUS_S)],
        capture_output=True,
        text=True,
        timeout=GENEROUS_S + 60,
        check=False,
    )
    assert "ENDED" in done.stdout, done.stderr[-3000:]
    # That of the paper answers plain balls around one tree, and nothing else of these.
    assert int(done.stdout.split()[-1]) >= (2 if engine == "single_tree" else 10)
