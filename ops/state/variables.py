"""Variables: the values behind resource handles."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.arrays.shape import INT32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
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


def _paddings(paddings: Any, rank: int) -> list[int]:
    found = [int(p) for p in paddings] or [0] * rank
    if len(found) != rank:
        raise OpError(f"paddings has {len(found)} elements for a tensor of rank {rank}")
    return found


def split_nd(value: Any, num_splits: list[int], paddings: Any) -> list[Any]:
    """Cuts a tensor, padded with zeros at the ends, into a grid of equal tiles, the last axis fastest."""
    value = jnp.asarray(value)
    if len(num_splits) != value.ndim:
        raise OpError(f"num_splits has {len(num_splits)} elements for a tensor of rank {value.ndim}")
    padded = lax.pad(value, jnp.zeros((), value.dtype), [(0, p, 0) for p in _paddings(paddings, value.ndim)])
    for size, parts in zip(padded.shape, num_splits, strict=True):
        if parts <= 0 or size % parts != 0:
            raise OpError(f"a dimension of {size} (with its padding) cannot be cut into {parts} equal parts")
    tiles = [padded]
    for axis, parts in enumerate(num_splits):
        tiles = [tile for whole in tiles for tile in jnp.split(whole, parts, axis=axis)]
    return tiles


def concat_nd(tiles: list[Any], num_concats: list[int], paddings: Any) -> Any:
    """Puts a grid of equal tiles together, the last axis fastest, and cuts the padding off the ends."""
    tiles = [jnp.asarray(tile) for tile in tiles]
    if math.prod(num_concats) != len(tiles):
        raise OpError(f"{len(tiles)} tiles do not fill a grid of {list(num_concats)}")
    rank = len(num_concats)
    for axis in reversed(range(rank)):
        parts = num_concats[axis]
        tiles = [lax.concatenate(tiles[i : i + parts], axis) for i in range(0, len(tiles), parts)]
    whole = tiles[0]
    return whole[tuple(slice(0, d - p) for d, p in zip(whole.shape, _paddings(paddings, rank), strict=True))]


@op("ReadVariableXlaSplitND", reads=("resource",))
def read_variable_xla_split_nd(resource: Any, *, num_splits: Any, paddings: Any = ()) -> tuple[list[Any]]:
    """Returns the variable's value in tiles. See tf.raw_ops.ReadVariableXlaSplitND."""
    return (split_nd(resource, num_splits, paddings),)


@op("AssignVariableXlaConcatND", writes=("resource",))
def assign_variable_xla_concat_nd(resource: Any, inputs: list[Any], *, num_concats: Any, paddings: Any = ()) -> Any:
    """Gives the variable a value put together from tiles. See tf.raw_ops.AssignVariableXlaConcatND."""
    return concat_nd(inputs, num_concats, paddings)
