"""Boosting: one round after another, with held-out rows watched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

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
from treeproof.training.growing import Growers, TreeGrower, TreeTask, usable_features
from treeproof.training.parameters import Sampling
from treeproof.training.rows import TrainingRows


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


class Rounds:
    """What rounds of boosting share: margins, their gradients, and what each round sees.

    The margins start from `starts`, one per output; rows of weight 0 are never seen.
    """

    def __init__(
        self,
        rows: TrainingRows,
        sampling: Sampling,
        starts: tuple[float, ...],
        usable: NDArray[np.int32],
    ) -> None:
        n_rows = len(rows.targets)
        self.targets, self.weights = rows.targets, rows.weights
        self.margins = _repeated(starts, n_rows)
        self._sampling, self._usable = sampling, usable
        self._gradients = np.empty((len(starts), n_rows, 2))

    def _find_gradients(self) -> None:
        """Gradients and hessians of every output at the margins, without weights."""
        if len(self.margins) == 1:
            logistic_gradients(self.margins, self.targets, self._gradients)
        else:
            softmax_gradients(self.margins, self.targets, self._gradients)

    def _round(self, output: int) -> None:
        """Multiply gradients by weights; on a grid sums are exact, whatever the order of rows."""
        round_to_grid(self._gradients[output], np.where(self.weights > 0.0, self.weights, 1.0))

    def _taken(self, random: np.random.Generator) -> NDArray[np.bool_]:
        """Rows of the next round."""
        seen = self.weights > 0.0
        if self._sampling.subsample >= 1.0:
            return seen
        taken = seen & (random.random(len(seen)) < self._sampling.subsample)
        if not taken.any():
            taken[random.choice(np.flatnonzero(seen))] = True
        return taken

    def _features(self, random: np.random.Generator) -> NDArray[np.int32]:
        """Features of the next tree."""
        share, usable = self._sampling.colsample_bytree, self._usable
        if share >= 1.0 or len(usable) == 0:
            return usable
        n_taken = max(1, math.floor(share * len(usable)))
        return np.sort(random.choice(usable, n_taken, replace=False)).astype(np.int32)


class BoostingRounds(Rounds):
    """Rounds in which rows go where their own values send them."""

    def __init__(
        self,
        table: TrainingTable,
        rows: TrainingRows,
        sampling: Sampling,
        starts: tuple[float, ...],
        growers: Growers,
    ) -> None:
        super().__init__(rows, sampling, starts, usable_features(table))
        self._table, self._growers = table, growers

    def next_round(self, random: np.random.Generator) -> list[GrownTree]:
        """Grow one tree per output and add them to the margins."""
        self._find_gradients()
        taken, order = self._taken(random), self._table.order
        rows, rest = (np.flatnonzero(part).astype(np.int32) for part in (taken, ~taken))
        if len(rest):
            order = order[taken[order]].reshape(-1, len(rows))
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
            task, margins = tasks[output], self.margins[output]
            self._round(output)
            tree = grower.grow(task, margins)
            if len(rest):
                add_tree(tree, self._table.values, rest, margins)
            return tree

        return self._growers.map(grown, range(len(tasks)))
