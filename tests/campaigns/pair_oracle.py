"""Many questions about pairs of inputs of small models, each compared with all pairs of cells.

    python -m tests.campaigns.pair_oracle --models 20000 --first 1000

Every model is known by its number. The exit status is 1 if any answer differs from the enumeration.
"""

import argparse
import sys
from collections import Counter
from typing import Any
from unittest.mock import patch

import treeproof as tp
from tests.soundness import test_property_rules as ruled
from tests.soundness.test_properties import check_case, check_rows
from tests.soundness.test_property_groups import check_groups

ASKED = ("prove", "largest_change", "score_range")


def counted(function: Any, counts: Counter[str]) -> Any:
    """The function, with its answers counted by property and verdict."""

    def ask(model: Any, *given: Any, **options: Any) -> Any:
        found = function(model, *given, **options)
        name = type(given[0]).__name__ if function.__name__ == "prove" else function.__name__
        for result in found if isinstance(found, list) else [found]:
            counts[f"{name} {getattr(result, 'verdict', 'both ends')}"] += 1
        return found

    return ask


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=1_000)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    mismatches = []
    patches = [patch.object(tp, name, counted(getattr(tp, name), counts)) for name in ASKED]
    for one in patches:
        one.start()
    for number in range(options.first, options.first + options.models):
        for check in (check_case, check_rows, check_groups, ruled.check_case, ruled.check_rows):
            try:
                check(number)
            except AssertionError as error:
                name = f"{check.__module__}.{check.__name__}"
                mismatches.append(f"model {number}, {name}: {error}")
                print(mismatches[-1], flush=True)
        if (number + 1 - options.first) % 1000 == 0:
            print(f"{number + 1 - options.first} models, {counts.total()} answers", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    print(f"{counts.total()} answers about {options.models} models: {len(mismatches)} mismatches")
    sys.exit(1 if mismatches else 0)


if __name__ == "__main__":
    main()
