import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from tests.report.made_runs import EVIL, many_rows, six_rows


@pytest.fixture(autouse=True)
def _no_window():
    mpl.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_a_display_draws_both_sides_and_the_gap():
    display = tp.VerifiedAccuracyDisplay.from_results(six_rows(), name="spam filter", color="red")
    assert display.line_.get_color() == "red"
    assert display.resisting_line_ is not None
    assert display.gap_ is not None
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["spam filter (certified)", "spam filter (resisting)"]
    assert display.ax_.get_xlabel() == "radius"
    steps = dict(zip(display.radii, display.certified, strict=True))
    assert steps[0.25] == pytest.approx(3 / 6)
    assert steps[np.nextafter(0.25, 1)] == pytest.approx(2 / 6)


def test_exact_radii_give_one_line():
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    display = many_rows(1000).plot(ax=ax)
    assert display.ax_ is ax
    assert len(ax.lines) == 1
    assert display.gap_ is None
    assert np.all(np.diff(display.certified) <= 0.0)


def test_radii_can_be_chosen():
    display = six_rows().plot(radii=[0.5, 0.0])
    assert display.radii.tolist() == [0.0, 0.5]
    assert np.round(6 * display.certified).tolist() == [5.0, 1.0]
    with pytest.raises(tp.InvalidInput, match="'radii' must be"):
        six_rows().plot(radii=[-1.0])


def test_boxes_have_no_curve():
    results = six_rows()
    results.lower[:] = np.nan
    with pytest.raises(tp.InvalidInput, match="needs results with radii"):
        results.plot()


def test_notebooks_show_a_summary_and_the_weakest_rows():
    results = six_rows()
    results.label[2] = EVIL
    html = results._repr_html_()
    assert html.count("<tr>") == 6
    assert "<td>0.25</td>" in html
    assert "5 of 6 rows" in html
    assert "<script>" not in html
    assert "already broken 1" in html


def test_notebooks_show_curve_and_changes_with_names() -> None:
    frame = pd.DataFrame({"amount": [10.0, 2922.0, 500.0, 4000.0], "hour": [1.0, 5.0, 9.0, 20.0]})
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(frame, [0, 1, 0, 1]))
    html = tp.radius(model, frame)._repr_html_()
    assert "<svg" in html
    assert "amount: 2,922 → 1,711 (−1,211)" in html
    assert "becomes" in html
    boxes = tp.verify(model, frame, None, tp.Box([0.0, 0.0], [5000.0, 24.0]))._repr_html_()
    assert "<svg" not in boxes
    assert "lower" not in boxes  # a box has no bounds, and none of its rows is the nearest


def test_notebooks_show_broken_rows_of_verdicts_first() -> None:
    X = np.arange(40.0)[:, np.newaxis]
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, X[:, 0] >= 30.0))
    for moves in (tp.LInf(2.0), tp.Box(X - 2.0, X + 2.0)):
        html = tp.verify(model, X, None, moves)._repr_html_()
        rows = re.findall(r"<tr><td>(\d+)</td><td>\w+</td><td>(\w+)</td>", html)
        assert rows[:4] == [(str(row), "falsified") for row in (28, 29, 30, 31)]
        assert rows[4] == ("0", "verified")
        assert "5 of 40 rows, broken ones first." in html


def test_notebooks_show_attacked_rows_first() -> None:
    X = np.arange(40.0)[:, np.newaxis]
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, (X[:, 0] >= 30.0).astype(int)))
    wrong = (X[:, 0] >= 28.0).astype(int)  # rows 28 and 29 are broken, and of the other class
    html = tp.radius(model, X, 1 - wrong, attacker_class=0)._repr_html_()
    rows = re.findall(r"<tr><td>(\d+)</td><td>(\d)</td>", html)
    assert [label for _, label in rows] == ["0"] * 5


def test_notebooks_show_reasons_and_single_features() -> None:
    frame = pd.DataFrame({"amount": [10.0, 2922.0, 500.0, 4000.0] * 2, "<b>": np.arange(8.0)})
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(frame, [0, 1, 0, 1] * 2))
    reasons = tp.reasons(model, frame)
    assert repr(reasons) == "<treeproof.Reasons: 8 rows: 8 sets proved to fix the answer>"
    html = reasons._repr_html_()
    assert reasons.sentence(0).replace("'", "&#x27;") in html
    assert "The first 5 of 8 rows." in html
    assert "<th>id</th>" not in html
    reasons.id = np.array([f"C{row}" for row in range(8)], dtype=object)
    assert re.search(r"<tr><td>0</td><td>C0</td><td>0</td>", reasons._repr_html_())
    alone = tp.feature_radius(model, frame[:2])
    assert repr(alone).startswith("<treeproof.FeatureResults: 2 rows, 2 features: on average 1")
    html = alone._repr_html_()
    assert "amount by 1,701" in html
    assert "first" not in html
    nothing = tp.unimportant_features(model, frame[["amount", "<b>"]], None, tp.LInf(1.0))
    assert "no feature that moves" in nothing._repr_html_()


def test_notebooks_show_fragile_rows_first_and_wrong_ones_apart() -> None:
    X = np.arange(40.0)[:, np.newaxis]
    y = (X[:, 0] >= 30.0).astype(int)
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, y))
    y[:2] = 1  # wrong as they stand
    html = tp.radius(model, X, y)._repr_html_()
    rows = re.findall(r"<tr><td>(\d+)</td><td>(\d)</td><td>(\w+)</td>", html)
    assert [row for row, *_ in rows] == ["30", "29", "31", "28", "32"]
    assert "verified" not in html.partition("<table>")[2]
    assert "5 of 40 rows, those with the smallest lower bounds; 2 rows wrong without a" in html
