"""Answers as CSV files and spreadsheets: what they say is what their ending promises."""

import csv

import numpy as np
import openpyxl
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import treeproof as tp
from treeproof.results.sheets import csv_texts

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "amount": np.round(RNG.lognormal(6.0, 1.0, 300), 2),
        "hour": RNG.integers(0, 24, 300),
        "=HYPERLINK(1)": RNG.normal(size=300),
        "country": pd.Categorical(RNG.choice(["Chile", "Peru", "=cmd()"], 300)),
    }
)
Y = ((FRAME.amount > 300) & (FRAME.hour < 9) | (FRAME.country == "Peru")).astype(int)
MODEL = LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1).fit(FRAME, Y)
# LightGBM's own model replaces what is no word in names.
ASKED = tp.Domain(categorical=["country"], integer=["hour"])
ROWS = FRAME[:30]


@pytest.fixture(scope="module")
def found():
    model = tp.load(MODEL)
    prices = tp.L0(domain=ASKED)
    results = tp.radius(model, ROWS, None, prices)
    results.id = np.array([f"=ID{n}" for n in range(29)] + ["-5"], dtype=object)
    return results


def read_csv(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_has_a_mark_names_and_values_before_and_after(found, tmp_path):
    found.save(tmp_path / "answers.csv")
    assert (tmp_path / "answers.csv").read_bytes().startswith(b"\xef\xbb\xbfid,row,")
    lines = read_csv(tmp_path / "answers.csv")
    assert len(lines) == len(found)
    kinds = set()
    for line, answer in zip(lines, found, strict=True):
        for change in answer.changes:
            name = "'" + change.name if change.name.startswith("=") else change.name
            before, after = line[f"{name} before"], line[f"{name} after"]
            if change.name == "country":
                names = {before.removeprefix("'"), after.removeprefix("'")}
                assert names <= {"Chile", "Peru", "=cmd()"}
            else:
                assert (float(before), float(after)) == (change.before, change.shown)
            kinds.add(change.name)
        changed = {change.name for change in answer.changes}
        assert all(line[f"{name} after"] == "" for name in {"amount", "hour"} - changed)
    assert {"country", "amount"} <= kinds
    assert not any(after.endswith(".0") for line in lines for after in line.values())


def test_names_of_columns_and_texts_never_become_formulas(found, tmp_path):
    found.save(tmp_path / "answers.csv")
    text = (tmp_path / "answers.csv").read_text(encoding="utf-8-sig")
    cells = [cell for line in csv.reader(text.splitlines()) for cell in line]
    assert not any(cell.startswith("=") for cell in cells)
    assert "'=ID3" in cells
    assert "-5" in cells  # a number stays one
    found.save(tmp_path / "answers.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "answers.xlsx")["answers"]
    kinds = {cell.data_type for line in sheet.iter_rows() for cell in line}
    assert "f" not in kinds
    assert "=ID3" in {cell.value for line in sheet.iter_rows() for cell in line}


def test_a_spreadsheet_holds_the_same(found, tmp_path):
    found.save(tmp_path / "answers.csv")
    found.save(tmp_path / "answers.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "answers.xlsx")["answers"]
    _, *lines = sheet.iter_rows(values_only=True)
    assert sheet.freeze_panes == "A2"
    for line, other in zip(lines, read_csv(tmp_path / "answers.csv"), strict=True):
        for value, (name, text) in zip(line, other.items(), strict=True):
            if value is None:
                assert text == "", name
            elif isinstance(value, bool | str):
                assert str(value) == text.removeprefix("'"), name
            elif name.endswith((" before", " after")):
                assert value == float(text), name
            else:  # the last digit of 17 is lost on the way
                assert value == pytest.approx(float(text), rel=1e-15), name


def test_blocks_of_different_columns_are_one_table(found):
    unknown = found[:3]
    unknown.probability = unknown.witness_label = None
    texts = list(csv_texts(lambda: [found[3:6], unknown, found[6:9]]))
    lines = "".join(texts).splitlines()
    assert len(lines) == 10
    assert len({len(next(csv.reader([line]))) for line in lines}) == 1
    together = "".join(csv_texts(lambda: [found])).splitlines()
    assert lines[0] == together[0] or len(lines[0]) <= len(together[0])


@pytest.mark.parametrize("name", ["answers.xls", "answers.tsv", "answers.txt", "answers.ods"])
def test_an_ending_that_is_not_known_is_refused(found, tmp_path, name):
    with pytest.raises(tp.InvalidInput, match=r"CSV \(\.csv\) or a spreadsheet \(\.xlsx\), by the"):
        found.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_parquet_file_is_one(found, tmp_path):
    found.save(tmp_path / "run.parquet")
    assert (tmp_path / "run.parquet").read_bytes()[:4] == b"PAR1"
    again = tp.load_results(tmp_path / "run.parquet")
    np.testing.assert_array_equal(again.upper, found.upper)


def test_a_spreadsheet_needs_its_extra(found, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(tp.BackendMissing, match=r"\[excel\]"):
        found.save(tmp_path / "answers.xlsx")
    assert not list(tmp_path.iterdir())
