"""Evidence: claims of finished rows, proved once more and written down for the checker.

The proof belongs to the claim, not to the engine that made it: whatever engine found a bound, the
same recording search (kernels/exact/proof.py) proves the set of that bound. The format is described
in docs/reference/evidence.md, and read by `treeproof.checker`, which shares no code with this.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.checker import RunChecker
from treeproof.engines.base import Budget
from treeproof.engines.batches import batch_of, forest_of, single_constraints
from treeproof.engines.priced_evidence import Division, record_part, within
from treeproof.kernels.core.emulation import Conjunction
from treeproof.kernels.core.plain import turns
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
)
from treeproof.kernels.exact.clique_proof import record_by_cliques
from treeproof.kernels.exact.priced_proof import record_priced
from treeproof.kernels.exact.proof import RecordLimits, record_batch
from treeproof.kernels.exact.row import Alternatives
from treeproof.model import evaluate
from treeproof.model.ensemble import ZERO_IS_MISSING, Ensemble, FloatArray
from treeproof.model.rows import row_hash
from treeproof.model.sums import proof_exponent
from treeproof.prediction import accumulators, in_slices, thread_count
from treeproof.query.constraints import LABEL_CHANGES, LABEL_IS_TARGET
from treeproof.query.goals import ScoreChange
from treeproof.query.prices import Pricing
from treeproof.query.query import Query
from treeproof.query.rounding import move_rounded_down
from treeproof.results.results import Results, withdraw
from treeproof.results.run_file import row_records
from treeproof.results.verdict import UnknownReason, Verdict

PREFIX = "E1:"
"""The version of the format; a row without evidence says why after `NO_EVIDENCE`."""

NO_EVIDENCE = "none: "
NODES, CLIQUE_NODES = 1 << 12, 1 << 18
"""Nodes after which another kind of proof is tried; those of cliques are smaller."""

TIGHTEST = 12
"""Bytes for each packed byte from which on evidence is packed less tightly."""

_CHUNK = 32
_REASONS = {
    NODE_LIMIT: "node limit",
    TIME_LIMIT: "time limit",
    MEMORY_LIMIT: "memory limit",
    NEAR_TIE: "a cost too near to what is claimed",
}

CLAIM_NOTHING, CLAIM_OPEN, CLAIM_CLOSED = 0, 1, 2


def record_evidence(
    query: Query,
    outcomes: Results,
    budget: Budget,
    *,
    asks_radius: bool,
    n_jobs: int = 1,
    divisions: dict[int, Division] | None = None,
) -> None:
    """Fill ``outcomes.evidence``: text for every row that claims something, None for others.

    The budget is per row, for recording alone, and per part of rows that are in parts, as
    `divisions` say by row; `asks_radius` says whether bounds were asked for, rather than a verdict
    at the query's own set.
    """
    if query.pricing is not None:
        _record_costs(query, query.pricing, outcomes, budget, divisions, asks_radius=asks_radius)
        return
    claimed, radius = claimed_sets(query, outcomes, asks_radius)
    skip = claimed == CLAIM_NOTHING
    recorder = _Recorder(query, set_ends(query, claimed, radius), skip, budget, n_jobs)
    is_forest = query.ensemble.aggregation.finish == "divide"
    is_target = query.alternatives.judgement == LABEL_IS_TARGET
    # Where zero counts as missing, a leaf may be no range, and the checker would not follow. What a
    # target needs is weighed anew in every box, which cliques do not do.
    if is_target or np.any(query.ensemble.trees.flags & ZERO_IS_MISSING):
        recorder.run(record_batch)
    elif is_forest:
        recorder.run(record_by_cliques, CLIQUE_NODES)
        recorder.run(record_batch)
    else:
        recorder.run(record_batch, NODES)
        recorder.run(record_by_cliques, CLIQUE_NODES)
        recorder.run(record_batch)
    outcomes.statistics["evidence_seconds"] = recorder.seconds
    is_box, atoms = not query.reach.is_ball, [""] * len(query)
    write = _claim_writer(query, claimed, radius, is_box=is_box, atoms=atoms)
    _write_evidence(outcomes, claimed, recorder.status, recorder.records, write)


def _record_costs(
    query: Query,
    pricing: Pricing,
    outcomes: Results,
    budget: Budget,
    divisions: dict[int, Division] | None,
    *,
    asks_radius: bool,
) -> None:
    """As `record_evidence`, where changes have prices."""
    claimed, radius = claimed_sets(query, outcomes, asks_radius)
    n_rows = len(query)
    status, seconds = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows)
    tools = forest_of(query), _alternatives(query), _record_limits(query, budget)
    atoms, records = ["[]"] * n_rows, [b""] * n_rows
    if divisions is None:
        claims = claimed == CLAIM_NOTHING, radius, claimed == CLAIM_OPEN
        for row, (kept, proof) in enumerate(
            _recorded(query, pricing, tools, claims, (status, seconds))
        ):
            atoms[row], records[row] = kept, proof
    else:
        atoms = [""] * n_rows
        for row in np.flatnonzero(claimed != CLAIM_NOTHING).tolist():
            # One row at a time: it may have very many parts.
            division, is_open = divisions[row], claimed[row] == CLAIM_OPEN
            rows = np.full(len(division.ends), row)
            parts = within(pricing, rows, division.ends)
            claims = np.zeros(len(rows), dtype=bool), radius[rows], np.full(len(rows), is_open)
            columns = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
            found = _recorded(query.take(rows), parts, tools, claims, columns)
            status[row] = next((s for s in columns[0].tolist() if s != PROVED), PROVED)
            seconds[row] = columns[1].sum()
            records[row] = division.written(found)
    outcomes.statistics["evidence_seconds"] = seconds
    write = _claim_writer(query, claimed, radius, is_box=pricing.is_box, atoms=atoms)
    _write_evidence(outcomes, claimed, status, records, write)


def _recorded(
    query: Query, pricing: Pricing, tools: Any, claims: Any, columns: Any
) -> list[tuple[str, bytes]]:
    """Kept atoms and proofs of all rows; their status and seconds are written into columns."""
    found = [("[]", b"")] * len(query)
    for first in range(0, len(query), _CHUNK):
        part = slice(first, min(first + _CHUNK, len(query)))
        for turn in turns(record_priced, part):
            if not claims[0][turn].all():
                for row, kept, proof in record_part(query, pricing, tools, turn, claims, columns):
                    found[row] = kept, proof
    return found


def _record_limits(query: Query, budget: Budget) -> RecordLimits:
    return RecordLimits(
        time_s=float(budget.time_limit_s),
        nodes=int(budget.node_limit),
        memory_bytes=float(budget.memory_limit_mb) * 2.0**20,
        least_exponent=proof_exponent(query.ensemble),
    )


class _Recorder:
    """Records the sets of rows by one search after another, until each is proved."""

    def __init__(
        self,
        query: Query,
        ends_of_sets: tuple[FloatArray, FloatArray],
        skip: NDArray[np.bool_],
        budget: Budget,
        n_jobs: int,
    ) -> None:
        self._query, self._sets, self._n_jobs = query, ends_of_sets, n_jobs
        self._is_open = ~skip
        self._forest, self._alternatives = forest_of(query), _alternatives(query)
        self._limits = _record_limits(query, budget)
        n_rows = len(query)
        self.status, self.seconds = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows)
        self.records: list[bytes] = [b""] * n_rows

    def run(self, kernel: Any, most_nodes: int = 2**62) -> None:
        """Record what is open, each alternative with at most so many nodes."""
        limits = self._limits._replace(nodes=min(self._limits.nodes, most_nodes))
        skip = ~self._is_open

        def record(part: slice) -> None:
            for turn in turns(kernel, part):
                if not skip[turn].all():
                    record_turn(turn)

        def record_turn(part: slice) -> None:
            first = part.start
            batch = batch_of(self._query, self._sets, skip, part)
            status, seconds = self.status[part], self.seconds[part]
            data, ends = kernel(self._forest, self._alternatives, batch, limits, status, seconds)
            content, begin = data.tobytes(), 0
            for number, end in enumerate(ends.tolist()):
                if not skip[first + number]:
                    self.records[first + number] = content[begin:end]
                begin = end

        in_slices(range(0, len(skip), _CHUNK), thread_count(self._n_jobs), record)
        self._is_open &= self.status != PROVED


def withdraw_unaccepted(results: Results, ensemble: Ensemble) -> None:
    """Turn answers that the checker does not accept into rows that failed, with its reason.

    The model is the one that was loaded, whatever the arithmetic of the question.
    """
    checker = RunChecker(results.header, ensemble)
    checks = checker.check_all(list(row_records(results)))
    failed = [number for number, check in enumerate(checks) if check.status == "rejected"]
    said = f"{UnknownReason.ROW_FAILED.value}: the checker does not accept its evidence:"
    withdraw(results, failed, [f"{said} {checks[number].reason}" for number in failed])


def _write_evidence(
    outcomes: Results,
    claimed: NDArray[np.int64],
    status: NDArray[np.int64],
    records: list[bytes],
    write: Callable[[int], bytes],
) -> None:
    """Fill ``outcomes.evidence`` with what was recorded of each row, behind its claim."""
    outcomes.evidence = np.full(len(claimed), None, dtype=object)
    has_witness = np.isfinite(outcomes.upper) | (outcomes.verdict == Verdict.FALSIFIED)
    for row in np.flatnonzero((claimed != CLAIM_NOTHING) | has_witness).tolist():
        if status[row] != PROVED:
            outcomes.evidence[row] = NO_EVIDENCE + _REASONS[int(status[row])]
        else:
            outcomes.evidence[row] = packed(write(row), records[row])


def _kinds(*, is_box: bool) -> dict[int, str]:
    """Sets of claims as evidence names them."""
    closed = "box" if is_box else "closed"
    return {CLAIM_NOTHING: "none", CLAIM_OPEN: "open", CLAIM_CLOSED: closed}


def packed(claim: bytes, proof: bytes) -> str:
    """The text of evidence: a zlib stream in which no few bytes stand for very many."""
    payload = struct.pack("<I", len(claim)) + claim + proof
    found = zlib.compress(payload, 6)
    if len(payload) > TIGHTEST * len(found):
        # Every byte then takes at least one bit, so that the checker's limits are kept: a split
        # and two closed halves are 3 nodes in no less than 11 bytes.
        packer = zlib.compressobj(6, strategy=zlib.Z_HUFFMAN_ONLY)
        found = packer.compress(payload) + packer.flush()
    return PREFIX + base64.b64encode(found).decode()


def claimed_sets(
    query: Query, outcomes: Results, asks_radius: bool
) -> tuple[NDArray[np.int64], FloatArray]:
    """Which set each row's answer claims to be free of violations, and its radius.

    For radii this is the open ball of the lower bound, and the closed one where the radius is exact
    but not attained: there the closed ball is safe as well.
    """
    verified, falsified = (
        outcomes.verdict == verdict for verdict in (Verdict.VERIFIED, Verdict.FALSIFIED)
    )
    if not asks_radius:
        claimed = np.where(verified, CLAIM_CLOSED, CLAIM_NOTHING)
        return claimed, np.full(len(query), query.radius_of(slice(None), np.inf))
    is_closed = outcomes.exact & ~outcomes.attained
    claimed = np.where(outcomes.lower > 0.0, CLAIM_OPEN, CLAIM_NOTHING)
    claimed[is_closed] = CLAIM_CLOSED
    claimed[falsified] = CLAIM_NOTHING
    return claimed, outcomes.lower.copy()


def set_ends(
    query: Query, claimed: NDArray[np.int64], radius: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the claimed sets as doubles; what they pass are the thresholds up to them.

    Sound: a set passes threshold T downwards iff its lower end is below T, and upwards iff its
    upper end is at least T, or above T where the end itself is excluded. Rounding the lower end
    and a closed upper end down keeps this, see query/rounding.py. Above an open end b lies the
    smallest double not below b; T < b iff T is at most the double before it. A set of doubles
    passes T downwards iff its first double does: that not below the end, or above an open one.
    """
    reach = query.reach
    if not reach.is_ball:
        return np.array(reach.low), np.array(reach.high)
    low, high = np.array(query.rows), np.array(query.rows)
    if np.all(np.isin(reach.down, (0.0, 1.0))) and np.all(np.isin(reach.up, (0.0, 1.0))):
        finite = np.flatnonzero(np.isfinite(radius))
        groups = [(finite, 1.0, radius[finite, np.newaxis])] if finite.size else []
        rest = np.flatnonzero(~np.isfinite(radius))
    else:
        groups, rest = [], np.arange(len(query))
    groups += [(np.array([row]), float(radius[row]), np.ones((1, 1))) for row in rest]
    for rows, factor, moved in groups:
        start = query.rows[rows]
        down, up = moved * reach.down, moved * reach.up
        passed = move_rounded_down(start, factor, down, -1)
        is_open = (claimed[rows] == CLAIM_OPEN)[:, np.newaxis] & np.isfinite(start)
        if not reach.holds_reals:
            first = -move_rounded_down(-start, factor, down, +1)
            passed = np.where(is_open & (down > 0.0), np.nextafter(passed, np.inf), first)
        low[rows] = passed
        closed = move_rounded_down(start, factor, up, +1)
        opened = np.nextafter(-move_rounded_down(-start, factor, up, -1), -np.inf)
        high[rows] = np.where(is_open & (up > 0.0), opened, closed)
    low = np.minimum(np.maximum(low, reach.low), query.rows)
    high = np.maximum(np.minimum(high, reach.high), query.rows)
    return low, high


def _alternatives(query: Query) -> Alternatives:
    """What could break the claims; sums are of plain outputs, without their scale."""
    aggregation, table = query.ensemble.aggregation, single_constraints(query)
    is_label = query.alternatives.judgement in (LABEL_CHANGES, LABEL_IS_TARGET)
    scale = aggregation.scale if is_label and aggregation.finish == "affine" else 1.0
    return table._replace(
        coefficient=np.rint(table.coefficient / scale),
        need=table.need / scale,
        link_slack=table.link_slack / scale,
        conditions=Conjunction(
            np.rint(table.conditions.coefficient / scale),
            table.conditions.need / scale,
            table.conditions.link_slack / scale,
        ),
    )


def _claim_writer(
    query: Query, claimed: NDArray[np.int64], radius: FloatArray, *, is_box: bool, atoms: list[str]
) -> Callable[[int], bytes]:
    """Return a function that writes the claim of a row as JSON.

    atoms  of rows with costs, what their proofs look at; empty where these tell themselves
    """
    properties, kinds, reach = _properties(query), _kinds(is_box=is_box), query.reach
    is_shared = all(
        side.strides[0] == 0 or (side == side[0]).all() for side in (reach.low, reach.high)
    )
    named: list[str] = []

    def moves(row: int) -> str:
        if not named or not is_shared:
            named[:] = [row_hash(reach.down, reach.up, reach.low[row], reach.high[row])]
        return named[0]

    def write(row: int) -> bytes:
        kind, end = kinds[int(claimed[row])], float(radius[row])
        more = f',"kept":{atoms[row]}' if atoms[row] else ""
        if query.pricing is None:
            more = f',"moves":"{moves(row)}"'
        return (
            f'{{"model":"{query.ensemble.fingerprint}","row":"{row_hash(query.rows[row])}",'
            f'"set":"{kind}","radius":"{end.hex()}",{properties[row]}{more}}}'
        ).encode()

    return write


def _properties(query: Query) -> list[str]:
    """What must hold, per row: the label is kept, a label is avoided, a score stays within."""
    goal = query.description.get("goal", {"name": "KeepsLabel"})
    table, labels = query.alternatives, query.alternatives.group_label
    if goal["name"] in ("ScoreWithin", "ScoreChange"):
        return [f'"within":["{a.hex()}","{b.hex()}"]' for a, b in _score_ranges(query, goal)]
    if table.judgement == LABEL_CHANGES:
        return [f'"keep":{labels[group]}' for group in query.group]
    if table.judgement == LABEL_IS_TARGET:
        return [f'"avoid":{labels[group]}' for group in query.group]
    if goal["name"] == "AvoidsTarget":
        return [f'"avoid":{1 - group}' for group in query.group]
    return [f'"keep":{group}' for group in query.group]


def _score_ranges(query: Query, goal: dict[str, Any]) -> Iterator[tuple[float, float]]:
    if goal["name"] == "ScoreChange":
        score = evaluate.finish(query.ensemble, accumulators(query.ensemble, query.rows))[:, 0]
        low, high = ScoreChange(float(goal["delta"])).range_around(score.astype(np.float64))
        yield from zip(low.tolist(), high.tolist(), strict=True)
        return
    sides = [
        np.broadcast_to(np.array(goal[name], dtype=np.float64), (len(query),)).tolist()
        for name in ("low", "high")
    ]
    yield from zip(*sides, strict=True)
