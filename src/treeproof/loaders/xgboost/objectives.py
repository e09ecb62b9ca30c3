"""XGBoost's objectives: where the margin starts, and how a margin becomes a label."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.rules import cut_decision, elementwise, refuse_threshold
from treeproof.model.ensemble import Decision
from treeproof.model.links import exp_float32, log_float32, logit_float32, sigmoid_float32


@dataclass(frozen=True, slots=True)
class Objective:
    """What an objective does to base score and margin."""

    intercept: Literal["identity", "logit", "log"]
    """Function from the stored base score (in output space) to the starting margin."""
    transform: Literal["identity", "sigmoid", "exp", "step", "softmax", "argmax"]
    """Function from margin to prediction; "step" is 1 for positive margins."""
    task: Literal["binary", "classes", "score"]


_PLAIN = Objective("identity", "identity", "score")
_LOGARITHMIC = Objective("log", "exp", "score")

OBJECTIVES = {
    "binary:logistic": Objective("logit", "sigmoid", "binary"),
    "binary:logitraw": Objective("identity", "identity", "binary"),
    "binary:hinge": Objective("identity", "step", "binary"),
    "multi:softmax": Objective("identity", "argmax", "classes"),
    "multi:softprob": Objective("identity", "softmax", "classes"),
    "reg:logistic": Objective("logit", "sigmoid", "score"),
    "reg:squarederror": _PLAIN,
    "reg:linear": _PLAIN,
    "reg:squaredlogerror": _PLAIN,
    "reg:pseudohubererror": _PLAIN,
    "reg:absoluteerror": _PLAIN,
    "reg:quantileerror": _PLAIN,
    "reg:expectileerror": _PLAIN,
    "rank:pairwise": _PLAIN,
    "rank:ndcg": _PLAIN,
    "rank:map": _PLAIN,
    "count:poisson": _LOGARITHMIC,
    "reg:gamma": _LOGARITHMIC,
    "reg:tweedie": _LOGARITHMIC,
    "survival:cox": _LOGARITHMIC,
    "survival:aft": _LOGARITHMIC,
}

_SMALLEST_PROBABILITY = np.float32(1e-6)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def objective_named(name: str) -> Objective:
    """Return what is known of an objective, or refuse the model."""
    try:
        return OBJECTIVES[name]
    except KeyError:
        raise UnsupportedModel(
            f"The objective must be one of {', '.join(sorted(OBJECTIVES))}. Got {name[:60]!r},"
            " whose starting margin and labels are not known."
        ) from None


def parse_base_score(text: str, n_outputs: int) -> tuple[float, ...]:
    """Base scores as float32 values, from either spelling: ``5E-1`` or ``[5E-1,2E-1]``."""
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        inner = inner[1:-1]
    words = [word.strip() for word in inner.split(",")]
    if len(words) not in (1, n_outputs) or not all(map(_NUMBER.fullmatch, words)):
        raise BrokenModelFile(
            f"'base_score' must be one number, or one per output ({n_outputs})."
            f" Got {text[:60]!r}. The file is damaged."
        )
    with np.errstate(over="ignore"):
        scores = [float(np.float32(float(word))) for word in words]
    return tuple(scores * (n_outputs if len(scores) == 1 else 1))


def starting_margin(
    name: str, objective: Objective, base_score: float, version: tuple[int, ...]
) -> float:
    """Margin before the first tree, in float32, as the XGBoost `version` computes it."""
    if objective.intercept == "identity":
        margin = base_score
    elif objective.intercept == "log":
        margin = log_float32(base_score) if base_score > 0.0 else -math.inf
    else:
        margin = _logit(base_score, version)
    if not math.isfinite(margin):
        raise UnsupportedModel(
            f"The base score of {name} must give a finite margin. Got {base_score!r}."
            " Train the model with another base_score."
        )
    return margin


def _logit(base_score: float, version: tuple[int, ...]) -> float:
    if not 0.0 <= base_score <= 1.0:
        raise BrokenModelFile(f"The base score must be a probability. Got {base_score!r}.")
    low, high = _SMALLEST_PROBABILITY, np.float32(1.0) - _SMALLEST_PROBABILITY
    if low <= base_score <= high:
        return logit_float32(base_score)
    if version < (3, 2):
        raise UnsupportedModel(
            f"The base score {base_score!r} means one thing to XGBoost before 3.2, which takes its"
            " logit, and another to 3.2, which first moves it into [1e-6, 1 - 1e-6]. Load the file"
            " with the XGBoost version in use and pass the model itself, or set another base_score."
        )
    return logit_float32(float(np.clip(np.float32(base_score), low, high)))


@dataclass(frozen=True, slots=True)
class LabelRule:
    """How margins become labels, and the same from the library's own predictions."""

    decision: Decision
    labels: Callable[[NDArray[np.floating]], NDArray[np.int64]] | None = None
    """Class indices from what the library predicts, where its predictions tell."""


NO_LABELS = LabelRule(Decision(kind="score"))
"""Rule of a model whose margins are scores."""


def class_rule(objective: Objective) -> LabelRule:
    """Rule of a multi-class objective: the largest probability, or the largest margin."""
    if objective.transform == "argmax":
        return LabelRule(Decision(kind="argmax"), lambda predicted: predicted.astype(np.int64))
    return LabelRule(
        Decision(kind="argmax", link="softmax_float32"),
        lambda predicted: np.argmax(predicted, axis=1),
    )


@cache
def binary_rule(
    name: str, objective: Objective, *, by_estimator: bool, threshold: float | None
) -> LabelRule:
    """Rule of a model with one output that decides between two classes.

    XGBClassifier's own rule is "prediction above 0.5", whatever the objective. A threshold is the
    probability from which on the label is 1 instead.
    """
    if threshold is not None:
        return _threshold_rule(name, objective, threshold)
    is_logit = objective.transform == "identity" and not by_estimator
    # Nobody compares a raw logit with 0.5: its sign is a probability above or below one half.
    limit = 0.0 if is_logit else 0.5
    predict: dict[str, Callable[[float], float]] = {
        "identity": lambda margin: margin,
        "sigmoid": sigmoid_float32,
        "exp": exp_float32,
        "step": lambda margin: float(margin > 0.0),
    }
    predicted = elementwise(predict[objective.transform])
    return LabelRule(
        cut_decision(lambda margins: predicted(margins) > limit, "float32"),
        lambda predicted: (predicted > limit).astype(np.int64),
    )


def _threshold_rule(name: str, objective: Objective, threshold: float) -> LabelRule:
    if objective.task != "binary" or objective.transform == "step":
        refuse_threshold(threshold, name)
    # NumPy rounds a number that is compared with float32 probabilities to float32.
    limit = np.float32(threshold)
    probability = elementwise(sigmoid_float32)
    decision = cut_decision(lambda margins: probability(margins) >= limit, "float32")
    if objective.transform == "identity":
        return LabelRule(decision)
    return LabelRule(decision, lambda predicted: (predicted >= limit).astype(np.int64))
