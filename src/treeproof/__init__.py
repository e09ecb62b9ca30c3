"""treeproof: exact robustness proofs for tree ensembles.

Public names are imported on first use, so that ``import treeproof`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treeproof.errors import (
    BackendMissing,
    BrokenModelFile,
    CertificateRejected,
    InternalError,
    InvalidInput,
    ModelWarning,
    SelfTestFailed,
    TreeproofError,
    UnsupportedModel,
    UnsupportedQuery,
)

if TYPE_CHECKING:
    from treeproof.api import (
        anchor_features,
        feature_radius,
        load,
        radius,
        unimportant_features,
        verify,
    )
    from treeproof.engines.attack import attack
    from treeproof.engines.baselines.combination import combination
    from treeproof.engines.baselines.hard_label import hard_label
    from treeproof.engines.baselines.lp import lp
    from treeproof.engines.baselines.milp import milp
    from treeproof.engines.baselines.multilevel import multilevel
    from treeproof.engines.baselines.smt import smt
    from treeproof.gates import (
        assert_robust,
        verified_accuracy_score,
        verified_accuracy_scorer,
    )
    from treeproof.prediction import Model
    from treeproof.query.goals import AvoidsTarget, KeepsLabel, ScoreChange, ScoreWithin
    from treeproof.query.paper_protocol import PaperProtocol
    from treeproof.query.perturbations import Box, LInf
    from treeproof.report.feature_maps import draw_features
    from treeproof.report.page import write_report
    from treeproof.results.display import VerifiedAccuracyDisplay
    from treeproof.results.features import AnchorResults, FeatureResults
    from treeproof.results.results import Results
    from treeproof.results.run_file import load_results
    from treeproof.runs.merge import merge_runs
    from treeproof.runs.runner import Run, run
    from treeproof.runs.scorer import RobustnessScorer

__version__ = "0.1.0"

__all__ = [
    "AnchorResults",
    "AvoidsTarget",
    "BackendMissing",
    "Box",
    "BrokenModelFile",
    "CertificateRejected",
    "FeatureResults",
    "InternalError",
    "InvalidInput",
    "KeepsLabel",
    "LInf",
    "Model",
    "ModelWarning",
    "PaperProtocol",
    "Results",
    "RobustnessScorer",
    "Run",
    "ScoreChange",
    "ScoreWithin",
    "SelfTestFailed",
    "TreeproofError",
    "UnsupportedModel",
    "UnsupportedQuery",
    "VerifiedAccuracyDisplay",
    "__version__",
    "anchor_features",
    "assert_robust",
    "attack",
    "combination",
    "draw_features",
    "feature_radius",
    "hard_label",
    "load",
    "load_results",
    "lp",
    "merge_runs",
    "milp",
    "multilevel",
    "radius",
    "run",
    "smt",
    "unimportant_features",
    "verified_accuracy_score",
    "verified_accuracy_scorer",
    "verify",
    "write_report",
]

_HOMES = {
    "AnchorResults": "treeproof.results.features",
    "AvoidsTarget": "treeproof.query.goals",
    "Box": "treeproof.query.perturbations",
    "FeatureResults": "treeproof.results.features",
    "KeepsLabel": "treeproof.query.goals",
    "LInf": "treeproof.query.perturbations",
    "Model": "treeproof.prediction",
    "PaperProtocol": "treeproof.query.paper_protocol",
    "Results": "treeproof.results.results",
    "RobustnessScorer": "treeproof.runs.scorer",
    "Run": "treeproof.runs.runner",
    "ScoreChange": "treeproof.query.goals",
    "ScoreWithin": "treeproof.query.goals",
    "VerifiedAccuracyDisplay": "treeproof.results.display",
    "anchor_features": "treeproof.api",
    "assert_robust": "treeproof.gates",
    "attack": "treeproof.engines.attack",
    "combination": "treeproof.engines.baselines.combination",
    "draw_features": "treeproof.report.feature_maps",
    "feature_radius": "treeproof.api",
    "hard_label": "treeproof.engines.baselines.hard_label",
    "load": "treeproof.api",
    "load_results": "treeproof.results.run_file",
    "lp": "treeproof.engines.baselines.lp",
    "merge_runs": "treeproof.runs.merge",
    "milp": "treeproof.engines.baselines.milp",
    "multilevel": "treeproof.engines.baselines.multilevel",
    "radius": "treeproof.api",
    "run": "treeproof.runs.runner",
    "smt": "treeproof.engines.baselines.smt",
    "unimportant_features": "treeproof.api",
    "verified_accuracy_score": "treeproof.gates",
    "verified_accuracy_scorer": "treeproof.gates",
    "verify": "treeproof.api",
    "write_report": "treeproof.report.page",
}
"""Where each lazily imported name lives."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treeproof' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
