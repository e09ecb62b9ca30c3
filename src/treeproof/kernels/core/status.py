"""How a search of a kernel ended: one set of codes for all of them."""

PROVED = 0
"""Nothing is left that could break the claim, or nothing nearer than what was found."""
FOUND = 1
"""Something is to be judged by the caller, and the search can go on from there."""
UNDECIDED = 2
"""The bound is not tight enough to prove anything, and the search gave up."""
NODE_LIMIT = 3
"""This and larger numbers: why the search had to end."""
TIME_LIMIT = 4
MEMORY_LIMIT = 5
NEAR_TIE = 6
"""Only the rounding of a link could tell."""
