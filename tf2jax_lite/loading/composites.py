"""Composite tensors (ragged, sparse, extension types) among arguments and results: tuples of their component tensors.

TensorFlow passes them to graphs as their components, ``tf.nest.flatten(value, expand_composites=True)``:

- ``tf.RaggedTensor``: flat values, then the row splits of each ragged dimension, outermost first
- ``tf.SparseTensor``: indices, values, dense shape
- ``tf.IndexedSlices``: values, indices, and the dense shape where it is known
- a ``tf.experimental.ExtensionType``: its fields' tensors in order
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.errors import UnsupportedError

from . import dtypes

__all__ = ["component_specs", "known_components", "with_constants"]


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
    """Returns what components must be if a composite tensor's spec says so, by position.

    That is the dense shape of a sparse tensor whose shape is known, and the row splits of rows that are of one known
    length and of a known number.
    """
    if isinstance(spec, tf.SparseTensorSpec) and spec.shape.is_fully_defined():
        return {2: np.asarray(spec.shape.as_list(), np.int64)}
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
      known: values by the names of arguments.
    """
    taken = {argument.name for argument in function.args} | {node.name for node in function.nodes}
    replaced: dict[ir.TensorRef, ir.TensorRef] = {}
    nodes: list[ir.Node] = []
    for name, value in known.items():
        constant = f"{name}/known"
        while constant in taken:
            constant += "_"
        attrs = {"value": value, "dtype": value.dtype}
        nodes.append(ir.Node(constant, "Const", (), (), (), attrs, output_dtypes=(value.dtype,)))
        replaced[ir.TensorRef(name)] = ir.TensorRef(constant)
    for node in function.nodes:
        if any(ref in replaced for ref in node.inputs):
            inputs = tuple(replaced.get(ref, ref) for ref in node.inputs)
            nodes.append(ir.node_like(node.form, node.name, inputs, node.control))
        else:
            nodes.append(node)
    outputs = tuple(replaced.get(ref, ref) for ref in function.outputs)
    return ir.Function(
        function.name,
        function.args,
        tuple(nodes),
        outputs,
        function.output_names,
        function.control_outputs,
        function.attrs,
    )
