"""Central training: a learning process whose rounds are epochs of one data set.

`learning.loop.run_rounds` is the loop over epochs, as it is over the rounds of `federate`: it evaluates, writes
checkpoints, and stops early.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.calling.integers import check_integers
from tf2jax_lite.finetuning.callbacks import Callback, FirstBatch, Monitor
from tf2jax_lite.learning.checkpoints import Checkpoint, CheckpointFile
from tf2jax_lite.learning.checks import check_seed
from tf2jax_lite.learning.data import Batch, Examples, TrainingData, as_training_data
from tf2jax_lite.learning.loop import run_rounds
from tf2jax_lite.learning.model import Model, check_predictions, evaluate_model, fitting, native_batch
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights
from tf2jax_lite.learning.recorder import History, Recorder, plain
from tf2jax_lite.learning.states import commit_to_device, placed
from tf2jax_lite.support.errors import CheckpointError, InputError, TrainingError
from tf2jax_lite.support.options import takes

from .exports import expanded
from .options import TrainingOptions
from .sharding import Placement, make_placement
from .steps import FinetuneState, initial_state, make_step, state_shardings

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


@takes(TrainingOptions)
def finetune(
    model: Model,
    examples: Examples,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    eval_examples: Examples | None = None,
    weights: ModelWeights | None = None,
    identity: Mapping[str, Any] | None = None,
    report: Report = lambda record: None,
    callbacks: Sequence[Recorder] = (),
    **options: Any,
) -> tuple[ModelWeights, History]:
    """Train a model on one dataset.

    Every epoch visits all examples once, in an order drawn from the seed; the last batch may be short. Results depend
    only on the arguments: the same seed gives the same weights. A training that resumes from a checkpoint ends with the
    same weights as without interruption.

    Args:
      model: the model.
      examples: dict of arrays (n, ...), a path, a sequence of examples, or `TrainingData`; see `as_training_data`.
      optimizer: an optax transformation.
      epochs: passes over the examples; 0 only evaluates.
      eval_examples: evaluated before training and after each epoch.
      weights: initial weights; the model's own by default.
      identity: values that must equal those of the checkpoint.
      report: called with each record of the history; with those before a resumption, first.
      callbacks: called with each new record; a `Callback` after steps, too.
      **options: of `TrainingOptions`.

    Returns:
      ``(weights, history)``; records have ``loss`` (the mean over the epoch's steps), ``eval/...`` and ``seconds``.
      On a mesh, weights have the training's shardings.

    Raises:
      InputError: an argument is out of range.
      TrainingError: the loss or a weight is no longer finite.
      CheckpointError: the checkpoint is damaged, of another training, or of more epochs.
    """
    given = TrainingOptions(**options)
    if epochs < 0:
        raise InputError(f"epochs is an integer of at least 0, not {epochs}.")
    check_seed("finetune", given.seed)
    data = as_training_data(examples)
    if not len(data):
        raise InputError("there are no examples to train on.")
    held_out = None if eval_examples is None else as_training_data(eval_examples)
    watch = _monitor(model, held_out is not None, given)
    # Several processes train together, or not at all.
    mesh = "data=-1" if given.mesh is None and jax.process_count() > 1 else given.mesh
    placement = make_placement(mesh, given.sharding, given.shard)
    if placement is not None:
        placement.check_split(given.batch_size, given.microbatches)
    start = model.init(jax.random.key(given.seed)) if weights is None else weights
    known = {"unit": "epoch", "examples": len(data), **(identity or {}), **given.identity()}
    known |= {"keep_best": watch.metric} if given.keep_best and watch is not None else {}
    checkpoints = None
    if given.checkpoint_dir is not None:
        checkpoints = CheckpointFile(given.checkpoint_dir, known, background=placement is not None)
    training = _Training(
        model, optimizer, data, held_out, epochs, given, start, placement, checkpoints, watch, report, callbacks
    )
    with contextlib.ExitStack() as ending:
        for callback in callbacks:
            ending.callback(callback.on_end)
        if checkpoints is not None:
            ending.callback(checkpoints.close)
        return training.run()


def _monitor(model: Model, evaluates: bool, given: TrainingOptions) -> Monitor | None:
    """Return the monitor of a metric, if an option asks for one."""
    if not given.keep_best and given.patience is None and given.monitor is None:
        return None
    watch = Monitor(given.monitor or ("eval/loss" if evaluates else "loss"), given.patience)
    there = {"loss"} | ({f"eval/{n}" for n in ("loss", *model.eval_metrics)} if evaluates else set())
    if watch.metric not in there:
        raise InputError(f"there is no metric {watch.metric!r} to monitor; there are {sorted(there)}.")
    return watch


class _Training:
    """The learning process of one training, whose rounds are epochs."""

    def __init__(
        self,
        model: Model,
        optimizer: optax.GradientTransformation,
        data: TrainingData,
        held_out: TrainingData | None,
        epochs: int,
        given: TrainingOptions,
        start: ModelWeights,
        placement: Placement | None,
        checkpoints: CheckpointFile | None,
        watch: Monitor | None,
        report: Report,
        callbacks: Sequence[Recorder],
    ):
        self._model, self._optimizer, self._data, self._held_out = model, optimizer, data, held_out
        self._epochs, self._given, self._start, self._placement = epochs, given, start, placement
        self._checkpoints, self._watch, self._report, self._callbacks = checkpoints, watch, report, callbacks
        self._watching = [callback for callback in callbacks if isinstance(callback, Callback)]
        shardings = None if placement is None else state_shardings(start, optimizer, given, placement)
        self._step = make_step(model, optimizer, given, placement, shardings)
        if placement is not None:
            self._model = dataclasses.replace(model, apply_for_eval=expanded(model.apply_for_eval))
        self._place = (lambda batch: batch) if placement is None else placement.place_batch
        shares = placement is not None and data.is_share
        self._place_share = placement.place_share if placement is not None and shares else self._place
        replicated = None if placement is None else placement.replicated
        self._key = jax.jit(lambda: jax.random.key(given.seed), out_shardings=replicated)()
        self._history, self._in_flight = History("epoch"), collections.deque[jax.Array]()
        # Records before a resumption; steps of all epochs; batches of this one; whether a batch has been checked.
        self._restored, self._steps, self._position, self._begun = 0, 0, 0, False

    def run(self) -> tuple[ModelWeights, History]:
        """Return the trained weights and the records."""
        watch = self._watch
        saved, _ = run_rounds(
            LearningProcess(self._initialize, self._epoch, self._averaged, self._replace),
            lambda epoch: epoch,
            self._epochs,
            evaluate=None if self._held_out is None else self._evaluate,
            evaluate_every=1,
            evaluate_first=True,
            checkpoint_dir=self._checkpoints,
            checkpoint_every=1,
            timed=True,
            summarize=plain,
            report=self._reported,
            unit="epoch",
            stop=lambda records: watch is not None and watch.exhausted(records),
            resumed=self._resume,
        )
        best = self._best_of(saved)
        return self._averaged(saved) if best is None else best, self._history

    def _initialize(self, key: Any, params: Any) -> _Saved:
        saved = _Saved(initial_state(self._start, self._optimizer, self._given, self._placement))
        return saved._replace(best=jax.tree.map(jnp.copy, self._averaged(saved))) if self._given.keep_best else saved

    def _averaged(self, saved: _Saved) -> ModelWeights:
        found = saved.state.weights
        return found if self._given.ema_decay is None else found._replace(trainable=saved.state.average)

    def _replace(self, saved: _Saved, found: ModelWeights) -> _Saved:
        return saved._replace(state=saved.state._replace(weights=found))

    def _best_of(self, saved: _Saved) -> ModelWeights | None:
        """Return the best epoch's weights at the end of an epoch."""
        if self._given.keep_best and self._watch is not None and self._watch.improved(self._history.records):
            return jax.tree.map(jnp.copy, self._averaged(saved))
        return saved.best

    def _evaluate(self, found: ModelWeights) -> dict[str, Any]:
        assert self._held_out is not None
        batches = self._held_out.in_order(max(self._given.batch_size, 128))
        return evaluate_model(
            self._model, found, (self._place(_checked(batch, "the evaluation data")) for batch in batches)
        )

    def _resume(self, checkpoint: Checkpoint) -> None:
        record, records = checkpoint.record, checkpoint.record["history"]
        self._restored, self._position = len(records), int(record.get("position", 0))
        self._steps = int(record["steps"] if "steps" in record else records[-1]["steps"])
        if self._position and checkpoint.number == self._epochs:
            raise CheckpointError(
                f"the checkpoint is within epoch {self._epochs + 1}, beyond the {self._epochs} requested"
            )

    def _epoch(self, saved: _Saved, epoch: int) -> LearningProcessOutput:
        state, best = saved
        if not self._position:
            best = self._best_of(saved)
            zeros = _zeros_like(state.loss_sum), _zeros_like(state.num_examples)
            state = state._replace(loss_sum=zeros[0], num_examples=zeros[1])
        given = self._given
        for batch in self._data.epoch(epoch, given.batch_size, given.seed, skip=self._position):
            state = self._stepped(state, native_batch(_checked(batch, "the examples")))
            every = given.checkpoint_steps
            if self._checkpoints is not None and every is not None and self._steps % every == 0:
                record = {"steps": self._steps, "position": self._position, "history": self._history.records}
                self._checkpoints.save(epoch, _Saved(state, best), record)
        if not self._position:
            raise InputError(f"epoch {epoch + 1} has no batch of {given.batch_size} examples; lower batch_size.")
        self._position = 0
        loss = float(state.loss_sum) / int(state.num_examples)
        if not (math.isfinite(loss) and _finite(state.weights.trainable)):
            problem = "weights are NaN or infinite"
            if not math.isfinite(loss):
                problem = f"the loss of epoch {epoch + 1} is {loss}"
            reason = self._data.problem() or "lower the learning rate, or clip gradients (clip_norm=)"
            raise TrainingError(f"{problem}: {reason}.")
        return LearningProcessOutput(_Saved(state, best), {"loss": loss, "steps": self._steps})

    def _stepped(self, state: FinetuneState, batch: Batch) -> FinetuneState:
        """Return the state after a step; the first batch is checked."""
        if not self._begun:
            with fitting(batch, "the first batch"):
                check_predictions(self._model, self._start, batch)
        checking = contextlib.nullcontext() if self._begun else fitting(batch, "the first batch")
        on_devices = self._place_share(batch)
        num_examples = len(next(iter(on_devices.values())))  # of all processes
        if not self._begun:
            self._begun = True
            left = self._epochs * -(-len(self._data) // self._given.batch_size) - self._steps
            devices = sorted(state.loss_sum.sharding.device_set, key=lambda device: device.id)
            for callback in self._watching:
                callback.on_begin(FirstBatch(num_examples, devices, left))
        with checking:
            state = self._step(commit_to_device(state), on_devices, self._key, np.int32(self._steps))
        self._in_flight.append(_computed(state.loss_sum))
        if len(self._in_flight) > _STEPS_IN_FLIGHT:
            jax.block_until_ready(self._in_flight.popleft())
        self._steps, self._position = self._steps + 1, self._position + 1
        for callback in self._watching:
            callback.on_step(self._steps, num_examples, state)
        return state

    def _reported(self, record: dict[str, Any]) -> None:
        self._history.records.append(record)
        self._report(copy.deepcopy(record))
        if len(self._history.records) > self._restored:
            for callback in self._callbacks:
                callback.on_record(copy.deepcopy(record))


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
