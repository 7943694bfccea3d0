"""Values marked for one computation: users diverge before a barrier."""

import functools

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RNG = np.random.default_rng(0)
W, V = (tf.constant(RNG.normal(size=(4, 4)).astype(np.float32)) for _ in range(2))
FILTER = tf.constant(RNG.normal(size=(3, 3, 4, 4)).astype(np.float32))
X = RNG.normal(size=(3, 4)).astype(np.float32)
IMAGES = RNG.normal(size=(1, 5, 5, 4)).astype(np.float32)


def residual(x):
    for w in (W, V, W):
        x = tf.nn.relu(x + x @ w)
    return x


def dense_blocks(x):
    for _ in range(2):
        x = tf.concat([x, tf.nn.relu(x * 2.0) @ tf.ones((x.shape[1], 2))], 1)
    return x


def convolutions(x):
    y = tf.nn.relu(x)
    return tf.nn.conv2d(y, FILTER, 1, "SAME"), tf.nn.max_pool2d(y, 3, 1, "SAME")


def in_a_call(x):
    @tf.function
    def convolve(y):
        return tf.nn.conv2d(y, FILTER, 1, "SAME")

    x = tf.nn.relu(x)
    return x + convolve(x)


def in_a_loop(x):
    for _ in tf.range(3):
        x = tf.tanh(x)
        x = x + x @ W
    return x


def returned(x):
    y = tf.exp(x)
    return y, y @ W


def in_other_orders(x):
    """Branches of one value that meet, part and meet again."""
    y = tf.tanh(x)
    z = y * tf.sigmoid(y) + tf.exp(y)
    return tf.sin(z) * tf.cos(z) @ W


def meets_at_once(x):
    return (x * tf.sigmoid(tf.tanh(x)) - tf.tanh(x)) @ W


def no_contraction(x):
    y = tf.tanh(x)
    return tf.sin(y), tf.cos(y)


def one_user(x):
    return tf.tanh(x) @ W


def same_product(x):
    y = tf.tanh(x)
    return tf.matmul(y, y, transpose_b=True)


def of_a_product(x):
    """Return a product's result, which is in memory anyway."""
    y = x @ W
    return y @ V + tf.sin(y) @ W


def of_weights(x):
    w = tf.nn.softmax(W)
    return x @ w + tf.sin(x) @ (w * 2.0)


def only_its_shape(x):
    y = tf.tanh(x)
    return tf.reshape(y @ W, tf.shape(y))


def integers(x):
    y = tf.cast(x, tf.int32) + 1
    return tf.matmul(y, y) + tf.matmul(y + 1, y) + y


CASES = [
    (residual, X, 2),
    (dense_blocks, X, 1),
    (convolutions, IMAGES, 1),
    (in_a_call, IMAGES, 1),
    (in_a_loop, X, 1),
    (returned, X, 1),
    (in_other_orders, X, 0),
    (meets_at_once, X, 0),
    (no_contraction, X, 0),
    (one_user, X, 0),
    (same_product, X, 0),
    (of_a_product, X, 0),
    (of_weights, X, 0),
    (only_its_shape, X, 0),
    (integers, X[:, :3], 0),
]


@pytest.mark.full
@pytest.mark.parametrize(("fn", "x", "marks"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_marks(fn, x, marks):
    graph = tf.function(fn)
    jax_fn = tf2jax.convert_functional(graph, tf.TensorSpec(x.shape, x.dtype))
    assert str(jax.make_jaxpr(jax_fn)(x)).count("= materialize") == marks
    found, expected = jax.jit(jax_fn)(x), graph(tf.constant(x))
    jax.tree.map(lambda f, e: np.testing.assert_allclose(f, e, rtol=2e-5, atol=1e-5), found, expected)


def plainly(fn):
    return fn


def blocks_called(wrap):
    block = wrap(lambda x, w: tf.nn.relu(x + x @ w))

    def fn(x):
        for w in (W, V, W):
            x = block(tf.identity(x), w)
        return x

    return fn


def light_blocks_called(wrap):
    """Return a function whose caller has the product, and it the divergence."""
    block = wrap(lambda x: (tf.nn.relu(x + 1.0), tf.sin(x)))

    def fn(x):
        y, z = block(tf.tanh(x))
        return y @ W + z, y + tf.cos(z)

    return fn


def calls_in_calls(wrap):
    norm = wrap(lambda x: (x - tf.reduce_mean(x, -1, keepdims=True)) * 2.0)
    inner = wrap(lambda x: (norm(x) @ W, x * 3.0))

    @wrap
    def outer(x):
        y, z = inner(x)
        return tf.tanh(y) + z

    return lambda x: outer(outer(tf.sin(x)))


def meets_in_a_call(wrap):
    """Both ways come to the same step before the product."""
    gate = wrap(lambda x, y: x * tf.sigmoid(y))

    def fn(x):
        y = tf.tanh(x)
        return gate(y, y + 1.0) @ W

    return fn


def product_from_a_call(wrap):
    """Return a called function's product, in memory, through an Identity."""
    product = wrap(lambda x: tf.identity(x @ W))

    def fn(x):
        y = product(x)
        return y @ V + tf.sin(y) @ W

    return fn


def two_products_called(wrap):
    products = [wrap(lambda x, w=w: x @ w) for w in (W, V)]

    def fn(x):
        y = tf.tanh(x)
        return products[0](y) + tf.sin(products[1](y))

    return fn


def result_and_argument(wrap):
    block = wrap(lambda x: (x, x @ W))

    def fn(x):
        y, z = block(tf.tanh(x))
        return tf.sin(y) @ V + z

    return fn


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "marks"),
    [
        (blocks_called, 3),
        (light_blocks_called, 2),
        (calls_in_calls, 2),
        (meets_in_a_call, 0),
        (product_from_a_call, 1),
        (two_products_called, 1),
        (result_and_argument, 1),
    ],
)
def test_calls_are_looked_into(make, marks):
    """A function's calls are marked as what stands in their place would be."""
    for wrap in (plainly, tf.function):
        graph = tf.function(make(wrap))
        jax_fn = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, X.dtype))
        assert str(jax.make_jaxpr(jax_fn)(X)).count("= materialize") == marks, wrap
        found, expected = jax.jit(jax_fn)(X), graph(tf.constant(X))
        jax.tree.map(lambda f, e: np.testing.assert_allclose(f, e, rtol=2e-5, atol=1e-5), found, expected)


@pytest.mark.full
def test_a_chain_of_calls_compiles_in_proportion():
    """Each call had computed, and compiled, all the calls before it again."""
    block = tf.function(lambda x, w: tf.nn.relu(x + tf.tanh(x @ w) @ w))

    def size(count):
        graph = tf.function(lambda x, w: tf.reduce_sum(functools.reduce(lambda x, _: block(x, w), range(count), x)))
        fn = tf2jax.convert_functional(graph, tf.TensorSpec([3, 4]), tf.TensorSpec([4, 4]))
        return len(jax.jit(jax.grad(fn)).lower(X, X.T @ X).compile().as_text())

    assert size(24) < 2.5 * size(12)


def reduced_and_used(x):
    """Each round's exponential is used in the loop of a sum and in that after it."""
    for _ in range(3):
        x = tf.nn.relu(x + tf.sin(x) * 0.1 - tf.reduce_mean(x, -1, keepdims=True))
    return x


def read_at_other_offsets(x):
    for _ in range(6):
        x = tf.concat([x[:, 1:] * 0.9 + x[:, :-1], x[:, :1]], 1)
    return x


def long_but_read_once(x):
    """Elementwise, and all ways meet: one loop, however long."""
    for _ in range(20):
        x = x * tf.sigmoid(x) + 0.1
    return x


def few_steps(x):
    x = x * 2.0 + 1.0
    return x - tf.reduce_mean(x, -1, keepdims=True)


def cut_into_many(x):
    a, b, c, d = tf.split(tf.exp(tf.sin(x)), 4, 1)
    return a * b + c * d


def kept_in_a_call(x):
    @tf.function
    def wave(x):
        return tf.sin(tf.exp(x))

    y = wave(x)
    return y / tf.reduce_sum(y)


def diverging_in_a_call(x):
    @tf.function
    def normalized(x):
        return x / tf.reduce_sum(x)

    return normalized(tf.sin(tf.exp(x)))


def of_variables_alone(x):
    y = tf.exp(tf.sin(W))
    return x + y / tf.reduce_sum(y)


@pytest.mark.full
@pytest.mark.parametrize(
    ("fn", "marks"),
    [
        (reduced_and_used, 2),
        (read_at_other_offsets, 2),
        (long_but_read_once, 0),
        (few_steps, 0),
        (cut_into_many, 1),
        (kept_in_a_call, 1),
        (diverging_in_a_call, 1),
        (of_variables_alone, 0),
    ],
)
def test_what_took_many_steps(fn, marks):
    """It is computed once for use in several loops or at several offsets."""
    x = RNG.normal(size=(4, 4)).astype(np.float32)
    graph = tf.function(fn)
    jax_fn = tf2jax.convert_functional(graph, tf.TensorSpec(x.shape, x.dtype))
    assert str(jax.make_jaxpr(jax_fn)(x)).count("= materialize") == marks
    np.testing.assert_allclose(jax.jit(jax_fn)(x), graph(tf.constant(x)), rtol=2e-5, atol=1e-5)


def lorenz(x):
    return tf.stack([10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]])


def runge_kutta(x, steps):
    for _ in range(steps):
        k1 = lorenz(x)
        k2 = lorenz(x + 0.005 * k1)
        k3 = lorenz(x + 0.005 * k2)
        x = x + 0.01 / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + lorenz(x + 0.01 * k3))
    return x


def centered(x, steps):
    for _ in range(3 * steps):
        x = tf.nn.relu(x + 0.1 * tf.sin(x) - tf.reduce_mean(x, -1, keepdims=True))
    return x


@pytest.mark.full
@pytest.mark.parametrize("fn", [runge_kutta, centered])
def test_long_computations_compile_in_proportion(fn):
    """XLA computed and compiled all operands again for each user."""
    x = RNG.normal(size=(3, 8)).astype(np.float32)
    sizes = []
    for steps in (2, 4):
        graph = tf.function(lambda x, steps=steps: tf.reduce_sum(fn(x, steps)))
        jax_fn = tf2jax.convert_functional(graph, tf.TensorSpec(x.shape, x.dtype))
        sizes.append(len(jax.jit(jax.grad(jax_fn)).lower(x).compile().as_text()))
        with tf.GradientTape() as tape:
            variable = tf.Variable(x)
            value = graph(variable)
        np.testing.assert_allclose(jax.jit(jax.grad(jax_fn))(x), tape.gradient(value, variable), rtol=2e-4, atol=1e-4)
    assert sizes[1] < 2.5 * sizes[0]


@pytest.mark.full
@pytest.mark.parametrize("draw", [tf.random.stateless_normal, tf.random.stateless_uniform])
def test_numbers_are_drawn_once(draw):
    """Each takes hundreds of operations, which XLA would repeat for the mean."""

    def fn(seed):
        x = draw([4, 6], seed)
        return x - tf.reduce_mean(x, -1, keepdims=True)

    graph, seed = tf.function(fn), np.int32([3, 4])
    jax_fn = tf2jax.convert_functional(graph, tf.TensorSpec([2], tf.int32))
    assert str(jax.make_jaxpr(jax_fn)(seed)).count("= materialize") == 1
    np.testing.assert_allclose(jax.jit(jax_fn)(seed), graph(seed), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_variables_are_not_marked():
    """What would be hidden behind a mark is what loops take out of their bodies."""
    v = tf.Variable(W)
    graph = tf.function(lambda x: tf.tanh(x @ v) @ tf.exp(v))
    fn, params = tf2jax.convert(graph, tf.TensorSpec(X.shape, X.dtype))
    assert "= materialize" not in str(jax.make_jaxpr(fn)(params, X))


@pytest.mark.full
def test_gradients():
    graph = tf.function(lambda x: tf.reduce_sum(tf.sin(residual(x))))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = graph(x)
    fn = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, X.dtype))
    np.testing.assert_allclose(jax.jit(jax.grad(fn))(X), tape.gradient(value, x), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_ways_that_meet_far_ahead():
    """A meeting point is searched for some hundred steps; more marks do no harm."""

    def chain(x):
        y = x
        for i in range(600):
            y = tf.tanh(y) if i % 2 else tf.sin(y)
        return (x * 2.0 + y) @ W + x

    fn = tf2jax.convert_functional(tf.function(chain), tf.TensorSpec(X.shape, X.dtype))
    np.testing.assert_allclose(jax.jit(fn)(X), chain(tf.constant(X)), rtol=1e-5, atol=1e-5)
