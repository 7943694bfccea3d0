"""Functions of artifacts in batches: dimensions, examples, inputs, results."""

import asyncio
import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError
from tf2jax_lite.serving.batching import Batcher, OverloadedError
from tf2jax_lite.serving.function import ServedFunction


def exported(tmp_path, function, *specs):
    tf2jax.export_functions({"f": tf2jax.convert(tf.function(function), *specs)}, tmp_path / "f", platforms=["cpu"])
    return tmp_path / "f"


def served(folder, **options):
    function = ServedFunction(folder, None, **{"batch_sizes": (1, 2, 4), "dimensions": {}, **options})
    function.compile()
    return function


def spec(*shape, name="x", dtype=tf.float32):
    return tf.TensorSpec(shape, dtype, name)


def test_other_dimensions_have_given_sizes(tmp_path):
    folder = exported(tmp_path, lambda x: tf.reduce_sum(x, 1), spec(None, None))
    with pytest.raises(InputError, match=r"Give the sizes of d1 that requests may have: dimensions=d1=128"):
        served(folder)
    function = served(folder, dimensions={"d1": [3, 5]})
    requests = [function.check({"x": np.full((n, 5), 2.0)}, str) for n in (1, 2)]
    for found, n in zip(function.run(requests), (1, 2), strict=True):
        np.testing.assert_array_equal(found["output_0"], np.full(n, 10.0))
    assert function.check({"x": np.ones((1, 3))}, str).group == (3,)
    with pytest.raises(InputError, match=r"x has the shape \[1, 4\].*takes \[1, 3\] or \[1, 5\]"):
        function.check({"x": np.ones((1, 4))}, str)


def test_examples_that_act_on_each_other_run_alone(tmp_path):
    function = served(exported(tmp_path, lambda x: x - tf.reduce_mean(x, 0), spec(None, 2)))
    assert not function.joins
    request = function.check({"x": np.float32([[1, 2], [3, 4]])}, str)
    np.testing.assert_array_equal(function.run([request])[0]["output_0"], [[-1, -1], [1, 1]])
    with pytest.raises(InputError, match=r"x has 3 examples\. Examples of this model act on each other"):
        function.check({"x": np.ones((3, 2))}, str)


def test_fixed_shapes_and_several_results(tmp_path):
    def call(x, y):
        return {"sum": x + tf.cast(y, tf.float32), "version": tf.constant(3), "half": tf.cast(x, tf.bfloat16)}

    function = served(exported(tmp_path, call, spec(2), spec(2, name="y", dtype=tf.int32)))
    request = function.check({"x": np.ones(2), "y": np.arange(2)}, str)
    assert request.count is None
    found = function.run([request])[0]
    np.testing.assert_array_equal(found["sum"], [1, 2])
    assert found["version"] == 3 and found["half"].dtype.name == "bfloat16"
    for arrays, says in (
        ({"x": np.ones(2)}, "the input 'y' is missing"),
        ({"x": np.ones(2), "y": np.ones(2)}, "'y' is float64; the function takes int32"),
        ({"x": np.ones(2), "y": np.arange(2), "z": 1}, "z is no input"),
    ):
        with pytest.raises(InputError, match=says):
            function.check(arrays, str)


def test_numbers_of_examples_agree(tmp_path):
    folder = exported(tmp_path, lambda x, y: x + y, spec(None), spec(None, name="y"))
    function = served(folder, dimensions={"d1": [2]}) if "d1" in str((folder / "metadata.json").read_text()) else None
    if function is None:  # one dimension for both
        function = served(folder)
    with pytest.raises(InputError, match="has the shape"):
        function.check({"x": np.ones(2), "y": np.ones(3)}, str)


def test_random_numbers_differ_from_request_to_request(tmp_path):
    folder = exported(tmp_path, lambda x: x + tf.random.uniform(tf.shape(x)), spec(None))
    function = served(folder, seed=3)
    request = function.check({"x": np.zeros(1)}, str)
    first, second = (function.run([request])[0]["output_0"] for _ in range(2))
    assert first != second


def test_programs_are_kept_for_the_next_start(tmp_path, monkeypatch):
    from tf2jax_lite.export import program_cache

    monkeypatch.setenv("TF2JAX_LITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = exported(tmp_path, lambda x: x * 2, spec(None, 2))
    served(folder)
    assert len(list((tmp_path / "cache" / "programs").glob("*.program"))) == 3
    monkeypatch.setattr(program_cache, "write_program", None)
    request = (function := served(folder)).check({"x": np.ones((3, 2))}, str)
    np.testing.assert_array_equal(function.run([request])[0]["output_0"], np.full((3, 2), 2))


def test_batches_join_requests_up_to_the_largest(tmp_path):
    """Requests keep their order and results; too many at once are refused."""
    function = served(exported(tmp_path, lambda x: x * 2, spec(None, 2)))
    sizes = []

    async def ask():
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            batcher = Batcher(function, wait_seconds=0.05, max_waiting=8, executor=pool, observe=sizes.append)
            requests = [function.check({"x": np.full((n, 2), n)}, str) for n in (1, 2, 3, 1, 6)]
            found = await asyncio.gather(*map(batcher, requests))
            with pytest.raises(OverloadedError):
                await batcher(function.check({"x": np.ones((36, 2))}, str))
            batcher.close()
        return found

    for found, n in zip(asyncio.run(ask()), (1, 2, 3, 1, 6), strict=True):
        np.testing.assert_array_equal(found["output_0"], np.full((n, 2), 2.0 * n))
    assert sizes == [3, 4, 4, 2]
