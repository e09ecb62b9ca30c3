"""Two models over the same rows as one ensemble, with one more feature that tells them apart.

Every tree of the joint ensemble begins with a test of that feature, the *switch*: below it hangs a
tree of the first model (switch 0) and its partner of the second one (switch 1). So a difference of
two models is what one ensemble makes of two rows that differ in the switch alone, and everything
that is known about such pairs of rows holds for two models as well.

Sound: sums of a model are taken in the order of its trees, and partners keep the order of both
models within every output; a tree without a partner hangs beside a leaf of 0, and adding 0 changes
no sum.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import (
    CATEGORICAL,
    Aggregation,
    Decision,
    Ensemble,
    FloatArray,
    Provenance,
    TreeArrays,
)
from treeproof.model.rows import column_order

NO_TREE = -1
"""In place of the number of a tree that has no partner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairModels:
    """The models of the first and of the second row of a pair.

    Attributes
    ----------
    first, second : Ensemble
        The deployed models, over the same columns; one and the same where rows are compared.
    joint : Ensemble
        Both over doubles, in one; of one and the same model that model.
    partners : tuple of (int, int)
        For each tree of `joint`, the trees of both models, or `NO_TREE`; empty for one model.
    """

    first: Ensemble
    second: Ensemble
    joint: Ensemble
    partners: tuple[tuple[int, int], ...] = ()

    @property
    def switch(self) -> int:
        """Feature of `joint` that tells the models apart; -1 for one model."""
        return self.first.n_features if self.partners else -1

    def sums(self, witness: FloatArray) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Deployed sums of the rows of a pair, each (1, n_outputs) in its model's precision."""
        one, other = (
            evaluate.accumulate(model, evaluate.leaf_rows(model, witness[row : row + 1]))
            for row, model in enumerate((self.first, self.second))
        )
        return one, other

    def label_numbers(self, sums: Sequence[NDArray[np.floating]]) -> tuple[int, int]:
        """Class index of both rows, by the decision of each model."""
        one, other = (
            int(evaluate.label_indices(model, evaluate.finish(model, total))[0])
            for model, total in zip((self.first, self.second), sums, strict=True)
        )
        return one, other


def one_model(ensemble: Ensemble) -> PairModels:
    """Both rows of a pair are of the same model."""
    return PairModels(first=ensemble, second=ensemble, joint=accept_float64_rows(ensemble))


def join(first: Ensemble, second: Ensemble) -> PairModels:
    """Two models in one; raises InvalidInput where they do not take the same rows.

    Columns of the second model are matched as those of rows are: by name where both have names of
    their own, and by position otherwise.
    """
    second = _in_columns_of(first, second)
    one, other = accept_float64_rows(first), accept_float64_rows(second)
    partners = match_trees(first, second)
    joint = Ensemble(
        trees=_joined_trees(one, other, partners),
        n_features=first.n_features + 1,
        n_outputs=max(first.n_outputs, second.n_outputs),
        input_precision="float64",
        aggregation=Aggregation(
            precision="float64", start=(0.0,) * max(first.n_outputs, second.n_outputs)
        ),
        decision=Decision(kind="score"),
        categories=second.categories | first.categories,
        categorical=tuple(sorted({*first.categorical, *second.categorical})),
        missing_allowed=first.missing_allowed and second.missing_allowed,
        infinite_allowed=first.infinite_allowed and second.infinite_allowed,
        provenance=Provenance(library="treeproof"),
    )
    return PairModels(first=first, second=second, joint=joint, partners=partners)


def _in_columns_of(first: Ensemble, second: Ensemble) -> Ensemble:
    """The second model over the columns and codes of the first one."""
    if first.n_features != second.n_features:
        raise InvalidInput(
            "Both models must take the same columns."
            f" Got {first.n_features} and {second.n_features}."
        )
    names = list(first.feature_names)
    if names and second.feature_names:
        try:
            order = column_order(second, names)
        except InvalidInput as error:
            raise InvalidInput(f"Both models must take the same columns. {error}") from error
        if order != names:
            second = _moved(second, np.array([names.index(n) for n in order], dtype=np.int32))
    for feature in sorted(set(first.categories) & set(second.categories)):
        known, own = first.categories[feature], second.categories[feature]
        if known and own and known != own:
            second = _recoded(second, feature, known)
    return second


def _moved(ensemble: Ensemble, place: NDArray[np.int32]) -> Ensemble:
    """The same model over columns in another order; column f becomes column ``place[f]``."""
    trees = ensemble.trees
    feature = np.where(trees.feature >= 0, place[np.maximum(trees.feature, 0)], -1)
    names = [""] * ensemble.n_features
    for old, new in enumerate(place.tolist()):
        names[new] = ensemble.feature_names[old]
    return replace(
        ensemble,
        trees=trees._replace(feature=feature.astype(np.int32)),
        feature_names=tuple(names),
        categories={int(place[f]): values for f, values in ensemble.categories.items()},
        categorical=tuple(sorted(int(place[f]) for f in ensemble.categorical)),
        required={int(place[f]): codes for f, codes in ensemble.required.items()},
    )


def _recoded(ensemble: Ensemble, feature: int, values: tuple[Any, ...]) -> Ensemble:
    """The same model with the categories of a feature numbered in another order."""
    own = ensemble.categories[feature]
    name = ensemble.feature_names[feature] if ensemble.feature_names else feature
    if len(set(own)) < len(own) or sorted(map(repr, own)) != sorted(map(repr, values)):
        raise InvalidInput(
            f"Both models must know the same categories of feature {name!r}."
            f" Got {len(values)} and {len(own)}, or others."
        )
    trees = ensemble.trees
    nodes = np.flatnonzero(trees.feature == feature)
    if not (trees.flags[nodes] & CATEGORICAL).all() or feature in ensemble.required:
        raise InvalidInput(
            f"Both models must number the categories of feature {name!r} alike, since one of them"
            " compares the numbers. Got another order."
        )
    code = [values.index(value) for value in own]
    words = trees.set_words.copy()
    for number in np.unique(trees.category_set[nodes]).tolist():
        part = slice(int(trees.set_offset[number]), int(trees.set_offset[number + 1]))
        moved = np.unpackbits(trees.set_words[part].view(np.uint8), bitorder="little")
        inside = [code[old] for old in np.flatnonzero(moved[: len(code)]).tolist()]
        moved[: len(code)] = 0
        if inside and max(inside) >= len(moved):
            raise InvalidInput(
                f"Both models must number the categories of feature {name!r} alike."
                " Got another order."
            )
        moved[inside] = 1
        words[part] = np.packbits(moved, bitorder="little").view(np.uint32)
    return replace(
        ensemble,
        trees=trees._replace(set_words=words),
        categories=ensemble.categories | {feature: values},
    )


def match_trees(first: Ensemble, second: Ensemble) -> tuple[tuple[int, int], ...]:
    """Partners among the trees of two models: in order within each output.

    Trees of the same shape that test the same features are partners, as far as the order allows;
    between them those that share many tests, one by one.
    """
    one, other = _by_output(first), _by_output(second)
    partners: list[tuple[int, int]] = []
    for output in sorted(set(one) | set(other)):
        mine, theirs = one.get(output, []), other.get(output, [])
        partners += _aligned(first, second, mine, theirs)
    return tuple(partners)


def _by_output(ensemble: Ensemble) -> dict[int, list[int]]:
    """Trees of each output, in order; those of the only one, or of all at once, as of output -1."""
    trees: dict[int, list[int]] = {}
    for tree, output in enumerate(ensemble.trees.tree_output.tolist()):
        trees.setdefault(-1 if ensemble.n_outputs == 1 else output, []).append(tree)
    return trees


def _aligned(
    first: Ensemble, second: Ensemble, mine: list[int], theirs: list[int]
) -> list[tuple[int, int]]:
    shapes = (
        [_shape(first, tree) for tree in mine],
        [_shape(second, tree) for tree in theirs],
    )
    matcher = SequenceMatcher(None, *shapes, autojunk=False)
    partners: list[tuple[int, int]] = []
    at = [0, 0]
    for block in matcher.get_matching_blocks():
        between = mine[at[0] : block.a], theirs[at[1] : block.b]
        for one, other in zip_longest(*between, fillvalue=NO_TREE):
            if NO_TREE in (one, other) or _are_alike(first, second, one, other):
                partners.append((one, other))
            else:
                partners += [(one, NO_TREE), (NO_TREE, other)]
        partners += [
            (mine[block.a + step], theirs[block.b + step]) for step in range(block.size)
        ]  # fmt: skip
        at = [block.a + block.size, block.b + block.size]
    return partners


def _are_alike(first: Ensemble, second: Ensemble, one: int, other: int) -> bool:
    """Whether two trees share half of their tests, so that parts of them cancel.

    Others would only make one large tree of two small ones.
    """
    tests, theirs = _tests(first, one), _tests(second, other)
    return 2 * len(tests & theirs) >= max(len(tests), len(theirs))


def _tests(ensemble: Ensemble, tree: int) -> set[tuple[int, float]]:
    """Features and thresholds of a tree, rounded as exports do."""
    trees = ensemble.trees
    nodes = slice(int(trees.root[tree]), int(trees.root[tree + 1]))
    with np.errstate(over="ignore"):
        threshold = trees.threshold[nodes].astype(np.float32).tolist()
    return set(zip(trees.feature[nodes].tolist(), threshold, strict=True)) - {(-1, 0.0)}


def _shape(ensemble: Ensemble, tree: int) -> bytes:
    trees = ensemble.trees
    part = slice(int(trees.root[tree]), int(trees.root[tree + 1]))
    return hashlib.sha256(trees.feature[part].tobytes()).digest()  # preorder tells the shape


Part = dict[str, NDArray[Any]]
"""Columns of the nodes of a tree, as `TreeBuilder` takes them."""


def _joined_trees(
    one: Ensemble, other: Ensemble, partners: Sequence[tuple[int, int]]
) -> TreeArrays:
    """Partners below switches, as arrays."""
    widths = {model.trees.leaf_value.shape[1] for model in (one, other)}
    # Where outputs differ, every leaf tells what it adds to each of them.
    is_vector = one.n_outputs != other.n_outputs or widths != {1}
    width = max(one.n_outputs, other.n_outputs) if is_vector else 1
    builder = TreeBuilder(leaf_width=width)
    builder.add_category_sets(one.trees)
    n_sets = builder.add_category_sets(other.trees)
    for mine, theirs in partners:
        left = _part(one, mine, width, 1, 0)
        n_left = len(left["feature"])
        right = _part(other, theirs, width, 1 + n_left, n_sets)
        top = _node(width, feature=one.n_features, threshold=0.5, left=1, right=1 + n_left)
        owner = one.trees.tree_output[mine] if mine >= 0 else other.trees.tree_output[theirs]
        columns = {name: np.concatenate([top[name], left[name], right[name]]) for name in top}
        builder.add_tree(output=-1 if is_vector else int(owner), **columns)
    return builder.finish()


def _part(ensemble: Ensemble, tree: int, width: int, first_node: int, first_set: int) -> Part:
    """A tree of a model, or a leaf of 0, with leaves of a width; its numbers come after others."""
    if tree == NO_TREE:
        return _node(width)
    trees = ensemble.trees
    nodes = slice(int(trees.root[tree]), int(trees.root[tree + 1]))
    inner = trees.feature[nodes] >= 0
    own = trees.leaf_value[trees.leaf[nodes][~inner]]
    value = np.zeros((len(inner), width))
    output = int(trees.tree_output[tree])
    if width == 1 or output < 0:
        value[~inner, : own.shape[1]] = own
    else:
        value[~inner, output] = own[:, 0]
    sets = trees.category_set[nodes]
    return {
        "feature": trees.feature[nodes],
        "threshold": trees.threshold[nodes],
        "left": np.where(inner, trees.left[nodes] - nodes.start + first_node, -1),
        "right": np.where(inner, trees.right[nodes] - nodes.start + first_node, -1),
        "flags": trees.flags[nodes],
        "category_set": np.where(sets >= 0, sets + first_set, -1),
        "value": value,
    }


def _node(
    width: int, *, feature: int = -1, threshold: float = 0.0, left: int = -1, right: int = -1
) -> Part:
    """One node: a leaf of 0, unless it tests a feature."""
    numbers = {"feature": feature, "threshold": threshold, "left": left, "right": right}
    part = {name: np.array([n]) for name, n in (numbers | {"flags": 0, "category_set": -1}).items()}
    return part | {"value": np.zeros((1, width))}
