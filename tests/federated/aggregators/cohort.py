"""A cohort of nine clients, two of them excluded, and two aggregations."""

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.process import ClientUpdates

N = 9
MASK = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], bool)
TEMPLATE = {"b": jax.ShapeDtypeStruct((5,), jnp.float32), "w": jax.ShapeDtypeStruct((3, 4), jnp.float32)}


def make(seed=0, scale=1.0):
    """Return updates; excluded clients hold NaN and infinity, and come first."""
    rng = np.random.default_rng(seed)
    update = {k: (scale * rng.normal(size=(N, *t.shape))).astype(np.float32) for k, t in TEMPLATE.items()}
    for leaf in update.values():
        leaf[2], leaf[6] = np.nan, np.inf
    weight = rng.integers(1, 9, N).astype(np.float32)
    weight[6] = np.nan
    return ClientUpdates(update, weight, MASK, np.where(MASK, np.arange(N), 0).astype(np.int32))


def flat(updates):
    """Return the included clients as float64 rows (7, 17), leaves by name."""
    rows = [updates.update[k].reshape(N, -1) for k in sorted(updates.update)]
    return np.concatenate(rows, 1).astype(np.float64)[MASK]


def vector(tree):
    return np.concatenate([np.asarray(tree[k], np.float64).reshape(-1) for k in sorted(tree)])


def rows(updates, chosen):
    return jax.tree.map(lambda x: x[chosen], updates)


def aggregate(process, updates, state=None, key=None, exact=False, whole=False):
    """Aggregate chunks of three in order, in another, and (``whole``) at once."""
    key = jax.random.key(7) if key is None else key
    state = process.initialize() if state is None else state
    # Runners donate the accumulator: no buffer may be in it twice.
    step, report = jax.jit(process.accumulate, donate_argnums=1), jax.jit(process.report)
    chunks = [rows(updates, slice(i, i + 3)) for i in range(0, N, 3)]

    def total(*numbers):
        found = process.zero(state, N)
        for i in numbers:
            found = step(state, found, chunks[i], key)
        return found

    result = report(state, total(0, 1, 2), key)
    others = [report(state, process.merge(total(2), total(1, 0)), key)]
    if whole:
        others.append(process.next(state, updates, key))
    for other in others:
        jax.tree.map(np.testing.assert_array_equal if exact else _close, other, result)
    return result


def _close(a, b):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
