"""Composite tensors (ragged, sparse, extension types) as tuples of components.

TensorFlow passes them to graphs as their components, ``tf.nest.flatten(value, expand_composites=True)``:

- ``tf.RaggedTensor``: flat values, then the row splits of each ragged dimension, outermost first
- ``tf.SparseTensor``: indices, values, dense shape
- ``tf.IndexedSlices``: values, indices, and the dense shape where it is known
- a ``tf.experimental.ExtensionType``: its fields' tensors in order

Classes that ``tf.nest`` flattens (attrs, dataclasses with ``__tf_flatten__``) are not pytrees in JAX. Records, named
tuples with the same fields, replace them in structures. Results have objects of attrs classes again, as in tf2jax.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.calling.structures import record_type
from tf2jax_lite.frontend.graphdef import dtypes
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import constant, redirected
from tf2jax_lite.support.errors import UnsupportedError


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
