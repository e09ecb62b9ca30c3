"""Pictures of features: what is drawn, and what is refused."""

import dataclasses

import numpy as np
import pytest

import treeproof as tp
from treeproof.report.feature_maps import save_figure
from treeproof.results.features import FeatureResults
from treeproof.results.reasons import Reasons


def feature_results(radius, **changes):
    radius = np.atleast_2d(np.asarray(radius, dtype=np.float64))
    columns = {
        "row": np.arange(len(radius)) + 5,
        "label": np.array([7] * len(radius), dtype=object),
        "radius": radius,
        "attained": np.isfinite(radius),
        "breaking_value": np.where(np.isfinite(radius), 1.0, np.nan),
        "unimportant": np.isinf(radius),
        "examined": np.ones(radius.shape, dtype=bool),
        "broken": np.zeros(len(radius), dtype=bool),
    }
    return FeatureResults(**(columns | changes))


def anchor_results(features, **changes):
    label = np.array(["spam"], dtype=object)
    results = Reasons.empty(np.zeros((1, 4)), label, [np.zeros(0, dtype=np.int64)])
    columns = {
        "row": np.array([5]),
        "features": [np.array(features)],
        "sufficient": np.array([True]),
        "minimal": np.array([True]),
    }
    return dataclasses.replace(results, **(columns | changes))


def texts(figure):
    return " ".join(
        [axis.get_title() + axis.get_title(loc="left") for axis in figure.axes]
        + [text.get_text() for axis in figure.axes for text in axis.texts]
        + [label.get_text() for axis in figure.axes for label in axis.get_yticklabels()]
    )


def test_a_map_is_dark_where_little_is_enough_and_full_where_nothing_is():
    results = feature_results([0.0, 0.2, 0.5, np.inf])
    figure = tp.draw_features(results, values=[0, 1, 2, 3], shape=(2, 2))
    image, drawn, bar = figure.axes
    np.testing.assert_array_equal(image.images[0].get_array(), [[0, 1], [2, 3]])
    shown = drawn.images[0].get_array()
    assert shown[0, 0] < shown[0, 1] < shown[1, 0] < shown[1, 1]
    assert shown[1, 1] == drawn.images[0].get_clim()[1]
    assert bar.get_yticklabels()[-1].get_text() == "never"
    assert "row 5 (class 7)" in texts(figure)
    assert "1 of 4 never matter" in texts(figure)


def test_entries_that_were_not_moved_stay_blank():
    examined = np.array([[True, False, True, True]])
    results = feature_results([0.1, np.inf, np.inf, 0.3], examined=examined)
    figure = tp.draw_features(results, shape=(2, 2))
    assert np.isnan(np.asarray(figure.axes[0].images[0].get_array())[0, 1])


def test_bars_are_sorted_and_named():
    results = feature_results([0.5, np.inf, 0.1], feature_names=("age", "name", "income"))
    figure = tp.draw_features(results)
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["income", "age"]
    assert [bar.get_width() for bar in axis.patches] == [0.1, 0.5]
    assert "1 features never change it" in texts(figure)


def test_many_features_leave_out_the_least_sensitive():
    figure = tp.draw_features(feature_results(np.linspace(0.1, 1.0, 50)))
    assert len(figure.axes[0].patches) == 30
    assert "20 more" in texts(figure)


def test_nothing_to_show_is_said():
    assert "no feature alone" in texts(tp.draw_features(feature_results([np.inf, np.inf])))


def test_boxes_have_no_radius_but_a_map():
    unimportant = np.array([[True, False, True, True]])
    results = feature_results([np.nan] * 4, unimportant=unimportant)
    figure = tp.draw_features(results, shape=(2, 2))
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), [[1, 0], [1, 1]])
    assert len(tp.draw_features(results).axes[0].patches) == 1


def test_anchors_are_marked():
    figure = tp.draw_features(anchor_results([1, 2]), values=np.zeros(4), shape=(2, 2))
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), [[1, 0], [0, 1]])
    assert "a minimal set of 2 features fixes the answer" in texts(figure)
    loose = anchor_results([1], minimal=np.array([False]))
    assert "a sufficient set of 1" in texts(tp.draw_features(loose))
    broken = anchor_results([], sufficient=np.array([False]), minimal=np.array([False]))
    assert "already broken" in texts(tp.draw_features(broken))


def test_wrong_shapes_and_places_are_refused(tmp_path):
    results = feature_results([0.1, 0.2, 0.3, 0.4])
    with pytest.raises(tp.InvalidInput, match="as many pixels as there are features"):
        tp.draw_features(results, shape=(3, 3))
    with pytest.raises(tp.InvalidInput, match="'row' must be from 0 to 0"):
        tp.draw_features(results, 1)
    with pytest.raises(tp.InvalidInput, match="as many pixels as there are features"):
        tp.draw_features(anchor_results([0]), shape=(3, 3))
    figure = tp.draw_features(results)
    with pytest.raises(tp.InvalidInput, match="cannot be written"):
        save_figure(figure, tmp_path / "picture.xyz")
    with pytest.raises(tp.InvalidInput, match="cannot be written"):
        save_figure(figure, tmp_path / "none" / "picture.png")
    save_figure(figure, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
