"""Optionals against TensorFlow, static and traced, in branches, loops and lists."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

raw = tf.raw_ops
CASES = []
TESTED_OTHERWISE = {"OptionalFromValue", "OptionalGetValue", "OptionalHasValue", "OptionalNone"}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _some(*components):
    return raw.OptionalFromValue(components=list(components))


def _value(optional, *shapes):
    return raw.OptionalGetValue(
        optional=optional, output_types=[tf.float32] * len(shapes), output_shapes=[tf.TensorShape(s) for s in shapes]
    )


def known(x):
    two = _some(x, x[0] * 2.0)
    has = raw.OptionalHasValue(optional=two), raw.OptionalHasValue(optional=raw.OptionalNone())
    return *_value(two, [2, 3], [3]), *has


def picked_by_data(x):
    big = tf.reduce_sum(x) > 10.0
    optional = tf.cond(big, lambda: _some(x, x + 1.0), raw.OptionalNone)
    has = raw.OptionalHasValue(optional=optional)
    return has, tf.cond(has, lambda: _value(optional, [2, 3], [2, 3])[1], lambda: tf.zeros([2, 3]))


def carried_by_a_loop(x):
    # The optional has no value before the loop, and one after it.
    def body(i, optional):
        return i + 1, tf.cond(tf.reduce_sum(x) > tf.cast(i, tf.float32), lambda: _some(x * 2.0), raw.OptionalNone)

    _, optional = tf.while_loop(lambda i, _: i < 3, body, [0, raw.OptionalNone()])
    return _value(optional, [2, 3])


def other_kinds_in_other_branches(x):
    # As gradients of tf.case store values of branches: a number in one, an optional in the other.
    first, second = x[0, 1] > 0.7, x[1, 1] > 1.0
    one = tf.cond(second, lambda: _some(x[0] + 1.0), raw.OptionalNone)
    both = tf.cond(first, lambda: _some(x), lambda: raw.OptionalFromValue(components=[one]))

    def inner():
        (found,) = raw.OptionalGetValue(optional=both, output_types=[tf.variant], output_shapes=[tf.TensorShape([])])
        has = raw.OptionalHasValue(optional=found)
        return tf.cond(has, lambda: _value(found, [3])[0], lambda: tf.zeros([3]))

    return tf.cond(first, lambda: _value(both, [None, 3])[0][0], inner)


def zeros_and_sums(x):
    inner = _some(x[0])
    nested = raw.OptionalFromValue(components=[x, inner])
    total = tf.raw_ops.AddN(inputs=[nested, nested, tf.zeros_like(nested)])
    array, found = raw.OptionalGetValue(
        optional=total,
        output_types=[tf.float32, tf.variant],
        output_shapes=[tf.TensorShape([2, 3]), tf.TensorShape([])],
    )
    picked = tf.cond(x[0, 1] > 0.7, lambda: _some(x), raw.OptionalNone)
    has = raw.OptionalHasValue(optional=tf.zeros_like(picked))
    return array, _value(found, [3]), has


@pytest.mark.default_cases("0.2-other_kinds_in_other_branches", "0.2-zeros_and_sums")
@pytest.mark.parametrize(
    "fn",
    [known, picked_by_data, carried_by_a_loop, other_kinds_in_other_branches, zeros_and_sums],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("factor", [1.0, 0.5, 0.2])
def test_against_tensorflow(fn, factor):
    fn = tf.function(fn)
    x = X * factor
    expected = tf.nest.flatten(fn(x))
    actual = jax.tree.leaves(jax.jit(tf2jax.convert_functional(fn, tf.TensorSpec([2, 3])))(x))
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(a, e)


def test_get_value_of_none_raises():
    def fn():
        return _value(raw.OptionalNone(), [])

    with pytest.raises(ValueError, match="holds none"):
        tf2jax.convert_functional(fn)()


def test_ambiguous_alternatives_raise():
    def fn(x):
        optional = tf.cond(x[0, 0] > 0.0, lambda: _some(x), lambda: _some(x[0]))
        return raw.OptionalGetValue(optional=optional, output_types=[tf.float32], output_shapes=[tf.TensorShape(None)])

    with pytest.raises(ValueError, match="several of those that it may hold"):
        jax.jit(tf2jax.convert_functional(fn, tf.TensorSpec([2, 3])))(X)


@pytest.mark.full
@pytest.mark.parametrize("x", [[1, 2, 3], [-1, 0, 3], [0, 2, 3], [-1, 2, 3]], ids=str)
def test_gradient_of_a_case_with_branches_inside(x):
    x, y = np.float32(x), np.float32([2, 3, 4])

    def forward(x, y):
        first, second = x[0] > 0, x[0] < 0

        def inner():
            return tf.cond(x[1] < 1, lambda: x * x, lambda: y * x)

        return tf.reduce_sum(tf.cond(first, inner, lambda: tf.cond(second, inner, lambda: x - y)))

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            out = forward(x, y)
        return tape.gradient(out, [x, y], unconnected_gradients="zero")

    specs = tf.TensorSpec([3]), tf.TensorSpec([3])
    expected = gradients(x, y)
    taped = jax.jit(tf2jax.convert_functional(gradients, *specs))(x, y)
    ours = jax.jit(jax.grad(tf2jax.convert_functional(forward, *specs), (0, 1)))(x, y)
    for e, a, b in zip(expected, taped, ours, strict=True):
        np.testing.assert_allclose(a, e)
        np.testing.assert_allclose(b, e)


@pytest.mark.full
@pytest.mark.parametrize("x", [2.0, 0.5, -1.0])
def test_second_in_graph_gradients(x):
    # The second tf.gradients starts with zeros of the optionals that the branches of the first return.
    def forward(x):
        return tf.cond(x > 0, lambda: tf.cond(x > 1, lambda: x**3 * tf.exp(x), lambda: tf.sin(x)), lambda: x**4)

    @tf.function
    def third(x):
        value = forward(x)
        for _ in range(3):
            (value,) = tf.gradients(value, x)
        return value

    spec = tf.TensorSpec([])
    ours = tf2jax.convert_functional(third, spec)
    expected = third(tf.constant(x))
    np.testing.assert_allclose(jax.jit(ours)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(ours)(np.float32([-3.0, x]))[1], expected, rtol=1e-5)


@pytest.mark.full
def test_sum_with_none_raises():
    def fn():
        return raw.OptionalHasValue(optional=tf.raw_ops.AddN(inputs=[_some(tf.ones([2])), raw.OptionalNone()]))

    with pytest.raises(ValueError, match="one has a value and the other doesn't"):
        tf2jax.convert_functional(fn)()
