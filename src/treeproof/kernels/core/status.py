"""How a search of a kernel ended: one set of codes for all of them."""

PROVED = 0
"""Nothing is left that could break the claim."""
FOUND = 1
"""Something is to be judged by the caller, and the search can go on from there."""
LOOSE = 2
"""The bound is not tight enough to prove anything."""
NODE_LIMIT = 3
"""This and larger numbers: a limit was reached."""
TIME_LIMIT = 4
MEMORY_LIMIT = 5
