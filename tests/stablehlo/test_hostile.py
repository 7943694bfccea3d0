"""Invalid or unsupported modules raise errors with a location."""

import re

import jax
import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError

X = np.float32([1, 2, 3])


def module(body, args="%x: tensor<3xf32>", result="tensor<3xf32>", extra="", name="main"):
    return f"module {{\n{extra}\nfunc.func public @{name}({args}) -> {result} {{\n{body}\n}}\n}}"


def op(text, result="tensor<3xf32>", **rest):
    return module(f'%r = {text} loc("layer/op")\nreturn %r : {result}', result=result, **rest)


HOSTILE = {
    "empty": ("", "empty"),
    "no text": ("hello", "cannot be read"),
    "cut short": (op("stablehlo.sine %x : tensor<3xf32>")[:60], "cannot be read"),
    "damaged bytes": (b"ML\xefR" + b"\x00\xff" * 20, "cannot be read"),
    "other bytes": (b"\x80\x81\x82", "cannot be read"),
    "no functions": ("module {}", "no function 'main'"),
    "no main": (module("return %x : tensor<3xf32>", name="other"), "no function 'main'"),
    "a dialect that is not known": (op('"tosa.abs"(%x) : (tensor<3xf32>) -> tensor<3xf32>'), "cannot be read"),
    "an op that is not known": (op('"stablehlo.frobnicate"(%x) : (tensor<3xf32>) -> tensor<3xf32>'), "cannot be read"),
    "types that do not fit": (op("stablehlo.add %x, %x : tensor<4xf32>"), "cannot be read"),
    "a custom call": (
        op("stablehlo.custom_call @my_kernel(%x) : (tensor<3xf32>) -> tensor<3xf32>"),
        "custom_call at .*layer/op.*my_kernel",
    ),
    "a Pallas kernel": (
        op("stablehlo.custom_call @tpu_custom_call(%x) : (tensor<3xf32>) -> tensor<3xf32>"),
        "tpu_custom_call",
    ),
    "a kernel of an old jax": (
        op("stablehlo.custom_call @lapack_spotrf(%x) : (tensor<3xf32>) -> tensor<3xf32>"),
        "export the module again",
    ),
    "a callback": (
        op("stablehlo.custom_call @xla_python_cpu_callback(%x) : (tensor<3xf32>) -> tensor<3xf32>"),
        "Python function",
    ),
    "a collective": (
        op(
            '"stablehlo.all_reduce"(%x) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n'
            "%s = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n"
            "}) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<3xf32>) -> tensor<3xf32>"
        ),
        "all_reduce at .*layer/op.*several devices",
    ),
    "a collective of four devices": (
        op(
            '"stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 0]]> : tensor<1x2xi64>} : '
            "(tensor<3xf32>) -> tensor<3xf32>"
        ).replace("module {", "module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32} {"),
        "collective_permute at .*layer/op.*several devices",
    ),
    "recursion": (op("func.call @main(%x) : (tensor<3xf32>) -> tensor<3xf32>"), "calls itself"),
    "sizes that depend on data": (
        module(
            "%n = stablehlo.convert %x : (tensor<3xf32>) -> tensor<3xi32>\n"
            "%r = stablehlo.dynamic_iota %n, dim = 0 : (tensor<3xi32>) -> tensor<?x?x?xf32>\n"
            "return %r : tensor<?x?x?xf32>",
            result="tensor<?x?x?xf32>",
        ),
        "dynamic_iota.*must be known while tracing",
    ),
    "quantized": (
        module(
            "return %x : tensor<3x!quant.uniform<i8:f32, 0.1>>",
            args="%x: tensor<3x!quant.uniform<i8:f32, 0.1>>",
            result="tensor<3x!quant.uniform<i8:f32, 0.1>>",
        ),
        "quant|cannot be read",
    ),
    "a sending of data": (
        op(
            "stablehlo.create_token : !stablehlo.token\n"
            '%s = "stablehlo.outfeed"(%x, %r) {outfeed_config = ""} : (tensor<3xf32>, !stablehlo.token)'
            " -> !stablehlo.token",
            result="!stablehlo.token",
        ),
        "outfeed|no rule",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused(name):
    payload, message = HOSTILE[name]
    with pytest.raises(Tf2JaxError) as info:
        jax.make_jaxpr(tf2jax.from_stablehlo(payload))(X)
    assert re.search(message, str(info.value), re.S), str(info.value)


def test_deep_nesting_is_refused():
    inner = "%{0} = stablehlo.add %x, %x : tensor<3xf32>\nstablehlo.return %{0} : tensor<3xf32>"
    body = inner.format("v")
    for i in range(150):
        body = (
            f'%w{i} = "stablehlo.if"(%p) ({{\n{body}\n}}, {{\nstablehlo.return %x : tensor<3xf32>\n}})'
            f" : (tensor<i1>) -> tensor<3xf32>\nstablehlo.return %w{i} : tensor<3xf32>"
        )
    body = body.rpartition("\n")[0] + "\nreturn %w149 : tensor<3xf32>"
    with pytest.raises(Tf2JaxError, match="nest"):
        tf2jax.from_stablehlo(module(body, args="%x: tensor<3xf32>, %p: tensor<i1>"))


def test_several_functions_and_private_ones():
    extra = "func.func private @twice(%a: tensor<3xf32>) -> tensor<3xf32> {\n"
    extra += "%r = stablehlo.add %a, %a : tensor<3xf32>\nreturn %r : tensor<3xf32>\n}\n"
    extra += extra.replace("twice", "unused")
    fn = tf2jax.from_stablehlo(op("func.call @twice(%x) : (tensor<3xf32>) -> tensor<3xf32>", extra=extra))
    np.testing.assert_array_equal(fn(X), 2 * X)


def test_tokens_come_and_go():
    body = (
        "%t = stablehlo.after_all %k : !stablehlo.token\n%n = stablehlo.create_token : !stablehlo.token\n"
        "return %t, %x : !stablehlo.token, tensor<3xf32>"
    )
    text = module(body, args="%k: !stablehlo.token, %x: tensor<3xf32>", result="(!stablehlo.token, tensor<3xf32>)")
    np.testing.assert_array_equal(tf2jax.from_stablehlo(text)(X), X)


def test_dynamic_shapes_come_from_the_arguments():
    text = module(
        "%r = stablehlo.add %x, %y : tensor<?xf32>\nreturn %r : tensor<?xf32>",
        args="%x: tensor<?xf32>, %y: tensor<?xf32>",
        result="tensor<?xf32>",
    )
    fn = tf2jax.from_stablehlo(text)
    np.testing.assert_array_equal(fn(X, X), 2 * X)
    with pytest.raises(Tf2JaxError, match=r"stablehlo.add.*shape"):
        fn(X, X[:2])


def test_a_shape_assertion_gives_its_message():
    text = module(
        "%n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>\n"
        "%three = stablehlo.constant dense<3> : tensor<i32>\n"
        "%ok = stablehlo.compare EQ, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "stablehlo.custom_call @shape_assertion(%ok, %n)"
        ' {error_message = "three rows, not {0}", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()\n'
        "return %x : tensor<?xf32>",
        args="%x: tensor<?xf32>",
        result="tensor<?xf32>",
    )
    fn = tf2jax.from_stablehlo(text)
    np.testing.assert_array_equal(fn(X), X)
    with pytest.raises(Tf2JaxError, match="three rows, not 2"):
        jax.jit(fn)(X[:2])


@pytest.mark.default_cases("args0-takes 1 arguments, got 0")
@pytest.mark.parametrize(
    ("args", "message"),
    [((), "takes 1 arguments, got 0"), ((X, X), "got 2"), ((X[:2],), r"shape \(2,\)"), ((X > 1,), "got bool")],
)
def test_arguments_that_do_not_fit(args, message):
    with pytest.raises(Tf2JaxError, match=message):
        tf2jax.from_stablehlo(op("stablehlo.sine %x : tensor<3xf32>"))(*args)
