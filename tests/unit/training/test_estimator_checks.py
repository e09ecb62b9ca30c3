"""scikit-learn's own checks of estimators."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from treeproof.training import RobustGBDTClassifier, RobustRandomForestClassifier


@parametrize_with_checks(
    [
        RobustGBDTClassifier(n_estimators=10),
        RobustGBDTClassifier(n_estimators=10, eps=0.1, tree_method="exact"),
        RobustRandomForestClassifier(n_estimators=20),
        RobustRandomForestClassifier(n_estimators=10, eps=0.1, bootstrap=False),
    ]
)
def test_scikit_learn_accepts(estimator: Any, check: Any) -> None:
    check(estimator)
