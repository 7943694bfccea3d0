"""Decompositions, random bits, precision, hints and collectives of the Xla* ops."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.xla import protos

from .harness import cast, compiled, i32, numbers, randoms

random = randoms()


def up_to_sign(expected, actual):
    """Compare vectors that are determined up to a factor of absolute value 1."""
    for e, a in zip(expected, actual, strict=True):
        if e.ndim == 1 or e.ndim + 1 == max(x.ndim for x in expected):
            np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_allclose(np.abs(a), np.abs(e), rtol=1e-4, atol=1e-5)


SHARDED = numbers("OpSharding", type=3, tile_assignment_dimensions=[2, 1], tile_assignment_devices=[0, 1])
SYMMETRIC = np.float32([[4, 1, 2], [1, 3, 0], [2, 0, 1]])
CASES = [
    *(
        case("XlaSelfAdjointEig", cast(a, t), lower=lower, max_iter=100, epsilon=1e-6).using(
            compare=up_to_sign, grad=False, name=f"{t}-{lower}-{a.ndim}"
        )
        for t in ("float32", "float64")
        for lower in (False, True)
        for a in (np.tril(SYMMETRIC) if lower else np.triu(SYMMETRIC), np.stack([SYMMETRIC, SYMMETRIC * 2]))
    ),
    *(
        case("XlaSvd", cast(a, t), max_iter=100, epsilon=1e-6, precision_config=b"").using(
            compare=up_to_sign, grad=False, vmap=False, name=f"{t}-{a.shape}"
        )
        for t in ("float32", "float64")
        for a in (SYMMETRIC + np.diag([1, 2, 3]), np.arange(6).reshape(2, 3) ** 2 - 3.0)
    ),
    *(
        case(
            "XlaReducePrecision", cast([1.1, -3.3, 1e-3, 70000.0, np.inf, np.nan], t), exponent_bits=e, mantissa_bits=m
        )
        for t in ("float64", "float32", "bfloat16")
        for e, m in ((5, 10), (8, 7), (4, 3))
    ),
    *(
        case(
            "XlaDequantize",
            np.arange(256, dtype=np.uint8).view(">u4").astype(np.uint32).reshape(4, 16),
            min_range=low,
            max_range=high,
            mode="MIN_COMBINED",
            transpose_output=t,
        ).using(name=f"{low}-{high}-{t}")
        for low, high in ((0.0, 255.0), (-1.0, 3.0), (-0.3, 0.7))
        for t in (False, True)
    ),
    case("XlaDequantize", np.uint32([1]), min_range=0.0, max_range=1.0, mode="MIN_FIRST", transpose_output=False).using(
        error="MIN_COMBINED"
    ),
    *(
        case("XlaRngBitGenerator", np.int32(a), np.arange(5, 5 + n, dtype=np.uint64), s, dtype=t).using(
            name=f"{a}-{n}-{s.tolist()}-{t.name}"
        )
        for a, n in ((1, 2), (2, 2), (1, 3))
        for s in (i32(7), np.int64([2, 3]))
        for t in (tf.uint8, tf.uint32, tf.uint64)
    ),
    case("XlaRngBitGenerator", np.int32(1), np.uint64([1, 2**64 - 1, 2**64 - 1]), i32(9), dtype=tf.uint32).using(
        name="carry"
    ),
    case("XlaOptimizationBarrier", [random(2), random(3)]),
    case("XlaOptimizationBarrier", [i32(1)]),
    case("XlaSetBound", np.int32(3), np.int32(7)),
    case("XlaSetDynamicDimensionSize", random(3, 4), np.int32(1), np.int32(2)),
    case("XlaSetDynamicDimensionSize", random(3, 4), np.int32(0), np.int32(3)),
    case("XlaRemoveDynamicDimensionSize", random(3, 4), np.int32(1)),
    case("XlaSharding", random(2, 3), sharding=b""),
    case("XlaSharding", random(2, 3), sharding=SHARDED).using(name="sharded", vmap=False),
    case("XlaSpmdFullToShardShape", random(2, 3), manual_sharding=b""),
    case("XlaSpmdShardToFullShape", random(2, 3), manual_sharding=b"", full_shape=[2, 3]),
    case("XlaSpmdFullToShardShape", random(2, 3), manual_sharding=SHARDED).using(error="only one device"),
    *(
        case("XlaAllReduce", random(2, 3), np.int32([[0]]), reduce_op=r, mode="CrossReplica")
        for r in ("Add", "Mean", "Max")
    ),
    case("XlaAllReduce", random(2, 3), np.int32([[0, 1]]), reduce_op="Add", mode="CrossReplica").using(
        error="groups of one"
    ),
    case("XlaReduceScatter", random(2, 3), np.int32([[0, 1]]), np.int32(0), reduce_op="Add").using(error="of one"),
]
TESTED_OTHERWISE = {"XlaReplicaId", "XlaReduceScatter"}


@pytest.mark.parametrize("case", tiered(compiled(CASES)))
def test_case(case):
    check(case)


@pytest.mark.full
def test_replica_id():
    jax_fn = tf2jax.convert_functional(lambda x: x + gen_xla_ops.xla_replica_id(), tf.TensorSpec([], tf.int32))
    assert jax.jit(jax_fn)(np.int32(3)) == 3


@pytest.mark.full
def test_random_bits_without_x64():
    jax_fn = tf2jax.convert_functional(
        lambda x: gen_xla_ops.xla_rng_bit_generator(1, tf.constant([5, 6], tf.uint64), [3], dtype=tf.uint32)[1] + x,
        tf.TensorSpec([], tf.uint32),
    )
    np.testing.assert_array_equal(jax.jit(jax_fn)(np.uint32(0)), [1465900379, 1469274632, 1503072275])


@pytest.mark.full
@pytest.mark.parametrize("text", ["\x08", "\x0a\x05\x01", "\x09\x01", "\x08" + "\udcff" * 11])
def test_invalid_protos_raise(text):
    with pytest.raises(ValueError, match="proto"):
        protos.fields(text)
