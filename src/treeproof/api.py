"""The public functions: each checks its arguments, calls one layer below, and returns."""

from typing import Any, Literal

from treeproof.errors import InvalidInput
from treeproof.prediction import Model


def load(
    source: Any,
    *,
    decision_threshold: float | None = None,
    self_test: bool = True,
    base_score: float | None = None,
    input_precision: Literal["float32", "float64"] | None = None,
    tie: Literal["lower", "upper"] | None = None,
    missing: Literal["nan", "zero", "none"] | None = None,
    n_classes: int | None = None,
    n_features: int | None = None,
) -> Model:
    """Load a model exactly as it is deployed, or refuse it.

    Parameters
    ----------
    source : model object, str or path
        A trained model of XGBoost, LightGBM, CatBoost or scikit-learn, or a model file.
    decision_threshold : float, optional
        Probability from which (inclusive) a binary classifier says class 1; by default the
        library's own rule.
    self_test : bool
        Compare margins and labels with the source library, on rows made to tell small differences
        apart, whenever that library can be imported.
    base_score : float, optional
        Margin to start from, only for files that do not carry it (XGBoost text dumps).
    input_precision : {"float32", "float64"}, optional
        Precision of comparisons, only for treelite checkpoints, which do not carry it.
    tie : {"lower", "upper"}, optional
        Which class a tie goes to, only for treelite checkpoints.
    missing : {"nan", "zero", "none"}, optional
        What counts as missing, only for treelite checkpoints.
    n_classes : int, optional
        Number of classes, only for XGBoost text dumps: 1 for a score, 2 (the default) for one
        margin, k for k margins whose trees take turns.
    n_features : int, optional
        Number of columns of a row, only for XGBoost text dumps; by default up to the last one used.

    Returns
    -------
    Model
        The exact meaning of the source model, with compiled prediction.

    Raises
    ------
    UnsupportedModel
        The model cannot be represented exactly.
    BrokenModelFile
        The file is damaged or of no known kind.
    SelfTestFailed
        The source library gives another answer on some row.
    """
    from treeproof.model.loaders import load_ensemble
    from treeproof.model.loaders.base import LoadOptions

    if decision_threshold is not None and not 0.0 <= decision_threshold <= 1.0:
        raise InvalidInput(
            "'decision_threshold' must be a probability between 0 and 1."
            f" Got {decision_threshold!r}."
        )
    options = LoadOptions(
        decision_threshold=decision_threshold,
        base_score=base_score,
        input_precision=input_precision,
        tie=tie,
        missing=missing,
        n_classes=n_classes,
        n_features=n_features,
    )
    return Model(load_ensemble(source, options=options, self_test=self_test))
