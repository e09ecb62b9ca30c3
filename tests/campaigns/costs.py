"""Many random questions with costs and domains against the truth by enumeration.

Run ``python -m tests.campaigns.costs [--first N] [--cases N]``: prints how many answers were
compared, and every case that is wrong.
"""

import argparse
import sys
import time

from tests.oracle.priced_answers import EXACT, WithinRules, compare
from treeproof.errors import TreeproofError


def main() -> None:
    """Compare cases until the number that is asked for is reached."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--rules", action="store_true", help="domains have relations, too")
    options = parser.parse_args()
    engine = WithinRules() if options.rules else EXACT
    n_compared, wrong, began = 0, [], time.monotonic()
    for seed in range(options.first, options.first + options.cases):
        if seed > options.first and seed % 500 == 0:
            print(f"{n_compared} answers, {len(wrong)} wrong, before seed {seed}", flush=True)
        try:
            n_compared += compare(seed, engine, with_rules=options.rules)
        except (AssertionError, TreeproofError) as error:
            wrong.append(seed)
            print(f"seed {seed}: {type(error).__name__} {str(error)[:300]}", flush=True)
    seconds = time.monotonic() - began
    print(f"{n_compared} answers of {options.cases} cases, {len(wrong)} wrong, {seconds:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
