"""Threads and tasks at once: results as alone, options of their own."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.ops import registry

THREADS = 16
X = np.linspace(-1, 1.5, 12, dtype=np.float32).reshape(4, 3)
OPTION = "strict_shape_check"


def make(seed):
    """Return a function with variables, a call, a branch, a loop, by seed."""
    rng = np.random.default_rng(seed)
    weights = tf.Variable(rng.normal(size=(3, 3)).astype(np.float32) / 3, name=f"weights_{seed}")

    @tf.function(autograph=False)
    def inner(x):
        return tf.tanh(x @ weights) + seed

    @tf.function(autograph=False)
    def model(x):
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: inner(-x))
        _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5 + inner(y)), (tf.constant(0), y))
        return {"y": y, "seed": tf.constant(seed)}

    return model


def at_once(work, count=THREADS):
    """Run ``work(i)`` in threads that start together; return the results."""
    barrier = threading.Barrier(count)

    def go(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(go, range(count)))


def check(result, model):
    expected = model(X)
    assert int(result["seed"]) == int(expected["seed"])
    np.testing.assert_allclose(result["y"], expected["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_different_functions_are_converted_and_run_at_once():
    models = [make(seed) for seed in range(THREADS)]

    def work(i):
        jax_fn, params = tf2jax.convert(models[i], tf.TensorSpec([None, 3]))
        return jax.jit(jax_fn)(params, X)[0], jax_fn(params, X)[0]

    for model, results in zip(models, at_once(work), strict=True):
        for result in results:
            check(result, model)


@pytest.mark.full
def test_one_function_is_converted_at_once():
    model = make(7)

    def work(_):
        jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
        return jax_fn(params, X)[0]

    for result in at_once(work):
        check(result, model)


@pytest.mark.full
def test_one_converted_function_runs_at_once():
    model = make(3)
    jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    jitted = jax.jit(jax_fn)
    # Its plans are made when it first runs: by all of them at once.
    for result in at_once(lambda i: (jitted if i % 2 else jax_fn)(params, X)[0]):
        check(result, model)


@pytest.mark.full
def test_updates_do_not_meet():
    counter = tf.Variable(0.0, name="counter")
    jax_fn, params = tf2jax.convert(tf.function(lambda x: counter.assign_add(x)), tf.TensorSpec([]))
    for i, (result, updated) in enumerate(at_once(lambda i: jax_fn(params, np.float32(i)))):
        assert float(result) == float(updated["counter"]) == i
    assert float(params["counter"]) == 0


def test_options_do_not_leak_between_threads():
    def work(i):
        with tf2jax.override_config(OPTION, i % 2 == 0):
            seen = []
            for _ in range(50):
                seen.append(tf2jax.get_config(OPTION))
                if i < 4:
                    with tf2jax.override_config(OPTION, i % 2 == 1):
                        seen.append(not tf2jax.get_config(OPTION))
            return set(seen) == {i % 2 == 0}

    assert all(at_once(work))
    assert tf2jax.get_config(OPTION) is True


@pytest.mark.full
def test_ops_do_not_leak_between_threads():
    square = tf.function(lambda x: tf.square(x))

    def work(i):
        with tf2jax.override_op("Square", lambda x: x + i):
            jax_fn = tf2jax.convert_functional(square, tf.TensorSpec([]))
        return float(jax_fn(np.float32(1)))

    assert at_once(work) == [1.0 + i for i in range(THREADS)]


def test_a_thread_starts_with_the_defaults():
    with tf2jax.override_config(OPTION, False):
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tf2jax.get_config(OPTION)))
        thread.start()
        thread.join()
        inherited = contextvars.copy_context().run(tf2jax.get_config, OPTION)
    assert seen == [True] and inherited is False


def test_an_exception_takes_its_options_with_it():
    with pytest.raises(ZeroDivisionError), tf2jax.override_config(OPTION, False):
        raise ZeroDivisionError
    assert tf2jax.get_config(OPTION) is True
    with pytest.raises(tf2jax.Tf2JaxError), tf2jax.override_config(OPTION, False):
        tf2jax.convert(tf.function(lambda x: tf.raw_ops.PyFunc(input=[x], token="t", Tout=[tf.float32])), X)
    assert tf2jax.get_config(OPTION) is True


def test_tasks_keep_their_options():
    async def one(value):
        with tf2jax.override_config("dynamic_shape_bound", value):
            for _ in range(5):
                await asyncio.sleep(0)
                assert tf2jax.get_config("dynamic_shape_bound") == value
        return tf2jax.get_config("dynamic_shape_bound")

    async def all_of_them():
        return await asyncio.gather(*map(one, range(1, 9)))

    assert asyncio.run(all_of_them()) == [0] * 8


def options_on_the_way():
    with tf2jax.override_config(OPTION, False):
        yield tf2jax.get_config(OPTION)
        yield tf2jax.get_config(OPTION)


def test_generators_that_end_in_any_order_leave_nothing():
    one, two = options_on_the_way(), options_on_the_way()
    next(one), next(two)
    one.close()
    two.close()
    assert tf2jax.get_config(OPTION) is True


def test_a_generator_that_ends_in_another_thread_leaves_nothing():
    generator = options_on_the_way()
    next(generator)
    thread = threading.Thread(target=generator.close)
    thread.start()
    thread.join()
    assert tf2jax.get_config(OPTION) is True


@pytest.mark.full
def test_ops_in_generators_leave_nothing():
    def overridden(fn):
        with tf2jax.override_op("Square", fn):
            yield

    one, two = overridden(lambda x: x), overridden(lambda x: 2 * x)
    next(one), next(two)
    one.close()
    assert registry.lookup("Square").fn(1) == 2
    two.close()
    assert registry.lookup("Square") is registry.known_ops()["Square"]
    assert (
        registry.lookup("Square").source.endswith(tuple("0123456789"))
        and "test_" not in registry.lookup("Square").source
    )


@pytest.mark.full
def test_a_task_keeps_what_it_started_with():
    async def later():
        await asyncio.sleep(0)
        return tf2jax.get_config(OPTION)

    async def start():
        with tf2jax.override_config(OPTION, False):
            task = asyncio.create_task(later())
        return await task, tf2jax.get_config(OPTION)

    assert asyncio.run(start()) == (False, True)
