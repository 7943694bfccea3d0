"""The float64 reference separates wrong formulas from round-off."""

from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import UnsupportedError
from tf2jax_lite.verification.roundoff_verdict import in_float64, round_off

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(64, 64)).astype(np.float32)


def converted(function, *specs):
    jax_fn, params = tf2jax.convert(function, *specs)
    return jax_fn.converted, params


def network(x):
    weights = tf.constant(WEIGHTS)
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y @ weights)), (tf.constant(0), x))
    y = tf.cond(tf.reduce_sum(y) > 1e9, lambda: y, lambda: y * tf.cast(tf.shape(y)[0], tf.float32))
    return tf.nn.softmax(tf.cast(tf.cast(y, tf.float16), tf.float32) + 0.1)


@pytest.mark.full
def test_float64_is_float64():
    """An independent evaluation in numpy."""
    x = RNG.normal(size=(5, 64)).astype(np.float32)
    y = x.astype(np.float64)
    for _ in range(3):
        y = np.tanh(y @ WEIGHTS.astype(np.float64))
    z = np.exp(y * 5 + np.float64(np.float32(0.1)))
    (actual,) = in_float64(*converted(network, tf.TensorSpec([None, 64])), [x])
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, z / z.sum(-1, keepdims=True), rtol=1e-12)


def test_variables_are_widened():
    scale = tf.Variable([0.1, 0.2], name="scale")
    fn, params = converted(tf.function(lambda x: x / scale), tf.TensorSpec([2]))
    (actual,) = in_float64(fn, params, [np.float32([1, 1])])
    np.testing.assert_allclose(actual, 1 / np.float32([0.1, 0.2]).astype(np.float64), rtol=1e-15)


SUM = np.float32(RNG.normal(size=20_000) * 10)


@pytest.mark.parametrize(
    ("expected", "actual", "wrong"),
    [
        (np.float32(SUM.sum()), np.cumsum(SUM)[-1], ""),  # two orders
        (SUM[::-1].cumsum()[-1], np.cumsum(SUM)[-1], ""),
        (np.float32(SUM.sum()), np.float32(SUM.sum() * 1.001), "jax"),
        (np.float32(SUM.sum() * 1.001), np.float32(SUM.sum()), "tensorflow"),
        (np.float32(SUM.sum()), np.float32(np.nan), "jax"),
        (np.float32(np.inf), np.float32(SUM.sum()), "tensorflow"),
    ],
)
def test_a_sum_in_another_order_is_round_off(expected, actual, wrong):
    found = round_off(np.asarray(expected), np.asarray(actual), np.asarray(SUM.astype(np.float64).sum()))
    assert (found.wrong, found.ok) == (wrong, not wrong), found


def test_integers_have_no_round_off():
    assert round_off(np.array([1, 2]), np.array([1, 2]), np.array([1, 2])).ok
    assert round_off(np.array([1, 2]), np.array([1, 3]), np.array([1, 2])).wrong == "jax"
    assert round_off(np.array([1, 3]), np.array([1, 2]), np.array([1, 2])).wrong == "tensorflow"


@pytest.mark.full
def test_a_wrong_op_is_told_from_round_off():
    @tf.function(autograph=False)
    def scores(x):
        return tf.nn.softmax(tf.tanh(x @ tf.constant(WEIGHTS)) * 3)

    def judge(factor):
        with tf2jax.override_op("Softmax", lambda logits: jax.nn.softmax(logits * factor)):
            fn, params = converted(scores, tf.TensorSpec([None, 64]))
            inside = in_float64(fn, params, [x])[0]
        actual = np.asarray(fn.flat_call(params, [x])[0][0])
        outside = in_float64(fn, params, [x])[0]
        return [round_off(expected, actual, truth).wrong for truth in (outside, inside)]

    x = RNG.normal(size=(5, 64)).astype(np.float32)
    expected = scores(x).numpy()
    assert judge(1.0) == ["", ""]
    # Off by less than verification's tolerance, 1e-4; by the right op's float64 and by the wrong one's.
    assert judge(1.0002) == ["jax", "tensorflow"]


@pytest.mark.full
def test_a_compiled_module_is_refused():
    path = Path(__file__).parent.parent.parent / "testdata" / "jax2tf_cnn"
    jax_fn, params = tf2jax.convert_saved_model(path)
    with pytest.raises(UnsupportedError, match="XlaCallModule"):
        in_float64(jax_fn.converted, params, [])
