"""Modes that differ in dropout and batch statistics alone are one function."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.export.codegen.test_structure import imported
from tf2jax_lite.pipeline.model_files import convert_keras_model

layers = keras.layers


def images(**options):
    """Two equal blocks with batch statistics, and a head."""
    x = inputs = keras.Input((8, 8, 3))
    for i in range(2):
        x = layers.Conv2D(4, 3, padding="same", use_bias=False, name=f"block{i}_conv")(x)
        x = layers.Activation("relu")(layers.BatchNormalization(name=f"block{i}_norm", **options)(x))
    return keras.Model(inputs, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D()(x)))


def rows(**options):
    inputs = keras.Input((6,))
    x = layers.BatchNormalization(name="norm", **options)(layers.Dense(4, name="dense")(inputs))
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


def shared():
    """One layer normalizes twice: the second update follows the first."""
    inputs, norm = keras.Input((6,)), layers.BatchNormalization(name="norm")
    return keras.Model(inputs, norm(layers.Dense(6, name="dense")(norm(inputs))))


def one_frozen():
    """A normalization without training mode, behind one that trains."""
    inputs = keras.Input((6,))
    x = layers.BatchNormalization(name="norm")(layers.Dense(4, name="dense")(inputs))
    return keras.Model(inputs, layers.BatchNormalization(name="frozen", trainable=False)(x))


MODELS = {
    "images": images,
    "one_frozen": one_frozen,
    "axis": lambda: images(axis=3, epsilon=1e-5, momentum=0.9),
    "rows": rows,
    "no_scale": lambda: images(scale=False),
    "no_center": lambda: rows(center=False),
    "neither": lambda: rows(scale=False, center=False),
    "shared": shared,
    "without_modes": lambda: keras.Model(inputs := keras.Input((6,)), layers.Dense(3, name="head")(inputs)),
}
DIFFERENT = {"shared"}


def export(model, folder, **options):
    for variable in model.non_trainable_variables:
        if "moving" in variable.path:
            variable.assign(0.5 + np.random.default_rng(1).uniform(size=variable.shape))
    functions = convert_keras_model(model)
    tf2jax.export_functions(functions, folder / "out", platforms=["cpu"], stablehlo=False, **options)
    return functions, (folder / "out" / "model.py").read_text()


@pytest.mark.default_cases("axis", "neither", "one_frozen")
@pytest.mark.parametrize("name", MODELS)
def test_both_modes_agree(name, tmp_path):
    """Results, gradients and updates are those of the converted functions."""
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    functions, text = export(model, tmp_path)
    assert ("def _model(params, inputs" in text) == (name not in DIFFERENT)
    assert ("stop_gradient" in text) == (name in DIFFERENT)
    x = np.random.default_rng(0).normal(size=(5, *model.input_shape[1:])).astype(np.float32)
    for mode in ("serving_default", "train"):
        fn, params = functions[mode]
        loaded, held = tf2jax.load(tmp_path / "out", mode, backend="source")
        given = {str(k): jnp.asarray(v) for k, v in params.items()}

        def loss(weights, fn):
            results, after = fn(weights, x)
            return jnp.sum(jnp.sin(3 * results)), (results, {str(k): v for k, v in after.items()})

        found = [jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)(given, f) for f in (fn, loaded)]
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5), *found)
        assert held.keys() == params.keys()


def test_params_stay_as_they_are(tmp_path):
    """Layers update a copy: the caller's dicts keep their arrays."""
    _, text = export(images(), tmp_path)
    module = imported(text, tmp_path)
    given = [module.load_params(tmp_path / "out" / f"{name}.safetensors") for name in ("params", "state")]
    before = jax.tree.map(np.array, given)
    _, after = module.train(*given, np.ones((2, 8, 8, 3), np.float32))
    jax.tree.map(np.testing.assert_array_equal, given, before)
    assert jax.tree.structure(after) == jax.tree.structure(given[1])
    assert not np.array_equal(after["block0_norm"]["moving_mean"], before[1]["block0_norm"]["moving_mean"])


def test_gradients_of_all_params(tmp_path):
    """Neither moving statistics nor the integers of seeds are among them."""
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Dropout(0.5)(layers.BatchNormalization(name="norm")(layers.Conv2D(4, 3, name="conv")(x)))
    _, text = export(keras.Model(inputs, layers.Dense(3, name="head")(x)), tmp_path)
    module = imported(text, tmp_path)
    params, state = (module.load_params(tmp_path / "out" / f"{name}.safetensors") for name in ("params", "state"))
    assert params.keys() == {"conv", "norm", "head"} and params["norm"].keys() == {"gamma", "beta"}

    def loss(params, state, x):
        results, state = module.train(params, state, x, rng=jax.random.key(0))
        return jnp.mean(results**2), state

    grads, _ = jax.jit(jax.grad(loss, has_aux=True))(params, state, np.ones((2, 8, 8, 3), np.float32))
    assert all(np.abs(g).sum() > 0 for name, g in grads.items() for g in g.values() if name != "conv")


def test_keys_with_the_name_of_a_dimension(tmp_path):
    specs = {"a": tf.TensorSpec([None, 2]), "b": tf.TensorSpec([]), "state": tf.TensorSpec([])}
    fn = tf.function(lambda batch: tf.zeros(tf.shape(batch["a"])) + batch["b"] - batch["state"], autograph=False)
    tf2jax.export_functions({"f": tf2jax.convert(fn, specs)}, tmp_path / "out", platforms=["cpu"], stablehlo=False)
    loaded, params = tf2jax.load(tmp_path / "out", backend="source")
    found = loaded(params, {"a": np.ones((3, 2), np.float32), "b": np.float32(7), "state": np.float32(2)})[0]
    np.testing.assert_array_equal(found, np.full((3, 2), 5, np.float32))


class Counted(tf.Module):
    """A training step that assigns weights, a count, and has a large constant."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(np.ones(20, np.float32), name="w")
        self.calls = tf.Variable(0, trainable=False, name="calls")

    @tf.function(input_signature=[tf.TensorSpec([20])])
    def __call__(self, x):
        self.calls.assign_add(1)
        self.w.assign_sub(0.1 * x * np.arange(20, dtype=np.float32) ** 2)
        return self.w * x


def test_assigned_weights_are_returned_before_the_state(tmp_path):
    fn, params = tf2jax.convert(Counted(), tf.TensorSpec([20]))
    tf2jax.export_functions({"step": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    module = imported((tmp_path / "out" / "model.py").read_text(), tmp_path)
    given = [module.load_params(tmp_path / "out" / f"{name}.safetensors") for name in ("params", "state")]
    x = np.full(20, 2, np.float32)
    expected, after = fn(params, x)
    results, *parts = module.step(*given, x)
    np.testing.assert_allclose(results, expected, rtol=1e-6)
    assert [list(part) for part in given] == [["w"], ["calls", "constants"]] and len(parts) == 2
    np.testing.assert_allclose(parts[0]["w"], after["w"], rtol=1e-6)
    assert parts[1]["calls"] == 1 and parts[1].keys() == given[1].keys() and given[1]["calls"] == 0
    loaded, held = tf2jax.load(tmp_path / "out", backend="source")
    np.testing.assert_allclose(loaded(held, x)[1]["w"], after["w"], rtol=1e-6)


@pytest.mark.full
def test_stacked_layers_are_updated(tmp_path):
    """A scan has copies of params, so updates are results of it."""
    functions, _ = export(images(), tmp_path, scan_layers=True)
    fn, params = functions["train"]
    loaded, held = tf2jax.load(tmp_path / "out", "train", backend="source")
    x = np.ones((2, 8, 8, 3), np.float32)
    expected, actual = (flat for _, flat in (fn(params, x), loaded(held, x)))
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6)


class Scaled(keras.layers.Layer):
    """Computes something else in training."""

    def call(self, x, training=False):
        return 2.0 * x if training else x


@pytest.mark.full
def test_other_differences_stay_two_functions(tmp_path):
    inputs = keras.Input((6,))
    x = layers.Dropout(0.5)(Scaled()(inputs))
    functions, text = export(keras.Model(inputs, layers.Dense(3, name="head")(x)), tmp_path)
    assert "_model(" not in text and "_dropout(" in text
    expected = functions["serving_default"][0](functions["serving_default"][1], np.ones((2, 6), np.float32))[0]
    loaded, held = tf2jax.load(tmp_path / "out", "serving_default", backend="source")
    np.testing.assert_allclose(loaded(held, np.ones((2, 6), np.float32))[0], expected, rtol=1e-6)
