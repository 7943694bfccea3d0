"""Make the demo's model and data: a small CNN, trained on few digits.

Run ``python testdata/make_digits_cnn.py`` from the project's root; needs the test extra. The data are the 1,797 real
8x8 images of the UCI "Optical Recognition of Handwritten Digits" set. The model sees 200 of them here, so that
fine-tuning on the others in JAX has something to gain; the last 360 are held out from both.
"""

import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TARGET = Path(__file__).parent.parent / "tf2jax_lite" / "demo"
SHOWN = 200
HELD_OUT = 360


def main():
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = images[order].reshape(-1, 8, 8, 1).astype(np.uint8)  # values 0 to 16
    labels = labels[order].astype(np.uint8)
    np.savez_compressed(TARGET / "digits.npz", images=images, labels=labels, held_out=HELD_OUT)

    model = keras.Sequential(
        [
            keras.Input((8, 8, 1), name="image"),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ],
        name="digits",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    scaled = images.astype(np.float32) / 16
    model.fit(scaled[:SHOWN], labels[:SHOWN], epochs=25, batch_size=32, verbose=0)
    print("held-out accuracy", model.evaluate(scaled[-HELD_OUT:], labels[-HELD_OUT:], verbose=0)[1])

    shutil.rmtree(TARGET / "digits_cnn", ignore_errors=True)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serve", lambda image: model(image, training=False), [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image")]
    )
    archive.write_out(str(TARGET / "digits_cnn"), verbose=False)


if __name__ == "__main__":
    main()
