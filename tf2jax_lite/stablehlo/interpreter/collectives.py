"""Collectives among one device: what ``shard_map`` over a mesh of one leaves in a module. Others are refused."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import UnsupportedError

from .core import Site, rule

__all__: list[str] = []


@rule(
    "stablehlo.all_reduce",
    "stablehlo.all_gather",
    "stablehlo.all_to_all",
    "stablehlo.reduce_scatter",
    "stablehlo.collective_broadcast",
)
def _among_one(site: Site, *args: Any) -> Any:
    groups = site.attr("replica_groups")
    alone = _devices(site) == 1 if groups is None or not np.size(groups) else np.shape(groups)[-1] == 1
    if not alone or site.op.types != site.op.operand_types:
        raise _refused(site)
    return args


@rule("stablehlo.collective_permute")
def _permute(site: Site, x: Any) -> Any:
    pairs = np.asarray(site.attr("source_target_pairs")).reshape(-1, 2).tolist()
    if _devices(site) != 1 or any(pair != [0, 0] for pair in pairs):
        raise _refused(site)
    return x if pairs else jnp.zeros_like(x)  # what nobody sends to gets zeros


def _devices(site: Site) -> int:
    attrs = site.run.module.attrs
    return int(attrs.get("mhlo.num_partitions", 1)) * int(attrs.get("mhlo.num_replicas", 1))


def _refused(site: Site) -> UnsupportedError:
    return UnsupportedError(
        "a collective among several devices: there is one inside of a module here, so export the function that "
        "shard_map or pmap is given"
    )
