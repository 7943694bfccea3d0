"""Products with swapped operands: equal values, another GPU program."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import export
from jax.test_util import check_grads

import tf2jax_lite
from tf2jax_lite.xla_cpu import dot_order

# The equation, the operands' shapes, and the shape of the product on GPU; None where it is in the given order.
PRODUCTS = {
    "attention": ("acbe,aecd->abcd", (2, 3, 4, 5), (2, 5, 3, 6), (2, 3, 6, 4)),
    "one example": ("acbe,aecd->abcd", (1, 3, 4, 5), (1, 5, 3, 6), (1, 3, 6, 4)),
    "two sums": ("acbef,aefcd->abcd", (2, 3, 4, 5, 2), (2, 5, 2, 3, 6), (2, 3, 6, 4)),
    "more on both sides": ("acbge,aechd->abgchd", (2, 3, 4, 2, 5), (2, 5, 3, 2, 6), (2, 3, 2, 6, 4, 2)),
    "scores": ("aecd,abcd->acbe", (2, 5, 3, 6), (2, 4, 3, 6), None),
    "as wanted": ("abc,acd->abd", (2, 3, 4), (2, 4, 5), None),
    "rotated": ("abc,acd->adb", (2, 3, 4), (2, 4, 5), None),
    "without batches": ("ab,bc->ca", (3, 4), (4, 5), None),
    "neither order": ("acbge,aechd->abhcgd", (2, 3, 4, 2, 5), (2, 5, 3, 2, 6), None),
}


def _made(equation, left, right, dtype=np.float32):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in (left, right)]
    tensors = [tf.cast(a, dtype) for a in arrays]
    graph = tf.function(lambda x, y: tf.einsum(equation, x, y))
    fn = tf2jax_lite.convert_functional(graph, *(tf.TensorSpec(t.shape, t.dtype) for t in tensors))
    return fn, graph, tensors


@pytest.mark.full
@pytest.mark.parametrize("name", PRODUCTS)
def test_values_and_derivatives(name):
    equation, left, right, _ = PRODUCTS[name]
    fn, graph, tensors = _made(equation, left, right)
    arrays = [jnp.asarray(t.numpy()) for t in tensors]
    expected = graph(*tensors).numpy()
    for run in (fn, jax.jit(fn)):
        np.testing.assert_allclose(run(*arrays), expected, rtol=1e-5, atol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = tf.reduce_sum(tf.sin(graph(*tensors)))
    grads = jax.jit(jax.grad(lambda x, y: jnp.sum(jnp.sin(fn(x, y))), (0, 1)))(*arrays)
    for found, wanted in zip(grads, tape.gradient(loss, tensors), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    check_grads(fn, arrays, order=2, modes=("fwd", "rev"), atol=2e-2, rtol=2e-2)
    # Batches of the first operand, of the second, of both.
    many = [jnp.stack([a, 2 * a, -a]) for a in arrays]
    for axes in ((0, None), (None, 0), (0, 0)):
        given = [m if axis == 0 else a for m, a, axis in zip(many, arrays, axes, strict=True)]
        found = jax.vmap(fn, in_axes=axes)(*given)
        for i, part in enumerate(found):
            wanted = fn(*(g[i] if axis == 0 else g for g, axis in zip(given, axes, strict=True)))
            np.testing.assert_allclose(part, wanted, rtol=1e-5, atol=1e-5)
    for position in range(2):  # a function linear in one operand is transposed without a derivative before

        def alone(value, position=position):
            return fn(*(value if i == position else a for i, a in enumerate(arrays)))

        (found,) = jax.linear_transpose(alone, arrays[position])(jnp.ones_like(expected))
        wanted = jax.grad(lambda value, alone=alone: jnp.sum(alone(value)))(arrays[position])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def _product(fn, arrays, platform):
    """Return the shape of the product in a program for a platform."""
    text = export.export(jax.jit(fn), platforms=[platform])(*arrays).mlir_module()
    (found,) = re.findall(r"stablehlo\.dot_general.*-> tensor<([\dx]+)xf32>", text)
    return tuple(map(int, found.split("x")))


@pytest.mark.default_cases("one example")
@pytest.mark.parametrize("name", PRODUCTS)
def test_order(name):
    """On CPU the product is in the given order (XLA fuses a softmax into that one)."""
    equation, left, right, elsewhere = PRODUCTS[name]
    fn, _, tensors = _made(equation, left, right)
    arrays = [jnp.asarray(t.numpy()) for t in tensors]
    given = _product(fn, arrays, "cpu")
    with jax.default_matmul_precision("highest"):  # then the given order is taken everywhere
        assert _product(fn, arrays, "cuda") == given
    assert _product(fn, arrays, "cuda") == (elsewhere or given)
    assert elsewhere is None or given != elsewhere


@pytest.mark.full
def test_half_precision():
    fn, graph, tensors = _made(*PRODUCTS["attention"][:3], dtype=tf.bfloat16)
    found = fn(*(jnp.asarray(t.numpy()) for t in tensors))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), tf.cast(graph(*tensors), tf.float32), rtol=2e-2, atol=2e-2)


@pytest.mark.full
@pytest.mark.parametrize(
    ("labels", "wanted", "expected"),
    [
        ("abc", "abc", True),
        ("acdb", "abcd", True),
        ("acbd", "abcd", False),
        ("abcd", "cdab", True),
        ("abc", "cba", False),
    ],
)
def test_rotated(labels, wanted, expected):
    assert dot_order._is_rotated(labels, wanted) is expected
