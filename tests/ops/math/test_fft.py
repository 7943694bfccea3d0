"""Fourier transforms against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import Tf2JaxError
from tf2jax_lite.ops import registry

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(2, 3, 4, 6))
COMPLEX = REAL + 1j * REAL[::-1]

CASES = [
    *(
        case(f"{name}{suffix}", COMPLEX.astype(d)).using(rtol=1e-4 if d == "complex64" else 1e-9, atol=1e-4)
        for name in ("FFT", "IFFT")
        for suffix in ("", "2D", "3D")
        for d in ("complex64", "complex128")
    ),
    *(
        case(f"RFFT{suffix}", REAL.astype(d), np.array(n, np.int32), Tcomplex=c).using(rtol=1e-3, atol=1e-4)
        for suffix, n in (("", [6]), ("", [4]), ("2D", [4, 6]), ("2D", [3, 5]), ("3D", [3, 4, 6]))
        for d, c in (("float32", tf.complex64), ("float64", tf.complex128))
    ),
    *(
        case(f"IRFFT{suffix}", COMPLEX.astype(d), np.array(n, np.int32), Treal=r).using(
            rtol=1e-3, atol=1e-4, grad=False
        )
        for suffix, n in (("", [10]), ("", [7]), ("2D", [4, 10]), ("3D", [3, 4, 10]))
        for d, r in (("complex64", tf.float32), ("complex128", tf.float64))
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


# TensorFlow has kernels for GPUs only, and no gradients, so NumPy is the reference.
ANY_AXES = {"FFTND": "fftn", "IFFTND": "ifftn", "RFFTND": "rfftn", "IRFFTND": "irfftn"}
OF_OLD = {f"Batch{name}{suffix}" for name in ("FFT", "IFFT") for suffix in ("", "2D", "3D")}
TESTED_OTHERWISE = {*ANY_AXES, *OF_OLD}


def any_axes(op, x, fft_length, axes):
    types = {"RFFTND": {"Tcomplex": tf.complex128}, "IRFFTND": {"Treal": tf.float64}}.get(op, {})

    def call(x):
        return getattr(tf.raw_ops, op)(input=x, fft_length=fft_length, axes=axes, **types)

    return tf2jax.convert_functional(tf.function(call), tf.TensorSpec(x.shape, x.dtype))


@pytest.mark.full
@pytest.mark.parametrize(
    ("fft_length", "axes"),
    [([2, 3, 4, 6], [0, 1, 2, 3]), ([6], [-1]), ([5, 3], [-1, 0]), ([2, 9, 1], [1, 3, 2]), ([7], [1])],
)
@pytest.mark.parametrize("op", ANY_AXES)
def test_any_axes(op, fft_length, axes):
    x = REAL if op == "RFFTND" else COMPLEX
    with jax.enable_x64(True):
        fn = any_axes(op, x, fft_length, axes)
        actual, batch = jax.jit(lambda x: (fn(x), jax.vmap(fn)(x[None])))(x)
    expected = getattr(np.fft, ANY_AXES[op])(x, fft_length, axes)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    np.testing.assert_allclose(batch[0], expected, atol=1e-12)


@pytest.mark.default_cases("RFFTND")
@pytest.mark.parametrize("op", ANY_AXES)
def test_any_axes_of_empty_arrays(op):
    x = (REAL if op == "RFFTND" else COMPLEX)[:, :0]
    with jax.enable_x64(True):
        half = 4 if op == "RFFTND" else 6
        assert any_axes(op, x, [6], [3])(x).shape == (2, 0, 4, half)
        assert any_axes(op, x, [3, 0], [1, 2])(x).shape == (2, 3, 0, 6)
        padded = np.asarray(any_axes(op, x, [3], [1])(x))
    np.testing.assert_array_equal(padded, np.zeros((2, 2 if op == "RFFTND" else 3, 4, 6)))


@pytest.mark.full
@pytest.mark.parametrize("op", ANY_AXES)
def test_gradients_are_those_of_two_dimensions(op):
    """The reference is TensorFlow's gradient of the 2-D op."""
    x = (REAL if op == "RFFTND" else COMPLEX)[0]
    two = {
        "RFFTND": tf.signal.rfft2d,
        "IRFFTND": tf.signal.irfft2d,
        "FFTND": tf.signal.fft2d,
        "IFFTND": tf.signal.ifft2d,
    }
    lengths = [4, 10] if op == "IRFFTND" else [4, 6]
    with tf.GradientTape() as tape:
        given = tf.constant(x)
        tape.watch(given)
        y = two[op](given, lengths) if "R" in op else two[op](given)
        loss = tf.reduce_sum(tf.abs(y) ** 2 * np.arange(y.shape[-1]))
    expected = tape.gradient(loss, given)
    with jax.enable_x64(True):
        fn = any_axes(op, x, lengths, [-2, -1])
        actual = jax.grad(lambda x: (abs(fn(x)) ** 2 * np.arange(y.shape[-1])).sum())(x)
    np.testing.assert_allclose(np.conj(actual), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("fft_length", "axes", "error"),
    [([4, 4], [3], "one length"), ([4, 6], [3, -1], "none twice"), ([4], [4], "out of range"), ([-4], [3], "negative")],
)
def test_axes_are_checked(fft_length, axes, error):
    entry = registry.lookup("FFTND").fn
    with pytest.raises(Tf2JaxError, match=error):
        entry(COMPLEX, np.array(fft_length), np.array(axes))


@pytest.mark.full
def test_batch_names_share_one_function():
    for name in OF_OLD:
        assert registry.lookup(name).fn is registry.lookup(name.removeprefix("Batch")).fn
