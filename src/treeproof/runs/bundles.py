"""Evidence bundles: a run and all that it takes to check it, in one zip file for an auditor.

Nothing in a bundle is trusted when it is read: files are taken by the names that are known here and
put under names of our own, sizes are limited before anything is unpacked, and hashes must be those
of the manifest. What the manifest says is not trusted either: the checker follows the proofs.
"""

import contextlib
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from treeproof.errors import InvalidInput
from treeproof.files import replacing

FORMAT = 1
RUN, MODEL, PAGE, THREAT = "run.jsonl", "model.treeproof", "report.html", "threat.toml"
MANIFEST, README = "manifest.json", "README.md"
KNOWN = {MANIFEST, README, RUN, MODEL, PAGE, THREAT}
NEEDED = {MANIFEST, README, RUN, MODEL}
_ALWAYS_ALLOWED, _MOST_EXPANSION = 1 << 26, 250
"""Bytes that any bundle may unpack to, and beyond them how many times its own size."""
_MOST_OF_MANIFEST = 1 << 20
_BLOCK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all files, so that the same content makes the same bundle."""

_README = """# Evidence of treeproof

This bundle holds answers about a tree ensemble, and a proof of each that can be followed without
the program that found it.

| file | is |
|---|---|
| `run.jsonl` | the question, the rows with their identifiers, the answers, and their proofs |
| `model.treeproof` | the model: every tree, in a documented format that runs nothing |
| `report.html` | a page for readers, made from answers that the checker accepted |
| `threat.toml` | what an attacker or applicant may change, where that was written down |
| `manifest.json` | SHA-256 of each of these files, and of the data and the deployed model file |

To check it:

    pip install "treeproof[cli]"
    treeproof check {name}

The checker shares no code with the engines: it computes in exact integers and replays every changed
row on the model. It ends with exit status 0 when every answer is proved, and 3 otherwise.

What only you can compare: the SHA-256 of this bundle with the one that you were told; the SHA-256
of the deployed model file with `manifest.json`, and that it is this model with
`treeproof check {name} --model FILE`; the rows, labels and identifiers with your data by
`treeproof check {name} --data FILE`. The page is a picture of the run;
`treeproof report run.jsonl --check model.treeproof` makes it anew.
"""


def write_bundle(path: Path, files: Mapping[str, Path], facts: Mapping[str, Any]) -> None:
    """Write files under names of `KNOWN` into a bundle, with a manifest that says `facts`, too."""
    manifest: dict[str, Any] = {"format": FORMAT, **facts, "files": {}}
    with (
        replacing(path, "The bundle") as out,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as bundle,
    ):
        for name in sorted(files):
            with files[name].open("rb") as file:
                manifest["files"][name] = _store(bundle, name, file)
        readme = _README.format(name=path.name).encode()
        manifest["files"][README] = _store_bytes(bundle, README, readme)
        _store_bytes(bundle, MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")


def _store(bundle: zipfile.ZipFile, name: str, file: IO[bytes]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with bundle.open(_entry(name), "w", force_zip64=True) as target:
        while block := file.read(_BLOCK):
            target.write(block)
            digest.update(block)
            size += len(block)
    return {"sha256": digest.hexdigest(), "bytes": size}


def _store_bytes(bundle: zipfile.ZipFile, name: str, content: bytes) -> dict[str, Any]:
    bundle.writestr(_entry(name), content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return entry


def is_bundle(path: str | Path) -> bool:
    """Whether a file is a bundle, by its first bytes."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


@contextlib.contextmanager
def opened_bundle(path: str | Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Give a folder with the files of a bundle, for as long as it is needed, and its manifest.

    Refused is what is damaged, unpacks to too much, or is not what the manifest says.
    """
    with tempfile.TemporaryDirectory(prefix="treeproof-") as folder:
        try:
            with zipfile.ZipFile(path) as bundle:
                manifest = _unpacked(bundle, Path(path), Path(folder))
        except (
            zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, ValueError
        ) as error:  # fmt: skip
            if isinstance(error, InvalidInput):
                raise
            raise _damaged(path, str(error)) from error
        yield Path(folder), manifest


def _unpacked(bundle: zipfile.ZipFile, path: Path, folder: Path) -> dict[str, Any]:
    """Unpack what is known into a folder, after a look at all sizes; returns the manifest."""
    entries = bundle.infolist()
    names = [entry.filename for entry in entries]
    if len(set(names)) < len(names) or not NEEDED <= set(names) <= KNOWN:
        strange = sorted({*names} - KNOWN) or sorted(NEEDED - {*names}) or names
        raise _damaged(path, f"it must hold each of its files once and no others: {strange[0]!r}")
    total = sum(entry.file_size for entry in entries)
    most = max(_ALWAYS_ALLOWED, _MOST_EXPANSION * path.stat().st_size)
    if total > most:
        raise _damaged(
            path, f"its files say that they unpack to {total:,} bytes, more than {most:,}"
        )
    of = {entry.filename: entry for entry in entries}
    if of[MANIFEST].file_size > _MOST_OF_MANIFEST:
        raise _damaged(path, "its manifest is too large")
    manifest = json.loads(bundle.read(of[MANIFEST]))
    known = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(known, dict) or manifest.get("format") != FORMAT:
        raise _damaged(path, "its manifest is of another format")
    if known.keys() != {*names} - {MANIFEST}:
        raise _damaged(path, "its manifest names other files")
    for name, entry in of.items():
        if name == MANIFEST:
            continue
        digest, size = hashlib.sha256(), 0
        with bundle.open(entry) as source, (folder / name).open("xb") as target:
            # What an entry says of its size is not trusted: it ends there.
            while block := source.read(_BLOCK):
                size += len(block)
                if size > entry.file_size:
                    raise _damaged(path, f"{name} unpacks to more than it says")
                target.write(block)
                digest.update(block)
        said = known[name] if isinstance(known[name], dict) else {}
        if (digest.hexdigest(), size) != (said.get("sha256"), said.get("bytes")):
            raise _damaged(path, f"{name} is not the file that the manifest names")
    return manifest


def _damaged(path: str | Path, why: str) -> InvalidInput:
    return InvalidInput(f"'{path}' must be a bundle that 'treeproof bundle' wrote. Got: {why}.")
