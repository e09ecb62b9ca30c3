"""Fingerprints outlive versions: run files, evidence and model files know their model by them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.unit.model.test_file_format import binary_stump
from treeproof.model.ensemble import Aggregation, Decision


@pytest.mark.parametrize(
    ("parts", "of_the_first_version"),
    [
        ({}, "a0afa4266d75cdb105569a99a071aaadee640964955b60862561489b24e52115"),
        (
            {
                "aggregation": Aggregation(
                    precision="float32", start=(-0.25,), finish="affine", divisor=3.0, scale=0.1,
                    bias=(0.3,),
                ),
                "decision": Decision(kind="score"),
            },
            "eee04593a42cc184ff16f838f1ee8d04186d8e4a8b272dd8d00f6bb820501766",
        ),
        (
            {
                "decision": Decision(
                    kind="threshold", cut=5e-324, link_divisor=3.0, link_scale=2.0
                ),
                "missing_allowed": False,
            },
            "d0523def4292b662b6ef6a6f9449d86c712185a850373e26d6b1f2ca7025686f",
        ),
    ],
)  # fmt: skip
def test_fingerprints_of_the_first_version_stay(
    parts: dict[str, Any], of_the_first_version: str
) -> None:
    assert replace(binary_stump(), **parts).fingerprint == of_the_first_version


def test_a_later_field_changes_only_models_that_use_it() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Later(Decision):
        later: float = 0.0

    Later.__name__ = "Decision"
    before = binary_stump().fingerprint
    assert replace(binary_stump(), decision=Later(kind="threshold")).fingerprint == before
    used = replace(binary_stump(), decision=Later(kind="threshold", later=1.0))
    assert used.fingerprint != before


def test_numbers_of_numpy_are_the_same_numbers() -> None:
    of_numpy = Aggregation(precision="float64", start=(np.float64(0.0),), divisor=1)
    assert replace(binary_stump(), aggregation=of_numpy).fingerprint == binary_stump().fingerprint
