"""CatBoost's JSON format, read without CatBoost."""

import json
import math
import re
from typing import Any

import msgspec

from treeproof.errors import BrokenModelFile
from treeproof.loaders.catboost.model import CatBoostModel, check_features

_POWERS = tuple(float(f"1e{power}") for power in range(309))


def parse_json(text: bytes, *, as_catboost_reads: bool) -> CatBoostModel:
    """Read and check a model.

    Parameters
    ----------
    text : bytes
        Content of the file.
    as_catboost_reads : bool
        True for the numbers that CatBoost makes of the file, whose reader is off by one bit now and
        then; False for those that were written, the numbers of the model that was saved.
    """
    try:
        content = json.loads(
            text,
            parse_float=catboost_number if as_catboost_reads else float,
            parse_int=_catboost_integer if as_catboost_reads else _integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
        model = msgspec.convert(content, CatBoostModel)
    except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
        nested = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if nested else str(error)[:200]
        raise BrokenModelFile(f"This is no CatBoost model in JSON: {reason}.") from error
    check_features(model)
    return model


def checked_json(text: bytes) -> bytes:
    """The same model for CatBoost's reader, without any part that plays no role in predictions.

    Numbers stay as they are written, since CatBoost's reader may round another spelling otherwise.
    """
    parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    info = msgspec.json.decode(parts.get("model_info", b"{}"), type=dict[str, msgspec.Raw])
    kept: dict[str, Any] = {
        key: parts[key]
        for key in ("features_info", "oblivious_trees", "trees", "scale_and_bias")
        if key in parts
    }
    kept["model_info"] = {
        key: info[key] for key in ("class_params", "binclass_probability_threshold") if key in info
    }
    return msgspec.json.encode(kept)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 18 else float(digits)


def _catboost_integer(digits: str) -> int | str:
    """Whole number, or its digits where CatBoost would take a leaf value of that size for zero."""
    small = len(digits) <= 17 and abs(int(digits)) <= 2**53
    return int(digits) if small else digits


def _refuse_constant(word: str) -> float:
    raise ValueError(f"numbers must be finite, got {word}")


def catboost_number(text: str) -> float:
    """Decimal number as CatBoost's JSON reader rounds it, mostly the nearest double.

    It gathers digits in an integer up to 53 bits, then in a double up to 17 digits, and multiplies
    by or divides by a power of ten.
    """
    match = re.fullmatch(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]{1,5}))?", text)
    if match is None:
        raise ValueError(f"a number must have fewer digits, got {text[:40]}")
    sign, whole, fraction, exponent = match.groups()
    gathered = int(whole)
    if gathered >= 2**63:
        raise ValueError(f"a number must have fewer digits, got {text[:40]}")
    n_digits = max(len(whole.lstrip("0")) - 1, 0)
    digits, n_used = fraction or "", 0
    while n_used < len(digits) and gathered <= 2**53 - 1:
        gathered = 10 * gathered + int(digits[n_used])
        n_used += 1
        n_digits += gathered != 0
    value = float(gathered)
    power = -n_used
    for digit in digits[n_used:]:
        if n_digits < 17:
            value = value * 10.0 + int(digit)
            power -= 1
            n_digits += value > 0.0
    value = _scaled(value, power + int(exponent or 0))
    if math.isinf(value):
        raise ValueError(f"a number must be finite, got {text[:40]}")
    return -value if sign else value


def _scaled(value: float, power: int) -> float:
    """Value times a power of ten, rounded as CatBoost's reader does it."""
    if power > 308:
        return math.inf
    if power < -308:
        value, power = value / _POWERS[308], power + 308
    if power < -308:
        return 0.0
    return value * _POWERS[power] if power >= 0 else value / _POWERS[-power]
