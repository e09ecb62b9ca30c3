"""What is worked out of an ensemble is worked out once, and goes with it."""

import pickle
from dataclasses import replace

import pytest

from tests.unit.model.test_file_format import binary_stump
from treeproof.model import validation
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import cached_per_ensemble


def test_a_value_is_worked_out_once_per_ensemble():
    asked = []

    @cached_per_ensemble
    def value_of(ensemble):
        asked.append(ensemble)
        return object()

    first, second = binary_stump(), binary_stump()
    assert value_of(first) is value_of(first)
    assert value_of(first) is not value_of(second)
    assert [id(ensemble) for ensemble in asked] == [id(first), id(second)]


def test_another_provenance_neither_validates_again_nor_forgets(monkeypatch: pytest.MonkeyPatch):
    ensemble = binary_stump()

    @cached_per_ensemble
    def value_of(_):
        return object()

    known = value_of(ensemble)
    monkeypatch.setattr(validation, "validate", lambda _: pytest.fail("validated again"))
    renamed = ensemble.with_provenance(source="elsewhere")
    assert value_of(renamed) is known
    assert (renamed.provenance.source, renamed.trees) == ("elsewhere", ensemble.trees)
    assert ensemble.provenance.source != "elsewhere"


def test_the_model_over_doubles_keeps_the_provenance_of_its_model():
    ensemble = replace(binary_stump(), input_precision="float32")
    accept_float64_rows(ensemble)
    renamed = ensemble.with_provenance(source="elsewhere")
    assert accept_float64_rows(renamed).provenance == renamed.provenance


def test_pickles_hold_no_values():
    ensemble = binary_stump()
    before = len(pickle.dumps(ensemble))
    value_of = cached_per_ensemble(lambda _: bytes(100_000))
    assert len(value_of(ensemble)) == 100_000
    assert len(pickle.dumps(ensemble)) == before
    assert len(value_of(pickle.loads(pickle.dumps(ensemble)))) == 100_000
