"""Two models: exports to ONNX, more rounds, other seeds; proved the same, or a row that differs.

Run ``python -m benchmarks.diff [--parts export,rounds,pruned,seeds] [--seconds S]`` with
TREEPROOF_PAPER_DATA at a folder that holds ``data/ijcnn1.npz`` (22 features; 20,000 rows are for
training, of the others 9,986 are test rows). Models are trained here, exported by onnxmltools and
skl2onnx, and compared over the smallest box that holds all rows. A row that differs is given to
both runtimes: the library itself, and onnxruntime on the file. Verdicts are about the default of
``delta``: scores are the same within 1e-4, or within the rounding of both sums where that is more.
Everything runs in one thread; limits and times are seconds of the processor (processor_clock.py).
"""

import argparse
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import benchmarks.processor_clock  # noqa: F401  before all compiled code
import numpy as np
from benchmarks.subjects import DATA

import treeproof as tp

RESULTS = Path(__file__).parent / "results" / "diff.md"
N_TRAIN, N_TEST = 20_000, 9_986
SAME_PROBABILITY = 1e-4
HEAD = (
    "| models | trees | verdict | largest difference of a score | both runtimes at the row |"
    f" test rows that differ, of {N_TEST:,} | labels | processor s |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


@dataclass
class Data:
    """Rows and labels of ijcnn1, and the box that holds them."""

    X: np.ndarray
    y: np.ndarray
    test: np.ndarray

    @property
    def box(self) -> tp.Box:
        """The smallest box that holds all rows."""
        both = np.concatenate([self.X, self.test])
        return tp.Box(both.min(axis=0), both.max(axis=0))


def read_data() -> Data:
    with np.load(DATA / "data" / "ijcnn1.npz") as found:
        # As users have them: doubles, of which these are the float32 numbers.
        return Data(
            found["X_train"][:N_TRAIN].astype(np.float64),
            found["y_train"][:N_TRAIN],
            found["X_test"][:N_TEST].astype(np.float64),
        )


def onnx_runner(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Probability of class 1, as onnxruntime gives it for rows that are cast to float32."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    name = session.get_inputs()[0].name

    def run(rows: np.ndarray) -> np.ndarray:
        found = session.run(None, {name: rows.astype(np.float32)})[1]
        if isinstance(found, list):
            return np.array([row[1] for row in found])
        return np.asarray(found)[:, 1]

    return run


def light(n_trees: int, **options: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=n_trees, num_leaves=31, n_jobs=1, verbose=-1, **options)


def extreme(n_trees: int, **options: Any) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=n_trees, max_depth=6, n_jobs=1, **options)


def forest(n_trees: int, **options: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_trees, max_depth=8, random_state=0, **options)


def boosting(n_trees: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(
        n_estimators=n_trees, max_depth=4, min_samples_leaf=50, max_features=8, random_state=0
    )


def export(model: Any, n_features: int) -> Any:
    """An ONNX model, by the library's usual converter."""
    import onnxmltools
    import skl2onnx
    from onnxmltools.convert.common.data_types import FloatTensorType

    kind = type(model).__name__
    if kind.startswith(("LGBM", "XGB")):
        types = [("input", FloatTensorType([None, n_features]))]
        to = (
            onnxmltools.convert_lightgbm
            if kind == "LGBMClassifier"
            else onnxmltools.convert_xgboost
        )
        return to(model, initial_types=types)
    return skl2onnx.to_onnx(model, np.zeros((1, n_features), dtype=np.float32))


def asked(first: Any, second: Any, data: Data, seconds: float, **options: Any) -> Any:
    began = time.process_time()
    found = tp.diff(first, second, data.box, time_limit_s=seconds, **options)
    return found, time.process_time() - began


def line(name: str, trees: str, found: Any, spent_s: float, replayed: str, n: str) -> str:
    ends = f"{found.lower:.5g} to {found.upper:.5g}"
    labels = "" if found.labels is None else str(found.labels.verdict)
    return (
        f"| {name} | {trees} | {found.verdict} | {ends} | {replayed} | {n} | {labels} |"
        f" {spent_s:.1f} |\n"
    )


def exports(data: Data, seconds: float, sizes: list[int]) -> Iterator[str]:
    """Each library against its ONNX file."""
    makers = {"LightGBM": light, "XGBoost": extreme, "scikit-learn forest": forest,
              "scikit-learn boosting": boosting}  # fmt: skip
    for name, make in makers.items():
        for n_trees in sizes:
            model = make(n_trees).fit(data.X, data.y)
            file = export(model, data.X.shape[1])
            first, second = tp.load(model), tp.load(file)
            found, spent_s = asked(first, second, data, seconds)
            run = onnx_runner(file)
            theirs, ours = run(data.test), model.predict_proba(data.test)[:, 1]
            n = str(int((np.abs(theirs - ours) > SAME_PROBABILITY).sum()))
            replayed = ""
            for part in found.parts:
                if part.witness is not None:
                    row = part.witness[:1]
                    pair = float(model.predict_proba(row)[0, 1]), float(run(row)[0])
                    what = "score" if part is found.scores else "label"
                    replayed += f"{what}: probability {pair[0]:.4f} and {pair[1]:.4f}; "
            yield line(f"{name} and its ONNX file", f"{n_trees}", found, spent_s,
                       replayed.rstrip("; "), n)  # fmt: skip


def rounds(data: Data, seconds: float) -> Iterator[str]:
    """The same model trained for longer."""
    for name, make in {"LightGBM": light, "XGBoost": extreme}.items():
        models = [tp.load(make(n_trees).fit(data.X, data.y)) for n_trees in (100, 110)]
        found, spent_s = asked(*models, data, seconds)
        n = differing(*models, data)
        yield line(f"{name}, ten more rounds", "100 and 110", found, spent_s, "", n)


def pruned(data: Data, seconds: float) -> Iterator[str]:
    """The same forest, with the weakest branches of its trees cut off."""
    models = [tp.load(forest(100, ccp_alpha=alpha).fit(data.X, data.y)) for alpha in (0.0, 1e-5)]
    found, spent_s = asked(*models, data, seconds)
    n = differing(*models, data)
    yield line("scikit-learn forest, pruned", "100", found, spent_s, "", n)


def seeds(data: Data, seconds: float) -> Iterator[str]:
    """The same training with another seed: trees of depth 6."""
    sampled = {"subsample": 0.7, "colsample_bytree": 0.7}
    options = {
        "LightGBM": (light, {"max_depth": 6, "subsample_freq": 1, **sampled}),
        "XGBoost": (extreme, sampled),
    }
    for name, (make, given) in options.items():
        models = [
            tp.load(make(100, random_state=seed, **given).fit(data.X, data.y)) for seed in (0, 1)
        ]
        found, spent_s = asked(*models, data, seconds, gap=0.01)
        n = differing(*models, data)
        yield line(f"{name}, two seeds", "100", found, spent_s, "", n)


def differing(first: tp.Model, second: tp.Model, data: Data) -> str:
    """How many test rows have scores that differ by more than the default."""
    apart = np.abs(first.margins(data.test) - second.margins(data.test))
    apart = apart.reshape(len(apart), -1).max(axis=1)
    return f"{int((apart > SAME_PROBABILITY).sum())} (at most {apart.max():.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="export,rounds,pruned,seeds")
    parser.add_argument("--sizes", default="100,500")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    data = read_data()
    tp.diff(
        *[tp.load(light(n).fit(data.X[:500], data.y[:500])) for n in (2, 3)], data.box
    )  # compiles
    sizes = [int(size) for size in given.sizes.split(",")]
    parts = {
        "export": lambda: exports(data, given.seconds, sizes),
        "rounds": lambda: rounds(data, given.seconds),
        "pruned": lambda: pruned(data, given.seconds),
        "seeds": lambda: seeds(data, given.seconds),
    }
    names = ("lightgbm", "xgboost-cpu", "scikit-learn", "onnxruntime", "onnxmltools", "skl2onnx")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    text = f"# Two models\n\n{__doc__}\n"
    text += f"treeproof {tp.__version__}, {versions}, Python {platform.python_version()};"
    text += f" ijcnn1; {given.seconds:g} s for each pair.\n\n{HEAD}"
    for part in given.parts.split(","):
        for found in parts[part]():
            print(found, end="", flush=True)
            text += found
            given.out.write_text(text)


if __name__ == "__main__":
    main()
