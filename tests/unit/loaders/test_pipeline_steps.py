"""Steps of pipelines: splits pulled back against the step itself, and what is refused."""

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import treeproof as tp
from tests.unit.loaders.pipeline_cases import FRAME, NUMBERS, POSITIVE, Y3, Y, holes
from treeproof.errors import (
    InvalidInput,
    ModelWarning,
    SelfTestFailed,
    TreeproofError,
    UnsupportedModel,
)
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.pipelines import sides
from treeproof.loaders.pipelines.flow import Flow
from treeproof.loaders.pipelines.functions import FUNCTIONS
from treeproof.loaders.pipelines.sides import Sides
from treeproof.loaders.pipelines.steps import Place, applied, follow
from treeproof.loaders.registry import load_object
from treeproof.loaders.self_test import run_self_test

pytestmark = pytest.mark.filterwarnings("ignore")

TREE = DecisionTreeClassifier(max_depth=3, random_state=0)

STEPS = {
    "standard": StandardScaler(),
    "min-max, clipped": MinMaxScaler(clip=True),
    "bins": KBinsDiscretizer(4, encode="ordinal", strategy="uniform"),
    "bins, one-hot": KBinsDiscretizer(4, encode="onehot-dense", strategy="uniform"),
    "uniform quantiles": QuantileTransformer(n_quantiles=20),
    "normal quantiles": QuantileTransformer(n_quantiles=20, output_distribution="normal"),
    "yeo-johnson": PowerTransformer(),
    "box-cox": PowerTransformer(method="box-cox"),
    **{entry.function.__name__: FunctionTransformer(entry.function) for entry in FUNCTIONS},
}


def membership(tests: Sides, number: int, values: Any) -> Any:
    """The plain meaning of a test, without its class."""
    passed = np.searchsorted(tests.cut[tests.owner == number], values, side="right")
    inside = tests.first[number] ^ (passed % 2 == 1)
    return np.where(np.isnan(values), tests.missing[number], inside)


@pytest.mark.parametrize("name", STEPS)
def test_tests_pulled_back_are_those_of_the_step_float_by_float(name):
    random = np.random.default_rng(0)
    data = POSITIVE[:, :2] / POSITIVE[:, :2].std(axis=0)
    if name == "tanh":  # so flat further out that it is refused
        data = data / 5
    step = STEPS[name].fit(data)
    apply = applied(step)
    flow = Flow(2)
    columns = follow(Place(flow, (name,)), step, flow.raw)
    flow.use_as_numbers(columns)
    flow.settle(())
    given = apply(data)
    for column in (columns[0], columns[-1]):
        place = next(k for k, other in enumerate(columns) if other is column)
        values = given[:, place]
        # Thresholds on values that are taken, between them, and beyond.
        chosen = np.concatenate(
            [random.choice(values, 12), random.choice(values, 12) + 1e-3, values[:1] + 50.0]
        )
        cuts = np.nextafter(chosen, np.inf)
        asked = Sides.below(cuts, random.random(len(cuts)) < 0.5)
        (pulled,) = flow.pull_back([(column, asked)])
        low = 1e-300 if name == "box-cox" else -1e5
        points = [random.uniform(low, 20.0, 300), random.choice(data[:, column.raw], 100)]
        near = np.unique(pulled.cut[np.isfinite(pulled.cut)])
        for _ in range(4):
            near = np.unique(np.concatenate([np.nextafter(near, -np.inf), near]))
        for _ in range(4):
            near = np.unique(np.concatenate([near, np.nextafter(near, np.inf)]))
        points = np.concatenate([*points, near[near >= low], [0.5, 1.0]])
        rows = np.repeat(data[:1], len(points), axis=0)
        rows[:, column.raw] = points
        seen = apply(rows)[:, place]
        for number in range(len(cuts)):
            expected = np.where(np.isnan(seen), asked.missing[number], seen < cuts[number])
            assert np.array_equal(membership(pulled, number, points), expected)


def test_functions_that_are_too_flat_are_refused():
    data = np.linspace(0.0, 30.0, 200)[:, None]
    pipeline = make_pipeline(FunctionTransformer(np.tanh), DecisionTreeClassifier(max_depth=4))
    pipeline.fit(data, (data[:, 0] > 12.0).astype(int))
    with pytest.raises(UnsupportedModel, match=r"\(FunctionTransformer\) is too flat"):
        tp.load(pipeline)


def test_two_changes_at_one_float_undo_each_other():
    none = np.zeros(1, dtype=bool)
    tests = Sides.of(none, none, np.zeros(3, np.int64), np.array([2.0, 1.0, 2.0]))
    assert tests.cut.tolist() == [1.0]
    assert tests.at(0.5).tolist() == [False]
    assert tests.at(1.0).tolist() == [True]


@pytest.mark.parametrize("direction", [-np.inf, np.inf])
def test_splits_one_float_off_fail_the_self_test(direction, monkeypatch):
    """A planted mistake of the smallest size is noticed at load."""
    right = sides._Search._bisect

    def wrong(self, *arguments):
        return [np.nextafter(found, direction) for found in right(self, *arguments)]

    pipeline = make_pipeline(StandardScaler(), TREE).fit(NUMBERS, Y)
    run_self_test(load_object(pipeline, LoadOptions()))
    monkeypatch.setattr(sides._Search, "_bisect", wrong)
    with pytest.raises(SelfTestFailed):
        run_self_test(load_object(pipeline, LoadOptions()))


class OwnScaler(StandardScaler):
    """A class that could do anything."""


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (PCA(2), r"Step 'here' \(PCA\) mixes columns"),
        (PolynomialFeatures(2), r"Step 'here' \(PolynomialFeatures\) mixes columns"),
        (Normalizer(), "mixes columns"),
        (OwnScaler(), r"Step 'here' \(OwnScaler\) cannot be folded"),
        (FunctionTransformer(np.sin), "applies 'sin', which cannot be shown to be monotone"),
        (FunctionTransformer(np.log1p, kw_args={"where": True}), "cannot be shown"),
        (
            FeatureUnion([("a", StandardScaler())], transformer_weights={"a": 2.0}),
            "must not weigh its parts",
        ),
        (
            ColumnTransformer([("inner", make_pipeline(StandardScaler(), PCA(1)), [0, 1])]),
            r"Step 'here' → 'inner' → 'pca' \(PCA\) mixes columns",
        ),
        (OneHotEncoder(), "Let an encoder ignore unknown categories"),
    ],
)
def test_steps_that_cannot_be_folded_are_named(step, sentence):
    from sklearn.pipeline import Pipeline

    pipeline = Pipeline([("here", step), ("tree", TREE)]).fit(POSITIVE.round(1), Y)
    with pytest.raises(UnsupportedModel, match=sentence):
        tp.load(pipeline)


@pytest.mark.parametrize(
    ("model", "target", "sentence"),
    [
        (make_pipeline(StandardScaler(), PCA(2)), Y, "must be a model"),
        (CalibratedClassifierCV(TREE, cv=3), Y, "ensemble=False"),
        (CalibratedClassifierCV(TREE, cv=3, ensemble=False), Y3, "must have two classes"),
        (
            VotingClassifier(
                [("a", RandomForestClassifier(3)), ("b", RandomForestClassifier(5))], voting="soft"
            ),
            Y,
            "Train one forest",
        ),
        (
            VotingClassifier([("a", TREE), ("b", XGBClassifier(n_estimators=2))], voting="soft"),
            Y,
            "must be decision trees or forests",
        ),
        (OneVsRestClassifier(XGBClassifier(n_estimators=2)), Y3, "compared by a sum of trees"),
        (
            OneVsRestClassifier(make_pipeline(StandardScaler(), XGBClassifier(n_estimators=2))),
            Y3,
            "Got XGBClassifier",
        ),
    ],
)
def test_wrappers_that_are_no_sum_say_why(model, target, sentence):
    with pytest.raises(UnsupportedModel, match=sentence):
        tp.load(model.fit(NUMBERS, target))


def test_values_that_the_pipeline_refuses_are_refused():
    pipeline = make_pipeline(
        ColumnTransformer(
            [("text", OrdinalEncoder(), ["colour"]), ("number", MinMaxScaler(), ["age"])]
        ),
        TREE,
    ).fit(FRAME, Y)
    model = tp.load(pipeline)
    row = FRAME.iloc[:1]
    with pytest.raises(InvalidInput, match=r"one of the categories of training .*\('colour'\)"):
        model.predict(row.assign(colour="mauve"))
    missing = row.assign(age=np.nan, income=np.nan, size="?")
    assert model.predict(missing) == pipeline.predict(missing)


def test_the_requirements_of_columns_are_saved(tmp_path):
    pipeline = make_pipeline(OrdinalEncoder(), TREE).fit(FRAME[["colour", "size"]], Y)
    model = tp.load(pipeline)
    model.save(tmp_path / "model.treeproof")
    again = tp.load(tmp_path / "model.treeproof")
    assert (
        again.ensemble.required == model.ensemble.required == {0: (0, 1, 2, 3), 1: (0, 1, 2, 3, 4)}
    )
    assert again.fingerprint == model.fingerprint


def test_frames_of_every_kind():
    columns = ["age", "colour", "grade"]
    frame = FRAME[columns].astype({"grade": int})
    choose = ColumnTransformer(
        [
            ("text", OneHotEncoder(handle_unknown="ignore"), ["colour", "grade"]),
            ("number", StandardScaler(), ["age"]),
        ]
    )
    frames = {
        "pandas": frame,
        "categorical": frame.astype({"colour": "category"}),
        "polars": pl.from_pandas(frame),
    }
    for kind, rows in frames.items():
        pipeline = make_pipeline(choose, TREE).fit(rows, Y)
        model = tp.load(pipeline)
        assert (model.predict(rows) == pipeline.predict(rows)).all(), kind
        assert (model.predict(frame) == pipeline.predict(rows)).all(), kind


def test_none_is_a_category_where_the_encoder_knows_it():
    cells = np.array(FRAME[["colour", "size"]], dtype=object)
    cells[::5, 0] = None
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), TREE).fit(cells, Y)
    model = tp.load(pipeline)
    assert model.ensemble.categories[0][-1] is None
    assert (model.predict(cells) == pipeline.predict(cells)).all()


def test_encoded_classes_get_their_names_back():
    classifier = XGBClassifier(n_estimators=2).fit(NUMBERS, Y3)
    names = ["high", "low", "mid"]
    model = tp.load(make_pipeline(StandardScaler(), TREE).fit(NUMBERS, Y3), classes=names)
    assert set(model.predict(NUMBERS)) <= set(names)
    model = tp.load(classifier, classes=np.array(names))
    assert (model.predict(NUMBERS) == np.array(names)[classifier.predict(NUMBERS)]).all()
    with pytest.raises(InvalidInput, match=r"'classes' must be 3 different names"):
        tp.load(classifier, classes=["a", "b"])


@pytest.mark.filterwarnings("default")
def test_bags_in_several_processes_leave_their_sums_open():
    bag = BaggingClassifier(DecisionTreeClassifier(max_depth=3), 5, random_state=0)
    bag.fit(NUMBERS, Y).set_params(n_jobs=2)
    with pytest.warns(ModelWarning, match="adds these members in groups"):
        load_ensemble(bag)


def test_options_of_the_model_inside_pass_through():
    pipeline = make_pipeline(StandardScaler(), XGBClassifier(n_estimators=4)).fit(NUMBERS, Y)
    model = tp.load(pipeline, decision_threshold=0.8)
    expected = (pipeline.predict_proba(NUMBERS)[:, 1] >= 0.8).astype(int)
    assert (model.predict(NUMBERS) == expected).all()
    with pytest.raises(InvalidInput, match=r"'rounds' has no meaning"):
        tp.load(make_pipeline(StandardScaler(), TREE).fit(NUMBERS, Y), rounds="best")


def test_unfitted_pipelines():
    with pytest.raises(TreeproofError, match="fitted"):
        tp.load(make_pipeline(StandardScaler(), DecisionTreeClassifier()))
    fitted = DecisionTreeClassifier().fit(NUMBERS, Y)
    with pytest.raises(InvalidInput, match=re.escape("Step 'standardscaler' (StandardScaler)")):
        tp.load(make_pipeline(StandardScaler(), fitted))


def test_missing_values_of_a_mixed_frame():
    rows = pd.DataFrame(holes(FRAME))
    pipeline = make_pipeline(
        ColumnTransformer([("text", OneHotEncoder(handle_unknown="ignore"), ["colour", "size"])]),
        TREE,
    ).fit(rows, Y)
    model = tp.load(pipeline)
    assert (model.predict(rows) == pipeline.predict(rows)).all()
