"""The dual over narrow ranges: the exact bound, and what the plain sweeps and marginals give."""

from fractions import Fraction

import numpy as np
import pytest

from tests.kernels import called
from tests.unit.kernels.test_dual import (
    SEEDS,
    enter_box,
    exact_bound,
    exact_maximum,
    marginals,
    new_state,
    problem_of,
    random_sub_box,
    refresh,
    sweep,
)
from treeproof.kernels.exact.narrow_dual import (
    enter_narrow,
    marginals_narrow,
    new_narrow,
    refresh_narrow,
    sweep_narrow,
)
from treeproof.kernels.exact.problem import GROSS

new_narrow, enter_narrow, sweep_narrow = map(called, (new_narrow, enter_narrow, sweep_narrow))
refresh_narrow, marginals_narrow = map(called, (refresh_narrow, marginals_narrow))


def entered(seed, size=1.0):
    """A problem, and two states in a part box with any multipliers: a plain and a narrow one."""
    problem, _, _, _, rng = problem_of(seed)
    plain, state, narrow = new_state(problem), new_state(problem), new_narrow(problem, True)
    random_sub_box(problem, plain, rng)
    plain.multiplier[:] = size * rng.choice([-1.0, -0.3, 0.0, 0.1, 0.7], len(plain.multiplier))
    state.box[:], state.multiplier[:] = plain.box, plain.multiplier
    enter_box(problem, plain)
    enter_narrow(problem, state, narrow)
    return problem, plain, state, narrow


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_the_error_covers_the_rounding_of_the_bound(seed, size):
    problem, _, state, narrow = entered(seed, size)
    bound, error = refresh_narrow(problem, state, narrow)
    assert abs(exact_bound(problem, state) - Fraction(bound)) <= Fraction(error)
    assert Fraction(bound) + Fraction(error) >= exact_maximum(problem, state)
    # An error that swallows the bound would make every proof fail.
    assert error <= 1e-11 * (problem.terms[GROSS] + size * len(state.multiplier))


@pytest.mark.parametrize("seed", SEEDS)
def test_sweeps_and_marginals_are_the_plain_ones(seed):
    problem, plain, state, narrow = entered(seed)
    tolerance = 1e-9 * (1.0 + problem.terms[GROSS])
    for turn in range(6):
        expected, _ = refresh(problem, plain)
        bound, error = refresh_narrow(problem, state, narrow)
        assert bound == pytest.approx(expected, abs=tolerance)
        marginals(problem, plain)
        marginals_narrow(problem, state, narrow)
        for low, high in state.box:
            inside = slice(low, high + 1)
            assert state.marginal[inside] == pytest.approx(plain.marginal[inside], abs=tolerance)
            assert np.all(state.marginal[inside] <= error)
        swept = sweep_narrow(problem, state, narrow, turn % 2 == 0, bound, -np.inf)
        assert swept == pytest.approx(
            sweep(problem, plain, turn % 2 == 0, expected, -np.inf), abs=tolerance
        )
    assert state.multiplier == pytest.approx(plain.multiplier, abs=tolerance)
