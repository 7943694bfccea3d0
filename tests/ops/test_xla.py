"""Xla* ops. TensorFlow has no CPU kernels for most of them: the oracle is TensorFlow's own XLA compiler."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.xla import xla_data_pb2

import tf2jax_lite as tf2jax
from tf2jax_lite.ops import xla_protos, xla_reduce

from . import harness
from .harness import case, check

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
rng = np.random.default_rng(0)


def cast(value, dtype):
    return np.asarray(value).astype(BF16 if dtype == "bfloat16" else dtype)


def random(*shape, dtype="float32"):
    return cast(rng.integers(-8, 8, shape) / 2, dtype)


def i32(*values):
    return np.array(values, np.int32)


def numbers(kind, **fields):
    return getattr(xla_data_pb2, kind)(**fields).SerializeToString()


def scalar_fn(fn, *dtypes):
    return tf.function(fn).get_concrete_function(*(tf.TensorSpec([], d) for d in dtypes))


def fold(fn, dtype, count=2):
    return scalar_fn(fn, *[tf.dtypes.as_dtype(dtype)] * count)


def conv_numbers(lhs=(0, 3, 1, 2), rhs=(3, 2, 0, 1), out=(0, 3, 1, 2)):
    """Batch and feature (output and input feature), then spatial dimensions."""
    return numbers(
        "ConvolutionDimensionNumbers",
        input_batch_dimension=lhs[0],
        input_feature_dimension=lhs[1],
        input_spatial_dimensions=lhs[2:],
        kernel_output_feature_dimension=rhs[0],
        kernel_input_feature_dimension=rhs[1],
        kernel_spatial_dimensions=rhs[2:],
        output_batch_dimension=out[0],
        output_feature_dimension=out[1],
        output_spatial_dimensions=out[2:],
    )


HIGHEST = numbers("PrecisionConfig", operand_precision=[2, 2])
NHWC = conv_numbers()
NCHW = conv_numbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
ONE = conv_numbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
IMAGE = random(2, 5, 6, 4)
KERNEL = random(3, 2, 4, 6)
PADS = np.int32([[1, 0], [0, 2]])


def conv(
    lhs=IMAGE,
    rhs=KERNEL,
    strides=(1, 1),
    padding=PADS,
    base=(1, 1),
    inner=(1, 1),
    groups=1,
    numbers=NHWC,
    config=b"",
    **v2,
):
    return case(
        "XlaConvV2" if v2 else "XlaConv",
        lhs,
        rhs,
        i32(*strides),
        padding,
        i32(*base),
        i32(*inner),
        np.int32(groups),
        dimension_numbers=numbers,
        precision_config=config,
        **v2,
    )


def dot(lhs, rhs, contract, batch=((), ()), config=b"", **v2):
    proto = numbers(
        "DotDimensionNumbers",
        lhs_contracting_dimensions=contract[0],
        rhs_contracting_dimensions=contract[1],
        lhs_batch_dimensions=batch[0],
        rhs_batch_dimensions=batch[1],
    )
    return case("XlaDotV2" if v2 else "XlaDot", lhs, rhs, dimension_numbers=proto, precision_config=config, **v2)


def gather(operand, indices, sizes, vector=1, sorted=False, **fields):
    proto = numbers("GatherDimensionNumbers", index_vector_dim=vector, **fields)
    return case("XlaGather", operand, indices, i32(*sizes), dimension_numbers=proto, indices_are_sorted=sorted)


def scatter(operand, indices, updates, fn, vector=1, **fields):
    proto = numbers("ScatterDimensionNumbers", index_vector_dim=vector, **fields)
    return case(
        "XlaScatter",
        operand,
        indices,
        updates,
        update_computation=fold(fn, operand.dtype),
        dimension_numbers=proto,
        indices_are_sorted=False,
    )


def window(x, init, fn, size, strides=None, base=None, inner=None, padding=None):
    one = [1] * x.ndim
    return case(
        "XlaReduceWindow",
        x,
        cast(init, x.dtype),
        i32(*size),
        i32(*(strides or one)),
        i32(*(base or one)),
        i32(*(inner or one)),
        np.int32(padding if padding is not None else [[0, 0]] * x.ndim),
        computation=fold(fn, x.dtype),
    ).using(baked=("init_value",))


def select(x, source, size, strides, padding, ge=tf.greater_equal, fn=tf.add, init=0):
    return case(
        "XlaSelectAndScatter",
        x,
        i32(*size),
        i32(*strides),
        np.int32(padding),
        source,
        cast(init, x.dtype),
        select=fold(ge, x.dtype),
        scatter=fold(fn, x.dtype),
    )


def up_to_sign(expected, actual):
    """Compares vectors that are determined up to a factor of absolute value 1."""
    for e, a in zip(expected, actual, strict=True):
        if e.ndim == 1 or e.ndim + 1 == max(x.ndim for x in expected):
            np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_allclose(np.abs(a), np.abs(e), rtol=1e-4, atol=1e-5)


def biggest(a, i, b, j):
    keep = a >= b
    return tf.where(keep, a, b), tf.where(keep, i, j)


ROWS = random(4, 3)
TABLE = random(5, 4)
OFFSET = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0]}
UPDATE = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
AXES = ([0], [1], [0, 1], [])
SHARDED = numbers("OpSharding", type=3, tile_assignment_dimensions=[2, 1], tile_assignment_devices=[0, 1])
SYMMETRIC = np.float32([[4, 1, 2], [1, 3, 0], [2, 0, 1]])
FOLDS = {
    "add": tf.add,
    "mul": tf.multiply,
    "max": tf.maximum,
    "min": tf.minimum,
    "odd": lambda a, b: a + b + a * b,
}
START = {"add": 0, "mul": 1, "max": -100, "min": 100, "odd": 0}
LOGIC = {"and": tf.logical_and, "or": tf.logical_or}

CASES = [
    # products
    *(conv(cast(IMAGE, t), cast(KERNEL, t)) for t in ("float32", "float64", "bfloat16")),
    conv(strides=(2, 3)),
    conv(base=(2, 3)),
    conv(inner=(2, 2)),
    conv(padding=np.int32([[-2, 1], [1, -1]]), base=(2, 3)),
    conv(groups=2, rhs=random(3, 2, 2, 6)),
    conv(groups=4, rhs=random(3, 2, 1, 8)),
    conv(numbers=NCHW, lhs=random(2, 4, 5, 6), rhs=random(6, 4, 3, 2)),
    conv(
        numbers=ONE,
        lhs=random(2, 5, 3),
        rhs=random(2, 3, 4),
        strides=(1,),
        padding=np.int32([[1, 1]]),
        base=(1,),
        inner=(1,),
    ),
    conv(config=HIGHEST),
    conv().using(symbolic=("b, 5, 6, 4", "3, 2, 4, 6"), name="sym"),
    conv(padding=PADS.astype(np.int64), strides=(1, 1)).using(error="could not trace", name="types"),
    conv(preferred_element_type=tf.float32),
    conv(preferred_element_type=tf.float32, config=HIGHEST),
    conv(cast(IMAGE, "bfloat16"), cast(KERNEL, "bfloat16"), preferred_element_type=tf.float32),
    conv(cast(IMAGE, "int8"), cast(KERNEL, "int8"), preferred_element_type=tf.int32),
    conv(random(4, 5, 6, 4), random(3, 2, 4, 6), batch_group_count=2, preferred_element_type=tf.float32),
    *(dot(random(3, 4, dtype=t), random(4, 2, dtype=t), ([1], [0])) for t in (*FLOATS, "int32", "int64", "complex64")),
    dot(random(4, 3), random(2, 4), ([0], [1])),
    dot(random(2, 3, 4), random(2, 4, 5), ([2], [1]), ([0], [0])),
    dot(random(3, 2, 4), random(4, 5, 2), ([2], [0]), ([1], [2]), HIGHEST),
    dot(random(3, 2), random(4), ([], [])),
    dot(random(3, 4), random(4), ([1], [0])).using(symbolic=("b, 4", "4"), name="sym"),
    dot(random(3, 4), random(4, 2), ([1], [0]), preferred_element_type=tf.float32),
    dot(random(3, 4, dtype="int8"), random(4, 2, dtype="int8"), ([1], [0]), preferred_element_type=tf.int32),
    dot(random(3, 4, dtype="bfloat16"), random(4, 2, dtype="bfloat16"), ([1], [0]), preferred_element_type=tf.float32),
    *(
        case("XlaEinsum", random(*a, dtype=t), random(*b, dtype=t), equation=e)
        for e, a, b in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
            ("ab,cd->dacb", (2, 3), (1, 2)),
        )
        for t in ("float32", "bfloat16", "complex64")
    ),
    # parts of arrays
    *(
        case("XlaDynamicSlice", random(4, 5, dtype=t), np.array(start, it), np.array([2, 3], it)).using(
            name=f"{t}-{start}-{it}"
        )
        for t, it in (("float32", "int32"), ("int64", "int64"), ("bool", "int32"))
        for start in ([0, 0], [1, 2], [3, 4], [-1, 1], [9, -9])
    ),
    *(
        case("XlaDynamicUpdateSlice", random(4, 5, dtype=t), random(2, 3, dtype=t), np.array(start, "int32")).using(
            name=f"{t}-{start}"
        )
        for t in ("float32", "int32")
        for start in ([0, 0], [1, 2], [3, 4], [-1, 1])
    ),
    case("XlaDynamicSlice", random(4, 5), i32(1), i32(2, 3)).using(error="must be vectors", name="rank"),
    *(
        gather(random(5, 4, dtype=t), i32([0], [4], [2], [7], [-2]), (1, 4), **OFFSET)
        for t in ("float32", "int32", "bool")
    ),
    gather(TABLE, i32([0, 4, 2]), (1, 4), vector=0, **OFFSET),
    gather(TABLE, i32(0, 4, 2), (1, 4), **OFFSET).using(name="no vector"),
    gather(TABLE, i32([1, 2], [3, 3]), (2, 2), offset_dims=[0, 2], start_index_map=[0, 1]),
    gather(TABLE, i32([1, 2], [3, 3]), (2, 2), offset_dims=[0, 2], start_index_map=[1, 0]).using(name="swapped"),
    gather(TABLE, np.int64([[0], [1], [3]]), (1, 4), sorted=True, **OFFSET).using(
        error="could not trace", name="types"
    ),
    gather(TABLE, i32([0], [1], [3]), (1, 2), sorted=True, **OFFSET).using(name="sorted"),
    gather(TABLE, i32([0], [4]), (1, 4), **OFFSET).using(symbolic=("5, 4", "n, 1"), name="sym"),
    *(
        case(
            "XlaPad", random(2, 3, dtype=t), cast(7, t), np.array(low, it), np.array(high, it), np.array(inner, it)
        ).using(name=f"{t}-{low}-{high}-{inner}")
        for t, it in (("float32", "int32"), ("int64", "int64"), ("bool", "int32"))
        for low, high, inner in (([1, 0], [0, 2], [0, 0]), ([0, 1], [1, 0], [2, 1]), ([-1, 1], [0, -1], [1, 0]))
    ),
    case("XlaPad", random(2, 3), np.float32(0), i32(1, 0), i32(0, 1), i32(0, 0)).using(
        symbolic=("b, 3", ""), name="sym"
    ),
    case("XlaBroadcastHelper", random(2, 3), random(3), i32(1)),
    case("XlaBroadcastHelper", random(2), random(2, 3), np.int64([0])),
    case("XlaBroadcastHelper", random(2, 3), random(2, 3), np.zeros(0, np.int32)),
    case("XlaBroadcastHelper", random(2, 3), np.float32(2), np.zeros(0, np.int32)),
    case("XlaBroadcastHelper", random(2, 3, 4), random(4, 2), i32(2, 0)).using(error="in order", name="swapped"),
    case("XlaBroadcastHelper", random(2, 3), random(3), i32(5)).using(error="do not map", name="range"),
    *(
        case("XlaConcatND", [random(2, 3, dtype=t) for _ in range(6)], num_concats=n, paddings=p)
        for t in ("float32", "int32")
        for n, p in (([2, 3], [0, 0]), ([3, 2], [1, 2]), ([1, 6], [0, 5]), ([6, 1], []))
    ),
    case("XlaConcatND", [random(2, 1, 2) for _ in range(4)], num_concats=[2, 1, 2], paddings=[1, 0, 1]),
    case("XlaConcatND", [random(2)], num_concats=[1]),
    case("XlaConcatND", [random(2, 3)] * 4, num_concats=[2, 3]).using(error="do not fit", name="grid"),
    *(
        case("XlaSplitND", random(4, 6, dtype=t), N=6, num_splits=n, paddings=p)
        for t in ("float32", "int32")
        for n, p in (([2, 3], [0, 0]), ([3, 2], [2, 2]), ([1, 6], [1, 6]))
    ),
    case("XlaSplitND", random(4, 2, 3), N=4, num_splits=[2, 2, 1], paddings=[0, 0, 2]),
    case("XlaSplitND", random(4, 5), N=4, num_splits=[2, 2]).using(error="divide", name="division"),
    # sorting
    *(case("XlaSort", random(3, 5, dtype=t)) for t in (*FLOATS, *INTS)),
    case("XlaSort", np.float32([3, np.nan, -np.inf, np.inf, 0, -1])).using(name="hard"),
    *(
        case("XlaKeyValueSort", random(3, 5, dtype=t), np.arange(15, dtype=v).reshape(3, 5))
        for t in (*FLOATS, "int32", "uint8", "int64")
        for v in ("int32", "float32")
    ),
    # decompositions
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
    # numbers
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
    # reductions
    *(
        case(
            "XlaReduce",
            random(3, 4, dtype=t),
            cast(START[f], t),
            dimensions_to_reduce=axes,
            reducer=fold(FOLDS[f], t),
        ).using(name=f"{f}-{t}-{axes}", baked=("init_value",) if f == "odd" else ())
        for f, t, axes in (
            *((f, "float32", a) for f in FOLDS for a in AXES),
            *((f, t, [1]) for f in ("add", "max", "min") for t in ("float64", "bfloat16", "int32", "int64")),
        )
    ),
    *(
        case(
            "XlaReduce", random(3, 4), np.float32(init), dimensions_to_reduce=[1], reducer=fold(FOLDS[f], "float32")
        ).using(name=f"{f}-from-{init}")
        for f, init in (("add", 2.5), ("mul", 2), ("max", 1), ("min", -1), ("max", -np.inf), ("min", np.inf))
    ),
    *(
        case(
            "XlaReduce",
            random(3, 4) > 0,
            np.bool_(f == "and"),
            dimensions_to_reduce=[1],
            reducer=fold(LOGIC[f], "bool"),
        ).using(name=f)
        for f in LOGIC
    ),
    case("XlaReduce", random(0, 4), np.float32(3), dimensions_to_reduce=[0], reducer=fold(tf.add, "float32")).using(
        name="empty"
    ),
    *(
        case(
            "XlaVariadicReduce",
            [random(3, 4), random(3, 4)],
            [np.float32(-100), np.float32(100)],
            dimensions_to_reduce=axes,
            reducer=fold(lambda a, b, c, d: (tf.maximum(a, c), tf.minimum(b, d)), "float32", 4),
        ).using(name=f"{axes}", baked=("init_value",))
        for axes in AXES
    ),
    *(
        case(
            "XlaVariadicReduceV2",
            [np.float32([[1, 5, 2], [7, 0, -1]]), np.arange(6, dtype=np.int32).reshape(2, 3)],
            [np.float32(-100), np.int32(-1)],
            dimensions_to_reduce=axes,
            reducer=scalar_fn(biggest, tf.float32, tf.int32, tf.float32, tf.int32),
        ).using(name=f"{axes}", baked=("init_values",))
        for axes in ([0], [1], [0, 1])
    ),
    # windows
    *(
        window(random(6, 5, dtype=t), START[f], FOLDS[f], (2, 3)).using(name=f"{f}-{t}", grad=f != "odd")
        for f, t in (*((f, "float32") for f in FOLDS), *((f, t) for f in ("add", "max") for t in ("int32", "bfloat16")))
    ),
    window(random(6, 5), 0, tf.add, (2, 3), strides=(2, 1)).using(name="strides"),
    window(random(6, 5), 0, tf.add, (2, 3), padding=[[1, 0], [1, 1]]).using(name="padding"),
    window(random(6, 5), 0, tf.add, (2, 2), base=(2, 1), inner=(1, 2)).using(name="dilations"),
    *(
        window(random(6, 5), 1.5, f, (2, 3), base=(1, 2), padding=[[1, 0], [1, -1]]).using(
            baked=b, name=f"start-{n}-{len(b)}"
        )
        for n, f in (("add", tf.add), ("max", tf.maximum))
        for b in ((), ("init_value",))
    ),
    window(random(6, 5), -np.inf, tf.maximum, (2, 3), padding=[[1, 0], [1, 1]]).using(name="max"),
    *(
        window(random(6, 5), s, f, w, padding=p).using(name=f"cumulative-{n}-{w}-{p}")
        for n, f, s in (
            ("add", tf.add, 0),
            ("mul", tf.multiply, 1),
            ("max", tf.maximum, -np.inf),
            ("min", tf.minimum, np.inf),
        )
        for w, p in (((6, 1), [[5, 0], [0, 0]]), ((1, 5), [[0, 0], [0, 4]]))
    ),
    *(
        select(x, s, (2, 3), (2, 3), [[0, 0], [0, 0]], ge, fn, init).using(name=f"{n}-{x.dtype}", grad=False)
        for n, ge, fn, init in (
            ("max", tf.greater_equal, tf.add, 0),
            ("strict", tf.greater, tf.add, 0),
            ("min", tf.less_equal, tf.add, 1),
            ("product", tf.greater_equal, tf.multiply, 2),
        )
        for x, s in ((random(4, 6), random(2, 2)), (random(4, 6, dtype="int32"), random(2, 2, dtype="int32")))
    ),
    select(random(5, 5), random(3, 3), (3, 3), (2, 2), [[1, 1], [1, 1]]).using(name="overlap", grad=False),
    select(np.ones((4, 4), "f"), random(2, 2), (2, 2), (2, 2), [[0, 0], [0, 0]]).using(name="ties", grad=False),
    # scatter
    *(
        scatter(random(5, 4, dtype=t), i32([0], [4], [0], [7], [-1]), random(5, 4, dtype=t), FOLDS[f], **UPDATE).using(
            name=f"{f}-{t}"
        )
        for f, t in (
            *((f, "float32") for f in FOLDS),
            *((f, t) for f in ("add", "max") for t in ("int32", "bfloat16")),
        )
    ),
    *(
        scatter(random(5, 4), i32([0], [4], [2]), random(3, 4), f, **UPDATE).using(name=n)
        for n, f in (("set", lambda a, b: b), ("keep", lambda a, b: a), ("subtract", tf.subtract))
    ),
    *(
        scatter(random(5, 4) > 0, i32([0], [4], [2]), random(3, 4) > 0, f, **UPDATE).using(name=n)
        for n, f in LOGIC.items()
    ),
    *(
        scatter(
            random(5, 4),
            i32([1, 2], [3, 3], [0, 0]),
            random(3, 2, 2),
            f,
            update_window_dims=[1, 2],
            scatter_dims_to_operand_dims=order,
        ).using(name=f"box-{n}-{order}")
        for n, f in (("add", tf.add), ("odd", FOLDS["odd"]))
        for order in ([0, 1], [1, 0])
    ),
    scatter(random(5, 4), i32([0, 4, 2]), random(3, 4), tf.add, vector=0, **UPDATE).using(name="vector first"),
    scatter(random(5, 4), i32(0, 4, 2), random(3, 4), tf.add, **UPDATE).using(name="no vector"),
    # comparators
    *(
        case(
            "XlaVariadicSort",
            [random(3, 5), np.arange(15, dtype=np.int32).reshape(3, 5)],
            np.int32(d),
            comparator=scalar_fn(f, tf.float32, tf.float32, tf.int32, tf.int32),
            is_stable=True,
        ).using(name=f"{n}-{d}")
        for n, f in (
            ("less", lambda a, b, i, j: a < b),
            ("greater", lambda a, b, i, j: a > b),
            ("second", lambda a, b, i, j: i > j),
            ("both", lambda a, b, i, j: (a < b) | ((a == b) & (i > j))),
            ("absolute", lambda a, b, i, j: tf.abs(a) < tf.abs(b)),
        )
        for d in (0, 1)
    ),
    case("XlaVariadicSort", [i32(3, 1, 2)], np.int32(0), comparator=fold(tf.less, "int32"), is_stable=False).using(
        name="one"
    ),
    # hints and collectives
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


class Compiled(harness._Subject):
    """A subject whose TensorFlow side is compiled by XLA."""

    def __init__(self, case):
        super().__init__(case)
        self._oracle = tf.function(self._call_op, autograph=False, jit_compile=True)

    def tensorflow(self, *traced):
        with tf.device("cpu:0"):
            return [t.numpy() for t in self._oracle(*map(tf.constant, traced))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case, monkeypatch):
    monkeypatch.setattr(harness, "_Subject", Compiled)
    check(case.using(grad=False))


def test_negative_padding():
    # TensorFlow's XLA on CPU, as JAX's, reads past the array for it; so the oracle gets a smaller image.
    def fn(x, padding):
        return gen_xla_ops.xla_conv(x, KERNEL, [1, 1], padding, [1, 1], [1, 1], 1, NHWC, b"")

    jax_fn = tf2jax.convert_functional(lambda x: fn(x, [[-1, 1], [0, -2]]), tf.TensorSpec(IMAGE.shape))
    expected = tf.function(fn, jit_compile=True)(IMAGE[:, 1:, :-2], [[0, 1], [0, 0]])
    np.testing.assert_allclose(jax.jit(jax_fn)(IMAGE), expected, rtol=1e-5)


def test_replica_id():
    jax_fn = tf2jax.convert_functional(lambda x: x + gen_xla_ops.xla_replica_id(), tf.TensorSpec([], tf.int32))
    assert jax.jit(jax_fn)(np.int32(3)) == 3


@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_reductions_can_be_differentiated(name):
    def fn(x):
        return gen_xla_ops.xla_reduce(x, float(START[name]), [0], fold(FOLDS[name], "float32"))

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([3]))
    grad = jax.grad(jax_fn)(np.float32([1, 3, 2]))
    np.testing.assert_array_equal(grad, {"add": [1, 1, 1], "max": [0, 1, 0], "min": [1, 0, 0]}[name])


@pytest.mark.parametrize("infer", [True, False])
def test_cumulative_reductions_of_jax2tf(infer):
    def fn(x):
        one = [1, 1]
        return gen_xla_ops.xla_reduce_window(x, 0.0, [4, 1], one, one, one, [[3, 0], [0, 0]], fold(tf.add, "float32"))

    with tf2jax.override_config("infer_cumulative_reduction_from_jax2tf", infer):
        jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([4, 2]))
    x = random(4, 2)
    np.testing.assert_allclose(jax_fn(x), np.cumsum(x, 0))
    assert ("cumsum" in str(jax.make_jaxpr(jax_fn)(x))) == infer
    np.testing.assert_allclose(jax.grad(lambda x: jax_fn(x)[2, 0])(x), [[1, 0], [1, 0], [1, 0], [0, 0]])


def test_random_bits_without_64_bits():
    jax_fn = tf2jax.convert_functional(
        lambda x: gen_xla_ops.xla_rng_bit_generator(1, tf.constant([5, 6], tf.uint64), [3], dtype=tf.uint32)[1] + x,
        tf.TensorSpec([], tf.uint32),
    )
    np.testing.assert_array_equal(jax.jit(jax_fn)(np.uint32(0)), [1465900379, 1469274632, 1503072275])


def test_plain_functions_are_found():
    scalars = np.float32, np.float32
    found = {
        "add": lambda a, b: [a + b],
        "mul": lambda a, b: [jax.jit(lambda c, d: c * d)(a, b)],
        "max": lambda a, b: [jax.numpy.maximum(b, a)],
        "second": lambda a, b: [b],
        "first": lambda a, b: [a],
        "sub": lambda a, b: [a - b],
        "": lambda a, b: [b - a],
    }
    for name, fn in found.items():
        assert xla_reduce.plain_name(fn, *scalars) == name
    assert xla_reduce.plain_name(lambda a, b: [a + b + b], *scalars) == ""
    assert xla_reduce.plain_name(lambda a, b: [a + a], *scalars) == ""


@pytest.mark.parametrize("text", ["\x08", "\x0a\x05\x01", "\x09\x01", "\x08" + "\udcff" * 11])
def test_damaged_protos(text):
    with pytest.raises(ValueError, match="proto"):
        xla_protos.fields(text)
