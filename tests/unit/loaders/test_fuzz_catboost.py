"""Damaged and hostile CatBoost files: a treeproof error, or a model that CatBoost reads alike."""

import copy
import json
import struct

import catboost as cb
import numpy as np
import pandas as pd
import pytest

from treeproof.errors import BrokenModelFile, TreeproofError, UnsupportedModel
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.catboost.loader import CatBoostLoader
from treeproof.model import evaluate

LOADER = CatBoostLoader()
RANDOM = np.random.default_rng(9)
KINDS = [(policy, kind) for policy in ("SymmetricTree", "Lossguide") for kind in ("json", "cbm")]


def trained(policy):
    random = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "a": random.normal(size=300),
            "c": random.choice(["u", "v", "w"], 300),
            "b": random.normal(size=300),
        }
    )
    data.loc[::7, "b"] = np.nan
    y = ((data["a"] > 0) ^ (data["c"] == "u")).astype(int)
    return cb.CatBoostClassifier(
        iterations=3,
        depth=2,
        grow_policy=policy,
        cat_features=["c"],
        one_hot_max_size=9,
        verbose=0,
        allow_writing_files=False,
        thread_count=1,
    ).fit(data, y)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files of both kinds of trees; JSON without the long list of training parameters."""
    folder = tmp_path_factory.mktemp("models")
    found = {}
    for policy, kind in KINDS:
        file = folder / f"{policy}.{kind}"
        trained(policy).save_model(str(file), format=kind)
        found[policy, kind] = file.read_bytes()
        if kind == "json":
            content = json.loads(found[policy, kind])
            information = content["model_info"]
            content["model_info"] = {"class_params": information["class_params"]}
            found[policy, kind] = json.dumps(content).encode()
    return found


def load(content, tmp_path):
    """The loaded model, or None where a treeproof error refused it."""
    file = tmp_path / "model"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    try:
        loaded, message = LOADER.load_file(file, LoadOptions()), "a model, and no message"
    except TreeproofError as error:
        loaded, message = None, str(error)
    assert 10 < len(message) < 500
    return loaded


def agrees(loaded):
    """Whether CatBoost, given the same file, gives the same margins or refuses it."""
    thresholds = loaded.ensemble.trees.threshold
    pool = np.concatenate([thresholds, np.nextafter(thresholds, 0.0), [np.nan, 0.0, 1e39, -np.inf]])
    rows = RANDOM.choice(pool, size=(32, loaded.ensemble.n_features))
    for feature in loaded.ensemble.categories:
        rows[:, feature] = RANDOM.integers(0, 4, size=32)
    try:
        expected = loaded.reference.margins(rows)
    except BrokenModelFile:
        return True
    return np.array_equal(expected, evaluate.margins(loaded.ensemble, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_file_is_a_model_and_every_part_of_it_is_none(kind, files, tmp_path):
    content = files[kind]
    assert load(content, tmp_path).ensemble.n_trees == 3
    lengths = range(0, len(content), 2 if len(content) < 3000 else 9)
    for length in lengths:
        assert load(content[:length], tmp_path) is None, length


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_are_refused_or_read_as_catboost_reads_them(kind, files, tmp_path):
    random = np.random.default_rng(1)
    original = files[kind]
    # In binary files the trees lie between and behind texts of thousands of bytes.
    places = [at for at, byte in enumerate(original) if kind[1] == "json" or not 32 <= byte < 127]
    accepted = 0
    for _ in range(700):
        content = bytearray(original)
        content[random.choice(places)] ^= 1 << int(random.integers(8))
        loaded = load(bytes(content), tmp_path)
        if loaded is not None:
            accepted += 1
            assert accepted % 4 or agrees(loaded), bytes(content)
    assert accepted > 40


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_bytes_are_refused_or_read_alike(kind, files, tmp_path):
    random = np.random.default_rng(2)
    original = files[kind]
    for number in range(500):
        at, wide = int(random.integers(len(original))), int(random.integers(1, 9))
        inserted = bytes(random.integers(0, 256, wide).tolist())
        middle = [b"", original[at : at + wide] * 2, inserted, b"\x00" * wide, b"\xff" * wide]
        content = original[:at] + middle[number % 5] + original[at + wide :]
        loaded = load(content, tmp_path)
        if loaded is not None and number % 2:
            assert agrees(loaded), content


WORDS = [None, True, -1, 0, 1, 2**31, 2**40, 2**63, -(2**31) - 1, 0.5, 1e308, -1e39, "", "x"]
WORDS += [[], [1], {}, {"a": 1}, [[]], "AsIs", [1.0, 0.5], "1"]


def places(content, path=()):
    """Every place inside nested lists and objects."""
    keys = content if isinstance(content, dict) else range(len(content))
    for key in list(keys)[:6]:
        yield (*path, key)
        if isinstance(content[key], dict | list):
            yield from places(content[key], (*path, key))


@pytest.mark.parametrize("policy", ["SymmetricTree", "Lossguide"])
def test_wrong_values_in_every_place(policy, files, tmp_path):
    original = json.loads(files[policy, "json"])
    tried = 0
    for path in places(original):
        for word in [*WORDS, "absent"]:
            content = copy.deepcopy(original)
            inside = content
            for key in path[:-1]:
                inside = inside[key]
            if word == "absent":
                del inside[path[-1]]
            else:
                inside[path[-1]] = word
            tried += 1
            loaded = load(content, tmp_path)
            if loaded is not None and tried % 10 == 0:
                assert agrees(loaded), (path, word)
    assert tried > 1000


def test_hostile_json_is_refused(files, tmp_path):
    original = files["SymmetricTree", "json"]
    value = str(json.loads(original)["oblivious_trees"][0]["leaf_values"][0]).encode()
    assert value in original
    for word in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 10_000, b"0x10", b"1_0"):
        assert load(original.replace(value, word, 1), tmp_path) is None, word
    for depth in (500, 100_000):
        nested = b'{"trees": [' + b'{"left": ' * depth + b"0" + b"}" * depth + b"]}"
        assert load(nested, tmp_path) is None
        assert load(b'{"trees": ' + b"[" * depth, tmp_path) is None
    twice = original[:-1] + b', "scale_and_bias": [1, [5]]}'
    assert load(twice, tmp_path) is None
    assert load(b"\xff\xfe" + original, tmp_path) is None


def test_what_catboost_would_read_otherwise_is_refused(files, tmp_path):
    original = json.loads(files["SymmetricTree", "json"])

    def refused(change, message):
        content = copy.deepcopy(original)
        change(content)
        file = tmp_path / "model.json"
        file.write_text(json.dumps(content))
        with pytest.raises(BrokenModelFile, match=message):
            LOADER.load_file(file, LoadOptions())

    def first_split(content):
        return content["oblivious_trees"][0]["splits"][0]

    refused(lambda c: first_split(c).update(split_index=2), "Tree 0, split 0: the split and its")
    refused(lambda c: first_split(c).update(split_index=99), "Tree 0, split 0")
    borders = original["features_info"]["float_features"][0]["borders"]
    assert len(borders) > 1
    features = lambda c: c["features_info"]["float_features"]  # noqa: E731
    refused(lambda c: features(c)[0].update(borders=borders[::-1]), "borders must rise")
    refused(lambda c: features(c)[0].update(flat_feature_index=2), "each once")
    refused(lambda c: features(c)[0].update(feature_index=1), "in order of their index")
    refused(lambda c: c["oblivious_trees"][1]["leaf_values"].pop(), "Tree 1 must have")
    refused(lambda c: c["oblivious_trees"][1].update(splits=[first_split(c)] * 40), "Tree 1 must")
    refused(lambda c: c.update(trees=[]), "not both")
    refused(lambda c: c.update(scale_and_bias=[1, [0.5, 0.5]]), "1 finite biases")


def test_nodes_without_children_or_value_are_refused(files, tmp_path):
    original = json.loads(files["Lossguide", "json"])
    for change in (
        lambda node: node.pop("left"),
        lambda node: node.pop("right"),
        lambda node: node.pop("split"),
        lambda node: node.update(value=1.0),
        lambda node: node.update(left={}),
        lambda node: node.update(left={"value": [1.0, 2.0]}),
        lambda node: node.update(left={"value": 1.0, "right": {"value": 1.0}}),
    ):
        content = copy.deepcopy(original)
        change(content["trees"][1])
        assert load(content, tmp_path) is None


def test_tables_that_all_point_to_one_large_array_are_refused(tmp_path):
    """A file of 2 MB whose 100,000 features share one name of a megabyte."""
    n_features, name = 100_000, 2**20
    # Layouts first: the core has trees as field 1, trees have numeric features as field 5.
    core_layout = struct.pack("<HHHH", 8, 8, 0, 4)
    buffer = bytearray(struct.pack("<I", 12) + core_layout)
    buffer += struct.pack("<iI", 8, 0)  # core at 12, its trees follow
    layout_at = len(buffer)
    buffer += struct.pack("<HH6H", 16, 8, 0, 0, 0, 0, 0, 4)
    trees_at = len(buffer)
    struct.pack_into("<I", buffer, 16, trees_at - 16)
    buffer += struct.pack("<iI", trees_at - layout_at, 4)
    vector_at = len(buffer)
    buffer += struct.pack("<I", n_features) + b"\x00" * (4 * n_features)
    feature_layout = len(buffer)
    buffer += struct.pack("<HH5H", 14, 8, 0, 0, 0, 0, 4)
    feature_at = len(buffer)
    buffer += struct.pack("<iI", feature_at - feature_layout, 4)
    buffer += struct.pack("<I", name) + b"a" * name
    for number in range(n_features):
        place = vector_at + 4 + 4 * number
        struct.pack_into("<I", buffer, place, feature_at - place)
    content = b"CBM1" + struct.pack("<I", len(buffer)) + bytes(buffer)
    file = tmp_path / "model.cbm"
    file.write_bytes(content)
    with pytest.raises(BrokenModelFile, match="used too often"):
        LOADER.load_file(file, LoadOptions())


def test_a_binary_file_of_a_newer_format_is_refused(files, tmp_path):
    """The table of trees gets one field more than this version knows."""
    content = files["SymmetricTree", "cbm"]
    buffer = bytearray(content[8:])
    core = struct.unpack_from("<I", buffer, 0)[0]
    layout = core - struct.unpack_from("<i", buffer, core)[0]
    trees_place = core + struct.unpack_from("<H", buffer, layout + 6)[0]
    trees = trees_place + struct.unpack_from("<I", buffer, trees_place)[0]
    old_layout = trees - struct.unpack_from("<i", buffer, trees)[0]
    size = struct.unpack_from("<H", buffer, old_layout)[0]
    longer = bytearray(buffer[old_layout : old_layout + size]) + struct.pack("<H", 4)
    struct.pack_into("<H", longer, 0, size + 2)
    struct.pack_into("<i", buffer, trees, trees - len(buffer))
    buffer += longer
    file = tmp_path / "model.cbm"
    file.write_bytes(b"CBM1" + struct.pack("<I", len(buffer)) + bytes(buffer))
    with pytest.raises(UnsupportedModel, match="CatBoost is newer"):
        LOADER.load_file(file, LoadOptions())


def test_random_bytes_are_refused(tmp_path):
    random = np.random.default_rng(4)
    for size in (0, 1, 7, 100, 5000):
        noise = bytes(random.integers(0, 256, size).tolist())
        assert load(b"CBM1" + noise, tmp_path) is None
        assert load(b"CBM1" + struct.pack("<I", size) + noise, tmp_path) is None
        assert load(b'{"features_info": ' + noise, tmp_path) is None
