"""The paper's figures: bounds against T and L, time against trees, pixel maps."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import xgboost
from sklearn.ensemble import RandomForestClassifier

import treeproof
from experiments.paper import measuring
from experiments.paper.measuring import Budget
from experiments.paper.pages import Page, seconds_text, table
from experiments.paper.printed import VERIFIED_ACCURACY_AT
from experiments.paper.subjects import AUTHORS, DATA, Subject, accuracy_of, arrays, subject
from treeproof.training import RobustRandomForestClassifier

mpl.use("Agg")
from matplotlib import pyplot as plt

CLIQUE_SIZES, LEVELS = (2, 3, 4), (1, 2, 3, 4, 5, 6)
TREES = (10, 20, 30, 40, 50, 60)


def first_trees(dataset: str, kind: str, count: int) -> Subject:
    """The question of a model of the authors, about its first trees."""
    return replace(subject(dataset, kind), model=treeproof.load(booster(dataset, kind)[:count]))


def booster(dataset: str, kind: str) -> xgboost.Booster:
    name = AUTHORS[dataset][kind == "robust"]
    return xgboost.Booster(model_file=DATA / "models" / f"{name}.json")


def convergence(names: list[str], budget: Budget) -> Page:
    """Bounds against T and L on two models of 20 trees (figure 2)."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8))
    parts = [
        "Lower bounds of `multilevel(T, L)` under the paper's search, averaged over the rows that"
        " the model gets right, and the exact radius. As in the paper, bounds rise with L until"
        " they meet r*, sooner for larger T; the paper has the figure without numbers.",
    ]
    for axis, (dataset, kind) in zip(
        axes, (("diabetes", "natural"), ("ijcnn1", "robust")), strict=True
    ):
        asked = first_trees(dataset, kind, 20)
        few = replace(budget, rows=min(budget.rows, 154))
        closed = measuring.exact(asked, few)
        lines = []
        for T in CLIQUE_SIZES:
            found = [measuring.multilevel(asked, few, T, L) for L in LEVELS]
            means = [float(one.lower.mean()) for one in found]
            axis.plot(LEVELS, means, "o-", label=f"T = {T}")
            lines.append(
                [str(T), *(f"{mean:.5f} ({one.seconds.mean():.2g} s)"
                           for mean, one in zip(means, found, strict=True))]
            )  # fmt: skip
        radius = float(closed.upper.mean())
        axis.axhline(radius, color="black", linestyle="--", label="r*")
        axis.set(title=f"{dataset}, {kind}, 20 trees", xlabel="L", ylabel="mean radius")
        axis.legend()
        parts.append(f"{dataset} {kind}, 20 trees, {len(closed)} rows: r* = {radius:.5f}.")
        parts.append(table(("T", *(f"L = {level}" for level in LEVELS)), lines))
    figure.tight_layout()
    title = "Figure 2: bounds against the size of cliques and the number of levels"
    return Page(title, parts, {"convergence.png": figure})


def growth(names: list[str], budget: Budget) -> Page:
    """Time against the number of trees on robust ijcnn1 models (figure 3)."""
    few = replace(budget, rows=min(budget.rows, 20))
    lines, times = [], {"MILP": [], "multi-level": [], "exact": []}
    for count in TREES:
        asked = first_trees("ijcnn1", "robust", count)
        found = {
            "MILP": measuring.milp(asked, few),
            "multi-level": measuring.multilevel(asked, few, 2, 2),
            "exact": measuring.exact(asked, few),
        }
        for name, one in found.items():
            times[name].append(float(one.seconds.mean()) if len(one) else np.nan)
        cells = [f"{seconds_text(one.seconds)} ({len(one)} rows)" for one in found.values()]
        lines.append([str(count), *cells])
    figure, axis = plt.subplots(figsize=(5.2, 3.8))
    for name, values in times.items():
        axis.semilogy(TREES, values, "o-", label=name)
    axis.set(xlabel="trees", ylabel="seconds per row", title="ijcnn1, robust")
    axis.legend()
    figure.tight_layout()
    note = (
        "Seconds per row on the first trees of the authors' robust ijcnn1 model (the paper trained"
        " one model per size; boosting adds trees, so the first ones are such a model). The paper"
        " has the figure without numbers: its multi-level method grows slower than MILP, and so it"
        " does here. The exact engine answers what MILP answers, in a fraction of its time."
    )
    title = "Figure 3: time against the number of trees"
    parts = [note, table(("trees", "MILP", "multi-level T = 2, L = 2", "exact"), lines)]
    return Page(title, parts, {"growth.png": figure})


def verified_accuracy(names: list[str], budget: Budget) -> Page:
    """Verified accuracy of a robust MNIST model (introduction)."""
    eps, printed = VERIFIED_ACCURACY_AT
    lines = []
    for dataset in ("mnist", "mnist26"):
        if dataset not in names:
            continue
        asked = subject(dataset, "robust")
        closed = measuring.exact(asked, budget)
        right = np.asarray(asked.model.predict(asked.X)) == asked.y
        asked_about = np.flatnonzero(right)[: budget.rows]
        n_rows = len(closed) + int(np.sum(~right[: asked_about[-1] + 1]))
        proved = int(np.sum(closed.lower > eps))
        cells = (f"{proved / n_rows:.3f}", f"{printed:.2f}" if dataset == "mnist" else "–")
        lines.append([dataset, f"{n_rows}", *cells, seconds_text(closed.seconds)])
    note = (
        f"Share of rows that a robust model provably gets right within {eps:g}, from exact radii."
        " The paper's model of ten digits was not published; ours has its parameters."
    )
    columns = ("data", "rows", f"verified accuracy at {eps:g}", "the paper's", "s per row")
    return Page("Verified accuracy of robust MNIST models", [note, table(columns, lines)])


def pixels(names: list[str], budget: Budget) -> Page:
    """Single-pixel radii of two decision trees beside gain importance (figures 4 and 5)."""
    found = arrays("mnist")
    X, y = found["X_test"], found["y_test"]
    kinds = {"natural": 0.0, "robust": 0.3}
    trees = {
        kind: RobustRandomForestClassifier(
            n_estimators=1,
            max_depth=14,
            max_features=None,
            bootstrap=False,
            eps=eps,
            method="chen2019",
        ).fit(found["X_train"], found["y_train"])
        for kind, eps in kinds.items()
    }
    models = {kind: treeproof.Model(tree.to_ensemble()) for kind, tree in trees.items()}
    right = np.all([np.asarray(model.predict(X)) == y for model in models.values()], axis=0)
    chosen = [int(np.flatnonzero(right & (y == digit))[0]) for digit in (2, 4, 8)]
    unit = treeproof.LInf(low=0.0, high=1.0)
    figure, axes = plt.subplots(len(chosen) + 1, 3, figsize=(7.6, 2.5 * (len(chosen) + 1)))
    lines = []
    for axis, row in zip(axes, chosen, strict=False):
        axis[0].imshow(X[row].reshape(28, 28), cmap="gray")
        axis[0].set_title(f"digit {y[row]}")
        cells = []
        for place, (kind, model) in zip(axis[1:], models.items(), strict=True):
            alone = treeproof.feature_radius(model, X[[row]], y[[row]], unit, arithmetic="real")
            radius = np.minimum(np.asarray(alone.radius)[0], 1.0)
            place.imshow(radius.reshape(28, 28), cmap="inferno", vmin=0.0, vmax=1.0)
            place.set_title(f"{kind}: radius of each pixel")
            cells += [f"{int(np.sum(radius < 1.0))}", f"{radius.min():.4f}"]
        lines.append([f"a {y[row]} (test row {row})", *cells])
    used = []
    for place, (kind, tree) in zip(axes[-1][1:], trees.items(), strict=True):
        gains = np.asarray(tree.feature_importances_)
        place.imshow(-gains.reshape(28, 28), cmap="inferno")
        place.set_title(f"{kind}: gain importance")
        used += [f"{int(np.sum(gains > 0.0))}", ""]
    lines.append(["gain importance", *used])
    for place in axes.ravel():
        place.set_axis_off()
    figure.tight_layout()
    accuracies = ", ".join(
        f"{kind} {accuracy_of(model, X, y):.3f}" for kind, model in models.items()
    )
    note = (
        "Radius at which one pixel alone changes the prediction of one decision tree, within"
        " [0, 1]; bright pixels never do. Exact, where the paper has lower bounds. The paper's"
        " trees were not published; ours have depth 14 and, robust, eps 0.3 (test accuracy:"
        f" {accuracies}). As in the paper, the natural tree has dark pixels, which matter at tiny"
        " radii, and the robust one has fewer and paler ones; gain importance, which knows no row,"
        " marks many more pixels than matter to any one row."
    )
    columns = ("image", "natural: pixels that matter", "smallest radius",
               "robust: pixels that matter", "smallest radius")  # fmt: skip
    title = "Figures 4 and 5: pixels that matter"
    return Page(title, [note, table(columns, lines)], {"pixels.png": figure})


def forests(names: list[str], budget: Budget) -> Page:
    """Random forests, which the abstract names: natural ones and robust ones of ours."""
    lines = []
    for dataset in ("breast_cancer", "diabetes", "ijcnn1", "mnist26"):
        if dataset not in names:
            continue
        found = arrays(dataset)
        base = subject(dataset, "natural")
        X, y = found["X_test"][:500], found["y_test"][:500]
        estimators = {
            "scikit-learn": RandomForestClassifier(50, max_depth=8, random_state=0),
            "robust": RobustRandomForestClassifier(
                n_estimators=50, max_depth=8, eps=base.data.eps, method="chen2019", random_state=0
            ),
        }
        for kind, estimator in estimators.items():
            estimator.fit(found["X_train"], found["y_train"])
            if kind == "robust":
                model = treeproof.Model(estimator.to_ensemble())
            else:
                model = treeproof.load(estimator)
            asked = replace(base, model=model, kind=f"{kind} forest", X=X, y=y)
            closed = measuring.exact(asked, budget)
            levels = measuring.multilevel(asked, budget, 2, 2)
            both = closed.at(levels.number)
            lines.append(
                [
                    dataset,
                    kind,
                    f"{accuracy_of(model, found['X_test'], found['y_test']):.4f}",
                    f"{len(closed)}",
                    closed.closed().text("upper"),
                    seconds_text(closed.seconds),
                    levels.text("lower"),
                    seconds_text(levels.seconds),
                    f"{levels.lower.mean() / both.upper.mean():.2f}" if len(both) else "–",
                ]
            )
    note = (
        "50 trees of depth 8 each; the paper verifies forests with the same method but prints no"
        " figures for them. Rows that the model gets right, of the first 500 test rows."
    )
    columns = ("data", "forest", "accuracy", "rows", "exact r*", "s", "multi-level 2/2 r", "s",
               "multi-level / r*")  # fmt: skip
    return Page("Random forests", [note, table(columns, lines)])
