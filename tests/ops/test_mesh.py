"""Ops inside ``jax.shard_map``: values and gradients as outside.

Derivative rules, transposes and loops that start with constants have to keep that account. One device will do. What
every op of the tables gives is compared with what it gives outside, where the tables' own tests compare it with
TensorFlow.
"""

import functools
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.sharding import Mesh, PartitionSpec

import tf2jax_lite as tf2jax
from tests.compiling import fast_options

from .harness import Case, Subject

HERE = Path(__file__).parent
# What went wrong there once, of each kind; the others are slow.
ALWAYS = """AvgPoolGrad BlockLSTMGrad CTCLoss Conv2DBackpropFilter Conv3DBackpropInputV2 CropAndResizeGradBoxes
DepthwiseConv2dNativeBackpropInput FusedBatchNormGradV3 ImageProjectiveTransformV3 IsotonicRegression MaxPoolGrad
MulNoNan NonMaxSuppressionV5 QuantizeAndDequantizeV4 ResizeBilinearGrad RsqrtGrad StatelessRandomGammaV2
StatelessSampleDistortedBoundingBox StatelessShuffle StatelessTruncatedNormalV2""".split()  # noqa: SIM905
# JAX's own functions, which it cannot trace or lower there.
FAILING = {"Betainc", "Expint", "Spence"}


@functools.cache
def _cases():
    """Return the first two cases of each op that traces anything."""
    found = {}
    for path in sorted(HERE.rglob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        module = ".".join(path.relative_to(HERE).with_suffix("").parts)
        for table in vars(importlib.import_module(f"tests.ops.{module}")).values():
            for case in table if isinstance(table, list | tuple) else ():
                values = getattr(case, "values", None)  # of pytest.param
                case = values[0] if isinstance(values, tuple) and values else case
                if isinstance(case, Case) and not case.error and len(found.setdefault(case.op, [])) < 2:
                    found[case.op].append(case)
    return found


def _same(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        scale = np.max(np.abs(e), initial=0, where=np.isfinite(e)) if e.dtype.kind in "fc" else 0
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5 * (1 + scale))


def _inside(function, varies):
    """Return a function inside of ``shard_map``, with varying arguments."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("devices",))
    along, whole = PartitionSpec("devices"), PartitionSpec()

    def on_one(*args):
        results = function(*(v[0] if varying else v for v, varying in zip(args, varies, strict=True)))
        # What reads nothing that varies is the same on all devices, and may be given as what varies.
        return [(v + jax.lax.pcast(jnp.zeros((), v.dtype), "devices", to="varying"))[None] for v in results]

    specs = tuple(along if varying else whole for varying in varies)
    mapped = jax.jit(jax.shard_map(on_one, mesh=mesh, in_specs=specs, out_specs=along), compiler_options=fast_options())

    def call(*args):
        return [v[0] for v in mapped(*(a[None] if v else a for a, v in zip(args, varies, strict=True)))]

    return call


def _gradients(function, args):
    """Return gradients of inexact results in all inexact arguments, or None."""
    moving = [i for i, v in enumerate(args) if jnp.issubdtype(v.dtype, jnp.inexact)]

    def of(*args):
        def results(*some):
            now = list(args)
            for i, value in zip(moving, some, strict=True):
                now[i] = value
            return [v for v in function(*now) if jnp.issubdtype(v.dtype, jnp.inexact)]

        found, pull = jax.vjp(results, *(args[i] for i in moving))
        return pull([jnp.ones_like(v) + 0 * v for v in found])

    return of if moving else None


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.full) for n in sorted(_cases()) if n not in FAILING],
)
def test_op(name):
    compared = 0
    for case in _cases()[name]:
        subject = Subject(case)
        args = list(map(jnp.asarray, subject.traced_arrays))
        if not args:
            continue
        for function in (subject.converted, _gradients(subject.converted, args)):
            if function is None:
                continue
            try:
                expected = jax.jit(function, compiler_options=fast_options())(*args)
            except (tf2jax.Tf2JaxError, TypeError, ValueError):  # data-dependent shapes, no derivative
                continue
            expected = list(map(np.asarray, expected))
            modes = {
                (True,) * len(args),
                tuple(i == 0 for i in range(len(args))),
                tuple(i != 0 for i in range(len(args))),
            }
            for varies in sorted(modes - {(False,) * len(args)}):
                _same(list(map(np.asarray, _inside(function, varies)(*args))), expected)
                compared += 1
    assert compared or name not in ALWAYS


@pytest.mark.full
def test_a_network_is_trained():
    """A network's convolutions and poolings have CPU lowering rules, loops too."""
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu", padding="same"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.DepthwiseConv2D(3, padding="same", activation="swish"),
            layers.MaxPooling2D(),
            layers.BatchNormalization(),
            layers.Conv2D(64, 1),
            layers.AveragePooling2D(2),
            layers.Conv2DTranspose(16, 3, strides=2),
            layers.UpSampling2D(interpolation="bilinear"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    fn, params = tf2jax.convert(tf.function(lambda x: model(x, training=True)), tf.TensorSpec([None, 32, 32, 3]))
    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype(np.float32)
    weights = {k: v for k, v in params.items() if k.trainable}
    rest = {k: v for k, v in params.items() if not k.trainable}

    def gradients(weights, images):
        return jax.grad(lambda weights: jnp.mean(fn({**rest, **weights}, images)[0] ** 2))(weights)

    mesh = Mesh(np.array(jax.devices()[:1]), ("devices",))
    specs = (PartitionSpec(), PartitionSpec("devices"))
    mapped = jax.jit(jax.shard_map(gradients, mesh=mesh, in_specs=specs, out_specs=PartitionSpec()))
    for name, expected in jax.jit(gradients)(weights, images).items():
        np.testing.assert_allclose(mapped(weights, images)[name], expected, rtol=1e-4, atol=1e-5)
