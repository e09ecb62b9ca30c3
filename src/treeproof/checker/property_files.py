"""Files of answers about properties and about two models: that evidence proves what they say."""

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.checker import schema
from treeproof.checker.answers import SAME_WITHIN
from treeproof.checker.claims import require
from treeproof.checker.domains import Asked
from treeproof.checker.properties import Checked, check_property, numbers_of
from treeproof.checker.property_claims import quantity_of
from treeproof.checker.questions import same_label
from treeproof.errors import CertificateRejected, InvalidInput
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble
from treeproof.model.inspection import plain_value
from treeproof.model.score_meaning import probabilities

Floats = NDArray[np.float64]


class PropertyCheck(NamedTuple):
    """What the checker says of one answer: accepted, rejected, unproved or claims nothing.

    `answer` is what the file says, as far as it can be read; the name in it is the file's own, and
    nothing of it is checked unless it is accepted.
    """

    status: str
    reason: str
    answer: schema.Answer | None = None


def check_answers(
    ensemble: Ensemble,
    document: dict[str, Any],
    other: Ensemble | None = None,
    rows: Floats | None = None,
) -> list[PropertyCheck]:
    """Check the answers of a file of `treeproof prove` or `diff`, each with its evidence.

    `rows` are those of the data that answers around rows must be about.
    """
    answers = document.get("properties")
    if not isinstance(answers, list):
        raise InvalidInput("A file of properties must list 'properties'. It does not.")
    models = [(ensemble, "model"), *([(other, "other")] if other is not None else [])]
    for model, key in models:
        stated = document.get(key)
        named = stated.get("fingerprint") if isinstance(stated, dict) else None
        if named != model.fingerprint:
            raise InvalidInput(
                "Answers must be about the model that they are checked with. Got another model"
                f" under '{key}': {str(named)[:12]}… in the file, {model.fingerprint[:12]}…"
            )
    return [_check_answer(ensemble, document.get("domain"), a, other, rows) for a in answers]


def _check_answer(
    ensemble: Ensemble, words: Any, given: Any, other: Ensemble | None, rows: Floats | None
) -> PropertyCheck:
    try:
        answer = msgspec.convert(given, schema.Answer)
    except msgspec.ValidationError as error:
        return PropertyCheck("rejected", f"answer: it cannot be read ({error})")
    try:
        _check_row(answer, rows)
        is_open = answer.verdict == "unknown"
        require(is_open or not answer.reason, "answer: a reason why what is decided is not known")
        if answer.evidence is None:
            status = "claims nothing" if _claims_nothing(answer) else "unproved"
            return PropertyCheck(status, "" if "nothing" in status else "no evidence", answer)
        asked = Asked(words, answer.row, answer.values)
        checked = check_property(ensemble, answer.evidence, asked, other)
        _check_said(checked, answer)
        _check_shown(checked, answer.witness)
    except CertificateRejected as error:
        return PropertyCheck("rejected", str(error), answer)
    except (
        ArithmeticError, AttributeError, InvalidInput, LookupError, RecursionError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        # Sound: what cannot be followed is not accepted.
        return PropertyCheck("rejected", f"answer: it cannot be checked ({error!r})", answer)
    return PropertyCheck("accepted", "", answer)


def _claims_nothing(answer: schema.Answer) -> bool:
    """Whether an answer says nothing but that something is not known."""
    # Two equal rows have scores that differ by 0, so that this is no news.
    is_difference = answer.quantity.startswith(("largest change", "largest viol", "largest diff"))
    nothing = (None, "-inf", 0.0) if is_difference else (None, "-inf")
    is_open = answer.verdict == "unknown" and not answer.exact and answer.witness is None
    return is_open and answer.lower in nothing and answer.upper in (None, "inf")


def _check_row(answer: schema.Answer, rows: Floats | None) -> None:
    """An answer around a row of the data has the values of that row."""
    require((answer.row < 0) == (answer.values is None), "answer: values of no row, or none of one")
    if rows is None or answer.values is None:
        return
    require(answer.row < len(rows), f"answer: the data have {len(rows)} rows")
    own = np.array([_value(value) for value in answer.values])
    is_same = np.array_equal(own, rows[answer.row], equal_nan=True)
    require(is_same, "answer: it is about another row than that of the data")


def _check_said(checked: Checked, answer: schema.Answer) -> None:
    """The answer says what its evidence proves."""
    evidence = checked.evidence
    require(evidence.claim == answer.claim, "answer: another claim")
    require(evidence.verdict == answer.verdict, "answer: another verdict")
    quantity = quantity_of(answer.claim)
    require(answer.quantity == quantity, f"answer: its bounds are those of {quantity!r}")
    for key, stated in (("lower", answer.lower), ("upper", answer.upper)):
        proved = float.fromhex(getattr(evidence, key))
        is_same = math.isnan(proved) if stated is None else float(stated) == proved
        require(is_same, f"answer: another {key} bound")
    require(not answer.exact or checked.is_exact, "answer: its bounds are not exact")


def _check_shown(checked: Checked, shown: schema.ShownPair | None) -> None:
    """The pair that the answer shows is that of the evidence, with the models' own scores."""
    witness, models = checked.evidence.witness, checked.models
    require((shown is None) == (witness is None), "answer: another witness")
    if witness is None or shown is None:
        return
    n = models.first.n_features
    names = list(models.first.feature_names) or [str(number) for number in range(n)]
    pair = np.stack([numbers_of(own, n) for own in witness])
    require(all(list(row) == names for row in shown.rows), "answer: a witness of other features")
    rows = [[_value(value) for value in row.values()] for row in shown.rows]
    require(bool(np.array_equal(rows, pair, equal_nan=True)), "answer: another witness")
    is_same = (pair[0] == pair[1]) | (np.isnan(pair[0]) & np.isnan(pair[1]))
    differs = [names[f] for f in np.flatnonzero(~is_same).tolist()]
    require(shown.changed == differs, "answer: other features of the witness differ")
    sums = models.sums(pair)
    for model, total, told in zip(
        (models.first, models.second), sums, shown.scores or (), strict=True
    ):
        own = evaluate.finish(model, total)[0].astype(np.float64).tolist()
        missing = [math.nan] * (len(told) - len(own))  # the other model gives more of them
        is_same_score = np.array_equal([_value(v) for v in told], own + missing, equal_nan=True)
        require(is_same_score, "answer: other scores of the witness")
    if shown.probabilities is not None:
        own_shares = [
            probabilities(model, evaluate.finish(model, total))
            for model, total in zip((models.first, models.second), sums, strict=True)
        ]
        # Labels depend on scores; the last digits of exponentials on the machine.
        fits = len(shown.probabilities) == len(own_shares) and all(
            own is not None
            and len(told) == own.shape[1]
            and np.allclose(told, own[0], rtol=0.0, atol=SAME_WITHIN)
            for own, told in zip(own_shares, shown.probabilities, strict=True)
        )
        require(fits, "answer: other probabilities of the witness")
    labels = None
    if models.first.decision.kind != "score":
        labels = [plain_value(models.first.classes[k]) for k in models.label_numbers(sums)]
    told_labels = shown.labels
    fits = told_labels is None if labels is None else (
        told_labels is not None and len(told_labels) == 2
        and all(map(same_label, labels, told_labels))
    )  # fmt: skip
    require(fits, "answer: other labels of the witness")


def _value(value: Any) -> float:
    return math.nan if value is None else float(value)
