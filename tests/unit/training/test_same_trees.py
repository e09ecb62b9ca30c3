"""Trees stay those of earlier versions, bit for bit.

In one round from even odds all gradients are exact, and in a forest they always are; so the trees
do not depend on the machine, and a change of their fingerprint is a change of training.
"""

import hashlib
from typing import Any

import numpy as np
import pytest

from treeproof.training import RobustGBDTClassifier, RobustRandomForestClassifier

ROUND = {"n_estimators": 1, "base_score": 0.5, "max_depth": 8}
CHEN = {"method": "chen2019"}
BOOSTED: dict[str, dict[str, Any]] = {
    "natural": {},
    "natural, exact": {"tree_method": "exact"},
    "robust": CHEN | {"eps": 0.02},
    "robust, exact": CHEN | {"eps": 0.02, "tree_method": "exact"},
    "bins and pruning": {"max_bin": 20, "gamma": 2.0, "reg_lambda": 0.0, "min_child_weight": 0.3},
    "constraints": CHEN
    | {
        "monotone_constraints": [1, -1, 0, 0, 0, 0],
        "frozen_features": [0],
        "eps": 0.05,
    },
    "sampled": {"subsample": 0.6, "colsample_bytree": 0.5, "random_state": 3},
}
FORESTS: dict[str, dict[str, Any]] = {
    "forest": {"max_depth": None},
    "robust forest": CHEN | {"eps": 0.02, "tree_method": "exact", "max_features": 0.5},
    "without bootstrap": {"bootstrap": False, "min_samples_leaf": 5.0},
}
EXPECTED = {
    "natural": "1310a83872097ed4",
    "natural, exact": "bebb6afcab8b77d9",
    "robust": "fbd6bdefdb119995",
    "robust, exact": "05f0201265066668",
    "bins and pruning": "aa19a896ed912b01",
    "constraints": "4ff185ee56de5fd9",
    "sampled": "90a194581345eb8a",
    "forest": "6aee59c298c808c9",
    "robust forest": "d5ec4a63277ad776",
    "without bootstrap": "b835c216eb2c3191",
}


def fingerprint(model: Any) -> str:
    random = np.random.default_rng(5)
    X = random.integers(10_000, size=(3_000, 6)) / 10_000
    X[:, 3] = np.round(X[:, 3], 1)
    signal = 2 * X[:, 0] - X[:, 1] + np.where(X[:, 2] > 0.6, X[:, 3], X[:, 4])
    y = signal + random.integers(1_000, size=3_000) / 2_000 > 1.2
    X[random.random(X.shape) < 0.03] = np.nan
    trees = model.fit(X, y).to_ensemble().trees
    digest = hashlib.sha256()
    for name in ("feature", "threshold", "left", "right", "flags", "leaf_value"):
        digest.update(np.asarray(getattr(trees, name), dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", EXPECTED)
def test_trees_are_the_same_as_before(name: str) -> None:
    if name in BOOSTED:
        model = RobustGBDTClassifier(**ROUND, **BOOSTED[name])
    else:
        model = RobustRandomForestClassifier(n_estimators=3, random_state=0, **FORESTS[name])
    assert fingerprint(model) == EXPECTED[name]
