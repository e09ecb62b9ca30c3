"""Pictures and tables of groups: what is drawn is what the answers say."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import treeproof as tp
from tests.report.made_runs import many_rows, six_rows
from treeproof.results.curves import certified_share


@pytest.fixture(autouse=True)
def _no_window():
    mpl.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def ticks(ax):
    return [tick.get_text() for tick in ax.get_yticklabels()]


def dots(ax):
    return np.concatenate([np.asarray(part.get_offsets()) for part in ax.collections])


def test_dots_stand_at_the_changes_of_every_row():
    results = many_rows(80, n_features=5)
    ax = results.plot_features(most=2)
    assert ticks(ax)[0] == "f0\n80 rows, by 0.05"
    assert len(ticks(ax)) == 2
    first = dots(ax)[np.round(dots(ax)[:, 1]) == 0]
    assert len(first) == 80
    assert first[:, 0] == pytest.approx(np.full(80, 0.05 / results.values[:, 0].std()))
    assert len(np.unique(first[:, 1])) > 30  # none hides another
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["ham", "spam"]


def test_rows_that_are_wrong_or_unbroken_are_not_drawn():
    ax = six_rows().plot_features()
    # Widths move in rows 0 and 1, heights in rows 1 and 3; row 2 is wrong as it stands.
    assert ticks(ax) == ["width\n2 rows, by 0.375", "height\n2 rows, by 0.625"]
    width = np.std([1.0, 1.0, 4.0, 6.0, 8.0, 0.0])
    assert {round(x, 6) for x in dots(ax)[:, 0]} >= {round(0.5 / width, 6), round(-0.25 / width, 6)}


def test_categories_have_no_size():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"job": pd.Categorical(rng.choice(["a", "b"], 90)), "x": rng.random(90)})
    from lightgbm import LGBMClassifier

    y = (frame.job == "a").astype(int)
    model = LGBMClassifier(n_estimators=3, min_child_samples=2, verbose=-1).fit(frame, y)
    moves = tp.LInf(frozen=["x"], domain=tp.Domain(categorical=["job"]))
    ax = tp.radius(model, frame, y, moves).plot_features()
    assert ticks(ax)[0] == "job\n90 rows"
    assert dots(ax)[:, 0].tolist() == [0.0] * 90
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["no size"]


def test_the_nearest_rows_come_first_with_what_changes():
    from matplotlib import pyplot

    results = six_rows()
    results.id = np.array(list("abcdef"), dtype=object)
    _, own = pyplot.subplots()
    ax = results.plot_rows(most=2, ax=own)
    assert ax is own
    assert ticks(ax) == ["row 1 (b)", "row 0 (a)"]
    assert [bar.get_width() for bar in ax.patches] == [0.25, 0.5]
    said = [text.get_text() for text in ax.texts]
    assert said == [
        "0.25   width: 1 → 0.75 (−0.25), height: 3 → 3.25 (+0.25); becomes ham",
        "0.5   width: 1 → 1.5 (+0.5); becomes spam",
    ]


def test_without_a_changed_row_there_is_no_picture():
    results = six_rows()
    for method in ("plot_features", "plot_rows"):
        with pytest.raises(tp.InvalidInput, match="needs rows that a change breaks"):
            getattr(results[4:], method)()
        with pytest.raises(tp.InvalidInput, match="'most' must be a whole number"):
            getattr(results, method)(most=0)


def test_groups_add_up_to_all_rows():
    results = many_rows(300)
    groups = np.where(results.row % 3 == 0, "old", "young")
    table = results.by_group(groups, eps=0.2)
    assert table["group"].tolist() == ["old", "young"]
    assert table["rows"].tolist() == [100, 200]
    share = (table["rows"] * table["verified"]).sum() / 300
    assert share == pytest.approx(certified_share(results, [0.2])[0])
    assert table["verified"][0] == np.mean(results.lower[groups == "old"] > 0.2)


def test_groups_are_features_values_or_ranges():
    results = six_rows()
    table = results.by_group("width", eps=0.2)
    assert table["group"].tolist() == ["0", "1", "4", "6", "8"]
    assert table["rows"].tolist() == [1, 2, 1, 1, 1]
    assert table["correct"].tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]
    assert table["verified"].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert table["resisting"].tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]
    many = many_rows(200).by_group("f3", eps=0.1)
    assert many["rows"].tolist() == [50] * 4
    ages = many_rows(200).by_group(np.arange(200) // 2, eps=0.1)
    assert ages["group"].tolist() == ["0 to 24", "25 to 49", "50 to 74", "75 to 99"]
    texts = many_rows(200).by_group([f"branch {k % 20}" for k in range(200)], eps=0.1)
    assert texts["rows"].tolist() == [10] * 20
    given = [None, "b", "a", float("nan"), "a", "b"]
    assert results.by_group(given, eps=0.1)["group"].tolist() == ["a", "b", "missing"]
    assert results.by_group(pd.Series(given), eps=0.1)["rows"].tolist() == [2, 2, 2]
    assert results.by_group([2, 10, 2, 2, 2, 10], eps=0.1)["group"].tolist() == ["2", "10"]


def test_a_verdict_needs_no_radius():
    results = six_rows(kind="verify", perturbation={"name": "Box", "low": [0, 0], "high": [9, 9]})
    results.lower[:] = results.upper[:] = np.nan
    table = results.by_group(results.label)
    assert table["group"].tolist() == ["ham", "spam"]
    assert table["verified"].tolist() == [2 / 4, 1 / 2]
    assert table["resisting"].tolist() == [3 / 4, 1.0]
    with pytest.raises(tp.InvalidInput, match="'eps' goes with answers"):
        results.by_group(results.label, eps=0.1)


def test_what_is_no_group_is_refused():
    results = six_rows()
    with pytest.raises(tp.InvalidInput, match="'eps' must say at which radius"):
        results.by_group("width")
    with pytest.raises(tp.InvalidInput, match="'eps' must be a number >= 0"):
        results.by_group("width", eps=-1.0)
    with pytest.raises(tp.InvalidInput, match=r"an entry for each of the 6 rows\. Got shape"):
        results.by_group(["a", "b"], eps=0.1)
    with pytest.raises(tp.InvalidInput, match="depth"):
        results.by_group("depth", eps=0.1)
    results.values = None
    with pytest.raises(tp.InvalidInput, match="The rows are not in these results"):
        results.by_group("width", eps=0.1)


def test_bars_of_groups_are_what_is_verified_and_what_is_open():
    results = six_rows()
    ax = results.plot_groups(results.label, eps=0.2)
    table = results.by_group(results.label, eps=0.2)
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx([*table["verified"], *(table["resisting"] - table["verified"])])
    assert ticks(ax) == ["ham\n4 rows", "spam\n2 rows"]
    assert [text.get_text() for text in ax.texts] == ["50.0\u00a0%", "50.0\u00a0%"]
    assert ax.lines[0].get_xdata().tolist() == table["correct"].tolist()


def test_curves_of_groups_have_one_line_for_each():
    results = many_rows(100)
    ax = results.plot_groups(results.label)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [name.split(",")[0] for name in names] == ["ham", "spam"]
    for line, label in zip(ax.lines, ("ham", "spam"), strict=True):
        own = results[results.label == label]
        assert line.get_ydata() == pytest.approx(certified_share(own, line.get_xdata()))
    dashed = six_rows().plot_groups("width")
    assert "dashed: resisting" in dashed.get_legend().get_title().get_text()


def test_matplotlib_is_named_where_it_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (six_rows().plot_features, six_rows().plot_rows):
        with pytest.raises(tp.BackendMissing, match=r"\[plot\]"):
            draw()
    with pytest.raises(tp.BackendMissing):
        six_rows().plot_groups("width", eps=0.1)
