"""Turns trees as libraries store them into the canonical `TreeArrays`.

Loaders describe trees with arrays in the library's own node order; `TreeBuilder` walks them from
the root (nodes left behind by pruning are dropped), refuses cycles, shared and dangling nodes, and
renumbers in preorder. All trees are walked together, level by level, so that a model of a thousand
trees costs a few array operations per level and not a Python loop over its nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.model.ensemble import CATEGORICAL, MISSING_LEFT, TreeArrays

MAX_DEPTH = 4096
"""Deeper trees are refused: no trained model comes near, hostile files do."""

MAX_CATEGORY = 1 << 24
"""Category codes must stay below; larger ones are not exact in float32."""

MAX_SET_WORDS = 1 << 25
"""Bound on the memory of all category sets together (128 MB)."""

IntArray = NDArray[np.int64]


_DTYPES = {
    "sizes": np.int64,
    "output": np.int64,
    "feature": np.int64,
    "threshold": np.float64,
    "left": np.int64,
    "right": np.int64,
    "flags": np.uint8,
    "source": np.int64,
    "category_set": np.int64,
}


@dataclass(slots=True)
class TreeBuilder:
    """Collects trees; `finish` checks them and returns the canonical arrays."""

    leaf_width: int = 1  # or the number of outputs for vector leaves
    _forests: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    _n_trees: int = 0
    _sets: list[NDArray[np.uint32]] = field(default_factory=list)
    _n_set_words: int = 0

    def add_category_set(self, categories: Sequence[int] | NDArray[np.integer]) -> int:
        """Store the set of categories that go left; return its number."""
        codes = np.asarray(categories, dtype=np.int64)
        if codes.size and (codes.min() < 0 or codes.max() >= MAX_CATEGORY):
            worst = codes.min() if codes.min() < 0 else codes.max()
            raise UnsupportedModel(
                f"Category codes must be between 0 and {MAX_CATEGORY - 1}."
                f" Got {worst}. Encode the feature with small codes."
            )
        n_words = int(codes.max()) // 32 + 1 if codes.size else 0
        self._n_set_words += n_words
        if self._n_set_words > MAX_SET_WORDS:
            raise UnsupportedModel(
                "The category sets of a model may take at most 128 MB."
                " Encode the categorical features with small codes."
            )
        words = np.zeros(n_words, dtype=np.uint32)
        np.bitwise_or.at(words, codes // 32, np.uint32(1) << (codes % 32).astype(np.uint32))
        self._sets.append(words)
        return len(self._sets) - 1

    def add_category_sets(self, trees: TreeArrays) -> int:
        """Store the sets of other trees, in their order; return the number of the first one."""
        first = len(self._sets)
        for number in range(len(trees.set_offset) - 1):
            self.add_category_set(trees.categories_in([number]))
        return first

    def add_tree(self, *, left: ArrayLike, output: int, **columns: Any) -> None:
        """Add one tree; `output` is that of the tree, all else is as in `add_forest`."""
        left = np.asarray(left, dtype=np.int64)
        self.add_forest(sizes=[len(left)], output=[output], left=left, **columns)

    def add_forest(
        self,
        *,
        sizes: ArrayLike,
        output: ArrayLike,
        feature: ArrayLike,
        threshold: ArrayLike,
        left: ArrayLike,
        right: ArrayLike,
        flags: ArrayLike,
        value: ArrayLike,
        source: ArrayLike | None = None,
        category_set: ArrayLike | None = None,
        swap: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add trees whose nodes lie one after another, in any order with the root first.

        Parameters
        ----------
        sizes, output : int (n_trees,)
            Number of nodes of each tree; output that it adds to, or -1 for vector leaves.
        feature, threshold : (n_nodes,)
            The tests in canonical form (left iff x < threshold); anything at leaves.
        left, right : int (n_nodes,)
            Children, numbered within their tree; both negative at a leaf.
        flags : int (n_nodes,)
            MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL, …; anything at leaves.
        value : float (n_nodes,) or (n_nodes, leaf_width)
            Leaf values; anything at inner nodes.
        source : int (n_nodes,), optional
            The library's own number of each leaf; by default that of its node in its tree.
        category_set : int (n_nodes,), optional
            What `add_category_set` returned for categorical nodes, -1 elsewhere.
        swap : bool (n_nodes,), optional
            Nodes whose canonical test answers the other way round than the library's: the children
            change sides, and so does the direction of missing values.
        """
        given = {"sizes": sizes, "output": output, "feature": feature, "threshold": threshold}
        given |= {"left": left, "right": right, "flags": flags}
        size = np.asarray(sizes, dtype=np.int64)
        n_nodes = int(size.sum())
        if source is None:
            source = np.arange(n_nodes) - np.repeat(np.cumsum(size) - size, size)
        given["source"] = source
        given["category_set"] = np.full(n_nodes, -1) if category_set is None else category_set
        forest = {name: np.asarray(given[name], dtype) for name, dtype in _DTYPES.items()}
        values = np.asarray(value, dtype=np.float64)
        forest["value"] = values.reshape(n_nodes, values.size // max(n_nodes, 1))
        if n_nodes and forest["value"].shape[1] != self.leaf_width:
            raise BrokenModelFile(
                f"Tree {self._n_trees}: leaf values must have width {self.leaf_width}."
                f" Got {forest['value'].shape[1]}."
            )
        for name in list(_DTYPES)[2:]:
            if forest[name].shape != (n_nodes,):
                raise BrokenModelFile(
                    f"Tree {self._n_trees}: array '{name}' must have one entry per node"
                    f" ({n_nodes}). Got shape {forest[name].shape}."
                )
        if swap is not None:
            sides = forest["left"], forest["right"]
            forest["left"], forest["right"] = np.where(swap, sides[::-1], sides)
            forest["flags"] = forest["flags"] ^ np.where(swap, MISSING_LEFT, 0).astype(np.uint8)
        self._forests.append(forest)
        self._n_trees += len(size)

    def finish(self) -> TreeArrays:
        """Return the canonical arrays of all trees added so far."""
        if self._n_trees == 0:
            raise UnsupportedModel("A model must have at least one tree. Got none. Train it first.")

        def joined(name: str) -> Any:
            parts = [forest[name] for forest in self._forests]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        walk = _walk(joined("sizes"), joined("left"), joined("right"))
        order, inner = walk.order, walk.inner
        flags = np.where(inner, joined("flags")[order], 0).astype(np.uint8)
        numeric = inner & ((flags & CATEGORICAL) == 0)
        sets, category_set = self._sets_in_use(
            np.where(inner & ~numeric, joined("category_set")[order], -1)
        )
        offsets = np.cumsum([0, *(len(words) for words in sets)])
        return TreeArrays(
            root=walk.root.astype(np.int32),
            feature=_int32(np.where(inner, joined("feature")[order], -1), "feature index"),
            threshold=np.where(numeric, joined("threshold")[order], 0.0),
            left=walk.left.astype(np.int32),
            right=walk.right.astype(np.int32),
            flags=flags,
            category_set=category_set,
            set_offset=offsets.astype(np.int64),
            set_words=np.concatenate([np.zeros(0, np.uint32), *sets]),
            leaf=np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32),
            leaf_value=np.ascontiguousarray(joined("value")[order[~inner]], dtype=np.float64),
            leaf_source=_int32(joined("source")[order[~inner]], "leaf number"),
            tree_output=_int32(joined("output"), "output"),
        )

    def _sets_in_use(self, numbers: IntArray) -> tuple[list[NDArray[np.uint32]], NDArray[np.int32]]:
        """Sets that reachable nodes test, in the order of these nodes, and their new numbers.

        The same model then has the same arrays, however its sets were added.
        """
        known = (numbers >= 0) & (numbers < len(self._sets))
        used, first = np.unique(numbers[known], return_index=True)
        used = used[np.argsort(first)]
        renumbered = np.full(len(self._sets), -1, dtype=np.int32)
        renumbered[used] = np.arange(len(used), dtype=np.int32)
        category_set = np.full(len(numbers), -1, dtype=np.int32)
        category_set[known] = renumbered[numbers[known]]
        return [self._sets[number] for number in used], category_set


@dataclass(slots=True)
class _Walk:
    """Reachable nodes of all trees in preorder."""

    root: IntArray  # first new node of each tree, and their number
    order: IntArray  # old number (over all trees) of each new node
    inner: NDArray[np.bool_]  # per new node
    left: IntArray  # new numbers, -1 at leaves
    right: IntArray


def _walk(sizes: IntArray, left: IntArray, right: IntArray) -> _Walk:
    """Visit every tree from its root, level by level; refuse anything that is not a tree."""
    if np.any(sizes < 1):
        tree = int(np.flatnonzero(sizes < 1)[0])
        raise BrokenModelFile(f"Tree {tree} must have at least one node. Got an empty tree.")
    first = np.concatenate([[0], np.cumsum(sizes)])
    levels = _levels(first, left, right)
    # Subtree sizes from the deepest level up, then preorder positions from the roots down.
    size = np.zeros(first[-1], dtype=np.int64)
    for nodes, left_nodes, right_nodes in reversed(levels):
        size[nodes] = 1
        parents = nodes[left[nodes] >= 0]
        size[parents] += size[left_nodes] + size[right_nodes]
    root = np.concatenate([[0], np.cumsum(size[first[:-1]])])
    if root[-1] >= 2**31 - 1:
        raise UnsupportedModel(f"A model may have at most 2**31 - 2 nodes. Got {root[-1]}.")
    position = np.zeros(first[-1], dtype=np.int64)
    position[first[:-1]] = root[:-1]
    order = np.empty(root[-1], dtype=np.int64)
    new_left = np.full(root[-1], -1, dtype=np.int64)
    new_right = np.full(root[-1], -1, dtype=np.int64)
    for nodes, left_nodes, right_nodes in levels:
        order[position[nodes]] = nodes
        parents = position[nodes[left[nodes] >= 0]]
        position[left_nodes] = parents + 1
        position[right_nodes] = parents + 1 + size[left_nodes]
        new_left[parents] = position[left_nodes]
        new_right[parents] = position[right_nodes]
    return _Walk(root=root, order=order, inner=new_left >= 0, left=new_left, right=new_right)


def _levels(
    first: IntArray, left: IntArray, right: IntArray
) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Nodes of each level over all trees, with the children of the inner ones among them."""
    visit = np.full(first[-1], -1, dtype=np.int64)
    nodes, tree = first[:-1], np.arange(len(first) - 1)
    visit[nodes] = 0
    n_visited = len(nodes)
    levels: list[tuple[IntArray, IntArray, IntArray]] = []
    while len(nodes):
        if len(levels) > MAX_DEPTH:
            raise UnsupportedModel(f"Tree {tree[0]} is deeper than {MAX_DEPTH} levels.")
        here_left, here_right = left[nodes], right[nodes]
        inner = (here_left >= 0) | (here_right >= 0)
        parents, owner = nodes[inner], tree[inner]
        shift, n = first[owner], first[owner + 1] - first[owner]
        bad = (here_left[inner] < 0) | (here_left[inner] >= n)
        bad |= (here_right[inner] < 0) | (here_right[inner] >= n)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            raise BrokenModelFile(
                f"Tree {owner[at]}, node {parents[at] - shift[at]}: children must be between 0 and"
                f" {n[at] - 1}. Got {left[parents[at]]} and {right[parents[at]]}."
                " The model file is damaged."
            )
        left_nodes, right_nodes = here_left[inner] + shift, here_right[inner] + shift
        levels.append((nodes, left_nodes, right_nodes))
        nodes, tree = np.concatenate([left_nodes, right_nodes]), np.concatenate([owner, owner])
        # Sound: a node reached before has a number already, and of two visits on this level the
        # later one overwrites the number of the first; either would be a cycle or a shared node.
        numbers = np.arange(n_visited, n_visited + len(nodes))
        twice = visit[nodes] >= 0
        visit[nodes] = numbers
        n_visited += len(nodes)
        twice |= visit[nodes] != numbers
        if twice.any():
            at = int(np.flatnonzero(twice)[0])
            raise BrokenModelFile(
                f"Tree {tree[at]}, node {nodes[at] - first[tree[at]]} is reached twice: a tree must"
                " have no cycles and no shared nodes. The model file is damaged."
            )
    return levels


def _int32(values: NDArray[np.generic], what: str) -> NDArray[np.int32]:
    """Narrow to int32, refusing what does not fit rather than wrapping it."""
    small = values.astype(np.int32)
    if not np.array_equal(small, values):
        raise BrokenModelFile(f"A {what} is out of range. The model file is damaged.")
    return small
