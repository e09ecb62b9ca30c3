import math

import numpy as np
import pytest

from treeproof.results.numbers import (
    ColumnFormats,
    ShownChange,
    column_format,
    counted,
    decimal_within,
    digits_above,
    digits_below,
    duration,
    exactly,
    number,
    percent,
    percent_down,
    percent_up,
    row_name,
    share_down,
)


def test_rows_are_called_by_number_and_what_is_known():
    assert [row_name(3), row_name(3, ""), row_name(3, "C7"), row_name(3, 0)] == [
        *("3", "3", "3 (C7)", "3 (0)")
    ]


def test_bounds_are_never_shown_nearer_than_they_were_proved():
    random = np.random.default_rng(0)
    spread = random.normal(size=2_000) * 10.0 ** random.integers(-20, 20, 2_000)
    for value in [*spread.tolist(), 0.0, 0.3951806, 2.651369, 12345.678, -12345.678]:
        for digits in (3, 4, 7):
            below, above = digits_below(value, digits), digits_above(value, digits)
            assert below <= value <= above
            assert above - below <= 10.0 ** (1 - digits) * abs(value) * 1.001
    assert f"{digits_above(2.651369, 3):.3g}" == "2.66"
    assert number(digits_below(0.39519)) == "0.3951"
    assert number(digits_below(12345.678)) == "12,345"
    assert digits_below(math.inf) == math.inf
    assert digits_above(0.5, 3) == 0.5
    # What is said with so few digits stays as it is, whatever the doubles next to it are.
    for value in (0.1, 0.3, 0.7, 1.1, 2.3e-7):
        assert digits_below(value) == digits_above(value) == value


def test_one_is_not_several():
    assert [counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (28045.5005, "28,045.5005"),
        (-1234567.0, "−1,234,567"),
        (-0.5, "−0.5"),
        (0.1, "0.1"),
        (1e-35, "1e−35"),
        (0.1 + 0.2, "0.30000000000000004"),
        (math.inf, "∞"),
        (math.nan, "–"),
    ],
)
def test_numbers_with_every_digit(value, text):
    assert exactly(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.125, "0.125"),
        (-0.5, "−0.5"),
        (1e-7, "1e−7"),
        (0.00012345, "0.0001234"),
        (76123.45, "76,123"),
        (1234.5678, "1,235"),
        (999.96, "1,000"),
        (1.5e20, "1.5e20"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (None, "–"),
        (0.0, "0"),
    ],
)
def test_numbers_for_people(value, text):
    assert number(value) == text


def test_shares_of_proofs_are_rounded_down_and_what_is_left_open_up():
    assert percent(0.6642) == "66.4\u00a0%"
    assert percent(None) == "–"
    assert percent_down(9999, 10_000) == "99.9\u00a0%"
    assert percent_down(2, 3) == "66.6\u00a0%"
    assert percent_down(7, 7) == "100.0\u00a0%"
    assert percent_up(1, 10_000) == "0.1\u00a0%"
    assert percent_up(0, 10_000) == "0.0\u00a0%"
    assert percent_down(0, 0) == percent_up(0, 0) == "–"
    assert [share_down(x) for x in (0.99999996, 1.0, 0.29, 2 / 3)] == [
        "99.9999 %",
        "100 %",
        "29 %",
        "66.6666 %",
    ]


def test_times_for_people():
    texts = [duration(s) for s in (5e-6, 0.0123, 2.5, 600.0, math.nan)]
    assert texts == ["5 µs", "12.3 ms", "2.5 s", "10 min", "–"]


def test_whole_numbers_are_written_whole():
    days = column_format([2922, 17, 365.0, np.nan])
    assert days.change(2922, 2915) == ("2,922", "2,915", "−7")
    # What a row becomes has all its digits: whoever types it in means that very number.
    assert days.change(2922, 2914.99999) == ("2,922", "2,914.99999", "−7.00001")
    assert days.change(2922, 2914.5) == ("2,922", "2,914.5", "−7.5")
    assert days.change(17, 16.999999) == ("17", "16.999999", "−0.000001")
    assert days.change(0, 1.00000004e-35) == ("0", "1.00000004e−35", "+1e−35")
    assert days.change(3, 3 + 2**-51) == ("3", "3.0000000000000004", "+0.0000000000000004")
    assert days.change(2922.4, 2922.0) == ("2,922.4", "2,922", "−0.4")
    assert days.text(math.nan) == "missing"
    assert days.text(-1e-9) == "0"


def test_values_have_the_decimals_of_their_column():
    assert column_format([76123.45, 50000.0]).text(50000.0) == "50,000.00"
    assert column_format([61234.123456, 76123.987654]).text(76123.987654) == "76,124"
    assert column_format(np.linspace(0.0, 1.0, 98)).text(0.25) == "0.2500"
    assert column_format(np.float32([0.1, 0.3, 2.7])).text(np.float32(0.3)) == "0.3"
    assert column_format([3.21e-9, 7.65432e-8]).change(3.21e-9, 4e-9) == (
        "3.21e−9",
        "4e−9",
        "+7.9e−10",
    )
    assert column_format([]).text(1.0) == "1.000"
    assert column_format([0.0, 0.0]).text(12.0) == "12"


def test_differences_are_those_of_what_is_shown():
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e3, 1e6):
        column = rng.normal(size=50) * scale
        written = column_format(column)
        for before, after in zip(column, column * rng.uniform(0.5, 1.5, 50), strict=True):
            change = written.change(before, after)
            assert isinstance(change, ShownChange)
            one, other, moved = (
                float(t.replace(",", "").replace("−", "-").replace("+", "")) for t in change
            )
            assert other - one == pytest.approx(moved, abs=1e-9 * scale)
            assert change.before != change.after


@pytest.mark.parametrize(
    ("near", "low", "high", "places", "found"),
    [
        (500.0000305, 500.0000305, 620.0, 2, "500.01"),
        (499.9999695, 480.0, 499.9999695, 2, "499.99"),
        (5.2, 5.2, 5.4, 0, "5.2"),
        (5.2, 5.2, 7.0, 0, "6"),
        (0.25, 0.25, 0.5, 2, "0.25"),
        (0.25, 0.1, 0.25, 2, "0.24"),
        (3.0, 3.0, math.nextafter(3.0, 4.0), 0, "3"),
        (0.1, math.nextafter(0.1, 0.0), 0.1, 1, "None"),  # no step of 17 decimals is as small
        (1e300, 1e300, math.inf, 0, "None"),
        (1.0, 1.0, 1.0, 0, "None"),
    ],
)
def test_the_shortest_number_of_an_interval_is_inside(near, low, high, places, found):
    shown = decimal_within(near, low, high, places)
    assert str(shown) == found
    assert shown is None or low <= float(str(shown)) < high


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_are_whole():
    assert column_format([1.7e308, 2.0, 3.0]).decimals == 0
    assert column_format([1.7e308, 2.25, 3.0]).decimals == 2
    assert column_format([1e308, 1.5e308]).decimals == 0


def test_every_column_has_its_own_format():
    rows = np.array([[1.0, 0.25], [2.0, 0.75]])
    assert [form.decimals for form in ColumnFormats(rows)] == [0, 2]
