"""Asks treeproof about a trained model, compares every answer with the library's, and counts."""

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treeproof as tp
from tests.campaigns import checks
from tests.campaigns.checks import Asked, Problem
from tests.campaigns.data import FloatArray, Random
from tests.campaigns.questions import (
    Claim,
    Moves,
    aligned_rows,
    arithmetic_option,
    random_box,
    random_claim,
    random_moves,
    random_rows,
    rows_within,
)
from tests.oracle.library_models import Deployed
from tests.oracle.library_truth import (
    NEVER,
    Reached,
    Table,
    as_double,
    box_ranks,
    smallest_of_largest,
)
from treeproof.errors import UnsupportedQuery

TIME_LIMIT_S = 20.0
"""These models take milliseconds: a row that is not decided by then is a search that never ends."""

ENGINES = ("cliques", "cliques", "single_tree", "multilevel", "combination", "attack")
SLOW_ENGINES = ("milp", "smt", "lp", "hard_label")
COMPLETE = {"exact", "cliques", "single_tree"}
"""Engines that decide every row of such models; solvers may give up."""


@dataclass
class Mismatch:
    """An answer that the library contradicts."""

    number: int
    model: Deployed
    question: str
    row: Any
    text: str

    def __str__(self) -> str:
        return (
            f"model {self.number} ({self.model.library} {self.model.kind}), {self.question},"
            f" row {[float(value) for value in self.row]!r}: {self.text}"
        )


@dataclass
class Tally:
    """What was asked and what was found."""

    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    mismatches: list[Mismatch] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    near_ties: int = 0
    asking: tuple[float, str] | None = None
    """Since when treeproof is being asked what, for whoever watches."""

    @property
    def n_questions(self) -> int:
        """How many rows were asked about, over all questions."""
        return sum(self.counts.values())

    def lines(self) -> Iterator[str]:
        """The counts, by library, kind of question, goal and perturbation."""
        for place, name in enumerate(("library", "question", "goal", "perturbation")):
            sums: Counter[str] = Counter()
            for key, count in self.counts.items():
                sums[key[place]] += count
            yield f"{name}: {_listed(sums)}"
        yield f"models: {_listed(self.models)}"
        yield f"skipped: {_listed(self.skipped)}"
        yield f"near ties that stayed undecided: {self.near_ties:,}"
        yield f"questions: {self.n_questions:,}, mismatches: {len(self.mismatches):,}"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"


class Asker:
    """Asks treeproof and the library about one trained model.

    Parameters
    ----------
    random : Generator
        Where questions come from.
    number : int
        Number of the model, for reports.
    model : Deployed
        The model.
    tally : Tally
        Receives counts and mismatches.
    """

    def __init__(self, random: Random, number: int, model: Deployed, tally: Tally) -> None:
        self.random, self.number, self.model, self.tally = random, number, model, tally
        self.loaded = tp.load(model.source, **model.options)
        arithmetic = str(random.choice(["float64", "real"]))
        self.table = Table(model, arithmetic)
        self.options = arithmetic_option(arithmetic)
        self.infinite = (
            self.loaded.ensemble.infinite_allowed and model.accepts(np.inf) and model.accepts(1e300)
        )

    def ask(self, n_series: int, n_rows: int, *, engines: bool = True) -> None:
        """Ask random series of questions.

        Parameters
        ----------
        n_series : int
            How many; each has its own rows and perturbations.
        n_rows : int
            Rows of a series.
        engines : bool
            Whether other engines than the exact one are asked about a few of them.
        """
        random, table = self.random, self.table
        for _ in range(n_series):
            infinite = self.infinite and random.random() < 0.3
            moves = random_moves(random, table, infinite=self.infinite)
            radius = float(random.choice([random.random(), 0.1, 1.0, 0.7, 3.3]))
            given = random_rows(random, table, n_rows, infinite=infinite)
            some = n_rows // 3
            given[:some] = aligned_rows(random, table, moves.ball, given[:some], radius)
            given = rows_within(table, given, moves.ball)
            for row in table.contradictions(given)[:1]:
                self._note("oracle", given[row], "the library contradicts its own dump")
                return
            for _ in range(2):
                self._ask_balls(given, moves, radius, engines=engines)
            self._ask_boxes(given)

    def _asked(self, given: FloatArray, moves: Moves | None) -> Asked:
        rows = self.table.cast(given)
        claim = random_claim(self.random, self.table, rows)
        still, attacker = self._attackers(rows, claim)
        options = {"goal": claim.goal, **self.options, **attacker}
        asked = Asked(self.table, rows, given, claim, options, still)
        if moves is not None:
            asked.moves = moves
            asked.reached = Reached(self.table, rows, moves.ball, still.tolist())
            asked.levels = asked.reached.nearest(claim.broken)
        return asked

    def _attackers(
        self, rows: FloatArray, claim: Claim
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """Rows that nobody attacks; now and then all but those of one class."""
        classes = self.model.classes
        if not classes or self.random.random() > 0.1:
            return np.zeros(len(rows), dtype=bool), {}
        chosen = int(self.random.integers(len(classes)))
        if claim.labels is not None:
            own = np.array([classes.index(label) for label in claim.labels])
        else:
            own = self.table.labels[self.table.flat(self.table.states(rows))]
        return own != chosen, {"attacker_class": classes[chosen]}

    def _ask_balls(self, given: FloatArray, moves: Moves, radius: float, *, engines: bool) -> None:
        asked = self._asked(given, moves)
        found = self._radius(asked)
        if found is not None:
            self._ask_alone(asked, found)
        for eps in self._some_eps(asked, radius):
            self._ball(asked, eps)
        if engines:
            self._ask_engines(asked, radius)
        if "attacker_class" not in asked.options:
            self._ask_features(asked)

    def _radius(self, asked: Asked, engine: str = "exact") -> Any:
        ball = tp.LInf(**asked.moves.options)
        kind = "radius" if engine == "exact" else f"radius by {engine}"
        found = self._call(tp.radius, asked, ball, kind, engine=engine, time_limit_s=TIME_LIMIT_S)
        if found is not None:
            complete = engine in COMPLETE
            problems = checks.radius_problems(asked, found, complete=complete)
            self._record(kind, asked, ball, problems, found)
        return found

    def _ball(self, asked: Asked, eps: float, engine: str = "exact") -> None:
        ball = tp.LInf(eps, **asked.moves.options)
        kind = "ball" if engine == "exact" else f"ball by {engine}"
        found = self._call(tp.verify, asked, ball, kind, engine=engine, time_limit_s=TIME_LIMIT_S)
        if found is not None:
            complete = engine in COMPLETE
            problems = checks.ball_problems(asked, eps, found, complete=complete)
            self._record(kind, asked, ball, problems, found)

    def _ask_alone(self, asked: Asked, found: Any) -> None:
        """Rows asked one at a time have the answers that they have in a batch."""
        ball = tp.LInf(**asked.moves.options)
        for row in self.random.choice(len(asked.rows), size=2, replace=False).tolist():
            one = asked.take([row])
            alone = self._call(tp.radius, one, ball, "radius, one row", time_limit_s=TIME_LIMIT_S)
            if alone is None:
                continue
            names = ("verdict", "lower", "upper", "exact", "attained")
            states = [str(getattr(alone, name)[0]) for name in names]
            before = [str(getattr(found, name)[row]) for name in names]
            # How far the search of an undecided row had come depends on the rows before it.
            is_same = states == before or {states[0], before[0]} == {"unknown"}
            problems = [] if is_same else [(0, f"alone {states}, in a batch {before}")]
            self._record("radius, one row", one, ball, problems, alone)

    def _ask_engines(self, asked: Asked, radius: float) -> None:
        """A few rows for other engines: bounds hold, and complete ones are exact as well."""
        engine = str(self.random.choice(ENGINES))
        if self.random.random() < 0.05:
            engine = str(self.random.choice(SLOW_ENGINES))
        if engine == "single_tree" and self.model.n_trees != 1:
            return
        n = 3 if engine in ENGINES else 1
        few = asked.take(self.random.choice(len(asked.rows), size=n, replace=False).tolist())
        self._radius(few, engine)
        self._ball(few, self._some_eps(few, radius)[0], engine)

    def _ask_features(self, asked: Asked) -> None:
        ball = tp.LInf(**asked.moves.options)
        found = self._call(tp.feature_radius, asked, ball, "feature radius")
        if found is not None:
            self._record("feature radius", asked, ball, checks.feature_problems(asked, None, found))
        eps = self._some_eps(asked, 1.0)[0]
        ball = tp.LInf(eps, **asked.moves.options)
        found = self._call(tp.unimportant_features, asked, ball, "unimportant")
        if found is not None:
            self._record("unimportant", asked, ball, checks.feature_problems(asked, eps, found))
        few = asked.take(self.random.choice(len(asked.rows), size=3, replace=False).tolist())
        found = self._call(tp.anchor_features, few, ball, "anchors", time_limit_s=TIME_LIMIT_S)
        if found is not None:
            self._record("anchors", few, ball, checks.anchor_problems(few, eps, found))

    def _ask_boxes(self, given: FloatArray) -> None:
        asked = self._asked(given, None)
        options, low, high = random_box(self.random, self.table, asked.rows, infinite=self.infinite)
        box = tp.Box(**options)
        held = asked.still[:, np.newaxis] & ~np.isnan(asked.rows)
        low, high = np.where(held, asked.rows, low), np.where(held, asked.rows, high)
        ranks = box_ranks(self.table, asked.rows, low, high)
        truth = smallest_of_largest(self.table, asked.claim.broken, ranks) < NEVER
        found = self._call(tp.verify, asked, box, "box", time_limit_s=TIME_LIMIT_S)
        if found is not None:
            problems = checks.box_problems(asked, truth, low, high, found)
            self._record("box", asked, box, problems, found)
        if "attacker_class" not in asked.options:
            found = self._call(tp.unimportant_features, asked, box, "unimportant")
            if found is not None:
                problems = checks.box_feature_problems(asked, ranks, found)
                self._record("unimportant", asked, box, problems)

    def _some_eps(self, asked: Asked, radius: float) -> list[float]:
        """Radii of some rows, each exactly, or one float beside."""
        values = [value for value, _ in map(as_double, asked.levels) if value < np.inf]
        chosen = [radius, 0.0, float(self.random.random() * 5), np.inf]
        if values:
            value = float(self.random.choice(values))
            with np.errstate(over="ignore"):
                chosen += [value, value, float(np.nextafter(value, np.inf))]
            if value > 0.0:
                chosen.append(float(np.nextafter(value, 0.0)))
            chosen.append(float(self.random.choice(values)))
        return self.random.choice(chosen, size=3, replace=False).tolist()

    def _call(self, function: Any, asked: Asked, moves: Any, kind: str, **more: Any) -> Any:
        question = Mismatch(
            self.number, self.model, _words(kind, moves, asked, 0), asked.rows[0], "no answer"
        )
        self.tally.asking = time.perf_counter(), str(question)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return function(
                    self.loaded,
                    self.model.native(asked.given),
                    asked.claim.labels,
                    perturbation=moves,
                    **asked.options,
                    **more,
                )
        except UnsupportedQuery as error:
            self.tally.skipped[f"{kind}: {str(error)[:60]}"] += 1
        except Exception as error:  # every one of them is a finding
            self._note(_words(kind, moves, asked, 0), [], f"{type(error).__name__}: {error}")
        finally:
            self.tally.asking = None
        return None

    def _record(
        self,
        kind: str,
        asked: Asked,
        moves: Any,
        problems: Iterable[Problem],
        found: Any = None,
    ) -> None:
        perturbation = asked.moves.name if isinstance(moves, tp.LInf) else "Box"
        key = self.model.library, kind, asked.claim.name, perturbation
        self.tally.counts[key] += len(asked.rows)
        if found is not None:
            self.tally.near_ties += sum(checks.NEAR_TIE in str(reason) for reason in found.reason)
            problems = [*problems, *checks.row_problems(asked, found)]
        for row, text in problems:
            self._note(_words(kind, moves, asked, row), asked.rows[row], text)

    def _note(self, question: str, row: Any, text: str) -> None:
        self.tally.mismatches.append(Mismatch(self.number, self.model, question, row, text))


def _words(kind: str, moves: Any, asked: Asked, row: int) -> str:
    """A question about one row, as short as it can be repeated from."""
    sides = {}
    for name in moves.__dataclass_fields__:
        value = getattr(moves, name)
        if np.ndim(value) == 2:
            value = value[row]
        if not (np.ndim(value) == 0 and value in (None, 1.0, -np.inf, np.inf)) and np.size(value):
            sides[name] = np.asarray(value).tolist()
    words = ", ".join(f"{name}={value!r}" for name, value in sides.items())
    one = asked.take([row])
    options = {name: value for name, value in one.options.items() if value is not None}
    if one.claim.labels is not None:
        options["y"] = one.claim.labels
    return f"{kind}; {type(moves).__name__}({words}); {options}"
