"""Structures of a ConcreteFunction's arguments and results: tensors are leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import func_graph as tf_func_graph

from tf2jax_lite import ir
from tf2jax_lite.calling.structures import OPAQUE, OutputRef, TensorArgument, is_leaf, traverse
from tf2jax_lite.frontend.graphdef import dtypes
from tf2jax_lite.support.config import get_config

from .composite_specs import as_record, component_specs, static_components


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
