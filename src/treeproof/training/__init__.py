"""Training of tree ensembles that withstand small changes of their inputs.

The estimators follow scikit-learn, which must be installed (``pip install 'treeproof[sklearn]'``).
"""

from treeproof.errors import require_backend

require_backend("sklearn", "sklearn")

from treeproof.query.conflicts import least_robust_error  # noqa: E402 - the same
from treeproof.training.boosting import RobustGBDTClassifier  # noqa: E402 - needs scikit-learn
from treeproof.training.forest import RobustRandomForestClassifier  # noqa: E402 - the same
from treeproof.training.refitted import robust_refit  # noqa: E402 - the same
from treeproof.training.selection import RobustSearchCV  # noqa: E402 - the same

__all__ = [
    "RobustGBDTClassifier",
    "RobustRandomForestClassifier",
    "RobustSearchCV",
    "least_robust_error",
    "robust_refit",
]
