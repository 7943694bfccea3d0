"""Top k by one sort of packed integers on CPU: as ``lax.top_k``."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import PartitionSpec

from tf2jax_lite.xla_cpu.transform import call

DTYPES = ["float32", "float16", "bfloat16", "int8", "int16", "int32", "uint8", "uint16", "uint32"]


def top_k(x, k):
    return tuple(call(lax.top_k, x, k=k))


def odd(dtype, size=40):
    """All kinds of values and their neighbours, some of them several times."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    whole = np.dtype(f"uint{8 * dtype.itemsize}")
    bits = np.random.default_rng(0).integers(0, 2 ** (8 * dtype.itemsize), size, whole)
    half = 1 << (8 * dtype.itemsize - 1)
    if dtype.kind not in "iu":
        inf = int(np.asarray(np.inf, dtype).view(whole))
        bits[:10] = [0, half, inf, inf | half, inf + 1, (inf + 1) | half, 1, 1 | half, half - 1, 2 * half - 1]
    else:
        bits[:5] = [0, half, half - 1, 2 * half - 1, 1]
    bits[20:] = bits[:20]
    return np.random.default_rng(1).permutation(bits).view(dtype)


def same(found, expected):
    for a, e in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        assert np.asarray(a).tobytes() == np.asarray(e).tobytes()


@pytest.mark.full
@pytest.mark.parametrize("k", [0, 1, 7, 39, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits(dtype, k):
    x = odd(dtype)
    for value in (x, x.reshape(1, 40), np.stack([x, x[::-1]])):
        same(top_k(jnp.asarray(value), k), lax.top_k(value, k))


@pytest.mark.default_cases("shape3")
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3), (2, 3, 4)])
def test_shapes(shape):
    x = np.float32(np.arange(np.prod(shape)).reshape(shape) % 5)
    same(top_k(jnp.asarray(x), shape[-1]), lax.top_k(x, shape[-1]))


def total(top, x):
    values, indices = top(x, 5)
    return jnp.sum(jnp.sin(values) * jnp.arange(1.0, 6) * (indices + 1))


@pytest.mark.full
@pytest.mark.parametrize("transform", [jax.grad, jax.hessian, jax.jacfwd])
def test_derivatives(transform):
    x = jnp.float32([[1, 3, 3, 2, -1, 3], [0, 0, 5, 5, 1, 2]])
    found, expected = (transform(partial(total, top))(x) for top in (top_k, lax.top_k))
    np.testing.assert_array_equal(found, expected)
    found, expected = (jax.jit(jax.vmap(transform(partial(total, top)), 1))(x[:, None]) for top in (top_k, lax.top_k))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.full
def test_inside_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = PartitionSpec("i")
    x = jnp.float32([[1, 3, 3, 2], [4, 0, 0, 1]])
    fn = jax.shard_map(lambda x: top_k(x, 4), mesh=mesh, in_specs=(spec,), out_specs=(spec, spec))
    same(jax.jit(fn)(x), lax.top_k(x, 4))


@pytest.mark.full
@pytest.mark.parametrize(("k", "packs"), [(6, True), (1, True), (0, False)])
def test_lowering_by_platform(k, packs):
    fn = jax.jit(lambda x: top_k(x, k))
    x = np.float32([[1, 3, 3, 2, 100, 0], [5, 5, 5, 5, 4, 6]])
    for platforms in (["cpu"], ["cpu", "cuda", "tpu"], ["cuda"]):
        exported = export.export(fn, platforms=platforms)(x)
        assert ("tensor<2x6xi64>" in exported.mlir_module()) == (packs and "cpu" in platforms)
        if "cpu" in platforms:
            same(exported.call(x), lax.top_k(x, k))


@pytest.mark.full
def test_symbolic_size():
    x = np.float32([[1, 3, 3, 2, 100, 0], [5, 5, 5, 5, 4, 6]])
    for shape, constraints in (("b, 6", []), ("b, n", ["n >= 5"])):
        spec = export.symbolic_args_specs([x], shape, constraints)
        same(export.export(jax.jit(lambda x: top_k(x, 5)))(*spec).call(x), lax.top_k(x, 5))
