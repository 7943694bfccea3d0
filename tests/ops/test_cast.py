"""Casts against TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from .harness import case, check

TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool", "complex64"]
VALUES = np.array([0.0, 1.0, 2.75, 100.0])

CASES = [
    *(
        case("Cast", VALUES.astype(tf.as_dtype(a).as_numpy_dtype), DstT=tf.as_dtype(b)).using(name=f"{a}-{b}")
        for a, b in itertools.product(TYPES, TYPES)
    ),
    case("Cast", np.array([-1.5, -0.5]), DstT=tf.int32).using(name="negative"),
    case("Bitcast", np.float32([1.0, -2.0]), type=tf.int32),
    case("Bitcast", np.array([1, 2], np.int64), type=tf.float64),
    case("Bitcast", np.array([1, 2], np.int32), type=tf.uint8).using(name="narrower"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
