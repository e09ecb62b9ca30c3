"""`lp`: lower bounds from linear relaxations of the integer programs, solved by HiGHS.

Two programs are relaxed: the decision over the restricted ensemble, and the paper's program for the
distance over the whole model. A bound is computed afresh from the solver's multipliers, with its
rounding error; multipliers of any quality give a valid one, so the solver is not trusted.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from treeproof.comparisons.programs import (
    Encoding,
    Level,
    ProgramSearch,
    encode,
    safe_bound,
)
from treeproof.engines.base import Budget
from treeproof.engines.restricted import Cells, Restricted, restricted_to
from treeproof.engines.row_by_row import RowEngine, RowSearch
from treeproof.errors import check_choice, require_backend
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import CATEGORICAL, ZERO_IS_MISSING, FloatArray
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

_SCALING_ERROR = 1e-12
"""Numbers of a program are rounded once or twice when they are scaled to the order of 1."""

_TOLERANCE = 1e-7
"""HiGHS's own for linear programs, whose numbers are of the order of 1."""

_MARGIN = 1e-9
"""In units of all that an alternative adds up."""

_NO_BOUNDARY = CATEGORICAL | ZERO_IS_MISSING
"""Nodes that do more than compare a number with their threshold."""

_NONE: Level = (np.inf, False)


@dataclass(frozen=True, slots=True)
class LpEngine(RowEngine):
    """The engine 'lp': bounds by linear relaxation.

    To be passed as ``engine=``. It proves rows, and never falsifies them. The budget's nodes are
    programs.

    Parameters
    ----------
    relaxation : {"decision", "distance"}
        What is relaxed: whether a set holds a violation, over the leaves that it reaches; or the
        paper's baseline, how near one is, over the whole model (boxes have no distance, so they
        are decided).
    """

    relaxation: Literal["decision", "distance"] = "decision"

    name: ClassVar[str] = "lp"
    is_complete: ClassVar[bool] = False
    search_type: ClassVar[type[RowSearch]] = ProgramSearch

    def __post_init__(self) -> None:
        """Refuse unknown programs, and name the package that brings the solver."""
        check_choice("relaxation", self.relaxation, ("decision", "distance"), of="lp")
        require_backend("highspy", "milp")

    def decide_row(self, search: Any, cells: Cells) -> None:
        """Prove a row whose relaxation has no violation in the query's own set."""
        if self.relaxation == "decision" or not search.query.reach.is_ball:
            is_proved = _excludes(search, cells)
        else:
            # A level that is only exceeded is beyond the closed ball of its own distance.
            level = _nearest_possible(search)
            is_proved = level == _NONE or level > (search.query.reach.radius or 0.0, False)
        if is_proved:
            search.mark_verified()
        else:
            search.reason = search.reason or UnknownReason.LOOSE_BOUND
            search.mark_unknown()

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Bound the minimal perturbation of every row from below."""
        is_decision = self.relaxation == "decision"

        def solve(search: ProgramSearch) -> None:
            level = _largest_excluded(search) if is_decision else _nearest_possible(search)
            row, outcomes = search.row, search.outcomes
            outcomes.lower[row] = level[0]
            if level == _NONE:
                outcomes.verdict[row] = Verdict.VERIFIED
                outcomes.exact[row] = True
            else:
                outcomes.reason[row] = search.reason or UnknownReason.LOOSE_BOUND

        return self.each_row(query, budget, n_jobs, solve)


def _excludes(search: ProgramSearch, cells: Cells) -> bool:
    """Whether the relaxations of all alternatives exclude a violation in a box."""
    return all(_is_excluded(search, constraints, cells) for constraints in search.alternatives)


def _is_excluded(search: ProgramSearch, constraints: range, cells: Cells) -> bool:
    restricted = restricted_to(search.query, search.row, constraints, cells)
    if restricted.is_excluded_by_eq6():
        return True
    encoding = encode(restricted)
    encoding.ask_margin()
    return _relaxed_bound(search, encoding) > _SCALING_ERROR


def _relaxed_bound(search: ProgramSearch, encoding: Encoding) -> float:
    """Lower bound of the relaxed program's cost; minus infinity without one."""
    answer = search.solve(encoding.program, relaxed=True)
    if answer is None:
        return -np.inf
    if answer.row_multiplier is None:
        search.note_failure(answer)
        return -np.inf
    return safe_bound(encoding.program, answer.row_multiplier)


def _largest_excluded(search: ProgramSearch) -> Level:
    """First level that is not excluded, by doubling and halving; infinite when all are.

    Doubling the number of the level first keeps the programs small.
    """
    levels = search.all_levels()
    proved, refused, step = -1, len(levels), 1
    while refused - proved > 1:
        is_open = refused == len(levels)
        middle = min(proved + step, refused - 1) if is_open else (proved + refused) // 2
        if _excludes(search, search.box_below(levels[middle], inclusive=True)):
            proved = middle
            step *= 2
        else:
            refused = middle
    return levels[refused] if refused < len(levels) else _NONE


def _nearest_possible(search: ProgramSearch) -> Level:
    """First level that the relaxed distance does not rule out; infinite when none is left."""
    levels = search.all_levels()
    if not levels:
        return _NONE
    box = search.box_below(levels[-1], inclusive=True)
    scale = levels[-1][0] or 1.0
    # Distances that HiGHS cannot tell from 0 are decided, which is sound for any ball, so that a
    # class at the first distance that means something settles the row.
    n_here = sum(distance <= _TOLERANCE * scale for distance, _ in levels)
    if n_here and _excludes(search, search.box_below(levels[n_here - 1], inclusive=True)):
        levels = levels[n_here:]
        if not levels:
            return _NONE
    answer = _NONE
    # The alternative that lacks least is likely to be the nearest, which may settle the answer.
    for constraints in sorted(search.alternatives, key=lambda each: _lacking(search, each)):
        restricted = restricted_to(search.query, search.row, constraints, box)
        if restricted.is_excluded_by_eq6():
            continue
        if answer != _NONE and _is_beyond(search, restricted, levels[levels.index(answer) - 1][0]):
            continue  # it has no level before the answer
        encoding = encode(restricted, search.query.ensemble)
        encoding.ask_distance(search.levels, search.home, scale, _SCALING_ERROR)
        bound = _relaxed_bound(search, encoding)
        if bound == -np.inf and _is_excluded(search, constraints, box):
            continue  # the relaxation has no point at all, and the other program shows it
        distance = (bound - _SCALING_ERROR) * scale
        # Only an exact argument could exclude the last distance, too.
        answer = min(answer, next((each for each in levels if each[0] >= distance), levels[-1]))
        if answer == levels[0]:
            break  # whatever the other alternatives would give
    return answer


def _lacking(search: ProgramSearch, constraints: range) -> float:
    """How much the row itself lacks of breaking an alternative."""
    here = restricted_to(search.query, search.row, constraints, (search.home, search.home))
    return float(np.max(here.floor - here.base - here.leaves.gain.sum(axis=1)))


def _is_beyond(search: ProgramSearch, restricted: Restricted, distance: float) -> bool:
    """Whether the trees, each by itself, rule out an alternative up to a distance.

    Sound: the program lets the leaves beyond a boundary at distance d weigh no more than
    ``distance / d`` together, and so does every violation within the distance. These sets are
    nested in each tree, so that taking the best leaves first gives the most that it can add. The
    margin is far beyond the rounding of these sums.
    """
    leaves = restricted.leaves
    most = restricted.base.copy()
    for tree in range(restricted.n_trees):
        first, last = (int(leaf) for leaf in leaves.leaf_start[tree : tree + 2])
        if first == last:
            continue
        gains = leaves.gain[:, first:last]
        beyond, room = _rooms(search, restricted, tree, distance)
        most += [_most_weighed(gain, beyond, room) for gain in gains]
    return bool(np.any(most < restricted.floor - _MARGIN * restricted.scale))


def _rooms(
    search: ProgramSearch, restricted: Restricted, tree: int, distance: float
) -> tuple[list[tuple[int, ...]], list[float]]:
    """Which boundaries lie before each leaf of a tree, and how much may weigh beyond each."""
    ensemble = search.query.ensemble
    trees, node_cut = ensemble.trees, cuts_of(ensemble).node_cut
    first, last = (int(leaf) for leaf in restricted.leaves.leaf_start[tree : tree + 2])
    number_of = {int(row): leaf for leaf, row in enumerate(restricted.leaf_row[first:last])}
    beyond: list[tuple[int, ...]] = [()] * (last - first)
    room: list[float] = []
    stack: list[tuple[int, tuple[int, ...]]] = [(int(trees.root[tree]), ())]
    while stack:
        node, before = stack.pop()
        feature = int(trees.feature[node])
        if feature < 0:
            leaf = number_of.get(int(trees.leaf[node]))
            if leaf is not None:
                beyond[leaf] = before
            continue
        left, right = int(node) + 1, int(trees.right[node])
        near, far = left, right
        cell = int(node_cut[node]) + 1
        if search.home[feature] >= cell:
            near, far, cell = right, left, cell - 1
        stack.append((near, before))
        level = search.levels[feature].get(cell)
        if level is not None and level[0] > distance and not trees.flags[node] & _NO_BOUNDARY:
            room.append(distance / level[0])
            before = (*before, len(room) - 1)
        stack.append((far, before))
    return beyond, room


def _most_weighed(gain: FloatArray, beyond: list[tuple[int, ...]], room: list[float]) -> float:
    """Most that leaves of weight 1 in all add, where sets of them have room for a part of it."""
    room, rest, total = list(room), 1.0, 0.0
    for leaf in np.argsort(-gain).tolist():
        weight = min([rest, *(room[boundary] for boundary in beyond[leaf])])
        total += weight * float(gain[leaf])
        rest -= weight
        if rest == 0.0:
            break
        for boundary in beyond[leaf]:
            room[boundary] -= weight
    return total + rest * float(np.max(gain))
