"""Permutations by swaps of entries one after the other: one loop on CPU.

The swaps of a Fisher-Yates shuffle depend on each other. Elsewhere they are sorted and followed as chains, for all
entries at once. XLA's CPU backend compiles a loop of few bytes a step as one function, in which a swap takes 8 ns: a
tenth of the time for 60,000 entries (two cores with AVX-512, JAX 0.10).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, register
from tf2jax_lite.jaxprs.shard_map import lower_fun
from tf2jax_lite.loops.shard_map import while_loop

from .selection import Rule, is_enabled
from .top_k import top_k


def permutation_of_swaps(targets: Any) -> Any:
    """Return the integers below n after step i swapped entries i and ``targets[i]``.

    Args:
      targets: int32 [..., n]; the target of step i is at least i, and less than n.

    Returns:
      int32 [..., n].
    """
    if targets.shape[-1] < 2:
        return targets
    if not is_enabled("swap_loop"):
        return _by_chains(targets)
    return _swaps_p.bind(targets, call_jaxpr=jax.make_jaxpr(_by_chains)(targets))


def _by_chains(targets: Any, **_: Any) -> Any:
    """Follow entries through all swaps at once.

    Entry i ends with the content of j_i before step i, which is the content of entry q before step q, for the last step
    q < i with j_q = j_i (or j_i itself if there is none). The content of an entry before its own step comes in turn
    from the last earlier step that swapped it. These chains, which are short, are followed for all entries.
    """
    if targets.ndim > 1:
        return jax.vmap(_by_chains)(targets)
    size = targets.shape[0]
    order = lax.iota(np.int32, size)
    # Steps sorted by target (j_i), then by number; the last entry's target is itself.
    inverted, step = top_k(~targets, size)
    target = ~inverted
    same = target[1:] == target[:-1]
    previous = jnp.where(jnp.pad(same, (1, 0)), jnp.roll(step, 1), -1)
    source = jnp.where(step == target, previous, step)
    last = jnp.where(jnp.pad(same, (0, 1)), size, target)
    chain = order.at[last].set(jnp.where(source < 0, target, source), mode="drop")

    def follow(state: Any) -> tuple[Any, Any]:
        next_chain = state[0][state[0]]
        return next_chain, jnp.any(next_chain != state[0])

    content = while_loop(lambda state: state[1], follow, (chain, jnp.asarray(True)))[0]
    return order.at[step].set(jnp.where(previous < 0, target, content[previous]))


def _by_loop(targets: Any, **_: Any) -> Any:
    """Swap one pair of entries after the other, row by row."""
    if targets.ndim > 1:
        return lax.map(_by_loop, targets)
    size = targets.shape[0]

    def at(values: Any, index: Any) -> Any:
        return lax.dynamic_slice(values, (index,), (1,), allow_negative_indices=False)

    def put(values: Any, value: Any, index: Any) -> Any:
        return lax.dynamic_update_slice(values, value, (index,), allow_negative_indices=False)

    def swap(index: Any, order: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        (target,) = at(targets, index)
        # One value, and not to be taken apart again: a read after the first write has XLA copy the array in each step.
        pair = lax.optimization_barrier(lax.concatenate([at(order, index), at(order, target)], 0))
        return put(put(order, pair[1:], index), pair[:1], target)

    return lax.fori_loop(np.int32(0), np.int32(size), swap, lax.iota(np.int32, size))


RULES = (
    Rule(
        "swap_loop",
        lambda targets, **_: True,
        _by_loop,
        "Sorting takes far longer than swaps in a loop, which only on CPU has steps of some nanoseconds.",
    ),
)

# To all that reads jaxprs it is a call; on all platforms but CPU it is lowered as that.
_swaps_p = Primitive("closed_call")
register(
    _swaps_p,
    impl="compiled",
    abstract=lambda targets, **_: targets,
    batch=lambda args, dims, **_: (permutation_of_swaps(jnp.moveaxis(args[0], dims[0], 0)), 0),
    lowering=lower_fun(_by_chains, multiple_results=False),
    cpu_lowering=lower_fun(_by_loop, multiple_results=False),
)
