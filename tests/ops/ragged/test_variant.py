"""Loops over the rows of ragged tensors against TensorFlow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import converted
from tests.compiling import fast_options
from tf2jax_lite.ops.ragged import variant as rv

TESTED_OTHERWISE = {"RaggedTensorFromVariant", "RaggedTensorToVariant", "RaggedTensorToVariantGradient"}

V = np.float32([1, 2, 3, 4, 5])
S = np.array([0, 2, 2, 5])
X = np.float32([[1, -1, 2], [-1, 2, -3]])
ROWS = tf.RaggedTensorSpec([None], tf.float32)
rows_of = tf.RaggedTensor.from_row_splits
F32 = tf.float32


def nested(v, inner=(0, 2, 2, 5)):
    return tf.RaggedTensor.from_nested_row_splits(v, [[0, 2, 3], tf.cast(inner, tf.int64)])


def shares(r):
    return tf.exp(r) / tf.reduce_sum(tf.exp(r))


def positive(r):
    return tf.boolean_mask(r, r > 0) ** 2


def positive_in_two(r):
    found = positive(r)
    return tf.RaggedTensor.from_row_lengths(found, [1, tf.size(found, tf.int64) - 1])


# Names, functions of values (and splits), whether the sizes of results are static under jit.
KNOWN = {
    "sums": (lambda v: tf.map_fn(tf.reduce_sum, rows_of(v, S), fn_output_signature=F32), V),
    "rows": (lambda v: tf.map_fn(lambda r: tf.concat([r * 2, r * r], 0), rows_of(v, S)), V),
    "uniform": (lambda v: tf.map_fn(lambda r: r * tf.cast(tf.size(r), F32), rows_of(v, [0, 2, 4])), V[:4]),
    "nested": (lambda v: tf.map_fn(lambda r: tf.reduce_sum(r, axis=-1), nested(v), fn_output_signature=ROWS), V),
    "nested-rows": (lambda v: tf.map_fn(lambda r: r * 3, nested(v)), V),
    "several": (
        lambda v: tf.map_fn(
            lambda a: (a[0] * a[1], tf.size(a[0])),
            (rows_of(v, S), tf.constant([1.0, 2.0, 3.0])),
            fn_output_signature=(ROWS, tf.int32),
        ),
        V,
    ),
    "matrices": (
        lambda v: tf.map_fn(
            lambda r: tf.matmul(r, r, transpose_a=True), rows_of(v, [0, 2, 2, 5]), fn_output_signature=F32
        ),
        np.stack([V, V**2], 1),
    ),
    "none": (lambda v: tf.map_fn(lambda r: r * 2, rows_of(v, [0])), V[:0]),
    "empty": (lambda v: tf.map_fn(lambda r: r * 2, rows_of(v, [0, 0, 0])), V[:0]),
    "dense-rows": (
        lambda v: tf.map_fn(
            lambda r: r * 2, rows_of(v, [0, 2, 4]), fn_output_signature=tf.RaggedTensorSpec([None], F32, ragged_rank=0)
        ),
        V[:4],
    ),
    "while": (
        lambda v: tf.while_loop(
            lambda i, r: i < 2,
            lambda i, r: (i + 1, tf.concat([r, r * r], axis=1)),
            (0, rows_of(v, S)),
            (tf.TensorShape([]), tf.RaggedTensorSpec([3, None], F32)),
        )[1],
        V,
    ),
}
# Results of dynamic sizes, and reductions of them to static ones.
BY_DATA = {
    "sums": (lambda v, s: tf.map_fn(lambda r: tf.reduce_sum(r * r), rows_of(v, s), fn_output_signature=F32), V, S),
    "rows-to-rows": (lambda v, s: tf.reduce_sum(tf.map_fn(shares, rows_of(v, s)).values ** 2), V, S),
    "to-tensor": (lambda v, s: tf.map_fn(lambda r: r * 2, rows_of(v, s)).to_tensor(shape=[3, 4]), V, S),
    "nested": (
        lambda v, s: tf.map_fn(
            lambda r: tf.reduce_sum(tf.reduce_max(r, axis=-1)), nested(v, s), fn_output_signature=F32
        ),
        V,
        np.array([0, 2, 3, 5]),
    ),
    "loop-in-loop": (
        lambda v, s: tf.reduce_sum(
            tf.map_fn(
                lambda r: tf.map_fn(tf.reduce_sum, r, fn_output_signature=F32), nested(v, s), fn_output_signature=ROWS
            ),
            axis=1,
        ),
        V,
        S,
    ),
    "mask": (
        lambda x: tf.map_fn(lambda r: tf.reduce_sum(r * r), tf.ragged.boolean_mask(x, x > 0), fn_output_signature=F32),
        X,
    ),
    "padding": (
        lambda x: tf.map_fn(
            lambda r: tf.reduce_sum(r * r), tf.RaggedTensor.from_tensor(x, padding=-3.0), fn_output_signature=F32
        ),
        X,
    ),
    "masks-inside": (lambda x: tf.reduce_sum(tf.map_fn(positive, x, fn_output_signature=ROWS), axis=1), X),
    "ragged-from-inside": (
        lambda x: tf.reduce_sum(
            tf.map_fn(positive_in_two, x, fn_output_signature=tf.RaggedTensorSpec([None, None], F32)), axis=[1, 2]
        ),
        X,
    ),
    "branches": (
        lambda v: tf.reduce_sum(
            tf.map_fn(lambda r: tf.cond(tf.reduce_sum(r) > 4, lambda: r[:1], lambda: r), rows_of(v, S)), axis=1
        ),
        V,
    ),
}


def flat(function):
    """Return a function of tensors that returns ``function``'s components."""
    return tf.function(lambda *args: tf.nest.flatten(function(*args), expand_composites=True), autograph=False)


def loss(results):
    return sum(jnp.sum(v * v) for v in results if jnp.issubdtype(v.dtype, jnp.inexact))


def check(function, *args):
    """Compare values and the first argument's gradients, with and without jit."""
    function = flat(function)
    values = tf.constant(args[0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        expected = function(values, *args[1:])
        total = tf.add_n([tf.reduce_sum(v * v) for v in expected if v.dtype.is_floating])
    gradient = tape.gradient(total, values)
    jax_fn = converted(function, *args)

    def both(*args):
        return jax_fn(*args), jax.grad(lambda v: loss(jax_fn(v, *args[1:])))(args[0])

    for run in (both, jax.jit(both, compiler_options=fast_options())):
        results, grad = run(*args)
        for e, a in zip(expected, results, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5)
            assert a.shape == tuple(e.shape)
        np.testing.assert_allclose(grad, gradient, rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", KNOWN)
def test_static_splits(name):
    check(*KNOWN[name])


@pytest.mark.full
@pytest.mark.parametrize("name", BY_DATA)
def test_traced_splits(name):
    check(*BY_DATA[name])


@pytest.mark.full
def test_many_rows_of_static_lengths():
    """More rows than a loop unrolls."""
    splits = np.cumsum([0, *(i % 3 for i in range(300))])
    values = np.linspace(-1, 1, splits[-1], dtype=np.float32)
    check(lambda v: tf.reduce_sum(tf.map_fn(lambda r: tf.concat([r, r], 0), rows_of(v, splits)), axis=1), values)


@pytest.mark.full
def test_many_rows_outside_jit():
    splits = np.cumsum([0, *(i % 3 for i in range(300))])
    values = np.linspace(-1, 1, splits[-1], dtype=np.float32)
    function = flat(lambda v, s: tf.map_fn(lambda r: r * 2, rows_of(v, s)))
    for e, a in zip(function(values, splits), converted(function, values, splits)(values, splits), strict=True):
        np.testing.assert_array_equal(a, e)


def test_rows_of_strings():
    words = tf.constant(["a", "b", "c", "d", "e"])
    function = flat(lambda: tf.map_fn(tf.size, rows_of(words, S), fn_output_signature=tf.int32))
    np.testing.assert_array_equal(converted(function)()[0], [2, 0, 3])


@pytest.mark.default_cases("rows")
@pytest.mark.parametrize("make", [rows_of, lambda v, s: nested(v, s)], ids=["rows", "nested"])
def test_in_graph_gradients(make):
    def gradient(v, splits=S):
        with tf.GradientTape() as tape:
            tape.watch(v)
            total = tf.reduce_sum(tf.map_fn(lambda r: r * r * 2, make(v, splits)).flat_values)
        return tape.gradient(total, v)

    jax_fn = converted(flat(gradient), V)
    for run in (jax_fn, jax.jit(jax_fn)):
        np.testing.assert_allclose(run(V)[0], 4 * V)
    np.testing.assert_allclose(converted(flat(gradient), V, S)(V, S)[0], 4 * V)


@pytest.mark.full
def test_batches_and_export():
    function = flat(lambda v, s: tf.map_fn(tf.reduce_sum, rows_of(v, s), fn_output_signature=F32))
    (found,) = jax.jit(jax.vmap(converted(function, V, S)), compiler_options=fast_options())(
        np.stack([V, 2 * V]), np.stack([S, [0, 0, 1, 5]])
    )
    np.testing.assert_array_equal(found, [[3, 0, 12], [0, 2, 28]])
    jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([None]), tf.TensorSpec([None], tf.int64))
    rows, number = jax.export.symbolic_shape("rows, number")
    shapes = [jax.ShapeDtypeStruct((number,), np.float32), jax.ShapeDtypeStruct((rows,), np.int32)]
    np.testing.assert_array_equal(jax.export.export(jax.jit(jax_fn))(*shapes).call(V, np.int32(S))[0], [3, 0, 12])


@pytest.mark.full
def test_results_of_dynamic_sizes():
    function = flat(lambda v, s: tf.map_fn(lambda r: r * 2, rows_of(v, s)).values)
    with pytest.raises(ValueError, match=r"RaggedFromVariant.*how long a row.*dynamic_shape_bound"):
        jax.jit(converted(function, V, S))(V, S)
    with tf2jax.override_config("dynamic_shape_bound", 7):
        jax_fn = converted(function, V, S)
    np.testing.assert_array_equal(jax.jit(jax_fn)(V, S)[0], [*(2 * V), 0, 0])


def test_ranges_inside_with_a_bound():
    """A body that computes from a dynamic size alone needs its value."""
    numbers, ints = np.int32([2, 0, 3]), tf.RaggedTensorSpec([None], tf.int32)
    function = flat(lambda n: tf.reduce_sum(tf.map_fn(tf.range, n, fn_output_signature=ints), axis=1))
    with tf2jax.override_config("dynamic_shape_bound", 7):
        jax_fn = converted(function, numbers)
    np.testing.assert_array_equal(jax.jit(jax_fn)(numbers)[0], [1, 0, 3])


raw = tf.raw_ops


def to_variant(values, splits, batched=True):
    return raw.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=values, batched_input=batched)


def from_variant(encoded, rank, dtype=F32, of=-1, splits=tf.int64):
    return raw.RaggedTensorFromVariant(
        encoded_ragged=encoded, input_ragged_rank=of, output_ragged_rank=rank, Tvalues=dtype, Tsplits=splits
    )


@pytest.mark.default_cases("dense")
@pytest.mark.parametrize(
    "function",
    [
        lambda v: from_variant(to_variant(v, [S], batched=False), 1),
        lambda v: from_variant(to_variant(tf.reshape(v[:4], [2, 2]), []), 1, splits=tf.int32),
        lambda v: from_variant(to_variant(v, [np.array([0, 1, 1, 2]), np.array([0, 2, 5])]), 2),
        lambda v: from_variant(to_variant(v, [], batched=False), 0),
    ],
    ids=["scalar", "dense", "nested", "a tensor"],
)
def test_to_variant_and_back(function):
    check(function, V)


@pytest.mark.default_cases("rank", "low rank")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v: from_variant(to_variant(v, [S]), 2), "ragged rank 0 is read as one of 1"),
        (lambda v: from_variant(to_variant(v, [S]), 0), "to be made of variants of rank 1"),
        (lambda v: from_variant(to_variant(v, [S]), 1, tf.int32), "read as one of int32"),
        (lambda v: from_variant(to_variant(v, [[0, 2, 9]]), 1), "splits end at 9"),
        (lambda v: from_variant(to_variant(v, []), 1), "have no rows"),
    ],
    ids=["rank", "low rank", "dtype", "splits", "vector"],
)
def test_invalid_input_raises(function, message):
    with pytest.raises(ValueError, match=message):
        converted(tf.function(function), V)(V)


@pytest.mark.full
def test_common_spec_has_the_larger_capacity():
    a, b = rv.Ragged((np.arange(3),)), rv.Ragged((np.arange(5),))
    spec = jax.eval_shape(lambda: a).common_spec(jax.eval_shape(lambda: b))
    assert spec.parts[0].shape == (5,)
    np.testing.assert_array_equal(a.coerce(spec).resolved().parts[0], np.arange(3))
    with pytest.raises(ValueError, match="different kinds"):
        rv.Ragged((V,)).common_spec(rv.Ragged((S, V)))
    with pytest.raises(ValueError, match="out of range"):
        rv.RaggedRows((S,), V).row(np.int32(3))
