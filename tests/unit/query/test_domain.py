"""Domains: what contradicts itself or the model, rows that break theirs, guesses from frames."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.query.build import build_query


@pytest.fixture(scope="module")
def model() -> tp.Model:
    rng = np.random.default_rng(0)
    job = rng.integers(0, 3, 300)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 300),
            "amount": rng.gamma(2.0, 100.0, 300),
            "job_clerk": (job == 0).astype(int),
            "job_none": (job == 1).astype(int),
            "job_other": (job == 2).astype(int),
        }
    )
    label = (frame["age"] > 40) ^ (frame["job_none"] == 1)
    return tp.load(DecisionTreeClassifier(random_state=0).fit(frame, label))


ROW = [[40, 120.0, 1, 0, 0]]
JOB = ["job_clerk", "job_none", "job_other"]


def ask(model: tp.Model, rows: Any = ROW, **domain: Any) -> Any:
    return build_query(model.ensemble, rows, None, tp.L1(domain=tp.Domain(**domain))).pricing


@pytest.mark.parametrize(
    ("domain", "sentence"),
    [
        ({"integer": "agee"}, "must have a feature named 'agee'. Did you mean 'age'"),
        ({"integer": 3.5}, "'integer' of Domain must list features"),
        ({"integer": [1.5]}, "A feature number must be from 0 to"),
        ({"one_hot": JOB}, "must list groups of features, such as"),
        ({"one_hot": None}, "must list groups of features, such as"),
        ({"at_most_one": [[]]}, r"Got the group \[\]"),
        ({"one_hot": [JOB, ["job_clerk", "age"]]}, "one group, or categorical, or integer"),
        ({"integer": "job_none", "one_hot": [JOB]}, "one group, or categorical, or integer"),
        ({"values": {"age": []}}, "list of finite numbers"),
        ({"values": [1]}, "'values' of Domain must be a dict"),
        ({"values": {"age": 3}}, "must be a list of numbers. Got 3"),
        ({"values": {"age": [1, 2]}, "ranges": {"age": (5, 9)}}, "must hold a listed value"),
        ({"integer": "age", "ranges": {"age": (0.2, 0.8)}}, "must hold a whole number of 'age'"),
        ({"ranges": {"age": 5}}, "must be a list of numbers. Got 5"),
        ({"values": {"age": [1.5]}, "integer": ["age"]}, "must be whole for 'age'"),
        ({"values": {"job_none": [0]}, "one_hot": [JOB]}, "for features that are numbers"),
        ({"ranges": {"age": (5, 1)}}, "with low <= high"),
        ({"categorical": ["age"]}, "must list the categories of 'age'"),
        ({"categorical": {"age": ["old"]}}, "The model has codes, from 0"),
        ({"may_miss": [], "may_fill": ["job_none"], "one_hot": [JOB]}, "none of a group"),
        ({"rules": ["age <"]}, "ule"),
        ({"rules": 3}, "'rules' of Domain must be texts. Got 3"),
    ],
)
def test_contradictions_get_one_sentence(
    model: tp.Model, domain: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((tp.InvalidInput, tp.UnsupportedQuery), match=sentence):
        ask(model, **domain)


@pytest.mark.parametrize(
    ("domain", "row", "sentence"),
    [
        ({"integer": ["amount"]}, [40, 0.5, 1, 0, 0], "'amount' must be an integer. Got 0.5"),
        ({"one_hot": [JOB]}, [40, 1, 1, 1, 0], "must have a single 1"),
        ({"one_hot": [JOB]}, [40, 1, 0, 0, 0], "must have a single 1"),
        ({"values": {"age": [1, 2]}}, [40, 1, 0, 0, 0], "values that the domain lists"),
        ({"ranges": {"age": [50, 60]}}, [40, 1, 0, 0, 0], "must lie from 50.0 to 60.0"),
    ],
)
def test_rows_that_break_their_domain_are_named(
    model: tp.Model, domain: dict[str, Any], row: list[float], sentence: str
) -> None:
    with pytest.raises(tp.InvalidInput, match=f"Row 1 breaks its own domain: .*{sentence}"):
        ask(model, [_fitting(domain), row], **domain)
    pricing = ask(model, [_fitting(domain), row], **domain, allow_broken_rows=True)
    prices = pricing.prices()
    # The row itself is where it is, at no cost.
    home = pricing.axes.atom_start[:-1] + prices.home[1]
    assert np.all(prices.cost[1, home] == 0.0)
    np.testing.assert_array_equal(prices.point(1, prices.home[1]), row)


def _fitting(domain: dict[str, Any]) -> list[float]:
    age = 55.0 if "ranges" in domain else 2.0
    return [age, 1.0, 1.0, 0.0, 0.0]


def test_a_domain_is_guessed_from_a_frame() -> None:
    rng = np.random.default_rng(1)
    job, tone = rng.integers(0, 3, 100), rng.integers(0, 4, 100)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 100),
            "amount": rng.gamma(2.0, 100.0, 100).round(2),
            **{f"job_{name}": job == i for i, name in enumerate(["clerk", "no_work", "other"])},
            **{f"tone={name}": (tone == i) * 1.0 for i, name in enumerate("abc")},
            "flag": rng.integers(0, 2, 100),
            "country": rng.choice(["de", "fr"], 100),
        }
    )
    frame.loc[3, "amount"] = np.nan
    domain = tp.Domain.from_frame(frame)
    assert domain.integer == ["age"]
    assert domain.one_hot == [["job_clerk", "job_no_work", "job_other"]]
    assert domain.at_most_one == [["tone=a", "tone=b", "tone=c"]]
    assert domain.values == {"flag": [0, 1]}
    assert domain.categorical == ["country"]
    assert domain.ranges["amount"] == (frame["amount"].min(), frame["amount"].max())
    assert eval(str(domain), {"Domain": tp.Domain}) == domain


def test_only_frames_can_be_guessed_from() -> None:
    with pytest.raises(tp.InvalidInput, match="takes a data frame"):
        tp.Domain.from_frame([[1, 2]])


def test_options_of_costs_are_refused_in_one_sentence(model: tp.Model) -> None:
    with pytest.raises(tp.InvalidInput, match="'eps' of L1 must be a number >= 0"):
        tp.L1("much")  # type: ignore[arg-type]
    with pytest.raises(tp.InvalidInput, match="'relative' of Cost must be True or False"):
        tp.Cost(relative="yes")  # type: ignore[arg-type]
    rows = [[np.inf, 1.0, 1.0, 0.0, 0.0]]
    allowing = dataclasses.replace(model.ensemble, infinite_allowed=True)
    perturbation = tp.L1(domain=tp.Domain(rules="age <= amount + 1"))
    with pytest.raises(tp.InvalidInput, match=r"is about must be finite. Got .* in row 0"):
        build_query(allowing, rows, None, perturbation)
