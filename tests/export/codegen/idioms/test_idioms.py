"""Idiomatic source of TensorFlow functions, with their values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite as tf2jax
from tests.export.codegen.test_source import imported, written
from tf2jax_lite.export import codegen
from tf2jax_lite.export.codegen import block_ir, idioms
from tf2jax_lite.export.codegen.idioms import helpers, references

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


SPECIAL = np.float32([-np.inf, -1e30, -100, -1.5, -1e-20, -0.0, 0, 1e-20, 0.3, 6, 7, 100, 1e30, np.inf])
ROWS = np.float32([[0, 1, -2, 3], [1e30, 0, 0, -1e30], [-np.inf, 0, 1, 2], [100, 100, 100, 100]])
X, MATRIX, VECTOR, IMAGES = draw(3, 5, 4), draw(4, 6), draw(4), draw(2, 8, 8, 3)
HEADS = draw(2, 5, 2, 4)
INDICES = np.int32([[0, 3], [4, 1]])


def normalized(x, gamma, beta, epsilon=1e-3, axis=-1):
    mean, variance = tf.nn.moments(x, [axis], keepdims=True)
    scale = tf.math.rsqrt(variance + epsilon) * gamma
    return x * scale + (-mean * scale + beta)


def standardized(x, axes):
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def batch_normalized(x, mean, variance, gamma, beta):
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)


def dense(x, kernel, bias):
    flat = tf.reshape(x, [-1, x.shape[-1]])
    return tf.nn.bias_add(tf.reshape(flat @ kernel, [-1, *x.shape[1:-1], kernel.shape[-1]]), bias)


def embedded(table, ids):
    return tf.gather(table, tf.where(ids < 0, ids + table.shape[0], ids))


def attended(query, key, value):
    scores = tf.einsum("aecd,abcd->acbe", key, query) * 0.5
    return tf.einsum("acbe,aecd->abcd", tf.nn.softmax(scores), value)


def masked(query, key, value):
    scores = tf.einsum("aecd,abcd->acbe", key, query) * 0.5
    allowed = tf.constant(np.tri(5, dtype=bool)[None, None])
    return tf.einsum("acbe,aecd->abcd", tf.nn.softmax(tf.where(allowed, scores, -1e9)), value)


def cell(x, hidden, state, kernel, recurrent, bias):
    gates = tf.nn.bias_add(x @ kernel + hidden @ recurrent, bias)
    i, f, g, o = tf.split(gates, 4, axis=1)
    state = tf.sigmoid(f) * state + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(state) + 0.5 * state


def gated(x, hidden, kernel, recurrent, bias):
    bias, recurrent_bias = (tf.squeeze(b, 0) for b in tf.split(bias, 2, axis=0))
    z, r, h = tf.split(tf.nn.bias_add(x @ kernel, bias), 3, axis=1)
    inner = tf.nn.bias_add(hidden @ recurrent, recurrent_bias)
    z, r = tf.sigmoid(z + inner[:, :5]), tf.sigmoid(r + inner[:, 5:10])
    return z * hidden + (1 - z) * tf.tanh(h + r * inner[:, 10:])


# The function, its arguments, and the text that its source contains.
CASES = {
    "relu": (lambda x: tf.nn.relu(x), [SPECIAL], "jax.nn.relu(x)"),
    "relu6": (lambda x: tf.nn.relu6(x), [SPECIAL], "jax.nn.relu6(x)"),
    "relu6_of_integers": (lambda x: tf.nn.relu6(x), [INDICES * 3], "lax.clamp("),
    "elu": (lambda x: tf.nn.elu(x), [SPECIAL], "jax.nn.elu(x)"),
    "selu": (lambda x: tf.nn.selu(x), [SPECIAL[np.abs(SPECIAL) != np.float32(1e-20)]], "_selu(x)"),
    "softplus": (lambda x: tf.nn.softplus(x), [SPECIAL], "jax.nn.softplus(x)"),
    "sigmoid": (lambda x: tf.sigmoid(x), [SPECIAL], "jax.nn.sigmoid(x)"),
    "silu": (lambda x: x * tf.sigmoid(x), [SPECIAL[1:-1]], "jax.nn.silu(x)"),
    "gelu": (lambda x: tf.nn.gelu(x), [SPECIAL[2:-2]], "jax.nn.gelu(x, approximate=False)"),
    "gelu_tanh": (lambda x: tf.nn.gelu(x, approximate=True), [SPECIAL[2:-2]], "jax.nn.gelu(x)"),
    "swish": (lambda x: tf.nn.silu(x), [SPECIAL[1:-1]], "jax.nn.silu(x)"),
    "power": (lambda x: x**3 + x**2.0, [X], "jnp.power(x, 3)"),
    "root": (lambda x: tf.pow(tf.math.reciprocal(x), 1.5), [np.abs(X)], "lax.pow("),
    "deviation": (lambda x: tf.math.reduce_std(x, -1), [X], "jnp.var(x, axis=-1)"),
    "stack": (lambda x, y: tf.stack([x, y], 1), [X, X], "jnp.stack([x, y], axis=1)"),
    "one_hot": (lambda i: tf.one_hot(i, 5), [INDICES], "jax.nn.one_hot(i, num_classes=5"),
    "softmax": (lambda x: tf.nn.softmax(x), [ROWS], "jax.nn.softmax(x)"),
    "log_softmax": (lambda x: tf.nn.log_softmax(x), [ROWS], "jax.nn.log_softmax(x)"),
    "mean": (lambda x: tf.reduce_mean(x, 1), [X], "jnp.mean(x, axis=1)"),
    "mean_of_all": (lambda x: tf.reduce_mean(x), [X], "jnp.mean(x)"),
    "mean_kept": (lambda x: x - tf.reduce_mean(x, -1, keepdims=True), [X], "jnp.mean(x, axis=-1, keepdims=True)"),
    "sum": (lambda x: tf.reduce_sum(x, [0, 2]), [X], "jnp.sum(x, axis=(0, 2))"),
    "variance": (lambda x: tf.nn.moments(x, [1])[1], [X], "jnp.var(x, axis=1)"),
    "layer_norm": (normalized, [X, VECTOR, draw(4)], "_normalize_rows(x, gamma, beta, epsilon=0.001)"),
    "batch_norm": (batch_normalized, [X, VECTOR, np.abs(draw(4)), draw(4), draw(4)], "_normalize("),
    "hard_silu": (lambda x: x * (tf.nn.relu6(x + 3.0) / 6.0), [SPECIAL[1:-1]], "jax.nn.hard_silu(x)"),
    "hard_sigmoid": (lambda x: tf.nn.relu6(x + 3.0) * (1 / 6), [SPECIAL], "jax.nn.hard_sigmoid(x)"),
    "index": (lambda x: x[:, 2] + x[:, -1], [X], "x[:, 2] + x[:, -1]"),
    "depthwise": (
        lambda x, kernel: tf.nn.depthwise_conv2d(x, kernel, [1, 2, 2, 1], "SAME"),
        [IMAGES, draw(3, 3, 3, 2)],
        "_depthwise_conv(x, kernel, strides=(2, 2))",
    ),
    "standardized": (
        lambda x: standardized(x, [-1]),
        [X],
        "jax.nn.standardize(x, variance=variance, epsilon=0.001)",
    ),
    "standardized_images": (
        lambda x: standardized(x, [1, 2]),
        [IMAGES],
        "jax.nn.standardize(x, variance=variance, epsilon=0.001, axis=(1, 2))",
    ),
    "gru_cell": (
        gated,
        [draw(2, 3), draw(2, 5), draw(3, 15), draw(5, 15), draw(2, 15)],
        '{"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias}',
    ),
    "reverse_twice": (
        lambda x: tf.sin(tf.reverse(tf.transpose(tf.reverse(x, [0])), [1])),
        [MATRIX],
        "jnp.sin(x.T)",
    ),
    "remainder": (lambda x: tf.math.floormod(x, 7), [INDICES * 5 - 9], "x % 7"),
    "philox": (
        lambda x, seed: x + tf.random.stateless_uniform([3, 5, 4], seed),
        [X, np.int32([1, -2])],
        "_philox_uniform(",
    ),
    "dropout": (
        lambda x, seed: tf.nn.experimental.stateless_dropout(x, 0.3, seed),
        [X, np.int32([1, -2])],
        "_philox_dropout(x, 0.3, seed)",
    ),
    "dense": (dense, [X, MATRIX, draw(6)], "x @ kernel"),
    "broadcast": (lambda x, y: tf.reshape(x, [4, 1]) * y, [VECTOR, draw(5)], "x[..., None]"),
    "where": (lambda x: tf.where(x > 0, x * 2.0, 0.0), [X], "jnp.where("),
    "take": (lambda x, i: tf.gather(x, i), [draw(5, 4), INDICES], "_take(x, i)"),
    "embedding": (embedded, [draw(5, 4), INDICES], "jnp.take(table, ids, axis=0"),
    "take_of_each": (lambda x, i: tf.gather(x, i, batch_dims=1), [X[:2], INDICES], "jax.vmap(_take)(x, i)"),
    "take_along_axis": (
        lambda x, i: tf.gather(x, tf.where(i < 0, i + 6, i), batch_dims=1),
        [MATRIX[:2], INDICES],
        'jnp.take_along_axis(x, i, axis=-1, mode="fill", fill_value=0)',
    ),
    "split": (lambda x: tf.split(x, 2, -1)[1] * 2.0, [X], "jnp.split(x, 2, axis=-1)"),
    "concat": (lambda x, y: tf.concat([x, y], 1), [X, X], "jnp.concatenate([x, y], axis=1)"),
    "pad": (lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 0]]), [X], "jnp.pad(x, ((0, 0), (1, 2), (0, 0)))"),
    "slice": (lambda x: x[:, 1:3], [draw(3, 5)], "x[:, 1:3]"),
    "einsum": (lambda x, y: tf.einsum("abc,adc->adb", x, y), [X, X], "jnp.einsum("),
    "conv": (lambda x, k: tf.nn.conv2d(x, k, 2, "SAME"), [IMAGES, draw(3, 3, 3, 4)], "_conv(x, k, strides=(2, 2))"),
    "conv_valid": (
        lambda x, k: tf.nn.conv2d(x, k, 1, "VALID", dilations=2),
        [IMAGES, draw(3, 3, 3, 4)],
        '_conv(x, k, padding="VALID", dilation=(2, 2))',
    ),
    "conv1d": (
        lambda x, k: tf.nn.conv1d(x, k, 1, "VALID", dilations=2),
        [draw(2, 9, 3), draw(3, 3, 4)],
        '_conv1d(x, k, padding="VALID", dilation=2)',
    ),
    "conv1d_strided": (
        lambda x, k: tf.nn.conv1d(x, k, 2, "SAME"),
        [draw(2, 9, 3), draw(3, 3, 4)],
        "_conv1d(x, k, strides=2)",
    ),
    "max_pool": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), [IMAGES], "_max_pool(x, window=(2, 2)"),
    "attention": (attended, [HEADS, draw(2, 5, 2, 4), draw(2, 5, 2, 4)], "_attention(query, key, value)"),
    "masked": (masked, [HEADS, draw(2, 5, 2, 4), draw(2, 5, 2, 4)], "_attention("),
    "lstm_cell": (cell, [draw(3, 4), draw(3, 2), draw(3, 2), draw(4, 8), draw(2, 8), draw(8)], "_lstm_cell("),
}


def assert_near(actual, expected, rtol):
    """Compare arrays relative to the largest moderate element, as sums are rounded by."""
    sizes = np.abs(expected)
    scale = np.max(sizes, where=sizes < 1e6, initial=1)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * scale)


def compare(fn, args, tmp_path, rtol=2e-6):
    """Check values and gradients of a function's source; return the source."""
    function = tf.function(fn)
    specs = [tf.TensorSpec(np.shape(a), np.asarray(a).dtype) for a in args]
    own, params = tf2jax.convert(function, *specs)
    text, constants = written(own, params)
    model = imported(text, tmp_path / "model.py").model
    inexact = [i for i, a in enumerate(args) if np.issubdtype(np.asarray(a).dtype, np.floating)]
    tensors = [tf.constant(a) for a in args]
    with tf.GradientTape() as tape:
        tape.watch([tensors[i] for i in inexact])
        expected = function(*tensors)
    cotangent = np.random.default_rng(1).uniform(0.5, 2, expected.shape).astype(np.float32)
    try:
        gradients = tape.gradient(expected, [tensors[i] for i in inexact], cotangent)
    except tf.errors.InvalidArgumentError:  # TensorFlow's CPU kernels have no gradient of dilated convolutions
        gradients = None

    def call(*chosen):
        given = list(args)
        for i, value in zip(inexact, chosen, strict=True):
            given[i] = value
        return model(tf2jax.nest_params(constants), *given)[0]

    actual, pull = jax.vjp(jax.jit(call), *(jnp.asarray(args[i]) for i in inexact))
    assert_near(actual, expected, rtol)
    if gradients is None:
        _, converted = jax.vjp(jax.jit(lambda *args: own({}, *args)[0]), *map(jnp.asarray, args))
        gradients = converted(jnp.asarray(cotangent))
    for a, e in zip(pull(jnp.asarray(cotangent)), gradients, strict=True):
        assert_near(a, tf.convert_to_tensor(e), 10 * rtol)
    return text


@pytest.mark.default_cases("swish", "power", "split", "masked", "layer_norm")
@pytest.mark.parametrize("name", CASES)
def test_function_is_written_as_its_idiom(name, tmp_path):
    fn, args, expected = CASES[name]
    text = compare(fn, args, tmp_path)
    assert expected in text.replace("_1", ""), text
    assert "broadcast_in_dim" not in text
    assert "custom_jvp" not in text


def with_statistics(x, gamma, beta):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    scale = tf.math.rsqrt(variance + 1e-3) * gamma
    return x * scale + (-mean * scale + beta) + scale


# The function, its arguments, and text that its source must not contain.
NEAR_MISSES = {
    "relu_below_one": (lambda x: tf.maximum(x, 1.0), [SPECIAL], "jax.nn.relu"),
    "leaky_relu": (tf.nn.leaky_relu, [SPECIAL], "jax.nn.leaky_relu"),
    "gelu_of_another_constant": (lambda x: 0.5 * x * (1 + tf.math.erf(x * 0.7)), [X], "jax.nn.gelu"),
    "mean_by_another_count": (lambda x: tf.reduce_sum(x, 1) / 6.0, [X], "jnp.mean"),
    "norm_along_another_axis": (lambda x, a, b: normalized(x, a, b, axis=1), [X, VECTOR, draw(4)], "_normalize_rows"),
    "norm_with_used_scale": (with_statistics, [X, VECTOR, draw(4)], "_normalize_rows"),
    "scale_of_other_axes": (
        lambda x, gamma: tf.math.rsqrt(tf.nn.moments(x, [0, 1, 2])[1] + 1e-3) * gamma,
        [IMAGES, draw(3)],
        "standardize",
    ),
    "normalized_twice": (lambda x: tf.exp(x) / tf.reduce_sum(tf.exp(2 * x), -1, keepdims=True), [X], "softmax"),
    "reshape_that_mixes": (lambda x, k: tf.reshape(tf.reshape(x, [15, 4]) @ k, [5, 3, 6]), [X, MATRIX], "einsum"),
    "outer_broadcast": (lambda x: tf.broadcast_to(x[:, None], [4, 3]), [VECTOR], "jnp.where"),
    "vector_and_column": (lambda x, y: tf.broadcast_to(x, [4, 4]) + y[:, None], [VECTOR, VECTOR], "broadcast_to"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_miss_keeps_its_values(name, tmp_path):
    fn, args, absent = NEAR_MISSES[name]
    assert absent not in compare(fn, args, tmp_path)


def dims(*shape, dtype=np.float32):
    """Return a type; letters in a shape are symbolic dimensions, s of at most 9."""
    sizes = dict(zip("bts", DIMS, strict=True))
    return jax.ShapeDtypeStruct([sizes.get(n, n) for n in shape], dtype)


def positions(x, axis):
    """Return the positions along an axis, counted from 1 as Keras counts them."""
    return jnp.cumsum(jnp.ones(x.shape, np.int32), axis)


DIMS = jax.export.symbolic_shape("b, t, s", constraints=["s <= 9"])
NORM = [dims("b", "t", 4), dims(4), dims(4)]
SYMBOLIC = {
    "norm": (lambda *a: references.layer_norm(*a, 1e-3), NORM, ["_normalize_rows"]),
    "norm_kept": (lambda *a: (references.layer_norm(*a, 1e-3), a[0].mean(-1)), NORM, ["_normalize_rows", "jnp.mean"]),
    "dense": (lambda x, k: (x.reshape(-1, 4) @ k).reshape(*x.shape[:2], 5), [dims("b", "t", 4), dims(4, 5)], ["@"]),
    "heads": (
        lambda x, k: (x.reshape(-1, 4) @ k.reshape(4, 6)).reshape(*x.shape[:2], 2, 3),
        [dims("b", "t", 4), dims(4, 2, 3)],
        ["einsum"],
    ),
    "flat_heads": (
        lambda x, k: x.reshape(*x.shape[:2], 6) @ k.reshape(6, 4),
        [dims("b", "t", 2, 3), dims(2, 3, 4)],
        ["einsum"],
    ),
    "item": (
        lambda x, i: jax.lax.dynamic_index_in_dim(x, i, keepdims=False) * 2,
        [dims("b", 4), dims(dtype=np.int32)],
        ["lax.dynamic_index_in_dim", "mul"],
    ),
    "all_allowed": (
        lambda x, m: jnp.where(jnp.ones((3, 3), bool) & m, x, 0),
        [dims(3, 3), dims(3, dtype=bool)],
        ["select_n"],
    ),
    "triangle": (
        lambda x: jnp.where(positions(x, 0) >= positions(x, 1), x, 0),
        [dims("t", "t")],
        ["tri", "select_n"],
    ),
    "triangle_of_indices": (
        lambda x: jnp.where(jnp.arange(x.shape[0])[:, None] >= jnp.arange(x.shape[0]), x, 0),
        [dims("t", "t")],
        ["tri", "select_n"],
    ),
    "triangle_of_a_batch": (
        lambda x: jnp.where(positions(x[None], 1) >= positions(x[None], 2), x, 0),
        [dims("b", "t")],
        ["tri", "expand_dims", "select_n"],
    ),
    "upper_triangle": (
        lambda x: jnp.where(positions(x, 1) >= positions(x, 0), x, 0),
        [dims("b", "t")],
        ["broadcast_in_dim", "cumsum", "broadcast_in_dim", "cumsum", "ge", "select_n"],
    ),
    "both_masks": (
        lambda m: jnp.minimum(m[:, None], jnp.broadcast_to(jnp.tri(m.shape[1], dtype=bool), (2, 3, 3)).astype(int)) > 0,
        [dims(2, 3, dtype=np.int32)],
        ["expand_dims", "tri", "gt", "and"],
    ),
    "first_rows": (
        lambda x, table: x + lax.slice_in_dim(table, 0, x.shape[0]),
        [dims("s", 4), dims(9, 4)],
        ["first_rows", "add"],
    ),
    "rows_that_might_broadcast": (
        lambda x, table: x + lax.slice_in_dim(table, 0, x.shape[0]) * 2,
        [dims("s", 4), dims(9, 4)],
        ["slice", "mul", "add"],
    ),
    "argmax": (lambda x: helpers._argmax(x, 1), [dims("b", 3, "t")], ["_argmax"]),
    "argmin": (helpers._argmin, [dims("b", 3)], ["_argmin"]),
    "argmax_of_numbers": (lambda x: lax.argmax(x, 1, np.int32), [dims("b", 3)], ["argmax"]),
    "relu": (jax.nn.relu, [dims("b")], ["jax.nn.relu"]),
    "two_results": (
        references.lstm_cell,
        [dims("b", 4), dims("b", 2), dims("b", 2), dims(4, 8), dims(2, 8), dims(8)],
        ["_lstm_cell"],
    ),
    "used_gate": (
        lambda x, h, c, *w: (references.lstm_cell(x, h, c, *w)[0], x @ w[0] + h @ w[1] + w[2]),
        [dims("b", 4), dims("b", 2), dims("b", 2), dims(4, 8), dims(2, 8), dims(8)],
        ["_lstm_cell", "@", "@", "add", "add"],
    ),
}


@pytest.mark.full_cases("relu")
@pytest.mark.parametrize("name", SYMBOLIC)
def test_block_becomes_calls(name):
    fn, args, expected = SYMBOLIC[name]
    block = codegen.from_jaxpr(jax.make_jaxpr(fn)(*args))
    idioms.rewrite([block])
    steps = [s.params.get("function", "@" if s.name == "dot_general" else s.name) for s in block.steps]
    assert steps == expected
    defined = [*map(id, block.args)]
    for step in block.steps:
        assert all(isinstance(v, block_ir.Literal) or id(v) in defined for v in step.inputs)
        assert not {id(v) for v in step.outputs} & set(defined)
        defined += map(id, step.outputs)


def test_names_of_idioms_switch_them_off():
    """Every idiom is documented."""
    assert all(i.name and i.identity.endswith(".") and i.roots for i in idioms.IDIOMS)
    block = codegen.from_jaxpr(jax.make_jaxpr(jax.nn.silu)(X))
    idioms.rewrite([block], without={i.name for i in idioms.IDIOMS})
    assert [s.name for s in block.steps] == ["logistic", "mul"]
    idioms.rewrite([block])
    assert [s.params["function"] for s in block.steps] == ["jax.nn.silu"]


@pytest.mark.full
def test_helpers_are_formatted_for_88_columns():
    assert max(len(line) for text in idioms.HELPERS.values() for line in text.splitlines()) <= 88
