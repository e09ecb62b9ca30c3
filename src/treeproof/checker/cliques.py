"""Proofs by cliques: leaves in an order, and classes of them that no two of which share a point.

A *piece* is a leaf that a box meets and whose gain exceeds the least gain of its tree there. The
sum of a way at a point is a constant plus the least gains plus what the pieces that hold the point
exceed them by; and these pieces meet each other, so they are a clique. Whole weights that are no
smaller, and a weight that every clique with the floor reaches, make a question about numbers: is
there a clique of that weight? Classes answer it, as they are filled in the given order.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from treeproof.checker.arrays import Ints
from treeproof.checker.claims import require

if TYPE_CHECKING:
    from treeproof.checker.proofs import Reader

MOST_PIECES = 1 << 13
"""Pieces of a graph, at most: it takes a bit for each two."""


class Graph(NamedTuple):
    """Leaves that a box meets.

    leaf, tree, gain       of each piece; gains in units, rounded up
    piece, axis, low, high of each range that a piece narrows
    """

    leaf: Ints
    tree: Ints
    gain: Ints
    piece: Ints
    axis: Ints
    low: Ints
    high: Ints


def follow(reader: "Reader", pieces: Graph, missing: int, exponent: int, place: str) -> None:
    """Read a graph and the nodes of its proof; reject it unless no clique weighs enough.

    missing   the floor minus the constant, in units of 2**exponent

    Sound: where the sum reaches the floor, the pieces there exceed the least gains by at least
    `missing` minus their sum. Each weight times its unit is smaller than what the piece exceeds its
    least gain by at most by what rounding gains up may add, one unit, and a clique has one piece of
    each tree; so the weights of that clique are at least the rest over the unit, and whole.
    """
    (unit_exponent, factor, required, count) = reader.take("hqqI")
    require(unit_exponent >= exponent, f"{place}: weights finer than the unit")
    require(unit_exponent < 2048 and factor > 0, f"{place}: no such unit")
    require(0 < count <= MOST_PIECES, f"{place}: no such number of leaves")
    unit = factor << unit_exponent - exponent
    leaves, weights = reader.take(f"{count}i"), reader.take(f"{count}q")
    least: dict[int, int] = {}
    for tree, gain in zip(pieces.tree.tolist(), pieces.gain.tolist(), strict=True):
        least[tree] = min(gain, least.get(tree, gain))
    more = [g - least[t] for t, g in zip(pieces.tree.tolist(), pieces.gain.tolist(), strict=True)]
    number = {leaf: at for at, leaf in enumerate(pieces.leaf.tolist())}
    require(len(number) == len(more), f"{place}: a leaf is no range")
    listed = [number.pop(leaf, -1) for leaf in leaves]
    require(min(listed) >= 0, f"{place}: a leaf is not in the box, or listed twice")
    light = all(more[at] == 0 for at in number.values())
    require(light, f"{place}: a leaf that counts is not listed")
    heavy = all(w > 0 and w * unit + 1 >= more[at] for w, at in zip(weights, listed, strict=True))
    require(heavy, f"{place}: a weight is too small")
    missing -= sum(least.values()) + len(least)
    require(required > 0 and (required - 1) * unit < missing, f"{place}: too much is required")
    _Search(_neighbours(pieces, np.array(listed)), weights, place).run(reader, required)


def _neighbours(pieces: Graph, listed: Ints) -> list[int]:
    """Of each listed piece those that meet it in every feature and are of other trees, as bits."""
    n = len(listed)
    place = np.full(len(pieces.leaf), -1)
    place[listed] = np.arange(n)
    at = place[pieces.piece]
    tree = pieces.tree[listed]
    meets = tree[:, None] != tree
    for axis in np.unique(pieces.axis[at >= 0]):
        own = np.flatnonzero((pieces.axis == axis) & (at >= 0))
        low, high = pieces.low[own], pieces.high[own]
        apart = (low[:, None] > high) | (low > high[:, None])
        meets[np.ix_(at[own], at[own])] &= ~apart
    packed = np.packbits(meets, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


class _Search:
    """Follows branching on pieces; sets of pieces are the bits of integers."""

    def __init__(self, neighbours: list[int], weights: tuple[int, ...], place: str) -> None:
        self.neighbours, self.weights, self.place = neighbours, weights, place

    def run(self, reader: "Reader", required: int) -> None:
        """Read the nodes of the proof, in preorder.

        Sound: a clique of enough weight among the alive pieces has one that `cover` leaves. Each
        of these is either in it, and then the others are among its neighbours, or it is not.
        """
        pending = [((1 << len(self.weights)) - 1, 0, required)]
        is_new = True
        while pending:
            alive, left, missing = pending.pop()
            if is_new:
                place = f"{self.place}, byte {reader.at}"
                letter = reader.letter()
                (count,) = reader.take("H")
                left, n_classes = self.cover(alive, missing)
                require(letter in "KB", f"{place}: unknown node {letter!r} of a graph")
                if letter == "K":
                    require(left == 0, f"{place}: classes do not cover all leaves")
                    require(count == n_classes, f"{place}: another number of classes")
                else:
                    require(0 < left.bit_count() == count, f"{place}: other leaves are left")
            is_new = left != 0
            if is_new:
                piece = left.bit_length() - 1
                alive ^= 1 << piece
                pending.append((alive, left ^ 1 << piece, missing))
                missing -= self.weights[piece]
                require(missing > 0, f"{self.place}: a clique weighs enough")
                pending.append((alive & self.neighbours[piece], 0, missing))

    def cover(self, alive: int, missing: int) -> tuple[int, int]:
        """Pieces that classes of a sum below `missing` leave uncovered, and the number of classes.

        Sound: no two pieces of a class are neighbours, so a clique has one of them at most. Where
        all its pieces are covered, it weighs no more than the sum of all classes.
        """
        rest: dict[int, int] = {}
        budget, n_classes = missing - 1, 0
        while alive and budget:
            free, members = alive, []
            number = budget
            while free:
                piece = (free & -free).bit_length() - 1
                free &= ~(self.neighbours[piece] | 1 << piece)
                members.append(piece)
                number = min(number, rest.setdefault(piece, self.weights[piece]))
            for piece in members:
                rest[piece] -= number
                if rest[piece] == 0:
                    alive ^= 1 << piece
            budget -= number
            n_classes += 1
        return alive, n_classes
