"""The page about many runs: order, shares, what is refused, and that nothing breaks out of it."""

import datetime
import re

import numpy as np
import pytest

import treeproof as tp
from tests.report.made_runs import EVIL, attacked_rows, many_rows, six_rows
from tests.report.test_page import read, words


def dated(day, results=None, **question):
    results = six_rows(**question) if results is None else results
    results.header["date"] = day
    return results


def render(runs, tmp_path, **options):
    page = tmp_path / "trend.html"
    tp.write_trend(runs, page, **options)
    return page.read_text(encoding="utf-8")


def saved(results, tmp_path, name):
    results.save(tmp_path / f"{name}.jsonl")
    return tmp_path / f"{name}.jsonl"


def cells(page, row):
    body = page[page.index("<tbody>") :]
    line = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)[row]
    return [re.sub(r"<[^>]+>", "", cell).split() for cell in re.findall(r"<t[hd].*?</t[hd]>", line)]


def better():
    """Six rows of which one more is proved at 0.2."""
    results = six_rows()
    results.lower[3] = 0.6
    return results


def test_runs_stand_in_the_order_of_their_days_with_their_shares(tmp_path):
    new = saved(dated("2026-09-02", better()), tmp_path, "september")
    old = saved(dated("2026-08-03"), tmp_path, "august")
    page = render([new, old], tmp_path, at=0.15, date=datetime.date(2026, 10, 1))
    text = words(page)
    assert "Trend of 2 runs · 1 October 2026" in text
    # Of six rows one is wrong as it stands, and of one the bound of 0.1 becomes 0.6.
    first, second = cells(page, 0), cells(page, 1)
    assert first[0] == ["august", "3", "August", "2026"]
    shares = [[" ".join(cell) for cell in line] for line in (first, second)]
    assert [line[1].replace("\u00a0", " ") for line in shares] == ["66.6 %", "83.3 %"]
    assert [line[2] for line in shares] == ["–", "+16.7 points"]
    assert [line[4].replace("\u00a0", " ") for line in shares] == ["83.3 %", "83.3 %"]
    assert [line[5] for line in shares] == ["6", "6"]
    assert [line[6] for line in shares] == ["–", "the same"]
    assert "+16.7 points since the first" in text
    assert "From no run to the next does it fall." in text


def test_points_are_drawn_where_the_shares_are(tmp_path):
    runs = [dated(f"2026-08-{k:02}", many_rows(200, seed=k)) for k in (1, 2, 3)]
    page = render(runs, tmp_path, at=0.2)
    chart = page[page.index('class="chart wide"') : page.index('class="chart narrow"')]
    found = re.findall(r'class="point" cx="([\d.]+)" cy="([\d.]+)"', chart)
    shares = [float(np.mean(run.lower > 0.2)) for run in runs]
    heights = np.array([float(y) for _, y in found])
    gaps = np.diff(heights) / np.diff(shares)
    assert gaps == pytest.approx(np.full(2, gaps[0]), rel=1e-3)
    assert gaps[0] < 0.0  # more is higher up
    across = np.array([float(x) for x, _ in found])
    assert np.diff(across) == pytest.approx(np.full(2, across[1] - across[0]))


def test_a_fall_is_named_and_other_rows_are_told(tmp_path):
    runs = [
        dated("2026-08-01", better()),
        dated("2026-08-02"),
        dated("2026-08-03", many_rows(40, 2)),
    ]
    runs[2].header["model"]["feature_names"] = ["width", "height"]
    text = words(render(runs, tmp_path, at=0.15))
    assert "The largest fall is −16.7 points, from xgboost 1 (1 August 2026) to xgboost 2" in text
    assert "others" in text


def test_the_radius_is_that_of_the_runs(tmp_path):
    at = {"name": "LInf", "eps": 0.25, "frozen": [], "low": "-inf", "high": "inf"}
    verified = [dated(f"2026-08-0{k}", kind="verify", perturbation=at) for k in (1, 2)]
    assert "at radius 0.25" in words(render(verified, tmp_path))
    assert "at radius 0.25" in words(render([*verified, dated("2026-08-03")], tmp_path))
    with pytest.raises(tp.InvalidInput, match=r"is verified at radius 0\.25 only\. Got a trend at"):
        render(verified, tmp_path, at=0.5)


def test_what_cannot_be_compared_is_refused(tmp_path):
    first = dated("2026-08-01")
    frozen = {"name": "LInf", "eps": None, "frozen": [1], "low": "-inf", "high": "inf"}
    unfinished = dated("2026-08-02")
    unfinished.header["state"] = "underway"
    for other, sentence in (
        (dated("2026-08-02", perturbation=frozen), "about the same changes and claim. Its"),
        (dated("2026-08-02", goal={"name": "ScoreChange"}), "about the same changes and claim"),
        (attacked_rows(), "must say what is verified. Got attacks"),
        (unfinished, "must be complete to be compared with"),
    ):
        with pytest.raises(tp.InvalidInput, match=re.escape(sentence)):
            render([first, other], tmp_path)
    for runs in (first, [first]):
        with pytest.raises(tp.InvalidInput, match=r"two runs or more\. Got 1"):
            render(runs, tmp_path)
    with pytest.raises(tp.InvalidInput, match="finite number >= 0"):
        render([first, six_rows()], tmp_path, at=-1.0)
    assert not (tmp_path / "trend.html").exists()


def test_nothing_breaks_out_of_the_page_and_nothing_is_loaded(tmp_path):
    runs = [dated("2026-08-01"), dated(EVIL, six_rows(names=[EVIL, "height"]))]
    for run in runs:
        run.header["model"] |= {"library": EVIL, "library_version": EVIL}
    page = render(runs, tmp_path, title=EVIL)
    found = read(page)
    assert found.scripts == []
    assert "default-src 'none'" in page
    loaded = [value for name, value in found.attributes if name in ("src", "href")]
    assert all(value.startswith("data:") for value in loaded)
    assert "http" not in re.sub(r"http-equiv", "", page)
