"""Shardings and collectives on a single device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError

from .protos import fields


@op("XlaReplicaId")
def xla_replica_id():
    """Return 0, the only replica.

    TF: compiler/tf2xla/kernels/replica_id_op.cc.
    """
    return np.asarray(0, np.int32)


@op("XlaSharding", fold=lambda input: input)
def xla_sharding(input, *, sharding="", unspecified_dims=()):
    """Return the input: JAX shards arrays."""
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
def xla_spmd_full_to_shard_shape(input, *, manual_sharding, dim=-1, unspecified_dims=()):
    """Return the input: a single device has the whole tensor."""
    _check_unsharded(manual_sharding)
    return input


@op("XlaSpmdShardToFullShape")
def xla_spmd_shard_to_full_shape(input, *, manual_sharding, full_shape, dim=-1, unspecified_dims=()):
    """Return the input: a single device has the whole tensor."""
    _check_unsharded(manual_sharding)
    return input


def _check_single_replica(groups: Any) -> None:
    if np.ndim(groups) != 2 or np.shape(groups)[1] > 1:
        raise OpError(f"a collective over {np.shape(groups)} replicas; only groups of one are supported")


@op("XlaAllReduce")
def xla_all_reduce(input, group_assignment: Static, *, reduce_op, mode):
    """Return the input where groups have one replica."""
    _check_single_replica(group_assignment)
    return input


@op("XlaReduceScatter")
def xla_reduce_scatter(input, group_assignment: Static, scatter_dimension: Static, *, reduce_op):
    """Return the input where groups have one replica."""
    _check_single_replica(group_assignment)
    return input
