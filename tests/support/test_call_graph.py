"""Order of functions that call each other; depth: tests/ir/test_verify.py."""

from tf2jax_lite.support.call_graph import callees_first


def test_callees_first_orders_functions():
    order = callees_first({"a": ["b", "c"], "b": ["c", "no entry"], "c": []})
    assert order == ["c", "b", "a"]
