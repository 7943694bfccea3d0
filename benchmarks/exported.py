"""Suite source: print models in both modes, and count lines of ``model.py``."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tf2jax_lite as tf2jax

from . import models
from .records import Result
from .timing import in_turns, waited

WEIGHTS = ("mobilenetv3", "resnet50", "vit_b16")


def code_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor comments."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def text(
    keras: Any, *, causal: bool = False, depth: int = 12, width: int = 48, length: int = 16, dropout: float = 0.0
) -> Any:
    """Return a transformer of token ids."""
    ids = keras.Input((length,), dtype="int32")
    x = models.positions(keras, keras.layers.Embedding(100, width)(ids))
    x = models.transformer(keras, x, depth, width, 4, dropout, use_causal_mask=causal)
    return keras.Model(ids, keras.layers.Dense(100)(x[:, -1:]) if causal else keras.layers.Dense(2)(x[:, 0]))


def _application(name: str) -> Callable[[Any], Any]:
    return lambda keras: getattr(keras.applications, name)(weights=None, input_shape=(64, 64, 3), classes=10)


def _vit(keras: Any) -> Any:
    image = keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(48, 4, 4, name="patches")(image)
    x = models.positions(keras, keras.layers.Reshape((16, 48))(x))
    x = models.transformer(keras, keras.layers.Dropout(0.1)(x), 4, 48, 4, 0.1)
    return keras.Model(image, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling1D()(x)))


def _recurrent(keras: Any) -> Any:
    layers = keras.layers
    ids = keras.Input((None,), dtype="int32")
    x = layers.Embedding(100, 16, mask_zero=True, name="tokens")(ids)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True), name="bidirectional")(x)
    return keras.Model(ids, layers.Dense(2)(layers.GRU(8, name="gru")(x)))


def _keras_hub_bert(keras: Any) -> Any:
    from keras_hub import models as hub

    backbone = hub.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64, max_sequence_length=16
    )
    return hub.BertTextClassifier(backbone, num_classes=2, preprocessor=None)


def _keras_hub_gpt2(keras: Any) -> Any:
    from keras_hub import models as hub

    backbone = hub.GPT2Backbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64, max_sequence_length=16
    )
    return hub.GPT2CausalLM(backbone, preprocessor=None)


# Widths are small, as they do not change the source, but for models of the other suites.
EXPORTED: dict[str, Callable[[Any], Any]] = {
    "resnet50": _application("ResNet50"),
    "mobilenetv3": _application("MobileNetV3Small"),
    "encoder": text,
    "encoder_dropout": lambda keras: text(keras, depth=4, dropout=0.1),
    "decoder": lambda keras: text(keras, causal=True),
    "vit": _vit,
    "recurrent": _recurrent,
    "bidirectional_lstm": lambda keras: models.MODELS["lstm"].build(keras, "full"),
    "unet": lambda keras: models.MODELS["unet"].build(keras, "full"),
    "unet_dropout": lambda keras: models.unet(keras, 64, (8, 16, 32), dropout=0.1),
    "bert_base": lambda keras: models.MODELS["bert_base"].build(keras, "full"),
    "keras_hub_bert": _keras_hub_bert,
    "keras_hub_gpt2": _keras_hub_gpt2,
}


def converted(name: str) -> tuple[Any, Any, np.ndarray]:
    """Convert one of `EXPORTED` for inference; return function, params, and an input."""
    import keras

    from tf2jax_lite.pipeline.model_files import convert_keras_model

    model = EXPORTED[name](keras)
    x = np.zeros([d or 1 for d in model.input_shape], model.inputs[0].dtype)
    return *convert_keras_model(model, train=False)["serving_default"], x


def source(options: Any) -> Iterator[Result]:
    """Print models as source; yield counts of lines, and the CPU time of printing.

    ``lines`` and ``functions`` count inference alone, ``both`` the module with the function ``train``, and ``width`` is
    that of the module's longest line. With ``--folder`` the modules are kept.
    """
    import keras

    from tf2jax_lite.pipeline.model_files import convert_keras_model

    for name in models.chosen(options, EXPORTED):
        if name.startswith("keras_hub") and importlib.util.find_spec("keras_hub") is None:
            continue
        keras.utils.set_random_seed(0)
        functions = convert_keras_model(EXPORTED[name](keras))
        found: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as work:
            for mode in ("inference", "both"):
                chosen = {n: f for n, f in functions.items() if mode == "both" or n == "serving_default"}
                folder = (options.folder or Path(work)) / f"{name}-{mode}"
                begin = time.process_time()
                tf2jax.export_functions(chosen, folder, stablehlo=False, overwrite=True)
                found[f"{mode}/cpu"] = time.process_time() - begin
                found[mode] = (folder / "model.py").read_text("utf-8")
        yield (
            {"model": name},
            {
                "lines": code_lines(found["inference"]),
                "both": code_lines(found["both"]),
                "functions": found["inference"].count("\ndef "),
                "broadcasts": found["inference"].count("broadcast_in_dim"),
                "width": max(map(len, found["both"].splitlines())),
                "cpu": found["inference/cpu"],
                "cpu of both": found["both/cpu"],
            },
        )


def weights(options: Any) -> Iterator[Result]:
    """Yield sizes, errors and times of models with weights in fewer bits."""
    import jax

    for name in models.chosen(options, WEIGHTS):
        _, graph, arrays = models.traceable(name, options.size, 1)
        function = tf2jax.convert(graph, *models.spec(arrays))
        calls, sizes, results = {}, {}, {}
        with tempfile.TemporaryDirectory() as work:
            for kind in (None, "bfloat16", "int8"):
                folder, key = Path(work) / str(kind), kind or "float32"
                tf2jax.export_functions({"f": function}, folder, platforms=["cpu"], weights=kind)
                sizes[key] = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
                fn, params = tf2jax.load(folder)
                compiled = jax.jit(fn).lower(params, *arrays).compile()
                params = jax.device_put(params)
                results[key] = np.asarray(jax.tree.leaves(compiled(params, *arrays)[0])[0], np.float64)
                calls[key] = waited(compiled, params, *arrays)
        times = in_turns(calls, budget=options.budget)
        whole = results["float32"]
        for key, time_of_one in times.items():
            error = float(np.linalg.norm(results[key] - whole) / np.linalg.norm(whole))
            yield (
                {"model": name, "weights": key},
                {"bytes": sizes[key], "shares": {"error": error}, "times": time_of_one},
            )
