"""`treeproof reasons` from the shell."""

import contextlib
import csv
import io
import json

import numpy as np

import treeproof as tp


def test_sentences_say_what_fixes_the_answer(run, digits):
    model, rows, X = digits
    result = run("reasons", model, rows, "--low", 0, "--high", 1, "--rows", "0:2", "--changes", 1)
    assert result.exit_code == 0
    found = tp.reasons(str(model), X[:2], domain=tp.Box(0.0, 1.0), intervals=True, n_changes=1)
    assert f"row 0: {found.sentence(0)}" in result.stdout
    assert "is fixed by" in result.stdout
    assert "nothing else matters; it changes with" in result.stdout


def test_sets_are_proved_in_every_form(run, digits, tmp_path):
    model, rows, X = digits
    out, picture = tmp_path / "reasons.jsonl", tmp_path / "picture.png"
    words = ("--low", 0, "--high", 1, "--evidence", "--out", out, "--strict")
    result = run("reasons", model, rows, *words, "--format", "json", "--picture", picture)
    assert result.exit_code == 0
    records = json.loads(result.stdout)["records"]
    assert all(record["sufficient"] and record["minimal"] for record in records)
    loaded = tp.load(str(model))
    rng = np.random.default_rng(0)
    for record, row in zip(records, X, strict=True):
        points = rng.random((200, 64))
        for feature, ends in zip(record["features"], record["intervals"], strict=True):
            low, high = max(float(ends[0]), 0.0), min(float(ends[1]), 1.0)
            points[:, feature] = rng.uniform(low, np.nextafter(high, 0.0), 200)
        assert len(set(loaded.predict(points)) | set(loaded.predict(row[np.newaxis]))) == 1
    assert picture.read_bytes()[:4] == b"\x89PNG"
    checked = run("check", out, "--model", model)
    assert checked.exit_code == 0
    assert "6 accepted, 0 rejected" in checked.stdout
    assert run("check", out, "--model", model, "--data", rows).exit_code == 2


def test_comma_separated_values_and_preferences(run, digits):
    model, rows, X = digits
    first = tp.reasons(str(model), X[:1]).features[0][0]
    words = ("--values", "--rows", "0:1", "--format", "csv", "--minimum")
    for side in ("--always", "--never"):
        result = run("reasons", model, rows, *words, side, first)
        (record,) = csv.DictReader(io.StringIO(result.stdout))
        names = record["features"].split(", ")
        assert (f"f{first}" in names) == (side == "--always" and record["sufficient"] == "True")


def test_progress_counts_the_rows(run, digits, monkeypatch):
    model, rows, _ = digits
    told = []

    @contextlib.contextmanager
    def bar(n_rows):
        yield lambda done: told.append((done, n_rows))

    for command, words in (("reasons", ()), ("features", ()), ("features", ("--what", "anchors"))):
        monkeypatch.setattr(f"treeproof.cli.{command}.progress_bar", bar)
        told.clear()
        assert run(command, model, rows, *words).exit_code == 0
        assert told[-1] == (6, 6)


def test_what_has_no_meaning_is_refused(run, digits):
    model, rows, _ = digits
    assert run("reasons", model, rows, "--engine", "milp").exit_code == 2
    result = run("reasons", model, rows, "--changes", 1, "--never", 3)
    assert result.exit_code == 2
    assert "'n_changes' must be 0" in result.stderr
    assert run("reasons", model, rows, "--eps", 0.1, "--evidence").exit_code == 2
