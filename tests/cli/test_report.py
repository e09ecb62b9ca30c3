import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import treeproof
from tests.cli.test_radius import data
from tests.docs.pages import ROOT
from tests.report.made_runs import six_rows

Run = Callable[..., Result]
__all__ = ["data"]


@pytest.fixture
def saved_run(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    six_rows().save(path)
    return path


def test_from_model_and_data_to_the_page(
    run: Run, saved_model: Path, data: Path, tmp_path: Path
) -> None:
    answers, page = tmp_path / "answers.jsonl", tmp_path / "page.html"
    assert run("radius", saved_model, data, "--label", "kind", "--out", answers).exit_code == 0
    result = run("report", answers, "--out", page, "--title", "Spam & ham")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"the report is in {page}." in result.stderr
    text = page.read_text(encoding="utf-8")
    assert '<h1 id="heading">Spam &amp; ham</h1>' in text
    assert "width [cm]" in text


def test_two_runs_with_names_and_frozen_features(run: Run, saved_run: Path, tmp_path: Path) -> None:
    other, frozen = tmp_path / "other.jsonl", tmp_path / "frozen.jsonl"
    six_rows().save(other)
    still = six_rows()
    still.header["question"]["perturbation"]["frozen"] = ["height"]
    still.save(frozen)
    result = run(
        "report", saved_run, other, "--out", tmp_path / "page.html", "--name", "natural",
        "--name", "robust", "--at", "0.3", "--shape", "1x2", "--frozen", frozen,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "natural against robust" in text
    assert "mean radius if frozen" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Missing argument"),
        (["RUN", "RUN", "RUN"], "A report shows one run or compares two. Got 3."),
        (["nowhere.jsonl"], "The run file nowhere.jsonl must be readable."),
        (["RUN", "--shape", "8"], "The shape of images must be HxW, such as 28x28. Got '8'."),
        (["RUN", "--shape", "8x8"], "as many pixels as there are features (2). Got 8x8."),
        (["RUN", "--at", "-1"], "Invalid value for '--at'"),
        (["RUN", "--at", "inf"], "'inf' is not a finite number."),
        (["RUN", "--name", "a", "--name", "b"], "one name for each of the 1 runs. Got 2."),
        (["RUN", "--frozen", "RUN"], "which freezes no others."),
        (["RUN", "--out", "no/page.html"], "The folder of the report 'no/page.html' must exist."),
        (["RUN", "--out", "RUN"], "The report must not replace the run it is made from."),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(
    run: Run,
    saved_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("report", *[str(saved_run) if word == "RUN" else word for word in words])
    assert result.exit_code == 2
    assert sentence in result.stderr.replace("\n", " ")
    assert not (tmp_path / "report.html").exists()


def test_evidence_is_checked_on_request(
    run: Run, saved_model: Path, data: Path, tmp_path: Path
) -> None:
    answers, page = tmp_path / "answers.jsonl", tmp_path / "page.html"
    asked = ("radius", saved_model, data, "--label", "kind", "--out", answers)
    assert run(*asked, "--evidence").exit_code == 0
    assert run("report", answers, "--out", page, "--check", saved_model).exit_code == 0
    assert "independently of the engines: 4 accepted" in page.read_text(encoding="utf-8")
    assert "accepted 4 of 4 answers." in page.read_text(encoding="utf-8")
    assert run("report", answers, "--out", page).exit_code == 0
    assert "not when this page was written" in page.read_text(encoding="utf-8")
    result = run("report", answers, answers, "--out", page, "--check", saved_model)
    assert result.exit_code == 2
    assert "--check must be given once for each of the 2 runs. Got 1." in result.stderr


def test_every_option_is_documented() -> None:
    from treeproof.cli import demo, report

    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for module in (report, demo):
        section = page.partition(f"## treeproof {module.__name__.rpartition('.')[2]}\n")[2]
        section = section.partition("\n## ")[0]
        for parameter in module.command.params:
            # Those of every command are described once, at the top.
            where = page if parameter.name in ("verbose", "log_file") else section
            for option in parameter.opts:
                assert not option.startswith("--") or option in where, option


def test_a_run_that_is_not_complete_says_so_first(run, saved_model, data, tmp_path):
    out, page = tmp_path / "run.jsonl", tmp_path / "page.html"
    assert run("radius", saved_model, data, "--out", out).exit_code == 0
    header, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    header |= {"state": "underway", "n_rows": 0}
    lines = [json.dumps(record) + "\n" for record in (header, *rows[:-1])]
    out.write_text("".join(lines))
    sentence = f"The run is not complete: {len(rows) - 1} rows"
    for words in (["curve", out, "--at", 0.1], ["report", out, "--out", page]):
        refused = run(*words)
        assert refused.exit_code == 2
        assert sentence in refused.stderr
        assert "--partial" in refused.stderr
        partly = run(*words, "--partial")
        assert partly.exit_code == 0
        assert sentence in partly.stderr
    assert sentence in page.read_text()
    summary = treeproof.load_results(out).summary()
    assert summary.startswith(sentence)
