"""Which functions are proven to treat each example of a batch alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.jaxprs.independence import MIXED, Examples, examples_of_results

X = jnp.ones((4, 6, 4))  # sizes that coincide must not confuse axes
W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
EACH = Examples(0)


def recurrent(x):
    def step(carry, row):
        carry = jnp.tanh(carry @ W + row)
        return carry, carry

    return lax.scan(step, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1))[1].swapaxes(0, 1)


def attention(x):
    scores = jnp.einsum("bqd,bkd->bqk", x @ W, x)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), x)


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 1), (1, 2, 1), "VALID")


def convolved(x):
    return lax.conv_general_dilated(x, jnp.ones((3, 4, 4)), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def looped(x):
    return lax.fori_loop(0, 3, lambda _, v: jnp.sin(v), x)


ALONE = {
    "elementwise": lambda x: jax.nn.gelu(x) * jnp.where(x > 0, x, 2.0),
    "merged axes and back": lambda x: (jnp.reshape(x, (-1, 4)) @ W).reshape(4, 6, 4),
    "flattened": lambda x: jnp.reshape(x, (x.shape[0], -1)),
    "mean of an example": lambda x: jnp.mean(x, (1, 2)),
    "moved and back": lambda x: jnp.moveaxis(jnp.cumsum(jnp.moveaxis(x, 0, 1), 0), 0, 1),
    "rows of a table": lambda x: jnp.asarray(W)[jnp.argmax(x, -1)],
    "a step of each": lambda x: jnp.take_along_axis(x, jnp.argmax(x, 1, keepdims=True), 1),
    "padded, cut, sorted": lambda x: jnp.sort(jnp.pad(x, ((0, 0), (1, 1), (0, 0)))[:, 2:], -1),
    "noise": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "a branch": lambda x: lax.cond(W.sum() > 0, jnp.sin, jnp.cos, x),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x)),
    "layer norm": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-3),
    **{f.__name__: f for f in (recurrent, attention, pooled, convolved, looped)},
}
TOGETHER = {
    "mean of the batch": lambda x: x - x.mean(0),
    "in-batch negatives": lambda x: x[:, 0] @ x[:, 0].T,
    "cumulative over examples": lambda x: jnp.cumsum(x, 0),
    "reversed": lambda x: x[::-1],
    "neighbors": lambda x: jnp.concatenate([x[1:], x[:1]]),
    "transposed": lambda x: jnp.swapaxes(x[:, :4], 0, 1),
    "sorted examples": lambda x: jnp.sort(x, 0),
    "rows of the batch": lambda x: x[jnp.argsort(x[:, 0, 0])],
    "merged otherwise": lambda x: jnp.reshape(x, (6, 4, 4)),
    "loop until all agree": lambda x: lax.while_loop(lambda v: jnp.sum(v) > 9, lambda v: v / 2, x),
    "scan over examples": lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros((6, 4)), x)[1],
    "a branch by the batch": lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "no rule": lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    "scatter": lambda x: jnp.zeros((4, 6, 4)).at[jnp.argmax(x[:, 0], -1)].add(x),
}


def tags_of(function):
    return examples_of_results(jax.make_jaxpr(function)(X), [EACH])


@pytest.mark.parametrize("case", ALONE)
def test_examples_alone(case):
    assert tags_of(ALONE[case]) == [EACH]
    padded = X.at[2:].set(5.0)  # the proof holds
    np.testing.assert_array_equal(ALONE[case](X)[:2], ALONE[case](padded)[:2])


@pytest.mark.parametrize("case", TOGETHER)
def test_examples_together(case):
    assert tags_of(TOGETHER[case]) != [EACH]


def test_results_without_examples():
    assert tags_of(lambda x: (jnp.sum(W), jnp.sum(x), x)) == [None, MIXED, EACH]
