import hashlib
import os
import random
import struct
import tracemalloc
import zlib
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_ensembles import random_ensemble, random_rows
from treeproof.errors import BrokenModelFile, InvalidInput, TreeproofError
from treeproof.model import evaluate, file_format
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.model.file_format import is_saved, load_saved, save_ensemble


def saved(ensemble: Ensemble, folder: Path) -> Path:
    path = folder / "model.treeproof"
    save_ensemble(ensemble, path)
    return path


def sealed(body: bytes) -> bytes:
    """A file whose hash is right: what a hostile author would write."""
    return body + hashlib.sha256(body).digest()


def taken_apart(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    _, _, header_bytes, _ = struct.unpack_from("<16sIIQ", content)
    return msgspec.json.decode(content[32 : 32 + header_bytes]), content[32 + header_bytes : -32]


def put_together(header: dict[str, Any], arrays: bytes, version: int = 1) -> bytes:
    text = msgspec.json.encode(header)
    fixed = struct.pack("<16sIIQ", file_format.MAGIC, version, len(text), len(arrays))
    return sealed(fixed + text + arrays)


def assert_same(first: Ensemble, second: Ensemble) -> None:
    for name in first.trees._fields:
        one, other = getattr(first.trees, name), getattr(second.trees, name)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    for field in (field for field in fields(Ensemble) if field.init):
        if field.name != "trees":
            # repr tells 1, 1.0 and True apart, and makes NaN equal to itself.
            assert repr(getattr(first, field.name)) == repr(getattr(second, field.name))
    assert first.fingerprint == second.fingerprint


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_round_trip_gives_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng)
    back = load_saved(saved(ensemble, tmp_path_factory.mktemp("round")))
    assert_same(ensemble, back)
    rows = random_rows(rng, ensemble)
    before, after = evaluate.margins(ensemble, rows), evaluate.margins(back, rows)
    assert before.tobytes() == after.tobytes()


def test_saving_twice_gives_the_same_file(tmp_path: Path) -> None:
    ensemble = random_ensemble(np.random.default_rng(1))
    first = saved(ensemble, tmp_path).read_bytes()
    assert saved(load_saved(tmp_path / "model.treeproof"), tmp_path).read_bytes() == first


def test_numpy_labels_come_back_equal(tmp_path: Path) -> None:
    ensemble = binary_stump(classes=(np.int64(3), np.str_("a")))
    assert load_saved(saved(ensemble, tmp_path)).classes == (3, "a")


def test_every_field_of_the_semantics_is_saved() -> None:
    # A new field must be added to the format (and the version raised) before it can be forgotten.
    assert {field.name for field in fields(Ensemble) if field.init} - {"trees"} == (
        set(file_format._Header.__struct_fields__) - {"writer", "arrays"}
    )
    assert set(file_format._DTYPES) | {"left", "leaf"} == set(binary_stump().trees._fields)


@pytest.mark.parametrize("step", range(4))
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, step: int) -> None:
    path = saved(random_ensemble(np.random.default_rng(7)), tmp_path)
    content = path.read_bytes()
    target = tmp_path / "flipped.treeproof"
    for position in range(step, len(content), 4):
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position // 4 % 8)
        target.write_bytes(flipped)
        with pytest.raises(BrokenModelFile):
            load_saved(target)


def test_no_truncation_goes_unnoticed(tmp_path: Path) -> None:
    path = saved(random_ensemble(np.random.default_rng(8)), tmp_path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(BrokenModelFile):
            load_saved(path)
    path.write_bytes(content + b"\x00")
    with pytest.raises(BrokenModelFile, match="SHA-256"):
        load_saved(path)


def _mutated(value: Any, rng: random.Random) -> Any:
    """One place of a JSON document replaced by something unexpected."""
    strange = [None, -1, 0, 2**31, 2**70, 1e308, "x", [], {}, True, [-1], [2**40], "float16"]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        return {**value, key: _mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        position = rng.randrange(len(value))
        return [
            *value[:position],
            _mutated(value[position], rng),
            *value[position + 1 :],
        ]
    return rng.choice(strange)


@pytest.mark.parametrize("seed", range(10))
def test_hostile_headers_are_refused_or_harmless(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = saved(random_ensemble(np.random.default_rng(seed)), tmp_path)
    header, arrays = taken_apart(path)
    for _ in range(100):
        path.write_bytes(put_together(_mutated(header, rng), arrays))
        try:
            ensemble = load_saved(path)
        except TreeproofError:
            continue
        # What is accepted is a proper model: it can be evaluated and saved again.
        rows = np.zeros((1, min(ensemble.n_features, 10_000)))
        if ensemble.n_features == rows.shape[1]:
            with np.errstate(over="ignore", invalid="ignore"):
                evaluate.margins(ensemble, rows)
        save_ensemble(ensemble, path)


@pytest.mark.parametrize("seed", range(10))
def test_hostile_arrays_are_refused_or_harmless(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    original = random_ensemble(rng)
    path = saved(original, tmp_path)
    header, arrays = taken_apart(path)
    table = header["arrays"]
    starts = np.cumsum([0, *(entry["stored"] for entry in table)])
    streams = [arrays[a:b] for a, b in pairwise(starts)]
    for _ in range(100):
        number = int(rng.integers(len(streams)))
        raw = bytearray(zlib.decompress(streams[number]))
        if not raw:
            continue
        raw[rng.integers(len(raw))] = rng.integers(256)
        new = [*streams]
        new[number] = zlib.compress(bytes(raw))
        new_table = [*table]
        new_table[number] = {**table[number], "stored": len(new[number])}
        path.write_bytes(put_together({**header, "arrays": new_table}, b"".join(new)))
        try:
            ensemble = load_saved(path)
        except TreeproofError:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            evaluate.margins(ensemble, random_rows(rng, original, 4))


def test_a_newer_version_says_so(tmp_path: Path) -> None:
    path = saved(binary_stump(), tmp_path)
    path.write_bytes(put_together(*taken_apart(path), version=2))
    with pytest.raises(BrokenModelFile, match=r"version 2 is not known.*Update treeproof"):
        load_saved(path)


def test_an_unknown_field_is_not_ignored(tmp_path: Path) -> None:
    path = saved(binary_stump(), tmp_path)
    header, arrays = taken_apart(path)
    header["aggregation"]["temperature"] = 2.0
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(BrokenModelFile, match="unknown field 'temperature'"):
        load_saved(path)


def test_leaves_that_the_sum_would_round_are_refused(tmp_path: Path) -> None:
    """Bounds take 1 + 2**-30 as it stands, a sum in float32 takes it for 1."""
    trees = binary_stump().trees
    values = trees.leaf_value + 2.0**-30
    path = saved(binary_stump(trees=trees._replace(leaf_value=values)), tmp_path)
    header, arrays = taken_apart(path)
    header["aggregation"]["precision"] = "float32"
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(BrokenModelFile, match="Tree 0, node 1: the leaf value must be a float32"):
        load_saved(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shape": [2**40]}, "out of proportion"),
        ({"shape": [2**22]}, "length of its shape"),
        ({"shape": [-1]}, "impossible shape"),
        ({"shape": [3, 1]}, "impossible shape"),
        ({"dtype": "|O"}, "with its type"),
        ({"name": "left"}, "list every array once"),
        ({"stored": 10**9}, "do not add up"),
    ],
)
def test_array_tables_are_checked_before_anything_is_unpacked(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    path = saved(binary_stump(), tmp_path)
    header, arrays = taken_apart(path)
    header["arrays"][2].update(change)
    path.write_bytes(put_together(header, arrays))
    with pytest.raises(BrokenModelFile, match=sentence):
        load_saved(path)


def test_a_bomb_is_refused_in_little_time_and_memory(tmp_path: Path) -> None:
    path = saved(binary_stump(), tmp_path)
    header, arrays = taken_apart(path)
    bomb = zlib.compress(bytes(400 * 2**20), 9)
    stored = header["arrays"][0]["stored"]
    header["arrays"][0] = {**header["arrays"][0], "shape": [2], "stored": len(bomb)}
    path.write_bytes(put_together(header, bomb + arrays[stored:]))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(BrokenModelFile, match="length of its shape"):
            load_saved(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


def test_a_very_regular_model_is_not_taken_for_a_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_format, "_FREE_BYTES", 1000)
    builder = TreeBuilder()
    for _ in range(2000):
        builder.add_tree(
            feature=[0, 0, 0],
            threshold=[0.5, 0, 0],
            left=[1, -1, -1],
            right=[2, -1, -1],
            flags=[0, 0, 0],
            value=[0, 1.0, 2.0],
            output=0,
        )
    ensemble = binary_stump(trees=builder.finish())
    assert_same(ensemble, load_saved(saved(ensemble, tmp_path)))


def test_a_hostile_deep_tree_is_refused(tmp_path: Path) -> None:
    n_inner = 5000
    inner = np.arange(n_inner)
    trees = binary_stump().trees
    n_nodes = 2 * n_inner + 1
    # A right-leaning chain in preorder: inner, leaf, inner, leaf, ..., leaf.
    is_inner = np.arange(n_nodes) % 2 == 0
    is_inner[-1] = False
    nodes = np.arange(n_nodes)
    chain = trees._replace(
        root=np.array([0, n_nodes], dtype=np.int32),
        feature=np.where(is_inner, 0, -1).astype(np.int32),
        threshold=np.zeros(n_nodes),
        left=np.where(is_inner, nodes + 1, -1).astype(np.int32),
        right=np.where(is_inner, nodes + 2, -1).astype(np.int32),
        flags=np.zeros(n_nodes, dtype=np.uint8),
        category_set=np.full(n_nodes, -1, dtype=np.int32),
        leaf=np.where(is_inner, -1, np.cumsum(~is_inner) - 1).astype(np.int32),
        leaf_value=np.zeros((len(inner) + 1, 1)),
        leaf_source=np.zeros(len(inner) + 1, dtype=np.int32),
    )
    path = saved(binary_stump(trees=chain), tmp_path)
    with pytest.raises(BrokenModelFile, match="deeper than 4096"):
        load_saved(path)


def test_a_failed_save_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(binary_stump(), tmp_path)
    before = path.read_bytes()

    def disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(InvalidInput, match=r"cannot be written: No space left on device"):
        save_ensemble(random_ensemble(np.random.default_rng(3)), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent/model.treeproof", "No such file"), ("", "directory"), ("a\x00b", "null")],
)
def test_paths_that_cannot_be_written_or_read(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        load_saved(tmp_path / name)
    with pytest.raises(InvalidInput):
        save_ensemble(binary_stump(), tmp_path / name)


def test_other_files_are_not_read_to_their_end(tmp_path: Path) -> None:
    other = tmp_path / "model.json"
    other.write_text('{"learner": {}}')
    with pytest.raises(BrokenModelFile, match=r"model\.json: .*another kind of file"):
        load_saved(other)
    assert not is_saved(other.read_bytes())
    assert is_saved(saved(binary_stump(), tmp_path).read_bytes()[:64])


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [((2**64, 1), "64 bits"), ((b"a", b"b"), "Got bytes"), (("\ud800", "b"), "valid Unicode")],
)
def test_labels_that_cannot_be_saved_are_refused(
    tmp_path: Path, classes: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        saved(binary_stump(classes=classes), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_are_compact(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    builder = TreeBuilder()
    for _ in range(20):
        n_inner = 255
        inner = np.arange(n_inner)
        pad = np.full(n_inner + 1, -1)
        builder.add_tree(
            feature=rng.integers(0, 30, 2 * n_inner + 1),
            threshold=rng.normal(size=2 * n_inner + 1).astype(np.float32),
            left=np.concatenate([2 * inner + 1, pad]),
            right=np.concatenate([2 * inner + 2, pad]),
            flags=np.zeros(2 * n_inner + 1),
            value=rng.normal(size=2 * n_inner + 1).astype(np.float32),
            output=0,
        )
    ensemble = binary_stump(trees=builder.finish(), n_features=30)
    n_bytes = saved(ensemble, tmp_path).stat().st_size
    # Random float32 thresholds and leaf values cannot be packed below about 4 bytes each.
    assert n_bytes < 8 * len(ensemble.trees.feature)


def binary_stump(**changes: Any) -> Ensemble:
    builder = TreeBuilder()
    builder.add_tree(
        feature=[0, 0, 0],
        threshold=[0.5, 0, 0],
        left=[1, -1, -1],
        right=[2, -1, -1],
        flags=[0, 0, 0],
        value=[0, -1.0, 1.0],
        output=0,
    )
    arguments: dict[str, Any] = {
        "trees": builder.finish(),
        "n_features": 1,
        "n_outputs": 1,
        "input_precision": "float64",
        "aggregation": Aggregation(precision="float64", start=(0.0,)),
        "decision": Decision(kind="threshold"),
        "classes": (0, 1),
        "provenance": Provenance(library="test"),
    }
    return Ensemble(**{**arguments, **changes})
