"""Fraud with a pipeline: missing amounts, texts, a spreadsheet that is typed in again."""

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import treeproof as tp
from tests.journeys.conftest import typed_in

COLUMNS = ["amount", "hour", "attempts", "merchant"]
THREAT = """
norm = "L1"
attacker_class = "fraud"

[features.amount]
eps = 10.0
low = 0.5

[features.hour]
eps = 1
low = 0
high = 23

[domain]
integer = ["hour"]
"""


def payments(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "payment": [f"P{number:05}" for number in range(n)],
            "amount": np.round(rng.lognormal(4, 1, n), 2),
            "hour": rng.integers(0, 24, n),
            "attempts": rng.poisson(1.5, n),
            "merchant": rng.choice(["grocery", "fuel", "online", "travel"], n),
        }
    )
    risk = frame.amount * 0.02 + frame.attempts * 0.8 + (frame.merchant == "online") * 1.5 - 4.5
    frame.loc[rng.random(n) < 0.03, "amount"] = np.nan
    return frame, (rng.random(n) < 1 / (1 + np.exp(-risk))).astype(int)


def trained(frame: pd.DataFrame, fraud: np.ndarray) -> Pipeline:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((numbers, COLUMNS[:3]), (encode, ["merchant"]))
    model = LGBMClassifier(n_estimators=40, verbose=-1)
    return make_pipeline(columns, model).fit(frame[COLUMNS], fraud)


def test_fraud_with_a_pipeline(shell, tmp_path):
    frame, fraud = payments(2300)
    pipeline = trained(frame[:2000], fraud[:2000])
    tp.load(pipeline, classes=["genuine", "fraud"]).save(tmp_path / "pipeline.treeproof")
    frame[2000:].to_csv(tmp_path / "payments.csv", index=False)
    (tmp_path / "threat.toml").write_text(THREAT)

    ask = "radius pipeline.treeproof payments.csv --id payment --threat threat.toml --at 2"
    shell(f"{ask} --out answers.csv")
    shell(f"{ask} --evidence --out run.jsonl")
    said = shell("check run.jsonl --model pipeline.treeproof --data payments.csv")
    assert "300 accepted, 0 rejected" in said.stdout

    answers = pd.read_csv(tmp_path / "answers.csv", encoding="utf-8-sig")
    assert answers.id.tolist() == frame.payment[2000:].tolist()
    evasions = answers[answers.attacked & ~answers.misclassified & np.isfinite(answers.upper)]
    assert len(evasions) >= 20
    # Only what may move has columns of its own; all else is as in the data.
    assert {name for name in answers if name.endswith(" after")} == {"amount after", "hour after"}
    rows = frame[2000:].reset_index(drop=True).loc[evasions.row, COLUMNS]
    changed = rows.reset_index(drop=True)
    moved = typed_in(evasions.reset_index(drop=True), ["amount", "hour"], frame)
    changed[["amount", "hour"]] = moved.where(moved.notna(), changed[["amount", "hour"]])
    assert (pipeline.predict(rows) == 1).all()
    assert (pipeline.predict(changed) == 0).all()
    assert (changed.hour == changed.hour.round()).all()

    shell("report run.jsonl --at 2 --check pipeline.treeproof --out page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "attacked rows (class fraud)" in page
    assert "Whole numbers only: hour." in page
