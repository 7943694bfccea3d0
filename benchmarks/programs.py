"""The suite programs: models' serialized StableHLO, for other machines.

`benchmarks.device` reads them; it needs JAX alone, so it runs where there is no TensorFlow, on a GPU say.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from . import models
from .steps import optimizer_step


def write(fn: Callable[..., Any], args: Any, path: Path, platform: str) -> None:
    """Write a program.

    Args:
      fn: a function of arrays.
      args: its arguments, of which shapes and dtypes count.
      path: the file.
      platform: what it is lowered for: "cpu", "cuda", "tpu".
    """
    leaves, tree = jax.tree.flatten(args)  # an exported program knows no optimizer's state

    def flat(*leaves: Any) -> Any:
        return jax.tree.leaves(fn(*jax.tree.unflatten(tree, leaves)))

    specs = [jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) for x in leaves]
    program = export.export(jax.jit(flat), platforms=[platform])(*specs).serialize()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_bytes(program)
    beside.replace(path)


def programs(
    name: str, folder: Path, *, size: str = "full", batch: int = 1, train: bool = False, platform: str, peer: str | None
) -> dict[str, Any]:
    """Write ``FOLDER/MODE-MODEL-BATCH/{ours,native,peer}.bin`` for a model.

    Args:
      name: the model.
      folder: where to.
      size: "full" or "small".
      batch: how many examples.
      train: whether a program is an optimizer's step rather than inference; tf2jax is left out then.
      platform: what the programs are lowered for.
      peer: where to import tf2jax from; None leaves it out.

    Returns:
      The name of the folder, the contestants in it, and the error of tf2jax, if it failed.
    """
    import keras
    import tensorflow as tf

    import tf2jax_lite

    from .run import peer_module, spec

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(batch, size)
    failed: str | None = None
    there = folder / f"{'train' if train else 'run'}-{name}-{batch}"
    if train:
        fn, params = tf2jax_lite.convert(tf.function(lambda x: model(x, training=True)), spec(x))
        trainable, other = tf2jax_lite.split_params({k: jnp.asarray(v) for k, v in params.items()})
        key = jax.random.key(0)

        def forward(weights: Any, x: Any) -> Any:
            return fn(tf2jax_lite.merge_params(weights, other), x, rng=key)[0]

        step, state = optimizer_step(forward, trainable)
        write(step, (trainable, state, x), there / "ours.bin", platform)
    else:
        graph = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
        flat = tf.nest.flatten(x)
        converters: dict[str, Any] = {"ours": tf2jax_lite.convert}
        if (module := peer_module(peer)) is not None:
            converters["peer"] = module.convert
        for who, convert in converters.items():
            try:
                fn, params = convert(graph, *map(spec, flat))
                write(lambda params, *a, fn=fn: fn(params, *a)[0], (params, *flat), there / f"{who}.bin", platform)
            except Exception as error:
                if who == "ours":
                    raise
                failed = f"{type(error).__name__}: {str(error)[:200]}"
    keras.backend.clear_session()
    subprocess.run(
        [sys.executable, "-m", "benchmarks.programs", name, size, str(batch), str(int(train)), str(there), platform],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        cwd=Path(__file__).parents[1],
        check=True,
    )
    written = sorted(p.stem for p in there.glob("*.bin"))
    return {"program": there.name, "contestants": written, **({"peer": failed} if failed else {})}


def _native(name: str, size: str, batch: int, train: bool, there: Path, platform: str) -> None:
    import keras

    model = models.build(keras, name, size)
    inputs = models.MODELS[name].inputs(batch, size)
    trainable = [v.value for v in model.trainable_variables]
    other = [v.value for v in model.non_trainable_variables]

    def forward(trainable: Any, other: Any, x: Any) -> Any:
        return model.stateless_call(trainable, other, x, training=train)[0]

    if train:
        step, state = optimizer_step(lambda weights, x: forward(weights, other, x), trainable)
        write(step, (trainable, state, inputs), there / "native.bin", platform)
    else:
        write(forward, (trainable, other, inputs), there / "native.bin", platform)


if __name__ == "__main__":
    _native(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1", Path(sys.argv[5]).absolute(), sys.argv[6])
