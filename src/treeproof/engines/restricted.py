"""One alternative of a row over a box of cells: the leaves that it reaches, and what they must add.

What the engines on foreign solvers, the cliques and the direct combination have in common.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.batches import forest_over_cells
from treeproof.kernels.core.leaves import restrict_box, slack_of_sums
from treeproof.kernels.paper.leaves import Leaves
from treeproof.model.ensemble import FloatArray, IntArray
from treeproof.query.query import Query

Cells = tuple[IntArray, IntArray]
"""First and last cell of each feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restricted:
    """Reachable leaves of one alternative (constraints that must hold together) over one box.

    There is no violation unless base and the gains of the leaves add up to the floor.
    """

    cells: Cells
    leaves: Leaves  # trees that matter to no constraint have none
    leaf_row: IntArray  # (n_leaves,) int32; row of ``trees.leaf_value``
    base: FloatArray  # (n_constraints,); gain before any tree
    floor: FloatArray  # (n_constraints,); the need less every slack
    scale: FloatArray  # (n_constraints,); order of magnitude of all of these

    @property
    def n_trees(self) -> int:
        """Number of trees, with those that have no say."""
        return len(self.leaves.leaf_start) - 1

    def leaves_at(self, cells: IntArray) -> list[int]:
        """The leaf of every tree at a point given in cells."""
        leaves = self.leaves
        at = cells[leaves.feature]
        inside = (leaves.low <= at) & (at <= leaves.high)
        n_leaves = len(leaves.range_start) - 1
        leaf_of_range = np.repeat(np.arange(n_leaves), np.diff(leaves.range_start))
        misses = np.bincount(leaf_of_range[~inside], minlength=n_leaves)
        return np.flatnonzero(misses == 0).tolist()

    def is_excluded_by_eq6(self) -> bool:
        """Whether some constraint fails even with the best leaf of every tree.

        Sound: the floor allows for the rounding of these sums.
        """
        most = self.base + _largest_sum(self.leaves.leaf_start, self.leaves.gain)
        return bool(np.any(most < self.floor))


class Gains(NamedTuple):
    """What the leaves of trees add to some constraints."""

    gain: FloatArray  # (n_constraints, n_leaves)
    base: FloatArray  # (n_constraints,); see `Restricted`
    floor: FloatArray
    scale: FloatArray


def gains_of(
    query: Query, constraints: range, leaf_start: NDArray[np.int64], leaf_row: IntArray
) -> Gains:
    """Return the gains of leaves in the order of trees; those of tree t start at leaf_start[t]."""
    ensemble, table = query.ensemble, query.alternatives
    trees, coefficient = ensemble.trees, table.coefficient[constraints.start : constraints.stop]
    output, value = np.repeat(trees.tree_output, np.diff(leaf_start)), trees.leaf_value[leaf_row]
    is_vector = value.shape[1] > 1 or bool(np.any(output < 0))
    gain = coefficient @ value.T if is_vector else coefficient[:, output] * value[:, 0]
    start = np.array(ensemble.aggregation.start, dtype=np.float64)
    base = coefficient @ start
    slack = [
        slack_of_sums(trees, table.coefficient[c], start, table.unit[c], leaf_start, leaf_row)
        for c in constraints
    ]
    magnitude = np.abs(base) + _largest_sum(leaf_start, np.abs(gain))
    # Sound: adding n doubles of total magnitude m errs by at most n * 2**-53 * m.
    own_rounding = (len(leaf_start) + 4) * 2.0**-52 * magnitude
    part = slice(constraints.start, constraints.stop)
    floor = table.need[part] - np.array(slack) - table.link_slack[part] - own_rounding
    scale = magnitude + np.abs(floor)
    scale = np.where((scale > 0.0) & np.isfinite(scale), scale, 1.0)
    return Gains(np.ascontiguousarray(gain), base, floor, scale)


def restricted_to(
    query: Query, row: int, constraints: range, cells: Cells, *, fixes_label: bool = False
) -> Restricted:
    """Restrict the trees that matter to some constraints to a box of cells.

    fixes_label  whether one leaf of each has to fix the label: what a softmax rounds to depends on
                 the outputs of all classes, and then all trees matter
    """
    ensemble, table = query.ensemble, query.alternatives
    coefficient = table.coefficient[constraints.start : constraints.stop]
    # One walk for all constraints: a weight of 1 for every output that one of them uses.
    every = fixes_label and ensemble.decision.link.startswith("softmax")
    matters = (np.any(coefficient != 0.0, axis=0) | every).astype(np.float64)
    leaf_start, _, leaf_row, range_start, feature, low, high = restrict_box(
        forest_over_cells(query), query.rows[row], *cells, matters
    )
    gains = gains_of(query, constraints, leaf_start, leaf_row)
    return Restricted(
        cells=cells,
        leaves=Leaves(leaf_start, range_start, feature, low, high, gains.gain),
        leaf_row=leaf_row,
        base=gains.base,
        floor=gains.floor,
        scale=gains.scale,
    )


def _largest_sum(leaf_start: NDArray[np.int64], gain: FloatArray) -> FloatArray:
    """Largest sum of gains of one leaf per tree, for each constraint."""
    occupied = leaf_start[:-1][np.diff(leaf_start) > 0]
    if occupied.size == 0:
        return np.zeros(len(gain))
    largest: FloatArray = np.maximum.reduceat(gain, occupied, axis=1).sum(axis=1)
    return largest
