"""The experiments that repeat the paper: partial results, and the radii that it prints."""

from types import SimpleNamespace

import numpy as np
import pytest
from experiments.paper import __main__ as command
from experiments.paper import measuring, store, tables
from experiments.paper.measuring import Budget, Measured
from experiments.paper.printed import DATASETS
from sklearn.tree import DecisionTreeClassifier

import treeproof
from tests.paper_data import paper_data
from treeproof.results.verdict import UnknownReason


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CACHE", tmp_path)
    rows = store.Store("rows")
    monkeypatch.setattr(measuring, "ROWS", rows)
    return rows


def test_finished_rows_survive(cache):
    cache.add("model exact", 3, lower=0.25, upper=0.25)
    cache.add("model exact", 4, lower=0.5, upper=0.75)
    with cache.path.open("a") as file:
        file.write('{"key": "model exact", "row": 5, "lo')
    again = store.Store("rows")
    assert set(again.of("model exact")) == {3, 4}
    assert again.of("model exact")[4]["upper"] == 0.75
    assert again.of("another model") == {}


def test_pages_go_where_they_are_sent(monkeypatch, tmp_path, capsys):
    page = command.Page("A page", ["text"], csv=[["a", "1"]])
    monkeypatch.setitem(command.PAGES, "natural", lambda names, budget: page)
    monkeypatch.setattr("sys.argv", ["paper", "natural", "--out", str(tmp_path / "mine")])
    assert command.main() == 0
    assert (tmp_path / "mine" / "natural.md").read_text().startswith("# A page")
    assert (tmp_path / "mine" / "natural.csv").read_text() == "a,1\n"
    assert str(tmp_path / "mine" / "natural.md") in capsys.readouterr().out


def test_unknown_pages_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["paper", "tabel"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 2
    assert "got tabel" in capsys.readouterr().err


def measured(numbers, lower, upper, reasons=None, seconds=1.0):
    n = len(numbers)
    return Measured(
        np.array(lower, dtype=float),
        np.array(upper, dtype=float),
        np.full(n, seconds),
        np.array(numbers),
        np.array(reasons or [""] * n, dtype=object),
    )


LATE = UnknownReason.TIME_LIMIT.value


def test_open_rows_count_with_the_bounds_that_they_have():
    closed = measured([0, 1], [1.0, 3.0], [1.0, 3.0])
    assert closed.text("upper") == "2"
    late = measured([0, 1], [1.0, 2.0], [1.0, 4.0], ["", LATE])
    assert late.text("upper") == "1.5 to 2.5, 1 of 2 open"
    nothing = measured([0, 1], [1.0, 0.0], [1.0, np.inf], ["", measuring.NOT_ASKED])
    assert nothing.text("upper") == "≥ 0.5, 1 of 2 open"
    relaxed = measured([0, 1], [0.5, 0.25], [np.inf, np.inf], ["loose", "loose"])
    assert relaxed.text("lower") == "0.375"
    assert measured([], [], []).text("lower") == "–"


def test_open_rows_are_asked_again_only_with_more_time():
    budget = Budget(row_seconds=60.0)
    late = {"reason": LATE, "limit": 60.0}
    assert measuring.needs_asking(None, budget)
    assert not measuring.needs_asking(late, budget)
    assert measuring.needs_asking(late, Budget(row_seconds=61.0))
    assert not measuring.needs_asking({"reason": "", "limit": 1.0}, budget)


def test_all_methods_are_averaged_over_the_same_rows():
    asked = SimpleNamespace(
        dataset="webspam", is_authors=True, printed=DATASETS["webspam"].natural, name="webspam"
    )
    everything = measured([0, 2, 5, 7], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    some = measured([0, 2, 5], [1.0, 0.0, 0.5], [1.0, np.inf, 9.0], ["", measuring.NOT_ASKED, LATE])
    loose = measured([0, 2, 5, 7], [0.5] * 4, [np.inf] * 4, ["loose"] * 4)
    methods = {"attack": everything, "MILP": some, "LP": loose}
    line = tables.Line(asked, methods | {"multi-level": loose, "exact": everything})
    equal = line.equal
    assert [one.number.tolist() for one in equal.methods.values()] == [[0, 2, 5]] * 5
    row = tables.equal_rows([equal]).splitlines()[-1]
    assert "| 3 |" in row
    assert "≥ 0.5, 2 of 3 open (0.00076)" in row
    assert "| 2 |" in row  # the mean exact radius of the three rows
    assert "5 (0.5 to 9, 1 s)" in tables.open_rows([equal])
    assert "MILP: " in tables.open_rows([equal])
    assert "both closed 1 of these rows; their radii differ on 0" in tables.agreement([equal])
    assert "exclude the exact radius: 0." in tables.agreement([equal])
    lines = tables.row_by_row([equal])
    assert ["webspam", "5", "MILP", "0.5", "9.0", "1", "True"] in lines
    assert len(lines) == 1 + 5 * 3


def test_rows_that_a_method_did_not_come_to_are_open(cache):
    rng = np.random.default_rng(0)
    X = rng.random((40, 2))
    y = (X[:, 0] > 0.5).astype(int)
    model = treeproof.load(DecisionTreeClassifier(random_state=0).fit(X, y))
    asked = SimpleNamespace(name="toy", model=model, X=X, y=y)
    nothing = measuring.measured(asked, "exact", {}, Budget(rows=30, equal=5, seconds=0.0))
    assert nothing.number.tolist() == [0, 1, 2, 3, 4]
    assert nothing.is_open.all()
    assert nothing.text("lower") == "≥ 0, 5 of 5 open"
    everything = measuring.measured(asked, "exact", {}, Budget(rows=30, equal=5), block=10)
    assert len(everything) == 30
    assert not everything.is_open.any()


@pytest.mark.paper_data
@pytest.mark.parametrize("kind", ["natural", "robust"])
@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_printed_radii_come_out(cache, name, kind):
    paper_data()
    from experiments.paper.subjects import subject

    asked = subject(name, kind)
    found = measuring.exact(asked, Budget(rows=1000))
    assert np.array_equal(found.lower, found.upper)
    printed = getattr(DATASETS[name], kind).milp[0]
    assert round(float(found.upper.mean()), 3) == printed
    # A second run asks nothing again.
    n_lines = len(cache.path.read_text().splitlines())
    measuring.exact(asked, Budget(rows=1000))
    assert len(cache.path.read_text().splitlines()) == n_lines
