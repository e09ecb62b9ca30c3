"""Floors and judgements of ways, for links and finishings whose allowance is known by hand."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.unit.checker.provers import cuts_of, floor_in_box, n_multipliers, prover_of
from tests.unit.checker.test_nodes import model, stump
from treeproof.checker.claims import Way, floor_of, happens, ways_of
from treeproof.checker.forest import Forest
from treeproof.errors import CertificateRejected
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance


def classes(link: str = "identity", values: tuple = (1.0, 1.0, 1.0), **changes: Any) -> Forest:
    """Three classes with one leaf each; all numbers are multiples of 1."""
    builder = TreeBuilder(leaf_width=1)
    for output, value in enumerate(values):
        builder.add_tree(
            feature=[-1], threshold=[0.0], left=[-1], right=[-1], flags=[0],
            value=np.array([[value]]), output=output, category_set=[-1],
        )  # fmt: skip
    decision = {"kind": "argmax", "link": link}
    decision |= {k: changes.pop(k) for k in ("link_divisor", "link_scale") if k in changes}
    settings = {"precision": "float64", "start": (0.0, 0.0, 0.0)} | changes
    return Forest(
        Ensemble(
            trees=builder.finish(),
            n_features=1,
            n_outputs=3,
            input_precision="float64",
            aggregation=Aggregation(**settings),
            decision=Decision(**decision),  # type: ignore[arg-type]
            classes=(0, 1, 2),
            provenance=Provenance(library="test"),
        )
    )


def way(winner: int, loser: int) -> Way:
    return Way("class", {winner: 1, loser: -1}, 0.0, winner, (loser,))


def floor(forest: Forest, winner: int, loser: int, error: int = 0, peak: float = 8.0) -> Fraction:
    units = int(Fraction(peak) / forest.unit)
    errors, peaks = dict.fromkeys(range(3), error), dict.fromkeys(range(3), units)
    return floor_of(forest, way(winner, loser), errors, peaks) * forest.unit


def test_a_later_class_needs_more_and_an_earlier_one_as_much():
    for link in ("identity", "softmax_float32", "softmax_float64", "sigmoid_float64"):
        assert floor(classes(link), 2, 1) == 1  # the next multiple of the grid
    assert floor(classes(), 1, 2) == 0
    unit = classes().unit
    assert floor(classes(), 2, 1, error=3) == (1 - 6) * unit
    assert floor(classes(), 1, 2, error=3) == -6 * unit


@pytest.mark.parametrize(
    ("link", "lost"),
    [("softmax_float32", Fraction(1, 2**20)), ("softmax_float64", Fraction(1, 2**49))],
)
def test_a_softmax_may_merge_neighbours(link, lost):
    unit = classes().unit
    error = 1  # sums that may be rounded are not on the grid
    assert abs(floor(classes(link), 1, 2, error) + lost + 2 * error * unit) <= unit
    wide = classes(link, link_divisor=4.0)
    rounding = 8 * (8 + unit) / 2**53
    assert abs(floor(wide, 1, 2, error) + 4 * lost + rounding + 2 * error * unit) <= unit
    assert floor(classes(link), 1, 2) == 0  # on a grid of 1 nothing is that near
    fine = classes(link, values=(2.0**-20,) * 3)
    assert floor(fine, 1, 2, error) == -lost - 2 * error * fine.unit


def test_a_sigmoid_may_merge_more_the_larger_it_gets():
    unit = classes().unit
    forest = classes("sigmoid_float64", link_scale=2.0)
    merged = (1 + np.exp(16.0)) / 2.0**49 / 2.0 + 64 / 2.0**52
    assert float(-floor(forest, 1, 2, 1) - 2 * unit) == pytest.approx(merged, rel=1e-4, abs=1e-11)
    assert float(-floor(forest, 1, 2, 1, peak=400.0)) == pytest.approx(800.0)
    assert float(-floor(forest, 1, 2, 1, peak=349.0)) > 800.0


@pytest.mark.parametrize(("precision", "bits"), [("float32", 24), ("float64", 53)])
def test_finishing_rounds_margins(precision, bits):
    unit = classes().unit
    for finish, scale in (("divide", Fraction(1, 4)), ("affine", Fraction(1, 4))):
        settings = {"divisor": 4.0, "scale": 0.25, "bias": (1.0, -2.0, -2.0)}
        forest = classes(finish=finish, precision=precision, **settings)
        largest = (8 + unit) * scale + (2 if finish == "affine" else 0)
        lost = 8 * largest / 2**bits / scale
        assert abs(floor(forest, 1, 2, 1) + lost + 2 * unit) <= unit
        assert floor(forest, 2, 1) == 1
        merged = classes("softmax_float32", finish=finish, precision=precision, **settings)
        lost += Fraction(1, 2**20) / scale
        assert abs(floor(merged, 1, 2, 1) + lost + 2 * unit) <= unit
    uneven = classes(finish="affine", scale=0.5, bias=(0.0, 1.0, 0.0))
    assert floor(uneven, 2, 1) == 2  # 0.5 a + 0 against 0.5 b + 1
    assert floor(uneven, 1, 2) == -2


def test_a_target_must_beat_all_others():
    forest = classes()
    target = Way("class 1", {1: 2, 0: -1, 2: -1}, 0.0, 1, (0, 2))
    none = dict.fromkeys(range(3), 0)
    assert floor_of(forest, target, none, none) * forest.unit == 1  # 1 against 0, 0 against 2
    assert not happens(forest, target, [2.0, 2.0, 0.0])
    assert not happens(forest, target, [0.0, 2.0, 3.0])
    assert happens(forest, target, [1.0, 2.0, 2.0])


def test_ways_happen_by_the_models_own_rule():
    assert not happens(classes(), way(2, 1), [0.0, 1.0, 1.0])
    assert happens(classes(), way(1, 2), [0.0, 1.0, 1.0])
    assert happens(classes(), way(0, 1), [-1.0, -2.0, 3.0])
    assert not happens(classes(), way(0, 1), [1.0, 2.0, 0.0])
    assert not happens(classes(), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-52])
    assert happens(classes("softmax_float32"), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-21])
    assert happens(classes("softmax_float32"), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-20])
    assert not happens(classes("softmax_float32"), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-19])
    assert happens(classes("softmax_float64"), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-50])
    assert happens(classes("softmax_float64"), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-49])
    assert not happens(classes("softmax_float64"), way(1, 2), [0.0, 1.0, 1.0 + 2.0**-48])
    assert not happens(classes("softmax_float32"), way(2, 1), [0.0, 1.0, 1.0])
    # Both sigmoids are 1.0; and the divisor brings them apart again.
    assert happens(classes("sigmoid_float64"), way(1, 2), [0.0, 50.0, 60.0])
    assert not happens(classes("sigmoid_float64"), way(2, 1), [0.0, 60.0, 50.0])
    apart = classes("sigmoid_float64", link_divisor=64.0)
    assert not happens(apart, way(1, 2), [0.0, 50.0, 60.0])
    scaled = classes("sigmoid_float64", link_divisor=64.0, link_scale=64.0)
    assert happens(scaled, way(1, 2), [0.0, 50.0, 60.0])


KEEP: Any = type("Claim", (), {"goal": ("keep", 0), "row": [0.0]})()


@pytest.mark.parametrize(
    "settings",
    [
        {"finish": "affine", "scale": -0.5, "bias": (0.0, 0.0, 0.0)},
        {"finish": "affine", "scale": 0.0, "bias": (0.0, 0.0, 0.0)},
        {"finish": "divide", "divisor": -2.0},
    ],
)
def test_scores_must_rise_with_sums(settings):
    with pytest.raises(CertificateRejected, match="scores that fall when sums rise"):
        ways_of(classes(**settings), KEEP)


@pytest.mark.parametrize("rounded_output", [1, 2])
def test_one_rounded_sum_takes_a_difference_off_the_grid(rounded_output):
    forest = classes("softmax_float32")
    errors, peaks = dict.fromkeys(range(3), 0) | {rounded_output: 3}, dict.fromkeys(range(3), 9)
    assert floor_of(forest, way(2, 1), errors, peaks) == 1 - 3
    assert floor_of(forest, way(1, 2), errors, peaks) == -(forest.grid >> 20) - 3


def test_scores_of_a_sigmoid_are_scaled_before_and_rounded_then():
    # On a fine grid both parts show: what the sigmoid merges, and what its scaling rounds.
    small = (2.0**-20, 2.0**-20, 2.0**-20)
    for scale, divisor in ((1.0, 1.0), (4.0, 1.0), (1.0, 4.0)):
        settings = {"link_scale": scale, "link_divisor": divisor}
        forest = classes("sigmoid_float64", values=small, **settings)
        factor = scale / divisor
        merged = (1 + np.exp(factor)) / 2.0**49 / factor + 8 / 2.0**52
        merged += 8 / 2.0**53 if divisor != 1.0 else 0.0
        assert float(-floor(forest, 1, 2, 1, peak=1.0)) == pytest.approx(merged, rel=1e-3, abs=0.0)
    # The exponent is rounded up by more than all floats on the way to it are rounded.
    merged = (1 + np.exp(100.0 + 100.0 * 2.0**-20)) / 2.0**49 + 800 / 2.0**52
    found = -floor(classes("sigmoid_float64", values=small), 1, 2, 1, peak=100.0)
    assert float(found) == pytest.approx(merged, rel=1e-5, abs=0.0)


@pytest.mark.parametrize("larger", [1, 2])
def test_the_larger_of_two_sums_is_rounded_more(larger):
    forest = classes(finish="divide", divisor=4.0, precision="float32")
    errors = dict.fromkeys(range(3), 1)
    peaks = dict.fromkeys(range(3), forest.grid) | {larger: 64 * forest.grid}
    assert floor_of(forest, way(1, 2), errors, peaks) == -8 * 64 * (forest.grid >> 24) - 2


def test_a_rounded_sum_is_not_on_the_grid():
    forest = Forest(model(stump(0, 0.0, 1.0)))
    for weight, exact, rounded in ((1, forest.grid, forest.grid // 4), (-1, 0, -forest.grid // 4)):
        quarter = Way("way", {0: weight}, 0.25)
        assert floor_of(forest, quarter, {0: 0}, {0: 9}) == exact
        assert floor_of(forest, quarter, {0: 5}, {0: 9}) == rounded - 5


def test_a_sum_that_reaches_the_cut_breaks_the_claim():
    forest = Forest(model(stump(0, 0.0, 1.0)))
    rise, fall = Way("rise", {0: 1}, 1.0), Way("fall", {0: -1}, 1.0)
    below, above = np.nextafter(1.0, [0.0, 2.0]).tolist()
    assert [happens(forest, rise, [total]) for total in (below, 1.0, above)] == [False, True, True]
    assert [happens(forest, fall, [total]) for total in (below, 1.0, above)] == [True, True, False]


def test_a_range_needs_one_output():
    claim: Any = type("Claim", (), {"goal": ("within", ["-0x1p0", "0x1p0"])})()
    with pytest.raises(CertificateRejected, match="a range needs one output"):
        ways_of(classes(), claim)


def test_no_sum_reaches_an_infinite_cut():
    for cut, weight in ((-np.inf, -1), (np.inf, 1)):
        forest = Forest(model(stump(0, -3.0, 7.0)))
        found = floor_in_box(forest, [0.0] * 4, Way("way", {0: weight}, cut), {0: (0, 1)})
        assert found == 7 / forest.unit + 1
        assert floor_of(forest, Way("way", {0: weight}, cut), {0: 5}, {0: 9}) == 9 + 5 + 1 - 5


def test_isolation_scores_have_no_classes():
    with pytest.raises(CertificateRejected, match="isolation scores have no classes"):
        floor(classes(finish="isolation", bias=(-0.5,)), 1, 2)


def test_no_output_may_overflow():
    for values in ((0.0, 2.0**1023, 0.0), (2.0**1023, 0.0, 0.0)):
        with pytest.raises(CertificateRejected, match="class: sums overflow"):
            floor_in_box(classes(values=values), [0.0], way(1, 0), {})
    large = classes(values=(1.0, 2.0**1022, 2.0**1023))
    assert n_multipliers(prover_of(large, [0.0], way(1, 0), {}), {}) == 0


def test_errors_count_towards_overflow():
    largest = 2.0**127 - 2.0**103
    rounded((0.0, largest))
    with pytest.raises(CertificateRejected, match="rise: sums overflow"):
        rounded((0.0, largest), (0.0, 2.0**-10))
    with pytest.raises(CertificateRejected, match="rise: sums overflow"):
        rounded((0.0, 2.0**127))


def test_scores_have_no_classes():
    claim = KEEP
    with pytest.raises(CertificateRejected, match="claim: there is no class 0"):
        ways_of(Forest(model(stump(0, 0.0, 1.0))), claim)


def rounded(*values: tuple[float, float], start: float = 0.0) -> int:
    """Floor of a sum of stumps in float32 over the whole range of their features."""
    ensemble = model(*[stump(k, *pair) for k, pair in enumerate(values)], precision="float32")
    forest = Forest(ensemble)
    box = dict.fromkeys(cuts_of(forest), (0, 1))
    return floor_in_box(forest, [0.0] * 4, Way("rise", {0: 1}, start), box)


@pytest.mark.parametrize(
    "values",
    [
        [(-1.0, 0.5), (-3.0, 2.0**-30)],
        [(0.25, 4.0), (2.0**-30, -1.0), (-8.0, 1.0)],
        [(-1.0, -1.0 - 2.0**-20), (-(2.0**-28), 0.0)],
        [(1.0, 2.0), (3.0, 4.0)],
        [(0.0, 2.0**24 - 1.0), (0.0, 1.0)],
        [(0.0, 2.0**24 - 1.0), (0.0, 3.0)],
    ],
)
def test_errors_add_up_over_the_largest_partial_sums(values):
    floor = rounded(*values)
    forest = Forest(model(*[stump(k, *pair) for k, pair in enumerate(values)], precision="float32"))
    low = high = Fraction(0)
    error = 0
    for left, right in values:
        low += Fraction(min(left, right))
        high += Fraction(max(left, right))
        units = int(max(abs(low), abs(high)) / forest.unit)
        if error or units > forest.grid * 2**24:
            error += -(-(error + units) // 2**24)
    assert floor == -error
    assert (error == 0) == (values[1] in [(3.0, 4.0), (0.0, 1.0)])
