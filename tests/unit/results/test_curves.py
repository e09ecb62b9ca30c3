import numpy as np
import pytest

from tests.report.made_runs import many_rows, six_rows
from treeproof.results import curves

RADII = [0.0, 0.1, 0.2, 0.25, 0.3, 0.5, 1.0, 2.0]
CERTIFIED = [5, 4, 3, 3, 2, 1, 1, 1]
RESISTING = [5, 5, 5, 5, 4, 3, 2, 2]
"""Of six rows: the attained 0.5 falls at 0.5, the approached 0.25 only beyond 0.25."""


def test_both_sides_are_counted_as_the_bounds_say():
    results = six_rows()
    assert np.round(6 * curves.certified_share(results, RADII)).tolist() == CERTIFIED
    assert np.round(6 * curves.resisting_share(results, RADII)).tolist() == RESISTING


def test_the_certified_side_is_the_verified_error_of_the_results():
    results = many_rows(300)
    radii = np.concatenate([results.lower[::7], np.nextafter(results.lower[::7], 0), [0.0, 9.0]])
    errors = [results.verified_error(radius) for radius in radii]
    assert curves.certified_share(results, radii) == pytest.approx(1.0 - np.array(errors))


def test_rows_verified_at_a_radius_are_certified_there():
    results = six_rows(kind="verify")
    results.verdict[:] = "verified"
    results.lower[:] = 0.5
    results.upper[:] = np.inf
    assert curves.certified_share(results, [0.5, 0.6]).tolist() == [1.0, 0.0]


def test_the_clean_share_is_the_accuracy_where_labels_are_known():
    results = six_rows()
    assert curves.clean_share(results) == pytest.approx(5 / 6)
    results.predicted = None
    assert curves.clean_share(results) == pytest.approx(5 / 6)
    results.header["question"]["kind"] = "verify"
    assert curves.clean_share(results) is None


def test_changes_are_what_differs_between_row_and_witness():
    results = six_rows()
    assert curves.changed_features(results).tolist() == [
        [True, False],
        [True, True],
        [False, False],
        [False, True],
        [False, False],
        [False, False],
    ]
    results.values[0, 1] = results.witness[0, 1] = np.nan
    assert curves.changed_features(results)[0].tolist() == [True, False]
    results.values = None
    assert curves.changed_features(results) is None


def test_boxes_have_no_radii():
    results = six_rows()
    assert curves.has_radii(results)
    results.lower[:] = np.nan
    assert not curves.has_radii(results)


def test_what_has_no_bound_is_not_proved():
    results = six_rows()
    results.verdict[:] = "unknown"
    results.exact[:] = results.attained[:] = False
    results.lower[:] = [0.5, 0.5, 0.5, np.nan, np.nan, np.nan]
    assert curves.certified_share(results, [0.0, 0.4, 9.0]).tolist() == [0.5, 0.5, 0.0]
    assert results.verified_error(0.4) == 0.5


def test_a_box_has_no_radii_even_where_a_row_failed():
    results = six_rows(kind="verify", perturbation={"name": "Box", "low": 0.0, "high": 1.0})
    results.lower[:] = results.upper[:] = np.nan
    results.lower[2], results.upper[2] = 0.0, np.inf
    assert not curves.has_radii(results)


def test_only_attacked_rows_count():
    results = six_rows(attacker_class="spam")
    spam = results.label == "spam"
    assert 0 < spam.sum() < 6
    alone = results.take(spam)
    alone.header = results.header | {
        "question": results.header["question"] | {"attacker_class": None}
    }
    for share in (curves.certified_share, curves.resisting_share):
        assert share(results, RADII).tolist() == share(alone, RADII).tolist()
    assert curves.clean_share(results) == curves.clean_share(alone)
    assert results.verified_error(0.25) == alone.verified_error(0.25)
    assert results.average_lower_bound == alone.average_lower_bound
    first = results.summary().splitlines()[0]
    assert first.startswith(f"{spam.sum()} of 6 rows attacked, the others stay as they are: ")
    assert first.partition(": ")[2] == alone.summary().splitlines()[0].partition(": ")[2]


def test_where_no_row_is_attacked_nothing_is_proved():
    results = six_rows(attacker_class="eggs")
    assert curves.certified_share(results, [0.0]).tolist() == [0.0]
    assert curves.resisting_share(results, [9.0]).tolist() == [1.0]
    assert curves.clean_share(results) is None
    assert results.verified_error(0.0) == 1.0
    assert np.isnan(results.average_lower_bound)
    assert results.summary().startswith("0 of 6 rows attacked")
