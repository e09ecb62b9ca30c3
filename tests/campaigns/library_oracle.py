"""Many questions about trained models of all four libraries, each answered by the library as well.

    python -m tests.campaigns.library_oracle --questions 500000 --seed 0

Every model is known by the seed and its number: ``--only NUMBER`` asks about that one alone. The
exit status is 1 if any answer differs from what the library says.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
)
from tests.campaigns.training import NotTrained, trained_model
from tests.oracle.library_models import Deployed
from tests.oracle.library_truth import NEVER, Level, Reached, Table, box_ranks, smallest_of_largest
from treeproof.errors import TreeproofError

LIBRARIES = ("xgboost", "lightgbm", "catboost", "sklearn")
LARGEST_TABLE = 3_000
TIME_LIMIT_S = 1.0
"""These models take milliseconds: a row that is not decided by then is a search that never ends."""


@dataclass
class Mismatch:
    """An answer that the library contradicts."""

    number: int
    model: Deployed
    question: str
    row: Any
    text: str

    def __str__(self) -> str:
        row = [float(value) for value in self.row]
        return (
            f"model {self.number} ({self.model.library} {self.model.kind}), {self.question},"
            f" row {row!r}: {self.text}"
        )


@dataclass
class Tally:
    """What was asked and what was found."""

    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    mismatches: list[Mismatch] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    near_ties: int = 0
    models: Counter[str] = field(default_factory=Counter)

    @property
    def n_questions(self) -> int:
        """How many rows were asked about, over all questions."""
        return sum(self.counts.values())

    def lines(self) -> Iterator[str]:
        """The counts, by library, kind, goal and perturbation."""
        names = ("library", "question", "goal", "perturbation")
        for place, name in enumerate(names):
            sums: Counter[str] = Counter()
            for key, count in self.counts.items():
                sums[key[place]] += count
            yield f"{name}: " + ", ".join(f"{key} {n:,}" for key, n in sorted(sums.items()))
        yield "models: " + ", ".join(f"{key} {n:,}" for key, n in sorted(self.models.items()))
        yield "skipped: " + ", ".join(f"{key} {n:,}" for key, n in sorted(self.skipped.items()))
        yield f"near ties that stayed undecided: {self.near_ties:,}"
        yield f"questions: {self.n_questions:,}, mismatches: {len(self.mismatches):,}"


class Asker:
    """Asks treeproof and the library about one trained model."""

    def __init__(self, random: Random, number: int, model: Deployed, tally: Tally) -> None:
        self.random, self.number, self.model, self.tally = random, number, model, tally
        self.loaded = tp.load(model.source, **model.options)
        self.arithmetic = str(random.choice(["float64", "real"]))
        self.table = Table(model, self.arithmetic)
        self.options = arithmetic_option(self.arithmetic)
        self.infinite = (
            self.loaded.ensemble.infinite_allowed and model.accepts(np.inf) and model.accepts(1e300)
        )

    def ask(self, n_moves: int, n_rows: int) -> None:
        """Ask a random series of questions."""
        for _ in range(n_moves):
            infinite = self.infinite and self.random.random() < 0.3
            given = random_rows(self.random, self.table, n_rows, infinite=infinite)
            moves = random_moves(self.random, self.table, infinite=self.infinite)
            radius = float(self.random.choice([self.random.random(), 0.1, 1.0, 0.7, 3.3]))
            third = n_rows // 3
            given[:third] = aligned_rows(self.random, self.table, moves.ball, given[:third], radius)
            if self.random.random() < 0.95:
                inside = np.clip(given, moves.ball.low, moves.ball.high)
                given = np.where(np.isfinite(given) & np.isfinite(inside), inside, given)
            wrong = self.table.contradictions(given)
            if wrong:
                self._note("oracle", given[wrong[0]], "the library contradicts its own dump")
                return
            self._ask_balls(given, moves, radius)
            self._ask_boxes(given)

    def _ask_balls(self, given: FloatArray, moves: Moves, radius: float) -> None:
        rows = self.table.cast(given)
        for _ in range(2):
            claim = random_claim(self.random, self.table, rows)
            still, attacker = self._attackers(rows, claim)
            asked = Asked(self.table, rows, claim, still)
            reached = Reached(self.table, rows, moves.ball, still.tolist())
            levels = reached.nearest(claim.broken)
            ask = {"goal": claim.goal, "y": claim.labels, **self.options, **attacker}
            self._radii(asked, reached, levels, given, moves, ask)
            for eps in self._eps(levels, radius):
                ball = tp.LInf(eps, **moves.options)
                found = self._verify(given, ball, ask, moves.name, asked, "ball")
                if found is not None:
                    problems = checks.ball_problems(asked, reached, levels, eps, found)
                    self._record("ball", claim, moves.name, asked, problems, found, ask, ball)
            if not attacker:
                self._features(asked, reached, levels, given, moves, ask)

    def _radii(
        self,
        asked: Asked,
        reached: Reached,
        levels: list[Level | None],
        given: FloatArray,
        moves: Moves,
        ask: dict[str, Any],
    ) -> None:
        ball = tp.LInf(**moves.options)

        def radius(rows: Any, ask: dict[str, Any]) -> Any:
            return self._call(
                tp.radius, rows, ball, ask, f"radius {moves.name}", time_limit_s=TIME_LIMIT_S
            )

        found = radius(self.model.native(given), ask)
        if found is None:
            return
        problems = checks.radius_problems(asked, reached, levels, found)
        self._record("radius", asked.claim, moves.name, asked, problems, found, ask, ball)
        for row in self.random.choice(len(given), size=2, replace=False).tolist():
            one = radius(self.model.native(given[[row]]), _one(ask, row))
            if one is None:
                continue
            self._count("radius, one row", asked.claim, moves.name, 1)
            names = ("verdict", "lower", "upper", "exact", "attained")
            before = [getattr(found, name)[row] for name in names]
            alone = [getattr(one, name)[0] for name in names]
            if [str(value) for value in before] != [str(value) for value in alone]:
                text = f"alone {alone}, in a batch {before}"
                self._note(_words("radius, one row", ball, ask, row), given[row], text)

    def _ask_boxes(self, given: FloatArray) -> None:
        rows = self.table.cast(given)
        claim = random_claim(self.random, self.table, rows)
        still, attacker = self._attackers(rows, claim)
        asked = Asked(self.table, rows, claim, still)
        options, low, high = random_box(self.random, self.table, rows, infinite=self.infinite)
        box = tp.Box(**options)
        ask = {"goal": claim.goal, "y": claim.labels, **self.options, **attacker}
        low = np.where(still[:, np.newaxis] & ~np.isnan(rows), rows, low)
        high = np.where(still[:, np.newaxis] & ~np.isnan(rows), rows, high)
        ranks = box_ranks(self.table, rows, low, high)
        truth = smallest_of_largest(self.table, claim.broken, ranks) < NEVER
        found = self._verify(given, box, ask, "Box", asked, "box")
        if found is not None:
            problems = checks.box_problems(asked, truth, low, high, found)
            self._record("box", claim, "Box", asked, problems, found, ask, box)
        if not attacker:
            found = self._call(
                tp.unimportant_features, self.model.native(given), box, ask, "unimportant in Box"
            )
            if found is not None:
                problems = checks.box_feature_problems(asked, ranks, found)
                self._record("unimportant", claim, "Box", asked, problems, None, ask, box)

    def _verify(
        self, given: FloatArray, moves: Any, ask: dict[str, Any], name: str, asked: Asked, kind: str
    ) -> Any:
        return self._call(
            tp.verify,
            self.model.native(given),
            moves,
            ask,
            f"{kind} {name}",
            time_limit_s=TIME_LIMIT_S,
        )

    def _features(
        self,
        asked: Asked,
        reached: Reached,
        levels: list[Level | None],
        given: FloatArray,
        moves: Moves,
        ask: dict[str, Any],
    ) -> None:
        rows = self.model.native(given)
        ball: tp.LInf = tp.LInf(**moves.options)
        found = self._call(tp.feature_radius, rows, ball, ask, f"feature radius {moves.name}")
        if found is not None:
            problems = checks.feature_problems(asked, reached, None, found)
            self._record(
                "feature radius", asked.claim, moves.name, asked, problems, None, ask, ball
            )
        eps = self._eps(levels, 1.0)[0]
        ball = tp.LInf(eps, **moves.options)
        found = self._call(tp.unimportant_features, rows, ball, ask, f"unimportant {moves.name}")
        if found is not None:
            problems = checks.feature_problems(asked, reached, eps, found)
            self._record("unimportant", asked.claim, moves.name, asked, problems, None, ask, ball)

    def _attackers(self, rows: FloatArray, claim: Claim) -> tuple[Any, dict[str, Any]]:
        """Now and then only rows of one class are attacked."""
        still = np.zeros(len(rows), dtype=bool)
        classes = self.model.classes
        if not classes or self.random.random() > 0.1:
            return still, {}
        chosen = int(self.random.integers(len(classes)))
        if claim.labels is not None:
            own = np.array([classes.index(label) for label in claim.labels])
        else:
            own = self.table.labels[self.table.flat(self.table.states(rows))]
        return own != chosen, {"attacker_class": classes[chosen]}

    def _eps(self, levels: list[Level | None], radius: float) -> list[float]:
        """Radii of some rows, each exactly, or one float beside."""
        from tests.oracle.library_truth import as_double

        values = [value for value in (as_double(level)[0] for level in levels) if value < np.inf]
        chosen = [radius, 0.0, float(self.random.random() * 5)]
        if values:
            value = float(self.random.choice(values))
            with np.errstate(over="ignore"):
                chosen = [value, float(np.nextafter(value, np.inf)), *chosen]
            if value > 0.0:
                chosen.append(float(np.nextafter(value, 0.0)))
            chosen.append(float(self.random.choice(values)))
        return self.random.choice(chosen, size=min(3, len(chosen)), replace=False).tolist()

    def _call(
        self, function: Any, rows: Any, moves: Any, ask: dict[str, Any], name: str, **more: Any
    ) -> Any:
        options = {key: value for key, value in ask.items() if key != "y"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return function(self.loaded, rows, ask["y"], perturbation=moves, **options, **more)
        except Exception as error:  # every one of them is a finding
            self._note(_words(name, moves, ask, 0), [], f"{type(error).__name__}: {error}")
            return None

    def _count(self, kind: str, claim: Claim, moves: str, n: int) -> None:
        self.tally.counts[self.model.library, kind, claim.name, moves] += n

    def _record(
        self,
        kind: str,
        claim: Claim,
        moves: str,
        asked: Asked,
        problems: Iterator[Problem],
        found: Any,
        ask: dict[str, Any],
        perturbation: Any,
    ) -> None:
        self._count(kind, claim, moves, len(asked.rows))
        if found is not None:
            self.tally.near_ties += sum(checks.NEAR_TIE in str(reason) for reason in found.reason)
        for row, text in problems:
            self._note(_words(kind, perturbation, ask, row), asked.rows[row], text)

    def _note(self, question: str, row: Any, text: str) -> None:
        self.tally.mismatches.append(Mismatch(self.number, self.model, question, row, text))


def _one(ask: dict[str, Any], row: int) -> dict[str, Any]:
    """The same question about one of the rows."""
    alone = dict(ask)
    if alone["y"] is not None:
        alone["y"] = [alone["y"][row]]
    goal = alone["goal"]
    if isinstance(goal, tp.ScoreWithin) and np.ndim(goal.low):
        alone["goal"] = tp.ScoreWithin(float(goal.low[row]), float(goal.high[row]))
    return alone


def _words(kind: str, moves: Any, ask: dict[str, Any], row: int) -> str:
    """A question about one row, as short as it can be repeated from."""
    options = {}
    for name in moves.__dataclass_fields__:
        value = getattr(moves, name)
        if np.ndim(value) == 2:
            value = value[row]
        if not (np.ndim(value) == 0 and value in (None, (), 1.0, -np.inf, np.inf)):
            options[name] = np.asarray(value).tolist()
    words = ", ".join(f"{name}={value!r}" for name, value in options.items())
    asked = {name: value for name, value in _one(ask, row).items() if value is not None}
    return f"{kind}; {type(moves).__name__}({words}); {asked}"


def ask_about(
    seed: int, number: int, library: str, tally: Tally, *, n_moves: int = 2, n_rows: int = 16
) -> None:
    """Train one model and ask a series of questions about it.

    Parameters
    ----------
    seed, number : int
        What the model and the questions are made from.
    library : str
        Whose model.
    tally : Tally
        Receives counts and mismatches.
    n_moves, n_rows : int
        How many perturbations, and how many rows for each.
    """
    random = np.random.default_rng([seed, number, LIBRARIES.index(library)])
    try:
        model = trained_model(random, library)
    except NotTrained as error:
        tally.skipped[f"{library} refused the data ({str(error)[:60]!r})"] += 1
        return
    if Table.size(model) > LARGEST_TABLE:
        tally.skipped["too many cells"] += 1
        return
    try:
        asker = Asker(random, number, model, tally)
    except TreeproofError as error:
        tally.skipped[f"{library}: {type(error).__name__} {str(error)[:60]!r}"] += 1
        return
    tally.models[f"{library} {model.kind}"] += 1
    asker.ask(n_moves, n_rows)


def run(
    questions: int, seed: int, libraries: tuple[str, ...] = LIBRARIES, *, show: int = 0
) -> Tally:
    """Ask until so many questions are asked, one library after the other in turns."""
    tally, number, shown = Tally(), 0, 0
    start = time.perf_counter()
    last = start
    while tally.n_questions < questions:
        ask_about(seed, number, libraries[number % len(libraries)], tally)
        number += 1
        for mismatch in tally.mismatches[shown:show]:
            print(mismatch, flush=True)
        shown = max(shown, min(len(tally.mismatches), show))
        if show and time.perf_counter() - last > 60.0:
            last = time.perf_counter()
            print(
                f"{tally.n_questions:,} questions about {sum(tally.models.values()):,} models in"
                f" {last - start:.0f} s, {len(tally.mismatches):,} mismatches",
                file=sys.stderr,
                flush=True,
            )
    return tally


def main() -> int:
    """Run a campaign from the shell."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.library_oracle")
    parser.add_argument("--questions", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", action="append", choices=LIBRARIES)
    parser.add_argument("--only", type=int, help="ask about the model of this number alone")
    parser.add_argument("--show", type=int, default=1000, help="print so many mismatches")
    options = parser.parse_args()
    libraries = tuple(options.library or LIBRARIES)
    if options.only is None:
        tally = run(options.questions, options.seed, libraries, show=options.show)
    else:
        tally = Tally()
        library = libraries[options.only % len(libraries)]
        ask_about(options.seed, options.only, library, tally)
        for mismatch in tally.mismatches[: options.show]:
            print(mismatch)
    for line in tally.lines():
        print(line)
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
