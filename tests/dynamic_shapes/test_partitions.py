"""Masks that partition an array: the sizes of the parts add up to the array's."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

R = np.random.default_rng(0)
X = R.normal(size=(6, 3)).astype(np.float32)
LABELS = np.array([0, 1, 0, 2, 1, 1], np.int32)
WEIGHTS = R.normal(size=(3, 3, 3)).astype(np.float32)


def parts(x, *masks):
    return tf.concat([tf.boolean_mask(x, m) * (k + 1.0) for k, m in enumerate(masks)], 0)


def both_rows(x, m):
    i = [tf.where(m)[:, 0], tf.where(~m)[:, 0]]
    return tf.concat([tf.gather(x, i[0]), tf.gather(x, i[1]) * 2], 0), i


def sorted_back(x, labels):
    rows, i = both_rows(x, labels > 0)
    return tf.gather(rows, tf.argsort(tf.concat(i, 0)))


def inverted(x, labels):
    rows, i = both_rows(x, labels > 0)
    return tf.gather(rows, tf.math.invert_permutation(tf.cast(tf.concat(i, 0), tf.int32)))


def scattered(x, labels):
    rows, i = both_rows(x, labels > 0)
    return tf.scatter_nd(tf.concat(i, 0)[:, None], rows, tf.shape(x, tf.int64))


def stitched(x, labels):
    _, i = both_rows(x, labels > 0)
    (first, second) = (tf.gather(x, k) * (j + 1.0) for j, k in enumerate(i))
    return tf.dynamic_stitch([tf.cast(k, tf.int32) for k in i], [first, second]) + x


def experts(x, labels):
    chosen = tf.argmax(x + tf.cast(labels, tf.float32)[:, None] * 0, 1, tf.int32)
    out, where = [], []
    for k in range(3):
        mine = tf.where(tf.equal(chosen, k))
        out.append(tf.gather_nd(x, mine) @ WEIGHTS[k])
        where.append(mine)
    return tf.tensor_scatter_nd_update(tf.zeros_like(x), tf.concat(where, 0), tf.concat(out, 0)) + x


def as_numbers(x, labels):
    number = tf.cast(labels > 0, tf.int32)
    return parts(x, number > 0, tf.equal(number, 0)) + x


def products(x, labels):
    flat = tf.concat([tf.reshape(x[m], [-1]) for m in (labels > 0, ~(labels > 0))], 0)
    return tf.reshape(flat, [-1, 3]) + x


def losses(x, labels):
    return tf.reduce_mean(tf.concat([tf.square(x[m]) for m in (labels > 0, ~(labels > 0))], 0) * x)


def nested(x, labels):
    a, b = labels > 0, x[:, 0] > 0
    return parts(x, a & b, a & ~b, ~a) + x


CASES = {
    "complement": lambda x, labels: parts(x, labels > 0, ~(labels > 0)) + x,
    "opposite comparison": lambda x, labels: parts(x, labels > 0, labels <= 0) + x,
    "swapped comparison": lambda x, labels: parts(x, labels < 1, tf.less_equal(1, labels)) + x,
    "not equal": lambda x, labels: parts(x, tf.equal(labels, 1), tf.not_equal(labels, 1)) + x,
    "of two values": lambda x, labels: parts(x, x[:, 0] > x[:, 1], ~(x[:, 1] < x[:, 0])) + x,
    "classes": lambda x, labels: parts(x, *(tf.equal(labels, k) for k in range(3))) + x,
    "the rest": lambda x, labels: parts(x, tf.equal(labels, 0), tf.equal(labels, 2), (labels != 0) & (labels != 2)) + x,
    "ranges": lambda x, labels: parts(x, labels < 1, (labels >= 1) & (labels < 2), labels >= 2) + x,
    "nested": nested,
    "as numbers": as_numbers,
    "matrix": lambda x, labels: tf.reshape(tf.concat([x[x > 0], x[~(x > 0)]], 0), tf.shape(x)) + x,
    "reshaped": lambda x, labels: tf.reshape(parts(x, labels > 0, ~(labels > 0)), [3, 2, 3])[0],
    "reshaped classes": lambda x, labels: tf.reshape(parts(x, *(tf.equal(labels, k) for k in range(3))), [3, 2, 3])[0],
    "padded": lambda x, labels: tf.concat([parts(x, labels > 0, ~(labels > 0)), x[:1]], 0),
    "products": products,
    "sizes": lambda x, labels: tf.ones([tf.size(tf.where(labels > 0)) + tf.size(tf.where(~(labels > 0)))]) * x[:, 0],
    "argsort": lambda x, labels: sorted_back(x, labels) + x,
    "invert_permutation": lambda x, labels: inverted(x, labels) + x,
    "scatter": lambda x, labels: scattered(x, labels) + x,
    "stitch": stitched,
    "experts": experts,
    "losses": losses,
}
DEFAULT = ("classes", "nested", "argsort", "experts", "matrix")


def converted(function, spec=(6,)):
    specs = tf.TensorSpec([*spec, 3]), tf.TensorSpec(spec, tf.int32)
    return tf2jax.convert_functional(tf.function(function, autograph=False), *specs)


@pytest.mark.default_cases(*DEFAULT)
@pytest.mark.parametrize("name", CASES)
def test_parts_add_up_to_the_array(name):
    function = CASES[name]
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = function(x, tf.constant(LABELS))
        loss = tf.reduce_sum(expected**2)
    own = converted(function)
    np.testing.assert_allclose(jax.jit(own)(X, LABELS), expected.numpy(), rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda x: (own(x, LABELS) ** 2).sum()))(X)
    wanted = tf.convert_to_tensor(tape.gradient(loss, x)).numpy()
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)
    batch = np.stack([X, X[::-1]]), np.stack([LABELS, np.roll(LABELS, 2)])
    several = [function(*map(tf.constant, one)).numpy() for one in zip(*batch, strict=True)]
    np.testing.assert_allclose(jax.jit(jax.vmap(own))(*batch), several, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bound", [6, 3])
def test_parts_with_a_bound(bound):
    """A bound that is too small makes the sum of sizes wrong, and results NaN."""
    labels = np.int32([0, 0, 0, 0, 1, 1])
    with tf2jax.override_config("dynamic_shape_bound", bound):
        found = jax.jit(converted(CASES["complement"]))(X, labels)
    expected = CASES["complement"](tf.constant(X), tf.constant(labels)).numpy()
    np.testing.assert_allclose(found, expected if bound == 6 else np.full_like(X, np.nan), rtol=1e-5)


@pytest.mark.parametrize("name", ["classes", "reshaped classes"])
def test_classes_that_do_not_cover_labels_are_nan(name):
    """TensorFlow raises for the label 3, of which no part is."""
    found = jax.jit(converted(CASES[name]))(X, np.int32([0, 1, 3, 2, 1, 1]))
    assert np.isnan(found).all()


def test_comparisons_do_not_cover_nan():
    """Neither x > 0 nor x <= 0 is true for NaN, so the sizes are assumed."""
    own = jax.jit(converted(lambda x, labels: parts(x, x[:, 0] > 0, x[:, 0] <= 0) + tf.ones([6, 3])))
    assert np.isfinite(own(X, LABELS)).all()
    assert np.isnan(own(np.where(np.arange(18).reshape(6, 3) == 6, np.nan, X), LABELS)).all()


def test_casts_of_nan_leave_their_interval():
    """An interval of integers does not hold for NaN that was cast."""

    def function(x, labels):
        k = tf.cast(tf.clip_by_value(x[:, 0], 0.0, 1.0), tf.int32)
        return parts(x, tf.equal(k, 0), tf.equal(k, 1)) + tf.ones([6, 3])

    own = jax.jit(converted(function))
    assert np.isfinite(own(X, LABELS)).all()
    assert np.isnan(own(np.where(np.arange(18).reshape(6, 3) == 6, np.nan, X), LABELS)).all()


def test_overlapping_masks_are_not_equal_to_the_array():
    own = jax.jit(converted(lambda x, labels: parts(x, labels > 0, labels < 2) + x))
    assert np.isnan(own(X, LABELS)).all()


def test_bools_of_complementary_masks():
    """They have no value that marks a violated assumption; none is made."""

    def function(x, labels):
        m = labels > 0
        return tf.concat([tf.boolean_mask(x[:, 0] > 0, m), tf.boolean_mask(x[:, 0] > 0, ~m)], 0) & (labels > -1)

    expected = function(tf.constant(X), tf.constant(LABELS)).numpy()
    np.testing.assert_array_equal(jax.jit(converted(function))(X, LABELS), expected)


@pytest.mark.full
@pytest.mark.parametrize("name", ["complement", "classes", "argsort", "experts", "matrix"])
def test_parts_with_a_symbolic_batch(name):
    own = converted(CASES[name], [None])
    scope = jax.export.SymbolicScope()
    shapes = [jax.export.symbolic_shape(text, scope=scope) for text in ("b, 3", "b")]
    structs = [jax.ShapeDtypeStruct(s, t) for s, t in zip(shapes, (np.float32, np.int32), strict=True)]
    exported = jax.export.export(jax.jit(own))(*structs)
    for n in (6, 1, 4):
        expected = CASES[name](tf.constant(X[:n]), tf.constant(LABELS[:n])).numpy()
        np.testing.assert_allclose(exported.call(X[:n], LABELS[:n]), expected, rtol=1e-5, atol=1e-6)
