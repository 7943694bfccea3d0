"""The tables of rules, their names, and the option that selects them."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite
from tf2jax_lite.errors import ConfigError
from tf2jax_lite.xla_cpu import catalog, rules, selection
from tf2jax_lite.xla_cpu.conv.params import conv_params
from tf2jax_lite.xla_cpu.conv.rule import RULES

ROOT = Path(__file__).parents[2]
# Input, kernel, keywords; the rule that is taken, and the one after it if that is off. NHWC.
CHOICES = {
    "depthwise": (((1, 8, 8, 4), (3, 3, 1, 4), {"feature_group_count": 4}), "depthwise", None),
    "many taps": (((1, 8, 8, 4), (7, 7, 1, 4), {"feature_group_count": 4}), "depthwise_outlined", "depthwise"),
    "pointwise": (((1, 8, 8, 4), (1, 1, 4, 4), {}), "pointwise", "patches_filter_gradient"),
    "dilated 3x3": (((1, 32, 32, 512), (3, 3, 512, 256), {"rhs_dilation": (2, 2)}), "kernel_dilation", None),
    "3x3": (((8, 14, 14, 256), (3, 3, 256, 256), {}), "winograd", "row_packing"),
    "few channels": (((8, 208, 208, 3), (3, 3, 3, 16), {}), "width_folding", None),
    "transposed": (
        ((1, 8, 8, 8), (2, 2, 8, 8), {"lhs_dilation": (2, 2), "padding": ((1, 1), (1, 1))}),
        "non_overlapping",
        "polyphase",
    ),
    "ordinary": (((1, 32, 32, 32), (3, 3, 32, 32), {}), None, None),
}


def _choice(lhs, kernel, more):
    structs = [jax.ShapeDtypeStruct(s, np.float32) for s in (lhs, kernel)]
    keywords = {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **more}
    closed = jax.make_jaxpr(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), **keywords))(*structs)
    (eqn,) = closed.eqns
    rule = selection.choose(RULES, conv_params(*structs, eqn.params))
    return rule and rule.name


@pytest.mark.parametrize("name", CHOICES)
def test_choice_by_shape(name):
    conv, first, second = CHOICES[name]
    with selection.using(catalog.NAMES):
        assert _choice(*conv) == first
    with selection.using(catalog.NAMES - {first}):
        assert _choice(*conv) == second
    with selection.using(frozenset()):
        assert _choice(*conv) is None


@pytest.mark.parametrize(("version", "taken"), [((0, 11), True), ((0, 12), False), ((1, 0), False)])
def test_needless_rules_are_taken_where_they_are_named(version, taken, monkeypatch):
    monkeypatch.setattr(selection, "_JAX", version)
    rule = selection.Rule("r", lambda: True, lambda: 3, "A test.", needless_since=(0, 12))
    for selected, expected in ((None, taken), (100, taken), (frozenset({"r"}), True), (frozenset(), False)):
        with selection.using(selected):
            assert (selection.choose([rule]) is rule) == expected


def test_needless_rules_are_those_of_the_page():
    text = (ROOT / "benchmarks/pages/cpu-rules.md").read_text().split("## With JAX 0.12")[1]
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert listed == {name for name, rule in catalog.rules_by_name().items() if rule.needless_since == (0, 12)}


def test_needless_rules_leave_a_convolution_to_xla(monkeypatch):
    conv = CHOICES["3x3"][0]
    monkeypatch.setattr(selection, "_JAX", (0, 12))
    assert _choice(*conv) == "winograd"  # by default
    few = ((8, 14, 14, 64), (3, 3, 64, 64), {})
    with selection.using(catalog.NAMES):
        assert _choice(*few) == "row_packing"
    assert _choice(*few) is None


def test_names_and_reasons():
    for table, entries in catalog.TABLES.items():
        names = [rule.name for rule in entries]
        assert len(set(names)) == len(names), table
        for rule in entries:
            assert rule.reason.endswith(".") and len(rule.reason) <= 110, rule.name
            assert rule.name.startswith("xla_") == (rule.lower is None), rule.name
    assert len(catalog.NAMES) > 40


def test_values_of_the_option():
    for value, expected in ((True, None), ("all", None), (False, frozenset()), ("none", frozenset())):
        assert catalog.selection(value) == expected
    assert catalog.selection(["winograd", "pointwise"]) == {"winograd", "pointwise"}
    assert catalog.selection("winograd, pointwise") == {"winograd", "pointwise"}
    assert catalog.selection("-winograd") == catalog.NAMES - {"winograd"}
    assert catalog.selection("auto") == 100 and catalog.selection("auto:7") == 7
    for value, message in (
        ({"winogard"}, "Did you mean 'winograd'"),
        ("winograd,-pointwise", "all or none"),
        (1, "or names"),
        ([3], "no name '3'"),
    ):
        with pytest.raises(ConfigError, match=message):
            tf2jax_lite.update_config("xla_cpu_rules", value)
    assert tf2jax_lite.get_config("xla_cpu_rules") is True


def test_auto_takes_rules_that_outweigh_their_compile_time():
    """The more calls, the more rules: run time saved is in proportion to products."""
    found = {}
    for calls in (0, 10, 100, 1_000_000):
        with selection.using(calls):
            found[calls] = {name: _choice(*conv) for name, (conv, *_) in CHOICES.items()}
    taken = {calls: {name for name, rule in choices.items() if rule} for calls, choices in found.items()}
    assert taken[0] == {"pointwise"}  # without further kernels
    assert taken[10] == {"pointwise", "dilated 3x3", "few channels"}
    assert taken[100] == {*taken[10], "3x3"} and found[100]["3x3"] == "winograd"
    assert found[1_000_000] == {name: first for name, (_, first, _) in CHOICES.items()}


def test_auto_of_pooling():
    """A max pool has one kernel by the rule, and none by XLA's own lowering."""
    windows = {"window_dimensions": (1, 2, 2, 1), "window_strides": (1, 2, 2, 1), "padding": ((0, 0),) * 4}
    x = jax.ShapeDtypeStruct((4, 28, 28, 512), np.float32)
    for calls, expected in ((0, None), (10, None), (1000, "max_pool_of_slices")):
        with selection.using(calls):
            rule = selection.choose(catalog.TABLES["reduce_window_max"], x, **windows)
        assert (rule and rule.name) == expected, calls


def test_auto_needs_the_saving_of_each_rule_with_kernels():
    default = selection.Rule("name", lambda: True, None, "").saves
    for entries in catalog.TABLES.values():
        assert [rule.name for rule in entries if rule.kernels and rule.saves is default] == []


@pytest.mark.full
def test_auto_is_captured_with_the_calls():
    x, w = np.ones((2, 6, 6, 4), np.float32), np.ones((3, 3, 4, 1), np.float32)
    graph = tf.function(lambda x, w: tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), "SAME"))
    found = []
    for value in ("auto:1", "auto:1000000"):
        with tf2jax_lite.override_config("xla_cpu_rules", value):
            assert tf2jax_lite.get_config("xla_cpu_rules") == value
            found.append(tf2jax_lite.convert_functional(graph, tf.TensorSpec(x.shape), tf.TensorSpec(w.shape)))
    counts = [_convolutions(fn, x, w) for fn in found]
    counts += [_convolutions(jax.grad(lambda x, fn=fn: jnp.sum(fn(x, w) ** 2)), x) for fn in found]
    assert counts == [1, 0, 2, 0]
    np.testing.assert_allclose(jax.jit(found[0])(x, w), jax.jit(found[1])(x, w), rtol=1e-6)


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
    """Softmax is traced once (`inlined`), but jitted under two sets."""
    x = np.ones((64, 1 << 15), np.float32)
    graph = tf.function(lambda x: tf.math.reduce_sum(tf.nn.softmax(x, 0), 0))
    texts = []
    for value in (True, False, True):
        with tf2jax_lite.override_config("xla_cpu_rules", value):
            fn = tf2jax_lite.convert_functional(graph, tf.TensorSpec(x.shape))
        texts.append(jax.jit(fn).lower(x).as_text())
    assert texts[0] == texts[2]
    assert [text.count("stablehlo.reduce(") > 0 for text in texts] == [False, True, False]
    total = jax.jit(lambda x: rules.call(lax.reduce_sum, x, axes=(0,)))
    found = []
    for selected in (None, frozenset(), None):
        with selection.using(selected):
            found.append("stablehlo.reduce" in total.lower(x).as_text())
    assert found == [False, True, False]


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
