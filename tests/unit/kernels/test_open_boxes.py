"""The heap of open boxes keeps every box, however often it grows."""

import numpy as np

from tests.kernels import called
from treeproof.kernels.exact import open_boxes


def test_boxes_leave_in_the_order_of_their_bounds_and_none_is_lost() -> None:
    new, with_places, add_place, take_place, top_bound = (
        called(getattr(open_boxes, name))
        for name in ("new_open_boxes", "with_places", "add_place", "take_place", "top_bound")
    )
    rng = np.random.default_rng(0)
    boxes, waiting = new(1, 1), []
    for number in range(3000):
        boxes, has_room = with_places(boxes, 1e9)
        assert has_room
        # Two at once fill the arrays; after the next one has left, they grow with a place free.
        for part in range(int(rng.integers(3)) if waiting else 2):
            bound = float(rng.integers(50))
            boxes.box[add_place(boxes, bound), 0] = 2 * number + part
            waiting.append((bound, 2 * number + part))
        if rng.random() < 0.9:
            assert top_bound(boxes) == max(waiting)[0]
            taken = int(boxes.box[take_place(boxes), 0])
            entry = next(entry for entry in waiting if entry[1] == taken)
            assert entry[0] == max(waiting)[0]
            waiting.remove(entry)
    assert boxes.size[0] == len(waiting) > 100
