"""Depthwise convolutions against TensorFlow."""

import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

from .test_conv import DEPTHWISE, IMAGE, LOOSE, SQUARE, grads

CASES = [
    *(
        case("DepthwiseConv2dNative", IMAGE, DEPTHWISE, **f).using(name=str(i), **LOOSE)
        for i, f in enumerate(SQUARE[:4])
    ),
    *grads(
        "DepthwiseConv2dNative",
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
        IMAGE,
        DEPTHWISE,
        SQUARE[:3],
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
