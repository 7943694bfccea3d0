"""Patterns match operations in any graph."""

import pytest

from tf2jax_lite.support.patterns import match, op

# Names of values: the kind of the operation that computes it, and its operands; integers are constants.
GRAPH = {
    "max": ("max", ["counts"]),
    "zero": 0,
    "one": 1,
    "largest": ("maximum", ["zero", "max"]),
    "swapped": ("maximum", ["max", "zero"]),
    "cast": ("cast", ["largest"]),
    "range": ("range", ["zero", "cast", "one"]),
    "twice": ("add", ["counts", "counts"]),
    "mixed": ("add", ["counts", "max"]),
}


class Graph:
    def producer(self, value, through=()):
        while isinstance(found := GRAPH.get(value), tuple):
            if found[0] not in through:
                return value
            value = found[1][0]
        return None

    def kind(self, operation):
        return GRAPH[operation][0]

    def operands(self, operation):
        return GRAPH[operation][1]

    def number(self, value):
        return GRAPH.get(value) if isinstance(GRAPH.get(value), int) else None


LARGEST = op("maximum", 0, op("max", "counts"), commutes=True, name="largest")
CASES = {
    "operands": (op("maximum", 0, op("max", "x")), "largest", {"x": "counts"}),
    "another order": (op("maximum", 0, op("max", "x")), "swapped", None),
    "commutes": (LARGEST, "swapped", {"counts": "counts"}),
    "several kinds": (op({"add", "max"}, "x"), "max", {"x": "counts"}),
    "another kind": (op("add", "x"), "max", None),
    "one name, one value": (op("add", "x", "x"), "twice", {"x": "counts"}),
    "one name, two values": (op("add", "x", "x"), "mixed", None),
    "anything": (op("add", ..., "x"), "mixed", {"x": "max"}),
    "too few operands": (op("max", ..., ...), "max", None),
    "through others": (
        op("range", 0, op("maximum", "a", "b", through=["cast"], name="limit"), 1),
        "range",
        {"a": "zero", "b": "max", "limit": "cast"},
    ),
    "not through others": (op("range", 0, op("maximum")), "range", None),
    "another number": (op("range", 1), "range", None),
    "no operation": (op("max", op("max")), "max", None),
    "a condition": (op("max", "x", where=lambda operation: operation == "max"), "max", {"x": "counts"}),
    "a condition that fails": (op("max", where=lambda operation: False), "max", None),
}


@pytest.mark.parametrize(("pattern", "operation", "expected"), CASES.values(), ids=CASES)
def test_match(pattern, operation, expected):
    found = match(pattern, operation, Graph())
    assert (None if found is None else found.values) == expected


def test_match_returns_named_operations():
    found = match(op("range", 0, op("maximum", through=["cast"], name="limit")), "range", Graph())
    assert found.operations == {"limit": "largest"}
    assert match(LARGEST, "largest", Graph()).operations == {"largest": "largest"}
