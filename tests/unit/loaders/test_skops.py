"""skops files: the same models as in memory, and nothing but tree ensembles gets in."""

import copy
import io
import json
import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from tests.unit.loaders.sklearn_cases import CASES, X, Y, fitted, with_categories
from treeproof.errors import (
    BackendMissing,
    BrokenModelFile,
    TreeproofError,
    UnsupportedModel,
)
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.self_test import run_self_test
from treeproof.loaders.sklearn.loader import SklearnLoader


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Thread teams cost far more than these small models, above all on busy machines."""
    with threadpool_limits(1, user_api="openmp"):
        yield


def load(path, threshold=None):
    return SklearnLoader().load_file(Path(path), LoadOptions(decision_threshold=threshold))


def saved(estimator, path):
    skops.io.dump(estimator, path)
    return path


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def histogram():
    rows = with_categories()
    return HistGradientBoostingClassifier(
        max_iter=3, min_samples_leaf=5, categorical_features=[1, 4]
    ).fit(rows, Y)


@pytest.mark.parametrize("name", CASES)
def test_a_file_holds_the_same_model_as_the_object(name, tmp_path):
    estimator, threshold = fitted(name)
    path = saved(estimator, tmp_path / "model.skops")
    loaded = load(path, threshold)
    live = SklearnLoader().load_object(estimator, LoadOptions(decision_threshold=threshold))
    assert loaded.ensemble.fingerprint == live.ensemble.fingerprint
    assert loaded.ensemble.classes == live.ensemble.classes
    assert loaded.ensemble.provenance.source == str(path)
    assert len(loaded.ensemble.provenance.file_sha256) == 64


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_estimator_in_the_file_confirms_the_model(forest, histogram, compression, tmp_path):
    for estimator in (forest, histogram):
        skops.io.dump(estimator, tmp_path / "model.skops", compression=compression)
        ensemble = run_self_test(load(tmp_path / "model.skops"))
        assert ensemble.provenance.self_test.startswith("passed")


def test_searches_and_thresholds_are_read_through(forest, tmp_path):
    search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 3]}, cv=2).fit(X, Y)
    fixed = FixedThresholdClassifier(forest, threshold=0.3).fit(X, Y)
    assert load(saved(search, tmp_path / "a.skops")).ensemble.n_trees == 1
    assert load(saved(fixed, tmp_path / "b.skops")).ensemble.decision.cut == 0.3


def test_another_version_of_the_library_leaves_a_note(forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")
    change_schema(path, lambda text: text.replace(version_text(), '"content": "\\"1.5.7\\""'))
    notes = load(path).ensemble.provenance.notes
    assert any("Written by scikit-learn 1.5.7" in note for note in notes)


def version_text():
    import sklearn

    return f'"content": "\\"{sklearn.__version__}\\""'


def test_only_files_with_the_suffix_are_taken(tmp_path):
    loader = SklearnLoader()
    assert loader.accepts_file(tmp_path / "a.SKOPS", b"")
    assert not loader.accepts_file(tmp_path / "a.zip", b"PK\x03\x04")


def test_without_skops_the_message_names_the_extra(forest, tmp_path, monkeypatch):
    path = saved(forest, tmp_path / "model.skops")
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(BackendMissing, match=r"pip install .*\[skops\]"):
        load(path)


def change_schema(path, change):
    """Rewrite schema.json of a file; `change` maps text to text."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    before = parts["schema.json"].decode()
    after = change(before)
    assert after != before
    parts["schema.json"] = after.encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def nodes_of(schema, loader):
    """All nodes of a kind in a schema."""
    waiting, found = [schema], []
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if item.get("__loader__") == loader:
                found.append(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found


def edit(path, change):
    """Rewrite schema.json of a file; `change` edits the parsed schema in place."""

    def on_text(text):
        schema = json.loads(text)
        change(schema)
        return json.dumps(schema)

    change_schema(path, on_text)


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (make_pipeline(PCA(), DecisionTreeClassifier()), r"sklearn\.decomposition\._pca\.PCA"),
        (GaussianNB(), "GaussianNB"),
        (FunctionTransformer(partial(print, "boo")), r"builtins\.print"),
        (FunctionTransformer(np.save), r"numpy.*\.save"),
        ({"model": GaussianNB()}, "GaussianNB"),
    ],
    ids=["pipeline", "linear", "partial", "function", "dictionary"],
)
def test_other_types_are_refused_by_name(estimator, name, tmp_path):
    if hasattr(estimator, "fit"):
        estimator.fit(X, Y)
    path = saved(estimator, tmp_path / "model.skops")
    with pytest.raises(UnsupportedModel, match=name):
        load(path)


def test_a_file_without_an_estimator(tmp_path):
    with pytest.raises(UnsupportedModel, match=r"must hold a scikit-learn estimator\. Got dict"):
        load(saved({"a": [1, 2]}, tmp_path / "model.skops"))


CALL = {"__class__": "system", "__module__": "os", "__id__": 1, "content": "echo owned"}
HOSTILE_NODES = {
    "object": {**CALL, "__loader__": "ObjectNode"},
    "function": {**CALL, "__loader__": "FunctionNode"},
    "method": {
        **CALL,
        "__loader__": "MethodNode",
        "content": {"func": "system", "obj": {**CALL, "__loader__": "TypeNode"}},
    },
    "operator": {
        **CALL,
        "__class__": "methodcaller",
        "__module__": "operator",
        "__loader__": "OperatorFuncNode",
        "attrs": {"__class__": "tuple", "__module__": "builtins", "content": []},
    },
    "reduce": {**CALL, "__loader__": "ReduceNode", "__reduce__": {"args": CALL}},
    "constructor": {**CALL, "__loader__": "ConstructorFromReduceNode"},
    "type": {**CALL, "__loader__": "TypeNode"},
    "unheard of": {**CALL, "__loader__": "EvalNode"},
    "no kind": {"__class__": "system", "__module__": "os", "content": {}},
}


@pytest.mark.parametrize("kind", HOSTILE_NODES)
def test_hostile_nodes_are_refused(kind, forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")

    def change(schema):
        schema["content"]["content"]["n_estimators"] = HOSTILE_NODES[kind]

    edit(path, change)
    with pytest.raises(TreeproofError, match=r"system|methodcaller|damaged"):
        load(path)


def tree_nodes(schema):
    return nodes_of(schema, "TreeNode")[0]


def set_json(node, value):
    node.update(
        __class__="str", __module__="builtins", __loader__="JsonNode", content=json.dumps(value)
    )
    node.pop("__id__", None)


def set_array(path, node, change):
    """Replace the array that a node of the schema refers to."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    array = np.load(io.BytesIO(parts[node["file"]]), allow_pickle=False)
    buffer = io.BytesIO()
    np.save(buffer, change(array), allow_pickle=False)
    parts[node["file"]] = buffer.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


@pytest.mark.parametrize("value", [10**9, -1, 0, 2, 2**70, "1", None, 1.5])
@pytest.mark.parametrize("position", [0, 2])
def test_tree_arguments_that_would_crash_compiled_code(position, value, forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")

    def change(schema):
        arguments = tree_nodes(schema)["__reduce__"]["args"]["content"]
        arguments[position] = copy.deepcopy(arguments[position])
        set_json(arguments[position], value)

    edit(path, change)
    if position == 0 and value == 2:  # the tree's own count of features decides nothing
        assert load(path).ensemble.n_trees == 3
    else:
        with pytest.raises(BrokenModelFile):
            load(path)


def test_the_count_of_nodes_is_not_believed(forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")

    def change(schema):
        content = tree_nodes(schema)["content"]["content"]
        content["node_count"] = copy.deepcopy(content["node_count"])
        set_json(content["node_count"], 10**9)

    edit(path, change)
    expected = SklearnLoader().load_object(forest, LoadOptions()).ensemble.fingerprint
    assert load(path).ensemble.fingerprint == expected


def damage(field, value):
    def change(nodes):
        nodes = nodes.copy()
        nodes[field][0] = value
        return nodes

    return change


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left_child", 10**6),
        ("left_child", 0),
        ("left_child", -7),
        ("right_child", 2**60),
        ("right_child", -1),
        ("feature", 10**6),
        ("feature", -3),
        ("threshold", np.nan),
    ],
)
def test_tree_nodes_that_would_crash_compiled_code(field, value, forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")
    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
    for tree in nodes_of(schema, "TreeNode"):
        set_array(path, tree["content"]["content"]["nodes"], damage(field, value))
    with pytest.raises(BrokenModelFile):
        load(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("nodes", lambda nodes: nodes[:-1]),
        ("nodes", lambda nodes: nodes[:0]),
        ("nodes", lambda nodes: np.zeros(len(nodes))),
        ("values", lambda values: values[:, :, :1]),
        ("values", lambda values: values[:1]),
        ("values", lambda values: values * np.nan),
    ],
)
def test_tree_arrays_of_the_wrong_shape(name, change, forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")
    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
    set_array(path, tree_nodes(schema)["content"]["content"][name], change)
    with pytest.raises(BrokenModelFile):
        load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left", 10**6),
        ("right", 0),
        ("feature_idx", 10**6),
        ("feature_idx", -1),
        ("num_threshold", np.nan),
        ("value", np.inf),
    ],
)
def test_histogram_nodes_that_would_crash_compiled_code(field, value, histogram, tmp_path):
    path = saved(histogram, tmp_path / "model.skops")
    estimator = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    for iteration in estimator._predictors:
        for predictor in iteration:
            chosen = predictor.nodes["is_leaf"] == (field == "value")
            chosen &= predictor.nodes["is_categorical"] == 0
            predictor.nodes[field][chosen] = value
    with pytest.raises(BrokenModelFile):
        load(saved(estimator, path))


def test_histogram_tables_that_compiled_code_relies_on(histogram, tmp_path):
    def one_category_set(estimator):
        for iteration in estimator._predictors:
            for predictor in iteration:
                predictor.raw_left_cat_bitsets = predictor.raw_left_cat_bitsets[:0]

    def no_categorical_columns(estimator):
        estimator._bin_mapper.is_categorical_ = np.zeros(1, dtype=np.uint8)

    def no_numeric_columns(estimator):
        transformer = estimator._preprocessor
        transformer.transformers_ = transformer.transformers_[:1]

    def other_baseline(estimator):
        estimator.n_trees_per_iteration_ = 7

    for tamper in (one_category_set, no_categorical_columns, no_numeric_columns, other_baseline):
        path = saved(histogram, tmp_path / "model.skops")
        estimator = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
        tamper(estimator)
        with pytest.raises(BrokenModelFile):
            load(saved(estimator, path))


def test_attributes_of_the_wrong_type(forest, tmp_path):
    path = tmp_path / "model.skops"
    for name in ("classes_", "n_features_in_", "estimators_", "n_outputs_", "n_classes_"):
        for value in (None, "text", [], {"a": 1}, -5, 10**12):
            estimator = copy.copy(forest)
            setattr(estimator, name, value)
            saved(estimator, path)
            try:
                ensemble = run_self_test(load(path))
            except TreeproofError:
                continue
            # Attributes that nothing depends on may be anything.
            assert name in ("n_outputs_", "n_classes_") or value is None
            assert ensemble.provenance.self_test.startswith("passed")


def test_zip_bombs_are_not_unpacked(forest, tmp_path):
    path = tmp_path / "model.skops"
    skops.io.dump(forest, path, compression=zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("padding.npy", bytes(200_000_000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(BrokenModelFile, match="must not grow"):
        load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"no zip at all",
        b"PK\x05\x06" + bytes(18),
    ],
)
def test_files_that_are_no_archives(content, tmp_path):
    path = tmp_path / "model.skops"
    path.write_bytes(content)
    with pytest.raises(BrokenModelFile, match="damaged"):
        load(path)


@pytest.mark.parametrize(
    "schema",
    [
        "{}",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"__class__": "dict"}',
        '{"__class__": 3, "__module__": [], "__loader__": {}}',
        '{"__class__": "Tree", "__module__": "sklearn.tree._tree", "__loader__": "TreeNode"}',
    ],
)
def test_schemas_that_are_none(schema, tmp_path):
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("schema.json", schema)
    with pytest.raises(TreeproofError):
        load(path)


def test_truncated_and_flipped_files_are_errors_or_the_same_model(forest, tmp_path):
    path = saved(forest, tmp_path / "model.skops")
    content = path.read_bytes()
    expected = load(path).ensemble
    random = np.random.default_rng(0)
    outcomes = []
    for number in range(150):
        damaged = bytearray(content)
        if number % 3 == 0:
            damaged = damaged[: random.integers(len(content))]
        else:
            for place in random.integers(len(content), size=random.integers(1, 4)):
                damaged[place] ^= 1 << random.integers(8)
        path.write_bytes(bytes(damaged))
        try:
            ensemble = load(path).ensemble
        except TreeproofError:
            outcomes.append("refused")
        else:
            assert ensemble.fingerprint == expected.fingerprint
            outcomes.append("same")
    assert outcomes.count("refused") > 100
