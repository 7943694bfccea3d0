"""Slices, padding, gather, scatter and sorting as jax2tf exports them."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

from .harness import FLOATS, FOLDS, INTS, LOGIC, cast, compiled, fold, i32, numbers, randoms, scalar_fn

random = randoms()


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


TABLE = random(5, 4)
OFFSET = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0]}
UPDATE = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
CASES = [
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
    *(case("XlaSort", random(3, 5, dtype=t)) for t in (*FLOATS, *INTS)),
    case("XlaSort", np.float32([3, np.nan, -np.inf, np.inf, 0, -1])).using(name="hard"),
    *(
        case("XlaKeyValueSort", random(3, 5, dtype=t), np.arange(15, dtype=v).reshape(3, 5))
        for t in (*FLOATS, "int32", "uint8", "int64")
        for v in ("int32", "float32")
    ),
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
]


@pytest.mark.parametrize("case", tiered(compiled(CASES)))
def test_case(case):
    check(case)
