"""What a table of results says as a whole: shares of rows over the radius, and changed entries."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from treeproof.results.results import Results

FloatArray = NDArray[np.float64]


def attacked_rows(results: "Results") -> NDArray[np.bool_]:
    """Rows that may change: all, or those of the attacker's class where the question names one.

    Of all others nothing is proved but what the model says of them as they are. Of recourse, a row
    counts once, however many ways it has.
    """
    if results.way is not None:
        return np.equal(results.way, 1)
    attacked = results.header.get("question", {}).get("attacker_class")
    if attacked is None:
        return np.ones(len(results), dtype=bool)
    return np.array([label == attacked for label in results.label.tolist()], dtype=bool)


def affordable(results: "Results") -> NDArray[np.bool_]:
    """Which answers of recourse are ways that people can afford: all, where no budget was said."""
    budget = (results.header.get("recourse") or {}).get("budget")
    has_way = ~np.isnan(results.witness).all(axis=1)
    return np.asarray(has_way if budget is None else has_way & (results.upper <= budget))


def certified_at_lower(results: "Results") -> NDArray[np.bool_]:
    """Whether a row is proved to keep its claim in the closed ball of radius `lower` itself.

    That holds where a settled radius is only approached, never attained, and for rows that were
    verified at that very radius.
    """
    if results.asks_radius:
        return results.exact & ~results.attained
    return np.asarray(results.verdict == "verified")


def certified_rows(results: "Results", eps: float | FloatArray) -> NDArray[np.bool_]:
    """Which attacked rows are proved to keep their claim in the closed ball of a radius.

    Of one radius for all rows, or of one for each.
    """
    beyond = (results.lower > eps) | ((results.lower == eps) & certified_at_lower(results))
    return beyond & attacked_rows(results)


def count_certified(results: "Results", radii: ArrayLike) -> NDArray[np.int64]:
    """How many attacked rows are proved to keep their claim in the closed ball of each radius."""
    at = np.asarray(radii, dtype=np.float64)
    attacked = attacked_rows(results)
    closed = certified_at_lower(results)[attacked]
    # Sound: where no bound is known, nothing is proved; NaN would be sorted beyond infinity.
    lower = np.where(np.isnan(results.lower), -np.inf, results.lower)[attacked]
    # Rows with lower > r count, and of those with lower == r the closed ones.
    every, open_only = np.sort(lower), np.sort(lower[~closed])
    beyond = len(lower) - np.searchsorted(every, at, side="left")
    equal_but_open = np.searchsorted(open_only, at, side="right") - np.searchsorted(
        open_only, at, side="left"
    )
    return np.asarray(beyond - equal_but_open)


def count_broken(results: "Results", radii: ArrayLike) -> NDArray[np.int64]:
    """How many attacked rows are known to be broken in the closed ball of each radius."""
    at = np.asarray(radii, dtype=np.float64)
    is_attacked = attacked_rows(results)
    # A violation is known at `upper` itself only where it is attained, else just beyond it.
    attained = np.sort(results.upper[results.attained & is_attacked])
    approached = np.sort(results.upper[~results.attained & is_attacked])
    return np.searchsorted(attained, at, side="right") + np.searchsorted(
        approached, at, side="left"
    )


def certified_share(results: "Results", radii: ArrayLike) -> FloatArray:
    """Share of the attacked rows that is proved at each radius.

    It is a lower bound of the accuracy under any attack; 0 where no row is attacked.
    """
    return count_certified(results, radii) / max(int(attacked_rows(results).sum()), 1)


def resisting_share(results: "Results", radii: ArrayLike) -> FloatArray:
    """Share of the attacked rows not known to be broken: an upper bound of that accuracy."""
    n_attacked = int(attacked_rows(results).sum())
    # Divided last: where nothing is open, both shares are the same number.
    return (
        (n_attacked - count_broken(results, radii)) / n_attacked
        if n_attacked
        else np.ones(np.shape(radii))
    )


def has_radii(results: "Results") -> bool:
    """Whether the bounds are distances that say something at the same radius of all rows.

    Boxes have none, and of rows with a radius of their own each is asked at another.
    """
    perturbation = results.header.get("question", {}).get("perturbation") or {}
    if perturbation.get("name") == "Box" or results.eps is not None:
        return False
    return len(results) > 0 and not bool(np.isnan(results.lower).all())


def clean_share(results: "Results") -> float | None:
    """Share of the attacked rows whose claim holds unchanged; None where that was not recorded.

    For labels that were given, this is the accuracy of the model on these rows.
    """
    results = results.take(attacked_rows(results))
    if len(results) == 0:
        return None
    goal = results.header.get("question", {}).get("goal", {}).get("name", "KeepsLabel")
    if goal == "KeepsLabel" and results.predicted is not None:
        same = [a == b for a, b in zip(results.predicted, results.label, strict=True)]
        return float(np.mean(same))
    if results.asks_radius:
        return float(np.mean(results.verdict != "falsified"))
    return None


def changed_features(results: "Results") -> NDArray[np.bool_] | None:
    """Which entries of each row its witness changes; None where the rows were not recorded."""
    if results.values is None or results.values.shape != results.witness.shape:
        return None
    has_witness = ~np.isnan(results.witness).all(axis=1, keepdims=True)
    both_missing = np.isnan(results.witness) & np.isnan(results.values)
    return has_witness & (results.witness != results.values) & ~both_missing
