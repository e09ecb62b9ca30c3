"""`PaperProtocol`: the radius search of the paper, kept so that its tables can be repeated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treeproof.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperProtocol:
    """The search of the paper: double or halve from a first radius, then halve the interval.

    Parameters
    ----------
    first_eps : float
        Radius of the first step; the verified error is taken there. The paper does
        not say its own; 0.1 is for features between 0 and 1.
    steps : int
        Number of radii tried in all.
    cap : float
        Largest radius tried; a row proved there is not searched further.
    """

    first_eps: float = 0.1
    steps: int = 10
    cap: float = 1.0

    def __post_init__(self) -> None:
        """Refuse searches that cannot start."""
        if not 0.0 < self.first_eps < np.inf:
            raise InvalidInput(
                f"'first_eps' of PaperProtocol must be a number > 0. Got {self.first_eps!r}."
            )
        if self.steps < 1:
            raise InvalidInput(f"'steps' of PaperProtocol must be at least 1. Got {self.steps!r}.")
        if not self.cap > 0.0:
            raise InvalidInput(f"'cap' of PaperProtocol must be > 0. Got {self.cap!r}.")
