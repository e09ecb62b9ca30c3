"""The three verdicts, and why a row can stay undecided."""

from enum import StrEnum


class Verdict(StrEnum):
    """Outcome for one row."""

    VERIFIED = "verified"
    """The claim holds everywhere in the set."""
    FALSIFIED = "falsified"
    """A witness in the set breaks it; the witness was replayed."""
    UNKNOWN = "unknown"
    """Neither was established; the reason says why."""


class UnknownReason(StrEnum):
    """Why a row is undecided."""

    NONE = ""
    TIME_LIMIT = "time limit"
    NODE_LIMIT = "node limit"
    MEMORY_LIMIT = "memory limit"
    LOOSE_BOUND = "the engine's bound is not tight enough"
    NO_WITNESS = "no witness found"
    NEAR_TIE = "a near tie that only the rounding of the model's softmax decides"
    COST_TIE = "a cost so near to the budget that only rounding could tell"
    ROUNDING = "only the rounding of the model's sums could tell"
    RULE_TIE = "a rule between two neighbouring numbers of the model's precision"
    TOO_LARGE = "too many pairs of leaves"
    SOLVER_FAILED = "solver failed"
    ROW_FAILED = "row failed"
