"""Check of ops on quantized dtypes, bitcast from integers.

NumPy and JAX have no quantized dtypes.
"""

import jax
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.ops import registry

PLAIN = {
    tf.qint8: tf.int8,
    tf.quint8: tf.uint8,
    tf.qint16: tf.int16,
    tf.quint16: tf.uint16,
    tf.qint32: tf.int32,
}


def check_quantized(op, quantized, /, rtol=0.0, **arguments):
    """Compare a raw op with TensorFlow: under jit, and a batch of two under vmap."""
    arrays = {k: v for k, v in arguments.items() if isinstance(v, (np.ndarray, np.generic))}
    attrs = {k: v for k, v in arguments.items() if k not in arrays}

    def call(*values):
        inputs = dict(zip(arrays, values, strict=True))
        inputs = {k: tf.bitcast(v, quantized[k]) if k in quantized else v for k, v in inputs.items()}
        results = tf.nest.flatten(getattr(tf.raw_ops, op)(**inputs, **attrs))
        return [tf.bitcast(r, PLAIN[r.dtype]) if r.dtype in PLAIN else r for r in results]

    values = [np.asarray(v) for v in arrays.values()]
    function = tf.function(call, autograph=False)
    with jax.enable_x64(True):
        converted = tf2jax.convert_functional(function, *[tf.TensorSpec(v.shape, v.dtype) for v in values])
        expected = [e.numpy() for e in function(*map(tf.constant, values))]
        first = values[0]
        stacked = [np.stack([first, first[::-1] if first.ndim else first]), *(np.stack([v, v]) for v in values[1:])]
        batched = jax.jit(jax.vmap(converted))(*stacked)
        for actual in (jax.jit(converted)(*values), [np.asarray(b)[0] for b in batched]):
            assert len(actual) == len(expected)
            for e, a in zip(expected, actual, strict=True):
                a = np.asarray(a)
                assert (a.dtype, a.shape) == (e.dtype, e.shape)
                np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=rtol, atol=0)


def implementation(op):
    """Return the function registered for an op."""
    entry = registry.lookup(op)
    assert entry is not None
    return entry.fn
