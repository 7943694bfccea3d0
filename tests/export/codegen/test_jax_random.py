"""Dropout draws JAX's random numbers of a key, in both backends of an artifact."""

import jax
import keras
import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError
from tf2jax_lite.pipeline.model_files import convert_keras_model

RATE = 0.3
X = np.ones((64, 32), np.float32)


@pytest.fixture(scope="module")
def functions():
    inputs = keras.Input((32,))
    hidden = keras.layers.Dropout(RATE, name="first")(inputs)
    hidden = keras.layers.BatchNormalization(center=False, name="norm")(hidden)
    return convert_keras_model(keras.Model(inputs, keras.layers.Dropout(RATE, name="second")(hidden)))


def test_dropout_has_a_key(functions, tmp_path):
    tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"])
    text = (tmp_path / "out" / "model.py").read_text()
    assert "jax.random.fold_in(rng, layer)" in text and "philox" not in text and "seed" not in text
    results = []
    for backend in ("stablehlo", "source"):
        fn, params = tf2jax.load(tmp_path / "out", "train", backend=backend)
        assert fn.needs_key and not tf2jax.load(tmp_path / "out", "serving_default", backend=backend)[0].needs_key
        found, after = fn(params, X, rng=jax.random.key(0))
        assert not np.array_equal(found, fn(params, X, rng=jax.random.key(1))[0])
        changed = {name for name in params if not np.array_equal(params[name], after[name])}
        assert changed == {"norm/moving_mean", "norm/moving_variance"}
        results.append(found)
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    dropped = np.mean(np.asarray(results[0]) == 0)
    assert abs(dropped - RATE) < 0.05  # 2,048 draws: 5 standard deviations


def test_tensorflow_numbers_are_one_function(functions, tmp_path):
    tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"], random="tensorflow")
    text = (tmp_path / "out" / "model.py").read_text()
    assert text.count("def _philox_uniform(") == 1 and "fold_in" not in text
    fn, params = functions["train"]
    expected, state = fn(params, X)
    for backend in ("stablehlo", "source"):
        loaded, held = tf2jax.load(tmp_path / "out", "train", backend=backend)
        found, after = loaded(held, X)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        for name, value in state.items():
            np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-6)


def test_unknown_numbers_raise():
    with pytest.raises(InputError, match="random is one of jax, tensorflow"):
        tf2jax.export_functions({}, "out", random="numpy")


@pytest.mark.parametrize("random", ["jax", "tensorflow"])
def test_other_draws_than_dropout_are_one_call(random, tmp_path):
    """The draws of inference mode are none, so the modes stay two functions."""
    inputs = keras.Input((5, 3))
    hidden = keras.layers.SpatialDropout1D(RATE)(inputs)
    functions = convert_keras_model(keras.Model(inputs, keras.layers.GaussianNoise(0.5)(hidden)))
    tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"], random=random)
    text = (tmp_path / "out" / "model.py").read_text()
    prefix = "jax.random." if random == "jax" else "_philox_"
    assert all(f"{prefix}{name}(" in text for name in ("uniform", "normal")) and ("philox" in text) == (
        random == "tensorflow"
    )
    x = np.ones((801, 5, 3), np.float32)  # an odd count
    loaded, held = tf2jax.load(tmp_path / "out", "train", backend="source")
    if random == "tensorflow":
        fn, params = functions["train"]
        np.testing.assert_allclose(loaded(held, x)[0], fn(params, x)[0], rtol=1e-5, atol=1e-5)
        return
    found = np.asarray(loaded(held, x, rng=jax.random.key(0))[0])
    mean = found.mean(1)  # of five steps: noise of deviation 0.22 around 0 or 1 / 0.7
    assert abs(np.mean(mean < 0.7) - RATE) < 0.05 and abs(np.std(found - mean[:, None]) - 0.5 * 0.8**0.5) < 0.02
