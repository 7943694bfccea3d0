"""StridedSlice, its gradient and its updates against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.dynamic_shapes import provenance
from tf2jax_lite.errors import LoweringError

BF16 = ml_dtypes.bfloat16
X = np.arange(60.0).reshape(3, 4, 5)
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
DTYPES = ["float32", "float16", BF16, "int8", "uint16", "int32", "uint64", "bool", "complex64", "complex128"]
ALL = slice(None)


def _spec(index, dtype=np.int32):
    """Return begin, end, strides and masks of a Python index."""
    index = index if isinstance(index, tuple) else (index,)
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i, item in enumerate(index):
        b, e, s = 0, 0, 1
        if item is Ellipsis:
            masks["ellipsis_mask"] |= 1 << i
        elif item is None:
            masks["new_axis_mask"] |= 1 << i
        elif isinstance(item, slice):
            b, e, s = item.start or 0, item.stop or 0, item.step or 1
            masks["begin_mask"] |= (item.start is None) << i
            masks["end_mask"] |= (item.stop is None) << i
        else:
            b, e = item, item + 1
            masks["shrink_axis_mask"] |= 1 << i
        begin, end, strides = [*begin, b], [*end, e], [*strides, s]
    return [np.array(v, dtype) for v in (begin, end, strides)], masks


def _strided(x, index, baked=("begin", "end"), name="", dtype=np.int32, **masks):
    spec, own = _spec(index, dtype)
    label = name or f"{np.shape(x)}{index}{'-host' if 'input' in baked else '' if baked else '-traced'}"
    return case("StridedSlice", x, *spec, **{**own, **masks}).using(baked=baked, name=label.replace("None", "_"))


def _grad(index, dtype=np.float64, baked=("begin", "end"), shape=X.shape, name="", itype=np.int32):
    spec, masks = _spec(index, itype)
    dy = np.zeros(shape)[index]
    dy = (1 + np.arange(dy.size)).reshape(dy.shape).astype(dtype)
    label = name or f"{index}-{np.dtype(dtype)}"
    return case("StridedSliceGrad", np.array(shape, itype), *spec, dy, **masks).using(
        baked=baked, name=label.replace("None", "_")
    )


def _update(index, value=None, x=X, baked=("begin", "end"), name=""):
    spec, masks = _spec(index)
    value = 100 + np.arange(x[index].size).reshape(x[index].shape) if value is None else value
    value = np.asarray(value, x.dtype)
    return case("TensorStridedSliceUpdate", x, *spec, value, **masks).using(
        baked=baked, name=(name or f"{index}-{x.dtype}-{value.shape}").replace("None", "_")
    )


INDICES = [
    0,
    -1,
    (1, 2),
    (1, -2, 3),
    slice(1, 3),
    slice(1, None),
    slice(None, -1),
    slice(-2, None),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(None, None, -2),
    (slice(2, 0, -1), slice(3, 0, -2)),
    (ALL, slice(1, 4, 2), slice(4, None, -3)),
    (slice(0, 100), slice(-100, 2)),
    (slice(5, 9), ALL),
    (slice(2, 1), ALL),
    (ALL, slice(1, 3, -1)),
    (Ellipsis, 2),
    (Ellipsis, slice(1, 3)),
    (1, Ellipsis, slice(0, 2)),
    (Ellipsis,),
    (Ellipsis, 1, 1, 1),
    (1, 1, 1, Ellipsis),
    (None,),
    (None, 1, None, slice(1, 3), None),
    (Ellipsis, None),
    (None, Ellipsis, 1, None),
    (ALL, None, 0),
    (0, slice(None, None, -1), slice(1, None, 2)),
    (slice(-1, None, -1), slice(-1, -5, -2)),
    (slice(2, None, -1), -1),
]

CASES = [
    *(_strided(X, index, baked) for index in INDICES for baked in (("begin", "end"), ("begin", "end", "input"))),
    *(_strided(np.arange(12).reshape(4, 3).astype(t), (slice(1, None, 2), -1)) for t in DTYPES),
    *(_strided(M, (1, slice(0, 2)), dtype=t, name=f"index-{t}") for t in ("int16", "int32", "int64")),
    *(
        _strided(X, index, ())
        for index in (
            (1, 2),
            (-1,),
            (ALL, 2),
            (1, ALL, -2),
            (Ellipsis, -1),
            (None, 2, Ellipsis),
            (ALL, 1, slice(None, None, 2)),
        )
    ),
    *(_strided(M, (1, ALL), (), dtype=t, name=f"traced-{t}") for t in ("int16", "int32", "int64")),
    _strided(np.float32([1, np.nan, np.inf, 4]), slice(1, 3), name="nan"),
    _strided(np.float32(3), (), name="rank0"),
    _strided(np.float32(3), (None, Ellipsis, None), name="rank0-new"),
    _strided(np.zeros((0, 3)), (slice(0, 2), 1), name="empty"),
    _strided(np.zeros((2, 0)), (1, slice(None, None, -1)), name="empty-reversed"),
    # The bit of a new axis overrides that of an index; begin and end masks do not apply to an index.
    _strided(X, (1, 1), new_axis_mask=1, name="new-wins"),
    _strided(X, (1, 1), begin_mask=3, end_mask=3, name="masked-index"),
    _strided(X, (slice(1, 2), Ellipsis), new_axis_mask=2, name="ellipsis-wins"),
    *(
        _strided(M, index).using(symbolic=("b, 3",), name=f"sym-{index}".replace("None", "_"))
        for index in (
            0,
            -1,
            slice(1, None),
            slice(None, -1),
            slice(1, -1),
            slice(None, 2),
            slice(2, None),
            slice(-2, None),
            slice(None, 100),
            slice(-100, None),
            slice(None, None, 2),
            slice(1, None, 2),
            slice(None, None, -1),
            slice(None, None, -2),
            slice(-2, None, -1),
            slice(None, 1, -1),
            (ALL, slice(0, 2)),
            (Ellipsis, None, 1),
            (None, ALL, slice(None, None, -1)),
        )
    ),
    _strided(M, (ALL, 1), ()).using(symbolic=("b, 3", "2", "2"), name="sym-traced"),
    _strided(M, (1, ALL), ()).using(symbolic=("b, 3", "2", "2"), name="sym-traced-batch"),
    _strided(M, (4, 0), name="high").using(error="out of bounds"),
    _strided(M, (-5, 0), name="low").using(error="out of bounds"),
    _strided(M, (1, 1, 1), name="rank").using(error="rank 2"),
    case("StridedSlice", M, np.array([0]), np.array([2]), np.array([0])).using(
        baked=("begin", "end"), error="stride 0", name="zero"
    ),
    case("StridedSlice", M, np.array([1]), np.array([2]), np.array([-1]), shrink_axis_mask=1).using(
        baked=("begin", "end"), error="stride 1", name="shrink-stride"
    ),
    case("StridedSlice", M, *[np.array([0, 0])] * 2, np.array([1, 1]), ellipsis_mask=3).using(
        baked=("begin", "end"), error="llipsis", name="two-ellipses"
    ),
    # Gradients.
    *(_grad(index) for index in INDICES),
    *(_grad((slice(None, None, 2), -1), t) for t in DTYPES if t != "bool"),
    _grad((1, slice(None, None, 2)), itype=np.int64, name="int64"),
    *(_grad(index, baked=(), name=f"traced-{index}") for index in ((1, 2), (-1,), (ALL, 2))),
    _grad((), shape=(), name="rank0"),
    case("StridedSliceGrad", np.array([4]), np.array([0]), np.array([2]), np.array([1]), np.ones(3)).using(
        baked=("begin", "end"), error="the value has shape", name="shape"
    ),
    # Updates.
    *(_update(index) for index in INDICES if index != (Ellipsis, 1, 1, 1)),
    *(
        _update((slice(0, 3), 1), x=np.arange(12).reshape(4, 3).astype(t))
        for t in DTYPES
        if t not in ("bool", "complex64")
    ),
    *(_update((slice(0, 3, 2), slice(None, None, -1)), x=np.arange(12).reshape(4, 3).astype(t)) for t in DTYPES[:4]),
    *(_update((slice(0, 2), ALL, slice(None, None, 2)), v) for v in (7, [1, 2, 3], np.ones((1, 4, 1)))),
    *(_update(index, baked=(), name=f"traced-{index}") for index in ((1, 2), (-1,))),
    _update(slice(0, 2), np.ones(3), name="bad").using(error="does not"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def _agree(fn, *args, symbolic=None):
    specs = [tf.TensorSpec(np.shape(a), np.asarray(a).dtype) for a in args]
    if symbolic:
        specs[0] = tf.TensorSpec([None, *np.shape(args[0])[1:]], specs[0].dtype)
    converted = tf2jax.convert_functional(tf.function(fn, autograph=False), *specs)
    expected = fn(*map(tf.constant, args)).numpy()
    if symbolic is None:
        np.testing.assert_array_equal(jax.jit(converted)(*args), expected)
        return
    shapes = [jax.ShapeDtypeStruct(np.shape(a), np.asarray(a).dtype) for a in args]
    shapes[0] = jax.ShapeDtypeStruct(jax.export.symbolic_shape(symbolic), shapes[0].dtype)
    np.testing.assert_array_equal(jax.export.export(jax.jit(converted))(*shapes).call(*args), expected)


ONE = np.int32(1)


@pytest.mark.default_cases("<lambda>8", "<lambda>17")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x[i],
        lambda x, i: x[-i],
        lambda x, i: x[:, i],
        lambda x, i: x[0, i],
        lambda x, i: x[i, 0:2],
        lambda x, i: x[:2, i],
        lambda x, i: x[i : i + 1],
        lambda x, i: x[i - 1 : i + 1],
        lambda x, i: x[1 + i : i + 2],
        lambda x, i: x[i : i + 1, 1 + i : i + 3],
        lambda x, i: x[:2, i : i + 3],
        lambda x, i: x[i : i + 2, i, ::2],
        lambda x, i: x[1:, i : i + 2, ::-1],
        lambda x, i: x[:: i.shape.rank + 2, i : i + 2],
        lambda x, i: x[..., i, tf.newaxis],
        lambda x, i: x[2 * i : 2 * i + 1],
        lambda x, i: x[tf.cast(i, tf.int64)],
        lambda x, i: x[i:i],
        lambda x, i: tf.slice(x, [i, 0, 0], [1, -1, -1]),
        lambda x, i: tf.slice(x, [0, i, 2], [-1, 2, -1]),
        lambda x, i: tf.slice(x, tf.stack([0, i, i + 1]), [2, 2, 2]),
        lambda x, i: tf.raw_ops.TensorStridedSliceUpdate(
            input=x, begin=[i, 0, 1], end=[i + 1, 4, 3], strides=[1, 1, 1], value=tf.ones([1, 4, 2], x.dtype)
        ),
    ],
)
def test_traced_bounds(fn):
    _agree(fn, X, ONE)
    xs = np.stack([X, X + 1])
    converted = tf2jax.convert_functional(
        tf.function(fn, autograph=False), *[tf.TensorSpec(v.shape, v.dtype) for v in (X, ONE)]
    )
    got = jax.vmap(converted, in_axes=(0, None))(xs, ONE)
    np.testing.assert_array_equal(got[1], fn(tf.constant(xs[1]), tf.constant(ONE)).numpy())


@pytest.mark.default_cases("<lambda>3", "<lambda>4")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[: tf.shape(x)[0]],
        lambda x: x[: tf.shape(x)[0] - 1],
        lambda x: x[tf.shape(x)[0] // 2 :],
        lambda x: x[tf.shape(x)[0] - 1],
        lambda x: tf.range(10)[: tf.shape(x)[0]],
        lambda x: tf.slice(x, [0, 1], [tf.shape(x)[0], 2]),
        lambda x: tf.slice(x, [tf.shape(x)[0] - 1, 0], [1, -1]),
        lambda x: x[1:] - x[:-1],
        lambda x: x[tf.newaxis, : tf.shape(x)[0], ::2],
    ],
)
def test_symbolic_bounds(fn):
    _agree(fn, M, symbolic="b, 3")


@pytest.mark.full
def test_traced_index_in_a_loop():
    @tf.function
    def fn(x):
        out = tf.zeros([2], x.dtype)
        for i in tf.range(tf.cast(x[0, 0], tf.int32)):
            out += x[i : i + 2, i]
        return out

    x = np.float32([[3, 1, 2], [4, 5, 6], [7, 8, 9], [10, 11, 12]])
    converted = tf2jax.convert_functional(fn, tf.TensorSpec(x.shape, x.dtype))
    np.testing.assert_array_equal(jax.jit(converted)(x), fn(x).numpy())


def test_range_of_unknown_size_raises_under_jit():
    converted = tf2jax.convert_functional(
        tf.function(lambda x, i, j: x[i:j]), tf.TensorSpec((4,)), *[tf.TensorSpec((), tf.int32)] * 2
    )
    np.testing.assert_array_equal(converted(np.arange(4.0, dtype=np.float32), np.int32(1), np.int32(3)), [1, 2])
    with pytest.raises(LoweringError, match="size that depends on values"):
        jax.jit(converted)(np.arange(4.0, dtype=np.float32), np.int32(1), np.int32(3))
    converted = tf2jax.convert_functional(
        tf.function(lambda x, i: tf.slice(x, [i], [-1])), tf.TensorSpec((4,)), tf.TensorSpec((), tf.int32)
    )
    with pytest.raises(LoweringError, match="size -1"):
        jax.jit(converted)(np.arange(4.0, dtype=np.float32), np.int32(1))


@pytest.mark.full
def test_gradient_of_a_traced_slice():
    fn = tf.function(lambda x, i: tf.reduce_sum(x[i : i + 2, i] ** 2))
    converted = tf2jax.convert_functional(fn, tf.TensorSpec(M.shape, M.dtype), tf.TensorSpec((), tf.int32))
    x = tf.constant(M)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x, tf.constant(ONE))
    np.testing.assert_allclose(jax.jit(jax.grad(converted))(M, ONE), tape.gradient(y, x).numpy())


def test_variable_slice_assignment():
    class Model(tf.Module):
        def __init__(self):
            self.v = tf.Variable(np.arange(12.0, dtype=np.float32).reshape(4, 3), name="v")

        @tf.function(input_signature=[tf.TensorSpec((), tf.int32), tf.TensorSpec((2,), tf.float32)])
        def update(self, i, value):
            self.v[1:3, 0].assign(value)
            self.v[i].assign(self.v[0] + 1.0)
            self.v[::3, ::-2].assign(-self.v[::3, ::2])
            return self.v[i]

    model = Model()
    args = np.int32(1), np.float32([50, 60])
    fn, params = tf2jax.convert(model.update, *args)
    (out, params) = jax.jit(fn)(params, *args)
    expected = model.update(*args)
    np.testing.assert_array_equal(out, expected.numpy())
    np.testing.assert_array_equal(next(iter(params.values())), model.v.numpy())


@pytest.mark.full
def test_provenance():
    seen = {}

    def fn(i, v):
        a = jnp.concatenate([jnp.zeros(1, jnp.int32), i[None], (i + 2)[None], (i + 2 - 5)[None], v[:1]])
        entries = provenance.entries(a, 5)
        seen["known"] = [e.is_known for e in entries]
        seen["differences"] = [entries[2].minus(entries[1]), entries[3].minus(entries[1]), entries[4].minus(entries[1])]
        return jnp.stack([provenance.value_of(e) for e in entries[1:]]), a

    got, a = jax.jit(fn)(np.int32(7), np.int32([3, 4]))
    assert seen == {"known": [True, False, False, False, False], "differences": [2, -3, None]}
    np.testing.assert_array_equal(got, a[1:])
    assert [e.offset for e in provenance.entries(np.array([1, 2]), 2)] == [1, 2]


TESTED_OTHERWISE = {"ResourceStridedSliceAssign"}
