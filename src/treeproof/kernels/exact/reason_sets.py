"""Reasons of rows, in batches: the first, the lightest, several, what to change, how far to move.

A set of units that suffices meets every set of units whose change can break the claim, and the
other way round. So the lightest of one kind is found by hitting what is known of the other kind,
and a set that hits all sets of one kind leads to a new one of either kind.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, grown
from treeproof.kernels.core.cells import new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.status import FOUND, PROVED
from treeproof.kernels.exact.hitting import Family, find_hitting_set, new_family, with_set
from treeproof.kernels.exact.reasons import (
    ANY,
    FREE,
    HELD,
    STAYS,
    TRIED,
    Known,
    ask,
    begin,
    leave_out,
    new_asked,
    new_known,
    point_inside,
    put_back,
    set_face,
    set_unit,
    widen,
)
from treeproof.kernels.exact.row import witness_point
from treeproof.kernels.exact.search import Budget

MANY_NODES = 2**62
"""More than any search has."""


class Wishes(NamedTuple):
    """What is asked for beside one sufficient set.

    n_sets         int   sufficient sets, if there are so many
    n_changes      int   sets of units whose change can break the claim
    is_minimum     bool  the first ones must be the lightest
    has_intervals  bool  how far the features of the first sufficient set may still move
    """

    n_sets: int
    n_changes: int
    is_minimum: bool
    has_intervals: bool


class Gathered(NamedTuple):
    """What is known about a row.

    known       Known   points that break the claim
    changed     Family  the units that each of those points changes
    sufficient  Family  numbered by their status: PROVED, or why they may not be minimal
    changes     Family  sets whose change can break the claim, numbered by twice their points, and
                        one more where a unit may be needless
    """

    known: Known
    changed: Family
    sufficient: Family
    changes: Family


@noalloc_kernel
def mark_units(asked, known, number, member):
    """Mark the units that a point changes, but those that are free in any case."""
    for unit in range(len(member)):
        member[unit] = 0
    for index in range(known.start[number], known.start[number + 1]):
        unit = asked.units.owner[known.feature[index]]
        if asked.units.use[unit] == ANY:
            member[unit] = 1


@inner_kernel
def with_points(asked, known, changed):
    """The family of what points change, with the points that are new."""
    # Ends: the family grows by one.
    while changed.size[0] < known.size[0]:
        number = changed.size[0]
        changed = with_set(changed, number)
        mark_units(asked, known, number, changed.member[number])
    return changed


@noalloc_kernel
def drop_repeated(family):
    """Take back the last set of a family where it is known; the better status stays.

    The lightest set is sought under all points that are known, and may be found again.
    """
    last = family.size[0] - 1
    for number in range(last):
        is_same = True
        for unit in range(family.member.shape[1]):
            is_same = is_same and family.member[number, unit] == family.member[last, unit]
        if is_same:
            if family.number[last] == PROVED:
                family.number[number] = PROVED
            family.size[0] = last
            return


@inner_kernel
def try_units(asked, gathered, chosen, of_chosen, of_others):
    """Ask whether the answer stays when units are freed, and learn from it; see `begin`.

    Returns PROVED, with what is left of the HELD units as one more sufficient set; FOUND, with one
    more point; or why this could not be decided.
    """
    begin(asked, chosen, of_chosen, of_others)
    answer = np.int64(PROVED)
    for unit in range(len(asked.place)):
        # Sound: the row itself keeps the claim, or nothing would be asked about it.
        if asked.place[unit] == FREE and asked.moves[unit]:
            answer = ask(asked, MANY_NODES)
            break
    known, sufficient = gathered.known, gathered.sufficient
    if answer == FOUND:
        known, _, _ = put_back(asked, known, np.int64(TRIED))
    elif answer == PROVED:
        status, known = leave_out(asked, known)
        sufficient = with_set(sufficient, status)
        member = sufficient.member[sufficient.size[0] - 1]
        for unit in range(len(member)):
            is_in = asked.place[unit] != FREE and asked.place[unit] != STAYS
            member[unit] = 1 if is_in else 0
        drop_repeated(sufficient)
    changed = with_points(asked, known, gathered.changed)
    return answer, Gathered(known, changed, sufficient, gathered.changes)


@noalloc_kernel
def weight_of(asked, member):
    """Weight of a set of units."""
    total = 0.0
    for unit in range(len(member)):
        if member[unit] == 1:
            total += asked.units.weight[unit]
    return total


@inner_kernel
def lightest(asked, family):
    """Number and weight of the lightest set of a family."""
    best = 0
    least = np.inf
    for number in range(family.size[0]):
        weight = weight_of(asked, family.member[number])
        if weight < least:
            least = weight
            best = number
    return best, least


@inner_kernel
def put_first(family, number):
    """Let a set change places with the first of its family."""
    for unit in range(family.member.shape[1]):
        other = family.member[0, unit]
        family.member[0, unit] = family.member[number, unit]
        family.member[number, unit] = other
    other = family.number[0]
    family.number[0] = family.number[number]
    family.number[number] = other


@inner_kernel
def lighten_reason(asked, gathered):
    """Make the first sufficient set the lightest; returns a lower bound of its weight, and all.

    Sound: a sufficient set hits what every point changes, so no set is lighter than the lightest
    that does.
    """
    lower = 0.0
    nothing = new_family(len(asked.place))
    # Ends: each turn finds a point or a set that is new.
    while True:
        best, least = lightest(asked, gathered.sufficient)
        status, weight, members = find_hitting_set(
            gathered.changed, nothing, asked.units.weight, least, np.bool_(False),
            asked.budget.deadline,
        )  # fmt: skip
        if status == PROVED:
            lower = min(weight, least)
        if status != PROVED or lower == least:
            break
        # Ends: each point adds units that stay.
        while True:
            answer, gathered = try_units(asked, gathered, members, np.int64(HELD), np.int64(FREE))
            if answer != FOUND:
                break
            # Units that this point needs stay for now, so that the next one needs others.
            changed = gathered.changed.member[gathered.changed.size[0] - 1]
            for unit in range(len(members)):
                members[unit] = max(members[unit], changed[unit])
        if answer != PROVED:
            break
    put_first(gathered.sufficient, best)
    return lower, gathered


@inner_kernel
def shrink_change(asked, gathered, number):
    """Add to the changes what is left of those of a point when no unit of them is needless.

    Returns whether this could be decided, and all that is known.
    """
    known = gathered.known
    changes = with_set(gathered.changes, 2 * number)
    place = changes.size[0] - 1
    member = changes.member[place]
    mark_units(asked, known, number, member)
    begin(asked, member, np.int64(FREE), np.int64(HELD))
    is_decided = True
    for unit in range(len(member)):
        if member[unit] == 0:
            continue
        set_unit(asked, unit, False)
        number = point_inside(known, asked.box)
        if number < 0:
            answer = ask(asked, MANY_NODES)
            if answer == FOUND:
                known, _, _ = put_back(asked, known, np.int64(TRIED))
                number = known.size[0] - 1
            else:
                is_decided = is_decided and answer == PROVED
        if number < 0:
            set_unit(asked, unit, True)
            continue
        changes.number[place] = 2 * number
        mark_units(asked, known, number, member)
        for other in range(len(member)):
            set_unit(asked, other, member[other] == 1 or not asked.moves[other])
    changes.number[place] += 0 if is_decided else 1
    changed = with_points(asked, known, gathered.changed)
    return is_decided, Gathered(known, changed, gathered.sufficient, changes)


@inner_kernel
def lightest_change(asked, gathered):
    """Find the lightest set of units whose change can break the claim, as the first of changes.

    Returns a lower bound of its weight, infinite when nothing can break the claim, and all that is
    known.

    Sound: while units of every sufficient set must change, no set is lighter than the lightest that
    hits them all.
    """
    lower = 0.0
    nothing = new_family(len(asked.place))
    # Ends: each turn finds a point or a set that is new.
    while True:
        best, least = lightest(asked, gathered.changed)
        status, weight, members = find_hitting_set(
            gathered.sufficient, nothing, asked.units.weight, least, np.bool_(False),
            asked.budget.deadline,
        )  # fmt: skip
        if status == PROVED:
            lower = min(weight, least)
        if status != PROVED or lower == least:
            break
        answer, gathered = try_units(asked, gathered, members, np.int64(FREE), np.int64(HELD))
        if answer > FOUND:
            break
    if least < np.inf:
        _, gathered = shrink_change(asked, gathered, best)
    return lower, gathered


@inner_kernel
def more_reasons(asked, gathered, count):
    """Find further sufficient sets; returns whether there are no others, and all that is known.

    What is freed from the start hits every set known, so none of them comes again.
    """
    # Ends: each turn finds a point or a set that is new.
    while gathered.sufficient.size[0] < count:
        status, weight, members = find_hitting_set(
            gathered.sufficient, gathered.changed, asked.units.weight, np.inf, np.bool_(True),
            asked.budget.deadline,
        )  # fmt: skip
        if status != PROVED or weight == np.inf:
            return status == PROVED, gathered
        answer, gathered = try_units(asked, gathered, members, np.int64(FREE), np.int64(HELD))
        if answer > FOUND:
            break
    return False, gathered


@inner_kernel
def more_changes(asked, gathered, count):
    """Find further minimal changes; returns whether there are no others, and all that is known.

    What is kept from the start hits every change known, so none of them comes again.
    """
    # Ends: each turn finds a point or a set that is new.
    while gathered.changes.size[0] < count:
        status, weight, members = find_hitting_set(
            gathered.changes, gathered.sufficient, asked.units.weight, np.inf, np.bool_(True),
            asked.budget.deadline,
        )  # fmt: skip
        if status != PROVED or weight == np.inf:
            return status == PROVED, gathered
        answer, gathered = try_units(asked, gathered, members, np.int64(HELD), np.int64(FREE))
        is_decided = answer <= FOUND
        if answer == FOUND:
            number = gathered.known.size[0] - 1
            is_decided, gathered = shrink_change(asked, gathered, number)
        if not is_decided:
            break
    return False, gathered


class Tapes(NamedTuple):
    """What is found about a row, as numbers one after another; see `write_row`.

    whole     int64   (capacity,)
    real      float64 (capacity,)
    used      int64   (2,)         of each
    """

    whole: np.ndarray
    real: np.ndarray
    used: np.ndarray


@inner_kernel
def with_numbers(tapes, n_whole, n_real):
    """The tapes, in larger arrays where so many more numbers would not fit."""
    whole, real = tapes.whole, tapes.real
    if tapes.used[0] + n_whole > len(whole):
        whole = grown(whole, tapes.used[0] + n_whole)
    if tapes.used[1] + n_real > len(real):
        real = grown(real, tapes.used[1] + n_real)
    return Tapes(whole, real, tapes.used)


@noalloc_kernel
def put_whole(tapes, value):
    """Append a whole number, for which there is room."""
    tapes.whole[tapes.used[0]] = value
    tapes.used[0] += 1


@noalloc_kernel
def put_real(tapes, value):
    """Append a real number, for which there is room."""
    tapes.real[tapes.used[1]] = value
    tapes.used[1] += 1


@noalloc_kernel
def write_sets(asked, gathered, known, tapes):
    """Write sufficient sets: their number; of each its status, size, and units with points.

    The point of a unit breaks the claim while only the unit and those outside the set change; it is
    -1 where none is known, and for units that a reason must use.
    """
    family = gathered.sufficient
    put_whole(tapes, family.size[0])
    for number in range(family.size[0]):
        begin(asked, family.member[number], np.int64(HELD), np.int64(FREE))
        put_whole(tapes, family.number[number])
        size = 0
        for unit in range(len(asked.place)):
            size += asked.place[unit] != FREE
        put_whole(tapes, size)
        for unit in range(len(asked.place)):
            if asked.place[unit] == FREE:
                continue
            set_unit(asked, unit, True)
            put_whole(tapes, unit)
            put_whole(tapes, point_inside(known, asked.box))
            set_unit(asked, unit, False)


@noalloc_kernel
def write_changes(family, tapes):
    """Write changes: their number; of each its point, whether it is minimal, size, and units."""
    put_whole(tapes, family.size[0])
    for number in range(family.size[0]):
        put_whole(tapes, family.number[number] // 2)
        put_whole(tapes, 1 - family.number[number] % 2)
        size = 0
        for unit in range(family.member.shape[1]):
            size += family.member[number, unit]
        put_whole(tapes, size)
        for unit in range(family.member.shape[1]):
            if family.member[number, unit] == 1:
                put_whole(tapes, unit)


@noalloc_kernel
def write_intervals(asked, known, tapes):
    """Write the cells of every feature that is not free, and the points that keep their ends.

    A point lies in the box with that end moved by a cell; -1 at the domain's end, -2 where none is
    known.
    """
    box, whole = asked.box, asked.whole
    for feature in range(len(box.low)):
        if (
            asked.place[asked.units.owner[feature]] == FREE
            or whole.low[feature] == whole.high[feature]
        ):
            continue
        put_whole(tapes, feature)
        for side in range(2):
            here = box.high[feature] if side == 1 else box.low[feature]
            number = -1
            if here != (whole.high[feature] if side == 1 else whole.low[feature]):
                set_face(asked, feature, side == 1, here + 1 if side == 1 else here - 1)
                number = point_inside(known, box)
                number = number if number >= 0 else -2
                set_face(asked, feature, side == 1, here)
            put_whole(tapes, here)
            put_whole(tapes, number)
    put_whole(tapes, -1)


@inner_kernel
def write_points(asked, known, tapes):
    """Write points: their number; of each how many features it changes, these, and their values."""
    cells = np.empty(len(asked.region.home), dtype=np.int32)
    point = np.empty(len(cells), dtype=np.float64)
    put_whole(tapes, known.size[0])
    for number in range(known.size[0]):
        copy_into(cells, asked.region.home)
        first = known.start[number]
        last = known.start[number + 1]
        for index in range(first, last):
            cells[known.feature[index]] = known.cell[index]
        witness_point(asked.forest, asked.region, cells, point)
        put_whole(tapes, last - first)
        for index in range(first, last):
            put_whole(tapes, known.feature[index])
            put_real(tapes, point[known.feature[index]])


@inner_kernel
def reason_row(asked, wishes, tapes):
    """Find what is wished for about a row, and write it down.

    Whole numbers: the answer (PROVED: there are sets; FOUND: there can be none; or why none was
    found), whether there are no other sets, and no other changes; intervals where they are wished
    for and there are sets; sets, changes, points: see the functions that write them. Real numbers:
    values of the points; lower bounds of the weights of sets and of changes.
    """
    n_units = len(asked.place)
    gathered = Gathered(new_known(), new_family(n_units), new_family(n_units), new_family(n_units))
    is_complete = False
    no_other_change = False
    lower = 0.0
    change_lower = 0.0
    nothing = np.zeros(n_units, dtype=np.int64)
    answer, gathered = try_units(asked, gathered, nothing, np.int64(FREE), np.int64(HELD))
    if answer == PROVED:
        if wishes.is_minimum:
            lower, gathered = lighten_reason(asked, gathered)
        is_complete, gathered = more_reasons(asked, gathered, wishes.n_sets)
        if wishes.n_changes > 0:
            if wishes.is_minimum:
                change_lower, gathered = lightest_change(asked, gathered)
            no_other_change, gathered = more_changes(asked, gathered, wishes.n_changes)
    known = gathered.known
    has_intervals = wishes.has_intervals and answer == PROVED
    if has_intervals:
        begin(asked, gathered.sufficient.member[0], np.int64(HELD), np.int64(FREE))
        _, known = widen(asked, known, MANY_NODES)
    n_sets = gathered.sufficient.size[0] + gathered.changes.size[0]
    n_moved = known.start[known.size[0]]
    n_whole = 8 + 5 * len(asked.box.low) + (3 + 2 * n_units) * n_sets + known.size[0] + n_moved
    tapes = with_numbers(tapes, n_whole, n_moved + 2)
    put_whole(tapes, answer)
    put_whole(tapes, is_complete)
    put_whole(tapes, no_other_change)
    if has_intervals:
        write_intervals(asked, known, tapes)
    write_sets(asked, gathered, known, tapes)
    write_changes(gathered.changes, tapes)
    write_points(asked, known, tapes)
    put_real(tapes, lower)
    put_real(tapes, change_lower)
    return tapes


class ReasonColumns(NamedTuple):
    """Where what is known about each row ends on the tapes, and what it took.

    ends     int64   (n_rows, 2)
    seconds  float64 (n_rows,)
    counts   int64   (n_rows, 4)  nodes, sweeps, points, restrictions
    """

    ends: np.ndarray
    seconds: np.ndarray
    counts: np.ndarray


@kernel
def reason_batch(forest, alternatives, batch, units, wishes, limits, columns):
    """Find reasons for every row of a batch but those to skip; returns tapes of `reason_row`."""
    clock = np.empty(2, dtype=np.int64)
    tapes = Tapes(
        np.empty(1024, dtype=np.int64),
        np.empty(1024, dtype=np.float64),
        np.zeros(2, dtype=np.int64),
    )
    for number in range(len(batch.rows)):
        if not batch.skip[number]:
            started = seconds_now(clock)
            region = new_region(forest.space, batch, number, np.bool_(False))
            budget = Budget(limits.nodes, limits.memory_bytes, started + limits.time_s)
            asked = new_asked(forest, alternatives, batch.groups[number], units, region, budget)
            tapes = reason_row(asked, wishes, tapes)
            copy_into(columns.counts[number], asked.found.counts)
            columns.seconds[number] = seconds_now(clock) - started
        copy_into(columns.ends[number], tapes.used)
    return tapes.whole[: tapes.used[0]].copy(), tapes.real[: tapes.used[1]].copy()
