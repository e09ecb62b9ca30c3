"""What is worked out of an ensemble only once: layouts of its trees, its fingerprint, …."""

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Owner = TypeVar("Owner")
Value = TypeVar("Value")


def remembered(build: Callable[[Owner], Value]) -> Callable[[Owner], Value]:
    """Remember what a function of one object returns, for as long as the object lives.

    Parameters
    ----------
    build : callable
        A function of an object that never changes. What it returns must not refer to the object,
        or both would live for ever.
    """
    # By number: ensembles hold arrays and dictionaries, so they have no hash.
    known: dict[int, tuple[weakref.ref[Any], Value]] = {}

    @wraps(build)
    def value_of(owner: Owner) -> Value:
        number = id(owner)
        found = known.get(number)
        if found is not None and found[0]() is owner:
            return found[1]

        def forget(reference: "weakref.ref[Any]") -> None:
            # The number may belong to another object by now; only the dead one's entry goes.
            if number in known and known[number][0] is reference:
                del known[number]

        value = build(owner)
        known[number] = (weakref.ref(owner, forget), value)
        return value

    return value_of
