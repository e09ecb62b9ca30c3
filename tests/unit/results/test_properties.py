"""Answers about properties in words: the row that they talk about, names, and probabilities."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import treeproof as tp
from treeproof.checker.property_files import check_answers
from treeproof.report.properties import property_section
from treeproof.results.numbers import number
from treeproof.results.property_file import load_property_records, save_property_results

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "income": RNG.normal(3000, 800, 500).round(),
        "sex": pd.Categorical(RNG.choice(["f", "m"], 500)),
        "late": RNG.poisson(1, 500).astype(float),
    }
)
Y = (FRAME.income > 2800) & (FRAME.late < 2) | (FRAME.sex == "m") & (FRAME.late < 1)
SOURCE = LGBMClassifier(n_estimators=10, min_child_samples=5, verbose=-1).fit(FRAME, Y.astype(int))
MODEL = tp.load(SOURCE)
DOMAIN = tp.Box({"income": 1000, "late": 0}, {"income": 6000, "late": 6})


def test_a_pair_is_said_with_names_and_what_it_has_in_common():
    answer = tp.prove(MODEL, tp.Fair("sex"), DOMAIN)
    lines = answer.summary().splitlines()
    assert lines[1].startswith("  sex f: score ")
    assert lines[2].startswith("  sex m: score ")
    income, late = answer.witness[0][[0, 2]]
    assert lines[3] == f"  in both: income {income:g}, late {late:g}"
    rows = pd.DataFrame(
        {"income": income, "sex": pd.Categorical(["f", "m"], ["f", "m"]), "late": late}
    )
    for line, share in zip(lines[1:3], SOURCE.predict_proba(rows)[:, 1], strict=True):
        assert f", probability {share:.4g}, label" in line


def test_a_single_row_is_said():
    lines = tp.score_range(MODEL, DOMAIN).maximum.summary().splitlines()
    assert lines[2].startswith("  row: score ")
    assert lines[3].startswith("  the row: income ")
    assert ", sex f, " in lines[3] or ", sex m, " in lines[3]


def test_decisions_are_counted_by_group_beside_the_claim():
    data = FRAME.assign(sex=FRAME.sex.where(FRAME.index >= 7))
    answer = tp.prove(MODEL, tp.Fair("sex"), DOMAIN, data=data)
    decided = SOURCE.predict(data)
    missing = data.sex.isna().to_numpy()
    chosen = [(data.sex == "f").to_numpy(), (data.sex == "m").to_numpy(), missing]
    assert [group.value for group in answer.groups] == ["f", "m", "missing"]
    for group, rows in zip(answer.groups, chosen, strict=True):
        counts = tuple((label, int((decided[rows] == label).sum())) for label in (0, 1))
        assert group[2:] == (int(rows.sum()), counts)
    first = answer.groups[0]
    said = f"{first.decisions[1][1] / first.rows:.1%}".replace("%", "\u00a0%")
    line = f"    {said} of {first.rows} rows with sex = f get the decision 1"
    assert answer.summary().splitlines()[-4:-2] == ["  in the data, counted and not proved:", line]
    assert answer.record()["groups"][0]["decisions"][1] == {
        "label": 1,
        "rows": first.decisions[1][1],
    }


def test_groups_of_many_values_are_ranges_that_hold_every_row_once():
    answer = tp.prove(MODEL, tp.Fair(["income", "sex"]), DOMAIN, data=FRAME)
    parts = [group for group in answer.groups if group.feature == "income"]
    assert len(parts) == 4
    assert sum(group.rows for group in parts) == len(FRAME)
    assert parts[0].value.startswith(f"{number(FRAME.income.min())} to ")
    assert parts[3].value.endswith(f" to {number(FRAME.income.max())}")


def test_columns_of_a_group_are_one_feature():
    rng = np.random.default_rng(1)
    colour = rng.integers(0, 3, 300)
    X = pd.DataFrame(
        {f"colour_{name}": colour == k for k, name in enumerate(("red", "blue", "tan"))}
    )
    X = X.assign(size=rng.normal(size=300)).astype(float)
    source = LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1)
    source.fit(X, (X["size"] + X.colour_red > 0.5).astype(int))
    names = list(X.columns[:3])
    domain = tp.Box(-3.0, 3.0, tp.Domain(one_hot=[names]))
    answer = tp.prove(source, tp.Fair(names), domain, data=X)
    assert {group.value: group.rows for group in answer.groups} == {
        name: int(X[f"colour_{name}"].sum()) for name in ("red", "blue", "tan")
    }
    assert {group.feature for group in answer.groups} == {"colour"}


def test_other_claims_have_no_groups():
    with pytest.raises(tp.InvalidInput, match="counted by the features that Fair protects"):
        tp.prove(MODEL, tp.Stable("sex", 1.0), DOMAIN, data=FRAME)


def test_the_page_says_probabilities_and_categories_of_the_row_that_is_meant(tmp_path):
    rows = FRAME.iloc[:1].assign(sex=pd.Categorical(["m"], ["f", "m"]))
    answers = [
        ("everywhere", tp.prove(MODEL, tp.Fair("sex"), DOMAIN, evidence=True)),
        ("wide", tp.largest_change(MODEL, "income", tp.LInf(2000.0), rows)[0]),
    ]
    assert answers[0][1].evidence
    for at, (name, answer) in enumerate(answers):
        path = tmp_path / f"{name}.json"
        save_property_results(path, MODEL, [(name, answer)])
        card = property_section(path, known=())["cards"][0]
        for said, share in zip(card["heads"], answer.probabilities[:, 1], strict=True):
            assert said.endswith(f", probability {number(share)}")
        assert (" sex m," in card["around"]) == bool(at)
    path = tmp_path / "everywhere.json"
    document = load_property_records(path)
    assert [check.status for check in check_answers(MODEL.ensemble, document)] == ["accepted"]
    document["properties"][0]["witness"]["probabilities"][0] = [0.5, 0.5]
    check = check_answers(MODEL.ensemble, document)[0]
    assert check.status == "rejected"
    assert "other probabilities of the witness" in check.reason
