"""Types that a skops file of a tree ensemble may name."""

_ESTIMATORS = {
    "sklearn.tree._classes": (
        "DecisionTreeClassifier",
        "DecisionTreeRegressor",
        "ExtraTreeClassifier",
        "ExtraTreeRegressor",
    ),
    "sklearn.ensemble._forest": (
        "RandomForestClassifier",
        "RandomForestRegressor",
        "ExtraTreesClassifier",
        "ExtraTreesRegressor",
    ),
    "sklearn.ensemble._gb": ("GradientBoostingClassifier", "GradientBoostingRegressor"),
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": (
        "HistGradientBoostingClassifier",
        "HistGradientBoostingRegressor",
    ),
    "sklearn.ensemble._hist_gradient_boosting.binning": ("_BinMapper",),
    "sklearn.ensemble._hist_gradient_boosting.predictor": ("TreePredictor",),
    "sklearn.ensemble._weight_boosting": ("AdaBoostClassifier",),
    "sklearn.ensemble._iforest": ("IsolationForest",),
    "sklearn.dummy": ("DummyClassifier", "DummyRegressor"),
    "sklearn.compose._column_transformer": ("ColumnTransformer", "_RemainderColsList"),
    "sklearn.preprocessing._encoders": ("OrdinalEncoder",),
    "sklearn.preprocessing._function_transformer": ("FunctionTransformer",),
    "sklearn.preprocessing._label": ("LabelEncoder",),
    "sklearn.model_selection._search": ("GridSearchCV", "RandomizedSearchCV"),
    "sklearn.model_selection._split": ("KFold", "StratifiedKFold"),
    "sklearn.model_selection._classification_threshold": (
        "FixedThresholdClassifier",
        "TunedThresholdClassifierCV",
    ),
    "sklearn.metrics._scorer": ("_PassthroughScorer",),
    "sklearn.utils._metadata_requests": ("MetadataRequest", "MethodMetadataRequest"),
    "sklearn._loss.link": (
        "HalfLogitLink",
        "IdentityLink",
        "Interval",
        "LogLink",
        "LogitLink",
        "MultinomialLogit",
    ),
    "sklearn._loss.loss": (
        "AbsoluteError",
        "ExponentialLoss",
        "HalfBinomialLoss",
        "HalfGammaLoss",
        "HalfMultinomialLoss",
        "HalfPoissonLoss",
        "HalfSquaredError",
        "HuberLoss",
        "PinballLoss",
    ),
}

_OBJECTS = frozenset(f"{module}.{name}" for module, names in _ESTIMATORS.items() for name in names)

_FUNCTIONS = frozenset({"sklearn.utils.validation.check_array"})

# What skops builds from the file's numbers and texts alone, without a type of the file's choice.
_PLAIN = frozenset(
    {
        "CachedNode",
        "DictNode",
        "JsonNode",
        "ListNode",
        "MaskedArrayNode",
        "NdArrayNode",
        "SetNode",
        "SliceNode",
        "TupleNode",
        "TypeNode",
    }
)

RANDOM_NODES = frozenset({"RandomGeneratorNode", "RandomStateNode"})
"""States of random number generators, which no prediction needs."""


def is_known(loader: str, name: str) -> bool:
    """Whether a node of a skops file is one that tree ensembles consist of.

    Parameters
    ----------
    loader : str
        Kind of node, which decides how skops builds it.
    name : str
        Full name of the type or function that the node asks for.
    """
    if loader == "ObjectNode":
        return name in _OBJECTS
    if loader == "FunctionNode":
        return name in _FUNCTIONS
    if loader == "PartialNode":
        return name == "functools.partial"
    if loader == "TreeNode":
        return name == "sklearn.tree._tree.Tree"
    if loader == "LossNode":
        return name.startswith(("sklearn._loss._loss.Cy", "_loss.Cy"))
    return loader in _PLAIN or loader in RANDOM_NODES


def trusted_names() -> list[str]:
    """Names that skops may load besides those that it trusts by itself."""
    return sorted(_OBJECTS | _FUNCTIONS | {"functools.partial"})
