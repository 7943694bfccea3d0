"""Portable artifacts for old StableHLO versions, down to the oldest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import mlir
from jax.extend.mlir.dialects import stablehlo

import tf2jax_lite as tf2jax

from .harness import same

X = jnp.asarray(np.random.RandomState(0).randn(4, 6), jnp.float32)
FUNCTIONS = {
    "model": (lambda x, w: jax.nn.softmax(jnp.tanh(x @ w)), X, X.T),
    "scan": (lambda x: lax.scan(lambda c, a: (c * a, c), jnp.ones(6), x), X),
    "indexing": (lambda x: (x[jnp.argsort(x[:, 0])], jnp.sort(x, 1), x.at[1].add(2.0)), X),
    "pooling": (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"), X),
    "convolution": (lambda x: lax.conv(x[None, None], x[None, None, :2, :3], (1, 1), "SAME"), X),
}
# 0.9.0 is the first with compatibility; 1.0.0 the first stable version; the last is that of the installed jax.
VERSIONS = ["0.9.0", "0.19.0", "1.0.0", "1.8.0", stablehlo.get_current_version()]


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_older_artifacts(version):
    for fn, *args in FUNCTIONS.values():
        text = str(jax.export.export(jax.jit(fn))(*args).mlir_module())
        payload = mlir.serialize_portable_artifact(text, version)
        ours = tf2jax.from_stablehlo(payload)
        got, want = jax.jit(lambda fn=fn, ours=ours, args=args: (ours(*args), fn(*args)))()
        same(got, want)
