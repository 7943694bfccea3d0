"""Conditions that assign, draw or print have all tests' effects."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.float32([2.0, 3.0])


def _compare(fn, *args, variables):
    """Compare results and variables' new values, with and without ``jit``."""
    before = [tf.identity(v) for v in variables]
    expected = tf.nest.flatten(fn(*args))
    after = [v.numpy() for v in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    call, params = tf2jax.convert(fn, *args)
    for run in (call, jax.jit(call)):
        found, new = run(params, *(arg.numpy() for arg in args))
        for a, e in zip(jax.tree.leaves(found), expected, strict=True):
            np.testing.assert_allclose(a, e.numpy(), rtol=1e-6)
        for value in after:
            assert any(np.shape(v) == np.shape(value) and np.allclose(v, value) for v in new.values())
    return call, params


@pytest.mark.default_cases("by data")
@pytest.mark.parametrize("known", [True, False], ids=["counted", "by data"])
def test_assignments(known):
    """Also where iterations are counted, and the condition is not computed at all."""
    seen = tf.Variable(0)

    def test(i, n):
        seen.assign(seen * 10 + i)
        return i < n

    @tf.function(autograph=False)
    def fn(n):
        n = tf.constant(5) if known else n
        i, _ = tf.while_loop(test, lambda i, n: (i + 1, n), (tf.constant(1), n))
        return i, seen.read_value()

    _compare(fn, tf.constant(5), variables=[seen])
    _compare(fn, tf.constant(0), variables=[seen])  # no iteration by data, one test


@pytest.mark.full
def test_results_after_the_loop_and_loops_in_loops():
    outer, inner = tf.Variable(0.0), tf.Variable(0)

    def test_inner(j, y):
        inner.assign_add(j)
        return j < 3

    def body(i, y):
        _, y = tf.while_loop(test_inner, lambda j, y: (j + 1, y + 0.5), (tf.constant(0), y))
        return i + 1, y * 2.0

    def test_outer(i, y):
        outer.assign_add(tf.reduce_sum(y))
        return tf.reduce_sum(y) < 100.0

    @tf.function(autograph=False)
    def fn(x):
        i, y = tf.while_loop(test_outer, body, (tf.constant(0), x))
        return {"y": y + outer, "i": i * inner}

    call, params = _compare(fn, tf.constant(X), variables=[outer, inner])
    rows = np.stack([X, X * 20, -X * 0.1 + 1])
    found, new = jax.vmap(lambda x: call(params, x))(rows)
    for number, row in enumerate(rows):
        one, state = call(params, row)
        np.testing.assert_allclose(found["y"][number], one["y"], rtol=1e-6)
        np.testing.assert_array_equal(new["Variable"][number], state["Variable"])


@pytest.mark.full
def test_the_limit_of_iterations_bounds_the_loop():
    """`tf.while_loop`'s addition is pure: an array may grow up to the limit."""
    seen = tf.Variable(0.0)

    def test(i, array):
        seen.assign_add(1.0)
        return tf.logical_and(seen < 4.0, i < 7)

    @tf.function(autograph=False)
    def fn(x):
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        i, array = tf.while_loop(
            test, lambda i, a: (i + 1, a.write(i, x * seen)), (tf.constant(0), array), maximum_iterations=5
        )
        return array.read(0) + array.read(i - 1), i

    _compare(fn, tf.constant(X), variables=[seen])


@pytest.mark.full
def test_gradients():
    total = tf.Variable(0.0)

    def test(i, y):
        total.assign_add(tf.reduce_sum(y))
        return i < 3

    @tf.function(autograph=False)
    def fn(x):
        return tf.while_loop(test, lambda i, y: (i + 1, y * x), (tf.constant(0), x))[1]

    call, params = _compare(fn, tf.constant(X), variables=[total])
    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        y = fn(x)
    found = jax.jit(jax.grad(lambda x: call(params, x)[0].sum()))(X)
    np.testing.assert_allclose(found, tape.gradient(y, x), rtol=1e-6)
    assert "scan" in str(jax.make_jaxpr(call)(params, X))  # its iterations are still counted


@pytest.mark.full
def test_numbers_drawn_until_one_is_large():
    """Each test draws another number: a generator's state is a variable."""
    generator = tf.random.Generator.from_seed(7)

    @tf.function(autograph=False)
    def fn():
        (n,) = tf.while_loop(lambda n: generator.uniform([]) < 0.9, lambda n: (n + 1,), (tf.constant(0),))
        return n, generator.uniform([2])

    start = tf.identity(generator.state)
    n, rest = fn()
    generator.state.assign(start)
    assert n > 1
    call, params = tf2jax.convert(fn)
    for run in (call, jax.jit(call)):
        found = run(params)[0]
        assert found[0] == n
        np.testing.assert_array_equal(found[1], rest)


@pytest.mark.full
def test_tensorflow_1():
    with tf.Graph().as_default() as graph:
        tf.compat.v1.disable_control_flow_v2()
        try:
            seen = tf.compat.v1.get_variable("seen", [], tf.int32, tf.zeros_initializer(), use_resource=True)

            def test(i):
                with tf.control_dependencies([seen.assign_add(i)]):
                    return tf.identity(i) < 4

            i = tf.compat.v1.while_loop(test, lambda i: i + 1, [tf.constant(0)])
            with tf.control_dependencies([i]):
                after = seen.read_value()
        finally:
            tf.compat.v1.enable_control_flow_v2()
    assert "Merge" in {node.op for node in graph.as_graph_def().node}
    call, _ = tf2jax.convert_graph_def(graph.as_graph_def(), [], [i.name, after.name])
    params = {"seen": np.int32(0)}
    for run in (call, jax.jit(call)):
        assert [int(v) for v in run(params)[0]] == [4, 10]


@pytest.mark.full
def test_prints(capfd):
    @tf.function(autograph=False)
    def fn(n):
        def test(i):
            tf.print("at", i)
            return i < n

        return tf.while_loop(test, lambda i: i + 1, [tf.constant(0)])

    call = tf2jax.convert_functional(fn, tf.constant(2))
    jax.block_until_ready(jax.jit(call)(np.int32(2)))
    jax.effects_barrier()
    found = capfd.readouterr()
    lines = [line for line in (found.out + found.err).splitlines() if line.startswith("at")]
    assert lines == ["at 0", "at 1", "at 2"]
