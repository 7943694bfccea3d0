"""Rules of convolutions and poolings against JAX's own primitives.

The ops' own tests compare with TensorFlow; here every transformation is tested, for the cases of the rules.
"""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from tests.compiling import fast_options
from tf2jax_lite.xla_cpu import cost_model
from tf2jax_lite.xla_cpu.transform import call

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "HWIO", "NCHW")
VOLUMES, VOLUMES_FIRST = ("NDHWC", "DHWIO", "NDHWC"), ("NCDHW", "DHWIO", "NCDHW")
BORDER = ((1, 2), (0, 1))


def convolution(x, w, **params):
    return lax.conv_general_dilated(x, w, **params)


def largest(x, *, where):
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, *where)


def total(x, *, where):
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, *where)


def conv(shape, kernel, strides, padding, layout=LAST, **more):
    params = {"window_strides": strides, "padding": padding, "dimension_numbers": layout, **more}
    return shape, kernel, params


CONVOLUTIONS = {
    "depthwise": conv((2, 7, 8, 4), (3, 2, 1, 4), (2, 1), "SAME", rhs_dilation=(1, 2), feature_group_count=4),
    "multiplier": conv((2, 7, 8, 4), (3, 2, 1, 8), (2, 2), BORDER, feature_group_count=4),
    "wide strides": conv((2, 7, 8, 3), (2, 2, 1, 3), (3, 2), "VALID", feature_group_count=3),
    "depthwise NCHW": conv((2, 4, 7, 8), (2, 2, 1, 8), (2, 1), "SAME", FIRST, feature_group_count=4),
    "depthwise 1d": conv((2, 9, 4), (3, 1, 4), (2,), "SAME", ("NWC", "WIO", "NWC"), feature_group_count=4),
    "pointwise": conv((2, 7, 8, 4), (1, 1, 4, 5), (2, 2), "SAME"),
    "pointwise NCHW, padded": conv((2, 4, 7, 8), (1, 1, 4, 5), (2, 3), BORDER, FIRST),
    "filter gradient": conv((2, 9, 9, 8), (2, 2, 8, 17), (2, 1), "SAME"),
    "filter gradient NCW": conv((3, 8, 16), (16, 8, 3), (1,), "SAME", ("NCW", "OIW", "NCW"), rhs_dilation=(2,)),
    "filter gradient, few": conv((8, 9, 9, 2), (8, 7, 2, 3), (1, 1), ((0, 1), (1, 0))),
    "filter gradient, few, wide padding": conv((6, 7, 8, 2), (7, 7, 2, 3), (1, 1), ((4, 1), (0, 5))),
    "filter gradient, few, negative padding": conv((4, 2, 9, 9), (5, 6, 2, 2), (1, 1), ((-1, 0), (1, -2)), FIRST),
    "filter gradient, few NCW": conv((6, 8, 9), (3, 8, 8), (1,), ((1, 1),), ("NCW", "OIW", "NCW")),
    "filter gradient of a volume, few": conv(
        (6, 5, 6, 7, 2), (4, 6, 5, 2, 1), (1, 1, 1), ((0, 1), (1, 0), (-1, 2)), VOLUMES
    ),
    "filter gradient of a volume, few NCDHW": conv(
        (8, 3, 5, 6, 7), (5, 4, 5, 3, 2), (1, 1, 1), ((1, 2), (0, 0), (0, 1)), VOLUMES_FIRST
    ),
    "filter gradient of a 1x1 kernel, fewer out": conv((9, 6, 5, 4), (6, 5, 4, 3), (1, 1), "VALID", LAST),
    "filter gradient of a 1x1 kernel, fewer in": conv((3, 6, 5, 4), (6, 5, 4, 9), (1, 1), "VALID", LAST),
    "filter gradient of a volume, many products": conv(
        (8, 11, 12, 13, 1), (10, 11, 12, 1, 16), (1, 1, 1), ((1, 0), (0, 1), (1, 1)), VOLUMES
    ),
    "im2col rows": conv((2, 9, 8, 8), (3, 3, 8, 17), (1, 1), "SAME"),
    "im2col rows, strides and dilation": conv((3, 9, 10, 9), (2, 3, 9, 16), (2, 1), BORDER, rhs_dilation=(1, 2)),
    "im2col rows NCHW": conv((2, 8, 7, 9), (3, 2, 8, 16), (1, 2), "SAME", FIRST),
    "im2col rows, negative padding": conv((2, 9, 8, 8), (3, 2, 8, 16), (1, 1), ((-1, 0), (1, -2))),
    "im2col rows, few channels": conv((2, 9, 11, 3), (4, 5, 3, 16), (1, 1), "VALID"),
    "im2col rows 1d": conv((3, 8, 29), (16, 8, 3), (1,), "SAME", ("NCW", "OIW", "NCW")),
    "im2col rows, several small images at a time": conv((16, 4, 3, 5), (2, 1, 5, 16), (1, 1), "VALID"),
    "im2col rows, volume": conv((2, 4, 5, 6, 2), (2, 3, 2, 2, 16), (1, 2, 1), "SAME", VOLUMES),
    "im2col rows, depth moves the gradient": conv((2, 8, 4, 3, 16), (3, 2, 2, 16, 17), (1, 1, 2), "SAME", VOLUMES),
    "im2col rows, depth moves the gradient, dilation": conv(
        (1, 16, 9, 4, 5), (3, 3, 2, 16, 16), (1, 2, 1), ((0, 3), (1, 0), (-1, 2)), VOLUMES_FIRST, rhs_dilation=(2, 1, 1)
    ),
    "patches": conv((2, 7, 7, 4), (3, 3, 4, 5), (3, 3), "VALID"),
    "patches, filter gradient": conv((2, 9, 9, 4), (3, 3, 4, 5), (1, 1), "VALID", rhs_dilation=(3, 3)),
    "taps far apart NCHW": conv((2, 3, 5, 7), (2, 3, 3, 4), (1, 1), ((1, 2), (0, 1)), FIRST, rhs_dilation=(5, 3)),
    "taps far apart, one tap": conv((2, 5, 7, 3), (1, 3, 3, 4), (1, 1), ((1, 0), (-1, 0)), rhs_dilation=(2, 3)),
    "whole": conv((2, 4, 4, 4), (4, 4, 4, 5), (4, 4), "VALID"),
    "filter gradient with input dilation": conv(
        (3, 6, 5, 4), (11, 9, 4, 5), (1, 1), ((1, 2), (2, 1)), lhs_dilation=(2, 2)
    ),
    "filter gradient with input dilation NCHW, negative padding": conv(
        (2, 3, 7, 6), (12, 15, 3, 4), (1, 1), ((-1, 2), (1, 1)), FIRST, lhs_dilation=(2, 3)
    ),
    "filter gradient with input dilation, volume": conv(
        (2, 3, 4, 3, 2), (4, 6, 5, 2, 3), (1, 1, 1), ((0, 0), (0, 1), (1, 0)), VOLUMES, lhs_dilation=(2, 2, 2)
    ),
    "stacked volume": conv((2, 5, 6, 7, 5), (2, 3, 2, 5, 12), (1, 1, 1), ((1, 0), (0, 2), (1, 1)), VOLUMES),
    "stacked volume NCDHW": conv(
        (1, 6, 7, 6, 5), (3, 1, 3, 6, 13), (1, 1, 1), "SAME", VOLUMES_FIRST, rhs_dilation=(2, 1, 1)
    ),
    "im2col": conv((2, 1, 2, 32), (2, 3, 32, 33), (1, 1), "SAME", rhs_dilation=(1, 2)),
    "im2col, many weights NCHW": conv((1, 240, 9, 8), (3, 3, 240, 256), (2, 1), BORDER, FIRST),
    "im2col, many taps": conv((2, 3, 4, 256), (4, 4, 256, 256), (2, 2), "SAME"),
    "small": conv((2, 3, 4, 8), (5, 4, 8, 16), (1, 1), "SAME"),
    "small NCHW, strides and dilation": conv(
        (2, 8, 3, 5), (4, 4, 8, 9), (2, 1), ((4, 3), (5, 4)), FIRST, rhs_dilation=(2, 3)
    ),
    "small, one result": conv((2, 4, 4, 8), (5, 4, 8, 3), (1, 1), ((1, 0), (0, 0))),
    "small 1d": conv((2, 5, 8), (8, 8, 8), (1,), "SAME", ("NWC", "WIO", "NWC")),
    "depthwise, many taps": conv((1, 9, 8, 3), (7, 6, 1, 3), (1, 2), "SAME", feature_group_count=3),
    "depthwise, one more dilated": conv(
        (2, 5, 6, 64), (3, 2, 1, 64), (1, 1), "SAME", rhs_dilation=(1, 2), feature_group_count=64
    ),
    "depthwise 1d, many channels": conv(
        (2, 9, 32), (3, 1, 32), (1,), "SAME", ("NWC", "WIO", "NWC"), feature_group_count=32
    ),
    "input dilation": conv((2, 4, 5, 3), (5, 4, 3, 4), (1, 1), ((3, 4), (-1, 2)), lhs_dilation=(2, 3)),
    "input dilation NCHW, empty phases": conv(
        (2, 3, 4, 5), (1, 3, 3, 4), (1, 1), ((0, 3), (2, 0)), FIRST, lhs_dilation=(3, 2)
    ),
    "input and kernel dilation": conv(
        (2, 6, 3), (4, 3, 5), (1,), ((2, 1),), ("NWC", "WIO", "NWC"), lhs_dilation=(4,), rhs_dilation=(2,)
    ),
    "non-overlapping, negative padding": conv(
        (2, 4, 5, 3), (2, 3, 3, 4), (1, 1), ((2, -1), (-2, 5)), lhs_dilation=(3, 3)
    ),
    "non-overlapping NCHW": conv((2, 3, 4, 5), (2, 1, 3, 4), (1, 1), ((1, 1), (0, 0)), FIRST, lhs_dilation=(2, 1)),
    "non-overlapping, volume": conv(
        (1, 2, 3, 2, 3), (1, 2, 2, 3, 4), (1, 1, 1), ((0, 0), (1, 1), (1, 1)), VOLUMES, lhs_dilation=(1, 2, 2)
    ),
    "strided": conv((2, 9, 8, 6), (3, 3, 6, 4), (2, 2), "SAME"),
    "volume": conv((2, 4, 5, 4, 3), (3, 2, 3, 3, 4), (1, 2, 1), "SAME", VOLUMES, rhs_dilation=(1, 1, 2)),
    "volume NCDHW": conv((1, 3, 5, 3, 4), (2, 3, 2, 3, 4), (2, 1, 1), ((0, 1), (1, 0), (2, 0)), VOLUMES_FIRST),
    "plane of a volume": conv((2, 4, 5, 4, 3), (1, 2, 3, 3, 4), (2, 2, 1), "SAME", VOLUMES, rhs_dilation=(1, 1, 2)),
    "plane of a volume NCDHW": conv(
        (2, 3, 4, 5, 4), (1, 3, 3, 3, 2), (1, 1, 1), ((1, 2), (0, 1), (1, 0)), VOLUMES_FIRST
    ),
    "plane of a volume with input dilation": conv(
        (1, 3, 4, 4, 2), (1, 3, 3, 2, 3), (2, 1, 1), ((1, 0), (1, 2), (0, 1)), VOLUMES, lhs_dilation=(1, 2, 2)
    ),
    "column of a volume": conv((2, 5, 4, 3, 3), (3, 1, 1, 3, 4), (1, 1, 1), "SAME", VOLUMES),
    "column of a volume, strides": conv(
        (2, 7, 4, 5, 3), (2, 1, 1, 3, 4), (2, 1, 2), ((1, 0), (1, 0), (0, 2)), VOLUMES, rhs_dilation=(2, 1, 1)
    ),
    "column of a volume with input dilation": conv(
        (1, 4, 3, 2, 2), (3, 1, 1, 2, 3), (1, 2, 1), ((1, 2), (0, 0), (0, 0)), VOLUMES, lhs_dilation=(2, 1, 1)
    ),
    "column of a volume, cropped": conv(
        (1, 5, 4, 4, 2), (2, 1, 1, 2, 3), (1, 1, 1), ((0, 1), (-1, 0), (1, -1)), VOLUMES
    ),
    "volume with input dilation": conv(
        (1, 3, 2, 3, 3), (2, 3, 3, 3, 4), (1, 1, 1), ((1, 2),) * 3, VOLUMES, lhs_dilation=(2, 2, 1)
    ),
    "groups, many products": conv((2, 14, 15, 16), (3, 3, 8, 64), (1, 1), "SAME", feature_group_count=2),
    "groups NCHW, many products": conv((2, 12, 24, 24), (3, 3, 4, 48), (2, 1), BORDER, FIRST, feature_group_count=3),
    "groups": conv((2, 5, 5, 4), (3, 3, 2, 6), (1, 1), "SAME", feature_group_count=2),
    "grouped": conv((2, 5, 6, 6), (3, 2, 2, 9), (1, 2), "SAME", feature_group_count=3),
    "grouped NCHW, dilation": conv(
        (3, 6, 7, 8), (2, 3, 3, 4), (2, 1), BORDER, FIRST, rhs_dilation=(2, 1), feature_group_count=2
    ),
    "grouped, input dilation": conv(
        (1, 4, 3, 4), (3, 3, 2, 4), (1, 1), ((2, 2), (2, 3)), lhs_dilation=(2, 3), feature_group_count=2
    ),
    "grouped 1d": conv((2, 9, 4), (4, 2, 6), (2,), "SAME", ("NWC", "WIO", "NWC"), feature_group_count=2),
    "grouped, several from one": conv((2, 6, 7, 4), (3, 2, 1, 12), (1, 1), "SAME", feature_group_count=4),
    "grouped, several from one, strides": conv((2, 7, 8, 3), (3, 3, 1, 6), (2, 1), BORDER, feature_group_count=3),
    "grouped, several from one, many taps": conv((1, 1, 150, 3), (1, 131, 1, 6), (1, 1), "SAME", feature_group_count=3),
    "grouped, one from several": conv((2, 12, 6, 7), (3, 2, 4, 3), (1, 2), "SAME", FIRST, feature_group_count=3),
    "grouped volume": conv((1, 3, 4, 5, 4), (2, 2, 3, 2, 6), (1, 2, 1), "SAME", VOLUMES, feature_group_count=2),
    "grouped, a few large": conv((2, 4, 5, 64), (3, 3, 32, 66), (1, 1), "SAME", feature_group_count=2),
    "grouped pointwise": conv((2, 5, 6, 6), (1, 1, 2, 9), (1, 1), "SAME", feature_group_count=3),
    "grouped pointwise NCHW, strides": conv((2, 6, 7, 8), (1, 1, 3, 4), (2, 3), BORDER, FIRST, feature_group_count=2),
    "grouped pointwise, input dilation": conv(
        (1, 4, 3, 4), (1, 1, 2, 4), (1, 1), ((2, 2), (-1, 3)), lhs_dilation=(2, 3), feature_group_count=2
    ),
    "grouped pointwise, negative padding 1d": conv(
        (2, 9, 4), (1, 2, 6), (2,), ((-1, 2),), ("NWC", "WIO", "NWC"), feature_group_count=2
    ),
    "grouped pointwise of a volume": conv(
        (1, 3, 4, 5, 4), (1, 1, 1, 2, 6), (1, 2, 1), "SAME", VOLUMES, feature_group_count=2
    ),
    "sum of depthwise": conv((2, 5, 6, 6), (3, 2, 2, 9), (1, 2), "SAME", feature_group_count=3),
    "sum of depthwise NCHW, dilation": conv(
        (4, 6, 7, 8), (2, 3, 3, 4), (2, 1), BORDER, FIRST, rhs_dilation=(2, 1), feature_group_count=2
    ),
    "sum of depthwise, input dilation": conv(
        (2, 4, 3, 4), (3, 3, 2, 4), (1, 1), ((2, 2), (2, 3)), lhs_dilation=(2, 3), feature_group_count=2
    ),
    "sum of depthwise, negative padding 1d": conv(
        (2, 9, 4), (4, 2, 6), (2,), ((-1, 2),), ("NWC", "WIO", "NWC"), feature_group_count=2
    ),
    "sum of depthwise of a volume": conv(
        (4, 3, 4, 5, 4), (2, 2, 3, 2, 6), (1, 2, 1), "SAME", VOLUMES, feature_group_count=2
    ),
    "sum of depthwise, several to many": conv((1, 5, 6, 6), (3, 3, 3, 2), (1, 1), "SAME", feature_group_count=2),
    "sum of depthwise, some images at a time": conv((6, 5, 4, 6), (3, 2, 2, 9), (1, 2), "SAME", feature_group_count=3),
    "sum of depthwise, some images at a time NCHW": conv(
        (4, 6, 5, 4), (2, 3, 2, 6), (2, 1), BORDER, FIRST, feature_group_count=3
    ),
    "sum of depthwise, an image at a time, input dilation": conv(
        (3, 3, 4, 4), (3, 3, 2, 4), (1, 1), ((2, 2), (2, 3)), lhs_dilation=(2, 2), feature_group_count=2
    ),
}
# Groups are not convolved channel by channel.
LOOPED = (("GROUP_MAX_CHANNELS", 0),)
# Thresholds of the cost model that make rules hold for small arrays, by the start of a case's name.
SMALL = {
    "grouped": (("GROUPED_MIN_PRODUCTS", 0), *LOOPED),
    "groups": LOOPED,
    "im2col rows": (
        ("FILTER_MIN_FLOATS", 0),
        ("FILTER_MIN_FLOATS_OF_VOLUMES", 0),
        ("FILTER_MIN_FLOATS_OF_FEW_CHANNELS", 0),
        ("FILTER_MIN_WEIGHTS_PER_TAP", 0),
        ("FILTER_MIN_WINDOW_PER_TAP", 1),
        ("FILTER_IM2COL_ROWS", 6),
    ),
    "sum of depthwise": (("GROUPED_MIN_PRODUCTS", 0), ("GROUP_MAX_TAPS", 12)),
    "sum of depthwise, some images at a time": (("L2_FLOATS", 700),),
    "sum of depthwise, an image at a time": (("L2_FLOATS", 1),),
}
POOLS = {
    "non-overlapping": ((2, 6, 8, 3), (1, 2, 2, 1), (1, 2, 2, 1), (0, 0, 0, 0)),
    "unit stride": ((2, 5, 6, 3), (1, 3, 2, 1), (1, 1, 1, 1), (0, 2, 1, 0)),
    "overlapping": ((2, 7, 8, 3), (1, 3, 3, 1), (1, 2, 2, 1), (0, 1, 1, 0)),
    "strides beyond the window": ((2, 7, 7, 3), (1, 2, 2, 1), (1, 3, 3, 1), (0, 0, 1, 0)),
    "volume": ((1, 3, 4, 4, 2), (1, 2, 2, 2, 1), (1, 2, 1, 2, 1), (0, 0, 1, 0, 0)),
    "large": ((1, 11, 10, 2), (1, 9, 8, 1), (1, 2, 1, 1), (0, 4, 3, 0)),
    "large volume": ((1, 6, 7, 6, 1), (1, 5, 4, 4, 1), (1, 2, 2, 1, 1), (2, 0, 1, 1, 0)),
    "whole": ((2, 5, 5, 3), (1, 5, 5, 1), (1, 1, 1, 1), (0, 0, 0, 0)),
}


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
    """Lower the thresholds of the cost model, by the name of the case."""
    monkeypatch.setattr(cost_model, "POOL_MIN_OVERLAP", 0)
    monkeypatch.setattr(cost_model, "POOL_MIN_VALUES", 0)
    name = request.node.callspec.params.get("name", "") if hasattr(request.node, "callspec") else ""
    for start, limits in SMALL.items():
        for limit, value in limits if name.startswith(start) else ():
            monkeypatch.setattr(cost_model, limit, value)


def first_order(fn, *args):
    """Value, gradient, tangent, and a batch."""
    result, pull = jax.vjp(fn, *args)
    upstream = jnp.cos(jnp.arange(result.size, dtype=result.dtype)).reshape(result.shape)
    tangents = tuple(jnp.sin(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape) for a in args)
    return {
        "value": result,
        "gradient": pull(upstream),
        "tangent": jax.jvp(fn, args, tangents)[1],
        "batch": jax.vmap(fn)(*(jnp.stack([a, -a]) for a in args)),
    }


def everything(fn, *args):
    """Also both kinds of second derivative."""
    tangents = tuple(jnp.sin(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape) for a in args)
    positions = tuple(range(len(args)))

    def loss(*args):
        return jnp.sum(jnp.sin(fn(*args)))

    def steepness(*args):
        return sum(jnp.sum(g**2) for g in jax.grad(loss, positions)(*args))

    return {
        **first_order(fn, *args),
        "forward over reverse": jax.jvp(jax.grad(loss, positions), args, tangents)[1],
        "reverse over reverse": jax.grad(steepness, positions)(*args),
    }


def backwards(fn, *args):
    """All that has no tangents."""
    return {
        key: value for key, value in everything(fn, *args).items() if key not in ("tangent", "forward over reverse")
    }


def compare(plain, fast, *args, everything=everything):
    np.testing.assert_allclose(fast(*args), plain(*args), rtol=1e-5, atol=1e-5)
    options = fast_options()
    found, expected = (jax.jit(partial(everything, fn, *args), compiler_options=options)() for fn in (fast, plain))
    for key, value in expected.items():
        for e, a in zip(jax.tree.leaves(value), jax.tree.leaves(found[key]), strict=True):
            # Second derivatives add up large numbers.
            atol = max(1e-3, 2e-6 * float(np.abs(e).max(initial=0)))
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=atol, err_msg=key)


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def scaled(*kernel):
    """Weights with which all derivatives are of the order of 1."""
    return normal(*kernel) / np.float32(np.sqrt(np.prod(kernel[:-1])))


@pytest.mark.default_cases(
    "non-overlapping, volume",
    "column of a volume, strides",
    "input dilation",
    "grouped pointwise",
)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name):
    shape, kernel, params = CONVOLUTIONS[name]
    weights = scaled(*kernel)
    # Large sums have large round-off; second derivatives and their batches do not depend on the case.
    compare(
        partial(convolution, **params),
        partial(call, lax.conv_general_dilated, **params),
        normal(*shape),
        weights,
        everything=first_order if "many" in name else everything,
    )


@pytest.mark.full
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("fn", [largest, total])
def test_pool(name, fn):
    """Rounded values: ties must send the gradient where XLA (and TensorFlow) sends it."""
    shape, window, strides, after = POOLS[name]
    where = (window, strides, tuple((0, n) for n in after))
    plain, fast = partial(fn, where=where), partial(call, fn, where=where)
    if fn is total or "xla_cpu_use_fusion_emitters" in fast_options():
        compare(plain, fast, np.round(normal(*shape)))
        return
    # Forwards XLA's other code, the only one since JAX 0.11, takes another of equal values than backwards.
    compare(plain, fast, np.round(normal(*shape)), everything=backwards)
    compare(plain, fast, normal(*shape))


@pytest.mark.default_cases("sum of depthwise, some images at a time", "large")
@pytest.mark.parametrize(
    "name",
    [
        "filter gradient",
        "groups, many products",
        "sum of depthwise, some images at a time",
        "im2col",
        "volume",
        "unit stride",
        "large",
    ],
)
def test_in_64_bit_mode(name):
    """Loops' counters are of another type there."""
    with jax.enable_x64(True):
        if name in POOLS:
            shape, window, strides, after = POOLS[name]
            fn, more = largest, {"where": (window, strides, tuple((0, n) for n in after))}
            args = (normal(*shape, dtype=np.float64),)
        else:
            shape, kernel, more = CONVOLUTIONS[name]
            fn = lax.conv_general_dilated
            args = (normal(*shape, dtype=np.float64), normal(*kernel, dtype=np.float64))
        compare(partial(fn, **more), partial(call, fn, **more), *args, everything=first_order)


@pytest.mark.full
@pytest.mark.parametrize("layout", [LAST, FIRST], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_convolutions_in_loops_are_channels_last(layout, strides):
    """In loops XLA keeps the dimensions' order: gradients took 10 times as long."""
    shape = (2, 9, 9, 16) if layout is LAST else (2, 16, 9, 9)
    run = partial(call, lax.conv_general_dilated, window_strides=strides, padding="SAME", dimension_numbers=layout)

    def steps(x, w):
        def step(at, _):
            gradients = jax.grad(lambda x, w: jnp.sum(jnp.sin(run(x, w))), (0, 1))(*at)
            return tuple(a - 0.1 * g for a, g in zip(at, gradients, strict=True)), None

        return lax.scan(step, (x, w), None, length=3)[0]

    x, w = normal(*shape), normal(3, 3, 16, 8)
    text = jax.jit(steps).lower(x, w).compile().as_text()
    found = set(re.findall(r"dim_labels=([^,\s]+)", text))
    assert found == {"b01f_01io->b01f"}


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name.startswith("grouped, several")])
def test_depthwise_filter_gradients_have_no_batch_groups(name):
    """XLA takes hundreds of times as long if channels have several results."""
    shape, kernel, params = CONVOLUTIONS[name]
    run = partial(call, lax.conv_general_dilated, **params)
    gradient = jax.jit(jax.grad(lambda w, x: jnp.sum(jnp.sin(run(x, w)))))
    text = gradient.lower(scaled(*kernel), normal(*shape)).as_text()
    assert set(re.findall(r"batch_group_count = (\d+)", text)) <= {"1"}


@pytest.mark.full
def test_depthwise_filter_gradient_sums_long_rows():
    params = {**CONVOLUTIONS["depthwise, one more dilated"][2], "rhs_dilation": (1, 1), "feature_group_count": 32}
    run = partial(call, lax.conv_general_dilated, **params)
    gradient = jax.jit(jax.grad(lambda w, x: jnp.sum(jnp.sin(run(x, w)))))
    x, w = normal(2, 5, 50, 32), scaled(3, 3, 1, 32)
    assert "dimensions = [2] : (tensor<2x5x50x32x" in gradient.lower(w, x).as_text()
    plain = jax.grad(lambda w, x: jnp.sum(jnp.sin(convolution(x, w, **params))))
    np.testing.assert_allclose(gradient(w, x), plain(w, x), rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("side", [2, 9])
def test_padding_is_never_the_argmax(side):
    """In a window of minus infinities and padding, the gradient goes to the array."""
    where = ((side, side), (side, side), ((side - 1, 1), (side - 1, 1)))
    x = np.full((side, side), -np.inf, np.float32)
    upstream = np.arange(1, 5, dtype=np.float32).reshape(2, 2)
    gradient = jax.grad(lambda x: jnp.vdot(call(largest, x, where=where), upstream))
    expected = np.zeros((side, side))
    expected[:2, :2] = upstream  # the first taps inside
    np.testing.assert_array_equal(jax.jit(gradient)(x), expected)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", ["depthwise", "pointwise", "patches", "grouped", "volume"])
def test_half_precision_is_summed_in_float32(name, dtype):
    """The result is the float64 sum rounded once, not off by several units."""
    shape, kernel, params = CONVOLUTIONS[name]
    x, w = normal(*shape).astype(dtype), normal(*kernel).astype(dtype)
    with jax.enable_x64(True):
        expected = np.asarray(convolution(x.astype(np.float64), w.astype(np.float64), **params))
    actual = call(lax.conv_general_dilated, jnp.asarray(x), jnp.asarray(w), **params)
    assert actual.dtype == dtype
    unit = float(jnp.finfo(dtype).eps) * 0.51
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=unit, atol=1e-5)


@pytest.mark.full
def test_im2col_is_as_exact_as_the_primitive():
    """The error is at most three times the primitive's, against float64."""
    x, w = normal(1, 2, 1, 128), scaled(3, 3, 128, 64)
    padded = np.pad(x.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    exact = np.tensordot(windows, w.astype(np.float64), ([4, 5, 3], [0, 1, 2]))
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAST}
    error = {
        name: np.max(np.abs(np.asarray(fn(x, w), np.float64) - exact))
        for name, fn in (
            ("plain", partial(convolution, **params)),
            ("by rule", partial(call, lax.conv_general_dilated, **params)),
        )
    }
    assert 0 < error["by rule"] <= 3 * error["plain"]


@pytest.mark.default_cases("8-strides2-pads3")
@pytest.mark.parametrize("pads", [((-1, -1), (-2, 2)), ((-3, 4), (1, -1)), ((0, 0), (-5, 1)), ((-9, 12), (0, 0))])
@pytest.mark.parametrize(("groups", "strides"), [(1, (1, 2)), (2, (1, 1)), (8, (2, 1))])
def test_negative_padding_reads_no_other_rows(pads, groups, strides):
    """XLA reads other rows there (openxla/xla#48713): the array is padded."""
    x, w = normal(2, 8, 9, 8), normal(2, 3, 8 // groups, 8)
    params = {"window_strides": strides, "dimension_numbers": LAST, "feature_group_count": groups}
    cut = x[:, max(-pads[0][0], 0) : 8 + min(pads[0][1], 0), max(-pads[1][0], 0) : 9 + min(pads[1][1], 0)]
    padded = np.pad(cut, ((0, 0), *((max(lo, 0), max(hi, 0)) for lo, hi in pads), (0, 0)))
    padded = padded[:, : 8 + sum(pads[0])]  # where more is cut than there is
    expected = convolution(padded, w, padding="VALID", **params)
    actual = jax.jit(partial(call, lax.conv_general_dilated, padding=pads, **params))(x, w)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("form", "padding", "expected"),
    [
        ((8, 56, 64, 64, 3, 1), "SAME", ["8x56x56x64"]),  # XLA's own
        ((8, 224, 3, 64, 3, 1), "SAME", ["8x224x224x3"]),
        ((8, 4, 128, 128, 5, 1), "SAME", ["8x7x8x128"]),  # fewer positions than taps: explicit padding, all but a line
    ],
)
def test_rule(form, padding, expected):
    """Only such convolutions remain; benchmarks/pages/performance.md has measurements."""
    batch, side, channels, outputs, window, stride = form
    params = {"window_strides": (stride, stride), "padding": padding, "dimension_numbers": LAST}
    fn = jax.jit(partial(call, lax.conv_general_dilated, **params))
    args = (batch, side, side, channels), (window, window, channels, outputs)
    text = fn.lower(*(jax.ShapeDtypeStruct(a, np.float32) for a in args)).as_text()
    assert re.findall(r"stablehlo.convolution.* : \(tensor<(.*)xf32>, ", text) == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ((2, 62, 3, 64, 7, 2), ["3x61x61x2"]),  # a convolution of one image for each channel, not packed
        ((1, 58, 3, 64, 3, 1), ["3x58x58x1"]),
        ((4, 230, 3, 64, 7, 2), []),  # im2col of some rows at a time
        ((2, 114, 3, 64, 3, 1), []),
        ((4, 224, 3, 768, 16, 16), []),  # patches: a matrix product
        ((4, 57, 32, 64, 3, 1), []),  # a loop of matrix products
        ((8, 58, 128, 128, 3, 1), []),
        ((8, 30, 128, 128, 3, 1), ["8x30x30x128"]),  # fits the cache
        ((8, 113, 16, 32, 3, 1), ["8x113x113x16"]),
    ],
)
def test_rule_of_filter_gradients(form, expected):
    """Packed rows' large windows would reach over: nearly all is dropped."""
    batch, side, channels, outputs, window, stride = form
    params = {"window_strides": (stride, stride), "padding": "VALID", "dimension_numbers": LAST}
    fn = partial(call, lax.conv_general_dilated, **params)
    x, w = np.zeros((batch, side, side, channels), np.float32), np.zeros((window, window, channels, outputs))
    out, pull = jax.eval_shape(fn, x, w.astype(np.float32)), lambda w, g: jax.vjp(partial(fn, x), w)[1](g)[0]
    text = jax.jit(pull).lower(w.astype(np.float32), np.zeros(out.shape, np.float32)).as_text()
    shapes = re.findall(r"stablehlo.convolution.* : \(tensor<([^>]*)xf32>, .*\) -> tensor<(.*)xf32>", text)
    assert [sorted(map(int, s[0].split("x"))) for s in shapes] == [sorted(map(int, e.split("x"))) for e in expected]
    assert all(int(n) <= side for _, result in shapes for n in result.split("x")[1:3]), shapes


@pytest.mark.full
def test_rules_are_for_cpu_only():
    """Rules hold in programs for CPU only; one exported for two platforms has both."""
    shape, kernel, params = CONVOLUTIONS["depthwise"]
    fn = jax.jit(partial(call, lax.conv_general_dilated, **params))
    args = (jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct(kernel, np.float32))
    convolutions = {}
    for platforms in (("cpu",), ("cuda",), ("tpu",), ("cpu", "cuda")):
        text = jax.export.export(fn, platforms=platforms)(*args).mlir_module()
        convolutions[platforms] = text.count("stablehlo.convolution")
    assert convolutions == {("cpu",): 0, ("cuda",): 1, ("tpu",): 1, ("cpu", "cuda"): 1}


@pytest.mark.full
def test_jaxpr_looks_like_jax():
    """Names and parameters are JAX's, for readers of jaxprs."""
    shape, kernel, params = CONVOLUTIONS["multiplier"]
    args = normal(*shape), normal(*kernel)
    plain = jax.make_jaxpr(partial(convolution, **params))(*args)
    assert str(jax.make_jaxpr(partial(call, lax.conv_general_dilated, **params))(*args)) == str(plain)


@pytest.mark.full
@pytest.mark.parametrize(("name", "left"), [("depthwise", 0), ("depthwise, many taps", 0), ("im2col rows NCHW", 4)])
def test_symbolic_batch(name, left):
    """Of an ungrouped convolution XLA keeps itself, two phases and a filter gradient."""
    shape, kernel, params = CONVOLUTIONS[name]
    fn = partial(call, lax.conv_general_dilated, **params)
    (batch,) = jax.export.symbolic_shape("b")
    args = (jax.ShapeDtypeStruct((batch, *shape[1:]), np.float32), jax.ShapeDtypeStruct(kernel, np.float32))
    exported = jax.export.export(jax.jit(jax.grad(lambda x, w: jnp.sum(fn(x, w) ** 2), (0, 1))))(*args)
    assert exported.mlir_module().count("= stablehlo.convolution(") == left
    x, w = normal(*shape), scaled(*kernel)
    expected = jax.grad(lambda x, w: jnp.sum(convolution(x, w, **params) ** 2), (0, 1))(x, w)
    for e, a in zip(expected, exported.call(x, w), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_inside_shard_map():
    """Derivatives are traced ahead; they must know varying axes there."""
    shape, kernel, params = CONVOLUTIONS["depthwise"]
    fn = partial(call, lax.conv_general_dilated, **params)
    x, w = normal(*shape), normal(*kernel)
    mesh = jax.make_mesh((1,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, same = PartitionSpec("clients"), PartitionSpec()

    def gradient(x, w):
        return jax.grad(lambda x, w: jnp.sum(fn(x, w) ** 2), (0, 1))(x, w)

    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=(rows, same), out_specs=(rows, same))
    for e, a in zip(gradient(x, w), jax.jit(mapped)(x, w), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)


def test_convolutions_have_the_matmul_precision_in_force_when_they_are_traced():
    x, w = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 4))

    def loss(x, w):
        return jnp.sum(call(convolution, x, w, window_strides=(1, 1), padding="SAME", dimension_numbers=LAST) ** 2)

    def precisions():
        jaxpr = jax.make_jaxpr(lambda *a: jax.grad(loss, (0, 1))(*a))(x, w)
        return {eqn.params["precision"] for eqn in jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"}

    assert precisions() == {None}
    with jax.default_matmul_precision("highest"):
        assert precisions() == {(lax.Precision.HIGHEST, lax.Precision.HIGHEST)}
