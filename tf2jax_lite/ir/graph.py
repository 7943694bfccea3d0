"""The intermediate representation: frozen, printable, and free of both TensorFlow and JAX.

A `Graph` is a main `Function` and a library of functions. A `Function` is a list of `Node`s in topological
order. Attributes are Python values: int, float, bool, str, `numpy.dtype` (or `OpaqueType`), shape tuples with
None for unknown dimensions (a shape of unknown rank is None), numpy arrays, `FunctionRef`s, and lists of these.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

__all__ = [
    "RESOURCE",
    "STRING",
    "VARIANT",
    "Argument",
    "Capture",
    "DType",
    "Function",
    "FunctionRef",
    "Graph",
    "Node",
    "OpaqueType",
    "TensorRef",
    "Variable",
    "free_name",
    "functions_in",
    "node_like",
]

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
class Shared:
    """What nodes may have in common; see `Node`."""

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
    """The functions that the attributes name, but for those that only describe the node (``_...``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", functions_in(self.attrs))


def _of_shared(name: str) -> Any:
    return property(operator.attrgetter(f"form.{name}"))


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Node:
    """One operation.

    Attributes:
      name: unique within its function.
      op: TensorFlow op name.
      inputs: data inputs, flat.
      groups: for each OpDef input argument the number of tensors it holds, or None for a single tensor.
      control: names of nodes that must have run before.
      attrs: attributes as Python values, OpDef defaults filled in.
      implied: names of attributes that the inputs already determine (input types, list lengths).
      input_types: for each OpDef input argument the type attribute that its tensors share, or "".
      output_dtypes: dtypes of the outputs, flat.
      output_shapes: recorded shapes of the outputs, or None where TensorFlow recorded none.
      location: Python source line that made the node, if recorded.
      stateful: whether TensorFlow runs it in a function although nothing uses its results.
      functions: the functions that the attributes name, but for those that only describe the node (``_...``).
      form: all but name, inputs and control edges, in one object. Nodes that are alike may share it.
    """

    __slots__ = ("control", "form", "inputs", "name")  # a graph has many nodes: a dict in each takes time and memory

    name: str
    op: str = _of_shared("op")
    inputs: tuple[TensorRef, ...]
    groups: tuple[int | None, ...] = _of_shared("groups")
    control: tuple[str, ...]
    attrs: Mapping[str, Any] = _of_shared("attrs")
    implied: frozenset[str] = _of_shared("implied")
    input_types: tuple[str, ...] = _of_shared("input_types")
    output_dtypes: tuple[DType, ...] = _of_shared("output_dtypes")
    output_shapes: tuple[Shape, ...] | None = _of_shared("output_shapes")
    location: str | None = _of_shared("location")
    stateful: bool = _of_shared("stateful")
    functions = _of_shared("functions")

    if TYPE_CHECKING:
        form: Shared

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
        form = Shared(op, groups, attrs, implied, input_types, output_dtypes, output_shapes, location, stateful)
        for field, value in (("form", form), ("name", name), ("inputs", inputs), ("control", control)):
            object.__setattr__(self, field, value)

    def __str__(self) -> str:
        shown = {k: v for k, v in self.attrs.items() if k not in self.implied and not k.startswith("_")}
        attrs = ", ".join(f"{k}={_short(v)}" for k, v in sorted(shown.items()))
        inputs = ", ".join([*map(str, self.inputs), *(f"^{c}" for c in self.control)])
        outputs = ", ".join(str(d) for d in self.output_dtypes)
        return f"{self.name} = {self.op}({inputs}){{{attrs}}} -> ({outputs})"


_new = object.__new__
_set_form, _set_name, _set_inputs, _set_control = (
    Node.__dict__[slot].__set__ for slot in ("form", "name", "inputs", "control")
)


def functions_in(attrs: Mapping[str, Any]) -> tuple[FunctionRef, ...]:
    """Returns what `Node.functions` is for these attributes."""
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
    """Returns ``wanted``, or that with a number if it is taken, and adds it to ``taken``."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def node_like(form: Shared, name: str, inputs: tuple[TensorRef, ...], control: tuple[str, ...] = ()) -> Node:
    """Returns a node of a form that many share, without the cost of `Node`'s own constructor.

    Args:
      form: what it shares with others.
      name: its name.
      inputs: its data inputs.
      control: names of nodes that must have run before.
    """
    node = _new(Node)
    _set_form(node, form)
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
    """A TensorFlow variable: its unique name, and what is known about its value.

    ``value`` is None where the value lives elsewhere (a variable that the graph creates itself).
    """

    name: str
    dtype: np.dtype
    shape: Shape
    trainable: bool = False
    value: Any = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Capture:
    """What the main function closes over: argument number ``index`` is this variable, constant or opaque thing."""

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
    def forms(self) -> frozenset[Shared]:
        """What its nodes have in common with others."""
        return frozenset([node.form for node in self.nodes])

    @functools.cached_property
    def ops(self) -> frozenset[str]:
        """The ops of its nodes."""
        return frozenset([form.op for form in self.forms])

    @functools.cached_property
    def callers(self) -> tuple[Node, ...]:
        """Its nodes that name functions."""
        return self.of_forms({form for form in self.forms if form.functions})

    def of_forms(self, forms: Set[Shared]) -> tuple[Node, ...]:
        """Returns its nodes of some forms."""
        return tuple([node for node in self.nodes if node.form in forms]) if forms else ()

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
    def ops(self) -> frozenset[str]:
        """The ops of all nodes."""
        return self.main.ops.union(*[function.ops for function in self.functions.values()])

    def mapped(self, change: Callable[[Function], Function]) -> Graph:
        """Returns the graph with each function changed; itself if none of them was."""
        main, functions = change(self.main), {name: change(function) for name, function in self.functions.items()}
        if main is self.main and all(functions[name] is function for name, function in self.functions.items()):
            return self
        return dataclasses.replace(self, main=main, functions=functions)

    def walk(self) -> Iterator[tuple[Function, Node]]:
        """Yields every node with its function, the main function first."""
        for function in (self.main, *self.functions.values()):
            for node in function.nodes:
                yield function, node

    def __str__(self) -> str:
        return "\n\n".join(map(str, (self.main, *self.functions.values())))
