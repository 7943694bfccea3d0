"""Weights in int8 and bfloat16: sizes, results, errors by param."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
import tf2jax_lite.demo
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError
from tf2jax_lite.export.weight_only import stored_weights

MODEL = Path(tf2jax_lite.demo.__file__).parent / "digits_cnn"
IMAGES = np.random.default_rng(0).random((5, 8, 8, 1)).astype(np.float32)


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Return artifacts of the bundled model by the kind of their weights."""
    folder = tmp_path_factory.mktemp("weights")
    for kind in ("float32", "bfloat16", "int8"):
        words = ["convert", MODEL, folder / kind, "--platforms", "cpu", "--quiet"]
        result = command(*words, *([] if kind == "float32" else ["--weights", kind]))
        assert result.exit_code == 0, (result.output, result.exception)
    return folder


@pytest.mark.parametrize(("kind", "size", "tolerance"), [("int8", 0.35, 0.02), ("bfloat16", 0.55, 0.01)])
def test_weights_take_less_and_results_stay_near(kind, size, tolerance, artifacts):
    """Both backends agree; the small params keep their dtype."""
    whole, small = ((artifacts / name / "params.safetensors").stat().st_size for name in ("float32", kind))
    assert small < size * whole
    fn, params = tf2jax.load(artifacts / "float32", "serving_default")
    expected = next(iter(fn(params, IMAGES)[0].values()))
    found = []
    for backend in ("stablehlo", "source"):
        fn, params = tf2jax.load(artifacts / kind, "serving_default", backend=backend)
        found.append(np.asarray(next(iter(fn(params, IMAGES)[0].values()))))
        assert found[-1].dtype == np.float32
        np.testing.assert_allclose(found[-1], expected, atol=tolerance)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
    names = {str(name): value.dtype.name for name, value in params.items()}
    if kind == "int8":
        assert any(name.endswith("/int8") and dtype == "int8" for name, dtype in names.items())
        assert not any(name.trainable for name in params if name.endswith("/int8"))
    else:
        assert "bfloat16" in names.values() and "float32" in names.values()


def test_verify_tells_errors_by_param(artifacts):
    result = command("verify", MODEL, artifacts / "int8", "--rtol", 0.2)
    text = " ".join(result.output.split())
    assert "weights are int8; relative errors by param:" in text and "kernel 0." in text, text


def test_int8_is_within_half_a_step():
    """A channel of zeros stays zero; the error is the relative norm."""
    weights = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32) * np.logspace(-3, 3, 8, dtype=np.float32)
    weights[:, 3] = 0
    found, dtypes, errors = stored_weights({"w": weights, "b": np.ones(300, np.float32), "s": np.ones((2, 2))}, "int8")
    assert set(found) == {"w/int8", "w/scale", "b", "s"} and dtypes == {"w": np.float32}
    expanded = found["w/int8"] * found["w/scale"]
    assert (np.abs(expanded - weights) <= 0.5001 * found["w/scale"]).all() and not expanded[:, 3].any()
    np.testing.assert_allclose(errors["w"], np.linalg.norm(expanded - weights) / np.linalg.norm(weights), rtol=1e-4)
    assert errors["w"] < 0.01


def test_moving_statistics_and_batches_go_on(tmp_path):
    """A function of JAX, whose params are nested."""
    params = {"layer": {"kernel": np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)}}
    functions = {"f": (lambda p, x: jnp.tanh(x @ p["layer"]["kernel"]), params, np.ones((2, 32), np.float32))}
    tf2jax.export_functions(functions, tmp_path / "f", platforms=["cpu"], weights="int8")
    fn, stored = tf2jax.load(tmp_path / "f")
    assert set(stored) == {"layer/kernel/int8", "layer/kernel/scale"}
    x = np.random.default_rng(1).normal(size=(2, 32)).astype(np.float32)
    np.testing.assert_allclose(fn(stored, x)[0], functions["f"][0](params, x), atol=0.05)
    for options, says in (
        ({"weights": "int4"}, "weights is one of int8, bfloat16"),
        ({"weights": "int8", "dtype": "bfloat16"}, "Give one of them"),
    ):
        with pytest.raises(InputError, match=says):
            tf2jax.export_functions(functions, tmp_path / "other", **options)
