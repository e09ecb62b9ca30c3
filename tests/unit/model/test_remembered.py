"""Values are worked out once per object, and go with it."""

import gc
import weakref

from treeproof.model.remembered import remembered


class Owner:
    pass


def test_a_value_is_worked_out_once_per_object():
    asked = []

    @remembered
    def value_of(owner):
        asked.append(owner)
        return object()

    first, second = Owner(), Owner()
    assert value_of(first) is value_of(first)
    assert value_of(first) is not value_of(second)
    assert asked == [first, second]


def test_neither_objects_nor_values_outlive_the_object():
    class Value:
        pass

    @remembered
    def value_of(owner):
        del owner
        return Value()

    owner = Owner()
    value, there = weakref.ref(value_of(owner)), weakref.ref(owner)
    assert value() is not None
    del owner
    gc.collect()
    assert there() is None
    assert value() is None


def test_an_object_in_the_place_of_a_dead_one_gets_its_own_value():
    seen = []

    @remembered
    def value_of(owner):
        return owner.number

    for number in range(100):  # the same address again and again
        owner = Owner()
        owner.number = number
        seen.append(value_of(owner))
        del owner
    assert seen == list(range(100))
