"""Turns trees as libraries store them into the canonical `TreeArrays`.

Loaders describe each tree with arrays in the library's own node order; `TreeBuilder` walks it from
the root (nodes left behind by pruning are dropped), refuses cycles, shared and dangling nodes, and
renumbers in preorder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.ensemble import CATEGORICAL, TreeArrays

MAX_DEPTH = 4096
"""Deeper trees are refused: no trained model comes near, hostile files do."""


@dataclass(slots=True)
class TreeBuilder:
    """Collects trees one by one; `finish` returns the canonical arrays.

    Parameters
    ----------
    leaf_width : int
        1, or the number of outputs for vector leaves.
    """

    leaf_width: int = 1
    _parts: list[dict[str, NDArray[np.generic]]] = field(default_factory=list)
    _outputs: list[int] = field(default_factory=list)
    _set_offset: list[int] = field(default_factory=lambda: [0])
    _set_words: list[int] = field(default_factory=list)

    def add_category_set(self, categories: Sequence[int]) -> int:
        """Store the set of categories that go left; return its number."""
        if any(c < 0 or c >= 1 << 24 for c in categories):
            raise UnsupportedModel(
                "Category codes must be between 0 and 2**24 - 1."
                f" Got {max(categories, key=abs)}. Encode the feature with small codes."
            )
        words = [0] * (max(categories, default=-1) // 32 + 1)
        for category in categories:
            words[category // 32] |= 1 << (category % 32)
        self._set_words.extend(words)
        self._set_offset.append(len(self._set_words))
        return len(self._set_offset) - 2

    def add_tree(
        self,
        *,
        feature: ArrayLike,
        threshold: ArrayLike,
        left: ArrayLike,
        right: ArrayLike,
        flags: ArrayLike,
        value: ArrayLike,
        output: int,
        source: ArrayLike | None = None,
        category_set: ArrayLike | None = None,
    ) -> None:
        """Add one tree given in any node order with node 0 as its root.

        Parameters
        ----------
        feature : int (n,)
            Tested feature; anything at leaves.
        threshold : float (n,)
            Canonical thresholds (left iff x < threshold); anything at leaves.
        left, right : int (n,)
            Children; negative marks a leaf (both must then be negative).
        flags : int (n,)
            MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL; anything at leaves.
        value : float (n,) or (n, leaf_width)
            Leaf values; anything at inner nodes.
        output : int
            Output that the tree adds to, or -1 for vector leaves.
        source : int (n,), optional
            The library's own number of each leaf; default is the node number.
        category_set : int (n,), optional
            Number returned by `add_category_set` for categorical nodes, -1 elsewhere.
        """
        tree = len(self._outputs)
        left_in = np.asarray(left, dtype=np.int64)
        right_in = np.asarray(right, dtype=np.int64)
        order = _preorder(left_in, right_in, tree)
        position = np.full(len(left_in), -1, dtype=np.int64)
        position[order] = np.arange(len(order))
        inner = left_in[order] >= 0
        values = np.asarray(value, dtype=np.float64).reshape(len(left_in), -1)
        if values.shape[1] != self.leaf_width:
            raise BrokenModelFile(
                f"Tree {tree}: leaf values must have width {self.leaf_width}."
                f" Got {values.shape[1]}."
            )
        sources = np.arange(len(left_in)) if source is None else np.asarray(source)
        sets = np.full(len(left_in), -1) if category_set is None else np.asarray(category_set)
        flag = np.where(inner, np.asarray(flags)[order], 0).astype(np.uint8)
        numeric = inner & ((flag & CATEGORICAL) == 0)
        self._parts.append(
            {
                "feature": np.where(inner, np.asarray(feature)[order], -1).astype(np.int32),
                "threshold": np.where(numeric, np.asarray(threshold)[order], 0.0).astype(
                    np.float64
                ),
                "left": np.where(inner, position[left_in[order]], -1).astype(np.int64),
                "right": np.where(inner, position[right_in[order]], -1).astype(np.int64),
                "flags": flag,
                "category_set": np.where(inner & ~numeric, sets[order], -1).astype(np.int32),
                "leaf_value": values[order][~inner],
                "leaf_source": sources[order][~inner].astype(np.int32),
            }
        )
        self._outputs.append(output)

    def finish(self) -> TreeArrays:
        """Return the canonical arrays of all trees added so far."""
        if not self._parts:
            raise UnsupportedModel("A model must have at least one tree. Got none. Train it first.")
        sizes = np.array([len(part["feature"]) for part in self._parts], dtype=np.int64)
        root = np.concatenate([[0], np.cumsum(sizes)])
        if root[-1] >= 2**31 - 1:
            raise UnsupportedModel(f"A model may have at most 2**31 - 2 nodes. Got {root[-1]}.")

        def joined(name: str) -> NDArray[np.generic]:
            return np.concatenate([part[name] for part in self._parts])

        shift = np.repeat(root[:-1], sizes)
        feature = joined("feature").astype(np.int32)
        inner = feature >= 0
        leaf = np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32)
        left = np.where(inner, joined("left") + shift, -1).astype(np.int32)
        right = np.where(inner, joined("right") + shift, -1).astype(np.int32)
        return TreeArrays(
            root=root.astype(np.int32),
            feature=feature,
            threshold=joined("threshold").astype(np.float64),
            left=left,
            right=right,
            flags=joined("flags").astype(np.uint8),
            category_set=joined("category_set").astype(np.int32),
            set_offset=np.array(self._set_offset, dtype=np.int64),
            set_words=np.array(self._set_words, dtype=np.uint32),
            leaf=leaf,
            leaf_value=np.ascontiguousarray(joined("leaf_value"), dtype=np.float64),
            leaf_source=joined("leaf_source").astype(np.int32),
            tree_output=np.array(self._outputs, dtype=np.int32),
        )


def _preorder(left: NDArray[np.int64], right: NDArray[np.int64], tree: int) -> NDArray[np.int64]:
    """Node numbers reachable from node 0, in preorder; refuses anything that is not a tree."""
    n = len(left)
    if n == 0 or len(right) != n:
        raise BrokenModelFile(f"Tree {tree} must have at least one node. Got an empty tree.")
    left_list, right_list = left.tolist(), right.tolist()
    seen = bytearray(n)
    order: list[int] = []
    stack: list[tuple[int, int]] = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        if seen[node]:
            raise BrokenModelFile(
                f"Tree {tree}, node {node} is reached twice: a tree must have no cycles and no"
                " shared nodes. The model file is damaged."
            )
        seen[node] = 1
        order.append(node)
        a, b = left_list[node], right_list[node]
        if a < 0 and b < 0:
            continue
        if not (0 <= a < n and 0 <= b < n):
            raise BrokenModelFile(
                f"Tree {tree}, node {node}: children must be between 0 and {n - 1}."
                f" Got {a} and {b}. The model file is damaged."
            )
        if depth >= MAX_DEPTH:
            raise UnsupportedModel(f"Tree {tree} is deeper than {MAX_DEPTH} levels.")
        stack.append((b, depth + 1))
        stack.append((a, depth + 1))
    return np.array(order, dtype=np.int64)
