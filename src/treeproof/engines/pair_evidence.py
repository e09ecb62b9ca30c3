"""Evidence about properties: proofs over difference trees, written down for the checker."""

import json
import math
from typing import Any

import numpy as np

from treeproof.checker.domains import Asked
from treeproof.checker.properties import check_property
from treeproof.engines.base import Budget
from treeproof.engines.evidence import packed
from treeproof.engines.pair_cells import PairCells
from treeproof.engines.properties import aim_of, boxes_of, forest_of, is_idle, limits_of, magnitude
from treeproof.errors import CertificateRejected
from treeproof.kernels.core.status import PROVED
from treeproof.kernels.exact.pair_proof import record_pair
from treeproof.model.joined import PairModels
from treeproof.query.pairs import PairQuestion, Ranges

UNIT_BITS = 40
"""Integers of proofs count the magnitude of the sums divided by 2 to this."""


def record(
    models: PairModels,
    ranges: Ranges,
    box: int,
    question: PairQuestion,
    bound: float,
    budget: Budget,
) -> dict[str, Any] | None:
    """A statement about one box: no value from `bound` on, or no pair at all; None at a limit."""
    if is_idle(models, question):
        return {"exponent": 0, "bound": float(bound).hex(), "proof": b""}
    cells = PairCells(models.joint, ranges.only(box), question.changed)
    forest = forest_of(models, cells, question)
    low, high, _ = boxes_of(cells, question)
    exponent = math.frexp(2.0 * magnitude(models, question) + 1e-300)[1] - UNIT_BITS
    limits = limits_of(budget)
    status, data, has_all_trees = record_pair(
        forest, aim_of(question, 0.0, 0.0), low[0], high[0], float(bound), limits, exponent
    )
    if status != PROVED:
        return None
    proof = np.asarray(data).tobytes()
    found = {"exponent": exponent, "bound": float(bound).hex(), "proof": proof}
    return found | ({"whole": True} if has_all_trees else {})


def write(
    models: PairModels,
    asked: Asked,
    answer: dict[str, Any],
    statements: list[dict[str, Any]],
) -> str | None:
    """The text of evidence, if the checker accepts it.

    answer  claim, verdict, lower, upper and witness of the result
    """
    witness = answer["witness"]
    document = {
        "model": models.first.fingerprint,
        "other": models.second.fingerprint if models.partners else None,
        "claim": answer["claim"],
        "verdict": str(answer["verdict"]),
        "lower": float(answer["lower"]).hex(),
        "upper": float(answer["upper"]).hex(),
        "witness": None if witness is None else [_hexadecimal(row) for row in witness],
        "statements": [
            {name: told for name, told in own.items() if name != "proof"}
            | {"size": len(own["proof"])}
            for own in statements
        ],
    }
    claim = json.dumps(document, separators=(",", ":")).encode()
    text = packed(claim, b"".join(own["proof"] for own in statements))
    try:
        check_property(models.first, text, asked, models.second if models.partners else None)
    except CertificateRejected:
        return None
    return text


def _hexadecimal(values: Any) -> list[str]:
    return [float(value).hex() for value in values]
