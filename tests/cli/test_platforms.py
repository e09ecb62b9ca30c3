"""What build servers show of a run: JUnit XML, Markdown, and the gate in JSON."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import xgboost

import treeproof as tp
from tests.cli.test_shown_rows import fraud, words_of

__all__ = ["fraud"]


@pytest.fixture
def runs(run, fraud, tmp_path):
    """Words of a gate that compares a small model with one that is verified on more rows."""
    base, weak = tmp_path / "base.jsonl", tmp_path / "weak.json"
    assert run("radius", *words_of(fraud, "--out", base)).exit_code == 0
    saved = tp.load_results(base)
    columns = ["amount", "hour", "income"]
    values = saved.values + np.array([1.0, 0.0, 0.0])  # each row is just beside its own threshold
    labels = np.r_[saved.label.astype(int), 1 - saved.label.astype(int)]
    rows = xgboost.DMatrix(np.r_[saved.values, values], labels, feature_names=columns)
    options = {"objective": "binary:logistic", "max_depth": 8, "base_score": 0.5, "lambda": 0}
    options |= {"min_child_weight": 0, "nthread": 1}
    xgboost.train(options, rows, 20).save_model(weak)
    words = words_of((weak, fraud[1]), "--classes", "0,1", "--at", 5, "--not-worse-than", base)
    return base, words


def test_the_gate_is_in_json(run, fraud, runs):
    base, weak = runs
    words = words_of(fraud, "--at", 5, "--fail-under", 0.01, "--not-worse-than", base)
    result = run("radius", *words, "--format", "json")
    assert result.exit_code == 0, result.output
    gate = json.loads(result.stdout)["gate"]
    assert gate["passed"]
    assert gate["failure"] == ""
    assert gate["fail_under"] == 0.01
    assert gate["at"] == 5.0
    assert gate["before"]["share"] == gate["share"]
    assert gate["before"]["rows"] == gate["rows"]
    assert gate["before"]["lost"] == gate["before"]["gained"] == []
    failed = run("radius", *weak, "--format", "json")
    assert failed.exit_code == 1
    gate = json.loads(failed.stdout)["gate"]
    assert not gate["passed"]
    assert gate["before"]["lost"]
    assert all(row["id"].startswith("C") for row in gate["before"]["lost"])
    assert gate["failure"] in failed.stderr
    assert "gate" not in json.loads(run("radius", *words_of(fraud), "--format", "json").stdout)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_junit_is_read_by_build_servers(run, fraud, share):
    words = words_of(fraud, "--eps", 500, "--fail-under", share, "--format", "junit")
    result = run("verify", *words)
    root = ElementTree.fromstring(result.stdout)
    failed = result.exit_code == 1
    assert failed == (share == 1.0)
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases)) == "2"
    assert suite.get("failures") == str(int(failed))
    assert [case.find("failure") is not None for case in cases] == [failed, False]
    assert f"at least {100 * share:g} % of rows" in cases[0].get("name")
    if failed:
        assert "below 100 %" in cases[0].find("failure").get("message")
    assert {p.get("name") for p in suite.iter("property")} >= {"fingerprint", "data", "rows"}
    assert float(suite.get("time")) > 0.0


def test_undecided_rows_fail_where_they_must_not_be(run, fraud):
    words = words_of(fraud, "--eps", 500, "--engine", "attack", "--strict", "--format", "junit")
    result = run("verify", *words)
    assert result.exit_code == 3
    (suite,) = ElementTree.fromstring(result.stdout)
    assert "rows are undecided" in suite.find("testcase/failure").get("message")


def test_markdown_says_the_gate_and_who_changed_sides(run, runs):
    _, weak = runs
    result = run("radius", *weak, "--format", "markdown")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "## ❌ treeproof radius"
    assert any("no longer verified: rows" in line for line in lines)
    assert any(line.startswith("| fingerprint |") for line in lines)
    heads = [at for at, line in enumerate(lines) if line == "|---|---|"]
    for at in heads:  # a table needs an empty line before it
        assert lines[at - 2] == ""


def test_names_from_data_are_no_markup(run, fraud, tmp_path):
    rows = tmp_path / "a|b<i>.csv"
    rows.write_bytes(fraud[1].read_bytes())
    words = (fraud[0], rows, "--label", "fraud", "--eps", 500)
    text = run("verify", *words, "--format", "markdown").stdout
    assert "a\\|b&lt;i>.csv" in text
    ElementTree.fromstring(run("verify", *words, "--format", "junit").stdout)


@pytest.mark.parametrize("command", ["attack", "curve", "reasons"])
def test_other_commands_have_no_such_forms(run, fraud, command):
    result = run(command, *fraud, "--format", "junit")
    assert result.exit_code == 2
    assert "is not one of 'table', 'json', 'csv'" in result.stderr
