"""GraphDef and FunctionDef protos to IR functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import topological_order
from tf2jax_lite.ir.verify import check_calls
from tf2jax_lite.support.errors import InvalidModelError
from tf2jax_lite.support.gc_pause import paused

from . import attributes, dtypes, op_defs
from .nodes import NodeDefSpec, read_node, recorded_shapes
from .size_limits import ConstantBytes, check_functions_size


@paused()
def load_library(library: Any, skip: Collection[str] = ()) -> dict[str, ir.Function]:
    """Return every function of a FunctionDefLibrary by name."""
    signatures = {proto.signature.name: proto.signature for proto in library.function}
    if len(signatures) != len(library.function):
        raise InvalidModelError("two functions of the library have the same name.")
    return {
        proto.signature.name: load_function(proto, signatures)
        for proto in library.function
        if proto.signature.name not in skip
    }


def load_function(proto: Any, signatures: Mapping[str, Any]) -> ir.Function:
    """Return a FunctionDef as an IR function.

    Args:
      signatures: signatures of the library's functions by name, for nodes that call a function by its name.
    """
    signature = proto.signature
    args = []
    for index, arg in enumerate(signature.input_arg):
        shape: ir.Shape = None
        recorded = proto.arg_attr[index].attr.get("_output_shapes") if index in proto.arg_attr else None
        if recorded is not None and recorded.list.shape:
            shape = attributes.shape_of(recorded.list.shape[0])
        args.append(ir.Argument(arg.name, dtypes.from_tf(arg.type), shape))
    names = {arg.name for arg in args}
    if len(names) != len(args):
        twice = next(name for name in names if sum(arg.name == name for arg in args) > 1)
        raise InvalidModelError(f"function {signature.name!r}: two arguments are called {twice!r}.")
    builder = _Builder(signature.name, proto.node_def, signatures, names, ConstantBytes(signature.name))
    outputs = []
    for arg in signature.output_arg:
        if arg.name not in proto.ret:
            raise InvalidModelError(f"function {signature.name!r}: result {arg.name!r} is not returned.")
        outputs.append(builder.function_ref(proto.ret[arg.name]))
    return ir.Function(
        name=signature.name,
        args=tuple(args),
        nodes=builder.nodes(),
        outputs=tuple(map(builder.check_output, outputs)),
        output_names=tuple(arg.name for arg in signature.output_arg),
        control_outputs=tuple(builder.check_node(name) for name in proto.control_ret.values()),
        attrs={name: attributes.value_of(value) for name, value in proto.attr.items()},
    )


@paused()
def load_main(
    graph_def: Any,
    name: str,
    args: Sequence[ir.Argument],
    outputs: Iterable[str],
    control_outputs: Iterable[str] = (),
) -> ir.Function:
    """Return the top level of a GraphDef as a function of the nodes named in ``args``.

    Args:
      args: the arguments, usually placeholders: each is named after its node, or after the tensor (``node:index``) if
        the node has several results (see `fed`).
      control_outputs: names of nodes that must run although no node reads them.
    """
    sizes = check_functions_size(graph_def, name)
    signatures = {proto.signature.name: proto.signature for proto in graph_def.library.function}
    builder = _Builder(name, graph_def.node, signatures, {arg.name for arg in args}, sizes, graph_style=True)
    outputs = tuple(outputs)
    return ir.Function(
        name=name,
        args=tuple(args),
        nodes=builder.nodes(),
        outputs=tuple(builder.check_output(builder.graph_ref(output)) for output in outputs),
        output_names=outputs,
        control_outputs=tuple(builder.check_node(node) for node in control_outputs),
    )


def fed(proto: Any, index: int) -> ir.Argument:
    """Return a node's result as an argument."""
    definition = op_defs.definition(proto.op)
    try:
        attrs = op_defs.read_attrs(proto)
    except InvalidModelError as error:
        raise InvalidModelError(f"node {proto.name!r}: {error}") from error
    types = [dtype for arg in definition.outputs for dtype in arg.types(attrs, proto.name)] if definition else []
    if definition is not None and index >= len(types):
        raise InvalidModelError(f"node {proto.name!r} ({proto.op}) has {len(types)} output(s); {index} is to be fed.")
    recorded = recorded_shapes(attrs) or ()
    shape = attrs.get("shape") if "Placeholder" in proto.op else recorded[index] if index < len(recorded) else None
    name = f"{proto.name}:{index}" if index or len(types) > 1 else proto.name
    return ir.Argument(name, types[index] if types else np.dtype(np.float32), shape)


_MAX_DIGITS = 19


class _References(dict[str, Any]):
    """Inputs of nodes by their text, each parsed once.

    The values are `ir.TensorRef`s, and None for control edges.

    Attributes:
      unpredicted: references other than to the first output of an earlier node, which are added without parsing.
    """

    def __init__(self, read: Callable[[str], ir.TensorRef | None]):
        super().__init__()
        self._read = read
        self.unpredicted: list[ir.TensorRef] = []

    def __missing__(self, text: str) -> ir.TensorRef | None:
        ref = self[text] = self._read(text)
        if ref is not None:
            self.unpredicted.append(ref)
        return ref


class _Builder:
    """Reads the NodeDefs of one function."""

    def __init__(
        self,
        name: str,
        protos: Any,
        signatures: Mapping[str, Any],
        args: set[str],
        sizes: ConstantBytes,
        *,
        graph_style: bool = False,
    ):
        self._name = name
        self._signatures = signatures
        self._args = args
        self._cut = {name.split(":")[0] for name in args if ":" in name}  # nodes with single results that are fed
        self._graph_style = graph_style
        self._written = self._read(protos, sizes)
        self._parsed: dict[str, ir.Node] = {}
        self._refs = _References(self._reference)
        self._in_order = True
        names = "\n".join(self._written)
        self._plain_names = not self._cut and ":" not in names and "^" not in names

    def _read(self, protos: Any, sizes: ConstantBytes) -> dict[str, tuple[list[str], NodeDefSpec] | None]:
        """Return inputs and spec of each node by name; None for nodes that are arguments."""
        written: dict[str, tuple[list[str], NodeDefSpec] | None] = {}
        args = self._args
        for proto in protos:
            name = proto.name
            if name in written:
                raise InvalidModelError(f"function {self._name!r}: two nodes are called {name!r}.")
            if name in args:
                if not self._graph_style:
                    raise InvalidModelError(f"function {self._name!r}: an argument and a node are called {name!r}.")
                written[name] = None
                continue
            try:
                written[name] = read_node(proto, name, sizes)
            except InvalidModelError as error:
                raise InvalidModelError(f"node {name!r} ({proto.op}) in {self._name!r}: {error}") from error
        return written

    def nodes(self) -> tuple[ir.Node, ...]:
        parsed, args, refs = self._parsed, self._args, self._refs
        predict, graph_style = self._plain_names, self._graph_style
        new = tuple.__new__  # twice as fast as the named tuple's own constructor
        if predict:
            refs.update({name: ir.TensorRef(name) for name in args})
        for name, written in self._written.items():
            if written is None:
                continue
            texts, spec = written
            data = [refs[text] for text in texts]
            if spec.expected == len(data) and None not in data:
                parsed[name] = ir.node_from_spec(spec.node_spec, name, tuple(data))
            else:
                parsed[name] = self._node(name, texts, data, spec)
            if predict and spec.first_output:
                # The text by which later nodes refer to its first output, the only one of most nodes.
                refs[name if graph_style else f"{name}:{spec.first_output}:0"] = new(ir.TensorRef, (name, 0))
        for ref in refs.unpredicted:
            self.check_output(ref)
        return tuple(parsed.values()) if self._in_order else topological_order(self._name, parsed.values())

    def check_output(self, ref: ir.TensorRef) -> ir.TensorRef:
        """Return the reference after checking that the output exists; call `nodes` before."""
        node = self._parsed.get(ref.node)
        count = 1 if node is None else len(node.output_dtypes)
        if ref.index >= count and (node is None or count or self._spec(ref.node).has_op_def):
            raise InvalidModelError(
                f"function {self._name!r}: node {ref.node!r} has {count} output(s), and output {ref.index} is read."
            )
        return ref

    def check_node(self, name: str) -> str:
        if name not in self._written and name not in self._args:
            raise InvalidModelError(f"function {self._name!r}: there is no node {name!r}.")
        return name

    def graph_ref(self, text: str) -> ir.TensorRef:
        """Read ``node`` or ``node:index``."""
        node, _, index = text.partition(":")
        self.check_node(node)
        if not index:
            whole = node in self._cut and f"{node}:0" in self._args
            return ir.TensorRef(f"{node}:0" if whole else node, 0)
        if not index.isdecimal() or len(index) > _MAX_DIGITS:
            raise InvalidModelError(f"function {self._name!r}: {text[:200]!r} is not a tensor name.")
        if node in self._cut and f"{node}:{int(index)}" in self._args:
            return ir.TensorRef(f"{node}:{int(index)}", 0)
        return ir.TensorRef(node, int(index))

    def function_ref(self, text: str) -> ir.TensorRef:
        """Read ``argument``, ``argument:index`` or ``node:output:index``."""
        node, *rest = text.split(":")
        self.check_node(node)
        if not rest:
            return ir.TensorRef(node, 0)
        if not rest[-1].isdecimal():
            rest.append("0")
        if len(rest[-1]) > _MAX_DIGITS:
            raise InvalidModelError(f"function {self._name!r}: {text[:200]!r} is not a tensor name.")
        index = int(rest[-1])
        if len(rest) == 1 or node in self._args:
            return ir.TensorRef(node, index)
        offsets = self._output_offsets(node)
        if rest[0] not in offsets:
            raise InvalidModelError(
                f"function {self._name!r}: node {node!r} has no output {rest[0]!r} (it has {sorted(offsets)})."
            )
        return ir.TensorRef(node, offsets[rest[0]] + index)

    def _spec(self, name: str) -> NodeDefSpec:
        written = self._written[name]
        assert written is not None  # not an argument
        return written[1]

    def _output_offsets(self, name: str) -> dict[str, int]:
        spec = self._spec(name)
        signature = None if spec.has_op_def else self._signatures.get(spec.op)
        if signature is not None:
            return {arg.name: i for i, arg in enumerate(signature.output_arg)}
        return spec.offsets

    def _reference(self, text: str) -> ir.TensorRef | None:
        """Parse an input of a node; None for a control edge."""
        if text[:1] == "^":
            node, ref = text[1:], None
            if node in self._cut:
                return None
            self.check_node(node)
        else:
            ref = self.graph_ref(text) if self._graph_style else self.function_ref(text)
            node = ref.node
        if node not in self._parsed and node not in self._args:
            self._in_order = False
        return ref

    def _node(self, name: str, texts: list[str], refs: list[ir.TensorRef | None], spec: NodeDefSpec) -> ir.Node:
        """Return a node with control edges, or of an op without an OpDef."""
        data = [ref for ref in refs if ref is not None]
        control: tuple[str, ...] = ()
        if len(data) < len(refs):
            control = tuple([text[1:] for text in texts if text[:1] == "^" and text[1:] not in self._cut])
        if not spec.has_op_def:
            return self._foreign_node(name, spec, tuple(data), control)
        if spec.expected != len(data):
            raise InvalidModelError(
                f"node {name!r} ({spec.op}) in {self._name!r}: expected {spec.expected} inputs, found {len(data)}."
            )
        return ir.node_from_spec(spec.node_spec, name, tuple(data), control)

    def _foreign_node(
        self, name: str, spec: NodeDefSpec, data: tuple[ir.TensorRef, ...], control: tuple[str, ...]
    ) -> ir.Node:
        """Return a node of a library function (a legacy call) or of an unknown op."""
        signature = self._signatures.get(spec.op)
        if signature is None:
            return ir.Node(name, spec.op, data, (None,) * len(data), control, spec.attrs)
        return ir.Node(
            name=name,
            op="StatefulPartitionedCall",
            inputs=data,
            groups=(len(data),),
            control=control,
            attrs={
                "f": ir.FunctionRef(spec.op),
                "_by_name": True,
                **{k: v for k, v in spec.attrs.items() if k.startswith("_")},
            },
            implied=frozenset({"Tin"}),
            output_dtypes=tuple(dtypes.from_tf(arg.type) for arg in signature.output_arg),
        )


def check(graph_def: Any, where: str) -> None:
    """Read a whole GraphDef to raise errors for damaged parts."""
    main = load_main(graph_def, where, (), ())
    check_calls(ir.Graph(main, load_library(graph_def.library)), everything=True)
