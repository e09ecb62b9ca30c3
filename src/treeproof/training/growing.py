"""One tree after another: the memory that growth needs, and its threads."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.growth import (
    NODE,
    STATE,
    Growth,
    GrowthSettings,
    Scratch,
    grow,
)
from treeproof.kernels.training.histograms import TrainingTable, add_rows_in_thread
from treeproof.kernels.training.losses import GrownTree
from treeproof.kernels.training.search import search_in_thread
from treeproof.kernels.training.splits import SPLIT

Task = TypeVar("Task")
Grown = TypeVar("Grown")

_PARALLEL_WORK = 400_000
"""Additions below which handing a node to threads costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTask:
    """What one tree is grown from: gradients, rows, order and features as in `Growth`."""

    gradients: NDArray[np.float64]
    rows: NDArray[np.int32]
    order: NDArray[np.int32]
    features: NDArray[np.int32]
    seed: int


class TreeGrower:
    """Grows trees on one table, with memory that is used again for the next tree.

    Large nodes are searched in `n_threads` threads; the result does not depend on their number.
    """

    def __init__(self, table: TrainingTable, settings: GrowthSettings, n_threads: int) -> None:
        n_features, n_rows = table.values.shape
        n_bins = len(table.bin_lower)
        n_sums = 3 if len(table.order) else 2
        self._table, self._settings = table, settings
        if n_threads > 1:
            entries_per_row = max(1, len(table.entries) // max(n_rows, 1) + len(table.order))
            most = (_PARALLEL_WORK - min(4 * n_bins, _PARALLEL_WORK - 1)) // entries_per_row + 1
            self._settings = settings._replace(parallel_rows=most)
        capacity = min(2 ** (min(settings.max_depth, 40) + 1) - 1, 2 * n_rows + 1)
        self._nodes, self._splits = np.empty(capacity, dtype=NODE), np.empty(capacity, dtype=SPLIT)
        self._histograms = np.zeros((int(np.log2(max(n_rows, 1))) + 3, n_bins, n_sums))
        self._private = np.zeros((n_threads - 1, n_bins, n_sums))
        widest = int(np.max(_n_bins(table), initial=1))
        self._scratch = [
            Scratch(
                groups=np.empty((6, max(widest, n_rows if len(table.order) else 0) + 2)),
                rows=np.empty(n_rows, dtype=np.int32),
                keys=np.empty(n_features, dtype=np.uint64),
                drawn=np.empty((2, n_features), dtype=np.uint8),
                ceilings=np.empty(n_features),
                runs=np.empty((widest + 1, 4)),
                found=np.empty(2, dtype=SPLIT),
            )
            for _ in range(n_threads)
        ]
        self._pool = ThreadPoolExecutor(n_threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def grow(self, task: TreeTask, margins: NDArray[np.float32]) -> GrownTree:
        """Grow one tree and add its leaves to the margins (n_rows,) of the rows of the task."""
        growth = Growth(
            gradients=task.gradients,
            features=task.features,
            rows=task.rows.copy(),
            order=task.order.copy(),
            goes_left=np.zeros(self._table.values.shape[1], dtype=np.uint8),
            nodes=self._nodes,
            splits=self._splits,
            histograms=self._histograms,
            free=np.empty(len(self._histograms), dtype=np.int64),
            stack=np.empty(len(self._nodes) + 1, dtype=np.int64),
            state=np.zeros(1, dtype=STATE),
        )
        settings = self._settings._replace(seed=task.seed)
        while not grow(self._table, settings, growth, self._scratch[0], margins):
            self._search(settings, growth)
        return _compact(growth)

    def _search(self, settings: GrowthSettings, growth: Growth) -> None:
        """Search one pair of nodes in threads: rows are shared out first, then features."""
        table, features, state = self._table, growth.features, growth.state[0]
        small = growth.nodes[state["small"]]
        target = growth.histograms[small["buffer"]]
        n_threads = len(self._scratch)
        ends = np.linspace(small["begin"], small["end"], n_threads + 1).astype(np.int64).tolist()
        borders = _feature_borders(table, features, int(small["end"] - small["begin"]), n_threads)

        def add(thread: int) -> None:
            histogram = target if thread == 0 else self._private[thread - 1]
            if thread > 0:
                histogram[:] = 0.0
            begin, end = ends[thread], ends[thread + 1]
            add_rows_in_thread(table, growth.gradients, growth.rows, begin, end, histogram)

        def search(thread: int) -> None:
            first, last = borders[thread], borders[thread + 1]
            if first < last:
                bins = slice(
                    table.features[features[first]]["first_bin"],
                    table.features[features[last - 1]]["end_bin"],
                )
                for part in self._private:
                    target[bins] += part[bins]
            search_in_thread(table, settings, growth, first, last, self._scratch[thread])

        list(self._pool.map(add, range(n_threads)))
        list(self._pool.map(search, range(n_threads)))
        # The first of equal gains wins, as it does without threads: features are in order.
        found = np.stack([scratch.found for scratch in self._scratch])
        self._scratch[0].found[:] = found[np.argmax(found["gain"], axis=0), [0, 1]]
        state["searched"] = 1


class Growers:
    """Grows trees side by side, one per thread; each in several if there are more threads."""

    def __init__(
        self, table: TrainingTable, settings: GrowthSettings, n_threads: int, n_trees: int
    ) -> None:
        self._n_growers = min(n_threads, n_trees)
        self._free: SimpleQueue[TreeGrower] = SimpleQueue()
        self._resources = ExitStack()
        self._pool = self._resources.enter_context(ThreadPoolExecutor(self._n_growers))
        for _ in range(self._n_growers):
            grower = TreeGrower(table, settings, n_threads // self._n_growers)
            self._free.put(self._resources.enter_context(grower))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def map(self, grown: Callable[[TreeGrower, Task], Grown], tasks: Iterable[Task]) -> list[Grown]:
        """Results of ``grown(grower, task)`` for every task, in their order."""

        def run(task: Task) -> Grown:
            grower = self._free.get()
            try:
                return grown(grower, task)
            finally:
                self._free.put(grower)

        return list(map(run, tasks) if self._n_growers == 1 else self._pool.map(run, tasks))


def _n_bins(table: TrainingTable) -> NDArray[np.int64]:
    """Number of bins of each feature; 0 for those that are constant."""
    return table.features["end_bin"] - table.features["first_bin"]


def usable_features(table: TrainingTable) -> NDArray[np.int32]:
    """Features with at least two different values, the only ones that can split."""
    return np.flatnonzero(_n_bins(table) > 0).astype(np.int32)


def _feature_borders(
    table: TrainingTable, features: NDArray[np.int32], n_rows: int, n_blocks: int
) -> list[int]:
    """Borders of runs of features that take about the same time to search."""
    is_sorted = table.features["place"] >= 0
    cost = (_n_bins(table) + np.where(is_sorted, 2 * n_rows, 0))[features]
    total = np.concatenate([[0.0], np.cumsum(cost)])
    shares = np.linspace(0.0, total[-1], n_blocks + 1)[1:-1]
    return [0, *np.searchsorted(total, shares).tolist(), len(features)]


def _compact(growth: Growth) -> GrownTree:
    """Copy the nodes that pruning left in the tree."""
    n_nodes = int(growth.state[0]["n_nodes"])
    nodes, splits = growth.nodes[:n_nodes], growth.splits[:n_nodes]
    return reached_nodes(
        GrownTree(
            feature=splits["feature"],
            threshold=splits["threshold"],
            missing_left=splits["missing_left"],
            left=nodes["left"],
            right=nodes["right"],
            value=nodes["value"],
            gain=splits["gain"],
            cover=nodes["hessian"],
        )
    )


def reached_nodes(tree: GrownTree) -> GrownTree:
    """The nodes that the root still leads to; nodes without children are leaves."""
    left, right = tree.left, tree.right
    reached = np.zeros(len(left), dtype=bool)
    reached[0] = True
    for node in np.flatnonzero(left >= 0):  # parents come before their children
        reached[left[node]] = reached[right[node]] = reached[node]
    place = np.append(np.cumsum(reached) - 1, -1).astype(np.int32)  # the last is for "no child"
    place[:-1][~reached] = -1
    inner = left[reached] >= 0

    def kept(array: NDArray[Any], there: NDArray[np.bool_], otherwise: Any, dtype: Any) -> Any:
        return np.where(there, array[reached], otherwise).astype(dtype)

    return GrownTree(
        feature=kept(tree.feature, inner, -1, np.int32),
        threshold=kept(tree.threshold, inner, 0.0, np.float32),
        missing_left=kept(tree.missing_left, inner, False, np.bool_),
        left=place[np.where(inner, left[reached], -1)],
        right=place[np.where(inner, right[reached], -1)],
        value=kept(tree.value, ~inner, 0.0, np.float32),
        gain=kept(tree.gain, inner, 0.0, np.float32),
        cover=tree.cover[reached].astype(np.float32),
    )
