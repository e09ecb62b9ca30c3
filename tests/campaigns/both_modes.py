"""Random questions answered by kernels as plain Python and as machine code, compared bit for bit.

    python -m tests.campaigns.both_modes --cases 100000 --seed 0

A case is a random, tie-rich model with two rows and a question of one kind: distances with every
engine, costs and domains, targets, evidence, score ranges and properties, reasons, robust training.
The exit status is 1 if two answers differ in anything but their times.
"""

import argparse
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import treeproof as tp
from tests import modes
from tests.random_domains import random_case as random_costs
from tests.random_ensembles import random_ensemble, random_rows
from treeproof import training
from treeproof.errors import TreeproofError
from treeproof.model.ensemble import Ensemble
from treeproof.results.columns import LaterColumn

Random = np.random.Generator
LIMITS: dict[str, Any] = {"time_limit_s": 600.0, "node_limit": 200}
"""Nodes end a search, which both modes count alike; seconds do not."""
ENGINES = ("exact", "exact", "exact", "attack", "multilevel", "cliques", "combination")
TIMES = {"seconds", "evidence_seconds"}


def plain_values(found: Any) -> Any:
    """An answer without its times, as text that is equal only for equal bits."""
    if isinstance(found, np.ndarray | LaterColumn):
        found = np.asarray(found)
        return [plain_values(value) for value in found.ravel().tolist()]
    if isinstance(found, np.generic):
        return plain_values(found.item())
    if isinstance(found, float):
        return found.hex()
    if isinstance(found, dict):
        return {key: plain_values(found[key]) for key in found if key not in TIMES}
    if isinstance(found, list | tuple):
        return [plain_values(value) for value in found]
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        return {
            name: plain_values(value)
            for name, value in fields.items()
            if name not in (*TIMES, "header", "created")
        }
    return repr(found)


def labelled(random: Random) -> Ensemble:
    """A random model that gives labels."""
    ensemble = random_ensemble(random)
    while ensemble.decision.kind == "score":
        ensemble = random_ensemble(random)
    return ensemble


def ask_distance(random: Random) -> Callable[[], Any]:
    """A radius or a verdict in a ball, by any engine, with evidence now and then."""
    model = tp.Model(labelled(random))
    rows = random_rows(random, model.ensemble, 2)
    engine = str(random.choice(ENGINES))
    options: dict[str, Any] = LIMITS | {"engine": engine}
    if engine == "exact" and random.random() < 0.4:
        options["evidence"] = True
    if len(model.classes) > 2 and random.random() < 0.5:
        options["goal"] = tp.AvoidsTarget(model.classes[0])
    if random.random() < 0.5:
        return lambda: tp.radius(model, rows, None, tp.LInf(), **options)
    eps = float(random.choice([0.5, 1.0, 2.5]))
    return lambda: tp.verify(model, rows, None, tp.LInf(eps), **options)


def ask_cost(random: Random) -> Callable[[], Any]:
    """A radius or a verdict with costs in a domain, with evidence now and then."""
    case = random_costs(random)
    ask = tp.verify if isinstance(case.perturbation, tp.Box) else tp.radius
    evidence = bool(random.random() < 0.3)
    model = tp.Model(case.ensemble)
    return lambda: ask(model, case.rows, None, case.perturbation, evidence=evidence, **LIMITS)


def ask_property(random: Random) -> Callable[[], Any]:
    """A range of scores, a largest change, or a property."""
    model = tp.Model(labelled(random))
    low = float(random.choice([-1.0, 0.0]))
    box = tp.Box(low, low + float(random.choice([1.0, 2.0])))
    feature = int(random.integers(model.n_features))
    kind = int(random.integers(3))
    if kind == 0 or len(model.classes) > 2:
        return lambda: tp.prove(model, tp.Stable(feature, 0.5), box, **LIMITS)
    if kind == 1:
        return lambda: tp.score_range(model, box, **LIMITS)
    return lambda: tp.prove(model, tp.Monotone({feature: 1}), box, **LIMITS)


def ask_reasons(random: Random) -> Callable[[], Any]:
    """Reasons for two rows."""
    model = tp.Model(labelled(random))
    rows = random_rows(random, model.ensemble, 2)
    minimum = bool(random.random() < 0.5)
    return lambda: tp.reasons(model, rows, minimum=minimum, n_sets=2, n_changes=1, **LIMITS)


def ask_training(random: Random) -> Callable[[], Any]:
    """Probabilities of a small trained model."""
    rows = np.round(random.random((30, 3)), 1)
    labels = (rows[:, 0] + rows[:, 1] > 1.0).astype(int)
    labels[:2] = 0, 1
    options: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "random_state": 0, "n_jobs": 1}
    options["eps"] = float(random.choice([0.0, 0.1]))
    kind = random.choice([training.RobustGBDTClassifier, training.RobustRandomForestClassifier])
    return lambda: kind(**options).fit(rows, labels).predict_proba(rows)


KINDS = {
    "distance": (ask_distance, 10),
    "cost": (ask_cost, 6),
    "property": (ask_property, 2),
    "reasons": (ask_reasons, 2),
    "training": (ask_training, 1),
}


def answer(ask: Callable[[], Any]) -> Any:
    """What is answered; a refusal is an answer, too."""
    try:
        return plain_values(ask())
    except TreeproofError as error:
        return f"{type(error).__name__}: {error}"


def compare(seed: int) -> tuple[str, bool]:
    """Kind of a case, and whether both answers are the same."""
    random = np.random.default_rng(seed)
    names = list(KINDS)
    shares = np.array([KINDS[name][1] for name in names], dtype=float)
    kind = str(random.choice(names, p=shares / shares.sum()))
    ask = KINDS[kind][0](random)
    with modes.plain():
        plain = answer(ask)
    with modes.machine_code():
        compiled = answer(ask)
    return kind, plain == compiled


def main() -> int:
    """Compare many cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    arguments = parser.parse_args()
    counts, wrong = Counter[str](), []
    began = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        if time.monotonic() > began + arguments.seconds:
            break
        kind, is_equal = compare(seed)
        counts[kind] += 1
        if not is_equal:
            wrong.append(seed)
            print(f"case {seed} ({kind}): the answers differ", flush=True)
    print(f"{sum(counts.values())} cases {dict(counts)}: {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
