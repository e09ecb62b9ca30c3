"""Many questions about trained models of all four libraries, each answered by the library as well.

    python -m tests.campaigns.library_oracle --questions 500000 --seed 0

Every model is known by the seed and its number: ``--only NUMBER`` asks about that one alone. The
exit status is 1 if any answer differs from what the library says.
"""

import argparse
import os
import sys
import threading
import time

import numpy as np

from tests.campaigns.asking import Asker, Tally
from tests.campaigns.training import NotTrained, trained_model
from tests.oracle.library_truth import Table
from treeproof.errors import UnsupportedModel

LIBRARIES = ("xgboost", "lightgbm", "catboost", "sklearn")
LARGEST_TABLE = 3_000
LONGEST_S = 600.0
"""The first question to an engine compiles it; every other one takes seconds at most."""


def ask_about(
    seed: int,
    number: int,
    library: str,
    tally: Tally,
    *,
    n_series: int = 1,
    n_rows: int | None = None,
    engines: bool = True,
) -> None:
    """Train one model and ask series of questions about it.

    Parameters
    ----------
    seed, number : int
        What the model and the questions are made from.
    library : str
        Whose model.
    tally : Tally
        Receives counts and mismatches.
    n_series, n_rows : int
        How many series, and how many rows for each; by default some number that says whether a
        search has learned from the rows before.
    engines : bool
        Whether other engines than the exact one are asked as well.
    """
    random = np.random.default_rng([seed, number, LIBRARIES.index(library)])
    try:
        model = trained_model(random, library)
    except NotTrained as error:
        tally.skipped[f"{library} refused the data ({str(error)[:60]!r})"] += 1
        return
    if Table.size(model) > LARGEST_TABLE:
        tally.skipped["too many cells"] += 1
        return
    try:
        asker = Asker(random, number, model, tally)
    except UnsupportedModel as error:
        tally.skipped[f"{library}: {str(error)[:60]!r}"] += 1
        return
    tally.models[f"{library} {model.kind}"] += 1
    asker.ask(n_series, n_rows or int(random.choice([6, 12, 24])), engines=engines)


def run(
    questions: int,
    seed: int,
    libraries: tuple[str, ...] = LIBRARIES,
    *,
    show: int = 0,
    tally: Tally | None = None,
) -> Tally:
    """Ask until so many questions are asked, the libraries in turns.

    Parameters
    ----------
    questions : int
        How many rows to ask about, at least.
    seed : int
        Of the models.
    libraries : tuple of str
        Whose models.
    show : int
        Print so many mismatches as they are found, and where the run is.
    tally : Tally, optional
        Receives counts and mismatches; a new one by default.
    """
    tally, number, shown = tally or Tally(), 0, 0
    start = said = time.perf_counter()
    while tally.n_questions < questions:
        ask_about(seed, number, libraries[number % len(libraries)], tally)
        number += 1
        for mismatch in tally.mismatches[shown:show]:
            print(mismatch, flush=True)
        shown = len(tally.mismatches)
        if show and time.perf_counter() - said > 60.0:
            said = time.perf_counter()
            done = f"{tally.n_questions:,} questions about {sum(tally.models.values()):,} models"
            wrong = f"{len(tally.mismatches):,} mismatches"
            print(f"{done} in {said - start:.0f} s, {wrong}", file=sys.stderr, flush=True)
    return tally


def _watch(tally: Tally) -> None:
    """End the process when treeproof does not come back, which nothing else could."""
    while True:
        time.sleep(5.0)
        asking = tally.asking
        if asking is not None and time.perf_counter() - asking[0] > LONGEST_S:
            print(asking[1], flush=True)
            os._exit(1)


def main() -> int:
    """Run a campaign from the shell."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.library_oracle")
    parser.add_argument("--questions", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", action="append", choices=LIBRARIES)
    parser.add_argument("--only", type=int, help="ask about the model of this number alone")
    parser.add_argument("--show", type=int, default=1000, help="print so many mismatches")
    options = parser.parse_args()
    libraries = tuple(options.library or LIBRARIES)
    tally = Tally()
    threading.Thread(target=_watch, args=(tally,), daemon=True).start()
    if options.only is None:
        run(options.questions, options.seed, libraries, show=options.show, tally=tally)
    else:
        ask_about(options.seed, options.only, libraries[options.only % len(libraries)], tally)
        for mismatch in tally.mismatches[: options.show]:
            print(mismatch)
    for line in tally.lines():
        print(line)
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
