"""Branches, loops and calls with variables and lists, against TensorFlow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3)
SPEC = tf.TensorSpec([2, 3])
INT = tf.TensorSpec([], tf.int32)


def check(fn, *args, grad=True):
    """Compare eager, jitted and gradients."""
    fn = tf.function(fn)
    specs = [tf.TensorSpec(np.shape(a), np.asarray(a).dtype) for a in args]
    jax_fn = tf2jax.convert_functional(fn, *specs)
    expected = tf.nest.flatten(fn(*map(tf.constant, args)))
    for function in (jax_fn, jax.jit(jax_fn)):
        for e, a in zip(expected, jax.tree.leaves(function(*args)), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)
            assert np.asarray(a).dtype == e.numpy().dtype
    if grad:
        x = tf.constant(args[0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = sum(
                tf.reduce_sum(tf.cast(o, tf.float32)) for o in tf.nest.flatten(fn(x, *map(tf.constant, args[1:])))
            )
        actual = jax.grad(lambda x: sum(jnp.sum(o.astype(jnp.float32)) for o in jax.tree.leaves(jax_fn(x, *args[1:]))))(
            args[0]
        )
        np.testing.assert_allclose(actual, tape.gradient(loss, x), rtol=1e-4, atol=1e-5)
    return jax_fn


@pytest.mark.full
@pytest.mark.parametrize("flag", [True, False])
def test_if(flag):
    def fn(x, flag):
        if flag:
            return tf.sin(x), tf.constant(1)
        return x * 2.0, tf.constant(2)

    check(fn, X, np.array(flag))


@pytest.mark.full
def test_if_on_data_under_vmap():
    fn = tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: -x))
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([3]))
    actual = jax.vmap(jax_fn)(X)
    for row, a in zip(X, actual, strict=True):
        np.testing.assert_allclose(a, fn(row), rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("index", [-1, 0, 1, 2, 7])
def test_case(index):
    def fn(x, i):
        return tf.switch_case(i, [lambda: x + 1.0, lambda: x * 3.0, lambda: tf.tanh(x)])

    check(fn, X, np.int32(index))


@pytest.mark.full
def test_static_predicate_picks_its_branch():
    def fn(x):
        if tf.shape(x)[0] > 1:
            return tf.sin(x)
        return tf.cos(x)

    jax_fn = check(fn, X)
    text = str(jax.make_jaxpr(jax_fn)(X))
    assert "cond" not in text and "cos" not in text


@pytest.mark.full
@pytest.mark.parametrize("trips", [0, 1, 5])
def test_counted_loop_is_a_scan(trips):
    def fn(x):
        for i in tf.range(trips):
            x = tf.tanh(x) + tf.cast(i, tf.float32)
        return x, tf.constant(trips)

    jax_fn = check(fn, X)
    assert "while" not in str(jax.make_jaxpr(jax_fn)(X))


@pytest.mark.full
def test_unbounded_loop():
    def fn(x):
        n = 0
        while tf.reduce_sum(x) < 100.0:
            x = x + 1.5
            n += 1
        return x, n

    check(fn, X, grad=False)


@pytest.mark.full
def test_loop_with_traced_limit():
    def fn(x, n):
        i = 0
        while i < n:
            x = x * 1.1
            i += 1
        return x

    check(fn, X, np.int32(4), grad=False)


@pytest.mark.full
def test_nested_loops_and_branches():
    def fn(x):
        for i in tf.range(3):
            for j in tf.range(i + 1):
                if tf.reduce_sum(x) > 0.5:
                    x = x - 0.1 * tf.cast(j, tf.float32)
                else:
                    x = x + 0.3
        return x

    check(fn, X)


@pytest.mark.full
def test_break_and_continue():
    def fn(x):
        total = tf.zeros_like(x)
        for i in tf.range(10):
            if i % 2 == 0:
                continue
            if i > 6:
                break
            total += x * tf.cast(i, tf.float32)
        return total

    check(fn, X)


@pytest.mark.full
def test_tensor_array_in_a_loop():
    def fn(x):
        out = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        fixed = tf.TensorArray(tf.float32, 4)
        for i in tf.range(4):
            out = out.write(i, x * tf.cast(i, tf.float32))
            fixed = fixed.write(3 - i, tf.reduce_sum(x) + tf.cast(i, tf.float32))
        return out.stack(), fixed.stack(), out.read(2), out.size()

    check(fn, X)


@pytest.mark.full
def test_map_fn_scan_and_foldl():
    def fn(x):
        mapped = tf.map_fn(lambda row: tf.reduce_sum(row * row), x)
        scanned = tf.scan(lambda a, b: a * 0.5 + b, x)
        folded = tf.foldl(lambda a, b: a + tf.sin(b), x)
        return mapped, scanned, folded

    check(fn, X)


@pytest.mark.full
def test_variables_in_branches_and_loops():
    v = tf.Variable(1.0, name="v")
    n = tf.Variable(0, name="n", trainable=False)

    @tf.function
    def inner(x):
        n.assign_add(1)
        return x * v

    @tf.function
    def fn(x, limit):
        if tf.reduce_sum(x) > 0:
            v.assign(v * 3.0)
        else:
            n.assign(10)
        i = 0
        while i < limit:
            x = inner(x)
            v.assign_add(0.5)
            i += 1
        for _ in tf.range(2):
            x = inner(x)
        return x

    for sign in (1.0, -1.0):
        v.assign(1.0)
        n.assign(0)
        jax_fn, params = tf2jax.convert(fn, SPEC, INT)
        x = X + sign
        actual, updated = jax.jit(jax_fn)(params, x, np.int32(3))
        np.testing.assert_allclose(actual, fn(x, np.int32(3)), rtol=1e-5)
        np.testing.assert_allclose(updated["v"], v.numpy())
        assert updated["n"] == n.numpy()


@pytest.mark.full
def test_gradient_through_variables_in_a_loop():
    v = tf.Variable(0.7, name="v")

    @tf.function
    def fn(x):
        for _ in tf.range(4):
            x = tf.sin(x * v)
        return tf.reduce_sum(x)

    jax_fn, params = tf2jax.convert(fn, SPEC)
    x = X + 1.0
    with tf.GradientTape() as tape:
        loss = fn(x)
    actual = jax.grad(lambda p: jax_fn(p, x)[0])(params)
    np.testing.assert_allclose(actual["v"], tape.gradient(loss, v), rtol=1e-4)


@pytest.mark.full
def test_random_numbers_differ_between_iterations():
    def fn():
        out = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            out = out.write(i, tf.random.uniform([]))
        return out.stack()

    values = np.asarray(tf2jax.convert_functional(fn)(rng=jax.random.key(0)))
    assert len(set(values.tolist())) == 3


@pytest.mark.full
def test_gradient_tape_inside():
    def fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = tf.sin(y) * x
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    check(fn, X, grad=False)


@pytest.mark.full
def test_growing_shapes_are_unrolled():
    def fn(x):
        i = tf.constant(0)
        _, x = tf.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, tf.concat([x, x[:1]], 0)),
            [i, x],
            shape_invariants=[i.shape, tf.TensorShape([None, 3])],
        )
        return x

    check(fn, X)


@pytest.mark.full
def test_recursion_is_refused():
    """A function library may hold a circle although tf.function cannot make one."""
    from tf2jax_lite import ir
    from tf2jax_lite.errors import InvalidModelError
    from tf2jax_lite.lowering import Program
    from tf2jax_lite.support.config import Config

    call = ir.Node(
        "call", "PartitionedCall", (), (0,), (), {"f": ir.FunctionRef("f")}, output_dtypes=(np.dtype(np.float32),)
    )
    f = ir.Function("f", (), (call,), (ir.TensorRef("call"),))
    main = ir.Function("main", (), (call,), (ir.TensorRef("call"),))
    with pytest.raises(InvalidModelError, match="calls itself"):
        Program(ir.Graph(main, {"f": f}), Config())
