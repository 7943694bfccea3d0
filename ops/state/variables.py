"""Variables: the values behind resource handles."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.shape import INT32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.xla.arrays import xla_concat_nd, xla_split_nd
from tf2jax_lite.values.static import dims_array


@op("ReadVariableOp", reads=("resource",), words="whole")
def read_variable(resource: Any, *, dtype: Any = None) -> Any:
    """Returns the variable's value. See tf.raw_ops.ReadVariableOp."""
    return resource


@op("AssignVariableOp", writes=("resource",), words="whole")
def assign_variable(resource: Any, value: Any, *, dtype: Any = None) -> Any:
    """Gives the variable a new value. See tf.raw_ops.AssignVariableOp."""
    return value


@op("AssignAddVariableOp", reads=("resource",), writes=("resource",))
def assign_add_variable(resource: Any, value: Any, *, dtype: Any = None) -> Any:
    """Adds to the variable. See tf.raw_ops.AssignAddVariableOp."""
    return lax.add(jnp.asarray(resource), jnp.asarray(value))


@op("AssignSubVariableOp", reads=("resource",), writes=("resource",))
def assign_sub_variable(resource: Any, value: Any, *, dtype: Any = None) -> Any:
    """Subtracts from the variable. See tf.raw_ops.AssignSubVariableOp."""
    return lax.sub(jnp.asarray(resource), jnp.asarray(value))


@op("VariableShape", reads=("input",))
def variable_shape(input: Any, *, out_type: Any = INT32) -> Any:
    """Returns the shape of the variable's value. See tf.raw_ops.VariableShape."""
    return dims_array(input.shape, out_type)


@op("VarIsInitializedOp")
def var_is_initialized(resource: Any) -> Any:
    """True: a variable without a value is missing from params, which is an error of its own."""
    return np.bool_(True)


@op("DestroyResourceOp")
def destroy_resource(resource: Any, *, ignore_lookup_error: bool = True) -> tuple[()]:
    """Does nothing: memory is not managed here. See tf.raw_ops.DestroyResourceOp."""
    return ()


@op("DisableCopyOnRead")
def disable_copy_on_read(resource: Any) -> tuple[()]:
    """Does nothing: values are never copied on reading. See tf.raw_ops.DisableCopyOnRead."""
    return ()


@op("ReadVariableXlaSplitND", reads=("resource",))
def read_variable_xla_split_nd(resource: Any, *, num_splits: Any, paddings: Any = ()) -> tuple[list[Any]]:
    """Returns the variable's value in tiles. See tf.raw_ops.ReadVariableXlaSplitND."""
    return (xla_split_nd(resource, N=math.prod(num_splits), num_splits=num_splits, paddings=paddings),)


@op("AssignVariableXlaConcatND", writes=("resource",))
def assign_variable_xla_concat_nd(resource: Any, inputs: list[Any], *, num_concats: Any, paddings: Any = ()) -> Any:
    """Gives the variable a value put together from tiles. See tf.raw_ops.AssignVariableXlaConcatND."""
    return xla_concat_nd(inputs, num_concats=num_concats, paddings=paddings)
