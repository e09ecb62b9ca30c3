"""One tree against an attacker: a row goes to every side of a split on which he can put it.

An attacker may put each row anywhere in its box. Thresholds are chosen from a list of *cuts* per
feature, ascending, and a row's box is told by two codes: with the cuts ``c``, the row can be left
of cut k iff ``k >= first`` (its low end is below the cut), and right of it iff ``k < last`` (its
high end is not below it). So rows with ``first <= k < last`` cross, and a histogram over `first`
and one over `last` give the sums of all cuts at once.

Gradients of a row point one way: with a gradient below 0 the row wants a large value, and its
attacker looks for a small one. Of the rows that cross, those that want large values are therefore
counted on the side with the smaller value, and the others on the side with the larger one. Which
side that is follows from the sums; both cases are tried, and each counts only if it agrees with
the values that it leads to. Where neither does, both sides are best given the same value, and the
split gains nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.arrays import copy_into, grow_table, grown
from treeproof.kernels.core.compiler import at_once_by, kernel, noalloc_kernel
from treeproof.kernels.training.sampling import draw_features, random_bits

WANTS_LESS, WANTS_MORE = 0, 2
"""Columns of sums over rows whose gradient is positive or zero, and negative: gradient, hessian."""

LOWER_LEFT, LOWER_RIGHT = 1, 2
"""On which side of a split the smaller value is; 0 where a split gains nothing."""

FEATURE, CUT, LEFT, RIGHT, MISSING_LEFT = range(5)
GRADIENT, HESSIAN, VALUE, GAIN = range(4)
NODE, BEGIN, END, DEPTH = range(4)
FIRST, LAST = 0, 1


class AttackedRows(NamedTuple):
    """Rows as an attacker can move them.

    codes      uint16 (n_features, n_rows, 2)   FIRST, LAST: see above; both are one more than the
                                                number of cuts where the value is missing
    n_cuts     int64  (n_features,)
    gradients  float64 (n_rows, 2)              gradient and hessian, weights included
    weights    float64 (n_rows,)                for how many rows each one stands
    """

    codes: NDArray[np.uint16]
    n_cuts: NDArray[np.int64]
    gradients: NDArray[np.float64]
    weights: NDArray[np.float64]


@noalloc_kernel
def best_value(gradient, hessian, reg_lambda):
    """Newton step of a leaf."""
    return -gradient / (hessian + reg_lambda) if hessian > 0.0 else 0.0


@noalloc_kernel
def score_of(gradient, hessian, reg_lambda):
    """Twice the fall of the loss when rows take their best value."""
    return gradient * gradient / (hessian + reg_lambda) if hessian > 0.0 else 0.0


@noalloc_kernel
def attacked_score(left, cross, right, reg_lambda):
    """Score of a split when every row that crosses is where it does most harm, and the case.

    left, cross, right  float64 (4,)  sums over the rows that stay left, cross, stay right
    """
    best = -1.0
    case = 0
    for side in (LOWER_LEFT, LOWER_RIGHT):
        to_left = WANTS_MORE if side == LOWER_LEFT else WANTS_LESS
        to_right = WANTS_LESS + WANTS_MORE - to_left
        left_gradient = left[WANTS_LESS] + left[WANTS_MORE] + cross[to_left]
        left_hessian = left[WANTS_LESS + 1] + left[WANTS_MORE + 1] + cross[to_left + 1]
        right_gradient = right[WANTS_LESS] + right[WANTS_MORE] + cross[to_right]
        right_hessian = right[WANTS_LESS + 1] + right[WANTS_MORE + 1] + cross[to_right + 1]
        rise = best_value(right_gradient, right_hessian, reg_lambda) - best_value(
            left_gradient, left_hessian, reg_lambda
        )
        # Sound: only where the side with the smaller value is the one assumed, rows that cross
        # are counted where the attacker takes them.
        if (side == LOWER_LEFT and rise < 0.0) or (side == LOWER_RIGHT and rise > 0.0):
            continue
        score = score_of(left_gradient, left_hessian, reg_lambda)
        score += score_of(right_gradient, right_hessian, reg_lambda)
        if score > best:
            best = score
            case = side
    return best, case


def attacked_scores(left, cross, right, reg_lambda):
    """Scores by `attacked_score` for many splits; sums have a row for each of them."""
    best = np.full(len(left), -1.0)
    for side in (LOWER_LEFT, LOWER_RIGHT):
        to_left = WANTS_MORE if side == LOWER_LEFT else WANTS_LESS
        value, score = [], np.zeros(len(left))
        for part, column in ((left, to_left), (right, WANTS_LESS + WANTS_MORE - to_left)):
            gradient = part[:, WANTS_LESS] + part[:, WANTS_MORE] + cross[:, column]
            hessian = part[:, WANTS_LESS + 1] + part[:, WANTS_MORE + 1] + cross[:, column + 1]
            is_any = hessian > 0.0
            with np.errstate(divide="ignore", invalid="ignore"):
                value.append(np.where(is_any, -gradient / (hessian + reg_lambda), 0.0))
                score += np.where(is_any, gradient * gradient / (hessian + reg_lambda), 0.0)
        rise = value[1] - value[0]
        agrees = rise >= 0.0 if side == LOWER_LEFT else rise <= 0.0
        best = np.where(agrees & (score > best), score, best)
    return best


@noalloc_kernel
def add_row(sums, rows, row):
    """Add one row to its columns of sums, and its weight to the last one."""
    column = WANTS_MORE if rows.gradients[row, 0] < 0.0 else WANTS_LESS
    sums[column] += rows.gradients[row, 0]
    sums[column + 1] += rows.gradients[row, 1]
    sums[4] += rows.weights[row]


def _search_at_once(rows, settings, part, feature, total, scratch, best, found):
    n_cuts = int(rows.n_cuts[feature])
    gradients, weights = rows.gradients[part], rows.weights[part]
    wants_more = gradients[:, 0] < 0.0
    columns = [
        *np.where(wants_more, 0.0, gradients.T), *np.where(wants_more, gradients.T, 0.0), weights
    ]  # fmt: skip
    first, last = (
        np.stack([np.bincount(codes, column, n_cuts + 2) for column in columns], axis=1)
        for codes in rows.codes[feature, part].T
    )
    missing, first, last = first[n_cuts + 1], first[:n_cuts], last[:n_cuts]
    is_new = ((first != 0.0) | (last != 0.0)).any(axis=1)
    for missing_left in range(2 if missing[4] > 0.0 else 1):
        start = missing if missing_left else np.zeros(5)
        cross = np.cumsum(first - last, axis=0)
        left = np.cumsum(np.vstack([start, last]), axis=0)[1:]
        right = np.cumsum(np.vstack([total - start, -first]), axis=0)[1:]
        between = cross[:, 1] + cross[:, 3]
        allowed = is_new & (
            np.minimum(left[:, 4], right[:, 4]) + cross[:, 4] >= settings.min_samples_leaf
        )
        for side in (left, right):
            allowed &= side[:, 4] + cross[:, 4] != 0.0
            allowed &= side[:, 1] + side[:, 3] + between >= settings.min_child_weight
        scores = np.where(allowed, attacked_scores(left, cross, right, settings.reg_lambda), -1.0)
        cut = int(np.argmax(scores)) if n_cuts else 0
        if n_cuts and scores[cut] > best[0]:
            best[0] = scores[cut]
            found[0], found[1], found[2] = feature, cut, missing_left


@at_once_by(_search_at_once, allocates=True)
def search_feature(rows, settings, part, feature, total, scratch, best, found):
    """Let one feature improve the best split of a node.

    part     int32   (n,)         rows of the node
    total    float64 (5,)         their sums, and their weight
    scratch  float64 (2, m, 5)    histograms over FIRST and LAST
    best     float64 (1,)         score of the best split so far
    found    int64   (3,)         its feature, its cut, whether missing values go left
    """
    n_cuts = rows.n_cuts[feature]
    for side in range(2):
        for cut in range(n_cuts + 2):
            for column in range(5):
                scratch[side, cut, column] = 0.0
    for index in range(len(part)):
        row = part[index]
        add_row(scratch[FIRST, rows.codes[feature, row, FIRST]], rows, row)
        add_row(scratch[LAST, rows.codes[feature, row, LAST]], rows, row)
    missing = scratch[FIRST, n_cuts + 1]
    left = np.zeros(5, dtype=np.float64)
    right = np.zeros(5, dtype=np.float64)
    cross = np.zeros(5, dtype=np.float64)
    for missing_left in range(2 if missing[4] > 0.0 else 1):
        for column in range(5):
            left[column] = missing[column] if missing_left else 0.0
            cross[column] = 0.0
            right[column] = total[column] - left[column]
        for cut in range(n_cuts):
            is_new = False
            for column in range(5):
                begins, ends = scratch[FIRST, cut, column], scratch[LAST, cut, column]
                cross[column] += begins - ends
                left[column] += ends
                right[column] -= begins
                is_new = is_new or begins != 0.0 or ends != 0.0
            if not is_new:
                continue
            if min(left[4], right[4]) + cross[4] < settings.min_samples_leaf:
                continue
            if left[4] + cross[4] == 0.0 or right[4] + cross[4] == 0.0:
                continue
            between = cross[1] + cross[3]
            if left[1] + left[3] + between < settings.min_child_weight:
                continue
            if right[1] + right[3] + between < settings.min_child_weight:
                continue
            score, case = attacked_score(left, cross, right, settings.reg_lambda)
            if case > 0 and score > best[0]:
                best[0] = score
                found[0], found[1], found[2] = feature, cut, missing_left


@noalloc_kernel
def split_rows(rows, part, found, lefts, rights):
    """Rows that can be left and right of a split; returns how many of each."""
    feature, cut, missing_left = found[0], found[1], found[2]
    missing = rows.n_cuts[feature] + 1
    n_left = 0
    n_right = 0
    for index in range(len(part)):
        row = part[index]
        first = rows.codes[feature, row, FIRST]
        can_left, can_right = first <= cut, cut < rows.codes[feature, row, LAST]
        if first == missing:
            can_left, can_right = missing_left == 1, missing_left == 0
        if can_left:
            lefts[n_left] = row
            n_left += 1
        if can_right:
            rights[n_right] = row
            n_right += 1
    return n_left, n_right


@kernel
def grow_attacked(rows, settings, sample, features):
    """Grow one tree.

    sample    int32 (n,)   rows that it is grown on
    features  int32 (m,)   features that it may split on

    Returns
    -------
    tree     int32   (n_nodes, 5)  FEATURE (-1 at a leaf), CUT, LEFT, RIGHT, MISSING_LEFT
    numbers  float64 (n_nodes, 4)  GRADIENT, HESSIAN: sums of the rows that can reach the node;
                                   VALUE: what it adds as a leaf; GAIN
    """
    most_cuts = 0
    for feature in features:
        most_cuts = max(most_cuts, rows.n_cuts[feature])
    tree = np.full((64, 5), -1, dtype=np.int32)
    numbers = np.zeros((64, 4), dtype=np.float64)
    scratch = np.zeros((2, most_cuts + 2, 5), dtype=np.float64)
    stack = np.zeros((64, 4), dtype=np.int64)
    keys = np.empty(len(features), dtype=np.uint64)
    drawn = np.empty(len(features), dtype=np.uint8)
    best = np.zeros(1, dtype=np.float64)
    found = np.zeros(3, dtype=np.int64)
    total = np.zeros(5, dtype=np.float64)
    buffer = sample.copy()
    lefts = np.empty(len(sample), dtype=np.int32)
    rights = np.empty(len(sample), dtype=np.int32)
    stack[0, END] = len(sample)
    n_waiting = 1
    n_nodes = 1
    while n_waiting > 0:
        n_waiting -= 1
        node, depth = stack[n_waiting, NODE], stack[n_waiting, DEPTH]
        begin, end = stack[n_waiting, BEGIN], stack[n_waiting, END]
        part = buffer[begin:end]
        for column in range(len(total)):
            total[column] = 0.0
        for index in range(len(part)):
            add_row(total, rows, part[index])
        gradient, hessian = total[0] + total[2], total[1] + total[3]
        base = score_of(gradient, hessian, settings.reg_lambda)
        numbers[node, GRADIENT], numbers[node, HESSIAN] = gradient, hessian
        value = best_value(gradient, hessian, settings.reg_lambda)
        numbers[node, VALUE] = settings.learning_rate * value
        if depth >= settings.max_depth:
            continue
        # Gains that are nothing but rounding are none.
        best[0] = base + max(settings.gamma, 1e-9 * (1.0 + base))
        found[0] = -1
        key = random_bits(np.uint64(settings.seed), np.uint64(node))
        draw_features(settings.features_per_node, key, features, keys, drawn)
        for index in range(len(features)):
            if drawn[index]:
                feature = np.int64(features[index])
                search_feature(rows, settings, part, feature, total, scratch, best, found)
        if found[0] < 0:
            continue
        n_left, n_right = split_rows(rows, part, found, lefts, rights)
        if n_nodes + 2 > len(tree):
            tree = grow_table(tree, 2 * len(tree))
            numbers = grow_table(numbers, 2 * len(numbers))
        if n_waiting + 2 > len(stack):
            stack = grow_table(stack, 2 * len(stack))
        if begin + n_left + n_right > len(buffer):
            buffer = grown(buffer, begin + n_left + n_right)
        # The node's own rows are at the end of what waits, and needed no more.
        copy_into(buffer[begin:], lefts[:n_left])
        copy_into(buffer[begin + n_left :], rights[:n_right])
        numbers[node, GAIN] = best[0] - base
        tree[node, FEATURE], tree[node, CUT] = found[0], found[1]
        tree[node, MISSING_LEFT] = found[2]
        tree[node, LEFT], tree[node, RIGHT] = n_nodes, n_nodes + 1
        middle = begin + n_left
        for child in range(2):
            tree[n_nodes, FEATURE] = tree[n_nodes, LEFT] = tree[n_nodes, RIGHT] = -1
            numbers[n_nodes, GAIN] = 0.0
            stack[n_waiting, NODE], stack[n_waiting, DEPTH] = n_nodes, depth + 1
            stack[n_waiting, BEGIN] = middle if child else begin
            stack[n_waiting, END] = middle + n_right if child else middle
            n_waiting += 1
            n_nodes += 1
    return tree[:n_nodes].copy(), numbers[:n_nodes].copy()


@kernel
def add_worst_leaves(codes, n_cuts, tree, value, wants_more, margins):
    """Add to each margin the worst leaf that the row can be put into.

    value       float64 (n_nodes,)
    wants_more  bool    (n_rows,)    whether the attacker looks for a small value
    margins     float64 (n_rows,)    in/out
    """
    stack = np.empty(len(tree) + 1, dtype=np.int64)
    for row in range(len(margins)):
        worst = np.inf if wants_more[row] else -np.inf
        stack[0] = 0
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            node = stack[n_waiting]
            feature = tree[node, FEATURE]
            if feature < 0:
                here = value[node]
                worst = min(worst, here) if wants_more[row] else max(worst, here)
                continue
            first = codes[feature, row, FIRST]
            can_left = first <= tree[node, CUT]
            can_right = tree[node, CUT] < codes[feature, row, LAST]
            if first == n_cuts[feature] + 1:
                can_left = tree[node, MISSING_LEFT] == 1
                can_right = not can_left
            if can_left:
                stack[n_waiting] = tree[node, LEFT]
                n_waiting += 1
            if can_right:
                stack[n_waiting] = tree[node, RIGHT]
                n_waiting += 1
        margins[row] += worst
