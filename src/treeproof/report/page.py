"""`write_report`: one self-contained page from one saved run, or from two to compare.

The page never touches a network: styles, script and images are inside it, and a content security
policy lets nothing run but the script that is named by its hash. Text from models and data is
escaped by the template; numbers for the script travel as JSON that cannot end its element.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from treeproof.checker import RowCheck
from treeproof.checker.property_files import PropertyCheck
from treeproof.errors import InvalidInput, require_backend
from treeproof.files import replacing
from treeproof.query.arithmetic import in_words
from treeproof.report import rows, text
from treeproof.report.axes import Axis, axis_for, round_number
from treeproof.report.charts import NARROW, WIDE, curve_chart, quantiles, radius_chart
from treeproof.report.feature_changes import SHOWN, breaking_features, change_counts
from treeproof.report.findings import comparison, findings
from treeproof.report.images import check_shape, heat_image
from treeproof.report.properties import property_section
from treeproof.report.reasons import reasons_context
from treeproof.report.runs import RunView, differences, only_accepted, read_run, renamed
from treeproof.report.threat import THREAT_LINES, threat_table
from treeproof.results.curves import clean_share
from treeproof.results.numbers import counted, duration, number, percent, percent_down
from treeproof.results.results import Results
from treeproof.results.run_file import unfinished
from treeproof.results.threat import movement, own_limit, reach_words, stillness

if TYPE_CHECKING:
    from jinja2 import Template

_BETWEEN_WORDS = re.compile(r"(?<=[_/:=|])|(?<=[^\W\d][.\-])(?=[^\W\d])")
"""Where names may break: after marks between their words, never within a number."""

_LONG_NAME = 28
"""Names of more characters break within a sentence, too: a phone's line has no more."""

Source = Results | str | PathLike[str]


def write_report(
    runs: Source | Sequence[Source],
    path: str | PathLike[str],
    *,
    names: Sequence[str] | None = None,
    at: float | None = None,
    shape: tuple[int, int] | None = None,
    frozen: Sequence[Source] = (),
    title: str | None = None,
    checks: Sequence[Sequence[RowCheck] | None] | None = None,
    properties: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    property_checks: Sequence[Sequence[PropertyCheck] | None] | None = None,
    reasons: str | PathLike[str] | None = None,
    date: datetime.date | None = None,
) -> None:
    """Write a page that shows one run, or compares two.

    Parameters
    ----------
    runs : Results, path, or a sequence of one or two
        What was found, or run files.
    path : str or path
        Where the page goes, such as ``report.html``.
    names : sequence of str, optional
        What the reader knows the runs by; by default the names of the files.
    at : float, optional
        Radius that the page opens with; by default a round one near the median.
    shape : tuple of int, optional
        Height and width of rows that are images.
    frozen : sequence of Results or paths
        Runs of the same question with features frozen; the page says what freezing them changes.
    title : str, optional
        Heading of the page.
    checks : sequence of sequences of RowCheck, optional
        For each run what `treeproof.checker.check_run` said of its rows. Then only answers that it
        accepted are shown, and all others are undecided.
    properties : str or path, or a sequence of them, optional
        Answers of ``treeproof prove --out`` and ``diff --out``, each with a section of its own.
    property_checks : sequence, optional
        For each of these files what `treeproof.checker.property_files.check_answers` said. Of what
        it did not accept nothing but the claim is shown.
    reasons : str or path, optional
        A file of ``treeproof reasons --out``, which gets a section of its own.
    date : datetime.date, optional
        Day that the page is dated with; by default today.
    """
    require_backend("jinja2", "report")
    shown = _read(runs, names)
    if at is not None and not (np.isfinite(at) and at >= 0.0):
        raise InvalidInput(f"'at' must be a radius, a finite number >= 0. Got {at!r}.")
    if shape is not None:
        for run in shown:
            check_shape(shape, run.results.witness.shape[1])
    if checks is not None:
        _check_count("check", checks, shown)
        shown = [
            run if found is None else only_accepted(run, found)
            for run, found in zip(shown, checks, strict=True)
        ]
    frozen_runs = [read_run(source) for source in frozen]
    _check_frozen(shown, frozen_runs)
    context = _context(shown, frozen_runs, at, shape, title)
    context["date"] = text.day_words(date or datetime.date.today())
    context["properties"] = _properties(properties, shown, property_checks)
    context["reasons"] = None
    if reasons is not None:
        context["reasons"] = reasons_context(reasons, shape, _fingerprints(shown))
    page = load_template("page.html.j2").render(context)
    with replacing(path, "The report") as file:
        # File names may hold bytes that are no text; a question mark stands for them.
        file.write(page.encode("utf-8", "replace"))


def _properties(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]] | None,
    runs: list[RunView],
    checks: Sequence[Sequence[PropertyCheck] | None] | None,
) -> list[dict[str, Any]]:
    given = [paths] if isinstance(paths, str | PathLike) else paths or []
    found = [None] * len(given) if checks is None else list(checks)
    sections = [
        property_section(path, _fingerprints(runs), own)
        for path, own in zip(given, found, strict=True)
    ]
    for place, section in enumerate(sections):
        before = sum(other["nav"] == section["nav"] for other in sections[:place])
        section["link"] = f"{section['nav']} {before + 1}" if before else section["nav"]
    return sections


def _fingerprints(runs: list[RunView]) -> set[str]:
    return {str(run.model.get("fingerprint")) for run in runs}


def load_template(name: str) -> Template:
    """A page of this package, with what all of them can say."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("treeproof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "duration": duration,
        "reach": lambda distance, is_attack: reach_words(distance, is_attack=is_attack),
        # Joining escapes the parts. In tables names are narrow; in a sentence only long ones break.
        "breakable": lambda name: Markup("<wbr>").join(_BETWEEN_WORDS.split(str(name))),
        "prose": lambda text: Markup(" ").join(map(_prose_word, str(text).split(" "))),
    }
    environment.globals |= {"percent_down": percent_down, "counted": counted}
    return environment.get_template(name)


def _prose_word(word: str) -> Any:
    from markupsafe import Markup

    if len(word) > _LONG_NAME:
        return Markup("<wbr>").join(_BETWEEN_WORDS.split(word))
    # Browsers break identifiers and exponents behind their hyphens.
    return Markup('<span class="whole">{}</span>').format(word) if "-" in word else word


def _read(runs: Source | Sequence[Source], names: Sequence[str] | None) -> list[RunView]:
    sources = [runs] if isinstance(runs, Results | str | PathLike) else list(runs)
    if len(sources) not in (1, 2):
        raise InvalidInput(f"A report shows one run or compares two. Got {len(sources)}.")
    if names is not None:
        _check_count("name", names, sources)
    given = [None] * len(sources) if names is None else list(names)
    return renamed([read_run(s, name) for s, name in zip(sources, given, strict=True)])


def _check_count(what: str, given: Sequence[Any], runs: Sequence[Any]) -> None:
    if len(given) != len(runs):
        raise InvalidInput(
            f"There must be one {what} for each of the {len(runs)} runs. Got {len(given)}."
        )


def _check_frozen(shown: list[RunView], frozen_runs: list[RunView]) -> None:
    known = {run.model.get("fingerprint") for run in shown}
    for run in frozen_runs:
        if run.model.get("fingerprint") not in known:
            raise InvalidInput(
                f"A run with frozen features must be about a model of the report. Got '{run.name}',"
                " which is about another one."
            )


def _context(
    runs: list[RunView],
    frozen_runs: list[RunView],
    at: float | None,
    shape: tuple[int, int] | None,
    title: str | None,
) -> dict[str, Any]:
    with_radii = all(run.has_radii for run in runs)
    axis = _axis(runs) if with_radii else Axis(high=1.0)
    start = _start(runs, axis, at)
    unlike, threats = differences(*runs) if len(runs) == 2 else [], _threats(runs)
    pixels = rows.pixels_of(runs, shape)
    script, styles = asset("page.js"), asset("page.css")
    context: dict[str, Any] = {
        "title": title or " against ".join(run.name for run in runs),
        "styles": styles,
        "script": script,
        "script_hash": _hash(script),
        "payload": _payload(runs, axis, start, pixels, with_radii=with_radii, is_one=not unlike),
        "runs": [_run_context(run, k, start, frozen_runs) for k, run in enumerate(runs)],
        "threats": threats,
        # Of prices and relative units there is no distance that all rows have.
        "has_reach": any(line["factors"] for table in threats for line in table["lines"]),
        "n_lines": THREAT_LINES,
        "compared": None if unlike else _compared(runs, start),
        "start": start,
        "with_radii": with_radii,
        "measure": _measure(runs),
        "meanings": list(dict.fromkeys(text.radius_meaning(run) for run in runs)),
        "words": text.page_words(runs),
        "recourse": all(run.recourse for run in runs),
        "n_further": sum(run.n_further for run in runs),
        "attack_only": all(run.is_attack for run in runs),
        "asks_radii": with_radii and all(run.results.asks_radius for run in runs),
        "axis": axis,
        "wide": WIDE,
        "notes": _unfinished(runs) + unlike + _notes(runs),
        "galleries": _galleries(runs, pixels, is_one=not unlike),
        "pixel_maps": _pixel_maps(runs, pixels),
        "n_shown": SHOWN,
        "labels": sorted({rows.text_of(x) for run in runs for x in run.results.label} - {""}),
    }
    if with_radii:
        context["curves"] = [curve_chart(runs, axis, frame) for frame in (WIDE, NARROW)]
        if context["asks_radii"]:
            context["histograms"] = [radius_chart(runs, axis, frame) for frame in (WIDE, NARROW)]
    return context


def _measure(runs: list[RunView]) -> str:
    return " or ".join(dict.fromkeys(run.measure for run in runs))


def _axis(runs: list[RunView]) -> Axis:
    """Axis of the radii; beyond a radius that was verified nothing is known."""
    verified = [run.eps for run in runs if run.eps]
    if verified:
        return Axis(high=max(verified))
    return axis_for(
        np.concatenate([bound for r in runs for bound in (r.results.lower, r.results.upper)])
    )


def _start(runs: list[RunView], axis: Axis, at: float | None) -> float:
    """Radius that the page opens with."""
    if at is not None:
        return at
    budgets = [float(run.recourse["budget"]) for run in runs if run.recourse.get("budget")]
    if budgets:
        return min(*budgets, axis.high)
    # Beyond a radius that was verified nothing is known, so all runs are shown where they can be.
    verified = [run.eps for run in runs if run.eps is not None]
    if verified:
        return min(verified)
    bounds = np.concatenate([run.shown_radius for run in runs])
    positive = bounds[np.isfinite(bounds) & (bounds > 0.0)]
    return min(round_number(float(np.median(positive))), axis.high) if len(positive) else 0.0


def _run_context(run: RunView, k: int, start: float, frozen_runs: list[RunView]) -> dict[str, Any]:
    n, n_wrong = run.n_attacked, run.n_broken
    n_certified, n_resisting = run.n_certified(start), run.n_resisting(start)
    clean, threat = clean_share(run.results), run.threat
    # What is found is rounded up, what is proved to hold, down.
    shows_found = run.is_attack or bool(run.recourse)
    changes = [("the row changes within radius ", None), (reach_words(start), 1.0)]
    return {
        "index": k,
        "name": run.name,
        "is_attack": run.is_attack,
        "recourse": run.recourse,
        "n": n,
        "n_still": len(run.results) - n,
        "clean": "–" if clean is None else percent_down(round(clean * n), n),
        # In the order of the bar: verified, undecided, broken by a change, wrong as they stand.
        "counts": [n_certified, n_resisting - n_certified, n - n_resisting - n_wrong, n_wrong],
        "attacked_class": run.question.get("attacker_class"),
        "moves": changes if threat is None else movement(threat, start, is_attack=shows_found),
        "nothing_moves": threat is not None and not threat.movers,
        "stillness": [] if threat is None else stillness(threat),
        "claim": text.claim_words(run),
        "id_name": run.id_name,
        "own_limit": own_limit(run.header),
        "rows_are": in_words(run.header),
        "identity": text.identity_lines(run),
        "findings": findings(run, start),
        "own_labels": run.question.get("labels") != "given",
        "is_label": run.question.get("goal", {}).get("name", "KeepsLabel") == "KeepsLabel",
        "sections": text.sections(run),
        "undecided_lines": text.undecided_lines(run),
        "evidence": text.evidence_lines(run),
        "trust": text.trust_words(run),
        "quantiles": quantiles(run) if run.has_radii else [],
        "breaking": breaking_features(run, frozen_runs),
        "summary": text.summary_words(run),
    }


def _threats(runs: list[RunView]) -> list[dict[str, Any]]:
    """What may move in each run, feature by feature; once where it is the same in both."""
    tables: list[dict[str, Any]] = []
    for k, run in enumerate(runs):
        lines = [] if run.threat is None else threat_table(run, run.threat)
        lead = text.threat_words(run)
        if lines and not any((t["lines"], t["lead"]) == (lines, lead) for t in tables):
            tables.append({"index": k, "name": run.name, "lines": lines, "lead": lead})
    if len(tables) == 1:
        tables[0]["name"] = ""
    return tables


def _compared(runs: list[RunView], start: float) -> dict[str, Any] | None:
    """Who proves more rows; None where that cannot be said."""
    if len(runs) != 2 or any(run.is_attack for run in runs):
        return None
    counts = comparison(runs[0], runs[1], start)
    if counts["n"] == 0:
        return None
    more = counts["second"] - counts["first"]
    winner, loser = (runs[1].name, runs[0].name) if more >= 0 else (runs[0].name, runs[1].name)
    return counts | {"more": abs(more), "winner": winner, "loser": loser}


def _unfinished(runs: list[RunView]) -> list[str]:
    """Which runs are not complete: the first thing to know of what follows."""
    said = [(run.name, unfinished(run.header, len(run.results))) for run in runs]
    return [f"{name}: {words}" if len(runs) > 1 else words for name, words in said if words]


def _notes(runs: list[RunView]) -> list[str]:
    """What a reader must know before comparing two runs."""
    if len(runs) == 1:
        return []
    one, other = runs
    notes = []
    first, second = one.results.values, other.results.values
    if not np.array_equal(one.results.row, other.results.row):
        notes.append("The two runs are about different rows; rows are matched by their numbers.")
    elif first is not None and second is not None:
        is_same = first.shape == second.shape
        if is_same:
            # What a pipeline drops is nowhere in its run, and libraries round rows to different
            # precisions before they compare.
            there = ~(np.isnan(first).all(axis=0) | np.isnan(second).all(axis=0))
            is_same = np.allclose(
                first[:, there], second[:, there], rtol=1e-6, atol=0.0, equal_nan=True
            )
        if not is_same:
            notes.append("Rows of the same number differ between the runs; compare with care.")
    return notes


def _galleries(
    runs: list[RunView], pixels: rows.Pixels | None, *, is_one: bool
) -> list[dict[str, Any]]:
    first = runs[0]
    order, measure = " of the first run" if len(runs) == 2 else "", first.measure
    # Verdicts at one radius say which rows break, not which of them break first.
    fragile, robust = "Rows that a change breaks", "Rows that are proved"
    if first.results.asks_radius:
        fragile, robust = "Most fragile rows", "Most robust rows"
        if not first.is_settled:
            # An undecided row may break first, or be the most robust one, and nobody knows.
            fragile, robust = "Rows known to break first", f"Rows of the largest proved {measure}"
    if first.recourse:
        fragile, robust = "Cheapest ways", "Rows without a way, and dearest ways"
    galleries = [
        ("fragile", f"{fragile}{order}", rows.fragile_rows(first)),
        ("robust", f"{robust}{order}", rows.robust_rows(first)),
    ]
    if len(runs) == 2 and is_one and all(run.has_radii for run in runs):
        gains = rows.largest_gains(*runs)
        galleries.insert(0, ("gains", "Largest differences between the runs", gains))
    return [
        {"id": key, "heading": heading, "cards": [rows.card(runs, i, pixels) for i in positions]}
        for key, heading, positions in galleries
        if positions
    ]


def _pixel_maps(runs: list[RunView], pixels: rows.Pixels | None) -> list[dict[str, Any]]:
    if pixels is None:
        return []
    return [
        {
            "name": run.name,
            "index": k,
            "image": heat_image(change_counts(run).astype(np.float64), pixels.shape),
            "most": int(change_counts(run).max()),
            "n_witnesses": int(run.has_witness.sum()),
        }
        for k, run in enumerate(runs)
        if run.changed is not None
    ]


def _payload(
    runs: list[RunView],
    axis: Axis,
    start: float,
    pixels: rows.Pixels | None,
    *,
    with_radii: bool,
    is_one: bool,
) -> str:
    """Data for the page's script, as JSON in which nothing can end the element around it."""
    data = {
        "withRadii": with_radii,
        "comparable": is_one,
        "measure": _measure(runs),
        "recourse": all(run.recourse for run in runs),
        "axis": {"high": axis.high, "bend": None if np.isinf(axis.bend) else axis.bend},
        "start": start,
        "eps": runs[0].eps,
        "runs": [rows.table_columns(run) for run in runs],
        "pixels": [rows.pixel_payload(run, pixels) for run in runs],
    }
    text = msgspec.json.encode(data).decode("utf-8")
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def asset(name: str) -> str:
    """Text of a file beside the templates."""
    return (resources.files("treeproof.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
