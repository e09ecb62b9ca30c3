"""Ranges, groups and runs in arrays of integers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
"""Integers of 64 bits."""


def ranges(first: Ints, count: Ints) -> Ints:
    """The numbers first, first + 1, …, `count` of each, one range after another."""
    return np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())


def spread(first: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Members of groups one after another: the place of each one's group, and its number.

    first : where the members of each group begin, with one more number at the end
    """
    count = first[group + 1] - first[group]
    return np.repeat(np.arange(len(group)), count), ranges(first[group], count)


def begins(sorted_values: Ints) -> Ints:
    """Where each run of equal values begins."""
    new = np.ones(len(sorted_values), dtype=bool)
    np.not_equal(sorted_values[1:], sorted_values[:-1], out=new[1:])
    return np.flatnonzero(new)


def largest(values: Ints, first: Ints, last: Ints) -> Ints:
    """Largest value of each range, which has at least one."""
    count = last - first + 1
    if not len(count) or count.max() == 1:
        return values[first]
    return np.maximum.reduceat(values[ranges(first, count)], np.cumsum(count) - count)
