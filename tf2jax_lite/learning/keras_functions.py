"""Losses and metrics of Keras, and TensorFlow losses, converted on first use."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.losses import LONG_NAMES, LOSSES, TrainLoss, check_probabilities, named_loss, per_example
from tf2jax_lite.learning.metrics import Metric, Stat
from tf2jax_lite.pipeline.keras_training import compile_options, unsupported_training
from tf2jax_lite.support.errors import InputError

_LIBRARIES = ("keras", "tf_keras")
_TARGETS = "y"
# Reductions of Keras losses that are means over the batch.
_MEANS = ("sum_over_batch_size", "mean", "auto", "mean_with_sample_weight")


def as_jax_loss(loss: Any, model: Any) -> TrainLoss:
    """Return the loss of a model from TensorFlow as `Model.train_loss` takes it.

    Args:
      loss: a name; a Keras loss, class or function ``(y_true, y_pred)``; a function ``(batch, predictions)`` of JAX or
        TensorFlow ops; None for the loss that the model is compiled with.
      model: the model.

    Raises:
      InputError: the model is not compiled with one loss, its ``fit`` does more than steps of it, or a Keras loss is
        not a mean.
    """
    if loss is None:
        return _compiled_loss(model)
    if isinstance(loss, str):
        if loss in LOSSES or loss in LONG_NAMES:
            return named_loss(loss)
        loss = _keras_loss_by_name(loss, model)
    if isinstance(loss, type) and _is_keras(loss):
        loss = loss()
    if _is_keras(type(loss)):
        return KerasLoss(_by_example(loss, (*_MEANS, "none")))
    takes_targets = next(iter(_parameters(loss)), "") == "y_true"
    return KerasLoss(loss) if takes_targets or _is_keras(loss) else _AnyLoss(loss)


def _compiled_loss(model: Any) -> TrainLoss:
    """Return the loss that a Keras model is compiled with, with its weight."""
    loss = getattr(model, "loss", None)
    if isinstance(loss, (Mapping, list, tuple)) and len(loss) == 1:
        (loss,) = loss.values() if isinstance(loss, Mapping) else loss
    if loss is None or isinstance(loss, (Mapping, list, tuple)):
        raise InputError(
            "create_model_from_tf: train_loss is None, and the model is not compiled with one loss. Compile it "
            "(model.compile(loss=...)), or give train_loss."
        )
    if unsupported := unsupported_training(model):
        raise InputError(
            f"create_model_from_tf: the model's fit does more than steps of its loss: {', '.join(unsupported)}. Give "
            "train_loss, a function (batch, predictions) -> (n,), or train without overrides."
        )
    if isinstance(loss, type):
        loss = loss()
    if _is_keras(type(loss)):
        found: Any = KerasLoss(_by_example(loss, _MEANS))
    else:
        found = as_jax_loss(loss, model) if isinstance(loss, str) or _is_keras(loss) else KerasLoss(loss)
    weights = jax.tree.leaves(compile_options(model).get("loss_weights"))
    return found if not weights else dataclasses.replace(found, scale=float(weights[0]))


def as_jax_metrics(metrics: Any, model: Any) -> dict[str, Metric]:
    """Return metrics by name, with those of Keras as `KerasMetric`.

    Args:
      metrics: name to metric; or a list of Keras metrics, classes, names, and functions ``(y_true, y_pred)``, as
        ``compile`` takes it, and of functions that make a metric, as TFF does.
      model: the model.

    Raises:
      InputError: an entry is none of these.
    """
    if isinstance(metrics, Mapping) or metrics is None:
        made: Any = {k: m() if isinstance(m, type) and _is_keras(m) else m for k, m in (metrics or {}).items()}
        return {k: KerasMetric(m) if _is_keras(type(m)) else m for k, m in made.items()}
    if not isinstance(metrics, list | tuple):
        metrics = [metrics]
    found: dict[str, Metric] = {}
    for entry in metrics:
        metric = _keras_metric(entry, importlib.import_module(_library_of(model)))
        base = entry if isinstance(entry, str) else metric.name
        numbered = (f"{base}_{number}" for number in itertools.count(1))  # as by Keras
        found[next(name for name in itertools.chain([base], numbered) if name not in found)] = KerasMetric(metric)
    return found


def _keras_metric(entry: Any, library: Any) -> Any:
    """Return an entry of a list of metrics as a metric of Keras."""
    made = entry
    if isinstance(made, str):
        made = _by_shapes(made, library) or _metric_by_name(made, library)
    elif callable(made) and not _is_keras(type(made)) and (isinstance(made, type) or not _parameters(made)):
        made = made()
    if _is_keras(type(made)) and hasattr(made, "update_state"):
        return made
    if callable(made) and len(_parameters(made)) >= 2:
        name = entry if isinstance(entry, str) else getattr(made, "__name__", "metric")
        return library.metrics.MeanMetricWrapper(made, name=name)
    raise InputError(
        "create_model_from_tf: eval_metrics is a dict from name to metric, or a list of Keras metrics, their names and "
        f"functions (y_true, y_pred); {entry!r:.80} is none of these. Specs of TFF are input_spec=."
    )


def _metric_by_name(name: str, library: Any) -> Any:
    try:
        return library.metrics.get(name)
    except ValueError as error:
        raise InputError(f"create_model_from_tf: Keras has no metric {name!r} (eval_metrics)") from error


_CHOSEN = {"accuracy": "accuracy", "acc": "accuracy", "crossentropy": "crossentropy", "ce": "crossentropy"}


def _by_shapes(name: str, library: Any) -> Callable[..., Any] | None:
    """Return the metric that Keras chooses by the shapes of targets and predictions."""
    kind = _CHOSEN.get(name.lower())
    if kind is None:
        return None

    def chosen(y_true: Any, y_pred: Any) -> Any:
        targets, classes = y_true.shape, y_pred.shape[-1]
        sparse = len(targets) < len(y_pred.shape) or (targets[-1] == 1 and classes > 1)
        prefix = "binary" if classes == 1 else "sparse_categorical" if sparse else "categorical"
        return getattr(library.metrics, f"{prefix}_{kind}")(y_true, y_pred)

    return chosen


def _library_of(model: Any) -> str:
    roots = {str(base.__module__).split(".")[0] for base in type(model).__mro__}
    return "tf_keras" if "tf_keras" in roots else "keras"


def _is_keras(value: Any) -> bool:
    """Return whether a class, by any of its bases, or a function is of Keras."""
    found = value.__mro__ if isinstance(value, type) else (value,)
    return any(str(getattr(v, "__module__", "")).split(".")[0] in _LIBRARIES for v in found)


def _keras_loss_by_name(name: str, model: Any) -> Any:
    try:
        return importlib.import_module(_library_of(model)).losses.get(name)
    except (ImportError, ValueError):
        return named_loss(name)  # which says the names that there are


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _by_example(loss: Any, reductions: Sequence[str]) -> Any:
    """Return a Keras loss that does not reduce over the examples."""
    reduction = str(getattr(loss, "reduction", "") or "none")
    if reduction not in reductions:
        what = "a sum over the batch" if reduction == "sum" else f"one with reduction={reduction!r}"
        raise InputError(
            f"train_loss: the Keras loss {type(loss).__name__} is {what}, and clients train on the mean. "
            "Make it with the default reduction."
        )
    found = object.__new__(type(loss))  # copy.copy goes through Keras's registry of classes
    vars(found).update(vars(loss), reduction="none")
    return found


class _Converted:
    """A TensorFlow function, converted for each spec of its arguments' examples."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._found: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return results, the variables' values at conversion, and their new values."""
        from tf2jax_lite.pipeline import convert

        leaves, form = jax.tree.flatten(args)
        key = (form, tuple((np.shape(v)[1:], np.ndim(v) > 0, str(jnp.result_type(v))) for v in leaves))
        if key not in self._found:
            self._found[key] = convert.convert(self._function, *jax.tree.map(_spec, args))
        fn, params = self._found[key]
        results, after = fn(params, *args)
        return results, params, after


def _spec(value: Any) -> jax.ShapeDtypeStruct:
    """Return the spec of an array with any number of examples."""
    shape = np.shape(value)
    if shape:
        shape = (*jax.export.symbolic_shape("examples"), *shape[1:])
    return jax.ShapeDtypeStruct(shape, jnp.result_type(value))


@dataclasses.dataclass(frozen=True, eq=False)
class KerasLoss:
    """A loss of targets and predictions.

    Attributes:
      given: the loss; of Keras' classes, one without a reduction.
      scale, mask: see `NamedLoss`.
    """

    given: Any
    scale: float = 1.0
    mask: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def ignores_masks(self) -> bool:
        """See `NamedLoss`."""
        return self.mask is None

    @property
    def __name__(self) -> str:
        return getattr(self.given, "__name__", type(self.given).__name__)

    @functools.cached_property
    def _options(self) -> dict[str, Any]:
        """The arguments of the function that a Keras loss wraps."""
        return next((found for name in ("_fn_kwargs", "fn_kwargs") if (found := getattr(self.given, name, None))), {})

    @property
    def takes_probabilities(self) -> bool:
        """See `NamedLoss`."""
        if not (_is_keras(self.given) or _is_keras(type(self.given))) or "crossentropy" not in self._plain_name:
            return False
        return not (self._options.get("from_logits", getattr(self.given, "from_logits", False)))

    @property
    def _plain_name(self) -> str:
        return str(self.__name__).lower().replace("_", "")

    def check_predictions(self, predictions: Any) -> None:
        """See `NamedLoss`."""
        if self._options.get("axis", -1) == -1:
            check_probabilities(predictions, str(self.__name__))

    @functools.cached_property
    def _converted(self) -> _Converted:
        loss = self.given

        def call(y_true: Any, y_pred: Any) -> Any:
            values = loss(y_true, y_pred)
            unreduced = loss.call(y_true, y_pred) if _is_keras(type(loss)) else values
            kept = getattr(unreduced, "_keras_mask", None)  # of ignore_class
            return (values,) if kept is None else (values, kept)

        return _Converted(call)

    def __call__(self, batch: Mapping[str, Any], predictions: Any) -> Any:
        """Return the loss of each example."""
        targets = _targets(batch, str(self.__name__))
        if not _is_keras(type(self.given)) and hasattr(predictions, "dtype"):
            targets = _as_keras_passes(targets, predictions, is_own=not _is_keras(self.given))
        values, *masks = self._converted(targets, predictions)[0]
        if jnp.ndim(values) == 0:
            raise InputError(f"{self.__name__} returned one number for the batch; a loss returns one for each example.")
        if self.mask is not None:
            masks.append(self.mask(batch))
        kept = functools.reduce(jnp.logical_and, [jnp.asarray(mask, bool) for mask in masks]) if masks else None
        return per_example(values if self.scale == 1 else self.scale * values, kept)


def _as_keras_passes(y_true: Any, y_pred: Any, *, is_own: bool) -> Any:
    """Return targets as Keras passes them to a function.

    They have the predictions' rank and, for a user's function, floating dtype.
    """
    y_true, y_pred = jnp.asarray(y_true), jnp.asarray(y_pred)
    if is_own and jnp.issubdtype(y_pred.dtype, jnp.floating):
        y_true = y_true.astype(y_pred.dtype)
    return y_true[..., None] if y_pred.ndim == y_true.ndim + 1 and y_pred.shape[-1] == 1 else y_true


def _targets(batch: Mapping[str, Any], name: str) -> Any:
    if _TARGETS not in batch:
        raise InputError(f"{name} takes the batch's {_TARGETS!r}; the batch has {', '.join(batch)}.")
    return batch[_TARGETS]


class _AnyLoss:
    """A loss of batch and predictions, in JAX or TensorFlow, seen when called."""

    def __init__(self, loss: TrainLoss):
        self.given = self._loss = loss
        self._converted: _Converted | None = None
        self._is_jax: bool | None = None

    def __call__(self, batch: Mapping[str, Any], predictions: Any) -> Any:
        if self._is_jax:
            return self._loss(batch, predictions)
        if self._converted is not None:
            return self._converted(dict(batch), predictions)[0]
        try:
            jax.eval_shape(self._loss, batch, predictions)
        except Exception as error:  # TensorFlow raises any type for JAX tracers
            converted = _Converted(self._loss)
            try:
                values = converted(dict(batch), predictions)[0]
            except Exception:
                raise error from None  # of a loss of JAX ops, whose own error says most
            self._converted = converted
            return values
        self._is_jax = True
        return self._loss(batch, predictions)


@dataclasses.dataclass(frozen=True, eq=False)
class KerasMetric(Metric):
    """A Keras metric whose state is a sum over examples.

    Such as means, counts and confusion matrices.

    Attributes:
      metric: the Keras metric; its own state stays as it is.
    """

    metric: Any

    @functools.cached_property
    def _update(self) -> _Converted:
        def update(y_true: Any, y_pred: Any, sample_weight: Any) -> None:
            self.metric.update_state(y_true, y_pred, sample_weight=sample_weight)

        return _Converted(update)

    @functools.cached_property
    def computed(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function from state to result, and the state without examples."""
        from tf2jax_lite.pipeline import convert

        self.metric.reset_state()

        def result() -> Any:
            return self.metric.result()

        return convert.convert(result)

    def zero(self) -> KerasStat:
        """See `Metric.zero`."""
        return KerasStat({str(name): jnp.zeros_like(value) for name, value in self.computed[1].items()}, self)

    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> KerasStat:
        """See `Metric.evaluate_example`."""
        batch, predictions = jax.tree.map(lambda v: jnp.asarray(v)[None], (dict(example), prediction))
        return self.evaluate_examples(batch, predictions, jnp.ones(1, bool))

    def evaluate_examples(self, batch: Mapping[str, Any], predictions: Any, mask: Any) -> KerasStat:
        """See `Metric.evaluate_examples`."""
        targets = _targets(batch, type(self.metric).__name__)
        _, before, after = self._update(targets, predictions, jnp.asarray(mask, jnp.float32))
        return KerasStat({n: after[n] - jnp.asarray(before[n]) for n in map(str, self.computed[1])}, self)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["sums"], meta_fields=["metric"])
@dataclasses.dataclass(frozen=True)
class KerasStat(Stat):
    """The change of a Keras metric's state by examples.

    Attributes:
      sums: increments by variable name.
      metric: the metric.
    """

    sums: dict[str, Any]
    metric: KerasMetric

    def merge(self, other: Self) -> Self:
        """See `Stat.merge`."""
        return dataclasses.replace(self, sums=jax.tree.map(jnp.add, self.sums, other.sums))

    def reduce(self, axis: int = 0) -> Self:
        """See `Stat.reduce`."""
        return dataclasses.replace(self, sums=jax.tree.map(lambda v: jnp.sum(v, axis), self.sums))

    def result(self) -> Any:
        """See `Stat.result`."""
        fn, start = self.metric.computed
        return fn({name: jnp.asarray(value) + self.sums[str(name)] for name, value in start.items()})[0]
