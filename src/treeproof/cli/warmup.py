"""`treeproof warmup`: compile the kernels now, so that no later process waits for them."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import Command

if TYPE_CHECKING:
    import treeproof as tp


@click.command(cls=Command, example="treeproof warmup --all")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also costs, targets, reasons, two models, the paper's engines and robust training.",
)
def command(everything: bool) -> None:
    """Compile what radius, verify, attack, check and report need, and keep it on disk.

    For images of containers, and after an installation. What is compiled already costs nothing.
    """
    from treeproof.kernels.core.cache import cache_directory

    compile_kernels(everything=everything)
    place = cache_directory()
    print_note("compiled; nothing can be kept" if place is None else f"compiled kernels in {place}")


def compile_kernels(*, everything: bool = False) -> None:
    """Ask one small question of each kind."""
    from treeproof.kernels.core.plain import compiled_at_once

    with compiled_at_once():
        _ask_questions(everything=everything)


def _ask_questions(*, everything: bool) -> None:
    import treeproof as tp

    rows, labels = [[0.25], [0.75]] * 10, [1, 0] * 10  # as the model says, or nothing is searched
    ball = tp.LInf(low=0.0, high=1.0)
    model = _small_model()
    forest = _averaged(model)
    tp.radius(model, rows, labels, ball, evidence=True)
    tp.verify(model, rows, labels, tp.LInf(0.1, low=0.0, high=1.0))
    tp.radius(forest, rows, labels, ball, evidence=True)
    tp.radius(model, rows, labels, ball, engine="attack")
    tp.largest_change(model, 0, tp.Box(0.0, 1.0), evidence=True)
    for asked in (model, forest):
        for some in (rows, rows[:1]):
            asked.margins(some)
            asked.leaf_indices(some)
    if everything:
        from treeproof import training

        tp.radius(model, rows, labels, tp.L1(low=0.0, high=1.0), evidence=True)
        several = _small_model(n_trees=3, n_classes=3)
        tp.radius(several, rows, perturbation=ball, goal=tp.AvoidsTarget(1))
        tp.reasons(model, rows, labels, minimum=True, evidence=True)
        tp.diff(model, forest, tp.Box(0.0, 1.0), evidence=True)
        tp.feature_radius(model, rows, labels)
        for engine in ("single_tree", "cliques", "multilevel", "combination", "hard_label"):
            asked = _small_model(n_trees=1) if engine == "single_tree" else model
            tp.radius(asked, rows, labels, ball, engine=engine)
        for classes in (labels, [0, 1, 2, 0] * 5):
            boosted = training.RobustGBDTClassifier(n_estimators=2, subsample=0.5, random_state=0)
            boosted.fit(rows, classes).predict_proba(rows)
            boosted.set_params(eps=0.1, min_samples_leaf=1).fit(rows, classes)
        training.RobustRandomForestClassifier(n_estimators=2).fit(rows, labels)


def _averaged(model: "tp.Model") -> "tp.Model":
    """The same trees as a forest of doubles, which is searched by kernels of its own."""
    import treeproof as tp

    aggregation = replace(
        model.ensemble.aggregation, precision="float64", finish="divide", divisor=2.0
    )
    return tp.Model(replace(model.ensemble, aggregation=aggregation))


def _small_model(n_trees: int = 2, n_classes: int = 2) -> "tp.Model":
    import treeproof as tp

    leaves = [{"nodeid": 1, "leaf": 0.5}, {"nodeid": 2, "leaf": -0.5}]
    split = {"nodeid": 0, "split": "f0", "split_condition": 0.5, "yes": 1, "no": 2, "missing": 1}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dump.json"
        path.write_text(json.dumps([split | {"children": leaves}] * n_trees), encoding="utf-8")
        return tp.load(path, base_score=0.0, n_classes=n_classes, self_test=False)
