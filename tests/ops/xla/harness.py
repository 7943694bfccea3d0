"""Helpers of Xla* tests; the oracle is TensorFlow's XLA compiler.

Most of these ops have no CPU kernel.
"""

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2

from tests._support import cast

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def randoms(seed=0):
    """Return a maker of random arrays, independent of other modules'."""
    rng = np.random.default_rng(seed)

    def random(*shape, dtype="float32"):
        return cast(rng.integers(-8, 8, shape) / 2, dtype)

    return random


def i32(*values):
    return np.array(values, np.int32)


def numbers(kind, **fields):
    return getattr(xla_data_pb2, kind)(**fields).SerializeToString()


def scalar_fn(fn, *dtypes):
    return tf.function(fn, autograph=False).get_concrete_function(*(tf.TensorSpec([], d) for d in dtypes))


def fold(fn, dtype, count=2):
    return scalar_fn(fn, *[tf.dtypes.as_dtype(dtype)] * count)


FOLDS = {
    "add": tf.add,
    "mul": tf.multiply,
    "max": tf.maximum,
    "min": tf.minimum,
    "odd": lambda a, b: a + b + a * b,
}
START = {"add": 0, "mul": 1, "max": -100, "min": 100, "odd": 0}
LOGIC = {"and": tf.logical_and, "or": tf.logical_or}


def compiled(cases):
    """Return cases compiled by XLA, without gradients of most ops."""
    return [case.using(grad=False, xla=True) for case in cases]
