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
from tf2jax_lite.xla_cpu import cost_model, pooling
from tf2jax_lite.xla_cpu.conv import rule

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
    "winograd of a volume": conv((1, 4, 14, 15, 32), (2, 3, 3, 32, 34), (1, 1, 1), "SAME", VOLUMES),
    "winograd NCHW, padded": conv((1, 32, 21, 23), (3, 3, 32, 34), (1, 1), ((0, 2), (-1, 0)), FIRST),
    "winograd, dilated NCHW": conv(
        (1, 32, 22, 23), (3, 3, 32, 34), (1, 1), ((2, 1), (3, 4)), FIRST, rhs_dilation=(2, 3)
    ),
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
    "folded": conv((2, 9, 11, 3), (3, 3, 3, 7), (2, 1), BORDER, rhs_dilation=(2, 1)),
    "folded NCHW": conv((2, 1, 9, 10), (2, 5, 1, 3), (1, 1), ((1, 0), (3, 4)), FIRST),
    "folded, negative padding": conv((2, 9, 12, 8), (3, 2, 8, 3), (1, 1), ((-1, 0), (1, -2))),
    "folded 1d": conv((3, 29, 2), (6, 2, 16), (1,), "VALID", ("NWC", "WIO", "NWC")),
    "folded, short": conv((4, 9, 3, 4), (3, 3, 4, 1), (1, 1), "SAME"),
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
    "blocks of channels": conv(
        (2, 5, 6, 64), (3, 2, 1, 64), (1, 1), "SAME", rhs_dilation=(1, 2), feature_group_count=64
    ),
    "blocks of channels, strides": conv((2, 7, 8, 32), (3, 3, 1, 32), (2, 1), BORDER, feature_group_count=32),
    "blocks of channels, several from one": conv((2, 5, 4, 32), (3, 3, 1, 64), (1, 1), BORDER, feature_group_count=32),
    "blocks of channels, short": conv((2, 5, 6, 24), (5, 5, 1, 24), (1, 1), "SAME", feature_group_count=24),
    "blocks of channels, 1d": conv((2, 9, 32), (3, 1, 32), (1,), "SAME", ("NWC", "WIO", "NWC"), feature_group_count=32),
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
    "depth blocks": conv((2, 5, 4, 5, 3), (3, 2, 3, 3, 4), (1, 1, 1), "SAME", VOLUMES, rhs_dilation=(1, 2, 1)),
    "depth blocks NCDHW": conv((1, 3, 5, 3, 4), (2, 3, 2, 3, 4), (1, 1, 1), ((0, 1), (2, 0), (1, 3)), VOLUMES_FIRST),
    "depth blocks without padding": conv(
        (2, 5, 4, 4, 1), (2, 2, 2, 1, 3), (1, 1, 1), "VALID", VOLUMES, rhs_dilation=(2, 1, 2)
    ),
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
    "windows of many values": conv((1, 66, 68, 32), (5, 5, 32, 4), (1, 1), "VALID"),
    "windows of many values NCHW": conv((1, 32, 99, 68), (7, 5, 32, 3), (2, 1), "VALID", FIRST, rhs_dilation=(1, 2)),
    "groups, many products": conv((2, 14, 15, 16), (3, 3, 8, 64), (1, 1), "SAME", feature_group_count=2),
    "groups NCHW, many products": conv((2, 12, 24, 24), (3, 3, 4, 48), (2, 1), BORDER, FIRST, feature_group_count=3),
    "groups": conv((2, 5, 5, 4), (3, 3, 2, 6), (1, 1), "SAME", feature_group_count=2),
    "rows": conv((4, 7, 8, 16), (3, 3, 16, 17), (1, 1), "SAME"),
    "rows, some NCHW": conv((6, 16, 11, 9), (3, 2, 16, 18), (2, 3), ((0, 2), (3, -1)), FIRST),
    "rows, negative padding": conv((4, 9, 8, 16), (2, 2, 16, 16), (1, 1), ((-1, 0), (-1, -2))),
    "rows with kernel dilation": conv((4, 12, 9, 16), (3, 3, 16, 16), (1, 2), "SAME", rhs_dilation=(2, 1)),
    "rows, non-overlapping windows": conv((4, 9, 11, 16), (2, 2, 16, 16), (3, 3), ((0, 1), (1, 0))),
    "rows, unpadded": conv((3, 5, 9, 16), (3, 2, 16, 16), (1, 2), "VALID"),
    "rows, wide padding": conv((4, 5, 6, 16), (3, 3, 16, 16), (1, 1), ((3, 4), (5, 6))),
    "rows, input dilation": conv((4, 5, 6, 40), (3, 3, 40, 16), (1, 1), ((2, 2), (2, 3)), lhs_dilation=(2, 2)),
    "rows of strips, input dilation": conv(
        (1, 9, 6, 40), (3, 3, 40, 16), (1, 1), ((2, 2), (2, 3)), lhs_dilation=(2, 2)
    ),
    "rows, gradients have input dilation": conv((4, 9, 11, 16), (3, 3, 16, 40), (2, 2), "VALID"),
    "rows of strips": conv((1, 21, 8, 16), (3, 3, 16, 17), (1, 1), "SAME"),
    "rows of strips NCHW": conv((1, 16, 23, 9), (4, 2, 16, 18), (2, 3), ((2, 1), (0, 1)), FIRST),
    "rows of strips, non-overlapping windows": conv((1, 29, 11, 16), (2, 2, 16, 16), (3, 3), ((-1, 1), (1, 0))),
    "odd channels": conv((2, 7, 8, 5), (3, 3, 5, 6), (1, 1), "SAME"),
    "odd channels NCHW, unpadded": conv((2, 7, 9, 8), (3, 2, 7, 6), (2, 1), "VALID", FIRST),
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
    "narrow": conv((2, 5, 1, 3), (3, 4, 3, 4), (1, 1), ((1, 1), (3, 3))),
    "narrow NCHW, strides and dilation": conv(
        (2, 3, 6, 1), (3, 4, 3, 5), (2, 2), ((1, 0), (5, 4)), FIRST, rhs_dilation=(1, 2)
    ),
    "narrow, asymmetric padding": conv((2, 4, 1, 3), (3, 5, 3, 4), (1, 1), ((0, 1), (1, 3))),
    "narrow, both": conv((2, 1, 1, 3), (3, 5, 3, 4), (1, 1), "SAME"),
    "narrow 1d": conv((2, 1, 3), (4, 3, 5), (1,), ((3, 3),), ("NWC", "WIO", "NWC")),
    "narrow, width 2": conv((2, 3, 2, 3), (3, 17, 3, 2), (1, 1), ((1, 1), (16, 16))),
    "narrow, width 2, input dilation": conv(
        (2, 3, 2, 3), (3, 17, 3, 2), (1, 1), ((1, 1), (15, 14)), lhs_dilation=(1, 2)
    ),
    "narrow, input gradients are": conv((2, 5, 9, 2), (3, 9, 2, 4), (1, 1), "VALID"),
    "narrow volume": conv((1, 3, 1, 4, 2), (2, 3, 3, 2, 3), (1, 1, 1), ((0, 1), (2, 2), (1, 1)), VOLUMES),
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
    "winograd": (("WINOGRAD_MIN_CHANNELS", 32), ("WINOGRAD_MIN_PRODUCTS", 0), ("WINOGRAD_MIN_PRODUCTS_PER_VALUE", 0)),
    "rows": (("ROW_MIN_PRODUCTS", 0), ("STRIP_LIMITS", ((0, 4),))),
    "folded": (("FOLD_MIN_PRODUCTS", 0),),
    "odd channels": (("CHANNEL_PADDING_MIN_PRODUCTS", 0),),
    "blocks": (("DEPTHWISE_BLOCK_MIN_CHANNELS", 64), ("DEPTHWISE_BLOCK_MIN_TAPS", 1)),
    "rows, some": (("ROW_MAX_BLOCKS", 0.03),),
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
    # Blocks of two planes, and a last one that overlaps the one before.
    "depth blocks": (("VOLUME_MIN_FLOATS_OF_FEW_OUTPUTS", 0), ("DEPTH_BLOCK_FLOATS", 1000)),
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
    for what, call in (("value", lambda fn: fn(*args)), ("all", lambda fn: everything(fn, *args))):
        if what == "value":
            np.testing.assert_allclose(call(fast), call(plain), rtol=1e-5, atol=1e-5)
            continue
        found, expected = (jax.jit(partial(call, fn), compiler_options=fast_options())() for fn in (fast, plain))
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
    "rows of strips, input dilation",
    "narrow 1d",
    "grouped pointwise",
)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name):
    shape, kernel, params = CONVOLUTIONS[name]
    weights = scaled(*kernel)
    # Winograd's tiles are long code, and large sums have large round-off; second derivatives and their batches do not
    # depend on the case.
    compare(
        partial(convolution, **params),
        partial(rule.call, lax.conv_general_dilated, **params),
        normal(*shape),
        weights,
        everything=first_order if "winograd" in name or "many" in name else everything,
    )


@pytest.mark.full
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("fn", [largest, total])
def test_pool(name, fn):
    """Rounded values: ties must send the gradient where XLA (and TensorFlow) sends it."""
    shape, window, strides, after = POOLS[name]
    where = (window, strides, tuple((0, n) for n in after))
    plain, fast = partial(fn, where=where), partial(pooling.call, fn, where=where)
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
        "depth blocks",
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
            call, args = pooling.call, (normal(*shape, dtype=np.float64),)
        else:
            shape, kernel, more = CONVOLUTIONS[name]
            fn, call = lax.conv_general_dilated, rule.call
            args = (normal(*shape, dtype=np.float64), normal(*kernel, dtype=np.float64))
        compare(partial(fn, **more), partial(call, fn, **more), *args, everything=first_order)


@pytest.mark.full
@pytest.mark.parametrize("layout", [LAST, FIRST], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_convolutions_in_loops_are_channels_last(layout, strides):
    """In loops XLA keeps the dimensions' order: gradients took 10 times as long."""
    shape = (2, 9, 9, 16) if layout is LAST else (2, 16, 9, 9)
    run = partial(rule.call, lax.conv_general_dilated, window_strides=strides, padding="SAME", dimension_numbers=layout)

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
    run = partial(rule.call, lax.conv_general_dilated, **params)
    gradient = jax.jit(jax.grad(lambda w, x: jnp.sum(jnp.sin(run(x, w)))))
    text = gradient.lower(scaled(*kernel), normal(*shape)).as_text()
    assert set(re.findall(r"batch_group_count = (\d+)", text)) <= {"1"}


def test_depthwise_by_blocks_of_channels():
    shape, kernel, params = CONVOLUTIONS["blocks of channels"]
    run = partial(rule.call, lax.conv_general_dilated, **{**params, "rhs_dilation": (1, 1)})
    large = (1, 8, 8, 256), (7, 7, 1, 256)
    many = {**params, "rhs_dilation": (1, 1), "feature_group_count": 256}
    x, w = normal(*large[0]), scaled(*large[1])
    forward = partial(rule.call, lax.conv_general_dilated, **many)
    # (blocks, images, rows, columns, channels of a block)
    assert "8x1x14x14x32x" in jax.jit(forward).lower(x, w).as_text()
    gradient = jax.jit(jax.grad(lambda w, x: jnp.sum(run(x, w))))
    assert "4x2x5x6x16x" in gradient.lower(scaled(*kernel), normal(*shape)).as_text()


@pytest.mark.full
def test_depthwise_filter_gradient_sums_long_rows():
    params = {**CONVOLUTIONS["blocks of channels"][2], "rhs_dilation": (1, 1), "feature_group_count": 32}
    run = partial(rule.call, lax.conv_general_dilated, **params)
    gradient = jax.jit(jax.grad(lambda w, x: jnp.sum(jnp.sin(run(x, w)))))
    x, w = normal(2, 5, 50, 32), scaled(3, 3, 1, 32)
    assert "dimensions = [2] : (tensor<2x5x50x32x" in gradient.lower(w, x).as_text()
    plain = jax.grad(lambda w, x: jnp.sum(jnp.sin(convolution(x, w, **params))))
    np.testing.assert_allclose(gradient(w, x), plain(w, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name.startswith("depth blocks")])
def test_depth_blocks_are_a_loop_of_one_2d_convolution(name):
    shape, kernel, params = CONVOLUTIONS[name]
    run = partial(rule.call, lax.conv_general_dilated, **params)
    text = jax.jit(run).lower(normal(*shape), scaled(*kernel)).as_text()
    assert text.count("stablehlo.while") == text.count("stablehlo.convolution") == 1
    assert "dim_numbers = [b, 0, 1, f]" in text


@pytest.mark.full
@pytest.mark.parametrize("side", [2, 9])
def test_padding_is_never_the_argmax(side):
    """In a window of minus infinities and padding, the gradient goes to the array."""
    where = ((side, side), (side, side), ((side - 1, 1), (side - 1, 1)))
    x = np.full((side, side), -np.inf, np.float32)
    upstream = np.arange(1, 5, dtype=np.float32).reshape(2, 2)
    gradient = jax.grad(lambda x: jnp.vdot(pooling.call(largest, x, where=where), upstream))
    expected = np.zeros((side, side))
    expected[:2, :2] = upstream  # the first taps inside
    np.testing.assert_array_equal(jax.jit(gradient)(x), expected)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", ["depthwise", "pointwise", "patches", "grouped", "depth blocks"])
def test_half_precision_is_summed_in_float32(name, dtype):
    """The result is the float64 sum rounded once, not off by several units."""
    shape, kernel, params = CONVOLUTIONS[name]
    x, w = normal(*shape).astype(dtype), normal(*kernel).astype(dtype)
    with jax.enable_x64(True):
        expected = np.asarray(convolution(x.astype(np.float64), w.astype(np.float64), **params))
    actual = rule.call(lax.conv_general_dilated, jnp.asarray(x), jnp.asarray(w), **params)
    assert actual.dtype == dtype
    unit = float(jnp.finfo(dtype).eps) * 0.51
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=unit, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("form", [((8, 24, 26, 128), (3, 3, 128, 224)), ((1, 2, 1, 128), (3, 3, 128, 64))])
def test_winograd_and_im2col_are_as_exact_as_the_primitive(form):
    """The error is at most three times the primitive's, against float64."""
    x, w = normal(*form[0]), normal(*form[1]) / np.float32(np.sqrt(np.prod(form[1][:-1])))
    padded = np.pad(x.astype(np.float64), [(0, 0), *(((k - 1) // 2, k // 2) for k in form[1][:2]), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, form[1][:2], (1, 2))
    exact = np.tensordot(windows, w.astype(np.float64), ([4, 5, 3], [0, 1, 2]))
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAST}
    error = {
        name: np.max(np.abs(np.asarray(fn(x, w), np.float64) - exact))
        for name, fn in (
            ("plain", partial(convolution, **params)),
            ("by rule", partial(rule.call, lax.conv_general_dilated, **params)),
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
    actual = jax.jit(partial(rule.call, lax.conv_general_dilated, padding=pads, **params))(x, w)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_highest_precision_keeps_the_direct_convolution():
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAST}
    fn = partial(rule.call, lax.conv_general_dilated)
    args = jnp.zeros((1, 64, 64, 128)), jnp.zeros((3, 3, 128, 256))
    lowered = {p: jax.jit(partial(fn, precision=p, **params)).lower(*args).as_text() for p in (None, "highest")}
    assert {p: "stablehlo.convolution" in text for p, text in lowered.items()} == {None: False, "highest": True}


@pytest.mark.parametrize(
    ("form", "padding", "expected"),
    [
        ((8, 56, 64, 64, 3, 1), "SAME", ["1x56x456x64"]),  # all images in one row, with one column between them
        ((128, 56, 64, 64, 3, 1), "SAME", ["1x56x7296x64"]),
        ((256, 56, 64, 64, 3, 1), "SAME", ["2x56x7296x64"]),  # long enough for many threads
        ((8, 7, 96, 96, 3, 2), "VALID", ["8x7x7x96"]),  # too few products
        ((8, 224, 64, 64, 3, 1), "SAME", ["8x224x224x64"]),  # rows are long
        ((2, 28, 128, 128, 3, 1), "SAME", ["2x28x28x128"]),
        ((1, 128, 32, 32, 3, 1), "SAME", ["1x34x516x32"]),  # four strips of 32 rows and what their windows share
        ((1, 35, 64, 96, 3, 1), "SAME", ["1x35x35x64"]),
        ((8, 14, 256, 256, 3, 1), "SAME", []),  # Winograd
        ((1, 28, 128, 128, 3, 1), "SAME", ["1x28x28x128"]),
        ((8, 112, 128, 128, 3, 1), "SAME", ["8x112x112x128"]),  # too few products for each transformed value
        ((8, 224, 3, 32, 3, 2), "SAME", ["8x224x224x4"]),  # channels are padded to a multiple of 4
        ((8, 224, 3, 64, 3, 1), "SAME", ["8x224x224x3"]),
        ((8, 230, 3, 64, 7, 2), "VALID", ["1x230x1840x3"]),
        ((8, 299, 3, 32, 3, 2), "VALID", ["8x299x299x4"]),  # of few channels only large results are worth packing
        ((8, 73, 80, 192, 3, 1), "VALID", ["1x73x584x80"]),
        ((8, 112, 64, 256, 3, 1), "VALID", ["8x112x112x64"]),  # with a line of zeros
        ((8, 4, 128, 128, 5, 1), "SAME", ["8x7x8x128"]),  # fewer positions than taps: explicit padding, all but a line
        ((32, 4, 256, 512, 5, 2), "SAME", []),  # many weights for few windows: im2col
    ],
)
def test_rule(form, padding, expected):
    """Only such convolutions remain; benchmarks/pages/performance.md has measurements."""
    batch, side, channels, outputs, window, stride = form
    params = {"window_strides": (stride, stride), "padding": padding, "dimension_numbers": LAST}
    fn = jax.jit(partial(rule.call, lax.conv_general_dilated, **params))
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
    fn = partial(rule.call, lax.conv_general_dilated, **params)
    x, w = np.zeros((batch, side, side, channels), np.float32), np.zeros((window, window, channels, outputs))
    out, pull = jax.eval_shape(fn, x, w.astype(np.float32)), lambda w, g: jax.vjp(partial(fn, x), w)[1](g)[0]
    text = jax.jit(pull).lower(w.astype(np.float32), np.zeros(out.shape, np.float32)).as_text()
    shapes = re.findall(r"stablehlo.convolution.* : \(tensor<([^>]*)xf32>, .*\) -> tensor<(.*)xf32>", text)
    assert [sorted(map(int, s[0].split("x"))) for s in shapes] == [sorted(map(int, e.split("x"))) for e in expected]
    assert all(int(n) <= side for _, result in shapes for n in result.split("x")[1:3]), shapes


FOLDED = [
    ((8, 208, 3, 16, 3), 2),
    ((8, 28, 1, 6, 5), 4),
    ((8, 64, 8, 3, 3), 4),
    ((8, 64, 16, 1, 3), 8),
    ((8, 64, 8, 16, 3), 1),
    ((8, 64, 32, 1, 3), 1),
    ((8, 64, 3, 32, 3), 1),
    ((1, 5, 1, 1, 3), 1),  # too few products
]


@pytest.mark.parametrize(("form", "fold"), FOLDED)
def test_few_channels_to_few_are_folded(form, fold):
    batch, side, channels, outputs, window = form
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAST}
    fn = partial(rule.call, lax.conv_general_dilated, **params)
    args = (batch, side, side, channels), (window, window, channels, outputs)
    forms = [jax.ShapeDtypeStruct(a, np.float32) for a in args]
    (found,) = re.findall(r"stablehlo.convolution.* -> tensor<(.*)xf32>", jax.jit(fn).lower(*forms).as_text())
    folded = side if fold == 1 else -(-side // fold)
    assert found == f"{batch}x{side}x{folded}x{fold * outputs}"
    exact = jax.jit(partial(fn, precision="highest")).lower(*forms).as_text()
    assert f"-> tensor<{batch}x{side}x{side}x{outputs}xf32>" in exact


@pytest.mark.parametrize(("side", "rate", "direct"), [(33, 6, False), (33, 12, True), (32, 4, False)])
def test_kernel_dilation_takes_winograd_where_little_is_padded(side, rate, direct):
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAST, "rhs_dilation": (rate, rate)}
    fn = jax.jit(partial(rule.call, lax.conv_general_dilated, **params))
    args = (1, side, side, 512), (3, 3, 512, 256)
    text = fn.lower(*(jax.ShapeDtypeStruct(a, np.float32) for a in args)).as_text()
    assert ("stablehlo.convolution" in text) == direct


def test_packed_rows_are_float32():
    """XLA computes double precision with other code."""
    params = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": LAST}
    fn = jax.jit(partial(rule.call, lax.conv_general_dilated, **params))
    found = {}
    with jax.enable_x64(True):
        for dtype in ("float32", "float64"):
            args = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((8, 56, 56, 64), (3, 3, 64, 64))]
            found[dtype] = re.findall(r"stablehlo.convolution.* : \(tensor<(.*)>, ", fn.lower(*args).as_text())
    assert found == {"float32": ["1x56x456x64xf32"], "float64": ["8x56x56x64xf64"]}


@pytest.mark.full
def test_rules_are_for_cpu_only():
    """Rules hold in programs for CPU only; one exported for two platforms has both."""
    shape, kernel, params = CONVOLUTIONS["depthwise"]
    fn = jax.jit(partial(rule.call, lax.conv_general_dilated, **params))
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
    assert str(jax.make_jaxpr(partial(rule.call, lax.conv_general_dilated, **params))(*args)) == str(plain)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "left"), [("depthwise", 0), ("depthwise, many taps", 0), ("winograd NCHW, padded", 1)]
)
def test_symbolic_batch(name, left):
    """XLA keeps the filter gradient of an ungrouped convolution with a symbolic batch."""
    shape, kernel, params = CONVOLUTIONS[name]
    fn = partial(rule.call, lax.conv_general_dilated, **params)
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
    fn = partial(rule.call, lax.conv_general_dilated, **params)
    x, w = normal(*shape), normal(*kernel)
    mesh = jax.make_mesh((1,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, same = PartitionSpec("clients"), PartitionSpec()

    def gradient(x, w):
        return jax.grad(lambda x, w: jnp.sum(fn(x, w) ** 2), (0, 1))(x, w)

    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=(rows, same), out_specs=(rows, same))
    for e, a in zip(gradient(x, w), jax.jit(mapped)(x, w), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("channels", [64, 256])
def test_volumes_of_many_channels_take_winograd(channels):
    """Winograd's planes take down to 0.55 of the depth blocks' time."""
    run = partial(
        rule.call,
        lax.conv_general_dilated,
        window_strides=(1, 1, 1),
        padding="SAME",
        dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
    )
    x, w = (jax.ShapeDtypeStruct(s, np.float32) for s in ((1, 8, 56, 56, channels), (3, 3, 3, channels, channels)))
    blocks = "stablehlo.while" in jax.jit(run).lower(x, w).as_text()
    assert blocks == (channels < 128)


def test_convolutions_have_the_matmul_precision_in_force_when_they_are_traced():
    x, w = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 4))

    def loss(x, w):
        return jnp.sum(rule.call(convolution, x, w, window_strides=(1, 1), padding="SAME", dimension_numbers=LAST) ** 2)

    def precisions():
        jaxpr = jax.make_jaxpr(lambda *a: jax.grad(loss, (0, 1))(*a))(x, w)
        return {eqn.params["precision"] for eqn in jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"}

    assert precisions() == {None}
    with jax.default_matmul_precision("highest"):
        assert precisions() == {(lax.Precision.HIGHEST, lax.Precision.HIGHEST)}
