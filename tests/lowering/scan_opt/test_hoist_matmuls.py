"""Products made before a loop: equal values, gradients; a smaller body."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite as tf2jax
from tf2jax_lite.jaxprs.compat import scan_counts
from tf2jax_lite.lowering import scan_opt
from tf2jax_lite.xla_cpu import cost_model

from .scans import the_scan

RNG = np.random.default_rng(0)
TRIPS, BATCH, INPUTS, WIDTH = 5, 2, 3, 4
BUFFER = RNG.normal(size=(TRIPS + 2, BATCH, INPUTS)).astype(np.float32)
KERNEL = RNG.normal(size=(INPUTS, WIDTH)).astype(np.float32)
RECURRENT = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)


def _run(buffer, kernel, recurrent, indices, hoist):
    def step(state, index):
        value = lax.dynamic_index_in_dim(buffer, index, 0, keepdims=False)
        return jnp.tanh(value @ kernel + state @ recurrent), None

    start = jnp.zeros((BATCH, WIDTH), buffer.dtype)
    xs = np.asarray(indices, np.int32)
    return scan_opt.scan(step, start, xs, len(indices)) if hoist else lax.scan(step, start, xs)[0]


def _expected(indices):
    state = np.zeros((BATCH, WIDTH))
    for index in indices:
        state = np.tanh(BUFFER[index].astype(np.float64) @ KERNEL + state @ RECURRENT)
    return state


def _products(jaxpr):
    """Return how many products there are before the loop and in it."""
    body = the_scan(jaxpr).params["jaxpr"].jaxpr
    return [sum(e.primitive.name == "dot_general" for e in j.eqns) for j in (jaxpr, body)]


@pytest.mark.full
@pytest.mark.parametrize(
    "indices", [range(TRIPS), range(2, TRIPS + 2), range(TRIPS)[::-1], [0, 0, 3, 1], [-1, 0, 1]], ids=str
)
def test_values_and_gradients(indices):
    """Indices in order, in either direction, make slices, others gathers."""
    weights = BUFFER, KERNEL, RECURRENT
    jaxpr = jax.make_jaxpr(lambda *w: _run(*w, indices, True))(*weights).jaxpr
    assert _products(jaxpr) == [1, 1]
    one_after_another = isinstance(indices, range)
    assert ("gather" in str(jaxpr)) != one_after_another
    np.testing.assert_allclose(_run(*weights, indices, True), _expected(indices), rtol=1e-5, atol=1e-6)
    ours, plain = (
        jax.grad(lambda *w, h=h: jnp.sum(_run(*w, indices, h) ** 2), argnums=(0, 1, 2))(*weights) for h in (True, False)
    )
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=1e-6)  # sums in another order


@pytest.mark.full
def test_a_product_of_an_input_with_itself():
    def step(state, index):
        value = lax.dynamic_index_in_dim(jnp.asarray(BUFFER), index, 0, keepdims=False)
        return jnp.tanh(lax.dot_general(value, value, (((1,), (1,)), ((), ()))) + state), None

    start, xs = jnp.zeros((BATCH, BATCH)), np.arange(TRIPS, dtype=np.int32)
    np.testing.assert_allclose(scan_opt.scan(step, start, xs, TRIPS), lax.scan(step, start, xs)[0], rtol=1e-6)


@pytest.mark.full
def test_under_vmap():
    buffers = np.stack([BUFFER, 2 * BUFFER])
    found = jax.vmap(lambda b: _run(b, KERNEL, RECURRENT, range(TRIPS), True))(buffers)
    np.testing.assert_allclose(found[0], _expected(range(TRIPS)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], _run(buffers[1], KERNEL, RECURRENT, range(TRIPS), False), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("MAX_BATCHED_MATMUL_ROWS_CPU", BATCH - 1), ("MAX_STACKED_ELEMENTS", TRIPS * BATCH * WIDTH - 1)],
)
def test_large_products_stay(monkeypatch, limit, value):
    monkeypatch.setattr(cost_model, limit, value)
    jaxpr = jax.make_jaxpr(lambda *w: _run(*w, range(TRIPS), True))(BUFFER, KERNEL, RECURRENT).jaxpr
    assert _products(jaxpr) == [0, 2]


def _dropped(value, index):
    keep = jax.random.bernoulli(jax.random.fold_in(jax.random.key(0), index), 0.5, value.shape)
    return jnp.where(keep, value, 0)


def _chosen(value, index):
    return lax.cond(index > 2, jnp.sin, jnp.cos, value)


def _looped(value, index):
    return lax.fori_loop(0, 2, lambda _, v: jnp.sin(v), value)


@pytest.mark.full
@pytest.mark.parametrize("change", [_dropped, _chosen, _looped])
def test_keys_branches_and_loops_stay(change):
    """Draws, choices and loops would differ, or be computed for all branches."""
    start = jnp.zeros((BATCH, WIDTH), np.float32)
    buffer, indices = jnp.asarray(BUFFER), np.arange(TRIPS)

    def step(state, index):
        return state + change(buffer[index], index) @ KERNEL, None

    assert _products(jax.make_jaxpr(lambda: scan_opt.scan(step, start, indices, TRIPS))().jaxpr) == [0, 1]
    expected = sum(np.asarray(change(BUFFER[i], i)).astype(np.float64) @ KERNEL for i in range(TRIPS))
    np.testing.assert_allclose(scan_opt.scan(step, start, indices, TRIPS), expected, rtol=1e-5, atol=1e-6)


def _in_turn(state, value):
    return (state[1], state[0] + value)


def _kept_twice(state, value):
    after = jnp.tanh(state[0] + value)
    return (after, after[None])


def _result_of_another(state, value):
    after = jnp.tanh(state[0] + value)
    return (after, 2 * after + KERNEL[0, 0])


def _number(state, value):
    return (state[0] + value, jnp.float32(3) * jnp.ones_like(value))


def _of_this_iteration(state, value):
    return (state[0] + value, jnp.sin(value))


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "carried"),
    [(_in_turn, 2), (_kept_twice, 1), (_result_of_another, 1), (_number, 1), (_of_this_iteration, 2)],
)
def test_what_every_iteration_overwrites_is_made_after_the_loop(change, carried):
    """A list of the last result is not carried: one value and copy less."""
    buffer, indices = jnp.asarray(BUFFER), np.arange(TRIPS)

    def step(state, index):
        return change(state, lax.dynamic_index_in_dim(buffer, index, 0, keepdims=False)), None

    shapes = jax.eval_shape(lambda: step((buffer[0], buffer[0]), 0)[0])
    start = jax.tree.map(lambda s: jnp.full(s.shape, 0.5, s.dtype), shapes)
    jaxpr = jax.make_jaxpr(lambda *s: scan_opt.scan(step, s, indices, TRIPS))(*start).jaxpr
    assert scan_counts(the_scan(jaxpr).params)[1] == carried

    def ours(*state):
        return scan_opt.scan(step, state, indices, TRIPS)

    def plain(*state):
        return lax.scan(step, state, indices)[0]

    for derive in (lambda fn: fn, lambda fn: jax.jacrev(fn, argnums=(0, 1))):
        found, expected = (jax.tree.leaves(derive(fn)(*start)) for fn in (ours, plain))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_carried_number_stays_carried():
    """Initial value and number are both read, so it is carried."""
    buffer, indices = jnp.asarray(BUFFER), np.arange(TRIPS)

    def step(state, index):
        total, factor = state
        return (total + factor * buffer[index], np.float32(3)), None

    def ours(start, factor):
        return scan_opt.scan(step, (start, factor), indices, TRIPS)

    start, factor = jnp.ones_like(buffer[0]), jnp.float32(7)
    total, last = jax.jit(ours)(start, factor)
    np.testing.assert_allclose(total, 1 + 7 * BUFFER[0] + 3 * BUFFER[1:TRIPS].sum(0), rtol=1e-5)
    assert last == 3
    by_factor = jax.jit(jax.jacrev(lambda f: ours(start, f)[0]))(factor)
    np.testing.assert_allclose(by_factor, BUFFER[0], rtol=1e-5)


@pytest.mark.full
def test_carried_number_of_a_graph():
    """The same in TensorFlow, where a flag says whether it is the first time."""

    @tf.function
    def graph(x):
        def body(i, first, total):
            return i + 1, tf.constant(False), total * 2 + tf.where(first, x, tf.sin(x))

        return tf.while_loop(lambda i, *_: i < 4, body, (0, tf.constant(True), x))[1:]

    x = tf.constant([0.5, 2.0])
    fn = tf2jax.convert_functional(graph, tf.TensorSpec([2], tf.float32))
    for found, expected in zip(jax.jit(fn)(x.numpy()), graph(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("layer", ["SimpleRNN", "GRU", "LSTM"])
@pytest.mark.parametrize("backwards", [False, True])
def test_recurrent_layers(layer, backwards):
    """The kernel's product is made once, the recurrent one's in each step."""
    tf.keras.utils.set_random_seed(0)
    model = getattr(tf.keras.layers, layer)(WIDTH, go_backwards=backwards)
    x = RNG.normal(size=(BATCH, TRIPS, INPUTS)).astype(np.float32)
    model(x)
    jax_fn, params = tf2jax.convert(tf.function(lambda x: model(x)), tf.TensorSpec(x.shape))
    jaxpr = jax.make_jaxpr(lambda p, x: jax_fn(p, x)[0])(params, x).jaxpr
    assert _products(jaxpr) == [1, 1]
    assert scan_counts(the_scan(jaxpr).params)[1] == (2 if layer == "LSTM" else 1)  # states alone
    with tf.GradientTape() as tape:
        expected = model(x)
        loss = tf.reduce_sum(expected**2)
    np.testing.assert_allclose(jax_fn(params, x)[0], expected, rtol=1e-5, atol=1e-6)
    grads = jax.grad(lambda p: jnp.sum(jax_fn(p, x)[0] ** 2))(params)
    tf_grads = tape.gradient(loss, model.trainable_variables)
    for a, b in zip(
        sorted(map(np.linalg.norm, jax.tree.leaves(grads))), sorted(map(np.linalg.norm, tf_grads)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4)


@pytest.mark.full
def test_one_of_two_results_of_what_another_keeps_is_overwritten():
    """Half of the state is read, the other is made after the loop."""
    indices = np.arange(TRIPS)

    def step(state, index):
        half, whole, _, before = state
        one, other = lax.split(whole, (3, 3))
        return (one, jnp.tanh(whole + 0.1 * before + jnp.concatenate([half, half])), other, whole), None

    start = (jnp.zeros(3), jnp.linspace(-1, 1, 6), jnp.zeros(3), jnp.ones(6))
    jaxpr = jax.make_jaxpr(lambda *s: scan_opt.scan(step, s, indices, TRIPS))(*start).jaxpr
    assert scan_counts(the_scan(jaxpr).params)[1] == 3
    found, expected = scan_opt.scan(step, start, indices, TRIPS), lax.scan(step, start, indices)[0]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
