"""`treeproof bundle` and the check of bundles, hostile ones among them."""

import hashlib
import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest

from tests.cli.test_check import ROWS
from treeproof.runs import bundles
from treeproof.runs.bundles import opened_bundle


@pytest.fixture
def bundle(run, saved_model: Path, tmp_path: Path) -> Path:
    data, out, made = tmp_path / "rows.csv", tmp_path / "run.jsonl", tmp_path / "audit.zip"
    head, *lines = ROWS.splitlines()
    named = [f"id,{head}", *(f"A{n},{line}" for n, line in enumerate(lines))]
    data.write_text("\n".join(named) + "\n")
    (tmp_path / "threat.toml").write_text("eps = 0.2\n")
    asked = run("radius", saved_model, data, "--id", "id", "--evidence", "--out", out)
    assert asked.exit_code == 0, asked.output
    words = ("--data", data, "--threat", tmp_path / "threat.toml", "--out", made)
    result = run("bundle", out, "--model", saved_model, *words)
    assert result.exit_code == 0, result.output
    assert hashlib.sha256(made.read_bytes()).hexdigest() in result.stderr
    return made


def test_a_bundle_is_checked_without_anything_else(run, bundle, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "audit.zip"
    elsewhere.parent.mkdir()
    shutil.move(bundle, elsewhere)
    for name in ("run.jsonl", "model.treeproof"):
        (tmp_path / name).unlink()
    result = run("check", elsewhere)
    assert result.exit_code == 0, result.output
    assert "3 accepted, 0 rejected" in result.stdout
    assert f"bundle {hashlib.sha256(elsewhere.read_bytes()).hexdigest()}" in result.stdout
    data = hashlib.sha256((tmp_path / "rows.csv").read_bytes()).hexdigest()
    assert f"data file rows.csv {data}" in result.stdout
    compared = run("check", elsewhere, "--data", tmp_path / "rows.csv")
    assert compared.exit_code == 0, compared.output
    as_json = run("check", elsewhere, "--json")
    assert json.loads(as_json.stdout)["accepted"] == 3


def test_identifiers_are_part_of_what_is_compared(run, bundle, tmp_path):
    data = tmp_path / "rows.csv"
    data.write_text(data.read_text().replace("A1", "A9"))
    result = run("check", bundle, "--data", data)
    assert result.exit_code == 3
    assert "row 1" in result.stdout


def test_what_is_in_it(bundle, tmp_path):
    with zipfile.ZipFile(bundle) as file:
        names = set(file.namelist())
        manifest = json.loads(file.read("manifest.json"))
        readme = file.read("README.md").decode()
        page = file.read("report.html").decode()
    assert names == bundles.KNOWN
    assert manifest["files"].keys() == names - {"manifest.json"}
    assert "treeproof check audit.zip" in readme
    assert "independent checker accepted 3 of 3" in page
    with opened_bundle(bundle) as (folder, _):
        assert (folder / "run.jsonl").read_bytes() == (tmp_path / "run.jsonl").read_bytes()
        assert (folder / "threat.toml").read_text() == "eps = 0.2\n"
    assert not folder.exists()


def test_the_same_content_is_the_same_bundle(run, bundle, saved_model, tmp_path):
    words = ("--data", tmp_path / "rows.csv", "--threat", tmp_path / "threat.toml")
    again = tmp_path / "again" / "audit.zip"
    again.parent.mkdir()
    run("bundle", tmp_path / "run.jsonl", "--model", saved_model, *words, "--out", again)
    assert again.read_bytes() == bundle.read_bytes()


def rewritten(bundle: Path, changes: dict[str, bytes | None], *, fits: bool = False) -> Path:
    """A bundle with some files changed, or left out; with a manifest that fits, or the old one."""
    with zipfile.ZipFile(bundle) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content |= {name: text for name, text in changes.items() if text is not None}
    for name in [name for name, text in changes.items() if text is None]:
        del content[name]
    if fits:
        manifest = json.loads(content["manifest.json"])
        manifest["files"] = {
            name: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
            for name, text in content.items()
            if name != "manifest.json"
        }
        content["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in content.items():
            file.writestr(name, text)
    return bundle


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"../../outside": b"x"}, "each of its files once and no others: '../../outside'"),
        ({"/etc/outside": b"x"}, "no others: '/etc/outside'"),
        ({"run.jsonl": None}, "no others: 'run.jsonl'"),
        ({"report.html": b"other"}, "report.html is not the file that the manifest names"),
        ({"manifest.json": b"{}"}, "its manifest is of another format"),
        ({"manifest.json": b"[1"}, "Got:"),
        ({"manifest.json": b'{"format": 1, "files": {}}'}, "its manifest names other files"),
        ({"manifest.json": b" " * (2 << 20)}, "its manifest is too large"),
        ({"report.html": b"0" * (1 << 27)}, "unpack to"),
    ],
)
def test_what_no_command_of_ours_wrote_is_refused(run, bundle, tmp_path, changes, said):
    result = run("check", rewritten(bundle, changes))
    assert result.exit_code == 2
    assert "must be a bundle that 'treeproof bundle' wrote" in result.stderr
    assert said in result.stderr
    assert not (tmp_path.parent / "outside").exists()


def test_a_file_that_lies_about_its_size_is_refused(run, bundle):
    with zipfile.ZipFile(bundle) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content["report.html"] = b"0" * (1 << 22)
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in content.items():
            file.writestr(name, text)
        entry = file.getinfo("report.html")
        size = entry.file_size
    raw = bundle.read_bytes().replace(struct.pack("<L", size), struct.pack("<L", 10))
    bundle.write_bytes(raw)
    result = run("check", bundle)
    assert result.exit_code == 2
    assert "must be a bundle that 'treeproof bundle' wrote" in result.stderr


def test_a_name_that_occurs_twice_is_refused(run, bundle):
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(bundle, "a") as file,
    ):
        file.writestr("run.jsonl", b"{}")
    result = run("check", bundle)
    assert result.exit_code == 2
    assert "each of its files once" in result.stderr


def test_a_forged_run_is_rejected_though_its_manifest_fits(run, bundle):
    with zipfile.ZipFile(bundle) as file:
        header, first, *rest = file.read("run.jsonl").decode().splitlines()
    record = json.loads(first)
    record["lower"] = record["upper"] = record["witness_distance"] = 9.0
    forged = "\n".join([header, json.dumps(record), *rest]) + "\n"
    result = run("check", rewritten(bundle, {"run.jsonl": forged.encode()}, fits=True))
    assert result.exit_code == 3
    assert "2 accepted, 1 rejected" in result.stdout


@pytest.mark.parametrize("content", [b"PK\x03\x04garbage", b"PK\x05\x06" + bytes(18)])
def test_a_damaged_zip_is_refused(run, tmp_path, content):
    (tmp_path / "audit.zip").write_bytes(content)
    result = run("check", tmp_path / "audit.zip")
    assert result.exit_code == 2
    assert "must be a bundle that 'treeproof bundle' wrote" in result.stderr


def test_what_cannot_be_bundled_is_refused(run, bundle, saved_model, tmp_path):
    out = tmp_path / "other.zip"
    for words, said in (
        ((tmp_path / "run.jsonl", "--model", saved_model, "--threat", saved_model), "TOML"),
        ((tmp_path / "run.jsonl", "--model", saved_model, "--data", "nowhere.csv"), "can be read"),
        (("run.parquet", "--model", saved_model), "holds a run as JSON lines"),
        ((tmp_path / "none.jsonl", "--model", saved_model), "must be readable"),
    ):
        result = run("bundle", *words, "--out", out)
        assert result.exit_code == 2, words
        assert said in result.stderr, result.stderr
        assert not out.exists()
