"""Every engine and its peers on the same models and rows, in one table.

Run ``python -m benchmarks.scoreboard [--rows N] [--models a,b] [--cap S] [--time-limit S]``; table,
figures and picture go to ``benchmarks/results/scoreboard.md``, ``.csv`` and ``.png``, or only to
the terminal with ``--dry``. An engine, model and data of your own enter by one command:
``python -m benchmarks.scoreboard --engines exact,mine --model m.json --data rows.csv --label y
--dry``, where ``mine`` is an entry point of ``treeproof.engines``, see `treeproof.OwnEngine`.
Without a model of your own it needs the paper's data and models: TREEPROOF_PAPER_DATA, by default
../shared. With ``--tree-verification PROGRAM`` or ``--lt-attack PROGRAM`` these run live.

On every row it is required that every lower bound <= exact = milp <= every attack; a row that
breaks this ends the run. Rows that the model gets wrong need no search and are left out. A row
counts as finished when no limit stopped it and, for exact engines, the radius was closed; means and
ratios are over finished rows only. An engine is asked about rows in their order until its time for
a model (`--cap`) is used up. `lower / r*` and `upper / r*` are ratios of means over the same rows.
`exact` is the share of finished rows whose bound is the exact radius (of other tools, to the six
digits that they print). Memory is the growth of the process's peak while an engine worked.

Seconds, also those of limits, are those of the processor (processor_clock.py).

treeVerification (T and L of the paper, ten steps) and LT-attack (20 starts) were measured in
another run on a machine like this one, whose load varied; Veritas runs here, from twice
treeVerification's bound or, without one, twice the radius (30 steps, guard 1e-8, 10 s per row), and
a row counts as finished when its bracket is closed.
"""

import argparse
import csv
import gc
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchmarks.processor_clock  # before all compiled code
import numpy as np
from benchmarks.scoreboard_peers import (
    Peer,
    live_program,
    live_veritas,
    saved_lt_attack,
    saved_tree_verification,
)
from benchmarks.subjects import Subject, own_subject, subjects
from numpy.typing import NDArray

import treeproof as tp

FloatArray = NDArray[np.float64]
RESULTS = Path(__file__).parent / "results"
LIMITS = {"time limit", "node limit", "memory limit", "solver failed", "row failed"}
LEVELS = {"breast": (2, 1), "diabetes": (3, 2), "ijcnn": (2, 2), "webspam": (2, 1)}
LEVELS |= {"higgs": (4, 1), "binary": (4, 1), "covtype": (2, 3)}
MODELS = (
    "paper_breast_cancer_unrobust,paper_breast_cancer_robust,paper_diabetes_unrobust,"
    "paper_diabetes_robust,paper_ijcnn_unrobust,paper_ijcnn_robust,paper_webspam_unrobust,"
    "paper_webspam_robust,paper_higgs_robust50,paper_covtype_unrobust"
)
COLUMNS = (
    "model",
    "engine",
    "finished",
    "asked",
    "mean lower",
    "mean upper",
    "lower / r*",
    "upper / r*",
    "exact",
    "mean ms",
    "99 % ms",
    "memory MB",
)


@dataclass(frozen=True)
class Score:
    """One engine on one model; NaN or None where it does not apply."""

    model: str
    engine: str
    finished: int
    asked: int
    mean_lower: float
    mean_upper: float
    lower_ratio: float
    upper_ratio: float
    exact: float
    mean_ms: float
    p99_ms: float
    memory_mb: float

    def cells(self) -> list[str]:
        """The line as text."""

        def number(value: float, form: str) -> str:
            return "–" if not np.isfinite(value) else format(value, form)

        return [
            self.model,
            self.engine,
            str(self.finished),
            str(self.asked),
            number(self.mean_lower, ".6g"),
            number(self.mean_upper, ".6g"),
            number(self.lower_ratio, ".4f"),
            number(self.upper_ratio, ".4f"),
            number(100.0 * self.exact, ".0f") + " %" if np.isfinite(self.exact) else "–",
            number(self.mean_ms, ".4g"),
            number(self.p99_ms, ".4g"),
            number(self.memory_mb, ".0f"),
        ]


def level_of(name: str) -> tuple[int, int]:
    """T and L of the paper for a model of its own; its usual ones for all others."""
    return next((LEVELS[part] for part in name.split("_")[1:2] if part in LEVELS), (2, 1))


def engines_for(name: str, asked: list[str]) -> dict[str, tuple[str, Any]]:
    """Engines by their line in the table, with what they bound: both, lower or upper.

    Those that are asked for and not known here are those of other packages.
    """
    T, L = level_of(name)
    known = {
        "exact": ("both", "exact"),
        "milp": ("both", "milp"),
        "smt": ("both", "smt"),
        "cliques": ("both", "cliques"),
        "lp": ("lower", tp.lp()),
        "lp of the distance, whole model": ("lower", tp.lp("distance")),
        f"multilevel T={T} L={L}": ("lower", tp.multilevel(T, L)),
        "combination": ("lower", tp.combination()),
        "combination, 1000 splits": ("lower", tp.combination(1000)),
        "attack": ("upper", "attack"),
        "hard_label, 5000 queries": ("upper", tp.hard_label(5000)),
    }
    names = {line.split(",")[0].split(" ")[0] for line in known}
    return known | {other: ("bounds", other) for other in asked if other not in names}


def peak_mb() -> float:
    """Largest resident memory since the last reset; NaN where the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return float(line.split()[1]) / 1024.0
    except OSError:
        pass
    return float("nan")


def reset_peak() -> float:
    """Forget the peak so far; returns the memory in use."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return float("nan")
    return peak_mb()


def answers_of(
    subject: Subject, engine: Any, rows: NDArray[np.int64], limit: float, cap: float
) -> Any:
    """Ask about rows in order until the cap; the results of those that were asked."""
    from treeproof.results.results import Results

    X, y = subject.X[rows], subject.y[rows]
    began = time.perf_counter()
    parts = [
        tp.radius(subject.model, X[:1], y[:1], engine=engine, time_limit_s=limit, arithmetic="real")
    ]
    first = time.perf_counter() - began
    # The exact engine learns the scale of later rows from earlier ones, so it gets all at once.
    if first * len(rows) < cap or engine == "exact":
        return tp.radius(subject.model, X, y, engine=engine, time_limit_s=limit, arithmetic="real")
    while len(parts) < len(rows) and time.perf_counter() - began < cap:
        part = slice(len(parts), len(parts) + 1)
        parts.append(
            tp.radius(
                subject.model,
                X[part],
                y[part],
                engine=engine,
                time_limit_s=limit,
                arithmetic="real",
            )
        )
    return Results.join(parts)


def score(
    model: str,
    engine: str,
    bounds: str,
    truth: FloatArray,
    found: Any,
    finished: NDArray[np.bool_],
    memory: float,
    tolerance: float = 0.0,
) -> Score:
    """Means over finished rows; `found` has lower, upper, seconds per row asked."""
    radius = truth[: len(found.lower)]
    rows = finished & np.isfinite(radius)
    no = float("nan")
    lower = upper = lower_ratio = upper_ratio = exact = mean = p99 = no
    if rows.any():
        mean_radius = float(radius[rows].mean())
        if bounds != "upper":
            lower = float(found.lower[rows].mean())
            lower_ratio = lower / mean_radius
        if bounds != "lower":
            upper = float(found.upper[rows].mean())
            upper_ratio = upper / mean_radius
        reached = found.lower if bounds == "lower" else found.upper
        exact = float(np.mean(np.abs(reached[rows] - radius[rows]) <= tolerance))
        ms = 1e3 * found.seconds[rows]
        mean, p99 = float(ms.mean()), float(np.percentile(ms, 99))
    return Score(
        model, engine, int(rows.sum()), len(found.lower), lower, upper, lower_ratio, upper_ratio,
        exact, mean, p99, memory,
    )  # fmt: skip


def require_order(model: str, engine: str, bounds: str, truth: FloatArray, found: Any) -> None:
    """Every lower bound <= exact <= every upper one; exact engines agree. Ends the run if not."""
    radius = truth[: len(found.lower)]
    wrong = (found.lower > radius) | (found.upper < radius)
    if bounds == "both":
        wrong |= found.exact & ((found.lower != radius) | (found.upper != radius))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise SystemExit(
            f"{model}, row {row} of those asked: {engine} says"
            f" [{found.lower[row]!r}, {found.upper[row]!r}], exact is {radius[row]!r}"
        )


def contradictions(truth: FloatArray, peer: Peer) -> NDArray[np.bool_]:
    """Rows on which a peer's claim is on the wrong side, beyond what it prints or guards."""
    with np.errstate(invalid="ignore"):
        low = peer.lower > truth + peer.tolerance
        high = peer.upper < truth - peer.tolerance
    return low | high


def board_of(subject: Subject, options: argparse.Namespace) -> tuple[list[Score], list[str]]:
    """All lines of one model, and remarks."""
    lines: list[Score] = []
    remarks: list[str] = []
    exact = tp.radius(subject.model, subject.X, subject.y, time_limit_s=60.0, arithmetic="real")
    rows = np.flatnonzero((exact.verdict != "falsified") & exact.exact & np.isfinite(exact.upper))
    truth = exact.upper[rows]
    name = subject.name.removeprefix("paper_")
    for engine, (bounds, choice) in engines_for(subject.name, options.engines or []).items():
        if options.engines and engine.split(",")[0].split(" ")[0] not in options.engines:
            continue
        row = rows[:1]  # the first call compiles, and must not count
        tp.radius(
            subject.model,
            subject.X[row],
            subject.y[row],
            engine=choice,
            time_limit_s=1.0,
            arithmetic="real",
        )
        before = reset_peak()
        found = answers_of(subject, choice, rows, options.time_limit, options.cap)
        memory = peak_mb() - before
        require_order(name, engine, bounds, truth, found)
        finished = ~np.isin(found.reason, list(LIMITS))
        if bounds == "both":
            finished &= found.exact
        lines.append(score(name, engine, bounds, truth, found, finished, memory))
        print(" | ".join(lines[-1].cells()), file=sys.stderr, flush=True)
    for engine, bounds, peer in peers_of(subject, exact.upper, rows, options):
        taken = np.intersect1d(np.flatnonzero(peer.finished), rows)
        wrong = contradictions(exact.upper[taken], peer.of(taken))
        if wrong.any():
            remarks.append(
                f"{name}: {engine} contradicts the exact radius on {int(wrong.sum())} rows, which"
                " are left out (Veritas lowers its upper bound without an example when a step"
                " runs out of time)."
            )
        taken = taken[~wrong]
        found = peer.of(taken)
        lines.append(
            score(
                name,
                engine,
                bounds,
                exact.upper[taken],
                found,
                found.finished,
                float("nan"),
                tolerance=peer.tolerance,
            )
        )
        print(" | ".join(lines[-1].cells()), file=sys.stderr, flush=True)
    return lines, remarks


def peers_of(
    subject: Subject, radii: FloatArray, rows: NDArray[np.int64], options: argparse.Namespace
) -> list[tuple[str, str, Peer]]:
    """The other tools, with what they bound."""
    T, L = level_of(subject.name)
    common = {"num_classes": max(2, subject.model.ensemble.n_outputs), "num_threads": 1}
    verification: Callable[[Subject], Peer | None] = saved_tree_verification
    if options.tree_verification:
        settings = common | {"start_idx": 0, "num_attack": 1, "eps_init": 0.1, "max_search": 10}
        settings |= {"max_clique": T, "max_level": L}
        verification = lambda s: live_program(s, options.tree_verification, settings)  # noqa: E731
    attack: Callable[[Subject], Peer | None] = saved_lt_attack
    if options.lt_attack:
        attacking = common | {"search_mode": "lt-attack", "norm_type": -1, "num_point": 1}
        attacking |= {"num_attack_per_point": 20, "enable_early_return": True, "offset": 0}
        attacking |= {"feature_start": 0, "num_features": subject.X.shape[1]}
        attack = lambda s: live_program(s, options.lt_attack, attacking)  # noqa: E731
    asked = np.isin(np.arange(len(subject.X)), rows) & (radii > 0.0)
    found = [
        ("treeVerification", "lower", verification(subject)),
        ("LT-attack", "upper", attack(subject)),
        ("Veritas", "both", live_veritas(subject, radii, asked, options.cap)),
    ]
    return [(f"{name} ({p.note})", bounds, p) for name, bounds, p in found if p is not None]


def draw(lines: list[Score], path: Path) -> None:
    """Time against tightness, one panel per model: upper bounds above 1, lower ones below."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    models = list(dict.fromkeys(line.model for line in lines))
    kinds = list(dict.fromkeys(_kind(line.engine) for line in lines))
    colours = dict(zip(kinds, plt.get_cmap("tab20")(np.linspace(0, 1, len(kinds))), strict=True))
    n_columns = min(4, len(models))
    n_rows = -(-len(models) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(4.2 * n_columns, 3.4 * n_rows), squeeze=False, sharey=True
    )
    for axis, model in zip(axes.ravel(), models, strict=False):
        for line in (line for line in lines if line.model == model):
            for ratio, marker in ((line.lower_ratio, "^"), (line.upper_ratio, "v")):
                if np.isfinite(ratio) and np.isfinite(line.mean_ms):
                    axis.plot(
                        line.mean_ms, min(ratio, 2.0), marker, color=colours[_kind(line.engine)],
                        markersize=9, markeredgecolor="black", markeredgewidth=0.4,
                    )  # fmt: skip
        axis.axhline(1.0, color="grey", linewidth=0.8)
        axis.set(xscale="log", title=model, xlabel="mean ms per row", ylim=(-0.05, 2.05))
    for axis in axes.ravel()[len(models) :]:
        axis.set_visible(False)
    axes[0, 0].set_ylabel("bound / exact radius")
    handles = [
        plt.Line2D([], [], marker="o", linestyle="", color=colours[k], label=k) for k in kinds
    ]
    width = max(3 * n_columns // 2, 2)
    figure.legend(handles=handles, loc="lower center", ncols=width, frameon=False)
    figure.suptitle("Lower bounds (▲) and upper bounds (▼, cut at 2) over the exact radius")
    below = 0.1 + 0.22 * -(-len(kinds) // width)  # inches of the legend
    figure.tight_layout(rect=(0, below / (3.4 * n_rows), 1, 1))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _kind(engine: str) -> str:
    return "multilevel" if engine.startswith("multilevel") else engine


def written(lines: list[Score], remarks: list[str], options: argparse.Namespace) -> str:
    """The page."""
    text = (
        "# Scoreboard\n\n"
        f"treeproof {tp.__version__}, Python {platform.python_version()}, {platform.machine()},"
        f" {os.cpu_count()} processors, one thread, {benchmarks.processor_clock.UNIT};"
        f" {options.rows} rows per model,"
        f" {options.time_limit:g} s per row and {options.cap:g} s per engine and model.\n\n"
        f"![time against tightness]({options.name}.png)\n"
    )
    for model in dict.fromkeys(line.model for line in lines):
        text += f"\n## {model}\n\n"
        columns = list(COLUMNS[1:])
        text += "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n"
        for line in (line for line in lines if line.model == model):
            text += "| " + " | ".join(line.cells()[1:]) + " |\n"
    text += "\n## Notes\n\n"
    notes = " ".join(" ".join((__doc__ or "").split("\n\n")[2:]).split())
    text += notes + "\n"
    for remark in remarks:
        text += f"\n* {remark}"
    return text + ("\n" if remarks else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--models", default=MODELS, help="names in models.json, with commas")
    parser.add_argument("--model", type=Path, help="a model of your own, with --data and --label")
    parser.add_argument("--data", type=Path, help="its rows, in a file that treeproof reads")
    parser.add_argument("--label", help="the column of their labels")
    parser.add_argument("--engines", type=lambda text: text.split(","), help="only these engines")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per row")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds per engine and model")
    parser.add_argument("--tree-verification", type=Path, help="its program, to run it live")
    parser.add_argument("--lt-attack", type=Path, help="its program, to run it live")
    parser.add_argument("--name", default="scoreboard", help="of the files in the results")
    parser.add_argument("--dry", action="store_true", help="print only, save nothing")
    options = parser.parse_args()
    if "smt" in (options.engines or ["smt"]):
        try:
            import z3  # noqa: F401
        except ImportError:
            parser.error(
                "the engine smt needs z3, which is not installed: leave it out of --engines"
            )
    lines: list[Score] = []
    remarks: list[str] = []
    names = options.models.split(",")
    if options.model is None:
        chosen = sorted(subjects(names, options.rows), key=lambda s: names.index(s.name))
    else:
        chosen = [own_subject(options.model, options.data, options.label, options.rows)]
    for subject in chosen:
        more, said = board_of(subject, options)
        lines += more
        remarks += said
        if not options.dry:  # what is finished is kept if a later model ends the run
            save(lines, remarks, options)
    print(written(lines, remarks, options))


def save(lines: list[Score], remarks: list[str], options: argparse.Namespace) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{options.name}.md").write_text(written(lines, remarks, options))
    with (RESULTS / f"{options.name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(line.cells() for line in lines)
    draw(lines, RESULTS / f"{options.name}.png")


if __name__ == "__main__":
    main()
