"""Native JAX: the same Keras model in a child process, on request.

Keras has one backend per process; so the model lives in a child that gets the weights in a file and answers lines of
JSON on its pipes. Runs still take turns with those of this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


class Native:
    """A model in a child process on Keras' JAX backend.

    Args:
      name: the model.
      size: "full" or "small".
      batch: how many examples.
      weights: the weights of the TensorFlow model, in Keras' order.
      train: whether a run is an optimizer's step rather than inference.

    Attributes:
      cost: seconds of ``trace`` and ``compile``, of ``cpu`` (processor time of both together), and how many
        ``equations`` the jaxpr has, inner ones included.
      first: the first result (of inference), flat; None for training.
    """

    def __init__(self, name: str, size: str, batch: int, weights: list[Any], *, train: bool = False):
        with tempfile.NamedTemporaryFile(suffix=".npz", delete=False) as file:
            np.savez(file, *[np.asarray(w) for w in weights])
        self._path = file.name
        env = {**os.environ, "KERAS_BACKEND": "jax"}
        mode = "train" if train else "run"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.native", name, size, str(batch), mode, self._path],
            env=env,
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = self._answer()
        self.first = ready.pop("first")
        self.cost: dict[str, float] = ready

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"the native process ended with {self._process.wait()}")

    def __call__(self) -> float:
        """Return the seconds of one run."""
        return self._ask("run")["seconds"]

    def compile_again(self) -> dict[str, float]:
        """Return `cost` of another compilation with cleared caches."""
        return self._ask("compile")

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Stop the child process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        os.unlink(self._path)


def _child(name: str, size: str, batch: int, mode: str, path: str) -> None:
    import jax
    import keras

    from . import models
    from .steps import compile_once, optimizer_step
    from .timing import seconds

    model = models.build(keras, name, size)
    stored = np.load(path)
    for weight, key in zip(model.weights, stored.files, strict=True):
        weight.assign(stored[key])
    inputs = jax.tree.map(jax.numpy.asarray, models.MODELS[name].inputs(batch, size))
    trainable = [v.value for v in model.trainable_variables]
    other = [v.value for v in model.non_trainable_variables]

    def forward(trainable: Any, other: Any, x: Any) -> Any:
        return model.stateless_call(trainable, other, x, training=mode == "train")[0]

    if mode == "train":
        step, state = optimizer_step(lambda weights, x: forward(weights, other, x), trainable)
        fn, args = jax.jit(step), (trainable, state, inputs)
    else:
        fn, args = jax.jit(forward), (trainable, other, inputs)
    compiled, cost = compile_once(fn, args)
    result = jax.block_until_ready(compiled(*args))
    first = [np.asarray(r).ravel()[:1000].tolist() for r in jax.tree.leaves(result)] if mode == "run" else None
    print(json.dumps({**cost, "first": first}), flush=True)
    for line in sys.stdin:
        if line.strip() == "compile":
            jax.clear_caches()
            print(json.dumps(compile_once(fn, args)[1]), flush=True)
        else:
            print(json.dumps({"seconds": seconds(lambda: jax.block_until_ready(compiled(*args)))}), flush=True)


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
