"""Store artifacts and inputs of this version, for later ones to load.

Usage: ``python testdata/make_stored.py``.

Writes ``testdata/stored/VERSION``: ``tf2`` and ``tf1``, SavedModels as TensorFlow writes them; ``artefact_tf2`` and
``artefact_tf1``, what ``convert`` makes of them; ``values.npz``, inputs and TensorFlow's results. A version's folder is
never written again: the script refuses to.
"""

import os
from importlib import metadata
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.pipeline.model_files import convert_file

tf1 = tf.compat.v1
STORED = Path(__file__).parent / "stored"
RNG = np.random.default_rng(0)


class Model(tf.Module):
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
    model = Model()
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


def main():
    target = STORED / metadata.version("tf2jax-lite")
    if target.exists():
        raise SystemExit(f"{target} is there: what a version made stays as it is")
    target.mkdir(parents=True)
    values = {}
    for name, make in (("tf1", make_tf1), ("tf2", make_tf2)):  # control flow v1 in the first
        (tf1.disable_control_flow_v2 if name == "tf1" else tf1.enable_control_flow_v2)()
        inputs, expected = make(target / name)
        (target / name / "fingerprint.pb").unlink(missing_ok=True)
        values |= {f"{name}/in/{k}": v for k, v in inputs.items()} | {f"{name}/out/{k}": v for k, v in expected.items()}
        functions = convert_file(target / name, signatures=["serving_default"])
        shapes = [",".join(["b", *map(str, x.shape[1:])]) for x in inputs.values()]
        tf2jax.export_functions(functions, target / f"artefact_{name}", platforms=["cpu"], shapes=shapes)
    np.savez(target / "values.npz", **values)
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    print(f"{target.name}: {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
