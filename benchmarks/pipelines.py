"""What the steps of a pipeline add to the time of loading its model: 500 trees of depth 6.

Run ``python -m benchmarks.pipelines``; the table goes to ``benchmarks/results/pipelines.md``. Each
figure is the best of three runs, in seconds of the processor, which other programs do not change;
with the self-test that ``load`` runs by default.
"""

import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from xgboost import XGBClassifier

import treeproof as tp

RESULTS = Path(__file__).parent / "results" / "pipelines.md"
REPEATS = 3
AIM_S = 2.0


def data() -> tuple[pd.DataFrame, np.ndarray]:
    """Ten numeric columns with gaps, two of text."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(5_000, 10))
    target = (np.sin(2 * numbers[:, 0]) + numbers[:, 1] * numbers[:, 2] > 0).astype(int)
    frame = pd.DataFrame(numbers, columns=[f"number {column}" for column in range(10)])
    frame = frame.mask(random.random(frame.shape) < 0.05)
    for column, n_kinds in (("town", 12), ("kind", 4)):
        frame[column] = random.choice([f"{column} {kind}" for kind in range(n_kinds)], len(frame))
    return frame, target


MODELS: dict[str, Callable[[], Any]] = {
    "XGBoost": lambda: XGBClassifier(n_estimators=500, max_depth=6, n_jobs=1),
    "LightGBM": lambda: LGBMClassifier(n_estimators=500, num_leaves=63, n_jobs=1, verbose=-1),
    "forest": lambda: RandomForestClassifier(500, max_depth=6, random_state=0),
}


def steps() -> dict[str, tuple[Any, ...]]:
    """What stands before a model."""
    numeric = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore")
    return {
        "imputer, scaler": (SimpleImputer(), StandardScaler()),
        "imputer, quantiles": (SimpleImputer(), QuantileTransformer(n_quantiles=500)),
        "imputer, powers": (SimpleImputer(), PowerTransformer()),
        "imputer, bins": (SimpleImputer(), KBinsDiscretizer(20, encode="ordinal")),
        "columns: imputer, scaler; one-hot": (
            make_column_transformer(
                (numeric, slice(0, 10)), (encoder, ["town", "kind"]), sparse_threshold=0.0
            ),
        ),
    }


def seconds(source: Any) -> float:
    best = np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        tp.load(source)
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    warnings.simplefilter("ignore")
    frame, target = data()
    lines = []
    for name, make in MODELS.items():
        for words, before in steps().items():
            rows = frame if "one-hot" in words else frame.iloc[:, :10].to_numpy()
            pipeline = make_pipeline(*before, make()).fit(rows, target)
            alone, whole = seconds(pipeline.steps[-1][1]), seconds(pipeline)
            lines.append(f"| {name} | {words} | {alone:.2f} | {whole:.2f} | {whole - alone:.2f} |")
            print(lines[-1], flush=True)
    names = ("xgboost-cpu", "lightgbm", "scikit-learn", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    RESULTS.write_text(
        f"# Loading pipelines\n\n{__doc__}\nAim: at most {AIM_S:g} s more than the model alone.\n\n"
        "| model | steps | model alone, s | pipeline, s | more, s |\n|---|---|---|---|---|\n"
        + "\n".join(lines)
        + f"\n\ntreeproof {tp.__version__}, {versions}, Python {platform.python_version()}.\n"
    )


if __name__ == "__main__":
    main()
