"""Kernels as plain Python and as machine code, in one process."""

import os
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from unittest import mock

import treeproof.kernels
from treeproof.kernels.core.compiler import EntryPoint


def entry_points() -> dict[str, EntryPoint]:
    """All kernels that Python calls, by name."""
    modules = pkgutil.walk_packages(treeproof.kernels.__path__, "treeproof.kernels.")
    found = [entry for module in modules for entry in vars(import_module(module.name)).values()]
    return {entry.name: entry for entry in found if isinstance(entry, EntryPoint)}


@contextmanager
def plain() -> Iterator[None]:
    """Let all kernels run as plain Python, also those that are compiled already."""
    before = [(entry, entry.machine_code) for entry in entry_points().values()]
    for entry, _ in before:
        entry.machine_code = None
    try:
        with mock.patch.dict(os.environ, TREEPROOF_PLAIN="always"):
            yield
    finally:
        for entry, machine_code in before:
            entry.machine_code = machine_code


@contextmanager
def machine_code() -> Iterator[None]:
    """Let all kernels run as machine code."""
    with mock.patch.dict(os.environ, TREEPROOF_PLAIN="never"):
        yield
