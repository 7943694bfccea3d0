"""The live nodes of a function do not depend on the order of its nodes."""

import pytest

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import live_nodes, needed_nodes


def _node(name, *inputs, control=()):
    return ir.Node(name, "Op", tuple(map(ir.TensorRef, inputs)), (None,) * len(inputs), control, {})


NODES = {
    "in order": [_node("a", "x"), _node("dead", "a"), _node("b", "a"), _node("write", "b"), _node("c", "b")],
    "back edge": [_node("merge", "x", "next"), _node("dead", "merge"), _node("next", "merge"), _node("c", "next")],
    "what is not there": [_node("a", "gone"), _node("dead", "a"), _node("c", "a")],
}
KEPT = {"in order": "abc", "back edge": ["merge", "next", "c"], "what is not there": "ac"}


def _function(nodes, control=()):
    return ir.Function("f", (ir.Argument("x", None),), tuple(nodes), (ir.TensorRef("c"),), control_outputs=control)


@pytest.mark.parametrize("case", NODES)
@pytest.mark.parametrize("backwards", [False, True])
def test_nodes_that_results_need(case, backwards):
    nodes = NODES[case][::-1] if backwards else NODES[case]
    kept = [node.name for node in live_nodes(_function(nodes), ())]
    assert kept == list(KEPT[case])[:: -1 if backwards else 1]


@pytest.mark.full
@pytest.mark.parametrize(("control", "kept"), [((), "abc"), (("write",), ["a", "b", "write", "c"])])
def test_effects_that_control_outputs_reach(control, kept):
    function = _function(NODES["in order"], control)
    assert [node.name for node in live_nodes(function, ["write"])] == list(kept)
    assert [node.name for node in needed_nodes(function, ["write"], ())] == list(kept)[: 3 * bool(control)]
