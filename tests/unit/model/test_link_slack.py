"""Margins that a link merges lie within the slack that questions allow for it."""

import lightgbm as lgb
import numpy as np
import pytest

from treeproof.loaders.base import LoadOptions
from treeproof.loaders.lightgbm.loader import LightGBMLoader
from treeproof.model.links import argmax_labels, sigmoid_float64
from treeproof.query.constraints import link_rounding


def one_against_all(learning_rate, rounds):
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    parameters = {
        "objective": "multiclassova",
        "num_class": 3,
        "sigmoid": 1.7,
        "learning_rate": learning_rate,
        "verbosity": -1,
        "num_threads": 1,
    }
    booster = lgb.train(parameters, lgb.Dataset(X, y), rounds)
    return LightGBMLoader().load_object(booster, LoadOptions()).ensemble


def largest_margin(ensemble):
    """Sum over the trees of each class of the largest leaf, at its largest class."""
    trees, total = ensemble.trees, np.zeros(3)
    for tree in range(ensemble.n_trees):
        nodes = np.arange(trees.root[tree], trees.root[tree + 1])
        leaves = trees.leaf[nodes][trees.feature[nodes] < 0]
        total[trees.tree_output[tree]] += np.abs(trees.leaf_value[leaves]).max()
    return float(total.max())


@pytest.mark.parametrize(("learning_rate", "rounds"), [(0.1, 10), (0.1, 60), (1.0, 40), (3.0, 80)])
def test_equal_sigmoids_are_never_further_apart_than_the_slack(learning_rate, rounds):
    ensemble = one_against_all(learning_rate, rounds)
    slack = link_rounding(ensemble)
    scale = ensemble.decision.link_scale
    reach = largest_margin(ensemble)
    random = np.random.default_rng(1)
    upper = random.uniform(-reach, reach, 4000)
    gap = slack * (1.0 + 1e-6) + np.spacing(np.abs(upper))
    for high, low in zip(upper, upper - gap, strict=True):
        assert sigmoid_float64(high, scale) > sigmoid_float64(low, scale) or low < -reach


def test_the_slack_is_small_where_no_sigmoid_saturates():
    assert link_rounding(one_against_all(0.1, 10)) < 1e-12
    assert link_rounding(one_against_all(3.0, 80)) > 1.0


def test_labels_by_sigmoid_differ_from_labels_by_margin_only_within_the_slack():
    ensemble = one_against_all(1.0, 40)
    slack = link_rounding(ensemble)
    scale = ensemble.decision.link_scale
    random = np.random.default_rng(2)
    margins = random.uniform(-1.0, 1.0, (3000, 3)) * random.choice([1.0, 10.0, 40.0], (3000, 1))
    margins[:, 1] = margins[:, 0] + random.choice([0.0, 1e-16, 1e-12, 1e-3], 3000)
    labels = argmax_labels(margins, "sigmoid_float64", scale=scale)
    ordered = np.sort(margins, axis=1)
    other = labels != np.argmax(margins, axis=1)
    assert other.any()
    inside = np.abs(margins).max(axis=1) < largest_margin(ensemble)
    assert (other & inside).any()
    assert (ordered[:, 2] - ordered[:, 1] <= slack)[other & inside].all()
