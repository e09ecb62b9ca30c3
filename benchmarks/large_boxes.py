"""Default forests of scikit-learn, whose radii are large and whose trees are deep, beside Veritas.

Run ``python -m benchmarks.large_boxes [--rows N] [--limit S] [--forests a;b] [--veritas N]
[--evidence N] [--others N]``; the tables go to ``benchmarks/results/large_boxes.md``, beside
what was measured before of other forests and other tables, or only to the terminal with ``--dry``.
Data is found by TREEPROOF_PAPER_DATA, by default ../shared.

Forests have default settings and random_state 0. The first rows of the test part that a forest gets
right are asked about one at a time, on one thread; seconds, also those of limits, are those of the
processor (processor_clock.py), for the whole call. Rows that take longer than a second are asked
again with that limit.

Veritas gets the same rows, or the first N: fifteen steps from twice the radius, the limit, in
seconds of the processor as well, shared by the other classes. Its trees are handed over as they
are, the differences of the two classes in the leaves, with ties on the side where the forest has
them. Its upper bound is the nearest of its points that the forest confirms.

The first N rows are answered with evidence, which is checked, and must be rejected with a radius
that is a hundredth larger and with a proof that ends early. As many as are wanted are also asked of
the dual search alone and of `milp`, with the same limit, whose exact radii must be the same.
"""

import argparse
import contextlib
import io
import json
import platform
import sys
import time
import timeit
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np
import sklearn
from benchmarks.processor_clock import UNIT
from benchmarks.subjects import DATA
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from tests.unit.checker.certificates import packed, unpacked

import treeproof
from treeproof.checker import RunChecker
from treeproof.engines import exact
from treeproof.prediction import Model
from treeproof.results.run_file import row_records

RESULTS = Path(__file__).parent / "results" / "large_boxes.md"
FORESTS = (
    *("ijcnn1", "covtype 10000", "covtype 50000", "mnist26", "higgs", "breast_cancer", "diabetes"),
    "ijcnn1, 400 trees",
)
KINDS = {"random forest": RandomForestClassifier, "extra trees": ExtraTreesClassifier}
SOON_S = 1.0
"""Bounds are compared after this, too."""
CLOSED = 0.999
"""A bracket of Veritas this narrow counts as an answer."""
TIE = 1e-4
"""Where the forest's own class wins ties, Veritas has to find this much more."""
NOTICED = 1e-4
"""Part of a radius by which another tool's bound is better, and not only rounded otherwise."""

COLUMNS = (
    *("forest", "leaves", "rows", "exact", "median s", "90 % s", "99 % s", "max s", "nodes"),
    *(
        "rows above 1 s",
        "their least lower / upper at 1 s",
        "open rows",
        "their least lower / upper",
    ),
)
VERITAS_COLUMNS = (
    *("forest", "rows", "answered", "lower / upper at 1 s", "ours", "at the limit", "ours"),
    "bounds better than ours",
)
EVIDENCE_COLUMNS = (
    *("forest", "rows", "exact", "accepted", "damaged", "rejected", "kB, median", "kB, largest"),
    *("seconds with evidence, median", "check s, median", "check s, largest"),
)
OTHERS_COLUMNS = (
    *("forest", "rows", "closed by the dual alone", "equal", "closed by milp", "equal"),
)

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """A forest with rows that it gets right."""

    name: str
    model: Model
    rows: Rows
    labels: NDArray[np.int64]


@dataclass
class Answer:
    """What a tool says about one row."""

    lower: float
    upper: float
    seconds: float

    @property
    def share(self) -> float:
        """Lower over upper bound."""
        return 1.0 if self.lower == self.upper else self.lower / self.upper


def table_of(name: str) -> tuple[Rows, NDArray[np.int64], Rows, NDArray[np.int64]]:
    """Training and test part of a data set."""
    with np.load(DATA / "data" / f"{name}.npz", allow_pickle=False) as table:
        X, y, rows, labels = (table[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    if X.dtype == np.uint8:
        X, rows = (part.astype(np.float32) / np.float32(255) for part in (X, rows))
    return X, y, rows, labels


def cases(names: list[str], n_rows: int) -> Iterator[Case]:
    """Both kinds of forest on each data set."""
    for name in names:
        data, _, n_trees = name.partition(", ")
        data, _, n_training = data.partition(" ")
        X, y, rows, labels = table_of(data)
        if n_training:
            X, y = X[: int(n_training)], y[: int(n_training)]
        for kind, estimator in KINDS.items():
            forest = estimator(random_state=0)
            if n_trees:
                forest.set_params(n_estimators=int(n_trees.split()[0]))
            model = treeproof.load(forest.fit(X, y))
            right = np.flatnonzero(model.predict(rows[:2_000]) == labels[:2_000])[:n_rows]
            yield Case(f"{name}, {kind}", model, rows[right], labels[right])


def ask(case: Case, row: int, limit_s: float) -> tuple[Answer, int]:
    """Our own answer about a row, and its nodes."""
    began = time.process_time()
    found = treeproof.radius(case.model, case.rows[[row]], case.labels[[row]], time_limit_s=limit_s)
    seconds = time.process_time() - began
    nodes = int(found.statistics["nodes"][0])
    return Answer(float(found.lower[0]), float(found.upper[0]), seconds), nodes


def least(answers: list[Answer]) -> str:
    """The worst share of some answers."""
    return f"{min(answer.share for answer in answers):.3f}" if answers else "–"


def line_of(case: Case, limit_s: float) -> tuple[tuple[str, ...], list[Answer], list[Answer]]:
    """A line of the table, and the answers after the limit and after a second."""
    treeproof.radius(case.model, case.rows[:1], time_limit_s=SOON_S)  # compiles
    asked = [ask(case, row, limit_s) for row in range(len(case.rows))]
    answers = [answer for answer, _ in asked]
    soon = [
        ask(case, row, SOON_S)[0] if answer.seconds > SOON_S else answer
        for row, answer in enumerate(answers)
    ]
    seconds = np.array([answer.seconds for answer in answers])
    slow = [one for one, answer in zip(soon, answers, strict=True) if answer.seconds > SOON_S]
    still_open = [answer for answer in answers if answer.lower < answer.upper]
    line = (
        case.name,
        f"{len(case.model.ensemble.trees.leaf_value):,}",
        str(len(answers)),
        f"{100 * (1 - len(still_open) / len(answers)):.0f} %",
        *(f"{np.percentile(seconds, part):.3f}" for part in (50, 90, 99, 100)),
        f"{np.median([nodes for _, nodes in asked]):,.0f}",
        str(len(slow)),
        least(slow),
        str(len(still_open)),
        least(still_open),
    )
    return line, answers, soon


class Patient:
    """A search of Veritas whose steps end after seconds of the processor."""

    def __init__(self, search: Any) -> None:
        self._search = search

    def __getattr__(self, name: str) -> Any:
        return getattr(self._search, name)

    def step_for(self, seconds: float, n_steps: int) -> None:
        """As Veritas's, which looks at the wall clock."""
        import veritas

        end = time.process_time() + seconds
        while (left := end - time.process_time()) > 0.0:
            reason = self._search.step_for(left, n_steps)
            if reason not in (veritas.StopReason.NONE, veritas.StopReason.OUT_OF_TIME):
                return


class Veritas:
    """Veritas on the rows of a case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._trees: dict[tuple[int, int], Any] = {}

    def trees(self, label: int, target: int) -> Any:
        """Trees whose sum is the target's part minus the label's, at least 0 where it may win."""
        import veritas

        if (label, target) in self._trees:
            return self._trees[label, target]
        ensemble = self._case.model.ensemble
        trees = ensemble.trees
        value = trees.leaf_value
        # Two classes may be one output: its sign tells.
        gain = value[:, target] - value[:, label] if value.shape[1] > 1 else value[:, 0]
        if value.shape[1] == 1 and target == 0:
            gain = -gain
        found = veritas.AddTree(1, veritas.AddTreeType.REGR)
        for tree in range(ensemble.n_trees):
            own = found.add_tree()
            waiting = [(int(trees.root[tree]), own.root())]
            while waiting:
                node, place = waiting.pop()
                if trees.feature[node] < 0:
                    own.set_leaf_value(place, float(gain[trees.leaf[node]]))
                    continue
                own.split(place, int(trees.feature[node]), float(trees.threshold[node]))
                waiting.append((node + 1, own.left(place)))
                waiting.append((int(trees.right[node]), own.right(place)))
        found.set_base_score(0, -TIE if label < target else 0.0)
        self._trees[label, target] = found
        return found

    def ask(self, row: int, upper: float, limit_s: float) -> Answer:
        """Bounds after a limit, from twice an upper bound."""
        import veritas

        case = self._case
        label, others = int(case.labels[row]), len(case.model.classes) - 1
        lower, nearest, seconds = np.inf, np.inf, 0.0
        for target in range(len(case.model.classes)):
            if target == label:
                continue
            trees = self.trees(label, target)
            began = time.process_time()
            with (
                contextlib.redirect_stdout(io.StringIO()),
                mock.patch.object(timeit, "default_timer", time.process_time),
            ):
                search = veritas.VeritasRobustnessSearch(
                    case.rows[row], 2.0 * min(upper, nearest), None, trees,
                    num_steps=15, max_time=limit_s / others, guard=1e-8, search_guard=1e-7,
                    silent=True,
                )  # fmt: skip
                search_of = search.get_search
                search.get_search = lambda delta, of=search_of: Patient(of(delta))
                _, proved, _ = search.search()
            seconds += time.process_time() - began
            lower = min(lower, proved)
            if search.generated_examples:
                points = np.array(search.generated_examples, dtype=np.float32)
                points = points[case.model.predict(points) != label]
                distance = np.abs(points - case.rows[row]).max(axis=1)
                nearest = min([nearest, *distance.tolist()])
        return Answer(lower, nearest, seconds)


def veritas_line(
    case: Case, answers: list[Answer], soon: list[Answer], n_rows: int, limit_s: float
) -> tuple[str, ...]:
    """A line of the table with Veritas."""
    tool = Veritas(case)
    n_better, shares = 0, []
    rows = range(min(n_rows, len(answers)))
    for row in rows:
        upper = answers[row].upper
        own_pair = (soon[row], answers[row])
        pair = tuple(tool.ask(row, upper, limit) for limit in (SOON_S, limit_s))
        for own, other in zip(own_pair, pair, strict=True):
            n_better += other.lower > own.lower * (1 + NOTICED) + 1e-7
            n_better += other.upper < own.upper * (1 - NOTICED) - 1e-7
        shares.append((pair[0].share, own_pair[0].share, pair[1].share, own_pair[1].share))
    medians = np.median(np.array(shares), axis=0)
    answered = np.mean([share[2] >= CLOSED for share in shares])
    return (
        case.name,
        str(len(rows)),
        f"{100 * answered:.0f} %",
        *(f"{median:.3f}" for median in medians),
        f"{n_better} of {4 * len(rows)}",
    )


def evidence_line(case: Case, n_rows: int, limit_s: float) -> tuple[str, ...]:
    """A line of the table of evidence."""
    seconds, checks, sizes = [], [], []
    n_exact = n_accepted = n_damaged = n_rejected = 0
    for row in range(min(n_rows, len(case.rows))):
        began = time.process_time()
        found = treeproof.radius(
            case.model, case.rows[[row]], case.labels[[row]], time_limit_s=limit_s, evidence=True
        )
        seconds.append(time.process_time() - began)
        n_exact += bool(found.exact[0])
        header, record = json.loads(json.dumps([found.header, *row_records(found)]))
        sizes.append(len(record["evidence"]) / 1e3)
        began = time.process_time()
        n_accepted += fate(case, header, record) == "accepted"
        checks.append(time.process_time() - began)
        # Both are false or no proof at all: the radius is exact, and a proof has no spare bytes.
        for lie in damaged(record) if found.exact[0] else ():
            n_damaged += 1
            n_rejected += fate(case, header, lie) == "rejected"
    return (
        case.name,
        *(str(count) for count in (len(sizes), n_exact, n_accepted, n_damaged, n_rejected)),
        *(f"{value:.1f}" for value in (np.median(sizes), max(sizes))),
        *(f"{value:.3f}" for value in (np.median(seconds), np.median(checks), max(checks))),
    )


def fate(case: Case, header: dict[str, Any], record: dict[str, Any]) -> str:
    """What the checker says about one row, in a run of its own."""
    return RunChecker(header, case.model.ensemble).check_all([record])[0].status


def damaged(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same evidence for a radius that is a hundredth larger, and without its last byte."""
    claim, proof = unpacked(record["evidence"])
    radius = 1.01 * float.fromhex(claim["radius"])
    wider = packed(claim | {"radius": radius.hex()}, proof)
    yield record | {"lower": radius, "upper": radius, "evidence": wider}
    yield record | {"evidence": packed(claim, proof[:-1])}


def others_line(case: Case, answers: list[Answer], n_rows: int, limit_s: float) -> tuple[str, ...]:
    """A line of the table with the dual search alone and with `milp`."""
    counts = []
    for engine in ("exact", "milp"):
        n_closed = n_equal = 0
        rows = range(min(n_rows, len(answers)))
        for row in rows:
            with mock.patch.multiple(exact, FOREST_PATIENCE=1 << 40, CLIQUE_PATIENCE=1):
                found = treeproof.radius(
                    case.model, case.rows[[row]], case.labels[[row]],
                    engine=engine, time_limit_s=limit_s,
                )  # fmt: skip
            # A row that only one of both closes has bounds that must agree.
            both = bool(found.exact[0]) and answers[row].lower == answers[row].upper
            n_closed += both
            n_equal += both and float(found.upper[0]) == answers[row].upper
            apart = found.lower[0] > answers[row].upper or found.upper[0] < answers[row].lower
            if apart:
                raise AssertionError(f"{case.name}, row {row}: {engine} differs")
        counts += [str(n_closed), str(n_equal)]
    return (case.name, str(len(rows)), *counts)


def table(columns: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Lines as a table."""
    rows = [columns, ("---",) * len(columns), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def saved() -> dict[str, dict[str, list[str]]]:
    """Lines of the forests that were measured before, by forest."""
    path = RESULTS.with_suffix(".json")
    return json.loads(path.read_text()) if path.exists() else {}


def save(name: str, lines: dict[str, list[str]]) -> str:
    """Put the lines of a forest among those of others and its own of before; returns the page."""
    known = saved()
    before = known.get(name, {})
    versions = sorted({*before.get("versions", []), *lines["versions"]})
    everything = known | {name: before | lines | {"versions": versions}}
    order = [f"{name}, {kind}" for name in FORESTS for kind in KINDS]
    everything = {name: everything[name] for name in order if name in everything}
    RESULTS.with_suffix(".json").write_text(json.dumps(everything, indent=1) + "\n")
    text = page(everything)
    RESULTS.write_text(text)
    return text


def page(everything: dict[str, dict[str, list[str]]]) -> str:
    """Both tables."""
    known = {words for lines in everything.values() for words in lines["versions"]}
    # Lines with Veritas have the versions of those without, and one more.
    versions = [
        words
        for words in sorted(known)
        if not any(other.startswith(f"{words},") for other in known)
    ]
    text = "# Large boxes: default forests\n\n" + "; ".join(versions)
    text += f"; one thread, {UNIT}. Made by `benchmarks/large_boxes.py`.\n\n"
    text += table(COLUMNS, [tuple(lines["ours"]) for lines in everything.values()])
    for title, key, columns in (
        ("Veritas on the first rows", "veritas", VERITAS_COLUMNS),
        ("Evidence of the first rows", "evidence", EVIDENCE_COLUMNS),
        ("The dual search alone and `milp` on the first rows", "others", OTHERS_COLUMNS),
    ):
        found = [tuple(lines[key]) for lines in everything.values() if lines.get(key)]
        if found:
            text += f"\n## {title}\n\n" + table(columns, found)
    return text


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each row")
    parser.add_argument("--forests", help=f"some of: {'; '.join(FORESTS)}, separated by ;")
    parser.add_argument("--veritas", type=int, default=0, metavar="N", help="rows for Veritas")
    parser.add_argument("--evidence", type=int, default=0, metavar="N", help="rows with evidence")
    parser.add_argument("--others", type=int, default=0, metavar="N", help="rows for other engines")
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    names = options.forests.split(";") if options.forests else list(FORESTS)
    versions = (
        f"treeproof {treeproof.__version__}, scikit-learn {sklearn.__version__},"
        f" numba {numba.__version__}, Python {platform.python_version()}, {platform.machine()},"
        f" at most {options.limit:g} s a row"
    )
    if options.veritas:
        versions += f", Veritas {version('dtai-veritas')}"
    for case in cases(names, options.rows):
        line, answers, soon = line_of(case, options.limit)
        lines = {"versions": [versions], "ours": list(line)}
        if options.veritas:
            other = veritas_line(case, answers, soon, options.veritas, options.limit)
            lines["veritas"] = list(other)
        if options.evidence:
            lines["evidence"] = list(evidence_line(case, options.evidence, options.limit))
        if options.others:
            lines["others"] = list(others_line(case, answers, options.others, options.limit))
        print(lines, file=sys.stderr, flush=True)
        if not options.dry:
            save(case.name, lines)
    print(page(saved()))


if __name__ == "__main__":
    main()
