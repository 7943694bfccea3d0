"""Native JAX: the same Keras model in a child process, on request.

Keras has one backend per process; so the model lives in a child, which gets the weights and answers requests on a pipe.
Runs still take turns with those of this process.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import jax
import numpy as np

from . import models
from .timing import compile_once, optimizer_step, waited


class Native:
    """A model in a child process on Keras' JAX backend.

    Attributes:
      first: the first results (of inference), flat; None for training.
    """

    def __init__(self, name: str, size: str, batch: int, weights: Sequence[Any], *, train: bool = False):
        spawn = multiprocessing.get_context("spawn")
        self._pipe, there = spawn.Pipe()
        arguments = (there, name, size, batch, [np.asarray(w) for w in weights], train)
        with mock.patch.dict(os.environ, KERAS_BACKEND="jax"):
            self._process = spawn.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
        there.close()  # else the end of the child is not noticed
        self.cost: dict[str, Any]
        self.cost, self.first = self._pipe.recv()

    def __call__(self) -> float:
        """Return the seconds of one run."""
        return self._ask("run")

    def compile_again(self) -> dict[str, Any]:
        """Return `cost` of another compilation with cleared caches."""
        return self._ask("compile")

    def _ask(self, request: str) -> Any:
        self._pipe.send(request)
        return self._pipe.recv()

    def close(self) -> None:
        """Stop the child process."""
        self._pipe.close()
        self._process.join()


def program(
    name: str, size: str, batch: int, *, train: bool, weights: Sequence[Any] = ()
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a Keras model's call or optimizer step in JAX, and its arguments.

    The process has Keras' JAX backend.
    """
    import keras

    model = models.build(keras, name, size)
    if weights:
        model.set_weights(weights)
    inputs = jax.tree.map(jax.numpy.asarray, models.MODELS[name].inputs(batch, size))
    trainable = [v.value for v in model.trainable_variables]
    other = [v.value for v in model.non_trainable_variables]

    def forward(trainable: Any, other: Any, x: Any) -> Any:
        return model.stateless_call(trainable, other, x, training=train)[0]

    if not train:
        return forward, (trainable, other, inputs)
    step, state = optimizer_step(lambda weights, x: forward(weights, other, x), trainable)
    return step, (trainable, state, inputs)


def _serve(pipe: Connection, name: str, size: str, batch: int, weights: list[np.ndarray], train: bool) -> None:
    step, args = program(name, size, batch, train=train, weights=weights)
    fn = jax.jit(step)
    compiled, cost = compile_once(fn, args)
    results = jax.tree.leaves(jax.block_until_ready(compiled(*args)))
    pipe.send((cost, None if train else [np.asarray(r).ravel()[:1000] for r in results]))
    run = waited(compiled, *args)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        if request == "compile":
            jax.clear_caches()
            pipe.send(compile_once(fn, args)[1])
        else:
            pipe.send(run())
