"""Graph, Function and Node: frozen, printable, without TensorFlow and JAX.

A `Graph` is a main `Function` and a library of functions. A `Function` is a list of `Node`s in topological
order. Attributes are Python values: int, float, bool, str, `numpy.dtype` (or `OpaqueType`), shape tuples with
None for unknown dimensions (a shape of unknown rank is None), numpy arrays, `FunctionRef`s, and lists of these.

Graphs repeat a few hundred combinations of op, attributes and dtypes, so nodes share them: see `NodeSpec`.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

Shape = tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class OpaqueType:
    """A TensorFlow type that no numpy dtype holds: resource, variant or string."""

    name: str

    def __str__(self) -> str:
        return self.name


RESOURCE = OpaqueType("resource")
VARIANT = OpaqueType("variant")
STRING = OpaqueType("string")

DType = np.dtype | OpaqueType


class TensorRef(NamedTuple):
    """Output number ``index`` of the node (or argument) called ``node``."""

    node: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionRef:
    """A function-valued attribute: the name of a function in the graph's library."""

    name: str
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class NodeSpec:
    """All of a `Node` but name, inputs and control edges; equality is identity.

    Nodes may share one.
    """

    op: str
    groups: tuple[int | None, ...]
    attrs: Mapping[str, Any]
    implied: frozenset[str] = frozenset()
    input_types: tuple[str, ...] = ()
    output_dtypes: tuple[DType, ...] = ()
    output_shapes: tuple[Shape, ...] | None = None
    location: str | None = None
    stateful: bool = False
    functions: tuple[FunctionRef, ...] = dataclasses.field(init=False)
    """The functions that the attributes name, without annotations (attributes called ``_...``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", functions_in(self.attrs))


def _of_spec(name: str) -> Any:
    return property(operator.attrgetter(f"spec.{name}"))


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Node:
    """One operation.

    Attributes:
      name: unique within its function.
      groups: for each OpDef input argument the number of tensors it holds, or None for a single tensor.
      control: names of nodes that must have run before.
      attrs: attributes as Python values, OpDef defaults filled in.
      implied: names of attributes that the inputs already determine (input types, list lengths).
      input_types: for each OpDef input argument the type attribute that its tensors share, or "".
      output_shapes: recorded shapes of the outputs, or None where TensorFlow recorded none.
      location: Python source line that made the node, if recorded.
      stateful: whether TensorFlow runs it in a function although nothing uses its results.
      functions: the functions that the attributes name, without annotations (attributes called ``_...``).
      spec: everything but name, inputs and control edges, in one object that nodes may share.
    """

    __slots__ = ("control", "inputs", "name", "spec")  # a dict in each of many nodes takes time and memory

    name: str
    op: str = _of_spec("op")
    inputs: tuple[TensorRef, ...]
    groups: tuple[int | None, ...] = _of_spec("groups")
    control: tuple[str, ...]
    attrs: Mapping[str, Any] = _of_spec("attrs")
    implied: frozenset[str] = _of_spec("implied")
    input_types: tuple[str, ...] = _of_spec("input_types")
    output_dtypes: tuple[DType, ...] = _of_spec("output_dtypes")
    output_shapes: tuple[Shape, ...] | None = _of_spec("output_shapes")
    location: str | None = _of_spec("location")
    stateful: bool = _of_spec("stateful")
    functions = _of_spec("functions")

    if TYPE_CHECKING:
        spec: NodeSpec

    def __init__(
        self,
        name: str,
        op: str,
        inputs: tuple[TensorRef, ...],
        groups: tuple[int | None, ...],
        control: tuple[str, ...],
        attrs: Mapping[str, Any],
        implied: frozenset[str] = frozenset(),
        input_types: tuple[str, ...] = (),
        output_dtypes: tuple[DType, ...] = (),
        output_shapes: tuple[Shape, ...] | None = None,
        location: str | None = None,
        stateful: bool = False,
    ):
        spec = NodeSpec(op, groups, attrs, implied, input_types, output_dtypes, output_shapes, location, stateful)
        for field, value in (("spec", spec), ("name", name), ("inputs", inputs), ("control", control)):
            object.__setattr__(self, field, value)

    def __str__(self) -> str:
        visible = {k: v for k, v in self.attrs.items() if k not in self.implied and not k.startswith("_")}
        attrs = ", ".join(f"{k}={_short(v)}" for k, v in sorted(visible.items()))
        inputs = ", ".join([*map(str, self.inputs), *(f"^{c}" for c in self.control)])
        outputs = ", ".join(str(d) for d in self.output_dtypes)
        return f"{self.name} = {self.op}({inputs}){{{attrs}}} -> ({outputs})"


_new = object.__new__
_set_spec, _set_name, _set_inputs, _set_control = (
    Node.__dict__[slot].__set__ for slot in ("spec", "name", "inputs", "control")
)


def functions_in(attrs: Mapping[str, Any]) -> tuple[FunctionRef, ...]:
    """Return the functions that attributes name: the value of `Node.functions`."""
    found: list[FunctionRef] = []
    for name, value in attrs.items():
        if name[:1] != "_":
            kind = type(value)
            if kind is FunctionRef:
                found.append(value)
            elif kind is list:
                found.extend(item for item in value if isinstance(item, FunctionRef))
    return tuple(found)


def free_name(wanted: str, taken: set[str]) -> str:
    """Return ``wanted``, numbered if it is in ``taken``, and add it to ``taken``."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def node_from_spec(spec: NodeSpec, name: str, inputs: tuple[TensorRef, ...], control: tuple[str, ...] = ()) -> Node:
    """Return a node with a shared spec, without the cost of `Node`'s own constructor.

    Args:
      control: names of nodes that must have run before.
    """
    node = _new(Node)
    _set_spec(node, spec)
    _set_name(node, name)
    _set_inputs(node, inputs)
    _set_control(node, control)
    return node


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}" if value.size > 8 else repr(value.tolist())
    if isinstance(value, FunctionRef):
        return f"@{value.name}"
    return str(value)


@dataclasses.dataclass(frozen=True)
class Argument:
    """A formal argument of a function."""

    name: str
    dtype: DType
    shape: Shape = None


@dataclasses.dataclass(frozen=True)
class Variable:
    """A TensorFlow variable: its unique name, type and value.

    ``value`` is None for a variable whose value the loader has not read, or that the graph creates itself. ``layers``
    has the names of the variables that are stacked in it.
    """

    name: str
    dtype: np.dtype
    shape: Shape
    trainable: bool = False
    value: Any = dataclasses.field(default=None, compare=False, repr=False)
    layers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Capture:
    """A captured main argument: ``index`` of a variable, constant or object."""

    index: int
    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A function body: arguments, nodes in topological order, results."""

    name: str
    args: tuple[Argument, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[TensorRef, ...]
    output_names: tuple[str, ...] = ()
    control_outputs: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def specs(self) -> frozenset[NodeSpec]:
        """The specs of its nodes."""
        return frozenset([node.spec for node in self.nodes])

    @functools.cached_property
    def ops(self) -> frozenset[str]:
        """The ops of its nodes."""
        return frozenset([spec.op for spec in self.specs])

    @functools.cached_property
    def callers(self) -> tuple[Node, ...]:
        """Its nodes that name functions."""
        return self.with_specs({spec for spec in self.specs if spec.functions})

    def with_specs(self, specs: Set[NodeSpec]) -> tuple[Node, ...]:
        """Return its nodes that have one of these specs."""
        return tuple([node for node in self.nodes if node.spec in specs]) if specs else ()

    def __str__(self) -> str:
        args = ", ".join(f"{a.name}: {a.dtype}{'' if a.shape is None else list(a.shape)}" for a in self.args)
        lines = [f"func {self.name}({args}):", *(f"  {node}" for node in self.nodes)]
        returned = [*map(str, self.outputs), *(f"^{c}" for c in self.control_outputs)]
        return "\n".join([*lines, f"  return {', '.join(returned)}"])


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """A main function, the functions it calls (directly or not), and what it captures."""

    main: Function
    functions: Mapping[str, Function]
    captures: tuple[Capture, ...] = ()

    @functools.cached_property
    def specs(self) -> frozenset[NodeSpec]:
        """The specs of all nodes."""
        return self.main.specs.union(*[function.specs for function in self.functions.values()])

    @functools.cached_property
    def ops(self) -> frozenset[str]:
        """The ops of all nodes."""
        return self.main.ops.union(*[function.ops for function in self.functions.values()])

    def mapped(self, change: Callable[[Function], Function]) -> Graph:
        """Return the graph with ``change`` applied to functions; itself if unchanged."""
        main, functions = change(self.main), {name: change(function) for name, function in self.functions.items()}
        if main is self.main and all(functions[name] is function for name, function in self.functions.items()):
            return self
        return dataclasses.replace(self, main=main, functions=functions)

    def walk(self) -> Iterator[tuple[Function, Node]]:
        """Yield every node with its function, the main function first."""
        for function in (self.main, *self.functions.values()):
            for node in function.nodes:
                yield function, node

    def __str__(self) -> str:
        return "\n\n".join(map(str, (self.main, *self.functions.values())))
