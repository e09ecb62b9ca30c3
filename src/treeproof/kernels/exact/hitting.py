"""Families of sets of units, and sets that hit all of them: exact, by branch and bound."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table, grown
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.status import PROVED, TIME_LIMIT

UNSET, IN, OUT = 0, 1, 2


class Family(NamedTuple):
    """Sets of units.

    member  int64 (capacity, n_units)  1 for members
    number  int64 (capacity,)          what the caller knows each by
    size    int64 (1,)
    """

    member: np.ndarray
    number: np.ndarray
    size: np.ndarray


@inner_kernel
def new_family(n_units):
    """No sets."""
    return Family(
        np.zeros((8, n_units), dtype=np.int64),
        np.zeros(8, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def with_set(family, number):
    """The family with one more set, empty as yet, in larger tables where they are full."""
    size = family.size[0]
    member, numbers = family.member, family.number
    if size == len(numbers):
        member = grow_table(member, size + 1)
        numbers = grown(numbers, size + 1)
    for unit in range(member.shape[1]):
        member[size, unit] = 0
    numbers[size] = number
    family.size[0] = size + 1
    return Family(member, numbers, family.size)


class Choice(NamedTuple):
    """Where a search for hitting sets stands.

    state     int64 (n_units,)      UNSET, IN, OUT
    level     int64 (n_units,)      of OUT units, the depth at which they were left out
    chosen    int64 (n_units + 1,)  by depth: the set that is branched on
    next      int64 (n_units + 1,)  by depth: the first unit not yet tried
    taken     int64 (n_units + 1,)  by depth: the unit that is IN, or -1
    is_taken  bool  (n_units,)      scratch
    best      int64 (n_units,)      1 for members of the best hitting set
    """

    state: np.ndarray
    level: np.ndarray
    chosen: np.ndarray
    next: np.ndarray
    taken: np.ndarray
    is_taken: np.ndarray
    best: np.ndarray


@inner_kernel
def new_choice(n_units):
    """Room for a search."""
    return Choice(
        np.zeros(n_units, dtype=np.int64),
        np.zeros(n_units, dtype=np.int64),
        np.zeros(n_units + 1, dtype=np.int64),
        np.zeros(n_units + 1, dtype=np.int64),
        np.zeros(n_units + 1, dtype=np.int64),
        np.zeros(n_units, dtype=np.bool_),
        np.zeros(n_units, dtype=np.int64),
    )


@noalloc_kernel
def hardest_set(family, choice, weight):
    """The set with fewest units to choose from among those not hit; -1 when all are hit.

    Returns also a lower bound of what hitting the rest costs, infinite when it cannot be done.

    Sound: sets without a unit in common are hit by different units, each at least as heavy as the
    lightest of its set.
    """
    hardest = -1
    fewest = len(weight) + 1
    rest = 0.0
    for unit in range(len(weight)):
        choice.is_taken[unit] = False
    for number in range(family.size[0]):
        member = family.member[number]
        count = 0
        lightest = np.inf
        is_hit = False
        is_apart = True
        for unit in range(len(weight)):
            if member[unit] == 0 or choice.state[unit] == OUT:
                continue
            if choice.state[unit] == IN:
                is_hit = True
                break
            count += 1
            lightest = min(lightest, weight[unit])
            is_apart = is_apart and not choice.is_taken[unit]
        if is_hit:
            continue
        if count == 0:
            return number, np.inf
        if count < fewest:
            fewest = count
            hardest = number
        if is_apart:
            rest += lightest
            for unit in range(len(weight)):
                if member[unit] == 1 and choice.state[unit] == UNSET:
                    choice.is_taken[unit] = True
    return hardest, rest


@noalloc_kernel
def holds_any(family, choice):
    """Whether some set of a family is IN as a whole."""
    for number in range(family.size[0]):
        is_whole = True
        for unit in range(len(choice.state)):
            if family.member[number, unit] == 1 and choice.state[unit] != IN:
                is_whole = False
                break
        if is_whole:
            return True
    return False


@noalloc_kernel
def next_unit(forbidden, choice, depth, member):
    """Take the next unit of the set at a depth that forms no forbidden set; -1 if none is left."""
    while choice.next[depth] < len(choice.state):
        unit = choice.next[depth]
        choice.next[depth] += 1
        if member[unit] == 1 and choice.state[unit] == UNSET:
            choice.state[unit] = IN
            if not holds_any(forbidden, choice):
                return unit
            choice.state[unit] = OUT
            choice.level[unit] = depth
    return -1


@inner_kernel
def find_hitting_set(family, forbidden, weight, below, is_any_enough, deadline):
    """The lightest set of units that hits every set of a family and holds none that is forbidden.

    below          float64  what is lighter than this is sought, and nothing else
    is_any_enough  bool     the first one that is found will do

    Returns PROVED or TIME_LIMIT, the weight, infinite when there is none, and the members.
    """
    clock = np.empty(2, dtype=np.int64)
    choice = new_choice(len(weight))
    best = below
    is_found = False
    cost = 0.0
    # Nothing avoids a forbidden set that is empty.
    depth = -1 if holds_any(forbidden, choice) else 0
    is_new = True
    n_nodes = 0
    status = PROVED
    while depth >= 0:
        if is_new:
            n_nodes += 1
            if n_nodes % 256 == 0 and seconds_now(clock) > deadline:
                status = TIME_LIMIT
                break
            hardest, rest = hardest_set(family, choice, weight)
            choice.chosen[depth] = hardest
            choice.next[depth] = 0
            choice.taken[depth] = -1
            is_new = False
            if cost + rest >= best:
                choice.chosen[depth] = -1
            elif hardest < 0:
                best = cost
                is_found = True
                for unit in range(len(weight)):
                    choice.best[unit] = 1 if choice.state[unit] == IN else 0
                if is_any_enough:
                    break
        taken = choice.taken[depth]
        if taken >= 0:
            # What this unit leads to is known: the other branches do without it.
            choice.state[taken] = OUT
            choice.level[taken] = depth
            cost -= weight[taken]
        unit = -1
        if choice.chosen[depth] >= 0:
            unit = next_unit(forbidden, choice, depth, family.member[choice.chosen[depth]])
        choice.taken[depth] = unit
        if unit >= 0:
            cost += weight[unit]
            depth += 1
            is_new = True
            continue
        for other in range(len(weight)):
            if choice.state[other] == OUT and choice.level[other] == depth:
                choice.state[other] = UNSET
        depth -= 1
    return status, best if is_found else np.inf, choice.best
