"""From a live model or a model file to an `Ensemble`.

Each library has a folder, whose `loader.py` is the way in; the folders do not know each other.
`pipelines/` folds what stands before and around a model into it.
`registry.py` lists the loaders, `base.py` says what they offer and return, `rules.py` has the rules
that libraries share, and `self_test.py` compares what was loaded with the library itself.
"""

import contextlib
import os
import re
import stat
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from treeproof.errors import BrokenModelFile, InvalidInput, ModelWarning, UnsupportedModel
from treeproof.loaders.base import Loaded, LoadOptions
from treeproof.loaders.registry import load_object, loaders, refuse_options, supported_kinds
from treeproof.loaders.self_test import run_self_test
from treeproof.model.ensemble import Ensemble
from treeproof.model.file_format import is_saved, load_saved

MAX_FILE_BYTES = 4 * 2**30
"""Larger files are refused before they are read: models are far smaller, mistakes are not."""

_HEAD_BYTES = 4096
_PICKLE_SUFFIXES = {".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle"}
# Protocols 0 and 1 have no magic number, but begin by naming a global: c<module>\n<name>\n.
_OLD_PICKLE = re.compile(rb"c[A-Za-z_][\w.]*\r?\n[A-Za-z_]\w*\r?\n")
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}


@runtime_checkable
class TrainedHere(Protocol):
    """An estimator that knows its own ensemble: there is nothing to translate or to test."""

    def to_ensemble(self) -> Ensemble:
        """Return the trees that were grown."""
        ...


def load_ensemble(
    source: Any, *, options: LoadOptions | None = None, self_test: bool = True
) -> Ensemble:
    """Load a live model or a model file, and compare it with its library where that can answer.

    The outcome of the comparison is in the provenance. A `ModelWarning` says what the model leaves
    open about what is deployed.
    """
    options = options or LoadOptions()
    if options.classes is not None:
        plain = replace(options, classes=None)
        ensemble = load_ensemble(source, options=plain, self_test=self_test)
        ensemble = _with_classes(ensemble, tuple(np.asarray(options.classes).tolist()))
        return ensemble.with_provenance(options=ensemble.provenance.options | options.given())
    if isinstance(source, Ensemble):
        return source
    if isinstance(source, TrainedHere):
        refuse_options(options, frozenset(), "an estimator of treeproof.training")
        return source.to_ensemble()
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        is_directory = path.is_dir()
        head = b"" if is_directory else _head(path)
        with _naming(path):
            if is_directory:
                loaded = _load_directory(path, options)
            elif is_saved(head):
                refuse_options(
                    options,
                    frozenset(),
                    "a file written by Model.save",
                    "Leave it out, or load the library's own model with it, and save that.",
                )
                return load_saved(path)
            else:
                loaded = _load_file(path, head, options)
    else:
        loaded = load_object(source, options)
    loaded = _with_cautions(loaded, options)
    if self_test:
        return run_self_test(loaded)
    return loaded.ensemble.with_provenance(self_test="skipped on request")


def _with_classes(ensemble: Ensemble, classes: tuple[Any, ...]) -> Ensemble:
    """Name the classes of a model whose labels were encoded before training."""
    if len(classes) != ensemble.n_classes or len(set(classes)) != len(classes):
        raise InvalidInput(
            f"'classes' must be {ensemble.n_classes} different names, one for each of the model's"
            f" own classes {ensemble.classes}. Got {len(classes)}: {str(classes)[:60]}."
        )
    own = tuple(np.asarray(ensemble.classes).tolist())
    return replace(ensemble, classes=classes).with_provenance(own_classes=own)


def _with_cautions(loaded: Loaded, options: LoadOptions) -> Loaded:
    """Keep what a loader cautions about, and how the model was loaded, with it; caution now."""
    for sentence in loaded.cautions:
        # At the line that called `treeproof.load`.
        warnings.warn(sentence, ModelWarning, stacklevel=4)
    notes = loaded.cautions + loaded.ensemble.provenance.notes
    ensemble = loaded.ensemble.with_provenance(notes=notes, options=options.given())
    return replace(loaded, ensemble=ensemble)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Have errors name the file: loaders know its content only, and a user may have many."""
    try:
        yield
    except (BrokenModelFile, UnsupportedModel) as error:
        if path.name in str(error):
            raise
        raise type(error)(f"Model file '{path}': {error}") from error


def _load_file(path: Path, head: bytes, options: LoadOptions) -> Loaded:
    if (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05") or _OLD_PICKLE.match(head):
        raise _pickle_error(path)
    for entry, loader in loaders():
        if loader.accepts_file(path, head):
            refuse_options(options, entry.options, entry.kinds[-1])
            return loader.load_file(path, options)
    if path.suffix.lower() in _PICKLE_SUFFIXES:
        raise _pickle_error(path)
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise BrokenModelFile(
                f"The file '{path}' is compressed with {name}. Decompress it first."
            )
    raise BrokenModelFile(
        f"The file '{path}' is of no known kind. Supported are: {supported_kinds()}."
    )


def _load_directory(path: Path, options: LoadOptions) -> Loaded:
    for entry, loader in loaders():
        if loader.accepts_directory(path):
            refuse_options(options, entry.options, entry.kinds[-1])
            return loader.load_file(path, options)
    raise InvalidInput(f"A model must be a file, or a directory of YDF. '{path}' is a directory.")


def _pickle_error(path: Path) -> BrokenModelFile:
    return BrokenModelFile(
        f"The file '{path}' is a pickle, which can run any program when it is opened, so treeproof"
        " never opens one. Save the model in its library's own format, with skops, or with"
        " Model.save."
    )


def _head(path: Path) -> bytes:
    """First bytes of a file that exists, can be read and has a sane size."""
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
    except FileNotFoundError as error:
        raise InvalidInput(f"There is no file '{path}'.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"The model file '{path}' cannot be read: {reason}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"A model must be a file. '{path}' is no regular file.")
    if not head:
        raise BrokenModelFile(f"The model file '{path}' is empty.")
    if status.st_size > MAX_FILE_BYTES:
        raise BrokenModelFile(
            f"A model file may have at most {MAX_FILE_BYTES // 2**30} GB."
            f" Got {status.st_size / 2**30:.1f} GB in '{path}'."
        )
    return head
