"""What a reader should know first: who proves more, what breaks, which rows are nearest to it."""

from typing import Any

import numpy as np

from treeproof.errors import BackendMissing
from treeproof.query.boxes import boxes_around
from treeproof.query.conflicts import find_conflicts
from treeproof.query.perturbations import LInf
from treeproof.report.feature_changes import change_counts
from treeproof.report.rows import changes_of, fragile_rows, radius_words, text_of
from treeproof.report.runs import RunView, row_name
from treeproof.results.numbers import counted, number, percent, percent_down

_FEATURES = 3
_ROWS = 3


def comparison(one: RunView, other: RunView, radius: float) -> dict[str, int]:
    """How many of the rows that both runs attack each of them proves within a radius."""
    proved = [
        dict(
            zip(
                run.results.row[run.attacked].tolist(),
                run.is_certified(radius)[run.attacked].tolist(),
                strict=True,
            )
        )
        for run in (one, other)
    ]
    both = proved[0].keys() & proved[1].keys()
    first, second = ({row for row in both if known[row]} for known in proved)
    return {
        "n": len(both),
        "first": len(first - second),
        "second": len(second - first),
        "both": len(first & second),
        "neither": len(both - first - second),
    }


def findings(run: RunView, radius: float) -> list[dict[str, Any]]:
    """What breaks a run, and which rows are nearest to it: sentences, and rows to look up.

    And what no model whatever could prove at the radius that the page opens with.
    """
    said: list[dict[str, Any]] = []
    n_witnesses = int(run.has_witness.sum())
    if run.changed is not None and n_witnesses:
        counts = change_counts(run)
        order = np.argsort(-counts, kind="stable")
        most = [int(f) for f in order[:_FEATURES] if counts[f]]
        names = [
            {"name": run.feature_name(f), "words": f"in {percent(counts[f] / n_witnesses)}"}
            for f in most
        ]
        n_moved = int((counts > 0).sum())
        what = "way" if run.recourse else "breaking change"
        said.append(
            {
                "lead": "What ways change" if run.recourse else "What breaks it",
                "items": names,
                "after": f"of the {counted(n_witnesses, what)}"
                f" that {'was found; it moves' if n_witnesses == 1 else 'were found; they move'}"
                f" {n_moved:,} of {len(counts):,} features.",
            }
        )
    nearest = fragile_rows(run)[:_ROWS]
    if nearest:
        items = [{"name": row_name(run.results, i), "words": _row_words(run, i)} for i in nearest]
        lead = "Broken by a change, for instance"
        if run.results.asks_radius:
            # An undecided row may be nearer than all of which the radius is known.
            lead = "Nearest to breaking" if run.is_settled else "Nearest known to break"
        if run.recourse:
            lead = "Cheapest ways, for instance"
        said.append({"lead": lead, "items": items, "after": ""})
    n_lost = _n_beyond_all(run, radius)
    if n_lost:
        said.append(
            {
                "lead": "What no model can do",
                "items": [{"name": f"Prove {percent_down(n_lost, run.n_attacked)}", "words": ""}],
                "after": f"of the rows at radius {number(radius)}: rows of different labels get so"
                " near to each other that none is right about both.",
            }
        )
    return said


def _n_beyond_all(run: RunView, radius: float) -> int:
    """How many rows no model can prove within a radius, as far as the run tells; at least."""
    moves, rows = dict(run.question.get("perturbation", {})), run.results.values
    is_told = run.question.get("labels") == "given" and rows is not None
    is_box = moves.pop("name", "") == "LInf" and not moves.keys() - _BOX and radius > 0.0
    n_rows = run.n_attacked
    if not (is_told and is_box and 1 < n_rows <= _MOST_ROWS) or rows is None:
        return 0
    if run.question.get("goal", {}).get("name", "KeepsLabel") != "KeepsLabel":
        return 0
    said: dict[str, Any] = {
        name: np.array(moves[name], dtype=np.float64)
        for name in ("scale", "below", "above", "low", "high")
        if moves.get(name) is not None
    }
    ball = LInf(radius, frozen=moves.get("frozen", ()), **said)
    _, targets = np.unique(
        [str(label) for label in run.results.label[run.attacked]], return_inverse=True
    )
    boxes = boxes_around(rows[run.attacked], ball, run.model["feature_names"])
    try:
        return round(n_rows * find_conflicts(boxes, targets).least_error)
    except BackendMissing:
        return 0


_BOX = {"eps", "scale", "below", "above", "frozen", "low", "high"}
"""What a description says of a ball whose sets are boxes."""
_MOST_ROWS = 2_000
"""Rows whose pairs are looked at: a page is written in seconds."""


def _row_words(run: RunView, i: int) -> str:
    """One row and the largest change of its witness."""
    label = text_of(run.results.label[i])
    parts = [f"label {label}"] if label else []
    changes, n_changes = changes_of(run, i, 1)
    if changes:
        change = changes[0]
        more = f" and {n_changes - 1} more" if n_changes > 1 else ""
        parts.append(f"{change['name']}: {change['original']} → {change['changed']}{more}")
    radius = radius_words(run, i)
    if radius:
        parts.append(f"{run.measure} {radius}")
    return "; ".join(parts)
