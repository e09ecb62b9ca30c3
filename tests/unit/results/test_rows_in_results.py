import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.results.results import Results


@pytest.fixture(scope="module")
def results():
    X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])
    tree = DecisionTreeClassifier(random_state=0).fit(X, ["a", "a", "b", "b"])
    return tp.radius(tp.load(tree), X, np.array(["a", "a", "b", "a"]))


def test_results_hold_rows_and_the_labels_of_rows_and_witnesses(results):
    assert results.values[1].tolist() == [1.0, 1.0]
    assert results.predicted.tolist() == ["a", "a", "b", "b"]
    # The last row is already broken: it is its own witness.
    assert results.witness_label.tolist() == ["b", "b", "a", "b"]


def test_run_files_keep_them(results, tmp_path):
    results.save(tmp_path / "run.jsonl")
    again = tp.load_results(tmp_path / "run.jsonl")
    np.testing.assert_array_equal(again.values, results.values)
    assert again.predicted.tolist() == results.predicted.tolist()
    assert again.witness_label.tolist() == results.witness_label.tolist()


def test_run_files_without_them_are_read(results, tmp_path):
    results.save(tmp_path / "run.jsonl")
    plain = tp.load_results(tmp_path / "run.jsonl")
    plain.values = plain.predicted = plain.witness_label = None
    plain.save(tmp_path / "old.jsonl")
    again = tp.load_results(tmp_path / "old.jsonl")
    assert again.values is None
    assert again.predicted is None
    assert again.witness_label is None
    assert again.lower.tolist() == results.lower.tolist()


def test_joined_blocks_keep_them(results):
    both = Results.join([results, results])
    assert both.values.shape == (8, 2)
    assert both.witness_label.tolist() == results.witness_label.tolist() * 2


def test_units_from_a_data_frame_can_be_saved(tmp_path):
    import pandas as pd

    X = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 1.0, 0.0, 0.0]})
    tree = DecisionTreeClassifier(random_state=0).fit(X, [0, 0, 1, 1])
    tp.radius(tp.load(tree), X, None, tp.LInf(scale=X.std())).save(tmp_path / "run.jsonl")
    again = tp.load_results(tmp_path / "run.jsonl")
    assert again.header["question"]["perturbation"]["scale"] == X.std().tolist()
