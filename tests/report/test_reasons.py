"""Reasons on the page and in words: what is said is part of what is proved."""

import dataclasses
import json
import re

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from tests.report.made_runs import EVIL, six_rows
from tests.report.test_page import read, render, words
from treeproof.errors import InvalidInput
from treeproof.report.reasons import load_reasons, spans
from treeproof.results.reasons import Reasons


def made(values, intervals, **changes):
    """Reasons of one row whose set are its first features."""
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    n_rows, size = len(table), len(intervals)
    results = Reasons.empty(
        table, np.array([1] * n_rows, dtype=object), [np.zeros(0, dtype=np.int64)] * n_rows
    )
    columns = {
        "features": [np.arange(size)] * n_rows,
        "sufficient": np.ones(n_rows, dtype=bool),
        "minimal": np.ones(n_rows, dtype=bool),
        "intervals": [np.array(intervals, dtype=np.float64).reshape(size, 2)] * n_rows,
        "feature_names": ("age", "income", "rate")[: table.shape[1]],
    }
    return dataclasses.replace(results, **(columns | changes))


@pytest.mark.parametrize(
    ("values", "interval", "text"),
    [
        ([31.0, 40.0, 52.0], [30.5, 44.5], "in [31, 44]"),
        ([31.0, 40.0, 52.0], [30.5, np.inf], ">= 31"),
        ([31.0, 40.0, 52.0], [-np.inf, 44.0], "<= 43"),
        ([31.0, 40.0, 52.0], [30.5, 31.5], "= 31"),
        ([51.25, 0.5, 3.0], [51.2, 51.3], "in [51.2, 51.29]"),
        ([0.0], [-np.inf, 0.28125], "<= 0.2812"),
        ([-2.5], [-2.75, -1.25], "in [-2.7, -1.3]"),
        ([1e20], [0.5e20, np.inf], ">= 1e+20"),
        (
            [0.1234567890123],
            [0.1234567890122, 0.1234567890124],
            "in [0.1234567890122, 0.1234567890123]",
        ),
    ],
)
def test_numbers_have_the_precision_of_their_column_and_lie_inside(values, interval, text):
    results = made(np.array(values)[:, np.newaxis], [interval])
    ((feature, said),) = results.conditions(0)
    assert (feature, said) == (0, text)
    for number in map(float, re.findall(r"-?\d[\d.e+-]*", said)):
        assert interval[0] <= number < interval[1]


def test_what_is_said_holds_for_random_intervals():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        value = float(np.round(rng.normal() * 10.0 ** rng.integers(-6, 7), int(rng.integers(0, 7))))
        size = 10.0 ** rng.integers(-12, 4, size=2)
        low, high = value - rng.random() * size[0], np.nextafter(value + size[1], np.inf)
        ((_, said),) = made([[value]], [[low, high]]).conditions(0)
        numbers = [float(n) for n in re.findall(r"-?\d[\d.]*(?:e[+-]?\d+)?", said)]
        assert all(low <= number < high for number in numbers), (said, low, high)
        assert min(numbers) <= value <= max(numbers)


def test_claims_about_scores_and_targets_are_said():
    results = made([[31.0]], [[30.5, np.inf]])
    for goal, start in (
        ({"name": "KeepsLabel"}, "the decision 1 is fixed by age >= 31; nothing else matters"),
        ({"name": "AvoidsTarget", "target": "cat"}, "an answer other than 'cat' is"),
        ({"name": "ScoreChange", "delta": 0.5}, "a score within 0.5 of the row's is"),
        ({"name": "ScoreWithin", "low": [0.0], "high": [1.0]}, "a score in [0.0, 1.0] is"),
        ({"name": "ScoreWithin", "low": 0.5, "high": "inf"}, "a score >= 0.5 is"),
        ({"name": "ScoreWithin", "low": "-inf", "high": 2}, "a score <= 2 is"),
    ):
        results.question = {"goal": goal}
        assert results.sentence(0).startswith(start)


def test_of_a_group_the_column_that_is_one_is_said():
    results = made([[0.0, 1.0, 31.0]], [[0.0, 1.0]] * 3)
    results.intervals = None
    results.question = {"perturbation": {"domain": {"groups": [[[0, 1], True]]}}}
    results.changes = [[np.array([0, 1])]]
    results.change_rows = [np.array([[1.0, 0.0, 31.0]])]
    assert results.sentence(0) == (
        "the decision 1 is fixed by income = 1 and rate = 31; nothing else matters; it changes"
        " with age = 1"
    )
    results.values[0] = [0.0, 0.0, 31.0]
    results.changes = [[np.array([2])]]
    results.change_rows = [np.array([[0.0, 0.0, np.nan]])]
    assert results.conditions(0) == [(0, "= 0"), (2, "= 31")]
    assert results.change_texts(0) == ["rate is missing"]


def test_spans_hold_the_value_and_open_ends_reach_the_end_of_the_track():
    results = made(
        [[31.0, 5.0, 1.0], [60.0, 9.0, 1.0]], [[30.5, 44.5], [-np.inf, 7.0], [1.0, np.inf]]
    )
    for span in spans(results, 0):
        assert 0.0 <= span.low <= span.value <= span.high <= 1.0
    age, income, rate = spans(results, 0)
    assert 0.0 < age.low < age.high < 1.0
    assert (income.low, income.has_low, income.has_high) == (0.0, False, True)
    assert (rate.high, rate.has_low, rate.has_high) == (1.0, True, False)
    assert [bar.get_width() for bar in tp.draw_features(results, 0).axes[0].patches[3:]] == [
        pytest.approx(span.high - span.low) for span in spans(results, 0)
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y = load_wine(return_X_y=True)
    model = tp.load(RandomForestClassifier(6, max_depth=3, random_state=0).fit(X, y))
    path = tmp_path_factory.mktemp("reasons") / "reasons.jsonl"
    found = tp.reasons(model, X[[0, 60, 150]], intervals=True, n_changes=2, evidence=True)
    found.save(path)
    return found, path


def test_a_saved_file_reads_back_the_same(saved):
    found, path = saved
    again = load_reasons(path)
    assert again.full_records() == found.full_records()
    assert [again.sentence(i) for i in range(3)] == [found.sentence(i) for i in range(3)]


def test_the_page_has_a_section_for_reasons(saved):
    found, path = saved
    text = words(render(six_rows(), reasons=path))
    assert "Why the model answers as it does" in text
    assert "3 of 3 rows have such a set" in text
    section = text[text.index("Why the model answers") :]
    # What is proved is proved over a domain, which is said.
    assert re.search(
        r"whatever all other features are, where [^.]*(anywhere|bounds|around)", section
    )
    assert "proofs of 3 rows" in text
    for row in range(3):
        assert found.sentence(row) in text
        assert f"Changes with {found.change_texts(row)[0]}." in text
    assert "Why the model answers" not in words(render(six_rows()))


def test_rows_have_the_names_that_users_know_them_by(saved, tmp_path):
    found, path = saved
    named = tmp_path / "named.jsonl"
    header = found.header | {"data": {"id": "bottle"}}
    ids = np.array([EVIL, 7, None], dtype=object)
    dataclasses.replace(found, id=ids, header=header).save(named)
    assert load_reasons(named).id.tolist() == [EVIL, 7, None]
    page = render(six_rows(), reasons=named)
    assert "<img src=x" not in page
    text = words(page)
    assert "Row 1 · bottle 7" in text
    assert "row bottle why" in text
    assert "bottle None" not in text
    assert "bottle" not in words(render(six_rows(), reasons=path))
    assert '"id"' not in path.read_text()


def test_reasons_of_another_model_say_so(saved):
    found, path = saved
    strange = "This is about a model that the runs of this page are not about."
    results = six_rows()
    assert strange in words(render(results, reasons=path))
    results.header["model"]["fingerprint"] = found.header["model"]["fingerprint"]
    assert strange not in words(render(results, reasons=path))


def test_names_are_escaped_and_files_that_are_none_are_refused(saved, tmp_path):
    _, path = saved
    lines = path.read_text().splitlines()
    header = json.loads(lines[0])
    header["model"]["feature_names"] = [EVIL] * 13
    evil = tmp_path / "evil.jsonl"
    evil.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    page = render(six_rows(), reasons=evil)
    assert "<img src=x" not in page
    assert len(read(page).scripts) == 2
    row = json.loads(lines[1])
    for broken in (
        "",
        "{}\n",
        lines[0] + "\nno row\n",
        lines[0] + "\n" + json.dumps(row | {"features": [99]}) + "\n",
        lines[0] + "\n" + json.dumps(row | {"values": [1.0]}) + "\n",
    ):
        evil.write_text(broken)
        with pytest.raises(InvalidInput, match=r"evil\.jsonl"):
            render(six_rows(), reasons=evil)


def test_images_are_drawn_with_the_pixels_of_their_sets(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((80, 9))
    model = tp.load(RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, X[:, 4] > 0.5))
    tp.reasons(model, X[:2], n_changes=1).save(tmp_path / "r.jsonl")
    run = tp.radius(model, X[:2])
    page = render(run, reasons=tmp_path / "r.jsonl", shape=(3, 3))
    assert page.count("pixels that fix it</figcaption>") == 2
    assert page.count("what would change it</figcaption>") == 2
