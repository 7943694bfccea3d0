"""Activations, softmax and biases against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from .harness import case, check

BF16 = tf.bfloat16.as_numpy_dtype
X = np.array([[-3.0, -0.5, 0.0, 0.5, 6.0, 7.0]])
G = np.array([[1.0, -2.0, 3.0, 0.5, 2.0, 1.0]])
FLOATS = [np.float64, np.float32, np.float16, BF16]
ACTIVATIONS = ["Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu", "Softmax", "LogSoftmax"]
GRADS = ["ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad"]
IMAGE = np.random.default_rng(0).normal(size=(2, 3, 4, 5))

CASES = [
    *(case(name, X.astype(d)).using(name=np.dtype(d).name) for name in ACTIVATIONS for d in FLOATS),
    *(case(name, np.float32([[np.nan, np.inf, -np.inf, 1]])).using(name="hard", grad=False) for name in ACTIVATIONS),
    *(case(name, np.float32([[-100, 100, -40, 40]])).using(name="large") for name in ACTIVATIONS),
    *(case(name, X.astype(np.float32)).using(symbolic=("b, 6",), name="symbolic") for name in ACTIVATIONS),
    *(case(name, G.astype(d), X.astype(d)).using(name=np.dtype(d).name) for name in GRADS for d in FLOATS),
    *(case("LeakyRelu", X.astype(np.float32), alpha=a) for a in (0.0, 0.3, 1.5)),
    case("LeakyReluGrad", G, X, alpha=0.7),
    case("Relu", np.array([-2, 0, 5], np.int32)),
    case("BiasAdd", IMAGE, np.arange(5.0)),
    case("BiasAdd", IMAGE, np.arange(3.0), data_format="NCHW"),
    case("BiasAdd", X.astype(np.float32), np.arange(6, dtype=np.float32)).using(symbolic=("b, 6", "6")),
    case("BiasAddV1", IMAGE, np.arange(5.0)),
    case("BiasAddGrad", IMAGE),
    case("BiasAddGrad", IMAGE, data_format="NCHW"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
