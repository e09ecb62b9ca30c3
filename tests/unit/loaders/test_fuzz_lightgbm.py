"""Damaged and hostile LightGBM files: a treeproof error, or a model that LightGBM reads alike."""

import lightgbm as lgb
import numpy as np
import pytest

from treeproof.errors import BrokenModelFile, TreeproofError, UnsupportedModel
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.lightgbm.loader import LightGBMLoader
from treeproof.model import evaluate

LOADER = LightGBMLoader()
RANDOM = np.random.default_rng(9)


@pytest.fixture(scope="module")
def text():
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 3))
    X[:, 2] = random.integers(0, 40, size=300)
    X[random.random(300) < 0.2, 0] = np.nan
    y = (np.nan_to_num(X[:, 0]) + np.isin(X[:, 2], [1, 5, 35]) > 0.2).astype(float)
    parameters = {
        "objective": "binary",
        "num_leaves": 5,
        "verbosity": -1,
        "num_threads": 1,
        "min_data_per_group": 1,
        "cat_smooth": 0.1,
        "max_cat_to_onehot": 1,
    }
    booster = lgb.train(parameters, lgb.Dataset(X, y, categorical_feature=[2]), 3)
    assert "num_cat=1" in booster.model_to_string()
    return booster.model_to_string()


def load(content, tmp_path):
    """The loaded model, or None where a treeproof error refused it."""
    file = tmp_path / "model.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        loaded, message = LOADER.load_file(file, LoadOptions()), "a model, and no message"
    except TreeproofError as error:
        loaded, message = None, str(error)
    assert 10 < len(message) < 500
    return loaded


def agrees(loaded):
    """Whether LightGBM, given the lines that were read, gives the same margins."""
    thresholds = loaded.ensemble.trees.threshold
    pool = [thresholds, np.nextafter(thresholds, 0.0), np.arange(-1.0, 40.0, 0.5)]
    pool.append(np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-40]))
    rows = RANDOM.choice(np.concatenate(pool), size=(64, loaded.ensemble.n_features))
    return np.array_equal(loaded.reference.margins(rows), evaluate.margins(loaded.ensemble, rows))


def end_of_trees(text):
    return text.index("end of trees") + len("end of trees\n")


def test_the_whole_file_is_a_model(text, tmp_path):
    assert load(text, tmp_path).ensemble.n_trees == 3


def test_every_file_cut_off_inside_its_trees_is_refused(text, tmp_path):
    for length in range(end_of_trees(text)):
        assert load(text[:length], tmp_path) is None, length


def test_flipped_bits_are_refused_or_read_as_lightgbm_reads_them(text, tmp_path):
    random = np.random.default_rng(1)
    original = text[: end_of_trees(text)].encode()
    accepted = 0
    for _ in range(1500):
        content = bytearray(original)
        content[random.integers(len(content))] ^= 1 << int(random.integers(8))
        loaded = load(bytes(content), tmp_path)
        if loaded is not None:
            accepted += 1
            # Asking LightGBM takes ten times as long as reading, so only every sixth is compared.
            assert accepted % 6 or agrees(loaded), bytes(content)
    assert accepted > 150


def test_bytes_removed_doubled_or_replaced_are_refused_or_read_alike(text, tmp_path):
    random = np.random.default_rng(2)
    original = text[: end_of_trees(text)].encode()
    # Without the lengths of trees, which catch nearly every such change.
    head, rest = original.split(b"tree_sizes=")
    original = head + rest.partition(b"\n")[2]
    for number in range(1200):
        at = int(random.integers(len(original)))
        wide = int(random.integers(1, 9))
        middle = [b"", original[at : at + wide] * 2, bytes(random.integers(32, 127, wide).tolist())]
        content = original[:at] + middle[number % 3] + original[at + wide :]
        loaded = load(content, tmp_path)
        if loaded is not None and number % 6 < 2:
            assert agrees(loaded), content


NUMBERS = [
    "-1",
    "-2",
    "0",
    "3",
    "99",
    "-99",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "1" * 400,
    "x",
    "",
    " ",
]
NUMBERS += ["2147483648", "-9223372036854775809", "18446744073709551616", "0x10", "1_0", "٣", "1,5"]
KEYS = ["num_leaves", "num_cat", "split_feature", "threshold", "decision_type", "left_child"]
KEYS += ["right_child", "leaf_value", "cat_boundaries", "cat_threshold", "is_linear", "num_class"]
KEYS += ["num_tree_per_iteration", "max_feature_idx", "label_index", "version", "feature_names"]
KEYS += ["feature_infos", "objective", "tree_sizes", "Tree"]


@pytest.mark.parametrize("key", KEYS)
def test_wrong_values_in_every_field(key, text, tmp_path):
    lines = text[: end_of_trees(text)].split("\n")
    places = [number for number, line in enumerate(lines) if line.startswith(key + "=")]
    assert places
    for place in places[:3]:
        words = lines[place].partition("=")[2].split(" ")
        for position in range(min(len(words), 5)):
            for word in NUMBERS:
                changed = [*words[:position], word, *words[position + 1 :]]
                damaged = [*lines[:place], f"{key}={' '.join(changed)}", *lines[place + 1 :]]
                damaged = [
                    line for line in damaged if key == "tree_sizes" or "tree_sizes" not in line
                ]
                content = "\n".join(damaged)
                loaded = load(content, tmp_path)
                if loaded is not None and key != "label_index":
                    assert agrees(loaded), (key, word)
        absent = [*lines[:place], *lines[place + 1 :]]
        loaded = load("\n".join(absent), tmp_path)
        optional = ("is_linear", "tree_sizes", "objective", "version")
        assert loaded is None or key in optional


def one_tree(**fields):
    usual = {
        "num_leaves": "3",
        "num_cat": "0",
        "split_feature": "0 0",
        "threshold": "0.5 1.5",
        "decision_type": "2 2",
        "left_child": "1 -1",
        "right_child": "-3 -2",
        "leaf_value": "1 2 3",
    }
    lines = "\n".join(f"{key}={value}" for key, value in {**usual, **fields}.items())
    return (
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
        "max_feature_idx=0\nobjective=binary sigmoid:1\nfeature_names=a\nfeature_infos=[0:1]\n\n"
        f"Tree=0\n{lines}\n\n\nend of trees\n"
    )


def test_cycles_and_shared_nodes_are_refused(tmp_path):
    assert load(one_tree(), tmp_path) is not None
    for fields in (
        {"left_child": "0 -1"},
        {"left_child": "1 0"},
        {"left_child": "1 1"},
        {"right_child": "1 -2"},
        {"right_child": "-1 -2"},
        {"right_child": "-3 -3"},
    ):
        assert load(one_tree(**fields), tmp_path) is None, fields


def test_a_tree_as_deep_as_its_leaves_is_read_or_refused(tmp_path):
    for n in (1000, 200_000):
        inner = range(n - 1)
        content = one_tree(
            num_leaves=n,
            split_feature=" ".join("0" for _ in inner),
            threshold=" ".join(str(k) for k in inner),
            decision_type=" ".join("2" for _ in inner),
            left_child=" ".join(str(-k - 1) for k in inner),
            right_child=" ".join(str(k + 1 if k + 1 < n - 1 else -n) for k in inner),
            leaf_value=" ".join("1" for _ in range(n)),
        )
        loaded = load(content, tmp_path)
        assert (loaded is not None) == (n == 1000)


def test_hostile_categories_are_refused(text, tmp_path):
    trees = text[: end_of_trees(text)]
    for line in (
        "[" * 200_000,
        "[" * 900 + "]" * 900,
        "9" * 10_000,
        '{"a": 1}',
        "[[[1]]]",
        '"x"',
        '[["a"], 3]',
        "[[1], [2], [3], [4], [5]]",
        "",
    ):
        assert load(trees + f"\npandas_categorical:{line}\n", tmp_path) is None, line[:20]
    assert load(trees + "\npandas_categorical:null\n", tmp_path) is not None


def test_bytes_that_are_no_text_are_refused(tmp_path):
    random = np.random.default_rng(4)
    for size in (0, 1, 10, 1000):
        content = b"tree\nversion=v4\n" + bytes(random.integers(0, 256, size).tolist())
        assert load(content, tmp_path) is None


def test_the_message_names_the_place(tmp_path):
    file = tmp_path / "model.txt"
    file.write_text(one_tree(left_child="1 7"))
    with pytest.raises(BrokenModelFile, match="Tree 0, node 1: a child must exist"):
        LOADER.load_file(file, LoadOptions())
    file.write_text(one_tree(split_feature="0 -1"))
    with pytest.raises(BrokenModelFile, match="Tree 0, node 1"):
        LOADER.load_file(file, LoadOptions())
    file.write_text(one_tree(is_linear="1"))
    with pytest.raises(UnsupportedModel, match="linear_tree=false"):
        LOADER.load_file(file, LoadOptions())
