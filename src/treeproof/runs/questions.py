"""`Question`: what a run asks about every row, in a form that can be sent to workers."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.prediction import Model
from treeproof.query.build import refuse_outside
from treeproof.query.description import plain
from treeproof.query.perturbations import Box, LInf
from treeproof.results.results import Results
from treeproof.results.run_file import AS_FINISHED, UNDERWAY
from treeproof.search import question

_RADIUS_UNIT = 32
"""Rows of one radius question. The engine learns the scale of the later ones from the first, so
that witnesses may depend on who is asked together; with units that never change they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(question.Question):
    """One question about rows that come in batches; the same for every row."""

    def __post_init__(self) -> None:
        """Refuse what belongs to one row only."""
        question.Question.__post_init__(self)
        parts = (self.perturbation, self.goal)
        sides = [getattr(part, side, 0.0) for part in parts for side in ("low", "high")]
        is_per_row = isinstance(self.perturbation, Box) and any(np.ndim(s) > 1 for s in sides[:2])
        if is_per_row or any(np.ndim(side) > 0 for side in sides[2:]):
            raise InvalidInput(
                "A run asks the same question about every row, so bounds must not be given per"
                " row. Ask treeproof.verify instead."
            )

    def check(self, ensemble: Ensemble, rows: FloatArray, numbers: NDArray[np.int64]) -> None:
        """Refuse rows outside the bounds of the question, under their numbers in the data."""
        if isinstance(self.perturbation, LInf):
            refuse_outside(ensemble, rows, self.perturbation, numbers)

    @property
    def unit_rows(self) -> int:
        """Rows of a block that is always asked about together; see `Query`."""
        return _RADIUS_UNIT if self.kind == "radius" else 1

    def ask(self, model: Model, rows: FloatArray, labels: NDArray[Any] | None) -> Results:
        """Answer some rows in this thread; units follow each other, all but the last one whole."""
        return self.answer(model, rows, labels, unit_rows=self.unit_rows)

    def header(self, model: Model, rows: FloatArray, labels: NDArray[Any] | None) -> dict[str, Any]:
        """Header of a run; the rows are only looked at."""
        header = self.unanswered(model, rows, labels).header
        limits = {
            "time_limit_s": None if math.isinf(self.time_limit_s) else float(self.time_limit_s),
            "node_limit": None if self.node_limit >= 2**62 else int(self.node_limit),
            "memory_limit_mb": float(self.memory_limit_mb),
        }
        # With the words of version 0.1.0 here its runs are known.
        words = dict(header["question"])
        words["domain"] = words.pop("arithmetic")
        old = {"relaxation": "of"}
        words["engine"] = {old.get(key, key): value for key, value in words["engine"].items()}
        asked: dict[str, Any] = {"question": words, "limits": limits}
        if self.evidence:
            asked["evidence"] = True
        text = msgspec.json.encode(asked, order="sorted")
        return header | {
            "limits": limits,
            "question_hash": hashlib.sha256(text).hexdigest(),
            "order": AS_FINISHED,
            "state": UNDERWAY,
        }


def row_keys(
    header: dict[str, Any], rows: FloatArray, labels: Sequence[Any] | NDArray[Any] | None
) -> NDArray[np.uint64]:
    """Key of each row in a run: a hash of the model, the question, the values and the label."""
    identity = header["model"]["fingerprint"] + header["question_hash"]
    secret = hashlib.sha256(identity.encode()).digest()
    values = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 and 0.0 are one number
    values[np.isnan(values)] = np.nan  # and all kinds of NaN one missing entry
    keys = np.empty(len(values), dtype=np.uint64)
    for i in range(len(values)):
        digest = hashlib.blake2b(values[i].tobytes(), digest_size=8, key=secret)
        if labels is not None:
            digest.update(repr(plain(labels[i])).encode())
        keys[i] = int.from_bytes(digest.digest(), "big")
    return keys


def key_text(key: Any) -> str:
    """A key as run files hold it."""
    return f"{int(key):016x}"
