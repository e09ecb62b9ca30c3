"""`All`: changes within several limits at once, against all points that there are."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from xgboost import XGBClassifier

import treeproof as tp

Floats = NDArray[np.float64]


def _model(rng: np.random.Generator) -> tuple[Any, Floats]:
    """A model of two or three classes of a few numbers from 0 to 4, and rows."""
    n_features, n_classes = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    X = rng.integers(0, 5, (120, n_features)).astype(float)
    score = X @ rng.normal(size=n_features) + rng.normal(0, 1.5, len(X))
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))
    trees = [
        GradientBoostingClassifier(n_estimators=6, max_depth=3, random_state=0),
        RandomForestClassifier(6, max_depth=4, random_state=0),
        XGBClassifier(n_estimators=6, max_depth=3, n_jobs=1),
    ][rng.integers(3)]
    return trees.fit(X, y), X


def _cost(norm: str, moves: Floats, scale: Floats) -> Floats:
    """What moves (n_points, n_features) cost."""
    found: Floats = {
        "L0": lambda: (moves > 0).sum(axis=1).astype(float),
        "L1": lambda: (moves / scale).sum(axis=1),
        "L2": lambda: np.sqrt(((moves / scale) ** 2).sum(axis=1)),
        "LInf": lambda: (moves / scale).max(axis=1),
    }[norm]()
    return found


@pytest.mark.parametrize("seed", range(24))
def test_answers_are_those_of_enumeration(seed: int) -> None:
    rng = np.random.default_rng([38, seed])
    trees, X = _model(rng)
    model, rows = tp.load(trees), X[:5]
    points = np.array(list(itertools.product(range(5), repeat=X.shape[1])), dtype=float)
    flips = trees.predict(points) != trees.predict(rows)[:, np.newaxis]
    domain = tp.Domain(values={feature: list(range(5)) for feature in range(X.shape[1])})
    scale = rng.choice([0.5, 1.0, 2.0], X.shape[1])
    most = {"L0": [1, 2], "L1": [1, 2, 3, 4], "L2": [1, 1.5, 2, 3], "LInf": [0.5, 1, 2, 3]}
    norms = rng.choice(list(most), size=int(rng.integers(2, 4)), replace=False).tolist()
    limit = {norm: float(rng.choice(most[norm])) for norm in norms}

    def ball(norm: str, eps: float | None) -> Any:
        unit = {} if norm == "L0" else {"scale": scale}
        return getattr(tp, norm)(eps, domain=domain, **unit)

    verdicts = tp.verify(model, rows, None, tp.All(*(ball(norm, limit[norm]) for norm in norms)))
    asked = norms[0]
    radii = tp.radius(
        model, rows, None, tp.All(*(ball(n, None if n == asked else limit[n]) for n in norms))
    )
    for row in range(len(rows)):
        moves = np.abs(points - rows[row])
        within = {n: _cost(n, moves, scale) <= limit[n] * (1 + 1e-12) for n in norms}
        is_broken = (flips[row] & np.all(list(within.values()), axis=0)).any()
        assert verdicts.verdict[row] == ("falsified" if is_broken else "verified")
        others = np.all([within[n] for n in norms if n != asked], axis=0)
        least = _cost(asked, moves, scale)[flips[row] & others].min(initial=np.inf)
        assert radii.exact[row]
        assert radii.upper[row] == pytest.approx(least, rel=1e-12)
        if np.isfinite(least):
            witness = np.abs(radii.witness[row] - rows[row])[np.newaxis]
            for norm in norms[1:]:
                assert _cost(norm, witness, scale)[0] <= limit[norm] * (1 + 1e-12)


def test_numbers_that_are_not_listed_keep_to_both_limits() -> None:
    """Three features at most, each by at most 0.5: as the ball of three features that move."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 5))
    y = (X @ [1.0, -1.0, 0.5, 0.2, 0.8] > 0).astype(int)
    model = tp.load(GradientBoostingClassifier(n_estimators=20, max_depth=3).fit(X, y))
    rows = X[:12]
    verdicts = tp.verify(model, rows, None, tp.All(tp.L0(3), tp.LInf(0.5)))
    balls = [tp.LInf(0.5, moving=moving) for moving in itertools.combinations(range(5), 3)]
    single = np.array([tp.verify(model, rows, None, ball).verdict for ball in balls])
    expected = np.where((single == "falsified").any(axis=0), "falsified", "verified")
    assert verdicts.verdict.tolist() == expected.tolist()
    assert {"falsified", "verified"} == set(expected)
    radii = tp.radius(model, rows, None, tp.All(tp.L0(3), tp.LInf()))
    alone = [tp.radius(model, rows, None, tp.LInf(moving=ball.moving)).upper for ball in balls]
    assert radii.exact.all()
    assert radii.upper.tolist() == np.min(alone, axis=0).tolist()


def test_parts_with_directions_and_bounds_of_their_own_all_count() -> None:
    X = np.linspace(0.0, 1.0, 101)[:, np.newaxis].repeat(2, axis=1)
    model = tp.load(GradientBoostingClassifier(n_estimators=5).fit(X, X[:, 0] > 0.5))
    rows = [[0.4, 0.4]]
    free = tp.radius(model, rows, None, tp.All(tp.L1(), tp.LInf(1.0)))
    assert free.upper[0] == pytest.approx(0.105, abs=1e-6)
    for part in (tp.LInf(0.1), tp.LInf(1.0, above=0.0), tp.LInf(1.0, high=0.5)):
        held = tp.radius(model, rows, None, tp.All(tp.L1(), part))
        assert held.upper[0] == np.inf


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ((), "must have parts"),
        ((tp.L0(), tp.L1()), "at most one of them without a limit"),
        ((tp.L0(1), tp.Box(0.0, 1.0)), "takes LInf, L1, L2, L0 and Cost"),
        ((tp.L0(1), tp.LInf([0.1, 0.2])), "one limit for all rows"),
        (
            (tp.L0(1, domain=tp.Domain(integer=[0])), tp.L1(1, domain=tp.Domain(integer=[1]))),
            "the same domain",
        ),
    ],
)
def test_what_is_no_conjunction_of_balls_is_refused(parts: Any, rule: str) -> None:
    with pytest.raises(tp.InvalidInput, match=rule):
        tp.All(*parts)


def test_engines_that_know_one_limit_say_so() -> None:
    X, y = np.eye(4)[:, :2], [0, 1, 0, 1]
    model = tp.load(RandomForestClassifier(3, random_state=0).fit(X, y))
    with pytest.raises(tp.UnsupportedQuery, match="several limits"):
        tp.verify(model, X, None, tp.All(tp.L0(1), tp.L1(0.5)), engine="milp")


def test_all_limits_are_said() -> None:
    """Page and shell tell every limit: within the first one alone more rows break."""
    X, y = load_iris(return_X_y=True)
    model = tp.load(GradientBoostingClassifier(n_estimators=3, max_depth=2).fit(X, y))
    ball = tp.All(tp.L0(2), tp.LInf(frozen=[0]), tp.L1(0.7, scale=2.0, frozen=[1]))
    found = tp.radius(model, X[50:54], None, ball)
    asked = found.header["question"]["perturbation"]
    assert (asked["name"], asked["eps"], asked["frozen"]) == ("LInf", None, [0, 1])
    assert [part["name"] for part in asked["also"]] == ["L0", "L1"]
    said = found.summary()
    assert "at most 2 features change" in said
    assert "all moves add up to at most 0.7, in units, directions or bounds of its own" in said


def test_evidence_is_refused_before_the_search() -> None:
    X, y = np.eye(4)[:, :2], [0, 1, 0, 1]
    model = tp.load(RandomForestClassifier(3, random_state=0).fit(X, y))
    with pytest.raises(tp.UnsupportedQuery, match="Evidence is about one limit"):
        tp.radius(model, X, None, tp.All(tp.L0(1), tp.LInf()), evidence=True)
