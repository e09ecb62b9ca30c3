"""`treeproof trend`: the page from saved runs, and what is refused."""

from tests.report.made_runs import six_rows


def saved(folder, name, day):
    results = six_rows()
    results.header["date"] = day
    results.save(folder / name)
    return folder / name


def test_a_page_is_written_about_many_runs(run, tmp_path):
    paths = [saved(tmp_path, f"week-{k}.jsonl", f"2026-08-{k:02}") for k in (1, 8, 15)]
    out = tmp_path / "trend.html"
    result = run("trend", *paths, "--at", 0.2, "--title", "Week by week", "--out", out)
    assert result.exit_code == 0, result.output
    page = out.read_text(encoding="utf-8")
    assert "Week by week" in page
    assert page.count('class="point"') == 6  # in the wide and in the narrow chart
    assert f"the trend of 3 runs is in {out}." in result.stderr


def test_a_run_is_never_replaced_and_one_is_no_trend(run, tmp_path):
    paths = [saved(tmp_path, f"week-{k}.jsonl", f"2026-08-{k:02}") for k in (1, 8)]
    before = paths[0].read_bytes()
    refused = run("trend", *paths, "--out", paths[0])
    assert refused.exit_code == 2
    assert "must not replace a run" in refused.stderr
    assert paths[0].read_bytes() == before
    assert "two runs or more" in run("trend", paths[0]).stderr
