"""A question that is kept and asked again, and what an answer works out when it is asked for."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from treeproof.results.results import Results
from treeproof.search import shown
from treeproof.search.question import Question


@pytest.fixture(scope="module")
def iris() -> tuple[tp.Model, np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0).fit(X, y)
    return tp.load(forest), X[::10], y[::10]


def content(results: Results) -> dict[str, Any]:
    """All that is said, bit for bit, but for how long it took."""
    columns = ("label", "verdict", "reason", "lower", "upper", "exact", "attained", "witness")
    found = {name: pickle.dumps(getattr(results, name).tolist()) for name in columns}
    return found | {"shown": results.as_shown.tobytes(), "header": results.header}


QUESTIONS = [
    ("radius", None, {}),
    ("radius", tp.LInf(scale=[1.0, 0.5, 2.0, 1.0], low=0.0), {"attacker_class": 1}),
    ("radius", tp.L1(domain=tp.Domain(integer=[0])), {}),
    ("radius", tp.LInf(), {"search": tp.PaperProtocol(first_eps=0.1), "engine": "multilevel"}),
    ("verify", tp.LInf(0.3), {"goal": tp.AvoidsTarget(2)}),
    ("verify", tp.Box(0.0, 6.0), {"arithmetic": "real"}),
    ("verify", tp.LInf(0.2), {"evidence": True}),
]


@pytest.mark.parametrize(("kind", "perturbation", "options"), QUESTIONS)
def test_a_prepared_question_gives_the_answers_of_its_function(
    iris: Any, kind: Any, perturbation: Any, options: dict[str, Any]
) -> None:
    model, X, y = iris
    X = np.round(X)
    ask = {"radius": tp.radius, "verify": tp.verify}[kind]
    prepared = tp.prepare(kind, model, perturbation, **options)
    for rows in (slice(0, 1), slice(3, 4), slice(None), slice(0, 1)):
        expected = content(ask(model, X[rows], y[rows], perturbation, **options))
        assert content(prepared.ask(X[rows], y[rows])) == expected
    # By default with the model's own labels.
    assert content(prepared.ask(X)) == content(ask(model, X, None, perturbation, **options))


def test_each_row_may_have_its_own_radius(iris: Any) -> None:
    model, X, y = iris
    ball = tp.LInf(np.linspace(0.1, 0.5, len(X)))
    prepared = tp.prepare("verify", model, ball)
    assert content(prepared.ask(X, y)) == content(tp.verify(model, X, y, ball))


def test_threads_share_a_prepared_question(iris: Any) -> None:
    model, X, y = iris
    prepared = tp.prepare("radius", model)
    alone = [content(prepared.ask(X[[row]], y[[row]])) for row in range(len(X))]
    with ThreadPoolExecutor(4) as pool:
        rows = range(len(X))
        together = list(pool.map(lambda row: content(prepared.ask(X[[row]], y[[row]])), rows))
    assert together == alone


def test_answers_are_tables_of_their_own(iris: Any) -> None:
    model, X, _ = iris
    prepared = tp.prepare("radius", model)
    first, second = prepared.ask(X), prepared.ask(X)
    first.header["model"]["fingerprint"] = first.header["question"]["kind"] = "other"
    first.lower[:] = first.values[:] = -1.0  # type: ignore[index]
    assert content(second) == content(tp.radius(model, X))


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (("find",), {}, "'kind' must be 'verify' or 'radius'"),
        (("verify",), {}, "'perturbation' must say how rows may change"),
        (("radius", tp.LInf(0.1)), {}, "without a limit"),
        (
            ("verify", tp.LInf(0.1)),
            {"search": tp.PaperProtocol(first_eps=0.1)},
            "for radii, or left out",
        ),
        (("radius", None), {"time_limit_s": 0.0}, "'time_limit_s' must be positive"),
        (("radius", None), {"attacker_class": 7}, "'attacker_class' must be one of"),
        (("radius", tp.LInf(scale=[1.0])), {}, "one per feature"),
    ],
)
def test_wrong_questions_are_refused_before_any_row(
    iris: Any, arguments: tuple[Any, ...], options: dict[str, Any], sentence: str
) -> None:
    kind, *perturbation = arguments
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.prepare(kind, iris[0], *perturbation, **options)


def test_shown_changes_are_made_when_they_are_asked_for(
    iris: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, X, y = iris
    made, real = [], shown.shown_points

    def counted(*arguments: Any) -> Any:
        made.append(1)
        return real(*arguments)

    monkeypatch.setattr(shown, "shown_points", counted)
    found = tp.radius(model, X, y)
    assert found.summary()
    assert not made
    assert found.changes(0)
    assert len(made) == 1  # of that row alone
    expected = found.as_shown.copy()
    assert np.isfinite(expected[~np.isnan(found.witness).all(axis=1)]).all()
    assert len(made) == 2
    # Tables that are sent away, joined or cut have them.
    for other in (
        pickle.loads(pickle.dumps(tp.radius(model, X, y))),
        Results.join([tp.radius(model, X, y)]),
    ):
        n_made = len(made)
        np.testing.assert_array_equal(other.as_shown, expected)
        assert len(made) == n_made
    taken = tp.radius(model, X, y).take([2, 0])
    n_made = len(made)
    np.testing.assert_array_equal(taken.as_shown, expected[[2, 0]])
    assert len(made) == n_made + 1
    with pytest.raises(AttributeError, match="'Results' object has no attribute 'shwn'"):
        found.shwn  # noqa: B018 - the access is the test


def test_what_was_asked_before_is_not_asked_again(iris: Any) -> None:
    """The last question about a model is kept: whatever differs is another one."""
    model, rows, _ = iris
    limits = [0.1, 0.3, np.full(len(rows), 0.1), np.full(len(rows), 0.3)]
    asked = [tp.LInf(limit) for limit in limits]
    asked += [tp.LInf(0.3, frozen=[0]), tp.LInf(0.3, scale=[2.0] * 4), tp.LInf(0.3, below=0.0)]
    asked += [tp.LInf(0.3, scale=np.full(4, 2.0)), tp.L1(0.3), tp.L1(limits[2]), tp.L1(limits[3])]
    expected = [Question(kind="verify", perturbation=one).answer(model, rows) for one in asked]
    order = [*range(len(asked)), *reversed(range(len(asked)))]
    for number in [place for place in order for _ in range(2)]:
        found = tp.verify(model, rows, None, asked[number])
        assert content(found) == content(expected[number])
    scale = np.ones(4)
    ball = tp.LInf(0.3, scale=scale)
    tp.verify(model, rows, None, ball)
    scale[:] = 2.0
    found = tp.verify(model, rows, None, tp.LInf(0.3, scale=scale))
    assert found.verdict.tolist() == expected[5].verdict.tolist()
