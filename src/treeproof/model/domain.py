"""Models as questions take them: over doubles, or over real numbers.

Libraries that cast rows to float32 compare ``f32(x) < T``. The cast is monotone, so over doubles
this is again one threshold: ``x < M`` where M is the smallest double that rounds to T or above, the
midpoint between T and the float below it (or the double after it, when that midpoint rounds down).
Replacing every T by its M gives the same model for float64 rows, without a cast.
"""

from dataclasses import replace

import numpy as np

from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray, cached_per_ensemble


def accept_float64_rows(ensemble: Ensemble) -> Ensemble:
    """Return the model over float64 rows whose answers equal the deployed ones on every double."""
    if ensemble.input_precision == "float64":
        return ensemble
    return _over_doubles(ensemble).with_provenance(ensemble.provenance)


def accept_real_rows(ensemble: Ensemble) -> Ensemble:
    """Return the same model, for questions in which rows are real numbers."""
    return _over_reals(ensemble).with_provenance(ensemble.provenance)


@cached_per_ensemble
def _over_reals(ensemble: Ensemble) -> Ensemble:
    return ensemble.for_reals()


@cached_per_ensemble
def _over_doubles(ensemble: Ensemble) -> Ensemble:
    trees = ensemble.trees
    numeric = (trees.feature >= 0) & ((trees.flags & CATEGORICAL) == 0)
    numeric &= np.isfinite(trees.threshold)
    threshold = trees.threshold.copy()
    threshold[numeric] = smallest_double_rounding_up_to(threshold[numeric])
    return replace(ensemble, trees=trees._replace(threshold=threshold), input_precision="float64")


def smallest_double_rounding_up_to(threshold: FloatArray) -> FloatArray:
    """Smallest double whose float32 rounding is at least the given float32 value."""
    with np.errstate(over="ignore"):
        above = threshold.astype(np.float32)
        below = np.nextafter(above, np.float32(-np.inf)).astype(np.float64)
    # A threshold beyond the largest float32 parts it from infinity, where doubles round to as if
    # the next float32 were there; the same, mirrored, below the lowest one.
    exact = np.where(np.isposinf(above), 2.0**128, above.astype(np.float64))
    below = np.where(np.isfinite(below), below, exact - 2.0**104)
    middle = below + (exact - below) / 2.0
    with np.errstate(over="ignore"):
        rounds_up = middle.astype(np.float32) >= above
    return np.where(rounds_up, middle, np.nextafter(middle, np.inf))
