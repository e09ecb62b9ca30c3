"""Forged runs and answers: samples of campaigns that tests/campaigns/forged_*.py run at length."""

import warnings

import pytest

from tests.campaigns import forged_properties, forged_reasons
from tests.campaigns.forged_records import Tally, campaign


def check(tally: Tally, count: int) -> None:
    assert tally.false == []
    assert tally.counts["forged"] == count
    assert tally.counts["rejected"] + tally.counts["refused"] > 0.7 * count
    # Bounded by the size of the text and of the model, which are small here.
    assert tally.slowest < 5.0
    assert tally.largest < 64e6


def test_no_forged_record_that_lies_is_accepted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that train on sixty rows
        tally = campaign(1500, 11)
    check(tally, 1500)
    assert tally.counts["accepted"] > 20  # not every change is a lie


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 16))
def test_no_forged_record_of_many_that_lies_is_accepted(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(campaign(15_000, seed), 15_000)


def test_no_forged_answer_about_a_property_that_lies_is_accepted():
    counts = forged_properties.campaign(0, 12, per_answer=12)
    assert counts["false"] == 0
    assert counts["forged rejected"] > 400
    assert counts["forged accepted"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_no_forged_answer_of_many_about_a_property_that_lies_is_accepted(block):
    assert forged_properties.campaign(1000 + 150 * block, 150)["false"] == 0


@pytest.mark.filterwarnings("ignore")
def test_no_forged_file_of_reasons_that_lies_is_accepted():
    counts = forged_reasons.campaign(0, 10, per_file=24)
    assert counts["false"] == 0
    assert counts["forged rejected"] > 100
    assert counts["forged accepted"] > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", range(2))
def test_no_forged_file_of_many_reasons_that_lies_is_accepted(block):
    assert forged_reasons.campaign(1000 + 150 * block, 150)["false"] == 0
