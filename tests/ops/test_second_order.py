"""Hessians times vectors, by reverse twice and forward over reverse."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options

RNG = np.random.default_rng(0)
A, B, C = (RNG.normal(size=(3, 4)) for _ in range(3))
SQUARE = RNG.normal(size=(2, 3, 3))
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(3)
IMAGE = RNG.normal(size=(1, 5, 6, 2))
UNIT = RNG.uniform(0.1, 0.9, (3, 4))

# Functions of arrays to one array or a list of them. Matrices are not symmetric where vectors are: so the
# triangles that ops and gradients read matter.
FUNCTIONS = {
    "cholesky": (tf.linalg.cholesky, POSITIVE),
    "cholesky of logarithms": (lambda a: tf.math.log(tf.linalg.diag_part(tf.linalg.cholesky(a))), POSITIVE),
    "cholesky solve": (lambda a, b: tf.linalg.cholesky_solve(tf.linalg.cholesky(a), b), POSITIVE, SQUARE[..., :2]),
    "qr": (tf.linalg.qr, SQUARE),
    "inv": (tf.linalg.inv, POSITIVE),
    "solve": (tf.linalg.solve, POSITIVE, SQUARE),
    "lstsq": (lambda a, b: tf.linalg.lstsq(a, b, l2_regularizer=0.1), SQUARE, SQUARE[..., :1]),
    "slogdet": (tf.linalg.slogdet, POSITIVE),
    "expm": (tf.linalg.expm, SQUARE * 0.3),
    "triangular": (lambda a, b: tf.linalg.triangular_solve(a, b, lower=True), POSITIVE, SQUARE),
    "pow": (tf.pow, UNIT, B),
    "pow of a number": (lambda a: tf.pow(a, 3.0), A),
    "multiply_no_nan": (tf.math.multiply_no_nan, A, B * (B > 0)),
    "divide_no_nan": (tf.math.divide_no_nan, A, B * (B > 0)),
    "quotients": (lambda a, b: a / b + tf.math.rsqrt(b * b + 1) * tf.sqrt(b * b + a * a), A, B),
    "xlogy": (tf.math.xlogy, A * (A > 0), UNIT),
    "gradient of sqrt": (lambda y, dy: tf.raw_ops.SqrtGrad(y=y, dy=dy), UNIT, B * (B > 0)),
    "gradient of rsqrt": (lambda y, dy: tf.raw_ops.RsqrtGrad(y=y, dy=dy), UNIT, B * (B > 0)),
    "gradient of reciprocal": (lambda y, dy: tf.raw_ops.ReciprocalGrad(y=y, dy=dy), UNIT, B * (B > 0)),
    "gradient of tanh": (lambda y, dy: tf.raw_ops.TanhGrad(y=y, dy=dy), UNIT, B * (B > 0)),
    "activations": (lambda a: tf.nn.elu(a) + tf.nn.selu(a) * tf.nn.softplus(a) + tf.nn.gelu(a) * tf.tanh(a), A),
    "softmax": (lambda a: tf.nn.softmax(a) * tf.nn.log_softmax(a), A),
    "cross entropy": (lambda a: tf.nn.softmax_cross_entropy_with_logits(tf.constant(UNIT), a), A),
    "sigmoid cross entropy": (tf.nn.sigmoid_cross_entropy_with_logits, UNIT, A),
    "layer norm": (lambda a, s: tf.nn.batch_normalization(a, *tf.nn.moments(a, 1, keepdims=True), s, s, 1e-3), A, B[0]),
    "reductions": (lambda a: tf.reduce_logsumexp(a, 0) + tf.reduce_prod(a, 0) + tf.math.reduce_std(a, 0), A),
    "scans": (lambda a: tf.cumsum(a, 1, exclusive=True) * tf.math.cumprod(a, 1), A),
    "convolution": (lambda x, w: tf.nn.conv2d(x, w, 2, "SAME") ** 2, IMAGE, RNG.normal(size=(3, 2, 2, 3))),
    "depthwise": (lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME") ** 2, IMAGE,
                  RNG.normal(size=(3, 2, 2, 1))),
    "pooling": (lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME") ** 2 + tf.nn.avg_pool2d(x, 2, 2, "SAME") ** 2, IMAGE),
    "gather": (lambda a: tf.gather(a, [2, 0, 2]) ** 3, A),
    "segments": (lambda a: tf.math.unsorted_segment_prod(a, [1, 0, 1], 3), A),
    "segments with zeros": (lambda a: tf.math.segment_prod(a, [0, 0, 1]), A * (A > 0)),
    "special": (lambda a: tf.math.lgamma(a) * tf.math.erf(a) + tf.math.digamma(a) * tf.math.ndtri(a), UNIT),
    "fft": (lambda a, b: tf.math.real(tf.signal.ifft(tf.signal.fft(tf.complex(a, b)) ** 2)), A, B),
    "loop": (lambda a: tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.sin(x) * a), (0, a),
                                     maximum_iterations=3)[1], A),
    "branch": (lambda a: tf.cond(a[0, 0] > 0, lambda: a**3, lambda: tf.exp(a)), A),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessians_times_vectors(name):
    fn, *args = FUNCTIONS[name]
    tensors = [tf.constant(arg) for arg in args]
    rng = np.random.default_rng(1)

    def results(*values):
        return [out for out in tf.nest.flatten(fn(*values)) if out.dtype.is_floating]

    function = tf.function(results, autograph=False)
    vectors = [np.asarray(rng.normal(size=arg.shape), arg.dtype) for arg in args]
    with tf.GradientTape() as outer:
        outer.watch(tensors)
        with tf.GradientTape() as inner:
            inner.watch(tensors)
            outs = function(*tensors)
        upstream = [np.asarray(rng.normal(size=out.shape), out.dtype.as_numpy_dtype) for out in outs]
        gradients = inner.gradient(outs, tensors, list(map(tf.constant, upstream)), unconnected_gradients="zero")
        gradients = list(map(tf.convert_to_tensor, gradients))
    expected = outer.gradient(gradients, tensors, list(map(tf.constant, vectors)), unconnected_gradients="zero")

    with jax.enable_x64(True):
        converted = tf2jax.convert_functional(function, *(tf.TensorSpec(arg.shape, arg.dtype) for arg in args))

        def gradient(*values):
            return jax.vjp(converted, *values)[1](upstream)

        def both(values, directions):
            return jax.vjp(gradient, *values)[1](directions), jax.jvp(gradient, values, directions)[1]

        found = jax.jit(both, compiler_options=fast_options())(tuple(args), tuple(vectors))
    for e, backward, forward in zip(expected, *found, strict=True):
        e = tf.convert_to_tensor(e).numpy()
        tolerance = 1e-4 if e.dtype == np.float32 else 1e-8
        np.testing.assert_allclose(backward, e, rtol=tolerance, atol=tolerance * max(1, np.abs(e).max()))
        np.testing.assert_allclose(forward, e, rtol=tolerance, atol=tolerance * max(1, np.abs(e).max()))


@pytest.mark.full
def test_powers_of_negative_numbers():
    # The derivative with respect to the exponent is 0 there, which is none of a real function: the order counts.
    base, exponent = np.array([-2.0, -1.5, 3.0, 0.0]), np.array([2.0, 3.0, 1.5, 2.0])
    with jax.enable_x64(True):
        power = tf2jax.convert_functional(tf.pow, base, exponent)
        for first in (0, 1):
            for second in (0, 1):
                tensors = tf.constant(base), tf.constant(exponent)
                with tf.GradientTape() as outer:
                    outer.watch(tensors)
                    with tf.GradientTape() as inner:
                        inner.watch(tensors)
                        out = tf.pow(*tensors)
                    gradient = inner.gradient(out, tensors[first])
                expected = outer.gradient(gradient, tensors[second])
                by = jax.grad(lambda *args, i=first: power(*args).sum(), first)
                found = jax.grad(lambda *args, by=by: by(*args).sum(), second)(base, exponent)
                np.testing.assert_allclose(found, expected, rtol=1e-12)
