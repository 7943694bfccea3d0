"""Structures of arguments and results: leaves, order of keys, tensor arguments."""

import collections
import types

import attr
import jax
import numpy as np
import pytest

from tf2jax_lite.calling.structures import (
    TensorArgument,
    by_name,
    describe,
    iter_arguments,
    map_structure,
    record_type,
    same_literal,
    walk,
    with_objects,
)
from tf2jax_lite.errors import InputError
from tf2jax_lite.export.reader import flat_results

Pair = collections.namedtuple("Pair", ["second", "first"])


@attr.s(frozen=True)
class Plain:
    second = attr.ib()
    first = attr.ib()


@attr.s(slots=True)
class Partial:
    """An attrs class whose constructor does not take each field by its name."""

    _hidden = attr.ib()
    derived = attr.ib(init=False, default=None)


@pytest.mark.parametrize(
    "structure",
    [
        None,
        [None, (), {}],
        Pair([1], {"b": 2, "a": (3, None)}),
        collections.OrderedDict(b=1, a=[2]),
        {1: 0, "a": 1},
        {"literal": range(3), "text": "abc"},
        collections.defaultdict(list, b=1, a=[2]),
        types.MappingProxyType({"b": 1, "a": None}),
        Plain([1], {"a": None}),
    ],
)
def test_map_structure_keeps_types_keys_and_leaves(structure):
    found = map_structure(lambda leaf: leaf, structure)
    assert found == structure and type(found) is type(structure)
    if isinstance(structure, dict):
        assert list(found) == list(structure)


@pytest.mark.parametrize("kind", [Plain, Partial])
def test_records_become_objects_of_attrs_classes(kind):
    """Also inside of transforms of JAX, which see their fields."""
    names = [attribute.name for attribute in attr.fields(kind)]
    record = record_type(kind.__name__, tuple(names), kind)
    assert record is record_type(kind.__name__, tuple(names), kind)

    def function(x):
        return with_objects(map_structure(lambda leaf: leaf * x, {"found": [record(1, {"b": 2})]}))

    for found in (function(3), jax.jit(function)(3)):
        (item,) = found["found"]
        assert type(item) is kind and [getattr(item, name) for name in names] == [3, {"b": 6}]
        assert jax.tree.leaves(found) == [3, 6]
    assert [path for path, _ in walk(found)] == [("found", 0, names[0]), ("found", 0, names[1], "b")]


def test_an_attrs_class_that_is_a_pytree_stays_as_it_is():
    kind = attr.make_class("Registered", ["x"])
    jax.tree_util.register_pytree_node(kind, lambda item: ((item.x + 1,), None), lambda _, items: kind(*items))
    assert jax.tree.leaves(with_objects([record_type("Registered", ("x",), kind)(1)])) == [2]


def test_walk_yields_leaves_after_their_paths():
    structure = {"z": [1, {2: None, "a": range(2)}], "b": Pair((), 3), "c": {}}
    assert list(walk(structure)) == [
        (("z", 0), 1),
        (("z", 1, 2), None),
        (("z", 1, "a"), range(2)),
        (("b", 1), 3),
    ]
    assert list(walk(4)) == [((), 4)]


def test_iter_arguments_yields_tensors_in_order():
    arguments = [TensorArgument(i, f"t{i}", np.dtype(np.float32), (2,)) for i in range(4)]
    structure = ({"z": arguments[1], "a": [arguments[0], "literal"]}, Pair(arguments[3], None), arguments[2])
    assert [arg.index for arg in iter_arguments(structure)] == [1, 0, 3, 2]
    assert describe(structure[1]) == "Pair(second=float32[2], first=None)"


@pytest.mark.parametrize(
    ("spec", "value", "same"),
    [(1, True, False), (1, 1, True), (2.0, np.float32(2), True), (range(2), range(2), True), (None, None, True)],
)
def test_same_literal(spec, value, same):
    assert same_literal(spec, value) is same


@pytest.mark.parametrize("twice", [{"a/b": 1, "a": {"b": 2}}, {1: 1, "1": 2}, {"a": [1, 2], "a/1": 3}])
def test_names_of_two_leaves(twice):
    with pytest.raises(InputError, match="two arrays of"):
        by_name(twice, lambda leaf: True)
    with pytest.raises(InputError, match="two arrays of"):
        flat_results(twice)
    assert by_name(twice, lambda leaf: leaf == 2).popitem()[1] == 2
