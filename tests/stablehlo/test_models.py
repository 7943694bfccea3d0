"""Models in plain JAX, there and back: at most 1.3 times the equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from .harness import equations, imported, same

R = np.random.RandomState(3)


def p(*shape, scale=0.3):
    return jnp.asarray(R.randn(*shape) * scale, jnp.float32)


def mlp(x, w1, b1, w2, b2):
    return jax.nn.log_softmax(jax.nn.relu(x @ w1 + b1) @ w2 + b2)


def cnn(x, k1, b1, k2, scale, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.relu(lax.conv_general_dilated(x, k1, (1, 1), "SAME", dimension_numbers=numbers) + b1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = lax.conv_general_dilated(x, k2, (2, 2), "SAME", dimension_numbers=numbers, feature_group_count=2)
    x = scale * (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3)
    x = lax.reduce_window(jax.nn.silu(x), 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID") / 4
    return x.reshape(x.shape[0], -1) @ w


def norm(x, g):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g


def transformer(tokens, table, g1, wqkv, wo, g2, w1, w2):
    x = table[tokens] + jnp.sin(jnp.arange(tokens.shape[1])[:, None] * 0.1)
    q, k, v = jnp.split((norm(x, g1) @ wqkv).reshape(*x.shape[:2], 2, -1), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ wo
    return (x + jax.nn.gelu(norm(x, g2) @ w1) @ w2) @ table.T


def deep(x, ws):
    def layer(h, w):
        return h + jnp.tanh(norm(h, 1.0) @ w), h.mean()

    return lax.scan(layer, x, ws)


def gru(xs, wi, wh):
    def step(h, x):
        a, b = jnp.split(x @ wi, 3, -1), jnp.split(h @ wh, 3, -1)
        r, z = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
        h = (1 - z) * jnp.tanh(a[2] + r * b[2]) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], wh.shape[0])), xs)


MODELS = {
    "mlp": (mlp, (p(4, 8), p(8, 16), p(16), p(16, 5), p(5))),
    "cnn": (cnn, (p(2, 8, 8, 3), p(3, 3, 3, 4), p(4), p(3, 3, 2, 6), p(6), p(6, 5))),
    "transformer": (
        transformer,
        (jnp.int32([[1, 2, 3], [4, 0, 2]]), p(7, 8), p(8), p(8, 24), p(8, 8), p(8), p(8, 16), p(16, 8)),
    ),
    "deep": (deep, (p(4, 8), p(3, 8, 8))),
    "gru": (gru, (p(5, 2, 3), p(3, 12), p(4, 12))),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    fn, args = MODELS[name]
    ours = imported(fn, *args)
    first = 1 if name == "transformer" else 0  # tokens have no gradient

    def loss(f):
        return lambda *args: sum(jnp.sum(v**2) for v in jax.tree.leaves(f(*args)))

    def everything(f):
        which = tuple(range(first, len(args)))
        return f(*args), jax.grad(loss(f), which)(*args)

    got, want = jax.jit(lambda: (everything(ours), everything(fn)))()
    same(got[0], want[0])
    same(got[1], want[1], 1e-3)
    assert equations(ours, *args) <= 1.3 * equations(fn, *args), jax.make_jaxpr(ours)(*args)
    grads = [jax.grad(loss(f), first) for f in (ours, fn)]
    assert equations(grads[0], *args) <= 1.3 * equations(grads[1], *args)


@pytest.mark.full
def test_a_gradient_that_went_through():
    fn, args = MODELS["gru"]

    def step(*args):
        return jax.value_and_grad(lambda *a: jnp.sum(fn(*a)[0] ** 2), (1, 2))(*args)

    ours = imported(step, *args)
    same(ours(*args), step(*args))
    assert equations(ours, *args) <= 1.3 * equations(step, *args)
    assert "while[" not in str(jax.make_jaxpr(ours)(*args))


@pytest.mark.full
def test_half_precision_and_vmap():
    fn, args = MODELS["mlp"]
    args = [a.astype(jnp.bfloat16) for a in args]
    ours = imported(fn, *args)
    same(jax.vmap(ours, (0, None, None, None, None))(args[0][None], *args[1:]), fn(*args)[None], 5e-2)
