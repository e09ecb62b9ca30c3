"""Small pipelines and wrappers that differ in kind, for the tests of their loader."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import Pipeline as ImbalancedPipeline
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

N = 300


def _frame() -> pd.DataFrame:
    random = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "age": np.round(random.normal(40, 12, N), 1),
            "income": np.round(random.lognormal(10, 1, N), 2),
            "balance": random.normal(0, 3e3, N),
            "visits": random.integers(0, 9, N).astype(np.float64),
            "colour": random.choice(["red", "green", "blue", "teal"], N, p=[0.5, 0.3, 0.17, 0.03]),
            "size": random.choice(["S", "M", "L", "XL", "XXL"], N),
            "grade": random.integers(0, 5, N).astype(np.float64),
        }
    )


FRAME = _frame()
_SCORE = (
    FRAME["age"] / 12
    + np.log(FRAME["income"])
    + (FRAME["colour"] == "red") * 2
    + (FRAME["size"] == "L")
    - FRAME["grade"]
    + np.random.default_rng(1).normal(0, 1, N)
).to_numpy()
Y = (np.median(_SCORE) < _SCORE).astype(int)
Y3 = np.digitize(_SCORE, np.quantile(_SCORE, [0.3, 0.7]))
TARGET = np.round(_SCORE, 3)
NUMERIC = ["age", "income", "balance", "visits"]
TEXT = ["colour", "size"]
NUMBERS = FRAME[NUMERIC].to_numpy()
POSITIVE = np.abs(NUMBERS) + 0.5


def holes(data: Any, share: float = 0.15) -> Any:
    """The same data with missing values."""
    random = np.random.default_rng(7)
    if isinstance(data, pd.DataFrame):
        return data.mask(random.random(data.shape) < share)
    return np.where(random.random(data.shape) < share, np.nan, data)


@dataclass(frozen=True)
class Case:
    """An object to deploy, and what it is trained on."""

    model: Any
    rows: Any
    target: Any
    largest: float = 1e30
    """Numbers beyond are left out of its stress rows."""
    smallest: float = -1e30


def _on_numbers(model: Any, target: Any = Y, **limits: float) -> Case:
    return Case(model, NUMBERS, target, **limits)


def _on_holes(model: Any, target: Any = Y, **limits: float) -> Case:
    return Case(model, holes(NUMBERS), target, **limits)


def _on_frame(model: Any, target: Any = Y, rows: Any = None, **limits: float) -> Case:
    return Case(model, FRAME if rows is None else rows, target, **limits)


def _forest(n: int = 8, **options: Any) -> Any:
    return RandomForestClassifier(n, max_depth=6, random_state=0, **options)


def _xgb(**options: Any) -> Any:
    return XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1, **options)


def _lgbm(**options: Any) -> Any:
    return LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1, n_jobs=1, **options)


def _cat(**options: Any) -> Any:
    return CatBoostClassifier(
        iterations=8, depth=4, verbose=False, allow_writing_files=False, thread_count=1, **options
    )


def _hist(**options: Any) -> Any:
    return HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5, **options)


def _boost(**options: Any) -> Any:
    return GradientBoostingClassifier(n_estimators=8, random_state=0, **options)


def _columns(numeric: Any, text: Any, *rest: Any, **options: Any) -> Any:
    return ColumnTransformer(
        [("numbers", numeric, NUMERIC), ("text", text, TEXT), *rest], **options
    )


def _one_hot(**options: Any) -> Any:
    return OneHotEncoder(**{"handle_unknown": "ignore", **options})


def _impute_scale() -> Any:
    return make_pipeline(SimpleImputer(strategy="median"), StandardScaler())


def _impute_one_hot(**options: Any) -> Any:
    return make_pipeline(SimpleImputer(strategy="most_frequent"), _one_hot(**options))


class _Quiet:
    """Fits without warnings: small data provokes many."""

    def __call__(self, case: Case) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.model.fit(case.rows, case.target)


CASES: dict[str, Callable[[], Case]] = {
    # scalers with every library
    "standard, forest": lambda: _on_numbers(make_pipeline(StandardScaler(), _forest())),
    "standard without mean, xgboost": lambda: _on_numbers(
        make_pipeline(StandardScaler(with_mean=False), _xgb())
    ),
    "min-max, lightgbm": lambda: _on_numbers(make_pipeline(MinMaxScaler((-3, 7)), _lgbm())),
    "min-max clipped, catboost": lambda: _on_numbers(
        make_pipeline(MinMaxScaler(clip=True), _cat())
    ),
    "max-abs, boosting": lambda: _on_numbers(make_pipeline(MaxAbsScaler(), _boost())),
    "robust, histogram": lambda: _on_holes(make_pipeline(RobustScaler(), _hist())),
    "two scalers, three classes, xgboost": lambda: _on_holes(
        make_pipeline(RobustScaler(), StandardScaler(), _xgb()), Y3
    ),
    "scaler, extra trees, float32 rows inside": lambda: _on_numbers(
        make_pipeline(MinMaxScaler(), ExtraTreesClassifier(8, max_depth=6, random_state=0)), Y3
    ),
    "reversed by a negative range, forest": lambda: _on_numbers(
        make_pipeline(FunctionTransformer(np.negative), StandardScaler(), _forest())
    ),
    # imputers
    "imputer, boosting": lambda: _on_holes(make_pipeline(SimpleImputer(), _boost())),
    "imputer with indicator, forest": lambda: _on_holes(
        make_pipeline(SimpleImputer(add_indicator=True, strategy="median"), _forest())
    ),
    "imputer with indicator, scaler, xgboost": lambda: _on_holes(
        make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(), _xgb())
    ),
    "imputer of a number, lightgbm": lambda: _on_numbers(
        make_pipeline(
            SimpleImputer(missing_values=3.0, strategy="constant", fill_value=-50.0), _lgbm()
        )
    ),
    "imputer of zero with indicator, forest": lambda: _on_numbers(
        make_pipeline(SimpleImputer(missing_values=0.0, add_indicator=True), _forest())
    ),
    "imputer of a number, missing values pass, histogram": lambda: _on_numbers(
        make_pipeline(SimpleImputer(missing_values=2.0), _hist())
    ),
    "union of imputer and indicator, catboost": lambda: _on_holes(
        make_pipeline(
            make_union(SimpleImputer(), MissingIndicator(features="all", error_on_new=False)),
            _cat(),
        )
    ),
    "indicator alone, tree": lambda: _on_holes(
        make_pipeline(
            MissingIndicator(features="all"), DecisionTreeClassifier(max_depth=3, random_state=0)
        )
    ),
    "an empty column is dropped, forest": lambda: Case(
        make_pipeline(SimpleImputer(), _forest()),
        np.column_stack([NUMBERS[:, 0], np.full(N, np.nan), NUMBERS[:, 1:]]),
        Y,
    ),
    # bins
    "bins one-hot, sparse, forest": lambda: _on_numbers(
        make_pipeline(KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf"), _forest(4))
    ),
    "bins one-hot, sparse, xgboost takes zero for missing": lambda: _on_numbers(
        make_pipeline(KBinsDiscretizer(5, quantile_method="averaged_inverted_cdf"), _xgb())
    ),
    "bins one-hot, dense, lightgbm": lambda: _on_numbers(
        make_pipeline(
            KBinsDiscretizer(5, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
            _lgbm(),
        )
    ),
    "bins by number, boosting": lambda: _on_numbers(
        make_pipeline(KBinsDiscretizer(6, encode="ordinal", strategy="uniform"), _boost())
    ),
    "binarizer, adaboost": lambda: _on_numbers(
        make_pipeline(
            StandardScaler(),
            Binarizer(threshold=0.1),
            AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=6, random_state=0),
        )
    ),
    # functions
    "uniform quantiles, lightgbm": lambda: _on_holes(
        make_pipeline(QuantileTransformer(n_quantiles=60), _lgbm())
    ),
    "uniform quantiles of repeated numbers, xgboost": lambda: Case(
        make_pipeline(QuantileTransformer(n_quantiles=100), _xgb()), np.round(NUMBERS, -3), Y
    ),
    "normal quantiles, histogram": lambda: _on_holes(
        make_pipeline(QuantileTransformer(n_quantiles=80, output_distribution="normal"), _hist())
    ),
    "yeo-johnson, histogram": lambda: Case(
        make_pipeline(StandardScaler(), PowerTransformer(), _hist()), holes(NUMBERS), Y, 1e5, -1e5
    ),
    "yeo-johnson without scale, catboost": lambda: Case(
        make_pipeline(StandardScaler(), PowerTransformer(standardize=False), _cat()),
        NUMBERS,
        Y,
        1e5,
        -1e5,
    ),
    "box-cox, forest": lambda: Case(
        make_pipeline(PowerTransformer(method="box-cox"), _forest()), POSITIVE, Y, 1e8, 1e-5
    ),
    "log1p, xgboost": lambda: Case(
        make_pipeline(FunctionTransformer(np.log1p), _xgb()), POSITIVE, Y, 1e8, -0.9
    ),
    "log with negative numbers, histogram": lambda: _on_numbers(
        make_pipeline(FunctionTransformer(np.log), _hist())
    ),
    "square root and absolute value, lightgbm": lambda: _on_numbers(
        make_pipeline(
            make_union(FunctionTransformer(np.abs), FunctionTransformer(np.sqrt)), _lgbm()
        )
    ),
    "rounding, arcsinh, forest": lambda: _on_numbers(
        make_pipeline(FunctionTransformer(np.rint), FunctionTransformer(np.arcsinh), _forest())
    ),
    # encoders
    "one-hot and scaled, forest": lambda: _on_frame(
        make_pipeline(_columns(StandardScaler(), _one_hot()), _forest())
    ),
    "one-hot and scaled, sparse, xgboost": lambda: _on_frame(
        make_pipeline(_columns(StandardScaler(), _one_hot(), sparse_threshold=1.0), _xgb())
    ),
    "one-hot and scaled, dense, xgboost": lambda: _on_frame(
        make_pipeline(_columns(StandardScaler(), _one_hot(sparse_output=False)), _xgb())
    ),
    "one-hot, known categories only, lightgbm": lambda: _on_frame(
        make_pipeline(_columns("passthrough", OneHotEncoder()), _lgbm())
    ),
    "one-hot, dropped and infrequent, catboost": lambda: _on_frame(
        make_pipeline(
            _columns(
                MinMaxScaler(),
                OneHotEncoder(drop="first", min_frequency=20, handle_unknown="infrequent_if_exist"),
            ),
            _cat(),
        )
    ),
    "one-hot with missing as a category, histogram": lambda: _on_frame(
        make_pipeline(
            _columns("passthrough", _one_hot(sparse_output=False), sparse_threshold=0.0), _hist()
        ),
        rows=holes(FRAME),
    ),
    "imputed and encoded by branches, boosting": lambda: _on_frame(
        make_pipeline(_columns(_impute_scale(), _impute_one_hot()), _boost()), rows=holes(FRAME)
    ),
    "imputed by a word, three classes, forest": lambda: _on_frame(
        make_pipeline(
            _columns(
                _impute_scale(),
                make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), _one_hot()),
            ),
            _forest(),
        ),
        Y3,
        holes(FRAME),
    ),
    "ordinal with unknown, lightgbm": lambda: _on_frame(
        make_pipeline(
            _columns(
                "passthrough",
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            ),
            _lgbm(),
        )
    ),
    "ordinal with unknown as missing, histogram categories": lambda: _on_frame(
        make_pipeline(
            _columns(
                "passthrough",
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan),
            ),
            _hist(categorical_features=[4, 5]),
        ),
        rows=holes(FRAME),
    ),
    "ordinal in a given order, forest": lambda: _on_frame(
        make_pipeline(
            _columns(
                SimpleImputer(),
                OrdinalEncoder(
                    categories=[["red", "green", "blue", "teal"], ["S", "M", "L", "XL", "XXL"]]
                ),
            ),
            _forest(),
        )
    ),
    "target encoder, boosting": lambda: _on_frame(
        make_pipeline(_columns(StandardScaler(), TargetEncoder(random_state=0)), _boost())
    ),
    "target encoder, three classes, xgboost": lambda: _on_frame(
        make_pipeline(_columns(StandardScaler(), TargetEncoder(random_state=0)), _xgb()), Y3
    ),
    "number categories, forest": lambda: _on_frame(
        make_pipeline(
            ColumnTransformer([("code", _one_hot(), ["grade", "visits"])], remainder="drop"),
            _forest(),
        )
    ),
    "number categories that are numbers elsewhere, lightgbm": lambda: _on_frame(
        make_pipeline(
            ColumnTransformer(
                [("code", _one_hot(), ["grade"]), ("number", StandardScaler(), ["grade", "age"])]
            ),
            _lgbm(),
        )
    ),
    "categories that are fractions, forest": lambda: Case(
        make_pipeline(_one_hot(), _forest()), np.round(FRAME[["grade"]].to_numpy() - 2.5, 1), Y
    ),
    "remainder passes, column order by name, xgboost": lambda: _on_frame(
        make_pipeline(
            ColumnTransformer(
                [("text", _one_hot(sparse_output=False), ["size", "colour"])],
                remainder="passthrough",
            ),
            _xgb(),
        )
    ),
    "pandas output, lightgbm": lambda: _on_frame(
        Pipeline(
            [
                ("prepare", _columns(_impute_scale(), _one_hot(sparse_output=False))),
                ("model", _lgbm()),
            ]
        ).set_output(transform="pandas"),
        rows=holes(FRAME),
    ),
    "text left to histogram boosting": lambda: _on_frame(
        make_pipeline(
            ColumnTransformer(
                [("numbers", StandardScaler(), NUMERIC), ("text", "passthrough", TEXT)]
            ),
            _hist(categorical_features=[4, 5]),
        )
    ),
    # selectors, nesting
    "selected after encoding, forest": lambda: _on_frame(
        make_pipeline(
            _columns(StandardScaler(), _one_hot()), SelectKBest(k=6), VarianceThreshold(), _forest()
        )
    ),
    "selected by a model, xgboost": lambda: _on_numbers(
        make_pipeline(SelectFromModel(_forest(), threshold="median"), RobustScaler(), _xgb())
    ),
    "nested pipelines, unions, nothing": lambda: _on_numbers(
        Pipeline(
            [
                ("nothing", "passthrough"),
                (
                    "union",
                    FeatureUnion(
                        [
                            ("scaled", make_pipeline(StandardScaler(), MinMaxScaler())),
                            (
                                "binned",
                                KBinsDiscretizer(
                                    3, encode="ordinal", quantile_method="averaged_inverted_cdf"
                                ),
                            ),
                            ("away", "drop"),
                            ("same", "passthrough"),
                        ]
                    ),
                ),
                ("model", make_pipeline(MaxAbsScaler(), _boost())),
            ]
        )
    ),
    "imbalanced-learn, forest": lambda: _on_numbers(
        ImbalancedPipeline(
            [("scale", StandardScaler()), ("sample", RandomOverSampler()), ("model", _forest())]
        )
    ),
    "isolation forest": lambda: _on_numbers(
        make_pipeline(StandardScaler(), IsolationForest(n_estimators=8, random_state=0))
    ),
    "regression, scaled, xgboost": lambda: _on_holes(
        make_pipeline(StandardScaler(), XGBRegressor(n_estimators=8, max_depth=4)), TARGET
    ),
    "regression, encoded, lightgbm": lambda: _on_frame(
        make_pipeline(
            _columns(StandardScaler(), _one_hot()),
            LGBMRegressor(n_estimators=8, verbose=-1, n_jobs=1),
        ),
        TARGET,
    ),
    # wrappers
    "grid search of a pipeline": lambda: _on_frame(
        GridSearchCV(
            make_pipeline(_columns(_impute_scale(), _impute_one_hot()), _forest()),
            {"randomforestclassifier__max_depth": [2, 4]},
            cv=2,
        ),
        rows=holes(FRAME),
    ),
    "random search of xgboost in a pipeline": lambda: _on_numbers(
        make_pipeline(
            StandardScaler(),
            RandomizedSearchCV(_xgb(), {"max_depth": [2, 3]}, n_iter=2, cv=2, random_state=0),
        )
    ),
    "fixed threshold around a pipeline, xgboost": lambda: _on_frame(
        FixedThresholdClassifier(
            make_pipeline(_columns(StandardScaler(), _one_hot()), _xgb()), threshold=0.7
        )
    ),
    "tuned threshold inside a pipeline, boosting": lambda: _on_numbers(
        make_pipeline(StandardScaler(), TunedThresholdClassifierCV(_boost(), cv=3, random_state=0))
    ),
    "calibrated by a sigmoid, boosting": lambda: _on_numbers(
        CalibratedClassifierCV(make_pipeline(StandardScaler(), _boost()), ensemble=False, cv=3)
    ),
    "calibrated by steps, forest": lambda: _on_numbers(
        CalibratedClassifierCV(_forest(20), method="isotonic", ensemble=False, cv=3)
    ),
    "calibrated in a pipeline, xgboost": lambda: _on_frame(
        make_pipeline(
            _columns(StandardScaler(), _one_hot()),
            CalibratedClassifierCV(_xgb(), ensemble=False, cv=3),
        )
    ),
    "calibrated afterwards, fixed threshold, lightgbm": lambda: _on_numbers(
        FixedThresholdClassifier(
            CalibratedClassifierCV(FrozenEstimator(_lgbm().fit(NUMBERS, Y)), method="sigmoid"),
            threshold=0.35,
        )
    ),
    "soft votes of trees in pipelines": lambda: _on_frame(
        VotingClassifier(
            [
                (
                    str(seed),
                    make_pipeline(
                        _columns(StandardScaler(), _one_hot()),
                        DecisionTreeClassifier(max_depth=3 + seed, random_state=seed),
                    ),
                )
                for seed in range(3)
            ],
            voting="soft",
        ),
        Y3,
    ),
    "weighted soft votes of trees, text labels": lambda: _on_numbers(
        VotingClassifier(
            [(str(k), DecisionTreeClassifier(max_depth=k, random_state=k)) for k in (2, 3, 4)],
            voting="soft",
            weights=[0.3, 0.5, 1.7],
        ),
        np.array(["no", "yes"])[Y],
    ),
    "soft votes of forests with exact sums": lambda: _on_numbers(
        VotingClassifier(
            [
                (str(k), RandomForestClassifier(2**k, random_state=k, min_samples_leaf=1))
                for k in (2, 3)
            ],
            voting="soft",
        )
    ),
    "bagged trees on some columns, three classes": lambda: _on_numbers(
        make_pipeline(
            StandardScaler(),
            BaggingClassifier(
                DecisionTreeClassifier(max_depth=4), 6, max_features=0.5, random_state=0
            ),
        ),
        Y3,
    ),
    "bagged trees, threshold": lambda: _on_numbers(
        FixedThresholdClassifier(
            BaggingClassifier(DecisionTreeClassifier(max_depth=3), 5, random_state=0),
            threshold=0.41,
        )
    ),
    "bagged regression trees": lambda: _on_numbers(
        BaggingRegressor(DecisionTreeRegressor(max_depth=4), 6, random_state=0), TARGET
    ),
    "mean of regression trees": lambda: _on_numbers(
        VotingRegressor(
            [(str(k), DecisionTreeRegressor(max_depth=k, random_state=0)) for k in (2, 4)],
            weights=[1.0, 2.5],
        ),
        TARGET,
    ),
    "one against the rest, boosting in pipelines": lambda: _on_numbers(
        OneVsRestClassifier(make_pipeline(StandardScaler(), _boost())), Y3
    ),
    "one against the rest, forest, ties": lambda: _on_numbers(
        OneVsRestClassifier(RandomForestClassifier(4, max_depth=1, random_state=0)), Y3
    ),
    "one against the rest, two classes, histogram": lambda: _on_numbers(
        OneVsRestClassifier(_hist()), Y
    ),
    "several targets, boosting": lambda: _on_numbers(
        MultiOutputRegressor(GradientBoostingRegressor(n_estimators=5, random_state=0)),
        np.column_stack([TARGET, TARGET**2]),
    ),
    "transformed target, histogram": lambda: _on_numbers(
        TransformedTargetRegressor(
            make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=6)),
            transformer=StandardScaler(),
        ),
        TARGET,
    ),
    "regression forest in a pipeline": lambda: _on_frame(
        make_pipeline(
            make_column_transformer((_one_hot(), TEXT), (_impute_scale(), NUMERIC)),
            RandomForestRegressor(6, random_state=0),
        ),
        TARGET,
    ),
}


@cache
def fitted(name: str) -> tuple[Any, Case]:
    """A fitted model of a case, and the case."""
    case = CASES[name]()
    return _Quiet()(case), case
