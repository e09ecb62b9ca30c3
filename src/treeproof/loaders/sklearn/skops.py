"""Opens ``.skops`` files in which only the types of tree ensembles and pipelines are named.

skops builds what a file asks for, so the file is checked first, and compiled trees, whose code
trusts their arrays, are taken out of it and built here.
"""

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from treeproof.errors import BrokenModelFile, TreeproofError, UnsupportedModel
from treeproof.loaders.sklearn.shared import MAX_FEATURES, class_names

# A module in each line, and what it holds that tree ensembles consist of.
_TYPES = """
sklearn.tree._classes DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier
sklearn.tree._classes ExtraTreeRegressor
sklearn.ensemble._forest RandomForestClassifier RandomForestRegressor ExtraTreesClassifier
sklearn.ensemble._forest ExtraTreesRegressor
sklearn.ensemble._gb GradientBoostingClassifier GradientBoostingRegressor
sklearn.ensemble._hist_gradient_boosting.gradient_boosting HistGradientBoostingClassifier
sklearn.ensemble._hist_gradient_boosting.gradient_boosting HistGradientBoostingRegressor
sklearn.ensemble._hist_gradient_boosting.binning _BinMapper
sklearn.ensemble._hist_gradient_boosting.predictor TreePredictor
sklearn.ensemble._weight_boosting AdaBoostClassifier
sklearn.ensemble._iforest IsolationForest
sklearn.ensemble._bagging BaggingClassifier BaggingRegressor
sklearn.ensemble._voting VotingClassifier VotingRegressor
sklearn.dummy DummyClassifier DummyRegressor
sklearn.pipeline FeatureUnion Pipeline
imblearn.pipeline Pipeline
imblearn.over_sampling._random_over_sampler RandomOverSampler
imblearn.under_sampling._prototype_selection._random_under_sampler RandomUnderSampler
sklearn.compose._column_transformer ColumnTransformer _RemainderColsList
sklearn.compose._target TransformedTargetRegressor
sklearn.impute._base MissingIndicator SimpleImputer
sklearn.preprocessing._data Binarizer MaxAbsScaler MinMaxScaler PowerTransformer
sklearn.preprocessing._data QuantileTransformer RobustScaler StandardScaler
sklearn.preprocessing._discretization KBinsDiscretizer
sklearn.preprocessing._encoders OneHotEncoder OrdinalEncoder
sklearn.preprocessing._function_transformer FunctionTransformer
sklearn.preprocessing._label LabelBinarizer LabelEncoder
sklearn.preprocessing._target_encoder TargetEncoder
sklearn.feature_selection._from_model SelectFromModel
sklearn.feature_selection._univariate_selection SelectFdr SelectFpr SelectFwe SelectKBest
sklearn.feature_selection._univariate_selection SelectPercentile
sklearn.feature_selection._variance_threshold VarianceThreshold
sklearn.calibration CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration
sklearn.isotonic IsotonicRegression
sklearn.frozen._frozen FrozenEstimator
sklearn.multiclass OneVsRestClassifier
sklearn.multioutput MultiOutputRegressor
sklearn.model_selection._search GridSearchCV RandomizedSearchCV
sklearn.model_selection._split KFold StratifiedKFold
sklearn.model_selection._classification_threshold FixedThresholdClassifier
sklearn.model_selection._classification_threshold TunedThresholdClassifierCV
sklearn.metrics._scorer _CurveScorer _PassthroughScorer _Scorer
sklearn.utils._metadata_requests MetadataRequest MethodMetadataRequest
sklearn._loss.link HalfLogitLink IdentityLink Interval LogLink LogitLink MultinomialLogit
sklearn._loss.loss AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss
sklearn._loss.loss HalfMultinomialLoss HalfPoissonLoss HalfSquaredError HuberLoss PinballLoss
"""

_OBJECTS = frozenset(
    f"{module}.{name}"
    for module, *names in map(str.split, _TYPES.strip().splitlines())
    for name in names
)

# Elementary functions that a column may be transformed by, and what training refers to; none of
# them does anything but compute.
_NUMPY = "abs absolute arcsinh arctan cbrt ceil exp expm1 floor log log10 log1p log2 negative rint"
_NUMPY += " sign sqrt square tanh trunc"
_FUNCTIONS = frozenset(
    {
        "sklearn.utils.validation.check_array",
        "sklearn.metrics._classification.balanced_accuracy_score",
        *(f"numpy.{name}" for name in _NUMPY.split()),
        *(
            f"sklearn.feature_selection._univariate_selection.{name}"
            for name in ("chi2", "f_classif", "f_regression")
        ),
    }
)
_NAMES = {
    "ObjectNode": _OBJECTS,
    "FunctionNode": _FUNCTIONS,
    "PartialNode": frozenset({"functools.partial"}),
    "TreeNode": frozenset({"sklearn.tree._tree.Tree"}),
}

# What skops builds from the file's numbers and texts alone, without a type of the file's choice.
_PLAIN = {"CachedNode", "DictNode", "JsonNode", "ListNode", "MaskedArrayNode", "NdArrayNode"}
_PLAIN |= {"DTypeNode", "SetNode", "SliceNode", "TupleNode", "TypeNode"}

RANDOM_NODES = frozenset({"RandomGeneratorNode", "RandomStateNode"})
"""States of random number generators, which no prediction needs."""


def is_known(loader: str, name: str) -> bool:
    """Whether a node of a skops file is one that tree ensembles and pipelines consist of.

    Its `loader` decides how skops builds it, `name` is the type or function that it asks for.
    """
    if loader == "LossNode":
        return name.startswith(("sklearn._loss._loss.Cy", "_loss.Cy"))
    return name in _NAMES.get(loader, ()) or loader in _PLAIN or loader in RANDOM_NODES


def trusted_names() -> list[str]:
    """Names that skops may load besides those that it trusts by itself."""
    plain = {"functools.partial", "numpy.dtype", "sklearn.utils._bunch.Bunch"}
    return sorted(_OBJECTS | _FUNCTIONS | plain)


_EXPANSION = 100
_SMALL = 64 * 2**20

_NOTHING = {"__loader__": "JsonNode", "content": "null"}
_NOTHING |= {"__class__": "str", "__module__": "builtins"}

Value = TypeVar("Value")


def guarded(action: Callable[[], Value], path: Path) -> Value:
    """Run something on content that anyone may have written; its failures are the file's."""
    try:
        return action()
    except TreeproofError:
        raise
    except Exception as error:
        # Broad on purpose: a tampered file can break skops and scikit-learn at any statement.
        raise BrokenModelFile(
            f"The file '{path}' is damaged or no scikit-learn model"
            f" ({type(error).__name__}: {str(error)[:200]})."
        ) from error


def read_estimator(content: bytes, path: Path) -> tuple[Any, tuple[str, ...]]:
    """Estimator of a file, and notes on the versions that wrote and read it."""
    import skops.io
    from sklearn.exceptions import InconsistentVersionWarning

    harmless, unknown = guarded(lambda: _without_trees(content), path)
    if unknown:
        raise UnsupportedModel(
            f"The file '{path}' holds types that are not known to be needed by pipelines of"
            " scikit-learn's tree ensembles, and loading them could run foreign code:"
            f" {', '.join(sorted(unknown)[:10])}. Load the live object instead, where you trust it."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", InconsistentVersionWarning)
        untrusted = set(guarded(lambda: skops.io.get_untrusted_types(data=harmless), path)) - set(
            trusted_names()
        )
        if untrusted:
            raise UnsupportedModel(
                f"The file '{path}' holds types that skops does not trust:"
                f" {', '.join(sorted(untrusted)[:10])}. Save the tree ensemble alone."
            )
        estimator = guarded(lambda: skops.io.loads(harmless, trusted=trusted_names()), path)
    guarded(lambda: _restore_trees(estimator), path)
    notes = {
        f"Written by scikit-learn {warning.message.original_sklearn_version}; margins and labels"
        f" are those of {warning.message.current_sklearn_version}."
        for warning in caught
        if isinstance(warning.message, InconsistentVersionWarning)
    }
    return estimator, tuple(sorted(notes))


def _without_trees(content: bytes) -> tuple[bytes, set[str]]:
    """Return the file with plain values for trees, and the types that it may not name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        if size > max(_SMALL, _EXPANSION * len(content)):
            raise BrokenModelFile(
                f"A skops file must not grow more than {_EXPANSION} times when it is unpacked."
                f" Got {size} bytes from {len(content)}."
            )
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(parts.pop("schema.json"))
    unknown = _simplify(schema)
    harmless = io.BytesIO()
    with zipfile.ZipFile(harmless, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
        archive.writestr("schema.json", json.dumps(schema))
    return harmless.getvalue(), unknown


def _simplify(schema: Any) -> set[str]:
    """Replace trees by tuples of their parts, in place; return the unknown types."""
    unknown: set[str] = set()
    waiting = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "__loader__" in item:
                loader = str(item["__loader__"])
                name = f"{item.get('__module__')}.{item.get('__class__')}"
                if not is_known(loader, name):
                    unknown.add(name)
                elif loader == "TreeNode":
                    item.update(
                        __class__="tuple",
                        __module__="builtins",
                        __loader__="TupleNode",
                        content=[item.pop("__reduce__")["args"], item["content"]],
                    )
                elif loader in RANDOM_NODES:
                    # No prediction needs random numbers, and seeding can take for ever.
                    item.clear()
                    item.update(_NOTHING, is_json=True)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return unknown


def _restore_trees(estimator: Any) -> None:
    """Turn the plain tuples in ``tree_`` back into trees, wherever the estimator holds them.

    Nothing in a file starts processes or prints; forests have their own rule for threads.
    """
    waiting, seen = [estimator], set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, np.ndarray) and item.dtype == object:
            waiting.extend(item.ravel().tolist())
        elif class_names(item) and hasattr(item, "__dict__"):
            if isinstance(vars(item).get("tree_"), tuple):
                item.tree_ = _tree(*item.tree_)
            elif "n_jobs" in vars(item) and "BaseForest" not in class_names(item):
                item.n_jobs = None
            if "verbose" in vars(item):
                item.verbose = 0
            waiting.extend(vars(item).values())


def _tree(arguments: Any, state: Any) -> Any:
    """Build a ``Tree`` whose arrays have the sizes that its compiled code relies on."""
    from sklearn.tree._tree import Tree

    n_features, n_classes, n_targets = arguments
    n_classes = np.asarray(n_classes, dtype=np.intp)
    nodes = np.ascontiguousarray(state["nodes"])
    values = np.ascontiguousarray(state["values"], dtype=np.float64)
    fits = (
        isinstance(n_features, int)
        and 1 <= n_features <= MAX_FEATURES
        and isinstance(n_targets, int)
        and n_classes.shape == (n_targets,)
        and bool(np.all((n_classes >= 1) & (n_classes <= MAX_FEATURES)))
        and nodes.ndim == 1
        and len(nodes) >= 1
        and values.shape == (len(nodes), n_targets, int(n_classes.max(initial=0)))
    )
    if not fits:
        raise BrokenModelFile("A tree in the file has arrays of the wrong sizes.")
    tree = Tree(n_features, n_classes, n_targets)
    depth = int(state["max_depth"])
    tree.__setstate__(
        {"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": values}
    )
    return tree
