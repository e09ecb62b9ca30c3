"""Forged files of reasons: none that says something false is accepted.

    python -m tests.campaigns.forged_reasons [--first N] [--cases N]

Reasons of random models, in boxes and in domains, are checked first, and compared with the
enumeration of all points. Then headers, sets, intervals, witnesses and evidence are forged, one to
three lies at a time; the claims inside the evidence mostly fit what the file says then.
"""

import copy
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import treeproof as tp
from tests import random_domains
from tests.campaigns.forged_costs import forged_kept, forged_proof
from tests.campaigns.forged_rules import run
from tests.oracle.domains import breaks_domain
from tests.oracle.reasons import DomainTruth, RowTruth
from tests.strategies import Sizes, random_case
from tests.unit.checker.certificates import packed, unpacked
from treeproof.checker import check_reasons
from treeproof.checker import reasons as checker
from treeproof.errors import TreeproofError
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble
from treeproof.model.rows import row_hash
from treeproof.prediction import Model
from treeproof.query.build import build_query
from treeproof.query.description import plain
from treeproof.query.query import Query
from treeproof.search.reasons import in_domain

SIZES = Sizes(trees=4, depth=3, features=4, rows=2)
GOALS: dict[str, Any] = {
    "KeepsLabel": tp.KeepsLabel,
    "AvoidsTarget": tp.AvoidsTarget,
    "ScoreChange": tp.ScoreChange,
    "ScoreWithin": tp.ScoreWithin,
}
HARMLESS = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
"""What lies run into where an earlier one has left nothing to lie about."""


@dataclass
class File:
    """A header, rows, and the model that they are about."""

    header: dict[str, Any]
    rows: list[dict[str, Any]]
    ensemble: Ensemble


def genuine(seed: int) -> File | None:
    """Reasons with evidence of a random model; None where there is no such question."""
    rng = np.random.default_rng([24, 1, seed])
    options: dict[str, Any] = {"evidence": True, "intervals": bool(rng.random() < 0.5)}
    if seed % 2:
        priced = random_domains.random_case(rng, kinds=("Box",))
        ensemble, rows, box, goal = priced.ensemble, priced.rows, priced.perturbation, None
    else:
        case = random_case(rng, SIZES, ask="box", own_labels=True)
        ensemble, rows, box, goal = case.ensemble, case.query.rows, case.perturbation, case.goal
    box = tp.Box(np.fmin(box.low, rows), np.fmax(box.high, rows), box.domain)
    n = ensemble.n_features
    if rng.random() < 0.3:
        options["always"] = [int(rng.integers(n))]
    if n > 1 and rng.random() < 0.3 and box.domain is None:
        options["groups"] = [sorted(rng.choice(n, 2, replace=False).tolist())]
    options["arithmetic"] = "real" if rng.random() < 0.3 else "float64"
    try:
        found = tp.reasons(Model(ensemble), rows, domain=box, goal=goal, **options)
    except TreeproofError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reasons.jsonl"
        found.save(path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    return File(lines[0], lines[1:], ensemble)


def statuses(file: File, path: Path) -> list[Any]:
    """What the checker says of every row."""
    lines = [json.dumps(plain(line)) for line in (file.header, *file.rows)]
    path.write_text("".join(line + "\n" for line in lines))
    return list(check_reasons(path, file.ensemble))


# The truth.


def _numbers(value: Any) -> Any:
    return [_numbers(v) for v in value] if isinstance(value, list) else float(value)


def domain_of(words: Any) -> tp.Domain | None:
    """A domain, of its words."""
    if words is None:
        return None
    groups = words.get("groups", [])
    return tp.Domain(
        integer=words.get("integer", []),
        values=dict(words.get("values", [])),
        ranges={f: (float(a), float(b)) for f, a, b in words.get("ranges", [])},
        one_hot=[columns for columns, exactly in groups if exactly],
        at_most_one=[columns for columns, exactly in groups if not exactly],
        categorical={
            f: dict(codes) if codes and isinstance(codes[0], list) else codes
            for f, codes in words.get("categorical", [])
        },
        may_miss=words.get("may_miss", []),
        may_fill=words.get("may_fill", []),
        allow_broken_rows=words.get("allow_broken_rows", False),
        rules=words.get("rules", []),
    )


def _side(value: Any, row: int, n: int) -> np.ndarray:
    given = np.array(_numbers(value))
    return np.broadcast_to(given[row] if given.ndim == 2 else given, n).copy()


def question(file: File, row: dict[str, Any]) -> tuple[Query, tp.Box]:
    """What the header asks about a row, with the box of that row alone."""
    asked, n = file.header["question"], file.ensemble.n_features
    words = asked["perturbation"]
    values = np.array([[math.nan if v is None else float(v) for v in row["values"]]])
    low, high = (_side(words[side], row["row"], n) for side in ("low", "high"))
    box = tp.Box(np.fmin(low, values[0]), np.fmax(high, values[0]), domain_of(words.get("domain")))
    goal = dict(asked["goal"])
    options = {
        key: v[row["row"]] if isinstance(v, list) else v
        for key, v in goal.items() if key != "name"
    }  # fmt: skip
    for key in ("low", "high", "delta"):
        if key in options:
            options[key] = float(options[key])
    labels = [row["label"]] if asked["labels"] == "given" else None
    query = build_query(
        file.ensemble, values, labels, box, goal=GOALS[goal["name"]](**options),
        arithmetic=asked["arithmetic"],
    )  # fmt: skip
    return query, box


def falsehoods(file: File, row: dict[str, Any]) -> list[str]:
    """What is false in a row that says that its set suffices.

    A domain that contradicts itself, or a row that is not of it, cannot be asked about: what a set
    says of it is about fewer points, if any.
    """
    try:
        query, box = question(file, row)
    except (TreeproofError, *HARMLESS):
        return []
    classes = file.ensemble.classes
    if classes and file.header["question"]["labels"] != "given":
        scores = evaluate.margins(file.ensemble, query.rows)
        if row["label"] != classes[int(evaluate.label_indices(file.ensemble, scores)[0])]:
            return ["another label"]
    truth: Any
    if box.domain is None:
        truth = RowTruth(in_domain(query), 0)
        cells = truth.cells
    else:
        truth = DomainTruth(query, 0, box)
        if not truth.is_small:
            return []
        cells = truth.cells
    low = [min(own) for own in cells]
    high = [max(own) for own in cells]
    wrong = []
    ends = list(zip(low, high, strict=True))
    for at, feature in enumerate(row["features"]):
        interval = None if row["intervals"] is None else row["intervals"][at]
        ends[feature] = (truth.home[feature],) * 2
        if interval is not None and None not in interval:
            first, end = (float(e) for e in interval)
            value = float(row["values"][feature])
            if not (first <= value < end or value == end == math.inf):
                return ["an interval without the value of the row"]
            if box.domain is None or truth.numbers[feature]:
                ends[feature] = truth.interval(query, feature, np.array([first, end]))
            elif math.isinf(first) and math.isinf(end):
                ends[feature] = low[feature], high[feature]  # any choice
    if not truth.is_free([a for a, _ in ends], [b for _, b in ends]):
        wrong.append("it does not suffice")
    if row["minimal"]:
        wrong += _needless(file, query, box, truth, row)
    return wrong


def _needless(file: File, query: Query, box: tp.Box, truth: Any, row: dict[str, Any]) -> list[str]:
    """What is false where no feature can be left out."""
    asked, wrong = file.header["question"], []
    groups = {f: set(group) for group in asked.get("groups", []) for f in group}
    cells = truth.cells
    for feature, shown in zip(row["features"], row["witnesses"], strict=True):
        if feature in asked.get("always", ()):
            continue
        kept = set(row["features"]) - groups.get(feature, {feature})
        low = [truth.home[f] if f in kept else min(cells[f]) for f in range(len(cells))]
        high = [truth.home[f] if f in kept else max(cells[f]) for f in range(len(cells))]
        if truth.is_free(low, high):
            wrong.append(f"feature {feature} is not needed")
        point = np.array([math.nan if v is None else float(v) for v in shown])
        own = query.rows[0]
        is_same = (point == own) | (np.isnan(point) & np.isnan(own))
        if not is_same[list(kept)].all():
            wrong.append("witness: what is kept has changed")
        if not query.is_broken_by(point[np.newaxis], np.array([0]))[0]:
            wrong.append("witness: it breaks nothing")
        if box.domain is not None:
            said = breaks_domain(box, query.ensemble, query.rows, 0, point)
            wrong += [] if said is None else [f"witness: {said}"]
        else:
            moves = ~np.isnan(own) & ~file.ensemble.is_categorical
            reach = query.reach
            size = np.where(np.isfinite(point), np.abs(point), 0.0)
            step = np.spacing(size.astype(file.ensemble.input_precision)).astype(np.float64)
            inside = (point >= reach.low[0] - step) & (point <= reach.high[0] + step)
            wrong += [] if (is_same | (moves & inside)).all() else ["witness: outside of the box"]
    return wrong


# Lies.


class Forgery:
    """A file that is being forged, and one row of it."""

    def __init__(self, rng: np.random.Generator, file: File) -> None:
        self.rng, self.file = rng, copy.deepcopy(file)
        self.header = self.file.header
        self.at = int(rng.integers(len(self.file.rows)))
        self.row = self.file.rows[self.at]
        self.n = file.ensemble.n_features

    def pick(self, of: Any) -> Any:
        """One of several."""
        return of[int(self.rng.integers(len(of)))]

    def moved(self, value: Any) -> float:
        """Another number."""
        way, number = float(self.pick([-1.0, 1.0])), 0.3 if value is None else float(value)
        number = number if math.isfinite(number) else 0.3
        step = float(self.pick([0.05, 0.25, 0.5, 1.0, 1e-9]))
        return float(self.pick([np.nextafter(number, way * np.inf), number + way * step, 0.0]))

    def sealed(self) -> File:
        """The file, whose evidence speaks of the boxes that it says now."""
        row = self.row
        if self.rng.random() < 0.85 and row["evidence"]:
            try:
                self._fit()
            except (TreeproofError, *HARMLESS):
                pass
        return self.file

    def _fit(self) -> None:
        row = checker.msgspec.convert(self.row, checker.ReasonsRow)
        runs = checker._expanded(row, self.header, self.file.ensemble)
        boxes = [
            (header["question"]["perturbation"], record["row"])
            for header, records in runs
            for record in records
        ]
        for place, (words, number) in enumerate(boxes):
            text = self.row["evidence"][place]
            if text is None:
                continue
            claim, proof = unpacked(text)
            values = [math.nan if v is None else float(v) for v in self.row["values"]]
            claim["row"] = row_hash(np.array(values))
            if "moves" in claim:
                free = np.full(len(values), np.inf)
                sides = ([float(v) for v in words[side][number]] for side in ("low", "high"))
                claim["moves"] = row_hash(free, free, *sides)
            elif "kept" in claim and self.rng.random() < 0.5:
                claim["kept"] = forged_kept(self.rng, claim["kept"])
                proof = forged_proof(self.rng, proof, len(claim["kept"]))
            self.row["evidence"][place] = packed(claim, proof, text[:3])


def drop_feature(lie: Forgery) -> None:
    """A feature of the set is not needed."""
    at = int(lie.rng.integers(len(lie.row["features"])))
    for name in ("features", "witnesses"):
        del lie.row[name][at]
    del lie.row["evidence"][at + 1]
    if lie.row["intervals"] is not None:
        del lie.row["intervals"][at]


def add_feature(lie: Forgery) -> None:
    """A feature more, with a witness of another one or of its own."""
    others = [f for f in range(lie.n) if f not in lie.row["features"]]
    lie.row["features"].append(int(lie.pick(others)))
    shown = lie.pick([*lie.row["witnesses"], lie.row["values"]])
    lie.row["witnesses"].append(list(shown))
    lie.row["evidence"].append(lie.pick(lie.row["evidence"]))
    if lie.row["intervals"] is not None:
        lie.row["intervals"].append(lie.pick([["-inf", "inf"], [None, None]]))


def change_feature(lie: Forgery) -> None:
    """Another feature instead of one."""
    at = int(lie.rng.integers(len(lie.row["features"])))
    lie.row["features"][at] = int(lie.rng.integers(lie.n))


def change_interval(lie: Forgery) -> None:
    """An interval that is wider, has no ends, or was not there."""
    if lie.row["intervals"] is None or lie.rng.random() < 0.1:
        lie.row["intervals"] = [["-inf", "inf"] for _ in lie.row["features"]]
    at, side = int(lie.rng.integers(len(lie.row["intervals"]))), int(lie.rng.integers(2))
    value = lie.row["intervals"][at][side]
    lie.row["intervals"][at][side] = lie.pick([lie.moved(value), "-inf", "inf", None])


def change_values(lie: Forgery) -> None:
    """Another row."""
    at = int(lie.rng.integers(lie.n))
    lie.row["values"][at] = lie.pick([lie.moved(lie.row["values"][at]), None])


def change_label(lie: Forgery) -> None:
    """Another answer."""
    lie.row["label"] = lie.pick([*lie.file.ensemble.classes, None, 7])


def change_words(lie: Forgery) -> None:
    """What is kept besides, or what is said of the set."""
    name = str(lie.pick(["minimal", "minimal", "sufficient", "kept"]))
    if name == "kept":
        lie.row["kept"] = sorted({int(lie.rng.integers(lie.n))} ^ set(lie.row["kept"]))
    else:
        lie.row[name] = not lie.row[name]


def change_witness(lie: Forgery) -> None:
    """A witness is elsewhere, that of another feature, or the row itself."""
    at, way = int(lie.rng.integers(len(lie.row["witnesses"]))), lie.rng.random()
    if way < 0.5:
        feature = int(lie.rng.integers(lie.n))
        value = lie.row["witnesses"][at][feature]
        lie.row["witnesses"][at][feature] = lie.pick([lie.moved(value), None, "inf", 9.0])
    elif way < 0.8:
        other = int(lie.rng.integers(len(lie.row["witnesses"])))
        lie.row["witnesses"][at] = list(lie.row["witnesses"][other])
    else:
        lie.row["witnesses"][at] = list(lie.row["values"])


def change_evidence(lie: Forgery) -> None:
    """Proofs change places, come from another row, or are damaged."""
    texts = lie.row["evidence"]
    one, other = (int(n) for n in lie.rng.integers(len(texts), size=2))
    way = lie.rng.random()
    if way < 0.3:
        texts[one], texts[other] = texts[other], texts[one]
    elif way < 0.5:
        texts[0] = lie.pick(lie.pick(lie.file.rows)["evidence"])
    else:
        claim, proof = unpacked(texts[0])
        axes = len(claim.get("kept", [])) or lie.n
        damaged = forged_proof(lie.rng, proof, axes)
        if lie.rng.random() < 0.3:
            claim["set"] = str(lie.pick(["none", "open", "closed", "box"]))
        texts[0] = packed(claim, damaged, lie.pick(["E1:", "E2:"]))


def change_box(lie: Forgery) -> None:
    """Another domain: its ends."""
    words, side = lie.header["question"]["perturbation"], str(lie.pick(["low", "high"]))
    given = words[side]
    if isinstance(given, list) and given and isinstance(given[0], list):
        given = given[lie.row["row"]]
    if not isinstance(given, list):
        words[side] = given = [given] * lie.n
    at = int(lie.rng.integers(lie.n))
    given[at] = lie.pick([lie.moved(given[at]), "-inf", "inf"])


def change_domain(lie: Forgery) -> None:
    """Another domain: which values features take."""
    words = lie.header["question"]["perturbation"]
    if words.get("domain") is None:
        words["domain"] = {} if lie.rng.random() < 0.3 else None
        return
    types, feature = words["domain"], int(lie.rng.integers(lie.n))
    name = str(lie.pick(list(types)))
    if name in ("integer", "may_miss", "may_fill"):
        types[name] = sorted({feature} ^ set(types[name]))
    elif name == "values":
        types[name] = [e for e in types[name] if lie.rng.random() < 0.5]
        if lie.rng.random() < 0.5:
            types[name].append([feature, [0.0, 0.25, 1.0]])
    elif name == "ranges":
        types[name] = lie.pick([[], [[feature, "-inf", "inf"]], [[feature, -1.0, 1.0]]])
    elif name == "groups":
        types[name] = types[name][:-1] if lie.rng.random() < 0.5 else [
            [columns, not exactly] for columns, exactly in types[name]
        ]  # fmt: skip
    elif name == "categorical":
        types[name] = [[f, codes[:-1] if lie.rng.random() < 0.5 else [*codes, 2.0]]
                       for f, codes in types[name]]  # fmt: skip
    elif name == "rules":
        types[name] = types[name][:-1]


def change_question(lie: Forgery) -> None:
    """Groups, what is always there, the goal, labels, arithmetic or the model."""
    asked = lie.header["question"]
    name = str(lie.pick(["groups", "always", "goal", "labels", "arithmetic", "model", "n_rows"]))
    if name == "groups":
        asked["groups"] = lie.pick([[], [sorted({0, lie.n - 1})], [[int(lie.rng.integers(lie.n))]]])
    elif name == "always":
        asked["always"] = lie.pick([[], [int(lie.rng.integers(lie.n))], list(range(lie.n))])
    elif name == "goal":
        classes = list(lie.file.ensemble.classes)
        asked["goal"] = lie.pick([
            {"name": "KeepsLabel"}, {"name": "AvoidsTarget", "target": lie.pick([*classes, 7])},
            {"name": "ScoreChange", "delta": 0.1}, {"name": "ScoreChange", "delta": -1.0},
            {"name": "ScoreWithin", "low": "-inf", "high": 9.0},
        ])  # fmt: skip
    elif name == "labels":
        asked["labels"] = "given" if asked["labels"] != "given" else "the model's own"
    elif name == "arithmetic":
        asked["arithmetic"] = "real" if asked["arithmetic"] == "float64" else "float64"
    elif name == "model":
        key = str(lie.pick(["classes", "n_features", "input_precision", "decision"]))
        lie.header["model"][key] = lie.pick([[], 1, "float32", "score"])
    else:
        lie.header["n_rows"] += 1


LIES: list[Callable[[Forgery], None]] = [
    drop_feature, add_feature, change_feature, change_interval, change_interval, change_values,
    change_label, change_words, change_witness, change_evidence, change_box, change_domain,
    change_question,
]  # fmt: skip


def forged(rng: np.random.Generator, file: File) -> tuple[File, int, list[str]]:
    """A forged file, the row that was forged, and how."""
    lie, told = Forgery(rng, file), []
    for _ in range(int(rng.choice([1, 1, 2, 2, 3]))):
        one = lie.pick(LIES)
        told.append(one.__name__)
        try:
            one(lie)
        except HARMLESS:
            continue
    return lie.sealed(), lie.at, told


def judged(file: File, path: Path, rows: list[int]) -> Iterator[tuple[str, list[str], Any]]:
    """Status, falsehoods and reason of some rows."""
    checks = statuses(file, path)
    for number in rows:
        check = checks[number]
        is_said = check.status == "accepted" and file.rows[number]["sufficient"]
        yield check.status, falsehoods(file, file.rows[number]) if is_said else [], check.reason


def campaign(first: int, cases: int, per_file: int = 40, says: Any = print) -> Counter[str]:
    """Check and forge the files of some cases; what is false is counted, and told."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reasons.jsonl"
        for seed in range(first, first + cases):
            file = genuine(seed)
            if file is None or not file.rows:
                continue
            for status, wrong, reason in judged(file, path, list(range(len(file.rows)))):
                counts[f"genuine {status}"] += 1
                if status == "rejected" or wrong:
                    counts["false"] += 1
                    says(f"seed {seed}: genuine {status} {reason} {wrong} {file}")
            rng = np.random.default_rng([24, 2, seed])
            for _ in range(per_file):
                other, at, told = forged(rng, file)
                if (other.header, other.rows) == (file.header, file.rows):
                    continue
                counts["forged"] += 1
                ((status, wrong, _),) = judged(other, path, [at])
                counts[f"forged {status}"] += 1
                if wrong:
                    counts["false"] += 1
                    counts[f"lie: {told}"] += 1
                    row = {k: v for k, v in other.rows[at].items() if k != "evidence"}
                    says(f"seed {seed}: accepted {told}: {wrong} {other.header['question']} {row}")
    return counts


if __name__ == "__main__":
    run(campaign, __doc__.partition("\n")[0])
