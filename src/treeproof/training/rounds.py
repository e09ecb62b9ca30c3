"""Boosting: one round after another, with held-out rows watched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from treeproof.training.classifier import TrainingRows
from treeproof.training.growing import Growers, TreeGrower, TreeTask, usable_features
from treeproof.training.parameters import Sampling


@dataclass(slots=True, eq=False)
class WatchedRows:
    """Rows that are not trained on, with their margins so far."""

    values: NDArray[np.float32]  # (n_features, n_rows) columns
    rows: TrainingRows
    margins: NDArray[np.float32]  # (n_outputs, n_rows) after the rounds that were added

    @classmethod
    def of(cls, rows: TrainingRows, starts: tuple[float, ...]) -> Self:
        """Before the first round."""
        return cls(np.ascontiguousarray(rows.X.T), rows, _repeated(starts, len(rows.targets)))

    def add(self, trees: Sequence[GrownTree]) -> None:
        """Add the trees of one round."""
        numbers = np.arange(self.values.shape[1], dtype=np.int32)
        for output, tree in enumerate(trees):
            add_tree(tree, self.values, numbers, self.margins[output])

    def score(self, metric: str) -> float:
        """Weighted mean of the logistic or softmax loss, or of wrong labels."""
        margins, targets = self.margins.astype(np.float64), self.rows.targets
        if len(margins) == 1:
            # Two classes are the softmax of 0 and the margin.
            margins = np.concatenate([np.zeros_like(margins), margins])
        if metric == "error":
            losses = (np.argmax(margins, axis=0) != targets).astype(np.float64)
        else:
            largest = margins.max(axis=0)
            total = largest + np.log(np.exp(margins - largest).sum(axis=0))
            losses = total - margins[targets, np.arange(len(targets))]
        return float(np.average(losses, weights=self.rows.weights))


def _repeated(starts: tuple[float, ...], n_rows: int) -> NDArray[np.float32]:
    return np.repeat(np.array(starts, dtype=np.float32)[:, None], n_rows, axis=1)


class BoostingRounds:
    """The state of boosting: margins of the training rows, and what grows trees.

    The margins start from `starts`, one per output.
    """

    def __init__(
        self,
        table: TrainingTable,
        rows: TrainingRows,
        sampling: Sampling,
        starts: tuple[float, ...],
        growers: Growers,
    ) -> None:
        n_rows = len(rows.targets)
        self._table, self._targets, self._weights = table, rows.targets, rows.weights
        self._sampling, self._growers = sampling, growers
        self._usable = usable_features(table)
        self._margins = _repeated(starts, n_rows)
        self._gradients = np.empty((len(starts), n_rows, 2))
        self._all_rows = np.arange(n_rows, dtype=np.int32)

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

        def grown(grower: TreeGrower, output: int) -> GrownTree:
            task, margins = tasks[output], self._margins[output]
            round_to_grid(task.gradients, self._weights)
            tree = grower.grow(task, margins)
            if len(rest):
                add_tree(tree, self._table.values, rest, margins)
            return tree

        return self._growers.map(grown, range(len(tasks)))

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
