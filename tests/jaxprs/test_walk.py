"""Visit of jaxprs: sizes of variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.jaxprs.evaluate import size


@pytest.mark.full
def test_size():
    (eqn,) = jax.make_jaxpr(jnp.sin)(np.ones((2, 3), np.float32)).jaxpr.eqns
    assert [size(eqn.outvars[0]), size(eqn.outvars[0], 5)] == [6, 30]
    (n,) = jax.export.symbolic_shape("n")
    (eqn,) = jax.make_jaxpr(jnp.sin)(jax.ShapeDtypeStruct((n,), np.float32)).jaxpr.eqns
    assert size(eqn.outvars[0]) == np.inf
