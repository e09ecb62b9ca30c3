"""Damaged and hostile skops files of pipelines: a treeproof error, or a model that is right."""

import copy
import io
import json
import warnings
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from threadpoolctl import threadpool_limits

from tests.unit.loaders.pipeline_cases import fitted
from treeproof.errors import SelfTestFailed, TreeproofError
from treeproof.loaders import load_ensemble

NAMES = (
    "standard, forest",
    "imputer with indicator, forest",
    "bins one-hot, sparse, forest",
    "normal quantiles, histogram",
    "yeo-johnson, histogram",
    "imputed and encoded by branches, boosting",
    "ordinal with unknown as missing, histogram categories",
    "target encoder, boosting",
    "selected after encoding, forest",
    "nested pipelines, unions, nothing",
    "calibrated by steps, forest",
    "soft votes of trees in pipelines",
    "bagged trees on some columns, three classes",
    "one against the rest, forest, ties",
)

SCALARS = (None, True, False, 0, 1, -1, 2, 7, 10**9, 2**70, 0.5, -3.5, 1e308, "", "nan", "uniform")
SCALARS += ("passthrough", "drop", "ordinal", "most_frequent", "ignore", "x" * 50, [], {}, [1, 2])


@cache
def parts_of(name: str) -> dict[str, bytes]:
    content = skops.io.dumps(fitted(name)[0])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {part: archive.read(part) for part in archive.namelist()}


def written(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def nodes_of(schema: Any) -> list[dict[str, Any]]:
    waiting, found = [schema], []
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "__loader__" in item:
                found.append(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found


def change_array(parts: dict[str, bytes], random: np.random.Generator) -> None:
    """Change some numbers of an array, or its shape or type."""
    names = [name for name in parts if name.endswith(".npy")]
    name = str(random.choice(names))
    array = np.load(io.BytesIO(parts[name]), allow_pickle=False).copy()
    kind = random.integers(7)
    odd = random.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 3.7, 5e-324])
    if array.dtype.names and array.size and kind < 5:
        field = str(random.choice(array.dtype.names))
        with np.errstate(invalid="ignore"):
            array[field].flat[random.integers(array.size)] = np.array(odd).astype(
                array.dtype[field]
            )
    elif array.size and array.dtype.kind in "iuf" and kind < 4:
        place = random.integers(array.size)
        with np.errstate(all="ignore"):
            flipped = np.array(float(array.flat[place]) * -3 + 1).astype(array.dtype)
            array.flat[place] = flipped if kind == 0 else np.array(odd).astype(array.dtype)
    elif kind == 4:
        array = array[:-1] if array.ndim else array
    elif kind == 5:
        array = np.repeat(array, 2, axis=0) if array.ndim else array
    elif array.dtype.kind in "iufb":
        array = array.astype(random.choice(["<f4", "<i8", "<U8", "?"]))
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    parts[name] = buffer.getvalue()


def change_schema(parts: dict[str, bytes], random: np.random.Generator) -> None:
    """Replace a value, drop it, or put one node in the place of another."""
    schema = json.loads(parts["schema.json"])
    nodes = nodes_of(schema)
    node = nodes[random.integers(len(nodes))]
    kind = random.integers(4)
    content = node.get("content")
    if kind == 0:
        plain = [item for item in nodes if item["__loader__"] == "JsonNode"]
        node = plain[random.integers(len(plain))]
        node["content"] = json.dumps(SCALARS[random.integers(len(SCALARS))])
    elif kind == 1 and isinstance(content, dict) and content:
        content.pop(str(random.choice(list(content))))
    elif kind == 2 and isinstance(content, list) and content:
        place = int(random.integers(len(content)))
        content.insert(place, copy.deepcopy(content[place])) if random.random() < 0.5 else (
            content.pop(place)
        )
    else:
        other = copy.deepcopy(nodes[random.integers(1, len(nodes))])
        node.clear()
        node.update(other)
    parts["schema.json"] = json.dumps(schema).encode()


def damaged(name: str, random: np.random.Generator) -> bytes:
    parts = dict(parts_of(name))
    kind = random.integers(10)
    if kind == 0:
        content = bytearray(written(parts))
        for place in random.integers(len(content), size=random.integers(1, 5)):
            content[place] ^= 1 << random.integers(8)
        return bytes(content[: random.integers(len(content))] if random.random() < 0.3 else content)
    for _ in range(random.integers(1, 3)):
        (change_array if kind < 6 else change_schema)(parts, random)
    return written(parts)


def try_files(n: int, seed: int, path: Path) -> Counter[str]:
    random = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(n):
            path.write_bytes(damaged(NAMES[number % len(NAMES)], random))
            try:
                ensemble = load_ensemble(path)
            except SelfTestFailed:
                # The library itself gives up, or answers otherwise than its parts do: refused.
                outcomes["self-test"] += 1
            except TreeproofError:
                outcomes["refused"] += 1
            else:
                assert ensemble.provenance.self_test.startswith("passed")
                outcomes["right"] += 1
    return outcomes


def test_damaged_files(tmp_path):
    outcomes = try_files(2 * len(NAMES), 0, tmp_path / "model.skops")
    assert outcomes["refused"] > 5
    assert outcomes["right"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_thousands_of_damaged_files(seed, tmp_path):
    outcomes = try_files(500, seed, tmp_path / "model.skops")
    assert outcomes["refused"] > 100
