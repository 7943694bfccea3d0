"""A Keras model with Dropout and BatchNormalization, its artifact, and data."""

import numpy as np
import pytest

FEATURES, CLASSES = 6, 3


def make_examples(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES)) * 1.5
    return {"features": (centres[y] + rng.normal(size=(n, FEATURES))).astype(np.float32), "y": y.astype(np.int32)}


@pytest.fixture(scope="package")
def keras_file(tmp_path_factory):
    import keras  # here, as most tests of this package need no TensorFlow

    keras.utils.set_random_seed(0)
    layers = [keras.Input((FEATURES,), name="features"), keras.layers.Dense(8, activation="relu", name="hidden")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(CLASSES, name="head")]
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    keras.Sequential(layers).save(path)
    return path


@pytest.fixture(scope="package")
def artifact(keras_file, tmp_path_factory):
    return exported(keras_file, tmp_path_factory.mktemp("artifact") / "model")


def exported(keras_file, out):
    from tf2jax_lite.export import export_functions
    from tf2jax_lite.pipeline.model_files import convert_file

    functions = convert_file(keras_file, train=True)
    export_functions(functions, out, platforms=["cpu"], options={"model": str(keras_file)})
    return out


def transformer(keras):
    layers = keras.layers
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    x = layers.Embedding(32, 32, name="embedding")(tokens)
    for i in range(2):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, 8, name=f"attention{i}")(y, y, use_causal_mask=True)
        y = layers.Dense(64, activation="gelu", name=f"up{i}")(layers.LayerNormalization()(x))
        x = x + layers.Dropout(0.1)(layers.Dense(32, name=f"down{i}")(y))
    return keras.Model(tokens, layers.Dense(4, name="head")(layers.GlobalAveragePooling1D()(x)))


def resnet(keras):
    """Return a smooth ResNet: at a kink, rounding decides on a gradient."""
    layers = keras.layers
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(16, 3, padding="same", name="stem")(image)
    for k in range(2):
        y = layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False, name=f"conv{k}a")(x))
        y = layers.Conv2D(16, 3, padding="same", use_bias=False, name=f"conv{k}b")(layers.Activation("silu")(y))
        x = layers.Activation("silu")(x + layers.BatchNormalization()(y))
    return keras.Model(image, layers.Dense(4, name="head")(layers.GlobalAveragePooling2D()(x)))


@pytest.fixture(scope="package")
def converted(tmp_path_factory):
    """A function that returns the artifact of a small transformer or ResNet, by name."""
    folder = tmp_path_factory.mktemp("converted")

    def find(name):
        import keras

        if not (folder / name).exists():
            keras.utils.set_random_seed(0)
            {"transformer": transformer, "resnet": resnet}[name](keras).save(folder / f"{name}.keras")
            exported(folder / f"{name}.keras", folder / name)
        return folder / name

    return find
