"""Scatters into tensors and variables against TensorFlow."""

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
from tf2jax_lite.ops.arrays import scatter

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
NAN, INF = np.nan, np.inf


M = np.arange(12.0).reshape(4, 3)
I = np.int32([[2], [0]])  # noqa: E741
U = np.array([[100.0, 5, 1], [3, 4, 100]])
# Index vectors and shapes of updates.
INDICES = {
    "row": ([[1]], (1, 3)),
    "element": ([[1, 2]], (1,)),
    "batch": ([[[0], [3]], [[1], [2]]], (2, 2, 3)),
    "elements": ([[[0, 1], [3, 2]]], (1, 2)),
    "repeated": ([[1], [3], [1], [1]], (4, 3)),
    "none": (np.zeros((0, 1)), (0, 3)),
}


def updates(shape):
    return (np.arange(float(np.prod(shape))) * 3 % 7 + 0.5).reshape(shape)


TENSOR_OPS = [f"TensorScatter{kind}" for kind in ("Add", "Sub", "Max", "Min", "Update")]

CASES = [
    *(case("ScatterNd", I, cast(U, t), np.int32([4, 3])) for t in (*FLOATS, *INTS, *COMPLEX)),
    case("ScatterNd", np.int32([[1], [1], [0]]), np.array([True, True, False]), np.int32([3])),
    case("ScatterNd", np.int32([[0], [0]]), np.int8([100, 100]), np.int32([1])).using(name="wrap"),
    *(
        case("ScatterNd", np.array(indices, t), updates(shape), np.array([4, 3], t)).using(name=f"{name}-{t}")
        for name, (indices, shape) in INDICES.items()
        for t in ("int32", "int64")
    ),
    case("ScatterNd", I, U, np.int32([4, 3])).using(symbolic=("n, 1", "n, 3"), name="sym"),
    case("ScatterNd", I, U, np.int32([4, 3])).using(baked=("indices",), name="constant"),
    case("ScatterNd", np.int32([[1], [4], [0]]), np.float32([1, 2, 3]), np.int32([4]), bad_indices_policy="IGNORE")
    .using(grad=False),
    case("ScatterNd", np.int32([[1], [-1]]), np.float32([1, 2]), np.int32([4]), bad_indices_policy="IGNORE")
    .using(grad=False, name="negative"),
    case("ScatterNd", I, U, np.int32([4, 3]), bad_indices_policy="ERROR"),
    case("ScatterNd", np.zeros((0, 1), np.int32), np.zeros((0, 2)), np.int32([0, 2])).using(name="empty"),
    case("ScatterNd", np.zeros(0, np.int32), np.zeros(0), np.int32([0])).using(name="nothing into nothing"),
    case("ScatterNd", np.int32([[4]]), np.float32([2]), np.int32([4])).using(error="does not index", name="high"),
    case("ScatterNd", np.int32([[-1]]), np.float32([2]), np.int32([4])).using(error="does not index", name="low"),
    case("ScatterNd", np.int32([[1]]), np.float32([2, 3]), np.int32([4])).using(error="updates must", name="shape"),
    case("ScatterNd", np.int32(1), np.float32([2, 3]), np.int32([4])).using(error="at least one dim", name="rank0"),
    case("ScatterNd", np.int32([[1, 1]]), np.float32([2]), np.int32([4])).using(error="of length 2", name="deep"),
    case("ScatterNd", np.zeros((2, 0), np.int32), np.float32([2, 3]), np.int32([])).using(error="empty", name="depth0"),
    *(
        case(op, cast(M, t), I, cast(U, t))
        for op in TENSOR_OPS
        for t in (*FLOATS, *INTS, *COMPLEX)
        if t not in COMPLEX or op not in ("TensorScatterMax", "TensorScatterMin")
    ),
    case("TensorScatterUpdate", np.array([True, False]), np.int32([[1]]), np.array([True])),
    *(
        case(op, M, np.array(indices, t), updates(shape) * 2).using(name=f"{name}-{t}")
        for op in TENSOR_OPS
        for name, (indices, shape) in INDICES.items()
        for t in ("int32", "int64")
    ),
    *(
        # Ties: between the tensor and updates, among updates, both.
        case(op, np.float64([1, 2, 3, 1]), np.int32([[0], [0], [1], [1], [2], [3]]), np.float64([5, 5, 2, 2, 9, 1]))
        .using(name="ties")
        for op in ("TensorScatterMax", "TensorScatterMin")
    ),
    *(
        case(op, np.float32(x), np.int32(indices), np.float32(y)).using(name=f"nan-{np.ndim(x)}", grad=False)
        for op in TENSOR_OPS
        for x, indices, y in (
            ([1, NAN, 1, -INF, INF], [[1], [2], [0], [3], [4]], [1, NAN, 3, NAN, 1]),
            ([[1, NAN, 1, -INF, INF, 0, 0, 2, NAN]], [[0]], [[NAN, 1] + [NAN] * 7]),
        )
    ),
    *(case(op, M, I, U).using(symbolic=("b, 3", "n, 1", "n, 3"), name="sym") for op in TENSOR_OPS),
    *(case(op, M, I, U).using(baked=("indices",), name="constant") for op in TENSOR_OPS),
    *(
        case(op, M, np.int32([[1], [4], [-1]]), updates((3, 3)), bad_indices_policy="IGNORE").using(
            grad=op in ("TensorScatterMax", "TensorScatterMin")
        )
        for op in TENSOR_OPS
    ),
    *(case(op, M, np.int32([[4]]), updates((1, 3))).using(error="does not index", name="high") for op in TENSOR_OPS),
    *(
        case(op, np.zeros((0, 3)), np.zeros((0, 1), np.int32), np.zeros((0, 3))).using(name="empty")
        for op in TENSOR_OPS
    ),
    *(case("ScatterNdNonAliasingAdd", cast(M, t), I, cast(U, t)) for t in (*FLOATS, "complex64", "uint8", "int64")),
    case("ScatterNdNonAliasingAdd", np.array([True, False]), np.int32([[1], [1]]), np.array([True, True])),
    case("ScatterNdNonAliasingAdd", M, np.int64([[1], [1]]), updates((2, 3))),
]  # fmt: skip


KINDS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Update")


TESTED_OTHERWISE = {
    *(f"ResourceScatter{kind}" for kind in KINDS),
    *(f"ResourceScatterNd{kind}" for kind in KINDS if kind not in ("Mul", "Div")),
}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def check_variable_op(name, initial, *inputs, **attrs):
    """Compare a scatter into a variable, for constant and traced indices."""
    variable = tf.Variable(initial)
    getattr(tf.raw_ops, name)(
        **dict(
            zip(["ref" if "Nd" in name else "resource", "indices", "updates"], [variable.handle, *inputs], strict=True)
        ),
        **attrs,
    )
    expected = variable.numpy()
    entry = registry.lookup(name)
    assert entry.reads == entry.writes == entry.inputs[:1]
    with jax.enable_x64(True):
        for actual in (
            entry.fn(jnp.asarray(initial), *inputs, **attrs),
            jax.jit(lambda *args: entry.fn(*args, **attrs))(jnp.asarray(initial), *inputs),
        ):
            assert actual.dtype == expected.dtype
            rtol = 1e-5 if expected.dtype.itemsize > 2 else 2e-2  # one division where TensorFlow rounds several
            np.testing.assert_allclose(actual.astype(np.complex128), expected.astype(np.complex128), rtol=rtol)


@pytest.mark.default_cases("complex64-Max", "complex64-Min")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int64", "uint8", "complex64"])
def test_scatter_into_a_variable(kind, dtype):
    if dtype == "complex64" and kind in ("Max", "Min"):
        pytest.skip("complex numbers have no order")
    initial = cast(np.arange(12).reshape(4, 3) * 7, dtype)
    for indices, shape in (
        (np.int32([2, 0]), (2, 3)),
        (np.int64(1), (3,)),
        (np.int32([[3, 1]]), (1, 2, 3)),
        (np.int32([2, 0]), ()),
        (np.int32([1, 1, 3, 1]), (4, 3)),
    ):
        if kind == "Update" and not shape:  # TensorFlow broadcasts scalars in arithmetic only
            continue
        check_variable_op(f"ResourceScatter{kind}", initial, indices, cast(updates(shape) + 1, dtype))


@pytest.mark.full
def test_scatter_scalars_into_a_vector():
    check_variable_op("ResourceScatterUpdate", np.float32([1, 2, 3]), np.int32(1), np.float32(5))
    check_variable_op("ResourceScatterUpdate", np.array([True, False]), np.int32([1]), np.array([True]))
    check_variable_op("ResourceScatterAdd", np.float32([1, 2, 3]), np.int32([1, 1]), np.float32([5, 6]))
    check_variable_op("ResourceScatterMax", np.float32([1, NAN, 3]), np.int32([0, 1]), np.float32([NAN, 6]))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Add", "Sub", "Max", "Min", "Update"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_scatter_nd_into_a_variable(kind, dtype):
    for indices, shape in INDICES.values():
        indices = np.array(indices, np.int32)
        check_variable_op(f"ResourceScatterNd{kind}", cast(M, dtype), indices, cast(updates(shape), dtype))
    check_variable_op(
        f"ResourceScatterNd{kind}",
        cast(M, dtype),
        np.int32([[1], [9], [-1]]),
        cast(updates((3, 3)), dtype),
        bad_indices_policy="IGNORE",
    )


@pytest.mark.full
def test_traced_indices_out_of_range_are_dropped():
    indices = jnp.array([[3], [-1], [1]])
    result = jax.jit(scatter.tensor_scatter_add)(jnp.zeros(3), indices, jnp.ones(3))
    np.testing.assert_array_equal(result, [0, 1, 0])
    with pytest.raises(OpError, match="does not index"):
        registry.lookup("ResourceScatterAdd").fn(jnp.zeros(3), np.int32([3]), np.float32([1]))


@pytest.mark.parametrize("name", ["TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub"])
def test_constant_folding_of_a_scatter(name):
    for indices, shape in INDICES.values():
        indices = np.array(indices, np.int32)
        expected = tf.raw_ops.__dict__[name](tensor=M, indices=indices, updates=updates(shape)).numpy()
        np.testing.assert_array_equal(registry.lookup(name).fold(M, indices, updates(shape)), expected)
    indices = np.int32([[1], [9], [-1]])
    ignore = {"bad_indices_policy": "IGNORE"}
    expected = tf.raw_ops.__dict__[name](tensor=M, indices=indices, updates=updates((3, 3)), **ignore).numpy()
    np.testing.assert_array_equal(registry.lookup(name).fold(M, indices, updates((3, 3)), **ignore), expected)


@pytest.mark.full
def test_symbolic_dimensions_are_folded():
    (b,) = jax.export.symbolic_shape("b")
    shape = np.empty(3, object)
    shape[:] = [b, 3, 4]
    stitched = registry.lookup("DynamicStitch").fold([np.int32([0, 1, 2]), np.int32([1])], [shape, np.int32([1])])
    assert stitched.tolist() == [b, 1, 4]
    update = registry.lookup("TensorScatterUpdate").fold
    assert update(np.int32([1, 2, 3]), np.int32([[1]]), shape[:1]).tolist() == [1, b, 3]
    assert update(shape, np.int32([[0]]), np.int32([7])).tolist() == [7, 3, 4]
