"""What was asked, of which model, by whom it was answered: in words, for the report."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np

from treeproof.errors import listed
from treeproof.query.arithmetic import in_words
from treeproof.report.runs import RunView
from treeproof.results.numbers import counted, duration, exactly, number
from treeproof.results.threat import own_limit, price_words

Lines = list[tuple[str, str]]

_QUESTIONS = {
    "radius": "the smallest change that breaks each row",
    "verify": "whether each row holds everywhere in a set around it",
}
_ATTACK_QUESTIONS = {
    "radius": "a near change that breaks each row",
    "verify": "a change within the radius that breaks each row",
}
_UNCHECKED = (
    "what only the run says: rows and labels against your data (treeproof check compares them), who"
    " answered and how long it took, the model's library, files, notes and self-test, and other"
    " runs with features frozen"
)
_ALLOWED = {
    "LInf": "what moves by at most {by}, all at once (L∞)",
    "L1": "moves that add up to at most {by} (L1)",
    "L2": "moves of a Euclidean length of at most {by} (L2)",
    "L0": "changes of at most {by} features (L0)",
    "Cost": "changes that cost at most {by}",
}
_DOMAIN = {
    "integer": "Whole numbers",
    "values": "Listed values only",
    "groups": "Groups of columns",
    "categorical": "Categories that may change",
    "may_miss": "May go missing",
    "may_fill": "May be filled in",
}
_GOALS = {
    "KeepsLabel": "the label is kept",
    "AvoidsTarget": "class {target} is never predicted",
    "ScoreWithin": "the score stays from {low} to {high}",
    "ScoreChange": "the score moves by no more than {delta}",
}


_WORDS = {
    "kicker": "Robustness report",
    "verified": "verified",
    "broken": "broken by a change",
    "radii": "How far rows are from breaking",
    "features": "Which features break the model",
    "rows": "Rows and their witnesses",
}
_RECOURSE_WORDS = {
    "kicker": "Recourse report",
    "verified": "no way at this cost",
    "broken": "has a way",
    "radii": "What the cheapest way costs",
    "features": "What ways change",
    "rows": "Rows and their ways",
}


def page_words(runs: Sequence[RunView]) -> dict[str, str]:
    """What a page calls what it shows: proofs, what an attack found, or ways to another decision.

    Where ways and proofs are compared, both are called by what they prove.
    """
    if all(run.recourse for run in runs):
        return _RECOURSE_WORDS
    attack_only = all(run.is_attack for run in runs)
    return _WORDS | ({"kicker": "Attack report"} if attack_only else {})


def sections(run: RunView) -> list[tuple[str, Lines]]:
    """What was asked, of which model, who answered, and how long that took; with headings."""
    return [
        ("The question", _question_lines(run)),
        ("The model", _model_lines(run)),
        ("The answers", _answer_lines(run)),
        ("Time", _time_lines(run)),
    ]


def summary_words(run: RunView) -> str:
    """Say in one line who answered how many rows of which model."""
    engine = dict(run.question.get("engine") or {}).get("name")
    parts = [
        library_words(run),
        _count(run.model.get("n_trees"), " trees"),
        _count(run.model.get("n_features"), " features"),
        counted(len(run.results), "row"),
        f"engine {engine}" if engine else "",
        f"answered on {day_words(run.header['date'])}" if run.header.get("date") else "",
    ]
    return " · ".join(part for part in parts if part)


def day_words(day: date | str) -> str:
    """A day as people write it; what is no day stays as it is."""
    try:
        at = day if isinstance(day, date) else date.fromisoformat(day)
    except (TypeError, ValueError):
        return str(day)
    return f"{at.day} {at:%B %Y}"


def identity_lines(run: RunView) -> Lines:
    """Hashes by which the model and the rows of a run are known, shortened to be read."""
    lines = [
        ("model file", str(run.model.get("file_sha256") or "")),
        ("fingerprint", str(run.model.get("fingerprint") or "")),
        ("rows", run.rows_digest),
    ]
    return [(name, f"{text[:12]}…") for name, text in lines if text]


def _model_lines(run: RunView) -> Lines:
    model = run.model
    classes = [str(label) for label in model.get("classes") or []]
    lines = [
        ("Library", library_words(run)),
        ("Source", str(model.get("source") or "")),
        ("File SHA-256", str(model.get("file_sha256") or "")),
        ("Fingerprint", str(model.get("fingerprint") or "")),
        ("Self-test against the library", str(model.get("self_test") or "")),
        ("Trees", _count(model.get("n_trees"))),
        ("Features", _count(model.get("n_features"))),
        ("Classes", listed(classes) if classes else ""),
        ("Decision", _decision_words(model)),
        ("Loaded with", _options(dict(model.get("loading") or {}))),
        *(("Note", str(note)) for note in model.get("notes") or []),
    ]
    return [(name, text.strip()) for name, text in lines if text.strip()]


_MEANINGS = {
    "Cost": "The cost of the cheapest change that breaks a row: no cheaper change does it.",
    "L0": "How many features have to change to break a row: no change of fewer does it.",
    "L1": "The size of the smallest change that breaks a row, all moves added up: no smaller change"
    " does it.",
    "L2": "The Euclidean length of the smallest change that breaks a row: no smaller change does"
    " it.",
}


def radius_meaning(run: RunView) -> str:
    """What a radius or a cost is, in the measure that was asked for."""
    asked = str(run.question.get("perturbation", {}).get("name"))
    return _MEANINGS.get(
        asked,
        "The size of the smallest change that breaks a row: no feature has to move further than"
        f" that{_in_units(run)}, and no smaller change does it.",
    )


def _in_units(run: RunView) -> str:
    threat = run.threat
    if threat is None or threat.is_relative:
        return " times its own value" if threat else ""
    plain = all(threat.reach(f) == (1.0, 1.0) for f in threat.movers)
    return "" if plain else " in its own unit"


_TOGETHER = {
    "LInf": "all at once. A radius of 1 is one unit of each feature.",
    "L1": "and all moves, each in units of its feature, add up to no more than the radius.",
    "L2": "and the Euclidean length of all moves, each in units of its feature, is no more than the"
    " radius.",
    "L0": "however far. The radius limits how many features change together.",
    "Cost": "and the prices of all changes add up to no more than the cost.",
    "Box": "all at once.",
}


def threat_words(run: RunView) -> str:
    """How the moves of several features count together."""
    asked = str(run.question.get("perturbation", {}).get("name"))
    return f"What moves does so in the worst way, {_TOGETHER.get(asked, 'all at once.')}"


_LOGISTIC = {"binary:logistic", "reg:logistic", "Logloss", "CrossEntropy"}
"""Objectives of which a probability is the logistic function of the margin."""


def _decision_words(model: dict[str, Any]) -> str:
    """How margins become a label; for a cut, the probability that it stands for."""
    rule, cut = str(model.get("decision_rule") or ""), model.get("decision_cut")
    given = dict(model.get("loading") or {}).get("decision_threshold")
    if isinstance(given, int | float):
        return f"{rule}: decision threshold {number(float(given), 6)} in probability, as given"
    objective = str(model.get("objective") or "")
    steepness = re.fullmatch(r"binary sigmoid:([0-9.e+-]+)", objective)
    if not isinstance(cut, int | float) or not (steepness or objective in _LOGISTIC):
        return rule
    margin = float(cut) * (float(steepness[1]) if steepness else 1.0)
    return f"{rule}: decision threshold {number(1.0 / (1.0 + math.exp(-margin)), 6)} in probability"


def library_words(run: RunView) -> str:
    """Library of a model, with its version where that is known."""
    version = str(run.model.get("library_version") or "")
    known = version if version != "unknown" else ""
    return f"{run.model.get('library') or ''} {known}".strip()


def _question_lines(run: RunView) -> Lines:
    question = run.question
    kind = question.get("kind")
    asked = (_ATTACK_QUESTIONS if run.is_attack else _QUESTIONS).get(str(kind), str(kind or ""))
    if run.recourse:
        asked = f"the cheapest way of each row to the decision {run.recourse['wanted']}"
    lines = [("Question", asked), *_perturbation_lines(run), ("Claim", _goal_words(run))]
    if question.get("labels"):
        given = question["labels"] == "given"
        lines.append(("Labels", "those of the data" if given else "the model's own answers"))
    lines.append(("Attacked rows", attacked_words(run) or "all"))
    lines.append(("Arithmetic", in_words(run.header)))
    if run.model.get("input_precision"):
        lines.append(("Input precision", str(run.model["input_precision"])))
    data = dict(run.header.get("data") or {})
    if data.get("file"):
        lines.append(("Data", str(data["file"])))
    if data.get("sha256"):
        lines.append(("Data SHA-256", str(data["sha256"])))
    lines.append(("Rows SHA-256", run.rows_digest))
    if run.header.get("date"):
        lines.append(("Answered on", day_words(run.header["date"])))
    rest = {k: v for k, v in data.items() if k in ("label", "rows", "sample", "seed") and v}
    if rest:
        lines.append(("Selection", _options(rest)))
    return [(name, text) for name, text in lines if text]


def _goal_words(run: RunView) -> str:
    goal = dict(run.question.get("goal") or {})
    name = str(goal.pop("name", "KeepsLabel"))
    said = {
        key: str(value) if key == "target" else _exact_or_spread(value)
        for key, value in goal.items()
    }
    try:
        return _GOALS[name].format(**said)
    except KeyError:  # a goal that is not known here, with its options
        details = ", ".join(f"{key} {value}" for key, value in said.items())
        return name + (f" ({details})" if details else "")


def attacked_words(run: RunView) -> str:
    """Say which rows are attacked, and how many are not; nothing where all are."""
    attacked = run.question.get("attacker_class")
    if attacked is None:
        return ""
    n_still = len(run.results) - run.n_attacked
    return f"those of class {attacked}; {n_still:,} others stay as they are, and count nowhere"


def _perturbation_lines(run: RunView) -> Lines:
    """How rows may change, as it was asked."""
    perturbation = dict(run.question.get("perturbation") or {})
    name = str(perturbation.pop("name", ""))
    low, high = perturbation.pop("low", "-inf"), perturbation.pop("high", "inf")
    if name == "Box":
        return [
            ("Allowed changes", "any value between two bounds of each feature"),
            ("Lower bounds", _spread(low)),
            ("Upper bounds", _spread(high)),
        ]
    eps = perturbation.pop("eps", perturbation.pop("budget", None))
    by = f"the {run.measure}" if eps is None else own_limit(run.header) or exactly(float(eps))
    lines = [("Allowed changes", _ALLOWED.get(name, "{name} within {by}").format(name=name, by=by))]
    if perturbation.pop("relative", False):
        lines.append(("Units are", "multiples of the row's own values"))
    scale = perturbation.pop("scale", None)
    if scale is not None:
        lines.append(("Unit", _spread(scale)))
    for key, words in (("below", "Downwards"), ("above", "Upwards")):
        value = perturbation.pop(key, 1.0)
        if np.any(np.asarray(value, dtype=object) != 1.0):
            lines.append((words, f"times {_spread(value)}"))
    frozen = perturbation.pop("frozen", None) or []
    if frozen:
        names = [run.feature_name(f) if isinstance(f, int) else str(f) for f in frozen]
        lines.append(("Frozen", ", ".join(names)))
    for words, value, free in (("Not below", low, "-inf"), ("Not above", high, "inf")):
        if value != free:
            lines.append((words, _spread(value)))
    lines += _domain_lines(run, perturbation.pop("domain", None) or {})
    if perturbation.pop("table", None):
        lines.append(("Prices of choices", "; ".join(price_words(run.header))))
    lines += [(str(key), _spread(value)) for key, value in perturbation.items() if value]
    return lines


def _domain_lines(run: RunView, domain: dict[str, Any]) -> Lines:
    """Which rows there can be, where a domain says so."""
    lines = []
    for key, words in _DOMAIN.items():
        # Features by number, alone or first of what is said of them.
        entries = [entry[0] if isinstance(entry, list) else entry for entry in domain.get(key, [])]
        groups = [entry if isinstance(entry, list) else [entry] for entry in entries]
        said = [" or ".join(run.feature_name(int(f)) for f in group) for group in groups]
        if said:
            lines.append((words, ", ".join(said)))
    ranges = [
        f"{run.feature_name(int(f))} {exactly(float(least))} to {exactly(float(most))}"
        for f, least, most in domain.get("ranges", [])
    ]
    if ranges:
        lines.append(("Ranges", ", ".join(ranges)))
    return [*lines, *(("Rule", str(rule)) for rule in domain.get("rules", []))]


def _answer_lines(run: RunView) -> Lines:
    engine = dict(run.question.get("engine") or {})
    name = str(engine.pop("name", "") or "")
    options = _options(engine)
    lines = [("Engine", name + (f" ({options})" if options else ""))]
    search = dict(run.question.get("search") or {})
    if search:
        lines.append(("Search", _options(search)))
    versions = dict(run.header.get("versions") or {})
    lines += [(str(key), str(value)) for key, value in versions.items()]
    return [(label, text) for label, text in lines if text]


def _time_lines(run: RunView) -> Lines:
    seconds = run.results.seconds
    return [
        ("All rows together", duration(float(np.sum(seconds)))),
        ("Median per row", duration(float(np.median(seconds)))),
        ("Mean per row", duration(float(np.mean(seconds)))),
        ("99 % of rows within", duration(float(np.quantile(seconds, 0.99)))),
        ("Longest", duration(float(np.max(seconds)))),
    ]


def undecided_lines(run: RunView) -> Lines:
    """Why rows are undecided, and how many; for an attack, the rows that it does not break."""
    if run.is_attack:
        n_open = int((~run.has_witness & ~run.broken & run.attacked).sum())
        return [("no breaking change was found", counted(n_open, "row"))] if n_open else []
    reasons = run.results.reason[(run.results.verdict == "unknown") & run.attacked]
    names, counts = np.unique(reasons, return_counts=True)
    return [
        (str(name) or "no reason given", counted(int(count), "row"))
        for name, count in zip(names, counts, strict=True)
    ]


def evidence_lines(run: RunView) -> Lines:
    """How much of the answers can be checked by somebody else, and what a checker found."""
    n, n_with, checks = len(run.results), _n_proofs(run), run.checks
    n_replayed = int(run.has_witness.sum() + run.broken.sum())
    lines = [("Witnesses", f"{n_replayed:,}, each replayed by the model's own arithmetic")]
    if checks is not None:
        found = Counter(check.status for check in checks if check.row >= 0)
        words = ", ".join(f"{count:,} {status}" for status, count in found.items())
        lines.append(("Checked", f"independently of the engines: {words or 'no rows'}"))
        lines += [("Of the whole run", f"{c.status}: {c.reason}") for c in checks if c.row < 0]
        lines.append(("Not checked", _UNCHECKED))
    elif run.is_attack:
        lines.append(("Proofs", "none: an attack shows what breaks, and proves nothing"))
    elif n_with == 0:
        lines.append(
            ("Proofs", "none: that no smaller change breaks a row is not independently checked")
        )
    else:
        lines.append(
            ("Proofs", f"{n_with:,} of {n:,} rows carry one that 'treeproof check' can follow")
        )
        lines.append(("Checked", "not when this page was written"))
    return lines


def trust_words(run: RunView) -> str:
    """Say in one sentence what the verified count of a run rests on."""
    checks = run.checks
    if checks is not None:
        found = Counter(check.status for check in checks if check.row >= 0)
        n_failed = found["rejected"] + found["unproved"]
        parts = [f"accepted {found['accepted']:,} of {len(run.results):,} answers"]
        if found["claims nothing"]:
            parts.append(f"{found['claims nothing']:,} claim nothing")
        if n_failed:
            parts.append(f"{n_failed:,} were not accepted, and count as undecided here")
        parts += [f"the run as a whole was rejected ({c.reason})" for c in checks if c.row < 0][:1]
        return f"An independent checker {'; '.join(parts)}."
    n_proofs = _n_proofs(run)
    if run.is_attack:
        return (
            "Found by an attack. What it breaks was replayed on the model; rows that it does not"
            " break are not proved to hold, and the nearest breaking change may be nearer."
        )
    if n_proofs == 0:
        return "Proved by the engine; the run holds no proofs for others to check."
    return f"{n_proofs:,} answers carry proofs, which were not checked for this page."


def claim_words(run: RunView) -> str:
    """What must hold, in the middle of a sentence; nothing where it is that the label is kept."""
    goal = run.question.get("goal") or {}
    return "" if goal.get("name", "KeepsLabel") == "KeepsLabel" else _goal_words(run)


def _n_proofs(run: RunView) -> int:
    evidence = run.results.evidence
    proofs = [] if evidence is None else evidence.tolist()
    return sum(isinstance(proof, str) and not proof.startswith("none: ") for proof in proofs)


def _count(value: Any, of: str = "") -> str:
    return f"{value:,}{of}" if isinstance(value, int) else ""


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in options.items() if value is not None)


def _exact_or_spread(value: Any) -> str:
    """A number of a claim with every digit; of one for each row their range."""
    is_one = not isinstance(value, list)
    try:
        return exactly(float(value)) if is_one else _spread(value, "row")
    except (TypeError, ValueError):
        return str(value)


def _spread(value: Any, own: str = "feature") -> str:
    """One number, or the range of many."""
    try:
        given = value if isinstance(value, list) and value else [value]
        parts = [np.ravel(np.asarray(part, dtype=np.float64)) for part in given]
        values = np.unique(np.concatenate(parts))
    except (TypeError, ValueError):
        return listed(value) if isinstance(value, list) else str(value)
    if len(values) == 1:
        return number(float(values[0]), 6)
    own = "row and feature" if isinstance(value[0], list) else own
    return f"{number(float(values[0]), 4)} to {number(float(values[-1]), 4)}, by {own}"
