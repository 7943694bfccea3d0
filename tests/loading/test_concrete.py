"""Variables are handed over as they lie in TensorFlow's memory."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite.loading import variable_values


def _converted(value, dtype):
    variable = tf.Variable(tf.cast(value, dtype), name="w")
    _, params = tf2jax_lite.convert(tf.function(lambda x: x * variable), tf.TensorSpec([], dtype))
    return variable, params["w"]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_values_and_dtypes(dtype, shape):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1
    variable, found = _converted(value, dtype)
    expected = ml_dtypes.bfloat16 if dtype == tf.bfloat16 else dtype.as_numpy_dtype
    assert found.dtype == expected and found.shape == shape
    np.testing.assert_array_equal(np.asarray(found), variable.numpy())


def test_later_assignments_do_not_show():
    variable, found = _converted(np.ones(4), tf.float32)
    variable.assign_add(tf.ones(4))
    tf.raw_ops.ResourceScatterAdd(resource=variable.handle, indices=[0], updates=[5.0])
    variable.assign(tf.zeros(4))
    np.testing.assert_array_equal(np.asarray(found), np.ones(4))


def test_weights_are_not_copied():
    # A second copy of a large model's weights is what a conversion can least afford.
    _, found = _converted(np.ones((256, 256)), tf.float32)
    base = found
    while getattr(base, "base", None) is not None:
        base = base.base
    assert not isinstance(base, np.ndarray) or not base.flags.owndata


def test_generators_that_move_on_do_not_show():
    # This kernel writes the new state into the old one's memory, whoever else holds it.
    generator = tf.random.Generator.from_seed(3)
    _, params = tf2jax_lite.convert(tf.function(lambda: generator.normal([2])))
    before = {name: np.array(value) for name, value in params.items()}
    arguments = {"algorithm": tf.constant(1, tf.int64), "shape": [5], "counts": 10.0, "probs": 0.5}
    tf.raw_ops.StatefulRandomBinomial(resource=generator.state.handle, dtype=tf.int32, **arguments)
    for name, value in before.items():
        np.testing.assert_array_equal(np.asarray(params[name]), value)


def test_variables_of_many_types_are_read_together():
    types = (tf.float32, tf.bfloat16, tf.int64, tf.bool, tf.complex64, tf.uint8)
    variables = [tf.Variable(tf.cast([0, i], dtype), name=f"v{i}") for i, dtype in enumerate(types)]
    _, params = tf2jax_lite.convert(tf.function(lambda: [v + v if v.dtype != tf.bool else v for v in variables]))
    assert set(params) == {v.name.split(":")[0] for v in variables}
    for variable in variables:
        found = params[variable.name.split(":")[0]]
        assert found.dtype == variable.dtype.as_numpy_dtype
        np.testing.assert_array_equal(np.asarray(found), variable.numpy())


def test_variables_that_cannot_be_read_together_are_left_to_be_read_alone():
    handles = [tf.Variable([1.0, 2.0]).handle, tf.Variable([3.0]).handle]
    assert variable_values.read_values(handles, [tf.float32, tf.int32]) is None  # TensorFlow refuses the second
    first, second = variable_values.read_values(handles, [tf.float32] * 2)
    np.testing.assert_array_equal(first, [1.0, 2.0])
    np.testing.assert_array_equal(second, [3.0])


def test_critical_sections_need_no_lock():
    section, total = tf.CriticalSection(), tf.Variable(1.0)

    @tf.function(autograph=False)
    def fn(x):
        def step(value):
            def body():
                total.assign_add(value)
                return total.read_value() * 2

            return section.execute(body)

        return tf.map_fn(step, x)

    x = np.array([2.0, 3.0], np.float32)
    call, params = tf2jax_lite.convert(fn, x)
    (name,) = params
    for found, after in (call(params, x), jax.jit(call)(params, x)):
        np.testing.assert_array_equal(found, [6, 12])
        assert after[name] == 6
    np.testing.assert_array_equal(fn(x), [6, 12])
