"""Families of sets of units, and sets that hit all of them: exact, by branch and bound."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table, grown, sorted_order
from treeproof.kernels.core.bits import BIT, LAST, SIX, lowest_bit
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.status import PROVED, TIME_LIMIT


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
    """Where a search for hitting sets stands; sets of places are bits of words.

    sets      uint64 (n_sets, n_words)       those to hit, those of fewest members first
    bad       uint64 (n_forbidden, n_words)  those that must not be taken as a whole
    unit      int64 (n_units,)      the unit at each place: those of most sets first
    is_in     uint64 (n_words,)     places that are taken
    is_out    uint64 (n_words,)     places that are left out
    used      uint64 (n_words,)     scratch
    level     int64 (n_units,)      by place that is left out, the depth at which this was done
    chosen    int64 (n_units + 1,)  by depth: the set that is branched on
    next      int64 (n_units + 1,)  by depth: the first place not yet tried
    taken     int64 (n_units + 1,)  by depth: the place that is taken, or -1
    best      int64 (n_units,)      1 for members of the best hitting set
    """

    sets: np.ndarray
    bad: np.ndarray
    unit: np.ndarray
    is_in: np.ndarray
    is_out: np.ndarray
    used: np.ndarray
    level: np.ndarray
    chosen: np.ndarray
    next: np.ndarray
    taken: np.ndarray
    best: np.ndarray


@inner_kernel
def as_bits(family, place):
    """Sets of a family as bits, those of fewest members first.

    place  int64 (n_units,)  of each unit
    """
    n_sets = family.size[0]
    size = np.zeros(n_sets, dtype=np.float64)
    for number in range(n_sets):
        for unit in range(len(place)):
            size[number] += family.member[number, unit]
    order = sorted_order(size, True)
    bits = np.zeros((n_sets, len(place) // 64 + 1), dtype=np.uint64)
    for index in range(n_sets):
        for unit in range(len(place)):
            if family.member[order[index], unit] == 1:
                at = np.uint64(place[unit])
                bits[index, at >> SIX] |= BIT << (at & LAST)
    return bits


@inner_kernel
def new_choice(family, forbidden, n_units):
    """Room for a search."""
    frequency = np.zeros(n_units, dtype=np.float64)
    for number in range(family.size[0]):
        for unit in range(n_units):
            frequency[unit] += family.member[number, unit]
    order = sorted_order(frequency, False)
    place = np.empty(n_units, dtype=np.int64)
    for index in range(n_units):
        place[order[index]] = index
    n_words = n_units // 64 + 1
    return Choice(
        as_bits(family, place), as_bits(forbidden, place), order,
        np.zeros(n_words, dtype=np.uint64), np.zeros(n_words, dtype=np.uint64),
        np.zeros(n_words, dtype=np.uint64), np.zeros(n_units, dtype=np.int64),
        np.zeros(n_units + 1, dtype=np.int64), np.zeros(n_units + 1, dtype=np.int64),
        np.zeros(n_units + 1, dtype=np.int64), np.zeros(n_units, dtype=np.int64),
    )  # fmt: skip


@noalloc_kernel
def hardest_set(choice, weight):
    """The set with fewest units to choose from among those not hit; -1 when all are hit.

    Returns also a lower bound of what hitting the rest costs, infinite when it cannot be done.

    Sound: sets without a unit in common are hit by different units, each at least as heavy as the
    lightest of its set.
    """
    sets, is_in, is_out, used = choice.sets, choice.is_in, choice.is_out, choice.used
    n_words = len(is_in)
    hardest = -1
    fewest = len(weight) + 1
    rest = 0.0
    for word in range(n_words):
        used[word] = 0
    for number in range(len(sets)):
        is_hit = False
        is_apart = True
        for word in range(n_words):
            is_hit = is_hit or sets[number, word] & is_in[word] != 0
            is_apart = is_apart and sets[number, word] & ~is_out[word] & used[word] == 0
        if is_hit:
            continue
        count = 0
        lightest = np.inf
        for word in range(n_words):
            left = sets[number, word] & ~is_out[word]
            while left != 0:
                place = word * 64 + np.int64(lowest_bit(left))
                lightest = min(lightest, weight[choice.unit[place]])
                count += 1
                left &= left - BIT
        if count == 0:
            return number, np.inf
        if count < fewest:
            fewest = count
            hardest = number
        if is_apart:
            rest += lightest
            for word in range(n_words):
                used[word] |= sets[number, word] & ~is_out[word]
    return hardest, rest


@noalloc_kernel
def holds_any(choice):
    """Whether some set that must not be taken is taken as a whole."""
    for number in range(len(choice.bad)):
        is_whole = True
        for word in range(len(choice.is_in)):
            is_whole = is_whole and choice.bad[number, word] & ~choice.is_in[word] == 0
        if is_whole:
            return True
    return False


@noalloc_kernel
def next_place(choice, depth):
    """Take the next place of the set at a depth that forms no forbidden set; -1 if none is left."""
    # Ends: the place moves on.
    while choice.next[depth] < len(choice.unit):
        place = choice.next[depth]
        choice.next[depth] += 1
        word = np.uint64(place) >> SIX
        bit = BIT << (np.uint64(place) & LAST)
        is_open = (choice.is_in[word] | choice.is_out[word]) & bit == 0
        if is_open and choice.sets[choice.chosen[depth], word] & bit != 0:
            choice.is_in[word] |= bit
            if not holds_any(choice):
                return place
            choice.is_in[word] &= ~bit
            choice.is_out[word] |= bit
            choice.level[place] = depth
    return -1


@inner_kernel
def find_hitting_set(family, forbidden, weight, below, is_any_enough, deadline):
    """The lightest set of units that hits every set of a family and holds none that is forbidden.

    below          float64  what is lighter than this is sought, and nothing else
    is_any_enough  bool     the first one that is found will do

    Returns PROVED or TIME_LIMIT, the weight, infinite when there is none, and the members.
    """
    clock = np.empty(2, dtype=np.int64)
    choice = new_choice(family, forbidden, len(weight))
    best = below
    is_found = False
    cost = 0.0
    # Nothing avoids a forbidden set that is empty.
    depth = -1 if holds_any(choice) else 0
    is_new = True
    n_nodes = 0
    status = PROVED
    while depth >= 0:
        if is_new:
            n_nodes += 1
            if n_nodes % 256 == 0 and seconds_now(clock) > deadline:
                status = TIME_LIMIT
                break
            hardest, rest = hardest_set(choice, weight)
            choice.chosen[depth] = hardest
            choice.next[depth] = 0
            choice.taken[depth] = -1
            is_new = False
            if cost + rest >= best:
                choice.chosen[depth] = -1
            elif hardest < 0:
                best = cost
                is_found = True
                for place in range(len(weight)):
                    is_in = choice.is_in[np.uint64(place) >> SIX] >> (np.uint64(place) & LAST)
                    choice.best[choice.unit[place]] = np.int64(is_in & BIT)
                if is_any_enough:
                    break
        taken = choice.taken[depth]
        if taken >= 0:
            # What this unit leads to is known: the other branches do without it.
            bit = BIT << (np.uint64(taken) & LAST)
            choice.is_in[np.uint64(taken) >> SIX] &= ~bit
            choice.is_out[np.uint64(taken) >> SIX] |= bit
            choice.level[taken] = depth
            cost -= weight[choice.unit[taken]]
        place = np.int64(-1)
        if choice.chosen[depth] >= 0:
            place = next_place(choice, depth)
        choice.taken[depth] = place
        if place >= 0:
            cost += weight[choice.unit[place]]
            depth += 1
            is_new = True
            continue
        for other in range(len(weight)):
            bit = BIT << (np.uint64(other) & LAST)
            if choice.is_out[np.uint64(other) >> SIX] & bit != 0 and choice.level[other] == depth:
                choice.is_out[np.uint64(other) >> SIX] &= ~bit
        depth -= 1
    return status, best if is_found else np.inf, choice.best


@inner_kernel
def as_family(table):
    """Rows of a table as a family."""
    size = np.full(1, len(table), dtype=np.int64)
    return Family(table, np.zeros(len(table), dtype=np.int64), size)


@kernel
def hitting_set(sets, forbidden, weight, below, is_any_enough, time_s):
    """`find_hitting_set` for sets that are rows of tables, int64 (n_sets, n_units)."""
    now = seconds_now(np.empty(2, dtype=np.int64))
    return find_hitting_set(
        as_family(sets), as_family(forbidden), weight, below, is_any_enough, now + time_s
    )
