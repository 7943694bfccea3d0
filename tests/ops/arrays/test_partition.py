"""DynamicStitch and DynamicPartition against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays import partition

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
COMPLEX = ["complex64", "complex128"]


M = np.arange(12.0).reshape(4, 3)
T = np.arange(24.0).reshape(2, 3, 4)

CASES = [
    # Indices are constants of the graph, or the size of the result is data-dependent.
    *(
        case(op, [np.int32([0, 4]), np.int32([2, 4])], [cast([[1, 1], [2, 2]], t), cast([[3, 3], [4, 4]], t)])
        .using(baked=("indices",))
        for op in ("DynamicStitch", "ParallelDynamicStitch")
        for t in (*FLOATS, "int32", "uint8", "complex64")
    ),
    case("DynamicStitch", [np.int32(1), np.int32([0, 2])], [np.float32(5), np.float32([6, 7])]).using(
        baked=("indices",), name="permutation"
    ),
    case("DynamicStitch", [np.int32([[3, 1], [0, 2]]), np.zeros((0,), np.int32)], [T[:, :2], np.zeros((0, 4))]).using(
        baked=("indices",), name="matrix"
    ),
    case("DynamicStitch", [np.int32([5])], [np.float32([1])]).using(baked=("indices",), name="gaps"),
    case("DynamicStitch", [np.zeros(0, np.int32)], [np.zeros((0, 3))]).using(baked=("indices",), name="empty"),
    case("DynamicStitch", [np.int32([0, 2]), np.int32([[1], [3]])], [np.zeros((2, 0)), np.zeros((2, 1, 0))]).using(
        baked=("indices",), name="empty rows"
    ),
    case("DynamicStitch", [np.int32([0, 0])], [np.array([True, False])]).using(baked=("indices",), name="bool"),
    case("DynamicStitch", [np.int32([0, 2])], [np.float32([1, 2])]).using(jit=False, name="eager"),
    case("DynamicStitch", [np.int32([-1])], [np.float32([1])]).using(error="out of range", name="negative"),
    case("DynamicStitch", [np.int32([1])], [np.float32([1, 2])]).using(error="does not start", name="shape"),
    *(
        case("DynamicPartition", cast([[1, 2], [3, 4], [5, 6]], t), np.int32([1, 0, 1]), num_partitions=3).using(
            baked=("partitions",)
        )
        for t in (*FLOATS, *COMPLEX, "int32", "uint8", "int64")
    ),
    case("DynamicPartition", np.array([True, False]), np.int32([1, 1]), num_partitions=2).using(baked=("partitions",)),
    case("DynamicPartition", np.float32([1, 2]), np.int32(1), num_partitions=2).using(baked=("partitions",)),
    case("DynamicPartition", T, np.int32([[1, 0, 0], [1, 1, 0]]), num_partitions=2).using(baked=("partitions",)),
    case("DynamicPartition", np.zeros((0, 2)), np.zeros(0, np.int32), num_partitions=2).using(jit=False),
    case("DynamicPartition", M, np.int32([1, 0, 1, 1]), num_partitions=2).using(jit=False, name="eager"),
    case("DynamicPartition", M, np.int32([1, 0, 5, 1]), num_partitions=2).using(error="must be in [0, 2)", name="high"),
    case("DynamicPartition", M, np.int32([1, 0]), num_partitions=2).using(error="does not start", name="shape"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def test_constant_folding_of_stitching():
    host = registry.lookup("DynamicStitch").fold
    for indices, data in (
        ([np.int32([0, 4]), np.int32([2, 4])], [np.int32([[1, 1], [2, 2]]), np.int32([[3, 3], [4, 4]])]),
        ([np.int32(1), np.int32([[0, 2]])], [np.float32(5), np.float32([[6, 7]])]),
        ([np.zeros(0, np.int32)], [np.zeros((0, 3))]),
        ([np.int32([1, 0])], [np.array([b"a", b"bc"], object)]),
    ):
        expected = tf.raw_ops.DynamicStitch(indices=indices, data=data).numpy()
        actual = host(indices, data)
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.full
def test_partition_and_stitch_inside_jit():
    def function(x, p, bound):
        parts = partition.dynamic_partition(x, p, num_partitions=3, bound=bound)
        rows = partition.dynamic_partition(jnp.arange(5), p, num_partitions=3, bound=bound)
        return partition.dynamic_stitch(rows, [part * (i + 1) for i, part in enumerate(parts)], bound=bound)

    x, p = jnp.arange(10.0).reshape(5, 2), jnp.array([2, 0, 2, 2, 0])
    expected = x * (p[:, None] + 1)
    np.testing.assert_array_equal(function(x, p, None), expected)
    np.testing.assert_array_equal(jax.jit(function, static_argnums=2)(x, p, 5), expected)
    grad = jax.jit(jax.grad(lambda x, p: function(x, p, 5).sum()))(x, p)
    np.testing.assert_array_equal(grad, jnp.ones((5, 2)) * (p[:, None] + 1))
    with pytest.raises(OpError, match="dynamic_shape_bound"):
        jax.jit(lambda p: function(x, p, None))(p)
    with pytest.raises(OpError, match="dynamic_shape_bound"):
        jax.jit(lambda i: partition.dynamic_stitch([i], [x], bound=None))(p)
