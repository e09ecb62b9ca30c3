"""The worst point of every row's box for a whole ensemble, found by the exact engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.pair_cells import PairCells
from treeproof.engines.properties import aim_of, boxes_of, forest_of, limits_of, search_boxes
from treeproof.errors import UnsupportedModel
from treeproof.kernels.exact.pair_judge import Aim
from treeproof.kernels.exact.pairs import PairForest
from treeproof.kernels.exact.property import PairBatch, PairColumns
from treeproof.model.ensemble import Ensemble
from treeproof.model.evaluate import leaf_rows
from treeproof.model.joined import one_model
from treeproof.query.boxes import RowBoxes
from treeproof.query.pairs import PairQuestion, Ranges
from treeproof.training.reached import Gains, ReachedLeaves

FloatArray = NDArray[np.float64]

BIAS_SCALE = 3.0
"""How much more a step of the bias counts than one of a leaf; its square is penalised less."""
GAP = 1e-5
"""By what part of the leaves' magnitude a worst case may miss the worst one."""
_ROWS_PER_CALL, _LIMITS_PER_CALL = 64, 8


@dataclass(slots=True)
class Cuts:
    """Points of the boxes, told by which values make the margin of the row there.

    Attributes
    ----------
    rows : int64 (n_cuts,)
    index : int32 (n_cuts, width)
        Values that the margin adds up: those of leaves, then the bias of each output, and one that
        stands for nothing.
    signs : float64 (n_cuts, width)
        With what factors.
    """

    rows: NDArray[np.int64]
    index: NDArray[np.int32]
    signs: FloatArray

    def __len__(self) -> int:
        return len(self.rows)

    def margins(self, values: FloatArray) -> FloatArray:
        """Margin of the row at each point; below 0 the label is another one."""
        total: FloatArray = np.einsum("ij,ij->i", self.signs, values[self.index])
        return total

    def taken(self, selection: NDArray[np.intp] | NDArray[np.bool_]) -> "Cuts":
        """Some of them."""
        return Cuts(self.rows[selection], self.index[selection], self.signs[selection])

    def joined(self, other: "Cuts") -> "Cuts":
        """These and others."""
        return Cuts(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.index, other.index]),
            np.concatenate([self.signs, other.signs]),
        )


class WorstCases:
    """Worst cases of rows for one structure of trees and any values of its leaves.

    The values are those of `Ensemble.trees.leaf_value`, row by row, then one bias per output, and
    a last one that is always 0. Margins are in real numbers: of two classes with one output its
    sum, with the sign of the row's class; otherwise the sum of the row's class minus that of the
    best other one.

    Parameters
    ----------
    ensemble : Ensemble
        A classifier.
    boxes : RowBoxes
        Where rows can be put.
    targets : int64 (n_rows,)
        Class number of each row.
    node_limit : int
        Of each row; where it ends a search, the point is the worst one that is known, and
        `bounds` tell how much worse another one could be.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        boxes: RowBoxes,
        targets: NDArray[np.int64],
        *,
        node_limit: int = 2000,
        n_jobs: int = 1,
    ) -> None:
        aggregation = ensemble.aggregation
        if ensemble.decision.kind == "score" or aggregation.finish == "isolation":
            raise UnsupportedModel("Robust training needs a classifier. Got a model of scores.")
        if aggregation.finish == "affine" and not aggregation.scale > 0.0:
            raise UnsupportedModel("Sums of leaves must count with a positive scale.")
        self.ensemble, self.boxes, self.targets = ensemble, boxes, targets
        self.n_jobs = n_jobs
        n_features = ensemble.n_features
        nothing = np.zeros(n_features, dtype=bool)
        ranges = Ranges(
            low=boxes.low, high=boxes.high, rows=boxes.rows, missing=nothing, integer=nothing,
            values={},
        )  # fmt: skip
        self._models = one_model(ensemble)
        zeros = np.zeros(ensemble.n_outputs)
        self._question = PairQuestion(
            kind="value", changed=(), first=zeros, second=zeros, limit=-np.inf
        )
        cells = PairCells(self._models.joint, ranges, ())
        self._forest = forest_of(self._models, cells, self._question)
        self._low, self._high, self._nearest = boxes_of(cells, self._question)
        root = ensemble.trees.root
        self._reached = ReachedLeaves(cells.space, root, self._low, self._high)
        budget = Budget(time_limit_s=np.inf, node_limit=node_limit, memory_limit_mb=1024)
        self._limits = limits_of(budget)
        self.width = ensemble.trees.leaf_value.shape[1]
        self.n_values = ensemble.trees.leaf_value.size
        self.cells = cells

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def is_signed(self) -> bool:
        """Whether one sum decides between two classes."""
        return self.ensemble.n_outputs == 1

    @property
    def threshold(self) -> FloatArray:
        """What sums must reach for a margin of 0, per output."""
        aggregation, cut = self.ensemble.aggregation, self.ensemble.decision.cut
        start = np.array(aggregation.start, dtype=np.float64)
        finish = np.zeros(len(start))
        if aggregation.finish == "affine":
            finish[: len(aggregation.bias)] = aggregation.bias
            finish /= aggregation.scale
            cut /= aggregation.scale
        elif aggregation.finish == "divide":
            cut *= aggregation.divisor
        return (cut if self.is_signed else 0.0) - finish - start

    def values_of(self, leaf_value: FloatArray) -> FloatArray:
        """Values of leaves as they are deployed, with what stands beside them as the bias."""
        return np.concatenate([leaf_value.ravel(), -self.threshold / BIAS_SCALE, [0.0]])

    def leaf_values(self, values: FloatArray) -> FloatArray:
        """Values for `Ensemble.trees.leaf_value`, the bias put into the first tree of each output.

        Adding a number to all leaves of a tree adds it to the sum of every row.
        """
        trees = self.ensemble.trees
        table = values[: self.n_values].reshape(-1, self.width).copy()
        bias = values[self.n_values : -1] * BIAS_SCALE + self.threshold
        if not self.is_signed:
            bias -= bias.mean()  # the same for all classes changes nothing
        for output, number in enumerate(bias):
            tree = 0 if self.width > 1 else int(np.argmax(trees.tree_output == output))
            nodes = slice(trees.root[tree], trees.root[tree + 1])
            leaves = trees.leaf[nodes][trees.feature[nodes] < 0]
            table[leaves, output if self.width > 1 else 0] += number
        return table

    def home(self) -> Cuts:
        """The rows as they are; with more than two classes, against the class with next number."""
        rivals = np.where(self.targets == 0, 1, 0)
        return self._cuts(np.arange(len(self)), self._nearest, rivals)

    def find(
        self,
        values: FloatArray,
        rows: NDArray[np.intp] | None = None,
        *,
        is_open: Callable[[FloatArray, FloatArray], NDArray[np.bool_]] | None = None,
    ) -> tuple[Cuts, FloatArray]:
        """Worst points of rows, and below what no margin in their boxes is.

        Every point lies in its box; that the bound holds is the exact engine's, or follows from
        the worst leaf of every tree.

        Parameters
        ----------
        values : float64 (n_values,)
            Values of leaves and biases.
        rows : ndarray of int, optional
            Which rows; by default all.
        is_open : callable, optional
            Given a bound of the margin of each row and that of the worst point that is known, says
            which rows are worth a search; by default all whose worst point is not known.
        """
        rows = np.arange(len(self)) if rows is None else rows
        table = values[: self.n_values].reshape(-1, self.width).copy()
        table.setflags(write=False)  # as those of every ensemble, for which kernels are compiled
        bias = values[self.n_values : -1] * BIAS_SCALE
        order, lower = self._rivals(table, bias)
        order, lower = order[rows], lower[rows]
        rivals, cells = order[:, 0].copy(), self._points(table, order[:, 0], rows)
        least = self._cuts(rows, cells, rivals).margins(values)
        scale = max(float(np.abs(table).max(initial=0.0)) * self.ensemble.n_trees, 1e-12)
        searched = least > lower[:, 0] + GAP * scale
        if is_open is not None:
            searched &= is_open(lower[:, 0], least)
        bounds = np.where(searched, np.inf, lower[:, 0])
        own = self.targets[rows]
        first: Any = self._forest.first
        first = first._replace(trees=first.trees._replace(leaf_value=table))
        forest = self._forest._replace(first=first, second=first)
        for rank in range(order.shape[1]):
            # Rivals come in the order of what their trees allow: the others can do no worse.
            ends = searched & (lower[:, rank] >= least)
            bounds[ends] = np.minimum(bounds[ends], lower[ends, rank])
            searched &= ~ends
            asked = np.stack([own, order[:, rank]], axis=1)
            for label, rival in np.unique(asked[searched], axis=0):
                mine = np.flatnonzero(searched & (asked == (label, rival)).all(axis=1))
                weights = np.zeros(self.ensemble.n_outputs)
                if self.is_signed:
                    weights[0] = 1.0 if label == 0 else -1.0
                else:
                    weights[rival], weights[label] = 1.0, -1.0
                question = replace(self._question, first=weights)
                shift = float(weights @ bias)
                # Of later rivals only what is worse than the worst point so far is of interest.
                mine = mine[np.argsort(-least[mine], kind="stable")]
                limits = -least[mine] - shift if rank else None
                found = self._solve(forest, question, rows[mine], GAP * scale, limits)
                margins = np.where(found.is_found, -found.value - shift, np.inf)
                proved = np.maximum(-found.upper - shift, lower[mine, rank])
                bounds[mine] = np.minimum(bounds[mine], proved)
                better = margins < least[mine]
                least[mine[better]] = margins[better]
                cells[mine[better]] = found.cells[better]
                rivals[mine[better]] = rival
        return self._cuts(rows, cells, rivals), bounds

    def _gains(self, table: FloatArray) -> Gains:
        trees = self.ensemble.trees
        return Gains(table, trees.leaf, trees.tree_output, self.targets, self.is_signed)

    def _rivals(self, table: FloatArray, bias: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """The other classes of each row, those first that the worst leaves of trees put nearest.

        With bounds of the margins over them.
        """
        gains, n_rows = self._gains(table), len(self)
        if self.is_signed:
            rivals = 1 - self.targets
            lower = self._reached.worst(gains, rivals, points=False).total
            lower += np.where(self.targets == 1, bias[0], -bias[0])
            return rivals[:, None], lower[:, None]
        lower = np.empty((n_rows, self.ensemble.n_outputs))
        for rival in range(self.ensemble.n_outputs):
            others = np.full(n_rows, rival)
            lower[:, rival] = self._reached.worst(gains, others, points=False).total
        lower += bias[self.targets][:, None] - bias
        lower[np.arange(n_rows), self.targets] = np.inf
        order = np.argsort(lower, axis=1, kind="stable")[:, :-1]
        return order, np.take_along_axis(lower, order, axis=1)

    def _points(
        self, table: FloatArray, rivals: NDArray[np.intp], rows: NDArray[np.intp]
    ) -> NDArray[np.int32]:
        """Points of rows that have the worst leaves of trees, where some point has them all."""
        everybody = np.zeros(len(self), dtype=np.intp)
        everybody[rows] = rivals
        worst = self._reached.worst(self._gains(table), everybody, points=True)
        # Sound: every one of these leaves has cells in the row's box, so both ends stay in it.
        cells = np.minimum(np.maximum(self._nearest, worst.low), worst.high)
        return np.ascontiguousarray(cells[rows])

    def _solve(
        self,
        forest: PairForest,
        question: PairQuestion,
        rows: NDArray[np.intp],
        gap: float,
        limits: FloatArray | None,
    ) -> PairColumns:
        """Search rows for the largest value, or for what exceeds a limit of each row's own.

        Limits rise; rows of one call share the smallest one, for which they look a little too far.
        """

        def aim_at(first: int) -> Aim:
            if limits is None:
                return aim_of(question, gap, 0.0)
            limit = float(limits[first])
            return aim_of(replace(question, limit=limit, ends_when="below"), gap, 0.0)

        return search_boxes(
            forest,
            aim_at,
            PairBatch(self._low[rows], self._high[rows], self._nearest[rows]),
            self._limits,
            at_once=_ROWS_PER_CALL if limits is None else _LIMITS_PER_CALL,
            n_jobs=self.n_jobs,
        )

    def _cuts(
        self, rows: NDArray[np.intp], cells: NDArray[np.int32], rivals: NDArray[np.intp]
    ) -> Cuts:
        """Points in cells as cuts."""
        n_outputs = self.ensemble.n_outputs
        columns = zip(self.cells.columns, cells.T, strict=True)
        points = np.stack([column.values[own_cells] for column, own_cells in columns], axis=1)
        leaves = leaf_rows(self._models.joint, points)
        own = self.targets[rows]
        if self.is_signed:
            bias = np.full((len(rows), 1), self.n_values)
            index = np.concatenate([leaves, bias], axis=1).astype(np.int32)
            signs = np.where(own == 1, 1.0, -1.0)[:, None] * np.ones(index.shape)
            signs[:, -1] *= BIAS_SCALE
            return Cuts(rows.astype(np.int64), index, signs)
        own_bias, rival_bias = self.n_values + own, self.n_values + rivals
        bias = np.stack([own_bias, rival_bias], axis=1)
        bias_signs = np.tile([BIAS_SCALE, -BIAS_SCALE], (len(rows), 1))
        if self.width > 1:
            places = [leaves * self.width + own[:, None], leaves * self.width + rivals[:, None]]
            ones = np.ones(leaves.shape)
            index = np.concatenate([*places, bias], axis=1)
            signs = np.concatenate([ones, -ones, bias_signs], axis=1)
            return Cuts(rows.astype(np.int64), index.astype(np.int32), signs)
        output = self.ensemble.trees.tree_output[None, :]
        kinds = (output == own[:, None]) * 1.0 - (output == rivals[:, None]) * 1.0
        # Only trees of two classes count: they come first, and what is left stands for nothing.
        width = int(np.sort(np.bincount(output[0], minlength=n_outputs))[-2:].sum())
        order = np.argsort(kinds == 0.0, axis=1, kind="stable")[:, :width]
        signs = np.take_along_axis(kinds, order, axis=1)
        index = np.take_along_axis(leaves, order, axis=1)
        index = np.where(signs == 0.0, self.n_values + n_outputs, index)
        index = np.concatenate([index, bias], axis=1).astype(np.int32)
        return Cuts(rows.astype(np.int64), index, np.concatenate([signs, bias_signs], axis=1))
