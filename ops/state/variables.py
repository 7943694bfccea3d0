"""Ops on resource variables: read, assign, shape, grids of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.ops.arrays.shape import INT32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Read, Update, Write
from tf2jax_lite.ops.xla.arrays import xla_concat_nd, xla_split_nd
from tf2jax_lite.values.static import VariableHandle, dims_array
from tf2jax_lite.values.tensors import ArrayOrPair, Tensor
from tf2jax_lite.values.types import Array


@op("ReadVariableOp", int64="pair")
def read_variable(resource: Read[ArrayOrPair], *, dtype: ir.DType | None = None) -> Tensor:
    """Return the value of a variable.

    TF: tf.raw_ops.ReadVariableOp (core/kernels/resource_variable_ops.cc).
    """
    return resource


@op("AssignVariableOp", int64="pair")
def assign_variable(resource: Write[ArrayOrPair], value: Tensor, *, dtype: ir.DType | None = None) -> Tensor:
    """Set the value of a variable.

    TF: tf.raw_ops.AssignVariableOp (core/kernels/resource_variable_ops.cc).
    """
    return value


@op("AssignAddVariableOp")
def assign_add_variable(resource: Update[Array], value: Tensor, *, dtype: ir.DType | None = None) -> Tensor:
    """Add to a variable.

    TF: tf.raw_ops.AssignAddVariableOp (core/kernels/resource_variable_ops.cc).
    """
    return lax.add(jnp.asarray(resource), jnp.asarray(value))


@op("AssignSubVariableOp")
def assign_sub_variable(resource: Update[Array], value: Tensor, *, dtype: ir.DType | None = None) -> Tensor:
    """Subtract from a variable.

    TF: tf.raw_ops.AssignSubVariableOp (core/kernels/resource_variable_ops.cc).
    """
    return lax.sub(jnp.asarray(resource), jnp.asarray(value))


@op("VariableShape")
def variable_shape(input: Read[Array], *, out_type: ir.DType = INT32) -> Tensor:
    """Return the shape of the value of a variable.

    TF: tf.raw_ops.VariableShape (core/kernels/resource_variable_ops.cc).
    """
    return dims_array(input.shape, out_type)


@op("VarIsInitializedOp")
def var_is_initialized(resource: VariableHandle) -> np.bool_:
    """Return True; a variable without a value raises when params are bound.

    TF: tf.raw_ops.VarIsInitializedOp (core/kernels/resource_variable_ops.cc).
    """
    return np.bool_(True)


@op("DestroyResourceOp")
def destroy_resource(resource: VariableHandle, *, ignore_lookup_error: bool = True) -> tuple[()]:
    """Do nothing: memory is not managed here.

    TF: tf.raw_ops.DestroyResourceOp (core/kernels/resource_variable_ops.cc).
    """
    return ()


@op("DisableCopyOnRead")
def disable_copy_on_read(resource: VariableHandle) -> tuple[()]:
    """Do nothing: reads never copy.

    TF: tf.raw_ops.DisableCopyOnRead (core/kernels/resource_variable_ops.cc).
    """
    return ()


@op("ReadVariableXlaSplitND")
def read_variable_xla_split_nd(
    resource: Read[Array], *, num_splits: Sequence[int], paddings: Sequence[int] = ()
) -> tuple[list[Tensor]]:
    """Return the value of a variable split into a grid of tensors.

    TF: tf.raw_ops.ReadVariableXlaSplitND.
    """
    return (xla_split_nd(resource, N=math.prod(num_splits), num_splits=num_splits, paddings=paddings),)


@op("AssignVariableXlaConcatND")
def assign_variable_xla_concat_nd(
    resource: Write[Array], inputs: list[Tensor], *, num_concats: Sequence[int], paddings: Sequence[int] = ()
) -> Tensor:
    """Set the value of a variable to a concatenated grid of tensors.

    TF: tf.raw_ops.AssignVariableXlaConcatND.
    """
    return xla_concat_nd(inputs, num_concats=num_concats, paddings=paddings)
