"""Sets of small numbers as bits of words."""

from collections.abc import Callable
from typing import Any

import numpy as np

from treeproof.kernels.core.compiler import compiled_by

BIT, SIX, LAST = np.uint64(1), np.uint64(6), np.uint64(63)
"""Bit n & LAST of word n >> SIX stands for the number n."""
ALL = np.uint64(2**64 - 1)


def _instruction(name: str) -> Callable[[], Callable[..., Any]]:
    """One instruction; in plain arithmetic it would be most of the loops that need it."""

    def make() -> Callable[..., Any]:
        from llvmlite import ir
        from numba import types
        from numba.extending import intrinsic

        is_undefined_for_zero = ir.Constant(ir.IntType(1), 1)

        def generate(context, builder, signature, arguments):
            if name == "count":
                return builder.ctpop(arguments[0])
            if name == "lowest":
                return builder.cttz(arguments[0], is_undefined_for_zero)
            zeros = builder.ctlz(arguments[0], is_undefined_for_zero)
            return builder.xor(zeros, ir.Constant(ir.IntType(64), 63))

        result = types.int64 if name == "count" else types.uint64

        @intrinsic
        def instruction(context, bits):
            return result(types.uint64), generate

        return lambda bits: instruction(bits)  # noqa: PLW0108 - a function is compiled

    return make


@compiled_by(_instruction("lowest"))
def lowest_bit(bits):
    """Position of the lowest bit that is set; there must be one."""
    return np.uint64((int(bits) & -int(bits)).bit_length() - 1)


@compiled_by(_instruction("highest"))
def highest_bit(bits):
    """Position of the highest bit that is set; there must be one."""
    return np.uint64(int(bits).bit_length() - 1)


@compiled_by(_instruction("count"))
def count_bits(bits):
    """How many bits are set."""
    return np.int64(int(bits).bit_count())
