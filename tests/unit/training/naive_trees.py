"""Growing a tree the slow and obvious way: every split of every node, row by row."""

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class NaiveNode:
    """A node; `feature` is -1 at a leaf."""

    rows: NDArray[np.int64]
    value: float
    feature: int = -1
    threshold: float = 0.0
    missing_left: bool = False
    gain: float = 0.0
    children: list["NaiveNode"] = field(default_factory=list)


@dataclass(frozen=True)
class NaiveRules:
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    max_depth: int = 3
    reach: tuple[float, ...] = ()
    monotone: tuple[int, ...] = ()


def weight(rules, gradients, rows, bounds):
    gradient, hessian = gradients[rows].sum(axis=0)
    raw = -gradient / (hessian + rules.reg_lambda) if hessian > 0 else 0.0
    return min(max(raw, bounds[0]), bounds[1])


def score(rules, gradients, rows, bounds):
    gradient, hessian = gradients[rows].sum(axis=0)
    if hessian <= 0:
        return 0.0
    if bounds == (-np.inf, np.inf):
        return gradient * gradient / (hessian + rules.reg_lambda)
    w = weight(rules, gradients, rows, bounds)
    return -(2.0 * gradient * w + (hessian + rules.reg_lambda) * w * w)


def middle(below, above):
    threshold = np.float32(0.5 * (np.float64(below) + np.float64(above)))
    return above if threshold <= below else threshold


def best_split(X, gradients, rules, rows, bounds):
    """The first split with the largest gain, as (gain, feature, threshold, missing_left)."""
    best = (1e-6, -1, 0.0, False)
    total = score(rules, gradients, rows, bounds)
    everything = gradients[rows].sum(axis=0)[1]
    for feature in range(X.shape[1]):
        column = X[rows, feature].astype(np.float64)
        missing = np.isnan(column)
        values = np.unique(X[rows, feature][~missing])
        for missing_left in (False, True) if missing.any() else (False,):
            for below, above in itertools.pairwise(values):
                t = np.float64(middle(below, above))
                left = np.where(missing, missing_left, column < t)
                hessian = gradients[rows[left]].sum(axis=0)[1]
                if min(hessian, everything - hessian) < rules.min_child_weight:
                    continue
                if breaks(rules, gradients, rows, left, feature, bounds):
                    continue
                crossing = ~missing & can_cross(column, t, rules.reach[feature])
                placements = [left]
                if crossing.any():
                    placements += [left | crossing, left & ~crossing, left ^ crossing]
                gain = min(
                    score(rules, gradients, rows[side], bounds)
                    + score(rules, gradients, rows[~side], bounds)
                    - total
                    for side in placements
                )
                if gain > best[0]:
                    direction = missing_left if missing.any() else 2 * hessian > everything
                    best = (gain, feature, float(t), bool(direction))
        if missing.any() and not missing.all():
            # A threshold that no value passes parts the missing values from all others.
            hessian = gradients[rows[missing]].sum(axis=0)[1]
            if min(hessian, everything - hessian) < rules.min_child_weight or breaks(
                rules, gradients, rows, ~missing, feature, bounds
            ):
                continue
            gain = (
                score(rules, gradients, rows[~missing], bounds)
                + score(rules, gradients, rows[missing], bounds)
                - total
            )
            if gain > best[0]:
                best = (gain, feature, float(np.finfo(np.float32).max), False)
    return best


def can_cross(column, t, reach):
    if reach == 0.0:
        return np.zeros(len(column), dtype=bool)
    return ((column < t) & (column + reach >= t)) | ((column >= t) & (column - reach < t))


def breaks(rules, gradients, rows, left, feature, bounds):
    direction = rules.monotone[feature]
    weights = [weight(rules, gradients, rows[side], bounds) for side in (left, ~left)]
    return direction * (weights[1] - weights[0]) < 0


def grow(X, gradients, rules, rows=None, depth=0, bounds=(-np.inf, np.inf)):
    rows = np.arange(len(X)) if rows is None else rows
    node = NaiveNode(rows, weight(rules, gradients, rows, bounds))
    if depth >= rules.max_depth:
        return node
    gain, feature, threshold, missing_left = best_split(X, gradients, rules, rows, bounds)
    if feature < 0:
        return node
    column = X[rows, feature]
    left = np.where(np.isnan(column), missing_left, column < threshold)
    sides = [bounds, bounds]
    if rules.monotone[feature]:
        weights = [weight(rules, gradients, rows[side], bounds) for side in (left, ~left)]
        cut = 0.5 * (weights[0] + weights[1])
        sides = [(bounds[0], cut), (cut, bounds[1])][:: rules.monotone[feature]]
    node.children = [
        grow(X, gradients, rules, rows[left], depth + 1, sides[0]),
        grow(X, gradients, rules, rows[~left], depth + 1, sides[1]),
    ]
    if gain < rules.gamma and not any(child.children for child in node.children):
        node.children = []
        return node
    node.feature, node.threshold, node.missing_left, node.gain = (
        feature,
        threshold,
        missing_left,
        gain,
    )
    return node
