"""Letters about rejections: proved reasons in a lender's own words, and what would change it.

A row gets reasons that fix its decision, whatever all other features are; features that must not be
named are not among them, and so are proved not to matter. What cannot be said so is not said.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from treeproof.api import loaded, reasons, recourse
from treeproof.errors import InvalidInput, listed, nearest
from treeproof.model import evaluate
from treeproof.model.cuts import cuts_of
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.rows import numeric_rows
from treeproof.prediction import Model, accumulators
from treeproof.query.domain import Domain
from treeproof.query.names import feature_number
from treeproof.query.perturbations import Ball, Box, in_order
from treeproof.results.reasons import Reasons
from treeproof.results.results import Results

_OPENING = "Dear applicant {id},\n\nwe cannot give the decision that you asked for."
_CLOSING = "You may ask us for the data behind this decision, and for a review by a person."
_KEYS = {"wanted", "never", "most", "opening", "closing", "reason"}
_REASON_KEYS = {"code", "phrase", "features"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A reason in the lender's own words, and the features that it stands for."""

    phrase: str
    features: tuple[str, ...]
    code: str = ""

    def __str__(self) -> str:
        return f"[{self.code}] {self.phrase}" if self.code else self.phrase


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWords:
    """What letters say: the wanted class, phrases, and features that are never named."""

    wanted: Any
    reasons: tuple[Phrase, ...]
    never: tuple[str, ...] = ()
    most: int = 4
    opening: str = _OPENING
    closing: str = _CLOSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One letter: ranked reasons, ways to the other decision, and what is proved.

    `problem` says why there are no reasons that may be named; such a letter must not be sent.
    """

    row: int
    id: Any
    opening: str
    closing: str
    reasons: tuple[Phrase, ...] = ()
    ways: tuple[str, ...] = ()
    basis: str = ""
    problem: str = ""

    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        said = [{"code": reason.code, "phrase": reason.phrase} for reason in self.reasons]
        return {"row": self.row, "id": self.id, "reasons": said, "ways": list(self.ways)} | {
            "basis": self.basis,
            "problem": self.problem,
        }

    def text(self) -> str:
        """The letter as plain text."""
        if self.problem:
            return f"NOT TO BE SENT (row {self.row}): {self.problem}\n"
        parts = [self.opening, "", "Principal reasons:"]
        parts += [f"  {n}. {reason}" for n, reason in enumerate(self.reasons, start=1)]
        if self.ways:
            parts += ["", "What would have led to the other decision, all else being equal:"]
            parts += [f"  * {way}" for way in self.ways]
        return "\n".join([*parts, "", self.closing, "", self.basis]) + "\n"

    def html(self) -> str:
        """The letter as a part of a page."""
        if self.problem:
            return f"<article class='problem'><p>{escape(self.text())}</p></article>"

        def items(tag: str, lines: Iterable[object]) -> str:
            return f"<{tag}>{''.join(f'<li>{escape(str(x))}</li>' for x in lines)}</{tag}>"

        paragraphs = [f"<p>{escape(part)}</p>" for part in self.opening.split("\n\n")]
        body = [*paragraphs, "<h2>Principal reasons</h2>", items("ol", self.reasons)]
        if self.ways:
            body.append("<h2>What would have led to the other decision, all else being equal</h2>")
            body.append(items("ul", self.ways))
        body += [f"<p>{escape(self.closing)}</p>", f"<footer>{escape(self.basis)}</footer>"]
        return f"<article>{''.join(body)}</article>"


def load_letter_words(path: str | PathLike[str]) -> LetterWords:
    """Read the words of letters from a TOML file."""
    try:
        with Path(path).open("rb") as file:
            given = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The words '{path}' must be a TOML file. Got: {error}.") from error
    _only(given, _KEYS, path)
    if "wanted" not in given:
        raise InvalidInput(f"The words '{path}' must say which class is 'wanted'. They do not.")
    said = given.pop("reason", [])
    if not isinstance(said, list) or not said or not all(isinstance(r, dict) for r in said):
        raise InvalidInput(f"The words '{path}' must have at least one [[reason]]. Got {said!r}.")
    phrases = []
    for reason in said:
        _only(reason, _REASON_KEYS, path)
        features, phrase = reason.get("features"), reason.get("phrase")
        is_right = isinstance(features, list) and features and isinstance(phrase, str) and phrase
        if not is_right or not all(isinstance(name, str) for name in cast(list[Any], features)):
            raise InvalidInput(
                f"A [[reason]] of '{path}' must have a 'phrase' and a list of 'features'."
                f" Got {reason!r}."
            )
        code = str(reason.get("code", ""))
        phrases.append(Phrase(phrase=phrase, features=tuple(features), code=code))
    most, never = given.get("most", 4), given.get("never", [])
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InvalidInput(f"'most' of '{path}' must be a whole number from 1 on. Got {most!r}.")
    if not isinstance(never, list) or not all(isinstance(name, str) for name in never):
        raise InvalidInput(f"'never' of '{path}' must be a list of features. Got {never!r}.")
    for name in ("opening", "closing"):
        if not isinstance(given.get(name, ""), str):
            raise InvalidInput(f"'{name}' of '{path}' must be a text. Got {given[name]!r}.")
    given |= {"never": tuple(never), "most": most, "reasons": tuple(phrases)}
    return LetterWords(**given)


def _only(given: Mapping[str, Any], known: set[str], path: Any) -> None:
    for name in given.keys() - known:
        raise InvalidInput(
            f"The words '{path}' must have the keys {listed(sorted(known))}. Got {name!r}."
            f"{nearest(name, known)}"
        )


@dataclass(slots=True)
class Answered:
    """Letters, and the answers that stand behind them."""

    letters: list[Letter] = field(default_factory=list)
    reasons: Reasons | None = None
    ways: Results | None = None


def write_letters(
    model: Any,
    X: Any,
    words: LetterWords,
    perturbation: Ball,
    *,
    n_ways: int = 1,
    step: Mapping[Any, float] | None = None,
    ids: Sequence[Any] | None = None,
    evidence: bool = False,
    n_jobs: int = 1,
    time_limit_s: float = float("inf"),
) -> Answered:
    """Write a letter for every row that is not decided as wanted.

    Parameters
    ----------
    model, X
        See `treeproof.verify`.
    words : LetterWords
        Phrases, the wanted class, and features that are never named.
    perturbation : LInf, L1, L2, L0 or Cost
        Which rows there can be (its bounds and its domain), what applicants can change, and what
        that costs them.
    n_ways, step
        See `treeproof.recourse`; no way changes what is never named.
    ids : sequence, optional
        What applicants are known by.
    evidence : bool
        Prove the reasons once more, on record.
    n_jobs, time_limit_s
        See `treeproof.verify`.
    """
    asked = loaded(model)
    ensemble = asked.ensemble
    phrases, never = _resolved(ensemble, words)
    rows = numeric_rows(ensemble, X, allow_empty=False)
    rejected = np.flatnonzero(np.asarray(asked.predict(rows)) != words.wanted)
    if len(rejected) == 0:
        return Answered()
    ball = in_order(cast(Any, perturbation), ensemble.feature_names, ensemble.n_features)
    box = Box(ball.low, ball.high, _whole_domain(ensemble, ball.domain))
    why = reasons(
        asked,
        rows[rejected],
        None,
        box,
        minimum=True,
        never=never,
        groups=[list(f) for f in phrases.values() if len(f) > 1],
        evidence=evidence,
        n_jobs=n_jobs,
        time_limit_s=time_limit_s,
    )
    frozen = replace(ball, frozen=[*ball.frozen, *never])
    ways = recourse(
        asked,
        rows[rejected],
        words.wanted,
        frozen,
        n_ways=n_ways,
        step=step,
        n_jobs=n_jobs,
        time_limit_s=time_limit_s,
    )
    gains = _Gains(asked, ball, words.wanted)
    letters = []
    for place, row in enumerate(rejected.tolist()):
        known = None if ids is None else ids[row]
        named = row if known is None else known
        letter = Letter(
            row=row,
            id=known,
            opening=words.opening.replace("{id}", str(named)),
            closing=words.closing.replace("{id}", str(named)),
        )
        letters.append(_filled(letter, why, place, ways, (phrases, never, gains), words, asked))
    why.row, ways.row = rejected, rejected[ways.row]
    return Answered(letters, why, ways)


def _filled(
    letter: Letter,
    why: Reasons,
    place: int,
    ways: Results,
    tools: "tuple[dict[Phrase, list[int]], list[int], _Gains]",
    words: LetterWords,
    model: Model,
) -> Letter:
    """The letter with its reasons, or why there are none that may be named."""
    phrases, never, gains = tools
    fixed = {*why.features[place].tolist(), *why.kept[place].tolist()}
    if not why.sufficient[place] or fixed & {*never}:
        return replace(
            letter,
            problem="no features that may be named are proved to fix this decision"
            + (f" ({why.reason[place]})" if why.reason[place] else "")
            + "; what must not be named may have decided it.",
        )
    behind = [phrase for phrase, features in phrases.items() if fixed & {*features}]
    gain = {phrase: gains.of(why.values[place], phrases[phrase]) for phrase in behind}
    ranked = sorted(behind, key=lambda phrase: -gain[phrase])
    others = [str(name) for name in words.never]
    names = f", {listed(others)} among them" if others else ""
    more = len(ranked) - words.most
    further = f", with {more} more that weigh less" if more > 0 else ""
    basis = (
        f"Decided by the model {model.fingerprint[:16]}. It is proved that the features behind"
        f" these reasons{further} fix the decision, whatever all other features are{names}, in"
        " every row that there can be."
    )
    own = ways.take(ways.row == place)
    said = tuple("; ".join(map(str, answer.changes)) for answer in own if answer.has_witness)
    return replace(letter, reasons=tuple(ranked[: words.most]), ways=said, basis=basis)


def _resolved(ensemble: Ensemble, words: LetterWords) -> tuple[dict[Phrase, list[int]], list[int]]:
    """Numbers of the features behind each phrase, and of those that are never named."""
    n, names = ensemble.n_features, ensemble.feature_names
    if words.wanted not in ensemble.classes:
        raise InvalidInput(
            f"'wanted' must be one of the classes {list(ensemble.classes)}. Got {words.wanted!r}."
            f"{nearest(words.wanted, ensemble.classes)}"
        )
    never = [feature_number(name, n, names) for name in words.never]
    phrases = {p: [feature_number(name, n, names) for name in p.features] for p in words.reasons}
    said = [feature for features in phrases.values() for feature in features]
    if twice := sorted({f for f in said if said.count(f) > 1 or f in never}):
        raise InvalidInput(
            "A feature must stand behind one reason, or be in 'never'. Got"
            f" {names[twice[0]] if names else twice[0]!r} more than once."
        )
    used = np.unique(ensemble.trees.feature[ensemble.trees.feature >= 0]).tolist()
    if unsaid := sorted({*used} - {*said} - {*never}):
        named = listed([names[f] if names else str(f) for f in unsaid])
        raise InvalidInput(
            "Every feature that the model uses must have a phrase, or be in 'never'. Got none for"
            f" {named}."
        )
    return phrases, never


def _whole_domain(ensemble: Ensemble, domain: Domain | None) -> Domain:
    """A domain in which all categories change: a proof is to hold whatever they are."""
    given = domain or Domain()
    known = given.categorical
    named = {**known} if isinstance(known, Mapping) else dict.fromkeys(_listed(known))
    n, names = ensemble.n_features, ensemble.feature_names
    there = {feature_number(feature, n, names) for feature in named}
    missing = [f for f in np.flatnonzero(ensemble.is_categorical).tolist() if f not in there]
    if not missing:
        return given
    if isinstance(known, Mapping):
        codes = {f: list(ensemble.categories.get(f, ())) for f in missing}
        return replace(given, categorical={**known, **codes})
    return replace(given, categorical=[*named, *missing])


def _listed(features: Any) -> list[Any]:
    return [features] if isinstance(features, str | int) else list(features)


class _Gains:
    """By how much some features alone could raise the score of the wanted class, at most."""

    def __init__(self, model: Model, ball: Any, wanted: Any) -> None:
        self._ensemble = accept_float64_rows(model.ensemble)
        self._wanted = model.classes.index(wanted)
        n = self._ensemble.n_features
        self._low = np.broadcast_to(np.asarray(ball.low, dtype=np.float64), (n,))
        self._high = np.broadcast_to(np.asarray(ball.high, dtype=np.float64), (n,))

    def of(self, row: FloatArray, features: list[int]) -> float:
        """The largest gain of a row by these features: each alone, or as one group of columns."""
        tried = [row]
        for feature in features:
            for value in self._values(row, feature):
                changed = row.copy()
                changed[feature] = value
                tried.append(changed)
        if len(features) > 1 and set(np.unique(row[features])) <= {0.0, 1.0}:
            for feature in features:
                changed = row.copy()
                changed[features] = 0.0
                changed[feature] = 1.0
                tried.append(changed)
        scores = self._scores(np.array(tried))
        return float(scores.max() - scores[0])

    def _values(self, row: FloatArray, feature: int) -> list[float]:
        """One value of each cell within the bounds; of categories all codes."""
        if self._ensemble.is_categorical[feature]:
            return [float(code) for code in range(len(self._ensemble.categories.get(feature, ())))]
        cuts = cuts_of(self._ensemble).of(feature)
        ends = np.concatenate([[-np.inf], cuts, [np.inf]])
        low, high = ends[:-1], np.nextafter(ends[1:], -np.inf)
        low, high = np.maximum(low, self._low[feature]), np.minimum(high, self._high[feature])
        values = np.clip(row[feature], low, high)[low <= high]
        return [float(value) for value in values[np.isfinite(values)]]

    def _scores(self, rows: FloatArray) -> NDArray[np.float64]:
        read = evaluate.cast_rows(self._ensemble, rows)
        sums = evaluate.finish(self._ensemble, accumulators(self._ensemble, read))
        scores = sums.astype(np.float64)
        if scores.shape[1] == 1:
            return scores[:, 0] if self._wanted == 1 else -scores[:, 0]
        others = np.delete(scores, self._wanted, axis=1).max(axis=1)
        return np.asarray(scores[:, self._wanted] - others)


_STYLE = """
:root { color-scheme: light dark; }
body { font: 17px/1.5 Georgia, serif; margin: 0 auto; max-width: 42em; padding: 1.5rem; }
article { border-bottom: 1px solid #8886; padding: 2.5rem 0; break-after: page; }
article:last-of-type { border: 0; break-after: auto; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
footer { color: #777; font-size: .8rem; margin-top: 2rem; overflow-wrap: anywhere; }
.problem { color: #b3261e; font-weight: 600; }
@media print { body { max-width: none; padding: 0; } article { border: 0; } }
"""


def letters_page(letters: Sequence[Letter]) -> str:
    """All letters as one page that works offline; each is a page of its own on paper."""
    body = "\n".join(letter.html() for letter in letters)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Letters</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
