"""Models whose functions use CPU lowering rules."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from tf2jax_lite.federated.models.model import Model
from tf2jax_lite.xla_cpu import optimize


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
