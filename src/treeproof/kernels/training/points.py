"""Points in cells, walked down trees."""

import numpy as np

from treeproof.kernels.core.compiler import kernel

HIGH, IS_LEFT = 1, 2


@kernel
def leaves_at(tests, cells, leaves):
    """Leaf of every tree at points in cells.

    tests   trees over runs of cells, as `Tests` of the exact engine
    cells   int32 (n_rows, n_features)
    leaves  int32 (n_rows, n_trees)     out: rows of the leaf values
    """
    trees = tests.trees
    for row in range(len(cells)):
        for tree in range(len(trees.tree_output)):
            node = np.int64(trees.root[tree])
            while trees.feature[node] >= 0:
                cell = cells[row, trees.feature[node]]
                run = tests.run_start[node]
                while tests.runs[run, HIGH] < cell:
                    run += 1
                node = node + 1 if tests.runs[run, IS_LEFT] else np.int64(trees.right[node])
            leaves[row, tree] = trees.leaf[node]
