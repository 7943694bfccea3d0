"""Fourier transforms against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from .harness import case, check

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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
