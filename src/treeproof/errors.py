"""Every exception that treeproof raises, and its one warning.

TreeproofError
├── InvalidInput (ValueError)       wrong rows, labels, options, paths
│   └── BrokenModelFile             a model file that is damaged, hostile or of no known kind
├── UnsupportedModel                a model that cannot be represented exactly
├── UnsupportedQuery                a question that the chosen engine cannot answer
├── SelfTestFailed                  the loaded model and its own library disagree
├── BackendMissing (ImportError)    an optional library is not installed
├── CertificateRejected             evidence that does not prove its claim
└── InternalError                   a fault of treeproof itself, noticed before it became an answer

ModelWarning (UserWarning)          a model that says less than its users may take for granted

Messages have one form: what, rule, got, and where known the remedy, in one sentence or two.
"""


class TreeproofError(Exception):
    """Base of every error that treeproof raises on purpose."""


class InvalidInput(TreeproofError, ValueError):  # noqa: N818 - reads as a statement
    """An argument, a row, a label or a path breaks a rule that the message names."""


class BrokenModelFile(InvalidInput):
    """A model file is damaged, hostile, or of no known kind."""


class UnsupportedModel(TreeproofError):  # noqa: N818
    """The model is well-formed but cannot be represented exactly."""


class UnsupportedQuery(TreeproofError):  # noqa: N818
    """The engine cannot answer this question; the message says why and what can."""


class SelfTestFailed(TreeproofError):  # noqa: N818
    """The loaded model and its source library give different answers on the same rows."""


class BackendMissing(TreeproofError, ImportError):  # noqa: N818
    """An optional library is needed; the message names the pip command that brings it."""


class CertificateRejected(TreeproofError):  # noqa: N818
    """A certificate does not prove its claim; the message names the place."""


class InternalError(TreeproofError):
    """An engine contradicted itself; nothing is claimed, and the message says what to do."""


class ModelWarning(UserWarning):
    """A loaded model leaves something open that decides its answers; the message says what."""


def require_backend(module: str, extra: str) -> None:
    """Raise `BackendMissing` with the install command when `module` cannot be imported."""
    import importlib

    try:
        importlib.import_module(module)
    except ImportError as error:
        raise BackendMissing(
            f"This needs the library '{module}', which cannot be imported ({error})."
            f" Install it with: pip install 'treeproof[{extra}]'."
        ) from error
