import itertools
import re

import numpy as np

from tests.report.made_runs import attacked_rows, many_rows, six_rows
from treeproof.report.axes import axis_for
from treeproof.report.charts import (
    NARROW,
    WIDE,
    curve_chart,
    quantiles,
    radius_bins,
    radius_chart,
)
from treeproof.report.runs import RunView


def run_of(results, name="run"):
    return RunView(results=results, name=name)


def points(path):
    return [tuple(map(float, pair.split(","))) for pair in re.split("[ML]", path.strip("MZ"))]


def share_at(path, x):
    """Share that a step line shows just right of a pixel."""
    before = [(px, py) for px, py in points(path) if px <= x]
    return 1.0 - (before[-1][1] - WIDE.top) / WIDE.plot_height


def test_the_curve_steps_where_the_counts_do():
    run = run_of(six_rows())
    axis = axis_for(np.array([0.5, 1.0]))
    line = curve_chart([run], axis, WIDE)["lines"][0]
    for radius in (0.02, 0.15, 0.22, 0.4, 0.7):
        x = WIDE.x(axis.position(radius))
        assert (
            abs(share_at(line["certified"], x) - run.n_certified(radius) / len(run.results)) < 1e-3
        )
        assert (
            abs(share_at(line["resisting"], x) - run.n_resisting(radius) / len(run.results)) < 1e-3
        )
    assert line["has_gap"]
    assert not curve_chart([run_of(many_rows(50))], axis, WIDE)["lines"][0]["has_gap"]


def test_many_rows_give_a_path_of_bounded_size():
    run = run_of(many_rows(20_000, 2))
    axis = axis_for(run.results.lower)
    path = curve_chart([run], axis, WIDE)["lines"][0]["certified"]
    assert len(points(path)) < 1500
    x = WIDE.x(0.5)
    assert abs(share_at(path, x) - run.n_certified(axis.radius(0.5)) / len(run.results)) < 0.01


def test_every_row_is_in_one_bar():
    for frame in (WIDE, NARROW):
        run = run_of(six_rows())
        axis = axis_for(np.concatenate([run.results.lower, run.results.upper]))
        bins = radius_bins(run, axis)
        assert (bins.broken, bins.never) == (1, 1)
        assert (bins.settled.sum(), bins.undecided.sum()) == (2, 2)
        bars = radius_chart([run], axis, frame)["bars"]
        assert {bar.kind for bar in bars} == {"broken", "never", "settled", "undecided"}
        for bar in bars:
            assert frame.left <= bar.x <= frame.width - frame.right
            assert bar.y + bar.height <= frame.height - frame.bottom + 0.02
            assert bar.y >= frame.top - 0.02


def test_two_runs_stand_side_by_side():
    runs = [run_of(many_rows(40), "one"), run_of(many_rows(40, seed=1), "other")]
    axis = axis_for(runs[0].results.lower)
    bars = radius_chart(runs, axis, WIDE)["bars"]
    for run in (0, 1):
        assert sum(bar.run == run for bar in bars) > 5
    spans = sorted((bar.x, bar.x + bar.width) for bar in bars)
    assert all(right <= left + 0.05 for (_, right), (left, _) in itertools.pairwise(spans))


def test_quantiles_stay_defined_with_infinite_radii():
    cells = dict(quantiles(run_of(six_rows())))
    assert cells["least"] == "0"
    assert cells["largest"] == "∞"
    assert cells["undecided"] == "33.4\u00a0%"


def test_quantiles_of_bounds_are_never_nearer_than_they_were_proved():
    results = many_rows(3)
    results.lower[:], results.upper[:] = [0.12349, 0.5, 1.9999], np.inf
    assert dict(quantiles(run_of(results)))["least"] == "0.123"
    results.exact[:] = False
    assert [text for _, text in quantiles(run_of(results))[::3]][:3] == ["0.123", "0.5", "1.99"]
    attack = attacked_rows()
    attack.upper[:] = 0.12341
    assert dict(quantiles(run_of(attack))) == dict.fromkeys(
        ("least", "10 %", "25 %", "median", "75 %", "90 %", "largest"), "0.124"
    ) | {"undecided": "–"}


def test_the_last_bar_holds_what_lies_beyond_the_axis():
    results = many_rows(1000)
    results.lower[-1] = results.upper[-1] = 1e9
    chart = radius_chart([run_of(results)], axis_for(results.lower), WIDE)
    last = max(chart["bars"], key=lambda bar: bar.x)
    assert last.words.endswith(" or more")
    assert sum(bar.words.endswith(" or more") for bar in chart["bars"]) == 1


def test_sides_that_part_in_bits_are_one_line():
    results = many_rows(20)
    results.upper[:] = np.nextafter(results.lower, np.inf)  # as of costs
    axis = axis_for(results.lower)
    assert not curve_chart([run_of(results)], axis, WIDE)["lines"][0]["has_gap"]
    results.upper[3] = np.inf
    assert curve_chart([run_of(results)], axis, WIDE)["lines"][0]["has_gap"]


def test_rows_that_never_break_do_not_flatten_the_others():
    results = many_rows(100)
    results.lower[20:] = results.upper[20:] = np.inf
    results.witness[20:] = np.nan
    run = run_of(results)
    chart = radius_chart([run], axis_for(results.lower), WIDE)
    settled = [bar for bar in chart["bars"] if bar.kind == "settled"]
    assert max(bar.height for bar in settled) > 0.99 * WIDE.plot_height
    (never,) = (bar for bar in chart["bars"] if bar.kind == "never")
    assert never.is_cut
    assert never.text == "80"
    assert never.height <= WIDE.plot_height
    # With nothing else to show, they are drawn as they are.
    results.lower[:] = results.upper[:] = np.inf
    chart = radius_chart([run_of(results)], axis_for(results.lower), WIDE)
    assert [bar.is_cut for bar in chart["bars"]] == [False]
