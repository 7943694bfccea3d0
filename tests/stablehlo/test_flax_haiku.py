"""flax and haiku models through jax2tf and back: values and jaxpr size."""

import functools

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import jax2tf

import tf2jax_lite as tf2jax

from .harness import equations, imported, same

R = np.random.RandomState(6)
KEY = jax.random.key(0)
IMAGE = jnp.asarray(R.randn(2, 6, 6, 2), jnp.float32)
SEQUENCE = jnp.asarray(R.randn(2, 4, 8), jnp.float32)


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(4, (3, 3), strides=2)(x)))
        x = nn.avg_pool(nn.silu(nn.ConvTranspose(3, (2, 2), strides=(2, 2))(x)), (2, 2))
        return nn.Dense(3)(x.reshape(x.shape[0], -1))


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.RMSNorm()(x))))


class Lstm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.RNN(nn.LSTMCell(4))(x))


def haiku_cnn(x):
    x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(4, 3)(x), is_training=hk.running_init()))
    x = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(hk.DepthwiseConv2D(1, 3)(x))
    return hk.Linear(3)(hk.Flatten()(x))


def haiku_transformer(x):
    normed = hk.LayerNorm(-1, True, True)(x)
    x = x + hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(1.0), model_size=8)(
        normed, normed, normed
    )
    return x + hk.nets.MLP([16, 8], activation=jax.nn.gelu)(hk.LayerNorm(-1, True, True)(x))


@functools.cache
def model(name):
    """Return a function of parameters and an input, parameters, and the input."""
    made, x = {
        "flax_cnn": (Cnn, IMAGE),
        "flax_transformer": (Transformer, SEQUENCE),
        "flax_lstm": (Lstm, SEQUENCE),
        "haiku_cnn": (haiku_cnn, IMAGE),
        "haiku_transformer": (haiku_transformer, SEQUENCE),
    }[name]
    if name.startswith("flax"):
        module = made()
        return module.apply, jax.jit(module.init)(KEY, x), x
    transformed = hk.without_apply_rng(hk.transform_with_state(made))
    params, state = jax.jit(transformed.init)(KEY, x)
    return (lambda p, x: transformed.apply(p, state, x)[0]), params, x


def through_tf(fn, params, spec, shapes=None):
    made = tf.function(jax2tf.convert(fn, polymorphic_shapes=[None, shapes]), autograph=False)
    specs = jax.tree.map(lambda w: tf.TensorSpec(w.shape, w.dtype), params)
    return tf2jax.convert_functional(made, specs, spec)


def loss(f):
    return lambda p, x: jnp.sum(jnp.sin(f(p, x)))


def also_slow(*names):
    return [pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["flax_cnn", "haiku_transformer", *also_slow("flax_transformer", "flax_lstm", "haiku_cnn")]
)
def test_model(name):
    fn, params, x = model(name)
    ours = through_tf(fn, params, tf.TensorSpec(x.shape))

    def everything(f):
        return f(params, x), jax.grad(loss(f), (0, 1))(params, x), jax.vmap(f, (None, 0))(params, jnp.stack([x, -x]))

    got, want = jax.jit(lambda: (everything(ours), everything(fn)))()
    same(got[0], want[0], 1e-5)
    same(got[1:], want[1:], 1e-4)
    leaves, tree = jax.tree.flatten(params)

    def flat(*args):
        return fn(jax.tree.unflatten(tree, args[:-1]), args[-1])

    assert equations(imported(flat, *leaves, x), *leaves, x) <= 1.3 * equations(flat, *leaves, x)


@pytest.mark.full
@pytest.mark.parametrize("name", ["flax_transformer", *also_slow("haiku_transformer")])
def test_polymorphic_batch_and_sequence(name):
    fn, params, _ = model(name)
    ours = through_tf(fn, params, tf.TensorSpec((None, None, 8)), "b, t, 8")
    for shape in ((1, 3, 8), (3, 5, 8)):
        x = jnp.asarray(R.randn(*shape), jnp.float32)
        same(jax.jit(ours)(params, x), jax.jit(fn)(params, x), 1e-5)
    b, t = jax.export.symbolic_shape("b, t")
    args = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), params)
    exported = jax.export.export(jax.jit(ours))(args, jax.ShapeDtypeStruct((b, t, 8), np.float32))
    same(exported.call(params, x), jax.jit(fn)(params, x), 1e-5)


@pytest.mark.full
def test_second_order_and_forward_mode():
    fn, params, x = model("flax_cnn")
    with tf2jax.override_config("convert_custom_gradient", False):
        derived = through_tf(fn, params, tf.TensorSpec(x.shape))
    kept = through_tf(fn, params, tf.TensorSpec(x.shape))

    def second(f):
        return jax.grad(lambda x: jnp.sum(jax.grad(loss(f), 1)(params, x) ** 2))(x)

    def forward(f):
        return jax.jvp(lambda x: f(params, x), (x,), (jnp.ones_like(x),))[1]

    def hessian(f):
        return jax.jvp(jax.grad(lambda x: loss(f)(params, x)), (x,), (jnp.ones_like(x),))[1]

    got, want = jax.jit(
        lambda: (
            (second(kept), second(derived), forward(derived), hessian(derived)),
            (second(fn), forward(fn), hessian(fn)),
        )
    )()
    same(got, (want[0], *want), 1e-4)


@pytest.mark.full
def test_between_tensorflow_ops():
    fn, params, x = model("haiku_cnn")
    inner = jax2tf.convert(fn)

    @tf.function(autograph=False)
    def mixed(p, x):
        y = inner(p, tf.nn.relu(x) * 2.0)
        y = tf.cond(tf.reduce_sum(y) > 100.0, lambda: y, lambda: y + inner(p, x))
        return tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v + inner(p, x * tf.reduce_mean(v))), (0, y))[1]

    def same_in_jax(p, x):
        y = fn(p, jax.nn.relu(x) * 2) + fn(p, x)
        for _ in range(2):
            y = y + fn(p, x * jnp.mean(y))
        return y

    ours = tf2jax.convert_functional(
        mixed, jax.tree.map(lambda w: tf.TensorSpec(w.shape, w.dtype), params), tf.TensorSpec(x.shape)
    )

    def everything(f):
        return f(params, x), jax.grad(loss(f), 1)(params, x)

    got, want = jax.jit(lambda: (everything(ours), everything(same_in_jax)))()
    same(got, want, 1e-4)


@pytest.mark.full
def test_gradients_within_gradients():
    """custom_vjp in custom_vjp, under vmap and scan, as by jax2tf."""

    @jax.custom_vjp
    def clipped(x):
        return x * 1.0

    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))

    @jax.custom_vjp
    def doubled(x):
        return jnp.sum(clipped(x))

    doubled.defvjp(lambda x: (doubled(x), x), lambda x, g: (2 * g * jax.grad(lambda v: jnp.sum(clipped(v * v)))(x),))

    def fn(x):
        rows = jax.vmap(lambda r: jax.lax.scan(lambda c, a: (c + doubled(a[None]), c), 0.0, r)[0])(x)
        return jnp.sum(clipped(rows) ** 2) + doubled(x)

    x = SEQUENCE[0]
    ours = tf2jax.convert_functional(tf.function(jax2tf.convert(fn), autograph=False), tf.TensorSpec(x.shape))
    same((ours(x), jax.grad(ours)(x)), (fn(x), jax.grad(fn)(x)), 1e-5)
