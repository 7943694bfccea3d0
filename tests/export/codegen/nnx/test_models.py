"""flax.nnx source agrees with TensorFlow, and needs neither it nor tf2jax_lite."""

import json
import subprocess
import sys

import jax
import keras
import numpy as np
import optax
import pytest
import tensorflow as tf
from flax import nnx
from keras import layers

import tf2jax_lite as tf2jax
from tests._support import close, invoke
from tests.export.codegen.test_structure import imported
from tf2jax_lite.errors import InputError, MissingLibraryError

RUN = """
import importlib.util, json, sys
from pathlib import Path
sys.modules["tensorflow"] = sys.modules["tf2jax_lite"] = None
import jax, jax.numpy as jnp, numpy as np
for folder in map(Path, sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(folder.name, folder / "model.py")
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    params = source.load_params(*folder.glob("*.safetensors"))
    info = json.loads((folder / "metadata.json").read_text())
    trains = {name for name, param in info["params"].items() if param["trainable"]}
    arrays = [v for k, v in np.load(folder / "inputs.npz").items()]
    rng = {"rngs": jax.random.key(1)} if info["signatures"]["model"]["rng"] else {}

    def split(tree, prefix=""):
        return {k: v for name, value in tree.items() for k, v in (
            split(value, prefix + name + "/") if isinstance(value, dict) else {prefix + name: value}).items()}

    flat = split(params)

    def nested(flat):
        tree = {}
        for name, value in flat.items():
            *scopes, leaf = name.split("/")
            inner = tree
            for scope in scopes:
                inner = inner.setdefault(scope, {})
            inner[leaf] = value
        return tree

    def loss(given):
        variables = source.to_variables(nested({**flat, **given}))
        result = source.Model.from_params(variables)(*arrays, **rng)
        return jnp.sum(jnp.sin(result)), (result, {k: v[...] for k, v in split(variables).items()})

    chosen = {k: v for k, v in flat.items() if k in trains}
    (_, (result, after)), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(chosen)
    np.savez(folder / "outputs.npz", result=result, **{"grad:" + k: v for k, v in grads.items()},
             **{"after:" + k: v for k, v in after.items()})
"""


def residual():
    """A block of a ResNet, in inference mode, and a loop over two more."""
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, strides=2, padding="same", name="stem")(x)
    for i in range(3):
        y = layers.Conv2D(4, 3, padding="same", use_bias=False, name=f"block{i}_conv")(x)
        y = layers.BatchNormalization(name=f"block{i}_norm")(y)
        x = x + layers.Activation("relu", name=f"block{i}_relu")(y)
    model = keras.Model(inputs, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D()(x)))
    return lambda x: model(x, training=False), model, [(4, 8, 8, 3)]


def encoder():
    x = inputs = keras.Input((5, 8))
    for i in range(3):
        attention = layers.MultiHeadAttention(2, 4, flash_attention=False, name=f"layer_{i}_attention")
        x = layers.LayerNormalization(name=f"layer_{i}_norm")(x + attention(x, x))
        hidden = layers.Dense(12, activation="gelu", name=f"layer_{i}_up")(x)
        x = layers.LayerNormalization(name=f"layer_{i}_end")(x + layers.Dense(8, name=f"layer_{i}_down")(hidden))
    model = keras.Model(inputs, layers.Dense(2, activation="softmax", name="classifier")(x[:, 0]))
    return model, model, [(3, 5, 8)]


def training():
    """Batch statistics, whose moving averages are updated; a frozen layer."""
    x = inputs = keras.Input((6,))
    frozen = layers.Dense(6, name="frozen", trainable=False)
    for i in range(3):
        x = layers.BatchNormalization(name=f"norm_{i}", momentum=0.9)(layers.Dense(6, name=f"dense_{i}")(x))
    model = keras.Model(inputs, frozen(x))
    return lambda x: model(x, training=True), model, [(5, 6)]


def lstm():
    inputs = keras.Input((5, 3))
    model = keras.Model(inputs, layers.Dense(2, name="head")(layers.LSTM(4, name="lstm")(inputs)))
    return model, model, [(2, 5, 3)]


class Looping(tf.Module):
    """A loop and a branch that read variables, and one that is assigned."""

    def __init__(self):
        super().__init__()
        value = np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32) / 4
        self.kernel = tf.Variable(value, name="cell/kernel")
        self.bias = tf.Variable(value[0], name="cell/bias")
        self.other = tf.Variable(value[1], name="other/bias")
        self.calls = tf.Variable(0.0, name="calls", trainable=False)

    def __call__(self, x):
        self.calls.assign_add(tf.reduce_mean(x))
        for _ in tf.range(3):
            x = tf.tanh(tf.matmul(x, self.kernel) + self.bias)
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * self.other, lambda: x + self.bias)


def looping():
    module = Looping()
    return module.__call__, module, [(3, 4)]


MODELS = {f.__name__: f for f in (residual, encoder, training, lstm, looping)}


def exported(name, folder):
    keras.utils.set_random_seed(0)
    call, model, shapes = MODELS[name]()
    function = tf.function(call)
    arrays = [np.random.default_rng(i).normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)]
    fn, params = tf2jax.convert(function, *(tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in arrays))
    tf2jax.export_functions({"model": (fn, params)}, folder, stablehlo=False, framework="nnx", random="tensorflow")
    return function, model, arrays, fn, params


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The models' TensorFlow results, and those of their source in another process."""
    root, expected = tmp_path_factory.mktemp("nnx"), {}
    for name in MODELS:
        function, model, arrays, fn, params = exported(name, root / name)
        np.savez(root / name / "inputs.npz", *arrays)
        with tf.GradientTape() as tape:
            result = function(*map(tf.constant, arrays))
            loss = tf.reduce_sum(tf.sin(result))
        variables = list(model.trainable_variables)
        expected[name] = result, tape.gradient(loss, variables), variables, fn, params
    subprocess.run([sys.executable, "-c", RUN, *(str(root / name) for name in MODELS)], check=True)
    return root, expected


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_results_gradients_and_updates(name, runs):
    root, expected = runs
    result, gradients, variables, fn, params = expected[name]
    found = np.load(root / name / "outputs.npz")
    close(found["result"], result.numpy())
    paths = [getattr(v, "path", v.name).split(":")[0] for v in variables]
    for path, gradient in zip(paths, gradients, strict=True):
        close(found[f"grad:{path}"], tf.convert_to_tensor(gradient).numpy(), atol=1e-5)
    with np.load(root / name / "inputs.npz") as inputs:
        _, after = fn(params, *inputs.values())
    for key, value in after.items():
        close(found[f"after:{key}"], value)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("residual", ["nnx.Conv(3, 4, (3, 3), strides=(2, 2), ", "nnx.List(", "for block in self.blocks:"]),
        ("encoder", ["self.attention = nnx.MultiHeadAttention(", "self.up = nnx.Linear(8, 12, rngs=rngs)"]),
        ("training", ["nnx.BatchNorm(\n            6, momentum=0.9, epsilon=0.001,", "NonTrainable", "model.train()"]),
        ("lstm", ["nnx.OptimizedLSTMCell(3, 4, rngs=rngs)", "self.lstm_cell("]),
        ("looping", ["self.calls[...] = ", "def "]),
    ],
)
def test_source_has(name, pieces, runs):
    text = (runs[0] / name / "model.py").read_text()
    for piece in pieces:
        assert piece in text, text


def test_load_runs_modules_as_functions(runs):
    root, expected = runs
    _, _, _, fn, params = expected["training"]
    loaded, stored = tf2jax.load(root / "training", backend="source")
    x = np.load(root / "training" / "inputs.npz")["arr_0"]
    results, after = fn(params, x)
    close(jax.jit(loaded)(stored, x), (results, {str(name): value for name, value in after.items()}))
    module = tf2jax.to_nnx(loaded, stored)
    kinds = {type(v).__name__ for _, v in nnx.iter_graph(module) if isinstance(v, nnx.Variable)}
    assert kinds == {"Param", "BatchStat", "NonTrainable"}
    close(module(x), results)


@pytest.mark.full
def test_source_trains_under_nnx(runs, tmp_path):
    """An optimizer, sharding metadata, and layers of low rank."""
    root, _ = runs
    source = imported((root / "encoder" / "model.py").read_text(), tmp_path)
    model = source.Model.from_params(source.load_params(*(root / "encoder").glob("*.safetensors")))
    x = np.load(root / "encoder" / "inputs.npz")["arr_0"]
    before = model(x)
    for _, module in list(nnx.iter_graph(model)):
        for name, layer in list(vars(module).items()) if isinstance(module, nnx.Module) else ():
            if isinstance(layer, nnx.Linear):
                layer.kernel.set_metadata(out_sharding=(None, "model"))
                sizes = layer.in_features, 2, layer.out_features
                setattr(module, name, nnx.LoRA(*sizes, base_module=layer, rngs=nnx.Rngs(0)))
    close(model(x), before)
    specs = nnx.get_partition_spec(nnx.state(model, nnx.Param))
    assert jax.P(None, "model") in jax.tree.leaves(specs, is_leaf=lambda leaf: isinstance(leaf, jax.P))
    optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.LoRAParam)

    @nnx.jit
    def step(model, optimizer, x):
        wanted = nnx.DiffState(0, nnx.LoRAParam)
        loss, grads = nnx.value_and_grad(lambda model: -jax.numpy.log(model(x)[:, 0]).mean(), argnums=wanted)(model)
        optimizer.update(model, grads)
        return loss

    losses = [step(model, optimizer, x) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert len(model.blocks) == 3


@pytest.mark.full
def test_shell_and_errors(tmp_path, monkeypatch):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="dense"), layers.Dropout(0.5)])
    model.save(tmp_path / "model.keras")
    done = invoke("convert", tmp_path / "model.keras", tmp_path / "out", "--framework", "nnx", "--train", "--quiet")
    assert done.exit_code == 0, done.output
    info = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert info["framework"] == "nnx" and info["source"] == "model.py"
    x = np.ones((2, 3), np.float32)
    found = {name: tf2jax.load(tmp_path / "out", "serving_default", backend=name) for name in ("source", "stablehlo")}
    close(*(fn(params, x)[0] for fn, params in found.values()))
    bad = invoke("convert", tmp_path / "model.keras", tmp_path / "bad", "--framework", "linen")
    assert bad.exit_code and "jax, nnx" in str(bad.exception)
    bad = invoke("convert", tmp_path / "model.keras", tmp_path / "bad", "--framework", "nnx", "--scan-layers")
    assert bad.exit_code and "scan_layers" in str(bad.exception)
    monkeypatch.setitem(sys.modules, "flax.nnx", None)
    with pytest.raises(MissingLibraryError, match=r"tf2jax-lite\[nnx\]"):
        tf2jax.load(tmp_path / "out", "train", backend="source")


def test_unknown_framework():
    with pytest.raises(InputError, match="jax, nnx"):
        tf2jax.export_functions({}, "out", framework="linen")
    with pytest.raises(InputError, match="scan_layers"):
        tf2jax.export_functions({}, "out", framework="nnx", scan_layers=True)
