"""Categories and missing values never move: what is proved is told from what is only kept."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

import treeproof as tp

NAMES = ("colour", "size", "unused")
KEPT = "kept fixed (categories and missing values never move)"


@pytest.fixture(scope="module")
def by_colour():
    """Colour 0 says no, colour 1 says yes; size decides where the colour is 2."""
    import pandas as pd

    rng = np.random.default_rng(0)
    colour, size = rng.integers(0, 3, 400), rng.random(400)
    X = pd.DataFrame({"colour": colour.astype(float), "size": size, "unused": np.zeros(400)})
    y = np.where(colour == 2, size > 0.5, colour == 1)
    classifier = HistGradientBoostingClassifier(max_iter=10, categorical_features=[0])
    return classifier.fit(X, y), tp.load(classifier.fit(X, y))


ROWS = np.array([[0.0, 0.25, 1.0], [2.0, 0.25, np.nan], [2.0, np.nan, 1.0]])


def test_anchors_name_what_is_kept_besides_them(by_colour):
    classifier, model = by_colour
    found = tp.anchor_features(model, ROWS)
    assert found.names(0) == []
    assert found.kept_names(0) == ["colour"]
    assert found.sufficient[0]
    # The claim is about rows of the same colour: another one breaks the empty set.
    import pandas as pd

    moved = pd.DataFrame([[0.0, 0.25, 1.0], [1.0, 0.25, 1.0]], columns=NAMES)
    assert classifier.predict(moved).tolist() == [False, True]
    assert found.kept_names(1) == ["colour"]  # no tree looks at what is missing there
    assert found.kept_names(2) == ["colour", "size"]
    summary = found.summary().splitlines()
    assert summary[0] == (
        "3 rows: 3 sets proved to fix the answer while categories and missing values stay"
    )
    assert f"{KEPT} in 3 rows: colour, size" in summary
    assert [record["kept_fixed"] for record in found.records()] == [
        ["colour"],
        ["colour"],
        ["colour", "size"],
    ]


def test_without_them_the_sentence_is_as_strong_as_ever():
    X = np.random.default_rng(1).random((80, 2))
    model = tp.load(HistGradientBoostingClassifier(max_iter=3).fit(X, X[:, 0] > 0.5))
    summary = tp.anchor_features(model, X[:2]).summary()
    assert summary.splitlines()[0] == "2 rows: 2 sets proved to fix the answer"
    assert "kept" not in summary


def test_single_features_that_were_not_moved_are_listed(by_colour):
    for ask in (tp.feature_radius, tp.unimportant_features):
        found = ask(by_colour[1], ROWS)
        assert [found.kept_names(row) for row in range(3)] == [
            ["colour"],
            ["colour"],
            ["colour", "size"],
        ]
        assert not found.unimportant[:, 0].any()
        assert found.unimportant[1, 2]  # missing, but no tree looks at it
        assert f"{KEPT} in 3 rows: colour, size" in found.summary().splitlines()


def test_pictures_say_it(by_colour):
    pytest.importorskip("matplotlib")
    model = by_colour[1]
    said = f"{KEPT}: colour, size"
    box = tp.Box(-np.inf, np.inf)
    for results in (
        tp.anchor_features(model, ROWS),
        tp.feature_radius(model, ROWS),
        tp.unimportant_features(model, ROWS, None, box),
    ):
        for options in ({}, {"shape": (1, 3), "values": np.zeros(3)}):
            assert tp.draw_features(results, 2, **options).get_supxlabel() == said
            assert tp.draw_features(results, 0, **options).get_supxlabel() == f"{KEPT}: colour"
    drawn = tp.draw_features(tp.unimportant_features(model, ROWS, None, box), 2, shape=(1, 3))
    shown = np.ma.filled(drawn.axes[0].images[0].get_array().astype(float), np.nan)
    assert np.isnan(shown[0]).tolist() == [True, True, False]


@pytest.mark.parametrize("what", ["radius", "unimportant", "anchors"])
def test_the_shell_says_it_in_every_form(by_colour, what: str, tmp_path: Path):
    from click.testing import CliRunner

    from treeproof.cli.main import main

    by_colour[1].save(tmp_path / "model.treeproof")
    np.save(tmp_path / "rows.npy", ROWS)
    words = ["features", str(tmp_path / "model.treeproof"), str(tmp_path / "rows.npy")]
    words += ["--what", what, "--out", str(tmp_path / "found.jsonl")]
    kept = [
        {"row": 0, "features": ["colour"]},
        {"row": 1, "features": ["colour"]},
        {"row": 2, "features": ["colour", "size"]},
    ]
    table = CliRunner().invoke(main, words)
    assert f"{KEPT} in 3 rows: colour, size" in table.stdout
    assert json.loads((tmp_path / "found.jsonl").read_text().splitlines()[0])["kept_fixed"] == kept
    found = json.loads(CliRunner().invoke(main, [*words, "--format", "json"]).stdout)
    assert found["kept_fixed"] == kept
    assert found["arithmetic"] == "float64 rows, which the deployed model takes as they are"
    lines = CliRunner().invoke(main, [*words, "--format", "csv"])
    assert KEPT in lines.stderr
