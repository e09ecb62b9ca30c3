"""What the tests of the command line share."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.unit.model.test_file_format import binary_stump
from treeproof.cli.main import main
from treeproof.model.ensemble import Provenance
from treeproof.model.file_format import save_ensemble


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run `treeproof` with the given words; a bug raises, as a traceback would in a shell."""

    def call(*words: object) -> Result:
        arguments = [str(word) for word in words]
        return CliRunner().invoke(main, arguments, prog_name="treeproof", catch_exceptions=False)

    return call


@pytest.fixture
def saved_model(tmp_path: Path) -> Path:
    ensemble = binary_stump(
        classes=("ham", "spam"),
        feature_names=("width [cm]",),
        provenance=Provenance(library="test", library_version="1.2", notes=("Look here.",)),
    )
    path = tmp_path / "model.treeproof"
    save_ensemble(ensemble, path)
    return path


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, np.ndarray]:
    """A model of digits that tells eights from others, six rows as a file, and in memory."""
    import xgboost as xgb
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    booster = xgb.train(
        {"max_depth": 3, "objective": "binary:logistic", "nthread": 1}, xgb.DMatrix(X, y == 8), 4
    )
    booster.save_model(folder / "model.json")
    np.savez(folder / "rows.npz", X=X[:6], y=(y[:6] == 8).astype(int))
    return folder / "model.json", folder / "rows.npz", X[:6]
