"""`treeproof demo`: from training to proofs to pages that compare two models."""

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import console
from treeproof.cli.options import FILE, Command, jobs_option
from treeproof.errors import InvalidInput, install_command

if TYPE_CHECKING:
    from treeproof.checker import RowCheck
    from treeproof.prediction import Model
    from treeproof.results.results import Results

N_TREES = 20
N_TRAINED, N_PROVED = 300, 50
"""Rows of each data set: few, so that plain Python is done before machine code would be there."""
_N_FROZEN = 3

_SMALL: dict[str, Any] = {"n_estimators": N_TREES, "max_depth": 4}
_QUIET: dict[str, Any] = {"verbose": False, "allow_writing_files": False}
MODELS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "XGBoost": ("xgboost", "XGBClassifier", "breast_cancer", _SMALL),
    "LightGBM": ("lightgbm", "LGBMClassifier", "wine", _SMALL | {"verbosity": -1}),
    "CatBoost": ("catboost", "CatBoostClassifier", "breast_cancer", _SMALL | _QUIET),
    "scikit-learn": ("sklearn.ensemble", "RandomForestClassifier", "digits", _SMALL),
}
"""Where the classifier of each library is, the data that it learns, and its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One data set of the demo: the robust model is trained for `eps`, rows are verified at `at`.

    `shape` is the height and width where rows are images; `labels` are those of the data set that
    are told apart, None for all.
    """

    name: str
    title: str
    eps: float
    at: float
    shape: tuple[int, int] | None
    labels: tuple[int, ...] | None


TASKS = (
    Task(name="breast_cancer", title="Breast cancer: natural against robust", eps=0.1, at=0.1,
         shape=None, labels=None),
    Task(name="digits", title="3 or 8: natural against robust", eps=0.3, at=0.2, shape=(8, 8),
         labels=(3, 8)),
)  # fmt: skip


@click.command(cls=Command, example="treeproof demo --out demo-output")
@click.option(
    "--out",
    metavar="FOLDER",
    type=FILE,
    default="demo-output",
    help="Where runs and reports go.",
)
@jobs_option
def command(out: str, jobs: int | None) -> None:
    """Train a natural and a robust model on data that comes with scikit-learn, and compare them.

    For every test row the smallest change that breaks it is found exactly, with a proof that an
    independent checker then follows. Two pages show the outcome.
    """
    from treeproof.errors import require_backend

    require_backend("sklearn", "sklearn")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder '{out}' cannot be made: {error.strerror}.") from error
    began = time.perf_counter()
    say = console().print
    pages = [_compare(task, folder, jobs or -1) for task in TASKS]
    _show_libraries()
    say(f"Done in {time.perf_counter() - began:.0f} s. Look at the reports in a browser:")
    for page in pages:
        say(f"  {page.resolve()}")


def _compare(task: Task, folder: Path, jobs: int) -> Path:
    """Train both models of a task, answer, check, and write the report."""
    import treeproof
    from treeproof.report.page import write_report
    from treeproof.results.numbers import percent

    say = console().print
    names, train_rows, rows, train_labels, labels = _data(task)
    say(f"{task.name}: {len(train_rows)} rows to train, {len(rows)} rows to prove")
    ask = partial(treeproof.radius, n_jobs=jobs)
    runs, checks, frozen = [], [], []
    for kind, eps in (("natural", 0.0), ("robust", task.eps)):
        began = time.perf_counter()
        model = _trained(names, train_rows, train_labels, eps, jobs)
        trained = time.perf_counter()
        path = folder / f"{task.name}-{kind}.jsonl"
        results = ask(model, rows, labels, treeproof.LInf(low=0.0, high=1.0), evidence=True)
        results.save(path)
        model.save(path.with_suffix(".treeproof"))
        asked = time.perf_counter()
        n_wrong, n_lost = (
            round(len(results) * results.verified_error(radius)) for radius in (0.0, task.at)
        )
        say(
            f"  {kind:8} trained in {trained - began:.1f} s; {int(results.exact.sum())} of"
            f" {len(results)} radii exact in {asked - trained:.1f} s;"
            f" {percent(n_wrong / len(results))} wrong, {percent(n_lost / len(results))} wrong or"
            f" not verified at {task.at:g}"
        )
        checks.append(_checked(path, model))
        runs.append(path)
        for feature in _most_changed(task, results):
            # What freezing a feature helps, for those that are changed most often.
            moves = treeproof.LInf(low=0.0, high=1.0, frozen=[model.feature_names[feature]])
            frozen.append(folder / f"{task.name}-{kind}-frozen-{feature}.jsonl")
            ask(model, rows, labels, moves).save(frozen[-1])
    least = treeproof.least_robust_error(rows, labels, treeproof.LInf(task.at, low=0.0, high=1.0))
    say(f"  any model whatever: at least {percent(least)} wrong or not verified at {task.at:g}")
    page = folder / f"{task.name}.html"
    write_report(
        runs,
        page,
        names=("natural", "robust"),
        at=task.at,
        shape=task.shape,
        frozen=frozen,
        title=task.title,
        checks=checks,
    )
    say("")
    return page


def _data(task: Task) -> Any:
    """Names of the features, and rows between 0 and 1, split for training and proving."""
    import numpy as np
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import minmax_scale

    data = getattr(datasets, f"load_{task.name}")()
    kept = np.isin(data.target, data.target if task.labels is None else task.labels)
    rows, labels = minmax_scale(data.data)[kept], data.target[kept]
    parts = train_test_split(rows, labels, train_size=N_TRAINED, test_size=N_PROVED, random_state=0)
    return data.feature_names, *parts


def _trained(names: Any, rows: Any, labels: Any, eps: float, jobs: int) -> "Model":
    import treeproof
    from treeproof.training import RobustGBDTClassifier

    classifier = RobustGBDTClassifier(eps=eps, n_estimators=N_TREES, max_depth=4, n_jobs=jobs)
    ensemble = classifier.fit(rows, labels).to_ensemble()
    # Estimators learn names from data frames only, which the demo has to do without.
    return treeproof.Model(replace(ensemble, feature_names=tuple(map(str, names))))


def _checked(path: Path, model: "Model") -> "list[RowCheck]":
    """Let the independent checker follow every proof."""
    from treeproof.checker import check_run

    began = time.perf_counter()
    checks = list(check_run(path, model.ensemble))
    counts = Counter(check.status for check in checks)
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    console().print(f"           proofs checked in {time.perf_counter() - began:.1f} s: {words}")
    return checks


def _most_changed(task: Task, results: "Results") -> list[int]:
    """Features that witnesses change most often; none of images, whose pixels tell little."""
    from treeproof.results.curves import changed_features

    changed = changed_features(results)
    if task.shape is not None or changed is None:
        return []
    most: list[int] = changed.sum(axis=0).argsort(kind="stable")[::-1][:_N_FROZEN].tolist()
    return most


def _show_libraries() -> None:
    """Load a small model of each library that is installed, and compare it bit for bit."""
    from sklearn import datasets

    import treeproof

    say = console().print
    say("Models of the libraries, loaded exactly as they are deployed:")
    for name, (module, kind, data_name, options) in MODELS.items():
        began = time.perf_counter()
        try:
            estimator = getattr(import_module(module), kind)(**options)
        except ImportError:
            say(f"  {name:13} not installed ({install_command(module)})")
            continue
        rows, labels = getattr(datasets, f"load_{data_name}")(return_X_y=True)
        estimator.fit(rows, labels)
        model = treeproof.load(estimator)
        same = model.predict(rows).tolist() == estimator.predict(rows).ravel().tolist()
        say(
            f"  {name:13} self-test {model.ensemble.provenance.self_test};"
            f" labels of {len(rows)} rows {'equal' if same else 'DIFFERENT'}"
            f" ({time.perf_counter() - began:.1f} s)"
        )
    say("")
