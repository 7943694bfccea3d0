"""What is told to be zero at zero is; what is not understood is not told so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.autodiff.custom_gradient import is_zero_at_zero, zero_results
from tf2jax_lite.xla_cpu.materialize import materialize

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
LINEAR = {
    "product": lambda u: u * X,
    "quotient": lambda u: u / X,
    "matrices": lambda u: X.T @ u @ X.T,
    "chosen": lambda u: jnp.where(X > 0, u, 0.0),
    "sums": lambda u: jnp.cumsum(u, 1) - jnp.sum(u, 0) + u[::-1],
    "data movement": lambda u: jnp.pad(jnp.concatenate([u, -u])[1:, :2].T.reshape(-1), 1),
    "nothing": lambda u: jnp.zeros((3,)),
    "a call": lambda u: jax.jit(lambda v: v * X)(u),
    "materialized": lambda u: materialize(u) * X,
    "complex": lambda u: jnp.real(jnp.conj(lax.complex(u, 2 * u) * (1 + 2j))),
}
OTHERS = {
    "offset": lambda u: u * X + X,
    "constant": lambda u: jnp.ones_like(u),
    "chosen": lambda u: jnp.where(X > 0, u, 1.0),
    "padded": lambda u: jnp.pad(u, 1, constant_values=2.0),
    "quotient": lambda u: X / (1 + u),
    "exponential": lambda u: jnp.exp(u),
    "a call": lambda u: jax.jit(lambda v: v + X)(u),
}


@pytest.mark.default_cases("quotient")
@pytest.mark.parametrize("name", LINEAR)
def test_linear(name):
    np.testing.assert_array_equal(LINEAR[name](jnp.zeros_like(X)), 0)
    assert is_zero_at_zero(jax.make_jaxpr(LINEAR[name])(X), [0])


@pytest.mark.default_cases("offset", "constant", "chosen")
@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    assert np.any(OTHERS[name](jnp.zeros_like(X)))
    assert not is_zero_at_zero(jax.make_jaxpr(OTHERS[name])(X), [0])


@pytest.mark.full
def test_other_arguments():
    closed = jax.make_jaxpr(lambda x, u: (u * x, u * 2))(X, X)
    assert is_zero_at_zero(closed, [1])
    assert not is_zero_at_zero(closed, [0])


@pytest.mark.full
def test_zero_results():
    closed = jax.make_jaxpr(lambda x, u: (jnp.zeros_like(x), x * u, 0.0, x))(X, X)
    assert zero_results(closed) == [True, False, True, False]
    assert zero_results(closed, [1]) == [True, True, True, False]
