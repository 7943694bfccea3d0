"""Check of calls: recursion, depth, expanded size."""

import pytest

import tf2jax_lite
from tf2jax_lite import ir
from tf2jax_lite.errors import InvalidModelError, LimitError
from tf2jax_lite.ir.verify import MAX_CALL_DEPTH, check_calls


def _graph(calls):
    """Return a graph of functions that call others, by name."""
    functions = {}
    for name, called in calls.items():
        nodes = tuple(
            ir.Node(f"call_{i}", "PartitionedCall", (), (), (), {"f": ir.FunctionRef(c)}) for i, c in enumerate(called)
        )
        functions[name] = ir.Function(name, (), nodes, ())
    return ir.Graph(functions.pop("main"), functions)


@pytest.mark.parametrize("calls", [{"main": ["f"], "f": ["f"]}, {"main": ["f"], "f": ["g"], "g": ["f"]}])
def test_recursion_raises(calls):
    with pytest.raises(InvalidModelError, match="calls itself"):
        check_calls(_graph(calls))


def test_recursion_of_unreached_functions_counts_if_asked():
    graph = _graph({"main": [], "f": ["f"]})
    check_calls(graph)
    with pytest.raises(InvalidModelError, match="calls itself"):
        check_calls(graph, everything=True)


@pytest.mark.parametrize("depth", [MAX_CALL_DEPTH, MAX_CALL_DEPTH + 1])
def test_depth_of_calls_is_limited(depth):
    graph = _graph({"main": ["f1"], **{f"f{i}": [f"f{i + 1}"] for i in range(1, depth)}, f"f{depth}": []})
    if depth <= MAX_CALL_DEPTH:
        check_calls(graph)
        return
    with pytest.raises(LimitError, match=f"more than {MAX_CALL_DEPTH} deep"):
        check_calls(graph)


@pytest.mark.full
def test_expanded_size_is_limited():
    graph = _graph({"main": ["f0"], **{f"f{i}": [f"f{i + 1}"] * 2 for i in range(8)}, "f8": []})
    check_calls(graph)
    with tf2jax_lite.override_config("max_nodes", 500), pytest.raises(LimitError, match="when calls are expanded"):
        check_calls(graph)
