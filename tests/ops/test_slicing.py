"""StridedSlice with every mask against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

from .harness import case, check

A = np.arange(60, dtype=np.float32).reshape(3, 4, 5)

PYTHON = {
    "[1]": lambda x: x[1],
    "[-1]": lambda x: x[-1],
    "[1:]": lambda x: x[1:],
    "[:-1, ::2]": lambda x: x[:-1, ::2],
    "[..., 0]": lambda x: x[..., 0],
    "[None, 1, ..., -2:]": lambda x: x[None, 1, ..., -2:],
    "[:, None, ::-1]": lambda x: x[:, None, ::-1],
    "[2:0:-1, 3:1:-2]": lambda x: x[2:0:-1, 3:1:-2],
    "[5:1]": lambda x: x[5:1],
    "[-100:100]": lambda x: x[-100:100],
    "[..., None, 1, :]": lambda x: x[..., None, 1, :],
    "[0, 1, 2]": lambda x: x[0, 1, 2],
    "[:, 1:3, 4]": lambda x: x[:, 1:3, 4],
    "[tf.newaxis, ..., tf.newaxis]": lambda x: x[tf.newaxis, ..., tf.newaxis],
}


def i32(*values):
    return np.array(values, np.int32)


CASES = [
    case("StridedSlice", A, i32(0, 1), i32(2, 4), i32(1, 2)).using(name="plain"),
    case("StridedSlice", A, i32(1), i32(2), i32(1), shrink_axis_mask=1),
    case("StridedSlice", A, i32(-1), i32(0), i32(-1), begin_mask=1, end_mask=1),
    case("StridedSlice", A, i32(0, 0, 0), i32(0, 0, 0), i32(1, 1, 1), begin_mask=7, end_mask=7).using(name="all"),
    case("StridedSlice", np.arange(5), i32(3), i32(4), i32(1), shrink_axis_mask=1).using(name="int"),
    case("StridedSlice", A, i32(0, 1), i32(0, 3), i32(1, 1), begin_mask=1, end_mask=1).using(
        symbolic=("b, 4, 5",), name="symbolic"
    ),
    case("StridedSlice", A, i32(7), i32(8), i32(1), shrink_axis_mask=1).using(error="out of bounds"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case.using(baked=("begin", "end", "strides")))


@pytest.mark.parametrize("text", PYTHON)
def test_python_slices(text):
    fn = PYTHON[text]
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(A.shape))
    import jax

    np.testing.assert_array_equal(jax.jit(jax_fn)(A), fn(tf.constant(A)))
    x = tf.constant(A)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(fn(x) ** 2)
    actual = jax.grad(lambda x: (jax_fn(x) ** 2).sum())(A)
    np.testing.assert_allclose(actual, tape.gradient(y, x))


@pytest.mark.parametrize("index", [0, 2, -1])
def test_traced_index(index):
    import jax

    jax_fn = tf2jax.convert_functional(lambda x, i: x[:, i, 1:], tf.TensorSpec(A.shape), tf.TensorSpec([], tf.int32))
    np.testing.assert_array_equal(jax.jit(jax_fn)(A, np.int32(index)), A[:, index, 1:])
