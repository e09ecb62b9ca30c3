"""ONNX models: exports of every library, and built by hand where no exporter goes."""

import warnings
from functools import cache

import catboost
import lightgbm
import numpy as np
import onnxmltools
import pandas
import skl2onnx
import xgboost
from onnx import TensorProto, helper
from onnxmltools.convert.common.data_types import FloatTensorType as ToolsFloatTensorType
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from tests.unit.loaders.sklearn_cases import TARGET, Y3, X, Y, with_missing

ROWS = X.astype(np.float32)
COUNTS = np.abs(TARGET) + 1.0
FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def quietly(build):
    """What a converter builds, without what it says about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build()


def sklearn_export(estimator, target=Y, *, rows=ROWS, double=False, zipmap=True, types=None):
    estimator.fit(rows, target)
    options = None if zipmap else {"zipmap": False}
    example = None if types else rows[:1].astype(np.float64 if double else np.float32)
    return skl2onnx.to_onnx(estimator, example, initial_types=types, options=options)


def tools_export(convert, model, target=Y, *, rows=ROWS, **fitted):
    model.fit(rows, target, **fitted)
    return convert(model, initial_types=[("input", ToolsFloatTensorType([None, rows.shape[1]]))])


def catboost_export(model, target=Y, *, rows=ROWS):
    import tempfile
    from pathlib import Path

    import onnx

    model.set_params(iterations=12, depth=4, verbose=0, allow_writing_files=False, thread_count=1)
    model.fit(rows, target)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model.save_model(str(path), format="onnx")
        return onnx.load(str(path))


FOREST = {"n_estimators": 10, "max_depth": 5, "random_state": 0}
XGB = {"n_estimators": 12, "max_depth": 4, "n_jobs": 1}
LIGHT = {"n_estimators": 12, "num_leaves": 9, "verbose": -1, "min_child_samples": 5, "n_jobs": 1}


def xgb(model, target=Y, **given):
    return tools_export(onnxmltools.convert_xgboost, model, target, **given)


def light(model, target=Y, **given):
    return tools_export(onnxmltools.convert_lightgbm, model, target, **given)


@cache
def frame():
    random = np.random.default_rng(3)
    n = len(X)
    return pandas.DataFrame(
        {
            "age": ROWS[:, 0],
            "income": ROWS[:, 1],
            "town": random.choice(["Delft", "Gouda", "Leiden"], n),
            "kind": random.choice(["p", "q"], n),
            "rooms": random.integers(0, 5, n),
        }
    )


FRAME_TYPES = [
    ("age", FloatTensorType([None, 1])),
    ("income", FloatTensorType([None, 1])),
    ("town", StringTensorType([None, 1])),
    ("kind", StringTensorType([None, 1])),
    ("rooms", Int64TensorType([None, 1])),
]


def frame_target():
    data = frame()
    return ((data["town"] == "Gouda") ^ (data["rooms"] > 2) ^ (data["age"] > 0)).astype(int)


def mixed_columns(*transformers, remainder="drop"):
    columns = ColumnTransformer(list(transformers), remainder=remainder)
    pipeline = make_pipeline(columns, RandomForestClassifier(**FOREST))
    return sklearn_export(pipeline, frame_target(), rows=frame(), types=FRAME_TYPES)


def scaled(*steps, model=None, **given):
    model = RandomForestClassifier(**FOREST) if model is None else model
    return sklearn_export(make_pipeline(*steps, model), **given)


EXPORTS = {
    "tree": lambda: sklearn_export(DecisionTreeClassifier(max_depth=6, random_state=0)),
    "tree, three classes": lambda: sklearn_export(
        DecisionTreeClassifier(max_depth=6, random_state=0), Y3
    ),
    "tree, score": lambda: sklearn_export(
        DecisionTreeRegressor(max_depth=6, random_state=0), TARGET
    ),
    "forest": lambda: sklearn_export(RandomForestClassifier(**FOREST)),
    "forest, array of probabilities": lambda: sklearn_export(
        RandomForestClassifier(**FOREST), zipmap=False
    ),
    "forest, doubles": lambda: sklearn_export(
        RandomForestClassifier(**FOREST), double=True, zipmap=False
    ),
    "forest, doubles, three classes": lambda: sklearn_export(
        RandomForestClassifier(**FOREST), Y3, double=True, zipmap=False
    ),
    "forest, named classes": lambda: sklearn_export(
        RandomForestClassifier(**FOREST), np.array(["no", "yes"])[Y.astype(int)]
    ),
    "forest, three classes": lambda: sklearn_export(RandomForestClassifier(**FOREST), Y3),
    "forest, many trees": lambda: sklearn_export(
        RandomForestClassifier(n_estimators=120, max_depth=4, random_state=0), Y3
    ),
    "forest, score": lambda: sklearn_export(RandomForestRegressor(**FOREST), TARGET),
    "forest, two scores": lambda: sklearn_export(
        RandomForestRegressor(**FOREST), np.stack([TARGET, COUNTS], axis=1)
    ),
    "extra trees": lambda: sklearn_export(ExtraTreesClassifier(**FOREST)),
    "extra trees, score": lambda: sklearn_export(ExtraTreesRegressor(**FOREST), TARGET),
    "gradient boosting": lambda: sklearn_export(GradientBoostingClassifier(n_estimators=12)),
    "gradient boosting, three classes": lambda: sklearn_export(
        GradientBoostingClassifier(n_estimators=12), Y3
    ),
    "gradient boosting, score": lambda: sklearn_export(
        GradientBoostingRegressor(n_estimators=12), TARGET
    ),
    "xgboost": lambda: xgb(xgboost.XGBClassifier(**XGB)),
    "xgboost, missing": lambda: xgb(xgboost.XGBClassifier(**XGB), rows=with_missing()),
    "xgboost, three classes": lambda: xgb(xgboost.XGBClassifier(**XGB), Y3.astype(int)),
    "xgboost, score": lambda: xgb(xgboost.XGBRegressor(**XGB), TARGET),
    "xgboost, poisson": lambda: xgb(xgboost.XGBRegressor(objective="count:poisson", **XGB), COUNTS),
    "xgboost, forest": lambda: xgb(xgboost.XGBRFClassifier(**XGB)),
    "lightgbm": lambda: light(lightgbm.LGBMClassifier(**LIGHT)),
    "lightgbm, missing": lambda: light(lightgbm.LGBMClassifier(**LIGHT), rows=with_missing()),
    "lightgbm, three classes": lambda: light(lightgbm.LGBMClassifier(**LIGHT), Y3.astype(int)),
    "lightgbm, score": lambda: light(lightgbm.LGBMRegressor(**LIGHT), TARGET),
    "lightgbm, poisson": lambda: light(
        lightgbm.LGBMRegressor(objective="poisson", **LIGHT), COUNTS
    ),
    "lightgbm, categories": lambda: light(
        lightgbm.LGBMClassifier(max_cat_to_onehot=1, cat_smooth=0.1, min_data_per_group=1, **LIGHT),
        rows=np.column_stack([np.random.default_rng(0).integers(0, 9, len(X)), ROWS[:, 1:]]),
        categorical_feature=[0],
    ),
    "catboost": lambda: catboost_export(catboost.CatBoostClassifier()),
    "catboost, classes called -1 and 1": lambda: catboost_export(
        catboost.CatBoostClassifier(), 2 * Y.astype(int) - 1
    ),
    "catboost, named classes": lambda: catboost_export(
        catboost.CatBoostClassifier(), np.array(["no", "yes"])[Y.astype(int)]
    ),
    "catboost, three classes": lambda: catboost_export(catboost.CatBoostClassifier(), Y3),
    "catboost, score": lambda: catboost_export(catboost.CatBoostRegressor(), TARGET),
    "pipeline, imputed and standardised": lambda: scaled(SimpleImputer(), StandardScaler()),
    "pipeline, to a range": lambda: scaled(MinMaxScaler((-3, 7))),
    "pipeline, to a range in double": lambda: scaled(MinMaxScaler(), double=True, zipmap=False),
    "pipeline, standardised in double": lambda: scaled(StandardScaler(), double=True, zipmap=False),
    "pipeline, robust": lambda: scaled(
        RobustScaler(), model=GradientBoostingRegressor(n_estimators=9), target=TARGET
    ),
    "pipeline, binarised": lambda: scaled(MaxAbsScaler(), Binarizer(threshold=0.1)),
    "columns, one-hot": lambda: mixed_columns(
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
        ("names", OneHotEncoder(handle_unknown="ignore"), ["town", "kind"]),
        ("codes", OneHotEncoder(handle_unknown="ignore"), ["rooms"]),
    ),
    "columns, ordinal": lambda: mixed_columns(
        ("numbers", "passthrough", ["income", "age"]),
        (
            "names",
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            ["town", "kind"],
        ),
        remainder="passthrough",
    ),
}


def tensor(values, kind=FLOAT):
    return helper.make_tensor("", kind, [len(values)], values)


def graph(nodes, *, inputs=(("X", FLOAT, 4),), outputs=("Y",), constants=(), opset=3):
    """A model of operators; types of outputs are left to onnxruntime."""
    from onnx import ValueInfoProto

    made = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, kind, [None, n]) for name, kind, n in inputs],
        [ValueInfoProto(name=name) for name in outputs],
        initializer=list(constants),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


def random_trees(random, *, n_trees=9, depth=3, modes=("BRANCH_LEQ",), n_columns=4, missing=True):
    """Attributes of nodes of random full trees; thresholds repeat, so that ties are common."""
    pool = np.round(random.normal(size=12), 1).astype(np.float32)
    nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes")}
    nodes |= {"truenodeids": [], "falsenodeids": [], "missing_value_tracks_true": []}
    leaves = []
    n_inner = 2**depth - 1
    for tree in range(n_trees):
        for node in range(2 * n_inner + 1):
            is_leaf = node >= n_inner
            mode = "LEAF" if is_leaf else str(random.choice(modes))
            value = (
                float(random.integers(0, 4)) if "EQ" in mode[-3:] and mode != "BRANCH_LEQ" else 0
            )
            if mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"):
                value = float(random.choice(pool))
            # Columns that are compared for equality hold categories, and are not compared else.
            column = random.integers(0, 2) if mode in ("BRANCH_EQ", "BRANCH_NEQ") else None
            if column is None:
                first = 2 if {"BRANCH_EQ", "BRANCH_NEQ"} & set(modes) else 0
                column = random.integers(first, n_columns)
            for name, entry in (
                ("treeids", tree),
                ("nodeids", node),
                ("featureids", 0 if is_leaf else int(column)),
                ("values", value),
                ("modes", mode),
                ("truenodeids", 0 if is_leaf else 2 * node + 1),
                ("falsenodeids", 0 if is_leaf else 2 * node + 2),
                ("missing_value_tracks_true", int(missing and random.random() < 0.5)),
            ):
                nodes[name].append(entry)
            if is_leaf:
                leaves.append((tree, node))
    return {f"nodes_{name}": values for name, values in nodes.items()}, leaves


def classifier(
    seed, ids, *, transform="NONE", sign=0.0, base=None, labels=(0, 1), double=False, **t
):
    """A TreeEnsembleClassifier of random trees; ids says which classes a leaf has weights for."""
    random = np.random.default_rng(seed)
    attributes, leaves = random_trees(random, **t)
    entries = [(tree, node, c) for tree, node in leaves for c in ids(tree, random)]
    weights = np.round(random.normal(size=len(entries)), 2)
    weights = (sign * np.abs(weights) if sign else weights).astype(np.float32).tolist()
    attributes |= {
        "class_treeids": [tree for tree, _, _ in entries],
        "class_nodeids": [node for _, node, _ in entries],
        "class_ids": [c for _, _, c in entries],
        "post_transform": transform,
    }
    attributes["classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"] = (
        list(labels)
    )
    if double:
        attributes["class_weights_as_tensor"] = tensor(
            (random.normal(size=len(entries)) * 0.3).tolist(), DOUBLE
        )
        values = attributes.pop("nodes_values")
        attributes["nodes_values_as_tensor"] = tensor([v * 1.1 for v in values], DOUBLE)
    else:
        attributes["class_weights"] = weights
    if base is not None:
        attributes["base_values"] = base
    node = helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["label", "Y"], domain="ai.onnx.ml", **attributes
    )
    inputs = (("X", DOUBLE if double else FLOAT, 4),)
    return graph([node], inputs=inputs, outputs=("label", "Y"))


def regressor(seed, n_targets=1, *, double=False, transform="NONE", after=(), **given):
    """A TreeEnsembleRegressor of random trees."""
    random = np.random.default_rng(seed)
    base, function = given.pop("base", None), given.pop("function", "SUM")
    attributes, leaves = random_trees(random, **given)
    entries = [(tree, node, t) for tree, node in leaves for t in range(n_targets)]
    weights = np.round(random.normal(size=len(entries)), 2).astype(np.float32).tolist()
    if transform == "PROBIT":
        weights = [abs(weight) / 50 for weight in weights]
    attributes |= {
        "target_treeids": [tree for tree, _, _ in entries],
        "target_nodeids": [node for _, node, _ in entries],
        "target_ids": [t for _, _, t in entries],
        "n_targets": n_targets,
        "aggregate_function": function,
        "post_transform": transform,
    }
    if double:
        attributes["target_weights_as_tensor"] = tensor(random.normal(size=len(entries)), DOUBLE)
    else:
        attributes["target_weights"] = weights
    if base is not None:
        attributes["base_values"] = base
    node = helper.make_node(
        "TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", **attributes
    )
    inputs = (("X", DOUBLE if double else FLOAT, 4),)
    return graph([node, *after], inputs=inputs, outputs=("label",) if after else ("Y",))


def ensemble_5(seed, *, double=False, members=(), n_targets=1, transform=0, function=1):
    """A TreeEnsemble, of version 5, of random trees; columns 0 and 1 hold categories."""
    random = np.random.default_rng(seed)
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")
    attributes, leaves = random_trees(random, modes=modes)
    n_inner, n_leaves = 7, 8
    inner = [k for k, mode in enumerate(attributes["nodes_modes"]) if mode != "LEAF"]
    kinds = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3}
    made = {"modes": [], "splits": [], "featureids": [], "missing_value_tracks_true": []}
    made |= {"truenodeids": [], "falsenodeids": [], "trueleafs": [], "falseleafs": []}
    sets = []
    for k in inner:
        tree, node = attributes["nodes_treeids"][k], attributes["nodes_nodeids"][k]
        is_set = bool(members) and random.random() < 0.5
        chosen = members[random.integers(len(members))] if is_set else ()
        if is_set:
            sets += [float("nan")] * bool(sets) + [float(m) for m in chosen]
        made["modes"].append(6 if is_set else kinds[attributes["nodes_modes"][k]])
        made["splits"].append(0.0 if is_set else attributes["nodes_values"][k])
        made["featureids"].append(int(random.integers(0, 2) if is_set else random.integers(2, 4)))
        made["missing_value_tracks_true"].append(attributes["nodes_missing_value_tracks_true"][k])
        for side, child in (("true", 2 * node + 1), ("false", 2 * node + 2)):
            is_leaf = child >= n_inner
            first = tree * n_leaves - n_inner if is_leaf else tree * n_inner
            made[f"{side}nodeids"].append(first + child)
            made[f"{side}leafs"].append(int(is_leaf))
    kind = DOUBLE if double else FLOAT
    weights = np.round(random.normal(size=len(leaves)), 2)
    node = helper.make_node(
        "TreeEnsemble",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        n_targets=n_targets,
        aggregate_function=function,
        post_transform=transform,
        tree_roots=[tree * n_inner for tree in range(len(leaves) // n_leaves)],
        leaf_targetids=random.integers(0, n_targets, len(leaves)).tolist(),
        leaf_weights=tensor(weights.tolist(), kind),
        nodes_splits=tensor(made.pop("splits"), kind),
        nodes_modes=tensor(made.pop("modes"), TensorProto.UINT8),
        membership_values=tensor(sets, kind) if sets else None,
        **{f"nodes_{name}": values for name, values in made.items()},
    )
    return graph([node], inputs=(("X", kind, 4),), opset=5)


ALL = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")


def one(number):
    return lambda tree, random: [number]


def argmax_after():
    nodes = [
        helper.make_node("ArgMax", ["Y"], ["index"], axis=1, keepdims=0),
        helper.make_node("Identity", ["index"], ["label"]),
    ]
    return regressor(21, 3, after=nodes)


def lookup():
    """A string column through LabelEncoder and a scaler, a float column cut to categories."""
    random = np.random.default_rng(5)
    attributes, leaves = random_trees(random, n_columns=6)
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["S"],
            ["s"],
            keys_strings=["a", "b", "c"],
            values_floats=[0.3, -0.4, 1.1],
            default_float=-2.0,
            **ml,
        ),
        helper.make_node("Scaler", ["s"], ["s2"], offset=[0.1], scale=[-1.7], **ml),
        helper.make_node("Cast", ["F"], ["codes"], to=INT64),
        helper.make_node("OneHotEncoder", ["codes"], ["hot"], cats_int64s=[0, 2, 7], zeros=1, **ml),
        helper.make_node("Flatten", ["hot"], ["flat"]),
        helper.make_node("Scaler", ["X"], ["x"], offset=[0.3, -1.0], scale=[-2.5, 0.01], **ml),
        helper.make_node("Concat", ["s2", "flat", "x"], ["all"], axis=1),
        helper.make_node(
            "TreeEnsembleClassifier",
            ["all"],
            ["label", "Y"],
            class_treeids=[tree for tree, _ in leaves],
            class_nodeids=[node for _, node in leaves],
            class_ids=[0] * len(leaves),
            class_weights=random.normal(size=len(leaves)).round(2).tolist(),
            classlabels_int64s=[0, 1],
            post_transform="LOGISTIC",
            **attributes,
            **ml,
        ),
    ]
    inputs = (("S", TensorProto.STRING, 1), ("F", FLOAT, 1), ("X", FLOAT, 2))
    return graph(nodes, inputs=inputs, outputs=("label", "Y"))


BY_HAND = {
    "all comparisons": lambda: regressor(0, modes=ALL),
    "equalities": lambda: regressor(1, modes=("BRANCH_EQ", "BRANCH_NEQ", "BRANCH_LEQ")),
    "average": lambda: regressor(2, function="AVERAGE"),
    "average of three targets": lambda: regressor(3, 3, function="AVERAGE", modes=ALL),
    "base value": lambda: regressor(4, base=[0.37]),
    "base values, softmax": lambda: regressor(5, 3, base=[0.1, -0.7, 0.2], transform="SOFTMAX"),
    "doubles": lambda: regressor(6, double=True, base=[0.1]),
    "probit": lambda: regressor(7, transform="PROBIT"),
    "an ignored transform": lambda: regressor(8, transform="LOGISTIC"),
    "softmax without zeros": lambda: regressor(9, 3, transform="SOFTMAX_ZERO"),
    "largest of three targets": argmax_after,
    "first class has weights": lambda: classifier(10, one(0), transform="LOGISTIC"),
    "first class, no negative weights": lambda: classifier(11, one(0), sign=0.08),
    "first class, no negative weights, logistic": lambda: classifier(
        12, one(0), sign=0.08, transform="LOGISTIC"
    ),
    "first class, base value": lambda: classifier(13, one(0), base=[0.4], labels=("u", "v")),
    "second class has weights": lambda: classifier(14, one(1), labels=(7, 9)),
    "both classes have weights": lambda: classifier(15, lambda t, r: [0, 1], labels=(7, 9)),
    "both classes, logistic, names": lambda: classifier(
        16, lambda t, r: [0, 1], transform="LOGISTIC", labels=("u", "v")
    ),
    "five classes take turns": lambda: classifier(
        17, lambda t, r: [t % 5], labels=tuple(range(5)), n_trees=20, transform="SOFTMAX"
    ),
    "sparse positive leaves": lambda: classifier(
        18,
        lambda t, r: [0, 1, 2] if t == 0 else [int(r.integers(3))],
        labels=(0, 1, 2),
        sign=0.08,
    ),
    "doubles, three classes": lambda: classifier(
        19, lambda t, r: [0, 1, 2], labels=(0, 1, 2), double=True, transform="LOGISTIC"
    ),
    "doubles, two classes": lambda: classifier(20, one(0), double=True, transform="LOGISTIC"),
    "version 5": lambda: ensemble_5(22),
    "version 5, doubles": lambda: ensemble_5(23, double=True),
    "version 5, small sets": lambda: ensemble_5(24, members=((0, 2, 5), (3,), (1, 2, 30))),
    "version 5, large sets": lambda: ensemble_5(
        25, members=((0, 40, 7), (31,), tuple(range(0, 66, 2)))
    ),
    "version 5, three targets": lambda: ensemble_5(26, n_targets=3, transform=1),
    "version 5, average": lambda: ensemble_5(27, n_targets=2, function=0),
    "looked up and scaled": lookup,
}

CASES = EXPORTS | BY_HAND
