"""How far points lie from rows: the smallest closed ball that holds each, exactly."""

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel
from treeproof.kernels.moves import quotient_down


@borrowing_kernel
def ball_distances(rows, points, down, up, distances):
    """Smallest double radius whose closed ball around a row holds its point.

    rows       float64 (n_rows, n_features)  NaN stays, whatever the point says
    points     float64 (n_rows, n_features)
    down, up   float64 (n_features,)         rates of the ball; infinite: any move costs nothing
    distances  float64 (n_rows,)             out: infinite where no ball holds the point
    """
    for number in range(len(rows)):
        farthest = 0.0
        for feature in range(rows.shape[1]):
            value = rows[number, feature]
            point = points[number, feature]
            if point == value or np.isnan(value):
                continue
            rate = up[feature] if point > value else down[feature]
            if rate == 0.0 or not np.isfinite(point - value):
                farthest = np.inf
                break
            if rate < np.inf:
                distance, is_exact = quotient_down(max(point, value), min(point, value), rate)
                # Sound: no double lies between a number and its value rounded down.
                if not is_exact:
                    distance = np.nextafter(distance, np.inf)
                farthest = max(farthest, distance)
        distances[number] = farthest
