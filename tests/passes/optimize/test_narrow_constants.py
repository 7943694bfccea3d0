"""Float constants as bfloat16, by options."""

import ml_dtypes
import numpy as np
import pytest

from tf2jax_lite import ir
from tf2jax_lite.ir.build import constant
from tf2jax_lite.passes.optimize import narrow_constants
from tf2jax_lite.support.config import Config

CONSTANTS = (
    constant("f32", np.float32([1.0, 1.001])),
    constant("f64", np.float64([2.0, 2.001])),
    constant("i32", np.int32([3, 4])),
)


def _graph():
    outputs = tuple(ir.TensorRef(node.name) for node in CONSTANTS)
    function = ir.Function("main", (), CONSTANTS, outputs)
    return ir.Graph(function, {"inner": ir.Function("inner", (), CONSTANTS, outputs)})


@pytest.mark.parametrize(
    ("options", "narrowed"),
    [
        ({}, set()),
        ({"force_const_float32_to_bfloat16": True}, {"f32"}),
        ({"force_const_float64_to_bfloat16": True}, {"f64"}),
        ({"force_const_float32_to_bfloat16": True, "force_const_float64_to_bfloat16": True}, {"f32", "f64"}),
    ],
)
def test_narrow_constants_converts_the_dtypes_of_the_options(options, narrowed):
    config = Config(**options)
    graph = narrow_constants.run(_graph(), config)
    assert len(narrow_constants.narrowed_dtypes(config)) == len(narrowed)
    for before, (_, node) in zip(CONSTANTS * 2, graph.walk(), strict=True):
        value = node.attrs["value"]
        dtype = np.dtype(ml_dtypes.bfloat16) if node.name in narrowed else before.attrs["value"].dtype
        assert (value.dtype, node.attrs["dtype"], node.output_dtypes) == (dtype, dtype, (dtype,))
        np.testing.assert_array_equal(value, before.attrs["value"].astype(dtype))
