"""Central training: epochs over one dataset, with checkpoints."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.checkpoint import CheckpointFile
from tf2jax_lite.federated.data import ClientDataset
from tf2jax_lite.federated.device_placement import commit_to_device
from tf2jax_lite.federated.model import Model, evaluate_model, model_value_and_grad
from tf2jax_lite.federated.options import check_seed
from tf2jax_lite.federated.process import ModelWeights
from tf2jax_lite.support.errors import CheckpointError, InputError, TrainingError

from .history import History

__all__ = ["FinetuneState", "finetune"]


class FinetuneState(NamedTuple):
    """State of a training between steps.

    Attributes:
      weights: the model's `ModelWeights`.
      optimizer: the optimizer's state.
    """

    weights: ModelWeights
    optimizer: Any


def finetune(
    model: Model,
    examples: Mapping[str, Any],
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    eval_examples: Mapping[str, Any] | None = None,
    weights: ModelWeights | None = None,
    checkpoint_dir: str | Path | None = None,
    identity: Mapping[str, Any] | None = None,
    report: Callable[[dict[str, Any]], None] = lambda record: None,
) -> tuple[ModelWeights, History]:
    """Train a model on one dataset.

    Every epoch visits all examples once, in an order drawn from the seed; the last batch may be short. Results depend
    only on the arguments: the same seed gives the same weights.

    Args:
      model: the model.
      examples: dict of arrays (n, ...).
      optimizer: an optax transformation.
      epochs: passes over the examples; 0 only evaluates.
      batch_size: examples per step.
      seed: for the order and the model's random numbers (Dropout).
      eval_examples: evaluated before training and after each epoch.
      weights: initial weights; the model's own by default.
      checkpoint_dir: the state is saved there after each epoch. If it has one, training resumes from it, and ends with
        the same weights as without interruption.
      identity: values that must equal those of the checkpoint.
      report: called with each record of the history.

    Returns:
      ``(weights, history)``; records have ``loss`` (the mean over the epoch's steps), ``eval/...`` and ``seconds``.

    Raises:
      InputError: an argument is out of range.
      TrainingError: the loss or a weight is no longer finite.
      CheckpointError: the checkpoint is damaged, of another training, or of more epochs.
    """
    if epochs < 0 or batch_size < 1:
        raise InputError(f"epochs is 0 or more and batch_size at least 1, not {epochs} and {batch_size}.")
    check_seed("finetune", seed)
    dataset = ClientDataset(dict(examples))
    if not len(dataset):
        raise InputError("there are no examples to train on.")
    start = model.init(jax.random.key(seed)) if weights is None else weights
    start = jax.tree.map(jnp.array, start)
    state = FinetuneState(start, optimizer.init(start.trainable))
    step = make_step(model, optimizer)
    key = jax.random.key(seed)
    history, done, steps = History("epoch"), 0, 0
    known = {"unit": "epoch", "batch_size": batch_size, "seed": seed, "examples": len(dataset), **(identity or {})}
    checkpoints = None if checkpoint_dir is None else CheckpointFile(checkpoint_dir, known)
    if checkpoints is not None and checkpoints.latest() is not None:
        done, state, kept = checkpoints.restore(state)
        if done > epochs:
            raise CheckpointError(f"the checkpoint is of {done} epochs, more than the {epochs} requested")
        steps, history = int(kept["steps"]), History("epoch", list(kept["history"]))
        for record in history.records:
            report(record)

    def evaluated() -> dict[str, Any]:
        if eval_examples is None:
            return {}
        batches = ClientDataset(dict(eval_examples)).padded_batch(batch_size=max(batch_size, 128))
        return {"eval": evaluate_model(model, state.weights, batches)}

    if not history.records:
        report(history.add(0, evaluated()))
    for epoch in range(done, epochs):
        begin = time.perf_counter()
        total, count = jnp.zeros(()), jnp.zeros((), jnp.int32)
        batches = dataset.shuffle_repeat_batch(
            batch_size=batch_size, num_epochs=1, seed=[seed, epoch], fill_remainder=False
        )
        for batch in batches:
            state, total, count = step(*commit_to_device((state, total, count)), batch, key, jnp.int32(steps))
            steps += 1
        loss = float(total) / int(count)
        if not (math.isfinite(loss) and _finite(state.weights.trainable)):
            problem = "weights are NaN or infinite"
            if not math.isfinite(loss):
                problem = f"the loss of epoch {epoch + 1} is {loss}"
            raise TrainingError(f"{problem}: {_reason(dataset.all_examples())}.")
        record = history.add(epoch + 1, {"loss": loss, "steps": steps, **evaluated(), "seconds": _since(begin)})
        if checkpoints is not None:
            checkpoints.save(epoch + 1, state, {"steps": steps, "history": history.records})
        report(record)
    return state.weights, history


@jax.jit
def _finite(weights: Any) -> Any:
    return jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)]))


def _reason(examples: Mapping[str, Any]) -> str:
    for name, value in examples.items():
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            first = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(1)))
            return f"{name!r} of example {first} is NaN or infinite"
    return "lower the learning rate, or clip gradients (clip_norm)"


def _since(begin: float) -> float:
    return round(time.perf_counter() - begin, 3)


def make_step(model: Model, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """Return the jitted training step.

    It is ``(state, loss sum, count, batch, key, number) -> (state, loss sum, count)``. The sums stay on the device, so
    that steps run asynchronously.
    """
    value_and_grad = model_value_and_grad(model)

    @functools.partial(jax.jit, donate_argnums=(1, 2))
    def step(state: FinetuneState, total: Any, count: Any, batch: Any, key: Any, number: Any) -> Any:
        found, grads = value_and_grad(state.weights, batch, jax.random.fold_in(key, number))
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.weights.trainable)
        trainable = optax.apply_updates(state.weights.trainable, updates)
        weights = ModelWeights(trainable, found.non_trainable)
        added = total + found.loss * found.num_examples
        return FinetuneState(weights, optimizer_state), added, count + found.num_examples

    return step
