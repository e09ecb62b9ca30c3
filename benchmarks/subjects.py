"""The paper's models with their rows, and what other tools found on them.

They are found by TREEPROOF_PAPER_DATA, by default ../shared.
"""

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.data.sources import FileSource, Rows
from treeproof.loaders import load_ensemble
from treeproof.prediction import Model

DATA = Path(os.environ.get("TREEPROOF_PAPER_DATA", Path(__file__).parents[2] / "shared"))


@dataclass(frozen=True)
class Subject:
    """A model of the paper with its rows, and what others measured on them, by row number."""

    name: str
    n_trees: int
    path: Path
    model: Model
    X: NDArray[np.floating]
    y: NDArray[Any]
    peers: dict[int, dict[str, str]]


def subjects(names: list[str] | None, n_rows: int) -> list[Subject]:
    """All models, or those named, with their first rows."""
    found = []
    for entry in json.loads((DATA / "models" / "models.json").read_text()):
        if names is not None and entry["name"] not in names:
            continue
        X, y = rows_of(entry["dataset"], int(entry["feature_start"]))
        path = DATA / "models" / f"{entry['name']}.json"
        found.append(
            Subject(
                name=entry["name"],
                n_trees=int(entry["n_trees"]),
                path=path,
                model=Model(load_ensemble(path)),
                X=X[:n_rows],
                y=y[:n_rows],
                peers=peers_of(entry["name"], entry["dataset"]),
            )
        )
    if not found:
        raise SystemExit(f"no model of {DATA / 'models' / 'models.json'} is named {names}")
    return found


def own_subject(path: Path, data: Path, label: str, n_rows: int) -> Subject:
    """A model of a file with the first rows of a data file."""
    model = Model(load_ensemble(path))
    source = FileSource(model.ensemble, data, label=label, rows=f"0:{n_rows}")
    rows = Rows.join(list(source.parts()))
    labels = np.asarray(rows.labels)
    return Subject(path.stem, model.ensemble.n_trees, path, model, rows.values, labels, {})


def rows_of(dataset: str, feature_start: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The authors' rows where they are known, otherwise the first test rows."""
    with np.load(DATA / "data" / f"{dataset}.npz", allow_pickle=False) as arrays:
        part = "attack500" if "X_attack500" in arrays.files else "test"
        X, y = arrays[f"X_{part}"], arrays[f"y_{part}"]
    if X.dtype == np.uint8:
        X = X.astype(np.float32) / np.float32(255)
    if feature_start:
        X = np.hstack([np.zeros((len(X), feature_start), dtype=np.float32), X])
    return X, y.astype(np.int64)


def peers_of(name: str, dataset: str) -> dict[int, dict[str, str]]:
    """What other tools found on a model, by row; empty where nothing is known."""
    kind = name.rpartition("_")[2].replace("unrobust", "natural")
    path = DATA / "peers" / f"anchors_{dataset}_{kind}.csv"
    if not (name.startswith("paper_") and path.exists()):
        return {}
    with path.open(newline="") as file:
        return {int(row["index"]): row for row in csv.DictReader(file)}
