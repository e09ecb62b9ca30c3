"""Damaged and hostile files: always a treeproof error or a sound model, in bounded resources."""

import copy
import json
import resource
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from tests.unit.loaders.xgboost_cases import CASES, booster, data
from treeproof.errors import ModelWarning, TreeproofError
from treeproof.loaders import load_ensemble
from treeproof.model import evaluate

MEGABYTES = 600

HOSTILE = [
    None,
    True,
    -1,
    0,
    1,
    3,
    255,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**63 - 1,
    2**64,
    10**40,
    0.5,
    -0.0,
    1e38,
    1e39,
    1e308,
    5e-324,
    16777217.0,
    "",
    "0",
    "-1",
    "7",
    "999999999999",
    "1e999",
    "NaN",
    "[5E-1,5E-1]",
    "gblinear",
    "dart",
    "binary:logistic",
    "multi:softprob",
    [],
    [0],
    [-1, -1],
    [[]],
    {},
    {"a": 1},
]


def small_models() -> dict[str, xgb.Booster]:
    X = data(n=60, n_features=3)
    y = (X[:, 0] > 0).astype(int)
    codes = np.stack([X[:, 0], np.arange(60) % 5, X[:, 1]], axis=1)
    types = ["q", "c", "q"]
    small = {"max_depth": 3, "min_child_weight": 0.1}
    return {
        "binary": booster({"objective": "binary:logistic"} | small, xgb.DMatrix(X, y), 2),
        "classes": booster(
            {"objective": "multi:softprob", "num_class": 3} | small,
            xgb.DMatrix(X, np.arange(60) % 3),
            1,
        ),
        "dart": booster({"booster": "dart"} | small, xgb.DMatrix(X, X[:, 1]), 2),
        "vector": booster(
            {"multi_strategy": "multi_output_tree"} | small, xgb.DMatrix(X, X[:, :2]), 1
        ),
        "categories": booster(
            {"max_cat_to_onehot": 1} | small,
            xgb.DMatrix(codes, codes[:, 1] % 2, feature_types=types, enable_categorical=True),
            2,
        ),
        "frame": CASES["categories of a data frame"]().get_booster()[:1],
    }


@pytest.fixture(scope="module")
def models() -> dict[str, xgb.Booster]:
    return small_models()


def survives(path: Path, content: bytes) -> bool:
    """Load a file; whether it was taken for a model."""
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)  # what dumps leave open
            ensemble = load_ensemble(path, self_test=False)
    except TreeproofError as error:
        message = str(error)
        ensemble = None
    if ensemble is None:
        assert 10 < len(message) < 1_500
        return False
    margins = evaluate.margins(ensemble, np.zeros((2, ensemble.n_features)))
    assert margins.shape == (2, ensemble.n_outputs)
    return True


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown / 1024 < MEGABYTES


def damaged(content: bytes, random: np.random.Generator, n: int) -> Iterator[bytes]:
    """Truncations, flipped bits, changed bytes, removed and repeated pieces."""
    for _ in range(n):
        where = int(random.integers(0, len(content)))
        kind = int(random.integers(0, 6))
        if kind == 0:
            yield content[:where]
        elif kind == 1:
            flipped = bytearray(content)
            flipped[where] ^= 1 << int(random.integers(0, 8))
            yield bytes(flipped)
        elif kind == 2:
            changed = bytearray(content)
            for _ in range(4):
                changed[int(random.integers(0, len(content)))] = int(random.integers(0, 256))
            yield bytes(changed)
        elif kind == 3:
            yield content[:where] + content[where + int(random.integers(1, 30)) :]
        elif kind == 4:
            piece = content[where : where + int(random.integers(1, 30))]
            yield content[:where] + piece * int(random.integers(2, 5)) + content[where:]
        else:
            digits = bytearray(content)
            for place in random.choice(len(content), 3):
                if digits[place] in b"0123456789":
                    digits[place] = int(random.choice(list(b"0123456789-.e")))
            yield bytes(digits)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, containers included."""
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = list(enumerate(value))[:40]
    for key, item in items:
        yield from places(item, (*path, key))


def mutated(document: Any, random: np.random.Generator, n: int) -> Iterator[Any]:
    """Documents with hostile values in one to three places, or with a part missing."""
    everywhere = list(places(document))
    for _ in range(n):
        changed = copy.deepcopy(document)
        for _ in range(int(random.integers(1, 4))):
            path = everywhere[int(random.integers(0, len(everywhere)))]
            holder = changed
            try:
                for key in path[:-1]:
                    holder = holder[key]
                if isinstance(holder, dict) != isinstance(path[-1], str):
                    continue
                if random.random() < 0.15:
                    del holder[path[-1]]
                else:
                    holder[path[-1]] = copy.deepcopy(HOSTILE[int(random.integers(0, len(HOSTILE)))])
            except (KeyError, IndexError, TypeError):
                continue  # an earlier change has removed this place
        yield changed


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_ubjson(value: Any) -> bytes:
    """Encode as XGBoost does: typed arrays wherever a list holds numbers of one kind."""

    def text(string: str) -> bytes:
        raw = string.encode()
        return b"L" + struct.pack(">q", len(raw)) + raw

    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
        return b"L" + struct.pack(">q", value) if fits else as_ubjson(float(value))
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + text(value)
    if isinstance(value, dict):
        return b"{" + b"".join(text(k) + as_ubjson(v) for k, v in value.items()) + b"}"
    head = b"#L" + struct.pack(">q", len(value))
    if value and all(type(item) is int and abs(item) < 2**31 for item in value):
        return b"[$l" + head + np.array(value, dtype=">i4").tobytes()
    if value and all(type(item) is float for item in value):
        with np.errstate(over="ignore"):
            return b"[$d" + head + np.array(value).astype(">f4").tobytes()
    return b"[" + head + b"".join(as_ubjson(item) for item in value)


NAMES = ["binary", "classes", "dart", "vector", "categories", "frame"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encoding", ["json", "ubj"])
def test_damaged_bytes(
    name: str, encoding: str, models: dict[str, xgb.Booster], tmp_path: Path
) -> None:
    content = bytes(models[name].save_raw(encoding))
    path = tmp_path / "model"
    assert survives(path, content)
    random = np.random.default_rng(NAMES.index(name))
    taken = [survives(path, variant) for variant in damaged(content, random, 250)]
    assert not all(taken)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "encode", [lambda d: json.dumps(d).encode(), as_ubjson], ids=["json", "ubj"]
)
def test_hostile_values(
    name: str, encode: Callable[[Any], bytes], models: dict[str, xgb.Booster], tmp_path: Path
) -> None:
    document = json.loads(models[name].save_raw("json"))
    path = tmp_path / "model"
    assert survives(path, encode(document))
    random = np.random.default_rng(100 + NAMES.index(name))
    taken = [survives(path, encode(variant)) for variant in mutated(document, random, 250)]
    assert 0 < sum(taken) < len(taken)


@pytest.mark.parametrize("kind", ["json", "text"])
def test_hostile_dumps(kind: str, models: dict[str, xgb.Booster], tmp_path: Path) -> None:
    path = tmp_path / "dump"
    for number, name in enumerate(["binary", "categories"]):
        models[name].dump_model(path, dump_format=kind)
        content = path.read_bytes()
        random = np.random.default_rng(number)
        assert survives(path, content)
        taken = [survives(path, variant) for variant in damaged(content, random, 300)]
        if kind == "json":
            trees = mutated(json.loads(content), random, 300)
            taken += [survives(path, json.dumps(variant).encode()) for variant in trees]
        assert 0 < sum(taken) < len(taken)


@pytest.mark.parametrize("key", ["left_children", "right_children"])
def test_cycles_and_shared_nodes(key: str, models: dict[str, xgb.Booster], tmp_path: Path) -> None:
    document = json.loads(models["binary"].save_raw("json"))
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    inner = [node for node, child in enumerate(tree["left_children"]) if child >= 0]
    n_nodes = len(tree["left_children"])
    path = tmp_path / "model.json"
    for node in inner:
        for child in range(-3, n_nodes + 2):
            changed = copy.deepcopy(document)
            model = changed["learner"]["gradient_booster"]["model"]
            model["trees"][0][key][node] = child
            is_same = child == tree[key][node]
            assert survives(path, json.dumps(changed).encode()) == is_same


@pytest.mark.parametrize(
    "content",
    [
        b'{"learner":' * 100_000,
        b'{"learner":' + b"[" * 1_000_000,
        b'{"learner":{"gradient_booster":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_002,
        b'{"learner": NaN' + b"[" * 100_000,
        b"[" * 500_000 + b'"nodeid"',
        b'[{"nodeid":0,"children":' * 50_000,
        b'{"learner":"' + b"\\u0000" * 1_000_000,
        b'{"learner":' + b"9" * 5_000_000 + b"}",
        b"{L" + struct.pack(">q", 7) + b"learner" + b"{i\x01a" * 100_000,
        b"{L" + struct.pack(">q", 7) + b"learner" + b"[#L" + struct.pack(">q", 2**40),
        b"{L" + struct.pack(">q", 7) + b"learner" + b"[$D#L" + struct.pack(">q", 2**60 + 5),
        b"{L" + struct.pack(">q", 7) + b"learner" + b"N" * 3_000_000,
    ],
    ids=lambda content: repr(content[:24]),
)
def test_bombs(content: bytes, tmp_path: Path) -> None:
    assert not survives(tmp_path / "model", content)


@pytest.mark.parametrize(
    "params",
    [
        {"num_feature": "1000000000"},
        {"num_class": "60000"},
        {"num_class": "999999999"},
        {"num_target": "65536"},
        {"base_score": "[" + "0.5," * 500_000 + "0.5]"},
        {"base_score": "9" * 1_000_000},
    ],
)
def test_sizes_that_are_only_claimed(
    params: dict[str, str], models: dict[str, xgb.Booster], tmp_path: Path
) -> None:
    document = json.loads(models["binary"].save_raw("json"))
    document["learner"]["learner_model_param"] |= params
    survives(tmp_path / "model.json", json.dumps(document).encode())


def test_huge_category_codes_take_no_huge_memory(
    models: dict[str, xgb.Booster], tmp_path: Path
) -> None:
    document = json.loads(models["categories"].save_raw("json"))
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    for tree in trees:
        tree["categories"] = [2**24 - 1] * len(tree["categories"])
    document["learner"]["gradient_booster"]["model"]["trees"] = trees * 200
    model = document["learner"]["gradient_booster"]["model"]
    model["tree_info"] = [0] * len(model["trees"])
    model["iteration_indptr"] = list(range(len(model["trees"]) + 1))
    assert not survives(tmp_path / "model.json", json.dumps(document).encode())
