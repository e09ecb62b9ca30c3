"""Sets of small numbers as bits of words."""

import numba
import numpy as np

BIT, SIX, LAST = np.uint64(1), np.uint64(6), np.uint64(63)
"""Bit n & LAST of word n >> SIX stands for the number n."""
ALL = np.uint64(2**64 - 1)

if numba.config.DISABLE_JIT:

    def lowest_bit(bits):
        """Position of the lowest bit that is set; there must be one."""
        return np.uint64((int(bits) & -int(bits)).bit_length() - 1)

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _IS_UNDEFINED_FOR_ZERO = ir.Constant(ir.IntType(1), 1)

    # One instruction; in plain arithmetic it would be most of the loops that need it.
    @intrinsic
    def lowest_bit(context, bits):
        """Position of the lowest bit that is set; there must be one."""
        return types.uint64(types.uint64), lambda _, builder, signature, arguments: builder.cttz(
            arguments[0], _IS_UNDEFINED_FOR_ZERO
        )
