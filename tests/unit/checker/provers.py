"""The checker's parts for one row, with boxes as dictionaries and multipliers as lists."""

import dataclasses
from typing import Any

import numpy as np

from treeproof.checker.claims import Claim, Way
from treeproof.checker.forest import Boxes, Forest
from treeproof.checker.proofs import Bounds, Node, Prover, Record
from treeproof.checker.regions import Regions

Box = dict[int, tuple[int, int]]


def cuts_of(forest: Forest) -> dict[int, list[float]]:
    """Thresholds of every feature that has some."""
    found = {f: forest.cuts(f).tolist() for f in range(forest.ensemble.n_features)}
    return {feature: cuts for feature, cuts in found.items() if cuts}


def box_of(boxes: Boxes, row: int = 0) -> Box:
    """Cells of the features that move."""
    cells = zip(boxes.low[row].tolist(), boxes.high[row].tolist(), strict=True)
    return {feature: cell for feature, cell in enumerate(cells) if cell[0] <= cell[1]}


def boxes_of(forest: Forest, box: Box) -> Boxes:
    """The box of one row as arrays."""
    low, high = (np.full((1, forest.ensemble.n_features), v) for v in (0, -1))
    for feature, cells in box.items():
        low[0, feature], high[0, feature] = cells
    return Boxes(low, high)


def cell_box(forest: Forest, claim: Claim, kind: str, radius: float) -> Box:
    """Cells that a set around the row of a claim meets."""
    return box_of(forest.boxes([dataclasses.replace(claim, kind=kind, radius=radius)]))


def pieces_of(forest: Forest, row: Any, box: Box) -> list[list[tuple[int, Box]]]:
    """Of each tree the leaves that a box meets, with the ranges that they narrow."""
    boxes = boxes_of(forest, box)
    regions = regions_of(forest, row, box)
    pieces = forest.pieces(np.array([row], dtype=float), boxes)
    found = []
    for first, last in zip(regions.tree_pieces[:-1], regions.tree_pieces[1:], strict=True):
        found.append([])
        for piece in range(first, last):
            own = np.flatnonzero(pieces.entry_piece == piece)
            columns = (pieces.entry_axis, pieces.entry_low, pieces.entry_high)
            ranges = {
                int(axis): (int(low), int(high))
                for axis, low, high in zip(*(column[own] for column in columns), strict=True)
            }
            for entry in range(*regions.piece_entries[piece : piece + 2]):
                pair = regions.entry_pair[entry]
                feature = int(regions.pair_axis[pair])
                start = regions.pair_segments[pair]
                low = regions.segment_start[start + regions.entry_first[entry]]
                after = start + regions.entry_last[entry] + 1
                is_last = after == regions.pair_segments[pair + 1]
                high = box[feature][1] if is_last else regions.segment_start[after] - 1
                assert ranges[feature] == (int(low), int(high))
            found[-1].append((int(regions.leaf[piece]), ranges))
    return found


def regions_of(forest: Forest, row: Any, box: Box) -> Regions:
    boxes = boxes_of(forest, box)
    return Regions(boxes, forest.pieces(np.array([row], dtype=float), boxes), forest.output)


def prover_of(forest: Forest, row: Any, way: Way, box: Box) -> Any:
    """What follows proofs that a way does not happen in a box."""
    return Prover(forest, regions_of(forest, row, box), [Record(b"", 0)], [[way]])


def floor_in_box(forest: Forest, row: Any, way: Way, box: Box) -> int:
    """The floor of a way in a box, in units."""
    return int(prover_of(forest, row, way, box).problem(0, 0).floor)


def n_multipliers(prover: Any, part: Box) -> int:
    """How many multipliers a node has: those of segments that meet its box, but the first ones."""
    boxes = prover.regions.boxes
    low, high = boxes.low[0].copy(), boxes.high[0].copy()
    for feature, cells in part.items():
        low[feature], high[feature] = cells
    return int(prover.n_multipliers(0, prover.ways[0][0], low, high))


def bounds_of(prover: Any, part: Box, multipliers: list[int], exponent: int, **trims: Any) -> Any:
    """Bounds of a part of the box, with multipliers of one byte each."""
    prover.records[0] = Record(np.array(multipliers, dtype=np.int8).tobytes(), 0)
    changes: Any = ()
    for feature, cells in part.items():
        changes = (feature, cells, changes)
    told = (exponent, 1, len(multipliers), 0)
    trimmed = tuple(trims.get("trims", {}).items())
    return Bounds(prover, [Node(0, 0, "T", "", changes, multipliers=told, trims=trimmed)])
