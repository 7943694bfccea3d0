"""Magnified round-off beyond the tolerance, and wrong ops after it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import invoke as convert
from tf2jax_lite.verification import verify
from tf2jax_lite.verification.float64_reference import evaluate_in_float64
from tf2jax_lite.verification.report import html_report
from tf2jax_lite.verification.targets import convert_source, find_sources

from .test_cli_verify import run

X = np.float32(np.random.default_rng(0).uniform(0, 1, size=(2, 20_000)))
ABOUT = np.float32(X.astype(np.float64).sum(1) - 1)
SCALE, OFFSET, MEAN, VARIANCE = np.float32([[1.5], [-1.0], [-0.3], [2.0]])


def cancels(x):
    """Cancel about 1e4: the round-off of two orders is a thousandth."""
    return tf.reduce_sum(x, 1) - tf.cast(tf.constant(ABOUT, tf.float64), tf.float32)


def normalized(x):
    """TensorFlow has no kernel of FusedBatchNormV3 for float64."""
    image = tf.reshape(cancels(x), [2, 1, 1, 1])
    weights = {"scale": SCALE, "offset": OFFSET, "mean": MEAN, "variance": VARIANCE}
    return tf.raw_ops.FusedBatchNormV3(x=image, **weights, is_training=False)[0]


def judged(function, **options):
    made = tf.function(lambda x: function(x), autograph=False)
    return verify(made, args=[tf.TensorSpec([2, 20_000], name="x")], inputs={"x": X}, **options)


@pytest.mark.default_cases("cancels")
@pytest.mark.parametrize("function", [cancels, normalized])
def test_magnified_rounding_is_no_wrong_result(function):
    found = judged(function)
    (output,) = found.signatures[0].outputs
    assert output.max_rel_error > 1e-4, "the model is to be one that the tolerance does not pass"
    assert found.ok and output.verdict == "within round-off" and "from float64: TensorFlow" in output.remarks
    assert max(output.tensorflow_error, output.jax_error) >= output.max_rel_error / 2
    assert found.signatures[0].bisection is None
    (data,) = found.as_json()["signatures"][0]["outputs"]
    assert "within round-off" in html_report(found)
    assert data["ok"] and data["verdict"] == "within round-off" and data["jax_error"] == output.jax_error


def imprecise(input, axis, *, keep_dims=False):
    return jnp.sum(input if input.dtype == np.float64 else jnp.round(input * 256) / 256, 1)


def wrong_if_compiled(input, axis, *, keep_dims=False):
    return jnp.sum(input, 1) * (1 + 3e-7 * isinstance(input, jax.core.Tracer))


def batch_norm(factor):
    def wrong(x, scale, offset, mean, variance, *, epsilon, exponential_avg_factor, data_format, is_training):
        y = (x - mean) * jax.lax.rsqrt(variance + epsilon) * scale + offset
        return (y * factor, mean, variance, mean, variance, mean)

    return wrong


@pytest.mark.default_cases("normalized-FusedBatchNormV3-wrong")
@pytest.mark.parametrize(
    ("function", "op", "wrong"),
    [
        # Less than the tolerance by itself, magnified as rounding is: found in float64.
        (cancels, "Sum", lambda input, axis, *, keep_dims=False: jnp.sum(input, 1) * (1 + 3e-6)),
        # Behind the place, where JAX's own rounding is as large: found by itself.
        (lambda x: tf.tanh(cancels(x)), "Tanh", lambda x: jnp.tanh(x) * 1.001),
        # The same with less than the tolerance: found in float64.
        (lambda x: tf.tanh(cancels(x)), "Tanh", lambda x: jnp.tanh(x) * (1 + 5e-5)),
        # Without a kernel for float64: found by itself, in float32.
        (normalized, "FusedBatchNormV3", batch_norm(1 + 5e-5)),
        # Right in float64, but JAX alone is off in float32.
        (cancels, "Sum", imprecise),
        # Wrong under jit only: the lockstep evaluation op by op is right.
        (cancels, "Sum", wrong_if_compiled),
    ],
)
def test_a_wrong_op_is_found_nonetheless(function, op, wrong):
    with tf2jax.override_op(op, wrong):
        found = judged(function)
    (output,) = found.signatures[0].outputs
    assert not found.ok and output.verdict == "differs"


@pytest.mark.full
def test_another_way_in_float64_explains_nothing():
    """1 + 1e-9 is 1 in float32: both differ equally, without a verdict."""

    def another(x):
        return cancels(x) + 4 * tf.cast(tf.equal(x[:, 0] * 0 + 1 + 1e-9, 1), tf.float32)

    (output,) = judged(another, rtol=1e-5).signatures[0].outputs
    assert output.verdict == "differs" and output.tensorflow_error > 8 * output.max_rel_error


def test_what_is_rounded_on_purpose_is_no_round_off():
    """XLA leaves out such a pair of casts; TensorFlow does not."""
    (output,) = judged(lambda x: cancels(tf.cast(tf.cast(x, tf.bfloat16), tf.float32))).signatures[0].outputs
    assert output.verdict == "differs" and output.tensorflow_error is None


@pytest.mark.full
def test_judge_without_bisection_gives_same_verdict():
    (output,) = judged(cancels, bisect=False).signatures[0].outputs
    assert output.verdict == "within round-off"
    with tf2jax.override_op("Sum", lambda input, axis, *, keep_dims=False: jnp.sum(input, 1) * (1 + 3e-6)):
        found = judged(cancels, bisect=False)
    assert found.signatures[0].outputs[0].verdict == "differs" and found.signatures[0].bisection is None


@tf.custom_gradient
def doubled(x):
    return tf.identity(x), lambda upstream: 2 * upstream


@pytest.mark.parametrize("function", [cancels, normalized, lambda x: doubled(cancels(x))])
def test_judge_gradient_magnified_rounding_agrees(function):
    found = judged(lambda x: tf.square(function(x)), grad=True, rtol=1e-6)
    verdicts = {output.kind: output.verdict for output in found.signatures[0].outputs}
    assert verdicts == dict.fromkeys(("result", "gradient"), "within round-off")


@jax.custom_jvp
def tanh(x):
    return jnp.tanh(x)


@tanh.defjvp
def _tanh_jvp(primals, tangents):
    return jnp.tanh(*primals), tangents[0] * (1 - jnp.tanh(*primals) ** 2) * (1 + 5e-5)


@pytest.mark.full
def test_judge_gradient_wrong_rule_differs():
    """It is below the tolerance alone, and below the sum's magnified error."""
    with tf2jax.override_op("Tanh", lambda x: tanh(x)):
        found = judged(lambda x: tf.square(tf.tanh(cancels(x))), grad=True)
    verdicts = {output.kind: output.verdict for output in found.signatures[0].outputs}
    assert verdicts["gradient"] == "differs"


@pytest.mark.full
def test_variables_are_judged():
    total = tf.Variable(tf.zeros([2]))
    found = judged(lambda x: total.assign(cancels(x)) * 0.0, train=True)
    verdicts = {output.kind: output.verdict for output in found.signatures[0].outputs}
    assert verdicts == {"result": "agrees", "variable": "within round-off"} and found.ok


@pytest.mark.full
def test_the_shell_says_so(tmp_path):
    """An artifact is judged by the same values; exit code 0."""
    made = tf.function(cancels, input_signature=[tf.TensorSpec([2, 20_000], name="x")])
    module = tf.Module()
    module.f = made
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": made})
    np.savez(tmp_path / "x.npz", x=X)
    assert convert("convert", tmp_path / "model", tmp_path / "out", "--platforms", "cpu", "--quiet").exit_code == 0
    result = run(tmp_path / "model", tmp_path / "out", "--inputs", tmp_path / "x.npz", "--json")
    assert result.exit_code == 0, result.output
    outputs = json.loads(result.output)["signatures"][0]["outputs"]
    assert {o["against"]: o["verdict"] for o in outputs} == dict.fromkeys(("jax", "stablehlo"), "within round-off")
    result = run(tmp_path / "model", "--inputs", tmp_path / "x.npz")
    assert result.exit_code == 0 and "round-off" in result.output and "TensorFlow" in result.output


@pytest.mark.full
def test_tensorflow_in_float64():
    scale = tf.Variable([0.1, 0.2])
    made = tf.function(lambda x: scale.assign(x / scale), autograph=False)
    x = np.float32([1, 3])
    (source,) = find_sources(made, args=[tf.TensorSpec([2], name="x")])
    wide = evaluate_in_float64(convert_source(source), [x])
    expected = x / np.float32([0.1, 0.2]).astype(np.float64)
    np.testing.assert_allclose(wide.results[0], expected, rtol=1e-15)
    (held,) = wide.variables.values()
    np.testing.assert_array_equal(held, wide.results[0])
    assert wide.error < 1e-15
