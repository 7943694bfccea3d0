"""Sizes and padding of results that ``dynamic_shape_bound`` pads."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import LoweringError

BOUND = 6
X = np.array([1.5, -2.0, 3.0, -0.5], np.float32)
SPEC = tf.TensorSpec([4])


def kept(x):
    return tf.boolean_mask(x, x > 0)


def looped(x):
    return tf.while_loop(lambda i, total: i < 3, lambda i, total: (i + 1, total + 1.0), [0, kept(x)])[1]


def product(x):
    return kept(x)[:, None] + kept(x)[None]


def branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(kept(x)), lambda: kept(x) + 2.0)


# Functions of x with the value of the padding of their result.
RESULTS = {
    "kept": (kept, 0),
    "softmax": (lambda x: tf.nn.softmax(kept(x)), 0),
    "exp": (lambda x: tf.exp(kept(x)), 0),
    "product": (product, 0),
    "concat": (lambda x: tf.concat([kept(x), kept(x) + 1.0], 0), 0),
    "reversed": (lambda x: tf.reverse(kept(x), [0]), 0),
    "sorted": (lambda x: tf.sort(kept(x)), 0),
    "looped": (looped, 0),
    "branch": (branch, 0),
    "integers": (lambda x: tf.cast(kept(x), tf.int32) - 1, 0),
    "unsigned": (lambda x: tf.cast(kept(x), tf.uint8) + tf.constant(1, tf.uint8), 0),
    "bools": (lambda x: tf.logical_not(kept(x) > 2.0), False),
    "complex": (lambda x: tf.complex(tf.exp(kept(x)), 1.0 + kept(x)), 0),
    "halves": (lambda x: tf.cast(kept(x), tf.bfloat16) + tf.constant(1.0, tf.bfloat16), 0),
    "where": (lambda x: tf.where(x > 0), -1),
    "where_cast": (lambda x: tf.cast(tf.where(x > 0)[:, 0], tf.int32), -1),
    "unique": (lambda x: tf.unique(tf.cast(x, tf.int32))[0], 0),
}


@pytest.fixture(autouse=True)
def bound():
    with tf2jax.override_config("dynamic_shape_bound", BOUND):
        yield


@pytest.mark.default_cases("softmax", "product", "bools", "where")
@pytest.mark.parametrize("name", RESULTS)
def test_padding_and_sizes(name):
    function, filler = RESULTS[name]
    graph = tf.function(function)
    expected = graph(X).numpy()
    own = tf2jax.convert_functional(graph, SPEC)
    padded, sizes = jax.jit(lambda x: (own(x), own.sizes(x)))(X)
    assert sizes.dtype == np.int32
    np.testing.assert_array_equal(sizes, expected.shape)
    inside = tuple(map(slice, expected.shape))
    np.testing.assert_allclose(
        np.asarray(padded)[inside].astype(np.complex64), expected.astype(np.complex64), rtol=1e-6
    )
    outside = np.ones(padded.shape, bool)
    outside[inside] = False
    assert outside.any() and (np.asarray(padded)[outside] == filler).all()
    np.testing.assert_array_equal(own.sizes(X), expected.shape)


def test_sizes_have_the_structure_of_results_and_need_no_bound():
    def function(x):
        return {"kept": kept(x), "whole": (x[:, None], tf.reduce_sum(kept(x))), "none": None}

    with tf2jax.override_config("dynamic_shape_bound", 0):
        own = tf2jax.convert_functional(tf.function(function), SPEC)
    for sizes in (jax.jit(own.sizes)(X), own.sizes(X)):
        assert sizes["none"] is None
        assert {k: v.tolist() for k, v in sizes.items() if k == "kept"} == {"kept": [2]}
        assert [v.tolist() for v in sizes["whole"]] == [[4, 1], []]
    batch = np.stack([X, np.abs(X), -np.abs(X)])
    np.testing.assert_array_equal(jax.vmap(own.sizes)(batch)["kept"], [[2], [4], [0]])


@pytest.mark.full
def test_sizes_of_a_function_of_params_with_keys_and_state():
    weight, calls = tf.Variable(2.0, name="weight"), tf.Variable(0, name="calls")

    @tf.function
    def function(x):
        calls.assign_add(1)
        return kept(x * weight + tf.random.uniform([4], maxval=0.1))

    own, params = tf2jax.convert(function, SPEC)
    assert jax.jit(own.sizes)({**params, "weight": np.float32(-2.0)}, X, rng=jax.random.key(0)).tolist() == [2]


@pytest.mark.full
def test_padding_has_no_gradient():
    own = tf2jax.convert_functional(tf.function(lambda x: tf.exp(kept(x))), SPEC)
    gradient = jax.jit(jax.grad(lambda x: own(x).sum()))(X)
    np.testing.assert_allclose(gradient, np.where(X > 0, np.exp(X), 0), rtol=1e-6)


def test_assumed_sizes_that_differ_are_seen_in_padded_results():
    own = tf2jax.convert_functional(tf.function(lambda x, y: tf.exp(kept(x) + kept(y))), SPEC, SPEC)
    assert np.isnan(jax.jit(own)(X, np.abs(X))).all()


def test_without_a_rule_a_bound_raises():
    own = tf2jax.convert_functional(tf.function(lambda x: tf.linalg.svd(product(x), compute_uv=False)), SPEC)
    with pytest.raises(LoweringError, match=r"svd of shapes.*without jax.jit"):
        jax.jit(own)(X)
