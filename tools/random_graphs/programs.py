"""Programs from which random graphs are made, and their run in TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

PARAM = -1


class Ref(NamedTuple):
    """A value: result ``index`` of node number ``node``, or a parameter (`PARAM`)."""

    node: int
    index: int


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """One step.

    Attributes:
      kind: "op", "call", "cond", "case", "while", or what happens to a variable: "read", "assign", "add".
      inputs: `Ref`, constant arrays, or lists of them. The first of "cond" and "case" picks the branch.
      attrs: the op's attributes; of a "while", ``count`` and ``limit`` (None: counted; else it ends where the sum of
        its first state reaches the limit) and ``stack`` (give that state after every step, too).
    """

    number: int
    kind: str
    op: str = ""
    inputs: tuple[Any, ...] = ()
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bodies: tuple[Program, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    compare: Callable[[list[np.ndarray], list[np.ndarray]], None] | None = None
    jit: bool = True

    def refs(self) -> list[Ref]:
        """Return the values that it takes."""
        flat = [v for value in self.inputs for v in (value if isinstance(value, list) else [value])]
        return [v for v in flat if isinstance(v, Ref)]

    def ops(self) -> set[str]:
        """Return op names, those in bodies included; control flow by its kind."""
        inner = [n.ops() for body in self.bodies for n in body.nodes]
        return set().union({self.op} if self.kind == "op" else {self.kind}, *inner)

    def size(self) -> int:
        """Return how many nodes it is, inner ones included."""
        return 1 + sum(body.size() for body in self.bodies)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """Nodes in order.

    Attributes:
      results: what an inner program returns. An outer one returns everything.
      variables: initial values, by name; the outer program's.
    """

    params: tuple[np.ndarray, ...]
    nodes: tuple[Node, ...]
    results: tuple[Ref, ...] = ()
    variables: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def size(self) -> int:
        """Return how many nodes it has, inner ones included."""
        return sum(node.size() for node in self.nodes)


class Refused(ValueError):
    """TensorFlow does not take a node."""

    def __init__(self, number: int, error: Exception):
        super().__init__(f"node {number}: {error}")
        self.number = number


ERRORS = (tf.errors.OpError, ValueError, TypeError, NotImplementedError, RuntimeError, LookupError, AttributeError)


@functools.cache
def _raw(op: str) -> tuple[Callable[..., Any], list[str], list[str]]:
    """Return an op's function, and its inputs' names there and in the OpDef."""
    function = getattr(tf.raw_ops, op)
    own = [arg.name for arg in op_def_registry.get(op).input_arg]
    names = list(inspect.signature(function).parameters)
    return function, own if set(own) <= set(names) else names[: len(own)], own


def run_node(node: Node, values: Mapping[Ref, Any], variables: Mapping[str, tf.Variable]) -> list[Any]:
    """Run one node in TensorFlow: eagerly, or added to the traced graph."""
    inputs = [[_value(v, values) for v in i] if isinstance(i, list) else _value(i, values) for i in node.inputs]
    if node.kind == "op":
        function, names, own = _raw(node.op)
        if tf.executing_eagerly():
            result = function(**dict(zip(names, inputs, strict=True)), **node.attrs)
        else:
            named = dict(zip(own, inputs, strict=True))
            result = op_def_library.apply_op(
                node.op, name=f"n{node.number}", **named, **{**_defaults(node.op), **node.attrs}
            )
        return [] if result is None or isinstance(result, tf.Operation) else tf.nest.flatten(result)
    if node.kind in ("read", "assign", "add"):
        variable = variables[node.op]
        if node.kind != "read":
            (variable.assign if node.kind == "assign" else variable.assign_add)(inputs[0])
        return [variable.read_value()]
    bodies = [functools.partial(_run_body, body, variables) for body in node.bodies]
    if node.kind == "call":
        call = bodies[0] if tf.executing_eagerly() else tf.function(bodies[0], autograph=False)
        return call(*inputs)
    if node.kind == "while":
        return _run_while(node, bodies[0], inputs, variables)
    branches = [functools.partial(body, *inputs[1:]) for body in bodies]
    if node.kind == "cond":
        return list(tf.cond(inputs[0], *branches))
    return list(tf.switch_case(inputs[0], branches))


def _value(value: Any, values: Mapping[Ref, Any]) -> Any:
    return values[value] if isinstance(value, Ref) else tf.constant(value)


@functools.cache
def _defaults(op: str) -> dict[str, Any]:
    """Return attribute defaults, except those that types determine."""
    # The caller of ``apply_op`` sets the latter.
    from tests.ops.harness import _attr_value

    op_def = op_def_registry.get(op)
    implied = {n for a in op_def.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
    found = {a.name: a for a in op_def.attr if a.HasField("default_value") and a.name not in implied}
    return {name: _attr_value(a.default_value) for name, a in found.items()}


def _run_body(body: Program, variables: Mapping[str, tf.Variable], *args: Any) -> list[Any]:
    values = run(body, args, variables)
    return [tf.identity(values[ref]) for ref in body.results]


def _run_while(
    node: Node, body: Callable[..., list[Any]], state: list[Any], variables: Mapping[str, tf.Variable]
) -> list[Any]:
    count, limit, stack, tally = (node.attrs.get(name) for name in ("count", "limit", "stack", "tally"))
    rows = tf.TensorArray(state[0].dtype, size=count, element_shape=state[0].shape) if stack else None

    def go_on(i: Any, state: Sequence[Any], rows: Any) -> Any:
        if tally:  # the condition's own effect
            variables[tally].assign(variables[tally] * 0.5 + tf.cast(i + 1, variables[tally].dtype))
        if limit is None:
            return i < count
        return tf.logical_and(i < count, tf.reduce_sum(tf.cast(state[0], tf.float64)) < limit)

    def step(i: Any, state: Sequence[Any], rows: Any) -> Any:
        state = body(*state)
        return i + 1, state, rows.write(i, state[0]) if rows is not None else rows

    if rows is None:
        _, state = tf.while_loop(
            lambda i, state: go_on(i, state, None), lambda i, state: step(i, state, None)[:2], (tf.constant(0), state)
        )
        return list(state)
    _, state, rows = tf.while_loop(go_on, step, (tf.constant(0), state, rows))
    return [*state, rows.stack()]


def run(program: Program, args: Sequence[Any], variables: Mapping[str, tf.Variable]) -> dict[Ref, Any]:
    """Run a program in TensorFlow and return every value of its own nodes.

    Raises:
      Refused: TensorFlow does not take one of the nodes.
    """
    values: dict[Ref, Any] = {Ref(PARAM, i): arg for i, arg in enumerate(args)}
    for node in program.nodes:
        try:
            results = run_node(node, values, variables)
        except Refused as error:
            raise Refused(node.number, error) from error
        except ERRORS as error:
            raise Refused(node.number, error) from error
        for index, result in enumerate(results):
            values[Ref(node.number, index)] = result
    return values


def make_variables(program: Program) -> dict[str, tf.Variable]:
    """Return the program's variables with their initial values."""
    return {name: tf.Variable(value, name=name) for name, value in program.variables.items()}


def trace(
    program: Program, variables: Mapping[str, tf.Variable], chosen: Collection[Ref] | None = None
) -> tuple[Any, list[Ref]]:
    """Trace a ``ConcreteFunction`` of all values, or chosen ones; return their Refs.

    Raises:
      Refused: TensorFlow does not take one of the nodes (its shape function may see more than its kernel).
    """
    order: list[Ref] = []

    def fn(*args: Any) -> list[Any]:
        values = run(program, args, variables)
        order[:] = [r for r, v in values.items() if r.node != PARAM and v.dtype not in (tf.resource, tf.variant)]
        if chosen is not None:
            order[:] = [ref for ref in order if ref in chosen]
        return [values[ref] for ref in order]

    specs = [tf.TensorSpec(p.shape, p.dtype, name=f"p{i}") for i, p in enumerate(program.params)]
    function = tf.function(fn, autograph=False)
    function.get_concrete_function(*specs)
    return function, order


def show(program: Program, indent: str = "") -> str:
    """Return the program as text."""

    def text(value: Any) -> str:
        if isinstance(value, Ref):
            return f"p{value.index}" if value.node == PARAM else f"n{value.node}.{value.index}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return f"{value.dtype}{list(value.shape)}:{np.array2string(value, threshold=20, separator=',')}".replace(
            "\n", ""
        )

    lines = [f"{indent}p{i} = {text(p)}" for i, p in enumerate(program.params)]
    lines += [f"{indent}variable {name} = {text(v)}" for name, v in program.variables.items()]
    for node in program.nodes:
        attrs = "".join(f", {k}={v!r}" for k, v in node.attrs.items())
        name = node.op if node.kind == "op" else f"{node.kind} {node.op}".strip()
        lines.append(f"{indent}n{node.number} = {name}({', '.join(map(text, node.inputs))}{attrs})")
        lines += [show(body, indent + "  | ") for body in node.bodies]
    if program.results:
        lines.append(f"{indent}return {', '.join(map(text, program.results))}")
    return "\n".join(lines)
