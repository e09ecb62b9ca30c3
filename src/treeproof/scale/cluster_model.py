"""The model of a run on the workers of a Dask cluster, as a plugin that the scheduler keeps."""

import tempfile
from pathlib import Path
from typing import Any

import treeproof
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble
from treeproof.model.file_format import load_saved, save_ensemble
from treeproof.model.remembered import remembered
from treeproof.prediction import Model


@remembered
def _packed(ensemble: Ensemble) -> bytes:
    """A model as the bytes of its file, which give the same model bit for bit."""
    with tempfile.TemporaryDirectory(prefix="treeproof-") as folder:
        path = Path(folder) / "model.treeproof"
        save_ensemble(ensemble, path)
        return path.read_bytes()


def _unpacked(content: bytes) -> Ensemble:
    with tempfile.TemporaryDirectory(prefix="treeproof-") as folder:
        path = Path(folder) / "model.treeproof"
        path.write_bytes(content)
        return load_saved(path)


class _ModelPlugin:
    """Holds the model of a run on a worker."""

    def __init__(self, name: str, ensemble: bytes) -> None:
        self.name = name
        self.idempotent = False
        self._ensemble = ensemble
        self._version = treeproof.__version__
        self.model: Model | None = None

    def setup(self, worker: Any) -> None:
        """Unpack the model when the worker starts."""
        del worker
        if self._version == treeproof.__version__:
            self.model = Model(_unpacked(self._ensemble))

    def teardown(self, worker: Any) -> None:
        """Nothing to close."""

    def loaded(self) -> Model:
        """The model; an error where its version of treeproof is another one."""
        if self.model is None:
            raise InvalidInput(
                f"Workers must have treeproof {self._version}, as the process that asks. Got"
                f" {treeproof.__version__}."
            )
        return self.model


def model_plugin(name: str, ensemble: Ensemble) -> Any:
    """The plugin as one of Dask's, whose class is known only where Dask is installed."""
    from distributed import WorkerPlugin

    kind = type("ModelPlugin", (_ModelPlugin, WorkerPlugin), {"__module__": __name__})
    return kind(name, _packed(ensemble))
