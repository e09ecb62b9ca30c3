"""Which trees go into one group, when position does not decide it.

Groups of every level are consecutive blocks of one order, so they are nested, and bounds only fall
from level to level.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel, kernel


class Sharing(NamedTuple):
    """Scratch of `order_by_sharing`.

    order  int64 (n_trees,)   out: parts in their new order
    """

    order: np.ndarray


@kernel
def new_sharing(is_used, n_trees, n_leaves, n_features):
    """Scratch of the right size; empty when it is not used."""
    n = n_trees if is_used else 0
    return Sharing(np.empty(n, dtype=np.int64))


@borrowing_kernel
def order_by_sharing(parts, n_parts, clique_size, sharing):
    """Parts that can move, ordered so that blocks of `clique_size` share features.

    Two trees restrict each other only through features that both test inside the box.
    """
    n = 0
    for part in range(n_parts):
        if parts.part_start[part + 1] - parts.part_start[part] > 1:
            sharing.order[n] = part
            n += 1
    return n
