"""`FrameMapper`: answers for frames of rows wherever these are, such as in Spark and Ray Data."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from treeproof.api import loaded
from treeproof.data.sources import ArraySource
from treeproof.errors import InvalidInput
from treeproof.model.file_format import decode_ensemble, encode_ensemble
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.goals import Goal
from treeproof.query.perturbations import Ball, Box, LInf, PerRow, as_perturbation, asks_radius
from treeproof.results.columns import frame_of
from treeproof.results.results import Results
from treeproof.runs.batches import Batch, answer_batch, check_rows, refuse_bounds_per_row
from treeproof.search.question import Question

_COLUMNS = {
    "verdict": "string",
    "reason": "string",
    "lower": "double",
    "upper": "double",
    "exact": "boolean",
    "attained": "boolean",
    "seconds": "double",
    "witness": "array<double>",
}
"""Columns of answers, with their types in Spark."""


class FrameMapper:
    """Answers one question about the rows of pandas frames, on whatever machine these are.

    It can be sent to workers, which need nothing but treeproof: the model travels with it.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    perturbation : float, LInf, L1, L2, L0, Cost or Box, optional
        How a row may change. With a radius or budget, or with a box, verdicts are asked for,
        otherwise the least radius or budget; by default that of a plain LInf.
    label : str, optional
        Column of the labels that the rows should have; by default the model's own labels.
    keep : str or sequence of str
        Columns that are no features and stay beside the answers, such as an identifier.
    engine : str or engine
        Name of an engine, or one with options.
    goal, arithmetic, attacker_class, time_limit_s, node_limit, memory_limit_mb
        See `verify`; limits are per row.

    Examples
    --------
    Spark and Ray Data::

        mapper = tp.FrameMapper("model.treeproof", label="y", keep=["id"])
        answers = spark_frame.mapInPandas(mapper.over, mapper.spark_schema("id long"))
        answers = ray_dataset.map_batches(mapper, batch_format="pandas")
    """

    def __init__(
        self,
        model: Any,
        perturbation: float | Ball | Box | None = None,
        *,
        label: str | None = None,
        keep: str | Sequence[str] = (),
        engine: Any = "exact",
        goal: Goal | None = None,
        arithmetic: Arithmetic = "float64",
        attacker_class: Any = None,
        time_limit_s: float = math.inf,
        node_limit: int = 2**62,
        memory_limit_mb: float = 4096.0,
    ) -> None:
        ball = LInf() if perturbation is None else as_perturbation(perturbation)
        kind: Literal["radius", "verify"] = "radius" if asks_radius(ball) else "verify"
        self._question = Question(
            kind=kind, perturbation=ball, engine=engine, goal=goal, arithmetic=arithmetic,
            attacker_class=attacker_class, time_limit_s=time_limit_s, node_limit=node_limit,
            memory_limit_mb=memory_limit_mb,
        )  # fmt: skip
        refuse_bounds_per_row(self._question, "A mapper")
        limits = ball.eps if isinstance(ball, Ball) else None
        if isinstance(limits, PerRow) and limits.column is None:
            raise InvalidInput(
                "A mapper asks about frames of any rows, so their radii or budgets must be a column"
                " of the frames, as threat files name it. Got an array."
            )
        self._eps = limits.column if isinstance(limits, PerRow) else None
        self._label = label
        self._keep = [keep] if isinstance(keep, str) else list(keep)
        for name in self._keep:
            if name in _COLUMNS:
                raise InvalidInput(
                    f"Columns to keep must not have the names of answers. Got {name!r}. Rename it."
                )
        self._model = loaded(model)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model, and that as the bytes of its file."""
        return self.__dict__ | {"_model": encode_ensemble(self._model.ensemble)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take it up again where it was sent to."""
        self.__dict__ = state | {"_model": Model(decode_ensemble(state["_model"]))}

    def __call__(self, frame: Any) -> Any:
        """Answer for every row of a frame.

        Parameters
        ----------
        frame : pandas.DataFrame
            The model's features by name, the label, and what is kept.

        Returns
        -------
        pandas.DataFrame
            One line per row: the columns that are kept, then verdict, reason, bounds, `exact`,
            `attained`, seconds and witness (missing where there is none).
        """
        if not hasattr(frame, "drop"):
            raise InvalidInput(
                f"A mapper takes frames of pandas. Got a {type(frame).__name__}. Ray Data gives"
                " frames with batch_format='pandas'."
            )
        apart = [*self._keep, *(name for name in (self._label, self._eps) if name is not None)]
        missing = [name for name in apart if name not in frame.columns]
        if missing:
            raise InvalidInput(
                f"A frame must have the columns {apart}. Got none named {missing[0]!r}."
            )
        answers = {name: frame[name].tolist() for name in self._keep}
        if len(frame) == 0:
            return frame_of(answers | {name: [] for name in _COLUMNS}, "pandas")
        ensemble = self._model.ensemble
        labels = None if self._label is None else frame[self._label]
        eps = None if self._eps is None else frame[self._eps].to_numpy(np.float64)
        source = ArraySource(ensemble, frame.drop(columns=apart), labels, eps)
        (rows,) = source.parts()
        check_rows(self._question, self._model, rows)
        batch = Batch(rows, np.zeros(len(rows), dtype=np.uint64))  # keys are for run files
        found = Results.join(answer_batch(self._model, self._question, batch).pieces)
        answers |= {name: getattr(found, name).tolist() for name in _COLUMNS}
        answers["witness"] = [
            None if np.isnan(row).all() else row.tolist() for row in found.witness
        ]
        return frame_of(answers, "pandas")

    def over(self, frames: Iterable[Any]) -> Iterator[Any]:
        """Answer for frame after frame, as Spark's ``mapInPandas`` asks.

        Parameters
        ----------
        frames : iterable of pandas.DataFrame
            Frames as `__call__` takes them.

        Yields
        ------
        pandas.DataFrame
            The answers to each.
        """
        return map(self, frames)

    def spark_schema(self, kept: str = "") -> str:
        """Names and types of the answers, as Spark wants them.

        Parameters
        ----------
        kept : str
            Names and types of the columns that are kept, such as ``"id long"``.

        Returns
        -------
        str
            A schema in Spark's language of data definitions.
        """
        answers = [f"{name} {kind}" for name, kind in _COLUMNS.items()]
        return ", ".join([kept, *answers] if kept else answers)
