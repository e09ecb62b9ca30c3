"""`treeproof recourse`: ways in words, in tables, and on a page."""

import csv
import io

import pytest

import treeproof as tp
from tests.cli.test_shown_rows import fraud

__all__ = ["fraud"]


def test_ways_are_said_saved_and_shown(run, fraud, tmp_path):
    model, data = fraud
    words = (model, data, "--wanted", 0, "--norm", "L1", "--id", "customer")
    out = tmp_path / "ways.jsonl"
    result = run("recourse", *words, "--ways", 2, "--step", "amount=100", "--out", out)
    assert result.exit_code == 0, result.output
    assert "rows that the model does not decide as 0 have a way" in result.stdout
    assert "broken" not in result.stdout
    found = tp.load_results(out)
    assert set(found.way) == {1, 2}
    assert found.id.tolist() == [f"C{row:04d}" for row in found.row]
    for answer in found:
        for change in answer.changes:
            assert change.name != "amount" or change.shown % 100 == 0
    page = tmp_path / "page.html"
    assert run("report", out, "--out", page).exit_code == 0
    assert "Recourse report" in page.read_text()
    table = run("recourse", *words, "--format", "csv", "--budget", 500)
    lines = list(csv.DictReader(io.StringIO(table.stdout)))
    assert [line["way"] for line in lines] == ["1"] * len(lines)
    assert "have an affordable way" in table.stderr or "has an affordable way" in table.stderr
    checked = run("check", out, "--model", model)
    assert " 0 rejected" in checked.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--wanted", "2"], "'wanted' must be one of the classes"),
        (["--wanted", "0", "--step", "amount"], "--step must be NAME=STEP"),
        (["--wanted", "0", "--step", "amont=1"], "Did you mean 'amount'?"),
        (["--wanted", "0", "--out", "ways.ods"], "Answers are saved as"),
        (["--wanted", "0", "--engine", "attack"], "has no meaning here"),
    ],
)
def test_wrong_words_are_refused(run, fraud, words, said):
    result = run("recourse", *fraud, *words)
    assert result.exit_code == 2
    assert said in result.stderr
