"""Sparse tensors against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast, converted
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.common import rows
from tf2jax_lite.ops.sparse import coo_arithmetic

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16"]
ALL = [*FLOATS, *INTS]
COMPLEX = ["complex64", "complex128"]


def ints(*rows):
    return np.array(rows, np.int64)


AI = ints([0, 1], [0, 3], [1, 0], [2, 2])
AV = np.array([1.0, -2.0, 3.0, 0.5])
SHAPE = np.array([3, 4], np.int64)
BI = ints([0, 0], [0, 3], [1, 1], [2, 2])
BV = np.array([4.0, 2.0, -1.0, -0.5])
SHUFFLED = np.array([2, 0, 3, 1])
DENSE = np.arange(8.0).reshape(4, 2) - 3
ADJ = np.arange(6.0).reshape(3, 2) - 2
I3 = ints([0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0])
V3 = np.array([1.0, 2.0, -1.0, 3.0])
S3 = np.array([2, 2, 2], np.int64)
NONE = np.zeros((0, 2), np.int64)
CV = AV * (1 + 2j)

IN = ("indices", "dense_shape", "shape")
AB = ("a_indices", "b_indices", "a_shape", "b_shape", "thresh")
RED = ("input_indices", "input_shape", "reduction_axes")

CASES = [
    # products and sums with dense tensors
    *(case("SparseTensorDenseMatMul", AI, cast(AV, t), SHAPE, cast(DENSE, t)) for t in [*FLOATS, "int32"]),
    *(
        case("SparseTensorDenseMatMul", AI, cast(CV, t), SHAPE, cast(b * (1 - 1j), t), adjoint_a=a, adjoint_b=bb)
        for t in COMPLEX
        for a in (False, True)
        for bb in (False, True)
        for b in [(ADJ if a else DENSE).T if bb else (ADJ if a else DENSE)]
    ),
    *(
        case("SparseTensorDenseMatMul", AI, AV, SHAPE, b, adjoint_a=a, adjoint_b=bb)
        for a in (False, True)
        for bb in (False, True)
        for b in [(ADJ if a else DENSE).T if bb else (ADJ if a else DENSE)]
    ),
    case("SparseTensorDenseMatMul", AI.astype(np.int32), AV, SHAPE, DENSE),
    case("SparseTensorDenseMatMul", AI, AV, SHAPE, DENSE).using(baked=("a_indices",), name="baked"),
    case("SparseTensorDenseMatMul", np.concatenate([AI, AI]), np.append(AV, AV), SHAPE, DENSE).using(name="repeated"),
    case("SparseTensorDenseMatMul", NONE, AV[:0], SHAPE, DENSE).using(name="none"),
    case("SparseTensorDenseMatMul", AI, AV, SHAPE, DENSE).using(symbolic=("n, 2", "n", "4, 2"), name="sym"),
    case("SparseTensorDenseMatMul", AI, AV, SHAPE, ADJ).using(error="inner dimensions", name="inner"),
    case("SparseTensorDenseMatMul", AI + 2, AV, SHAPE, DENSE).using(
        error="out of bounds", baked=("a_indices",), name="range"
    ),
    *(
        case("SparseTensorDenseAdd", AI, cast(AV, t), SHAPE, cast(DENSE.reshape(2, 4).repeat(2, 0)[:3], t))
        for t in ["float64", "float32", "int32", "int64", "complex64"]
    ),
    case("SparseTensorDenseAdd", I3.astype(np.int32), V3, S3.astype(np.int32), np.ones((2, 2, 2))),
    case("SparseTensorDenseAdd", AI, AV, SHAPE, np.ones((4, 3))).using(error="a dense tensor of shape", name="shape"),
    # to dense
    *(case("SparseToDense", AI, SHAPE, cast(AV, t), cast(-1 if t[0] != "u" else 1, t)) for t in [*ALL, *COMPLEX]),
    case("SparseToDense", AI, SHAPE, AV > 0, np.bool_(True)),
    case("SparseToDense", AI.astype(np.int32), SHAPE.astype(np.int32), AV, 7.0),
    case("SparseToDense", np.int32([0, 2]), np.int32([4]), np.float32([1, 2]), np.float32(0)),
    case("SparseToDense", np.int32([0, 2]), np.int32([4]), np.float32(5), np.float32(0)),
    case("SparseToDense", np.int32(2), np.int32([4]), np.float32(5), np.float32(0)),
    case("SparseToDense", NONE, SHAPE, AV[:0], 1.5).using(name="none"),
    case("SparseToDense", AI[SHUFFLED], SHAPE, AV, 0.0, validate_indices=False).using(name="shuffled"),
    case("SparseToDense", AI, SHAPE, AV, 0.0).using(baked=("sparse_indices",), name="baked"),
    case("SparseToDense", AI, SHAPE, AV, 0.0).using(symbolic=("n, 2", "n", ""), name="sym"),
    case("SparseToDense", AI[SHUFFLED], SHAPE, AV, 0.0).using(error="out of order", name="order"),
    case("SparseToDense", AI, SHAPE, AV[:3], 0.0).using(error="4 indices for 3 values", name="count"),
    # sparse with dense, element by element
    *(
        case(op, AI, cast(AV, t), SHAPE, cast(d, t))
        for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv")
        for t in ("float64", "float32", "bfloat16", "int32", "int64")
        for d in (np.arange(12).reshape(3, 4) + 1, [[1], [2], [4]], [1, 2, 3, 4], [[1, 2, 3, 4]], 2)
    ),
    *(
        case(op, AI, AV, SHAPE, np.arange(12.0).reshape(3, 4) + 1).using(baked=("sp_indices", "sp_shape"), name="baked")
        for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv")
    ),
    case("SparseDenseCwiseDiv", AI, AV, SHAPE, np.zeros(4)).using(
        baked=("dense",), error="divide by zero", name="zero"
    ),
    case("SparseDenseCwiseMul", AI, AV, SHAPE, np.ones((2, 4))).using(baked=("sp_shape",), error="does not broadcast"),
    case("SparseDenseCwiseMul", AI, AV, SHAPE, np.ones((1, 3, 4))).using(error="does not broadcast", name="rank"),
    # order and shape
    *(case("SparseReorder", AI[SHUFFLED], cast(AV, t), SHAPE) for t in [*ALL, *COMPLEX]),
    case("SparseReorder", AI[SHUFFLED], AV, SHAPE).using(baked=("input_indices",), name="baked"),
    case("SparseReorder", I3[SHUFFLED], V3, S3),
    case("SparseReorder", NONE, AV[:0], SHAPE).using(name="none"),
    case("SparseReorder", AI[SHUFFLED], AV, SHAPE).using(symbolic=("n, 2", "n", "2"), name="sym"),
    *(
        case("SparseReshape", AI, SHAPE, np.array(s, np.int64)).using(baked=b, name=f"{s}-{len(b)}")
        for s in ([12], [4, 3], [2, -1], [2, 3, 2], [-1, 1, 6, 1])
        for b in ((), ("input_shape", "new_shape"), ("input_indices", "input_shape", "new_shape"))
    ),
    case("SparseReshape", NONE, np.int64([0, 4]), np.int64([2, 0])).using(name="empty"),
    case("SparseReshape", AI, SHAPE, np.int64([5, -1])).using(
        error="cannot reshape", baked=("input_shape", "new_shape"), name="division"
    ),
    case("SparseReshape", AI, SHAPE, np.int64([-1, -1])).using(
        error="only one", baked=("input_shape", "new_shape"), name="two"
    ),
    *(
        case("SparseConcat", [AI, BI], [AV, BV], [SHAPE, SHAPE], concat_dim=d).using(baked=b, name=f"{d}-{len(b)}")
        for d in (0, 1, -1, -2)
        for b in ((), ("shapes",), ("shapes", "indices"), ("shapes", "indices", "values"))
    ),
    *(case("SparseConcat", [I3, I3, I3], [V3, V3, V3], [S3, S3, S3], concat_dim=d) for d in (0, 1, 2)),
    case("SparseConcat", [AI, NONE], [AV, AV[:0]], [SHAPE, np.int64([3, 2])], concat_dim=1).using(name="none"),
    case("SparseConcat", [AI, BI], [AV, BV], [SHAPE, np.int64([4, 4])], concat_dim=1).using(
        error="differ outside", baked=("shapes",), name="shapes"
    ),
    # merging
    *(
        case("SparseAdd", AI, cast(AV, t), SHAPE, BI, cast(BV, t), SHAPE, cast(0, r)).using(baked=AB)
        for t, r in (*((t, t) for t in ("float64", "float32", "int32", "int64", "int16")), ("complex64", "float32"))
    ),
    *(
        case("SparseAdd", AI, AV, SHAPE, BI, BV, SHAPE, th).using(baked=(*AB, "a_values", "b_values"), name=f"{th}")
        for th in (0.0, 0.25, 1.0, 4.0, 100.0)
    ),
    *(case("SparseAdd", AI, AV, SHAPE, BI, BV, SHAPE, th).using(jit=False, name=f"eager-{th}") for th in (0.0, 1.0)),
    case("SparseAdd", NONE, AV[:0], SHAPE, BI, BV, SHAPE, 0.0).using(baked=AB, name="none"),
    case("SparseAdd", AI, AV, SHAPE, BI, BV, SHAPE + 1, 0.0).using(baked=AB, error="differ", name="shapes"),
    *(
        case("SparseAddGrad", np.arange(6.0) + 1, AI, BI, np.unique(np.concatenate([AI, BI]), axis=0)).using(
            baked=b, name=f"{len(b)}"
        )
        for b in ((), ("a_indices", "b_indices", "sum_indices"))
    ),
    *(
        case(op, AI, cast(AV, t), SHAPE, BI, cast(BV, t), SHAPE).using(baked=AB[:4])
        for op in ("SparseSparseMaximum", "SparseSparseMinimum")
        for t in ("float64", "float32", "bfloat16", "int32", "uint8")
    ),
    *(
        case(op, AI, [np.nan, 1, 2, 3], SHAPE, AI, [0, np.nan, 5, 1], SHAPE).using(baked=AB[:4], name="nan")
        for op in ("SparseSparseMaximum", "SparseSparseMinimum")
    ),
    case("SparseSparseMaximum", AI, AV, SHAPE, BI, BV, SHAPE).using(jit=False, name="eager"),
    # row filling, slices, splits
    *(
        case("SparseFillEmptyRows", i, cast(AV, t), np.int64([5, 4]), cast(9, t)).using(baked=IN, name=f"{t}-{n}")
        for t in ("float64", "float32", "bfloat16", "int32", "int64", "bool")
        for n, i in (
            ("sorted", AI + np.int64([[1, 0]])),
            ("shuffled", AI[SHUFFLED]),
            ("full", ints([0, 1], [1, 1], [2, 0], [4, 0])),
        )
    ),
    case("SparseFillEmptyRows", AI, AV, np.int64([5, 4]), 9.0).using(jit=False, name="eager"),
    case("SparseFillEmptyRows", NONE, AV[:0], np.int64([2, 4]), 9.0).using(baked=IN, name="none"),
    case("SparseFillEmptyRows", NONE, AV[:0], np.int64([0, 4]), 9.0).using(baked=IN, name="no-rows"),
    case("SparseFillEmptyRows", I3, V3, np.int64([4, 2, 2]), 9.0).using(baked=IN, name="rank3"),
    case("SparseFillEmptyRows", AI, AV, np.int64([5, 4]), 9.0)
    .using(error="dynamic_shape_bound", name="traced-eager")
    .using(error="", jit=False),
    case("SparseFillEmptyRows", AI, AV, np.int64([2, 4]), 9.0).using(baked=IN, error="out of bounds", name="range"),
    *(
        case(op, np.int64([2, 1, 0, 4]), cast(np.arange(5) + 1, t))
        for op in ("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")
        for t in ("float64", "float32", "int32")
    ),
    *(
        case("RaggedFillEmptyRows", np.int64([1, 1, 3]), cast([1, 2, 3], t), np.int64(5), cast(7, t)).using(
            baked=("value_rowids", "nrows")
        )
        for t in ("float64", "float32", "int32")
    ),
    case("RaggedFillEmptyRows", np.int64([1, 1, 3]), [1.0, 2.0, 3.0], np.int64(5), 7.0).using(jit=False, name="eager"),
    *(
        case("SparseSlice", AI, cast(AV, t), SHAPE, np.int64(start), np.int64(size)).using(
            baked=("indices", "shape", "start", "size"), name=f"{t}-{start}-{size}"
        )
        for t in ("float64", "float32", "int32")
        for start, size in (([0, 0], [3, 4]), ([0, 1], [1, 3]), ([1, 0], [5, 2]), ([5, 0], [1, 1]), ([0, 0], [0, 4]))
    ),
    case("SparseSlice", AI, AV, SHAPE, np.int64([1, 0]), np.int64([2, 2])).using(jit=False, name="eager"),
    case("SparseSlice", AI, AV, SHAPE, np.int64([1, 0]), np.int64([-1, 2])).using(
        baked=("indices", "shape", "start", "size"), error="negative"
    ),
    *(
        case("SparseSliceGrad", [5.0, 6.0], AI, np.int64([0, 1]), ints([0, 0], [0, 2])).using(baked=b, name=f"{len(b)}")
        for b in ((), ("input_indices", "input_start", "output_indices"))
    ),
    *(
        case("SparseSplit", np.int64(d), AI, AV, SHAPE, num_split=n).using(
            baked=("split_dim", "indices", "shape"), name=f"{d}-{n}"
        )
        for d, n in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4), (-1, 3))
    ),
    case("SparseSplit", np.int64(1), AI, AV, SHAPE, num_split=2).using(jit=False, name="eager"),
    case("SparseSplit", np.int64(0), AI, AV, SHAPE, num_split=4).using(
        baked=("split_dim", "indices", "shape"), error="num_split must be"
    ),
    # softmax and reductions
    *(case("SparseSoftmax", AI, cast(AV, t), SHAPE) for t in ("float64", "float32", "float16")),
    case("SparseSoftmax", I3, V3, S3),
    case("SparseSoftmax", AI, AV * 1000, SHAPE).using(name="large"),
    case("SparseSoftmax", NONE, AV[:0], SHAPE).using(name="none"),
    case("SparseSoftmax", AI, AV, SHAPE).using(baked=("sp_indices", "sp_shape"), name="baked"),
    *(
        case("SparseReduceSum", AI, cast(AV, t), SHAPE, np.int32([1]))
        for t in ("float64", "float32", "int32", "int64", "complex64")
    ),
    *(case("SparseReduceMax", AI, cast(AV, t), SHAPE, np.int32([1])) for t in ("float64", "float32", "int32", "uint8")),
    *(
        case(op, AI, AV, SHAPE, np.array(axes, np.int32), keep_dims=k)
        for op in ("SparseReduceSum", "SparseReduceMax")
        for axes in ([], [0], [-1], [0, 1], [1, 0])
        for k in (False, True)
    ),
    *(
        case(op, I3, V3, S3, np.array(axes, np.int32), keep_dims=k)
        for op in ("SparseReduceSum", "SparseReduceMax")
        for axes in ([1], [0, 2], [2, 1])
        for k in (False, True)
    ),
    case("SparseReduceSum", NONE, AV[:0], SHAPE, np.int32([1])).using(name="none"),
    case("SparseReduceSum", AI, AV, SHAPE, np.int32([2])).using(error="out of range", name="axis"),
    *(
        case(op, i, v, s, np.array(axes, np.int32), keep_dims=k).using(baked=RED, name=f"{len(s)}-{axes}-{k}")
        for op in ("SparseReduceSumSparse", "SparseReduceMaxSparse")
        for i, v, s, axes in (
            (AI, AV, SHAPE, []),
            (AI, AV, SHAPE, [0]),
            (AI, AV, SHAPE, [-1]),
            (AI, AV, SHAPE, [0, 1]),
            (I3, V3, S3, [1]),
            (I3, V3, S3, [2, 0]),
        )
        for k in (False, True)
    ),
    case("SparseReduceSumSparse", AI, AV, SHAPE, np.int32([1])).using(jit=False, name="eager"),
    # edit distance
    *(
        case("EditDistance", i, cast(v, t), s, j, cast(w, t), u, normalize=n).using(
            baked=("hypothesis_shape", "truth_shape"), name=f"{t}-{name}-{n}"
        )
        for t in ("int64", "int32", "float32")
        for n in (False, True)
        for name, i, v, s, j, w, u in (
            (
                "words",
                ints([0, 0], [0, 1], [0, 2], [1, 0], [1, 1]),
                [1, 2, 3, 4, 5],
                np.int64([2, 3]),
                ints([0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [1, 3]),
                [1, 3, 5, 4, 5, 6],
                np.int64([2, 4]),
            ),
            (
                "empty",
                ints([1, 0], [2, 0]),
                [1, 2],
                np.int64([4, 1]),
                ints([0, 0], [2, 0], [2, 1]),
                [7, 2, 2],
                np.int64([4, 2]),
            ),
        )
    ),
    case(
        "EditDistance",
        ints([0, 0, 0], [1, 0, 0]),
        np.array([b"a", b"b"]),
        np.int64([2, 1, 1]),
        ints([0, 0, 0], [0, 0, 1], [1, 0, 0]),
        np.array([b"a", b"c", b"x"]),
        np.int64([2, 1, 2]),
    ).using(baked=("hypothesis_shape", "truth_shape", "hypothesis_indices", "truth_indices"), name="strings"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def dense(i, v, s):
    return tf.sparse.to_dense(tf.sparse.reorder(tf.SparseTensor(i, v, s)))


def fill(i, v):
    out = tf.raw_ops.SparseFillEmptyRows(indices=i, values=v, dense_shape=[5, 4], default_value=9.0)
    return dense(out[0], out[1], [5, 4]), *out[2:]


def embedding(i, v):
    filled = tf.sparse.fill_empty_rows(tf.SparseTensor(i, v, [5, 4]), 1.0)[0]
    return tf.sparse.sparse_dense_matmul(filled, tf.reshape(tf.range(8.0), [4, 2]))


PADDED = {
    "fill": fill,
    "embedding": embedding,
    "add": lambda i, v: tf.sparse.to_dense(
        tf.sparse.add(tf.SparseTensor(i, v, SHAPE), tf.SparseTensor(BI, BV.astype("f"), SHAPE))
    ),
    "threshold": lambda i, v: tf.sparse.to_dense(
        tf.sparse.add(tf.SparseTensor(i, v, SHAPE), tf.SparseTensor(BI, BV.astype("f"), SHAPE), threshold=1.0)
    ),
    "maximum": lambda i, v: tf.sparse.to_dense(
        tf.sparse.maximum(tf.SparseTensor(i, v, SHAPE), tf.SparseTensor(BI, BV.astype("f"), SHAPE))
    ),
    "slice": lambda i, v: tf.sparse.to_dense(tf.sparse.slice(tf.SparseTensor(i, v, SHAPE), [0, 1], [2, 3])),
    "split": lambda i, v: [tf.sparse.to_dense(p) for p in tf.sparse.split(tf.SparseTensor(i, v, SHAPE), 2, 1)],
    "concat of slices": lambda i, v: tf.sparse.to_dense(
        tf.sparse.concat(1, [tf.sparse.slice(tf.SparseTensor(i, v, SHAPE), [0, 0], [3, 2])] * 2)
    ),
    "reshaped slice": lambda i, v: tf.sparse.to_dense(
        tf.sparse.reshape(tf.sparse.slice(tf.SparseTensor(i, v, SHAPE), [0, 0], [3, 2]), [2, 3])
    ),
    "reduce": lambda i, v: tf.sparse.to_dense(
        tf.sparse.reduce_sum(tf.SparseTensor(i, v, SHAPE), axis=1, output_is_sparse=True)
    ),
    "reduce, keep": lambda i, v: tf.sparse.to_dense(
        tf.sparse.reduce_max(tf.SparseTensor(i, v, SHAPE), axis=0, keepdims=True, output_is_sparse=True)
    ),
    "reduce all": lambda i, v: tf.raw_ops.SparseReduceSumSparse(
        input_indices=i, input_values=v, input_shape=SHAPE, reduction_axes=[0, 1]
    )[1],
}


@pytest.mark.default_cases("order1-fill")
@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 2]])
def test_traced_indices_with_a_bound(name, order):
    fn = PADDED[name]
    args = AI[order], AV[order].astype(np.float32)
    with jax.enable_x64(True):
        run = jax.jit(converted(fn, *args, dynamic_shape_bound=1 if name == "reduce all" else 9))
        for e, a in zip(tf.nest.flatten(fn(*args)), jax.tree.leaves(run(*args)), strict=True):
            np.testing.assert_allclose(a, e)


@pytest.mark.default_cases("reshaped slice")
@pytest.mark.parametrize("name", ["slice", "split", "concat of slices", "reshaped slice", "reduce", "reduce, keep"])
def test_traced_indices_without_a_bound(name):
    fn, args = PADDED[name], (AI, AV.astype(np.float32))
    with tf.GradientTape() as tape:
        values = tf.constant(args[1])
        tape.watch(values)
        expected = tf.nest.flatten(fn(AI, values))
        total = tf.add_n([tf.reduce_sum(e**2) for e in expected])
    jax_fn = converted(fn, *args)
    for e, a in zip(expected, jax.tree.leaves(jax.jit(jax_fn)(*args)), strict=True):
        np.testing.assert_allclose(a, e)
    try:
        grad = tape.gradient(total, values)
    except LookupError:  # TensorFlow has no gradient of sparse reductions
        return
    if grad is None:  # TensorFlow has none of concatenations either
        return
    found = jax.jit(jax.grad(lambda v: sum((a**2).sum() for a in jax.tree.leaves(jax_fn(AI, v)))))(args[1])
    np.testing.assert_allclose(found, tf.convert_to_tensor(grad), rtol=1e-6)


def test_dynamic_number_of_entries_as_result_needs_a_bound():
    args = AI, AV.astype(np.float32)
    with pytest.raises(ValueError, match="dynamic_shape_bound"):
        jax.jit(converted(PADDED["reduce all"], *args))(*args)


@pytest.mark.full
@pytest.mark.parametrize("name", ["add", "threshold"])
def test_sums_of_traced_indices_without_a_bound(name):
    fn, args = PADDED[name], (AI, AV.astype(np.float32))
    with tf.GradientTape() as tape:
        values = tf.constant(args[1])
        tape.watch(values)
        expected = fn(AI, values)
        total = tf.reduce_sum(expected**2)
    jax_fn = converted(fn, *args)
    np.testing.assert_allclose(jax.jit(jax_fn)(*args), expected)
    grad = jax.jit(jax.grad(lambda v: (jax_fn(AI, v) ** 2).sum()))(args[1])
    np.testing.assert_allclose(grad, tape.gradient(total, values), rtol=1e-6)


def test_maxima_of_traced_indices_without_a_bound():
    fn, args = PADDED["maximum"], (AI, AV.astype(np.float32))
    np.testing.assert_allclose(jax.jit(converted(fn, *args))(*args), fn(*args))


@pytest.mark.full
def test_strings_to_dense():
    def fn(x):
        table = tf.sparse.to_dense(tf.SparseTensor([[0, 1]], [b"a"], [2, 2]), default_value=b"b")
        return tf.cast(tf.equal(tf.shape(table)[0], 2), tf.float32) + x, table

    jax_fn = converted(fn, np.float32(1))
    assert jax_fn(np.float32(1))[1].tolist() == [[b"b", b"a"], [b"b", b"b"]]


def test_gradients_of_many_entries():
    """Many entries of sums are matched by sorting."""
    random = np.random.default_rng(0)
    a, b = (np.unique(random.integers(0, 100, (n, 2)), axis=0) for n in (3000, 2500))
    both = np.unique(np.concatenate([a, b]), axis=0)
    given = random.normal(size=len(both)).astype(np.float32)
    assert len(a) * len(both) > rows.MAX_COMPARED_PAIRS
    expected = tf.raw_ops.SparseAddGrad(backprop_val_grad=given, a_indices=a, b_indices=b, sum_indices=both)
    found = jax.jit(coo_arithmetic.sparse_add_grad)(given, a, b, both)
    np.testing.assert_array_equal(found[0], expected.a_val_grad)
    np.testing.assert_array_equal(found[1], expected.b_val_grad)
