"""treeproof: exact robustness proofs for tree ensembles.

Public names are imported on first use, so that ``import treeproof`` costs next to nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from treeproof.errors import (
    BackendMissing,
    BrokenModelFile,
    CertificateRejected,
    InternalError,
    InvalidInput,
    ModelWarning,
    NoEffectWarning,
    SelfTestFailed,
    TreeproofError,
    UnsupportedModel,
    UnsupportedQuery,
)

if TYPE_CHECKING:
    from treeproof.api import (
        anchor_features,
        diff,
        feature_radius,
        largest_change,
        load,
        prepare,
        prove,
        radius,
        reasons,
        recourse,
        score_range,
        unimportant_features,
        verify,
    )
    from treeproof.comparisons.combination import CombinationEngine as combination  # noqa: N813
    from treeproof.comparisons.hard_label import HardLabelEngine as hard_label  # noqa: N813
    from treeproof.comparisons.lp import LpEngine as lp  # noqa: N813
    from treeproof.comparisons.milp import MilpEngine as milp  # noqa: N813
    from treeproof.comparisons.smt import SmtEngine as smt  # noqa: N813

    # Engines with options have their names as users write them: tp.milp("whole").
    from treeproof.engines.attack import AttackEngine as attack  # noqa: N813
    from treeproof.engines.own import OwnEngine
    from treeproof.gates import (
        assert_robust,
        verified_accuracy_score,
        verified_accuracy_scorer,
    )
    from treeproof.paper.multilevel import MultilevelEngine as multilevel  # noqa: N813
    from treeproof.prediction import Model
    from treeproof.query.domain import Domain
    from treeproof.query.goals import AvoidsTarget, KeepsLabel, ScoreChange, ScoreWithin
    from treeproof.query.paper_protocol import PaperProtocol
    from treeproof.query.perturbations import L0, L1, L2, All, Box, Cost, LInf
    from treeproof.query.properties import (
        Fair,
        HighConfidence,
        Monotone,
        Redundant,
        ScoreRange,
        SmallNeighbourhood,
        Stable,
    )
    from treeproof.query.threats import load_threat
    from treeproof.report.feature_maps import draw_features
    from treeproof.report.page import write_report
    from treeproof.report.trend import write_trend
    from treeproof.results.differences import DiffResult, TreeDifferences
    from treeproof.results.display import VerifiedAccuracyDisplay
    from treeproof.results.features import FeatureResults
    from treeproof.results.properties import PropertyResult, ScoreBounds
    from treeproof.results.reasons import Reasons
    from treeproof.results.results import Results
    from treeproof.results.row_answer import RowAnswer
    from treeproof.results.run_file import load_results
    from treeproof.runs.frames import FrameMapper
    from treeproof.runs.merge import merge_runs
    from treeproof.runs.runner import Run, run
    from treeproof.runs.scorer import RobustnessScorer
    from treeproof.search.question import PreparedQuestion
    from treeproof.training import least_robust_error, robust_refit

__version__ = "0.2.0"

__all__ = [
    "L0",
    "L1",
    "L2",
    "All",
    "AvoidsTarget",
    "BackendMissing",
    "Box",
    "BrokenModelFile",
    "CertificateRejected",
    "Cost",
    "DiffResult",
    "Domain",
    "Fair",
    "FeatureResults",
    "FrameMapper",
    "HighConfidence",
    "InternalError",
    "InvalidInput",
    "KeepsLabel",
    "LInf",
    "Model",
    "ModelWarning",
    "Monotone",
    "NoEffectWarning",
    "OwnEngine",
    "PaperProtocol",
    "PreparedQuestion",
    "PropertyResult",
    "Reasons",
    "Redundant",
    "Results",
    "RobustnessScorer",
    "RowAnswer",
    "Run",
    "ScoreBounds",
    "ScoreChange",
    "ScoreRange",
    "ScoreWithin",
    "SelfTestFailed",
    "SmallNeighbourhood",
    "Stable",
    "TreeDifferences",
    "TreeproofError",
    "UnsupportedModel",
    "UnsupportedQuery",
    "VerifiedAccuracyDisplay",
    "__version__",
    "anchor_features",
    "assert_robust",
    "attack",
    "combination",
    "diff",
    "draw_features",
    "feature_radius",
    "hard_label",
    "largest_change",
    "least_robust_error",
    "load",
    "load_results",
    "load_threat",
    "lp",
    "merge_runs",
    "milp",
    "multilevel",
    "prepare",
    "prove",
    "radius",
    "reasons",
    "recourse",
    "robust_refit",
    "run",
    "score_range",
    "smt",
    "unimportant_features",
    "verified_accuracy_score",
    "verified_accuracy_scorer",
    "verify",
    "write_report",
    "write_trend",
]

_HOMES = {
    "treeproof.api": (
        "anchor_features",
        "diff",
        "feature_radius",
        "largest_change",
        "load",
        "prepare",
        "prove",
        "radius",
        "reasons",
        "recourse",
        "score_range",
        "unimportant_features",
        "verify",
    ),
    "treeproof.engines.attack": ("attack=AttackEngine",),
    "treeproof.engines.own": ("OwnEngine",),
    "treeproof.comparisons.combination": ("combination=CombinationEngine",),
    "treeproof.comparisons.hard_label": ("hard_label=HardLabelEngine",),
    "treeproof.comparisons.lp": ("lp=LpEngine",),
    "treeproof.comparisons.milp": ("milp=MilpEngine",),
    "treeproof.paper.multilevel": ("multilevel=MultilevelEngine",),
    "treeproof.comparisons.smt": ("smt=SmtEngine",),
    "treeproof.gates": ("assert_robust", "verified_accuracy_score", "verified_accuracy_scorer"),
    "treeproof.prediction": ("Model",),
    "treeproof.query.domain": ("Domain",),
    "treeproof.query.goals": ("AvoidsTarget", "KeepsLabel", "ScoreChange", "ScoreWithin"),
    "treeproof.query.paper_protocol": ("PaperProtocol",),
    "treeproof.query.perturbations": ("All", "Box", "Cost", "L0", "L1", "L2", "LInf"),
    "treeproof.query.properties": (
        "Fair",
        "HighConfidence",
        "Monotone",
        "Redundant",
        "ScoreRange",
        "SmallNeighbourhood",
        "Stable",
    ),
    "treeproof.query.threats": ("load_threat",),
    "treeproof.report.feature_maps": ("draw_features",),
    "treeproof.report.page": ("write_report",),
    "treeproof.report.trend": ("write_trend",),
    "treeproof.results.differences": ("DiffResult", "TreeDifferences"),
    "treeproof.results.display": ("VerifiedAccuracyDisplay",),
    "treeproof.results.features": ("FeatureResults",),
    "treeproof.results.properties": ("PropertyResult", "ScoreBounds"),
    "treeproof.results.reasons": ("Reasons",),
    "treeproof.results.results": ("Results",),
    "treeproof.results.row_answer": ("RowAnswer",),
    "treeproof.results.run_file": ("load_results",),
    "treeproof.runs.frames": ("FrameMapper",),
    "treeproof.runs.merge": ("merge_runs",),
    "treeproof.runs.runner": ("Run", "run"),
    "treeproof.runs.scorer": ("RobustnessScorer",),
    "treeproof.search.question": ("PreparedQuestion",),
    "treeproof.training": ("least_robust_error", "robust_refit"),
}
"""Where lazily imported names live; an engine is the public name of its class."""

_HOME_OF = {
    entry.partition("=")[0]: (module, entry.partition("=")[2] or entry)
    for module, entries in _HOMES.items()
    for entry in entries
}


if not TYPE_CHECKING:  # which knows every name from above, and shall notice those that are none

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            # With its object, Python suggests the nearest name.
            text = f"module 'treeproof' has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=sys.modules[__name__])
        module, own_name = _HOME_OF[name]
        value = getattr(import_module(module), own_name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
