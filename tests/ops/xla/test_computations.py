"""Reductions over axes and windows as jax2tf exports them."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.xla import computations

from .harness import FOLDS, LOGIC, START, cast, compiled, fold, i32, randoms, scalar_fn

random = randoms()


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


def biggest(a, i, b, j):
    keep = a >= b
    return tf.where(keep, a, b), tf.where(keep, i, j)


AXES = ([0], [1], [0, 1], [])
CASES = [
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
]


@pytest.mark.parametrize("case", tiered(compiled(CASES)))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_reductions_are_differentiable(name):
    def fn(x):
        return gen_xla_ops.xla_reduce(x, float(START[name]), [0], fold(FOLDS[name], "float32"))

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([3]))
    grad = jax.grad(jax_fn)(np.float32([1, 3, 2]))
    np.testing.assert_array_equal(grad, {"add": [1, 1, 1], "max": [0, 1, 0], "min": [1, 0, 0]}[name])


@pytest.mark.full
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


@pytest.mark.full
def test_single_primitive_functions_are_recognized():
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
        assert computations.plain_name(fn, *scalars) == name
    assert computations.plain_name(lambda a, b: [a + b + b], *scalars) == ""
    assert computations.plain_name(lambda a, b: [a + a], *scalars) == ""
