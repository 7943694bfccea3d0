"""Ops on resource variables: read, assign, shape, grids of tensors.

TF: core/kernels/resource_variable_ops.cc.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.shape import INT32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Read, Update, Write
from tf2jax_lite.ops.xla.arrays import xla_concat_nd, xla_split_nd
from tf2jax_lite.values.static import dims_array


@op("ReadVariableOp", int64="pair")
def read_variable(resource: Read, *, dtype=None):
    """Return the value of a variable."""
    return resource


@op("AssignVariableOp", int64="pair")
def assign_variable(resource: Write, value, *, dtype=None):
    """Set the value of a variable."""
    return value


@op("AssignAddVariableOp")
def assign_add_variable(resource: Update, value, *, dtype=None):
    """Add to a variable."""
    return lax.add(jnp.asarray(resource), jnp.asarray(value))


@op("AssignSubVariableOp")
def assign_sub_variable(resource: Update, value, *, dtype=None):
    """Subtract from a variable."""
    return lax.sub(jnp.asarray(resource), jnp.asarray(value))


@op("VariableShape")
def variable_shape(input: Read, *, out_type=INT32):
    """Return the shape of the value of a variable."""
    return dims_array(input.shape, out_type)


@op("VarIsInitializedOp")
def var_is_initialized(resource):
    """Return True; a variable without a value raises when params are bound."""
    return np.bool_(True)


@op("DestroyResourceOp")
def destroy_resource(resource, *, ignore_lookup_error=True):
    """Do nothing: memory is not managed here."""
    return ()


@op("DisableCopyOnRead")
def disable_copy_on_read(resource):
    """Do nothing: reads never copy."""
    return ()


@op("ReadVariableXlaSplitND")
def read_variable_xla_split_nd(resource: Read, *, num_splits, paddings=()):
    """Return the value of a variable split into a grid of tensors."""
    return (xla_split_nd(resource, N=math.prod(num_splits), num_splits=num_splits, paddings=paddings),)


@op("AssignVariableXlaConcatND")
def assign_variable_xla_concat_nd(resource: Write, inputs, *, num_concats, paddings=()):
    """Set the value of a variable to a concatenated grid of tensors."""
    return xla_concat_nd(inputs, num_concats=num_concats, paddings=paddings)
