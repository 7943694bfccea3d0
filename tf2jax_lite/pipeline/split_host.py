"""Host splitting: a prefix for TensorFlow (strings, tables), a core for JAX."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import ImportedFunction, Interface
from tf2jax_lite.calling.names import parameter_name
from tf2jax_lite.calling.structures import OutputRef, TensorArgument, is_leaf, is_namedtuple, walk
from tf2jax_lite.frontend.runtime.host_function import BoundaryTensor, HostFunction, Prefix, build_prefix
from tf2jax_lite.frontend.safety.unsafe_ops import reject_unsafe_ops, unsafe_reason
from tf2jax_lite.passes.canonicalize.inline_calls import inline_calls
from tf2jax_lite.passes.partition_host import HostPartition, partition_host
from tf2jax_lite.support.errors import UnsupportedError


def split_imported(concrete: Any, imported: ImportedFunction) -> tuple[HostFunction, ImportedFunction]:
    """Split a function into a prefix that stays in TensorFlow, and the core.

    Args:
      concrete: the ``tf.types.experimental.ConcreteFunction``.
      imported: the function as imported with ``opaque=True``, with a verified graph without control flow v1.

    Returns:
      The prefix as a function, and the core; its arguments are the results of the prefix, by name.
    """
    graph, interface = imported.graph, imported.interface
    inlined = inline_calls(graph)
    partition = partition_host(inlined.main, graph)
    nodes = [(interface.name, node) for node in partition.host]
    nodes += [(function.name, node) for function, node in graph.walk()]
    reject_unsafe_ops([(n.op, n.name, name, unsafe_reason(n.op, n.attrs.get)) for name, n in nodes], interface.name)
    if not partition.core.outputs:
        raise UnsupportedError(f"{interface.name}: every result is a string; there is no numeric core to convert.")
    results = [ref for ref, _ in partition.boundary]
    prefix = Prefix(partition.host, inlined.origins, tuple(results), partition.host_effects)
    host_graph, function, feeds, shapes = build_prefix(concrete, imported, inlined.main, prefix)
    tensors = _boundary_tensors(partition, inlined.main, shapes)
    core = _core(imported, partition, tensors)
    dropped = _paths(interface.outputs, set(partition.dropped))
    if dropped:
        warnings.warn(
            f"{interface.name}: result(s) {', '.join(dropped)} are strings, which JAX cannot hold; the core returns "
            "the others.",
            stacklevel=4,
        )
    captured = [position - interface.count for position in partition.captured]
    reasons = {n.name: (n.op, partition.reasons[n.name]) for n in partition.host if n.name in partition.reasons}
    parts = function, feeds, reasons, len(partition.host), captured, dropped, host_graph
    host = HostFunction(interface, tensors, *parts)
    return host, core


def _boundary_tensors(partition: HostPartition, main: ir.Function, shapes: Sequence[ir.Shape]) -> list[BoundaryTensor]:
    taken = {"params", "rng"}
    by_name = {n.name: n for n in partition.host}
    found = []
    for position in partition.passed:
        arg = main.args[position]
        found.append(BoundaryTensor(_identifier(arg.name, taken), str(position), "", _dtype(arg), arg.shape))
    for (ref, dtype), shape in zip(partition.boundary, shapes, strict=True):
        last = ref.node.split("/")[-1]
        base = last if ref.index == 0 else f"{last}_{ref.index}"
        found.append(BoundaryTensor(_identifier(base, taken), str(ref), by_name[ref.node].op, dtype, shape))
    return found


def _dtype(arg: ir.Argument) -> np.dtype:
    if not isinstance(arg.dtype, np.dtype):
        raise UnsupportedError(f"argument {arg.name!r} is a {arg.dtype}, which the core cannot take.")
    return arg.dtype


def _identifier(text: str, taken: set[str]) -> str:
    plain = "".join(c if c.isalnum() else "_" for c in text).strip("_")
    return ir.free_name(parameter_name(plain or "tensor"), taken)


def _core(imported: ImportedFunction, partition: HostPartition, tensors: Sequence[BoundaryTensor]) -> ImportedFunction:
    values = {c.index: c.value for c in imported.graph.captures}
    first = len(tensors)
    captures = tuple(ir.Capture(first + i, values[position]) for i, position in enumerate(partition.captured))
    kinds = inspect.Parameter
    parameters = [kinds(t.name, kinds.POSITIONAL_OR_KEYWORD) for t in tensors]
    args = tuple(TensorArgument(i, t.name, t.dtype, t.shape) for i, t in enumerate(tensors))
    core = partition.core
    formal = [dataclasses.replace(arg, shape=tensor.shape) for arg, tensor in zip(core.args, tensors, strict=False)]
    main = dataclasses.replace(core, args=(*formal, *core.args[first:]))
    kept = [i for i in range(len(partition.dropped) + len(core.outputs)) if i not in partition.dropped]
    renumbered = {old: new for new, old in enumerate(kept)}
    outputs = _without_dropped(imported.interface.outputs, renumbered)
    interface = Interface(imported.interface.name, inspect.Signature(parameters), args, {}, len(args), outputs)
    specs = tuple(
        tf.TensorSpec(tf.TensorShape(cast(Any, t.shape)), tf.dtypes.as_dtype(t.dtype), t.name) for t in tensors
    )
    described = tf.nest.map_structure(
        lambda spec: None if isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string else spec,
        imported.structured_outputs,
    )
    graph = ir.Graph(main, imported.graph.functions, captures)
    return ImportedFunction(graph, interface, (specs, {}), described)


def _without_dropped(structure: Any, renumbered: Mapping[int, int]) -> Any:
    """Return a structure without dropped results: no dict keys, None in lists."""
    if isinstance(structure, OutputRef):
        return OutputRef(renumbered[structure.index]) if structure.index in renumbered else None
    if isinstance(structure, Mapping):
        found = {key: _without_dropped(item, renumbered) for key, item in structure.items()}
        return {k: v for k, v in found.items() if v is not None or structure[k] is None}
    if is_leaf(structure):
        return structure
    items = [_without_dropped(item, renumbered) for item in structure]
    return type(structure)(*items) if is_namedtuple(structure) else type(structure)(items)


def _paths(structure: Any, wanted: set[int]) -> list[str]:
    found = [path for path, leaf in walk(structure) if isinstance(leaf, OutputRef) and leaf.index in wanted]
    return ["".join([str(path[0]), *(f"[{key!r}]" for key in path[1:])]) if path else "result" for path in found]
