from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treeproof as tp
from treeproof.results import summary as summary_module
from treeproof.results.results import Results
from treeproof.results.run_file import header_record
from treeproof.results.run_parquet import parquet_records, save_parquet
from treeproof.results.summary import RunningStats, RunSummary

NUMBERS = st.one_of(st.floats(0.0, 1e9), st.just(np.inf))


@given(blocks=st.lists(st.lists(NUMBERS, max_size=8), min_size=1, max_size=8))
def test_blocks_are_summarised_as_one(blocks):
    stats = RunningStats()
    for block in blocks:
        stats.add(np.array(block, dtype=np.float64))
    values = np.array([value for block in blocks for value in block])
    assert stats.count == len(values)
    if len(values):
        assert stats.median == np.median(values)
        assert stats.mean == pytest.approx(np.mean(values))
        assert (stats.least, stats.largest) == (values.min(), values.max())


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e12])
def test_medians_of_very_many_numbers_are_near(monkeypatch, scale):
    monkeypatch.setattr(summary_module, "EXACT_UP_TO", 100)
    values = scale * np.random.default_rng(0).exponential(size=5001)
    stats = RunningStats()
    for block in np.array_split(values, 37):
        stats.add(block)
    assert not stats._values  # nothing of them is kept
    assert stats.median == pytest.approx(np.median(values), rel=1e-3)


def test_bins_hold_zero_and_infinity(monkeypatch):
    monkeypatch.setattr(summary_module, "EXACT_UP_TO", 2)
    for number in (0.0, np.inf):
        stats = RunningStats()
        stats.add(np.full(9, number))
        assert stats.median == pytest.approx(number, abs=1e-300)


def answers(**columns):
    """Settled rows without labels and witnesses."""
    results = Results.empty(len(columns["lower"]), 1)
    results.verdict[:] = "verified"
    results.exact[:] = True
    results.header = {"question": {"kind": "radius"}}
    return replace(results, **columns)


def test_rows_are_counted_at_radii():
    summary = RunSummary(True, (0.0, 0.5, 1.0))
    bounds = np.array([0.5, 0.5, 2.0, 0.0])
    attained = np.array([True, False, False, True])
    summary.add(answers(lower=bounds, upper=bounds, attained=attained))
    summary.add(answers(lower=np.array([0.2]), upper=np.array([np.inf]), exact=np.array([False])))
    assert summary.n_rows == 5
    assert summary.proved == {0.0: 4, 0.5: 2, 1.0: 1}
    assert summary.broken == {0.0: 1, 0.5: 2, 1.0: 3}
    assert summary.share_proved(0.5) == 0.4


def test_summaries_of_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    n = 50
    results = Results(
        row=np.arange(n),
        label=np.full(n, None),
        verdict=rng.choice(["verified", "falsified", "unknown"], n),
        lower=rng.random(n),
        upper=rng.random(n) + 1.0,
        exact=rng.random(n) < 0.5,
        attained=rng.random(n) < 0.5,
        witness=np.full((n, 2), np.nan),
        witness_distance=np.full(n, np.nan),
        seconds=rng.random(n),
        reason=rng.choice(["", "time limit"], n),
        header=header_record({"n_features": 2}, {"kind": "radius"}),
    )
    summary = RunSummary(True)
    for part in np.array_split(np.arange(n), 7):
        summary.add(results.take(part))
    assert "\n".join(summary.lines()) == results.summary()
    assert results.take(slice(0, 0)).summary() == "0 rows"


def test_damaged_parquet_runs_are_refused(tmp_path):
    path = tmp_path / "run.parquet"
    header = header_record({"n_features": 1}, {"kind": "radius"})
    save_parquet(header, [], path)
    assert len(tp.load_results(path)) == 0
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(tp.InvalidInput, match="must be a Parquet file that treeproof wrote"):
        parquet_records(path)
    with pytest.raises(tp.InvalidInput, match="must be readable"):
        tp.load_results(tmp_path / "absent.parquet")


def test_torn_last_lines_are_left_out_and_others_refused(tmp_path):
    header = '{"record":"header","format":1,"model":{"n_features":1}}\n'
    path = tmp_path / "run.jsonl"
    path.write_text(header + '{"record":"row","row":1,"lab')
    assert len(tp.load_results(path)) == 0
    path.write_bytes(header.encode() + b'{"record":"row","label":"\xc3')  # in the midst of a letter
    assert len(tp.load_results(path)) == 0
    path.write_text(header + '{"record":"row","row":1,"lab\n')
    with pytest.raises(tp.InvalidInput, match=r"Line 2 of .* must be a JSON record"):
        tp.load_results(path)
    path.write_text(header[:30])  # a torn header is no run: it is written in one step
    with pytest.raises(tp.InvalidInput, match=r"Line 1 of .* must be a JSON record"):
        tp.load_results(path)


def test_a_bound_that_is_missing_counts_as_nothing_proved():
    summary = RunSummary(asks_radius=True, radii=(0.1,))
    summary.add(answers(lower=np.array([np.nan, 0.5, np.nan]), upper=np.full(3, np.nan)))
    assert (summary.lower.mean, summary.lower.least, summary.lower.median) == (0.5 / 3, 0.0, 0.0)
    assert summary.share_proved(0.1) == pytest.approx(1 / 3)


def test_summaries_say_what_may_move():
    from tests.report.made_runs import six_rows

    def lines(**perturbation):
        asked = {"name": "LInf", "eps": None} | perturbation
        return six_rows(perturbation=asked).summary().splitlines()

    plain = lines()
    assert not any("move" in line for line in plain)  # everything moves by the radius
    moves = "width moves by up to 50, with height fixed"
    assert f"a radius of 1 allows: {moves}" in lines(scale=[50.0, 0.0])
    verified = lines(eps=0.5, frozen=["width"], low=0.0)
    assert "within radius 0.5: height moves by up to 0.5, with width fixed" in verified
    assert "Bounds: what moves stays from 0" in verified
    box = lines(name="Box", low=[0.0, 1.0], high=[2.0, "inf"])
    assert "in the box: width lies anywhere from 0 to 2 and height lies anywhere from 1" in box
    results = six_rows()
    results.header["model"]["categorical"] = [1]
    assert "A category never moves: height" in results.summary().splitlines()


def test_one_row_is_one_row():
    results = Results.empty(1, 1)
    results.lower[:] = results.upper[:] = np.inf
    results.header = {"question": {"kind": "radius"}}
    lines = results.summary().splitlines()
    assert lines[0].startswith("1 row: radius exact on 0,")
    assert "no allowed change breaks 1 row" in lines
    results.header["question"]["attacker_class"] = "spam"
    assert results.summary() == (
        "0 of 1 row attacked, the others stay as they are: radius exact on 0, already broken 0,"
        " undecided 0"
    )
    tally = RunSummary(True, n_rows=12000, n_attacked=1)
    assert tally.rows_in_words() == "1 of 12,000 rows attacked, the others stay as they are"
    assert tally.who() == "of the 1 attacked row"


def test_rows_that_nothing_breaks_have_no_mean():
    results = Results.empty(3, 1)
    results.lower[:], results.upper[:] = [0.5, np.inf, np.inf], [0.5, np.inf, np.inf]
    results.header = {"question": {"kind": "radius"}}
    tally = RunSummary(True)
    tally.add(results)
    lines = tally.lines()
    assert "lower bound: median ∞, least 0.5" in lines
    assert "no allowed change breaks 2 rows" in lines
    assert "upper bound: mean 0.5, median 0.5, least 0.5 (1 row)" in lines
