"""Convolutions of integers against JAX's."""

import jax
import jax.export
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.ops.common.integer_convolution import integer_convolution

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
FORMS = {
    "same": ((2, 7, 6, 4), (3, 2, 4, 5), (1, 1), "SAME", {}),
    "valid, strides": ((2, 7, 6, 4), (3, 2, 4, 5), (2, 3), "VALID", {}),
    "negative padding": ((2, 7, 6, 4), (3, 2, 4, 5), (1, 2), ((-1, 2), (3, -2)), {}),
    "dilated": ((2, 7, 6, 4), (3, 2, 4, 5), (2, 1), ((2, 3), (0, 1)), {"lhs_dilation": (2, 3), "rhs_dilation": (3, 1)}),
    "feature groups": ((2, 7, 6, 4), (3, 2, 2, 6), (1, 1), "SAME", {"feature_group_count": 2}),
    "depthwise": ((2, 7, 6, 4), (3, 2, 1, 8), (1, 1), "SAME", {"feature_group_count": 4}),
    "batch groups": ((4, 7, 6, 3), (3, 2, 3, 6), (1, 1), "SAME", {"batch_group_count": 2}),
    "no results": ((2, 2, 2, 4), (3, 2, 4, 5), (1, 1), "VALID", {}),
    "channels first": ((2, 4, 7, 6), (5, 4, 3, 2), (1, 2), "SAME", {"dimension_numbers": FIRST}),
    "one dimension": ((2, 9, 3), (4, 3, 5), (2,), "SAME", {"dimension_numbers": ("NHC", "HIO", "NHC")}),
    "three": ((1, 4, 5, 3, 2), (2, 3, 1, 2, 3), (1, 2, 1), "SAME", {"dimension_numbers": ("NDHWC", "DHWIO", "NDHWC")}),
}


@pytest.mark.parametrize(("dtype", "wide"), [("int32", None), ("int8", "int32"), ("uint8", None)])
@pytest.mark.parametrize("form", FORMS)
def test_equals_jax(form, dtype, wide):
    shape, kernel, strides, padding, more = FORMS[form]
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 200, size).astype(dtype) for size in (shape, kernel))
    params = {"dimension_numbers": LAST, "preferred_element_type": wide, **more}
    expected = lax.conv_general_dilated(x, w, strides, padding, **params)
    actual = jax.jit(lambda x, w: integer_convolution(x, w, strides, padding, **params))(x, w)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
    mapped = jax.vmap(lambda x: integer_convolution(x, w, strides, padding, **params))(np.stack([x, x[::-1]]))
    np.testing.assert_array_equal(mapped[0], expected)


def test_has_no_convolution_with_a_symbolic_batch():
    def fn(x, w):
        return integer_convolution(x, w, (1, 1), "SAME", dimension_numbers=LAST)

    x, w = np.arange(2 * 7 * 6 * 4, dtype=np.int32).reshape(2, 7, 6, 4), np.ones((3, 2, 4, 5), np.int32)
    batch = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 7, 6, 4"), x.dtype)
    exported = jax.export.export(jax.jit(fn))(batch, jax.ShapeDtypeStruct(w.shape, w.dtype))
    assert "stablehlo.convolution" not in exported.mlir_module()
    np.testing.assert_array_equal(exported.call(x, w), fn(x, w))
