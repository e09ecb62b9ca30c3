"""Letters: reasons in the lender's words that are proved to fix a decision, and ways out of it."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from xgboost import XGBClassifier

import treeproof as tp

RNG = np.random.default_rng(5)
N = 600
FRAME = pd.DataFrame(
    {
        "income": RNG.integers(1, 9, N) * 500.0,
        "debt": RNG.integers(0, 6, N) * 1000.0,
        "late": RNG.integers(0, 4, N).astype(float),
        "age": RNG.integers(20, 70, N).astype(float),
    }
)
GOOD = FRAME.income - 0.4 * FRAME.debt - 500 * FRAME.late + 3 * FRAME.age > 1200
MODEL = XGBClassifier(n_estimators=15, max_depth=3).fit(FRAME, GOOD.astype(int))
WORDS = """
wanted = 1
never = ["age"]
most = 2
opening = "Dear {id}, we say no."

[[reason]]
code = "R1"
phrase = "Income too low for this credit"
features = ["income"]

[[reason]]
code = "R2"
phrase = "Existing debts"
features = ["debt"]

[[reason]]
code = "R3"
phrase = "Late payments"
features = ["late"]
"""
THREAT = """
norm = "L1"

[domain]
integer = ["late", "age"]
ranges = {income = [500, 4000], debt = [0, 5000], late = [0, 3], age = [20, 69]}
"""


@pytest.fixture
def files(tmp_path):
    MODEL.save_model(tmp_path / "model.json")
    FRAME.head(60).assign(id=[f"A{i}" for i in range(60)]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    (tmp_path / "words.toml").write_text(WORDS)
    (tmp_path / "threat.toml").write_text(THREAT)
    words = [tmp_path / "model.json", tmp_path / "rows.csv", "--id", "id"]
    return [*words, "--words", tmp_path / "words.toml", "--threat", tmp_path / "threat.toml"]


def test_letters_name_proved_reasons_in_the_lenders_words(run, files, tmp_path):
    out, proofs = tmp_path / "letters.json", tmp_path / "reasons.jsonl"
    result = run("letters", *files, "--ways", 2, "--out", out, "--evidence", proofs)
    assert result.exit_code == 0, result.output
    letters = json.loads(out.read_text())
    decided = MODEL.predict(FRAME.head(60))
    assert [letter["row"] for letter in letters] == np.flatnonzero(decided != 1).tolist()
    sent = [letter for letter in letters if not letter["problem"]]
    assert len(sent) > 10
    grid = list(itertools.product(range(500, 4001, 500), range(0, 5001, 1000), range(4)))
    grid = pd.DataFrame(grid, columns=["income", "debt", "late"], dtype=float)
    features = {"R1": "income", "R2": "debt", "R3": "late"}
    ages = FRAME.age.unique()
    for letter in sent:
        row, codes = FRAME.iloc[letter["row"]], [reason["code"] for reason in letter["reasons"]]
        assert 1 <= len(codes) <= 2
        assert letter["id"] == f"A{letter['row']}"
        if "more that weigh less" not in letter["basis"]:
            # Whatever the other features are, age among them, the decision stays.
            fixed = [features[code] for code in codes]
            tried = grid[(grid[fixed] == row[fixed]).all(axis=1)]
            tried = tried.merge(pd.DataFrame({"age": ages}), how="cross")
            assert (MODEL.predict(tried[FRAME.columns]) == 0).all()
        assert letter["ways"]
        for way in letter["ways"]:
            changed = row.copy()
            for change in way.split("; "):
                name, _, values = change.partition(": ")
                assert name != "age"
                changed[name] = float(values.rpartition(" → ")[2])
            assert MODEL.predict(changed.to_frame().T)[0] == 1
    checked = run("check", proofs, "--model", files[0])
    assert " 0 rejected" in checked.stdout


def test_letters_are_text_and_a_page(run, files, tmp_path):
    shown = run("letters", *files)
    assert shown.exit_code == 0
    assert "Dear A" in shown.stdout
    assert "Principal reasons:" in shown.stdout
    assert "  1. [R" in shown.stdout
    assert "age" not in shown.stdout.replace("whatever all other features are, age among", "")
    run("letters", *files, "--out", tmp_path / "letters.html")
    page = (tmp_path / "letters.html").read_text()
    assert page.count("<article>") == shown.stdout.count("Principal reasons:")
    assert "<script" not in page


def test_what_must_not_be_named_and_decided_is_no_letter(run, files, tmp_path):
    words = WORDS.replace('never = ["age"]', 'never = ["income"]')
    words = words.replace('features = ["income"]', 'features = ["age"]')
    (tmp_path / "words.toml").write_text(words)
    result = run("letters", *files, "--strict")
    assert result.exit_code == 3
    assert "NOT TO BE SENT" in result.stdout
    assert "must not be sent." in result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("wanted = 1", "wanted = 7"), "'wanted' must be one of the classes"),
        (("wanted = 1", ""), "must say which class is 'wanted'"),
        (("wanted = 1", "wnted = 1"), "Did you mean 'wanted'?"),
        (('never = ["age"]', ""), "must have a phrase, or be in 'never'. Got none for age"),
        (('never = ["age"]', 'never = ["age", "debt"]'), "Got 'debt' more than once"),
        (("most = 2", "most = 0"), "'most' of"),
        (('features = ["debt"]', 'features = ["dept"]'), "Did you mean 'debt'?"),
        (('features = ["debt"]', ""), "must have a 'phrase' and a list of 'features'"),
        (("wanted = 1", "wanted ="), "must be a TOML file"),
    ],
)
def test_wrong_words_are_refused(run, files, tmp_path, change, said):
    (tmp_path / "words.toml").write_text(WORDS.replace(*change))
    result = run("letters", *files, "--out", tmp_path / "letters.txt")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "letters.txt").exists()


def test_names_from_data_are_no_markup(run, files, tmp_path):
    rows = pd.read_csv(files[1])
    rows["id"] = "<b>" + rows["id"]
    rows.to_csv(files[1], index=False)
    run("letters", *files, "--out", tmp_path / "letters.html")
    page = (tmp_path / "letters.html").read_text()
    assert "&lt;b&gt;A" in page
    assert "<b>" not in page


def test_the_saved_reasons_are_those_of_the_letters(run, files, tmp_path):
    run("letters", *files, "--evidence", tmp_path / "reasons.jsonl", "--out", tmp_path / "l.json")
    from treeproof.report.reasons import load_reasons

    saved = load_reasons(tmp_path / "reasons.jsonl")
    letters = json.loads((tmp_path / "l.json").read_text())
    assert len(saved) == len(letters)
    assert tp.load(files[0]).fingerprint in (tmp_path / "reasons.jsonl").read_text()
