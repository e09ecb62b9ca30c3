"""Credit: two models, ways for applicants, letters, and one file for an auditor."""

import json
import shutil

import numpy as np
import pandas as pd
from xgboost import XGBClassifier

import treeproof as tp

FEATURES = ["age", "income", "amount", "late_payments"]
WORDS = """
wanted = 1
never = ["age"]
opening = "Dear applicant {id},"

[[reason]]
code = "01"
phrase = "Income insufficient for the amount of credit requested"
features = ["income", "amount"]

[[reason]]
code = "02"
phrase = "Delinquent past credit obligations"
features = ["late_payments"]
"""
THREAT = """
norm = "L1"
scale = "std"

[domain]
integer = ["age", "late_payments"]
ranges = {income = [0, 20000], amount = [500, 80000], late_payments = [0, 10], age = [18, 90]}
"""
RULES = """
[domain]
income = [0, 20000]
amount = [500, 80000]
late_payments = [0, 10]
age = [18, 90]

[[property]]
kind = "Monotone"
name = "more income never lowers the score"
features = "income"
direction = "increasing"
"""


def applicants(n: int) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "age": rng.integers(18, 75, n),
            "income": rng.lognormal(7.8, 0.5, n).round().clip(0, 20_000),
            "amount": rng.lognormal(8.5, 0.7, n).round(-2).clip(500, 80_000),
            "late_payments": rng.poisson(0.6, n),
        }
    )
    burden = people.amount / people.income / 6 + 0.5 * people.late_payments
    return people, (burden < 0.9).astype(int)


def test_credit_with_two_models_letters_and_an_auditor(shell, tmp_path):
    people, good = applicants(1200)
    old = XGBClassifier(n_estimators=30, max_depth=5).fit(people, good)
    constraints = {"income": 1, "amount": -1, "late_payments": -1}
    new = XGBClassifier(n_estimators=30, max_depth=3, monotone_constraints=constraints)
    new.fit(people, good)
    for name, model in (("old", old), ("new", new)):
        model.save_model(tmp_path / f"{name}.json")
    asked = people.head(60).assign(applicant=[f"A{n:03}" for n in range(60)], repaid=good.head(60))
    asked.to_csv(tmp_path / "applicants.csv", index=False)
    for name, text in (("words", WORDS), ("threat", THREAT), ("rules", RULES)):
        (tmp_path / f"{name}.toml").write_text(text)

    # How the models differ, what is proved of the new one for every applicant there can be.
    assert "not the same" in shell("diff old.json new.json", status=1).stdout
    shell("prove new.json --property rules.toml --evidence --out rules.json")
    assert "1 accepted" in shell("check rules.json --model new.json").stdout
    shell("prove old.json --property rules.toml", status=1)

    # Ways for those who are rejected, each of them tried on the deployed model.
    rejected = new.predict(people.head(60)) == 0
    shell(
        "recourse new.json applicants.csv --wanted 1 --id applicant --threat threat.toml"
        " --frozen age --ways 2 --step amount=100 --step income=1 --out ways.json --format json"
    )
    letters = (
        "letters new.json applicants.csv --id applicant --words words.toml --threat threat.toml"
        " --ways 2 --step amount=100 --step income=1"
    )
    shell(f"{letters} --out letters.json --evidence reasons.jsonl")
    shell(f"{letters} --out letters.html")
    assert "0 rejected" in shell("check reasons.jsonl --model new.json").stdout
    written = json.loads((tmp_path / "letters.json").read_text(encoding="utf-8"))
    assert [letter["id"] for letter in written] == list(asked.applicant[rejected])
    page = (tmp_path / "letters.html").read_text(encoding="utf-8")
    assert "Income insufficient" in page

    # What an auditor gets: one file, which needs nothing else.
    ask = "radius new.json applicants.csv --label repaid --id applicant --threat threat.toml"
    shell(f"{ask} --evidence --out new.jsonl")
    shell(
        "bundle new.jsonl --model new.json --data applicants.csv --threat threat.toml"
        " --out audit.zip"
    )
    elsewhere = tmp_path / "auditor"
    elsewhere.mkdir()
    shutil.move(tmp_path / "audit.zip", elsewhere / "audit.zip")
    (tmp_path / "new.json").unlink()
    said = shell("check auditor/audit.zip --data applicants.csv --label repaid")
    assert "60 accepted, 0 rejected" in said.stdout
    assert tp.load(old).predict(people).tolist() == old.predict(people).tolist()
