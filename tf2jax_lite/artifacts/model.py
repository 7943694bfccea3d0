"""Artifacts as trainable models: inputs, predictions and losses."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.integers import fit_integers
from tf2jax_lite.calling.params import VariableName
from tf2jax_lite.export.load import load
from tf2jax_lite.export.loaded_function import LoadedFunction
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.predictions import UNKNOWN
from tf2jax_lite.export.reader import call_with_arrays, flat_results
from tf2jax_lite.learning.data import InMemory
from tf2jax_lite.learning.losses import (
    OutputLoss,
    TrainLoss,
    are_probabilities,
    options_by_output,
    parse_output_losses,
    training_loss,
    weighted_sum,
)
from tf2jax_lite.learning.metrics import Metric
from tf2jax_lite.learning.model import Model, check_predictions
from tf2jax_lite.learning.named_metrics import default_metrics, metrics_by_output, named_metrics, of_output
from tf2jax_lite.learning.options import LossOptions, ModelOptions
from tf2jax_lite.learning.sources import create_model_from_converted
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class TrainableModel:
    """An artifact that can be trained.

    Attributes:
      model: the model. Its batches hold the artifact's inputs by name, and the targets as ``label``.
      inputs: the artifact's input names, with dtypes.
      label: the targets' name; without ``outputs``.
      from_logits: whether the loss treats predictions as logits.
      signatures: the functions in training and in evaluation mode.
      shapes: the inputs' shapes, with the first axis; symbolic sizes are strings.
      classes: number of classes, by the targets' name, where these are class indices and their number is known.
      ignore_label: target of positions that do not count; None if all do.
      outputs: outputs with losses of their own; each has targets of its name.
      keeps_all: whether examples keep numeric arrays that are neither inputs nor targets, which a user's own loss may
        read: masks, weights.
    """

    model: Model
    inputs: Mapping[str, np.dtype]
    label: str
    from_logits: bool
    signatures: tuple[str, str]
    shapes: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ignore_label: int | None = None
    outputs: tuple[str, ...] = ()
    keeps_all: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of all targets."""
        return self.outputs or (self.label,)

    def examples(
        self, arrays: Mapping[str, Any], where: str, beside: Sequence[str] = (), *, may_be_empty: bool = True
    ) -> dict[str, np.ndarray]:
        """Return examples with the names, dtypes and shapes that the model takes.

        A model with one input takes the only array besides the targets, under any name, or the columns of a table,
        in their order. An input ``inputs/age`` takes ``age``. Floating arrays are cast to the
        input's floating dtype, integers to its integer dtype. Flat rows, and rows that differ only in axes of size 1,
        are reshaped to the input's shape. There are no other conversions.

        Args:
          arrays: the examples.
          where: their origin, for error messages.
          beside: names of arrays that are not inputs.
          may_be_empty: whether zero examples are allowed.

        Raises:
          InputError: an input or the targets are missing or do not fit, there are no examples, or lengths differ.
        """
        found = dict(arrays)
        for target in self.targets:
            if target not in found:
                fix = "targets have their output's name" if self.outputs else "name them with label="
                raise InputError(f"{where}: no targets {target!r} among {sorted(found)}; {fix}.")
        for name in self.inputs:  # inputs/age of a Keras model
            short = name.rpartition("/")[2]
            if name not in found and short in found and short not in (*self.inputs, *self.targets):
                found[name] = found.pop(short)
        others = [name for name in found if name not in self.targets and name not in beside]
        if len(self.inputs) == 1 and len(others) == 1:
            found[next(iter(self.inputs))] = found.pop(others[0])
        elif len(self.inputs) == 1 and others and not self.inputs.keys() & found.keys():
            columns = [_as_array(found[name], f"{where}: {name!r}") for name in others]  # of a table
            if all(column.ndim == 1 and column.dtype.kind in "biuf" for column in columns):
                found = {name: value for name, value in found.items() if name not in others}
                name = next(iter(self.inputs))
                rows, called = np.stack(columns, axis=1), f"{where}: {name!r} of the columns {others}"
                found[name] = _in_shape(rows, self.shapes.get(name), called)
        missing = [name for name in self.inputs if name not in found]
        if missing:
            raise InputError(f"{where}: no arrays for the inputs {missing}; there are {sorted(found)}.")
        taken = dict.fromkeys((*self.inputs, *self.targets))
        chosen = {name: _as_array(found[name], f"{where}: {name!r}") for name in (found if self.keeps_all else taken)}
        chosen = {name: array for name, array in chosen.items() if name in taken or array.dtype.kind in "biuf"}
        for name, array in chosen.items():
            if not array.ndim:
                raise InputError(f"{where}: {name!r} is a scalar; its first dimension must run over the examples.")
        lengths = {name: len(value) for name, value in chosen.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{where}: arrays differ in the number of examples: {lengths}.")
        if not may_be_empty and not lengths[self.targets[0]]:
            raise InputError(f"{where}: there are no examples.")
        for name, dtype in self.inputs.items():
            array = _as_kind(chosen[name], dtype, f"{where}: {name!r}")
            if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
                raise InputError(f"{where}: {name!r} is {array.dtype}; the model takes {dtype}.")
            chosen[name] = _in_shape(array, self.shapes.get(name), f"{where}: {name!r}")
        for name in self.targets:
            self._check_targets(name, chosen[name], where)
        return chosen

    def _check_targets(self, name: str, targets: np.ndarray, where: str) -> None:
        if targets.dtype.kind not in "biuf" and not jnp.issubdtype(targets.dtype, jnp.floating):
            raise InputError(f"{where}: the targets {name!r} are {targets.dtype}; a loss takes numbers.")
        classes = self.classes.get(name)
        if classes is None or not targets.size:
            return
        real = targets if self.ignore_label is None else targets[targets != self.ignore_label]
        if not real.size:
            return
        low, high = real.min(), real.max()
        if not (low >= 0 and high < classes):
            raise InputError(
                f"{where}: the targets {name!r} go from {low} to {high}, and the model has {classes} classes, 0 to "
                f"{classes - 1}. Targets of padding that do not count are named by ignore_label=."
            )


def _as_array(value: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:  # rows of different lengths, JAX keys
        raise InputError(f"{name} is not an array: {error}. Pad rows to one length.") from error


def _as_kind(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    if jnp.issubdtype(array.dtype, jnp.integer) and jnp.issubdtype(dtype, jnp.integer):
        return fit_integers(array, dtype, name)
    both_float = jnp.issubdtype(array.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.floating)
    return array.astype(dtype, copy=False) if both_float else array


def _in_shape(array: np.ndarray, shape: Sequence[Any] | None, name: str) -> np.ndarray:
    """Return an array with rows reshaped to the input's shape.

    That may only add, drop or unflatten axes.
    """
    if shape is None:
        return array
    sizes = [size if type(size) is int else None for size in shape[1:]]
    here = array.shape[1:]
    if len(here) == len(sizes) and all(s is None or s == h for s, h in zip(sizes, here, strict=True)):
        return array
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        same = [h for h in here if h != 1] == [s for s in known if s != 1]
        if same or (len(here) == 1 and here[0] == math.prod(known)):
            return array.reshape(len(array), *known)
    wanted = ", ".join("?" if size is None else str(size) for size in sizes)
    raise InputError(f"{name} has shape {list(array.shape)}; the model takes [{len(array)}{wanted and ', ' + wanted}].")


class _Task(NamedTuple):
    """The training of one output.

    Attributes:
      loss: its loss, and the factor of that in the sum.
      options: of the loss.
      metrics: their names; none for those that go with the loss.
    """

    loss: OutputLoss
    options: LossOptions
    metrics: Sequence[str]

    def train_loss(self, from_logits: bool) -> TrainLoss:
        return training_loss(self.loss.loss, self.options, from_logits=from_logits, label=self.loss.output)

    def metrics_by_name(self, from_logits: bool) -> Mapping[str, Metric]:
        described = self.loss.loss, from_logits, self.loss.output, self.options.ignore_label
        return named_metrics(self.metrics, *described) if self.metrics else default_metrics(*described)


def _tasks(options: ModelOptions) -> dict[str, _Task]:
    """Return tasks by output; a single one has the name of its targets.

    Raises:
      InputError: a loss, one of its options or a metric does not exist, or they do not go together.
    """
    losses, given = parse_output_losses(options.output_losses, options.output_weights), options.part(LossOptions)
    if losses:
        own, metrics = options_by_output(losses, given), metrics_by_output(options.metrics, losses)
        tasks = {loss.output: _Task(loss, own[loss.output], metrics[loss.output]) for loss in losses}
    else:
        tasks = {options.label: _Task(OutputLoss(options.label, options.loss, 1.0), given, options.metrics)}
    for task in tasks.values():
        task.train_loss(False)
        named_metrics(task.metrics, task.loss.loss, False, task.loss.output)
    return tasks


def trainable_model(
    path: str | Path,
    options: ModelOptions,
    *,
    sample: Mapping[str, Any] | None = None,
    beside: Sequence[str] = (),
    trains: Callable[[str], bool] = lambda name: True,
) -> TrainableModel:
    """Return an artifact as a trainable model.

    Args:
      path: the artifact's directory.
      options: the loss, the functions in both modes, the params that train.
      sample: some examples, to check that the loss takes the predictions, and the number of classes.
      beside: names of arrays of the sample that are not inputs.
      trains: which params train, by name, of those that no option freezes.

    Raises:
      ExportError: the artifact is damaged.
      InputError: it has no derivative, or an option does not fit it.
    """
    folder, tasks = Path(path), _tasks(options)  # before loading
    several, label, from_logits = bool(options.output_losses), options.label, options.from_logits
    entries = read_metadata(folder)["signatures"]
    trained, evaluated = modes(entries, options)
    inputs = {i["name"]: np.dtype(i["dtype"]) for i in entries[evaluated]["inputs"]}
    pairs = _loaded(folder, entries, trained, evaluated, options)
    for name in tasks:
        if name in inputs:
            raise InputError(f"{folder}: {name!r} is an input of the model; name the targets otherwise (label=).")
    missing = [i["name"] for i in entries[trained]["inputs"] if i["name"] not in inputs]
    if missing:
        raise InputError(f"{folder}: {trained!r} takes {missing}, which {evaluated!r} does not.")
    outputs = tuple(tasks) if several else ()
    losses = {name: task.train_loss(from_logits) for name, task in tasks.items()}
    metrics = {name: task.metrics_by_name(from_logits) for name, task in tasks.items()}
    training, evaluation = (
        (by_name(fn, options.output, outputs), _frozen(params, options.freeze, trains)) for fn, params in pairs
    )
    model = create_model_from_converted(
        training,
        evaluation,
        weighted_sum(losses, {name: task.loss.weight for name, task in tasks.items()}) if several else losses[label],
        {k: v for name in tasks for k, v in of_output(metrics[name], name).items()} if several else metrics[label],
        inputs=lambda batch: {name: batch[name] for name in inputs},
        written=list(entries[trained].get("updates", ())),
    )
    if not jax.tree.leaves(model.init(jax.random.key(0)).trainable):
        raise InputError(f"{folder}: no param trains.")
    trainable = TrainableModel(
        model,
        inputs,
        label,
        from_logits,
        (trained, evaluated),
        {i["name"]: i.get("shape") for i in entries[evaluated]["inputs"]},
        ignore_label=options.ignore_label,
        outputs=outputs,
        keeps_all=any(":" in task.loss.loss for task in tasks.values()),
    )
    entropies = {n: t.loss.loss for n, t in tasks.items() if "crossentropy" in t.loss.loss and ":" not in t.loss.loss}
    if sample is None or not entropies:
        return trainable
    examples = trainable.examples(InMemory(sample).first(256), "the examples", beside)
    return dataclasses.replace(trainable, classes=_classes(trainable, entropies, examples))


def image_shape(path: str | Path, signature: str | None = None) -> tuple[int, ...] | None:
    """Return the shape (height, width, channels) of an artifact's images.

    None if it does not have one input of such a shape, or sizes vary.

    Args:
      path: the artifact.
      signature: the function; the default one if None.
    """
    entries = read_metadata(Path(path))["signatures"]
    inputs = (entries.get(signature or "serving_default") or next(iter(entries.values())))["inputs"]
    shape = tuple(inputs[0]["shape"][1:]) if len(inputs) == 1 else ()
    return shape if len(shape) == 3 and all(type(size) is int for size in shape) else None


def modes(entries: Mapping[str, Any], options: ModelOptions) -> tuple[str, str]:
    """Return the names of the functions in training and in evaluation mode."""
    names = [n for n in entries if n != (options.train_signature or "train")] or list(entries)
    evaluated = options.eval_signature or (names[0] if len(names) == 1 else "serving_default")
    return options.train_signature or ("train" if "train" in entries else evaluated), evaluated


def _loaded(
    folder: Path, entries: Mapping[str, Any], trained: str, evaluated: str, options: ModelOptions
) -> list[tuple[LoadedFunction, Mapping[str, Any]]]:
    """Return the functions in training and in evaluation mode, with their params."""
    evaluation = load(folder, evaluated, backend=options.backend)
    training = evaluation
    if trained != evaluated:
        training = load(folder, trained, backend=options.backend, verify_hashes=False)
    if options.backend == "stablehlo" and not entries[trained].get("differentiable", True):
        raise InputError(f"{folder}: the function {trained!r} has no derivative in StableHLO; try backend='source'.")
    return [training, evaluation]


def _classes(trainable: TrainableModel, entropies: Mapping[str, str], examples: Mapping[str, Any]) -> dict[str, int]:
    """Check predictions, and return the classes of each loss of class indices."""
    model = trainable.model
    weights, batch = model.init(jax.random.key(0)), {n: examples[n] for n in trainable.inputs}
    if not len(examples[trainable.targets[0]]):
        return {}
    check_predictions(model, weights, batch)
    predicted = model.apply_for_eval(weights, batch)
    classes = {}
    for name, kind in entropies.items():
        predictions = predicted[name] if trainable.outputs else predicted
        if kind.startswith("sparse") and predictions.ndim:
            classes[name] = predictions.shape[-1]
        if trainable.from_logits and are_probabilities(predictions, kind):
            warnings.warn(
                f"{kind}: predictions are treated as logits, as requested, but those of the first examples look like "
                "probabilities.",
                stacklevel=3,
            )
    return classes


def by_name(fn: LoadedFunction, output: str | None, outputs: Sequence[str]) -> LoadedFunction:
    """Return a function of arrays by name to the prediction and updated params.

    Args:
      fn: the artifact's function.
      output: the name of the result that is the prediction.
      outputs: names of several such results; predictions are then a dict.
    """

    def chosen(found: Mapping[str, Any]) -> Any:
        missing = [name for name in outputs if name not in found]
        if missing:
            raise InputError(f"the model's results are {sorted(found)}; there is no {missing[0]!r}.")
        if outputs:
            return {name: found[name] for name in outputs}
        if output is None and len(found) == 1:
            return next(iter(found.values()))
        if output is None or output not in found:
            raise InputError(f"the model's results are {sorted(found)}; choose one with output=, not {output!r}.")
        return found[output]

    def call(params: Mapping[str, Any], arrays: Mapping[str, Any], rng: Any = None) -> Any:
        results, updated = call_with_arrays(fn, params, arrays, rng=rng)
        if fn.training is None or not fn.training.returns_losses:
            return chosen(flat_results(results)), updated
        results, added = results
        return (chosen(flat_results(results)), added), updated

    kinds = {} if fn.kinds is None else flat_results(fn.kinds)
    chosen_kinds = {name: kinds.get(name, UNKNOWN) for name in outputs}
    return dataclasses.replace(fn, call=call, kinds=chosen_kinds or kinds.get(output or next(iter(kinds), ""), UNKNOWN))


def _frozen(params: Mapping[str, Any], freeze: Sequence[str], trains: Callable[[str], bool]) -> dict[str, Any]:
    frozen = names_with(freeze, params, "freeze")
    return {
        VariableName(name, getattr(name, "trainable", False) and name not in frozen and trains(name)): value
        for name, value in params.items()
    }


def names_with(patterns: Sequence[str], params: Iterable[str], option: str) -> set[str]:
    """Return the names of params in which one of several patterns is found.

    Args:
      patterns: regular expressions; each has to be found.
      params: the names.
      option: the option that has the patterns.

    Raises:
      InputError: a pattern is none, or is not found.
    """
    names, found = [str(name) for name in params], set[str]()
    for pattern in patterns:
        try:
            having = {name for name in names if re.search(pattern, name)}
        except re.error as error:
            raise InputError(f"{option}= takes regular expressions: {error}") from error
        if not having:
            raise InputError(f"{option}=: no param's name has {pattern!r}; there are {sorted(names)[:20]}")
        found |= having
    return found
