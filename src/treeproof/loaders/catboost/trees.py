"""CatBoost's trees and categories in canonical form.

CatBoost answers a numeric split with "yes" iff ``float32(x) > border``; "no" is the left side here,
and the canonical threshold is the float32 after the border. A one-hot split says "yes" to a single
category; a set of one category goes left, so there "yes" is the left side.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from treeproof.errors import BrokenModelFile
from treeproof.loaders.catboost.model import CatBoostModel, IntArray, split_table
from treeproof.loaders.rules import next_float32
from treeproof.model.builder import TreeBuilder
from treeproof.model.category_hashes import category_hash
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    FloatArray,
    TreeArrays,
)

_ABOVE_FLOAT32 = 2.0**128
"""Between the largest float32 and infinity: what "beyond the largest float32" compares with."""

_SMALL_NUMBERS = 10_000
"""Categories that are whole numbers below keep their numbers as codes."""


@dataclass(slots=True)
class _Tests:
    """Canonical form of every split of the model, by CatBoost's number of the split."""

    feature: IntArray
    threshold: FloatArray
    flags: IntArray
    category_set: IntArray


def tree_arrays(model: CatBoostModel, categories: dict[int, tuple[str | int, ...]]) -> TreeArrays:
    """Canonical arrays of all trees; `categories` are those of `raw_categories`."""
    builder = TreeBuilder(leaf_width=model.n_outputs)
    tests = _canonical_tests(model, categories, builder)
    for number, tree in enumerate(model.trees):
        if np.any(tree.split[tree.left >= 0] >= len(tests.feature) - 1):
            raise BrokenModelFile(f"Tree {number} asks a split that does not exist. It is damaged.")
        sets = tests.category_set[tree.split]
        builder.add_tree(
            feature=tests.feature[tree.split],
            threshold=tests.threshold[tree.split],
            left=tree.left,
            right=tree.right,
            flags=tests.flags[tree.split],
            value=tree.value,
            output=0 if model.n_outputs == 1 else -1,
            source=tree.number,
            category_set=sets,
            swap=(tree.left >= 0) & (sets >= 0),
        )
    return builder.finish()


def _canonical_tests(
    model: CatBoostModel, categories: dict[int, tuple[str | int, ...]], builder: TreeBuilder
) -> _Tests:
    """Tests whose left side is CatBoost's "no", as its trees have it."""
    table = split_table(model.features_info)
    # One row more than there are splits: leaves need a row to point at, too.
    n = len(table) + 1
    feature, flags = np.zeros(n, dtype=np.int64), np.full(n, MISSING_LEFT)
    tests = _Tests(feature, np.zeros(n), flags, np.full(n, -1))
    code = {
        place: {category_key(entry): c for c, entry in enumerate(entries)}
        for place, entries in categories.items()
    }
    for number, (kind, index, value) in enumerate(table):
        if kind == "OneHotFeature":
            place = model.categorical_features[index].flat_feature_index
            members = [code[place][int(value) % 2**32]]
            tests.flags[number] |= CATEGORICAL | WHOLE_CATEGORY | NONNEGATIVE_CATEGORY
            tests.category_set[number] = builder.add_category_set(members)
        else:
            numeric = model.float_features[index]
            place = numeric.flat_feature_index
            # Without NaN in training CatBoost replaces nothing, and NaN > border is false.
            if numeric.has_nans and numeric.nan_value_treatment == "AsTrue":
                tests.flags[number] = 0
            tests.threshold[number] = value
        feature[number] = place
    with np.errstate(over="ignore"):
        above = next_float32(tests.threshold.astype(np.float32).astype(np.float64))
    tests.threshold = np.where(np.isinf(above), _ABOVE_FLOAT32, above)
    return tests


def category_key(entry: str | int) -> int:
    """Hash of an entry of the category tables."""
    return entry if isinstance(entry, int) else category_hash(entry)


def raw_categories(model: CatBoostModel) -> dict[int, tuple[str | int, ...]]:
    """What the codes of each categorical feature stand for; for CatBoost see `category_hashes`.

    Where all categories that trees ask for are small whole numbers, codes are these numbers.
    Otherwise codes count the categories that trees ask for, by their text where it is known.
    """
    listed = model.features_info.cat_features_hash or ()
    text = {h.hash % 2**32: h.value for h in listed if category_hash(h.value) == h.hash % 2**32}
    if any(feature.values for feature in model.categorical_features):
        text = {**_small_numbers(), **text}
    categories: dict[int, tuple[str | int, ...]] = {}
    for feature in model.categorical_features:
        hashes = [value % 2**32 for value in feature.values or ()]
        entries = tuple(text.get(number, number) for number in hashes)
        numbers = [_small_number(entry) for entry in entries]
        if entries and min(numbers) >= 0:
            entries = tuple(str(number) for number in range(max(numbers) + 1))
        categories[feature.flat_feature_index] = entries
    return categories


@cache
def _small_numbers() -> dict[int, str]:
    return {category_hash(str(number)): str(number) for number in range(_SMALL_NUMBERS)}


def _small_number(entry: str | int) -> int:
    """The small whole number that a category's text spells, or -1."""
    if isinstance(entry, int) or not (entry.isascii() and entry.isdigit() and len(entry) <= 4):
        return -1
    return int(entry) if str(int(entry)) == entry else -1
