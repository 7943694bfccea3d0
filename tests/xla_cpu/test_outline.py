"""Calls that XLA computes once, however many results use them."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.xla_cpu.conv import rule

ROOT = Path(__file__).parent.parent.parent
TAPS = 49


def normalized(x, w, convolve=partial(rule.call, jax.lax.conv_general_dilated)):  # noqa: B008
    """Return a ConvNeXt block's start: mean and deviation use the result."""
    y = convolve(
        x,
        w,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=8,
    )
    y = y + w[0, 0, 0]  # a bias: without one XLA computes it once anyway
    y = y - jnp.mean(y, -1, keepdims=True)
    return y * jax.lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-3)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 16, 16, 8)).astype(np.float32), rng.normal(size=(7, 7, 1, 8)).astype(np.float32)


@pytest.mark.full
def test_a_convolution_of_many_taps_is_computed_once(arrays):
    """Without a call XLA fuses, and repeats, each product in all users."""
    text = jax.jit(normalized).lower(*arrays).compile().as_text()
    assert TAPS <= text.count(" multiply(") < 2 * TAPS


@pytest.mark.full
def test_input_of_taps_is_computed_once(arrays):
    """XLA reads the middle tap before padding: it would recompute it."""
    x, w = arrays
    convolve = partial(rule.call, jax.lax.conv_general_dilated)
    params = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 8}

    def fn(x, w):
        return convolve(x * jax.nn.sigmoid(x), w[:3, :3], window_strides=(1, 1), padding="SAME", **params)

    assert jax.jit(fn).lower(x, w).compile().as_text().count(" exponential(") == 1


@pytest.mark.full
def test_layers_of_one_shape_share_their_code(arrays):
    """One function is lowered for all of them."""
    x, w = arrays
    text = jax.jit(lambda x, w: normalized(normalized(x, w), w + 1)).lower(x, w).as_text()
    assert [text.count(what) for what in ("call @outline", "func.func private @outline")] == [2, 1]
    assert text.count("stablehlo.multiply") < 2 * TAPS


@pytest.mark.full
@pytest.mark.parametrize("transform", [jax.jit, lambda fn: jax.jit(jax.vmap(fn, (0, None)))])
def test_results_are_those_of_the_operations(arrays, transform):
    x, w = arrays
    x = x if transform is jax.jit else x[:, None]
    expected = normalized(*arrays, jax.lax.conv_general_dilated)
    found = transform(normalized)(x, w)
    np.testing.assert_allclose(found, jnp.reshape(expected, found.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_exported_programs_have_it(arrays):
    """The attributes stay in a serialized program for CPU only."""
    fn = jax.jit(normalized)
    for platform, count in (("cpu", 2), ("cuda", 0)):
        exported = jax.export.export(fn, platforms=[platform])(*arrays)
        assert exported.mlir_module().count('inlineable = "false"') == count
        if platform == "cpu":
            again = jax.export.deserialize(exported.serialize())
            np.testing.assert_allclose(again.call(*arrays), fn(*arrays), rtol=1e-6, atol=1e-6)


@pytest.mark.full
def test_programs_for_several_platforms(arrays):
    """Operands and result of the call are computed once there, too."""
    exported = jax.export.export(jax.jit(normalized), platforms=["cpu", "cuda"])(*arrays)
    text = jax.jit(exported.call).lower(*arrays).compile().as_text()
    assert TAPS <= text.count(" multiply(") < 2 * TAPS
    np.testing.assert_allclose(exported.call(*arrays), jax.jit(normalized)(*arrays), rtol=1e-5, atol=1e-5)


SHARDED = """
import jax, numpy as np
from tests.xla_cpu.test_outline import normalized, sharded
x, w = np.random.default_rng(0).normal(size=(8, 8, 8, 8)), np.random.default_rng(1).normal(size=(7, 7, 1, 8))
x, w = x.astype(np.float32), w.astype(np.float32)
expected = jax.jit(normalized)(x, w)
for axis in (0, 1, 3):
    found = sharded(axis, len(jax.devices()))(x, w)
    assert len(found.sharding.device_set) == 4, found.sharding
    np.testing.assert_allclose(found, expected, atol=1e-5)
"""


def sharded(axis, devices):
    """Return `normalized`, with dimension ``axis`` spread over devices."""
    mesh = jax.make_mesh((devices,), ("part",), axis_types=(jax.sharding.AxisType.Auto,))
    parts = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*[None] * axis, "part"))
    same = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.jit(normalized, in_shardings=(parts, same), out_shardings=parts)


@pytest.mark.full
def test_sharded_arguments():
    """The partitioner handles the call, in a process with more devices."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SHARDED], cwd=ROOT, env={**os.environ, **flags}, check=True, timeout=300)
