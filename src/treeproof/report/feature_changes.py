"""Which features break a model: how often, by how much, and what freezing them helps."""

from typing import Any

import numpy as np

from treeproof.report.runs import RunView, frozen_features
from treeproof.results.numbers import counted, number, percent

SHOWN = 12
"""Features with a bar; the others are listed in a table."""

LISTED = 200
"""Most features in the table."""


def breaking_features(run: RunView, frozen_runs: list[RunView]) -> dict[str, Any] | None:
    """What the witnesses of a run change, most often changed features first.

    None where rows were not recorded. `frozen_runs` ask the same with features frozen, and tell
    what freezing them would help.
    """
    if run.changed is None:
        return None
    counts = change_counts(run)
    order = np.lexsort((np.arange(len(counts)), -counts))
    order = order[counts[order] > 0]
    single, several = _radii_if_frozen(run, frozen_runs)
    n_witnesses = int(run.has_witness.sum())
    largest = int(counts.max()) if len(order) else 1
    lines = []
    for feature in order[:LISTED].tolist():
        moves = run.moves[run.changed[:, feature] & run.has_witness, feature]
        is_named = _has_no_size(run, feature)
        lines.append(
            {
                "name": run.feature_name(feature),
                "number": feature,
                "count": int(counts[feature]),
                "share": float(counts[feature] / n_witnesses),
                "relative": float(counts[feature] / largest),  # the length of a bar
                "median_change": "–" if is_named else number(float(np.median(np.abs(moves)))),
                "largest_change": "–" if is_named else number(float(np.max(np.abs(moves)))),
                "direction": "to another category" if is_named else _direction(moves),
                "is_named": is_named,
                "if_frozen": single.get(feature, ""),
            }
        )
    return {
        "run_name": run.name,
        "n_witnesses": n_witnesses,
        "lines": lines,
        "n_never": int((counts == 0).sum()),
        "has_frozen": bool(single),
        "several_frozen": several,
    }


def change_counts(run: RunView) -> np.ndarray:
    """How many witnesses change each feature."""
    if run.changed is None:
        return np.zeros(run.results.witness.shape[1], dtype=np.int64)
    return np.asarray((run.changed & run.has_witness[:, None]).sum(axis=0))


def _has_no_size(run: RunView, feature: int) -> bool:
    """Whether changes of a feature are no distances: categories, and columns of a group."""
    return feature in (run.model.get("categorical") or []) or len(run.axis_of[feature]) > 1


def _direction(moves: np.ndarray) -> str:
    up = float(np.mean(moves > 0.0))
    if up in (0.0, 1.0):
        return "always up" if up == 1.0 else "always down"
    return f"up in {percent(up)}"


def _radii_if_frozen(
    run: RunView, frozen_runs: list[RunView]
) -> tuple[dict[int, str], list[tuple[str, str]]]:
    """Radii by frozen feature, and by names for runs that freeze several at once; in words."""
    single: dict[int, str] = {}
    several: list[tuple[str, str]] = []
    for frozen in frozen_runs:
        if frozen.model.get("fingerprint") != run.model.get("fingerprint"):
            continue
        features = frozen_features(run, frozen)
        text = _gain(run, frozen)
        if len(features) == 1:
            single[features[0]] = text
        else:
            several.append((", ".join(run.feature_name(f) for f in features), text))
    return single, several


def _gain(run: RunView, frozen: RunView) -> str:
    """Mean radius before and after, over attacked rows that break both times, in words."""
    before, after = (r.shown_radius[run.attacked] for r in (run, frozen))
    both = np.isfinite(before) & np.isfinite(after)
    saved = int((np.isfinite(before) & np.isinf(after)).sum())
    words = f", {counted(saved, 'row')} cannot be broken any more" if saved else ""
    if run.is_attack or frozen.is_attack:
        words = f", {counted(saved, 'row')} not broken any more" if saved else ""
    elif not (run.is_settled and frozen.is_settled):
        words += ", as far as is proved"
    if not both.any():
        return f"∞{words}"
    old, new = float(np.mean(before[both])), float(np.mean(after[both]))
    gain = f" (+{100.0 * (new / old - 1.0):.0f} %)" if old > 0.0 else ""
    return f"{number(old, 3)} → {number(new, 3)}{gain}{words}"
