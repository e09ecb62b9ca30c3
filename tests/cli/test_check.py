"""`treeproof check`: exit status, what is said, and that nothing compiled is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.model.test_file_format import binary_stump
from treeproof.errors import InvalidInput
from treeproof.loaders.base import LoadOptions
from treeproof.model.file_format import load_saved, save_ensemble

ROWS = "\n".join(["width [cm]", "0.1", "0.9", "0.3"]) + "\n"


@pytest.fixture
def asked(run, saved_model: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Model, data and a run with evidence."""
    data, out = tmp_path / "rows.csv", tmp_path / "run.jsonl"
    data.write_text(ROWS)
    result = run("radius", saved_model, data, "--evidence", "--out", out)
    assert result.exit_code == 0, result.output
    return saved_model, data, out


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, changed: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in changed))


def test_a_run_with_evidence_is_accepted(run, asked):
    model, data, out = asked
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 0
    said = result.stdout.splitlines()
    assert said[0] == f"model {load_saved(model).fingerprint}"
    assert said[1:3] == ['kind "radius"', 'engine name "exact"']
    assert 'goal name "KeepsLabel"' in said
    assert said[-2:] == [
        "rows compared with the data; labels are the model's own",
        "3 accepted, 0 rejected, 0 unproved, 0 claims nothing",
    ]
    said = run("check", out, "--model", model).stdout.splitlines()
    assert said[-2] == "rows as the run gives them; labels are the model's own"


def test_the_question_is_shown_whole(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    header["question"]["perturbation"]["frozen"] = [0] * 99
    write(out, [header, *rows])
    shown = run("check", out, "--model", model).stdout
    for name, value in header["question"].items():
        assert f"\n{name} " in shown
        assert not isinstance(value, str) or f'{name} "{value}"' in shown
    assert "frozen [0, …, 0] (99 in all, --json shows them), low" in shown
    everything = json.loads(run("check", out, "--model", model, "--json").stdout)
    assert everything["question"] == header["question"]
    assert everything["compared"] == {"rows": False, "labels": False}


def test_rows_that_were_dropped_are_noticed(run, asked):
    model, data, out = asked
    header, *rows = records(out)
    header |= {"n_rows": 2}
    header["data"]["n_asked"] = 2
    write(out, [header, *rows[:2]])
    assert run("check", out, "--model", model).exit_code == 0  # nobody knows better
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 3
    assert "rejected: run: 3 rows of the data were asked about, 2 are here" in result.stdout
    run("radius", model, data, "--evidence", "--out", out, "--rows", "0:2")
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 0, result.stdout
    assert "rows compared with the data, of which the run asks about rows 0:2;" in result.stdout


def test_labels_are_compared(run, asked):
    model, data, out = asked
    labelled = ["width [cm],kind", "0.1,ham", "0.9,spam", "0.3,spam"]
    data.write_text("\n".join(labelled) + "\n")
    run("radius", model, data, "--label", "kind", "--evidence", "--out", out)
    words = ("check", out, "--model", model, "--data", data)
    result = run(*words, "--label", "kind")
    assert result.exit_code == 0, result.stdout
    assert "rows compared with the data; labels compared with the data" in result.stdout
    assert "labels compared with the data" in run(*words).stdout  # the run knows their column
    data.write_text("\n".join([*labelled[:2], "0.9,ham", labelled[3]]) + "\n")
    result = run(*words)
    assert result.exit_code == 3
    assert "row 1: rejected: record: the label of the data is 'ham'" in result.stdout


@pytest.mark.parametrize("question", ["radius", "verify"])
def test_unknown_rows_without_bounds_are_neither_accepted_nor_shown(run, asked, question):
    model, data, out = asked
    if question == "verify":
        run("verify", model, data, "--eps", 0.05, "--evidence", "--out", out)
    header, *rows = records(out)
    nothing = {"verdict": "unknown", "lower": None, "upper": None, "exact": False, "evidence": None,
               "attained": False, "witness": None, "witness_distance": None}  # fmt: skip
    write(out, [header, *[row | nothing | {"witness_label": None} for row in rows]])
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "0 accepted, 3 rejected" in result.stdout
    for words in (("report", out), ("report", out, "--check", model), ("curve", out, "--at", 0.1)):
        refused = run(*words)
        assert refused.exit_code == 2
        assert "must have bounds, unless boxes were asked about. Got none for row 0" in (
            refused.stderr.replace("\n", " ")
        )


def test_a_question_that_nobody_asked_is_refused(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    for field in ({"attacker_class": 7}, {"goal": {"name": "KeepsCalm"}}, {"kind": "swear"}):
        write(out, [header | {"question": header["question"] | field}, *rows])
        for words in (("check", out, "--model", model), ("report", out, "--check", model)):
            result = run(*words)
            assert result.exit_code == 2
            assert "header" in result.stderr


@pytest.mark.parametrize("arithmetic", ["real", "float64"])
def test_data_files_are_compared_as_the_model_rounds_them(run, asked, tmp_path, arithmetic):
    _, data, out = asked
    model = tmp_path / "rounding.treeproof"
    save_ensemble(binary_stump(input_precision="float32"), model)
    data.write_text("0\n0.1\n0.3\n")  # neither is a float32
    run("radius", model, data, "--evidence", "--out", out, "--arithmetic", arithmetic)
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 0, result.stdout
    data.write_text("0\n0.1\n0.30001\n")
    assert run("check", out, "--model", model, "--data", data).exit_code == 3


def test_verify_records_evidence_too(run, asked):
    model, data, out = asked
    run("verify", model, data, "--eps", 0.05, "--evidence", "--out", out)
    assert run("check", out, "--model", model).exit_code == 0


def test_damage_is_shown_and_ends_with_status_3(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    rows[1]["lower"] = rows[1]["upper"] = 2.0 * rows[1]["lower"]
    write(out, [header, *rows])
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "2 accepted, 1 rejected" in result.stdout
    assert f"row {rows[1]['row']}: rejected: claim: the radius is" in result.stdout
    shown = json.loads(run("check", out, "--model", model, "--json").stdout)
    assert shown["rejected"] == 1
    assert shown["failures"][0]["row"] == rows[1]["row"]


def test_rows_of_other_data_are_rejected(run, asked):
    model, data, out = asked
    data.write_text(ROWS.replace("0.3", "0.4"))
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 3
    assert "row 2: rejected: claim: it is about another row" in result.stdout


def test_a_run_without_evidence_is_unproved(run, asked):
    model, data, out = asked
    run("radius", model, data, "--out", out)
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "3 unproved" in result.stdout


def test_missing_rows_are_noticed(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    header["data"]["n_asked"] = 3
    write(out, [header, *rows[:-1]])
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "3 rows were asked about, 2 are here" in result.stdout


def test_a_lost_end_is_noticed_and_resumed(run, asked, tmp_path):
    model, data, out = asked
    whole = out.read_bytes()
    assert (
        json.loads(whole.partition(b"\n")[0])["data"]["n_asked"] is None
    )  # CSV files are read once
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "\nrejected: run: 3 rows were asked about, 2 are here" in result.stdout
    for words in (("report", out), ("merge", out)):
        refused = run(*words, "--out", tmp_path / "other")
        assert refused.exit_code == 2
        assert "must have the 3 rows that its header counts. Got 2" in refused.stderr
    assert run("radius", model, data, "--evidence", "--out", out, "--resume").exit_code == 0
    assert run("check", out, "--model", model).exit_code == 0
    out.write_bytes(whole.replace(b'"complete"', b'"underway"', 1))
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "\nrejected: run: it is not complete, 3 rows are here" in result.stdout


def test_wrong_use_ends_with_status_2(run, asked, tmp_path):
    model, data, out = asked
    assert run("check", tmp_path / "none.jsonl", "--model", model).exit_code == 2
    assert run("check", data, "--model", model).exit_code == 2
    other = tmp_path / "other.jsonl"
    changed = records(out)
    changed[0]["model"]["fingerprint"] = "0" * 64
    write(other, changed)
    result = run("check", other, "--model", model)
    assert result.exit_code == 2
    assert "another model" in result.stderr
    changed[0]["model"]["source"] = "no such file"
    write(other, changed)
    result = run("check", other)
    assert result.exit_code == 2
    assert "--model" in result.stderr


def test_many_failures_are_not_all_shown(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    header["n_rows"] = 25
    write(out, [header, *[rows[0] | {"evidence": None, "row": n} for n in range(25)]])
    result = run("check", out, "--model", model)
    assert "25 unproved" in result.stdout
    assert "… 5 more" in result.stdout


def test_nothing_compiled_is_imported(asked):
    model, _, out = asked
    code = (
        "import sys\n"
        "from treeproof.cli.main import main\n"
        f"words = ['check', {str(out)!r}, '--model', {str(model)!r}]\n"
        "status = main(words, standalone_mode=False)\n"
        "assert not status, status\n"
        "parts = ('numba', 'treeproof.kernels', 'treeproof.engines', 'treeproof.search')\n"
        "loaded = [m for m in sys.modules if m.startswith(parts)]\n"
        "assert not loaded, loaded\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "3 accepted" in found.stdout


def test_rows_of_merged_runs_are_told(run, asked):
    """Whoever drops rows says so in the header, which readers see."""
    model, data, out = asked
    header, *rows = records(out)
    rows.sort(key=lambda row: row["row"])
    header |= {"n_rows": 1}
    header["data"] |= {"n_asked": 1, "merged": [{"rows": "0:1"}]}
    write(out, [header, rows[0]])
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 0
    assert "compared with the data, of which the run asks about rows 0:1" in result.stdout


def test_radii_of_rows_that_cannot_be_compared_are_not_passed_over(run, saved_model, tmp_path):
    data, out = tmp_path / "rows.csv", tmp_path / "run.jsonl"
    data.write_text("width [cm],far\n0.1,0.1\n0.9,0.2\n")
    threat = tmp_path / "threat.toml"
    threat.write_text('norm = "LInf"\neps = { column = "far" }\n')
    result = run("verify", saved_model, data, "--threat", threat, "--evidence", "--out", out)
    assert result.exit_code == 0, result.output
    assert run("check", out, "--model", saved_model, "--data", data).exit_code == 0
    header, *rows = records(out)
    for name in ("eps", "column"):
        header["data"].pop(name, None)
        header["question"]["perturbation"]["eps"].pop(name, None)
    write(out, [header, *rows])
    result = run("check", out, "--model", saved_model, "--data", data)
    assert result.exit_code == 2
    assert "must name the column" in result.stderr


def test_what_nobody_checks_is_said(run, asked):
    model, _, out = asked
    said = run("check", out, "--model", model).stdout
    assert "as the file says, and nobody checked: dates" in said
    everything = json.loads(run("check", out, "--model", model, "--json").stdout)
    assert "notes" in everything["not_checked"]


BROKEN_QUESTIONS = [
    {"perturbation": {"name": "L0", "eps": 3, "scale": "inf"}},
    {"perturbation": {"domain": {"categorical": [[0, [0, [1, [0]]]]]}}},
    {"perturbation": {"domain": {"categorical": [[0, [[0, [1]], 2]]]}}},
    {"perturbation": {"domain": {"rules": ["x[0] <= " + "1" * 5000]}}},
    {"perturbation": {"domain": {"rules": ["x[0] <= 1e99999999"]}}},
    {"perturbation": {"domain": {"groups": [[[0, 9], True]]}}},
    {"labels": 7},
]


@pytest.mark.parametrize("change", BROKEN_QUESTIONS)
def test_headers_that_cannot_be_followed_end_with_a_sentence(run, asked, change):
    model, data, out = asked
    run("verify", model, data, "--eps", "0.1", "--evidence", "--out", out)
    header, *rows = records(out)
    for name, value in change.items():
        own = header["question"][name]
        header["question"][name] = own | value if isinstance(own, dict) else value
    write(out, [header, *rows])
    result = run("check", out, "--model", model)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr


def test_prices_above_all_doubles_are_followed(run, asked):
    # A change that is counted costs 1 / scale, which is a fraction here.
    model, data, out = asked
    run("verify", model, data, "--eps", "0.1", "--evidence", "--out", out)
    header, *rows = records(out)
    header["question"]["perturbation"] |= {"name": "L0", "eps": 3, "scale": 5e-324}
    write(out, [header, *rows])
    result = run("check", out, "--model", model)
    assert result.exit_code == 3, result.output
    assert "0 accepted, 3 rejected" in result.stdout


@pytest.mark.parametrize("loading", [{"classes": 7}, {"classes": [[1], [2]]}, {"classes": "no"}])
def test_load_options_that_cannot_be_are_refused(loading):
    with pytest.raises(InvalidInput, match="'classes' must list names"):
        LoadOptions(**loading)


def test_deep_files_and_files_without_answers_end_with_a_sentence(run, saved_model, tmp_path):
    deep = '{"format": "treeproof properties 1", "a": ' + "[" * 200_000 + "]" * 200_000 + "}"
    for text in (deep, '{"format": "treeproof properties 1", "properties": 5, "model": {}}'):
        (tmp_path / "x.json").write_text(text)
        result = run("check", tmp_path / "x.json", "--model", saved_model)
        assert result.exit_code == 2, result.output


def test_identifiers_are_those_of_the_data(run, saved_model, tmp_path):
    data, out = tmp_path / "rows.csv", tmp_path / "run.jsonl"
    data.write_text("width [cm],customer\n0.1,A1\n0.9,A2\n")
    words = ("radius", saved_model, data, "--id", "customer", "--evidence", "--out", out)
    assert run(*words).exit_code == 0
    assert run("check", out, "--model", saved_model, "--data", data).exit_code == 0
    header, *rows = records(out)
    rows.sort(key=lambda row: row["row"])
    write(out, [header, rows[0] | {"id": "A99999"}, rows[1]])
    result = run("check", out, "--model", saved_model, "--data", data)
    assert result.exit_code == 3
    assert "row 0: rejected: record: the data call it 'A1'" in result.stdout
    header["data"].pop("id")
    write(out, [header, rows[0] | {"id": "A99999"}, rows[1]])
    assert run("check", out, "--model", saved_model, "--data", data).exit_code == 3
