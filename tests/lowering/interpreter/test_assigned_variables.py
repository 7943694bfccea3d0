"""Gradients of functions that read a variable after they assigned to it.

TensorFlow's are taken at the variable's handle: every read counts as one of the variable, and nothing flows through
what was assigned. The new values of variables, which TensorFlow has no gradients of, are differentiated as in JAX.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

V = np.array([0.5, -1.0, 2.0], np.float32)
X = np.array([0.3, -0.2, 1.7], np.float32)


def assigned_then_read(v, x):
    v.assign(tf.sin(x))
    return v.read_value() * 3.0


def what_assign_returns(v, x):
    return v.assign_add(tf.sin(x)) * v


def reads_between_assignments(v, x):
    a = v * x
    v.assign(a * 2.0)
    b = v * x
    v.assign_sub(b)
    return a + b * v


def in_loop(v, x):
    y = x
    for _ in tf.range(3):
        y = tf.sin(y) * v
        v.assign(y + v)
    return y * v


def in_dynamic_loop(v, x):
    (y,) = tf.while_loop(
        lambda y: tf.reduce_sum(y) < 10.0, lambda y: (y + tf.abs(v.assign_add(y)) + 1.0,), [x], maximum_iterations=4
    )
    return y * v


def in_branch(v, x):
    if tf.reduce_sum(x) > 0.0:
        v.assign(x * 2.0)
        y = v * x
    else:
        y = x * v
    return y * v


def in_called_function(v, x):
    @tf.function
    def inner(x):
        v.assign(x + v)
        return v * x

    return inner(x) + inner(x * 2.0) * v


def gathered_after_scatter(v, x):
    v.scatter_update(tf.IndexedSlices(x[:2], [0, 1]))
    v.scatter_nd_update([[2]], x[2:])
    return tf.gather(v, [0, 2, 1]) * tf.gather_nd(v, [[0], [1], [1]])


def slice_assigned(v, x):
    v[1:].assign(x[:2])
    return v * v


def gradient_in_the_graph(v, x):
    with tf.GradientTape() as tape:
        v.assign(v * x)
        y = tf.reduce_sum(v * v * x)
    return tape.gradient(y, v)


def in_custom_gradient(v, x):
    @tf.custom_gradient
    def f(x):
        v.assign(x * 2.0)
        return x * v, lambda dy, variables=None: (dy * v, [dy * 7.0 * x])

    v.assign(x)
    return f(x) * v


def recomputed(v, x):
    v.assign(x * v)
    return tf.recompute_grad(lambda z: tf.sin(z * v))(x) * v


CASES = [
    assigned_then_read, what_assign_returns, reads_between_assignments, in_loop, in_dynamic_loop, in_branch,
    in_called_function, gathered_after_scatter, slice_assigned, gradient_in_the_graph, in_custom_gradient, recomputed,
]  # fmt: skip


@pytest.fixture
def variable():
    return tf.Variable(V, name="v")


def converted(fn, variable):
    with tf2jax.override_config("loop_bound", "scan"):
        return tf2jax.convert(tf.function(lambda x: fn(variable, x)), tf.TensorSpec([3]))


def taken(fn, variable):
    """Return result, gradients, and the variable's new value."""
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.function(fn)(variable, x)
    by = tape.gradient(y, [x, variable], unconnected_gradients="zero")
    after = variable.numpy()
    variable.assign(V)
    return y.numpy(), [tf.convert_to_tensor(g).numpy() for g in by], after


@pytest.mark.full
@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_gradients_are_those_of_the_tape(fn, variable):
    expected, by, after = taken(fn, variable)
    jax_fn, params = converted(fn, variable)

    def loss(x, params):
        y, params = jax_fn(params, x)
        return y.sum(), (y, params["v"])

    for take in (jax.grad, lambda *args, **kwargs: jax.jit(jax.grad(*args, **kwargs))):
        (by_x, by_params), (y, new) = take(loss, (0, 1), has_aux=True)(X, params)
        for found, wanted in ((y, expected), (new, after), (by_x, by[0]), (by_params["v"], by[1])):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def moving_average(v, x):
    v.assign(0.9 * v + 0.1 * x)
    v.assign_sub(v * x)
    return v.read_value()


@pytest.mark.full
@pytest.mark.parametrize(
    "fn", [moving_average, in_loop, in_branch, reads_between_assignments], ids=lambda f: f.__name__
)
def test_new_values_depend_on_what_was_assigned(fn, variable):
    """As any value in JAX, against finite differences."""
    jax_fn, _ = converted(fn, variable)

    def total(x, v):
        return (jax_fn({"v": v}, x)[1]["v"] * np.float32([1, 2, 3])).sum()

    by = jax.jit(jax.grad(total, (0, 1)))(X, V)
    for position, found in enumerate(by):
        for i in range(3):
            step = np.zeros(3, np.float32)
            step[i] = 1e-2
            ends = [total(*((X, V + s) if position else (X + s, V))) for s in (step, -step)]
            np.testing.assert_allclose(found[i], (ends[0] - ends[1]) / 2e-2, rtol=2e-2, atol=5e-3)


@pytest.mark.full
def test_both_at_once(variable):
    """A loss of results and of new values: each part keeps its own derivative."""
    jax_fn, params = converted(moving_average, variable)

    def loss(x, params):
        y, params = jax_fn(params, x)
        return y.sum(), params["v"].sum()

    (y_by_x, y_by_v), (new_by_x, new_by_v) = jax.jit(jax.jacrev(loss, (0, 1)))(X, params)
    np.testing.assert_array_equal(y_by_x, np.zeros(3))
    np.testing.assert_array_equal(y_by_v["v"], np.ones(3))
    # v2 = (0.9 v + 0.1 x) (1 - x)
    np.testing.assert_allclose(new_by_x, 0.1 * (1 - X) - (0.9 * V + 0.1 * X), rtol=1e-5)
    np.testing.assert_allclose(new_by_v["v"], 0.9 * (1 - X), rtol=1e-5)


@pytest.mark.full
def test_forward_mode_vmap_and_second_derivatives(variable):
    jax_fn, _ = converted(assigned_then_read, variable)
    squared, _ = converted(lambda v, x: assigned_then_read(v, x) * v * x, variable)

    _, tangent = jax.jvp(lambda x, v: jax_fn({"v": v}, x)[0], (X, V), (np.ones_like(X), 2 * np.ones_like(V)))
    np.testing.assert_array_equal(tangent, np.full(3, 6.0))
    by_v = jax.vmap(jax.grad(lambda v, x: jax_fn({"v": v}, x)[0].sum()), (None, 0))(V, np.stack([X, 2 * X]))
    np.testing.assert_array_equal(by_v, np.full((2, 3), 3.0))
    # y = 3 v v x with every read v: the second derivative with respect to v is 6 x, for any assigned value.
    hessian = jax.jacfwd(jax.grad(lambda v: squared({"v": v}, X)[0].sum()))(V)
    np.testing.assert_allclose(hessian, np.diag(6 * X), rtol=1e-5)


@pytest.mark.full
def test_what_is_assigned_need_not_have_a_derivative(variable):
    """A zero that went through it as a number would become NaN."""
    jax_fn, params = converted(lambda v, x: v.assign(tf.sqrt(x * 0.0)) * x, variable)
    by_x, by_params = jax.grad(lambda x, p: jax_fn(p, x)[0].sum(), (0, 1))(X, params)
    np.testing.assert_array_equal(by_x, np.zeros(3))
    np.testing.assert_array_equal(by_params["v"], X)


@pytest.mark.full
def test_nothing_changes_where_no_variable_is_read_late(variable):
    """It covers reads before an assignment (batch norm), and integer counters."""
    step = tf.Variable(0, name="step")

    def fn(v, x):
        y = x * v
        v.assign(0.9 * v + 0.1 * y)
        return y * tf.cast(step.assign_add(1), tf.float32)

    jax_fn, params = converted(fn, variable)
    assert "custom_jvp" not in str(jax.make_jaxpr(jax_fn)(params, X))


@pytest.mark.full
def test_printing_and_random_numbers_happen_once(variable, capfd):
    def fn(v, x):
        v.assign(x + tf.random.uniform([3]))
        tf.print("seen", x[0])
        return v * x

    jax_fn, params = converted(fn, variable)

    def loss(params, x):
        y, new = jax_fn(params, x, rng=jax.random.key(0))
        return y.sum() + new["v"].sum(), (y, new["v"])

    grads, (y, new) = jax.jit(jax.grad(loss, has_aux=True))(params, X)
    jax.effects_barrier()
    assert capfd.readouterr().err.count("seen") == 1
    np.testing.assert_allclose(y, new * X, rtol=1e-6)
    np.testing.assert_allclose(grads["v"], X, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("fn", [reads_between_assignments, in_loop], ids=lambda f: f.__name__)
def test_artifacts_have_the_same_gradients(fn, variable, tmp_path):
    expected, by, after = taken(fn, variable)
    tf2jax.export_functions({"f": converted(fn, variable)}, tmp_path / "out", platforms=["cpu"])
    for backend in ("stablehlo", "source"):
        loaded, params = tf2jax.load(tmp_path / "out", backend=backend)
        y, new = loaded(params, X)
        np.testing.assert_allclose(y, expected, rtol=1e-5)
        np.testing.assert_allclose(new["v"], after, rtol=1e-5)
        by_x, by_params = jax.jit(jax.grad(lambda x, p, f=loaded: f(p, x)[0].sum(), (0, 1)))(jnp.asarray(X), params)
        np.testing.assert_allclose(by_x, by[0], rtol=1e-4, atol=1e-6, err_msg=backend)
        np.testing.assert_allclose(by_params["v"], by[1], rtol=1e-4, atol=1e-6, err_msg=backend)


@pytest.mark.full
def test_counters_that_are_read_twice_are_one_number(variable):
    """A slice between two reads has a known size, in derivatives, too."""
    memory, count = tf.Variable(tf.zeros([4, 3]), trainable=False), tf.Variable(1, trainable=False)

    def fn(v, x):
        count.assign_add(1)
        memory[count - 1 : count].assign((v * x)[None])
        return tf.reduce_sum(memory, 0) * x

    jax_fn, params = converted(fn, variable)
    gradient = jax.jit(jax.grad(lambda x: jax_fn(params, x)[0].sum()))(X)
    np.testing.assert_allclose(gradient, V * X, rtol=1e-6)  # nothing flows through what is assigned
