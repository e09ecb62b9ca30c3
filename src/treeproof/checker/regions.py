"""The leaves that claimed sets meet, as products of ranges, and the sums that they allow.

A tree of which a set meets several leaves is a *factor*. A *pair* is a factor with a feature that
some of its leaves narrow; their ranges divide the feature's cells into *segments*.
"""

from typing import Any

import numpy as np

from treeproof.checker.forest import Boxes, Forest, Ints
from treeproof.model.ensemble import FloatArray


def ranges(first: Ints, count: Ints) -> Ints:
    """The numbers first, first + 1, …, so many of each, one range after another."""
    return np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())


def spread(first: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Members of groups one after another: the place of each one's group, and its number.

    first : where the members of each group begin, with one more number at the end
    """
    count = first[group + 1] - first[group]
    return np.repeat(np.arange(len(group)), count), ranges(first[group], count)


def begins(sorted_values: Ints) -> Ints:
    """Where each run of equal values begins."""
    new = np.ones(len(sorted_values), dtype=bool)
    np.not_equal(sorted_values[1:], sorted_values[:-1], out=new[1:])
    return np.flatnonzero(new)


class Regions:
    """Factors, pairs, segments, pieces and entries of the boxes of many rows.

    An entry is a piece of a factor with a pair that it narrows. Whatever is named `x_ys` says where
    the ys of each x begin, with one more number at the end; all are in order of their xs.

    leaf                     of each piece
    factor                   row * n_trees + tree of each factor, which `tree_pieces` counts, too
    factor_tree              of each factor
    pair_feature             of each pair
    segment_cell             first cell of each segment
    entry_pair, entry_first, entry_last   of each entry; segments counted within the pair
    n_prices                 multipliers in proofs, of each row and output
    """

    def __init__(self, forest: Forest, rows: FloatArray, boxes: Boxes) -> None:
        self.boxes, n_trees = boxes, forest.ensemble.n_trees
        pieces = forest.pieces(rows, boxes)
        self.leaf = forest.trees.leaf[pieces.node]
        tree = pieces.row * n_trees + forest.tree[pieces.node]
        self.tree_pieces = np.searchsorted(tree, np.arange(len(rows) * n_trees + 1))
        self.factor = np.flatnonzero(np.diff(self.tree_pieces) > 1)
        factor_row, self.factor_tree = np.divmod(self.factor, n_trees)
        self.row_factors = np.searchsorted(factor_row, np.arange(len(rows) + 1))
        _, piece = spread(self.tree_pieces, self.factor)
        entry_piece, feature, low, high = self._entries(forest, pieces, piece)
        factor = np.searchsorted(self.tree_pieces[self.factor], entry_piece, "right") - 1
        n_features, n_cells = rows.shape[1], len(forest.keys) + 1
        pair, self.entry_pair = np.unique(factor * n_features + feature, return_inverse=True)
        pair_factor, self.pair_feature = np.divmod(pair, n_features)
        self.factor_pairs = np.searchsorted(pair_factor, np.arange(len(self.factor) + 1))
        ends = [side[factor_row[pair_factor], self.pair_feature] for side in boxes]
        inner = high < ends[1][self.entry_pair]
        starts = [
            np.arange(len(pair)) * n_cells + ends[0],
            self.entry_pair * n_cells + low,
            (self.entry_pair * n_cells + high + 1)[inner],
        ]
        segment = np.sort(np.concatenate(starts))
        segment = segment[begins(segment)]
        segment_pair, self.segment_cell = np.divmod(segment, n_cells)
        self.pair_segments = np.searchsorted(segment_pair, np.arange(len(pair) + 1))
        offset = self.pair_segments[self.entry_pair]
        self.entry_first = np.searchsorted(segment, self.entry_pair * n_cells + low) - offset
        last = np.searchsorted(segment, self.entry_pair * n_cells + high, "right")
        self.entry_last = last - 1 - offset
        self.piece_entries = np.searchsorted(entry_piece, np.arange(len(self.leaf) + 1))
        n_pairs = np.diff(self.factor_pairs)
        n_segments = np.diff(self.pair_segments[self.factor_pairs])
        # A tree with one feature is a term of its cells: each segment's multiplier is minus the
        # gain of the leaf that holds it. Such multipliers are not part of a proof.
        prices = np.where(n_pairs > 1, n_segments - n_pairs, 0)
        # By row and output; of vector leaves all in the first column.
        output = np.maximum(forest.trees.tree_output[self.factor_tree], 0)
        self.n_prices = np.zeros((len(rows), forest.ensemble.n_outputs), dtype=np.int64)
        np.add.at(self.n_prices, (factor_row, output), prices)

    def _entries(self, forest: Forest, pieces: Any, piece: Ints) -> list[Ints]:
        """Piece, feature, first and last cell of every narrowed range, by piece and feature.

        Sound: a leaf's ranges are what the splits above it leave of the box; a split that the box
        lies on one side of leaves all of it.
        """
        found: list[tuple[Ints, ...]] = []
        n_features = self.boxes.low.shape[1]
        low, high = (side.ravel() for side in pieces.boxes)
        at, box = pieces.node[piece], pieces.row[piece] * n_features
        while len(piece):
            above = forest.parent[at]
            inner = above >= 0
            piece, at, box, above = piece[inner], at[inner], box[inner], above[inner]
            feature, cut = forest.feature[above], forest.cut[above]
            first, last = low[box + feature], high[box + feature]
            some = (first <= cut) & (cut < last)
            apart = forest.apart[above] & (first <= last)
            some = np.flatnonzero(some | apart)
            first, last, cut, apart = first[some], last[some], cut[some], apart[some]
            left = at[some] == above[some] + 1
            # Where zero went against the cut, the part of the box knows what is left.
            part = pieces.part[piece[some]] * n_features + feature[some]
            begin = np.where(apart, low[part], np.where(left, first, cut + 1))
            end = np.where(apart, high[part], np.where(left, cut, last))
            found.append((piece[some], feature[some], begin, end))
            at = above
        if not found:
            return [piece] * 4
        piece, feature, low_cell, high_cell = map(np.concatenate, zip(*found, strict=True))
        key = piece * n_features + feature
        order = np.argsort(key, kind="stable")
        start = begins(key[order])
        piece, feature = piece[order][start], feature[order][start]
        if len(start):
            low_cell = np.maximum.reduceat(low_cell[order], start)
            high_cell = np.minimum.reduceat(high_cell[order], start)
        box = pieces.row[piece] * n_features + feature
        narrowed = (low_cell > low[box]) | (high_cell < high[box])
        return [array[narrowed] for array in (piece, feature, low_cell, high_cell)]


class Sums:
    """What the sums of outputs can be over boxes, exactly or in words that are rounded outwards.

    Of each row and output: `lone`, least and largest sum of the start and of the trees with one
    leaf; `errors`, how far the rounded sum can be from the real one; `peaks`, how large any partial
    sum can become.
    """

    def __init__(self, forest: Forest, regions: Regions, *, exact: bool) -> None:
        n_rows, n_trees = len(regions.boxes.low), forest.ensemble.n_trees
        is_lone = (np.diff(regions.tree_pieces) == 1).reshape(n_rows, n_trees)
        n_columns = forest.value.shape[1]
        self.lone: list[tuple[list[int], list[int]]] = []
        self.errors: list[list[int]] = []
        self.peaks: list[list[int]] = []
        exact_up_to = forest.grid << forest.bits
        if not exact:
            exact_up_to = min(exact_up_to >> forest.shift, 1 << 62)
        for output in range(forest.ensemble.n_outputs):
            if n_columns > 1 or output == 0:
                values = forest.integers(regions.leaf, output, exact=exact)
                sides = [
                    f.reduceat(v, regions.tree_pieces[:-1]).reshape(n_rows, n_trees)
                    for f, v in zip((np.minimum, np.maximum), values, strict=True)
                ]
            own = np.flatnonzero(np.isin(forest.trees.tree_output, (-1, output)))
            low, high = (side[:, own] for side in sides)
            start = forest.start_of(output, exact=exact)
            lone = is_lone[:, own]
            self.lone.append((
                (start[0] + np.where(lone, low, 0).sum(axis=1)).tolist(),
                (start[1] + np.where(lone, high, 0).sum(axis=1)).tolist(),
            ))  # fmt: skip
            low, high = start[0] + np.cumsum(low, axis=1), start[1] + np.cumsum(high, axis=1)
            largest = np.maximum(-low, high)
            self.peaks.append(largest.max(axis=1, initial=max(-start[0], start[1])).tolist())
            self.errors.append(rounding_errors(largest, exact_up_to, forest.bits).tolist())


def rounding_errors(largest: Ints, exact_up_to: int, bits: int) -> Ints:
    """How far rounded sums can be from real ones, from the largest partial sums (n_rows, n_terms).

    Sound: a sum rounds by at most its 2**-bits, and not at all while partial sums are multiples of
    the grid that fit into the bits.
    """
    rounds = np.logical_or.accumulate(largest > exact_up_to, axis=1)
    errors = np.zeros_like(largest)
    if not rounds.any():
        return errors.sum(axis=1)
    while True:
        # The error after each term follows from the one before. Every pass makes at least one more
        # of them right, and as errors are small beside sums, a few passes all.
        before = np.zeros_like(errors)
        before[:, 1:] = errors[:, :-1]
        new = np.cumsum(np.where(rounds, -(-(before + largest) >> bits), 0), axis=1)
        if (new == errors).all():
            return np.asarray(errors[:, -1])
        errors = new
