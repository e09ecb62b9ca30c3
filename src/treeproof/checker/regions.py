"""The leaves that boxes meet, as products of ranges, and the sums that they allow.

A tree of which a box meets several leaves is a *factor*. A *pair* is a factor with an axis that
some of its leaves narrow; their ranges divide the axis's atoms into *segments*.
"""

from typing import NamedTuple

import numpy as np

from treeproof.checker.arrays import Ints, begins
from treeproof.checker.forest import Boxes, Forest, Pieces


class Listed(NamedTuple):
    """Segments that have multipliers in proofs: axis and first atom of each, output of its tree."""

    axis: Ints
    start: Ints
    output: Ints


class Regions:
    """Factors, pairs, segments, pieces and entries of the boxes of many rows.

    An entry is a piece of a factor with a pair that it narrows. Whatever is named `x_ys` says where
    the ys of each x begin, with one more number at the end; all are in order of their xs.

    leaf, tree               of each piece
    factor                   row * n_trees + tree of each factor, which `tree_pieces` counts, too
    factor_tree              of each factor
    pair_axis                of each pair
    segment_start            first atom of each segment
    entry_pair, entry_first, entry_last   of each entry; segments counted within the pair
    """

    def __init__(self, boxes: Boxes, pieces: Pieces, output: Ints) -> None:
        self.boxes, self.leaf, self.tree = boxes, pieces.leaf, pieces.tree
        (n_rows, n_axes), n_trees = boxes.low.shape, len(output)
        self.n_trees = n_trees
        tree = pieces.row * n_trees + pieces.tree
        self.tree_pieces = np.searchsorted(tree, np.arange(n_rows * n_trees + 1))
        self.factor = np.flatnonzero(np.diff(self.tree_pieces) > 1)
        factor_row, self.factor_tree = np.divmod(self.factor, n_trees)
        self.row_factors = np.searchsorted(factor_row, np.arange(n_rows + 1))
        factor = np.searchsorted(self.factor, tree[pieces.entry_piece])
        own = np.append(self.factor, -1)[factor] == tree[pieces.entry_piece]
        factor, entry_piece = factor[own], pieces.entry_piece[own]
        self.entry_axis, low, high = (
            side[own] for side in (pieces.entry_axis, pieces.entry_low, pieces.entry_high)
        )
        self.entry_piece, self.entry_low, self.entry_high = entry_piece, low, high
        self.n_atoms = n_atoms = int(boxes.high.max(initial=0)) + 2
        pair, self.entry_pair = np.unique(factor * n_axes + self.entry_axis, return_inverse=True)
        pair_factor, self.pair_axis = np.divmod(pair, n_axes)
        self.factor_pairs = np.searchsorted(pair_factor, np.arange(len(self.factor) + 1))
        ends = boxes.low[factor_row[pair_factor], self.pair_axis]
        # Where a range ends another one begins, or a segment beyond it counts with it: any
        # multipliers give a bound, and so does the largest of more of them.
        starts = [np.arange(len(pair)) * n_atoms + ends, self.entry_pair * n_atoms + low]
        segment = np.sort(np.concatenate(starts))
        segment = segment[begins(segment)]
        segment_pair, self.segment_start = np.divmod(segment, n_atoms)
        self.pair_segments = np.searchsorted(segment_pair, np.arange(len(pair) + 1))
        offset = self.pair_segments[self.entry_pair]
        self.entry_first = np.searchsorted(segment, self.entry_pair * n_atoms + low) - offset
        last = np.searchsorted(segment, self.entry_pair * n_atoms + high, "right")
        self.entry_last = last - 1 - offset
        self.piece_entries = np.searchsorted(entry_piece, np.arange(len(self.leaf) + 1))
        # A tree with one axis is a term of its atoms: each segment's multiplier is minus the gain
        # of the leaf that holds it. Such multipliers are not part of a proof.
        listed = np.diff(self.factor_pairs)[pair_factor[segment_pair]] > 1
        listed[self.pair_segments[:-1]] = False
        segment_factor = pair_factor[segment_pair[listed]]
        self.listed = Listed(
            self.pair_axis[segment_pair[listed]],
            self.segment_start[listed],
            output[self.factor_tree[segment_factor]],
        )
        self.row_listed = np.searchsorted(factor_row[segment_factor], np.arange(n_rows + 1))

    def met(self, row: int, low: Ints, high: Ints) -> Ints:
        """Pieces of a row that meet a box."""
        first, last = self.tree_pieces[[row * self.n_trees, (row + 1) * self.n_trees]].tolist()
        entry = slice(*self.piece_entries[[first, last]].tolist())
        axis = self.entry_axis[entry]
        apart = (self.entry_low[entry] > high[axis]) | (self.entry_high[entry] < low[axis])
        meets = np.ones(last - first, dtype=bool)
        meets[self.entry_piece[entry][apart] - first] = False
        return first + np.flatnonzero(meets)


class Sums:
    """What the sums of outputs can be over boxes, in units that are rounded outwards.

    Of each row and output: `lone`, least and largest sum of the start and of the trees with one
    leaf; `errors`, how far the rounded sum can be from the real one; `peaks`, how large any partial
    sum can become.
    """

    def __init__(self, forest: Forest, regions: Regions) -> None:
        n_rows, n_trees = len(regions.boxes.low), forest.ensemble.n_trees
        is_lone = (np.diff(regions.tree_pieces) == 1).reshape(n_rows, n_trees)
        self.lone: list[tuple[list[int], list[int]]] = []
        self.errors: list[list[int]] = []
        self.peaks: list[list[int]] = []
        for output in range(forest.ensemble.n_outputs):
            if forest.value.shape[1] > 1 or output == 0:
                sides = [
                    f.reduceat(v[regions.leaf, output], regions.tree_pieces[:-1])
                    for f, v in ((np.minimum, forest.down), (np.maximum, forest.up))
                ]
            own = np.flatnonzero(np.isin(forest.output, (-1, output)))
            low, high = (side.reshape(n_rows, n_trees)[:, own] for side in sides)
            start, lone = forest.start_of(output), is_lone[:, own]
            self.lone.append((
                (start[0] + np.where(lone, low, 0).sum(axis=1)).tolist(),
                (start[1] + np.where(lone, high, 0).sum(axis=1)).tolist(),
            ))  # fmt: skip
            low, high = start[0] + np.cumsum(low, axis=1), start[1] + np.cumsum(high, axis=1)
            largest = np.maximum(-low, high)
            self.peaks.append(largest.max(axis=1, initial=max(-start[0], start[1])).tolist())
            self.errors.append(rounding_errors(largest, forest.exact_up_to, forest.bits).tolist())


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
