"""Run files that are not what a run wrote: refused in a sentence, never read as something else."""

import json

import numpy as np
import pytest

import treeproof as tp
from tests.report.made_runs import six_rows
from treeproof.results.results import withdraw


def saved(tmp_path):
    path = tmp_path / "run.jsonl"
    six_rows().save(path)
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"lower": None}, "must have bounds, unless boxes were asked about. Got none for row 1"),
        ({"upper": None}, "must have bounds"),
        ({"lower": "nan"}, "is incomplete"),
        ({"lower": "much"}, "is incomplete"),
        ({"lower": -1.0}, "is incomplete"),
        ({"verdict": "sure"}, "is incomplete"),
        ({"exact": "no"}, "is incomplete"),
        ({"attained": 0}, "is incomplete"),
        ({"witness": "none"}, "is incomplete"),
        ({"witness": [1.0]}, "is incomplete"),
        ({"values": {}}, "is incomplete"),
        ({"label": []}, "is incomplete"),
        ({"statistics": []}, "is incomplete"),
        ({"row": 1e13}, "is incomplete"),
        ({"row": 10**30}, "is incomplete"),
        ({"row": 0}, "must be there once. Got row 0 again"),
    ],
)
def test_rows_that_no_run_wrote_are_refused(tmp_path, fields, sentence):
    path, (header, *rows) = saved(tmp_path)
    rows[1] |= fields
    write(path, [header, *rows])
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.load_results(path)


def test_a_file_has_one_header_and_the_rows_that_it_counts(tmp_path):
    path, (header, *rows) = saved(tmp_path)
    write(path, [header, *rows[:3], header, *rows[3:]])
    with pytest.raises(tp.InvalidInput, match="must have one header"):
        tp.load_results(path)
    for kept in (rows[:5], [*rows, rows[0] | {"row": 6}]):
        write(path, [header, *kept])
        with pytest.raises(tp.InvalidInput, match=f"must have the 6 rows .* Got {len(kept)}"):
            tp.load_results(path)
    for wrong in ({"model": []}, {"model": {}}, {"question": 3}):
        write(path, [header | wrong, *rows])
        with pytest.raises(tp.InvalidInput, match="is incomplete"):
            tp.load_results(path)


def test_answers_can_be_withdrawn():
    results = six_rows()
    results.evidence = np.array(["E1:"] * 6, dtype=object)
    results.reason = np.array([""] * 6, dtype=object)
    withdraw(results, [], [])
    assert results.verdict[0] == "verified"
    withdraw(results, [0, 2], ["row failed: a long story", "row failed"])
    assert results.verdict[[0, 1, 2]].tolist() == ["unknown", "verified", "unknown"]
    assert results.reason[[0, 1, 2]].tolist() == ["row failed: a long story", "", "row failed"]
    assert results.lower[[0, 2]].tolist() == [0.0, 0.0]
    assert np.isinf(results.upper[[0, 2]]).all()
    assert not results.exact[[0, 2]].any()
    assert not results.attained[[0, 2]].any()
    assert np.isnan(results.witness[[0, 2]]).all()
    assert [results.evidence[k] for k in (0, 1, 2)] == [None, "E1:", None]
    assert [results.witness_label[k] for k in (0, 1, 2)] == [None, "ham", None]
    boxes = six_rows(kind="verify", perturbation={"name": "Box", "low": 0.0, "high": 1.0})
    boxes.lower[:] = boxes.upper[:] = np.nan
    withdraw(boxes, [1], ["why"])
    assert np.isnan([boxes.lower[1], boxes.upper[1]]).all()
