"""Structural rules of an `Ensemble`; every message names tree and node."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.ensemble import CATEGORICAL, FLAGS, ZERO_IS_MISSING, Ensemble, TreeArrays

_Require = Callable[[NDArray[np.bool_], str], None]

_DTYPES = {
    "root": np.int32,
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "right": np.int32,
    "flags": np.uint8,
    "category_set": np.int32,
    "set_offset": np.int64,
    "set_words": np.uint32,
    "leaf": np.int32,
    "leaf_value": np.float64,
    "leaf_source": np.int32,
    "tree_output": np.int32,
}


def validate(ensemble: Ensemble) -> None:
    """Raise `BrokenModelFile` unless the arrays form proper trees with finite numbers."""
    trees = ensemble.trees
    _check_shapes(trees)
    n_nodes = len(trees.feature)
    inner = trees.feature >= 0
    leaf = ~inner
    nodes = np.arange(n_nodes, dtype=np.int32)
    owner = np.searchsorted(trees.root, nodes, side="right") - 1

    def require(condition: NDArray[np.bool_], rule: str) -> None:
        bad = np.flatnonzero(~condition)
        if bad.size:
            node = int(bad[0])
            tree = int(owner[node])
            raise BrokenModelFile(
                f"Tree {tree}, node {node - int(trees.root[tree])}: {rule}."
                " The model file is damaged or was not written by its library."
            )

    require(trees.feature < ensemble.n_features, f"the feature must be below {ensemble.n_features}")
    # Minus infinity is sound: no number is below it, so only missing values can go left.
    require(
        np.isfinite(trees.threshold) | np.isneginf(trees.threshold),
        "the threshold must be finite, or minus infinity where only missing values go left",
    )
    # Preorder makes proper trees easy to see: the left child follows its parent, the right child
    # starts where the left subtree ends, and the subtree of the root fills the tree's range.
    require(leaf | (trees.left == nodes + 1), "the left child must follow its parent")
    end = trees.root[owner + 1]
    require(
        leaf | ((trees.right > nodes + 1) & (trees.right < end)),
        "the right child must lie inside its tree, after the left one",
    )
    require(inner | ((trees.left == -1) & (trees.right == -1)), "a leaf must not have children")
    _check_tree_shapes(trees, require)
    # In preorder the open branches before a node tell where it hangs: as many at a right child as
    # at its parent. With one parent per node this leaves no choice of the right child, so every
    # subtree is one range of nodes.
    open_branches = np.cumsum(np.where(inner, 1, -1)) - np.where(inner, 1, -1)
    require(
        leaf | (open_branches[np.maximum(trees.right, 0)] == open_branches),
        "the right child must follow the subtree of the left one",
    )
    _check_leaves_and_sets(trees, require)
    _check_precision(ensemble, require)
    # The band's upper end is the double after a float32; no float32 lies there, so radii and
    # witnesses among float32 rows would be wrong.
    banded = np.flatnonzero(inner & ((trees.flags & ZERO_IS_MISSING) > 0))
    if ensemble.input_precision == "float32" and banded.size:
        raise UnsupportedModel(
            "Only a model with float64 rows can count zero as missing. Got float32 rows and such a"
            f" split in tree {int(owner[banded[0]])}. Store the model with float64 rows."
        )
    _check_outputs(ensemble)


def _check_leaves_and_sets(trees: TreeArrays, require: _Require) -> None:
    inner = trees.feature >= 0
    leaf = ~inner
    require(inner | (trees.leaf >= 0), "a leaf must have a value")
    require(leaf | (trees.leaf == -1), "an inner node must not have a leaf value")
    if not np.array_equal(trees.leaf[leaf], np.arange(len(trees.leaf_value), dtype=np.int32)):
        raise BrokenModelFile("Leaves must be numbered in node order, each used once.")
    require(leaf | (trees.flags <= FLAGS), "flags must be known")
    categorical = inner & ((trees.flags & CATEGORICAL) > 0)
    n_sets = len(trees.set_offset) - 1
    require(
        ~categorical | ((trees.category_set >= 0) & (trees.category_set < n_sets)),
        "the category set must exist",
    )
    if not np.all(np.isfinite(trees.leaf_value)):
        require(
            inner | np.all(np.isfinite(trees.leaf_value), axis=1)[np.maximum(trees.leaf, 0)],
            "the leaf value must be finite",
        )


def _check_precision(ensemble: Ensemble, require: _Require) -> None:
    """Refuse numbers that the sum, or what is done with it, would have to round first.

    Sound: bounds are computed from the numbers as they are stored, and the plain meaning rounds
    them to the precision of the sum where it uses them; only numbers of that precision mean the
    same to both. Scale and bias of an affine finish are used in double.
    """
    trees, aggregation, decision = ensemble.trees, ensemble.aggregation, ensemble.decision
    precision = aggregation.precision

    def is_exact(values: NDArray[np.float64]) -> NDArray[np.bool_]:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(precision) == values)

    if ensemble.input_precision == "float32":
        # Sound: witnesses take thresholds as values, and rounding rows first asks for the float32
        # below a threshold. 2^128, which the largest float32 is followed by, parts infinity.
        with np.errstate(over="ignore"):
            is_single = trees.threshold.astype(np.float32) == trees.threshold
        require(
            (trees.feature < 0) | is_single | (trees.threshold == 2.0**128),
            "the threshold must be a float32 number, like the rows that it is compared with",
        )
    exact_leaf = np.all(is_exact(trees.leaf_value), axis=1)
    require(
        (trees.feature >= 0) | exact_leaf[np.maximum(trees.leaf, 0)],
        f"the leaf value must be a {precision} number, like the sum that it is added to",
    )
    others = {
        "base score": aggregation.start,
        "divisor": (aggregation.divisor, decision.link_divisor),
        "decision cut": (decision.cut,) if decision.kind == "threshold" else (),
        "offset": aggregation.bias if aggregation.finish == "isolation" else (),
    }
    for name, numbers in others.items():
        values = np.array(numbers, dtype=np.float64)
        rounded = values[~is_exact(values) & ~np.isnan(values)]
        if rounded.size:
            raise BrokenModelFile(
                f"The {name} must be a {precision} number, like the sum of the leaves."
                f" Got {rounded[0]}. The model file is damaged or was not written by its library."
            )


def _check_shapes(trees: TreeArrays) -> None:
    for name, dtype in _DTYPES.items():
        array = getattr(trees, name)
        dimensions = 2 if name == "leaf_value" else 1
        if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
            raise BrokenModelFile(
                f"Array '{name}' must be C-contiguous {np.dtype(dtype)} with {dimensions} axes."
                f" Got {array.dtype} with shape {array.shape}."
            )
    n_nodes = len(trees.feature)
    for name in ("threshold", "left", "right", "flags", "category_set", "leaf"):
        if len(getattr(trees, name)) != n_nodes:
            raise BrokenModelFile(f"Array '{name}' must have one entry per node ({n_nodes}).")
    n_trees = len(trees.tree_output)
    root = trees.root
    if n_trees == 0:
        raise UnsupportedModel("A model must have at least one tree. Got none. Train it first.")
    if len(root) != n_trees + 1 or root[0] != 0 or root[-1] != n_nodes or np.any(np.diff(root) < 1):
        raise BrokenModelFile("Array 'root' must rise from 0 to the number of nodes, tree by tree.")
    offset = trees.set_offset
    if len(offset) < 1 or offset[0] != 0 or offset[-1] != len(trees.set_words):
        raise BrokenModelFile("Array 'set_offset' must run from 0 to the length of 'set_words'.")
    if np.any(np.diff(offset) < 0):
        raise BrokenModelFile("Array 'set_offset' must not fall.")
    if len(trees.leaf_source) != len(trees.leaf_value):
        raise BrokenModelFile("Array 'leaf_source' must have one entry per leaf.")


def _check_tree_shapes(trees: TreeArrays, require: _Require) -> None:
    """Each node other than a root must be the child of exactly one node."""
    n_nodes = len(trees.feature)
    inner = trees.feature >= 0
    parents = np.zeros(n_nodes, dtype=np.int64)
    np.add.at(parents, trees.left[inner], 1)
    np.add.at(parents, trees.right[inner], 1)
    expected = np.ones(n_nodes, dtype=np.int64)
    expected[trees.root[:-1]] = 0
    # Sound: children lie after their parent and inside the tree, and every node but the root has
    # exactly one parent, so each tree is connected and free of cycles.
    require(parents == expected, "every node but the root must have exactly one parent")


def _check_outputs(ensemble: Ensemble) -> None:
    trees = ensemble.trees
    width = trees.leaf_value.shape[1]
    if width not in (1, ensemble.n_outputs):
        raise BrokenModelFile(
            f"Leaf values must have width 1 or {ensemble.n_outputs} (the outputs). Got {width}."
        )
    scalar = trees.tree_output >= 0
    all_vectors = width == ensemble.n_outputs and not scalar.any()
    if not all_vectors and not (
        width == 1 and scalar.all() and int(trees.tree_output.max()) < ensemble.n_outputs
    ):
        raise BrokenModelFile(
            "Every tree must name an output in range, or none of them when leaves are vectors."
        )
    if len(ensemble.aggregation.start) != ensemble.n_outputs:
        raise BrokenModelFile(f"The base score must have {ensemble.n_outputs} entries.")
    _check_finish(ensemble)
    decision = ensemble.decision
    if not all(0.0 < number < np.inf for number in (decision.link_divisor, decision.link_scale)):
        raise BrokenModelFile("Divisor and scale of the link must be finite and positive.")
    if decision.kind == "threshold" and ensemble.n_outputs != 1:
        raise BrokenModelFile("A threshold decision needs exactly one output.")
    if decision.kind != "score" and len(ensemble.classes) < 2:
        raise BrokenModelFile("A classifier must have at least two classes.")
    if ensemble.feature_names and len(ensemble.feature_names) != ensemble.n_features:
        raise BrokenModelFile(
            f"There must be one name per feature ({ensemble.n_features})."
            f" Got {len(ensemble.feature_names)}."
        )


def _check_finish(ensemble: Ensemble) -> None:
    aggregation = ensemble.aggregation
    if not np.all(np.isfinite(aggregation.start)):
        raise BrokenModelFile("The base score must be finite.")
    numbers = (aggregation.divisor, aggregation.scale, *aggregation.bias)
    if not np.all(np.isfinite(numbers)) or aggregation.divisor == 0.0:
        raise BrokenModelFile("Divisor, scale and bias must be finite, and the divisor not zero.")
    n_bias = {"affine": ensemble.n_outputs, "isolation": 1}.get(aggregation.finish)
    if n_bias is not None and len(aggregation.bias) != n_bias:
        raise BrokenModelFile(
            f"The bias must have {n_bias} entries. Got {len(aggregation.bias)} entries."
        )
    if np.isnan(ensemble.decision.cut):
        raise BrokenModelFile("The decision cut must be a number. Got nan.")
