"""What every engine must do, whatever its method; `test_engines.py` runs all of it on each."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tests.oracle import brute_force
from tests.strategies import SMALL, Case, Sizes, random_case
from treeproof.engines.base import Budget, Engine
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.radius import find_radius


def supported_case(engine: Engine, rng: np.random.Generator, sizes: Sizes = SMALL, **ask) -> Case:
    """A random case that the engine does not refuse; smaller until one is found."""
    for attempt in range(200):
        if attempt > 20:
            sizes = dataclasses.replace(sizes, trees=1)
        case = random_case(rng, sizes, **ask)
        if engine.refusal(case.query) is None:
            return case
    raise AssertionError(f"the engine {engine.name} refuses every random question")


def is_inside(query: Query, row: int, point: NDArray[np.float64]) -> bool:
    """Whether a point lies in the closed set, or one float of the input precision outside it."""
    real = np.dtype(query.ensemble.input_precision).type
    low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
    values = query.rows[row]
    for feature, value in enumerate(point):
        if brute_force.is_fixed(query, row, feature):
            same = value == values[feature] or (np.isnan(value) and np.isnan(values[feature]))
            if not same:
                return False
            continue
        with np.errstate(over="ignore"):
            least = np.nextafter(real(low[row, feature]), real(-np.inf))
            most = np.nextafter(real(high[row, feature]), real(np.inf))
        if not least <= real(value) <= most:
            return False
    return True


def check_verdicts(engine: Engine, rng: np.random.Generator, ask: str, n_cases: int) -> None:
    """Verified only where no point breaks the claim, falsified only with a good witness."""
    for _ in range(n_cases):
        case = supported_case(engine, rng, ask=ask)
        outcomes = engine.verify(case.query, Budget())
        for row in range(len(case.query)):
            check_verdict(engine, case.query, row, outcomes)


def may_be_near_tie(query: Query, row: int) -> bool:
    """Whether the link's rounding may decide: it merges margins, one of them the label's own."""
    return query.ensemble.decision.link != "identity" and brute_force.has_near_tie(query, row)


def check_verdict(engine: Engine, query: Query, row: int, outcomes: Results) -> None:
    """Compare one verdict with the oracle."""
    verdict, point = outcomes.verdict[row], brute_force.violation(query, row)
    if verdict == Verdict.VERIFIED:
        assert point is None, f"verified, but {point} breaks the claim"
        assert outcomes.exact[row]
    elif verdict == Verdict.FALSIFIED:
        assert point is not None
        witness = outcomes.witness[row]
        assert brute_force.judge(query, row, witness[np.newaxis])[0]
        assert is_inside(query, row, witness), f"{witness} is outside the set"
        check_witness_label(query, row, outcomes)
        assert outcomes.exact[row]
    else:
        # Where the order of nearly equal margins is up to the rounding of a softmax, which
        # depends on all classes, a complete engine may say so.
        is_near_tie = outcomes.reason[row] == UnknownReason.NEAR_TIE
        assert not engine.is_complete or (is_near_tie and may_be_near_tie(query, row))
        assert outcomes.reason[row] != UnknownReason.NONE
        assert not outcomes.exact[row]
    if verdict != Verdict.FALSIFIED:
        assert np.isnan(outcomes.witness[row]).all()
    if query.reach.is_ball:
        check_bounds_of_ball(query, row, outcomes)
    else:
        assert np.isnan(outcomes.lower[row])
        assert np.isnan(outcomes.upper[row])


def check_witness_label(query: Query, row: int, outcomes: Results) -> None:
    """Witnesses have the label that the plain model gives them; None for scores."""
    label = query.replay(outcomes.witness[row], slice(row, row + 1))[1][0]
    assert outcomes.witness_label[row] == label


def check_bounds_of_ball(query: Query, row: int, outcomes: Results) -> None:
    """The bounds of a verdict at a fixed radius hold for the minimal perturbation."""
    truth = brute_force.radius(query, row)
    assert outcomes.lower[row] <= truth.value
    assert truth.value <= outcomes.upper[row]


def check_radii(engine: Engine, rng: np.random.Generator, n_cases: int) -> None:
    """Lower <= r* <= upper on every row; complete engines give r* itself and its kind."""
    for _ in range(n_cases):
        case = supported_case(engine, rng, ask="radius")
        outcomes = find_radius(engine, case.query, Budget())
        for row in range(len(case.query)):
            check_radius(engine, case.query, row, outcomes)


def check_radius(engine: Engine, query: Query, row: int, outcomes: Results) -> None:
    """Compare one radius with the oracle."""
    truth = brute_force.radius(query, row)
    assert outcomes.lower[row] <= truth.value
    assert outcomes.upper[row] >= np.nextafter(truth.value, -np.inf)
    if engine.is_complete and not (
        outcomes.reason[row] == UnknownReason.NEAR_TIE and may_be_near_tie(query, row)
    ):
        assert outcomes.exact[row]
    if outcomes.exact[row]:
        assert outcomes.lower[row] == outcomes.upper[row]
        assert truth.is_same(outcomes.upper[row], attained=bool(outcomes.attained[row]))
    broken = bool(query.already_broken[row])
    if broken:
        expected = Verdict.FALSIFIED
    else:
        expected = Verdict.VERIFIED if outcomes.exact[row] else Verdict.UNKNOWN
    assert outcomes.verdict[row] == expected
    if np.isfinite(outcomes.upper[row]):
        witness = outcomes.witness[row]
        assert brute_force.judge(query, row, witness[np.newaxis])[0]
        check_witness_label(query, row, outcomes)
        # A witness beyond a threshold that is only approached lies at the next float.
        assert outcomes.witness_distance[row] >= outcomes.upper[row] or not outcomes.exact[row]
    else:
        assert np.isnan(outcomes.witness[row]).all()


def check_protocol(engine: Engine, rng: np.random.Generator, n_cases: int) -> None:
    """The paper's search never claims more than the exact radius."""
    for _ in range(n_cases):
        case = supported_case(engine, rng, ask="radius")
        protocol = PaperProtocol(first_eps=float(rng.choice([0.05, 0.3])), steps=6)
        outcomes = find_radius(engine, case.query, Budget(), protocol=protocol)
        for row in range(len(case.query)):
            truth = brute_force.radius(case.query, row)
            lower = outcomes.lower[row]
            assert (
                lower < truth.value
                or (lower == truth.value and not truth.attained)
                or (lower == 0.0)
            )
            assert outcomes.upper[row] >= truth.value
            assert lower <= protocol.cap or lower == protocol.first_eps


def check_larger_sets_are_harder(engine: Engine, rng: np.random.Generator, n_cases: int) -> None:
    """What is verified at a radius is not falsified at a smaller one, and bounds do not rise."""
    for _ in range(n_cases):
        case = supported_case(engine, rng, ask="ball", own_labels=True)
        query = case.query
        reach = dataclasses.replace(query.reach, radius=(query.reach.radius or 0.0) / 2)
        smaller = engine.verify(dataclasses.replace(query, reach=reach), Budget())
        larger = engine.verify(query, Budget())
        for row in range(len(query)):
            if larger.verdict[row] == Verdict.VERIFIED:
                assert smaller.verdict[row] == Verdict.VERIFIED


def check_determinism(engine: Engine, rng: np.random.Generator) -> None:
    """The same question gives the same answer, again and with other thread counts."""
    sizes = dataclasses.replace(SMALL, rows=8)
    for ask in ("ball", "box"):
        case = supported_case(engine, rng, sizes, ask=ask)
        first = engine.verify(case.query, Budget())
        for n_jobs in (1, 2, 3):
            assert_same(first, engine.verify(case.query, Budget(), n_jobs=n_jobs))
    case = supported_case(engine, rng, sizes, ask="radius")
    first = find_radius(engine, case.query, Budget())
    for n_jobs in (1, 2):
        assert_same(first, find_radius(engine, case.query, Budget(), n_jobs=n_jobs))


def assert_same(first: Results, second: Results) -> None:
    """Require equal answers in every column but the time."""
    for name in ("verdict", "reason"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()
    for name in ("lower", "upper", "exact", "attained", "witness", "witness_distance"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def check_budgets(engine: Engine, rng: np.random.Generator, n_cases: int) -> None:
    """With next to nothing to spend, answers may be unknown but are never wrong."""
    for budget in (Budget(node_limit=1), Budget(time_limit_s=1e-9), Budget(memory_limit_mb=1e-6)):
        for _ in range(n_cases):
            case = supported_case(engine, rng, ask="ball")
            outcomes = engine.verify(case.query, budget)
            for row in range(len(case.query)):
                point = brute_force.violation(case.query, row)
                if outcomes.verdict[row] == Verdict.VERIFIED:
                    assert point is None
                elif outcomes.verdict[row] == Verdict.FALSIFIED:
                    assert point is not None
                else:
                    assert outcomes.reason[row] != UnknownReason.NONE
            radii = supported_case(engine, rng, ask="radius")
            found = find_radius(engine, radii.query, budget)
            for row in range(len(radii.query)):
                truth = brute_force.radius(radii.query, row)
                assert found.lower[row] <= truth.value <= found.upper[row]


def check_refusals(engine: Engine, rng: np.random.Generator) -> None:
    """A refusal is a sentence; what is not refused is answered."""
    for _ in range(20):
        sentence = engine.refusal(random_case(rng, ask="ball").query)
        assert sentence is None or (sentence.endswith(".") and len(sentence) > 20)
