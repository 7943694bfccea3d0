"""Artefacts of functions with unknown sizes: which of them are one."""

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

TABLE = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def lookup(ids, rows, is_empty):
    """What is behind the host part of a model with an embedding column: sparse ids and which rows are empty."""
    found = tf.math.segment_sum(tf.gather(TABLE, ids), rows)
    return tf.where(is_empty[:, None], tf.zeros_like(found), found)


LOOKUP = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.bool)]
BATCH = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])]
# Function, types of arguments, and numbers of rows that the arguments can have.
CASES = {
    "pairs": (lookup, LOOKUP, [(5, 5, 3), (2, 2, 2)]),
    "a batch": (lambda x, y: tf.concat([x, y], 1), BATCH, [(4, 4), (1, 1)]),
    "nothing": (lambda x, y: (x * 2, y + 1), BATCH, [(4, 2), (1, 3)]),
}


def argument(spec, size):
    if spec.dtype == tf.bool:
        return np.arange(size) == 1
    if spec.dtype == tf.int32:
        return np.sort(np.arange(size, dtype=np.int32) % 3 % size)
    return np.arange(size * spec.shape[1], dtype=np.float32).reshape(size, -1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_sizes_are_one_only_where_they_have_to_be(name, backend, tmp_path):
    function, specs, sizes = CASES[name]
    graph = tf.function(function, input_signature=specs)
    tf2jax.export_functions({"f": tf2jax.convert(graph, *specs)}, tmp_path / "out")
    own, params = tf2jax.load(tmp_path / "out", backend=backend)
    for call in sizes:
        args = [argument(spec, size) for spec, size in zip(specs, call, strict=True)]
        expected = tf.nest.flatten(graph(*args))
        found = own(params, *args)[0]
        for e, a in zip(expected, found if isinstance(found, tuple) else [found], strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)
