"""Reasons: sets of features that fix the answer, found in one compiled call per batch of rows."""

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.batches import CHUNK, batch_of, forest_of, single_constraints
from treeproof.engines.exact import REASON, ExactEngine, limits_of
from treeproof.engines.instance import lie_in_set
from treeproof.engines.outcomes import mark_verified, mark_witnessed, write_witnesses
from treeproof.errors import InvalidInput
from treeproof.kernels.core.plain import turns
from treeproof.kernels.core.status import FOUND, PROVED
from treeproof.kernels.exact.reason_sets import ReasonColumns, Wishes, reason_batch
from treeproof.kernels.exact.reasons import ALWAYS, ANY, NEVER, Units
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import Ensemble
from treeproof.prediction import in_slices, thread_count
from treeproof.query.description import describe, plain
from treeproof.query.names import feature_number, in_feature_order
from treeproof.query.prices import Pricing
from treeproof.query.query import Query
from treeproof.results.numbers import ColumnFormats
from treeproof.results.reasons import Reasons
from treeproof.results.results import Results
from treeproof.results.run_file import header_record
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.progress import Progress, telling
from treeproof.search.question import assemble_results, model_words
from treeproof.search.shown import shown_points

FloatArray = NDArray[np.float64]

NO_SET = "features that must not be used break the claim by themselves"
ALREADY_BROKEN = "the row breaks the claim as it stands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for beside one minimal set; see `treeproof.reasons`.

    weights : float64 (n_features,)
    always, never : feature numbers; all features of a group, or none
    groups : feature numbers of each group, rising; no feature is in two
    """

    weights: FloatArray
    always: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    minimum: bool = False
    n_sets: int = 1
    n_changes: int = 0
    intervals: bool = False

    @classmethod
    def of(
        cls,
        ensemble: Ensemble,
        *,
        weights: Any = None,
        always: Any = (),
        never: Any = (),
        groups: Any = (),
        n_sets: int = 1,
        n_changes: int = 0,
        **options: Any,
    ) -> "Wanted":
        """Check what a user passes, and resolve names of features."""
        for name, count, least in (("n_sets", n_sets, 1), ("n_changes", n_changes, 0)):
            if isinstance(count, bool) or int(count) != count or count < least:
                raise InvalidInput(f"'{name}' must be a whole number >= {least}. Got {count!r}.")
        together = _groups(ensemble, groups)
        use, avoid = (_whole(_numbers(ensemble, given), together) for given in (always, never))
        if set(use) & set(avoid):
            raise InvalidInput(
                "A feature must not be in both 'always' and 'never'. Got one that is."
            )
        if n_changes and (use or avoid):
            raise InvalidInput(
                "'n_changes' must be 0 with 'always' or 'never', which are about sufficient sets."
                f" Got {n_changes}. Ask about changes without them."
            )
        return cls(
            weights=_whole_weights(ensemble, weights),
            always=use,
            never=avoid,
            groups=together,
            n_sets=int(n_sets),
            n_changes=int(n_changes),
            **options,
        )

    def words(self) -> dict[str, Any]:
        """What differs from a plain question, as plain data."""
        words: dict[str, Any] = {}
        if np.any(self.weights != 1.0):
            words["weights"] = self.weights.tolist()
        for name in ("always", "never"):
            if getattr(self, name):
                words[name] = list(getattr(self, name))
        if self.groups:
            words["groups"] = [list(group) for group in self.groups]
        return words

    def members(self) -> list[tuple[int, ...]]:
        """Features of every unit: those of a group, or one alone."""
        of_first = {group[0]: group for group in self.groups}
        grouped = {feature for group in self.groups for feature in group}
        alone = (f for f in range(len(self.weights)) if f in of_first or f not in grouped)
        return [of_first.get(feature, (feature,)) for feature in alone]

    def units(self) -> Units:
        """Groups, and every other feature by itself; a group weighs what its heaviest does."""
        members = self.members()
        use = np.full(len(self.weights), ANY, dtype=np.int64)
        use[list(self.always)] = ALWAYS
        use[list(self.never)] = NEVER
        feature = np.concatenate(members).astype(np.int64)
        sizes = [len(features) for features in members]
        owner = np.empty_like(feature)
        owner[feature] = np.repeat(np.arange(len(members)), sizes)
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        weight = np.array([self.weights[list(features)].max() for features in members])
        return Units(owner, first, feature, weight, use[feature[first[:-1]]])


def _numbers(ensemble: Ensemble, given: Any) -> tuple[int, ...]:
    """Numbers of features given by name or number."""
    items: Any = (given,) if isinstance(given, str | int | np.integer) else given
    names = ensemble.feature_names
    return tuple(sorted({feature_number(item, ensemble.n_features, names) for item in items}))


def _groups(ensemble: Ensemble, given: Any) -> tuple[tuple[int, ...], ...]:
    """Groups of features, each given by names or numbers."""
    one = str | int | np.integer
    if isinstance(given, one) or any(isinstance(items, one) for items in given):
        raise InvalidInput(
            f"'groups' must be a list of groups, each a list of features. Got {given!r}."
        )
    groups = tuple(group for items in given if (group := _numbers(ensemble, items)))
    every = [feature for group in groups for feature in group]
    if len(set(every)) < len(every):
        raise InvalidInput(f"A feature must not be in two of the 'groups'. Got {given!r}.")
    return groups


def _whole(features: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Features, with all others of their groups."""
    found = set(features)
    for group in groups:
        if found & set(group):
            found |= set(group)
    return tuple(sorted(found))


def _whole_weights(ensemble: Ensemble, given: Any) -> FloatArray:
    """Weights in the order of the model's features; sums of whole numbers are exact."""
    n = ensemble.n_features
    ordered = in_feature_order("weights", given, ensemble.feature_names, n, 1.0)
    weights = np.ones(n) if ordered is None else np.asarray(ordered, dtype=np.float64)
    if weights.shape not in ((), (n,)):
        raise InvalidInput(f"'weights' must have one number per feature, {n}. Got {weights.shape}.")
    weights = np.broadcast_to(weights, (n,)).copy()
    wrong = weights[~((weights >= 1.0) & (weights <= 2.0**30) & (weights == np.floor(weights)))]
    if wrong.size:
        raise InvalidInput(
            f"'weights' must be whole numbers from 1 to 2**30. Got {float(wrong[0])!r}."
        )
    return weights


def in_domain(query: Query) -> Query:
    """The same question with a box around every row that holds the row itself.

    A feature that is kept has the row's own value, so that value is always allowed.
    """
    if query.pricing is not None:
        rows, pricing = query.rows, query.pricing
        bounds = np.fmin(pricing.low, rows), np.fmax(pricing.high, rows)
        pricing = dataclasses.replace(pricing, low=bounds[0], high=bounds[1])
        return dataclasses.replace(query, pricing=pricing)
    low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
    anywhere = np.full(query.rows.shape[1], np.inf)
    reach = dataclasses.replace(
        query.reach,
        down=anywhere,
        up=anywhere,
        low=np.fmin(low, query.rows),
        high=np.fmax(high, query.rows),
        radius=np.inf,
        is_ball=False,
    )
    return dataclasses.replace(query, reach=reach)


def new_reasons(query: Query) -> Reasons:
    """Results about the rows of a query in which nothing is known yet."""
    kept = [np.flatnonzero(entries) for entries in query.never_moved()]
    results = Reasons.empty(query.rows.copy(), query.class_labels(query.labels), kept)
    results.feature_names = query.ensemble.feature_names
    results.question = query.words()
    results.reason[query.already_broken] = ALREADY_BROKEN
    return results


def find_reasons(
    query: Query,
    wanted: Wanted,
    budget: Budget,
    *,
    evidence: bool = False,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Reasons:
    """Find reasons for every row; limits are per row, and count over all questions asked."""
    query = in_domain(query)
    n_rows, results = len(query), new_reasons(query)
    if wanted.intervals:
        results.intervals = [np.zeros((0, 2)) for _ in range(n_rows)]
    wishes = Wishes(wanted.n_sets, wanted.n_changes, wanted.minimum, wanted.intervals)
    members, units = wanted.members(), wanted.units()
    forest, alternatives = forest_of(query), single_constraints(query)
    sides, limits = (query.reach.low, query.reach.high), limits_of(query, budget)

    def search(part: slice) -> None:
        for turn in turns(reason_batch, part):
            search_turn(turn)

    def search_turn(part: slice) -> None:
        batch = batch_of(query, sides, query.already_broken, part)
        count = len(batch.rows)
        columns = ReasonColumns(
            np.zeros((count, 2), dtype=np.int64), results.seconds[part], np.zeros((count, 4), int)
        )
        whole, real = reason_batch(forest, alternatives, batch, units, wishes, limits, columns)
        begin = np.zeros(2, dtype=np.int64)
        found = []
        for place, end in enumerate(columns.ends):
            if not batch.skip[place]:
                numbers = iter(whole[begin[0] : end[0]].tolist())
                moved = real[begin[1] : end[1]]
                found.append(_FoundRow(part.start + place, numbers, moved, wishes))
            begin = end
        _confirm(query, found)
        for row in found:
            row.write(query, results, wanted.always, members)
        if tell is not None:
            tell(count)

    with telling(progress, n_rows) as tell:
        in_slices(range(0, n_rows, CHUNK), thread_count(n_jobs), search)
    describe_reasons(query, results, wanted)
    if evidence:
        record_reasons(query, results, budget, n_jobs)
    return results


def describe_reasons(query: Query, results: Reasons, wanted: Wanted) -> None:
    """Say in results what was asked, and give changes the numbers in which they are shown."""
    counts = [len(points) for points in results.change_rows]
    if sum(counts):
        owners = np.repeat(np.arange(len(query)), counts)
        points = np.concatenate(results.change_rows)
        points = shown_points(query, owners, points, ColumnFormats(query.rows))
        results.change_rows = np.split(points, np.cumsum(counts)[:-1])
    words = {"kind": "reasons", "minimum": wanted.minimum} | wanted.words()
    results.question = words | results.question
    results.header = header_record(model_words(query), words | query.description)


def record_reasons(query: Query, results: Reasons, budget: Budget, n_jobs: int) -> None:
    """Prove on record that sets suffice, and that no feature can be left out: a run of its own.

    For every set a verified row, whose box holds what the set leaves open; and for each of its
    features a falsified one, with the witness that the feature is needed. In a `Domain`, each of
    them has a domain of its own, in which features of the set keep their values.
    """
    results.evidence = np.full(len(query), None, dtype=object)
    entries = [
        (row, place)
        for row in np.flatnonzero(results.sufficient).tolist()
        for place in range(-1, len(results.features[row]))
        if place < 0 or not np.isnan(results.witnesses[row][place]).all()
    ]
    size = 1 if query.pricing is not None else max(len(entries), 1)
    for first in range(0, len(entries), size):
        _record(query, results, entries[first : first + size], budget, n_jobs)


def _record(
    query: Query, results: Reasons, entries: list[tuple[int, int]], budget: Budget, n_jobs: int
) -> None:
    """Record some sets (place -1) and witnesses of their features, by row and place."""
    if results.evidence is None:
        return
    asked = query.take(np.array([row for row, _ in entries]))
    boxes = [left_open(query, results, row, place) for row, place in entries]
    low, high = (np.array(side) for side in zip(*boxes, strict=True))
    box = {"name": "Box", "low": plain(low.tolist()), "high": plain(high.tolist())}
    if asked.pricing is not None:
        pricing = _kept_in(asked.pricing, results, *entries[0])
        pricing = dataclasses.replace(pricing, low=low, high=high)
        asked = dataclasses.replace(asked, pricing=pricing)
        box["domain"] = pricing.types.words()
    asked = dataclasses.replace(
        asked,
        reach=dataclasses.replace(asked.reach, low=low, high=high),
        description=query.description | {"perturbation": box},
    )
    found = Results.empty(*asked.rows.shape)
    is_base = np.array([place < 0 for _, place in entries])
    mark_verified(asked, found, np.flatnonzero(is_base))
    shown = np.flatnonzero(~is_base)
    if shown.size:
        points = np.array([results.witnesses[entries[i][0]][entries[i][1]] for i in shown])
        write_witnesses(asked, found, shown, points, asked.replay(points, shown)[1])
        mark_witnessed(asked, found, shown)
    words = {"kind": "verify", "engine": describe(ExactEngine())}
    run = assemble_results(asked, found, words, budget, n_jobs)
    for number, (row, place) in enumerate(entries):
        if place < 0:
            results.evidence[row] = [None] * (1 + len(results.features[row]))
        results.evidence[row][place + 1] = (
            run.evidence[number] if run.evidence is not None else None
        )
        if run.verdict[number] == Verdict.UNKNOWN:
            # The checker does not accept it, so nothing is claimed.
            results.reason[row] = run.reason[number]
            results.minimal[row] = False
            results.sufficient[row] &= place >= 0


def _kept(results: Reasons, row: int, place: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Features that a row's set keeps, and which of these may move in their intervals.

    Without one of its features, by place, those that are left: then none of them moves. What is
    left out with a feature is its whole group.
    """
    features = results.features[row]
    if place >= 0:
        kept = features[~np.isin(features, results.group_of(features[place]))]
        return kept, np.zeros(len(kept), dtype=bool)
    if results.intervals is None:
        return features, np.zeros(len(features), dtype=bool)
    return features, ~np.isnan(results.intervals[row][:, 0])


def _kept_in(pricing: Pricing, results: Reasons, row: int, place: int) -> Pricing:
    """The domain of one row, in which features of its set keep their values, or do not go missing.

    The checker makes the same of the words of the question.
    """
    kept, moves = _kept(results, row, place)
    types, values = pricing.types, pricing.rows[0]
    may_miss, may_fill = types.may_miss.copy(), types.may_fill.copy()
    may_miss[kept] = may_fill[kept] = False
    fixed = kept[~moves].tolist()
    own = {f: np.array([values[f]]) for f in fixed if not np.isnan(values[f])}
    may_become = {f: own.get(f, codes) for f, codes in types.may_become.items()}
    stays = np.zeros_like(pricing.stays)
    stays[0, pricing.axes.axis_of[fixed]] = True
    changed = dataclasses.replace(
        types, may_miss=may_miss, may_fill=may_fill, may_become=may_become
    )
    return dataclasses.replace(pricing, types=changed, stays=stays)


def left_open(
    query: Query, results: Reasons, row: int, place: int
) -> tuple[FloatArray, FloatArray]:
    """Ends of the box that a row's set leaves open; without one of its features, by place."""
    sides: Any = query.reach if query.pricing is None else query.pricing
    low, high, values = sides.low[row].copy(), sides.high[row].copy(), query.rows[row]
    kept, moves = _kept(results, row, place)
    fixed = kept[~moves & ~np.isnan(values[kept])]
    low[fixed] = high[fixed] = values[fixed]
    if moves.any() and results.intervals is not None:
        real = (
            np.float64 if query.pricing is None else np.dtype(query.ensemble.input_precision).type
        )
        for feature, (first, end) in zip(kept[moves], results.intervals[row][moves], strict=True):
            low[feature] = first if np.isfinite(first) else low[feature]
            # Sound: an interval ends before a threshold, so at the last number before it.
            if np.isfinite(end):
                high[feature] = np.nextafter(real(end), real(-np.inf))
    return low, high


class _FoundRow:
    """What a kernel found about a row; see `reason_row` for the order of the numbers."""

    def __init__(self, row: int, numbers: Iterator[int], real: FloatArray, wishes: Wishes) -> None:
        def some(count: int) -> list[int]:
            return list(itertools.islice(numbers, count))

        self.row = row
        self.answer = next(numbers)
        self.is_complete, self.no_other_change = bool(next(numbers)), bool(next(numbers))
        self.faces: list[list[int]] = []
        if wishes.has_intervals and self.answer == PROVED:
            while (feature := next(numbers)) >= 0:
                self.faces.append([feature, *some(4)])
        self.sets = []
        for _ in range(next(numbers)):
            status, size = some(2)
            pairs = some(2 * size)
            self.sets.append((status, pairs[::2], pairs[1::2]))
        self.changes = []
        for _ in range(next(numbers)):
            point, is_minimal, size = some(3)
            self.changes.append((point, bool(is_minimal), some(size)))
        self.changed = []
        for _ in range(next(numbers)):
            self.changed.append(some(next(numbers)))
        self.moved, self.bounds = real[:-2], real[-2:]
        self.points = np.zeros((0, 0))
        self.confirmed = np.zeros(0, dtype=bool)

    def fill_points(self, values: FloatArray) -> None:
        """Rows of the points that were found."""
        self.points = np.tile(values, (len(self.changed), 1))
        begin = 0
        for point, features in zip(self.points, self.changed, strict=True):
            point[features] = self.moved[begin : begin + len(features)]
            begin += len(features)

    def _known(self, numbers: list[int]) -> NDArray[np.bool_]:
        """Which points, by number, were confirmed; -1 is none."""
        return np.array([number >= 0 and bool(self.confirmed[number]) for number in numbers], bool)

    def write(
        self,
        query: Query,
        results: Reasons,
        always: tuple[int, ...],
        members: list[tuple[int, ...]],
    ) -> None:
        """Write down what is proved, and shown by points that were confirmed."""
        row = self.row
        stays = np.isnan(query.rows[row]) | query.ensemble.is_categorical

        def spread(units: list[int], numbers: list[int]) -> tuple[list[int], list[int]]:
            """Features of units, rising, and the numbers of their units; some never move."""
            pairs = zip(units, numbers, strict=True)
            entries = sorted((f, n) for unit, n in pairs for f in members[unit] if not stays[f])
            return [feature for feature, _ in entries], [number for _, number in entries]

        if self.answer != PROVED:
            results.reason[row] = NO_SET if self.answer == FOUND else _why(self.answer)
            return
        results.sufficient[row] = True
        sets = [(status, *spread(units, numbers)) for status, units, numbers in self.sets]
        status, features, numbers = sets[0]
        results.sets[row] = [np.array(features, dtype=np.int64) for _, features, _ in sets]
        results.features[row] = results.sets[row][0]
        shown = self._known(numbers)
        results.witnesses[row] = np.full((len(features), query.rows.shape[1]), np.nan)
        results.witnesses[row][shown] = self.points[np.array(numbers, dtype=int)[shown]]
        shown |= np.isin(features, always)
        results.minimal[row] = bool(shown.all())
        if not shown.all():
            results.reason[row] = _why(status)
        are_minimal = all(
            bool((self._known(points) | np.isin(features, always)).all())
            for _, features, points in sets
        )
        results.complete[row] = self.is_complete and are_minimal
        results.size_lower_bound[row], results.change_lower_bound[row] = self.bounds
        changes = [change for change in self.changes if self._known([change[0]]).all()]
        results.changes[row] = [
            np.array(spread(units, units)[0], dtype=np.int64) for _, _, units in changes
        ]
        results.all_changes[row] = self.no_other_change and len(changes) == len(self.changes)
        results.change_rows[row] = self.points[[number for number, _, _ in changes]]
        results.changes_minimal[row] = all(is_minimal for _, is_minimal, _ in changes)
        if results.intervals is not None:
            results.intervals[row], results.widest[row] = self._intervals(query, features)

    def _intervals(self, query: Query, features: list[int]) -> tuple[FloatArray, bool]:
        """Ends of the features' intervals, and whether all of them are as far out as they can be.

        Cell c begins at threshold c - 1, inclusive, and ends before threshold c.
        """
        ends = np.tile([-np.inf, np.inf], (len(features), 1))
        is_widest = True
        for feature, low, low_point, high, high_point in self.faces:
            place, cuts = features.index(feature), cuts_of(query.ensemble).of(feature)
            if low_point != -1:
                ends[place, 0] = cuts[low - 1]
                is_widest &= bool(self._known([low_point])[0])
            if high_point != -1:
                ends[place, 1] = cuts[high]
                is_widest &= bool(self._known([high_point])[0])
        return ends, is_widest


def _why(status: int) -> str:
    return str(REASON.get(status, UnknownReason.SOLVER_FAILED).value)


def _confirm(query: Query, found: list[_FoundRow]) -> None:
    """Replay the points of all rows by the plain model, and see that they lie in the domain."""
    for row in found:
        row.fill_points(query.rows[row.row])
    counts = [len(row.points) for row in found]
    if not sum(counts):
        return
    owners = np.repeat([row.row for row in found], counts)
    points = np.concatenate([row.points for row in found])
    sure = lie_in_set(query, owners, points) & query.is_broken_by(points, owners)
    for row, part in zip(found, np.split(sure, np.cumsum(counts)[:-1]), strict=True):
        row.confirmed = part
