"""The experiments that repeat the paper: partial results, and the radii that it prints."""

import numpy as np
import pytest
from experiments.paper import __main__ as command
from experiments.paper import measuring, store
from experiments.paper.measuring import Budget
from experiments.paper.printed import DATASETS

from tests.paper_data import paper_data


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


def test_unknown_pages_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["paper", "tabel"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 2
    assert "got tabel" in capsys.readouterr().err


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
