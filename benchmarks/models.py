"""The models: Keras 3 code for either backend, realistic or small for tests."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
      build: takes the ``keras`` module and the size ("full" or "small"), returns a model.
      inputs: takes batch and size, returns the model's input (an array or a list of them).
      groups: what it is counted under in summaries: "convolution", "mobile", "attention", "recurrent".
    """

    build: Callable[[Any, str], Any]
    inputs: Callable[[int, str], Any]
    groups: tuple[str, ...]
    trains: bool = True


def _image(full: int, small: int) -> Callable[[int, str], Any]:
    def inputs(batch: int, size: str) -> Any:
        side = full if size == "full" else small
        return np.random.default_rng(0).normal(size=(batch, side, side, 3)).astype(np.float32)

    return inputs


def _application(name: str, full: int, small: int, *groups: str, **options: Any) -> Model:
    inputs = _image(full, small)

    def build(keras: Any, size: str) -> Any:
        shape = inputs(1, size).shape[1:]
        head = {"classifier_activation": None} if size == "full" else {"classes": 10, "classifier_activation": None}
        return getattr(keras.applications, name)(weights=None, input_shape=shape, **head, **options)

    return Model(build, inputs, ("convolution", *groups))


def _tokens(full: int, small: int, vocabulary: int = 30000) -> Callable[[int, str], Any]:
    def inputs(batch: int, size: str) -> Any:
        length, words = (full, vocabulary) if size == "full" else (small, 50)
        return np.random.default_rng(0).integers(0, words, (batch, length)).astype(np.int32)

    return inputs


def transformer(keras: Any, x: Any, depth: int, width: int, heads: int, dropout: float = 0.0, **call: Any) -> Any:
    layers = keras.layers
    for _ in range(depth):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        attention = layers.MultiHeadAttention(heads, width // heads, dropout=dropout, flash_attention=False)
        x = x + layers.Dropout(dropout)(attention(y, y, **call))
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.Dropout(dropout)(layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y)))
    return layers.LayerNormalization(epsilon=1e-5)(x)


def positions(keras: Any, x: Any) -> Any:
    class Positions(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=shape[1:], initializer="normal", name="table")

        def call(self, x: Any) -> Any:
            return x + self.table

    return Positions()(x)


def _vit(keras: Any, size: str) -> Any:
    depth, width, heads, side, patch = (12, 768, 12, 224, 16) if size == "full" else (2, 32, 2, 16, 4)
    image = keras.Input((side, side, 3))
    x = keras.layers.Conv2D(width, patch, patch)(image)
    x = positions(keras, keras.layers.Reshape((-1, width))(x))
    x = transformer(keras, x, depth, width, heads)
    return keras.Model(image, keras.layers.Dense(1000 if size == "full" else 10)(x[:, 0]))


def _text(causal: bool, full_length: int, vocabulary: int) -> Callable[[Any, str], Any]:
    def build(keras: Any, size: str) -> Any:
        full = size == "full"
        depth, width, heads = (12, 768, 12) if full else (2, 32, 2)
        words = vocabulary if full else 50
        ids = keras.Input((full_length if full else 8,), dtype="int32")
        x = positions(keras, keras.layers.Embedding(words, width)(ids))
        x = transformer(keras, x, depth, width, heads, use_causal_mask=causal)
        return keras.Model(ids, keras.layers.Dense(words)(x[:, -1:]) if causal else keras.layers.Dense(2)(x[:, 0]))

    return build


def _decode_shapes(size: str) -> tuple[int, int, int, int, int]:
    """Return depth, heads, width of a head, length of the cache, vocabulary."""
    return (12, 12, 64, 512, 50257) if size == "full" else (2, 2, 8, 8, 50)


def _decoder(keras: Any, size: str) -> Any:
    """Return a decoder step with a cache: (token, position, cache) to logits."""
    depth, heads, head, length, words = _decode_shapes(size)
    width, ops, layers = heads * head, keras.ops, keras.layers
    token = keras.Input((1,), dtype="int32")
    position = keras.Input((1,), dtype="int32")
    cache = keras.Input((2 * depth, heads, length, head))
    x = layers.Embedding(words, width)(token) + layers.Embedding(length, width)(position)
    here = ops.expand_dims(ops.one_hot(position, length, dtype="float32"), -1)  # batch, 1, length, 1
    seen = ops.less_equal(ops.expand_dims(ops.arange(length, dtype="int32"), 0), position)
    bias = ops.reshape(ops.where(seen, 0.0, -1e9), (-1, 1, 1, length))
    kept = []
    for i in range(depth):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        q, k, v = (ops.reshape(layers.Dense(width)(y), (-1, heads, 1, head)) for _ in range(3))
        keys = cache[:, 2 * i] * (1 - here) + k * here
        values = cache[:, 2 * i + 1] * (1 - here) + v * here
        weights = ops.softmax(ops.matmul(q, ops.transpose(keys, (0, 1, 3, 2))) / head**0.5 + bias)
        x = x + layers.Dense(width)(ops.reshape(ops.matmul(weights, values), (-1, 1, width)))
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
        kept += [keys, values]
    logits = layers.Dense(words)(layers.LayerNormalization(epsilon=1e-5)(x))
    return keras.Model([token, position, cache], [logits, ops.stack(kept, 1)])


def _decoder_inputs(batch: int, size: str) -> Any:
    depth, heads, head, length, words = _decode_shapes(size)
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, words, (batch, 1)).astype(np.int32),
        np.full((batch, 1), length // 2, np.int32),
        rng.normal(size=(batch, 2 * depth, heads, length, head)).astype(np.float32),
    ]


def _recurrent(layer: str) -> Callable[[Any, str], Any]:
    def build(keras: Any, size: str) -> Any:
        words, width, length = (30000, 256, 128) if size == "full" else (50, 8, 6)
        ids = keras.Input((length,), dtype="int32")
        x = keras.layers.Embedding(words, width)(ids)
        x = keras.layers.Bidirectional(getattr(keras.layers, layer)(width))(x)
        return keras.Model(ids, keras.layers.Dense(2)(x))

    return build


def _unet(keras: Any, size: str) -> Any:
    return unet(keras, 128, (32, 64, 128, 256)) if size == "full" else unet(keras, 16, (4, 8))


def unet(keras: Any, side: int, widths: Sequence[int], dropout: float = 0.0) -> Any:
    layers = keras.layers

    def block(x: Any, width: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    image = keras.Input((side, side, 3))
    x, skips = image, []
    for width in widths[:-1]:
        x = block(x, width)
        skips.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = layers.Dropout(dropout)(block(x, widths[-1])) if dropout else block(x, widths[-1])
    for width, skip in zip(widths[-2::-1], skips[::-1], strict=True):
        x = layers.Concatenate()([layers.Conv2DTranspose(width, 2, 2)(x), skip])
        x = block(x, width)
    return keras.Model(image, layers.Conv2D(2, 1)(x))


MODELS: dict[str, Model] = {
    "resnet50": _application("ResNet50", 224, 32),
    "efficientnetb0": _application("EfficientNetB0", 224, 32, "mobile"),
    "mobilenetv3": _application("MobileNetV3Small", 224, 32, "mobile"),
    "convnext_tiny": _application("ConvNeXtTiny", 224, 32, "mobile"),
    "vgg16": _application("VGG16", 224, 32),
    "inception": _application("InceptionV3", 299, 75),
    "unet": Model(_unet, lambda batch, size: _image(128, 16)(batch, size), ("convolution",)),
    "vit_b16": Model(_vit, _image(224, 16), ("attention",)),
    "bert_base": Model(_text(False, 128, 30522), _tokens(128, 8, 30522), ("attention",)),
    "gpt2_prefill": Model(_text(True, 256, 50257), _tokens(256, 8, 50257), ("attention",)),
    "gpt2_decode": Model(_decoder, _decoder_inputs, ("attention",), trains=False),
    "lstm": Model(_recurrent("LSTM"), _tokens(128, 6), ("recurrent",)),
    "gru": Model(_recurrent("GRU"), _tokens(128, 6), ("recurrent",)),
}


def build(keras: Any, name: str, size: str) -> Any:
    """Return a model with random weights that are the same for both backends.

    Batch statistics are drawn too, so that normalization does something.
    """
    keras.utils.set_random_seed(0)
    model = MODELS[name].build(keras, size)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "moving_variance" in weight.path:
            weight.assign(rng.uniform(0.5, 1.5, weight.shape).astype(np.float32))
        elif "moving_mean" in weight.path:
            weight.assign(rng.normal(size=weight.shape).astype(np.float32) * 0.1)
    return model


def spec(x: Any) -> Any:
    """Return the specs of arrays."""
    import tensorflow as tf

    return tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape, v.dtype), x)


def traceable(name: str, size: str, batch: int) -> tuple[Any, Any, list[np.ndarray]]:
    """Return a Keras model, its inference as a ``tf.function``, and its arrays."""
    import keras
    import tensorflow as tf

    model = build(keras, name, size)
    graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    return model, graph, tf.nest.flatten(MODELS[name].inputs(batch, size))


def converted(
    graph: Any, arrays: Sequence[np.ndarray], convert: Callable[..., Any] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Convert a ``tf.function``; return a function to results, and its arguments."""
    import jax.numpy as jnp

    import tf2jax_lite

    fn, params = (convert or tf2jax_lite.convert)(graph, *map(spec, arrays))
    params = {name: jnp.asarray(value) for name, value in params.items()}
    return lambda params, *inputs: fn(params, *inputs)[0], (params, *map(jnp.asarray, arrays))


def training_step(model: Any, x: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Convert a model for training; return its optimizer step, and the arguments."""
    import jax
    import jax.numpy as jnp
    import tensorflow as tf

    import tf2jax_lite

    from .timing import optimizer_step

    fn, params = tf2jax_lite.convert(tf.function(lambda x: model(x, training=True)), spec(x))
    trainable, other = tf2jax_lite.split_params({name: jnp.asarray(value) for name, value in params.items()})
    key = jax.random.key(0)

    def forward(weights: Any, x: Any) -> Any:
        return fn(tf2jax_lite.merge_params(weights, other), x, rng=key)[0]

    step, state = optimizer_step(forward, trainable)
    return step, (trainable, state, jax.tree.map(jnp.asarray, x))


def clear() -> None:
    """Free the models that were built."""
    import keras

    keras.backend.clear_session()
    gc.collect()


def peer_module(path: str | None) -> Any:
    """Return tf2jax, or None; ``path`` is a directory to import it from."""
    if path is None:
        return None
    if path not in sys.path and Path(path).is_dir():
        sys.path.append(path)
    try:
        import tf2jax
    except ImportError:
        return None
    return tf2jax


def failure(error: Exception) -> str:
    """Return an error as a record has it."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def chosen(options: Any, known: Sequence[str] | dict[str, Any] = MODELS) -> list[str]:
    """Return the models of ``--models``, default all.

    Raises:
      SystemExit: there is no such model.
    """
    names = options.models.split(",") if options.models else list(known)
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no model {unknown[0]!r}; there are {', '.join(known)}")
    return names


def cases(options: Any, known: Sequence[str] | dict[str, Any] = MODELS) -> list[dict[str, Any]]:
    """Return the models and batch sizes that options choose, as cases."""
    sizes = [int(batch) for batch in options.batch.split(",")]
    names = chosen(options, known)
    return [{"model": name, "size": options.size, "batch": batch} for name in names for batch in sizes]
