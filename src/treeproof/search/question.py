"""`Question`: one question about many rows, behind `verify`, `radius`, runs and the shell."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine, asked_budget
from treeproof.engines.registry import engine_named, require_support
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model.inspection import decision_rule, plain_value
from treeproof.model.rows import numeric_rows
from treeproof.prediction import Model, accumulators
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.build import PreparedQuery, prepare_query
from treeproof.query.description import describe
from treeproof.query.goals import Goal
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.perturbations import (
    Ball,
    Box,
    PerRow,
    is_priced,
    require_perturbation,
    with_limit,
)
from treeproof.query.query import Query, categorical_features
from treeproof.results.numbers import ColumnFormat, ColumnFormats
from treeproof.results.results import FloatArray, Results
from treeproof.results.run_file import header_record
from treeproof.search.progress import Progress, telling
from treeproof.search.shown import shown_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, in a form that can be sent to workers.

    `kind` says whether a verdict or the minimal perturbation is asked for. `formats` are those of
    the columns in which witnesses are shown, by default those of the rows themselves. All else is
    explained at `treeproof.verify` and `treeproof.radius`.
    """

    kind: Literal["verify", "radius"]
    perturbation: Ball | Box
    engine: str | Engine = "exact"
    search: PaperProtocol | None = None
    goal: Goal | None = None
    arithmetic: Arithmetic = "float64"
    attacker_class: Any = None
    time_limit_s: float = math.inf
    node_limit: int = 2**62
    memory_limit_mb: float = 4096.0
    evidence: bool = False
    formats: Sequence[ColumnFormat] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no perturbation, engine or limit, before a model is loaded."""
        require_perturbation(self.perturbation)
        engine_named(self.engine)
        self._budget()

    def answer(
        self,
        model: Model,
        X: Any,
        y: Any = None,
        *,
        n_jobs: int = 1,
        first_guess: tuple[float, float] | None = None,
        progress: Progress = False,
    ) -> Results:
        """Answer it about some rows; for `first_guess` see `Query`, for `progress` `verify`."""
        prepared = PreparedQuestion(self, model, first_guess)
        return prepared.ask(X, y, n_jobs=n_jobs, progress=progress)

    @property
    def _own_limits(self) -> PerRow | None:
        """The radii or budgets of the rows, where each has its own."""
        limit = self.perturbation.eps if isinstance(self.perturbation, Ball) else None
        return limit if isinstance(limit, PerRow) else None

    def _answer_each(
        self, model: Model, X: Any, y: Any, n_jobs: int, progress: Progress
    ) -> Results:
        """Ask about rows of the same radius or budget together, as if no others were there."""
        limits = self._limits_of(X)
        rows = numeric_rows(model.ensemble, X, allow_empty=False)
        labels = None if y is None else np.asarray(y)
        formats = ColumnFormats(rows) if self.formats is None else self.formats
        pieces, places = [], []
        with telling(progress, len(rows)) as tell:
            for limit in np.unique(limits):
                chosen = np.flatnonzero(limits == limit)
                own = None if labels is None else labels[chosen]
                asked = dataclasses.replace(self._at(float(limit)), formats=formats)
                pieces.append(asked.answer(model, rows[chosen], own, n_jobs=n_jobs))
                places.append(chosen)
                if tell is not None:
                    tell(len(chosen))
        found = Results.join(pieces).take(np.argsort(np.concatenate(places)))
        found.row = np.arange(len(found), dtype=np.int64)
        return self._with_limits(found, limits)

    def _at(self, limit: float) -> "Question":
        """The same question at one radius or budget."""
        ball = cast("Ball", self.perturbation)
        return dataclasses.replace(self, perturbation=with_limit(ball, limit))

    def _limits_of(self, X: Any) -> FloatArray:
        own = cast("PerRow", self._own_limits)
        if own.values is None:
            raise InvalidInput(
                f"The radius of each row is column {own.column!r} of a data file. Rows in memory"
                " need it as an array: 'eps' of the perturbation, or of the threat model by"
                " ThreatModel.perturbation(model, X)."
            )
        if len(own.values) != len(X):
            raise InvalidInput(
                f"There must be one radius or budget for each of the {len(X)} rows, or one for all."
                f" Got {len(own.values)}."
            )
        return own.values

    def _with_limits(self, found: Results, limits: FloatArray) -> Results:
        """Results that tell the radius or budget of each row, and that each has its own."""
        perturbation = found.header["question"]["perturbation"]
        name = "budget" if "budget" in perturbation else "eps"
        perturbation[name] = describe(self._own_limits)
        return dataclasses.replace(found, eps=limits.copy())

    @property
    def is_settled_in_time(self) -> bool:
        """Whether rows that end before a time limit are answered as without one."""
        return engine_named(self.engine).is_complete

    @property
    def learning_stages(self) -> tuple[int, ...]:
        """Rows after which the engine may learn anew where to look first; none where it does not.

        `first_guess` is then the engine's method that learns.
        """
        learns = self.kind == "radius" and self.search is None
        return getattr(engine_named(self.engine), "stages", ()) if learns else ()

    def first_guess(self, upper: FloatArray, eq6_radius: FloatArray) -> tuple[float, float]:
        """What an engine with `learning_stages` learns from rows that are answered."""
        engine: Any = engine_named(self.engine)
        guess: tuple[float, float] = engine.first_guess(upper, eq6_radius)
        return guess

    def unanswered(
        self, model: Model, rows: NDArray[np.float64], y: Any = None, reason: str = ""
    ) -> Results:
        """Results that claim nothing, with a reason; a question that cannot be asked is refused."""
        if self._own_limits is not None:
            return self._with_limits(
                self._at(0.0).unanswered(model, rows, y, reason), self._limits_of(rows)
            )
        prepared = PreparedQuestion(self, model)
        query = prepared._query(rows, y)
        found = Results.empty(len(query), query.rows.shape[1])
        found.reason[:] = reason
        return prepared._results(query, found)

    def check(
        self, model: Model, X: Any, y: Any = None, numbers: NDArray[np.int64] | None = None
    ) -> None:
        """Refuse what cannot be asked about rows; `numbers` are theirs in the data."""
        asked = self if self._own_limits is None else self._at(0.0)
        PreparedQuestion(asked, model)._query(X, y, numbers=numbers)

    def _budget(self) -> Budget:
        return asked_budget(self.time_limit_s, self.node_limit, self.memory_limit_mb)

    def _words(self, engine: Engine) -> dict[str, Any]:
        words: dict[str, Any] = {"kind": self.kind, "engine": describe(engine)}
        return words if self.search is None else words | {"search": describe(self.search)}


class PreparedQuestion:
    """A question that is kept and asked again: model, perturbation and options are resolved once.

    `prepare` makes it. Each answer is that of `radius` or `verify`, bit for bit; they prepare a
    question, too, and ask it once.

    Parameters
    ----------
    question : Question
        What is asked.
    model : Model
        A loaded model.
    first_guess : tuple of float, optional
        Where a search for radii looks first, see `Query`.
    """

    def __init__(
        self, question: Question, model: Model, first_guess: tuple[float, float] | None = None
    ) -> None:
        self._question, self._model, self._first_guess = question, model, first_guess
        self._engine, self._budget = engine_named(question.engine), question._budget()
        self._words = question._words(self._engine)
        self._model_words: dict[str, Any] | None = None
        self._prepared: PreparedQuery | None = None
        perturbation = question.perturbation
        self._has_own_radii = (
            question._own_limits is not None
            and not is_priced(perturbation)
            and getattr(self._engine, "takes_radii_of_rows", False)
        )
        if self._has_own_radii:
            perturbation = with_limit(cast("Ball", perturbation), 0.0)
        if question._own_limits is None or self._has_own_radii:
            self._prepared = prepare_query(
                model.ensemble,
                perturbation,
                goal=question.goal,
                arithmetic=question.arithmetic,
                attacker_class=question.attacker_class,
            )

    def ask(self, X: Any, y: Any = None, *, n_jobs: int = 1, progress: Progress = False) -> Results:
        """Answer it about one row or many.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_features)
            Rows.
        y : array-like of shape (n_rows,), optional
            Labels that the rows should have; by default the model's own.
        n_jobs : int
            Threads over rows; -1 for all cores.
        progress : bool or callable
            See `verify`.

        Returns
        -------
        Results
            What `radius` or `verify` gives.
        """
        from treeproof.search.radius import find_radius
        from treeproof.search.relations import answer_within_rules, division_of

        question, engine, budget = self._question, self._engine, self._budget
        if self._prepared is None:
            return question._answer_each(self._model, X, y, n_jobs, progress)
        limits = question._limits_of(X) if self._has_own_radii else None
        query = self._query(X, y, n_jobs)
        if limits is not None:
            said = query.description["perturbation"] | {"eps": describe(question._own_limits)}
            query = dataclasses.replace(
                query,
                reach=dataclasses.replace(query.reach, radius=limits),
                description=query.description | {"perturbation": said},
            )
        if question.evidence and query.pricing is not None and query.pricing.others:
            raise UnsupportedQuery(
                "Evidence is about one limit. Got a question with several, as All has. Ask without"
                " evidence, or about one of them."
            )
        rules = () if query.pricing is None else query.pricing.types.rules
        roots: dict[int, Any] | None = {} if rules and question.evidence else None
        asks_radius = question.kind == "radius"
        with telling(progress, len(query)) as tell:
            if self._first_guess is not None or tell is not None:
                query = dataclasses.replace(query, first_guess=self._first_guess, on_answered=tell)
            if rules:
                found = answer_within_rules(
                    engine, query, budget, asks_radius=asks_radius, n_jobs=n_jobs, roots=roots
                )
            elif asks_radius:
                found = find_radius(engine, query, budget, protocol=question.search, n_jobs=n_jobs)
            else:
                found = engine.verify(query, budget, n_jobs=n_jobs)
        if limits is not None:
            found = dataclasses.replace(found, eps=limits.copy())
        divisions = None
        if roots is not None:
            lower = found.lower if asks_radius else np.full(len(found), np.inf)
            divisions = {row: division_of(roots[row], rules, lower[row]) for row in roots}
        return self._results(query, found, question.evidence, n_jobs, divisions)

    def _query(
        self, X: Any, y: Any, n_jobs: int = 1, numbers: NDArray[np.int64] | None = None
    ) -> Query:
        """The question about some rows, as engines take it."""
        prepared = cast("PreparedQuery", self._prepared)
        query = prepared.of(X, y, sums=partial(accumulators, n_jobs=n_jobs), numbers=numbers)
        require_support(self._engine, query)
        return query

    def _results(
        self,
        query: Query,
        found: Results,
        has_evidence: bool = False,
        n_jobs: int = 1,
        divisions: dict[int, Any] | None = None,
    ) -> Results:
        if self._model_words is None:
            self._model_words = model_words(query)
        return assemble_results(
            query,
            found,
            self._words,
            self._budget if has_evidence else None,
            n_jobs,
            divisions,
            self._question.formats,
            self._model_words,
        )


def prepared(question: Question, model: Model) -> PreparedQuestion:
    """A prepared question; the last one about a model is kept for calls of one row after another.

    Only what can be hashed is kept: nobody can change it afterwards. Radii of each row's own are
    no part of that.
    """
    try:
        hash(question)
        is_kept = question._own_limits is None
    except TypeError:
        is_kept = False
    if not is_kept:
        return PreparedQuestion(question, model)
    kept = model.ensemble.worked_out
    last = kept.get(PreparedQuestion)
    if last is None or last._model.ensemble is not model.ensemble or last._question != question:
        kept[PreparedQuestion] = last = PreparedQuestion(question, model)
    return cast("PreparedQuestion", last)


def assemble_results(
    query: Query,
    found: Results,
    question: dict[str, Any],
    evidence: Budget | None = None,
    n_jobs: int = 1,
    divisions: dict[int, Any] | None = None,
    formats: Sequence[ColumnFormat] | None = None,
    model: dict[str, Any] | None = None,
) -> Results:
    """Give what an engine found its rows and labels, the model's identity and the question.

    With limits for it, evidence is recorded, and answers that the checker does not accept are
    withdrawn; `divisions` tell the parts of rows whose domain has rules. Witnesses are shown in the
    `formats` of their columns. `model` are the `model_words`, where they are known.
    """
    # Kernels are imported where they are needed: questions are read where nothing is answered, too.
    from treeproof.engines.evidence import record_evidence, withdraw_unaccepted

    if evidence is not None:
        is_radius = question["kind"] == "radius"
        record_evidence(
            query, found, evidence, asks_radius=is_radius, n_jobs=n_jobs, divisions=divisions
        )
    predicted = np.full(len(query), None, dtype=object)
    shown: dict[str, Any] = {**shown_columns(query, found.witness, formats)}
    results = dataclasses.replace(
        found,
        label=query.class_labels(query.labels),
        # Plain texts for what engines wrote as members of an enumeration.
        verdict=found.verdict.astype(np.str_).astype(object),
        reason=found.reason.astype(np.str_).astype(object),
        header=header_record(
            dict(model_words(query) if model is None else model), question | query.description
        ),
        # A copy: rows that need no rounding may be the caller's own array.
        values=query.rows.copy(),
        **shown,
        predicted=predicted if query.predicted is None else query.class_labels(query.predicted),
    )
    if evidence is not None:
        withdraw_unaccepted(results, query.deployed or query.ensemble)
    return results


def _category_names(query: Query) -> dict[str, list[Any]]:
    return {
        str(feature): [plain_value(name) for name in names]
        for feature, names in query.ensemble.categories.items()
        if names
    }


def model_words(query: Query) -> dict[str, Any]:
    """What headers say of the model of a question."""
    ensemble = query.ensemble
    # Runs are known by the model that is deployed, whatever the arithmetic of the question.
    deployed = query.deployed or ensemble
    provenance = deployed.provenance
    return {
        "fingerprint": deployed.fingerprint,
        "library": provenance.library,
        "library_version": provenance.library_version,
        # Names of files may hold bytes that are no text, which JSON cannot hold as they are.
        "source": provenance.source.encode("utf-8", "backslashreplace").decode(),
        "file_sha256": provenance.file_sha256,
        "self_test": provenance.self_test,
        "notes": list(provenance.notes),
        "loading": provenance.options,
        "classes": [plain_value(label) for label in ensemble.classes],
        **({"categories": named} if (named := _category_names(query)) else {}),
        "n_trees": ensemble.n_trees,
        "n_features": ensemble.n_features,
        "feature_names": list(ensemble.feature_names),
        "input_precision": deployed.input_precision,
        "decision": ensemble.decision.kind,
        "decision_rule": decision_rule(deployed),
        "decision_cut": deployed.decision.cut if deployed.decision.kind == "threshold" else None,
        "objective": provenance.objective,
        # Features that no question moves, since their values are names of categories.
        "categorical": np.flatnonzero(categorical_features(deployed)).tolist(),
    }
