"""One tree after another: the memory that growth needs, and its threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.growth import (
    SEARCH_WANTED,
    begin_tree,
    finish_tree,
    grow,
    store_pair,
)
from treeproof.kernels.training.histograms import TrainingTable, add_rows
from treeproof.kernels.training.search import (
    N_COUNTERS,
    N_NODES,
    SMALL,
    GrowthSettings,
    Nodes,
    Scratch,
    Work,
    search_pair,
)
from treeproof.kernels.training.splits import (
    SPLIT_FEATURE,
    SPLIT_GAIN,
    SPLIT_MISSING_LEFT,
    SPLIT_THRESHOLD,
)

UNLIMITED_DEPTH = 1 << 30

_PARALLEL_WORK = 400_000
"""Additions below which handing a node to threads costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GrownTree:
    """A finished tree; node 0 is its root, and children have larger numbers than their parent.

    Attributes
    ----------
    feature, left, right : int32 (n_nodes,)
        Tested feature and children; -1 at a leaf.
    threshold : float32 (n_nodes,)
        Values below it go left; 0 at a leaf.
    missing_left : bool (n_nodes,)
        Whether missing values go left.
    value : float32 (n_nodes,)
        What a leaf adds to the margin; 0 at an inner node.
    gain, cover : float32 (n_nodes,)
        Score of the split, and sum of hessians.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    missing_left: NDArray[np.bool_]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    gain: NDArray[np.float32]
    cover: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTask:
    """What one tree is grown from.

    Attributes
    ----------
    gradients : float64 (n_rows, 2)
        Gradients and hessians, on their grid.
    rows : int32 (n_sampled,)
        Rows to use, ascending.
    order : int32 (n_wide, n_sampled)
        The same rows by value, see `TrainingTable`.
    features : int32 (n,)
        Features to use, ascending.
    seed : int
        For the features that each node may use.
    """

    gradients: NDArray[np.float64]
    rows: NDArray[np.int32]
    order: NDArray[np.int32]
    features: NDArray[np.int32]
    seed: int


class TreeGrower:
    """Grows trees on one table, with memory that is used again for the next tree.

    Parameters
    ----------
    table : TrainingTable
        The rows.
    settings : GrowthSettings
        Rules of growth; seed and parallel_rows are set here.
    n_threads : int
        Threads for the large nodes of a tree; the result does not depend on it.
    """

    def __init__(self, table: TrainingTable, settings: GrowthSettings, n_threads: int) -> None:
        n_features, n_rows = table.values.shape
        n_bins = len(table.bin_lower)
        entries_per_row = max(1, len(table.entries) // max(n_rows, 1) + len(table.order))
        most = (_PARALLEL_WORK - min(4 * n_bins, _PARALLEL_WORK - 1)) // entries_per_row + 1
        self._table = table
        self._settings = settings._replace(
            parallel_rows=int(most) if n_threads > 1 else np.iinfo(np.int64).max
        )
        depth = min(settings.max_depth, 40)
        self._nodes = _node_memory(min(2 ** (depth + 1) - 1, 2 * n_rows + 1))
        n_buffers = int(np.log2(max(n_rows, 1))) + 3
        n_sums = 3 if len(table.order) else 2
        self._histograms = np.zeros((n_buffers, n_bins, n_sums))
        self._private = np.zeros((n_threads - 1, n_bins, n_sums))
        widest = int(np.max(np.diff(table.bin_start), initial=1))
        n_groups = max(widest, n_rows if len(table.order) else 0)
        self._scratch = [
            Scratch(
                groups=np.empty((6, n_groups + 2)),
                rows=np.empty(n_rows, dtype=np.int32),
                keys=np.empty((2, n_features), dtype=np.uint64),
                drawn=np.empty(n_features + 1, dtype=np.uint64),
                ceilings=np.empty(n_features),
                runs=np.empty((widest + 1, 4)),
            )
            for _ in range(n_threads)
        ]
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def grow(self, task: TreeTask, margins: NDArray[np.float32]) -> GrownTree:
        """Grow one tree and add its leaves to the margins of its rows.

        Parameters
        ----------
        task : TreeTask
            What to grow it from.
        margins : float32 (n_rows,)
            Changed in place, for the rows of the task only.
        """
        n_rows = self._table.values.shape[1]
        work = Work(
            rows=task.rows.copy(),
            goes_left=np.zeros(n_rows, dtype=np.uint8),
            order=task.order.copy(),
            histograms=self._histograms,
            free=np.empty(len(self._histograms), dtype=np.int32),
            stack=np.empty(len(self._nodes.left) + 1, dtype=np.int32),
            counters=np.zeros(N_COUNTERS, dtype=np.int64),
        )
        nodes, settings = self._nodes, self._settings._replace(seed=task.seed)
        table, scratch, features = self._table, self._scratch[0], task.features
        begin_tree(task.gradients, settings, nodes, work)
        status = SEARCH_WANTED
        while status == SEARCH_WANTED:
            status = grow(table, task.gradients, settings, nodes, work, features, scratch)
            if status == SEARCH_WANTED and self._pool is not None:
                self._search(self._pool, task, settings, work)
        values = np.empty(int(work.counters[N_NODES]), dtype=np.float32)
        finish_tree(settings, nodes, work, values, margins)
        return _compact(nodes, values)

    def _search(
        self, pool: ThreadPoolExecutor, task: TreeTask, settings: GrowthSettings, work: Work
    ) -> None:
        """Search one pair of nodes in threads: rows are shared out first, then features."""
        table, nodes = self._table, self._nodes
        small = int(work.counters[SMALL])
        target = work.histograms[nodes.buffer[small]]
        n_threads = len(self._scratch)
        ends = np.linspace(nodes.begin[small], nodes.end[small], n_threads + 1).astype(np.int64)

        def add(thread: int) -> None:
            histogram = target
            if thread > 0:
                histogram = self._private[thread - 1]
                histogram[:] = 0.0
            begin, end = int(ends[thread]), int(ends[thread + 1])
            add_rows(
                table.entry_start, table.entries, task.gradients, work.rows, begin, end, histogram
            )

        blocks = _feature_blocks(
            table, task.features, int(nodes.end[small] - nodes.begin[small]), n_threads
        )
        found = np.empty((n_threads, 2, 6))

        def search(thread: int) -> None:
            first, last = int(blocks[thread]), int(blocks[thread + 1])
            if first < last:
                bins = slice(
                    table.bin_start[task.features[first]],
                    table.bin_start[task.features[last - 1] + 1],
                )
                for part in self._private:
                    target[bins] += part[bins]
            search_pair(
                table,
                task.gradients,
                settings,
                nodes,
                work,
                task.features,
                first,
                last,
                self._scratch[thread],
                found[thread],
            )

        list(pool.map(add, range(n_threads)))
        list(pool.map(search, range(n_threads)))
        # The first of equal gains wins, as it does without threads: features are in order.
        winners = np.argmax(found[:, :, SPLIT_GAIN], axis=0)
        store_pair(nodes, work, found[winners, np.arange(2)])


def _node_memory(capacity: int) -> Nodes:
    return Nodes(
        split=np.zeros((capacity, 6)),
        left=np.empty(capacity, dtype=np.int32),
        right=np.empty(capacity, dtype=np.int32),
        gradient=np.empty(capacity),
        hessian=np.empty(capacity),
        low=np.empty(capacity),
        high=np.empty(capacity),
        begin=np.empty(capacity, dtype=np.int64),
        end=np.empty(capacity, dtype=np.int64),
        depth=np.empty(capacity, dtype=np.int32),
        buffer=np.empty(capacity, dtype=np.int32),
        key=np.empty(capacity, dtype=np.uint64),
    )


def _feature_blocks(
    table: TrainingTable, features: NDArray[np.int32], n_rows: int, n_blocks: int
) -> NDArray[np.int64]:
    """Borders of runs of features that take about the same time to search."""
    cost = (np.diff(table.bin_start) + np.where(table.wide >= 0, 2 * n_rows, 0))[features]
    total = np.concatenate([[0.0], np.cumsum(cost)])
    shares = np.linspace(0.0, total[-1], n_blocks + 1)[1:-1]
    return np.concatenate([[0], np.searchsorted(total, shares), [len(features)]])


def _compact(nodes: Nodes, values: NDArray[np.float32]) -> GrownTree:
    """Copy the nodes that pruning left in the tree."""
    reached = np.zeros(len(values), dtype=bool)
    reached[0] = True
    left, right = nodes.left[: len(values)], nodes.right[: len(values)]
    for node in np.flatnonzero(left >= 0):  # parents come before their children
        reached[left[node]] = reached[right[node]] = reached[node]
    kept = np.flatnonzero(reached)
    place = np.full(len(values) + 1, -1, dtype=np.int32)  # the last one is that of "no child"
    place[kept] = np.arange(len(kept), dtype=np.int32)
    inner = left[kept] >= 0
    split = nodes.split[kept]
    return GrownTree(
        feature=np.where(inner, split[:, SPLIT_FEATURE], -1).astype(np.int32),
        threshold=np.where(inner, split[:, SPLIT_THRESHOLD], 0.0).astype(np.float32),
        missing_left=inner & (split[:, SPLIT_MISSING_LEFT] > 0.0),
        left=place[left[kept]],
        right=place[right[kept]],
        value=np.where(inner, np.float32(0.0), values[kept]),
        gain=np.where(inner, split[:, SPLIT_GAIN], 0.0).astype(np.float32),
        cover=nodes.hessian[kept].astype(np.float32),
    )
