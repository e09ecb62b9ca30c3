"""Decision rules of loaders whose libraries turn margins into probabilities in double."""

from collections.abc import Callable

from treeproof.errors import InvalidInput
from treeproof.loaders.base import LoadOptions
from treeproof.model.ensemble import Decision
from treeproof.model.links import smallest_true


def binary_decision(
    options: LoadOptions,
    *,
    probability: Callable[[float], float],
    is_one: Callable[[float], bool],
) -> Decision:
    """Decision of a binary classifier, as the smallest double margin that is labelled 1.

    Parameters
    ----------
    options : LoadOptions
        A decision threshold in it replaces the library's rule.
    probability : callable
        The library's own link, rising in the margin.
    is_one : callable
        The library's own rule on a margin, rising as well.
    """
    threshold = options.decision_threshold
    if threshold is None:
        return Decision(kind="threshold", cut=smallest_true(is_one, "float64"))
    if not 0.0 < threshold <= 1.0:
        raise InvalidInput(
            f"The decision threshold must be a probability above 0 and up to 1. Got {threshold}."
        )
    return Decision(
        kind="threshold",
        cut=smallest_true(lambda margin: probability(margin) >= threshold, "float64"),
    )


def refuse_threshold(options: LoadOptions, what: str) -> None:
    """Raise `InvalidInput` when a decision threshold was given for a model without its use."""
    if options.decision_threshold is not None:
        raise InvalidInput(
            "A decision threshold needs a binary classifier that gives probabilities."
            f" Got {what}. Leave the threshold out."
        )
