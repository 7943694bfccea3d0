"""Select a cohort's execution backend by platform and a step's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.execution.backends import Context, client_key
from tf2jax_lite.federated.templates.client_work import ClientWork
from tf2jax_lite.xla_cpu.slow_loops import has_slow_convolution


def choose_backend(work: ClientWork, context: Context, batch: Any, client_input: Any, *, alone: bool = True) -> str:
    """Return the fastest backend: "vmap", "scan", "cpu_pool" or "loop".

    `benchmarks/federated.py` measures this.

    - On accelerators clients are batched (vmap), or run sequentially in one program (scan) if the model cannot be
      batched (an artifact's StableHLO cannot).
    - On a CPU they run sequentially in one program: batched weights would not fit in the cache, and batched matrix
      products are slower there.
      Chunks run on a thread for each core (cpu_pool): 1.6 times as fast as scan for logistic regression, 1.5 times for
      a CNN, on two x86-64 cores (benchmarks/pages/federated.md).
    - A step with a convolution that cannot be rewritten (in an artifact's StableHLO) must not run inside an XLA loop on
      a CPU: each step is a program of its own (loop).

    Args:
      work: the client work.
      context: of the round.
      batch: a client's batch, for its shapes.
      client_input: the algorithm's input for the client, or None.
      alone: whether clients may run individually; a mesh needs chunks.
    """
    if jax.default_backend() != "cpu":
        return "vmap" if can_be_batched(work, context, batch, client_input) else "scan"
    if not alone:
        return "scan"
    start, step = _parts(work)
    carry = jax.eval_shape(start, context, client_input)
    return "loop" if has_slow_convolution(step, context, carry, batch) else "cpu_pool"


def _parts(work: ClientWork) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def start(context: Context, client_input: Any) -> Any:
        return work.client_init(context.work, context.message, client_key(context, jnp.int32(0)), client_input)

    def step(context: Context, carry: Any, batch: Any) -> Any:
        return work.client_step(context.work, context.message, carry, batch)

    return start, step


def can_be_batched(work: ClientWork, context: Context, batch: Any, client_input: Any) -> bool:
    """Return whether clients can be batched: all primitives have batching rules.

    Arguments: `choose_backend`.
    """
    start, step = _parts(work)
    carry = jax.eval_shape(start, context, client_input)

    def one(carry: Any, batch: Any) -> Any:
        return step(context, carry, batch)

    try:
        jax.eval_shape(jax.vmap(one), *jax.tree.map(_stacked, (carry, dict(batch))))
    except NotImplementedError:
        return False
    return True


def reads_client_input(work: ClientWork, context: Context) -> bool:
    """Return whether ``client_init`` depends on the structure of its input.

    Args:
      work: the client work.
      context: of the round.
    """
    start, _ = _parts(work)
    try:
        forms = {jax.tree.structure(jax.eval_shape(start, context, given)) for given in (None, ())}
    except Exception:  # the code is the user's: it may fail in any way for want of its input
        return True
    return len(forms) > 1


def _stacked(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)
