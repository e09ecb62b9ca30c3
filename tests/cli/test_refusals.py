"""What the command line refuses: every path ends with a sentence, status 2, and whole files."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from click.testing import Result
from pyarrow import parquet

import treeproof as tp
from tests.unit.model.test_file_format import binary_stump
from treeproof.cli.run_output import check_out
from treeproof.errors import install_command
from treeproof.files import exclusive, replacing
from treeproof.model.ensemble import Decision
from treeproof.model.file_format import save_ensemble

Run = Callable[..., Result]


def assert_refused(result: Result, sentence: str) -> None:
    """One sentence on standard error, nothing on standard output, status 2."""
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr, result.stderr
    assert result.stderr.rstrip("\n").splitlines()[-1].startswith(("treeproof: error: ", "Error: "))
    assert result.stdout == ""


def save_npz(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


def cut_npz(path: Path) -> None:
    """An archive whose array is shorter than its header says."""
    import io
    import zipfile

    stream = io.BytesIO()
    np.save(stream, np.zeros((4, 1)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", stream.getvalue()[:-8])


def write(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


DATA_FILES: list[tuple[str, Callable[[Path], None], list[str], str]] = [
    ("rows.csv", write(b""), [], "The data file 'rows.csv' is empty."),
    ("rows.csv", write(b"\n1\n"), [], "The first line of 'rows.csv' must hold cells. Got an empty"),
    ("rows.csv", write(b"a,a\n1,2\n"), [], "must be unique. Got more than once: a."),
    ("rows.csv", write(b"caf\xe9\n1\n"), [], "The data file 'rows.csv' must be UTF-8 text"),
    (
        "rows.csv",
        write(b"a,b\n1,2\n3\n"),
        [],
        "Every row of 'rows.csv' must have 2 cells. Got 1 in",
    ),
    ("rows.csv", write(b"width [cm]\nwide\n"), [], "must hold numbers"),
    (
        "rows.csv",
        write(b"width [cm]\n1\n2\n3\nwide\n"),
        ["--rows", "2:"],
        "must hold numbers, since the model does not know it as a categorical feature."
        " Got 'wide' in row 3.",
    ),
    (
        "rows.csv",
        write(b"width [cm];b\n1;2\n1,5;2\n"),
        [],
        "Got '1,5' in row 1. Write numbers with a decimal point, and without commas.",
    ),
    (
        "rows.csv",
        write(b"width [cm]\n1\n9007199254740993\n"),
        [],
        "floats do not round beyond 2**53, and none beyond the largest float. Got 9007199254740993"
        " in row 1.",
    ),
    ("rows.csv", write(b"width [cm]\n-1e400\n"), [], "the largest float. Got -1e400 in row 0."),
    (
        "rows.csv",
        write(b"width [cm],key\n1,a\n"),
        ["--id", "width [cm]"],
        "The id column must not be a feature of the model. Got 'width [cm]'.",
    ),
    (
        "rows.csv",
        write(b"width [cm],key\n1,a\n"),
        ["--label", "width [cm]"],
        "The label column must not be a feature of the model. Got 'width [cm]'.",
    ),
    (
        "rows.jsonl",
        write(b'{"width [cm]": 1, "time": "12:30"}\n{"width [cm]": 1, "time": 2, "time": 3}\n'),
        [],
        "Keys in line 2 of 'rows.jsonl' must be unique. Got more than once: time.",
    ),
    (
        "rows.parquet",
        lambda path: parquet.write_table(pyarrow.table([[1.0], [2.0]], names=["a", "a"]), path),
        [],
        "Column names in 'rows.parquet' must be unique. Got more than once: a.",
    ),
    (
        "rows.npz",
        lambda path: save_npz(path, X=np.zeros((1, 2)), feature_names=np.array(["a", "a"])),
        [],
        "Names in 'feature_names' of 'rows.npz' must be unique. Got more than once: a.",
    ),
    (
        "rows.csv",
        write(b"a,b\n1,2\n"),
        [],
        "Column names must match the model's feature names. Missing: 'width [cm]'.",
    ),
    (
        "rows.csv",
        write(b"width [cm],kind\n1,ham\n2,beef\n"),
        ["--label", "kind", "--rows", "1:"],
        "Labels must be among the model's classes ['ham', 'spam']. Got ['beef'], the first in row"
        " 1.",
    ),
    ("rows.npy", write(b"no array"), [], "is not of the kind that its ending says, or is damaged"),
    ("rows.npy", write(b"\x93NUMPY\x01\x00"), [], "The data file 'rows.npy' cannot be read: "),
    ("rows.npy", lambda path: np.save(path, np.zeros(3)), [], "must be a matrix of numbers. Got"),
    (
        "rows.npy",
        lambda path: np.save(path, np.zeros((2, 3))),
        [],
        "matrix with 1 columns, one per feature. Got",
    ),
    (
        "rows.npy",
        lambda path: np.save(path, np.zeros((2, 1))),
        ["--label", "kind"],
        "A label column can be named for CSV, JSON lines, Parquet, Arrow and NPZ files only.",
    ),
    (
        "rows.npy",
        lambda path: np.save(path, np.array([[None]]), allow_pickle=True),
        [],
        "The data file 'rows.npy' cannot be read: ",
    ),
    ("rows.npz", lambda path: save_npz(path, Z=np.zeros((2, 1))), [], "has no 'X'. It has Z."),
    (
        "rows.npz",
        lambda path: save_npz(path, X=np.zeros((2, 1)), y=np.zeros(3)),
        [],
        "Array 'y' of 'rows.npz' must have one entry per row (2). Got shape (3,).",
    ),
    (
        "rows.npz",
        lambda path: save_npz(path, X=np.zeros((2, 1)), feature_names=np.zeros(3)),
        [],
        "Array 'feature_names' of 'rows.npz' must have one string per column (1).",
    ),
    ("rows.npz", cut_npz, [], "The data file 'rows.npz' "),
    ("rows.npz", write(b"PK\x03\x04 and no more"), [], "The data file 'rows.npz' cannot be read: "),
    ("rows.parquet", write(b"PAR1 PAR1"), [], "The data file 'rows.parquet' cannot be read: "),
    ("rows.svm", write(b"0 1:x\n"), [], "must have the form 'label index:value ...'. Got '1:x'."),
    ("rows.svm", write(b"ham 2:1\n"), [], "must have at most 1 columns, the first of which is 1."),
    ("rows.svm", write(b"ham 0:1\n"), [], "Got a column 0 in line 1. Say --first-column 0"),
]


@pytest.mark.parametrize(("name", "make", "words", "sentence"), DATA_FILES)
def test_data_files(
    run: Run,
    saved_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    make: Callable[[Path], None],
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(saved_model.parent)
    make(Path(name))
    assert_refused(run("radius", saved_model, name, *words, "--out", "run.jsonl"), sentence)
    assert not Path("run.jsonl").exists()


def test_columns_of_libsvm_files_may_be_counted_from_0(
    run: Run, saved_model: Path, tmp_path: Path
) -> None:
    data = tmp_path / "rows.svm"
    data.write_text("ham 0:0.25\n")
    words = ("radius", saved_model, data, "--first-column", "0", "--format", "csv")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith("0,ham,ham,0.25,True,False,0.25,0.25,")


THREATS = [
    ("eps = ", "The threat model 'threat.toml' must be TOML. Got: "),
    ("features = 3", "'features' in 'threat.toml' must be tables, such as [features.age]."),
    ("[features]\nage = 3", "'features' in 'threat.toml' must be tables, such as [features.age]."),
    (
        "eps = -1",
        "'eps' in 'threat.toml' must be a number >= 0, or a column of the data such as {column ="
        ' "tolerance"}. Got -1.',
    ),
    (
        "eps = nan",
        "'eps' in 'threat.toml' must be a number >= 0, or a column of the data such as {column ="
        ' "tolerance"}. Got nan.',
    ),
    ("scale = 'iqr'", "'scale' in 'threat.toml' must be one of one, std, range. Got 'iqr'."),
    ("frozen = 1.5", "'frozen' in 'threat.toml' must be a feature name or number, or a list"),
    ("low = '0'", "'low' in 'threat.toml' must be a number. Got '0'."),
    (
        "arithmetic = 'f16'",
        "'arithmetic' in 'threat.toml' must be one of float64, real. Got 'f16'.",
    ),
    ("attacker_class = []", "'attacker_class' in 'threat.toml' must be a class label. Got []."),
    ("attacker_class = 'beef'", "'attacker_class' must be one of the classes ['ham', 'spam']."),
    ("epsilon = 1", "'epsilon' in 'threat.toml' is no key of a threat model. Did you mean 'eps'?"),
    ("zzz = 1", "'zzz' in 'threat.toml' is no key of a threat model. Known are eps, scale,"),
    ("[features.0]\nway = 1", "'features.0.way' in 'threat.toml' is no key of a threat model."),
    ("[features.0]\ndirection = 'in'", "must be one of both, up, down. Got 'in'."),
    ("[features.0]\nfrozen = 1", "'features.0.frozen' in 'threat.toml' must be true or false."),
    ("[features.height]\nlow = 1", "The model must have a feature named 'height'."),
    ("low = 2\nhigh = 1", "neither may be NaN. Got 2.0 and 1.0 of 'width [cm]'."),
]


@pytest.mark.parametrize(("text", "sentence"), THREATS)
def test_threat_model_files(
    run: Run, saved_model: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.chdir(saved_model.parent)
    Path("rows.csv").write_text("width [cm]\n0.25\n")
    Path("threat.toml").write_text(text)
    result = run("radius", saved_model, "rows.csv", "--threat", "threat.toml")
    assert_refused(result, sentence)


def test_a_threat_model_that_is_not_there(
    run: Run, saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved_model.parent)
    result = run("radius", saved_model, "rows.csv", "--threat", "threat.toml")
    assert_refused(result, "The threat model 'threat.toml' cannot be read: No such file")
    Path("threat.toml").write_bytes(b"\xff")
    result = run("radius", saved_model, "rows.csv", "--threat", "threat.toml")
    assert_refused(result, "The threat model 'threat.toml' must be TOML. Got: ")


@pytest.fixture
def saved_run(run: Run, saved_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run about three rows, in the folder that the test is in."""
    monkeypatch.chdir(saved_model.parent)
    Path("rows.csv").write_text("width [cm],kind\n0.25,ham\n0.75,spam\n1.5,spam\n")
    words = ("--label", "kind", "--out", "run.jsonl", "--evidence")
    result = run("radius", saved_model, "rows.csv", *words)
    assert result.exit_code == 0, result.stderr
    return Path("run.jsonl")


RUN_FILES = [
    (b"", "The run file damaged.jsonl must start with a header record. Got none."),
    (b"hello\n", "Line 1 of damaged.jsonl must be a JSON record. Got: "),
    (b"[" * 100_000, "Line 1 of damaged.jsonl must be a JSON record. Got: "),
    (b"[]\n", "Line 1 of damaged.jsonl must be a header or a row record."),
    (b'{"record":"header","format":"old"}\n', "must have format"),
    (b'HEAD{"record":"row"}\n', "damaged.jsonl"),
    (b'HEAD{"record":"row"}\n{"record":"row"}\n{"record":"row"}\n', "is incomplete: "),
    (b"HEAD{}\n", "Line 2 of damaged.jsonl must be a header or a row record."),
    (b"PAR1 and no more", "damaged.jsonl"),
]


@pytest.mark.parametrize(("content", "sentence"), RUN_FILES)
@pytest.mark.parametrize(
    "words",
    [
        ["report", "damaged.jsonl"],
        ["report", "run.jsonl", "damaged.jsonl"],
        ["report", "run.jsonl", "--frozen", "damaged.jsonl"],
        ["curve", "damaged.jsonl", "--at", "0.1"],
        ["merge", "run.jsonl", "damaged.jsonl", "--out", "merged.jsonl"],
    ],
)
def test_damaged_run_files(
    run: Run, saved_run: Path, content: bytes, sentence: str, words: list[str]
) -> None:
    head = saved_run.read_bytes().splitlines(keepends=True)[0]
    Path("damaged.jsonl").write_bytes(content.replace(b"HEAD", head))
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert "damaged.jsonl" in result.stderr
    if words[0] != "merge":  # which says the same of single records in its own words
        assert sentence in result.stderr
    assert not Path("report.html").exists()
    assert not Path("merged.jsonl").exists()


@pytest.mark.parametrize("content", [b"", b"hello\n", b"[" * 100_000, b"[]\n", b"\xff"])
def test_run_files_that_cannot_be_checked(run: Run, saved_run: Path, content: bytes) -> None:
    Path("damaged.jsonl").write_bytes(content)
    for words in (["check", "damaged.jsonl"], ["check", "damaged.jsonl", "--model", "no"]):
        assert_refused(run(*words), "The run file 'damaged.jsonl' must ")


def test_parquet_runs_are_turned_into_lines_to_be_checked(
    run: Run, saved_model: Path, saved_run: Path
) -> None:
    words = ("--label", "kind", "--out", "run.parquet", "--evidence")
    assert run("radius", saved_model, "rows.csv", *words).exit_code == 0
    refused = run("check", "run.parquet", "--model", saved_model)
    assert_refused(
        refused, "Got Parquet in 'run.parquet'. Turn it into JSON lines: treeproof merge"
    )
    assert run("merge", "run.parquet", "--out", "lines.jsonl").exit_code == 0
    checked = run("check", "lines.jsonl", "--model", saved_model)
    assert checked.exit_code == 0, checked.output
    assert "3 accepted, 0 rejected" in checked.stdout


def test_a_run_file_with_another_writer(run: Run, saved_model: Path, saved_run: Path) -> None:
    before = saved_run.read_bytes()
    words = ("radius", saved_model, "rows.csv", "--label", "kind", "--evidence", "--out", saved_run)
    with exclusive(saved_run):
        for more in ([], ["--resume"]):
            assert_refused(run(*words, *more), "must have one writer at a time. Another process is")
    assert saved_run.read_bytes() == before


def test_a_damaged_record_is_not_resumed(run: Run, saved_model: Path, saved_run: Path) -> None:
    text = saved_run.read_text().replace('"key":', '"lock":', 1)
    saved_run.write_text(text)
    words = ("radius", saved_model, "rows.csv", "--label", "kind", "--evidence", "--out", saved_run)
    assert_refused(run(*words, "--resume"), "A row record of run.jsonl is incomplete: 'key'.")
    assert saved_run.read_text() == text


def test_damaged_parquet_runs(run: Run, saved_model: Path, saved_run: Path) -> None:
    words = ("--label", "kind", "--out", "run.parquet")
    assert run("radius", saved_model, "rows.csv", *words).exit_code == 0
    whole = Path("run.parquet").read_bytes()
    Path("run.parquet").write_bytes(whole[:200] + bytes(200) + whole[400:])
    for words in (("report",), ("curve", "--at", "1"), ("merge", "--out", "new.jsonl")):
        result = run(*words, "run.parquet")
        assert result.exit_code == 2, result.output
        assert "The run file run.parquet " in result.stderr
    assert not Path("report.html").exists()
    assert not Path("new.jsonl").exists()


def test_lines_that_are_no_text_are_rejected(run: Run, saved_model: Path, saved_run: Path) -> None:
    head, *rest = saved_run.read_bytes().splitlines(keepends=True)
    saved_run.write_bytes(head + b"\xff\xfe\n" + b"".join(rest))
    result = run("check", saved_run, "--model", saved_model)
    assert result.exit_code == 3, result.output
    assert "3 accepted, 1 rejected" in result.stdout
    assert "\nrejected: line 2: this is no row record (JSON is malformed" in result.stdout


def test_run_files_that_cannot_be_merged(run: Run, saved_model: Path, saved_run: Path) -> None:
    import treeproof

    treeproof.load_results(saved_run).save("saved.jsonl")
    kept = Path("saved.jsonl").read_text()
    Path("saved.jsonl").write_text(kept.replace('"question_hash"', '"no_hash"'))
    result = run("merge", "saved.jsonl", "--out", "merged.jsonl")
    assert_refused(result, "must come from a run, with a key for every row.")
    Path("rows.csv").write_text("width [cm],kind\n0.125,ham\n")
    run("radius", saved_model, "rows.csv", "--label", "kind", "--out", "other.jsonl", "--evidence")
    result = run("merge", saved_run, "other.jsonl", "--out", "merged.jsonl")
    assert_refused(result, "Row 0 must be the same in all runs. Its values or its label differ in")
    lines = saved_run.read_text().splitlines(keepends=True)
    Path("keyless.jsonl").write_text(lines[0] + lines[1].replace('"key":', '"lock":'))
    result = run("merge", "keyless.jsonl", "--out", "merged.jsonl")
    assert_refused(result, "A row record of keyless.jsonl is incomplete: 'key'.")
    assert not Path("merged.jsonl").exists()


def test_a_run_without_rows_has_no_report(run: Run, saved_run: Path) -> None:
    head = saved_run.read_text().splitlines(keepends=True)[0]
    Path("empty.jsonl").write_text(head.replace('"complete"', '"underway"'))
    result = run("report", "empty.jsonl", "--partial")
    assert_refused(result, "A report needs at least one row. Got none in the run 'empty'.")


def test_frozen_runs_of_a_report_are_about_its_model_and_rows(
    run: Run, saved_model: Path, saved_run: Path
) -> None:
    Path("rows.csv").write_text("width [cm],kind\n0.125,ham\n")
    words = ("--label", "kind", "--frozen", "0")
    run("radius", saved_model, "rows.csv", *words, "--out", "other.jsonl")
    result = run("report", saved_run, "--frozen", "other.jsonl")
    assert_refused(result, "must be about the rows of the report. Got 'other', which is about")
    text = Path("other.jsonl").read_text()
    head = text.partition("\n")[0]
    fingerprint = head.partition('"fingerprint":"')[2].partition('"')[0]
    Path("other.jsonl").write_text(text.replace(fingerprint, "0" * len(fingerprint)))
    result = run("report", saved_run, "--frozen", "other.jsonl")
    assert_refused(result, "must be about a model of the report. Got 'other', which is about")


OUTPUTS = [
    ["radius", "MODEL", "rows.csv", "--out", "OUT"],
    ["verify", "MODEL", "rows.csv", "--eps", "0.1", "--out", "OUT"],
    ["attack", "MODEL", "rows.csv", "--out", "OUT"],
    ["curve", "MODEL", "rows.csv", "--at", "0.1", "--out", "OUT"],
    ["features", "MODEL", "rows.csv", "--out", "OUT"],
    ["features", "MODEL", "rows.csv", "--picture", "OUT.png"],
    ["report", "run.jsonl", "--out", "OUT"],
    ["merge", "run.jsonl", "--out", "OUT"],
    ["convert", "MODEL", "OUT"],
    ["train", "rows.csv", "--label", "kind", "--out", "OUT.json"],
    ["demo", "--out", "OUT"],
]


@pytest.mark.parametrize("words", OUTPUTS, ids=" ".join)
@pytest.mark.parametrize("kind", ["folder", "no folder", "under a file", "long name"])
def test_places_that_cannot_be_written(
    run: Run, saved_model: Path, saved_run: Path, words: list[str], kind: str
) -> None:
    if words[0] == "demo" and kind in ("folder", "no folder"):
        pytest.skip("the demo makes its folder, or uses one that is there")
    before = saved_run.read_bytes()
    out = {
        "folder": "folder",
        "no folder": "absent/out",
        "under a file": "rows.csv/out",
        "long name": "n" * 300,
    }[kind]
    if kind == "folder":
        for ending in ("", ".png", ".json"):
            Path(f"folder{ending}").mkdir()
    result = run(*(w.replace("OUT", out).replace("MODEL", str(saved_model)) for w in words))
    assert_refused(result, out)
    assert saved_run.read_bytes() == before
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize("words", [w for w in OUTPUTS if w[0] != "demo"], ids=" ".join)
def test_devices_and_pipes_are_never_replaced(
    run: Run, saved_model: Path, saved_run: Path, words: list[str]
) -> None:
    for ending in ("", ".png", ".json"):
        os.mkfifo(f"pipe{ending}")
    result = run(*(w.replace("OUT", "pipe").replace("MODEL", str(saved_model)) for w in words))
    assert_refused(result, "must be a file. Got something else there.")
    assert all(Path(f"pipe{ending}").is_fifo() for ending in ("", ".png", ".json"))


def test_the_library_never_replaces_a_pipe(saved_model: Path, saved_run: Path) -> None:
    import treeproof

    os.mkfifo("pipe")
    results = treeproof.load_results(saved_run)
    for save in (
        results.save,
        treeproof.load(saved_model).save,
        lambda path: treeproof.write_report(results, path),
    ):
        with pytest.raises(treeproof.InvalidInput, match=r"'pipe'.*: it is no regular file"):
            save("pipe")
        assert Path("pipe").is_fifo()


IN_ONE_STEP = ("report", "merge", "convert", "features", "train")


@pytest.mark.parametrize("words", [w for w in OUTPUTS if w[0] in IN_ONE_STEP], ids=" ".join)
def test_a_full_disk_leaves_the_old_file(
    run: Run,
    saved_model: Path,
    saved_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for ending in ("", ".png", ".json"):
        Path(f"old{ending}").write_text("what was there")
    monkeypatch.setattr(os, "fsync", full)
    result = run(*(w.replace("OUT", "old").replace("MODEL", str(saved_model)) for w in words))
    assert result.exit_code == 2, result.output
    assert "'old" in result.stderr
    assert "No space left on device." in result.stderr
    for ending in ("", ".png", ".json"):
        assert Path(f"old{ending}").read_text() == "what was there"
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_names_that_are_no_text(run: Run, saved_model: Path, saved_run: Path) -> None:
    odd = os.fsdecode(b"run-\xff.jsonl")
    words = ("radius", saved_model, "rows.csv", "--label", "kind", "--evidence", "--out")
    assert run(*words, odd).exit_code == 0
    merged = run("merge", odd, "--out", os.fsdecode(b"\xfe.jsonl"))
    assert merged.exit_code == 0, merged.stderr
    assert merged.stdout == "3 rows of 1 runs in \\udcfe.jsonl\n"
    page = run("report", odd, "--out", "page.html")
    assert page.exit_code == 0, page.stderr
    assert "run-?" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--picture", "map.bmp"],
            "The picture 'map.bmp' must end in .png, .svg, .pdf. Got '.bmp'",
        ),
        (["--picture", "map"], "The picture 'map' must end in .png, .svg, .pdf. Got ''."),
        (["--engine", "magic", "--what", "anchors"], "'engine' must be one of exact, "),
        (["--shape", "0x1", "--picture", "map.png"], "The shape of images must be HxW"),
    ],
)
def test_features(
    run: Run, saved_model: Path, saved_run: Path, words: list[str], sentence: str
) -> None:
    assert_refused(run("features", saved_model, "rows.csv", "--label", "kind", *words), sentence)


def test_features_need_a_label_to_keep(run: Run, saved_run: Path) -> None:
    save_ensemble(
        binary_stump(decision=Decision(kind="score"), classes=()), Path("scores.treeproof")
    )
    result = run("features", "scores.treeproof", "rows.csv", "--label", "kind")
    assert_refused(result, "A model that gives scores has no label to keep.")


def test_values_that_the_model_refuses(run: Run, saved_run: Path) -> None:
    save_ensemble(
        binary_stump(missing_allowed=False, infinite_allowed=False), Path("strict.treeproof")
    )
    Path("rows.csv").write_text("0\n1\nNaN\n")
    result = run("radius", "strict.treeproof", "rows.csv")
    assert_refused(
        result, "This model has no rule for missing values, so rows must not contain NaN"
    )
    assert "Got NaN in row 1" in result.stderr
    Path("rows.csv").write_text("0\ninf\n")
    result = run("radius", "strict.treeproof", "rows.csv")
    assert_refused(result, "refuses infinite values and values beyond float64. Got inf in row 0")


MODEL_FILES = [
    ("model.json", b"{", "model.json"),
    ("model.json", b"{}", "model.json"),
    ("model.json", b"[" * 100_000, "model.json"),
    ("model.json", b'{"learner": {}}', "model.json"),
    ("model.ubj", b"{L\x00\x00", "model.ubj"),
    ("model.txt", b"tree\nversion=v4\n", "model.txt"),
    ("model.cbm", b"CBM1\x10\x00\x00\x00", "model.cbm"),
    ("model.dump", b"booster[0]:\n0:[f0<x] yes=1,no=2\n", "model.dump"),
    ("model.skops", b"PK\x03\x04 and no more", "model.skops"),
    ("model.pkl", b"\x80\x05N.", "is a pickle, which can run any program when it is opened"),
    ("model.joblib", b"anything", "is a pickle, which can run any program when it is opened"),
    ("model.gz", b"\x1f\x8b\x08 and more", "is compressed with gzip. Decompress it first."),
    ("model.any", b"anything", "is of no known kind. Supported are: "),
    ("model.any", b"", "The model file 'model.any' is empty."),
    ("absent/model", None, "There is no file 'absent/model'."),
    ("rows.csv/model", None, "The model file 'rows.csv/model' cannot be read: Not a directory."),
    (".", None, "A model must be a file, or a directory of YDF. '.' is a directory."),
]


@pytest.mark.parametrize(("name", "content", "sentence"), MODEL_FILES)
def test_model_files(
    run: Run, saved_run: Path, name: str, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    for words in (
        ("inspect", name),
        ("convert", name, "new.treeproof"),
        ("radius", name, "rows.csv", "--out", "new.jsonl"),
        ("check", saved_run, "--model", name),
        ("report", saved_run, "--check", name),
    ):
        assert_refused(run(*words), sentence)
    assert not [n for n in ("new.treeproof", "new.jsonl", "report.html") if Path(n).exists()]


@pytest.mark.parametrize(
    ("rows", "words", "sentence"),
    [
        ("0,no\n", [], "at least two classes. Got only one class: 'no'."),
        ("0,no\n1,yes\n", ["--frozen", "height"], "must have a feature named 'height'"),
        ("0,no\n1,yes\n", ["--frozen", "9"], "A feature number must be from 0 to 0. Got 9."),
        ("0,no\n1,yes\n", ["--test", "absent.csv"], "The data file 'absent.csv' cannot be read"),
        (
            "0,no\n1,yes\n",
            ["--test", "other.csv"],
            "The rows of 'other.csv' must have the columns of 'train.csv': width. Got height.",
        ),
        (
            "0,no\n1,yes\n",
            ["--test", "numbers.csv"],
            "The labels in 'numbers.csv' must be numbers or texts as those in 'train.csv' are.",
        ),
        ("1e39,no\n1,yes\n", [], "beyond float32"),
        ("", [], "There must be at least one row to train on. Got none in 'train.csv'."),
    ],
)
def test_training(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: str,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text(f"width,kind\n{rows}")
    Path("other.csv").write_text("height,kind\n1,no\n")
    Path("numbers.csv").write_text("width,kind\n1,0\n")
    shared = ("--label", "kind", "--out", "model.json", "--trees", "1")
    assert_refused(run("train", "train.csv", *shared, *words), sentence)
    assert not Path("model.json").exists()


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("distributed", ["radius", "MODEL", "rows.csv", "--dask", "tcp://a:1"], "dask"),
        ("pyarrow.parquet", ["radius", "MODEL", "rows.parquet"], "parquet"),
        ("matplotlib", ["features", "MODEL", "rows.csv", "--picture", "a.png"], "plot"),
        ("sklearn", ["train", "rows.csv", "--label", "kind", "--out", "a.json"], "sklearn"),
        ("sklearn", ["demo", "--out", "folder"], "sklearn"),
        ("z3", ["radius", "MODEL", "rows.csv", "--engine", "smt"], "smt"),
    ],
)
def test_libraries_that_are_not_installed(
    run: Run,
    saved_model: Path,
    saved_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    words: list[str],
    extra: str,
) -> None:
    Path("rows.parquet").write_bytes(b"PAR1 and more")
    monkeypatch.setitem(sys.modules, module, None)  # as if it could not be found
    result = run(*(word.replace("MODEL", str(saved_model)) for word in words))
    assert result.exit_code == 2, result.output
    assert f"needs the library '{module}'" in result.stderr
    assert install_command(extra) in result.stderr


def test_text_in_a_parquet_column(run: Run, saved_model: Path, saved_run: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"width [cm]": ["wide", "0.25"]})
    parquet.write_table(table, "rows.parquet")
    result = run("radius", saved_model, "rows.parquet")
    assert_refused(result, "Column 'width [cm]' must hold numbers")


def test_questions_that_a_model_or_an_engine_has_no_answer_to(run: Run, saved_run: Path) -> None:
    import xgboost
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    xgboost.XGBClassifier(n_estimators=2, max_depth=2).fit(X, y).save_model("iris.json")
    np.savez("iris.npz", X=X[:3], y=y[:3])
    words = ("radius", "iris.json", "iris.npz")
    result = run(*words, "--score-change", "1")
    assert_refused(result, "A score range needs a model with one output. Got 3 outputs.")
    result = run(*words, "--attacker-class", "rose")
    assert_refused(result, "'attacker_class' must be one of the classes [0, 1, 2]. Got 'rose'.")
    result = run(*words, "--engine", "single_tree")
    assert_refused(result, "single_tree")


def test_run_files_are_what_their_names_promise(run, saved_model, tmp_path):
    data = tmp_path / "rows.csv"
    data.write_text("width [cm]\n0.1\n")
    result = run("radius", saved_model, data, "--out", tmp_path / "ev.ods")
    assert_refused(result, "Answers are saved as JSON lines (.jsonl), Parquet (.parquet), CSV")
    run("radius", saved_model, data, "--out", tmp_path / "run.jsonl")
    result = run("merge", tmp_path / "run.jsonl", "--out", tmp_path / "ev.csv")
    assert_refused(result, "Answers are saved as JSON lines (.jsonl) or Parquet (.parquet), by")
    assert not list(tmp_path.glob("ev.*"))


def test_a_feature_does_not_move_and_stay(run, saved_model, tmp_path):
    data = tmp_path / "rows.csv"
    data.write_text("width [cm]\n0.1\n")
    words = ("--eps", "9", "--moving", "width [cm]", "--frozen", "width [cm]", "--fail-under", "1")
    result = run("verify", saved_model, data, *words)
    assert result.exit_code == 2
    assert "must name different features. Got 'width [cm]' in both." in result.stderr


def test_a_read_only_folder_ends_with_a_sentence(monkeypatch, tmp_path):
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with (
        pytest.raises(tp.InvalidInput, match="cannot be written: Read-only"),
        replacing(tmp_path / "page.html"),
    ):
        pass
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(tp.InvalidInput, match="must be writable"):
        check_out(str(tmp_path / "page.html"), "The report")
