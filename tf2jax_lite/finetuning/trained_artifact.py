"""Makes an artifact a trainable model: its inputs, the result that is the prediction, and the loss."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import VariableName
from tf2jax_lite.export.load import call_with_arrays, flat_results, load
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.predictions import LOGITS, UNKNOWN
from tf2jax_lite.federated.models.model import Model
from tf2jax_lite.federated.models.sources import create_model_from_converted
from tf2jax_lite.support.errors import InputError

from .losses import LossOptions, training_loss
from .metrics import default_metrics, named_metrics

__all__ = ["TrainableModel", "trainable_model"]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainableModel:
    """An artifact that can be trained.

    Attributes:
      model: the model. Its batches hold the artifact's inputs by name, and the targets as ``label``.
      inputs: the artifact's input names, with dtypes.
      label: the targets' name.
      from_logits: whether the loss treats predictions as logits.
      signatures: the functions in training and in evaluation mode.
      shapes: the inputs' shapes, with the first axis; symbolic sizes are strings.
      classes: number of classes; None if targets are not class indices, or it is not known.
      ignore_label: target of positions that do not count; None if all do.
    """

    model: Model
    inputs: Mapping[str, np.dtype]
    label: str
    from_logits: bool
    signatures: tuple[str, str]
    shapes: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    classes: int | None = None
    ignore_label: int | None = None

    def examples(
        self, arrays: Mapping[str, Any], where: str, beside: Sequence[str] = (), *, may_be_empty: bool = True
    ) -> dict[str, np.ndarray]:
        """Return examples with the names, dtypes and shapes that the model takes.

        A model with one input takes the only array besides the targets, under any name. Floating arrays are cast to the
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
        if self.label not in found:
            raise InputError(f"{where}: no targets {self.label!r} among {sorted(found)}; name them with --label.")
        others = [name for name in found if name != self.label and name not in beside]
        if len(self.inputs) == 1 and len(others) == 1:
            found[next(iter(self.inputs))] = found.pop(others[0])
        missing = [name for name in self.inputs if name not in found]
        if missing:
            raise InputError(f"{where}: no arrays for the inputs {missing}; there are {sorted(found)}.")
        chosen = {name: np.asarray(found[name]) for name in (*self.inputs, self.label)}
        for name, array in chosen.items():
            if not array.ndim:
                raise InputError(f"{where}: {name!r} is a scalar; its first dimension must run over the examples.")
        lengths = {name: len(value) for name, value in chosen.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{where}: arrays differ in the number of examples: {lengths}.")
        if not may_be_empty and not lengths[self.label]:
            raise InputError(f"{where}: there are no examples.")
        for name, dtype in self.inputs.items():
            array = _as_kind(chosen[name], dtype)
            if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
                raise InputError(f"{where}: {name!r} is {array.dtype}; the model takes {dtype}.")
            chosen[name] = _in_shape(array, self.shapes.get(name), f"{where}: {name!r}")
        self._check_targets(chosen[self.label], where)
        return chosen

    def _check_targets(self, targets: np.ndarray, where: str) -> None:
        if targets.dtype.kind not in "biuf" and not jnp.issubdtype(targets.dtype, jnp.floating):
            raise InputError(f"{where}: the targets {self.label!r} are {targets.dtype}; a loss takes numbers.")
        if self.classes is None or not targets.size:
            return
        real = targets if self.ignore_label is None else targets[targets != self.ignore_label]
        if not real.size:
            return
        low, high = real.min(), real.max()
        if not (low >= 0 and high < self.classes):
            raise InputError(
                f"{where}: the targets {self.label!r} go from {low} to {high}, and the model has {self.classes} "
                f"classes, 0 to {self.classes - 1}."
            )


def _as_kind(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    for kind in (jnp.floating, jnp.integer):
        if jnp.issubdtype(array.dtype, kind) and jnp.issubdtype(dtype, kind):
            return array.astype(dtype, copy=False)
    return array


def _in_shape(array: np.ndarray, shape: Sequence[Any] | None, name: str) -> np.ndarray:
    """Return an array with rows reshaped to the input's shape, if that only adds, drops or unflattens axes."""
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


def trainable_model(
    path: str | Path,
    loss: str,
    *,
    sample: Mapping[str, Any] | None = None,
    beside: Sequence[str] = (),
    from_logits: bool | None = None,
    label: str = "y",
    output: str | None = None,
    train_signature: str | None = None,
    eval_signature: str | None = None,
    freeze: Sequence[str] = (),
    metrics: Sequence[str] = (),
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] = (),
    focal_gamma: float = 0.0,
    ignore_label: int | None = None,
    backend: str = "stablehlo",
) -> TrainableModel:
    """Return an artifact as a trainable model.

    Args:
      path: the artifact's directory.
      loss: a name, or ``module:function``; see `training_loss`.
      sample: some examples, to find out whether predictions are logits.
      beside: names of arrays of the sample that are not inputs.
      from_logits: whether predictions are logits. If None, inferred from the graph, or from predictions of the sample;
        without a sample they are probabilities, as in Keras.
      label: the targets' name in the data.
      output: the name of the result that is the prediction; optional if there is one result.
      train_signature: the function in training mode; default: ``train`` if there is one, else ``eval_signature``.
      eval_signature: the function in evaluation mode; default: as in `tf2jax_lite.load`.
      freeze: regular expressions; params whose names match one do not train.
      metrics: names of metrics, see `named_metrics`; by default those that go with the loss.
      label_smoothing: see `LossOptions`, as for class_weights, focal_gamma and ignore_label.
      class_weights: see `LossOptions`.
      focal_gamma: see `LossOptions`.
      ignore_label: see `LossOptions`.
      backend: "stablehlo" or "source"; see `tf2jax_lite.load`.

    Raises:
      ExportError: the artifact is damaged.
      InputError: it has no derivative, or an option does not fit it.
    """
    folder = Path(path)
    loss_options = LossOptions(label_smoothing, tuple(class_weights), focal_gamma, ignore_label)
    training_loss(loss, loss_options, from_logits=False, label=label)  # refuses options before anything is loaded
    entries = read_metadata(folder)["signatures"]
    names = [n for n in entries if n != (train_signature or "train")] or list(entries)
    evaluated = eval_signature or (names[0] if len(names) == 1 else "serving_default")
    trained = train_signature or ("train" if "train" in entries else evaluated)
    evaluate = load(folder, evaluated, backend=backend)
    train = evaluate if trained == evaluated else load(folder, trained, backend=backend, verify_hashes=False)
    entry = entries[trained]
    if backend == "stablehlo" and not entry.get("differentiable", True):
        raise InputError(
            f"{folder}: the function {trained!r} has no derivative in StableHLO; try the source (--backend)."
        )
    inputs = {i["name"]: np.dtype(i["dtype"]) for i in entries[evaluated]["inputs"]}
    if label in inputs:
        raise InputError(f"{folder}: {label!r} is an input of the model; name the targets otherwise (--label).")
    missing = [i["name"] for i in entry["inputs"] if i["name"] not in inputs]
    if missing:
        raise InputError(f"{folder}: {trained!r} takes {missing}, which {evaluated!r} does not.")

    def build(logits: bool) -> Model:
        pairs = [(_by_name(fn, output), _frozen(params, freeze)) for fn, params in (train, evaluate)]
        return create_model_from_converted(
            pairs[0],
            pairs[1],
            training_loss(loss, loss_options, from_logits=logits, label=label),
            named_metrics(metrics, loss, logits, label, ignore_label)
            if metrics
            else default_metrics(loss, logits, label, ignore_label),
            inputs=lambda batch: {name: batch[name] for name in inputs},
            written=list(entry.get("updates", ())),
        )

    found = _by_name(evaluate[0], output).kinds
    known = from_logits if from_logits is not None or found == UNKNOWN else found == LOGITS
    model = build(bool(known))
    if not jax.tree.leaves(model.init(jax.random.key(0)).trainable):
        raise InputError(f"{folder}: no param trains.")
    shapes = {i["name"]: i.get("shape") for i in entries[evaluated]["inputs"]}
    trainable = TrainableModel(
        model, inputs, label, bool(known), (trained, evaluated), shapes, ignore_label=ignore_label
    )
    if sample is None or "crossentropy" not in loss or ":" in loss:
        return trainable
    examples = trainable.examples({k: np.asarray(v)[:256] for k, v in sample.items()}, "the examples", beside)
    weights, batch = model.init(jax.random.key(0)), {n: examples[n] for n in inputs}
    if not len(examples[label]):
        return trainable
    predictions = np.asarray(model.apply_for_eval(weights, batch), np.float64)
    if loss.startswith("sparse"):
        trainable = dataclasses.replace(trainable, classes=predictions.shape[-1] if predictions.ndim else None)
    seen = not _are_probabilities(predictions, loss)
    if known is None:
        return dataclasses.replace(trainable, model=build(seen), from_logits=seen)
    if from_logits is not None and seen != known:
        warnings.warn(
            f"{loss}: predictions are treated as {'logits' if known else 'probabilities'}, as requested, but those of "
            f"the first examples look like {'logits' if seen else 'probabilities'}.",
            stacklevel=2,
        )
    return trainable


def _are_probabilities(values: np.ndarray, loss: str) -> bool:
    inside = bool(np.all((values >= 0) & (values <= 1)))
    return inside and (loss.startswith("binary") or bool(np.all(np.abs(values.sum(-1) - 1) < 1e-2)))


def _by_name(fn: Any, output: str | None) -> Any:
    """Return a function of arrays by name, which returns the prediction and updated params."""

    def call(params: Mapping[str, Any], arrays: Mapping[str, Any], rng: Any = None) -> Any:
        results, updated = call_with_arrays(fn, params, arrays, rng=rng)
        found = flat_results(results)
        if output is None and len(found) == 1:
            return next(iter(found.values())), updated
        if output not in found:
            raise InputError(f"the model's results are {sorted(found)}; choose one with --output, not {output!r}.")
        return found[output], updated

    kinds = {} if fn.kinds is None else flat_results(fn.kinds)
    call.needs_key = fn.needs_key  # type: ignore[attr-defined]
    call.kinds = kinds.get(output or next(iter(kinds), ""), UNKNOWN)  # type: ignore[attr-defined]
    return call


def _frozen(params: Mapping[str, Any], freeze: Sequence[str]) -> dict[str, Any]:
    try:
        patterns = [re.compile(p) for p in freeze]
    except re.error as error:
        raise InputError(f"--freeze takes regular expressions: {error}") from error
    for pattern in patterns:
        if not any(pattern.search(name) for name in params):
            raise InputError(f"--freeze: no param's name has {pattern.pattern!r}; there are {sorted(params)[:20]}")
    return {
        VariableName(name, getattr(name, "trainable", False) and not any(p.search(name) for p in patterns)): value
        for name, value in params.items()
    }
