"""`treeproof demo`: a small model of each library, loaded and shown."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from treeproof.cli.console import console
from treeproof.cli.inspect import print_description

N_TREES = 20


@click.command(short_help="Train a small model of each library and show it.")
def command() -> None:
    """Train a small model of each supported library, load it, and show what was understood.

    The data comes with scikit-learn. Every model is compared with its own library, bit for bit, on
    rows that lie on its thresholds and beside them; libraries that are not installed are left out.
    """
    import treeproof
    from treeproof.errors import require_backend

    require_backend("sklearn", "sklearn")
    out = console()
    missing = []
    for name, (extra, train) in MODELS.items():
        began = time.perf_counter()
        try:
            estimator, rows = train()
        except ImportError:
            missing.append(f"{name} (pip install 'treeproof[{extra}]')")
            continue
        model = treeproof.load(estimator)
        seconds = time.perf_counter() - began
        print_description(
            model.inspect(), title=f"{name}: trained, loaded and tested in {seconds:.1f} s"
        )
        same = model.predict(rows).tolist() == estimator.predict(rows).ravel().tolist()
        out.print(f"labels of {len(rows)} rows: {'equal' if same else 'DIFFERENT'}")
        out.print(f"saved and loaded again: {_round_trip(model)}\n")
    for line in missing:
        out.print(f"left out, not installed: {line}")


def _round_trip(model: Any) -> str:
    import treeproof

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.treeproof"
        model.save(path)
        n_bytes = path.stat().st_size
        back = treeproof.load(path)
    same = back.fingerprint == model.fingerprint
    return f"{'the same bits' if same else 'DIFFERENT'}, {n_bytes:,} bytes"


def _xgboost() -> tuple[Any, Any]:
    from sklearn.datasets import load_breast_cancer
    from xgboost import XGBClassifier

    data = load_breast_cancer(as_frame=True)
    model = XGBClassifier(n_estimators=N_TREES, max_depth=4, random_state=0)
    return model.fit(data.data, data.target), data.data


def _lightgbm() -> tuple[Any, Any]:
    from lightgbm import LGBMClassifier
    from sklearn.datasets import load_wine

    data = load_wine()
    model = LGBMClassifier(n_estimators=N_TREES, random_state=0, verbosity=-1)
    return model.fit(data.data, data.target), data.data


def _catboost() -> tuple[Any, Any]:
    from catboost import CatBoostClassifier
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    model = CatBoostClassifier(
        iterations=N_TREES, depth=4, random_seed=0, verbose=False, allow_writing_files=False
    )
    return model.fit(data.data, data.target), data.data


def _sklearn() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    data = load_digits()
    model = RandomForestClassifier(n_estimators=N_TREES, max_depth=8, random_state=0)
    return model.fit(data.data, data.target), data.data


MODELS: dict[str, tuple[str, Callable[[], tuple[Any, Any]]]] = {
    "XGBoost": ("xgboost", _xgboost),
    "LightGBM": ("lightgbm", _lightgbm),
    "CatBoost": ("catboost", _catboost),
    "scikit-learn": ("sklearn", _sklearn),
}
"""Name, extra that installs the library, and a function that trains a model."""
