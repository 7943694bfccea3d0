"""The tables of rules, their names, and the option that selects them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite
from tf2jax_lite.errors import ConfigError
from tf2jax_lite.jaxprs.convolutions import conv_params
from tf2jax_lite.xla_cpu import catalog, rules, transform
from tf2jax_lite.xla_cpu.conv.rule import RULES

# Input, kernel, keywords; the rule that is taken, and the one after it if that is off. NHWC.
CHOICES = {
    "depthwise": (((1, 8, 8, 4), (3, 3, 1, 4), {"feature_group_count": 4}), "depthwise", None),
    "many taps": (((1, 8, 8, 4), (7, 7, 1, 4), {"feature_group_count": 4}), "depthwise", None),
    "pointwise": (((1, 8, 8, 4), (1, 1, 4, 4), {}), "pointwise", None),
    "3x3": (((1, 7, 7, 512), (3, 3, 512, 512), {}), "im2col", None),
    "few channels": (((8, 208, 208, 3), (3, 3, 3, 16), {}), "width_folding", None),
    "ordinary": (((1, 32, 32, 32), (3, 3, 32, 32), {}), None, None),
}


def _choice(lhs, kernel, more):
    structs = [jax.ShapeDtypeStruct(s, np.float32) for s in (lhs, kernel)]
    keywords = {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **more}
    closed = jax.make_jaxpr(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), **keywords))(*structs)
    (eqn,) = closed.eqns
    rule = rules.choose(RULES, conv_params(*structs, eqn.params))
    return rule and rule.name


@pytest.mark.parametrize("name", CHOICES)
def test_choice_by_shape(name):
    conv, first, second = CHOICES[name]
    with rules.using(catalog.NAMES):
        assert _choice(*conv) == first
    with rules.using(catalog.NAMES - {first}):
        assert _choice(*conv) == second
    with rules.using(frozenset()):
        assert _choice(*conv) is None


def test_names_and_reasons():
    for table, entries in catalog.TABLES.items():
        names = [rule.name for rule in entries]
        assert len(set(names)) == len(names), table
        for rule in entries:
            assert rule.reason.endswith(".") and len(rule.reason) <= 110, rule.name
            assert rule.name.startswith("xla_") == (rule.lower is None), rule.name
    assert len(catalog.NAMES) > 30


def test_values_of_the_option():
    for value, expected in ((True, None), ("all", None), (False, frozenset()), ("none", frozenset())):
        assert catalog.selection(value) == expected
    assert catalog.selection(["polyphase", "pointwise"]) == {"polyphase", "pointwise"}
    assert catalog.selection("polyphase, pointwise") == {"polyphase", "pointwise"}
    assert catalog.selection("-polyphase") == catalog.NAMES - {"polyphase"}
    for value, message in (
        ({"polyphasse"}, "Did you mean 'polyphase'"),
        ("polyphase,-pointwise", "all or none"),
        (1, "or names"),
        ([3], "no name '3'"),
        ("auto", "no name 'auto'"),
    ):
        with pytest.raises(ConfigError, match=message):
            tf2jax_lite.update_config("xla_cpu_rules", value)
    assert tf2jax_lite.get_config("xla_cpu_rules") is True


def _convolutions(fn, *args):
    return jax.jit(fn).lower(*args).as_text().count("stablehlo.convolution")


@pytest.mark.full
def test_converted_functions_keep_the_option():
    """It is captured at conversion, also for gradients."""
    x, w = np.ones((2, 6, 6, 4), np.float32), np.ones((3, 3, 4, 1), np.float32)
    graph = tf.function(lambda x, w: tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), "SAME"))
    specs = tf.TensorSpec(x.shape), tf.TensorSpec(w.shape)
    counts = {}
    for value in (True, False, frozenset({"depthwise"})):
        with tf2jax_lite.override_config("xla_cpu_rules", value):
            fn = tf2jax_lite.convert_functional(graph, *specs)
        grad = jax.grad(lambda x, w, fn=fn: jnp.sum(fn(x, w) ** 2), (0, 1))
        counts[value] = _convolutions(fn, x, w), _convolutions(grad, x, w)
    assert counts == {True: (0, 0), False: (1, 3), frozenset({"depthwise"}): (0, 1)}


def test_caches_tell_sets_of_rules_apart():
    """A jitted function is lowered again under another set."""
    x = np.ones((64, 32), np.float32)
    total = jax.jit(lambda x: transform.call(lax.cumsum, x, axis=0))
    found = []
    for selected in (None, frozenset(), None):
        with rules.using(selected):
            found.append("stablehlo.while" in total.lower(x).as_text())
    assert found == [True, False, True]


@pytest.mark.full
def test_each_rule_off_keeps_values():
    """Of a depthwise convolution, a pooling and a cumulative sum: each by XLA."""
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 4)).astype(np.float32)
    w = np.ones((3, 3, 1, 4), np.float32)

    def fn(x, w):
        x = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
        )
        return jnp.cumsum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), 1)

    expected = fn(x, w)
    for off in ("depthwise", "max_pool_of_slices", "cumulative_by_rows"):
        fast = tf2jax_lite.xla_cpu.optimize(fn, rules=catalog.NAMES - {off})
        np.testing.assert_allclose(fast(x, w), expected, rtol=1e-5, atol=1e-5)
