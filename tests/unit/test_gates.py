import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import treeproof as tp

X = np.array([[0.0], [1.0], [2.0], [10.0]])
y = np.array(["a", "a", "b", "b"])


@pytest.fixture(scope="module")
def tree():
    return DecisionTreeClassifier().fit(X, y)  # splits at 1.5


def test_the_score_is_the_share_of_proved_rows(tree):
    assert tp.verified_accuracy_score(tree, X, y, eps=0.0) == 1.0
    assert tp.verified_accuracy_score(tree, X, y, eps=0.6) == 0.5
    assert tp.verified_accuracy_score(tree, X, np.array(["a", "a", "b", "a"]), eps=0.6) == 0.25
    bounded = tp.LInf(low=1.6)
    assert tp.verified_accuracy_score(tree, X[2:], y[2:], eps=9.0, perturbation=bounded) == 1.0


def test_gates_count_attacked_rows_only(tree):
    # Of two rows of class a, one crosses 1.5; those of class b stay as they are.
    options = {"eps": 0.6, "attacker_class": "a"}
    assert tp.verified_accuracy_score(tree, X, y, **options) == 0.5
    with pytest.raises(AssertionError, match="1 of 2 attacked rows are verified"):
        tp.assert_robust(tree, X, y, at_least=0.75, **options)
    assert len(tp.assert_robust(tree, X, y, at_least=0.5, **options)) == 4
    with pytest.raises(tp.InvalidInput, match="at least one row that is attacked"):
        tp.assert_robust(tree, X[:2], y[:2], at_least=0.0, eps=0.6, attacker_class="b")
    assert tp.verified_accuracy_score(tree, X[:2], y[:2], eps=0.6, attacker_class="b") == 0.0


def test_the_score_works_in_model_selection():
    rows, labels = load_iris(return_X_y=True)
    scorer = tp.verified_accuracy_scorer(eps=0.05)
    scores = cross_val_score(DecisionTreeClassifier(random_state=0), rows, labels, scoring=scorer)
    plain = cross_val_score(DecisionTreeClassifier(random_state=0), rows, labels)
    assert scores.shape == (5,)
    assert np.all(scores <= plain)
    assert np.any(scores > 0.5)
    search = GridSearchCV(
        DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, scoring=scorer
    )
    assert search.fit(rows, labels).best_score_ > 0.6
    both = GridSearchCV(
        XGBClassifier(n_estimators=3, random_state=0),
        {"max_depth": [1, 3]},
        scoring={"clean": "accuracy", "robust": scorer},
        refit="robust",
        cv=3,
    ).fit(rows, labels)
    robust = both.cv_results_["mean_test_robust"]
    assert np.all(robust <= both.cv_results_["mean_test_clean"])
    assert both.best_score_ == robust.max() > 0.5
    assert scorer(both.best_estimator_, rows, labels) == tp.verified_accuracy_score(
        both.best_estimator_, rows, labels, eps=0.05
    )


def test_a_scorer_reaches_other_processes(tree):
    scorer = tp.verified_accuracy_scorer(eps=9.0, perturbation=tp.LInf(low=1.6), n_jobs=1)
    assert pickle.loads(pickle.dumps(scorer))(tree, X[2:], y[2:]) == 1.0


def test_a_scorer_refuses_wrong_options_before_a_search_hides_them():
    with pytest.raises(tp.InvalidInput, match="'eps' of LInf must be a number >= 0"):
        tp.verified_accuracy_scorer(eps=-1.0)
    with pytest.raises(tp.InvalidInput, match="must be an LInf without eps"):
        tp.verified_accuracy_scorer(eps=0.1, perturbation=tp.LInf(0.2))
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_job'"):
        tp.verified_accuracy_scorer(eps=0.1, n_job=2)


def test_enough_robust_rows_pass(tree):
    results = tp.assert_robust(tree, X, y, 0.6, at_least=0.5)
    assert (results.verdict == "verified").sum() == 2


def test_too_few_robust_rows_fail_with_a_sentence(tree):
    sentence = (
        r"2 of 4 rows are verified at radius 0.6 \(50 %\), but at least 80 % must be."
        r" 2 are falsified and 0 undecided: rows 1, 2."
    )
    with pytest.raises(AssertionError, match=sentence):
        tp.assert_robust(tree, X, y, 0.6)


def test_many_failing_rows_are_not_all_named(tree):
    rows = np.full((9, 1), 1.0)
    with pytest.raises(AssertionError, match="rows 0, 1, 2, 3, 4 and 4 more"):
        tp.assert_robust(tree, rows, np.array(["a"] * 9), 0.6)


def test_wrong_arguments_are_refused(tree):
    with pytest.raises(tp.InvalidInput, match="'at_least' must be a share"):
        tp.assert_robust(tree, X, y, 0.6, at_least=80)
    with pytest.raises(tp.InvalidInput, match="must be an LInf without eps"):
        tp.assert_robust(tree, X, y, 0.6, perturbation=tp.LInf(0.1))
    with pytest.raises(tp.InvalidInput, match="'eps' of LInf must be a number >= 0"):
        tp.verified_accuracy_score(tree, X, y, eps=-1.0)
