"""`treeproof features` from the shell."""

import csv
import io
import json

import numpy as np
import pytest

import treeproof as tp


def test_radii_in_the_shell_are_those_of_the_library(run, digits):
    model, rows, X = digits
    result = run("features", model, rows, "--format", "csv", "--low", 0, "--high", 1)
    assert result.exit_code == 0
    expected = tp.feature_radius(str(model), X, perturbation=tp.LInf(low=0.0, high=1.0))
    records = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(records) == 6 * 64
    found = np.array([float(record["radius"]) for record in records]).reshape(6, 64)
    np.testing.assert_allclose(found, expected.radius, rtol=1e-6)


def test_the_table_shows_what_matters_nearest_first(run, digits):
    model, rows, _ = digits
    result = run("features", model, rows, "--rows", "0:2", "--all-rows")
    assert result.exit_code == 0
    assert "cannot break the claim alone" in result.stdout
    assert "inf" not in result.stdout.split("\n", 3)[-1]


def test_a_picture_is_drawn_for_images_and_tables(run, digits, tmp_path):
    model, rows, _ = digits
    for words in (("--shape", "8x8"), (), ("--what", "anchors", "--shape", "8X8")):
        picture = tmp_path / "picture.png"
        result = run("features", model, rows, "--rows", "0:1", "--picture", picture, *words)
        assert result.exit_code == 0
        assert picture.read_bytes()[:4] == b"\x89PNG"


def test_anchors_are_proved_in_every_form(run, digits, tmp_path):
    model, rows, X = digits
    out = tmp_path / "anchors.jsonl"
    words = ("--what", "anchors", "--low", 0, "--high", 1, "--engine", "cliques")
    result = run("features", model, rows, *words, "--format", "json", "--out", out)
    assert result.exit_code == 0
    records = json.loads(result.stdout)["records"]
    assert all(record["sufficient"] and record["minimal"] for record in records)
    loaded = tp.load(str(model))
    rng = np.random.default_rng(0)
    for record, row in zip(records, X, strict=True):
        fixed = [int(name.removeprefix("f")) for name in record["features"]]
        points = rng.random((200, 64))
        points[:, fixed] = row[fixed]
        assert len(set(loaded.predict(points)) | set(loaded.predict(row[np.newaxis]))) == 1
    header, *lines = map(json.loads, out.read_text().splitlines())
    assert header["question"]["kind"] == "anchor_features"
    assert [line["features"] for line in lines] == [record["features"] for record in records]


def test_unimportant_features_grow_with_a_smaller_radius(run, digits):
    model, rows, _ = digits

    def count(*words):
        result = run("features", model, rows, "--what", "unimportant", "--format", "csv", *words)
        assert result.exit_code == 0
        return sum(r["unimportant"] == "True" for r in csv.DictReader(io.StringIO(result.stdout)))

    assert count("--eps", 0.01) >= count("--eps", 0.5) >= count()


def test_strict_asks_for_proved_minimality(run, digits):
    model, rows, _ = digits
    words = ("--what", "anchors", "--engine", "multilevel", "--rows", "0:2")
    result = run("features", model, rows, *words, "--strict")
    assert result.exit_code == 3
    assert "not proved minimal" in result.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--shape", "8by8"), "The shape of images must be HxW"),
        (("--shape", "3x3", "--picture", "p.png"), "as many pixels as there are features"),
        (("--eps", "0.1"), "--eps is for"),
        (("--picture", "none/p.png"), "must exist"),
        (("--rows", "50:60"), "at least one row"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(run, digits, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    model, rows, _ = digits
    result = run("features", model, rows, *words)
    assert result.exit_code == 2
    assert sentence in result.stderr


@pytest.mark.parametrize("what", ["radius", "unimportant"])
@pytest.mark.parametrize(
    "words", [("--engine", "cliques"), ("--time-limit", "1"), ("--node-limit", "1")]
)
def test_options_that_would_change_nothing_are_refused(run, digits, what, words):
    model, rows, _ = digits
    result = run("features", model, rows, "--what", what, *words)
    assert result.exit_code == 2
    assert f"{words[0]} has no meaning for '--what {what}', which is found without an engine." in (
        result.stderr
    )
    assert run("features", model, rows, "--rows", "0:1", "--what", "anchors", *words).exit_code == 0
