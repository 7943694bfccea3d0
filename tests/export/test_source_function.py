"""With ``scan_layers``, source and StableHLO run equal layers by a scan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.stablehlo import api

LAYERS = 6


def layers():
    rng = np.random.default_rng(0)
    variables = [
        [tf.Variable((0.3 * rng.normal(size=size)).astype(np.float32), name=f"layer_{i}/{name}")]
        for i in range(LAYERS)
        for name, size in (("kernel", (8, 8)), ("bias", (8,)))
    ]
    calls = tf.Variable(0, trainable=False, name="state/calls")

    @tf.function
    def fn(x):
        calls.assign_add(1)
        for i in range(LAYERS):
            (kernel,), (bias,) = variables[2 * i : 2 * i + 2]
            with tf.name_scope(f"layer_{i}"):
                hidden = tf.tanh(tf.matmul(x, kernel, name="mat_mul") + bias, name="tanh")
                x = tf.add(x * 2.0, tf.sin(hidden, name="sin") * hidden, name="out")
        return {"y": x, "twice": (2.0 * x, x)}

    return fn


@pytest.mark.full
def test_layers_run_by_a_scan(tmp_path):
    fn = layers()
    x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    expected = tf.nest.map_structure(lambda t: t.numpy(), fn(x))
    converted = tf2jax.convert(fn, tf.TensorSpec([None, 8]))
    report = tf2jax.export_functions({"f": converted}, tmp_path / "out", platforms=["cpu"], scan_layers=True)
    assert not report.warnings
    source = (tmp_path / "out" / "model.py").read_text()
    assert "lax.scan(" in source and source.count("params[f") == 1
    module = api.read_exported((tmp_path / "out" / "model.stablehlo").read_bytes()).mlir_module()
    assert module.count("stablehlo.while") == 1 and module.count("stablehlo.dot_general") == 1
    gradients = []
    for backend in ("stablehlo", "source"):
        loaded, params = tf2jax.load(tmp_path / "out", backend=backend)
        results, after = loaded(params, x)
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5), expected, results)
        assert after.keys() == params.keys() and int(after["state/calls"]) == int(params["state/calls"]) + 1
        trainable, other = tf2jax.split_params(params)
        loss = lambda t, loaded=loaded, other=other: jnp.sum(loaded(tf2jax.merge_params(t, other), x)[0]["y"])  # noqa: E731
        gradients.append(jax.grad(loss)(trainable))
    assert len(gradients[0]) == 2 * LAYERS
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *gradients)
