"""Shardings and collectives on a single device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.types import Array, PartialShape

from .protos import fields


@op("XlaReplicaId")
def xla_replica_id() -> np.ndarray:
    """Return 0, the only replica.

    TF: tf.raw_ops.XlaReplicaId (compiler/tf2xla/kernels/replica_id_op.cc).
    """
    return np.asarray(0, np.int32)


@op("XlaSharding", fold=lambda input, *, sharding="", unspecified_dims=(): input)
def xla_sharding(input: Array, *, sharding: str = "", unspecified_dims: Sequence[int] = ()) -> Array:
    """Return the input: JAX shards arrays. TF: tf.raw_ops.XlaSharding."""
    return input


def _check_unsharded(sharding: str) -> None:
    """Raise OpError if a sharding gives a device less than the whole tensor."""
    found = fields(sharding, 1, 3, 6)
    tiles = found.get(3, [])
    if found.get(6, [0])[-1]:
        tiles = tiles[:-1]
    if math.prod(tiles) > 1:
        raise OpError(f"the sharding splits the tensor into {tiles} parts; only one device is supported")


@op("XlaSpmdFullToShardShape")
def xla_spmd_full_to_shard_shape(
    input: Array, *, manual_sharding: str, dim: int = -1, unspecified_dims: Sequence[int] = ()
) -> Array:
    """Return the input: a single device has the whole tensor.

    TF: tf.raw_ops.XlaSpmdFullToShardShape.
    """
    _check_unsharded(manual_sharding)
    return input


@op("XlaSpmdShardToFullShape")
def xla_spmd_shard_to_full_shape(
    input: Array,
    *,
    manual_sharding: str,
    full_shape: PartialShape | None,
    dim: int = -1,
    unspecified_dims: Sequence[int] = (),
) -> Array:
    """Return the input: a single device has the whole tensor.

    TF: tf.raw_ops.XlaSpmdShardToFullShape.
    """
    _check_unsharded(manual_sharding)
    return input


def _check_single_replica(groups: Any) -> None:
    if np.ndim(groups) != 2 or np.shape(groups)[1] > 1:
        raise OpError(f"a collective over {np.shape(groups)} replicas; only groups of one are supported")


@op("XlaAllReduce")
def xla_all_reduce(input: Array, group_assignment: Static, *, reduce_op: str, mode: str) -> Array:
    """Return the input where groups have one replica. TF: tf.raw_ops.XlaAllReduce.

    Args:
      input: any array.
      group_assignment: static [groups, replicas].
      mode: unused.
      reduce_op: unused.

    Returns:
      The input.

    Raises:
      OpError: a group has more than one replica.
    """
    _check_single_replica(group_assignment)
    return input


@op("XlaReduceScatter")
def xla_reduce_scatter(input: Array, group_assignment: Static, scatter_dimension: Static, *, reduce_op: str) -> Array:
    """Return the input where groups have one replica. TF: tf.raw_ops.XlaReduceScatter.

    Args:
      input: any array.
      group_assignment: static [groups, replicas].
      scatter_dimension: unused.
      reduce_op: unused.

    Returns:
      The input.

    Raises:
      OpError: a group has more than one replica.
    """
    _check_single_replica(group_assignment)
    return input
