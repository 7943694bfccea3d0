"""Structures of a ConcreteFunction's arguments and results: tensors are leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import func_graph as tf_func_graph

from tf2jax_lite import ir
from tf2jax_lite.calling.structures import OPAQUE, OutputRef, TensorArgument, is_leaf, record_type, traverse
from tf2jax_lite.frontend.graphdef import dtypes
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import constant, redirected
from tf2jax_lite.support.config import get_config
from tf2jax_lite.support.errors import UnsupportedError


def structured_inputs(concrete: Any, count: int) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the structure of a function's arguments, with specs for tensors."""
    structured = concrete.structured_input_signature
    if structured is None:  # pruned functions take their feeds, in order
        return tuple(tf.TensorSpec(t.shape, t.dtype, node_name(t)) for t in concrete.inputs[:count]), {}
    return structured


def flat_keywords(concrete: Any, kwargs: Mapping[str, Any]) -> list[str]:
    """Return keyword arguments in the order of the flat inputs.

    It is that of sorted keys, except for signatures with composite tensors, of which TensorFlow records the order, by
    the names of specs where they have one.
    """
    keys = {getattr(spec, "name", None) or key: key for key, spec in kwargs.items()}
    recorded = getattr(concrete, "_arg_keywords", None) or ()
    is_order = len(recorded) == len(kwargs) == len(keys) and set(recorded) == keys.keys()
    return [keys[name] for name in recorded] if is_order else sorted(kwargs)


def node_name(tensor: Any) -> str:
    """Return the name of the node that makes a tensor."""
    return tensor.op.name


def shape_of(shape: Any) -> ir.Shape:
    """Return a ``tf.TensorShape`` as a shape of the IR."""
    try:
        return tuple(shape.as_list())
    except ValueError:  # unknown rank
        return None


def structured_outputs(concrete: Any) -> Any:
    """Return the structure of a function's results, with specs for tensors.

    Unnamed results get the names of their nodes.
    """
    flat = iter(concrete.outputs)

    def spec_of(value: Any) -> Any:
        spec = tf.type_spec_from_value(value) if tf.is_tensor(value) else value
        parts = tf.nest.flatten(spec, expand_composites=True)
        tensors = [next(flat, None) for part in parts if isinstance(part, (tf.TypeSpec, tf.TensorArray))]
        if isinstance(spec, tf.TensorSpec) and spec.name is None and tensors[0] is not None:
            return tf.TensorSpec(spec.shape, spec.dtype, node_name(tensors[0]))
        return spec

    return tf.nest.map_structure(spec_of, concrete.structured_outputs)


def _unwrapped(part: Any) -> Any:
    """Return an unwrapped container and the class ``tf.nest`` flattens as a record."""
    # TensorFlow wraps containers when it tracks or restores them. A converted function does without TensorFlow, so that
    # its results are the containers, not the ``wrapt`` proxies.
    record = as_record(part)
    if record is not None:
        return record
    if isinstance(part, list):
        return part if type(part) is list else list(part)
    return getattr(part, "__wrapped__", part) if isinstance(part, (tuple, Mapping)) else part


def plain_structure(structure: Any) -> Any:
    """Return a structure in plain dicts, lists and tuples, and records."""

    def visit(part: Any) -> Any:
        plain = _unwrapped(part)
        plain = dict(plain) if isinstance(plain, Mapping) and type(plain) is not dict else plain
        return None if plain is part else plain_structure(plain)

    return traverse(visit, structure)


class ArgumentBuilder:
    """Builder of structures with tensor arguments, in the order of the flat inputs.

    It replaces the specs of tensors.

    Attributes:
      static_values: values of arguments, by name, that the spec of their composite tensor determines.
    """

    def __init__(self, args: Sequence[ir.Argument]):
        self._args = iter(enumerate(args))
        self.static_values: dict[str, np.ndarray] = {}

    def convert(self, structure: Any, order: Sequence[str] = ()) -> Any:
        """Return a structure with `TensorArgument` leaves for tensors; literals stay.

        Args:
          order: its keys in the order of the flat inputs; sorted keys by default.
        """
        structure = plain_structure(structure)
        if order:
            found = {key: self.convert(structure[key]) for key in order}
            return {key: found[key] for key in structure}

        def visit(part: Any) -> Any:
            if isinstance(part, (tf.TensorSpec, tf.Tensor)):
                return self._argument()
            if isinstance(part, tf.TypeSpec):
                return self._composite(part)
            return OPAQUE if isinstance(part, tf_func_graph.UnknownArgument) else None

        return traverse(visit, structure)

    def _composite(self, spec: tf.TypeSpec) -> tuple[TensorArgument, ...]:
        parts = [self._argument() for _ in component_specs(spec)]
        rank = spec.ragged_rank if isinstance(spec, tf.RaggedTensorSpec) else 0
        parts[:1] = [dataclasses.replace(part, composite=spec, ragged_rank=rank) for part in parts[:1]]
        if get_config("strict_shape_check"):
            for position, value in static_components(spec).items():
                parts[position] = dataclasses.replace(parts[position], value=tuple(value.tolist()))
                self.static_values[parts[position].name] = value
        return tuple(parts)

    def _argument(self) -> TensorArgument:
        # By position: specs may have equal names, or names that differ from the nodes'.
        index, arg = next(self._args)
        return TensorArgument(index, arg.name, arg.dtype if isinstance(arg.dtype, np.dtype) else None, arg.shape)


def output_structure(concrete: Any) -> tuple[Any, int, dict[int, ir.DType]]:
    """Return the results' structure with `OutputRef` leaves.

    Also return the number of leaves, and the dtypes of TensorArrays by position of the leaf.
    """
    position = 0
    count = len(concrete.outputs)
    arrays: dict[int, ir.DType] = {}

    def visit(part: Any) -> Any:
        nonlocal position
        plain = _unwrapped(part)
        if plain is not part:
            return traverse(visit, plain)
        if isinstance(part, (tf.Tensor, tf.TensorSpec, tf.TensorArray)):
            if isinstance(part, tf.TensorArray):
                arrays[position] = dtypes.from_tf(part.dtype)
            position += 1
            return OutputRef(position - 1)
        components = [part] if not is_leaf(part) else tf.nest.flatten(part, expand_composites=True)
        return None if len(components) == 1 and components[0] is part else traverse(visit, tuple(components))

    structure = traverse(visit, concrete.structured_outputs)
    # Once a gradient has been taken through a function, its graph also returns intermediate results, after its own.
    if position > count or (position == 0 and count):  # the description does not match: return the flat results
        return [OutputRef(i) for i in range(count)], count, {}
    return structure, position, arrays


def as_record(value: Any) -> tuple[Any, ...] | None:
    """Return an object that ``tf.nest`` flattens as a record; None for others."""
    if isinstance(value, (type, tf.TypeSpec)):
        return None
    if hasattr(value, "__attrs_attrs__"):
        names = [attribute.name for attribute in value.__attrs_attrs__]
        return record_type(type(value).__name__, tuple(names), type(value))(*(getattr(value, name) for name in names))
    if dataclasses.is_dataclass(value) and hasattr(value, "__tf_flatten__"):
        _, parts = value.__tf_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
        fields = {id(getattr(value, field.name)): field.name for field in dataclasses.fields(value)}
        names = [fields.get(id(part), "") for part in parts]
        return record_type(type(value).__name__, tuple(names))(*parts)
    return None


def component_specs(spec: tf.TypeSpec) -> list[tf.TensorSpec]:
    """Return the specs of a composite tensor's components, in the order of inputs."""
    specs = tf.nest.flatten(spec, expand_composites=True)
    for part in specs:
        if not isinstance(part, tf.TensorSpec) or dtypes.from_tf(part.dtype) in (ir.RESOURCE, ir.VARIANT):
            raise UnsupportedError(
                f"an argument is {spec}, with a component that has no counterpart in JAX ({part}). Pass its contents "
                "as tensors, or leave the ops that use it in TensorFlow with split_host=True."
            )
    return specs


def static_components(spec: tf.TypeSpec) -> dict[int, np.ndarray]:
    """Return the component values that a composite tensor's spec determines.

    They are the dense shape of a sparse tensor of partially known shape, and the row splits of a known number of rows
    of one known length. The keys are positions of components; unknown entries are -1.
    """
    if isinstance(spec, tf.SparseTensorSpec) and spec.shape.rank is not None:
        sizes = np.asarray([-1 if size is None else size for size in spec.shape.as_list()], np.int64)
        return {2: sizes} if (sizes >= 0).any() or not sizes.size else {}
    found: dict[int, np.ndarray] = {}
    if isinstance(spec, tf.RaggedTensorSpec) and spec.shape.rank is not None:
        rows, *lengths = spec.shape.as_list()
        for position, length in enumerate(lengths[: spec.ragged_rank], 1):
            if rows is None or length is None:
                break
            found[position] = np.arange(rows + 1, dtype=spec.row_splits_dtype.as_numpy_dtype) * length
            rows *= length
    return found


def with_constants(function: ir.Function, static: Mapping[str, np.ndarray]) -> ir.Function:
    """Replace reads of arguments with static values by constants.

    TensorFlow passes a sparse tensor's dense shape as data even if its type determines it; under ``jit`` results could
    not have that shape. The same holds for the row splits of rows of one length.

    Args:
      static: values by the names of arguments; -1 for entries that remain runtime-dependent.
    """
    taken = {argument.name for argument in function.args} | {node.name for node in function.nodes}
    replaced: dict[ir.TensorRef, ir.TensorRef] = {}
    nodes: list[ir.Node] = []
    for name, value in static.items():
        if (value >= 0).all():
            nodes.append(constant(ir.free_name(f"{name}/static", taken), value))
        else:
            nodes += _partially_static(name, value, taken)
        replaced[ir.TensorRef(name)] = ir.TensorRef(nodes[-1].name)
    nodes += [redirected(node, replaced) for node in function.nodes]
    return dataclasses.replace(
        function, nodes=tuple(nodes), outputs=tuple(replaced.get(ref, ref) for ref in function.outputs)
    )


def stacked(function: ir.Function, positions: Mapping[int, ir.DType]) -> ir.Function:
    """Stack results that are lists of tensors.

    A ``tf.TensorArray`` that a function returns has no other representation outside of TensorFlow.
    """
    nodes, outputs = list(function.nodes), list(function.outputs)
    taken = {argument.name for argument in function.args} | {node.name for node in nodes}
    for position, dtype in positions.items():
        name = ir.free_name(f"{outputs[position].node}/stack", taken)
        shape = constant(ir.free_name(f"{name}/element_shape", taken), np.asarray(-1, np.int32))
        stack = build.node("TensorListStack", outputs[position], shape, name=name, element_dtype=dtype)
        nodes += [shape, stack]
        outputs[position] = ir.TensorRef(name)
    return dataclasses.replace(function, nodes=tuple(nodes), outputs=tuple(outputs))


def _partially_static(name: str, value: np.ndarray, taken: set[str]) -> list[ir.Node]:
    """Return nodes that rebuild a partially static argument; the last is the result."""
    count, dtype = len(value), value.dtype
    given = ir.free_name(f"{name}/given", taken)
    nodes = [build.node("Unpack", name, name=given, num=count, T=dtype)]
    items: list[ir.TensorRef] = []
    for position, size in enumerate(value):
        if size < 0:
            items.append(ir.TensorRef(given, position))
        else:
            nodes.append(constant(ir.free_name(f"{name}/static", taken), np.asarray(size)))
            items.append(ir.TensorRef(nodes[-1].name))
    return [*nodes, build.node("Pack", items, name=ir.free_name(f"{name}/packed", taken), N=count, T=dtype)]
