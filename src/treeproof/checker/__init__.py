"""Whether evidence proves its claim; shares no code with the engines.

Read `forest` (the model in integers), `claims` (what is claimed, and the sums that must stay below
a floor), `proofs` (bounds from multipliers), `runs` (answers of a run file), in this order.
"""

from treeproof.checker.runs import RowCheck, RunChecker, check_run

__all__ = ["RowCheck", "RunChecker", "check_run"]
