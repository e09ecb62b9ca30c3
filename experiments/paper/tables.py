"""The paper's tables: bounds and times of all methods, with and without paths, and the data."""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from experiments.paper import measuring
from experiments.paper.measuring import Budget, Measured
from experiments.paper.pages import Page, seconds_text, table
from experiments.paper.printed import DATASETS
from experiments.paper.subjects import WHY, Subject, arrays, subject

NOTE = (
    "Each cell has our figure and, in brackets, the paper's. Radii are averages over rows that the"
    " model gets right; times are seconds of the processor per row, one thread. `exact` has no"
    " counterpart in the paper."
)
EQUAL = (
    "Every method of a line was asked about the same rows, and its radius is the average over all"
    " of them. A row that a method did not finish, or did not come to in its time, is open and"
    " counts with the bounds that it has, so the average lies between the two figures given, or"
    " above the one. Which rows were open is listed below; `{kind}.csv` has every row."
)
TITLES = {"natural": "Table 1: natural models", "robust": "Table 2: robust models"}


@dataclass(frozen=True)
class Line:
    """A model of Table 1 or 2 with the answers of all methods."""

    asked: Subject
    methods: dict[str, Measured]

    @property
    def equal(self) -> "Line":
        """The same line over the rows that all methods were asked about."""
        numbers = reduce(np.intersect1d, (found.number for found in self.methods.values()))
        return Line(self.asked, {name: one.at(numbers) for name, one in self.methods.items()})

    @property
    def name(self) -> str:
        """The data, and whether the model is ours."""
        return self.asked.dataset + ("" if self.asked.is_authors else " (ours)")

    def printed_share(self) -> str:
        """The paper's ratio of its bound to the radius."""
        return f"{self.asked.printed.ours[0] / self.asked.printed.milp[0]:.2f}"


def bounds(kind: str, names: list[str], budget: Budget) -> Page:
    """Table 1 (natural) or Table 2 (robust)."""
    lines = [line_of(subject(name, kind), budget) for name in names]
    equal = [line.equal for line in lines]
    parts = [NOTE, "## All methods, on the same rows", EQUAL.format(kind=kind), equal_rows(equal)]
    parts += ["### Rows that were not finished", open_rows(equal), agreement(equal)]
    parts += ["## The two quick methods, on all rows", all_rows(lines), reasons(names)]
    missing = [name for name in DATASETS if name not in names]
    if missing:
        again = f"`python -m experiments.paper {kind} --data {','.join(missing)}`"
        parts.append(f"Not asked for this page: {', '.join(missing)} ({again} asks them).")
    return Page(TITLES[kind], parts, csv=row_by_row(equal))


def line_of(asked: Subject, budget: Budget) -> Line:
    printed = asked.printed
    return Line(
        asked,
        {
            "attack": measuring.hard_label(asked, budget),
            "MILP": measuring.milp(asked, budget),
            "LP": measuring.lp(asked, budget),
            "multi-level": measuring.multilevel(asked, budget, printed.clique_size, printed.levels),
            "exact": measuring.exact(asked, budget),
        },
    )


def equal_rows(lines: list[Line]) -> str:
    cells = []
    for line in lines:
        printed, found = line.asked.printed, line.methods
        cells.append(
            [
                line.name,
                f"{len(found['exact'])}",
                *pair(found["attack"], "upper", printed.attack),
                *pair(found["MILP"], "upper", printed.milp),
                *pair(found["LP"], "lower", printed.lp),
                f"{printed.clique_size}/{printed.levels}",
                *pair(found["multi-level"], "lower", printed.ours),
                found["exact"].text("upper"),
                seconds_text(found["exact"].seconds),
                f"{share(found['multi-level'], found['exact'])} ({line.printed_share()})",
            ]
        )
    columns = (
        "data", "rows", "attack r", "s", "MILP r*", "s", "LP r", "s", "T/L", "multi-level r", "s",
        "exact r*", "s", "multi-level / r*",
    )  # fmt: skip
    return table(columns, cells)


def all_rows(lines: list[Line]) -> str:
    cells = []
    for line in lines:
        printed, found = line.asked.printed, line.methods
        both = np.intersect1d(found["exact"].number, found["multi-level"].number)
        levels, closed = found["multi-level"].at(both), found["exact"].at(both)
        cells.append(
            [
                line.name,
                f"{len(closed)}",
                *pair(levels, "lower", printed.ours),
                f"{closed.text('upper')} ({printed.milp[0]:g})",
                seconds_text(closed.seconds),
                f"{share(levels, closed)} ({line.printed_share()})",
            ]
        )
    columns = ("data", "rows", "multi-level r", "s", "exact r*", "s", "multi-level / r*")
    return table(columns, cells)


def open_rows(lines: list[Line]) -> str:
    """Per model and method, which rows stayed open, after how long, and with which bounds."""
    words = []
    for line in lines:
        for name, found in line.methods.items():
            left = found.at(found.number[found.is_open])
            tried = left.at(left.number[np.isfinite(left.seconds)])
            each = [
                f"{row} ({low:.4g} to {'∞' if np.isinf(high) else f'{high:.4g}'}, {spent:.0f} s)"
                for row, low, high, spent in zip(
                    tried.number, tried.lower, tried.upper, tried.seconds, strict=True
                )
            ]
            if len(tried) < len(left):
                each.append(f"{len(left) - len(tried)} rows that it did not come to")
            if each:
                words.append(f"* {line.name}, {name}: {', '.join(each)}.")
    return "\n".join(words) if words else "None: every method finished every row."


def agreement(lines: list[Line]) -> str:
    """How often MILP and the exact engine closed the same row, and whether they agree."""
    n_rows = n_different = n_outside = 0
    for line in lines:
        closed, programs = line.methods["exact"].closed(), line.methods["MILP"].closed()
        both = np.intersect1d(closed.number, programs.number)
        n_rows += len(both)
        n_different += int(np.sum(closed.at(both).upper != programs.at(both).upper))
        for found in line.methods.values():
            one = found.at(closed.number)
            truth = closed.at(one.number).upper
            n_outside += int(np.sum((one.lower > truth) | (one.upper < truth)))
    return (
        f"MILP and `exact` both closed {n_rows:,} of these rows; their radii differ on"
        f" {n_different:,}. Bounds of any method that exclude the exact radius: {n_outside:,}."
    )


def row_by_row(lines: list[Line]) -> list[list[str]]:
    rows = [["data", "row", "method", "lower", "upper", "seconds", "open"]]
    for line in lines:
        for name, found in line.methods.items():
            columns = (found.number, found.lower, found.upper, found.seconds, found.is_open)
            rows += [
                [line.asked.dataset, f"{row}", name, f"{low!r}", f"{high!r}", f"{s:.3g}", f"{left}"]
                for row, low, high, s, left in zip(*(c.tolist() for c in columns), strict=True)
            ]
    return rows


def paths(kind: str, names: list[str], budget: Budget) -> Page:
    """The two tables with dynamic programming (appendix B)."""
    lines = []
    for name in names:
        asked = subject(name, kind)
        T, L, radius, seconds = asked.printed.dp
        closed = measuring.exact(asked, budget)
        levels = measuring.multilevel(asked, budget, T, L, "path")
        plain = measuring.multilevel(asked, budget, T, L)
        both = reduce(np.intersect1d, (closed.number, levels.number, plain.number))
        closed, levels, plain = closed.at(both), levels.at(both), plain.at(both)
        lines.append(
            [
                name + ("" if asked.is_authors else " (ours)"),
                f"{len(both)}",
                f"{T}/{L}",
                *pair(levels, "lower", (radius, seconds)),
                f"{share(levels, closed)} ({radius / asked.printed.milp[0]:.2f})",
                plain.text("lower"),
                seconds_text(plain.seconds),
            ]
        )
    columns = ("data", "rows", "T/L", "with paths r", "s", "share of r*", "sums alone r", "s")
    title = f"Appendix B: {kind} models, last level by dynamic programming"
    note = NOTE + " All figures of a line are over the same rows."
    return Page(title, [note, table(columns, lines), reasons(names)])


def data(names: list[str], budget: Budget) -> Page:
    """Table 3 (appendix A): sizes and accuracies."""
    lines = []
    for name in names:
        printed, found = DATASETS[name], arrays(name)
        both: list[Subject] = [subject(name, kind) for kind in ("natural", "robust")]
        lines.append(
            [
                name,
                f"{len(found['X_train']):,} ({printed.n_train:,})",
                f"{len(found['X_test']):,} ({printed.n_test:,})",
                f"{found['X_test'].shape[1]} ({printed.n_features})",
                f"{printed.n_classes}",
                f"{both[0].model.ensemble.n_trees:,} ({printed.n_trees * trees_per_round(name):,})",
                f"{printed.eps:g}",
                *(
                    ("–" if asked.accuracy is None else f"{asked.accuracy:.4f}")
                    + f" ({asked.printed.accuracy:.3f})"
                    + ("" if asked.is_authors else ", our model")
                    for asked in both
                ),
            ]
        )
    columns = (
        "data", "training rows", "test rows", "features", "classes", "trees", "robust eps",
        "accuracy, natural", "accuracy, robust",
    )  # fmt: skip
    note = (
        "Ours, in brackets the paper's. Trees count those of all classes. Accuracies are on the"
        " whole test part of the data here."
    )
    return Page(
        "Table 3: data, parameters, accuracies", [note, table(columns, lines), reasons(names)]
    )


def trees_per_round(name: str) -> int:
    return DATASETS[name].n_classes if DATASETS[name].n_classes > 2 else 1


def pair(found: Measured, bound: str, printed: tuple[float, float]) -> tuple[str, str]:
    return (
        f"{found.text(bound)} ({printed[0]:g})",
        f"{seconds_text(found.seconds)} ({printed[1]:g})",
    )


def share(levels: Measured, closed: Measured) -> str:
    """Mean lower bound as a share of the mean exact radius, over the same rows."""
    return f"{levels.lower.mean() / closed.upper.mean():.2f}" if len(closed) else "–"


def reasons(names: list[str]) -> str:
    """Why figures differ from the printed ones."""
    words = ["Why figures differ, beside another machine and other solvers:", ""]
    words += [f"* {name}: {WHY[name]}" for name in names]
    words.append(
        "* Times of the paper are from another machine, its MILP from a commercial solver (Gurobi);"
        " ours is HiGHS on the trees restricted to a ball."
    )
    return "\n".join(words)
