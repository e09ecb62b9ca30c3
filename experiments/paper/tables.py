"""The paper's tables: bounds and times of all methods, with and without paths, and the data."""

from experiments.paper import measuring
from experiments.paper.measuring import Budget, Measured
from experiments.paper.pages import Page, seconds_text, table
from experiments.paper.printed import DATASETS
from experiments.paper.subjects import WHY, Subject, arrays, subject

NOTE = (
    "Each cell has our figure and, in brackets, the paper's. Radii are averages over the rows that"
    " the model gets right; times are seconds per row, one thread. Rows differ between methods"
    " where the slow ones ran out of time; the ratio is over the rows that both answered. `exact`"
    " has no counterpart in the paper."
)


def bounds(kind: str, names: list[str], budget: Budget) -> Page:
    """Table 1 (natural) or Table 2 (robust)."""
    lines = []
    for name in names:
        asked = subject(name, kind)
        printed = asked.printed
        closed = measuring.exact(asked, budget)
        few = Budget(min(budget.rows, 50), budget.seconds)
        programs = measuring.milp(asked, few).closed()
        relaxed = measuring.lp(asked, few)
        attacked = measuring.hard_label(asked, few)
        levels = measuring.multilevel(asked, budget, printed.clique_size, printed.levels)
        lines.append(
            [
                name + ("" if asked.is_authors else " (ours)"),
                *pair(attacked, "upper", printed.attack),
                *pair(programs, "upper", printed.milp),
                *pair(relaxed, "lower", printed.lp),
                f"{printed.clique_size}/{printed.levels}",
                *pair(levels, "lower", printed.ours),
                f"{closed.text('upper')} ({len(closed)} rows)",
                seconds_text(closed.seconds),
                f"{share(levels, closed)} ({printed.ours[0] / printed.milp[0]:.2f})",
            ]
        )
    columns = (
        "data",
        "attack r", "s", "MILP r*", "s", "LP r", "s", "T/L", "multi-level r", "s",
        "exact r*", "s", "multi-level / r*",
    )  # fmt: skip
    title = {"natural": "Table 1: natural models", "robust": "Table 2: robust models"}[kind]
    return Page(title, [NOTE, table(columns, lines), reasons(names)])


def paths(kind: str, names: list[str], budget: Budget) -> Page:
    """The two tables with dynamic programming (appendix B)."""
    lines = []
    for name in names:
        asked = subject(name, kind)
        T, L, radius, seconds = asked.printed.dp
        closed = measuring.exact(asked, budget)
        plain = measuring.multilevel(asked, budget, T, L)
        levels = measuring.multilevel(asked, budget, T, L, "path")
        both = plain.at(levels.number)
        lines.append(
            [
                name + ("" if asked.is_authors else " (ours)"),
                f"{T}/{L}",
                *pair(levels, "lower", (radius, seconds)),
                f"{share(levels, closed)} ({radius / asked.printed.milp[0]:.2f})",
                f"{both.text('lower')}",
                seconds_text(both.seconds),
            ]
        )
    columns = ("data", "T/L", "with paths r", "s", "share of r*", "sums alone r", "s")
    title = f"Appendix B: {kind} models, last level by dynamic programming"
    note = NOTE + " Sums alone are over the same rows."
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
    rows = f", {len(found)} rows" if len(found) else ""
    return (
        f"{found.text(bound)} ({printed[0]:g}{rows})",
        f"{seconds_text(found.seconds)} ({printed[1]:g})",
    )


def share(levels: Measured, closed: Measured) -> str:
    """Mean lower bound as a share of the mean exact radius, over the rows that both have."""
    if not len(levels) or not len(closed):
        return "–"
    both = closed.closed().at(levels.number)
    lower = levels.at(both.number).lower
    return f"{lower.mean() / both.upper.mean():.2f}" if len(both) else "–"


def reasons(names: list[str]) -> str:
    """Why figures differ from the printed ones."""
    words = ["Why figures differ, beside another machine and other solvers:", ""]
    words += [f"* {name}: {WHY[name]}" for name in names]
    words.append(
        "* Times of the paper are from another machine, its MILP from a commercial solver (Gurobi);"
        " ours is HiGHS on the trees restricted to a ball."
    )
    return "\n".join(words)
