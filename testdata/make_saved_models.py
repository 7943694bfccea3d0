"""Make the small SavedModels that tests convert.

Usage: ``python testdata/make_saved_models.py`` from the project's root.

One for each way that such directories come about: tf.saved_model.save of a tf.Module, Keras 3's model.export, and
tf_keras' model.save. Weights are random; what counts is the form.
"""

import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
import tf_keras

HERE = Path(__file__).parent


class Tabular(tf.Module):
    """Several signatures, nested results, shared and updated variables."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.w = tf.Variable(rng.normal(size=(4, 3)), dtype=tf.float32, name="w")
        self.b = tf.Variable(tf.zeros([3]), name="b")
        self.seen = tf.Variable(0, trainable=False, dtype=tf.int64, name="seen")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "features")])
    def scores(self, features):
        self.seen.assign_add(tf.shape(features, out_type=tf.int64)[0])
        logits = tf.matmul(features, self.w) + self.b
        return {"logits": logits, "probabilities": tf.nn.softmax(logits), "classes": tf.argmax(logits, -1)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 4], tf.float32, "features"),
            tf.TensorSpec([], tf.int32, "steps"),
        ]
    )
    def repeat(self, features, steps):
        total = tf.zeros_like(features)
        for i in tf.range(steps):
            total += tf.cast(i, tf.float32) * tf.tanh(features)
        if tf.reduce_sum(total) > 1.0:
            total = total * 0.5
        return {"total": total}


def tf_module(path):
    module = Tabular()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.scores, "repeat": module.repeat})


def keras_export(path):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 2), name="image")
    x = keras.layers.Conv2D(4, 3, padding="same", activation="silu")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    keras.Model(inputs, keras.layers.Dense(2)(x)).export(str(path), verbose=False)


def tf_keras_save(path):
    tf_keras.utils.set_random_seed(0)
    inputs = tf_keras.Input((None,), dtype="int32", name="tokens")
    x = tf_keras.layers.Embedding(11, 4)(inputs)
    x = tf_keras.layers.Conv1D(3, 2, padding="same", activation="relu")(x)
    x = tf_keras.layers.GlobalMaxPooling1D()(x)
    tf_keras.Model(inputs, tf_keras.layers.Dense(2)(x)).save(str(path), save_format="tf")


def main():
    for make in (tf_module, keras_export, tf_keras_save):
        target = HERE / make.__name__
        shutil.rmtree(target, ignore_errors=True)
        make(target)
        size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
        print(f"{target.name}: {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
