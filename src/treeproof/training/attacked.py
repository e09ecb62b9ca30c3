"""Trees grown against an attacker who can put every row anywhere in its box."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.attacked import (
    CUT,
    FEATURE,
    GAIN,
    HESSIAN,
    LEFT,
    MISSING_LEFT,
    RIGHT,
    VALUE,
    AttackedRows,
    add_worst_leaves,
    grow_attacked,
)
from treeproof.kernels.training.growth import GrowthSettings
from treeproof.kernels.training.losses import GrownTree
from treeproof.query.boxes import RowBoxes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AttackedTable:
    """Boxes of rows in terms of the thresholds that trees may use.

    Attributes
    ----------
    cuts : list of float64 arrays
        The thresholds of each feature, float32 numbers, rising.
    codes : uint16 (n_features, n_rows, 2)
        The ends of each box, see `treeproof.kernels.training.attacked`.
    """

    cuts: list[FloatArray]
    codes: NDArray[np.uint16]

    @classmethod
    def of(cls, boxes: RowBoxes, max_bin: int) -> "AttackedTable":
        """Choose thresholds between the ends of boxes, at most `max_bin` of each feature.

        Which rows can cross changes at ends of boxes only, so one threshold between any two
        neighbouring ends is all there is to choose from.
        """
        n_rows, n_features = boxes.rows.shape
        codes = np.empty((n_features, n_rows, 2), dtype=np.uint16)
        cuts = []
        for feature in range(n_features):
            low, high = boxes.low[:, feature], boxes.high[:, feature]
            missing = np.isnan(low)
            ends = np.concatenate([low[~missing], high[~missing]])
            cuts.append(_thresholds(ends, max_bin))
            for side, end in enumerate((low, high)):
                code = np.searchsorted(cuts[-1], end, side="right")
                codes[feature, :, side] = np.where(missing, len(cuts[-1]) + 1, code)
        return cls(cuts, codes)

    @property
    def n_cuts(self) -> NDArray[np.int64]:
        """Number of thresholds of each feature."""
        return np.array([len(cuts) for cuts in self.cuts], dtype=np.int64)

    @property
    def usable(self) -> IntArray:
        """Features that can split at all; those that may be missing need a threshold, too."""
        return np.flatnonzero(self.n_cuts > 0).astype(np.int32)

    def grow(
        self,
        gradients: FloatArray,
        weights: FloatArray,
        settings: GrowthSettings,
        rows: IntArray,
        features: IntArray,
    ) -> tuple[GrownTree, IntArray]:
        """Grow a tree; return it, and as the kernel has it. Gradients include the weights."""
        if len(features) == 0:
            features = np.zeros(0, dtype=np.int32)
        table = AttackedRows(self.codes, self.n_cuts, gradients, weights)
        tree, numbers = grow_attacked(table, settings, rows, features)
        inner = np.flatnonzero(tree[:, FEATURE] >= 0)
        threshold = np.zeros(len(tree), dtype=np.float32)
        for node in inner:
            threshold[node] = self.cuts[tree[node, FEATURE]][tree[node, CUT]]
        is_leaf = tree[:, FEATURE] < 0
        grown = GrownTree(
            feature=np.ascontiguousarray(tree[:, FEATURE]),
            threshold=threshold,
            missing_left=(tree[:, MISSING_LEFT] == 1) & ~is_leaf,
            left=np.ascontiguousarray(tree[:, LEFT]),
            right=np.ascontiguousarray(tree[:, RIGHT]),
            value=np.where(is_leaf, numbers[:, VALUE], 0.0).astype(np.float32),
            gain=numbers[:, GAIN].astype(np.float32),
            cover=numbers[:, HESSIAN].astype(np.float32),
        )
        return grown, tree

    def add_worst(
        self, grown: GrownTree, tree: IntArray, wants_more: NDArray[np.bool_], margins: FloatArray
    ) -> None:
        """Add to margins the worst leaf of a tree that each row can be put into."""
        value = grown.value.astype(np.float64)
        add_worst_leaves(self.codes, self.n_cuts, tree, value, wants_more, margins)


def _thresholds(ends: FloatArray, max_bin: int) -> FloatArray:
    """Float32 numbers between neighbouring ends of boxes, where there are any.

    An end is on the right of a threshold that it equals, so the larger of two neighbouring ends
    serves where no float32 number lies between them.
    """
    distinct = np.unique(ends[np.isfinite(ends)])
    if len(distinct) > max_bin + 1:
        place = np.quantile(np.arange(len(ends)), np.linspace(0.0, 1.0, max_bin + 2)[1:-1])
        chosen = np.sort(ends)[place.astype(np.int64)]
        at = np.unique(np.clip(np.searchsorted(distinct, chosen), 1, len(distinct) - 1))
    else:
        at = np.arange(1, len(distinct))
    below, above = distinct[at - 1], distinct[at]
    middle = (below + 0.5 * (above - below)).astype(np.float32).astype(np.float64)
    limit = float(np.finfo(np.float32).max)
    return np.unique(middle[(middle > below) & (middle <= above) & (np.abs(middle) <= limit)])
