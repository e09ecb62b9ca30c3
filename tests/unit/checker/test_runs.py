"""Whole run files: every line is looked at, none is missing, and rows are those of the data."""

import json
from pathlib import Path
from typing import Any

import pytest

import treeproof
from tests.unit.checker.test_answers import ENSEMBLE, ROWS, Record, run
from treeproof.checker import check_run
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble


def lines(header: Record, records: list[Record]) -> list[str]:
    counted = {"n_rows": len(records)} | header
    return [json.dumps(record) for record in [counted, *records]]


def check_text(
    tmp_path: Path, text: Any, ensemble: Ensemble = ENSEMBLE, **options: Any
) -> list[Any]:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(check_run(path, ensemble, **options))


def test_run_files_are_checked_line_by_line(tmp_path):
    header, records = run()
    header["data"] = {"n_asked": 4}
    whole = lines(header, records)
    assert [c.status for c in check_text(tmp_path, "\n".join(whole))] == ["accepted"] * 4
    torn = check_text(tmp_path, "\n".join(whole)[:-40])
    assert [c.status for c in torn] == ["accepted"] * 3 + ["rejected"] * 2
    assert torn[3].reason.startswith("line 5: ")
    assert torn[4].reason == "run: 4 rows were asked about, 3 are here"
    for text in ("\n".join(whole[1:]), "", "[]", "{", '{"record": "header"}', "[" * 9999):
        with pytest.raises(InvalidInput, match="header record"):
            check_text(tmp_path, text)
    twice = check_text(tmp_path, "\n".join([whole[0], *whole]))
    assert twice[0].reason.startswith("line 2: this is no row record")
    odd = check_text(tmp_path, "\n".join([whole[0], "[]", '{"record": "row"}', "{}", "[" * 9999]))
    assert [c.status for c in odd] == ["rejected"] * 5
    assert [c.reason[:6] for c in odd[:4]] == ["line 2", "line 3", "line 4", "line 5"]
    assert [c.row for c in odd] == [-1] * 5
    del header["data"]
    assert check_text(tmp_path, lines(header, [])[0]) == []
    (unsaid,) = check_text(tmp_path, json.dumps(header))
    assert unsaid.reason == "run: its header does not count the rows"
    with pytest.raises(InvalidInput, match="must be readable"):
        list(check_run(tmp_path / "none.jsonl", ENSEMBLE))


@pytest.mark.parametrize("number", ["0", 0.0, -1, None, True, [0], float("inf"), 10**13, 10**40])
@pytest.mark.parametrize("goal", [None, treeproof.ScoreWithin(-5.0, 5.0)])
def test_a_row_number_is_a_number(tmp_path, number, goal):
    header, records = run("verify", treeproof.Box(ROWS - 0.01, ROWS + 0.01), goal=goal)
    assert records[0]["verdict"] == "verified"
    text = "\n".join(lines(header, [records[0] | {"row": number}]))
    (found, *_) = check_text(tmp_path, text)
    said = "line 2: this is no row record" if number != 10**13 else "record: 'low' has no row"
    assert found.reason.startswith(said)
    (found, *_) = check_text(tmp_path, text, rows=ROWS)
    said = "line 2: this is no row record" if number != 10**13 else "record: the data have 4 rows"
    assert found.reason.startswith(said)


def test_no_row_is_counted_twice(tmp_path):
    header, records = run()
    header["data"] = {"n_asked": 4}
    found = check_text(tmp_path, "\n".join(lines(header, [*records[:3], records[0]])))
    assert [c.status for c in found] == ["accepted"] * 3 + ["rejected"] * 2
    assert (found[3].row, found[3].reason) == (0, "line 5: row 0 is here twice")
    assert found[4].reason == "run: 4 rows were asked about, 3 are here"


@pytest.mark.parametrize(
    ("header_fields", "expected"),
    [
        ({"state": "complete", "n_rows": 3}, []),
        ({"state": "complete", "n_rows": 4}, ["run: 4 rows were asked about, 3 are here"]),
        ({"n_rows": 4}, ["run: 4 rows were asked about, 3 are here"]),
        ({"n_rows": 2}, ["run: 2 rows were asked about, 3 are here"]),
        ({"state": "underway", "n_rows": 0}, ["run: it is not complete, 3 rows are here"]),
        ({"data": {"n_asked": 2}, "n_rows": 3}, ["run: 2 rows were asked about, 3 are here"]),
        ({"data": {"n_asked": 5}, "n_rows": 3}, ["run: 5 rows were asked about, 3 are here"]),
        ({"data": {"n_asked": None}, "n_rows": 3}, []),
    ],
)
def test_lines_that_are_missing_are_noticed(tmp_path, header_fields, expected):
    header, records = run()
    found = check_text(tmp_path, "\n".join(lines(header | header_fields, records[:3])))
    assert [c.reason for c in found if c.status != "accepted"] == expected
    assert [c.row for c in found] == [0, 1, 2, *[-1] * len(expected)]


def test_bytes_that_are_no_text_are_rejected(tmp_path):
    header, records = run()
    first, second = (line.encode() for line in lines(header, records[:1]))
    found = check_text(tmp_path, first + b"\n" + second + b"\n\xff\xfe\n")
    assert [c.status for c in found] == ["accepted", "rejected"]
    with pytest.raises(InvalidInput, match="Got Parquet in"):
        check_text(tmp_path, b"PAR1\x15\xff\n" + second)


def test_rows_of_a_data_file_are_compared(tmp_path):
    header, records = run()
    text = "\n".join(lines(header, records))
    assert {c.status for c in check_text(tmp_path, text, rows=ROWS)} == {"accepted"}
    moved = ROWS.copy()
    moved[2] = 0.0
    found = check_text(tmp_path, text, rows=moved)
    assert [c.status for c in found] == ["accepted", "accepted", "rejected", "accepted"]
    found = check_text(tmp_path, text, rows=ROWS[:3])
    assert [c.reason for c in found if c.status == "rejected"] == [
        "record: the data have 3 rows",
        "run: 3 rows of the data were asked about, 3 are here",
    ]


def test_labels_of_a_data_file_are_compared(tmp_path):
    labels = ["a", "b", "a", "b"]
    header, records = run(y=labels)
    text = "\n".join(lines(header, records))
    found = check_text(tmp_path, text, rows=ROWS, labels=labels)
    assert {c.status for c in found} == {"accepted"}
    found = check_text(tmp_path, text, rows=ROWS, labels=["a", "b", "b", "b"])
    assert [c.reason for c in found if c.reason] == ["record: the label of the data is 'b'"]


@pytest.mark.parametrize(
    ("kept", "data", "expected"),
    [
        ([0, 1, 2, 3], {}, ""),
        ([0, 1, 2], {}, "run: 4 rows of the data were asked about, 3 are here"),
        ([0, 1], {"rows": "0:2"}, ""),
        ([1, 2, 3], {"rows": "1:"}, ""),
        ([2, 3], {"rows": "2:99"}, ""),
        ([0, 1], {"rows": "0:3"}, "run: 3 rows of the data were asked about, 2 are here"),
        ([0, 3], {"rows": "0:2"}, "run: 2 rows of the data were asked about, 1 are here"),
        ([0, 1], {"rows": "the best"}, "run: 4 rows of the data were asked about, 2 are here"),
        ([0, 1], {"rows": "0:" + "9" * 5000}, "run: 4 rows of the data were asked about, 2 are"),
        ([0, 2], {"sample": 2}, ""),
        ([0, 1, 2, 3], {"sample": 9}, ""),
        ([0], {"sample": 2}, "run: 2 rows of the data were asked about, 1 are here"),
        ([0, 1, 2], {"sample": 2}, "run: 2 rows of the data were asked about, 3 are here"),
        ([1, 2], {"sample": 2, "rows": "1:3"}, ""),
        ([0, 1, 3], {"merged": [{"rows": "0:2"}, {"rows": "3:"}]}, ""),
        ([0, 1], {"merged": [{"rows": "0:2"}, {"rows": "3:"}]}, "run: 3 rows of the data were"),
        ([0, 1], {"merged": [{"rows": "0:2"}, None]}, "run: 4 rows of the data were"),
        ([0, 1], {"merged": [{"sample": 2}, {"sample": 1}]}, ""),
        ([0, 1, 2, 3], {"merged": [{"sample": 2}, {"sample": 1}]}, "run: 3 rows of the data were"),
    ],
)
def test_no_row_of_the_data_is_left_out(tmp_path, kept, data, expected):
    header, records = run()
    text = "\n".join(lines(header | {"data": data}, [records[row] for row in kept]))
    *rows, last = check_text(tmp_path, text, rows=ROWS)
    if expected:
        assert (last.row, last.status) == (-1, "rejected")
        assert last.reason.startswith(expected)
        assert {check.status for check in rows} <= {"accepted"}
    else:
        assert {check.status for check in [*rows, last]} == {"accepted"}
