"""Files of answers about properties and about two models: that evidence proves what they say."""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.checker import schema
from treeproof.checker.claims import require
from treeproof.checker.pairs import Domain
from treeproof.checker.properties import (
    Checked,
    check_property,
    check_row,
    domain_of,
    numbers_of,
)
from treeproof.checker.questions import frozen_number, same_label
from treeproof.checker.witnesses import rounded_down
from treeproof.errors import CertificateRejected, InvalidInput
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble
from treeproof.model.inspection import plain_value
from treeproof.model.joined import PairModels

Floats = NDArray[np.float64]
Set = schema.LInf | schema.Box

# Now, in one thread: see the end of schema.py.
msgspec.json.Decoder(Set)


class PropertyCheck(NamedTuple):
    """What the checker says of one answer: accepted, rejected, unproved or claims nothing."""

    name: str
    status: str
    reason: str


def check_answers(
    ensemble: Ensemble, document: dict[str, Any], other: Ensemble | None = None
) -> list[PropertyCheck]:
    """Check the answers of a file of `treeproof prove` or `diff`, each with its evidence."""
    return [_check_answer(ensemble, document, a, other) for a in document["properties"]]


def _check_answer(
    ensemble: Ensemble, document: dict[str, Any], answer: dict[str, Any], other: Ensemble | None
) -> PropertyCheck:
    name, text = str(answer.get("name")), answer.get("evidence")
    if text is None:
        is_open = answer.get("verdict") == "unknown" and answer.get("upper") in (None, "inf")
        is_open &= answer.get("witness") is None and not answer.get("exact")
        status = "claims nothing" if is_open else "unproved"
        return PropertyCheck(name, status, "" if is_open else "there is no evidence")
    try:
        for model, key in ((ensemble, "model"), (other, "other")):
            if model is not None:
                stated = document[key]["fingerprint"]
                require(stated == model.fingerprint, f"file: another model as '{key}'")
        checked = check_property(ensemble, str(text), other)
        _check_set(checked, document["domain"], answer)
        _check_said(checked, answer)
        _check_shown(checked, answer.get("witness"))
    except CertificateRejected as error:
        return PropertyCheck(name, "rejected", str(error))
    except (
        ArithmeticError, AttributeError, InvalidInput, LookupError, TypeError, ValueError,
    ) as error:  # fmt: skip
        # Sound: what cannot be followed is not accepted.
        return PropertyCheck(name, "rejected", f"answer: it cannot be read ({error!r})")
    return PropertyCheck(name, "accepted", "")


def _check_said(checked: Checked, answer: dict[str, Any]) -> None:
    """The answer says what its evidence proves."""
    evidence = checked.evidence
    for key in ("claim", "verdict"):
        require(getattr(evidence, key) == answer.get(key), f"answer: another {key}")
    for key in ("lower", "upper"):
        stated = answer.get(key)
        proved = float.fromhex(getattr(evidence, key))
        is_same = math.isnan(proved) if stated is None else float(stated) == proved
        require(is_same, f"answer: another {key} bound")
    require(not answer.get("exact") or checked.is_exact, "answer: its bounds are not exact")


def _check_shown(checked: Checked, shown: Any) -> None:
    """The pair that the answer shows is that of the evidence, with the models' own scores."""
    witness, models = checked.evidence.witness, checked.models
    require((shown is None) == (witness is None), "answer: another witness")
    if witness is None:
        return
    n = models.first.n_features
    names = list(models.first.feature_names) or [str(number) for number in range(n)]
    pair = np.stack([numbers_of(own, n) for own in witness])
    require(all(list(row) == names for row in shown["rows"]), "answer: a witness of other features")
    rows = [[_value(value) for value in row.values()] for row in shown["rows"]]
    require(bool(np.array_equal(rows, pair, equal_nan=True)), "answer: another witness")
    is_same = (pair[0] == pair[1]) | (np.isnan(pair[0]) & np.isnan(pair[1]))
    differs = [names[f] for f in np.flatnonzero(~is_same).tolist()]
    require(shown["changed"] == differs, "answer: other features of the witness differ")
    sums = models.sums(pair)
    for model, total, told in zip(
        (models.first, models.second), sums, shown["scores"], strict=True
    ):
        own = evaluate.finish(model, total)[0].astype(np.float64).tolist()
        missing = [math.nan] * (len(told) - len(own))  # the other model gives more of them
        is_same_score = np.array_equal([_value(v) for v in told], own + missing, equal_nan=True)
        require(is_same_score, "answer: other scores of the witness")
    labels = None
    if models.first.decision.kind != "score":
        labels = [plain_value(models.first.classes[k]) for k in models.label_numbers(sums)]
    told = shown["labels"]
    fits = told is None if labels is None else len(told) == 2 and all(map(same_label, labels, told))
    require(fits, "answer: other labels of the witness")


def _listed_value(value: Any) -> float:
    require(isinstance(value, int | float), "file: categories with transitions")
    return float(value)


def _value(value: Any) -> float:
    return math.nan if value is None else float(value)


def _check_set(checked: Checked, words: Any, answer: dict[str, Any]) -> None:
    """Proofs are about the inputs that the file names, or about more; witnesses are such inputs."""
    evidence, models = checked.evidence, checked.models
    row = answer.get("row", -1)
    require((evidence.row is None) == (row < 0), "answer: it is about a row, or about all inputs")
    try:
        said: Set = msgspec.convert(words, Set)
    except msgspec.ValidationError as error:
        raise CertificateRejected(f"file: its domain cannot be asked about ({error})") from error
    types = said.domain or schema.Domain()
    require(not (types.may_fill or types.allow_broken_rows), "file: no domain of properties")
    proved = domain_of(models.first, evidence)
    low, high = _ends(models, said, types, proved.row, row)
    listed: dict[int, list[float]] = {}
    given: list[tuple[int, Any]] = [*types.values, *types.categorical]
    for feature, values in given:
        require(feature not in listed, "file: values of a feature are listed twice")
        listed[feature] = sorted(map(_listed_value, values))
    changed = {feature for part in checked.parts for feature in part.changed}
    stated = proved._replace(low=low, high=high)
    for feature in range(models.first.n_features):
        if _stays(models, proved, feature, changed | set(listed)):
            continue
        first, last = proved.ends(feature)
        least, most = stated.ends(feature)
        require(first <= least and most <= last, "answer: another domain")
    require(set(types.may_miss) <= set(evidence.missing), "answer: another domain")
    require(set(evidence.integer) <= set(types.integer), "answer: another domain")
    for columns, exactly in evidence.groups:
        require((columns, exactly) in types.groups, "answer: another domain")
    for feature, taken in proved.values.items():
        require(feature in listed and set(listed[feature]) <= set(taken), "answer: another domain")
    stated = stated._replace(
        missing=tuple(types.may_miss), integer=tuple(types.integer), values=listed
    )
    for own in evidence.witness or ():
        require(not types.rules, "witness: rules of a domain are not checked")
        values = numbers_of(own, models.first.n_features)
        check_row(models.joint, stated, values, changed)
        for columns, exactly in types.groups:
            chosen = values[columns].tolist()
            is_choice = set(chosen) <= {0.0, 1.0} and int(exactly) <= sum(chosen) <= 1
            require(is_choice, "witness: a group has no single 1")


def _stays(models: PairModels, domain: Domain, feature: int, moves: set[int]) -> bool:
    """Whether what a row holds is kept: what is missing, and categories that nothing moves."""
    if domain.row is None:
        return False
    is_code = bool(models.joint.is_categorical[feature])
    return bool(np.isnan(domain.row[feature])) or (is_code and feature not in moves)


def _ends(
    models: PairModels, said: Set, types: schema.Domain, home: Floats | None, row: int
) -> tuple[Floats, Floats]:
    """Smallest and largest double of every feature of what the file names, around a row or not."""
    n = models.first.n_features
    low, high = (_per_feature(side, n, row) for side in (said.low, said.high))
    if isinstance(said, schema.LInf):
        require(home is not None, "file: a ball around no row")
        if home is not None:
            low, high = _ball(models, said, home, low, high)
    for feature, least, most in types.ranges:
        low[feature] = max(low[feature], float(least))
        high[feature] = min(high[feature], float(most))
    return low, high


def _ball(
    models: PairModels, said: schema.LInf, home: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Ends of a ball around a row; its own values are always inside."""
    n = len(home)
    is_plain = isinstance(said.eps, int | float | str) and not said.relative
    require(is_plain, "file: a ball with radii that are none for properties")
    eps = Fraction(float(said.eps))  # type: ignore[arg-type]
    scale, below, above = (
        _per_feature(side, n, -1)
        for side in (1.0 if said.scale is None else said.scale, said.below, said.above)
    )
    down, up = scale * below, scale * above
    for item in said.frozen:
        number = frozen_number(item, list(models.first.feature_names), n)
        require(number >= 0, "file: a frozen feature that the model does not have")
        down[number] = up[number] = 0.0
    is_rate = bool((down >= 0.0).all() and (up >= 0.0).all() and eps >= 0)
    require(is_rate, "file: radii that are no distances")
    for feature, value in enumerate(home.tolist()):
        if models.joint.is_categorical[feature]:
            low[feature], high[feature] = -math.inf, math.inf  # no distance bounds codes
        elif math.isfinite(value):
            exact = Fraction(value)
            least = exact - eps * Fraction(down[feature])
            most = exact + eps * Fraction(up[feature])
            first = -rounded_down((-least.numerator, least.denominator))
            last = rounded_down((most.numerator, most.denominator))
            low[feature] = min(max(first, low[feature]), value)
            high[feature] = max(min(last, high[feature]), value)
        elif math.isinf(value):
            low[feature] = high[feature] = value
    return low, high


def _per_feature(given: Any, n: int, row: int) -> Floats:
    """One number for each feature, of one for all, a list of them, or a list for each row."""
    if isinstance(given, list) and given and isinstance(given[0], list):
        require(0 <= row < len(given), "file: the domain has no such row")
        given = given[row]
    numbers = given if isinstance(given, list) else [given] * n
    require(len(numbers) == n, "file: one number per feature")
    return np.array([float(number) for number in numbers])
