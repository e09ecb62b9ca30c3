"""Cells: where the trees of an ensemble cut each feature."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.model.ensemble import (
    CATEGORICAL,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    IntArray,
    cached_per_ensemble,
)


class Cuts(NamedTuple):
    """Distinct canonical thresholds per feature; cell c holds values with c of them <= the value.

    A feature with zero as missing is also cut at both ends of the band that counts as zero.
    """

    start: NDArray[np.int64]  # (n_features + 1,) where each feature's thresholds start in `cut`
    cut: FloatArray  # (n_cuts,) sorted within each feature
    node_cut: IntArray  # (n_nodes,) number of a node's threshold within its feature; 0 elsewhere
    zero_low: IntArray  # (n_features,) first cell of the zero band; -1 where zero is ordinary
    zero_high: IntArray  # (n_features,) last cell of the zero band

    def of(self, feature: int) -> FloatArray:
        """Thresholds of a feature."""
        return self.cut[self.start[feature] : self.start[feature + 1]]


@cached_per_ensemble
def cuts_of(ensemble: Ensemble) -> Cuts:
    """Return where an ensemble cuts its features."""
    trees = ensemble.trees
    numeric = (trees.feature >= 0) & ((trees.flags & CATEGORICAL) == 0)
    banded = np.zeros(ensemble.n_features, dtype=bool)
    banded[trees.feature[numeric & ((trees.flags & ZERO_IS_MISSING) > 0)]] = True
    node_cut = np.zeros_like(trees.feature)
    start = np.zeros(ensemble.n_features + 1, dtype=np.int64)
    zero_low = np.full(ensemble.n_features, -1, dtype=np.int32)
    zero_high = np.full(ensemble.n_features, -1, dtype=np.int32)
    pieces = [np.zeros(0)]
    order = np.flatnonzero(numeric)
    order = order[np.argsort(trees.feature[order], kind="stable")]
    bounds = np.searchsorted(trees.feature[order], np.arange(ensemble.n_features + 1))
    for feature in range(ensemble.n_features):
        testing = order[bounds[feature] : bounds[feature + 1]]
        values = trees.threshold[testing]
        if banded[feature]:
            # The zero band gets cells of its own: [-band, band] is what counts as zero.
            values = np.concatenate([values, [-ZERO_BAND, np.nextafter(ZERO_BAND, np.inf)]])
        cuts, inverse = np.unique(values, return_inverse=True)
        node_cut[testing] = inverse[: len(testing)]
        if banded[feature]:
            zero_low[feature] = inverse[-2] + 1
            zero_high[feature] = inverse[-1]
        start[feature + 1] = start[feature] + len(cuts)
        pieces.append(cuts)
    return Cuts(start, np.concatenate(pieces), node_cut, zero_low, zero_high)
