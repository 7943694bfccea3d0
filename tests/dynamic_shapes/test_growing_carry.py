"""Dynamic loops whose variables grow or shrink (tf.concat), under jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import export

import tf2jax_lite as tf2jax

SHAPE = tf.TensorShape
RNG = np.random.default_rng(0)
X = np.array([1.0, 2.0], np.float32)
V = RNG.random(20).astype(np.float32)
H = RNG.normal(size=(3, 2)).astype(np.float32)
LOGITS = RNG.normal(size=(7, 7)).astype(np.float32)
KEYS = RNG.normal(size=(3, 2, 2)).astype(np.float32) * 0.5


def rows(x, most: int | None = 8):
    """Rows are added until a sum is large: at most so often."""

    def body(out, x):
        return tf.concat([out, 1.5 * x[None]], 0), 1.5 * x

    return tf.while_loop(
        lambda out, x: tf.reduce_sum(x) < 10.0,
        body,
        (tf.zeros([0, 2]), x),
        shape_invariants=(SHAPE([None, 2]), SHAPE([2])),
        maximum_iterations=most,
    )[0]


def summed(x):
    out = rows(x)
    return tf.reduce_sum(out * tf.cumsum(out), 0), tf.shape(out)[0], tf.reduce_mean(out), tf.reduce_min(out)


def cached(x):
    """Attend to keys and values of all earlier steps, with a growing mask."""

    def body(i, k, v, h, mask):
        k = tf.concat([k, (h @ KEYS[1])[:, None]], 1)
        v = tf.concat([v, (h @ KEYS[2])[:, None]], 1)
        mask = tf.concat([mask, tf.ones([tf.shape(h)[0], 1])], 1)
        scores = tf.einsum("bd,btd->bt", h @ KEYS[0], k) + (1 - mask) * -1e9
        return i + 1, k, v, h + tf.einsum("bt,btd->bd", tf.nn.softmax(scores), v), mask

    many = SHAPE([3, None, 2])
    i, k, v, h, _ = tf.while_loop(
        lambda i, k, v, h, mask: tf.reduce_sum(tf.abs(h)) < 12.0,
        body,
        (0, tf.zeros([3, 0, 2]), tf.zeros([3, 0, 2]), x, tf.zeros([3, 0])),
        shape_invariants=(SHAPE([]), many, many, SHAPE([3, 2]), SHAPE([3, None])),
        maximum_iterations=12,
    )
    return h, tf.reduce_sum(k * v, 1), tf.shape(v)[1], i


def shrunk(x):
    def body(x):
        return (tf.boolean_mask(x, x > tf.reduce_mean(x) * 0.8) - 0.01,)

    (x,) = tf.while_loop(lambda x: tf.size(x) > 3, body, (x,), shape_invariants=(SHAPE([None]),))
    return tf.reduce_sum(x), tf.size(x)


def popped(x):
    x, total = tf.while_loop(
        lambda x, s: s < 3.0, lambda x, s: (x[1:], s + x[0]), (x, 0.0), shape_invariants=(SHAPE([None]), SHAPE([]))
    )
    return tf.reduce_sum(x), tf.size(x), total


def doubled(x):
    (x,) = tf.while_loop(
        lambda x: tf.reduce_sum(x) < 30.0,
        lambda x: (tf.concat([x, 0.9 * x], 0),),
        (x,),
        shape_invariants=(SHAPE([None]),),
        maximum_iterations=6,
    )
    return tf.reduce_mean(x), tf.size(x)


def of_found(x):
    """Append values of dynamic lengths to an initial value of one."""
    (y,) = tf.while_loop(
        lambda y: tf.reduce_sum(y) < 30.0,
        lambda y: (tf.concat([y, tf.boolean_mask(x, x > 0.3)], 0),),
        (tf.boolean_mask(x, x > 0.5),),
        shape_invariants=(SHAPE([None]),),
        maximum_iterations=6,
    )
    return tf.reduce_mean(y), tf.size(y)


def square(x):
    m = tf.reshape(x, [1, 2]) * tf.reshape(x, [2, 1])
    (m,) = tf.while_loop(
        lambda m: tf.reduce_sum(m) < 50.0,
        lambda m: (tf.pad(m, [[0, 1], [0, 1]], constant_values=2.0),),
        (m,),
        shape_invariants=(SHAPE([None, None]),),
        maximum_iterations=9,
    )
    return tf.reduce_sum(m * tf.transpose(m)), tf.shape(m), tf.linalg.trace(m)


def by_size(x):
    """End a loop by a size instead of an iteration count."""

    def body(out, done):
        row = out[-1:] * 1.2
        return tf.concat([out, row], 0), tf.reduce_sum(row) > 10.0

    out, _ = tf.while_loop(
        lambda out, done: tf.logical_and(tf.shape(out)[0] < 9, tf.logical_not(done)),
        body,
        (x[None], tf.constant(False)),
        shape_invariants=(SHAPE([None, 2]), SHAPE([])),
    )
    return tf.reduce_sum(out, 0), tf.shape(out)[0]


def nested(x):
    def inner(out, s):
        return tf.concat([out, [s]], 0), s * 1.1

    def body(i, out, s):
        limit = tf.cast(i + 2, tf.float32) * 1.5
        shapes = (SHAPE([None]), SHAPE([]))
        return i + 1, *tf.while_loop(lambda out, s: s < limit, inner, (out, s), shapes, maximum_iterations=4)

    _, out, _ = tf.while_loop(
        lambda i, out, s: s < 9.0,
        body,
        (0, x[:1], x[0]),
        shape_invariants=(SHAPE([]), SHAPE([None]), SHAPE([])),
        maximum_iterations=5,
    )
    return tf.reduce_sum(out * out), tf.size(out)


def broken_off(x):
    out = tf.zeros([0, 2])
    for _ in tf.range(10):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(out, SHAPE([None, 2]))])
        x = x * 1.3
        if tf.reduce_sum(x) > 15.0:
            break
        out = tf.concat([out, x[None]], 0)
    return tf.reduce_sum(out, 0), tf.shape(out)[0]


def picked(x):
    out = tf.zeros([0])
    for i in tf.range(20):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(out, SHAPE([None]))])
        if x[i] > 0.5:
            out = tf.concat([out, x[i : i + 1]], 0)
    return tf.reduce_sum(out), tf.size(out)


CASES = {
    "summed": (summed, X),
    "cached": (cached, H),
    "shrunk": (shrunk, V),
    "popped": (popped, V),
    "doubled": (doubled, X),
    "of_found": (of_found, V),
    "square": (square, X),
    "by_size": (by_size, X),
    "nested": (nested, X),
    "broken_off": (broken_off, X),
    "picked": (picked, V),
}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    function, given = CASES[name]
    function = tf.function(function)
    own = tf2jax.convert_functional(function, tf.TensorSpec(given.shape))
    batch = np.stack([given, given * 0.9, given * 1.7])
    found, many = jax.jit(own), jax.jit(jax.vmap(own))(batch)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(own(x)[0])))
    for i, x in enumerate(batch):
        with tf.GradientTape() as tape:
            variable = tf.constant(x)
            tape.watch(variable)
            expected = function(variable)
            total = tf.reduce_sum(expected[0])
        for e, a, b in zip(expected, found(x), many, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(b[i], e, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradient(x), np.asarray(tape.gradient(total, variable)), rtol=1e-4, atol=1e-6)


def decoded(ids):
    """Decode greedily with embeddings; the returned ids are padded to one size."""

    def body(ids, done):
        positions = tf.cast(tf.range(tf.shape(ids)[1]), tf.float32) / 10.0
        scores = tf.reduce_mean(tf.gather(LOGITS, ids) * (1.0 + positions[:, None]), 1)
        token = tf.argmax(scores, -1, output_type=tf.int32)
        return tf.concat([ids, token[:, None]], 1), done | tf.equal(token, 3)

    ids, _ = tf.while_loop(
        lambda ids, done: ~tf.reduce_all(done),
        body,
        (ids, tf.zeros([tf.shape(ids)[0]], tf.bool)),
        shape_invariants=(SHAPE([None, None]), SHAPE([None])),
        maximum_iterations=6,
    )
    return ids


@pytest.mark.full
def test_decoding_of_batches_of_any_size():
    function = tf.function(decoded)
    with tf2jax.override_config("dynamic_shape_bound", 8):
        own = tf2jax.convert_functional(function, tf.TensorSpec([None, 2], tf.int32))
    symbolic = jax.ShapeDtypeStruct(export.symbolic_shape("b, 2"), np.int32)
    exported = export.export(jax.jit(own))(symbolic)
    for ids in ([[1, 2], [0, 5]], [[4, 6]], [[1, 1], [2, 2], [3, 3]]):
        ids = np.array(ids, np.int32)
        expected = function(ids).numpy()
        expected = np.pad(expected, [(0, 0), (0, 8 - expected.shape[1])])
        for found in (jax.jit(own)(ids), exported.call(ids)):
            kept = np.arange(8) < function(ids).shape[1]
            np.testing.assert_array_equal(np.where(kept, found, 0), expected)


def test_a_number_of_iterations_that_is_known():
    """Longer than is unrolled: the result has a size that is known, too."""
    function = tf.function(
        lambda x: tf.while_loop(
            lambda out: tf.shape(out)[0] < 300,
            lambda out: (tf.concat([out, out[-1:] * 1.01], 0),),
            (x[None],),
            shape_invariants=(SHAPE([None, 2]),),
        )[0]
    )
    own = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec(X.shape)))
    np.testing.assert_allclose(own(X), function(X), rtol=1e-4)


def test_without_a_limit():
    function = tf.function(lambda x: rows(x, None))
    spec = tf.TensorSpec(X.shape)
    with pytest.raises(tf2jax.errors.LoweringError, match="dynamic_shape_bound"):
        jax.jit(tf2jax.convert_functional(function, spec))(X)
    expected = function(X).numpy()
    with tf2jax.override_config("dynamic_shape_bound", 8):
        own = jax.jit(tf2jax.convert_functional(function, spec))
        total = jax.jit(tf2jax.convert_functional(tf.function(lambda x: tf.reduce_sum(rows(x, None))), spec))
    np.testing.assert_allclose(own(X), np.pad(expected, [(0, 8 - len(expected)), (0, 0)]), rtol=1e-6)
    np.testing.assert_allclose(total(X), expected.sum(), rtol=1e-6)
    assert np.isnan(total(X / 1000))  # more than eight
    assert np.isnan(own(X / 1000)).all()


@pytest.mark.full
def test_what_changes_besides_its_size():
    any_rank = tf.TensorShape(None)  # pyright: ignore[reportArgumentType]

    def deeper(x):
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: (x[None],), (x,), (any_rank,))[0]

    function = tf.function(deeper)
    with pytest.raises(tf2jax.errors.LoweringError, match="changes its shape or dtype between iterations"):
        jax.jit(tf2jax.convert_functional(function, tf.TensorSpec(X.shape)))(X)


@pytest.mark.full
def test_data_dependent_growing_loop_names_the_bound_option():
    def doubled(x):
        return tf.while_loop(
            lambda x: tf.reduce_sum(x) < 50.0, lambda x: (tf.concat([x, x], 0),), (x,), (tf.TensorShape([None]),)
        )[0]

    own = tf2jax.convert_functional(tf.function(doubled), tf.TensorSpec(X.shape))
    with pytest.raises(tf2jax.errors.LoweringError, match=r"between iterations.*dynamic_shape_bound"):
        jax.jit(own)(X)


SIZES = {"e": (7, 8), "p": (20, 8), "q": (8, 8), "k": (8, 8), "v": (8, 8), "f": (8, 16), "g": (16, 8)}
WEIGHTS = {name: RNG.normal(size=size).astype(np.float32) * 0.5 for name, size in SIZES.items()}


def transformer(ids):
    """Run a block: positions, causal attention of two heads, norm, and logits."""
    n = tf.shape(ids)[1]
    x = tf.gather(WEIGHTS["e"], ids) + tf.constant(WEIGHTS["p"])[:n]

    def heads(x):
        return tf.transpose(tf.reshape(x, [tf.shape(x)[0], n, 2, 4]), [0, 2, 1, 3])

    q, k, v = (heads(x @ WEIGHTS[name]) for name in "qkv")
    scores = tf.matmul(q, k, transpose_b=True) - 1e9 * (1.0 - tf.linalg.band_part(tf.ones([n, n]), -1, 0))
    found = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
    x += tf.reshape(found, [tf.shape(x)[0], n, 8])
    x -= tf.reduce_mean(x, -1, keepdims=True)
    x *= tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-5)
    x += tf.nn.gelu(x @ WEIGHTS["f"]) @ WEIGHTS["g"]
    return tf.matmul(x, WEIGHTS["e"], transpose_b=True)


def until_all_are_done(ids):
    def body(ids, done):
        token = tf.where(done, 0, tf.argmax(transformer(ids)[:, -1], -1, output_type=tf.int32))
        return tf.concat([ids, token[:, None]], 1), done | tf.equal(token, 3)

    done = tf.zeros([tf.shape(ids)[0]], tf.bool)
    shapes = (SHAPE([None, None]), SHAPE([None]))
    return tf.while_loop(lambda ids, done: ~tf.reduce_all(done), body, (ids, done), shapes, maximum_iterations=10)[0]


def as_long_as_twelve(ids):
    def body(ids):
        n = tf.shape(ids)[1]
        seen = tf.reduce_max(tf.one_hot(ids, 7), 1)
        token = tf.argmax(transformer(ids)[:, n - 1, :] - 2.0 * seen, -1, output_type=tf.int32)
        return (tf.concat([ids, tf.expand_dims(token, -1)], axis=-1),)

    def condition(ids):
        return tf.logical_and(tf.shape(ids)[1] < 12, tf.reduce_any(ids[:, -1] != 3))

    return tf.while_loop(condition, body, (ids,), (SHAPE([None, None]),))[0]


def sampled(ids):
    def body(i, ids):
        logits = transformer(ids)[:, -1]
        logits = tf.where(logits < tf.math.top_k(logits, 3)[0][:, -1:], -1e9, logits)
        return i + 1, tf.concat([ids, tf.random.stateless_categorical(logits, 1, tf.stack([7, i]), dtype=tf.int32)], 1)

    shapes = (SHAPE([]), SHAPE([None, None]))
    return tf.while_loop(lambda i, ids: tf.reduce_any(ids[:, -1] != 3), body, (0, ids), shapes, maximum_iterations=10)[
        1
    ]


@pytest.mark.full
@pytest.mark.parametrize("generate", [until_all_are_done, as_long_as_twelve, sampled], ids=lambda f: f.__name__)
def test_transformers(generate):
    def padded(ids):
        ids = generate(ids)
        return tf.pad(ids, tf.stack([[0, 0], [0, 13 - tf.shape(ids)[1]]]))

    function = tf.function(padded, autograph=False)
    own = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec([None, 2], tf.int32)))
    for ids in ([[1, 2], [5, 4]], [[3, 6], [0, 0]], [[2, 2]]):
        np.testing.assert_array_equal(own(np.array(ids, np.int32)), function(tf.constant(ids)))
