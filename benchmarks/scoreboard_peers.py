"""Other tools for the scoreboard: saved figures, or live runs where a program is given."""

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.subjects import DATA, Subject
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PRINTED = 1e-6
"""Bounds of other programs are printed with six digits."""


@dataclass
class Peer:
    """What a tool found: NaN where it has no answer; a note where rows were left out."""

    lower: FloatArray
    upper: FloatArray
    seconds: FloatArray
    note: str = ""
    tolerance: float = PRINTED
    finished: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        """Rows with a time have an answer."""
        self.finished = ~np.isnan(self.seconds)

    def of(self, rows: NDArray[np.int64]) -> "Peer":
        """The same about some rows."""
        return Peer(
            self.lower[rows], self.upper[rows], self.seconds[rows], self.note, self.tolerance
        )


def nothing(n_rows: int) -> Peer:
    return Peer(*(np.full(n_rows, np.nan) for _ in range(3)))


def kind_of(subject: Subject) -> str:
    """Name of a model in the files of the peers."""
    name = subject.name.removeprefix("paper_")
    dataset, _, kind = name.rpartition("_")
    dataset = {"ijcnn": "ijcnn1", "binary_mnist": "mnist26"}.get(dataset, dataset)
    return f"{dataset}_{kind.replace('unrobust', 'natural')}"


def saved_tree_verification(subject: Subject) -> Peer | None:
    """Figures of treeVerification with the paper's T and L, ten steps; measured elsewhere."""
    if not subject.peers:
        return None
    found = nothing(len(subject.X))
    for row, entry in subject.peers.items():
        if row < len(subject.X) and entry.get("tv_lower"):
            found.lower[row] = float(entry["tv_lower"])
            found.seconds[row] = float(entry["tv_seconds"] or np.nan)
    found.__post_init__()
    found.note = "saved"
    return found if found.finished.any() else None


def saved_lt_attack(subject: Subject) -> Peer | None:
    """LT-attack with 20 starts; measured elsewhere. Rows whose labels differ are other rows."""
    path = DATA / "peers" / f"lt_attack_{kind_of(subject)}.csv"
    if not (subject.name.startswith("paper_") and path.exists()):
        return None
    found = nothing(len(subject.X))
    with path.open(newline="") as file:
        entries = {int(entry["index"]): entry for entry in csv.DictReader(file)}
    same = [int(e["label"]) == int(subject.y[r]) for r, e in entries.items() if r < len(subject.y)]
    if not all(same):
        print(f"{subject.name}: LT-attack's file is about other rows and is left out", flush=True)
        return None
    for row, entry in entries.items():
        if row < len(subject.X) and entry["status"] == "attacked":
            found.upper[row] = float(entry["upper_bound"])
            found.seconds[row] = float(entry["seconds"])
    found.__post_init__()
    found.note = "saved"
    return found


def veritas_trees(subject: Subject) -> Any:
    """The model as Veritas's own trees, split by split.

    Its reader fits a base score to predictions, and with recent versions of XGBoost what it reads
    predicts something else; so the trees are handed over as they are, and compared.
    """
    import veritas

    ensemble = subject.model.ensemble
    trees = ensemble.trees
    found = veritas.AddTree(1, veritas.AddTreeType.CLF_SOFTMAX)
    for tree in range(ensemble.n_trees):
        own = found.add_tree()
        waiting = [(int(trees.root[tree]), own.root())]
        while waiting:
            node, place = waiting.pop()
            if trees.feature[node] < 0:
                own.set_leaf_value(place, float(trees.leaf_value[trees.leaf[node], 0]))
                continue
            own.split(place, int(trees.feature[node]), float(trees.threshold[node]))
            waiting.append((node + 1, own.left(place)))
            waiting.append((int(trees.right[node]), own.right(place)))
    found.set_base_score(0, float(ensemble.aggregation.start[0]))
    sums = np.asarray(found.eval(subject.X)).ravel()
    np.testing.assert_allclose(sums, subject.model.margins(subject.X), atol=1e-4)
    return found


def live_veritas(subject: Subject, radii: FloatArray, asked: Any, cap: float) -> Peer | None:
    """Veritas, 30 steps, guard 1e-8, 10 s per row, from twice a lower bound; two classes only."""
    try:
        import veritas
    except ImportError:
        return None
    if subject.model.ensemble.n_outputs != 1:
        return None
    trees = veritas_trees(subject)
    found = nothing(len(subject.X))
    found.tolerance = 1e-5  # relative to features between 0 and 1; its brackets are that wide
    began = time.perf_counter()
    for row in np.flatnonzero(asked):
        if time.perf_counter() - began > cap:
            break
        # Its intervals cannot be narrower than the float32 numbers that they are made of.
        if not 1e-6 < radii[row] < np.inf:
            continue
        start = 2.0 * (float(subject.peers.get(row, {}).get("tv_lower") or 0.0) or radii[row])
        is_one = subject.y[row] == 1
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            search = veritas.VeritasRobustnessSearch(
                subject.X[row],
                start,
                trees if is_one else None,
                None if is_one else trees,
                num_steps=30,
                max_time=10,
                guard=1e-8,
                silent=True,
            )
            _, low, high = search.search()
        seconds = time.perf_counter() - started
        # A step that runs out of time leaves a wide bracket, and nothing is sought beyond the
        # start: such rows are not finished.
        if high - low <= 1e-3 * radii[row] and high < start:
            found.lower[row], found.upper[row], found.seconds[row] = low, high, seconds
    found.__post_init__()
    found.note = "live"
    return found


def live_program(subject: Subject, program: Path, settings: dict[str, Any]) -> Peer | None:
    """Run treeVerification or LT-attack on the rows, one configuration each.

    Both read a JSON configuration, a model dump and LIBSVM rows. A row whose output has no bound
    is left out.
    """
    import xgboost

    found = nothing(len(subject.X))
    booster = xgboost.Booster(model_file=subject.path)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        dump = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]
        (place / "model.json").write_text(json.dumps(dump))
        for row in range(len(subject.X)):
            # Every entry is written: absent ones are read as something else than zero.
            entries = " ".join(f"{f}:{v:.9g}" for f, v in enumerate(subject.X[row].tolist()))
            (place / "rows.libsvm").write_text(f"{int(subject.y[row])} {entries}\n")
            configuration = settings | {
                "inputs": str(place / "rows.libsvm"),
                "model": str(place / "model.json"),
            }
            (place / "config.json").write_text(json.dumps(configuration))
            started = os.times()
            done = subprocess.run(
                [str(program), str(place / "config.json")],
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
            bound = re.search(r"(?:average bound:|Norm\(-1\)=)\s*([0-9.eE+-]+)", done.stdout)
            if done.returncode == 0 and bound:
                ended = os.times()
                found.seconds[row] = ended.children_user - started.children_user
                side = found.upper if "Norm" in bound[0] else found.lower
                side[row] = float(bound[1])
    found.__post_init__()
    found.note = "live"
    return found if found.finished.any() else None
