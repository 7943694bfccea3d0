"""Composite tensors (ragged, sparse, extension types) among arguments and results: tuples of their component tensors.

TensorFlow passes them to graphs as their components, ``tf.nest.flatten(value, expand_composites=True)``:

- ``tf.RaggedTensor``: flat values, then the row splits of each ragged dimension, outermost first
- ``tf.SparseTensor``: indices, values, dense shape
- ``tf.IndexedSlices``: values, indices, and the dense shape where it is known
- a ``tf.experimental.ExtensionType``: its fields' tensors in order

Classes that ``tf.nest`` knows how to take apart (attrs, dataclasses with ``__tf_flatten__``) are no pytrees of JAX's.
Named tuples with their fields stand for them.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import dtypes
from tf2jax_lite.support.errors import UnsupportedError

__all__ = ["as_record", "component_specs", "known_components", "stacked", "with_constants"]


@functools.cache
def _record_type(name: str, fields: tuple[str, ...]) -> Any:
    # One class for one set of fields: JAX compares the types of structures.
    return collections.namedtuple(name, fields, rename=True)


def as_record(value: Any) -> tuple[Any, ...] | None:
    """Returns an object of a class that ``tf.nest`` takes apart as a named tuple; None for anything else."""
    if isinstance(value, (type, tf.TypeSpec)):
        return None
    if hasattr(value, "__attrs_attrs__"):
        names = [attribute.name for attribute in value.__attrs_attrs__]
        return _record_type(type(value).__name__, tuple(names))(*(getattr(value, name) for name in names))
    if dataclasses.is_dataclass(value) and hasattr(value, "__tf_flatten__"):
        _, parts = value.__tf_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
        fields = {id(getattr(value, field.name)): field.name for field in dataclasses.fields(value)}
        names = [fields.get(id(part), "") for part in parts]
        return _record_type(type(value).__name__, tuple(names))(*parts)
    return None


def component_specs(spec: tf.TypeSpec) -> list[tf.TensorSpec]:
    """Returns the specs of a composite tensor's components, in the order in which graphs take them.

    Raises:
      UnsupportedError: it has components that JAX cannot be given (a dataset, an iterator, a variable).
    """
    specs = tf.nest.flatten(spec, expand_composites=True)
    for part in specs:
        if not isinstance(part, tf.TensorSpec) or dtypes.from_tf(part.dtype) in (ir.RESOURCE, ir.VARIANT):
            raise UnsupportedError(
                f"an argument is {spec}, which holds something that JAX has no counterpart of ({part}). Pass what it "
                "holds as tensors, or leave what needs it in TensorFlow with split_host=True."
            )
    return specs


def known_components(spec: tf.TypeSpec) -> dict[int, np.ndarray]:
    """Returns what components must be if a composite tensor's spec says so, by position; -1 stands for any number.

    That is the dense shape of a sparse tensor whose shape is known in part, and the row splits of rows that are of one
    known length and of a known number.
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


def with_constants(function: ir.Function, known: Mapping[str, np.ndarray]) -> ir.Function:
    """Returns a function that reads constants where it read arguments whose values are known.

    TensorFlow takes a sparse tensor's dense shape as data even where its type says what it is; under ``jit`` results
    could not have that shape. So it does with the splits of rows of one length.

    Args:
      function: the function; its arguments stay.
      known: values by the names of arguments; -1 stands for a number that the argument says.
    """
    taken = {argument.name for argument in function.args} | {node.name for node in function.nodes}
    replaced: dict[ir.TensorRef, ir.TensorRef] = {}
    nodes: list[ir.Node] = []
    for name, value in known.items():
        if (value >= 0).all():
            nodes.append(_constant(_unused(f"{name}/known", taken), value))
        else:
            nodes += _known_in_part(name, value, taken)
        replaced[ir.TensorRef(name)] = ir.TensorRef(nodes[-1].name)
    for node in function.nodes:
        if any(ref in replaced for ref in node.inputs):
            inputs = tuple(replaced.get(ref, ref) for ref in node.inputs)
            nodes.append(ir.node_like(node.form, node.name, inputs, node.control))
        else:
            nodes.append(node)
    return dataclasses.replace(
        function, nodes=tuple(nodes), outputs=tuple(replaced.get(ref, ref) for ref in function.outputs)
    )


def stacked(function: ir.Function, positions: Mapping[int, ir.DType]) -> ir.Function:
    """Returns a function some of whose results, which are lists of tensors, are those tensors stacked.

    A ``tf.TensorArray`` that a function returns has no other form outside of TensorFlow.

    Args:
      function: the function.
      positions: the lists' positions among the results, and the dtypes of their elements.
    """
    nodes, outputs = list(function.nodes), list(function.outputs)
    taken = {argument.name for argument in function.args} | {node.name for node in nodes}
    for position, dtype in positions.items():
        name = _unused(f"{outputs[position].node}/stack", taken)
        shape = _constant(_unused(f"{name}/element_shape", taken), np.asarray(-1, np.int32))
        attrs = {"element_dtype": dtype, "num_elements": -1}
        inputs = (outputs[position], ir.TensorRef(shape.name))
        stack = ir.Node(name, "TensorListStack", inputs, (None, None), (), attrs, output_dtypes=(dtype,))
        nodes += [shape, stack]
        outputs[position] = ir.TensorRef(name)
    return dataclasses.replace(function, nodes=tuple(nodes), outputs=tuple(outputs))


def _known_in_part(name: str, value: np.ndarray, taken: set[str]) -> list[ir.Node]:
    """Returns nodes that put an argument together anew, of constants where it is known; the last one gives it."""
    count, dtype = len(value), value.dtype
    attrs = {"num": count, "axis": 0, "T": dtype}
    given = _unused(f"{name}/given", taken)
    nodes = [ir.Node(given, "Unpack", (ir.TensorRef(name),), (None,), (), attrs, output_dtypes=(dtype,) * count)]
    items: list[ir.TensorRef] = []
    for position, size in enumerate(value):
        if size < 0:
            items.append(ir.TensorRef(given, position))
        else:
            nodes.append(_constant(_unused(f"{name}/known", taken), np.asarray(size)))
            items.append(ir.TensorRef(nodes[-1].name))
    attrs = {"N": count, "axis": 0, "T": dtype}
    packed = _unused(f"{name}/packed", taken)
    return [*nodes, ir.Node(packed, "Pack", tuple(items), (count,), (), attrs, output_dtypes=(dtype,))]


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _constant(name: str, value: np.ndarray) -> ir.Node:
    attrs = {"value": value, "dtype": value.dtype}
    return ir.Node(name, "Const", (), (), (), attrs, output_dtypes=(value.dtype,))
