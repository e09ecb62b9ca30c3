import base64
import io

import numpy as np
import pytest
from matplotlib import image as reader

import treeproof as tp
from treeproof.report import images


def pixels(address):
    prefix, _, encoded = address.partition(",")
    assert prefix == "data:image/png;base64"
    return np.round(255 * reader.imread(io.BytesIO(base64.b64decode(encoded))))


def test_images_are_real_png_files():
    values = np.array([0.0, 0.5, 1.0, np.nan, 0.25, 2.0])
    shown = pixels(images.grey_image(values, (2, 3), 0.0, 1.0))
    assert shown.shape[:2] == (2, 3)
    assert shown[:, :, 0].tolist() == [[0, 128, 255], [0, 64, 255]]


def test_changes_are_coloured_by_direction():
    shown = pixels(images.change_image(np.array([0.0, 1.0, -0.001, 0.0]), (2, 2)))
    still, up, down = shown[0, 0], shown[0, 1], shown[1, 0]
    assert still.tolist() == shown[1, 1].tolist()
    assert up[0] > up[2]
    assert down[2] > down[0]


def test_maps_are_darkest_where_most_changes_are():
    shown = pixels(images.heat_image(np.array([0.0, 1.0, 10.0, 5.0]), (2, 2))).sum(axis=2)
    assert shown[1, 0] < shown[1, 1] < shown[0, 1] < shown[0, 0]


@pytest.mark.parametrize("text", ["8", "8x", "0x8", "8x8x3", "axb", "-1x8"])
def test_shapes_that_are_none_are_refused(text):
    with pytest.raises(tp.InvalidInput, match="must be HxW"):
        images.parse_shape(text)


def test_shapes_must_fit_the_features():
    assert images.parse_shape("28x14") == (28, 14)
    with pytest.raises(tp.InvalidInput, match=r"features \(64\). Got 8x9"):
        images.check_shape((8, 9), 64)
