"""Evidence about costs: what rows claim, with the atoms that their proofs look at."""

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.priced import priced_batch
from treeproof.kernels.exact.priced_proof import record_priced
from treeproof.query.axes import NUMERIC, Axes
from treeproof.query.prices import Prices, Pricing
from treeproof.query.query import Query
from treeproof.query.rounding import round_up


class Division(NamedTuple):
    """The set of a row in parts, each of which is proved by itself without rules.

    Attributes
    ----------
    nodes : list of bytes
        What a proof says before the first part, between two, and after the last one.
    ends : list of dict
        For each part, between which values features lie, by their numbers.
    """

    nodes: list[bytes]
    ends: list[dict[int, tuple[float, float]]]

    def written(self, leaves: list[tuple[str, bytes]]) -> bytes:
        """The proof of the whole, with the kept atoms and the proof of each part."""
        found = [self.nodes[0]]
        for ends, (kept, proof), after in zip(self.ends, leaves, self.nodes[1:], strict=True):
            found.append(struct.pack("<cI", b"L", len(ends)))
            found += [struct.pack("<idd", feature, *pair) for feature, pair in ends.items()]
            found += [struct.pack("<II", len(kept), len(proof)), kept.encode(), proof, after]
        return b"".join(found)


def within(
    pricing: Pricing, rows: NDArray[np.int64], ends: list[dict[int, tuple[float, float]]]
) -> Pricing:
    """The prices of rows without rules, each between some ends of features."""
    relaxed = replace(pricing.take(rows), types=replace(pricing.types, rules=()))
    low, high = np.full(relaxed.rows.shape, -np.inf), np.full(relaxed.rows.shape, np.inf)
    for number, own in enumerate(ends):
        for feature, pair in own.items():
            low[number, feature], high[number, feature] = pair
    return replace(
        relaxed,
        low=np.maximum(relaxed.low, low),
        high=np.minimum(relaxed.high, high),
        leaves=(relaxed.rows < low) | (relaxed.rows > high),
    )


MORE = 1.0 + 2.0**-30
"""By what factor a limit that holds everything is larger than the dearest row."""


def claimed_limit(
    pricing: Pricing, prices: Prices, row: int, radius: float, is_open: bool
) -> float:
    """The largest total that a claim is about, as a double that is not below it."""
    if pricing.is_box:
        return 0.0  # whatever is allowed is free
    if math.isinf(radius):
        # Everything: no row costs more than its dearest atoms together.
        finite = np.where(np.isfinite(prices.cost[row]), prices.cost[row], 0.0)
        largest = np.maximum.reduceat(finite, pricing.axes.atom_start[:-1])
        most = float(largest.max() if pricing.total == "max" else largest.sum())
        return math.nextafter(
            most * MORE, math.inf
        )  # also where all that costs nothing is approached
    if pricing.total == "max":
        return float(np.nextafter(radius, 0.0)) if is_open else radius
    total, grid = Fraction(radius) ** (2 if pricing.is_square else 1), prices.grid(row)
    if grid > 0.0:
        steps = total / Fraction(grid)
        total = (math.ceil(steps) - 1 if is_open else math.floor(steps)) * Fraction(grid)
    return round_up(total)


def record_part(
    query: Query, pricing: Pricing, tools: Any, part: slice, claims: Any, columns: Any
) -> Iterator[tuple[int, str, bytes]]:
    """Record a slice of the rows; gives rows with their kept atoms, as JSON, and their proofs."""
    (forest, alternatives, limits), (skip, radius, is_open) = tools, claims
    batch = priced_batch(query, pricing, skip, part, asks_radius=True)
    prices = pricing.prices(part)
    for number in np.flatnonzero(~batch.skip).tolist():
        row = part.start + number
        batch.limit[number] = claimed_limit(
            pricing, prices, number, float(radius[row]), bool(is_open[row])
        )
        if is_open[row] or (pricing.total == "sum" and radius[row] > 0.0):
            # The limit may lie below what is claimed: what exceeds its double is still within.
            batch.is_open[number], batch.is_exact[number] = False, True
    status, seconds = (column[part] for column in columns)
    data, ends = record_priced(forest, alternatives, batch, limits, status, seconds)
    content, begin = data.tobytes(), 0
    for number, end in enumerate(ends.tolist()):
        if not batch.skip[number]:
            kept, used = _kept(pricing.axes, content[begin:end])
            yield (
                part.start + number,
                json.dumps(kept, separators=(",", ":")),
                content[begin + used : end],
            )
        begin = end


def _kept(axes: Axes, record: bytes) -> tuple[list[Any], int]:
    """Kept atoms by axis as claims name them, and the bytes that told of them."""
    found, used = [], 0
    for number, axis in enumerate(axes.axes):
        n_atoms = int(axes.atom_start[number + 1] - axes.atom_start[number])
        size = (n_atoms + 7) // 8
        bits = np.unpackbits(np.frombuffer(record, np.uint8, size, used), bitorder="little")
        used += size
        kept = np.flatnonzero(bits[:n_atoms])
        if axis.kind == NUMERIC:
            breaks = np.flatnonzero(np.diff(kept) > 1)
            firsts = kept[np.concatenate([[0], breaks + 1])] if len(kept) else kept
            lasts = kept[np.concatenate([breaks, [len(kept) - 1]])] if len(kept) else kept
            found.append([list(pair) for pair in zip(firsts.tolist(), lasts.tolist(), strict=True)])
        else:
            found.append([_choice(axis.choices[atom], is_group=axis.is_group) for atom in kept])
    return found, used


def _choice(values: NDArray[np.float64], *, is_group: bool) -> Any:
    """The place of the column that is 1, -1 where none is; or the values as they are."""
    ones = np.flatnonzero(values == 1.0)
    if is_group and len(ones) <= 1 and np.count_nonzero(values) == len(ones):
        return int(ones[0]) if len(ones) else -1
    return [float(value).hex() for value in values]
