import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import treeproof as tp
from treeproof.results.results import Results
from treeproof.results.run_file import header_record
from treeproof.results.verdict import UnknownReason, Verdict


@pytest.fixture
def results():
    results = Results.empty(4, 2)
    results.verdict[:] = [Verdict.VERIFIED, Verdict.FALSIFIED, Verdict.UNKNOWN, Verdict.VERIFIED]
    results.lower[:] = [0.1, 0.0, 0.2, np.inf]
    results.upper[:] = [0.1, 0.0, np.inf, np.inf]
    results.exact[:] = [True, True, False, True]
    results.attained[:] = [False, True, False, False]
    results.witness[:2] = [[1 / 3, np.nan], [2.0, -np.inf]]
    results.witness_distance[:2] = [0.1, 0.0]
    results.seconds[:] = [0.001, 0.002, 3.0, 0.004]
    results.reason[2] = UnknownReason.TIME_LIMIT
    results.statistics["nodes"] = np.array([1, 2, 3, 4])
    results.label = np.array(["a", "b", "a", None], dtype=object)
    results.header = header_record({"n_features": 2, "fingerprint": "f"}, {"kind": "radius"})
    return results


def test_saving_and_loading_gives_the_same_bits(results, tmp_path):
    results.save(tmp_path / "run.jsonl")
    again = tp.load_results(tmp_path / "run.jsonl")
    for name in ("row", "lower", "upper", "exact", "attained", "witness", "witness_distance"):
        np.testing.assert_array_equal(getattr(results, name), getattr(again, name))
    for name in ("label", "verdict", "reason", "seconds"):
        assert getattr(results, name).tolist() == getattr(again, name).tolist()
    assert again.statistics["nodes"].tolist() == [1, 2, 3, 4]
    assert again.header == results.header | {"n_rows": 4}


def test_run_files_are_plain_json_lines_with_the_promised_keys(results, tmp_path):
    results.save(tmp_path / "run.jsonl")
    header, *rows = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert {"model", "question", "versions", "format"} <= set(header)
    assert set(header["versions"]) >= {"treeproof", "python", "numpy", "numba"}
    promised = [
        "row",
        "label",
        "verdict",
        "lower",
        "upper",
        "exact",
        "attained",
        "witness",
        "seconds",
        "reason",
    ]
    assert all(set(promised) <= set(row) for row in rows)
    assert rows[3]["lower"] == "inf"
    assert rows[2]["witness"] is None
    assert rows[0]["witness"] == [1 / 3, None]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must start with a header record"),
        ("{", "Line 1 of .* must be a JSON record"),
        ('{"record": "other"}', "must be a header or a row"),
        ('{"record": "header", "format": 99}', "must have format 1. Got 99"),
        ('{"record": "header", "format": 1}', "incomplete"),
        (
            '{"record": "header", "format": 1, "model": {"n_features": 1}}\n{"record": "row"}',
            "incomplete",
        ),
    ],
)
def test_damaged_run_files_are_refused(tmp_path, text, sentence):
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.load_results(tmp_path / "run.jsonl")


def test_a_run_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(tp.InvalidInput, match="must be readable"):
        tp.load_results(tmp_path / "none.jsonl")


def test_the_verified_error_counts_rows_without_a_proof(results):
    assert results.verified_error(0.05) == 0.25  # only the broken row
    assert results.verified_error(0.1) == 0.25  # the first row is only broken beyond 0.1
    results.attained[0] = True
    assert results.verified_error(0.1) == 0.5
    assert results.verified_error(0.3) == 0.75
    with pytest.raises(tp.InvalidInput, match="'eps' must be"):
        results.verified_error(-1.0)


def test_summaries_say_counts_bounds_reasons_and_times(results):
    text = results.summary()
    assert "radius exact on 3" in text
    assert "time limit (1)" in text
    assert "longest 3 s" in text


def test_summaries_of_verdicts_say_at_which_radius(results):
    ball = {"name": "LInf", "eps": 0.25, "frozen": []}
    question = {"kind": "verify", "perturbation": ball}
    results.header = header_record({"n_features": 2, "categorical": []}, question)
    assert "within radius 0.25: every feature moves by up to 0.25" in results.summary().split("\n")


def test_one_row_can_be_taken(results):
    assert results.take(2).row.tolist() == [2]
    assert results.take(-1).statistics["nodes"].tolist() == [4]


def test_results_are_indexed_as_tables_are(results):
    assert results[1].row == results[-3].row == 1
    assert results[1:3].row.tolist() == [1, 2]
    assert results[results.exact].row.tolist() == [0, 1, 3]
    assert results[[3, 1]].row.tolist() == [3, 1]
    assert results[np.array([], dtype=bool)[:0]].row.tolist() == []
    assert [answer.row for answer in results] == [0, 1, 2, 3]
    with pytest.raises(IndexError, match=r"There are 4 rows\. Got row 4"):
        results[4]
    with pytest.raises(tp.InvalidInput, match="one entry for each of the 4 rows"):
        results[np.array([True, False])]
    for wrong in ("lower", (0, 1), [0.5]):
        with pytest.raises(tp.InvalidInput, match="number, a slice, a mask"):
            results[wrong]


def test_a_row_answer_says_what_was_found(results):
    first, broken, open_row, safe = results
    assert isinstance(first, tp.RowAnswer)
    assert (first.radius, first.exact, first.lower, first.label) == (0.1, True, 0.1, "a")
    assert str(first) == "row 0: radius 0.1"
    assert broken.misclassified
    assert str(broken) == "row 1: misclassified, radius 0"
    assert str(open_row) == "row 2: radius from 0.2 to ∞, time limit"
    assert np.isnan(open_row.radius)
    assert open_row.witness is None
    assert not open_row.has_witness
    assert (safe.changes, safe.id, safe.index) == ([], None, 3)
    assert np.isnan(safe.cost)


def test_frames_come_in_both_kinds(results):
    frame = results.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["radius"].tolist()[:2] == [0.1, 0.0]
    assert np.isnan(frame["radius"][2])
    assert frame["misclassified"].tolist() == [False, True, False, False]
    assert "verdict" not in frame.columns  # a radius of 0.1 beside 'verified' says nothing
    assert "nodes" not in frame.columns
    internal = results.to_frame(internal=True)
    assert internal["nodes"].tolist() == [1, 2, 3, 4]
    assert internal["verdict"].tolist() == results.verdict.tolist()
    other = results.to_frame("polars")
    assert isinstance(other, pl.DataFrame)
    assert other["lower"].to_list() == results.lower.tolist()
    with pytest.raises(tp.InvalidInput, match="'pandas' or 'polars'"):
        results.to_frame("tables")


def test_evidence_is_saved_loaded_and_joined(results, tmp_path):
    results.save(tmp_path / "without.jsonl")
    assert tp.load_results(tmp_path / "without.jsonl").evidence is None
    results.evidence = np.array(["proof", None, None, "more\n"], dtype=object)
    results.save(tmp_path / "with.jsonl")
    again = tp.load_results(tmp_path / "with.jsonl")
    assert again.evidence.tolist() == ["proof", None, None, "more\n"]
    twice = Results.join([again, again])
    assert twice.evidence.tolist() == 2 * again.evidence.tolist()
    assert twice.row.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert twice.statistics["nodes"].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    assert Results.join([again, tp.load_results(tmp_path / "without.jsonl")]).evidence is None


def test_saving_replaces_a_file_in_one_step_or_leaves_it_alone(results, tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    path.write_text("something old")
    results.header["broken"] = object()  # no JSON
    with pytest.raises(TypeError):
        results.save(path)
    assert path.read_text() == "something old"
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]
    with pytest.raises(tp.InvalidInput, match="cannot be written: No such file or directory"):
        results.save(tmp_path / "nowhere" / "run.jsonl")


def test_summaries_name_what_is_missing_in_attacked_rows(results):
    model = {"n_features": 2, "feature_names": ["age", "rate"], "categorical": []}
    ball = {"name": "LInf", "eps": None, "frozen": []}
    question = {"kind": "radius", "perturbation": ball, "attacker_class": "a"}
    results.header = header_record(model, question)
    results.values = np.array([[1.0, np.nan], [np.nan, 2.0], [1.0, np.nan], [1.0, 2.0]])
    # Row 1, whose age is missing, is of another class.
    assert "What is missing stays missing: rate (in 2 rows)" in results.summary().split("\n")
