"""treeproof: exact robustness proofs for tree ensembles.

Public names are imported on first use, so that ``import treeproof`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treeproof.errors import (
    BackendMissing,
    BrokenModelFile,
    CertificateRejected,
    InvalidInput,
    SelfTestFailed,
    TreeproofError,
    UnsupportedModel,
    UnsupportedQuery,
)

if TYPE_CHECKING:
    from treeproof.api import load
    from treeproof.prediction import Model

__version__ = "0.1.0"

__all__ = [
    "BackendMissing",
    "BrokenModelFile",
    "CertificateRejected",
    "InvalidInput",
    "Model",
    "SelfTestFailed",
    "TreeproofError",
    "UnsupportedModel",
    "UnsupportedQuery",
    "__version__",
    "load",
]

_HOMES = {
    "Model": "treeproof.prediction",
    "load": "treeproof.api",
}
"""Where each lazily imported name lives."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treeproof' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
