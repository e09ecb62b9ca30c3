"""Whether evidence proves its claim; shares no code with the engines.

Read `arrays`, `forest` (the model in integers, leaves of boxes), `regions` (what proofs see of a
box), `claims` (what is claimed, and the floors of its sums), `proofs` (the one follower: bounds
from multipliers), `cliques`; then `witnesses` (how far away a point is), `schema` and `questions`
(what a run holds and asks), `answers` (rows of a run), `runs` (whole files) and `reasons` (files of
reasons, as runs). Costs: `rules`, `prices` (what atoms cost), `walks` (leaves of atoms), `costs`.
Properties: `domains` (which inputs are meant), `pairs` (the space of pairs of rows),
`property_claims`, `properties` (their evidence) and `property_files`.
"""

from treeproof.checker.answers import RowCheck, RunChecker
from treeproof.checker.reasons import check_reasons
from treeproof.checker.runs import check_run

__all__ = ["RowCheck", "RunChecker", "check_reasons", "check_run"]
