"""Set operations against TensorFlow: eagerly, and under jit with reduced results."""

import itertools

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

DD, DS, SS = (f"{kind}SetOperation" for kind in ("DenseToDense", "DenseToSparse", "SparseToSparse"))
OPERATIONS = ("a-b", "b-a", "intersection", "union")
A, B = np.array([[1, 2, 2], [3, 4, 5]]), np.array([[2, 7, 9, 1], [5, 5, 5, 0]])
DEEP = np.random.default_rng(0).integers(0, 5, (2, 3, 4)), np.random.default_rng(1).integers(0, 5, (2, 3, 2))
INDICES, VALUES = np.array([[0, 0], [0, 2], [1, 1]]), np.array([9, 2, 4])
OTHER = np.array([[1, 0], [1, 5], [2, 3]]), np.array([4, 8, 3])
NO_INDICES, NO_VALUES = np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
TEXT = np.array([[b"b", b"a"], [b"c", b"c"]], object)

CASES = [
    *(case(DD, A, B, set_operation=o).using(jit=False) for o in (*OPERATIONS, "A-B")),
    *(
        case(DD, A.astype(t), B.astype(t), set_operation="intersection").using(jit=False)
        for t in ("int8", "int16", "int32", "uint8", "uint16")
    ),
    *(case(DD, *DEEP, set_operation=o).using(jit=False, name=f"deep-{o}") for o in OPERATIONS),
    case(DD, A[:0], B[:0], set_operation="union").using(jit=False, name="no-groups"),
    case(DD, A[:, :0], B[:, :0], set_operation="union").using(jit=False, name="empty"),
    case(DD, TEXT, TEXT[:, ::-1][::-1], set_operation="a-b").using(jit=False, name="text"),
    *(case(DS, A, INDICES, VALUES, np.array([2, 3]), set_operation=o).using(jit=False) for o in OPERATIONS),
    case(DS, A, NO_INDICES, NO_VALUES, np.array([2, 3]), set_operation="a-b").using(jit=False, name="empty"),
    *(
        case(SS, INDICES, VALUES, np.array([3, 3]), *OTHER, np.array([3, 6]), set_operation=o).using(jit=False)
        for o in OPERATIONS
    ),
    case(SS, *[NO_INDICES, NO_VALUES, np.array([3, 3])] * 2, set_operation="union").using(jit=False, name="empty"),
    *(
        case("SetSize", np.array([[0, 0], [0, 1], [2, 0], [2, 1]]), np.array([5, 5, 1, 2], t), np.array([3, 2])).using(
            baked=("set_shape",)
        )
        for t in ("int8", "int64", "uint16")
    ),
    case("SetSize", np.array([[0, 0, 1], [1, 2, 0]]), np.array([5, 6]), np.array([2, 3, 3])).using(
        baked=("set_shape",), name="deep"
    ),
    case("SetSize", NO_INDICES, NO_VALUES, np.array([3, 2])).using(baked=("set_shape",), name="empty"),
    case(DD, A, B, set_operation="xor").using(error="'xor' is none of"),
    case(DD, A, B[:1], set_operation="union").using(error="groups of shapes (2,) and (1,)", name="groups"),
    case(DD, A[0], B[0], set_operation="union").using(error="rank 1", name="rank"),
    case("SetSize", np.array([[0]]), np.array([5]), np.array([3])).using(error="rank 1", name="rank"),
    case(SS, INDICES, VALUES, np.array([1, 3]), *OTHER, np.array([1, 6]), set_operation="union").using(
        error="out of bounds", name="bounds"
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def sparse(values):
    return tf.sparse.from_dense(values)


KINDS = {"dense": (tf.identity, tf.identity), "mixed": (tf.identity, sparse), "sparse": (sparse, sparse)}
ALWAYS = {("dense", "difference"), ("dense", "intersection"), ("mixed", "union"), ("sparse", "difference")}


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(*pair, marks=[] if pair in ALWAYS else pytest.mark.full)
        for pair in itertools.product(KINDS, ("difference", "intersection", "union"))
    ],
)
def test_under_jit(kind, name):
    """Reduced results need no bound: sizes of sets, and sums of their values."""

    first, second = KINDS[kind]

    def fn(a, b):
        result = getattr(tf.sets, name)(first(a), second(b))
        row = tf.cast(result.indices[:, 0] * 10 + result.indices[:, -1], tf.float32)
        weighed = tf.reduce_sum(tf.cast(result.values, tf.float32) ** 2 * (row + 1))
        return tf.sets.size(result), weighed, result.dense_shape, tf.reduce_max(result.values)

    rng = np.random.default_rng(0)
    rows = rng.integers(1, 9, (6, 4, 3)), rng.integers(1, 9, (6, 4, 5))
    jax_fn = tf2jax.convert_functional(
        tf.function(fn), tf.TensorSpec([4, 3], tf.int64), tf.TensorSpec([4, 5], tf.int64)
    )
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(jax_fn))(*rows)
    for i, pair in enumerate(zip(*rows, strict=True)):
        for actual, expected in zip(found, fn(*pair), strict=True):
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual[i], expected)


def test_traced_sets_with_a_bound():
    def fn(a, b):
        result = tf.sets.intersection(a, b)
        return result.indices, result.values, result.dense_shape

    specs = tf.TensorSpec(A.shape, tf.int32), tf.TensorSpec(B.shape, tf.int32)
    with tf2jax.override_config("dynamic_shape_bound", 5):
        jax_fn = tf2jax.convert_functional(tf.function(fn), *specs)
    indices, values, shape = jax.jit(jax_fn)(A.astype(np.int32), B.astype(np.int32))
    np.testing.assert_array_equal(indices, [[0, 0], [0, 1], [1, 0], [-1, -1], [-1, -1]])
    np.testing.assert_array_equal(values, [1, 2, 5, 0, 0])
    np.testing.assert_array_equal(shape, [2, 2])
