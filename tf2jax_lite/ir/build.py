"""New nodes and functions, for rewrites of graphs.

`node` makes a node of an op in `SIGNATURES`, with checked attributes and types; `constant` makes a Const. `with_inputs`
and `redirected` rewire a node, `handles_as_arguments` turns nodes into arguments, `FunctionLibrary` collects functions
under free names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .graph import (
    RESOURCE,
    VARIANT,
    DType,
    Function,
    FunctionRef,
    Node,
    NodeSpec,
    OpaqueType,
    TensorRef,
    free_name,
    node_from_spec,
)


class FunctionLibrary:
    """New functions of a graph, under names that the graph does not use.

    Attributes:
      functions: the functions added so far, by name.
    """

    def __init__(self, taken: Iterable[str]):
        self.functions: dict[str, Function] = {}
        self._taken = set(taken)

    def name(self, wanted: str) -> str:
        """Reserve and return ``wanted``, with a number appended if it is in use."""
        return free_name(wanted, self._taken)

    def add(self, function: Function) -> FunctionRef:
        """Add a function and return a reference to it."""
        self.functions[function.name] = function
        return FunctionRef(function.name)


@dataclasses.dataclass(frozen=True)
class Signature:
    """The inputs, outputs and attributes of an op.

    Attributes:
      inputs: a term for each input, see `SIGNATURES`.
      defaults: values of attributes that a caller may leave out.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]

    @functools.cached_property
    def implied(self) -> frozenset[str]:
        """The attributes that inputs determine."""
        return frozenset(name for term in self.inputs for name in term.split("*") if name and name not in _FIXED)

    @functools.cached_property
    def input_types(self) -> tuple[str, ...]:
        """For each input the attribute with its type, "" for others."""
        types = [term.partition("*")[2] if term[:1] != "*" and "*" in term else term for term in self.inputs]
        return tuple("" if name in _FIXED or name[:1] == "*" else name for name in types)

    @functools.cached_property
    def types(self) -> frozenset[str]:
        """The attributes that are types."""
        terms = [term for term in (*self.inputs, *self.outputs) if term[:1] != "*" and term not in _FIXED]
        return frozenset(term.rpartition("*")[2] for term in terms)

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """The names of all attributes."""
        lengths = [term.partition("*")[0] for term in (*self.inputs, *self.outputs) if "*" in term]
        return self.types.union(self.attributes, filter(None, lengths))

    def output_dtypes(self, op: str, attrs: Mapping[str, Any], given: Sequence[DType] | None) -> tuple[DType, ...]:
        """Return the types of outputs, from attributes or as given."""
        for name in self.types:
            if not isinstance(attrs[name], (np.dtype, OpaqueType)):
                raise TypeError(f"attribute {name} of {op} is a type, got {attrs[name]!r}")
        if (given is not None) != any(term[:1] == "*" for term in self.outputs):
            raise TypeError(f"attributes of {op} state the types of its outputs, or dtypes= does")
        if given is not None:
            return tuple(given)
        found: list[Any] = []
        for term in self.outputs:
            number, _, name = term.rpartition("*")
            found += [_FIXED[name] if name in _FIXED else attrs[name]] * (attrs[number] if number else 1)
        return tuple(found)


def _signature(text: str, attributes: str = "", **defaults: Any) -> Signature:
    inputs, outputs = (tuple(term.strip() for term in side.split(",") if term.strip()) for side in text.split("->"))
    return Signature(inputs, outputs, (*attributes.split(), *defaults), defaults)


# The names of attributes and of inputs' types are TensorFlow's, and defaults are its OpDefs'.
SIGNATURES: Mapping[str, Signature] = {
    "AddV2": _signature("T, T -> T"),
    "Bitcast": _signature("T -> type"),
    "Const": _signature("-> dtype", "value"),
    "EmptyTensorList": _signature("shape_type, int32 -> variant", "element_dtype"),
    "Fill": _signature("index_type, T -> T"),
    "Greater": _signature("T, T -> bool"),
    "Identity": _signature("T -> T"),
    "If": _signature("any, *Tin -> *Tout", "then_branch else_branch"),
    "Less": _signature("T, T -> bool"),
    "LogicalAnd": _signature("bool, bool -> bool"),
    "NoOp": _signature("->"),
    "Pack": _signature("N*T -> T", axis=0),
    "ReadVariableOp": _signature("resource -> dtype"),
    "Relu": _signature("T -> T"),
    "SelectV2": _signature("bool, T, T -> T"),
    "Shape": _signature("T -> out_type"),
    "StatefulPartitionedCall": _signature("*Tin -> *Tout", "f"),
    "Switch": _signature("T, bool -> T, T"),
    "TensorListGetItem": _signature("variant, int32, any -> element_dtype"),
    "TensorListPopBack": _signature("variant, int32 -> variant, element_dtype"),
    "TensorListPushBack": _signature("variant, element_dtype -> variant"),
    "TensorListSetItem": _signature("variant, int32, element_dtype -> variant", resize_if_index_out_of_bounds=False),
    "TensorListStack": _signature("variant, int32 -> element_dtype", num_elements=-1),
    "Unpack": _signature("T -> num*T", axis=0),
    "While": _signature("*T -> *T", "cond body"),
    "_CustomGradient": _signature("*, *, * -> *", "gradient positions own"),
    "_GatherPieces": _signature("T -> T", "pieces count axis"),
    "_NoFurtherGradient": _signature("* -> *", "order"),
    "_Recompute": _signature("* -> *", "f stopped"),
    "_Repeat": _signature("Tparams, any, *, * -> Tparams"),
    "_ScanLayers": _signature("*, *, * -> *", "body layers"),
    "_TensorArrayStack": _signature("resource, float32 -> dtype", "element_shape"),
    "_Undefined": _signature("-> dtype"),
}
"""The ops that rewrites make.

A term of inputs and outputs is a dtype, "any", the attribute that has the type, ``N*T`` for a list whose length is the
attribute N, or ``*Tin`` for one of any types and length, which no attribute of the node states.
"""
_FIXED: dict[str, DType | None] = {"any": None, "variant": VARIANT, "resource": RESOURCE}
_FIXED |= {name: np.dtype(name) for name in ("bool", "int32", "float32")}
Source = TensorRef | Node | str
"""An input of a new node: a tensor, or the first output of a node or of the one with this name."""


def node(
    op: str,
    *inputs: Source | Sequence[Source],
    name: str = "",
    control: Iterable[str] = (),
    dtypes: Sequence[DType] | None = None,
    location: str | None = None,
    stateful: bool = False,
    like: Node | None = None,
    **attrs: Any,
) -> Node:
    """Return a node of an op in `SIGNATURES`.

    Args:
      *inputs: a tensor for each input argument; a sequence for a list.
      control: names of nodes that run before it.
      dtypes: the types of its outputs, where no attributes state them.
      like: a node that it replaces, whose name, control edges, location and statefulness it has. Recorded shapes stay
        where the types of the outputs do.
      **attrs: its attributes; annotations (``_...``) may be among them.
    """
    signature = SIGNATURES[op]
    given = {**signature.defaults, **attrs}
    if {key for key in given if not key.startswith("_")} != signature.keys:
        raise TypeError(f"{op} has the attributes {sorted(signature.keys)}, got {sorted(given)}")
    if len(inputs) != len(signature.inputs):
        raise TypeError(f"{op} has {len(signature.inputs)} inputs, got {len(inputs)}")
    groups: list[int | None] = []
    flat: list[TensorRef] = []
    for term, source in zip(signature.inputs, inputs, strict=True):
        is_list = not isinstance(source, (TensorRef, Node, str))
        tensors = [tensor(one) for one in source] if is_list else [tensor(source)]
        if is_list != ("*" in term) or (is_list and given.get(term.partition("*")[0], len(tensors)) != len(tensors)):
            raise TypeError(f"an input of {op} is {term}, got {source!r}")
        groups.append(len(tensors) if is_list else None)
        flat += tensors
    made = signature.output_dtypes(op, given, dtypes)
    spec = NodeSpec(
        op,
        tuple(groups),
        given,
        signature.implied,
        signature.input_types,
        made,
        like.output_shapes if like is not None and like.output_dtypes == made else None,
        like.location if like is not None else location,
        like.stateful if like is not None else stateful,
    )
    before = (*like.control, *control) if like is not None else tuple(control)
    return node_from_spec(spec, like.name if like is not None and not name else name, tuple(flat), before)


def tensor(source: Source) -> TensorRef:
    """Return a tensor, or the first output of a node."""
    if isinstance(source, TensorRef):
        return source
    return TensorRef(source.name if isinstance(source, Node) else source)


def constant(name: str, value: Any, control: tuple[str, ...] = ()) -> Node:
    """Return a Const node.

    Args:
      value: a NumPy array or scalar; its dtype is the node's.
      control: names of nodes that run before it.
    """
    value = np.asarray(value)
    return node("Const", name=name, control=control, value=value, dtype=value.dtype)


def with_inputs(node: Node, inputs: tuple[TensorRef, ...]) -> Node:
    """Return a node with other inputs of the same types; itself if they are its own."""
    return node if inputs == node.inputs else node_from_spec(node.spec, node.name, inputs, node.control)


def redirected(node: Node, moved: Mapping[TensorRef, TensorRef]) -> Node:
    """Return a node that reads mapped tensors; itself if it reads none of them."""
    return with_inputs(node, tuple([moved.get(ref, ref) for ref in node.inputs])) if moved else node


def handles_as_arguments(function: Function, moved: Mapping[str, str]) -> Function:
    """Remove nodes that make handles; their readers read the arguments in ``moved``.

    ``moved`` maps names of nodes to names of arguments.
    """

    def rewired(node: Node) -> Node:
        if not any(ref.node in moved for ref in node.inputs) and not any(name in moved for name in node.control):
            return node
        inputs = tuple(TensorRef(moved.get(ref.node, ref.node), ref.index) for ref in node.inputs)
        control = tuple(name for name in node.control if name not in moved)
        return dataclasses.replace(node, inputs=inputs, control=control)

    return dataclasses.replace(
        function,
        nodes=tuple(rewired(node) for node in function.nodes if node.name not in moved),
        outputs=tuple(TensorRef(moved.get(ref.node, ref.node), ref.index) for ref in function.outputs),
        control_outputs=tuple(name for name in function.control_outputs if name not in moved),
    )
