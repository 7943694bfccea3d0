"""Modules not by jax: text, constants of every dtype, comparators."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError
from tf2jax_lite.stablehlo.api import evaluate, parse

from .harness import same


def module(body, signature, result):
    return f"func.func @main({signature}) -> {result} {{\n{body}\n}}"


def run(body, signature, result, *args):
    return tf2jax.from_stablehlo(module(body, signature, result))(*args)


CONSTANTS = [
    ("f32", "1.5", "2.5", np.float32),
    ("bf16", "1.5", "2.5", ml_dtypes.bfloat16),
    ("f16", "1.5", "0x7C00", np.float16),
    ("i1", "true", "false", np.bool_),
    ("i4", "-3", "2", ml_dtypes.int4),
    ("ui4", "3", "15", ml_dtypes.uint4),
    ("i8", "-3", "2", np.int8),
    ("ui32", "4294967295", "1", np.uint32),
    ("f8E4M3FN", "1.5", "2.0", ml_dtypes.float8_e4m3fn),
    ("f8E5M2", "1.5", "2.0", ml_dtypes.float8_e5m2),
    ("complex<f32>", "(1.0,2.0)", "(0x7FC00000,-1.0)", np.complex64),
]


@pytest.mark.default_cases("f8E5M2", "complex<f32>")
@pytest.mark.parametrize(("name", "a", "b", "dtype"), CONSTANTS, ids=[c[0] for c in CONSTANTS])
def test_constants(name, a, b, dtype):
    def constant(literal, shape):
        type_ = f"tensor<{shape}{name}>"
        body = f"  %0 = stablehlo.constant dense<{literal}> : {type_}\n  return %0 : {type_}"
        return parse(module(body, "", type_)).functions["main"].body.ops[0].attrs["value"]

    one, splat, two = constant(a, ""), constant(a, "2x3x"), constant(f"[{a}, {b}]", "2x")
    many = constant("[" + ", ".join([a, b] * 80) + "]", "160x")
    for value, shape in ((one, ()), (splat, (2, 3)), (two, (2,)), (many, (160,))):
        assert value.dtype == np.dtype(dtype) and value.shape == shape
    assert splat.strides == (0, 0)
    assert two[0] == one and two[1] != one
    assert np.array_equal(many[:2].astype(np.complex64), two.astype(np.complex64), equal_nan=True)


@pytest.mark.parametrize(("platform", "expected"), [("cpu", [1.0, 2.0]), ("cuda", [-1.0, -2.0])])
def test_platform_index_without_a_name(platform, expected):
    """In modules of older JAX the first argument, a scalar, is the platform's index."""
    body = """
    %0 = "stablehlo.case"(%index) ({
      stablehlo.return %x : tensor<2xf32>
    }, {
      %1 = stablehlo.negate %x : tensor<2xf32>
      stablehlo.return %1 : tensor<2xf32>
    }) : (tensor<i32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>"""
    parsed = parse(module(body, "%index: tensor<i32>, %x: tensor<2xf32>", "tensor<2xf32>"))
    x = jnp.array([1.0, 2.0])
    (result,) = evaluate(parsed, [x], platforms=("CPU", "CUDA"), platform=platform)
    np.testing.assert_array_equal(result, expected)
    with pytest.raises(InputError, match=r"takes 2 arguments, got 1"):
        evaluate(parsed, [x], platforms=("CPU",))


@pytest.mark.full
def test_text_and_names():
    text = module(
        "  %0 = stablehlo.add %x, %y : tensor<3xf32>\n  %1 = stablehlo.negate %x : tensor<3xf32>\n"
        "  return %0, %1 : tensor<3xf32>, tensor<3xf32>",
        "%x: tensor<3xf32>, %y: tensor<3xf32>",
        "(tensor<3xf32>, tensor<3xf32>)",
    )
    fn = tf2jax.from_stablehlo(text)
    x = np.arange(3, dtype=np.float32)
    same(fn(x, x), (2 * x, -x))
    assert "float32[3]" in fn.__doc__


COMPARATORS = {
    "descending": ("stablehlo.compare GT, %a, %b, TOTALORDER", lambda x: -np.sort(-x)),
    "floats": ("stablehlo.compare LT, %a, %b, FLOAT", np.sort),
    "by_absolute_value": (
        "stablehlo.compare LT, %s, %t, FLOAT",
        lambda x: x[np.argsort(np.abs(x), kind="stable")],
    ),
}


@pytest.mark.default_cases("by_absolute_value", "floats")
@pytest.mark.parametrize("name", COMPARATORS)
def test_comparators(name):
    compare, expected = COMPARATORS[name]
    body = f"""
      %0 = "stablehlo.sort"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.abs %a : tensor<f32>
        %t = stablehlo.abs %b : tensor<f32>
        %c = {compare} : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}) : (tensor<6xf32>) -> tensor<6xf32>
      return %0 : tensor<6xf32>"""
    x = np.float32([2, -3, 1, -1, 0, 7])
    same(run(body, "%x: tensor<6xf32>", "tensor<6xf32>", x), expected(x))


def test_total_order():
    body = """  %0 = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
      return %0 : tensor<4xi1>"""
    x, y = np.float32([-0.0, 0.0, 1, np.nan]), np.float32([0.0, -0.0, np.nan, np.inf])
    got = run(body, "%x: tensor<4xf32>, %y: tensor<4xf32>", "tensor<4xi1>", x, y)
    assert got.tolist() == [True, False, True, False]


@pytest.mark.full
def test_reversed_window_of_a_convolution():
    body = """  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
      window = {stride = [1], pad = [[1, 1]], reverse = [true]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x5x1xf32>, tensor<3x1x1xf32>) -> tensor<1x5x1xf32>
      return %0 : tensor<1x5x1xf32>"""
    x, k = np.arange(5, dtype=np.float32), np.float32([1, 2, 3])
    got = run(
        body, "%x: tensor<1x5x1xf32>, %k: tensor<3x1x1xf32>", "tensor<1x5x1xf32>", x[None, :, None], k[:, None, None]
    )
    same(got[0, :, 0], np.convolve(x, k, "same"))


def test_select_and_scatter_of_integers():
    body = """  %c = stablehlo.constant dense<0> : tensor<i32>
      %0 = "stablehlo.select_and_scatter"(%x, %s, %c) <{window_dimensions = array<i64: 2>,
        window_strides = array<i64: 2>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %p = stablehlo.compare GE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }, {
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %q = stablehlo.add %a, %b : tensor<i32>
        stablehlo.return %q : tensor<i32>
      }) : (tensor<4xi32>, tensor<2xi32>, tensor<i32>) -> tensor<4xi32>
      return %0 : tensor<4xi32>"""
    args = np.int32([1, 3, 2, 2]), np.int32([10, 20])
    got = run(body, "%x: tensor<4xi32>, %s: tensor<2xi32>", "tensor<4xi32>", *args)
    assert got.tolist() == [0, 10, 20, 0]


def test_branches_out_of_range_are_the_last():
    branches = ", ".join(
        f"{{ %c{i} = stablehlo.constant dense<{i}> : tensor<i32>\n stablehlo.return %c{i} : tensor<i32> }}"
        for i in range(3)
    )
    body = f"""  %0 = "stablehlo.case"(%i) ({branches}) : (tensor<i32>) -> tensor<i32>
      return %0 : tensor<i32>"""
    fn = jax.jit(tf2jax.from_stablehlo(module(body, "%i: tensor<i32>", "tensor<i32>")))
    assert [int(fn(i)) for i in (-1, 0, 1, 2, 5)] == [2, 0, 1, 2, 2]


@pytest.mark.full
def test_logistic_keeps_its_derivative():
    exported = jax.export.export(jax.jit(jax.nn.sigmoid))(jax.ShapeDtypeStruct((), np.float32))
    fn = tf2jax.from_stablehlo(exported.mlir_module_serialized)
    assert jax.grad(fn)(-100.0) == 0.0


def test_damaged_payloads():
    good = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((3,), np.float32)).mlir_module_serialized
    for bad in (b"", b"nothing", good[: len(good) // 2], b"ML\xefR123", "func.func @main() {", "%%%"):
        with pytest.raises(tf2jax.Tf2JaxError, match="StableHLO"):
            tf2jax.from_stablehlo(bad)


REFUSED = [
    (
        "kernel",
        "%0 = stablehlo.custom_call @my_kernel(%x) : (tensor<3xf32>) -> tensor<3xf32>\n  return %0 : tensor<3xf32>",
        "tensor<3xf32>",
        "my_kernel",
    ),
    (
        "callback",
        "%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) : (tensor<3xf32>) -> tensor<3xf32>\n"
        "  return %0 : tensor<3xf32>",
        "tensor<3xf32>",
        "Python function",
    ),
]


@pytest.mark.parametrize(("name", "body", "result", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(name, body, result, message):
    with pytest.raises(tf2jax.Tf2JaxError, match=message):
        tf2jax.from_stablehlo(module("  " + body, "%x: tensor<3xf32>", result))(np.zeros(3, np.float32))


def test_arguments_are_checked():
    text = module("  return %x : tensor<3xf32>", "%x: tensor<3xf32>", "tensor<3xf32>")
    fn = tf2jax.from_stablehlo(text)
    with pytest.raises(ValueError, match="takes 1 arguments"):
        fn()
    with pytest.raises(ValueError, match="got shape"):
        fn(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="got int32"):
        fn(np.zeros(3, np.int32))


@pytest.mark.full
def test_a_module_that_calls_itself():
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = call @main(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }"""
    with pytest.raises(ValueError, match="calls itself"):
        tf2jax.from_stablehlo(text)(1.0)


def test_wide_types_without_x64():
    text = module(
        "  %c = stablehlo.constant dense<2.0> : tensor<f64>\n  %0 = stablehlo.multiply %x, %c : tensor<f64>\n"
        "  return %0 : tensor<f64>",
        "%x: tensor<f64>",
        "tensor<f64>",
    )
    assert tf2jax.from_stablehlo(text)(3.0).dtype == np.float32
    with jax.enable_x64(True):
        assert tf2jax.from_stablehlo(text)(3.0).dtype == np.float64


BATCH_NORM = """
func.func @main(%x: tensor<3x2x4xf32>, %s: tensor<2xf32>, %o: tensor<2xf32>, %g: tensor<3x2x4xf32>)
    -> (tensor<3x2x4xf32>, tensor<2xf32>, tensor<3x2x4xf32>, tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>) {
  %y, %m, %v = "stablehlo.batch_norm_training"(%x, %s, %o) {epsilon = 0.01 : f32, feature_index = 1 : i64} :
      (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  %z = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {epsilon = 0.01 : f32, feature_index = 1 : i64} :
      (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<3x2x4xf32>
  %dx, %ds, %do = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) {epsilon = 0.01 : f32, feature_index = 1 : i64} :
      (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<3x2x4xf32>)
      -> (tensor<3x2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  return %y, %v, %z, %dx, %ds, %do : tensor<3x2x4xf32>, tensor<2xf32>, tensor<3x2x4xf32>, tensor<3x2x4xf32>,
      tensor<2xf32>, tensor<2xf32>
}
"""


@pytest.mark.full
def test_batch_normalization():
    x, g = np.random.RandomState(0).randn(2, 3, 2, 4).astype(np.float32)
    scale, offset = np.float32([2, -1]), np.float32([0, 3])
    y, v, z, *grads = tf2jax.from_stablehlo(BATCH_NORM)(x, scale, offset, g)

    def normal(x, scale, offset):
        mean, variance = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 0.01) * scale[:, None] + offset[:, None]

    want, back = jax.vjp(normal, x, scale, offset)
    same((y, z, v, *grads), (want, want, jnp.asarray(x.var((0, 2))), *back(jnp.asarray(g))), 1e-5)
