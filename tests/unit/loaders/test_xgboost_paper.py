"""The paper's own models against the margins that XGBoost gave for them."""

import json

import numpy as np
import pytest

from tests.paper_data import paper_data
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import LoadOptions
from treeproof.prediction import Model

pytestmark = pytest.mark.paper_data


def test_margins_of_the_paper_s_models() -> None:
    folder = paper_data() / "models"
    entries = json.loads((folder / "models.json").read_text())
    assert len(entries) == 13
    for entry in entries:
        model = Model(load_ensemble(folder / f"{entry['name']}.json"))
        assert model.ensemble.provenance.self_test.startswith("passed")
        assert model.ensemble.n_trees == entry["n_trees"]
        assert model.ensemble.n_leaves == entry["n_leaves"]
        rows = np.load(folder / entry["X50"])
        expected = np.load(folder / f"{entry['name']}.margins50.npy")
        margins = model.margins(rows)
        assert margins.dtype == expected.dtype == np.float32
        assert np.array_equal(margins.view(np.int32), expected.view(np.int32)), entry["name"]


def test_the_text_dump_of_treeverification() -> None:
    root = paper_data()
    path = root / "peers" / "treeVerification" / "breast_cancer_robust.0008.json"
    dump = Model(load_ensemble(path, options=LoadOptions(base_score=0.0, n_classes=2)))
    exact = Model(load_ensemble(root / "models" / "tv_breast_cancer_robust8.json"))
    rows = np.load(root / "models" / "X50_breast_cancer_fs1_nf11.npy")
    assert np.array_equal(dump.margins(rows), exact.margins(rows))
    assert np.array_equal(dump.predict(rows), exact.predict(rows))
