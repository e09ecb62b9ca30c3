"""`cliques`: exact answers by enumerating cliques of leaf boxes (the paper's Algorithm 1).

Each point of the set lies in one leaf per tree, and leaves with meeting boxes share a point
(Lemmas 1 and 2), so the cliques are exactly the outcomes that the set can have. Leaves that are
not products of ranges (zero as missing) arrive here already cut into ranges.
"""

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.instance import base_and_floor, cells_of, point_in_cells, rank_space
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_falsified,
    mark_unknown,
    mark_verified,
)
from treeproof.kernels.baselines.cliques import (
    EXHAUSTED,
    FOUND,
    OUT_OF_NODES,
    Parts,
    Path,
    next_clique,
)
from treeproof.kernels.core.leaves import restrict_box
from treeproof.model.ensemble import ZERO_BAND, Ensemble, FloatArray, IntArray
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason


@dataclass(frozen=True, slots=True)
class CliqueEngine:
    """Exact for few trees or few features; `unknown` when the budget runs out.

    The budget's nodes are partial cliques: sets of leaves of the first k trees that meet.
    """

    name: ClassVar[str] = "cliques"
    is_complete: ClassVar[bool] = True

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; only the budget limits the answer."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box."""
        low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
        cliques = np.zeros(len(query), dtype=np.int64)

        def solve_row(row: int, outcomes: Results) -> None:
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
            else:
                cliques[row] = _solve(query, budget, row, low[row], high[row], outcomes)

        outcomes = for_each_row(query, n_jobs, solve_row)
        outcomes.statistics["cliques"] = cliques
        return outcomes


def _solve(
    query: Query, budget: Budget, row: int, low: FloatArray, high: FloatArray, outcomes: Results
) -> int:
    """Search every alternative; return the number of partial cliques visited."""
    deadline = time.perf_counter() + budget.time_limit_s
    visited = 0
    for constraints in query.alternatives.of_group(int(query.group[row])):
        search = search_over(query, row, constraints, low, high)
        while (status := search.advance(budget.node_limit - visited, deadline)) == FOUND:
            point = point_in_cells(query, row, search.path.low_cell, search.path.high_cell)
            if mark_falsified(query, outcomes, row, point):
                return visited + search.visited
            # Within the slack only the model's own arithmetic decides; it says no violation.
            search.sure[:] = np.inf
        visited += search.visited
        if status != EXHAUSTED:
            limit = UnknownReason.NODE_LIMIT if status == OUT_OF_NODES else UnknownReason.TIME_LIMIT
            mark_unknown(query, outcomes, row, limit)
            return visited
    mark_verified(query, outcomes, row)
    return visited


@dataclass(slots=True)
class CliqueSearch:
    """A search for cliques that satisfy all constraints of one alternative.

    Attributes
    ----------
    parts, path
        See `treeproof.kernels.baselines.cliques`.
    stop_at : int
        Number of parts that have a say; the others only settle what a softmax rounds to.
    sure : float64 (n_constraints,)
        Totals from which a violation is certain without the other parts.
    """

    parts: Parts
    path: Path
    stop_at: int
    sure: FloatArray

    @property
    def visited(self) -> int:
        """Partial cliques visited so far."""
        return int(self.path.state[1])

    def advance(self, node_limit: int, deadline: float) -> int:
        """Go on to the next clique that reaches every floor."""
        clock = np.empty(2, dtype=np.int64)
        status: int = next_clique(
            self.parts, self.path, self.stop_at, self.sure, node_limit, deadline, clock
        )
        return status


def search_over(
    query: Query, row: int, constraints: range, low: FloatArray, high: FloatArray
) -> CliqueSearch:
    """Restrict all trees that matter for an alternative to a closed box."""
    ensemble, alternatives = query.ensemble, query.alternatives
    trees = ensemble.trees
    coefficient = alternatives.coefficient[constraints.start : constraints.stop]
    has_say = np.any(coefficient != 0.0, axis=0)
    # What a softmax rounds to depends on the outputs of all classes.
    wanted = has_say | (ensemble.decision.link != "identity")
    low_cell, high_cell = cells_of(query, row, low, high)
    leaf_start, _, leaf_row, range_start, feature, range_low, range_high = restrict_box(
        trees,
        rank_space(ensemble),
        query.rows[row],
        low_cell,
        high_cell,
        wanted.astype(np.float64),
        ZERO_BAND,
    )
    gain = _gains(ensemble, coefficient, leaf_start, leaf_row)
    floor, sure = np.empty((2, len(constraints)))
    for number, constraint in enumerate(constraints):
        base, least = base_and_floor(query, constraint, leaf_start, leaf_row, gain[number])
        floor[number] = least - base
        # The slack counts upwards as well: twice its size above the floor nothing is left to it.
        need = alternatives.need[constraint]
        sure[number] = need + (need - least) - base
    says = (trees.tree_output < 0) | has_say[trees.tree_output]
    leaves, part_start, constant, stop_at = _parts_of(leaf_start, gain, says)
    parts = _arrange(leaves, part_start, gain, floor - constant, range_start)
    new_range = np.array(
        [r for leaf in leaves for r in range(range_start[leaf], range_start[leaf + 1])],
        dtype=np.int64,
    )
    parts = parts._replace(
        feature=feature[new_range], low=range_low[new_range], high=range_high[new_range]
    )
    return CliqueSearch(parts, _fresh_path(parts, low_cell, high_cell), stop_at, sure - constant)


def _gains(
    ensemble: Ensemble, coefficient: FloatArray, leaf_start: NDArray[np.int64], leaf_row: IntArray
) -> FloatArray:
    """Gain of each restricted leaf for each constraint: (n_constraints, n_leaves)."""
    trees = ensemble.trees
    output = np.repeat(trees.tree_output, np.diff(leaf_start))
    values = trees.leaf_value[leaf_row]
    if values.shape[1] > 1 or np.any(output < 0):
        return np.ascontiguousarray(coefficient @ values.T)
    return np.ascontiguousarray(coefficient[:, output] * values[:, 0])


def _parts_of(
    leaf_start: NDArray[np.int64], gain: FloatArray, says: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray, int]:
    """Leaves in search order; where parts start; gain of trees that are constant; parts with a say.

    Trees with one reachable leaf are constants. Trees without a say come last, and within a part
    the leaves of largest gain come first, so that violations are met early.
    """
    constant = np.zeros(len(gain))
    speaking: list[NDArray[np.int64]] = []
    silent: list[NDArray[np.int64]] = []
    for tree in np.flatnonzero(np.diff(leaf_start)):
        numbers = np.arange(leaf_start[tree], leaf_start[tree + 1])
        order = np.argsort(-gain[0, numbers], kind="stable")
        if not says[tree]:
            silent.append(numbers[order])
        elif len(numbers) > 1:
            speaking.append(numbers[order])
        else:
            constant += gain[:, numbers[0]]
    part_start = np.cumsum([0] + [len(part) for part in speaking + silent]).astype(np.int64)
    leaves = np.array([leaf for part in speaking + silent for leaf in part], dtype=np.int64)
    return leaves, part_start, constant, len(speaking)


def _arrange(
    leaves: NDArray[np.int64],
    part_start: NDArray[np.int64],
    gain: FloatArray,
    floor: FloatArray,
    range_start: NDArray[np.int64],
) -> Parts:
    gain = np.ascontiguousarray(gain[:, leaves])
    n_parts = len(part_start) - 1
    suffix = np.zeros((len(gain), n_parts + 1))
    for part in range(n_parts - 1, -1, -1):
        largest = gain[:, part_start[part] : part_start[part + 1]].max(axis=1)
        suffix[:, part] = suffix[:, part + 1] + largest
    lengths = range_start[leaves + 1] - range_start[leaves]
    nothing = np.zeros(0, dtype=np.int32)
    return Parts(
        part_start=part_start,
        gain=gain,
        range_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        feature=nothing,
        low=nothing,
        high=nothing,
        floor=floor,
        suffix=suffix,
    )


def _fresh_path(parts: Parts, low_cell: IntArray, high_cell: IntArray) -> Path:
    n_parts = len(parts.part_start) - 1
    longest = int(np.diff(parts.range_start).max(initial=0))
    return Path(
        state=np.zeros(2, dtype=np.int64),
        position=np.zeros(n_parts + 1, dtype=np.int64),
        total=np.zeros((len(parts.floor), n_parts + 1)),
        trail_start=np.zeros(n_parts + 1, dtype=np.int64),
        trail=np.zeros((n_parts * longest + 1, 3), dtype=np.int32),
        low_cell=low_cell.copy(),
        high_cell=high_cell.copy(),
    )
