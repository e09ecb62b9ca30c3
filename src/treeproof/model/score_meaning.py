"""What a model's score is, where its library tells that, and which scores are confident."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import UnsupportedQuery
from treeproof.model.ensemble import Ensemble

LOG_ODDS, PROBABILITY, CLASS_SCORE = "log-odds", "probability", "score before a softmax"
VALUE, LOGARITHM = "the predicted value", "the logarithm of the predicted value"
_OBJECTIVES = {
    "xgboost": {
        **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), LOGARITHM),
        **dict.fromkeys(("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"), VALUE),
        **dict.fromkeys(("binary:logistic", "binary:logitraw", "reg:logistic"), LOG_ODDS),
        **dict.fromkeys(("multi:softprob", "multi:softmax"), CLASS_SCORE),
    },
    "catboost": {
        **dict.fromkeys(("Poisson", "Tweedie"), LOGARITHM),
        **dict.fromkeys(("RMSE", "MAE"), VALUE),
        "Logloss": LOG_ODDS,
        "CrossEntropy": LOG_ODDS,
        "MultiClass": CLASS_SCORE,
    },
    "lightgbm": {
        **dict.fromkeys(("poisson", "gamma", "tweedie"), LOGARITHM),
        **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "mape"), VALUE),
        **dict.fromkeys(("binary", "cross_entropy", "xentropy"), LOG_ODDS),
        **dict.fromkeys(("multiclass", "softmax"), CLASS_SCORE),
    },
}
"""What scores are, by library and objective."""


class ScoreMeaning(NamedTuple):
    """What a score is, once it is multiplied by a rate; without a name it is not known."""

    name: str = ""
    rate: float = 1.0

    def __str__(self) -> str:
        return self.name if self.rate == 1.0 else f"{self.name} over {self.rate:g}"


def score_meaning(ensemble: Ensemble) -> ScoreMeaning:
    """What the model's library tells about its score; of a pipeline, that of its model."""
    library, objective = ensemble.provenance.library, ensemble.provenance.objective
    is_single = ensemble.n_outputs == 1
    if library == "ONNX" and ensemble.classes:
        if objective.endswith("LOGISTIC" if is_single else "SOFTMAX"):
            return ScoreMeaning(LOG_ODDS if is_single else CLASS_SCORE)
        # onnxruntime takes sums without a negative part for probabilities.
        is_probability = is_single and ensemble.decision.cut > 0.25
        return ScoreMeaning(PROBABILITY if is_probability else "")
    if library == "ONNX":
        steps = later_steps(ensemble)
        return ScoreMeaning(f"a sum after {steps}" if steps else VALUE)
    is_pipeline = library == "scikit-learn pipeline"
    if (is_pipeline or library == "scikit-learn") and objective.startswith("classification, "):
        criterion = objective.removeprefix("classification, ")
        is_mean = ensemble.aggregation.finish == "divide" and criterion != "SAMME"
        if is_mean or criterion in ("gini", "entropy"):
            return ScoreMeaning(PROBABILITY)
        # Of several classes it might also be a single tree, whose leaves are probabilities.
        return ScoreMeaning(LOG_ODDS if criterion == "log_loss" and is_single else "")
    name, _, options = objective.partition(" ")
    if "sqrt" in options.split():
        return ScoreMeaning("the root of the predicted value")
    known = _OBJECTIVES.values() if is_pipeline else [_OBJECTIVES.get(library, {})]
    found = next((names[name] for names in known if name in names), "")
    given = dict(option.split(":", 1) for option in options.split() if ":" in option)
    rate = float(given.get("sigmoid", 1.0)) if found == LOG_ODDS else 1.0
    # An averaged forest divides its score by its rounds first.
    return ScoreMeaning(found, rate / float(given.get("averaged", 1.0)))


def probabilities(ensemble: Ensemble, scores: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Probability of each class (n_rows, n_classes) by scores; None where that is not known.

    To the last digits they may differ from those of the model's library, which rounds in steps of
    its own; what a row's label is follows from its scores alone.
    """
    meaning, wide = score_meaning(ensemble), scores.astype(np.float64)
    if not ensemble.classes or ensemble.decision.kind == "score":
        return None
    with np.errstate(over="ignore"):
        if meaning.name == LOG_ODDS and ensemble.n_outputs == 1:
            wide = 1.0 / (1.0 + np.exp(-meaning.rate * wide))
        elif meaning.name == CLASS_SCORE:
            wide = np.exp(meaning.rate * (wide - wide.max(axis=1, keepdims=True)))
            wide /= wide.sum(axis=1, keepdims=True)
        elif meaning.name != PROBABILITY:
            return None
    return np.hstack([1.0 - wide, wide]) if ensemble.n_outputs == 1 else wide


def later_steps(ensemble: Ensemble) -> str:
    """What an ONNX model without labels makes of its sums, and is not followed; mostly nothing."""
    if ensemble.provenance.library != "ONNX" or ensemble.classes:
        return ""
    _, transform, *steps = ensemble.provenance.objective.split(", ")
    # onnxruntime ignores all transforms but one for a single target.
    if transform == "PROBIT" or (transform != "NONE" and ensemble.n_outputs > 1):
        steps.insert(0, transform)
    return ", ".join(steps)


def require_own_score(ensemble: Ensemble) -> None:
    """Refuse questions about a score that the model only gives after further steps."""
    steps = later_steps(ensemble)
    if steps:
        raise UnsupportedQuery(
            "Scores must be the sums of the trees. Got an ONNX model whose scores are its sums"
            f" after {steps}, which is not followed. Export the model with its sums, or ask about"
            " the model that it was exported from."
        )


def sure_scores(
    ensemble: Ensemble, confidence: float | None, margin: float | None
) -> tuple[float | None, float]:
    """Largest score of a sure class 0, None for the decision's own, and least of a sure class 1."""
    cut = ensemble.decision.cut
    if confidence is not None:
        low, high = (_score_of(ensemble, p) for p in (1.0 - confidence, confidence))
        return min(low, float_below(ensemble, cut)), max(high, cut)
    if margin:
        return cut - margin, cut + margin
    return None, cut


def float_below(ensemble: Ensemble, number: float) -> float:
    """The float before a number, in the precision of sums."""
    real = np.dtype(ensemble.aggregation.precision).type
    return float(np.nextafter(real(number), real(-np.inf)))


def _score_of(ensemble: Ensemble, probability: float) -> float:
    """The score of a probability, where the model's library tells how they are related.

    The claim is then about the score; the last digit of the library's own link plays no role.
    """
    meaning = score_meaning(ensemble)
    if meaning.name not in (LOG_ODDS, PROBABILITY):
        raise UnsupportedQuery(
            "'confidence' needs a model whose score is known to be a log-odds or a probability."
            f" Got {ensemble.provenance.library} with '{ensemble.provenance.objective}'."
            " Give 'margin', in units of the score, instead."
        )
    if meaning.name == PROBABILITY:
        return probability
    return math.log(probability / (1.0 - probability)) / meaning.rate
