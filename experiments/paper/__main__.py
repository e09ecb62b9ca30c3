"""Repeat the paper's tables and figures: ``python -m experiments.paper [PAGE ...]``.

Pages go to ``experiments/results``, or where ``--out`` says; experiments/README.md says where the
data go and what they look like. Every finished row is kept in ``experiments/.cache``, so that a run
can be stopped and goes on where it was, or be given more time for the slow methods.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from experiments.paper import figures, tables
from experiments.paper.measuring import Budget
from experiments.paper.pages import RESULTS, Page
from experiments.paper.printed import DATASETS

Make = Callable[[list[str], Budget], Page]

PAGES: dict[str, Make] = {
    "natural": lambda names, budget: tables.bounds("natural", names, budget),
    "robust": lambda names, budget: tables.bounds("robust", names, budget),
    "natural-paths": lambda names, budget: tables.paths("natural", names, budget),
    "robust-paths": lambda names, budget: tables.paths("robust", names, budget),
    "data": tables.data,
    "convergence": figures.convergence,
    "growth": figures.growth,
    "verified-accuracy": figures.verified_accuracy,
    "pixels": figures.pixels,
    "forests": figures.forests,
}


def main() -> int:
    title, _, rest = (__doc__ or "").partition(": ``")
    parser = argparse.ArgumentParser(description=f"{title}.", epilog=rest.partition("\n\n")[2])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; or all")
    parser.add_argument("--data", help="names of datasets, with commas between; by default all")
    usual = Budget()
    for name, words in (
        ("rows", "rows per model, at most"),
        ("equal", "rows over which slow methods are averaged at least, open ones included"),
        ("seconds", "processor time of one method on one model"),
        ("row-seconds", "time of one row; open rows are asked again when this is more than before"),
    ):
        value = getattr(usual, name.replace("-", "_"))
        shown = f"{words} (default: {value:g})"
        parser.add_argument(f"--{name}", type=type(value), default=value, help=shown)
    words = "folder of the pages; the results of the repository stay as they are with another one"
    parser.add_argument("--out", type=Path, default=RESULTS, help=words)
    options = parser.parse_args()
    names = options.data.split(",") if options.data else list(DATASETS)
    unknown = [page for page in options.pages if page not in PAGES]
    unknown += [name for name in names if name not in DATASETS]
    if unknown:
        parser.error(f"pages are {', '.join(PAGES)}; data {', '.join(DATASETS)}; got {unknown[0]}")
    budget = Budget(options.rows, options.equal, options.seconds, options.row_seconds)
    for page in options.pages or PAGES:
        saved = PAGES[page](names, budget).save(page, options.out)
        print(f"saved {saved}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
