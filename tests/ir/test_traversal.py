"""Traversal of functions and graphs: forwarding, constants, order, calls."""

import numpy as np
import pytest

from tf2jax_lite import ir
from tf2jax_lite.errors import InvalidModelError
from tf2jax_lite.ir import traversal
from tf2jax_lite.ir.build import constant

FLOAT32 = np.dtype(np.float32)


def node(name, op="Sin", inputs=(), control=(), **attrs):
    refs = tuple(map(ir.TensorRef, inputs))
    return ir.Node(name, op, refs, (None,) * len(refs), tuple(control), attrs, output_dtypes=(FLOAT32,))


def by_name(*nodes):
    return {n.name: n for n in nodes}


def test_producer_looks_through_chains_of_identities():
    nodes = by_name(node("a"), node("b", "Identity", ["a"]), node("c", "Identity", ["b"]), node("d", "Cast", ["c"]))
    assert traversal.producer(ir.TensorRef("c"), nodes) is nodes["a"]
    assert traversal.producer(ir.TensorRef("d"), nodes) is nodes["d"]
    assert traversal.producer(ir.TensorRef("d"), nodes, ("Identity", "Cast")) is nodes["a"]
    assert traversal.producer(ir.TensorRef("argument"), nodes) is None
    assert traversal.skip(ir.TensorRef("x"), by_name(node("x", "Identity", ["argument"]))) == ir.TensorRef("argument")


def test_constant_value_looks_through_identities():
    nodes = by_name(constant("c", np.int32([3])), node("i", "Identity", ["c"]))
    np.testing.assert_array_equal(traversal.constant_value(ir.TensorRef("i"), nodes), [3])


def test_topological_order_keeps_order_where_it_can():
    nodes = [node("c", inputs=["b"]), node("d"), node("b", inputs=["x"], control=["a"]), node("a"), node("e")]
    assert [n.name for n in traversal.topological_order("f", nodes)] == ["a", "b", "c", "d", "e"]
    ordered = traversal.topological_order("f", nodes)
    assert traversal.topological_order("f", ordered) == ordered


def test_topological_order_ignores_back_edges_of_loops():
    loop = [node("merge", "Merge", ["enter", "next"]), node("body", inputs=["merge"]), node("enter", "Enter")]
    nodes = [*loop, node("next", "NextIteration", ["body"])]
    assert [n.name for n in traversal.topological_order("f", nodes)] == ["enter", "merge", "body", "next"]


def test_topological_order_of_a_cycle_raises():
    with pytest.raises(InvalidModelError, match=r"'f': nodes '[ab]' and '[ab]' are on a cycle"):
        traversal.topological_order("f", [node("a", inputs=["b"]), node("b", inputs=["a"])])


def _function(name, *called):
    calls = tuple(node(f"call_{c}", "PartitionedCall", f=ir.FunctionRef(c)) for c in called)
    return ir.Function(name, (), calls, ())


@pytest.mark.full
def test_called_functions_are_those_that_the_main_function_reaches():
    library = {f.name: f for f in (_function("f", "g", "missing"), _function("g", "f"), _function("unused", "g"))}
    assert traversal.called_functions(ir.Graph(_function("main", "f"), library)) == {"f", "g"}
