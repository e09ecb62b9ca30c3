"""numba without the steps that kernels do not need: a third of the time.

It is made of internal parts of numba, so it is used with releases that it was tested with
(`treeproof.kernels.core.machine_code`); importing it with one that lacks a part fails.
"""

from collections import Counter
from functools import cache
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
from numba import njit
from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.lowering import Lower
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import NativeLowering

from treeproof.kernels.core.progress import progress

COMMON = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of every kernel."""

BORROWED = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
"""numba's private option for code that counts no references. A numba without it compiles the same
code with counts, which is slower and nothing else."""


class _Linked(JITCodeLibrary):  # type: ignore[misc]
    """Code of an inner kernel: LLVM's intermediate form, to be linked into entry points.

    numba optimises and translates every function together with all that it calls, once for the
    function and once more for each of its callers. What no Python code calls needs no machine code
    of its own: it is optimised and translated where it ends up, once for each entry point.
    """

    codegen = SimpleNamespace(set_env=lambda name, environment: None)  # nothing runs by itself
    _final_module: Any

    def _optimize_functions(self, module: Any) -> None:
        """Shorten what numba wrote; the rest is left to the entry point."""
        module.data_layout = self._codegen._data_layout
        builder = llvm.create_pass_builder(
            self._codegen._tm, llvm.create_pipeline_tuning_options(speed_level=1)
        )
        steps = llvm.create_new_module_pass_manager()
        steps.add_sroa_pass()
        steps.add_instruction_combine_pass()
        steps.add_refprune_pass()
        steps.run(module, builder)

    def finalize(self) -> None:
        """Link, optimise and translate nothing; keep the code as bytes, which are much smaller."""
        self._finalize_dynamic_globals()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"  # every entry point has its own copy
        self._bitcode = self._final_module.as_bitcode()
        self._final_module = None
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Parse the code, anew for every entry point."""
        return llvm.parse_bitcode(self._bitcode)

    def get_pointer_to_function(self, name: str) -> int:
        """Address of what Python calls in place of an inner kernel: it refuses all arguments."""
        self._ensure_finalized()
        return _refusal_address()


class _EntryPoint(JITCodeLibrary):  # type: ignore[misc]
    """Machine code of an entry point and of all inner kernels that it needs."""

    def finalize(self) -> None:
        """Link every inner kernel once, after all that call it; optimise; translate.

        LLVM drops what nothing calls when it is linked, so callers come first.
        """
        ordered: dict[Any, None] = {}

        def visit(library: Any) -> None:
            if isinstance(library, _Linked):
                for callee in library._linking_libraries:
                    if callee not in ordered:
                        visit(callee)
            ordered[library] = None

        for library in self._linking_libraries:
            if library not in ordered:
                visit(library)
        self._linking_libraries: list[Any] = list(reversed(ordered))
        super().finalize()

    def _verify_declare_only_symbols(self) -> None:
        """Refuse code with a call of nothing."""
        missing = [
            function.name
            for function in self._final_module.functions
            if function.is_declaration and function.name.startswith("_ZN")
        ]
        if missing:
            raise AssertionError(f"These kernels were not linked: {missing}.")

    def _optimize_final_module(self) -> None:
        """Optimise as numba does, but unroll and vectorise no loops.

        Most loops are short; that code takes a third of the time to translate and gains nothing.
        """
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        # The first pass brings references that are counted and given up together, to be pruned.
        first, its_builder = self._codegen._module_pass_manager(opt=0, cost="cheap")
        first.run(self._final_module, its_builder)
        steps = builder.getModulePassManager()
        steps.add_refprune_pass()
        steps.run(self._final_module, builder)


@cache
def _refusal_address() -> int:
    @njit
    def kernel_that_only_kernels_call():  # pragma: no cover - refuses its arguments
        return 0

    kernel_that_only_kernels_call.compile(())
    compiled = kernel_that_only_kernels_call.overloads[()]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cpython_wrapper_name))


class _Lower(Lower):  # type: ignore[misc]
    """numba's translation of a function to LLVM, with fewer copies of groups of arrays.

    numba gives variables that are used in several blocks a place in memory, copies whole groups
    there and back, and counts references to each of their arrays.

    Sound: arguments are borrowed. The caller holds them until the call returns, and copies of them
    are counted. A variable without counted references that is assigned in one place, from which all
    its uses are reached, is that value.
    """

    def _find_singly_assigned_variable(self) -> None:
        super()._find_singly_assigned_variable()
        blocks = self.blocks.values()
        steps = [step for block in blocks for step in block.find_insts(ir.Assign)]
        times = Counter(step.target.name for step in steps)
        once = {name for name, count in times.items() if count == 1}
        self._borrowed = once & {
            step.target.name for step in steps if isinstance(step.value, ir.Arg)
        }
        dominators = compute_cfg_from_blocks(self.blocks).dominators()
        variables = compute_use_defs(self.blocks)
        places = {name: place for place, names in variables.defmap.items() for name in names}
        for place, names in variables.usemap.items():
            for name in names & once:
                if places[name] >= place or places[name] not in dominators[place]:
                    once.remove(name)
        self._singly_assigned_vars |= {name for name in once if not self._is_counted(name)}

    def _is_counted(self, name: str) -> bool:
        """Whether references to what a variable holds are counted."""
        if not self.context.enable_nrt or name in self._borrowed:
            return False
        return bool(self.context.data_model_manager[self.typeof(name)].contains_nrt_meminfo())

    def lower_assign(self, type_: Any, statement: Any) -> Any:
        """Value of an assignment."""
        if statement.target.name in self._borrowed:
            value = self.fnargs[statement.value.index]
            own = self.typeof(f"arg.{statement.value.name}")
            return self.context.cast(self.builder, value, own, type_)
        return super().lower_assign(type_, statement)

    def delvar(self, name: str) -> None:
        """End the life of a variable, which matters where references are counted."""
        if self._is_counted(name):
            super().delvar(name)


class _Lowering(NativeLowering):  # type: ignore[misc]
    """numba's last step, with a library of our own."""

    lowering_class = _Lower
    library: type[JITCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        """Translate a typed function."""
        progress.step(state.func_id.func)
        if state.library is None:
            state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(_Lowering):
    _name = "linked_lowering"
    library = _Linked


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(_Lowering):
    _name = "entry_lowering"
    library = _EntryPoint


class _SharedFlags(Flags):  # type: ignore[misc]
    """What numba's own functions are compiled with, wherever kernels call them.

    numba compares all options of all callers, and compiles a function again for each set of them.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@cache
def _shared_flags() -> _SharedFlags:
    flags = _SharedFlags()
    CPUTargetOptions.parse_as_flags(flags, COMMON | {"nopython": True})
    return flags


_STEPS = {
    "TranslateByteCode",
    "FixupArgs",
    "IRProcessing",
    "RewriteSemanticConstants",
    "DeadBranchPrune",
    "GenericRewrites",
    "ReconstructSSA",
    "NopythonTypeInference",
    "PreLowerStripPhis",
    "IRLegalization",
    "NativeLowering",
    "NoPythonBackend",
}
"""The steps of numba that plain loops over arrays need; others look for what no kernel has, such as
closures, contexts, exceptions with values and expressions over whole arrays."""


def check_steps() -> None:
    """Refuse a numba that has renamed one of the steps: it would be left out without a word."""
    state = SimpleNamespace(func_ir=None, flags=Flags())
    steps = DefaultPassBuilder.define_nopython_pipeline(state).passes
    missing = _STEPS - {step.__name__ for step, _ in steps}
    if missing:
        raise ImportError(f"this numba has no steps named {sorted(missing)}")


class _Compiler(CompilerBase):  # type: ignore[misc]
    """numba's own steps, without those that kernels do not need and with another last one."""

    lowering: type[_Lowering]

    def _compile_core(self) -> Any:
        with ConfigStack().enter(_shared_flags()):
            (steps,) = self.define_pipelines()
            steps.run(self.state)
        self.state.pipeline = None
        return self.state.cr

    def define_pipelines(self) -> list[Any]:
        """List the steps."""
        steps = DefaultPassBuilder.define_nopython_pipeline(self.state)
        steps.passes = [
            (self.lowering if step is NativeLowering else step, words)
            for step, words in steps.passes
            if step.__name__ in _STEPS
        ]
        steps.finalize()
        return [steps]


class EntryCompiler(_Compiler):
    """Steps of an entry point."""

    lowering = _EntryLowering


class LinkedCompiler(_Compiler):
    """Steps of an inner kernel."""

    lowering = _LinkedLowering
