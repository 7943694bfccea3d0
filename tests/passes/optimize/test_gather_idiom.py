"""Pieces of one split that are joined again are a repeat or a gather."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.random.default_rng(0).normal(size=(2, 40, 3)).astype(np.float32)
ORDER = np.random.default_rng(1).permutation(20)


def parts(x):
    return tf.split(x, 20, 1)


def shuffled(x):
    pieces = parts(x)
    return tf.concat([pieces[i] for i in ORDER], 1)


CASES = {
    "each twice": (lambda x: tf.concat([p for p in parts(x) for _ in range(2)], 1), "broadcast_in_dim", 0),
    "all twice": (lambda x: tf.concat(parts(x) * 2, 1), "gather", 0),
    "shuffled": (shuffled, "gather", 0),
    "as before": (lambda x: tf.concat(parts(x) + parts(x)[:2], 1), "concatenate", 1),
    "among others": (lambda x: tf.concat([x[:, :3], *parts(x)[::-1], parts(x)[0]], 1), "gather", 1),
    "unstacked": (lambda x: tf.stack([x for x in tf.unstack(x, axis=1) for _ in range(3)], 1), "broadcast_in_dim", 0),
    "along another axis": (lambda x: tf.concat(parts(x), 2), "concatenate", 1),
    "few": (lambda x: tf.concat(parts(x)[:5], 1), "concatenate", 1),
}


@pytest.mark.default_cases("among others", "unstacked", "along another axis", "few")
@pytest.mark.parametrize("name", CASES)
def test_gather_pieces_of_a_split_gives_tf_values(name):
    function, primitive, joins = CASES[name]
    own = tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec([None, 40, 3]))
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(own)(X).eqns]
    assert primitive in names
    assert names.count("concatenate") == joins
    np.testing.assert_array_equal(own(X), function(X))


@pytest.mark.full
def test_gather_pieces_gradient_adds_up_repeats():
    def function(x):
        return tf.reduce_sum(tf.sin(tf.concat([p for p in parts(x) for _ in range(2)], 1) * np.arange(80.0)[:, None]))

    own = tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec([2, 40, 3]))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = function(x)
    np.testing.assert_allclose(jax.grad(own)(X), tape.gradient(total, x), rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_gather_pieces_along_a_symbolic_dimension():
    own = tf2jax.convert_functional(
        tf.function(lambda x: tf.concat([p for p in tf.split(x, 16, 0) for _ in range(2)], 0), autograph=False),
        tf.TensorSpec([None, 2]),
    )
    symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape("16*b, 2"), np.float32)
    exported = jax.export.export(jax.jit(own))(symbolic)
    x = np.arange(64, dtype=np.float32).reshape(32, 2)
    np.testing.assert_array_equal(exported.call(x), np.repeat(x.reshape(16, 2, 2), 2, 0).reshape(64, 2))
