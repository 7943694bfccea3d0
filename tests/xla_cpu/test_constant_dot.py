"""Products with sparse constant weights gather on CPU, else multiply.

The tests of resizing ops compare with TensorFlow; here each transformation and lowering is compared with the matrix
product.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from tf2jax_lite.jaxprs import constant_dot as products
from tf2jax_lite.xla_cpu.transform import call

from .test_rules import compare


def weights(rows, columns, most, seed=0):
    """Return up to ``most`` weights in each row, none in some."""
    rng = np.random.default_rng(seed)
    found = np.zeros((rows, columns), np.float32)
    for row in range(rows):
        indices = rng.permutation(columns)[: rng.integers(0, most + 1)]
        found[row, indices] = rng.normal(size=len(indices))
    return found


MATRICES = {
    "few": weights(7, 9, 2),
    "more": weights(4, 20, 5),
    "too many": weights(6, 9, 8),
    "none": np.zeros((3, 5), np.float32),
    "few back": weights(30, 3, 1),
}
SHAPE = (2, 3, 2)


def constant_dot(x, matrix, axis, precision, side=1):
    fn = partial(products.constant_dot, weights=matrix, axis=axis, precision=precision, side=side)
    return call(fn, x)


def product(x, *, matrix, axis, side):
    return jnp.moveaxis(lax.dot_general(x, matrix, (((axis,), (side,)), ((), ())), precision="highest"), -1, axis)


@pytest.mark.full
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 3])
@pytest.mark.parametrize("name", MATRICES)
def test_values_and_derivatives_of_the_matrix_product(name, axis, side):
    matrix = MATRICES[name]
    x = np.random.default_rng(1).normal(size=(*SHAPE[:axis], matrix.shape[side], *SHAPE[axis:])).astype(np.float32)
    compare(
        partial(product, matrix=matrix, axis=axis, side=side),
        lambda x: constant_dot(x, matrix, axis, "highest", side),
        x,
    )


@pytest.mark.full
@pytest.mark.parametrize(("name", "gathers"), [("few", True), ("more", True), ("too many", False)])
def test_lowering_by_platform(name, gathers):
    """GPUs multiply; CPUs gather, in both modes and in modules for both."""
    matrix = MATRICES[name]
    fn = jax.grad(lambda x: jnp.sum(jnp.sin(constant_dot(x, matrix, 0, "highest"))))
    x = jax.ShapeDtypeStruct((matrix.shape[1], 4), np.float32)
    texts = {
        p: export.export(jax.jit(fn), platforms=p)(x).mlir_module() for p in (("cpu",), ("cuda",), ("cpu", "cuda"))
    }
    counts = {p: (text.count("stablehlo.dot_general"), text.count('stablehlo.gather"')) for p, text in texts.items()}
    assert counts["cuda",] == (2, 0)
    assert (counts["cpu",][0] == 0) == gathers and (counts["cpu",][1] > 0) == gathers
    assert counts["cpu", "cuda"] == tuple(a + b for a, b in zip(counts["cpu",], counts["cuda",], strict=True))


@pytest.mark.full
def test_infinity_reaches_its_results_only():
    """Non-finite values reach the results with weights for them, no others."""
    x = np.zeros((9, 2), np.float32)
    x[4, 0] = np.inf
    found = np.asarray(jax.jit(lambda x: constant_dot(x, MATRICES["few"], 0, "highest"))(x))
    np.testing.assert_array_equal(np.isfinite(found[:, 0]), MATRICES["few"][:, 4] == 0)
    assert np.all(np.isfinite(found[:, 1]))


@pytest.mark.full
def test_in_shard_map():
    """The weights are the same everywhere, the other operand varies between devices."""
    matrix = MATRICES["few"]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    fn = jax.grad(lambda x: jnp.sum(jnp.sin(constant_dot(x, matrix, 1, "highest"))))
    x = np.random.default_rng(1).normal(size=(2, 9)).astype(np.float32)
    found = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=spec, out_specs=spec))(x)
    np.testing.assert_allclose(found, fn(x), rtol=1e-6)
