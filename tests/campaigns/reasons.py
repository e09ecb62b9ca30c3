"""Many random questions about reasons, each held against the enumeration of all sets of features.

Run ``python -m tests.campaigns.reasons --count 6000 [--first SEED]``; it prints what was compared.
"""

import argparse
from collections import Counter

import numpy as np

from tests.oracle.reason_checks import check_reasons
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.query.query import Query
from treeproof.search.reasons import Wanted, find_reasons

SIZES = Sizes(trees=5, depth=3, features=4, rows=2)


def random_question(seed: int) -> tuple[Query, Wanted]:
    """A random model with rows, and random wishes: weights, groups, what to use, how many."""
    rng = np.random.default_rng(seed)
    ask = "ball" if rng.random() < 0.3 else "box"
    query = random_case(rng, SIZES, ask=ask, own_labels=bool(rng.random() < 0.8)).query  # type: ignore[arg-type]
    n = query.rows.shape[1]
    groups: tuple[tuple[int, ...], ...] = ()
    if n > 1 and rng.random() < 0.4:
        order = rng.permutation(n)
        cut = int(rng.integers(1, n + 1))
        parts = [order[:cut], order[cut:]] if rng.random() < 0.5 else [order[:cut]]
        groups = tuple(tuple(sorted(part.tolist())) for part in parts if len(part))
    use = np.zeros(n)
    n_changes = 0
    if rng.random() < 0.4:
        use = rng.choice(3, size=n, p=[0.6, 0.2, 0.2])
        for group in groups:
            use[list(group)] = use[group[0]]
    elif rng.random() < 0.7:
        n_changes = int(rng.choice([1, 2, 1000]))
    weights = np.ones(n) if rng.random() < 0.6 else rng.integers(1, 4, size=n).astype(float)
    return query, Wanted(
        weights=weights,
        always=tuple(np.flatnonzero(use == 1).tolist()),
        never=tuple(np.flatnonzero(use == 2).tolist()),
        groups=groups,
        minimum=bool(rng.random() < 0.5),
        n_sets=int(rng.choice([1, 1, 2, 1000])),
        n_changes=n_changes,
        intervals=bool(rng.random() < 0.5),
    )


def main() -> None:
    """Ask and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        query, wanted = random_question(seed)
        found = find_reasons(query, wanted, Budget())
        try:
            n_rows, n_open = check_reasons(query, wanted, found)
        except AssertionError as error:
            raise SystemExit(f"seed {seed}: {error}") from error
        trees = query.ensemble
        counts.update(
            models=1,
            rows=n_rows,
            rows_with_near_ties=n_open,
            sets=sum(map(len, found.sets)),
            changes=sum(map(len, found.changes)),
            intervals=0 if found.intervals is None else sum(map(len, found.intervals)),
            with_missing=int(bool(np.isnan(query.rows).any())),
            with_categories=int(bool(trees.is_categorical.any())),
            with_groups=int(bool(wanted.groups)),
            with_weights=int(bool(np.any(wanted.weights != 1.0))),
            with_scores=int(not trees.classes),
            with_many_classes=int(trees.n_outputs > 1),
        )
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
