"""Many random questions about reasons, each held against the enumeration of all sets of features.

Run ``python -m tests.campaigns.reasons --count 6000 [--first SEED] [--domains]``, which prints what
was compared. With ``--domains``, rows are of random domains, and evidence is checked, too.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests import random_domains
from tests.oracle.reason_checks import check_reasons
from tests.oracle.reasons import firsts
from tests.strategies import Sizes, random_case
from treeproof.checker import reasons as checker
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.query.build import build_query
from treeproof.query.perturbations import Box
from treeproof.query.query import Query
from treeproof.results.reasons import Reasons
from treeproof.search.anchors import find_anchors
from treeproof.search.reasons import Wanted, find_reasons

SIZES = Sizes(trees=5, depth=3, features=4, rows=2)


def random_question(seed: int) -> tuple[Query, Wanted]:
    """A random model with rows, and random wishes."""
    rng = np.random.default_rng(seed)
    ask = "ball" if rng.random() < 0.3 else "box"
    query = random_case(rng, SIZES, ask=ask, own_labels=bool(rng.random() < 0.8)).query  # type: ignore[arg-type]
    return query, random_wishes(rng, query.rows.shape[1])


def random_domain_question(seed: int) -> tuple[Query, Wanted, Box]:
    """The same of a model with rows of a random domain, and the domain in a box."""
    rng = np.random.default_rng(seed)
    case = random_domains.random_case(rng, kinds=("Box",))
    while case.perturbation.domain is None:
        case = random_domains.random_case(rng, kinds=("Box",))
    box, domain = case.perturbation, case.perturbation.domain
    box = Box(np.fmin(box.low, case.rows), np.fmax(box.high, case.rows), domain)
    query = build_query(case.ensemble, case.rows, None, box)
    together = [tuple(group) for group in (*domain.one_hot, *domain.at_most_one)]
    return query, random_wishes(rng, query.rows.shape[1], together), box


def random_wishes(
    rng: np.random.Generator, n: int, together: Sequence[tuple[int, ...]] = ()
) -> Wanted:
    """Weights, groups, what to use, how many; features that are `together` are used alike."""
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
        first = firsts([*groups, *together])
        use = np.array([use[first.get(feature, feature)] for feature in range(n)])
    elif rng.random() < 0.7:
        n_changes = int(rng.choice([1, 2, 1000]))
    weights = np.ones(n) if rng.random() < 0.6 else rng.integers(1, 4, size=n).astype(float)
    return Wanted(
        weights=weights,
        always=tuple(np.flatnonzero(use == 1).tolist()),
        never=tuple(np.flatnonzero(use == 2).tolist()),
        groups=groups,
        minimum=bool(rng.random() < 0.5),
        n_sets=int(rng.choice([1, 1, 2, 1000])),
        n_changes=n_changes,
        intervals=bool(rng.random() < 0.5),
    )


def check_domain_question(seed: int, *, evidence: bool) -> tuple[Query, Wanted, Reasons, int, int]:
    """Ask about rows of a random domain, and hold the answer, and its evidence, against truth."""
    query, wanted, box = random_domain_question(seed)
    found = find_anchors(ExactEngine(), query, wanted, Budget(), evidence=evidence)
    counts = check_reasons(query, wanted, found, box)
    if evidence:
        check_evidence(query, found)
    return query, wanted, found, *counts


def check_evidence(query: Query, found: Reasons) -> None:
    """Every set has evidence, and the checker accepts all of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reasons.jsonl"
        found.save(path)
        for check in checker.check_reasons(path, query.deployed or query.ensemble):
            expected = "accepted" if found.sufficient[check.row] else "claims nothing"
            assert check.status == expected, check


def main() -> None:
    """Ask and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--domains", action="store_true")
    parser.add_argument("--evidence", type=int, default=5, help="check that of one in so many")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        try:
            if options.domains:
                is_on_record = seed % options.evidence == 0
                query, wanted, found, n_rows, n_open = check_domain_question(
                    seed, evidence=is_on_record
                )
                counts.update(with_evidence=int(is_on_record))
            else:
                query, wanted = random_question(seed)
                found = find_reasons(query, wanted, Budget())
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
