"""A Keras model with Dropout and BatchNormalization, its artifact, and data."""

import keras
import numpy as np
import pytest

from tf2jax_lite.export import export_functions
from tf2jax_lite.pipeline.model_files import convert_file

FEATURES, CLASSES = 6, 3


def make_examples(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES)) * 1.5
    return {"features": (centres[y] + rng.normal(size=(n, FEATURES))).astype(np.float32), "y": y.astype(np.int32)}


@pytest.fixture(scope="package")
def keras_file(tmp_path_factory):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((FEATURES,), name="features"), keras.layers.Dense(8, activation="relu", name="hidden")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(CLASSES, name="head")]
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    keras.Sequential(layers).save(path)
    return path


@pytest.fixture(scope="package")
def artifact(keras_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("artifact") / "model"
    functions = convert_file(keras_file, train=True)
    export_functions(functions, out, platforms=["cpu"], options={"model": str(keras_file)})
    return out
