"""Answers about properties in words: the row that they talk about, names, and probabilities."""

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier

import treeproof as tp

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
