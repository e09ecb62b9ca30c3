"""The self-test passes what is right and notices every single way of being slightly wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treeproof.errors import SelfTestFailed
from treeproof.loaders.base import CannotAnswer, Loaded, Reference
from treeproof.loaders.self_test import run_self_test, self_test_rows
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)


def ensemble(n_trees: int = 20, **changes: Any) -> Ensemble:
    """Trees of depth 2 over two numeric features and a categorical one."""
    random = np.random.default_rng(3)
    builder = TreeBuilder()
    for tree in range(n_trees):
        chosen = builder.add_category_set([0, 2, 5, 40])
        builder.add_tree(
            feature=[tree % 2, 2, 1 - tree % 2, 0, 0, 0, 0],
            threshold=[*random.normal(size=3).astype(np.float32), 0, 0, 0, 0],
            left=[1, 3, 5, -1, -1, -1, -1],
            right=[2, 4, 6, -1, -1, -1, -1],
            flags=[tree % 2, CATEGORICAL, MISSING_LEFT, 0, 0, 0, 0],
            value=[0, 0, 0, *random.normal(size=4).astype(np.float32)],
            output=0,
            category_set=[-1, chosen, -1, -1, -1, -1, -1],
        )
    plain: dict[str, Any] = {
        "trees": builder.finish(),
        "n_features": 4,
        "n_outputs": 1,
        "input_precision": "float32",
        "aggregation": Aggregation(precision="float32", start=(0.25,)),
        "decision": Decision(kind="threshold", cut=0.0),
        "classes": (0, 1),
        "provenance": Provenance(library="Library", library_version="1.2"),
    }
    return Ensemble(**(plain | changes))


def single_leaf(value: float) -> Ensemble:
    builder = TreeBuilder()
    builder.add_tree(
        feature=[0], threshold=[0], left=[-1], right=[-1], flags=[0], value=[value], output=0
    )
    return ensemble(
        trees=builder.finish(), aggregation=Aggregation(precision="float32", start=(0.0,))
    )


def reference_of(model: Ensemble) -> Reference:
    """A library that computes what an ensemble says."""
    return Reference(
        margins=lambda rows: evaluate.margins(model, rows),
        labels=lambda rows: evaluate.label_indices(model, evaluate.margins(model, rows)),
    )


def changed_trees(model: Ensemble, **arrays: Any) -> Ensemble:
    return replace(model, trees=model.trees._replace(**arrays))


def test_equal_answers_pass() -> None:
    model = ensemble()
    tested = run_self_test(Loaded(model, reference_of(model)))
    assert tested.provenance.self_test == "passed: margins of 2,000 rows bit-equal, labels equal"
    assert tested.fingerprint == model.fingerprint


def test_a_score_has_no_labels_to_compare() -> None:
    model = ensemble(decision=Decision(kind="score"), classes=())
    tested = run_self_test(Loaded(model, replace(reference_of(model), labels=None)))
    assert tested.provenance.self_test == "passed: margins of 2,000 rows bit-equal"


def non_strict(model: Ensemble) -> Ensemble:
    up = np.nextafter(model.trees.threshold.astype(np.float32), np.float32(np.inf))
    numeric = (model.trees.feature >= 0) & ((model.trees.flags & CATEGORICAL) == 0)
    return changed_trees(model, threshold=np.where(numeric, up.astype(np.float64), 0.0))


def one_threshold_a_float_lower(model: Ensemble) -> Ensemble:
    threshold = model.trees.threshold.copy()
    threshold[0] = np.nextafter(np.float32(threshold[0]), np.float32(-np.inf))
    return changed_trees(model, threshold=threshold)


def other_missing_direction(model: Ensemble) -> Ensemble:
    flags = model.trees.flags.copy()
    flags[7] ^= MISSING_LEFT
    return changed_trees(model, flags=flags)


def zero_is_missing(model: Ensemble) -> Ensemble:
    flags = model.trees.flags.copy()
    flags[0] |= ZERO_IS_MISSING
    flags[0] ^= MISSING_LEFT
    return changed_trees(model, flags=flags)


def other_category(model: Ensemble) -> Ensemble:
    words = model.trees.set_words.copy()
    words[0] ^= 1 << 5
    return changed_trees(model, set_words=words)


def no_negative_categories(model: Ensemble) -> Ensemble:
    flags = model.trees.flags.copy()
    flags[1] |= NONNEGATIVE_CATEGORY
    return changed_trees(model, flags=flags)


def one_leaf_a_float_higher(model: Ensemble) -> Ensemble:
    value = model.trees.leaf_value.copy()
    largest = np.argmax(np.abs(value))
    value[largest] = np.nextafter(np.float32(value[largest]), np.float32(np.inf))
    return changed_trees(model, leaf_value=value)


def swapped_trees(model: Ensemble) -> Ensemble:
    """The same sums in another order: trees 0 and 1 have the same shape."""
    order = np.concatenate(
        [np.arange(7, 14), np.arange(7), np.arange(14, len(model.trees.feature))]
    )
    leaves = np.concatenate(
        [np.arange(4, 8), np.arange(4), np.arange(8, len(model.trees.leaf_value))]
    )
    return changed_trees(
        model,
        feature=model.trees.feature[order],
        threshold=model.trees.threshold[order],
        flags=model.trees.flags[order],
        category_set=model.trees.category_set[order],
        leaf_value=model.trees.leaf_value[leaves],
    )


def base_score_a_float_higher(model: Ensemble) -> Ensemble:
    start = float(np.nextafter(np.float32(0.25), np.float32(1)))
    return replace(model, aggregation=replace(model.aggregation, start=(start,)))


def double_input(model: Ensemble) -> Ensemble:
    return replace(model, input_precision="float64")


MISTAKES = [
    non_strict,
    one_threshold_a_float_lower,
    other_missing_direction,
    zero_is_missing,
    other_category,
    no_negative_categories,
    one_leaf_a_float_higher,
    swapped_trees,
    base_score_a_float_higher,
    double_input,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_small_mistake_is_noticed(mistake: Callable[[Ensemble], Ensemble]) -> None:
    # Only models with float64 rows can count zero as missing.
    right = ensemble(input_precision="float64" if mistake is zero_is_missing else "float32")
    wrong = mistake(right)
    with pytest.raises(SelfTestFailed, match=r"rows of the self-test disagree with Library 1\.2"):
        run_self_test(Loaded(wrong, reference_of(right)))


def test_the_message_names_row_kind_and_both_answers() -> None:
    right = ensemble()
    with pytest.raises(SelfTestFailed) as caught:
        run_self_test(Loaded(non_strict(right), reference_of(right)))
    message = str(caught.value)
    assert "(one step below thresholds)" in message
    assert "got np.float32(" in message
    assert "expected np.float32(" in message


def test_wrong_labels_are_noticed_even_where_margins_agree() -> None:
    right = ensemble()
    shifted = replace(right, decision=Decision(kind="threshold", cut=0.5))
    with pytest.raises(SelfTestFailed, match="labels of the self-test disagree"):
        run_self_test(Loaded(shifted, reference_of(right)))


def test_another_precision_is_noticed() -> None:
    right = ensemble()
    wide = Reference(margins=lambda rows: evaluate.margins(right, rows).astype(np.float64))
    with pytest.raises(SelfTestFailed, match="in float64"):
        run_self_test(Loaded(right, wide))


def test_another_number_of_outputs_is_noticed() -> None:
    right = ensemble()
    two = Reference(margins=lambda rows: np.zeros((len(rows), 2), dtype=np.float32))
    with pytest.raises(SelfTestFailed, match="2 scores per row"):
        run_self_test(Loaded(right, two))


def test_minus_zero_is_not_zero() -> None:
    model = single_leaf(0.0)
    minus = Reference(margins=lambda rows: np.full((len(rows), 1), -0.0, dtype=np.float32))
    with pytest.raises(SelfTestFailed, match=r"expected np.float32\(-0.0\)"):
        run_self_test(Loaded(model, minus))


def test_a_library_that_fails_has_not_confirmed_the_model() -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("no such booster")

    with pytest.raises(SelfTestFailed, match="RuntimeError: no such booster"):
        run_self_test(Loaded(ensemble(), Reference(margins=broken)))


def test_without_a_library_nothing_is_claimed() -> None:
    for error, reason in (
        (ImportError("No module named 'library'"), "not run: Library cannot be imported"),
        (CannotAnswer("it is a dump"), "not run: it is a dump"),
    ):

        def no_answer(_: Any, error: Exception = error) -> Any:
            raise error

        loaded = Loaded(ensemble(), Reference(margins=no_answer))
        assert run_self_test(loaded).provenance.self_test == reason


def test_rows_hold_what_they_promise() -> None:
    model = ensemble()
    rows = self_test_rows(model)
    thresholds = model.trees.threshold[(model.trees.feature == 0)]
    on = [kind == "on thresholds" for kind in rows.kinds]
    assert np.isin(rows.values[on, 0], thresholds).mean() > 0.5
    assert np.isnan(rows.values[-1]).all()
    assert np.isinf(rows.values).any()
    assert {-0.5, 0.7, 41.0, -1.0} <= set(rows.values[:, 2])
    assert len(set(rows.kinds)) == 9


def test_rows_respect_what_the_library_refuses() -> None:
    model = ensemble(missing_allowed=False, infinite_allowed=False, input_precision="float64")
    rows = self_test_rows(model)
    assert np.isfinite(rows.values).all()
    assert {0.0, 2.0, 5.0, 40.0} < set(rows.values[:, 2])


def test_large_models_get_fewer_rows() -> None:
    assert len(self_test_rows(ensemble(n_trees=600)).values) == 250
    assert self_test_rows(ensemble(n_features=400_000)).values.shape == (20, 400_000)


def test_a_model_of_leaves_only_can_be_tested() -> None:
    model = single_leaf(1.0)
    tested = run_self_test(Loaded(model, reference_of(model)))
    assert tested.provenance.self_test.startswith("passed")


def test_huge_thresholds_make_no_infinite_rows() -> None:
    largest = float(np.finfo(np.float32).max)
    builder = TreeBuilder()
    for threshold in (largest, -largest):
        builder.add_tree(
            feature=[0, 0, 0],
            threshold=[threshold, 0, 0],
            left=[1, -1, -1],
            right=[2, -1, -1],
            flags=[0, 0, 0],
            value=[0, 1, 2],
            output=0,
        )
    model = ensemble(trees=builder.finish(), infinite_allowed=False, missing_allowed=False)
    rows = self_test_rows(model).values
    assert np.isfinite(rows.astype(np.float32)).all()
