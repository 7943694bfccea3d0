"""Gather against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays import gather

BF16 = ml_dtypes.bfloat16
DTYPES = ["float64", "float32", "float16", "complex64", "complex128", "bool", "int8", "int16", "int32", "int64"]
DTYPES += ["uint8", "uint16", "uint32", "uint64"]

P = np.arange(24.0).reshape(2, 3, 4)
M = np.arange(6.0).reshape(3, 2)

CASES = [
    *(case("GatherV2", (M % 2 if t == "bool" else M).astype(t), np.int32([2, 0, 2]), np.array(0)) for t in DTYPES),
    case("GatherV2", M.astype(BF16), np.int32([2, 0, 2]), np.array(0)),
    *(
        case("GatherV2", P, np.array(indices, np.int32), np.array(axis)).using(name=f"{indices}-{axis}")
        for indices in (1, [1, 0], [[1, 0], [1, 1]], [], [[]])
        for axis in (0, 1, 2, -1)
    ),
    *(
        case("GatherV2", P, np.array(1, t), np.array(-2, a))
        for t in ("int16", "int32", "int64")
        for a in ("int32", "int64")
    ),
    *(
        case("GatherV2", P, np.array(indices, np.int32), np.array(axis), batch_dims=batch).using(
            name=f"{np.shape(indices)}-axis{axis}-batch{batch}"
        )
        for indices, axis, batch in (
            ([[0, 2], [1, 1]], 1, 1),
            ([2, 1], 1, 1),
            ([[0, 2], [1, 1]], 2, 1),
            ([[0, 2], [1, 1]], -1, -1),
            ([[0, 2, 1], [1, 1, 2]], 2, 2),
            ([[[0], [2], [1]], [[1], [1], [2]]], 2, 2),
            ([[[0, 1], [2, 0]], [[1, 1], [2, 2]]], 1, 1),
            ([[[0, 1], [2, 0]], [[1, 1], [2, 2]]], 2, 1),
            ([[0, 1], [1, 1]], 0, 0),
        )
    ),
    *(
        case("GatherV2", P, indices, np.array(1)).using(baked=("indices",), name=f"constant-{indices.tolist()}")
        for indices in (np.int32(2), np.int32([2, 0]), np.int64([[1], [1]]))
    ),
    case("GatherV2", M, np.int32([1]), np.array(0)).using(symbolic=("b, 2", "n"), name="sym"),
    case("GatherV2", M, np.int32([1]), np.array(1)).using(symbolic=("b, 2", "n"), name="sym1"),
    case("GatherV2", M, np.int32(1), np.array(1)).using(symbolic=("b, 2",), baked=("indices",), name="sym-constant"),
    case("GatherV2", P, np.int32([[0, 2], [1, 1]]), np.array(1), batch_dims=1).using(
        symbolic=("b, n, 4", "b, k"), name="sym-batch"
    ),
    case("GatherV2", np.zeros((0, 2)), np.zeros(0, np.int32), np.array(0)).using(name="empty-params"),
    case("GatherV2", np.zeros((2, 0)), np.int32([1]), np.array(0)).using(name="empty-slices"),
    case("GatherV2", np.float32([1, np.nan, np.inf]), np.int32([[1, 2]]), np.array(0)).using(name="nan"),
    case("GatherV2", M, np.int32([3]), np.array(0)).using(error="index 3 is out of range [0, 3)", name="high"),
    case("GatherV2", M, np.int32([-1]), np.array(0)).using(error="index -1 is out of range", name="low"),
    case("GatherV2", M, np.int32([0]), np.array(2)).using(error="axis 2 is out of range", name="axis"),
    case("GatherV2", M, np.int32([0]), np.array([0])).using(error="scalar", name="vector-axis"),
    case("GatherV2", np.float32(1), np.int32([0]), np.array(0)).using(error="at least one dimension", name="rank0"),
    case("GatherV2", M, np.int32([[0]]), np.array(0), batch_dims=1).using(error="equal to axis", name="b1"),
    case("GatherV2", M, np.int32([[0]]), np.array(1), batch_dims=2).using(error="less than the rank", name="b2"),
    case("GatherV2", M, np.int32([[0]]), np.array(1), batch_dims=1).using(error="batch dimension 0", name="b3"),
    case("GatherV2", M, np.int32([0]), np.array(1), batch_dims=-2).using(error="out of range for indices", name="b4"),
    case("Gather", M, np.int32([[1], [2]])),
    case("Gather", M, np.int64(2)).using(symbolic=("b, 2", ""), name="sym"),
    case("Gather", np.int8([1, 2]), np.int32([1, 1]), validate_indices=False),
    case("Gather", M, np.int32([5])).using(error="out of range", name="high"),
    *(case("GatherNd", (M % 2 if t == "bool" else M).astype(t), np.int32([[2, 0], [1, 1]])) for t in DTYPES),
    case("GatherNd", M.astype(BF16), np.int32([[2, 0], [1, 1]])),
    *(
        case("GatherNd", P, np.array(indices, t)).using(name=f"{indices}-{t}")
        for t in ("int32", "int64")
        for indices in ([1], [1, 2], [1, 2, 3], [[1], [0]], [[0, 2], [1, 1]], [[[0, 2, 3]], [[1, 1, 1]]])
    ),
    case("GatherNd", M, np.int16([[1], [1]])).using(grad=False),  # the gradient has no int16 kernel
    case("GatherNd", M, np.zeros((2, 0), np.int32)).using(name="depth0"),
    case("GatherNd", M, np.zeros((0, 1), np.int32)).using(name="no-indices"),
    case("GatherNd", np.zeros((0, 3)), np.zeros((0, 1), np.int32)).using(name="empty"),
    case("GatherNd", M, np.int32([[1], [0]])).using(baked=("indices",), name="constant"),
    case("GatherNd", M, np.int32([[1], [0]])).using(symbolic=("b, 2", "n, 1"), name="sym"),
    case("GatherNd", P, np.int32([[1, 0], [0, 1]])).using(symbolic=("b, n, 4", "k, 2"), name="sym2"),
    # The gradient kernel does not have the policy: it raises for bad indices.
    case("GatherNd", M, np.int32([[3, 0], [1, 1], [-1, 0]]), bad_indices_policy="IGNORE").using(grad=False),
    case("GatherNd", M, np.int32([[3], [1], [-1]]), bad_indices_policy="IGNORE").using(grad=False),
    case("GatherNd", M, np.int32([[1, 1]]), bad_indices_policy="ERROR"),
    case("GatherNd", M, np.int32([[1, 1]]), bad_indices_policy="DEFAULT"),
    case("GatherNd", M, np.int32([[1, 2]])).using(error="indices[0] = [1, 2]", name="high"),
    case("GatherNd", M, np.int32([[1, 1]]), bad_indices_policy="X").using(error="unknown bad_indices_policy"),
    case("GatherNd", M, np.int32([[1, 1, 1]])).using(error="of length 3 for params of rank 2", name="deep"),
    case("GatherNd", M, np.int32(1)).using(error="at least one dimension", name="rank0"),
    case("GatherNd", np.zeros((0, 2)), np.int32([[0]])).using(error="empty params", name="empty-high"),
]  # fmt: skip

TESTED_OTHERWISE = {"ResourceGather", "ResourceGatherNd"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.parametrize(
    ("params", "indices", "axis", "batch"),
    [
        (P, np.int32(1), 1, 0),
        (P, np.int32([[1, 0]]), -1, 0),
        (P, np.int64([[0, 2], [1, 1]]), 1, 1),
        (P, np.int32([[0, 2], [1, 1]]), 2, 1),
        (P, np.int32([[[0], [2], [1]], [[1], [1], [2]]]), 2, 2),
        (P, np.int32([2, 1]), 2, 1),
        (np.array([b"a", b"bc"], object), np.int32([1, 1, 0]), 0, 0),
        (np.float32([]), np.int32([]), 0, 0),
    ],
)
def test_constant_folding_of_gather(params, indices, axis, batch):
    expected = tf.raw_ops.GatherV2(params=params, indices=indices, axis=axis, batch_dims=batch).numpy()
    actual = registry.lookup("GatherV2").fold(params, indices, np.array(axis), batch_dims=batch)
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("indices", [[1], [1, 2], [[1, 2, 3]], [[0, 2], [1, 1]], np.zeros((2, 0))])
def test_constant_folding_of_gather_nd(indices):
    indices = np.array(indices, np.int32)
    expected = tf.raw_ops.GatherNd(params=P, indices=indices).numpy()
    actual = registry.lookup("GatherNd").fold(P, indices)
    assert isinstance(actual, np.ndarray)
    np.testing.assert_array_equal(actual, expected)


def test_constant_folding_of_gather_nd_with_bad_indices():
    indices = np.int32([[3], [1], [-1]])
    expected = tf.raw_ops.GatherNd(params=M, indices=indices, bad_indices_policy="IGNORE").numpy()
    np.testing.assert_array_equal(registry.lookup("GatherNd").fold(M, indices, bad_indices_policy="IGNORE"), expected)
    with pytest.raises(OpError, match="does not index"):
        registry.lookup("GatherNd").fold(M, indices)


def test_symbolic_dimensions_are_folded():
    (b,) = jax.export.symbolic_shape("b")
    shape = np.empty(3, object)
    shape[:] = [b, 3, 4]
    host = registry.lookup("GatherV2").fold
    assert host(shape, np.int32([2, 0]), np.array(0)).tolist() == [4, b]
    assert host(shape, np.int32(0), np.array(0)).item() == b
    assert registry.lookup("GatherNd").fold(shape, np.int32([[0], [1]])).tolist() == [b, 3]


@pytest.mark.full
@pytest.mark.parametrize(
    ("indices", "batch"),
    [
        (np.int32([2, 0]), 0),
        (np.int64(1), 0),
        (np.int32([[0, 0]]), 0),
        (np.int32([[0, 1], [1, 0], [1, 1]]), 1),
    ],
)
def test_gather_from_a_variable(indices, batch):
    variable = tf.Variable(np.arange(12.0).reshape(3, 2, 2))
    expected = tf.raw_ops.ResourceGather(
        resource=variable.handle, indices=indices, dtype=tf.float64, batch_dims=batch
    ).numpy()
    entry = registry.lookup("ResourceGather")
    assert entry.reads == ("resource",)
    assert not entry.writes
    with jax.enable_x64(True):
        for value in (indices, jnp.asarray(indices)):
            actual = entry.fn(jnp.asarray(variable.numpy()), value, batch_dims=batch)
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("indices", [np.int32([[2], [0]]), np.int64([[2, 1]]), np.int32([1, 1, 0])])
def test_gather_nd_from_a_variable(indices):
    variable = tf.Variable(np.float32(np.arange(12)).reshape(3, 2, 2))
    expected = tf.raw_ops.ResourceGatherNd(resource=variable.handle, indices=indices, dtype=tf.float32).numpy()
    entry = registry.lookup("ResourceGatherNd")
    assert entry.reads == ("resource",)
    np.testing.assert_array_equal(entry.fn(jnp.asarray(variable.numpy()), indices), expected)


@pytest.mark.full
def test_traced_indices_out_of_range_give_zeros():
    function = jax.jit(lambda p, i: (gather.gather_v2(p, i, np.array(0)), gather.gather_nd(p, i[:, None])))
    for result in function(jnp.ones((3, 2)), jnp.array([3, -1, 1])):
        np.testing.assert_array_equal(result, [[0, 0], [0, 0], [1, 1]])
    grad = jax.grad(lambda p: gather.gather_v2(p, jnp.array([3, -1, 1]), np.array(0)).sum())(jnp.ones((3, 2)))
    np.testing.assert_array_equal(grad, [[0, 0], [1, 1], [0, 0]])
