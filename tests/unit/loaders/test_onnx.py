"""ONNX models: labels and scores bit-equal to onnxruntime's, in the columns that it is fed."""

import warnings

import numpy as np
import onnxmltools
import onnxruntime
import pytest
from catboost import CatBoostClassifier
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import treeproof as tp
from tests.stress_rows import stress_rows
from tests.unit.loaders import onnx_cases as cases
from treeproof.errors import BrokenModelFile, ModelWarning, TreeproofError, UnsupportedModel
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import CannotAnswer, LoadOptions
from treeproof.loaders.onnx.loader import OnnxLoader, load_bytes
from treeproof.model import evaluate
from treeproof.prediction import Model

LOADER = OnnxLoader()

QUICK = (
    "forest, named classes",
    "forest, three classes",
    "gradient boosting",
    "xgboost, missing",
    "lightgbm, categories",
    "catboost, classes called -1 and 1",
    "columns, one-hot",
    "pipeline, to a range in double",
    *cases.BY_HAND,
)
DEFAULT = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in cases.CASES
]


def session(model, threads=1):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def answers(model, loaded, rows):
    """Labels and scores as the file gives them, without anything added to it."""
    runner = session(model)
    feeds, first = {}, 0
    for found in runner.get_inputs():
        width = found.shape[1]
        block = rows[:, first : first + width]
        if found.type == "tensor(string)":
            names = loaded.ensemble.categories[first]
            known = [names[int(c)] if c in range(len(names)) else "?" for c in block[:, 0]]
            block = np.array(known, dtype=object)[:, np.newaxis]
        else:
            kinds = {"tensor(float)": "f4", "tensor(double)": "f8", "tensor(int64)": "i8"}
            with np.errstate(over="ignore"):
                block = block.astype(kinds[found.type])
        feeds[found.name] = block
        first += width
    labels = scores = None
    for name, value in zip(
        [output.name for output in runner.get_outputs()], runner.run(None, feeds), strict=True
    ):
        if "label" in name:
            labels = np.asarray(value).ravel()
        elif isinstance(value, list):
            scores = np.array([list(row.values()) for row in value], dtype=np.float32)
        else:
            scores = np.asarray(value).reshape(len(rows), -1)
    return labels, scores


def load(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return LOADER.load_object(model, LoadOptions())


@pytest.mark.parametrize("name", DEFAULT)
def test_labels_and_scores_are_those_of_onnxruntime(name):
    model = cases.quietly(cases.CASES[name])
    loaded = load(model)
    ensemble = loaded.ensemble
    rows = loaded.reference.feedable(stress_rows(ensemble, 10_000))
    labels, scores = answers(model, loaded, rows)
    margins = evaluate.margins(ensemble, rows)
    compiled = Model(ensemble).margins(rows).reshape(margins.shape)
    assert np.array_equal(compiled, margins, equal_nan=True)
    if "Exp" not in {node.op_type for node in model.graph.node} and scores is not None:
        shown = loaded.reference.shown(margins)
        assert np.array_equal(shown, scores[:, -shown.shape[1] :], equal_nan=True)
        assert len(np.unique(shown)) > 20
    if ensemble.decision.kind != "score":
        found = np.array(ensemble.classes)[evaluate.label_indices(ensemble, margins)]
        assert np.array_equal(found, labels)
        assert len(np.unique(found)) > 1


def check_radii(name, n):
    """Witnesses flip the label that onnxruntime gives; returns how many did."""
    model = cases.quietly(cases.CASES[name])
    loaded = load(model)
    ensemble = loaded.ensemble
    if ensemble.decision.kind == "score":
        return 0
    rows = loaded.reference.feedable(stress_rows(ensemble, 2_000))
    rows = rows[(np.nan_to_num(np.abs(rows)) < 1e6).all(axis=1)][:n]
    labels = Model(ensemble).predict(rows)
    found = tp.radius(Model(ensemble), rows, labels, time_limit_s=5.0)
    witnesses = np.array(found.witness)
    # What onnxruntime cannot be fed as it is, such as fractions of integers, is left out.
    fed = loaded.reference.feedable(witnesses.copy())
    tried = np.isfinite(found.witness_distance) & (
        (fed == witnesses) | (np.isnan(fed) & np.isnan(witnesses))
    ).all(axis=1)
    if tried.any():
        assert (answers(model, loaded, witnesses[tried])[0] != labels[tried]).all()
    return int(tried.sum())


@pytest.mark.parametrize("name", ["forest, named classes", "columns, one-hot"])
def test_witnesses_flip_labels_of_onnxruntime(name):
    assert check_radii(name, 6) > 0


def test_catboost_exported_by_onnxmltools_is_that_of_catboost():
    model = CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False, thread_count=1)
    model.fit(cases.ROWS, cases.Y)
    ensemble = load_ensemble(onnxmltools.convert_catboost(model, name="model", doc_string=""))
    assert ensemble.provenance.self_test.startswith("passed: margins of 2,000 rows")
    assert "Exported by CatBoost." in ensemble.provenance.notes
    labels = Model(ensemble).predict(cases.ROWS)
    assert np.array_equal(labels, model.predict(cases.ROWS))


@pytest.mark.parametrize("name", ["forest, named classes", "looked up and scaled", "version 5"])
def test_the_self_test_passes(name, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(cases.quietly(cases.CASES[name]).SerializeToString())
    assert load_ensemble(path).provenance.self_test.startswith("passed: margins of 2,000 rows")


def test_parts_of_trees_change_only_last_bits_and_the_note_says_so():
    model = cases.quietly(lambda: cases.classifier(30, cases.one(0), n_trees=90))
    ensemble = load(model).ensemble
    rows = np.clip(stress_rows(ensemble, 2_000), -1e30, 1e30).astype(np.float32)
    here = evaluate.margins(ensemble, rows)[:, 0]
    single = np.concatenate(
        [session(model, 1).run(["Y"], {"X": row[None]})[0] for row in rows[:50]]
    )
    assert np.array_equal(single[:, 1], here[:50])
    threaded = session(model, 3)
    few = threaded.run(["Y"], {"X": rows[:50]})[0][:, 1]
    many = threaded.run(["Y"], {"X": rows})[0][:, 1]
    assert np.array_equal(few, here[:50])
    assert not np.array_equal(many, here)
    assert np.abs(many - here).max() < 1e-5
    assert any("batches of up to 50 rows" in note for note in ensemble.provenance.notes)


def test_labels_of_onnxruntime_are_warned_about():
    model = cases.classifier(15, lambda t, r: [0, 1], labels=(7, 9))
    with pytest.warns(ModelWarning, match=r"names its classes \[7, 9\], but onnxruntime gives"):
        assert load_ensemble(model).classes == (0, 1)


def test_a_decision_threshold_is_one_on_probabilities():
    model = cases.classifier(10, cases.one(0), transform="LOGISTIC")
    options = LoadOptions(decision_threshold=0.7)
    ensemble = load_ensemble(model, options=options)
    rows = stress_rows(ensemble, 3_000)
    _, scores = answers(model, None, rows)
    assert np.array_equal(Model(ensemble).predict(rows), scores[:, 1] >= np.float32(0.7))


def test_a_width_that_the_file_leaves_open_is_given_or_warned_about():
    model = cases.regressor(0)
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    with pytest.warns(ModelWarning, match="does not say how many columns"):
        assert load_ensemble(model).n_features == 4
    with pytest.warns(ModelWarning, match="does not say how many columns"):
        assert load_ensemble(model, options=LoadOptions(n_features=7)).n_features == 7


def changed(model, **attributes):
    """A model whose tree operator has other attributes."""
    node = next(node for node in model.graph.node if node.op_type.startswith("TreeEnsemble"))
    kept = [found for found in node.attribute if found.name not in attributes]
    new = [helper.make_attribute(k, v) for k, v in attributes.items() if v is not None]
    del node.attribute[:]
    node.attribute.extend(kept + new)
    return model


def before(*nodes, **given):
    """A regressor behind operators that make X of their own inputs."""
    model = cases.regressor(0)
    return cases.graph([*nodes, *model.graph.node], **given)


def elsewhere():
    model = cases.regressor(6, double=True)
    for found in model.graph.node[0].attribute:
        if found.name == "target_weights_as_tensor":
            found.t.data_location = TensorProto.EXTERNAL
            found.t.external_data.add(key="location", value="/etc/passwd")
    return model


REFUSED = {
    "MIN": lambda: changed(cases.regressor(0), aggregate_function="MIN"),
    "must be added up, or averaged without base": lambda: cases.regressor(
        0, function="AVERAGE", base=[0.5]
    ),
    "may have one base value": lambda: cases.classifier(1, cases.one(1), base=[0.1]),
    "NONE or LOGISTIC. Got SOFTMAX": lambda: cases.classifier(1, cases.one(0), transform="SOFTMAX"),
    "leave classes without a score": lambda: cases.classifier(
        1, lambda t, r: [int(r.integers(3))], labels=(0, 1, 2)
    ),
    "decides by the other class": lambda: cases.classifier(1, lambda t, r: [int(r.integers(2))]),
    "whole numbers from 0": lambda: changed(
        cases.regressor(0, modes=("BRANCH_EQ",)), nodes_values=[0.5] * 135
    ),
    "at most one weight per output": lambda: changed(
        cases.regressor(0), target_nodeids=[7] * 72, target_treeids=[0] * 72
    ),
    "one tree operator": lambda: cases.graph(
        [*cases.regressor(0).graph.node, *cases.regressor(0).graph.node]
    ),
    "Got none": lambda: cases.graph([helper.make_node("Identity", ["X"], ["Y"])]),
    "must replace NaN among floats": lambda: before(
        helper.make_node(
            "Imputer",
            ["raw"],
            ["X"],
            domain="ai.onnx.ml",
            imputed_value_floats=[1.0],
            replaced_value_float=-1.0,
        ),
        inputs=(("raw", TensorProto.FLOAT, 4),),
    ),
    "must not multiply or divide by zero": lambda: before(
        helper.make_node("Scaler", ["raw"], ["X"], domain="ai.onnx.ml", offset=[0.0], scale=[0.0]),
        inputs=(("raw", TensorProto.FLOAT, 4),),
    ),
    "The operator Normalizer before the trees": lambda: before(
        helper.make_node("Normalizer", ["raw"], ["X"], domain="ai.onnx.ml"),
        inputs=(("raw", TensorProto.FLOAT, 4),),
    ),
    "must read rows of floats or doubles": lambda: before(
        inputs=(("X", TensorProto.INT64, 4),),
    ),
    "a tree is in two parts": lambda: changed(
        cases.regressor(0), nodes_treeids=([0, 1] * 68)[:135]
    ),
    "reached twice": lambda: changed(
        cases.regressor(0), nodes_truenodeids=[1, 0] + [1] * 133, nodes_falsenodeids=[2] * 135
    ),
    "must be in the file itself": elsewhere,
    "post_transform must be one of": lambda: changed(cases.regressor(0), post_transform="TANH"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_is_not_a_sum_of_trees_is_refused(sentence):
    model = REFUSED[sentence]()
    with pytest.raises((UnsupportedModel, BrokenModelFile)) as caught:
        load(model)
    assert sentence in str(caught.value)


def test_names_are_matched_and_unknown_ones_go_where_onnxruntime_sends_them():
    model = cases.lookup()
    ensemble = load_ensemble(model)
    assert ensemble.categories == {0: ("a", "b", "c")}
    frame = cases.pandas.DataFrame(
        {"S": ["b", "zebra", "c"], "F": [2.9, 7.0, -0.5], "X_0": 0.25, "X_1": [1.0, np.nan, -2.0]}
    )
    feeds = {
        "S": frame[["S"]].to_numpy(dtype=object),
        "F": frame[["F"]].to_numpy(np.float32),
        "X": frame[["X_0", "X_1"]].to_numpy(np.float32),
    }
    assert np.array_equal(Model(ensemble).predict(frame), session(model).run(["label"], feeds)[0])


def agrees(loaded):
    """Whether onnxruntime confirms what was loaded, or refuses the file."""
    rows = loaded.reference.feedable(stress_rows(loaded.ensemble, 60))
    try:
        expected = loaded.reference.margins(rows)
    except CannotAnswer:
        return True
    margins = evaluate.margins(loaded.ensemble, rows)
    if loaded.reference.labels is not None and loaded.ensemble.decision.kind != "score":
        labels = evaluate.label_indices(loaded.ensemble, margins)
        if not np.array_equal(labels, loaded.reference.labels(rows)):
            return False
    return np.array_equal(loaded.reference.shown(margins), expected, equal_nan=True)


SEEDS = (
    "both classes, logistic, names",
    "equalities",
    "version 5, small sets",
    "looked up and scaled",
)


def damaged(content, random):
    """Bytes with a few changed, cut out, doubled or moved."""
    data = bytearray(content)
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(len(data)))
        n = int(random.integers(1, 9))
        kind = random.integers(6)
        if kind == 0:
            data[at] = int(random.integers(256))
        elif kind == 1:
            data[at] ^= 1 << int(random.integers(8))
        elif kind == 2:
            del data[at : at + n]
        elif kind == 3:
            data[at:at] = data[at : at + n]
        elif kind == 4:
            data[at : at + n] = bytes(random.integers(0, 256, n).astype(np.uint8))
        else:
            data[at:] = data[at:][: int(random.integers(1, len(data)))]
    return bytes(data)


def fuzz(n, seed):
    random = np.random.default_rng(seed)
    loaded_count = 0
    contents = [cases.quietly(cases.CASES[name]).SerializeToString() for name in SEEDS]
    for number in range(n):
        content = damaged(contents[number % len(contents)], random)
        try:
            loaded = load_bytes(content, LoadOptions(), source="fuzz")
        except TreeproofError:
            continue
        loaded_count += 1
        assert agrees(loaded), number
    return loaded_count


def test_damaged_files_are_refused_or_loaded_as_onnxruntime_does():
    assert fuzz(400, 0) > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_damaged_files_are_refused_or_loaded_as_onnxruntime_does(seed):
    assert fuzz(2_500, seed) > 100


def test_an_attribute_with_values_of_two_types_is_refused():
    model = cases.quietly(cases.CASES["looked up and scaled"])
    (trees,) = (node for node in model.graph.node if node.op_type == "TreeEnsembleClassifier")
    for attribute in trees.attribute:
        if attribute.name == "nodes_missing_value_tracks_true":
            attribute.floats.extend([1.0])
    with pytest.raises(BrokenModelFile, match=r"tracks_true' .* has values of two types"):
        load_bytes(model.SerializeToString(), LoadOptions(), source="two")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x3a",
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\x08" + b"\xff" * 20,
        b"\x3a\x02\x0a\x00" * 3,
        b"\x08\x07" * 100_000,
        b"\x0b" * 50,
        b"<html></html>",
    ],
)
def test_hostile_bytes_are_refused(content):
    with pytest.raises(TreeproofError):
        load_bytes(content, LoadOptions(), source="hostile")


@pytest.mark.parametrize("kind", [DecisionTreeRegressor, DecisionTreeClassifier])
def test_trees_that_are_single_leaves_load(kind):
    y = [1.0, 2.0, 3.0, 4.0] if kind is DecisionTreeRegressor else [1, 1, 1, 0]
    source = to_onnx(kind().fit(np.zeros((4, 2)), y), np.zeros((1, 2), np.float32))
    model = tp.load(source)
    assert (model.ensemble.trees.feature < 0).all()
    assert model.predict(np.ones((2, 2))).tolist() == (
        [2.5] * 2 if model.classes == () else [1] * 2
    )
