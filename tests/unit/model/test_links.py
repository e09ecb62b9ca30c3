import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeproof.model import links


@given(st.floats(2.0**-20, 1 - 2.0**-20, width=32))
def test_logit_is_right_to_the_last_bits(probability: float) -> None:
    odds = np.float32(1) / np.float32(probability) - np.float32(1)
    expected = -math.log(float(odds))
    assert links.logit_float32(probability) == pytest.approx(expected, rel=2.0**-22, abs=1e-30)


@given(st.floats(-87, 87, width=32))
def test_sigmoid_is_right_to_the_last_bits(margin: float) -> None:
    assert links.sigmoid_float32(margin) == pytest.approx(1 / (1 + math.exp(-margin)), rel=2.0**-21)


def test_sigmoid_has_a_dead_zone_around_zero() -> None:
    assert links.sigmoid_float32(1.7e-9) == 0.5
    assert links.sigmoid_float32(2e-7) > 0.5
    assert links.sigmoid_float32(-200.0) > 0.0
    assert links.sigmoid_float32(200.0) == 1.0


@given(st.floats(-100, 100, width=32))
def test_exp_and_log_are_float32(value: float) -> None:
    exponential = links.exp_float32(value)
    assert exponential == float(np.float32(exponential))
    if value > 0:
        assert links.log_float32(value) == pytest.approx(math.log(value), rel=2.0**-22, abs=1e-7)


def test_without_a_c_library_double_precision_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(_: object) -> None:
        raise OSError

    monkeypatch.setattr(links.ctypes, "CDLL", no_library)
    links._libm_float32.cache_clear()
    try:
        assert links.exp_float32(1.0) == float(np.float32(math.e))
        assert links.exp_float32(1e6) == math.inf
    finally:
        links._libm_float32.cache_clear()


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("limit", [0.0, 1e-30, -3.5, 1e30, -1e-40])
def test_smallest_true_finds_the_first_float(precision: str, limit: float) -> None:
    real = np.dtype(precision).type
    assert links.smallest_true(lambda x: x >= real(limit), precision) == real(limit)  # type: ignore[arg-type]
    after = np.nextafter(real(limit), real(np.inf))
    assert links.smallest_true(lambda x: x > real(limit), precision) == after  # type: ignore[arg-type]


def test_smallest_true_at_the_ends() -> None:
    largest = float(np.finfo(np.float32).max)
    assert links.smallest_true(lambda _: True, "float32") == -largest
    assert links.smallest_true(lambda _: False, "float32") == largest


def test_argmax_takes_the_first_of_equal_scores() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]], dtype=np.float32)
    assert links.argmax_labels(scores, "identity").tolist() == [0, 1]
    assert links.argmax_labels(scores, "softmax_float32").tolist() == [0, 1]


@given(st.lists(st.integers(-8, 8), min_size=2, max_size=5), st.sampled_from([0.1, 3.0, -50.0]))
def test_softmax_labels_are_those_of_the_whole_computation(steps: list[int], base: float) -> None:
    """Scores a few last bits apart, where rounding decides."""
    scores = np.full((1, len(steps)), base, dtype=np.float32)
    for column, step in enumerate(steps):
        for _ in range(abs(step)):
            scores[0, column] = np.nextafter(scores[0, column], np.float32(np.inf * step))
    largest = scores.max()
    terms = np.array([links.exp_float32(float(s - largest)) for s in scores[0]], dtype=np.float32)
    total = 0.0
    for term in terms:
        total += float(term)
    expected = int(np.argmax(terms / np.float32(total)))
    assert links.argmax_labels(scores, "softmax_float32")[0] == expected
