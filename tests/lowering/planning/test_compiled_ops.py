"""config.xla_fallback: hidden ops return through TensorFlow's XLA bridge."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import converted
from tf2jax_lite import lowering
from tf2jax_lite.ops import registry

R = np.random.RandomState(0)
X = R.randn(2, 6, 6, 3).astype(np.float32)
V = R.randn(4, 5).astype(np.float32)
I = np.int32([2, 0, 1])  # noqa: E741


@pytest.fixture
def hide(monkeypatch):
    lowering.known_ops()  # fills the registry

    def apply(*names):
        for name in names:
            monkeypatch.delitem(registry._registry, name)

    return apply


def convert(fn, *args):
    return converted(fn, *args, xla_fallback=True)


# Constants (axes, paddings, a serialized proto), lists in and out, several results, types as attributes.
CASES = {
    "Conv2D": (lambda x: tf.nn.conv2d(x, tf.ones((3, 3, 3, 4)) * tf.reduce_mean(x), 2, "SAME"), X),
    "Sum": (lambda x: tf.reduce_sum(x, [1, 3], keepdims=True), X),
    "MirrorPad": (lambda x: tf.pad(x, [[0, 0], [2, 1], [0, 1], [1, 1]], "SYMMETRIC"), X),
    "MaxPool": (lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), X),
    "GatherV2": (lambda x, i: tf.gather(x, i, axis=1), X, I),
    "FusedBatchNormV3": (lambda x: tf.compat.v1.nn.fused_batch_norm(x, tf.ones(3), tf.zeros(3))[0], X),
    "ConcatV2": (lambda x, y: tf.concat([x, y, -x], 1), V, V[:, :2]),
    "Split": (lambda x: tf.split(x, 2), V),
    "TopKV2": (lambda x: tf.math.top_k(x, 2), V),
    "Cast": (lambda x: tf.cast(x, tf.bfloat16), V),
    "Lgamma": (lambda x: tf.math.lgamma(x), V),
}


@pytest.mark.default_cases("Conv2D", "FusedBatchNormV3", "TopKV2")
@pytest.mark.parametrize("name", CASES)
def test_hidden_ops(name, hide, caplog):
    fn, *args = CASES[name]
    direct = tf2jax.convert_functional(
        tf.function(fn, autograph=False), *(tf.TensorSpec(a.shape, a.dtype) for a in args)
    )
    hide(name)
    with caplog.at_level(logging.WARNING, "tf2jax_lite"):
        ours = convert(fn, *args)
    assert len(ours.xla_fallback_nodes) == 1 and ours.xla_fallback_nodes[0] in caplog.text
    assert direct.xla_fallback_nodes == ()
    want = [np.asarray(v, np.float64) for v in tf.nest.flatten(fn(*map(tf.constant, args)))]

    def total(f):
        return lambda x: sum(jnp.sum(jnp.sin(v.astype(np.float32))) for v in jax.tree.leaves(f(x, *args[1:])))

    def everything(f):
        batched = jax.vmap(lambda x: f(x, *args[1:]))(jnp.stack([args[0], -args[0]]))
        return jax.grad(total(f))(args[0]), batched

    for got, w in zip(jax.tree.leaves(jax.jit(ours)(*args)), want, strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float64), w, rtol=2e-5, atol=2e-5)
    # Derivatives and vmap come from the imported code: those of our own op are the oracle.
    for got, w in zip(*map(jax.tree.leaves, jax.jit(lambda: (everything(ours), everything(direct)))()), strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(w, np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_shapes_are_those_of_the_call(hide):
    hide("Roll", "Selu")

    @tf.function(autograph=False)
    def fn(x, shift):
        rolled = tf.nn.selu(tf.roll(x, shift, 0))
        return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.nn.selu(v)), (0, rolled))[1]

    specs = (tf.TensorSpec((None, 2)), tf.TensorSpec((), tf.int32))
    with tf2jax.override_config("xla_fallback", True):
        ours = tf2jax.convert_functional(fn, *specs)
    assert len(ours.xla_fallback_nodes) == 3 and any("/" in name for name in ours.xla_fallback_nodes)
    for size, shift in ((3, 1), (5, -2), (5, 1)):
        x = R.randn(size, 2).astype(np.float32)
        np.testing.assert_allclose(ours(x, np.int32(shift)), fn(x, shift), rtol=1e-6)
        np.testing.assert_allclose(jax.jit(ours)(x, np.int32(shift)), fn(x, shift), rtol=1e-6)
    (b,) = jax.export.symbolic_shape("b")
    with pytest.raises(ValueError, match=r"(?s)'Roll'.*fixed shapes"):
        jax.eval_shape(ours, jax.ShapeDtypeStruct((b, 2), np.float32), np.int32(1))


def test_constants_that_the_bridge_asks_for(hide):
    hide("Fill")
    ours = convert(lambda n, x: tf.fill([n, 2], x[0]), np.int32(3), V[0])
    np.testing.assert_allclose(ours(np.int32(3), V[0]), np.full((3, 2), V[0, 0]))
    with pytest.raises(ValueError, match=r"(?s)'Fill'.*XLA bridge cannot compile"):
        jax.jit(ours)(np.int32(3), V[0])


@pytest.mark.full
def test_who_does_not_take_that_way(hide):
    hide("Roll", "RandomUniform", "StringJoin", "ReadVariableOp")
    state = tf.Variable(1.0)
    refused = {
        "RandomUniform": lambda: tf.raw_ops.RandomUniform(shape=[3], dtype=tf.float32),  # draws other numbers each time
        "StringJoin": lambda: tf.strings.join(["a", "b"]),
        "ReadVariableOp": lambda: state + 1.0,
    }
    for name, fn in refused.items():
        with (
            pytest.raises(tf2jax.errors.UnsupportedOpsError, match=name),
            tf2jax.override_config("xla_fallback", True),
        ):
            tf2jax.convert(tf.function(fn, autograph=False))
    with pytest.raises(tf2jax.errors.UnsupportedOpsError, match="Roll"):  # off by default
        tf2jax.convert_functional(lambda x: tf.roll(x, 1, 0), tf.TensorSpec((2,)))


@pytest.mark.full
def test_overrides_come_first(hide):
    hide("Roll")
    with tf2jax.override_op("Roll", lambda input, shift, axis: input + 7):
        ours = convert(lambda x: tf.roll(x, 1, 0), V)
    assert ours.xla_fallback_nodes == ()
    np.testing.assert_allclose(ours(V), V + 7)
