"""Convolutions of models on CPUs: CPU lowering rules, and slow loops."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import jax

from tf2jax_lite.federated.models.model import Model
from tf2jax_lite.jaxprs.walk import equations
from tf2jax_lite.xla_cpu import optimize

__all__ = ["has_slow_convolution", "with_cpu_rules"]

# XLA has fast code for these inside loops as well: one group, channels last (JAX 0.10).
_FAST = re.compile(
    r"dim_numbers = \[b, (0(?:, 1)?), f\]x\[\1, i, o\]->\[b, \1, f\].*batch_group_count = 1 .*feature_group_count = 1 "
)


def with_cpu_rules(model: Model, backend: str | None = None) -> Model:
    """Return the model with `xla_cpu.optimize` in both modes on a CPU backend.

    Args:
      model: the model.
      backend: ``"cpu"``, or another; JAX's default backend if None.
    """
    if (backend or jax.default_backend()) != "cpu":
        return model
    return dataclasses.replace(
        model, apply_for_train=_optimized(model.apply_for_train), apply_for_eval=_optimized(model.apply_for_eval)
    )


def _optimized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``optimize(function)`` that is the function while jit is disabled."""
    faster = optimize(function)

    @functools.wraps(faster)
    def call(*args: Any) -> Any:
        return (function if jax.config.jax_disable_jit else faster)(*args)

    return call


def has_slow_convolution(fn: Callable[..., Any], *args: Any) -> bool:
    """Return whether ``fn(*args)`` has a convolution that is slow in XLA's loops.

    Those inside an artifact's StableHLO count, too: `with_cpu_rules` cannot rewrite them.

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
