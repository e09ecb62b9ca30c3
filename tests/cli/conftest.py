"""What the tests of the command line share."""

from collections.abc import Callable
from pathlib import Path

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
