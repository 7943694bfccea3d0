"""Which way a cohort runs where the user does not say: by backend, and by what the clients' steps are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.client_work import ClientWork
from tf2jax_lite.federated.convolutions import has_slow_convolution

from .strategies import Context, client_key

__all__ = ["can_be_batched", "choose_way"]


def choose_way(work: ClientWork, context: Context, batch: Any, client_input: Any, *, alone: bool = True) -> str:
    """Returns ``"vmap"``, ``"scan"`` or ``"loop"``; `benchmarks/federated.py` measures that it is the fastest.

    - On accelerators clients run side by side; one after another in one program if the model cannot be batched (an
      artefact's StableHLO cannot).
    - On a CPU they run one after another in one program: side by side, their weights would not stay in the cache, and a
      product of stacked matrices is slower there than a product.
    - A step with a convolution that XLA is slow at inside its loops on a CPU (in an artifact's StableHLO, which cannot
      be rewritten; small groups of channels) is a program of its own.

    Args:
      work: the client work.
      context: of the round.
      batch: a client's batch, for its shapes.
      client_input: what the algorithm passes for the client, or None.
      alone: whether clients may run one by one; a mesh needs chunks.
    """
    if jax.default_backend() != "cpu":
        return "vmap" if can_be_batched(work, context, batch, client_input) else "scan"
    if not alone:
        return "scan"
    start, step = _parts(work)
    carry = jax.eval_shape(start, context, client_input)
    return "loop" if has_slow_convolution(step, context, carry, batch) else "scan"


def _parts(work: ClientWork) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def start(context: Context, client_input: Any) -> Any:
        return work.client_init(context.work, context.message, client_key(context, jnp.int32(0)), client_input)

    def step(context: Context, carry: Any, batch: Any) -> Any:
        return work.client_step(context.work, context.message, carry, batch)

    return start, step


def can_be_batched(work: ClientWork, context: Context, batch: Any, client_input: Any) -> bool:
    """Returns whether clients can run side by side: what the step calls has a rule for it. Arguments: `choose_way`."""
    start, step = _parts(work)
    carry = jax.eval_shape(start, context, client_input)

    def one(carry: Any, batch: Any) -> Any:
        return step(context, carry, batch)

    try:
        jax.eval_shape(jax.vmap(one), *jax.tree.map(_stacked, (carry, dict(batch))))
    except NotImplementedError:
        return False
    return True


def _stacked(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)
