"""Random questions by the million, answered by enumeration as well.

    python -m tests.campaigns.random_oracle --cases 1000000 --seed 0

A case is a random, tie-rich model with one or two rows and a random question, see
`tests.strategies`, put to one engine. Most go to the exact engine: as it is, by cliques alone, and
in turns of single nodes, which end and begin again all the time. The others go to the engines of
the registry in turn. ``--only NUMBER`` asks about that case alone. The exit status is 1 if an
answer differs from the oracle's.

With ``--targets`` all cases ask the exact engine whether a class of several is reached, see
`tests.soundness.test_exact`: of random models, or one that wins in few cells of crowded ones; by
single conditions, by sums of them, and in turns of few nodes.

With ``--record FILE`` every block of cases adds a line to the file, a later run goes on where the
last one of its seed ended, and the counts of all runs are added up.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.contract import engine_checks
from tests.contract.test_engines import MORE, NAMES, WITH_OPTIONS
from tests.soundness.test_exact import (
    ASKS,
    RIVALS,
    RIVALS_OF_FEW,
    SIZES,
    TURNS,
    check_answers,
    check_rare_target,
    target_query,
)
from tests.strategies import SMALL, random_case
from treeproof.engines import exact
from treeproof.engines.base import Budget, Engine
from treeproof.engines.registry import engine_named
from treeproof.search.radius import find_radius

BUDGET = Budget(time_limit_s=60.0)
"""A search that does not end becomes a mismatch; these models take milliseconds."""
BLOCK = 2_000
"""Cases of a line of the record."""
OTHERS = 8
"""One case of so many goes to another engine than the exact one."""


@contextmanager
def settings(**values: Any) -> Iterator[None]:
    """The exact engine with other turns."""
    with ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(mock.patch.object(exact, name, value))
        yield


WAYS: dict[str, dict[str, int]] = {
    "exact": {},
    "exact, cliques alone": {"PATIENCE": 0, "CLIQUE_PATIENCE": 2**40},
    "exact, turns of few nodes": {
        "PATIENCE": 1,
        "FOREST_PATIENCE": 1,
        "CLIQUE_PATIENCE": 1,
        "TARGET_PATIENCE": 1,
        "MORE_PATIENCE": 2,
    },
}
ENGINES: dict[str, Engine] = MORE | {
    name: WITH_OPTIONS.get(name) or engine_named(name) for name in NAMES if name != "exact"
}


def ask(seed: int, number: int) -> str:
    """Ask about one case; returns the engine and the kind of question, or why it was left out."""
    rng = np.random.default_rng([seed, number])
    kind = ASKS[number % len(ASKS)]
    turn = number // len(ASKS)
    name, sizes = list(WAYS)[turn % len(WAYS)], SIZES[turn // len(WAYS) % len(SIZES)]
    engine: Engine = exact.ExactEngine()
    if turn % OTHERS == 0:
        name, sizes = list(ENGINES)[turn // OTHERS % len(ENGINES)], SMALL
        engine = ENGINES[name]
    case = random_case(rng, sizes, ask=kind)
    query = case.query
    if (refusal := engine.refusal(query)) is not None:
        return f"{name}: refused, {refusal[:50]!r}"
    with settings(**WAYS.get(name, {})):
        if kind == "radius":
            found = find_radius(engine, query, BUDGET)
        else:
            found = engine.verify(query, BUDGET)
    check = engine_checks.check_radius if kind == "radius" else engine_checks.check_verdict
    for row in range(len(query)):
        check(engine, query, row, found)
    return f"{name}: {kind}, {type(case.goal).__name__}"


TARGET_SIZES = (SMALL, RIVALS_OF_FEW, RIVALS)


def ask_target(seed: int, number: int) -> str:
    """Ask whether a class is reached; returns how it was searched for, and the kind of question."""
    rng = np.random.default_rng([seed, number])
    kind = ASKS[number % len(ASKS)]
    turn = number // len(ASKS)
    if turn % 2 == 0:
        way = turn // 2 % len(TURNS)
        is_split = check_rare_target(rng, 3 * way + number % 3)
        return f"rare target, turns {way}{', split' if is_split else ''}: {kind}"
    way = turn // 2 % (len(TURNS) + 1)
    query = target_query(rng, TARGET_SIZES[turn // 8 % len(TARGET_SIZES)], kind, 3)
    # The last way is by sums alone.
    changes = {"solve_targets": exact.solve_batch} if way == len(TURNS) else TURNS[way]
    with settings(**changes):
        check_answers(query, kind)
    return f"target, {'sums' if way == len(TURNS) else f'turns {way}'}: {kind}"


def run(
    cases: range, seed: int, show: bool = False, ask: Callable[[int, int], str] = ask
) -> tuple[Counter[str], list[str]]:
    """Ask about many cases; returns what was asked how often, and the mismatches."""
    asked: Counter[str] = Counter()
    wrong: list[str] = []
    said = time.perf_counter()
    for number in cases:
        try:
            asked[ask(seed, number)] += 1
        except AssertionError as error:
            wrong.append(f"case {number} of seed {seed}: {error}")
            if show:
                print(wrong[-1], flush=True)
        if show and time.perf_counter() - said > 60.0:
            said = time.perf_counter()
            print(f"{sum(asked.values()):,} cases, {len(wrong)} mismatches", file=sys.stderr)
    return asked, wrong


def recorded(path: Path) -> list[dict[str, Any]]:
    """The blocks that were asked about before."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_on_record(
    path: Path, seed: int, n_cases: int, ask: Callable[[int, int], str] = ask
) -> tuple[Counter[str], list[str]]:
    """Go on where the record of a seed ends, block by block; returns the counts of all blocks."""
    blocks = recorded(path)
    first = max((int(block["end"]) for block in blocks if block["seed"] == seed), default=0)
    for start in range(first, first + n_cases, BLOCK):
        end = min(start + BLOCK, first + n_cases)
        asked, wrong = run(range(start, end), seed, show=True, ask=ask)
        blocks.append({"seed": seed, "first": start, "end": end, "asked": asked, "wrong": wrong})
        with path.open("a") as file:
            file.write(json.dumps(blocks[-1]) + "\n")
    asked = Counter()
    for block in blocks:
        asked.update(block["asked"])
    return asked, [line for block in blocks for line in block["wrong"]]


def main() -> int:
    """Run a campaign from the shell."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.random_oracle")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="ask about the case of this number alone")
    parser.add_argument("--record", type=Path, help="go on where this file ends, and add to it")
    parser.add_argument("--targets", action="store_true", help="ask about targets of many classes")
    options = parser.parse_args()
    question = ask_target if options.targets else ask
    if options.record is not None:
        asked, wrong = run_on_record(options.record, options.seed, options.cases, question)
    else:
        cases = range(options.first, options.first + options.cases)
        if options.only is not None:
            cases = range(options.only, options.only + 1)
        asked, wrong = run(cases, options.seed, show=True, ask=question)
    for name, count in sorted(asked.items()):
        print(f"{name}: {count:,}")
    n_refused = sum(count for name, count in asked.items() if ": refused" in name)
    print(f"{sum(asked.values()) - n_refused:,} cases answered, {n_refused:,} refused,", end=" ")
    print(f"{len(wrong):,} mismatches")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
