"""Plan rewrites change the trace, not values, and can be switched off."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.lowering.planning import rewrites
from tf2jax_lite.support.errors import ConfigError

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(2, 8, 8, 3)).astype(np.float32)
KERNELS = RNG.normal(size=(2, 3, 3, 3, 3)).astype(np.float32)


def _materialize(x):
    shared = tf.nn.relu(x)
    return sum(tf.nn.conv2d(shared, kernel, 1, "SAME") for kernel in KERNELS)


FUNCTIONS = {
    "materialize": _materialize,
    "transpose_sinking": lambda x: tf.nn.softmax(x, axis=1),
    "dilated_conv": lambda x: tf.nn.convolution(x, KERNELS[0], padding="SAME", dilations=2),
}


def _converted(function, value):
    with tf2jax.override_config("passes", value):
        graph = tf.function(function, autograph=False)
        return tf2jax.convert_functional(graph, tf.TensorSpec(IMAGES.shape, tf.float32))


@pytest.mark.full
@pytest.mark.parametrize("name", rewrites.NAMES)
def test_each_rewrite_can_be_switched_off(name):
    function = FUNCTIONS[name]
    on, off = (_converted(function, value) for value in (name, f"-{name}"))
    assert str(jax.make_jaxpr(on)(IMAGES)) != str(jax.make_jaxpr(off)(IMAGES))
    expected = function(tf.constant(IMAGES))
    for fn in (on, off):
        np.testing.assert_allclose(fn(IMAGES), expected, rtol=1e-5, atol=1e-5)


def test_each_rewrite_has_a_reason_for_its_position():
    assert set(FUNCTIONS) == set(rewrites.NAMES)
    assert all(r.reason.endswith(".") for r in rewrites.REWRITES)


@pytest.mark.full
def test_unknown_rewrite_is_an_error():
    with pytest.raises(ConfigError, match="passes"):
        _converted(FUNCTIONS["transpose_sinking"], "fusion")
