import subprocess
import sys

PROGRAM = """
import importlib, pkgutil
import treeproof.kernels
from treeproof.cli.warmup import compile_kernels
from treeproof.kernels.core.compiler import EntryPoint

compile_kernels(everything=True)
for module in pkgutil.walk_packages(treeproof.kernels.__path__, "treeproof.kernels."):
    for name, found in vars(importlib.import_module(module.name)).items():
        if isinstance(found, EntryPoint) and found.machine_code is None:
            print(found.name)
"""


LEFT_OUT = {
    "treeproof.kernels.paper.multilevel.bound_by_any",  # settings of the paper that few ask for
    "treeproof.kernels.exact.hitting.hitting_set",  # minimum reasons by other engines
    "treeproof.kernels.training.histograms.add_rows_in_thread",  # many rows in several threads
    "treeproof.kernels.training.search.search_in_thread",
}


def test_warmup_leaves_no_other_entry_point_to_be_compiled() -> None:
    """Whatever a wheel carries and an image has compiled is what `compile_kernels` asks for."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert set(found.stdout.split()) == LEFT_OUT
