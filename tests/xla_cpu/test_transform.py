"""`optimize` on CNNs in JAX: equal values and derivatives, with rules."""

import logging
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite
from tests.compiling import fast_options
from tf2jax_lite.errors import ConfigError
from tf2jax_lite.xla_cpu import optimize
from tf2jax_lite.xla_cpu.transform import call

LAST = ("NHWC", "HWIO", "NHWC")


def convolve(x, w, strides=(1, 1), **more):
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=LAST, **more)


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def cnn(params, x):
    """Return strided, depthwise, grouped, pointwise convolutions, pools, dense."""
    x = jax.nn.relu(convolve(x, params["strided"], (2, 2)))
    x = max_pool(convolve(x, params["depthwise"], feature_group_count=8))
    x = jax.nn.gelu(convolve(x, params["grouped"], feature_group_count=2))
    x = convolve(x, params["pointwise"])
    x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.log1p(jnp.square(x.reshape(x.shape[0], -1) @ params["dense"]))


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    shapes = {
        "strided": (3, 3, 3, 8),
        "depthwise": (3, 3, 1, 8),
        "grouped": (3, 3, 4, 8),
        "pointwise": (1, 1, 8, 6),
        "dense": (24, 4),
    }
    params = {name: rng.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    return params, rng.normal(size=(2, 15, 16, 3)).astype(np.float32)


def gradients(fn):
    return jax.grad(lambda *args: jnp.sum(fn(*args) ** 2), (0, 1))


def scanned(fn):
    """Three steps of gradient descent."""

    def steps(params, x):
        def step(params, _):
            gradient = gradients(fn)(params, x)[0]
            return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradient), None

        return lax.scan(step, params, None, length=3)[0]

    return steps


TRANSFORMS = {
    "value": lambda fn: fn,
    "grad": gradients,
    "vmap": lambda fn: lambda params, x: jax.vmap(fn, (None, 0))(params, jnp.stack([x, -x])),
    "jvp": lambda fn: lambda params, x: jax.jvp(partial(fn, params), (x,), (jnp.cos(x),)),
    "forward over reverse": lambda fn: (
        lambda params, x: jax.jvp(lambda x: gradients(fn)(params, x), (x,), (jnp.cos(x),))
    ),
    "checkpoint": lambda fn: gradients(jax.checkpoint(fn)),
    "scan": scanned,
}


def close(found, expected):
    for a, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=2e-4, atol=2e-4 * max(1, float(np.abs(e).max())))


def agree(fn, *args, transform="value"):
    change = TRANSFORMS[transform]
    found, expected = (
        jax.jit(change(f), compiler_options=fast_options())(*args) for f in (optimize(fn, rules=True), fn)
    )
    close(found, expected)


def lowered(fn, *args, platform="cpu"):
    return jax.jit(fn).trace(*args).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.default_cases("jvp")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_cnn_values_and_derivatives_agree(name, inputs):
    agree(cnn, *inputs, transform=name)


@pytest.mark.full
def test_cnn_takes_rules_on_cpu_only(inputs):
    for change in (lambda fn: fn, gradients):
        before, after = (lowered(change(fn), *inputs).splitlines() for fn in (cnn, optimize(cnn)))
        before, after = ([line for line in text if "stablehlo.convolution" in line] for text in (before, after))
        assert len(after) < len(before)
        assert all("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" in line for line in after)
        plain, same = (lowered(change(fn), *inputs, platform="cuda") for fn in (cnn, optimize(cnn)))
        assert plain.count("stablehlo.convolution") == same.count("stablehlo.convolution")
    assert "select_and_scatter" not in lowered(gradients(optimize(cnn)), *inputs)


def depthwise(w, x):
    return convolve(x, w, feature_group_count=4)


def in_loops_and_branches(w, x):
    x = lax.scan(lambda c, _: (jnp.tanh(depthwise(w, c)), None), x, None, length=2)[0]
    x = lax.cond(jnp.sum(x) > 0, lambda x: depthwise(w, x), lambda x: -depthwise(w, x), x)
    return jax.jit(depthwise)(w, jax.checkpoint(partial(depthwise, w))(x))


@jax.custom_jvp
def doubled(w, x, n):
    return depthwise(w, x) * n, n


@doubled.defjvp
def _(primals, tangents):
    w, x, n = primals
    dot = depthwise(tangents[0], x) + depthwise(w, tangents[1])
    return doubled(w, x, n), (2 * dot, tangents[2])


@jax.custom_vjp
def tripled(w, x, n):
    return depthwise(w, x) * n, n


def _tripled_backward(residuals, cotangents):
    _, pull = jax.vjp(depthwise, *residuals)
    return *(3 * g for g in pull(cotangents[0])), None


tripled.defvjp(lambda w, x, n: (tripled(w, x, n), (w, x)), _tripled_backward)
FUNCTIONS = {
    "loops": in_loops_and_branches,
    "custom jvp": lambda w, x: doubled(w, x, 2)[0],
    "custom vjp": lambda w, x: tripled(w, x, 2)[0],
}


@pytest.mark.full_cases("loops")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_inner_functions_take_rules(name):
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 3, 1, 4), (2, 5, 6, 4)))
    agree(FUNCTIONS[name], w, x, transform="grad")
    for change in (lambda fn: fn, gradients):
        assert "stablehlo.convolution" not in lowered(change(optimize(FUNCTIONS[name])), w, x)


@pytest.mark.full
def test_flax_network():
    nn = pytest.importorskip("flax.linen")

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.silu(nn.GroupNorm(2)(nn.Conv(8, (3, 3))(x)))
            x = nn.Conv(8, (3, 3), feature_group_count=8)(x)
            return nn.Dense(3)(nn.max_pool(x, (2, 2), (2, 2)).mean((1, 2)))

    network, x = Network(), np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), x)
    agree(network.apply, params, x, transform="grad")
    assert "feature_group_count = 8" not in lowered(optimize(network.apply), params, x)


@pytest.mark.full
def test_calls_without_jit_are_compiled_once():
    traces = []

    def fn(x, *, scale):
        traces.append(1)
        return {"y": convolve(x, jnp.ones((1, 1, 3, 2))) * scale}

    fast = optimize(fn)
    x = np.ones((1, 4, 4, 3), np.float32)
    for _ in range(2):
        close(fast(x, scale=2.0), fn(x, scale=2.0))
    assert len(traces) == 3


def test_a_set_of_rules_is_kept():
    w, x = np.ones((3, 3, 1, 4), np.float32), np.ones((2, 5, 6, 4), np.float32)
    assert "stablehlo.convolution" in lowered(optimize(depthwise, rules=False), w, x)
    assert "stablehlo.convolution" not in lowered(optimize(depthwise, rules={"depthwise"}), w, x)
    with pytest.raises(ConfigError, match="Did you mean 'depthwise'"):
        optimize(depthwise, rules={"deptwise"})


@pytest.mark.full
def test_code_of_the_page_runs(caplog):
    page = Path(__file__).parents[2] / "docs" / "xla-cpu.md"
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)
    assert "depthwise" in {r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG}
    assert "without_polyphase" in namespace and "plain" in namespace


def test_call_traces_functions_with_rules_once():
    """A function without rules, or of static results, is called as it is."""
    seen = []

    def with_rule(x, axis, *, factors):
        seen.append((factors, type(axis)))
        return lax.cumsum(x * factors[0], axis=int(axis))

    def without(x, *, factors):
        seen.append(factors)
        return x * factors[0]

    def static(x):
        lax.cumsum(x, axis=0)
        return np.asarray(x.shape)

    axis = np.asarray(0)
    run = jax.jit(lambda x: call(with_rule, x, axis, factors=[2.0]) + call(with_rule, x, axis, factors=[2.0]))
    np.testing.assert_allclose(run(np.ones((3, 32), np.float32))[-1], 12)
    assert seen == [((2.0,), np.ndarray)]
    seen.clear()
    for _ in range(3):
        jax.jit(lambda x: call(without, x, factors=[2.0])).lower(np.ones((3, 32), np.float32))
    assert seen == [(2.0,), *[[2.0]] * 3]
    shapes = []
    jax.jit(lambda x: shapes.append(call(static, x))).lower(np.ones((3, 32), np.float32))
    assert type(shapes[0]) is np.ndarray


def test_kept_jaxprs_do_not_hold_arrays_of_the_caller():
    """JAX 0.10 takes one that a jaxpr holds in the mode in which it first saw it."""

    def gathered(x, indices):
        return lax.cumsum(x[indices], axis=0)

    indices, x = np.asarray([2, 0, 1]), np.arange(12.0, dtype=np.float32).reshape(4, 3)
    with jax.enable_x64(True):
        jax.jit(lambda x: call(gathered, x, indices))(x)
    np.testing.assert_array_equal(jax.jit(lambda i: i + 1)(indices), [3, 1, 2])
    indices[:] = 3
    found = jax.jit(lambda x: call(gathered, x, indices))(x)
    np.testing.assert_array_equal(found, np.cumsum(x[indices], axis=0))


def test_user_ops_are_traced_each_time():
    """What a user's function depends on is not known."""
    factor = [2.0]

    def cumsum(x, axis, *, exclusive=False, reverse=False):
        return lax.cumsum(x * factor[0], axis=int(axis))

    graph = tf.function(lambda x: tf.cumsum(x, 0))
    x = np.ones((3, 32), np.float32)
    with tf2jax_lite.override_op("Cumsum", cumsum):
        fn = tf2jax_lite.convert_functional(graph, tf.TensorSpec(x.shape))
        assert jax.jit(fn)(x)[-1, 0] == 6
        factor[0] = 3.0
        assert jax.jit(lambda x: fn(x))(x)[-1, 0] == 9
