"""Elementwise ops are one equation if `jax.lax` broadcasts, as NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.ops import known_ops
from tf2jax_lite.ops.common.broadcasting import array, matched, number

FULL = np.linspace(1, 2, 24, dtype=np.float32).reshape(2, 3, 4)
COLUMN, ROW, VECTOR = FULL[:, :, :1], FULL[:1], FULL[0, 0]
HALF, BF16 = np.asarray(0.5, np.float32), np.asarray(0.5, jnp.bfloat16)
# operands (traced ones by number, static ones as values), equations
SHAPES = [
    ((FULL, FULL), (), 1),
    ((FULL, ROW), (), 1),
    ((COLUMN, ROW), (), 1),
    ((FULL, VECTOR), (), 2),
    ((FULL,), (HALF,), 1),
    ((VECTOR, HALF), (), 1),
    ((FULL.astype(jnp.bfloat16),), (BF16,), 1),
]
OPS = {"AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "RealDiv": np.divide, "Less": np.less}


def _call(name, swapped, known):
    def call(*traced):
        operands = [*traced, *known]
        return known_ops()[name].fn(*(operands[::-1] if swapped else operands))

    return call


@pytest.mark.default_cases("AddV2-traced1-known1-1-True")
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("traced", "known", "equations"), SHAPES)
@pytest.mark.parametrize("name", OPS)
def test_values_and_number_of_equations(name, traced, known, equations, swapped):
    call = _call(name, swapped, known)
    operands = [*traced, *known][:: -1 if swapped else 1]
    closed = jax.make_jaxpr(call)(*traced)
    assert len(closed.eqns) == equations
    assert not closed.consts
    expected = OPS[name](*(np.asarray(v) for v in operands))
    np.testing.assert_allclose(np.asarray(jax.jit(call)(*traced)), expected, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(("traced", "known", "equations"), SHAPES[:-1])
@pytest.mark.parametrize("name", ["AddV2", "Mul", "RealDiv"])
def test_gradients_have_the_operands_shapes(name, traced, known, equations):
    reference = {"AddV2": jnp.add, "Mul": jnp.multiply, "RealDiv": jnp.divide}[name]
    where = tuple(range(len(traced)))
    ours = jax.grad(lambda *v: jnp.sum(jnp.sin(_call(name, False, known)(*v))), where)(*traced)
    theirs = jax.grad(lambda *v: jnp.sum(jnp.sin(reference(*v, *known))), where)(*traced)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_shapes_that_do_not_broadcast_raise():
    with pytest.raises(ValueError, match="Incompatible shapes"):
        jax.make_jaxpr(lambda x, y: lax.add(*matched(x, y)))(FULL, FULL[:, :2])


@pytest.mark.full
def test_symbolic_sizes():
    rows, columns = jax.export.symbolic_shape("b, c")
    spec = jax.ShapeDtypeStruct((rows, columns), np.float32)
    row = jax.ShapeDtypeStruct((1, columns), np.float32)

    def call(x, y):
        return lax.div(lax.mul(*matched(x, y)), number(x.shape[0], np.float32))

    exported = jax.export.export(jax.jit(call))(spec, row)
    x, y = FULL[0], FULL[0, :1]
    np.testing.assert_allclose(exported.call(x, y), x * y / 3, rtol=1e-6)


@pytest.mark.full
def test_arrays_pass_through_and_numbers_are_literals():
    seen = []

    def call(x):
        seen.append(array(x) is x)
        return lax.mul(x, number(3, np.float16))

    closed = jax.make_jaxpr(call)(np.ones(2, np.float16))
    assert seen == [True]
    assert not closed.consts
    assert isinstance(array(FULL), jax.Array)
