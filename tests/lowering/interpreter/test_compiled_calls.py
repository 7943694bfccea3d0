"""Functions with loops, called without `jax.jit`, compile with equal results."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.pipeline.converted_function import ConvertedFunction

X = np.linspace(0.5, 1, 3).astype(np.float32)
SPEC = tf.TensorSpec([None], tf.float32)
TEN = tf.constant(10, tf.int64)


@pytest.fixture
def runs(monkeypatch):
    """Count how often a program is evaluated op by op, or traced."""
    found = []
    run_once = ConvertedFunction._run_once
    monkeypatch.setattr(ConvertedFunction, "_run_once", lambda *a, **kw: found.append(1) or run_once(*a, **kw))
    return found


def loop(x, body, *, steps=3):
    return tf.while_loop(lambda i, x: i < steps, lambda i, x: (i + 1, body(x)), (0, x))[1]


@pytest.mark.full
def test_repeated_calls_of_a_loop_are_traced_once(runs):
    w, count = tf.Variable(X, name="w"), tf.Variable(0, name="count", trainable=False)

    def fn(x):
        count.assign_add(1)
        return {"y": loop(x, lambda v: v * w)}

    jax_fn, params = tf2jax.convert(tf.function(fn), SPEC)
    for call in range(4):
        results, new = jax_fn(params, X + call)
        np.testing.assert_allclose(results["y"], (X + call) * X**3, rtol=1e-5)
        assert new["w"] is params["w"] and list(new) == list(params)
        assert isinstance(new["count"], jax.Array) and new["count"] == 1
    assert len(runs) == 2
    jax_fn(params, np.ones(3, np.float32))
    assert len(runs) == 2
    gradient = jax.grad(lambda x: jax_fn(params, x)[0]["y"].sum())(X)
    np.testing.assert_allclose(gradient, X**3, rtol=1e-5)


@pytest.mark.full
def test_disable_jit_runs_each_call_op_by_op(runs):
    fn = tf2jax.convert_functional(tf.function(lambda x: loop(x, tf.sin)), SPEC)
    for _ in range(3):
        with jax.disable_jit():
            fn(X)
    assert len(runs) == 3


def test_functions_without_loops_run_op_by_op(runs):
    fn = tf2jax.convert_functional(tf.function(lambda x: x * 2.0), SPEC)
    for _ in range(3):
        fn(X)
    assert len(runs) == 3


@pytest.mark.full
def test_repeated_calls_draw_the_numbers_of_the_first():
    fn = tf2jax.convert_functional(tf.function(lambda x: loop(x, lambda v: v + tf.random.normal([3]))), SPEC)
    first, *others = [fn(X, rng=jax.random.key(call // 3)) for call in range(4)]
    for other in others[:2]:
        np.testing.assert_allclose(other, first, rtol=1e-6)
    assert not np.allclose(others[2], first)


def test_results_of_data_dependent_size_stay_eager():
    def fn(x):
        shapes = (tf.TensorShape([]), tf.TensorShape([None]))
        grow = lambda n, y: (n - 1.0, tf.concat([y, [n]], 0))  # noqa: E731
        return tf.while_loop(lambda n, y: n > 0.0, grow, (x[0], x), shapes)[1]

    jax_fn = tf2jax.convert_functional(tf.function(fn), SPEC)
    for first in (2.0, 2.0, 4.0, 1.0):
        x = np.array([first, 7], np.float32)
        np.testing.assert_array_equal(jax_fn(x), fn(tf.constant(x)))


@pytest.mark.parametrize(
    ("fn", "x", "expected"),
    [
        (lambda x: loop(x, lambda v: v + 1) * x // 10, np.int64(100_000), 1_000_030_000),
        (lambda x: loop(tf.cast(x, tf.int64), lambda v: v + 1) * 2 // 4, np.uint32(4_000_000_000), 2_000_000_001),
        (lambda x: loop(tf.cast(x, tf.float64), lambda v: v - 1.0) - 1e8, np.int32(100_000_004), 1),
        (lambda x: x * tf.shape(loop(tf.zeros([3]), tf.sin), tf.int64)[0] // 9, np.int64(2**30), 357_913_941),
        (lambda x: (x * TEN // TEN, loop(TEN, lambda v: v)), np.int64(300_000_000), 300_000_000),
    ],
    ids=["int64", "cast", "float64", "shape", "captured"],
)
def test_repeated_calls_keep_64_bits_of_known_integers(fn, x, expected):
    x = np.asarray(x)
    jax_fn = tf2jax.convert_functional(tf.function(fn), x)
    assert [jax.tree.leaves(jax_fn(x))[0].item() for _ in range(3)] == [expected] * 3


@pytest.mark.full
def test_calls_with_known_labels_and_64_bit_choices_are_compiled(runs):
    def fn(x, labels):
        best = lambda v: v + tf.cast(tf.argmax(v * tf.gather(v, labels)) + 1, tf.float32)  # noqa: E731
        return loop(x, best), tf.reverse(labels, [0]), labels > 0

    labels = np.array([1, 0, 2])
    jax_fn = tf2jax.convert_functional(tf.function(fn), SPEC, tf.TensorSpec([None], tf.int64))
    for _ in range(3):
        for result, expected in zip(jax_fn(X, labels), fn(tf.constant(X), tf.constant(labels)), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert len(runs) == 2


@pytest.mark.full
def test_loops_that_print_do_so_at_each_call(capsys, runs):
    def body(v):
        tf.print("step")
        return v + 1.0

    fn = tf2jax.convert_functional(tf.function(lambda x: loop(x, body, steps=2)), SPEC)
    for _ in range(3):
        fn(X)
    jax.effects_barrier()
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("step") == 6
    assert len(runs) == 3
