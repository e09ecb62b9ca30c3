"""`treeproof prove` from the shell, and its answers in `treeproof check` and on the page."""

import json

import numpy as np
import pytest
import xgboost as xgb

import treeproof as tp
from treeproof.report.properties import property_section

CLAIMS = """
[domain]
"*" = [-2, 2]
flag = [0, 1]

[[property]]
kind = "Stable"
name = "flag moves little"
features = "flag"
delta = 50

[[property]]
kind = "ScoreRange"
name = "bounded"
low = -50
high = 50

[[property]]
kind = "Stable"
name = "size moves nothing"
features = ["size"]
delta = 0.0
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)).round(1)
    X[:, 2] = X[:, 2] > 0
    y = (X[:, 0] + X[:, 2] > 0.5).astype(int)
    data = xgb.DMatrix(X, y, feature_names=["size", "weight", "flag"])
    booster = xgb.train({"max_depth": 3, "objective": "binary:logistic", "nthread": 1}, data, 5)
    path = tmp_path_factory.mktemp("prove") / "model.json"
    booster.save_model(path)
    return path


def written(folder, text):
    path = folder / "claims.toml"
    path.write_text(text)
    return path


def test_a_falsified_property_fails_the_gate(run, model, tmp_path):
    result = run("prove", model, "--property", written(tmp_path, CLAIMS), "--format", "json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["summary"] == {"verified": 2, "falsified": 1, "unknown": 0}
    broken = answer["properties"][2]
    assert broken["witness"]["changed"] == ["size"]
    rows = [list(row.values()) for row in broken["witness"]["rows"]]
    scores = tp.load(str(model)).margins(np.array(rows))
    assert scores[1] - scores[0] == pytest.approx(broken["lower"])


def test_answers_are_saved_checked_and_shown(run, model, tmp_path):
    claims, out = written(tmp_path, CLAIMS), tmp_path / "answers.json"
    result = run("prove", model, "--property", claims, "--evidence", "--out", out)
    assert result.exit_code == 1
    assert "size moves nothing: falsified" in result.stdout
    checked = run("check", out, "--model", model)
    assert checked.exit_code == 0, checked.stdout
    assert "3 accepted, 0 rejected" in checked.stdout
    section = property_section(out, known=())
    cards = section["cards"]
    assert section["is_strange"]
    assert section["proofs"].startswith("3 of 3 answers carry a proof")
    assert [card["verdict"] for card in cards] == ["verified", "verified", "falsified"]
    assert cards[2]["rows"][0][0] == "size"
    assert cards[2]["rows"][0][2]
    document = json.loads(out.read_text())
    wide = document | {"domain": document["domain"] | {"high": [-9.0] * 3}}
    out.write_text(json.dumps(wide))
    assert "3 rejected" in run("check", out, "--model", model).stdout
    document["properties"][0]["upper"] = 0.125
    document["properties"][1]["verdict"] = "falsified"
    out.write_text(json.dumps(document))
    forged = run("check", out, "--model", model, "--json")
    assert forged.exit_code == 3
    assert json.loads(forged.stdout)["rejected"] == 2


def test_answers_remember_how_the_model_was_loaded(run, model, tmp_path, monkeypatch):
    claims, out = written(tmp_path, CLAIMS), tmp_path / "answers.json"
    words = ("--property", claims, "--evidence", "--decision-threshold", 0.9, "--classes", "no,yes")
    run("prove", model, *words, "--out", out)
    for more in ([], ["--model", model]):  # beside the answers, or named
        monkeypatch.chdir(tmp_path if more else model.parent)
        checked = run("check", out, *more)
        assert checked.exit_code == 0, checked.output
        assert 'loaded with decision_threshold 0.9, classes ["no", "yes"]' in checked.stdout
    assert run("check", out, "--model", model, "--decision-threshold", 0.5).exit_code == 2
    rows = run("check", out, "--model", model, "--data", "rows.csv")
    assert rows.exit_code == 2
    assert "--data is for answers about rows. These are about a whole domain." in rows.stderr
    document = json.loads(out.read_text())
    for wrong, sentence in (
        ({"model": None}, "must say under 'model' which model it is about."),
        ({"model": document["model"] | {"loading": [1]}}, "The load options of the run must be a"),
        ({"model": document["model"] | {"loading": {"x": 1}}}, "load options that are unknown"),
    ):
        out.write_text(json.dumps(document | wrong))
        refused = run("check", out, "--model", model)
        assert refused.exit_code == 2
        assert sentence in refused.stderr


def test_groups_of_a_file_are_kept_and_checked(run, model, tmp_path):
    claims = written(
        tmp_path,
        """
one_hot = [["weight", "flag"]]

[domain]
size = [-2, 2]

[[property]]
kind = "Stable"
name = "the choice moves little"
features = ["weight", "flag"]
delta = 50

[[property]]
kind = "Stable"
name = "the choice moves nothing"
features = ["weight", "flag"]
delta = 0
""",
    )
    out = tmp_path / "answers.json"
    result = run("prove", model, "--property", claims, "--evidence", "--out", out)
    assert result.exit_code == 1, result.stderr
    assert "2 accepted, 0 rejected" in run("check", out, "--model", model).stdout
    document = json.loads(out.read_text())
    rows = [list(row.values()) for row in document["properties"][1]["witness"]["rows"]]
    assert sorted(row[1:] for row in rows) == [[0.0, 1.0], [1.0, 0.0]]
    document["domain"]["domain"]["groups"] = [[[0, 1, 2], True]]
    out.write_text(json.dumps(document))
    assert "2 rejected" in run("check", out, "--model", model).stdout


def test_the_page_has_a_section_for_properties(run, model, tmp_path):
    claims, out = written(tmp_path, CLAIMS), tmp_path / "answers.json"
    run("prove", model, "--property", claims, "--out", out)
    rows = np.zeros((2, 3))
    results = tp.verify(str(model), rows, perturbation=tp.LInf(0.1))
    tp.write_report(results, tmp_path / "page.html", properties=out)
    page = (tmp_path / "page.html").read_text()
    assert "Properties of every input" in page
    assert "This is about a model that the runs" not in page
    assert ", where" in page
    assert "Answer 3: falsified" in page
    assert "The file calls it “size moves nothing”, which is its own word." in page
    assert "<mark>" in page


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[property]]\nkind = 'Fairness'", "Did you mean 'Fair'?"),
        ("[[property]]\nkind = 'Stable'\nfeatures = 'size'", "'delta' of property 1"),
        ("[[property]]\nkind = 'Stable'\nfeatures = 'size'\ndelta = -1", "must be a number >= 0"),
        ("[[property]]\nkind = 'Fair'\nprotected = 'sise'", "Did you mean 'size'?"),
        ("[domain]\nsize = 3\n[[property]]\nkind = 'ScoreRange'", "must be two numbers"),
        ("domains = 3", "Did you mean 'domain'?"),
        ("missing = []", "must have a [[property]]"),
        ("[[property", "must be TOML"),
        ("rules = 'size <= 1'\n[[property]]\nkind = 'ScoreRange'", "must be a list of texts"),
        ("one_hot = [[]]\n[[property]]\nkind = 'ScoreRange'\nhigh = 1", "must list groups"),
        ("one_hot = ['size']\n[[property]]\nkind = 'ScoreRange'", "must list groups of features"),
        (
            "one_hot = [['size', 'flak']]\n[[property]]\nkind = 'Fair'\nprotected = 'size'",
            "'flag'?",
        ),
        (
            "one_hot = [['size', 'flag']]\n[[property]]\nkind = 'Fair'\nprotected = 'size'",
            "Columns of a group change together",
        ),
        ("[domain]\n'*' = [2, 1]\n[[property]]\nkind = 'ScoreRange'\nhigh = 1", "must not exceed"),
    ],
)
def test_wrong_files_are_refused_in_a_sentence(run, model, tmp_path, text, sentence):
    result = run("prove", model, "--property", written(tmp_path, text))
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_rules_of_the_file_hold_for_both_inputs(run, model, tmp_path):
    text = 'rules = ["size <= weight", "flag > 0 => weight <= 1"]\n' + CLAIMS
    result = run("prove", model, "--property", written(tmp_path, text), "--format", "json")
    assert result.exit_code == 1
    (broken,) = [p for p in json.loads(result.stdout)["properties"] if p["verdict"] == "falsified"]
    for row in broken["witness"]["rows"]:
        size, weight, flag = row.values()
        assert size <= weight
        assert flag <= 0 or weight <= 1


def test_the_page_says_what_the_checker_said_of_properties(run, model, tmp_path):
    claims, out = written(tmp_path, CLAIMS), tmp_path / "answers.json"
    run("prove", model, "--property", claims, "--evidence", "--out", out)
    saved, page, forged = (tmp_path / name for name in ("run.jsonl", "page.html", "forged.json"))
    results = tp.verify(str(model), np.zeros((2, 3)), perturbation=tp.LInf(0.1), evidence=True)
    results.save(saved)
    document = json.loads(out.read_text())
    document["properties"][0]["upper"] = 0.0
    forged.write_text(json.dumps(document))
    words = ("--out", page, "--check", model, "--properties", out, "--properties", forged)
    assert run("report", saved, *words).exit_code == 0
    text = page.read_text()
    assert "3 of 3 answers carry a proof; an independent checker accepted 3." in text
    assert "3 of 3 answers carry a proof; an independent checker accepted 2." in text
    assert "(rejected: answer: another upper bound)" in text
    assert '<a href="#properties">Properties</a>' in text
    assert '<a href="#properties-2">Properties 2</a>' in text


FAIR = """
[domain]
"*" = [-2, 2]
flag = [0, 1]

[[property]]
kind = "Fair"
protected = "flag"
"""


def test_decisions_are_counted_in_data_and_shown_as_the_files_own(run, model, tmp_path):
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.normal(size=(40, 2)), np.arange(40) < 13]).astype(float)
    data, out = tmp_path / "rows.csv", tmp_path / "answers.json"
    lines = [",".join(map(repr, row)) + ",1" for row in rows.tolist()]
    data.write_text("\n".join(["size,weight,flag,y", *lines]))
    words = ("--property", written(tmp_path, FAIR), "--data", data, "--label", "y")
    result = run("prove", model, *words, "--evidence", "--out", out)
    ones = tp.load(str(model)).predict(rows) == 1
    for flag, chosen in (("0", rows[:, 2] == 0), ("1", rows[:, 2] == 1)):
        share = f"{100 * ones[chosen].mean():.1f}\u00a0%"
        line = f"{share} of {chosen.sum()} rows with flag = {flag} get the decision 1"
        assert line in result.stdout
    printed = json.loads(run("prove", model, *words, "--format", "json").stdout)
    assert [group["rows"] for group in printed["properties"][0]["groups"]] == [27, 13]
    assert "1 accepted" in run("check", out, "--model", model).stdout
    card = property_section(out, known=())["cards"][0]
    assert [group[:2] for group in card["groups"]] == [("flag = 0", 27), ("flag = 1", 13)]
    document = json.loads(out.read_text())
    document["properties"][0]["groups"][0]["rows"] = 0
    out.write_text(json.dumps(document))
    assert "1 rejected" in run("check", out, "--model", model).stdout


def test_data_without_a_claim_of_fairness_are_refused(run, model, tmp_path):
    (tmp_path / "rows.csv").write_text("size,weight,flag\n1,1,1\n")
    claims = written(tmp_path, CLAIMS)
    refused = run("prove", model, "--property", claims, "--data", tmp_path / "rows.csv")
    assert refused.exit_code == 2
    assert "--data is for properties of kind Fair. Got none" in refused.stderr
