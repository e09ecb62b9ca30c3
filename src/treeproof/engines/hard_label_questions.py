"""What a query-only attack may see of a model: whether a point breaks the claim, and no more."""

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import rank_space
from treeproof.model import evaluate
from treeproof.model.ensemble import FloatArray
from treeproof.prediction import accumulators
from treeproof.query import Query
from treeproof.query_goals import breaks_claim

_FARTHEST = 1e30
"""Values beyond this are not tried in boxes without an end."""


@dataclass(slots=True)
class Oracle:
    """Answers questions about points around one row, and counts them.

    Attributes
    ----------
    query, row
        The question.
    most : int
        Points that may be asked about.
    time_limit_s : float
        Wall-clock seconds.
    asked : int
        Points asked about so far.
    """

    query: Query
    row: int
    most: int
    time_limit_s: float
    asked: int = 0
    _deadline: float = field(init=False)
    _moves: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock; missing and categorical entries never move."""
        self._deadline = time.perf_counter() + self.time_limit_s
        self._moves = ~np.isnan(self.values) & ~rank_space(self.query.ensemble).categorical

    @property
    def values(self) -> FloatArray:
        """The row."""
        values: FloatArray = self.query.rows[self.row]
        return values

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return len(self.values)

    @property
    def scale(self) -> float:
        """A length to begin with, from the row's own numbers."""
        finite = np.abs(self.values[np.isfinite(self.values)])
        return float(max(1e-3, min(finite.max(initial=0.0), 1e6)))

    @property
    def is_late(self) -> bool:
        """Whether the time limit is over."""
        return time.perf_counter() > self._deadline

    @property
    def is_finished(self) -> bool:
        """Whether no more questions are allowed."""
        return self.asked >= self.most or self.is_late

    def ask(self, points: FloatArray) -> NDArray[np.bool_]:
        """Whether each point breaks the claim; points beyond the limit are answered no."""
        broken = np.zeros(len(points), dtype=bool)
        count = min(len(points), max(self.most - self.asked, 0))
        if count == 0 or self.is_late:
            return broken
        self.asked += count
        query = self.query
        sums = accumulators(query.ensemble, np.ascontiguousarray(points[:count]))
        group = np.full(count, query.group[self.row])
        broken[:count] = breaks_claim(query.ensemble, query.alternatives, group, sums)
        return broken

    def points(self, directions: FloatArray, lengths: FloatArray) -> FloatArray:
        """Points at given lengths along directions, within the domain, in the input precision."""
        reach = self.query.reach
        rate = np.where(directions > 0.0, reach.up, reach.down)
        low = np.minimum(reach.low[self.row], self.values)
        high = np.maximum(reach.high[self.row], self.values)
        moved = self.values + lengths[:, np.newaxis] * directions * rate
        return self._cast(np.clip(moved, low, high), low, high)

    def points_of_box(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Random points of a box; an infinite side is tried at random lengths from the row."""
        low, high = (
            np.array(side[self.row]) for side in (self.query.reach.low, self.query.reach.high)
        )
        near = np.clip(np.where(np.isnan(self.values), 0.0, self.values), low, high)
        near = np.clip(near, -_FARTHEST, _FARTHEST)
        far = self.scale * 2.0 ** rng.uniform(-10.0, 10.0, size=(count, self.n_features))
        least = np.where(np.isfinite(low), low, near - far)
        most = np.where(np.isfinite(high), high, near + far)
        least, most = np.maximum(least, -_FARTHEST), np.minimum(most, _FARTHEST)
        inside = least + rng.random((count, self.n_features)) * (most - least)
        kind = rng.integers(4, size=(count, self.n_features))
        mixed = np.choose(kind, [inside, least, most, np.broadcast_to(near, inside.shape)])
        half = np.arange(count)[:, np.newaxis] % 2 == 0
        return self._cast(np.clip(np.where(half, inside, mixed), low, high), low, high)

    def is_in_box(self, points: FloatArray) -> NDArray[np.bool_]:
        """Whether each point lies in the box; the row's own values may not."""
        low, high = self.query.reach.low[self.row], self.query.reach.high[self.row]
        return np.asarray(np.all(~self._moves | ((low <= points) & (points <= high)), axis=1))

    def is_nearer(self, points: FloatArray, best: float) -> NDArray[np.bool_]:
        """Whether the distance of each point is below a number by more than rounding."""
        reach = self.query.reach
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            moved = np.where(self._moves & (points != self.values), points - self.values, 0.0)
            size = np.abs(moved) / np.where(moved > 0.0, reach.up, reach.down)
        farthest = np.where(moved == 0.0, 0.0, size).max(axis=1, initial=0.0)
        return np.asarray(farthest < best * (1.0 - 1e-12))

    def _cast(self, points: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Round to the input precision, towards the row where rounding would leave the bounds."""
        real = np.dtype(self.query.ensemble.input_precision).type
        cast: FloatArray = evaluate.cast_rows(self.query.ensemble, points)
        with np.errstate(over="ignore"):
            below = np.nextafter(cast.astype(real), real(-np.inf)).astype(np.float64)
            above = np.nextafter(cast.astype(real), real(np.inf)).astype(np.float64)
        cast = np.where(cast > high, below, np.where(cast < low, above, cast))
        # Bounds may hold no number of that precision; then the row's own value has to do.
        is_inside = self._moves & (low <= cast) & (cast <= high)
        return np.where(is_inside, cast, self.values)
