"""ODE solvers of TFP: nested loops, gradients that run the solver again."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.models.test_gradient_models import check_gradients

TIMES = [0.4, 1.0]


def _decay(t, y, rate):
    """Have an oscillation driven from outside, so that step sizes change."""
    return -rate * y + tf.sin(3.0 * t)


def _solution(name):
    made = pytest.importorskip("tensorflow_probability").math.ode
    solver = getattr(made, name)(rtol=1e-4, atol=1e-6)

    def fn(rate, start):
        return solver.solve(_decay, 0.0, start, solution_times=TIMES, constants={"rate": rate}).states

    return fn


# The other takes 6 s.
@pytest.mark.full
@pytest.mark.parametrize("name", ["DormandPrince", pytest.param("BDF", marks=pytest.mark.full)])
def test_values(name):
    """Step counts are TensorFlow's, so solutions agree beyond the tolerance."""
    function = tf.function(_solution(name))
    rate, start = np.float32(1.3), np.array([1.0, -2.0], np.float32)
    with tf2jax.override_config("convert_custom_gradient", False):
        jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([]), tf.TensorSpec([2]))
    np.testing.assert_allclose(jax.jit(jax_fn)(rate, start), function(rate, start), rtol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", ["DormandPrince", "BDF"])
def test_gradients(name):
    """TensorFlow solves the adjoint equation backwards; so do we, with the same steps."""
    solution = _solution(name)
    weights = np.array([[1.0, -1.0], [0.5, 2.0]], np.float32)
    check_gradients(
        lambda rate, start: tf.reduce_sum(solution(rate, start) * weights),
        [],
        np.float32(1.3),
        np.array([1.0, -2.0], np.float32),
        rtol=1e-3,
    )
