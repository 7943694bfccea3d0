"""Round trips with symbolic dimensions, for several sizes, exportable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tf2jax_lite as tf2jax

from .harness import same

R = np.random.RandomState(8)
KERNEL = R.randn(3, 3, 4).astype(np.float32)
NUMBERS = ("NWC", "WIO", "NWC")


def conv(x, stride, padding, **options):
    return lax.conv_general_dilated(x, KERNEL, (stride,), padding, dimension_numbers=NUMBERS, **options)


def definite(x):
    return x.transpose(0, 2, 1) @ x + 4 * jnp.eye(3)


# Functions of one array of shape (b, t, 3).
FUNCTIONS = {
    "joined sizes": lambda x: x.reshape(-1, 3) @ KERNEL[0] + x.shape[0] * x.shape[1],
    "parts of sizes": lambda x: x.reshape(x.shape[0], -1)[:, : x.shape[1] // 2 + x.shape[1] % 2],
    "powers": lambda x: x * x.shape[1] ** 3 + 1 / (x * x + 1),
    "the last ones": lambda x: (x[:, -2:], x[:, :-1], jnp.roll(x, 1, 1)),
    "bounded sizes": lambda x: x * jnp.clip(x.shape[1], 3, 6) + jnp.maximum(x.shape[1], 5),
    "strided convolutions": lambda x: (conv(x, 2, "SAME"), conv(x, 3, "SAME", rhs_dilation=(2,)), conv(x, 2, "VALID")),
    "padded by a size": lambda x: conv(jnp.pad(x, ((0, 0), (0, -x.shape[1] % 4), (0, 0))), 1, [(2, 1)]),
    "cholesky": lambda x: jnp.linalg.cholesky(definite(x)),
    "solve": lambda x: jnp.linalg.solve(definite(x), x.transpose(0, 2, 1)),
    "eigenvalues": lambda x: (jnp.linalg.eigvalsh(definite(x)), jnp.linalg.svd(definite(x), compute_uv=False)),
    "qr": lambda x: jnp.abs(jnp.linalg.qr(definite(x))[1]),
    "backwards": lambda x: lax.scan(lambda c, a: (c + a.sum(), c * a), jnp.float32(0), x, reverse=True),
}


@pytest.mark.default_cases("bounded sizes", "strided convolutions", "padded by a size")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    fn = FUNCTIONS[name]
    specs = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, t, 3"), np.float32)
    ours = tf2jax.from_stablehlo(jax.export.export(jax.jit(fn))(specs).mlir_module_serialized)
    again = jax.export.export(jax.jit(ours))(specs)
    for size in (4, 7):
        x = R.randn(2, size, 3).astype(np.float32)
        want = jax.jit(fn)(x)
        same(jax.jit(ours)(x), want, 1e-4)
        same(again.call(x), want, 1e-4)
        gradients = [
            jax.grad(lambda x, f=f: sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(f(x)))) for f in (ours, fn)
        ]
        if size == 4:
            same(*(jax.jit(gradient)(x) for gradient in gradients), 1e-3)
