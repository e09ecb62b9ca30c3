"""Points in cells, walked down trees."""

import numpy as np

from treeproof.kernels.core.cells import NEXT, NOTHING, TESTED, sends_left
from treeproof.kernels.core.compiler import ONE, kernel


@kernel
def leaves_at(forest, cells, leaves):
    """Leaf of every tree at points in cells.

    cells   int32 (n_rows, n_features)
    leaves  int32 (n_rows, n_trees)     out: rows of the leaf values
    """
    trees, nodes = forest.trees, forest.space.nodes
    for row in range(len(cells)):
        for tree in range(len(trees.tree_output)):
            node = np.uint64(trees.root[tree])
            while nodes[node, TESTED] != NOTHING:
                goes_left = sends_left(forest.space, node, cells[row, nodes[node, TESTED]])
                node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])
            leaves[row, tree] = nodes[node, NEXT]
