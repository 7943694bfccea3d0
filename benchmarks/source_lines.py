"""Size of exported source per model, and processor time of printing.

Columns: lines that are neither blank nor comments, functions, broadcasts, processor time in seconds. Run with
``python -m benchmarks.source_lines [MODEL ...]``. Widths are small, as they do not change the source.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from . import models

__all__ = ["code_lines", "source"]


def code_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor comments."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def _text(keras: Any, *, causal: bool, depth: int = 12, width: int = 48, length: int = 16) -> tuple[Any, Any]:
    ids = keras.Input((length,), dtype="int32")
    x = models._positions(keras, keras.layers.Embedding(100, width)(ids))
    x = models._transformer(keras, x, depth, width, 4, use_causal_mask=causal)
    outputs = keras.layers.Dense(100)(x[:, -1:]) if causal else keras.layers.Dense(2)(x[:, 0])
    return keras.Model(ids, outputs), np.zeros((1, length), np.int32)


def _resnet(keras: Any) -> tuple[Any, Any]:
    model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    return model, np.zeros((1, 64, 64, 3), np.float32)


def _of_suite(name: str) -> Any:
    return lambda keras: (models.MODELS[name].build(keras, "full"), models.MODELS[name].inputs(1, "full"))


MODELS = {
    "resnet50": _resnet,
    "encoder": lambda keras: _text(keras, causal=False),
    "decoder": lambda keras: _text(keras, causal=True),
    "bidirectional_lstm": _of_suite("lstm"),
    "unet": _of_suite("unet"),
}


def source(name: str, **options: Any) -> tuple[str, float]:
    """Return a model's source, and the processor time in seconds that printing takes.

    Args:
      name: one of `MODELS`.
      options: of `tf2jax_lite.export.codegen.write_module`.
    """
    import keras
    import tensorflow as tf

    import tf2jax_lite as tf2jax
    from tf2jax_lite.export import artifact, codegen, symbolic_dims

    model, x = MODELS[name](keras)
    function = tf.function(lambda inputs: model(inputs, training=False))
    fn, params = tf2jax.convert(function, tf.TensorSpec([None, *x.shape[1:]], x.dtype))
    converted = artifact.converted_function(fn)
    staged = symbolic_dims.stage_symbolic(converted, None, params)
    begin = time.process_time()
    text, _ = codegen.write_module([artifact.entry("model", converted, staged, "model")], [name], **options)
    return text, time.process_time() - begin


def main(names: list[str]) -> None:
    """Print a row per model."""
    print(f"{'model':20} {'lines':>6} {'functions':>10} {'broadcasts':>11} {'seconds':>8}")
    for name in names or MODELS:
        text, seconds = source(name)
        counts = code_lines(text), text.count("\ndef "), text.count("broadcast_in_dim")
        print(f"{name:20} {counts[0]:6} {counts[1]:10} {counts[2]:11} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
