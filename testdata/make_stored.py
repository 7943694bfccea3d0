"""Store artifacts, checkpoints and inputs of this version, for later ones to load.

Usage: ``python testdata/make_stored.py``.

Writes ``testdata/stored/VERSION``. A version's folder is never written again: the script refuses to.

- ``tf2``, ``tf1``: SavedModels as TensorFlow writes them; ``artifact_tf2``, ``artifact_tf1``: their conversions.
- ``functions``: an artifact of several signatures, which share variables: symbolic dimensions and multiples of them,
  nested arguments, a literal argument, loops and branches, updates, 64-bit integers, random keys, sharded params, and
  the params as an Orbax checkpoint.
- ``narrow``: an artifact in bfloat16.
- ``keras``: an artifact with a training mode.
- ``finetune``, ``federate``: checkpoints of its training, after the first of two epochs or rounds.
- ``values.npz``: inputs, training data, and results: TensorFlow's; those of random functions and trainings are what
  this version computes.

No file names a folder of the machine: programs have no source locations, and paths in plain text are made relative.
"""

import os
import tempfile
from importlib import metadata
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import keras
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app
from tf2jax_lite.finetuning import federate_artifact, finetune_artifact
from tf2jax_lite.learning.data.client_files import open_clients
from tf2jax_lite.pipeline.model_files import convert_file

tf1 = tf.compat.v1
STORED = Path(__file__).parent / "stored"
jax.config.update("jax_traceback_in_locations_limit", 0)
RNG = np.random.default_rng(0)
FINETUNE = {"loss": "sparse_categorical_crossentropy", "from_logits": True, "batch_size": 16, "learning_rate": 0.02}
FEDERATE = {
    "loss": "sparse_categorical_crossentropy",
    "from_logits": True,
    "algorithm": "scaffold",
    "clients_per_round": 2,
    "batch_size": 8,
}


class Layers(tf.Module):
    """Convolution, call, branch, loop, custom gradient, update, random op.

    The loop has a list.
    """

    def __init__(self):
        self.kernel = tf.Variable(RNG.normal(size=(3, 3, 1, 2)).astype(np.float32) / 3, name="kernel")
        self.dense = tf.Variable(RNG.normal(size=(2, 3)).astype(np.float32), name="dense")
        self.calls = tf.Variable(0, trainable=False, name="calls")

    @tf.function(input_signature=[tf.TensorSpec([None, 6, 6, 1], tf.float32, "image")])
    def scores(self, image):
        self.calls.assign_add(1)

        @tf.custom_gradient
        def clipped(x):
            return tf.clip_by_value(x, -1.0, 1.0), lambda upstream: upstream * 0.5

        x = clipped(tf.nn.conv2d(image, self.kernel, 1, "SAME"))
        rows = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            x = tf.tanh(x) + 0.1 * tf.cast(i, tf.float32)
            rows = rows.write(i, tf.reduce_mean(x, [1, 2]))
        if tf.reduce_sum(x) > 0.0:
            x = x * 2.0
        noise = tf.random.stateless_uniform([3], [1, 2])
        logits = tf.reduce_mean(x, [1, 2]) @ self.dense + noise
        return {"probabilities": tf.nn.softmax(logits), "rows": rows.stack(), "best": tf.argmax(logits, -1)}


def make_tf2(path):
    model = Layers()
    image = RNG.normal(size=(2, 6, 6, 1)).astype(np.float32)
    expected = {name: value.numpy() for name, value in model.scores(tf.constant(image)).items()}
    model.calls.assign(0)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(model, str(path), signatures={"serving_default": model.scores}, options=options)
    return {"image": image}, expected


def make_tf1(path):
    x_value = RNG.normal(size=(4, 3)).astype(np.float32)
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        with tf1.variable_scope("", use_resource=False):
            w = tf1.get_variable("w", initializer=RNG.normal(size=(3, 3)).astype(np.float32))
        h = tf1.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w))), [0, x])[1]
        y = tf1.cond(tf.reduce_sum(h) > 0, lambda: h + 1.0, lambda: h - 1.0, name="branch")
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            expected = {"y": session.run(y, {x: x_value})}
            tf1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
    return {"x": x_value}, expected


class Functions(tf.Module):
    """Three functions of shared variables."""

    def __init__(self):
        self.table = tf.Variable(RNG.normal(size=(6, 4)).astype(np.float32), name="table")
        self.weights = tf.Variable(RNG.normal(size=(4, 4)).astype(np.float32), name="weights")
        self.calls = tf.Variable(0, trainable=False, name="calls", dtype=tf.int64)

    @tf.function
    def scores(self, inputs, scale, negate=False):
        self.calls.assign_add(1)
        x = tf.gather(self.table, inputs["ids"]) * scale
        pairs = tf.reduce_mean(tf.reshape(x, [tf.shape(x)[0], -1, 2, 4]), 2)
        pairs = tf.where(inputs["mask"][..., None], pairs, -pairs)
        x = -pairs if negate else pairs
        state = tf.zeros([tf.shape(x)[0], 4])
        for i in tf.range(3):
            state = tf.tanh(state @ self.weights + tf.reduce_sum(x, 1) * tf.cast(i, tf.float32))
        if tf.reduce_sum(state) > 0.0:
            state = state * 2.0
        return {"state": state, "best": (tf.argmax(state, -1), self.calls.read_value())}

    @tf.function
    def draw(self, x):
        noise = tf.random.normal(tf.shape(x))
        return x + noise, tf.random.uniform([3], maxval=10, dtype=tf.int32)

    @tf.function
    def half(self, x):
        return tf.nn.softmax(x @ self.weights)


def make_functions(target, values):
    model = Functions()
    inputs = {"ids": np.array([[0, 1, 2, 3], [5, 4, 3, 2]], np.int32), "mask": np.array([[True, False], [False, True]])}
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    scale = np.float32(1.5)
    found = model.scores(tf.nest.map_structure(tf.constant, inputs), tf.constant(scale), negate=True)
    values |= {"ids": inputs["ids"], "mask": inputs["mask"], "scale": scale, "x": x}
    values |= {"state": found["state"].numpy(), "best": found["best"][0].numpy(), "half": model.half(x).numpy()}
    model.calls.assign(0)
    specs = {"ids": tf.TensorSpec([None, None], tf.int32), "mask": tf.TensorSpec([None, None], tf.bool)}
    rows = tf.TensorSpec([None, 4], tf.float32)
    functions = {
        "scores": tf2jax.convert(model.scores, specs, tf.TensorSpec([], tf.float32), negate=True),
        "draw": tf2jax.convert(model.draw, rows),
        "half": tf2jax.convert(model.half, rows),
    }
    shapes = {"inputs/ids": "b, 2*n", "inputs/mask": "b, n", "scale": "", "x": "b, 4"}
    tf2jax.export_functions(
        functions, target / "functions", platforms=["cpu"], shapes=shapes, shard_bytes=64, checkpoint=True
    )
    for file in target.rglob("commit_success.txt"):  # Orbax only looks whether it is there
        file.write_text("Checkpoint commit was successful")
    draw, params = functions["draw"]
    noisy, numbers = draw(params, x, rng=jax.random.key(7))[0]
    values |= {"noisy": np.asarray(noisy), "numbers": np.asarray(numbers)}
    narrow = {"half": functions["half"]}
    tf2jax.export_functions(narrow, target / "narrow", platforms=["cpu"], dtype="bfloat16")


def examples(count, values):
    y = RNG.integers(0, 3, count)
    features = RNG.normal(size=(3, 4))[y] * 2 + RNG.normal(size=(count, 4))
    values |= {"features": features.astype(np.float32)}
    values |= {"y": y.astype(np.int32), "client_id": np.arange(count) % 3}
    return {"features": values["features"], "y": values["y"]}


def params_of(artifact):
    return {str(name): np.asarray(value) for name, value in tf2jax.load(artifact)[1].items()}


def make_trained(target, values):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((4,), name="features"), keras.layers.Dense(5, activation="relu", name="hidden")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(3, name="head")]
    model = keras.Sequential(layers)
    data = examples(48, values)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        command = ["convert", f"{folder}/model.keras", str(target / "keras"), "--train", "--platforms", "cpu"]
        app(command, standalone_mode=False)
        metadata = target / "keras" / "metadata.json"
        metadata.write_text(metadata.read_text().replace(f"{folder}/", ""))
        values["keras"] = np.asarray(model(data["features"]))
        checkpoint = target / "finetune"
        finetune_artifact(target / "keras", data, f"{folder}/one", epochs=1, checkpoint_dir=checkpoint, **FINETUNE)
        finetune_artifact(target / "keras", data, f"{folder}/two", epochs=2, **FINETUNE)
        np.savez(f"{folder}/clients.npz", **data, client_id=values["client_id"])
        clients = open_clients(f"{folder}/clients.npz")
        checkpoint = target / "federate"
        federate_artifact(target / "keras", clients, f"{folder}/r", rounds=1, checkpoint_dir=checkpoint, **FEDERATE)
        federate_artifact(target / "keras", clients, f"{folder}/out", rounds=2, **FEDERATE)
        values |= {f"federated/{name}": value for name, value in params_of(f"{folder}/out").items()}
        values |= {f"tuned/{name}": value for name, value in params_of(f"{folder}/two").items()}


def make_models(target, values):
    for name, make in (("tf1", make_tf1), ("tf2", make_tf2)):  # control flow v1 in the first
        (tf1.disable_control_flow_v2 if name == "tf1" else tf1.enable_control_flow_v2)()
        inputs, expected = make(target / name)
        (target / name / "fingerprint.pb").unlink(missing_ok=True)
        values |= {f"{name}/in/{k}": v for k, v in inputs.items()} | {f"{name}/out/{k}": v for k, v in expected.items()}
        functions = convert_file(target / name, signatures=["serving_default"])
        shapes = [",".join(["b", *map(str, x.shape[1:])]) for x in inputs.values()]
        tf2jax.export_functions(functions, target / f"artifact_{name}", platforms=["cpu"], shapes=shapes)


def main():
    target = STORED / metadata.version("tf2jax-lite")
    if target.exists():
        raise SystemExit(f"{target} is there: what a version made stays as it is")
    target.mkdir(parents=True)
    values = {}
    make_models(target, values)
    make_functions(target, values)
    make_trained(target, values)
    np.savez_compressed(target / "values.npz", **values)
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    print(f"{target.name}: {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
