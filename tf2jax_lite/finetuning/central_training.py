"""Central training: a learning process whose rounds are epochs of one data set.

`learning.loop.run_rounds` is the loop over epochs, as it is over the rounds of `federate`: it evaluates, writes
checkpoints, and stops early.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.calling.integers import check_integers
from tf2jax_lite.finetuning.callbacks import Callback, FirstBatch, Monitor
from tf2jax_lite.learning.checkpoints import Checkpoint
from tf2jax_lite.learning.checks import check_seed
from tf2jax_lite.learning.data import Batch, Examples, as_training_data
from tf2jax_lite.learning.loop import run_rounds
from tf2jax_lite.learning.model import Model, check_predictions, evaluate_model, fitting, native_batch
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights
from tf2jax_lite.learning.recorder import History, plain
from tf2jax_lite.learning.states import commit_to_device
from tf2jax_lite.support.errors import CheckpointError, InputError, TrainingError

from .checkpoints import open_checkpoints
from .exports import expanded
from .sharding import Sharding, make_placement, placed
from .steps import FinetuneState, StepOptions, gradient_flops, initial_state, make_step, state_shardings

Report = Callable[[dict[str, Any]], None]
_STEPS_IN_FLIGHT = 2
"""Steps that are dispatched and not yet computed; each holds its batch in memory."""


class _Saved(NamedTuple):
    """The content of a checkpoint.

    Attributes:
      state: the state between two steps.
      best: the weights of the best epoch; None if they are not kept.
    """

    state: FinetuneState
    best: ModelWeights | None = None


def finetune(
    model: Model,
    examples: Examples,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    eval_examples: Examples | None = None,
    weights: ModelWeights | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_steps: int | None = None,
    identity: Mapping[str, Any] | None = None,
    report: Report = lambda record: None,
    mesh: str | Mapping[str, int] | jax.sharding.Mesh | None = None,
    sharding: Sharding = "replicated",
    shard: Sequence[str] = (),
    microbatches: int = 1,
    ema_decay: float | None = None,
    precision: str = "float32",
    remat: bool = False,
    monitor: str | None = None,
    patience: int | None = None,
    keep_best: bool = False,
    callbacks: Sequence[Callback] = (),
) -> tuple[ModelWeights, History]:
    """Train a model on one dataset.

    Every epoch visits all examples once, in an order drawn from the seed; the last batch may be short. Results depend
    only on the arguments: the same seed gives the same weights.

    Args:
      model: the model.
      examples: dict of arrays (n, ...), a path, a sequence of examples, or `TrainingData`; see `as_training_data`.
      optimizer: an optax transformation.
      epochs: passes over the examples; 0 only evaluates.
      batch_size: examples per step.
      seed: for the order and the model's random numbers (Dropout).
      eval_examples: evaluated before training and after each epoch.
      weights: initial weights; the model's own by default.
      checkpoint_dir: the state is saved there after each epoch. If it has one, training resumes from it, and ends with
        the same weights as without interruption.
      checkpoint_steps: save the state after this many steps, too.
      identity: values that must equal those of the checkpoint.
      report: called with each record of the history; with those before a resumption, first.
      mesh: devices to train on, as in ``"data=4,model=2"``; see `parse_mesh`. Batches are sharded over the axis
        ``data``. One device by default.
      sharding: of params on a mesh, and of the optimizer's statistics: "replicated"; "fsdp", which splits each over
        the data axis along its largest divisible axis; or rules by name, as in ``{"kernel$": P(None, "model")}``.
      shard: rules for params by name, as in ``"kernel$=None,model"``; see `parse_rule`. The first that matches counts.
      microbatches: number of parts of a batch whose gradients are accumulated; memory is that of a part.
      ema_decay: of a moving average of the trainable weights, which is evaluated and returned in their place.
      precision: "float32", or "bf16": training computes products in bfloat16; params, the optimizer, reductions and
        evaluation stay float32. See `in_bfloat16`.
      remat: compute activations of the model's blocks again in the backward pass, in place of storing them.
      monitor: the metric of ``patience`` and ``keep_best``: "eval/loss" by default, or "loss" without evaluation.
      patience: end after this many epochs in which the metric did not improve.
      keep_best: return the weights of the epoch with the best value, not the last.
      callbacks: called after steps and records.

    Returns:
      ``(weights, history)``; records have ``loss`` (the mean over the epoch's steps), ``eval/...`` and ``seconds``.
      On a mesh, weights have the training's shardings.

    Raises:
      InputError: an argument is out of range.
      TrainingError: the loss or a weight is no longer finite.
      CheckpointError: the checkpoint is damaged, of another training, or of more epochs.
    """
    if epochs < 0 or batch_size < 1:
        raise InputError(f"epochs is 0 or more and batch_size at least 1, not {epochs} and {batch_size}.")
    if checkpoint_steps is not None and checkpoint_steps < 1:
        raise InputError(f"checkpoint_steps is at least 1, not {checkpoint_steps}.")
    check_seed("finetune", seed)
    data = as_training_data(examples)
    if not len(data):
        raise InputError("there are no examples to train on.")
    held_out = None if eval_examples is None else as_training_data(eval_examples)
    watch = None
    if keep_best or patience is not None or monitor is not None:
        watch = Monitor(monitor or ("loss" if held_out is None else "eval/loss"), patience)
        there = {"loss"} | ({f"eval/{n}" for n in ("loss", *model.eval_metrics)} if held_out is not None else set())
        if watch.metric not in there:
            raise InputError(f"there is no metric {watch.metric!r} to monitor; there are {sorted(there)}.")
    options = StepOptions(microbatches, ema_decay, precision, remat)
    # Several processes train together, or not at all.
    mesh = "data=-1" if mesh is None and jax.process_count() > 1 else mesh
    placement = make_placement(mesh, sharding, shard)
    if placement is not None:
        placement.check_split(batch_size, microbatches)
    start = model.init(jax.random.key(seed)) if weights is None else weights
    shardings = None if placement is None else state_shardings(start, optimizer, options, placement)
    step = make_step(model, optimizer, options, placement, shardings)
    if placement is not None:
        model = dataclasses.replace(model, apply_for_eval=expanded(model.apply_for_eval))
    place = (lambda batch: batch) if placement is None else placement.place_batch
    place_share = placement.place_share if placement is not None and data.is_share else place
    key = jax.jit(lambda: jax.random.key(seed), out_shardings=None if placement is None else placement.replicated)()
    known = {"unit": "epoch", "batch_size": batch_size, "seed": seed, "examples": len(data), **(identity or {})}
    known |= options.identity()
    known |= {"keep_best": watch.metric} if keep_best and watch is not None else {}
    checkpoints = None if checkpoint_dir is None else open_checkpoints(checkpoint_dir, known, placement is not None)
    history, restored, steps, position, begun = History("epoch"), 0, 0, 0, False
    in_flight = collections.deque[jax.Array]()

    def averaged(saved: _Saved) -> ModelWeights:
        found = saved.state.weights
        return found if ema_decay is None else found._replace(trainable=saved.state.average)

    def best_of(saved: _Saved) -> ModelWeights | None:
        """Return the best epoch's weights at the end of an epoch."""
        if keep_best and watch is not None and watch.improved(history.records):
            return jax.tree.map(jnp.copy, averaged(saved))
        return saved.best

    def evaluate(found: ModelWeights) -> dict[str, Any]:
        assert held_out is not None
        batches = held_out.in_order(max(batch_size, 128))
        return evaluate_model(model, found, (place(_checked(batch, "the evaluation data")) for batch in batches))

    def resume(checkpoint: Checkpoint) -> None:
        nonlocal restored, steps, position
        record, records = checkpoint.record, checkpoint.record["history"]
        restored, position = len(records), int(record.get("position", 0))
        steps = int(record["steps"] if "steps" in record else records[-1]["steps"])
        if position and checkpoint.number == epochs:
            raise CheckpointError(f"the checkpoint is within epoch {epochs + 1}, beyond the {epochs} requested")

    def train_epoch(saved: _Saved, epoch: int) -> LearningProcessOutput:
        nonlocal steps, position, begun
        state, best = saved
        if not position:
            best = best_of(saved)
            zeros = _zeros_like(state.loss_sum), _zeros_like(state.num_examples)
            state = state._replace(loss_sum=zeros[0], num_examples=zeros[1])
        for batch in data.epoch(epoch, batch_size, seed, skip=position):
            batch = native_batch(_checked(batch, "the examples"))
            if not begun:
                with fitting(batch, "the first batch"):
                    check_predictions(model, start, batch)
            on_devices = place_share(batch)
            num_examples = len(next(iter(on_devices.values())))  # of all processes
            if not begun:
                left = epochs * -(-len(data) // batch_size) - steps
                with fitting(batch, "the first batch"):
                    begun, first = True, _first_batch(model, state, on_devices, left)
                for callback in callbacks:
                    callback.on_begin(first)
            state = step(commit_to_device(state), on_devices, key, np.int32(steps))
            in_flight.append(_computed(state.loss_sum))
            if len(in_flight) > _STEPS_IN_FLIGHT:
                jax.block_until_ready(in_flight.popleft())
            steps, position = steps + 1, position + 1
            for callback in callbacks:
                callback.on_step(steps, num_examples, state)
            if checkpoints is not None and checkpoint_steps is not None and steps % checkpoint_steps == 0:
                record = {"steps": steps, "position": position, "history": history.records}
                checkpoints.save(epoch, _Saved(state, best), record)
        if not position:
            raise InputError(f"epoch {epoch + 1} has no batch of {batch_size} examples; lower batch_size.")
        position = 0
        loss = float(state.loss_sum) / int(state.num_examples)
        if not (math.isfinite(loss) and _finite(state.weights.trainable)):
            problem = "weights are NaN or infinite"
            if not math.isfinite(loss):
                problem = f"the loss of epoch {epoch + 1} is {loss}"
            reason = data.problem() or "lower the learning rate, or clip gradients (clip_norm=)"
            raise TrainingError(f"{problem}: {reason}.")
        return LearningProcessOutput(_Saved(state, best), {"loss": loss, "steps": steps})

    def reported(record: dict[str, Any]) -> None:
        history.records.append(record)
        report(copy.deepcopy(record))
        if len(history.records) > restored:
            for callback in callbacks:
                callback.on_record(copy.deepcopy(record))

    def initialize(key: Any, params: Any) -> _Saved:
        saved = _Saved(initial_state(start, optimizer, options, placement))
        return saved._replace(best=jax.tree.map(jnp.copy, averaged(saved))) if keep_best else saved

    def replace(saved: _Saved, found: ModelWeights) -> _Saved:
        return saved._replace(state=saved.state._replace(weights=found))

    with contextlib.ExitStack() as ending:
        for callback in callbacks:
            ending.callback(callback.on_end)
        if checkpoints is not None:
            ending.callback(checkpoints.close)
        saved, _ = run_rounds(
            LearningProcess(initialize, train_epoch, averaged, replace),
            lambda epoch: epoch,
            epochs,
            evaluate=None if held_out is None else evaluate,
            evaluate_every=1,
            evaluate_first=True,
            checkpoint_dir=checkpoints,
            checkpoint_every=1,
            timed=True,
            summarize=plain,
            report=reported,
            unit="epoch",
            stop=lambda records: watch is not None and watch.exhausted(records),
            resumed=resume,
        )
    best = best_of(saved)
    return averaged(saved) if best is None else best, history


def _first_batch(model: Model, state: FinetuneState, batch: Mapping[str, Any], num_steps: int) -> FirstBatch:
    shapes = jax.eval_shape(lambda *trees: trees, state.weights, dict(batch))  # the arrays are donated
    devices = sorted(state.loss_sum.sharding.device_set, key=lambda device: device.id)
    flops = functools.partial(gradient_flops, model, *shapes)
    return FirstBatch(len(next(iter(batch.values()))), flops, devices, num_steps)


def _checked(batch: Batch, where: str) -> Batch:
    check_integers(batch, where)
    return batch


def _zeros_like(value: jax.Array) -> jax.Array:
    return placed(np.zeros(value.shape, value.dtype), value.sharding)


@jax.jit
def _computed(value: Any) -> Any:
    """Return a copy that is ready when ``value`` is; steps donate the latter."""
    return value + 0


@jax.jit
def _finite(weights: Any) -> Any:
    return jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)]))
