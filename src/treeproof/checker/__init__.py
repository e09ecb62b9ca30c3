"""Whether evidence proves its claim; shares no code with the engines.

Read `forest` (the model in integers), `claims` (what is claimed, and the sums that must stay below
a floor), `proofs` (bounds from multipliers), `witnesses` (how far away a point is), then `schema`
and `questions` (what a run holds and asks), `answers` (rows of a run), `runs` (whole files) and
`reasons` (files of reasons, as runs). Properties: `domains` (which inputs are meant), `pairs`
(bounds of pairs of rows), `property_claims`, `properties` (their evidence) and `property_files`.
"""

from treeproof.checker.answers import RowCheck, RunChecker
from treeproof.checker.reasons import check_reasons
from treeproof.checker.runs import check_run

__all__ = ["RowCheck", "RunChecker", "check_reasons", "check_run"]
