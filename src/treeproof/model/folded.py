"""One-hot groups as single features: the columns of a group become one category, its *choice*.

The folded ensemble has as many columns as the model. The first column of a group holds the choice:
the place of the column that is 1, or the number of columns where none is; the others are 0, and no
node tests them. Sound: every node goes where it goes in the model, read off the model's own meaning
at 0 and at 1, and leaves are added in the same order, so both have the same sums.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray
from treeproof.model.evaluate import goes_left

Group = tuple[tuple[int, ...], bool]
"""Columns of which one is 1 and the others are 0; whether there must be one."""


def choices_of(group: Group) -> FloatArray:
    """What the columns of a group hold at each choice: (n_choices, n_columns)."""
    columns, exactly = group
    return np.eye(len(columns) + (not exactly), len(columns))


def fold(ensemble: Ensemble, groups: Sequence[Group]) -> Ensemble:
    """The ensemble over choices."""
    trees = ensemble.trees
    feature, threshold, flags = trees.feature.copy(), trees.threshold.copy(), trees.flags.copy()
    category_set = trees.category_set.copy()
    offset, words = trees.set_offset.tolist(), [trees.set_words]
    for group in groups:
        choices = choices_of(group)
        for place, column in enumerate(group[0]):
            nodes = np.flatnonzero(trees.feature == column)
            sides = np.stack(
                [goes_left(ensemble, nodes, np.full(len(nodes), v)) for v in (0.0, 1.0)]
            )
            feature[nodes], threshold[nodes], flags[nodes] = group[0][0], 0.0, CATEGORICAL
            for at_zero, at_one in np.unique(sides, axis=1).T.tolist():
                own = _words_of(np.where(choices[:, place] == 1.0, at_one, at_zero))
                category_set[nodes[(sides == [[at_zero], [at_one]]).all(axis=0)]] = len(offset) - 1
                offset.append(offset[-1] + len(own))
                words.append(own)
    return replace(
        ensemble,
        trees=trees._replace(
            feature=feature,
            threshold=threshold,
            flags=flags,
            category_set=category_set,
            set_offset=np.array(offset, dtype=np.int64),
            set_words=np.concatenate(words),
        ),
        categorical=tuple(sorted({*ensemble.categorical, *(columns[0] for columns, _ in groups)})),
    )


def _words_of(codes: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """A set of codes as words of bits."""
    bits = np.zeros(-(-len(codes) // 32) * 32, dtype=bool)
    bits[: len(codes)] = codes
    return np.packbits(bits, bitorder="little").view(np.uint32)


def fold_rows(rows: FloatArray, groups: Sequence[Group]) -> FloatArray:
    """Rows over choices; raises InvalidInput where the columns of a group are no choice."""
    folded = rows.copy()
    for columns, exactly in groups:
        own = rows[:, columns]
        choice: NDArray[np.float64] = np.where(own == 1.0, np.arange(len(columns)), 0.0).sum(axis=1)
        n_ones = (own == 1.0).sum(axis=1)
        is_choice = ((own == 0.0) | (own == 1.0)).all(axis=1) & (n_ones <= 1)
        if exactly:
            is_choice &= n_ones == 1
        for row in np.flatnonzero(~is_choice)[:1].tolist():
            raise InvalidInput(
                f"In a group {'exactly' if exactly else 'at most'} one column must be 1 and the"
                f" others 0. Got {own[row].tolist()} in columns {list(columns)}."
            )
        folded[:, columns] = 0.0
        folded[:, columns[0]] = np.where(n_ones == 0, len(columns), choice)
    return folded


def unfold_rows(rows: FloatArray, groups: Sequence[Group]) -> FloatArray:
    """Rows of the model again."""
    unfolded = rows.copy()
    for group in groups:
        columns = group[0]
        unfolded[:, columns] = choices_of(group)[rows[:, columns[0]].astype(np.int64)]
    return unfolded
