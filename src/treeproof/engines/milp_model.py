"""The verification problem as a program: cells by order encoding, leaves by weights.

A column per feature and boundary says "the cell is at most this one"; they rise along a feature.
A column per leaf is its weight; the weights of a tree add up to 1. For every tree, feature and
boundary the leaves that lie wholly below it weigh at most what the boundary's column says, and
those wholly above at most the rest. With whole boundary columns the weights are 0 or 1.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from treeproof.engines.instance import rank_space
from treeproof.engines.milp_program import Program
from treeproof.engines.milp_restricted import Restricted, home_cells, level_of
from treeproof.kernels.rank_space import CUT
from treeproof.model.ensemble import (
    CATEGORICAL,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    IntArray,
)
from treeproof.query import Query


@dataclass(frozen=True, slots=True)
class Encoding:
    """A program over a restricted ensemble, and where its columns are.

    Attributes
    ----------
    program : Program
        Minimises nothing yet; see `ask_margin` and `ask_distance`.
    restricted : Restricted
        What it encodes.
    boundaries : dict of int to list of int
        Cells at which each feature is cut, in order; a column each, from `boundary_column` on.
    boundary_column : dict of int to int
        First boundary column of each feature.
    leaf_column : int
        First leaf column.
    margin_column : int
        Least margin of the constraints: at least 0 at every violation.
    """

    program: Program
    restricted: Restricted
    boundaries: dict[int, list[int]]
    boundary_column: dict[int, int]
    leaf_column: int
    margin_column: int

    def ask_margin(self) -> None:
        """Maximise the margin: no violation is in the box if it stays below 0."""
        self.program.cost[self.margin_column] = -1.0

    def ask_distance(self, query: Query, row: int, scale: Fraction, margin: float) -> int:
        """Minimise the distance among points with a margin; returns the distance's column.

        Parameters
        ----------
        query, row
            The question.
        scale : Fraction
            Distance that becomes 1.
        margin : float
            How far below 0 the margin may be, for the solver's tolerances.
        """
        program = self.program
        program.column_low[self.margin_column] = -margin
        column = program.add_columns(1)
        program.cost[column] = 1.0
        home = home_cells(query, row)
        for feature, cells in self.boundaries.items():
            first = self.boundary_column[feature]
            # Moving outwards, each boundary adds the step from the one before it.
            up = [(c, first + i) for i, c in enumerate(cells) if c >= home[feature]]
            down = [(c, first + i) for i, c in enumerate(cells) if c < home[feature]][::-1]
            for side, is_up in ((up, True), (down, False)):
                if side:
                    steps = _steps(query, row, feature, [c for c, _ in side], is_up, scale)
                    sign = 1.0 if is_up else -1.0
                    columns = [number for _, number in side]
                    weights = [sign * step for step in steps]
                    low = sum(steps) if is_up else 0.0
                    program.add_row([column, *columns], [1.0, *weights], low, np.inf)
        return column

    def forbid(self, leaves: list[int]) -> None:
        """Exclude one combination of leaves."""
        columns = [self.leaf_column + leaf for leaf in leaves]
        self.program.add_row(columns, [1.0] * len(columns), -np.inf, len(columns) - 1.0)

    def cells_of(self, point: FloatArray, home: IntArray) -> IntArray:
        """Cells of a solver's point, as near to the home cells as its boundaries allow."""
        low_cell, high_cell = self.restricted.low_cell, self.restricted.high_cell
        cells: IntArray = np.minimum(np.maximum(home, low_cell), high_cell)
        for feature, boundaries in self.boundaries.items():
            first = self.boundary_column[feature]
            below = point[first : first + len(boundaries)] > 0.5
            number = int(np.argmax(below)) if below.any() else len(boundaries)
            least = boundaries[number - 1] + 1 if number > 0 else low_cell[feature]
            most = boundaries[number] if number < len(boundaries) else high_cell[feature]
            cells[feature] = min(max(cells[feature], least), most)
        return cells


def _steps(
    query: Query, row: int, feature: int, cells: list[int], is_up: bool, scale: Fraction
) -> list[float]:
    before, steps = Fraction(0), []
    for cell in cells:
        beyond = cell + 1 if is_up else cell
        distance = level_of(query, row, feature, beyond)[0]
        steps.append(float((distance - before) / scale))
        before = distance
    return steps


def encode(restricted: Restricted, ensemble: Ensemble | None = None) -> Encoding:
    """Write the restricted ensemble as a program.

    Parameters
    ----------
    restricted : Restricted
        The leaves of a box.
    ensemble : Ensemble, optional
        Write the rows of a tree node by node, as the paper does, instead of boundary by boundary:
        the leaves below a child weigh at most what the node's boundary allows.
    """
    program = Program()
    boundaries = _boundaries(restricted)
    boundary_column: dict[int, int] = {}
    for feature, cells in boundaries.items():
        first = program.add_columns(len(cells), is_whole=True)
        boundary_column[feature] = first
        for number in range(first, first + len(cells) - 1):
            program.add_row([number, number + 1], [1.0, -1.0], -np.inf, 0.0)
    leaf_column = program.add_columns(restricted.gain.shape[1])
    margin_column = program.add_columns(1, low=-4.0, high=4.0)
    encoding = Encoding(
        program, restricted, boundaries, boundary_column, leaf_column, margin_column
    )
    for tree in range(restricted.n_trees):
        if ensemble is None or not _add_nodes(encoding, ensemble, tree):
            _add_tree(encoding, tree)
    leaves = list(range(leaf_column, margin_column))
    for gain, excess in zip(restricted.gain.tolist(), restricted.excess.tolist(), strict=True):
        program.add_row([*leaves, margin_column], [*gain, -1.0], -excess, np.inf)
    return encoding


def _boundaries(restricted: Restricted) -> dict[int, list[int]]:
    """Cells after which some leaf of a feature ends or begins."""
    found: dict[int, set[int]] = {}
    low_cell, high_cell = restricted.low_cell, restricted.high_cell
    columns = (restricted.feature.tolist(), restricted.low.tolist(), restricted.high.tolist())
    for feature, low, high in zip(*columns, strict=True):
        cells = found.setdefault(feature, set())
        if low > low_cell[feature]:
            cells.add(low - 1)
        if high < high_cell[feature]:
            cells.add(high)
    return {feature: sorted(cells) for feature, cells in sorted(found.items()) if cells}


def _add_tree(encoding: Encoding, tree: int) -> None:
    """Weights of a tree's leaves: they add up to 1 and respect every boundary."""
    restricted, program = encoding.restricted, encoding.program
    first, last = int(restricted.leaf_start[tree]), int(restricted.leaf_start[tree + 1])
    if first == last:
        return
    columns = range(encoding.leaf_column + first, encoding.leaf_column + last)
    program.add_row(list(columns), [1.0] * len(columns), 1.0, 1.0)
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    for leaf, column in zip(range(first, last), columns, strict=True):
        for entry in range(restricted.range_start[leaf], restricted.range_start[leaf + 1]):
            span = (column, int(restricted.low[entry]), int(restricted.high[entry]))
            ranges.setdefault(int(restricted.feature[entry]), []).append(span)
    for feature, spans in ranges.items():
        own = {high for _, _, high in spans} | {low - 1 for _, low, _ in spans}
        start = encoding.boundary_column.get(feature)
        for number, cell in enumerate(encoding.boundaries.get(feature, [])):
            if cell not in own or start is None:
                continue
            below = [column for column, _, high in spans if high <= cell]
            above = [column for column, low, _ in spans if low > cell]
            if below:
                program.add_row([*below, start + number], [1.0] * len(below) + [-1.0], -np.inf, 0.0)
            if above:
                program.add_row([*above, start + number], [1.0] * (len(above) + 1), -np.inf, 1.0)


def _add_nodes(encoding: Encoding, ensemble: Ensemble, tree: int) -> bool:
    """Add the rows of a tree node by node; False, with nothing added, where zero is missing."""
    restricted, program, trees = encoding.restricted, encoding.program, ensemble.trees
    nodes = range(int(trees.root[tree]), int(trees.root[tree + 1]))
    if any(trees.flags[node] & ZERO_IS_MISSING for node in nodes if trees.feature[node] >= 0):
        return False
    first, last = int(restricted.leaf_start[tree]), int(restricted.leaf_start[tree + 1])
    if first == last:
        return True
    column_of = {int(restricted.leaf_row[i]): encoding.leaf_column + i for i in range(first, last)}
    program.add_row(list(column_of.values()), [1.0] * len(column_of), 1.0, 1.0)
    node_cut = rank_space(ensemble).nodes[:, CUT]
    below: dict[int, list[int]] = {}
    for node in reversed(nodes):  # preorder: children come after their parents
        feature = int(trees.feature[node])
        if feature < 0:
            column = column_of.get(int(trees.leaf[node]))
            below[node] = [] if column is None else [column]
            continue
        left, right = below[node + 1], below[int(trees.right[node])]
        below[node] = left + right
        if not left or not right or trees.flags[node] & CATEGORICAL:
            continue  # the box, or the row's own category, decides here
        number = encoding.boundaries[feature].index(int(node_cut[node]))
        boundary = encoding.boundary_column[feature] + number
        program.add_row([*left, boundary], [1.0] * len(left) + [-1.0], -np.inf, 0.0)
        program.add_row([*right, boundary], [1.0] * (len(right) + 1), -np.inf, 1.0)
    return True
