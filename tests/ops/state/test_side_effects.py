"""Assertions, printing and text."""

import sys
import time

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import checkify

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import OpError
from tf2jax_lite.ops.state import side_effects

BF16 = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf

CASES = [
    case("Print", np.float32([1, 2]), [np.float32([3, 4]), np.int32(1)], message="here "),
    case("Print", np.float32([1, 2]), [np.array([b"text"])], first_n=0),
    case("Print", np.arange(6).reshape(2, 3), [np.float32(0.1)], summarize=1).using(baked=("data",), name="baked"),
]
TESTED_OTHERWISE = {"Assert", "PrintV2", "StringFormat", "Timestamp"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def fn(x):
    tf.debugging.Assert(tf.reduce_all(x > 0), ["not positive", x])
    return x + 1.0


SPEC = tf.TensorSpec([2])
GOOD, BAD = np.ones(2, np.float32), -np.ones(2, np.float32)


def test_traced_assertions_are_ignored_by_default():
    jax_fn = tf2jax.convert_functional(fn, SPEC)
    np.testing.assert_array_equal(jax.jit(jax_fn)(BAD), 0)


def default_of_a_switch(x):
    def unknown():
        with tf.control_dependencies([tf.debugging.Assert(False, ["no such case"])]):
            return x * 0.0

    return tf.switch_case(tf.cast(x[0], tf.int32), [lambda: x, lambda: x + 1.0], default=unknown)


def in_a_loop(x):
    for _ in tf.range(tf.cast(x[1], tf.int32)):
        x += 1.0
        if tf.reduce_sum(x) < -10.0:
            tf.debugging.Assert(False, ["no such case"])
    return x


@pytest.mark.full
@pytest.mark.parametrize("f", [default_of_a_switch, in_a_loop], ids=lambda f: f.__name__)
def test_failures_in_branches_not_taken_are_ignored(f):
    # Under jit both branches are traced: a statically false assertion in one need not fail.
    function = tf.function(f)
    jax_fn = tf2jax.convert_functional(function, SPEC)
    for run in (jax_fn, jax.jit(jax_fn), lambda x: jax.vmap(jax_fn)(x[None])[0]):
        np.testing.assert_array_equal(run(GOOD), function(GOOD))
    with tf2jax.override_config("enable_checkify_for_asserts", True):
        jax_fn = tf2jax.convert_functional(function, SPEC)
    checked = jax.jit(checkify.checkify(jax_fn))
    error, out = checked(GOOD)
    error.throw()
    np.testing.assert_array_equal(out, function(GOOD))
    error, _ = checked(np.float32([-50, 3]))
    with pytest.raises(checkify.JaxRuntimeError, match="no such case"):
        error.throw()


@pytest.mark.full
def test_failure_in_a_statically_taken_branch_raises():
    jax_fn = tf2jax.convert_functional(tf.function(default_of_a_switch), SPEC)
    with pytest.raises(ValueError, match="no such case"):
        jax_fn(np.float32([5, 5]))


def test_checkify():
    with tf2jax.override_config("enable_checkify_for_asserts", True):
        jax_fn = tf2jax.convert_functional(fn, SPEC)
    checked = jax.jit(checkify.checkify(jax_fn))
    error, out = checked(GOOD)
    error.throw()
    np.testing.assert_array_equal(out, 2)
    error, _ = checked(BAD)
    with pytest.raises(checkify.JaxRuntimeError, match="not positive"):
        error.throw()


def test_statically_false_condition_raises():
    def with_shape(x):
        tf.debugging.Assert(tf.shape(x)[0] > 2, ["too short"])
        return x

    jax_fn = tf2jax.convert_functional(with_shape, tf.TensorSpec([None]))
    with pytest.raises(ValueError, match="too short"):
        jax.jit(jax_fn)(GOOD)
    assert jax.jit(jax_fn)(np.ones(3, np.float32)).shape == (3,)


FORMATTED = [
    np.float32([0.1, 1 / 3, 1e10, 1e-5, 1e20, NAN, INF, -INF, -0.0, 123456789, 1.0, 16777216, 3.4e38]),
    np.float64([0.1, 1 / 3, 1e10, 1e-5, 1e20, NAN, 1e15, 1e16, 1e17, 123456789.123, 1e-300]),
    np.float16([0.1, 1 / 3, 1e4]),
    np.array([0.1, 1 / 3, 1e4], BF16),
    np.complex64([1 + 2j]),
    np.array(b'a"b\n'),
    np.array([b"a'\\b\t\x01\x7f", b"\xff", "ü".encode()]),
    np.array([True, False]),
    np.array(True),
    np.int8([1, -2]),
    np.uint8(200),
    np.arange(100).reshape(4, 5, 5),
    np.zeros(0),
    np.zeros((2, 0)),
    np.arange(6),
    np.arange(7),
]


@pytest.mark.parametrize("value", FORMATTED, ids=lambda v: f"{v.dtype}{list(v.shape)}")
@pytest.mark.parametrize("summarize", [-1, 0, 1, 3])
def test_string_format(value, summarize):
    expected = tf.raw_ops.StringFormat(
        inputs=[tf.constant(value), tf.constant(1)], template="a{} {}c", placeholder="{}", summarize=summarize
    )
    value = value.astype(object) if value.dtype.kind == "S" else value
    if value.dtype.kind == "c" and not summarize:
        pytest.skip("TensorFlow lays out complex numbers, which it cannot show, in its own way")
    actual = side_effects.string_format([value, np.int32(1)], template="a{} {}c", placeholder="{}", summarize=summarize)
    assert actual[()] == expected.numpy()


def test_string_format_counts():
    with pytest.raises(OpError, match="1 placeholders"):
        side_effects.string_format([np.int32(1), np.int32(2)], template="{}", placeholder="{}")


def printing(x):
    tf.print("x is", x, "and its sum", tf.reduce_sum(x), summarize=2)
    tf.print("done", output_stream=sys.stdout)
    return x * 2.0


@pytest.mark.full
def test_print(capfd):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tf.function(printing)(x)
    expected = capfd.readouterr()
    jax_fn = tf2jax.convert_functional(tf.function(printing), tf.TensorSpec([2, 3]))
    for run in (jax_fn, jax.jit(jax_fn)):
        for _ in range(2):
            np.testing.assert_array_equal(run(x), x * 2)
            jax.effects_barrier()
            actual = capfd.readouterr()
            assert actual.out == expected.out == "done\n"
            assert actual.err == expected.err
    assert "x is [[0 1 2]\n [3 4 5]] and its sum 15" in expected.err
    np.testing.assert_array_equal(jax.grad(lambda x: jax_fn(x).sum())(x), 2)


def test_print_in_a_loop(capfd):
    def loop(x):
        for i in tf.range(3):
            tf.print("step", i)
            x = x + 1.0
        return x

    jax_fn = tf2jax.convert_functional(tf.function(loop), tf.TensorSpec([]))
    assert jax.jit(jax_fn)(np.float32(0)) == 3
    jax.effects_barrier()
    assert sorted(capfd.readouterr().err.splitlines()) == ["step 0", "step 1", "step 2"]


def test_print_to_a_file_raises():
    def to_file(x):
        tf.print(x, output_stream="file:///tmp/never")
        return x

    with pytest.raises(ValueError, match="output_stream"):
        tf2jax.convert_functional(tf.function(to_file), SPEC)(GOOD)


def test_old_print(capfd):
    jax_fn = tf2jax.convert_functional(
        tf.function(lambda x: tf.raw_ops.Print(input=x, data=[x, "end"], message="x: ")), SPEC
    )
    jax.jit(jax_fn)(GOOD)
    jax.effects_barrier()
    assert capfd.readouterr().err == 'x: [[1 1]]["end"]\n'


def test_traced_string_as_result_raises():
    jax_fn = tf2jax.convert_functional(lambda x: (tf.strings.as_string(x), x)[0], SPEC)
    with pytest.raises(ValueError, match="not known while tracing"):
        jax.jit(jax_fn)(GOOD)


@pytest.mark.full
def test_timestamp():
    with jax.enable_x64(True):
        now = tf2jax.convert_functional(lambda x: x + tf.timestamp(), tf.TensorSpec([], tf.float64))(0.0)
    assert abs(float(now) - time.time()) < 60
