"""Models as deployed: loaded bit for bit, and what the steps of a pipeline add to that.

Run ``python -m benchmarks.pipelines [--parts equal,onnx,time]``; the tables go to
``benchmarks/results/pipelines.md``. The first two load every configuration of the tests (pipelines
and wrappers; ONNX files by skl2onnx, onnxmltools, CatBoost and by hand), compare labels and scores
with those of the deployed object, or of onnxruntime, on 10,000 rows in raw columns (on thresholds
and one float to either side, missing, infinite, tiny, unseen categories), ask for radii of 12 rows,
and give every witness to the deployed object: its label must change. Of pipelines, 40 rows inside
each radius are tried as well. The last one times loading with 500 trees of depth 6: the best of
three runs, in seconds of the processor, with the self-test that ``load`` runs by default.
"""

import argparse
import platform
import time
import warnings
from collections.abc import Callable, Iterator
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
from tests.unit.loaders import onnx_cases, pipeline_cases, test_onnx, test_pipelines
from threadpoolctl import threadpool_limits
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


N_ROWS, N_RADII = 10_000, 12
HEADS = {
    "equal": "## Pipelines and wrappers\n\n| configuration | rows bit-equal | witnesses replayed |"
    "\n|---|---|---|\n",
    "onnx": "## ONNX files\n\n| file | rows bit-equal | witnesses replayed |\n|---|---|---|\n",
    "time": f"## Time to load\n\nAim: at most {AIM_S:g} s more than the model alone.\n\n"
    "| model | steps | model alone, s | pipeline, s | more, s |\n|---|---|---|---|---|\n",
}


def tried(check: Callable[[], Any]) -> Any:
    """What a check gives; or, where it fails, that it did."""
    try:
        return check()
    except AssertionError as error:
        return f"**failed**: {str(error)[:60]!r}"


def equal_pipelines() -> Iterator[str]:
    """Each configuration of the tests of pipelines."""
    for name in pipeline_cases.CASES:
        rows = tried(lambda name=name: test_pipelines.compare(name, N_ROWS) or f"{N_ROWS:,}")
        radii = ""
        if "regression" not in name and "target" not in name:
            radii = tried(lambda name=name: test_pipelines.check_radii(name, N_RADII))
        yield f"| {name} | {rows} | {radii} |"


def equal_files() -> Iterator[str]:
    """Each ONNX file of the tests."""
    compare = test_onnx.test_labels_and_scores_are_those_of_onnxruntime
    for name in onnx_cases.CASES:
        rows = tried(lambda name=name: compare(name) or f"{N_ROWS:,}")
        radii = tried(lambda name=name: test_onnx.check_radii(name, N_RADII))
        yield f"| {name} | {rows} | {radii} |"


def times() -> Iterator[str]:
    """Loading pipelines, beside their models."""
    frame, target = data()
    for name, make in MODELS.items():
        for words, before in steps().items():
            rows = frame if "one-hot" in words else frame.iloc[:, :10].to_numpy()
            pipeline = make_pipeline(*before, make()).fit(rows, target)
            alone, whole = seconds(pipeline.steps[-1][1]), seconds(pipeline)
            yield f"| {name} | {words} | {alone:.2f} | {whole:.2f} | {whole - alone:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="equal,onnx,time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {"equal": equal_pipelines, "onnx": equal_files, "time": times}
    names = ("xgboost-cpu", "lightgbm", "catboost", "scikit-learn", "onnxruntime", "skops", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    text = f"# Models as deployed\n\n{__doc__}\n"
    text += f"treeproof {tp.__version__}, {versions}, Python {platform.python_version()}.\n"
    with threadpool_limits(1), np.errstate(all="ignore"):
        for part in given.parts.split(","):
            text += f"\n{HEADS[part]}"
            n_lines = n_failed = 0
            for line in parts[part]():
                print(line, flush=True)
                text += f"{line}\n"
                n_lines, n_failed = n_lines + 1, n_failed + ("failed" in line)
                given.out.write_text(text)
            if part != "time":
                text += f"\n{n_lines} configurations, {n_failed} failed.\n"
            given.out.write_text(text)


if __name__ == "__main__":
    main()
