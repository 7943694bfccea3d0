"""Artifacts of functions that were written in JAX, or edited after a conversion."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import replace_head

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4)).astype(np.float32)
PARAMS = {
    "hidden": {"kernel": RNG.normal(size=(4, 8)).astype(np.float32), "bias": np.zeros(8, np.float32)},
    "head": [RNG.normal(size=(8, 3)).astype(np.float32), np.int32(2)],
}


def mlp(params, x):
    hidden = jnp.tanh(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    kernel, factor = params["head"]
    return {"scores": jax.nn.softmax(hidden @ kernel * factor)}


def command(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def test_function_of_nested_params_runs_and_trains(tmp_path):
    """Both backends, run, finetune, serve's checks; params are flat by path."""
    out = tmp_path / "out"
    unknown = jax.ShapeDtypeStruct((None, 4), np.float32)
    report = tf2jax.export_functions({"predict": (mlp, PARAMS, unknown)}, out, platforms=["cpu"])
    assert report.warnings == [] and report.parameters == 4 * 8 + 8 + 24 + 1
    expected = mlp(PARAMS, X)["scores"]
    for backend in ("stablehlo", "source"):
        fn, params = tf2jax.load(out, backend=backend)
        assert {str(n): n.trainable for n in params} == {
            "hidden/kernel": True,
            "hidden/bias": True,
            "head/0": True,
            "head/1": False,
        }
        results, _ = fn(params, X)
        np.testing.assert_allclose(results["scores"], expected, rtol=1e-5)
    np.savez(tmp_path / "x.npz", x=X)
    command("run", out, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["scores"], expected, rtol=1e-5)
    np.savez(tmp_path / "data.npz", x=X, y=np.arange(6) % 3)
    command("finetune", out, "--data", tmp_path / "data.npz", "--out", tmp_path / "tuned", "--epochs", 2)
    _, tuned = tf2jax.load(tmp_path / "tuned")
    assert not np.array_equal(tuned["head/0"], PARAMS["head"][0]) and tuned["head/1"] == 2
    entry = json.loads((out / "metadata.json").read_text())["signatures"]["predict"]
    assert entry["independent"] is True and entry["inputs"][0] == {"name": "x", "dtype": "float32", "shape": ["b", 4]}
    assert "JAX function 'predict'" in (out / "model.py").read_text()


def test_example_arrays_fix_sizes_unless_shapes_name_them(tmp_path):
    for name, shapes, taken in (
        ("fixed", None, [6, 4]),
        ("named", ["n, 4"], ["n", 4]),
        ("by", {"x": "n, 4"}, ["n", 4]),
    ):
        tf2jax.export_functions({"f": (mlp, PARAMS, X)}, tmp_path / name, shapes=shapes, platforms=["cpu"])
        metadata = json.loads((tmp_path / name / "metadata.json").read_text())
        assert metadata["signatures"]["f"]["inputs"][0]["shape"] == taken


def test_several_arguments_keys_and_literals(tmp_path):
    """Structures of arrays and a key are arguments; other leaves are baked in."""

    def f(params, inputs, scale, y, rng):
        return inputs["a"] * scale + params["w"] * y, jax.random.normal(rng, (2,))

    example = {"a": np.ones(2, np.float32)}
    functions = {"f": (f, {"w": np.float32([1, 2])}, example, 3.0, np.ones(2, np.float32))}
    tf2jax.export_functions(functions, tmp_path / "f", platforms=["cpu"])
    fn, params = tf2jax.load(tmp_path / "f")
    key = jax.random.key(3)
    (found, drawn), _ = fn(params, example, 3.0, np.float32([1, 1]), rng=key)
    np.testing.assert_allclose(found, [4, 5])
    np.testing.assert_allclose(drawn, jax.random.normal(key, (2,)), rtol=1e-5)
    with pytest.raises(tf2jax.Tf2JaxError):
        fn(params, example, 4.0, np.float32([1, 1]), rng=key)


def test_converted_function_with_a_new_head_is_an_artifact(tmp_path):
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input([4]), layers.Dense(8, "relu"), layers.Dense(3)])
    fn, params = replace_head(*tf2jax.convert(model, tf.TensorSpec([None, 4])), X, classes=5)
    unknown = jax.ShapeDtypeStruct((None, 4), np.float32)
    tf2jax.export_functions({"serving_default": (fn, params, unknown)}, tmp_path / "five", platforms=["cpu"])
    loaded, stored = tf2jax.load(tmp_path / "five")
    np.testing.assert_allclose(loaded(stored, X)[0], fn(params, X)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ((mlp, PARAMS), r"give example arguments: \(fn, params, \*args\)"),
        ((mlp, PARAMS, np.ones((6, 5), np.float32)), "predict does not take these example arguments: TypeError"),
        ((mlp, {"a": {"b": X}, "a/b": X}, X), "two params have the same path"),
    ],
)
def test_functions_that_do_not_fit(entry, says, tmp_path):
    with pytest.raises(InputError, match=says):
        tf2jax.export_functions({"predict": entry}, tmp_path / "out")


@pytest.mark.parametrize("sizes", ["3", "b"])
def test_stablehlo_function_has_source(sizes, tmp_path):
    """A module becomes model.py with the same values and gradients."""
    (rows,) = jax.export.symbolic_shape(sizes)
    shapes = [jax.ShapeDtypeStruct((rows, 4), np.float32), jax.ShapeDtypeStruct((4, 2), np.float32)]
    exported = jax.export.export(jax.jit(lambda x, w: (jnp.tanh(x @ w), jnp.sum(w))))(*shapes)
    fn = tf2jax.from_stablehlo(exported.mlir_module_serialized)
    given = None if sizes == "3" else {"x0": "b, 4"}
    tf2jax.export_functions({"f": (fn, {})}, tmp_path / "out", platforms=["cpu"], shapes=given)
    assert " @ x1" in (tmp_path / "out" / "model.py").read_text()
    x, w = X[:3], np.ones((4, 2), np.float32)
    for backend in ("source", "stablehlo"):
        loaded, params = tf2jax.load(tmp_path / "out", backend=backend)
        results, _ = loaded(params, x, w)
        jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-6), results, fn(x, w))
        grads = [
            jax.grad(lambda w, call=call: call(w)[0].sum())(w)
            for call in (lambda w, f=loaded, p=params: f(p, x, w)[0], lambda w: fn(x, w))
        ]
        np.testing.assert_allclose(*grads, rtol=1e-6)
