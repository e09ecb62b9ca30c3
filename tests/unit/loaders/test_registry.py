"""Dispatch: what is given finds its loader, and what cannot be loaded gets a sentence."""

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xgboost import XGBClassifier

from tests.random_ensembles import random_ensemble
from treeproof import loaders
from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders import load_ensemble, registry
from treeproof.loaders.base import LoadOptions, version_notes
from treeproof.model.ensemble import Ensemble
from treeproof.model.file_format import save_ensemble
from treeproof.training import RobustGBDTClassifier


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Ensemble]:
    ensemble = random_ensemble(np.random.default_rng(0))
    path = tmp_path / "model.treeproof"
    save_ensemble(ensemble, path)
    return path, ensemble


@pytest.mark.parametrize("as_type", [str, Path])
def test_own_files_are_loaded(as_type: Any, saved: tuple[Path, Ensemble]) -> None:
    path, ensemble = saved
    loaded = load_ensemble(as_type(path))
    assert loaded.fingerprint == ensemble.fingerprint
    assert loaded.provenance.self_test == ensemble.provenance.self_test


def test_an_ensemble_is_itself(saved: tuple[Path, Ensemble]) -> None:
    assert load_ensemble(saved[1]) is saved[1]


def test_estimators_of_treeproof_are_loaded_as_they_are() -> None:
    rows = np.random.default_rng(0).random((60, 3))
    estimator = RobustGBDTClassifier(n_estimators=2).fit(rows, rows[:, 0] > 0.5)
    assert load_ensemble(estimator).fingerprint == estimator.to_ensemble().fingerprint
    with pytest.raises(InvalidInput, match="'base_score' has no meaning for an estimator of"):
        load_ensemble(estimator, options=LoadOptions(base_score=0.3))


def test_a_live_model_and_its_file_have_one_fingerprint(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((60, 3))
    classifier = XGBClassifier(n_estimators=2).fit(rows, rows[:, 0] > 0.5)
    classifier.get_booster().save_model(tmp_path / "model.json")
    live, file = load_ensemble(classifier), load_ensemble(tmp_path / "model.json")
    assert live.infinite_allowed != file.infinite_allowed
    assert live.fingerprint == file.fingerprint


def test_options_that_would_be_ignored_are_refused(saved: tuple[Path, Ensemble]) -> None:
    with pytest.raises(InvalidInput, match="'decision_threshold' has no meaning"):
        load_ensemble(saved[0], options=LoadOptions(decision_threshold=0.3))
    document = saved[0].with_suffix(".json")
    document.write_text('{"learner": {}}')
    with pytest.raises(InvalidInput, match="'base_score' has no meaning for XGBoost"):
        load_ensemble(document, options=LoadOptions(base_score=0.3))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": "first"}, r"'rounds' must be 'best' or 'all'\. Got 'first'"),
        ({"tie": "middle"}, r"'tie' must be 'lower' or 'upper'\. Got 'middle'"),
        ({"missing": 0}, r"'missing' must be 'nan' or 'zero' or 'none'\. Got 0"),
        ({"input_precision": "float16"}, r"must be 'float32' or 'float64'\. Got 'float16'"),
        ({"decision_threshold": 1.5}, r"must be a probability above 0 and up to 1\. Got 1\.5"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        LoadOptions(**options)


def test_a_path_must_lead_to_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"There is no file '.*nowhere\.json'"):
        load_ensemble(tmp_path / "nowhere.json")
    with pytest.raises(InvalidInput, match="is a directory"):
        load_ensemble(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="is no regular file"):
        load_ensemble(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_ensemble("model\0.json")


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    path.write_text("{}")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InvalidInput, match="cannot be read: Permission denied"):
        load_ensemble(path)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "model.json").touch()
    with pytest.raises(BrokenModelFile, match="is empty"):
        load_ensemble(tmp_path / "model.json")


def test_a_file_of_no_known_kind_is_told_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x00" * 100)
    with pytest.raises(BrokenModelFile, match=r"no known kind.*XGBoost.*LightGBM.*CatBoost.*skops"):
        load_ensemble(tmp_path / "model.bin")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.write(b'{"learner":')
        file.truncate(loaders.MAX_FILE_BYTES + 1)
    with pytest.raises(BrokenModelFile, match="at most 4 GB"):
        load_ensemble(path)


class Bomb:
    """Unpickling would end the process."""

    def __reduce__(self) -> Any:
        return os._exit, (77,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", ["model.pkl", "model.json", "model"])
def test_pickles_are_refused_unopened(protocol: int, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(), protocol))
    with pytest.raises(BrokenModelFile, match=r"pickle.*never opens one.*skops.*Model\.save"):
        load_ensemble(tmp_path / name)


def test_joblib_files_are_refused_unopened(tmp_path: Path) -> None:
    import joblib

    for name, compress in (("model.joblib", 0), ("model.bin", 0), ("small.joblib", 3)):
        joblib.dump(Bomb(), tmp_path / name, compress=compress)
        with pytest.raises(BrokenModelFile, match="is a pickle"):
            load_ensemble(tmp_path / name)


def test_compressed_files_are_named(tmp_path: Path) -> None:
    import gzip

    with gzip.open(tmp_path / "model.json.gz", "wb") as file:
        file.write(b'{"learner": {}}')
    with pytest.raises(BrokenModelFile, match="compressed with gzip"):
        load_ensemble(tmp_path / "model.json.gz")


@pytest.mark.parametrize("source", [42, None, object(), {"trees": []}, io.BytesIO(b"x"), b"bytes"])
def test_objects_of_no_known_kind_are_told_what_is_known(source: Any) -> None:
    with pytest.raises(UnsupportedModel, match=r"cannot be loaded. Supported are: XGBoost"):
        load_ensemble(source)


def test_every_loader_keeps_to_the_interface() -> None:
    for entry, loader in registry.loaders():
        assert not loader.accepts_object(42)
        assert not loader.accepts_file(Path("model.bin"), b"\x00" * 64)
        assert entry.options <= set(LoadOptions.__dataclass_fields__)
        assert entry.kinds


def test_no_loader_imports_its_library() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from treeproof.loaders import registry\n"
        "for _, loader in registry.loaders():\n"
        "    loader.accepts_object(42)\n"
        "    loader.accepts_file(Path('model.bin'), bytes(64))\n"
        "libraries = 'xgboost lightgbm catboost sklearn skops treelite pandas'.split()\n"
        "print(sorted(set(libraries) & set(sys.modules)), 'numba' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", "False"]


@pytest.mark.parametrize(
    ("version", "word"),
    [("3.2.0", None), ("1.7.6", None), ("3.3.0", "newer"), ("1.6.2", "older"), ("x", "not known")],
)
def test_versions_outside_the_tested_range_are_noted(version: str, word: str | None) -> None:
    notes = version_notes("XGBoost", version, oldest=(1, 7), newest=(3, 2))
    assert notes == () if word is None else word in notes[0]
