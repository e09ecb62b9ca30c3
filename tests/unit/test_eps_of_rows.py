"""Radii and budgets of each row's own: every row is answered as if it were asked alone."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from treeproof.checker import check_run
from treeproof.errors import InvalidInput
from treeproof.query.perturbations import PerRow
from treeproof.results.threat import threat_lines

RNG = np.random.default_rng(7)
X = RNG.integers(0, 12, (120, 3)).astype(float)
Y = (X[:, 0] + X[:, 1] > X[:, 2] + 4).astype(int)
MODEL = tp.load(RandomForestClassifier(7, max_depth=4, random_state=0).fit(X, Y))
ROWS = X[:24]
# Few values, many of them ties with the distances to thresholds.
EPS = RNG.choice([0.0, 0.5, 1.0, 1.5, 2.5], len(ROWS))


def broken_on_a_grid(row: np.ndarray, eps: float) -> bool:
    """Whether some point of a grid as fine as the thresholds breaks a row."""
    steps = np.arange(-eps, eps + 0.25, 0.25)
    steps = steps[np.abs(steps) <= eps]
    moves = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    labels = np.asarray(MODEL.predict(row + moves))
    return bool(np.any(labels != np.asarray(MODEL.predict(row[np.newaxis]))[0]))


@pytest.mark.parametrize("kind", [tp.LInf, tp.L1, tp.L2, tp.L0, tp.Cost])
@pytest.mark.parametrize("engine", ["exact", "attack"])
def test_rows_are_answered_as_if_alone(kind, engine):
    found = tp.verify(MODEL, ROWS, None, kind(EPS), engine=engine)
    assert np.array_equal(found.eps, EPS)
    for i, eps in enumerate(EPS.tolist()):
        (alone,) = [tp.verify(MODEL, ROWS[[i]], None, kind(eps), engine=engine)]
        for name in ("verdict", "lower", "upper", "exact", "attained", "reason"):
            assert getattr(found, name)[i] == getattr(alone, name)[0], name
        assert np.array_equal(found.witness[i], alone.witness[0], equal_nan=True)


def test_verdicts_are_those_of_a_grid():
    found = tp.verify(MODEL, ROWS, None, tp.LInf(EPS))
    broken = [broken_on_a_grid(row, eps) for row, eps in zip(ROWS, EPS.tolist(), strict=True)]
    assert (found.verdict == "falsified").tolist() == broken
    assert 3 < sum(broken) < len(ROWS) - 3
    inside = np.abs(found.witness - ROWS).max(axis=1)[found.verdict == "falsified"]
    assert np.all(inside <= EPS[found.verdict == "falsified"])


def test_labels_frames_and_progress():
    frame, told = pd.DataFrame(ROWS), []
    found = tp.verify(
        MODEL, frame, pd.Series(Y[: len(ROWS)]), tp.LInf(pd.Series(EPS)),
        progress=lambda done, of_all: told.append((done, of_all)), n_jobs=2,
    )  # fmt: skip
    assert found.label.tolist() == Y[: len(ROWS)].tolist()
    assert told[-1] == (len(ROWS), len(ROWS))
    assert "eps" in found.to_frame().columns


def test_the_question_says_that_each_row_has_its_own():
    found = tp.verify(MODEL, ROWS, None, tp.LInf(EPS))
    assert found.header["question"]["perturbation"]["eps"] == {"name": "PerRow", "column": None}
    (line,) = threat_lines(found.header)
    assert line == "each row within its own eps: every feature moves by up to the row’s own eps"
    assert "own eps" in found.summary()
    with pytest.raises(InvalidInput, match="of their own no common one"):
        found.plot()


@pytest.mark.parametrize("eps", [[0.1, -1.0], [0.1, np.nan], np.ones((2, 2)), "far", {"a": 1.0}])
def test_what_is_no_radius_is_refused(eps):
    with pytest.raises((InvalidInput, TypeError)):
        tp.LInf(eps)


def test_questions_that_have_one_radius_only():
    with pytest.raises(InvalidInput, match=r"each of the 24 rows.* Got 2"):
        tp.verify(MODEL, ROWS, None, tp.LInf([0.1, 0.2]))
    with pytest.raises(InvalidInput, match="column 'tolerance' of a data file"):
        tp.verify(MODEL, ROWS, None, tp.LInf(PerRow("tolerance")))
    for ask in (tp.feature_radius, tp.reasons, tp.radius):
        with pytest.raises(InvalidInput):
            ask(MODEL, ROWS, None, tp.LInf(EPS))


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "run.jsonl"
    tp.verify(MODEL, ROWS, None, tp.LInf(EPS), evidence=True).save(path)
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def statuses(path, lines, **options):
    path.write_text("\n".join(map(json.dumps, lines)))
    return [check.status for check in check_run(path, MODEL.ensemble, **options)]


def test_the_checker_holds_every_row_to_its_own_radius(records):
    path, lines = records
    assert statuses(path, lines) == ["accepted"] * len(ROWS)
    assert statuses(path, lines, eps=EPS) == ["accepted"] * len(ROWS)
    verified = next(i for i, line in enumerate(lines) if line.get("verdict") == "verified")
    for wider in (lines[verified]["eps"] + 1.0, None, "inf", -1.0):
        forged = [dict(line) for line in lines]
        forged[verified]["eps"] = wider
        assert statuses(path, forged)[verified - 1] == "rejected"
        forged[verified]["lower"] = wider
        assert statuses(path, forged)[verified - 1] == "rejected"
    narrower = EPS.copy()
    narrower[verified - 1] += 0.5
    assert statuses(path, lines, eps=narrower)[verified - 1] == "rejected"


def test_one_radius_for_all_is_not_overruled_by_records(tmp_path):
    path = tmp_path / "run.jsonl"
    tp.verify(MODEL, ROWS[:2], None, tp.LInf(0.0), evidence=True).save(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["eps"] = 0.0
    assert statuses(path, lines) == ["rejected", "accepted"]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_runs_keep_radii_and_resume(tmp_path, ending):
    out = tmp_path / f"run{ending}"
    whole = tp.verify(MODEL, ROWS, None, tp.LInf(EPS))
    found = tp.run(MODEL, ROWS, None, tp.LInf(EPS), out=out, n_jobs=2).load()
    assert np.array_equal(found.eps, EPS)
    assert found.verdict.tolist() == whole.verdict.tolist()
    other = EPS.copy()
    other[3] += 0.25
    with pytest.raises(InvalidInput, match="Row 3"):
        tp.run(MODEL, ROWS, None, tp.LInf(other), out=out, resume=True)
    assert tp.run(MODEL, ROWS, None, tp.LInf(EPS), out=out, resume=True).n_new == 0


def test_frames_of_other_machines_bring_the_column():
    named = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    fitted = RandomForestClassifier(7, max_depth=4, random_state=0)
    model = tp.load(fitted.fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y))
    mapper = tp.FrameMapper(model, tp.LInf(PerRow("tolerance")))
    answers = mapper(named.assign(tolerance=EPS))
    assert (
        answers["verdict"].tolist() == tp.verify(MODEL, ROWS, None, tp.LInf(EPS)).verdict.tolist()
    )


def test_threat_files_name_the_column(tmp_path):
    (tmp_path / "threat.toml").write_text('eps = {column = "tolerance"}\nfrozen = [0]\n')
    threat = tp.load_threat(tmp_path / "threat.toml")
    assert threat.has_radius
    rows = pd.DataFrame(ROWS).assign(tolerance=EPS)
    ball = threat.perturbation(MODEL, rows)
    found = tp.verify(MODEL, ROWS, None, ball)
    assert found.verdict.tolist() == (
        tp.verify(MODEL, ROWS, None, tp.LInf(EPS, frozen=[0])).verdict.tolist()
    )
    assert found.header["question"]["perturbation"]["eps"]["column"] == "tolerance"
    assert threat.perturbation(MODEL, asks_radius=True).eps is None
    with pytest.raises(InvalidInput, match="must have a column 'tolerance'"):
        threat.perturbation(MODEL, ROWS)
    (tmp_path / "threat.toml").write_text('eps = {column = "t"}\n[features.0]\neps = 1.0\n')
    with pytest.raises(InvalidInput, match="where features have an 'eps' of their own"):
        tp.load_threat(tmp_path / "threat.toml").perturbation(MODEL, rows)
    for text in ('eps = {colum = "t"}', "eps = {column = 3}", 'eps = {column = "t", more = 1}'):
        (tmp_path / "threat.toml").write_text(text)
        with pytest.raises(InvalidInput, match="or a column of the data"):
            tp.load_threat(tmp_path / "threat.toml")
