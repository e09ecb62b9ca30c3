"""Features that no tree tests, columns that pipelines drop: nothing depends on them, by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import treeproof as tp
from tests.unit.checker.test_properties import where
from treeproof.checker.properties import check_property
from treeproof.errors import CertificateRejected
from treeproof.query.property_files import load_properties

NUMBERS = ["age", "income"]


def people(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 300).astype(float),
            "income": rng.integers(10, 90, 300).astype(float),
            "sex": rng.choice(["f", "m"], 300),
        }
    )
    return frame, ((frame.age > 40) ^ (frame.income > 50)).to_numpy().astype(int)


def on_columns(step: Any, model: Any) -> Any:
    steps = [(StandardScaler(), NUMBERS), *([] if step is None else [(step, ["sex"])])]
    return make_pipeline(make_column_transformer(*steps), model)


MODELS = {
    "dropped": lambda: on_columns(None, XGBClassifier(n_estimators=20, max_depth=3)),
    "one-hot": lambda: on_columns(OneHotEncoder(), XGBClassifier(n_estimators=5, max_depth=2)),
    "ordinal": lambda: on_columns(OrdinalEncoder(), XGBClassifier(n_estimators=5, max_depth=2)),
    "category": lambda: LGBMClassifier(n_estimators=2, max_depth=1, verbose=-1),
}


def trained(name: str) -> tp.Model:
    frame, y = people()
    if name == "category":
        frame["sex"] = frame.sex.astype("category")
    model = tp.load(MODELS[name]().fit(frame, y))
    assert 2 not in model.ensemble.trees.feature
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("categories", [None, ["sex"], {"sex": ["f", "m"]}])
def test_a_model_that_never_sees_sex_is_fair_by_name(name: str, categories: Any) -> None:
    model = trained(name)
    domain = None if categories is None else tp.Domain(categorical=categories)
    box = tp.Box({"age": 18.0, "income": 0.0}, {"age": 90.0, "income": 200.0}, domain)
    claims = (tp.Fair("sex"), tp.Fair("sex", margin=0.5), tp.HighConfidence("sex", margin=0.1))
    for claim in (*claims, tp.Stable("sex", 0.0)):
        found = tp.prove(model, claim, box, evidence=True)
        assert (found.verdict, found.statistics["nodes"] <= 1) == ("verified", True)
        assert found.evidence is not None
        check_property(model.ensemble, found.evidence, where(found))


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_properties_names_categories(name: str, tmp_path: Path) -> None:
    path = tmp_path / "fair.toml"
    path.write_text(
        '[categorical]\nsex = ["f", "m"]\n[domain]\nage = [18, 90]\nincome = [0, 200]\n'
        '[[property]]\nkind = "Fair"\nprotected = "sex"\n'
    )
    model, asked = trained(name), load_properties(path)
    box = asked.box(model.feature_names, model.n_features)
    assert tp.prove(model, asked.claims[0][1], box).verdict == "verified"


def test_numbers_that_no_tree_tests_are_fair_at_once_in_large_models() -> None:
    X, y = make_classification(1000, 6, n_informative=5, n_redundant=0, random_state=0)
    X = np.column_stack([X, np.zeros(len(X))])
    model = tp.load(XGBClassifier(n_estimators=60, max_depth=4).fit(X, y))
    box = tp.Box(X.min(axis=0), X.max(axis=0) + 1.0)
    for claim in (tp.Fair(6), tp.Redundant([[6]], margin=0.2)):
        found = tp.prove(model, claim, box)
        assert (found.verdict, found.statistics["nodes"]) == ("verified", 0)


def test_evidence_without_a_proof_is_for_features_that_no_tree_tests() -> None:
    model = tp.load(DecisionTreeClassifier(random_state=0).fit([[0, 0], [1, 0]], [0, 1]))
    box = tp.Box(0.0, 1.0)
    fair = tp.prove(model, tp.Fair(1), box, evidence=True)
    assert fair.evidence is not None
    assert check_property(model.ensemble, fair.evidence, where(fair)).evidence.verdict == "verified"
    other = tp.load(DecisionTreeClassifier(random_state=0).fit([[0, 0], [0, 1]], [0, 1]))
    with pytest.raises(CertificateRejected, match="another model"):
        check_property(other.ensemble, fair.evidence, where(fair))
    assert tp.prove(other, tp.Fair(1), box).verdict == "falsified"


@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
@pytest.mark.parametrize("seed", range(4))
def test_strict_encoders_load_whether_a_tree_tests_their_column(encoder: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list("xyzw"), 60)
    frame = pd.DataFrame({"age": rng.normal(size=60), "income": 0.0, "sex": kinds})
    y = ((frame.age > 0) | (frame.sex == "y")).astype(int)
    for depth in (1, 3):
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        model = tp.load(on_columns(encoder(), tree).fit(frame, y))
        assert model.ensemble.provenance.self_test.startswith("passed")


@pytest.mark.parametrize("end", [np.inf, 1e300, 3.0])
def test_a_domain_of_one_row_has_its_score_alone(end: float) -> None:
    X = np.random.default_rng(1).integers(0, 4, (60, 2)).astype(float)
    model = tp.load(
        LGBMClassifier(n_estimators=3, min_child_samples=1, verbose=-1).fit(X, X[:, 0] > 1)
    )
    score = model.margins(np.full((1, 2), end))[0]
    bounds = tp.score_range(model, tp.Box(end, end))
    assert bounds.minimum.upper == pytest.approx(score, abs=1e-6)
    assert bounds.maximum.lower == pytest.approx(score, abs=1e-6)
    assert bounds.maximum.upper - bounds.minimum.lower < 1e-5
