"""Hitting sets against enumeration."""

import itertools

import numpy as np
import pytest

from tests.kernels import called
from treeproof.kernels.core.status import PROVED
from treeproof.kernels.exact.hitting import Family, find_hitting_set

find = called(find_hitting_set)


def family(member):
    return Family(member, np.arange(len(member)), np.array([len(member)]))


@pytest.mark.parametrize("seed", range(200))
def test_the_lightest_set_is_found(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    # With more units than a word has bits, sets reach over several words.
    offset = 60 * int(rng.integers(0, 2))
    member, forbidden = (np.zeros((rng.integers(0, 8), n + offset), dtype=np.int64) for _ in "ab")
    for table in (member, forbidden):
        table[:, offset:] = rng.random((len(table), n)) < rng.choice([0.2, 0.5])
    weight = rng.integers(1, 4, size=n + offset).astype(float)
    everything = np.zeros((2**n, n + offset), dtype=np.int64)
    everything[:, offset:] = list(itertools.product([0, 1], repeat=n))
    fits = np.array([((row & member).any(axis=1)).all() for row in everything])
    fits &= np.array([not (row >= forbidden).all(axis=1).any() for row in everything])
    least = (everything[fits] @ weight).min(initial=np.inf)
    below = np.inf if rng.random() < 0.6 else float(rng.integers(1, 6))
    status, found, chosen = find(
        family(member), family(forbidden), weight, below, np.bool_(False), np.inf
    )
    assert status == PROVED
    assert found == (least if least < below else np.inf)
    if found < np.inf:
        assert chosen @ weight == found
    _, found, chosen = find(
        family(member), family(forbidden), weight, np.inf, np.bool_(True), np.inf
    )
    assert (found < np.inf) == bool(fits.any())
    if found < np.inf:
        assert (chosen & member).any(axis=1).all()
        assert not (chosen >= forbidden).all(axis=1).any()
