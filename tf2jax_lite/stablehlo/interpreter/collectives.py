"""Collectives on one device, from ``shard_map`` over a mesh of one.

Others raise `UnsupportedError`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import UnsupportedError

from .core import OpContext, rule


@rule(
    "stablehlo.all_reduce",
    "stablehlo.all_gather",
    "stablehlo.all_to_all",
    "stablehlo.reduce_scatter",
    "stablehlo.collective_broadcast",
)
def _among_one(ctx: OpContext, *args: Any) -> Any:
    groups = ctx.attr("replica_groups")
    alone = _devices(ctx) == 1 if groups is None or not np.size(groups) else np.shape(groups)[-1] == 1
    if not alone or ctx.op.types != ctx.op.operand_types:
        raise _refused(ctx)
    return args


@rule("stablehlo.collective_permute")
def _permute(ctx: OpContext, x: Any) -> Any:
    pairs = np.asarray(ctx.attr("source_target_pairs")).reshape(-1, 2).tolist()
    if _devices(ctx) != 1 or any(pair != [0, 0] for pair in pairs):
        raise _refused(ctx)
    return x if pairs else jnp.zeros_like(x)  # devices without a sender get zeros


def _devices(ctx: OpContext) -> int:
    attrs = ctx.run.module.attrs
    return int(attrs.get("mhlo.num_partitions", 1)) * int(attrs.get("mhlo.num_replicas", 1))


def _refused(ctx: OpContext) -> UnsupportedError:
    return UnsupportedError(
        "a collective among several devices: there is one inside of a module here, so export the function that "
        "shard_map or pmap is given"
    )
