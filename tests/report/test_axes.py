import math

import numpy as np
import pytest

from treeproof.report.axes import Axis, axis_for, round_number


@pytest.mark.parametrize("axis", [Axis(high=3.0), Axis(high=50.0, bend=0.1)])
def test_places_and_radii_are_inverse(axis):
    for radius in (0.0, 0.01, 0.3, 2.5):
        assert axis.radius(axis.position(radius)) == pytest.approx(radius, abs=1e-12)
    assert axis.position(axis.high) == pytest.approx(1.0)
    assert axis.position(1e9) == 1.0


@pytest.mark.parametrize("axis", [Axis(high=0.35), Axis(high=7.3, bend=0.05), Axis(high=1e-7)])
@pytest.mark.parametrize("gap", [0.11, 0.2])
def test_ticks_are_round_start_at_zero_and_keep_their_distance(axis, gap):
    ticks = axis.ticks(gap)
    assert ticks[0] == 0.0
    assert len(ticks) >= 3
    places = [axis.position(tick) for tick in ticks]
    assert np.diff(places).min() >= gap * 0.99
    assert ticks[-1] <= axis.high * (1 + 1e-9)


def test_the_axis_bends_only_for_skewed_radii():
    assert math.isinf(axis_for(np.linspace(0.1, 1.0, 50)).bend)
    assert math.isfinite(axis_for(np.geomspace(1e-4, 10.0, 50)).bend)
    assert axis_for(np.array([0.0, np.inf, np.nan])).high == 1.0


def test_round_numbers():
    assert round_number(0.113) == pytest.approx(0.1)
    assert round_number(0.38) == pytest.approx(0.5)
    assert round_number(0.0211, up=True) == pytest.approx(0.05)
    assert round_number(0.0) == 1.0
