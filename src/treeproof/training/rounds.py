"""Boosting: one round after another, with held-out rows watched."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.histograms import TrainingTable
from treeproof.kernels.training.losses import (
    GrownTree,
    add_tree,
    logistic_gradients,
    round_to_grid,
    softmax_gradients,
)
from treeproof.kernels.training.growth import GrowthSettings
from treeproof.training.growing import TreeGrower, TreeTask, usable_features

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Shares of rows per round and of features per tree."""

    subsample: float = 1.0
    colsample_bytree: float = 1.0


@dataclass(slots=True, eq=False)
class WatchedRows:
    """Rows that are not trained on, with their margins so far.

    Attributes
    ----------
    values : float32 (n_features, n_rows)
        Columns.
    targets : int64 (n_rows,)
        Class numbers.
    weights : float64 (n_rows,)
        Weights.
    margins : float32 (n_outputs, n_rows)
        Margins after the rounds that were added.
    """

    values: NDArray[np.float32]
    targets: NDArray[np.int64]
    weights: FloatArray
    margins: NDArray[np.float32]
    _rows: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = np.arange(len(self.targets), dtype=np.int32)

    def add(self, trees: Sequence[GrownTree]) -> None:
        """Add the trees of one round."""
        for output, tree in enumerate(trees):
            add_tree(tree, self.values, self._rows, self.margins[output])

    def score(self, metric: str) -> float:
        """Weighted mean of the logistic or softmax loss, or of wrong labels."""
        margins = self.margins.astype(np.float64)
        if len(margins) == 1:
            # Two classes are the softmax of 0 and the margin.
            margins = np.concatenate([np.zeros_like(margins), margins])
        if metric == "error":
            losses = (np.argmax(margins, axis=0) != self.targets).astype(np.float64)
        else:
            largest = margins.max(axis=0)
            total = largest + np.log(np.exp(margins - largest).sum(axis=0))
            losses = total - margins[self.targets, np.arange(len(self.targets))]
        return float(np.average(losses, weights=self.weights))


class BoostingRounds:
    """The state of boosting: margins of the training rows, and what grows trees.

    Parameters
    ----------
    table : TrainingTable
        Training rows.
    targets : int64 (n_rows,)
        Class numbers.
    weights : float64 (n_rows,)
        Weights.
    settings : GrowthSettings
        Rules of growth.
    sampling : Sampling
        Shares of rows and features.
    start : tuple of float
        Margins before the first round, one per output.
    n_threads : int
        Threads: trees of one round side by side, and within them if there are more threads.
    """

    def __init__(
        self,
        table: TrainingTable,
        targets: NDArray[np.int64],
        weights: FloatArray,
        settings: GrowthSettings,
        sampling: Sampling,
        start: tuple[float, ...],
        n_threads: int,
    ) -> None:
        n_rows, n_outputs = len(targets), len(start)
        self._table, self._targets, self._weights = table, targets, weights
        self._sampling = sampling
        self._usable = usable_features(table)
        self._margins = np.repeat(np.array(start, dtype=np.float32)[:, None], n_rows, axis=1)
        self._gradients = np.empty((n_outputs, n_rows, 2))
        self._all_rows = np.arange(n_rows, dtype=np.int32)
        side_by_side = min(n_threads, n_outputs)
        self._resources = ExitStack()
        self._growers = [
            self._resources.enter_context(
                TreeGrower(table, settings, max(1, n_threads // side_by_side))
            )
            for _ in range(side_by_side)
        ]
        self._pool = (
            self._resources.enter_context(ThreadPoolExecutor(side_by_side))
            if side_by_side > 1
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._resources.close()

    def next_round(self, random: np.random.Generator) -> list[GrownTree]:
        """Grow one tree per output and add them to the margins."""
        if len(self._margins) == 1:
            logistic_gradients(self._margins, self._targets, self._gradients)
        else:
            softmax_gradients(self._margins, self._targets, self._gradients)
        rows, order, rest = self._sample(random)
        # Random numbers are drawn before the threads start, so that their order is fixed.
        tasks = [
            TreeTask(
                gradients=gradients,
                rows=rows,
                order=order,
                features=self._features(random),
                seed=int(random.integers(1 << 62)),
            )
            for gradients in self._gradients
        ]

        def work(first: int) -> list[GrownTree]:
            step = len(self._growers)
            return [
                self._grow(self._growers[first], tasks[output], self._margins[output], rest)
                for output in range(first, len(tasks), step)
            ]

        if self._pool is None:
            return work(0)
        shares = list(self._pool.map(work, range(len(self._growers))))
        return [shares[output % len(shares)][output // len(shares)] for output in range(len(tasks))]

    def _grow(
        self,
        grower: TreeGrower,
        task: TreeTask,
        margins: NDArray[np.float32],
        rest: NDArray[np.int32],
    ) -> GrownTree:
        round_to_grid(task.gradients, self._weights)
        tree = grower.grow(task, margins)
        if len(rest):
            add_tree(tree, self._table.values, rest, margins)
        return tree

    def _sample(self, random: np.random.Generator) -> tuple[Any, Any, NDArray[np.int32]]:
        """Rows of the next round, the same by value, and the rows left out."""
        if self._sampling.subsample >= 1.0:
            return self._all_rows, self._table.order, self._all_rows[:0]
        taken = random.random(len(self._all_rows)) < self._sampling.subsample
        if not taken.any():
            taken[random.integers(len(taken))] = True
        rows = self._all_rows[taken]
        order = self._table.order[taken[self._table.order]].reshape(-1, len(rows))
        return rows, order, self._all_rows[~taken]

    def _features(self, random: np.random.Generator) -> NDArray[np.int32]:
        share, usable = self._sampling.colsample_bytree, self._usable
        if share >= 1.0 or len(usable) == 0:
            return usable
        n_taken = max(1, math.floor(share * len(usable)))
        return np.sort(random.choice(usable, n_taken, replace=False)).astype(np.int32)
