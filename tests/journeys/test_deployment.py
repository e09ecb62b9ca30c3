"""Deployment: ONNX models, a run that is killed and goes on, gates as build servers read them."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import make_classification
from xgboost import XGBClassifier

import treeproof as tp

NAMES = [f"f{number}" for number in range(8)]


def deployed(model: XGBClassifier, path: Path) -> onnxruntime.InferenceSession:
    """Export a model, and run it as it is deployed."""
    inputs = [("x", FloatTensorType([None, len(NAMES)]))]
    path.write_bytes(convert_xgboost(model, initial_types=inputs).SerializeToString())
    return onnxruntime.InferenceSession(path)


def test_deployed_models_behind_a_gate(shell, tmp_path):
    X, y = make_classification(1100, len(NAMES), n_informative=6, random_state=0)
    X = X.astype(np.float32)
    now = XGBClassifier(n_estimators=30, max_depth=5).fit(X[:800], y[:800])
    next_one = XGBClassifier(n_estimators=30, max_depth=2).fit(X[:800], y[:800])
    session = deployed(now, tmp_path / "now.onnx")
    deployed(next_one, tmp_path / "next.onnx")
    frame = pd.DataFrame(X[800:], columns=NAMES).assign(label=y[800:])
    frame.insert(0, "id", [f"R{number:03}" for number in range(300)])
    frame.to_csv(tmp_path / "rows.csv", index=False)

    ask = "radius now.onnx rows.csv --label label --id id --at 0.05"
    shell(f"{ask} --out now.jsonl")
    lines = (tmp_path / "now.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    # What a killed run leaves behind: some rows, the last of them cut off.
    lines[0] = lines[0].replace('"state":"complete"', '"state":"underway"')
    (tmp_path / "now.jsonl").write_text("".join(lines[:120]) + lines[120][:40], encoding="utf-8")
    gate = "radius next.onnx rows.csv --label label --id id --at 0.05 --not-worse-than now.jsonl"
    refused = shell(gate, status=2)
    assert "complete" in refused.stderr
    assert "complete" in shell("report now.jsonl --out page.html", status=2).stderr
    shell("report now.jsonl --partial --out page.html")
    assert "not complete" in (tmp_path / "page.html").read_text(encoding="utf-8")
    shell(f"{ask} --out now.jsonl --resume")

    told = ElementTree.fromstring(shell(f"{gate} --format junit", status=1).stdout)
    assert {case.get("name") for case in told.iter("testcase")} >= {
        "verified: no less than in now.jsonl"
    }
    assert told.get("failures") == "1"
    assert "verified" in shell(f"{gate} --format markdown", status=1).stdout
    passed = shell(f"{ask} --fail-under 0.1 --format json --out again.jsonl")
    assert json.loads(passed.stdout)["gate"]["passed"]

    shell(f"{ask} --out evasions.csv")
    table = pd.read_csv(tmp_path / "evasions.csv", encoding="utf-8-sig")
    found = np.flatnonzero(np.isfinite(table.upper) & ~table.misclassified)
    after = table.filter(like=" after").to_numpy(dtype=np.float64)
    assert after.shape == (300, len(NAMES))
    rows = np.where(np.isnan(after), X[800:], after).astype(np.float32)[found]
    labels = session.run(["label"], {"x": rows})[0]
    assert (labels != y[800:][found]).all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_in_another_order_are_matched_by_name(shell, tmp_path, ending):
    X, y = make_classification(300, 8, n_informative=6, random_state=1)
    frame = pd.DataFrame(X.astype(np.float32), columns=[f"c{number}" for number in range(8)])
    XGBClassifier(n_estimators=5).fit(frame, y).save_model(tmp_path / "model.json")
    shuffled = frame.sample(frac=1, axis=1, random_state=0).assign(label=y)
    write = {"csv": shuffled.to_csv, "parquet": shuffled.to_parquet}[ending]
    write(tmp_path / f"rows.{ending}", index=False)
    ask = f"radius model.json rows.{ending} --label label --rows 0:20"
    assert "--by-name" in shell(ask, status=2).stderr
    shell(f"{ask} --by-name --evidence --out run.jsonl")
    found = tp.load_results(tmp_path / "run.jsonl")
    expected = tp.radius(tmp_path / "model.json", frame[:20], y[:20])
    np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-6)  # a text file rounds
    # The run knows how its data were read.
    shell(f"check run.jsonl --model model.json --data rows.{ending}")
