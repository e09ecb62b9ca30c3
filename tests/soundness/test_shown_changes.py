"""Changes as they are shown, typed in: all of them together change the library's own answer."""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from xgboost import XGBClassifier

import treeproof as tp
from treeproof.checker.answers import RunChecker
from treeproof.cli.shown_rows import changes_of
from treeproof.report.page import write_report
from treeproof.report.rows import card, table_columns
from treeproof.report.runs import RunView
from treeproof.results.changes import in_words
from treeproof.results.numbers import ColumnFormats
from treeproof.results.results import Results
from treeproof.results.run_file import load_results, row_records

NUMBERS = ["amount", "hour", "share"]


def payments(seed: int, n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """Cents, whole numbers and numbers between, with many ties, and a column of texts."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "amount": np.round(rng.lognormal(5.0, 1.0, n), 2),
            "hour": rng.integers(0, 24, n).astype(float),
            "share": rng.normal(size=n) * 10.0 ** rng.integers(-6, 3),
            "kind": rng.choice(["card", "cash", "transfer"], n),
        }
    )
    middle = np.median(frame.share)
    y = (frame.amount > 150.0) ^ (frame.hour < 7) ^ (frame.share > middle) ^ (rng.random(n) < 0.1)
    return frame, y.to_numpy().astype(int)


def on_columns(model: Any) -> Any:
    """A pipeline that scales numbers and encodes texts."""
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_pipeline(
        make_column_transformer((StandardScaler(), NUMBERS), (encode, ["kind"])), model
    )


MODELS: dict[str, Callable[[], Any]] = {
    "xgboost": lambda: XGBClassifier(n_estimators=20, max_depth=4),
    "lightgbm": lambda: LGBMClassifier(n_estimators=20, verbose=-1, min_child_samples=5),
    "catboost": lambda: CatBoostClassifier(
        iterations=20, depth=4, verbose=False, allow_writing_files=False
    ),
    "forest": lambda: RandomForestClassifier(10, max_depth=6, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(10, max_depth=6, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=20, random_state=0),
    "histogram": lambda: HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5),
    "scaled xgboost": lambda: on_columns(XGBClassifier(n_estimators=20, max_depth=4)),
    "scaled lightgbm": lambda: on_columns(LGBMClassifier(n_estimators=20, verbose=-1)),
    "quantile forest": lambda: make_pipeline(
        QuantileTransformer(n_quantiles=50), RandomForestClassifier(10, random_state=0)
    ),
}


def questions(frame: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """Perturbations of all kinds: radii and verdicts, with and without a domain."""
    scale = {name: float(frame[name].std()) for name in NUMBERS if name in frame}
    whole = tp.Domain(integer=["hour"], ranges={"amount": (0.0, np.inf)})
    yield "radius", tp.LInf(scale=scale)
    yield "L1", tp.L1(scale=scale, domain=whole)
    yield "L2 verdict", tp.L2(0.5, scale=scale)
    yield "verdict", tp.LInf(0.3, scale=scale)
    yield "L0", tp.L0(domain=whole)


def typed(text: str) -> float:
    """The number that a reader types in."""
    return float(text.replace(",", "").replace("−", "-"))


def shown_everywhere(results: Results, path: Path) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Each place where changes are shown: its name, the row, and what each feature becomes."""
    results.save(path)
    run = RunView(results=load_results(path), name="run")
    formats = ColumnFormats(results.values)
    records, html = list(row_records(run.results)), results._repr_html_()
    table = table_columns(run)
    write_report(path, path.with_suffix(".html"))
    page = path.with_suffix(".html").read_text()
    for i in np.flatnonzero(~np.isnan(results.witness).all(axis=1)).tolist():
        changes = results.changes(i)
        if not changes:
            continue
        yield "str", i, dict(re.split(": .* → ", str(change)) for change in changes)
        yield "changes", i, {change.name: repr(change.after) for change in changes}
        for place, said in (
            ("shell", in_words(changes_of(records[i], run.header), formats)),
            ("python", in_words(changes, formats)),
        ):
            assert "… and" not in said
            yield place, i, dict(re.findall(r"(\w+): \S+ → (\S+)(?: \([^)]*\))?(?:, |$)", said))
        view = card([run], i, None)["views"][0]["changes"]
        yield "card", i, {change["name"]: change["changed"] for change in view}
        flat = table["changes"][i][1:]
        named = {table["features"][str(f)]: f for f in flat[::4]}
        assert [table["features"][str(f)] for f in flat[::4]] == list(named)
        yield "table", i, dict(zip(named, flat[2::4], strict=True))
    yield from shown_in_tables(results, path)
    told = re.findall(r"<td>(\d+)</td>.*?text-align:left'>(.*?)</td>", html)
    for row, said in told:
        found = dict(re.findall(r"(\w+): \S+ → (\S+)(?: \([^)]*\))?(?:, |$)", said))
        if found:
            yield "notebook", int(row), found
    cards = card([run], int(told[0][0]), None)["views"][0]["changes"]
    assert all(change["changed"] in page for change in cards)


def shown_in_tables(results: Results, path: Path) -> Iterator[tuple[str, int, dict[str, str]]]:
    """The same of data frames, of CSV files and of spreadsheets, as a reader sees their cells."""
    results.save(path.with_suffix(".csv"))
    results.save(path.with_suffix(".xlsx"))
    frame = results.to_pandas(changes=True, witness=True)
    with path.with_suffix(".csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    book = openpyxl.load_workbook(path.with_suffix(".xlsx"))
    head, *cells = book["answers"].iter_rows()
    names = [str(cell.value) for cell in head]
    for i in np.flatnonzero(~np.isnan(results.witness).all(axis=1)).tolist():
        if not results.changes(i):
            continue
        seen = {"frame": frame.iloc[i].dropna().to_dict(), "csv": lines[i]}
        seen["spreadsheet"] = {
            name: as_displayed(cell)
            for name, cell in zip(names, cells[i], strict=True)
            if cell.value is not None
        }
        for place, line in seen.items():
            ends = {name.removesuffix(" after"): line[name] for name in line if " after" in name}
            yield place, i, {name: str(value) for name, value in ends.items() if value != ""}
        whole = {n.removeprefix("witness."): v for n, v in seen["frame"].items() if "witness." in n}
        yield "witness", i, {name: str(value) for name, value in whole.items()}


def as_displayed(cell: Any) -> str:
    """A cell as a spreadsheet shows it, with the format that it was given."""
    if not isinstance(cell.value, int | float) or cell.number_format == "General":
        return str(cell.value)
    if "E" in cell.number_format:
        return f"{cell.value:.15g}"
    return f"{cell.value:.{len(cell.number_format.partition('.')[2])}f}"


def check(name: str, seed: int, folder: Path, n_rows: int) -> tuple[int, set[str]]:
    """Type in everything that is shown about a trained model; how much that was, and where."""
    frame, y = payments(seed)
    if " " not in name or name in ("extra trees", "quantile forest"):
        frame = frame[NUMBERS]
    source = MODELS[name]().fit(frame, y)
    model, asked, places, count = tp.load(source), frame[:n_rows], set(), 0
    own = np.asarray(source.predict(asked)).ravel()
    for kind, perturbation in questions(frame):
        results = (
            tp.radius(model, asked, None, perturbation)
            if perturbation.eps is None
            else (tp.verify(model, asked, None, perturbation))
        )
        rows, origin = [], []
        for place, row, becomes in shown_everywhere(results, folder / "run.jsonl"):
            changed = asked.iloc[row].to_dict()
            for feature, text in becomes.items():
                is_number = feature in NUMBERS
                changed[feature] = typed(text) if is_number else text.strip("'")
            rows.append(changed)
            origin.append((place, row, becomes))
            places.add(place)
        if not rows:
            continue
        answers = np.asarray(source.predict(pd.DataFrame(rows))).ravel()
        wrong = [o for o, answer in zip(origin, answers, strict=True) if answer == own[o[1]]]
        assert not wrong, (name, seed, kind, wrong[:3])
        count += len(rows)
    return count, places


PLACES = {"str", "changes", "shell", "python", "card", "table", "notebook"}
PLACES |= {"frame", "csv", "spreadsheet", "witness"}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_shown_changes_the_answer(name: str, tmp_path: Path) -> None:
    count, places = check(name, 0, tmp_path, 15)
    assert count > 100
    assert places == PLACES


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_is_shown_of_many_rows_changes_the_answer(name: str, tmp_path: Path) -> None:
    assert sum(check(name, seed, tmp_path, 50)[0] for seed in range(1, 11)) > 5_000


@pytest.mark.parametrize("perturbation", [tp.LInf(), tp.L1(), tp.LInf(40.0), tp.L1(60.0)])
def test_the_checker_replays_what_is_shown(perturbation: Any) -> None:
    frame, y = payments(3)
    frame = frame[NUMBERS].assign(share=np.round(frame.share, 3))
    model = tp.load(MODELS["xgboost"]().fit(frame, y))
    ask = tp.radius if perturbation.eps is None else tp.verify
    results = ask(model, frame[:20], None, perturbation, evidence=True)
    checker = RunChecker(results.header, model.ensemble)
    records = list(row_records(results))
    assert {check.status for check in checker.check_all(records)} == {"accepted"}
    forged = []
    for record in records:
        if record.get("shown"):
            feature = next(iter(record["shown"]))
            own = float(record["values"][int(feature)])
            shown = [record["shown"] | {feature: value} for value in (own, 1e9, -1e9)]
            shown += [record["shown"] | {"17": 1.0}, {"amount": 1.0}]
            forged += [record | {"shown": other} for other in shown]
    assert len(forged) > 10
    n_rejected = [check.status for check in checker.check_all(forged)].count("rejected")
    # Where several features change, or any large number does, a forged one may break it as well.
    assert n_rejected > len(forged) // 2
