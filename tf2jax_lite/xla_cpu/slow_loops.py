"""Convolutions that XLA:CPU is slow at inside loops."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax

from tf2jax_lite.jaxprs.walk import equations

# XLA has fast code for these inside loops as well: one group, channels last (JAX 0.10).
_FAST = re.compile(
    r"dim_numbers = \[b, (0(?:, 1)?), f\]x\[\1, i, o\]->\[b, \1, f\].*batch_group_count = 1 .*feature_group_count = 1 "
)


def has_slow_convolution(fn: Callable[..., Any], *args: Any) -> bool:
    """Return whether ``fn(*args)`` has a convolution that is slow in XLA's loops.

    Those inside an artifact's StableHLO count, too: `optimize` cannot rewrite them.

    Args:
      fn: a function that can be traced.
      *args: pytrees of arrays, or of anything with shape and dtype.
    """
    traced = jax.jit(fn).trace(*args)
    if not any(_may_convolve(inner) for eqn in traced.jaxpr.jaxpr.eqns for inner in equations(eqn)):
        return False
    lines = traced.lower(lowering_platforms=("cpu",)).as_text().splitlines()
    return any("stablehlo.convolution" in line and not _FAST.search(line) for line in lines)


def _may_convolve(eqn: Any) -> bool:
    return eqn.primitive.name in ("conv_general_dilated", "call_exported")
