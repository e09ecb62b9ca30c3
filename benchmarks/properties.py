"""Global properties: largest changes, fairness, monotonicity, the properties of CCS 2021, ranges.

Run ``python -m benchmarks.properties [--models NAME,...] [--veritas N]
[--parts change,longer,fair,monotone,range,constrained,ccs,evidence]``. Every answer goes to
``benchmarks/results/properties.csv`` at once, and is not asked for again by the next run;
``properties.md`` is made from that file at the end of each run, and by ``--parts ''``. Delete the
answers to start afresh.

Needs TREEPROOF_PAPER_DATA (by default ../shared), a folder that holds ``properties`` (models of
ensense, ICLR 2026, with the bounds of their domains) and ``tabular`` (cryptojacker of Chen et al.,
CCS 2021).

Seconds are processor time of one thread, which other programs on the machine hardly change, and so
are limits: the wall-clock limit of a question is stretched by what the last one took more than
processor time. ``--veritas N`` asks Veritas the same about N features of each model, spread over
all of them: two instances that share all features but one, 20 s of processor time each, in the same
process, until it is within 0.1 % of the optimum.
"""

import argparse
import csv
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import treeproof as tp
from treeproof.checker.claims import opened
from treeproof.checker.domains import Asked
from treeproof.checker.properties import check_property
from treeproof.engines.evidence import packed
from treeproof.errors import CertificateRejected

MODELS = (
    "adult_t300_d5",
    "adult_t500_d6",
    "german_credit_t500_d5",
    "german_credit_t800_d6",
    "pimadiabetes_t500_d6",
)
HERE = Path(__file__).parent / "results"
ANSWERS, TABLE = HERE / "properties.csv", HERE / "properties.md"
COLUMNS = ("part", "model", "what", "verdict", "lower", "upper", "seconds", "note")
CHANGE_S, FAIR_S, MONOTONE_S, CCS_S, VERITAS_S = 10.0, 10.0, 20.0, 30.0, 20.0
LONGER_S, EVIDENCE_S = 300.0, 60.0


class Subject:
    """A model of ensense with its domain."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.model = tp.load(root / "properties" / f"{name}.json", self_test=False)
        data = name.rpartition("_t")[0]
        with open(root / "properties" / f"{data}.bounds.csv") as file:
            lines = list(csv.DictReader(file))
        self.names = [line["name"] for line in lines]
        low, high = ([float(line[side]) for line in lines] for side in ("lb", "ub"))
        self.low, self.high, self.domain = low, high, tp.Box(low, high)
        # Compile, or read from disk, what is measured later.
        for claim in (tp.Stable(0, 1.0), tp.Fair(0), tp.Monotone(0)):
            tp.prove(self.model, claim, self.domain, time_limit_s=0.01)


class Answers:
    """Answers that are kept as soon as they are there."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], dict[str, str]] = {}
        self.stretch = max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)
        if ANSWERS.exists():
            with ANSWERS.open() as file:
                for row in csv.DictReader(file):
                    self.known[row["part"], row["model"], row["what"]] = row

    def has(self, *key: str) -> bool:
        """Whether a question was answered before."""
        return key in self.known

    def keep(
        self, part: str, model: str, what: str, answer: Any, seconds: float, note: str
    ) -> None:
        """Print and save an answer: verdict, lower and upper bound."""
        verdict, lower, upper = answer
        values = (part, model, what, str(verdict), repr(float(lower)), repr(float(upper)))
        row = dict(zip(COLUMNS, (*values, f"{seconds:.3f}", note), strict=True))
        self.known[part, model, what] = row
        is_new = not ANSWERS.exists()
        with ANSWERS.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(" ".join(row.values()), flush=True)

    def ask(self, key: tuple[str, str, str], seconds: float, question: Callable[..., Any]) -> Any:
        """Ask with a limit of processor time, and keep the answer; None if it is known."""
        if self.has(*key):
            return None
        for _ in range(4):
            wall, processor = time.perf_counter(), time.process_time()
            found = question(time_limit_s=seconds * self.stretch)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            # A violation decides, but the largest one may still be sought.
            is_open = found.verdict == "unknown" or (key[0] == "monotone" and not found.exact)
            if processor > 0.3:
                self.stretch = max(wall / processor, 1.0)
            if not is_open or processor > 0.9 * seconds:
                break
            self.stretch *= 1.2
        note = f"{found.statistics['nodes']} nodes, {found.statistics['leaves']} leaves"
        self.keep(*key, (found.verdict, found.lower, found.upper), processor, note)
        return found


def gap(row: dict[str, str]) -> float:
    lower, upper = float(row["lower"]), float(row["upper"])
    return (upper - lower) / max(abs(upper), 1e-12) if upper > lower else 0.0


def questions_of(subject: Subject, part: str) -> Iterator[tuple[str, Any]]:
    """Names of the questions of a part, and functions that ask them."""
    options = {"change": ("",), "fair": (0.7, 0.6), "monotone": ("increasing", "decreasing")}
    claims: dict[str, Any] = {
        "fair": lambda f, p: tp.Fair(f, confidence=p),
        "monotone": tp.Monotone,
    }
    for option in options[part]:
        for feature, name in enumerate(subject.names):
            if part == "change":
                yield name, partial(tp.largest_change, subject.model, feature, subject.domain)
                continue
            claim = claims[part](feature, option)
            yield f"{name} {option}", partial(tp.prove, subject.model, claim, subject.domain)


def change(subject: Subject, answers: Answers, n_veritas: int) -> None:
    chosen = set(np.linspace(0, len(subject.names) - 1, n_veritas).round().astype(int).tolist())
    for feature, (name, ask) in enumerate(questions_of(subject, "change")):
        answers.ask(("change", subject.name, name), CHANGE_S, ask)
        if feature in chosen and not answers.has("veritas", subject.name, name):
            low, high, took = veritas_change(subject, feature)
            answers.keep("veritas", subject.name, name, ("", low, high), took, "")


def longer(subject: Subject, answers: Answers, _: int) -> None:
    """Largest changes that were not closed, with more time."""
    for name, ask in questions_of(subject, "change"):
        known = answers.known.get(("change", subject.name, name))
        if known is not None and (gap(known) > 1e-3 or float(known["seconds"]) > CHANGE_S):
            answers.ask(("longer", subject.name, name), LONGER_S, ask)


def veritas_change(subject: Subject, feature: int) -> tuple[float, float, float]:
    """Two instances that share all features but one, as Veritas asks for a contrast."""
    import veritas

    n = len(subject.names)
    one, other = (veritas_trees(subject, {feature: place}) for place in (feature, n))
    both = other.concat_negated(one)
    box = [
        veritas.Interval(a, np.nextafter(np.float32(b), np.float32(np.inf)))
        for a, b in zip(subject.low, subject.high, strict=True)
    ]
    box.append(box[feature])
    config = veritas.Config(veritas.HeuristicType.MAX_OUTPUT)
    config.max_memory = 4 << 30
    began = time.process_time()
    search = config.get_search(both, box)
    low, high = -np.inf, np.inf
    while time.process_time() - began < VERITAS_S:
        search.step_for(1.0, 100)
        high = float(search.current_bounds().top_of_open)
        if search.num_solutions() > 0:
            low = float(search.get_solution(0).output)
        if search.is_optimal() or high - low <= 1e-3 * abs(high):
            break
    return low, high, time.process_time() - began


def veritas_trees(subject: Subject, places: dict[int, int]) -> Any:
    """The model as Veritas's own trees, with features at other places."""
    import veritas

    ensemble = subject.model.ensemble
    trees, found = ensemble.trees, veritas.AddTree(1, veritas.AddTreeType.REGR)
    for tree in range(ensemble.n_trees):
        own = found.add_tree()
        waiting = [(int(trees.root[tree]), own.root())]
        while waiting:
            node, place = waiting.pop()
            if trees.feature[node] < 0:
                own.set_leaf_value(place, float(trees.leaf_value[trees.leaf[node], 0]))
                continue
            feature = int(trees.feature[node])
            own.split(place, places.get(feature, feature), float(trees.threshold[node]))
            waiting.append((node + 1, own.left(place)))
            waiting.append((int(trees.right[node]), own.right(place)))
    return found


def fair(subject: Subject, answers: Answers, _: int) -> None:
    for what, ask in questions_of(subject, "fair"):
        answers.ask(("fair", subject.name, what), FAIR_S, ask)


def monotone(subject: Subject, answers: Answers, _: int) -> None:
    for what, ask in questions_of(subject, "monotone"):
        key = subject.name, what
        if answers.has("monotone", *key):
            continue
        began = time.process_time()
        quick = ask(node_limit=1)  # a single box: what the first points that are tried show
        took = time.process_time() - began
        answers.keep("first violation", *key, (quick.verdict, quick.lower, np.nan), took, "")
        answers.ask(("monotone", *key), MONOTONE_S, ask)


def score_range(subject: Subject, answers: Answers, _: int) -> None:
    """Exact ranges beside the sums of every tree's extremes, which is what LightGBM offers."""
    if answers.has("range", subject.name, "smallest"):
        return
    for _ in range(4):
        wall, began = time.perf_counter(), time.process_time()
        limit = CHANGE_S * answers.stretch
        found = tp.score_range(subject.model, subject.domain, time_limit_s=limit)
        wall, took = time.perf_counter() - wall, time.process_time() - began
        if (found.minimum.exact and found.maximum.exact) or took > 0.9 * CHANGE_S:
            break
        answers.stretch = 1.2 * max(wall / took, 1.0)
    trees = subject.model.ensemble.trees
    owner = np.searchsorted(trees.root, np.flatnonzero(trees.feature < 0), side="right") - 1
    least, most = np.full((2, subject.model.ensemble.n_trees), np.inf)
    most *= -1.0
    np.minimum.at(least, owner, trees.leaf_value[:, 0])
    np.maximum.at(most, owner, trees.leaf_value[:, 0])
    start = subject.model.ensemble.aggregation.start[0]
    for what, end, naive in (
        ("largest", found.maximum, start + most.sum()),
        ("smallest", found.minimum, start + least.sum()),
    ):
        answer = end.verdict, end.lower, end.upper
        answers.keep("range", subject.name, what, answer, took, f"sum of extremes {naive:.3f}")


def constrained(answers: Answers) -> None:
    """Models trained with monotone constraints are proved tree by tree."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 8))
    target = (rows[:, 0] + np.sin(3 * rows[:, 1]) + rng.normal(size=4000) > 0).astype(int)
    domain = tp.Box(np.full(8, -4.0), np.full(8, 4.0))
    for name, train in constrained_models():
        if answers.has("constrained", name, "increasing"):
            continue
        model = tp.load(train().fit(rows, target))
        claim = tp.Monotone(0, "increasing")
        tp.prove(model, claim, domain, node_limit=1)  # compiles
        answers.ask(
            ("constrained", name, "increasing"),
            CHANGE_S,
            partial(tp.prove, model, claim, domain),
        )


def constrained_models() -> Iterator[tuple[str, Callable[[], Any]]]:
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier
    from xgboost import XGBClassifier

    signs = [1] + [0] * 7
    yield (
        "XGBoost",
        lambda: XGBClassifier(
            n_estimators=500, max_depth=6, n_jobs=1, monotone_constraints=tuple(signs)
        ),
    )
    yield (
        "LightGBM",
        lambda: LGBMClassifier(n_estimators=500, n_jobs=1, verbose=-1, monotone_constraints=signs),
    )
    yield (
        "CatBoost",
        lambda: CatBoostClassifier(
            iterations=500,
            depth=6,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
            monotone_constraints=signs,
        ),
    )


def ccs_claims(spread: Any) -> list[tuple[str, Any]]:
    return [
        ("monotone", tp.Monotone([0, 1], "increasing")),
        ("stable", tp.Stable(0, 2.0)),
        ("high confidence", tp.HighConfidence([0, 1, 2], confidence=0.98)),
        ("redundant", tp.Redundant([[0, 1], [2, 3, 4], [5, 6]], confidence=0.98)),
        ("small neighbourhood", tp.SmallNeighbourhood(0.2, 5.0, spread[-7:])),
    ]


def ccs(root: Path, answers: Answers) -> None:
    """The five properties of Chen et al. on their data, with more rounds than they had."""
    from xgboost import XGBClassifier

    folder = root / "tabular"
    train = np.loadtxt(folder / "cryptojacker.train.csv", delimiter=",")
    spread = np.loadtxt(folder / "cryptojacker_featstd.csv", delimiter=",").ravel()
    rows, target = train[:, 1:], train[:, 0].astype(int)
    domain = tp.Box(np.zeros(7), rows.max(axis=0))
    for rounds in (10, 100, 300):
        name = f"cryptojacker, {rounds} rounds"
        claims = [
            (what, claim)
            for what, claim in ccs_claims(spread)
            if not answers.has("ccs", name, what)
        ]
        if not claims:
            continue
        model = tp.load(XGBClassifier(n_estimators=rounds, max_depth=4, n_jobs=1).fit(rows, target))
        for what, claim in claims:
            tp.prove(model, claim, domain, time_limit_s=0.01)
            answers.ask(
                ("ccs", name, what),
                CCS_S,
                partial(tp.prove, model, claim, domain),
            )


def evidence(subject: Subject, answers: Answers, _: int) -> None:
    """Whether closed answers come with evidence that is accepted, and rejected once damaged."""
    for part in ("change", "fair", "monotone"):
        for what, ask in questions_of(subject, part):
            known = answers.known.get((part, subject.name, what))
            key = "evidence", subject.name, f"{part}: {what}"
            if known is None or not is_closed(known) or answers.has(*key):
                continue
            began = time.process_time()
            # Where an optimum is close to 0.1 %, that is what the proof has to show.
            found = ask(evidence=True, time_limit_s=EVIDENCE_S * answers.stretch)
            took = time.process_time() - began
            if found.evidence is None:
                answers.keep(*key, ("none", found.lower, found.upper), took, "")
                continue
            began = time.process_time()
            asked = Asked(found.domain)
            check_property(subject.model.ensemble, found.evidence, asked)
            checked = time.process_time() - began
            fates = [is_rejected(subject, text, asked) for text in damaged(found.evidence)]
            note = f"{len(found.evidence)} bytes, checked in {checked:.3f} s, damaged rejected"
            note += f" {sum(fates)} of {len(fates)}"
            answers.keep(*key, ("accepted", found.lower, found.upper), took, note)


def is_closed(row: dict[str, str]) -> bool:
    """Whether an answer has a proof; of a largest violation that is still sought there is none."""
    return row["verdict"] != "unknown" and (row["part"] != "monotone" or gap(row) <= 1e-3)


def is_rejected(subject: Subject, text: str, asked: Asked) -> bool:
    try:
        check_property(subject.model.ensemble, text, asked)
    except CertificateRejected:
        return True
    return False


def damaged(text: str) -> Iterator[str]:
    """Evidence that claims more than it proves, or whose proof is cut off."""
    found = opened(text)
    document, proof = json.loads(found.claim), found.proof
    variants = [document | {"model": "0" * 64}]
    lower, upper = (float.fromhex(document[side]) for side in ("lower", "upper"))
    if math.isfinite(upper):
        less = {"upper": (0.9 * lower).hex(), "lower": (0.9 * lower).hex()}
        bounds = [part | {"bound": (0.9 * lower).hex()} for part in document["statements"]]
        variants.append(document | less | {"statements": bounds})
    if document["witness"] is not None:
        variants.append(document | {"witness": document["witness"][:1] * 2})
    for variant in variants:
        yield packed(json.dumps(variant).encode(), proof)
    if document["statements"]:
        first, *others = document["statements"]
        end = first["size"] - 1
        shorter = document | {"statements": [first | {"size": end}, *others]}
        yield packed(json.dumps(shorter).encode(), proof[:end] + proof[end + 1 :])


def share(rows: list[Any]) -> str:
    return f"{sum(map(bool, rows))} of {len(rows)}"


def within(gaps: list[float], least: float, times: list[float], seconds: float) -> str:
    """How many questions were closed to a gap in time; the last node may take a little longer."""
    return share([g <= least and t <= 1.05 * seconds for g, t in zip(gaps, times, strict=True)])


def write_table(answers: Answers) -> None:
    """The summary of all answers, by part and model."""
    parts: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in answers.known.values():
        parts.setdefault((row["part"], row["model"]), []).append(row)

    def of(part: str) -> Iterator[tuple[str, list[dict[str, str]], list[float]]]:
        for (name, model), rows in parts.items():
            if name == part:
                yield model, rows, [float(row["seconds"]) for row in rows]

    versions = ", ".join(f"{name} {version(name)}" for name in ("treeproof", "numba", "numpy"))
    lines = [
        "# Global properties",
        "",
        f"{versions}, Python {platform.python_version()}, {platform.machine()}; one"
        " thread, seconds of processor time. Made by `benchmarks/properties.py`; every question is"
        " a line of properties.csv.",
        "",
        f"## Largest change by one feature alone, {CHANGE_S:.0f} s each",
        "",
        "| model | features | closed to 0.1 % | to 5 % | widest gap | median s | largest s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model, rows, times in of("change"):
        gaps = [gap(row) for row in rows]
        lines.append(
            f"| {model} | {len(rows)} | {within(gaps, 1e-3, times, CHANGE_S)} |"
            f" {within(gaps, 0.05, times, CHANGE_S)} | {max(gaps):.2%} | {np.median(times):.2f} |"
            f" {max(times):.2f} |"
        )
    if any(row["part"] == "longer" for row in answers.known.values()):
        lines += [
            "",
            f"Those that took longer, asked again with {LONGER_S:.0f} s each:",
            "",
            "| model | feature | largest change | gap | s | nodes |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
    for model, rows, times in of("longer"):
        for row, took in zip(rows, times, strict=True):
            ends = f"{float(row['lower']):.4f} to {float(row['upper']):.4f} | {gap(row):.2%}"
            nodes = row["note"].split()[0]
            lines.append(f"| {model} | {row['what']} | {ends} | {took:.1f} | {int(nodes):,} |")
    if any(row["part"] == "veritas" for row in answers.known.values()):
        lines += [
            "",
            f"## The same questions, Veritas 0.3.1, {VERITAS_S:.0f} s each",
            "",
            "| model | features | closed to 0.1 % | by us | a pair found | their bound / ours |"
            " theirs / ours, median s |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
    for model, rows, times in of("veritas"):
        ours = [answers.known["change", model, row["what"]] for row in rows]
        ratio = [t / float(row["seconds"]) for t, row in zip(times, ours, strict=True)]
        bounds = [[float(row["upper"]) for row in each] for each in (rows, ours)]
        above = np.array(bounds[0]) / np.array(bounds[1])
        lines.append(
            f"| {model} | {len(rows)} | {share([gap(row) <= 1e-3 for row in rows])} |"
            f" {share([gap(row) <= 1e-3 for row in ours])} |"
            f" {share([float(row['lower']) > 0.0 for row in rows])} | {np.median(above):.1f} |"
            f" {np.median(ratio):.0f} |"
        )
    lines += [
        "",
        f"## Fairness with gaps (0.3, 0.7) and (0.4, 0.6), every feature, {FAIR_S:.0f} s each",
        "",
        "| model | decided | of these fair | median s | largest s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for model, rows, times in of("fair"):
        verdicts = [row["verdict"] for row in rows]
        lines.append(
            f"| {model} | {share([v != 'unknown' for v in verdicts])} |"
            f" {verdicts.count('verified')} | {np.median(times):.2f} | {max(times):.2f} |"
        )
    lines += [
        "",
        f"## Monotonicity, every feature, both directions, {MONOTONE_S:.0f} s each",
        "",
        "| model | questions | violated | found at the first box | slowest of these, s |"
        " largest violation closed to 5 % | to 0.1 % | median s | largest s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model, rows, times in of("monotone"):
        first = [answers.known["first violation", model, row["what"]] for row in rows]
        found = [float(row["seconds"]) for row in first if row["verdict"] == "falsified"]
        gaps = [gap(row) for row in rows]
        broken = sum(row["verdict"] == "falsified" for row in rows)
        lines.append(
            f"| {model} | {len(rows)} | {broken} | {len(found)} | {max(found, default=0.0):.2f} |"
            f" {within(gaps, 0.05, times, MONOTONE_S)} | {within(gaps, 1e-3, times, MONOTONE_S)} |"
            f" {np.median(times):.2f} | {max(times):.2f} |"
        )
    lines += ["", "## Models trained with monotone constraints, 500 trees", ""]
    lines += ["| library | verdict | s |", "| --- | --- | --- |"]
    for model, rows, times in of("constrained"):
        lines.append(f"| {model} | {rows[0]['verdict']} | {times[0]:.2f} |")
    lines += ["", f"## The properties of CCS 2021, {CCS_S:.0f} s each", ""]
    lines += ["| model | property | verdict | s |", "| --- | --- | --- | --- |"]
    for model, rows, times in of("ccs"):
        for row, took in zip(rows, times, strict=True):
            lines.append(f"| {model} | {row['what']} | {row['verdict']} | {took:.2f} |")
    lines += ["", f"## Range of the score, {CHANGE_S:.0f} s for each end", ""]
    lines += ["| model | end | lower | upper | sum of all trees' extremes | s, both ends |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for model, rows, times in of("range"):
        for row, took in zip(rows, times, strict=True):
            naive = row["note"].rpartition(" ")[2]
            ends = f"{float(row['lower']):.3f} | {float(row['upper']):.3f}"
            lines.append(f"| {model} | {row['what']} | {ends} | {naive} | {took:.2f} |")
    if any(row["part"] == "evidence" for row in answers.known.values()):
        lines += ["", f"## Evidence of closed answers, {EVIDENCE_S:.0f} s for search and proof", ""]
        lines += [
            "| model | closed | asked | accepted by the checker | damaged ones rejected |"
            " median s of the check |"
        ]
        lines[-1] += " largest s | search and proof, median s | largest s |"
        lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for model, rows, times in of("evidence"):
        n_closed = sum(
            is_closed(row)
            for part in ("change", "fair", "monotone")
            for row in parts.get((part, model), [])
        )
        notes = [row["note"].split() for row in rows if row["verdict"] == "accepted"]
        checks = [float(note[4]) for note in notes] or [math.nan]
        n_rejected, n_damaged = (sum(int(note[at]) for note in notes) for at in (-3, -1))
        accepted = share([row["verdict"] == "accepted" for row in rows])
        lines.append(
            f"| {model} | {n_closed} | {len(rows)} | {accepted} | {n_rejected} of {n_damaged} |"
            f" {np.median(checks):.2f} | {max(checks):.1f} | {np.median(times):.2f} |"
            f" {max(times):.1f} |"
        )
    TABLE.write_text("\n".join(lines) + "\n")


PARTS = {
    "change": change,
    "longer": longer,
    "fair": fair,
    "monotone": monotone,
    "range": score_range,
    "evidence": evidence,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--parts", default="change,longer,fair,monotone,range,constrained,ccs,evidence"
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--veritas", type=int, default=0)
    options = parser.parse_args()
    root = Path(os.environ.get("TREEPROOF_PAPER_DATA", Path(__file__).parents[2] / "shared"))
    answers = Answers()
    for part in options.parts.split(","):
        if part in PARTS:
            for name in options.models.split(","):
                PARTS[part](Subject(root, name), answers, options.veritas)
        elif part == "constrained":
            constrained(answers)
        elif part == "ccs":
            ccs(root, answers)
    write_table(answers)


if __name__ == "__main__":
    main()
