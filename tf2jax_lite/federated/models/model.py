"""A model for training: pure functions of its weights. See fedjax.Model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated._utils.user_functions import described, first_line, model_function, of_model, raised_by
from tf2jax_lite.federated._utils.validation import check_key
from tf2jax_lite.federated.metrics import MASK_KEY, MeanStat, Metric, Stat, evaluate_batch
from tf2jax_lite.federated.metrics.metric import as_float
from tf2jax_lite.federated.models.losses import NamedLoss, TrainLoss, traced_kinds
from tf2jax_lite.federated.templates.process import ModelWeights
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import InputError, Tf2JaxError

__all__ = [
    "BatchLoss",
    "Model",
    "TrainOutput",
    "as_model_weights",
    "changing_leaves",
    "changing_values",
    "check_model",
    "check_weights",
    "evaluate_average_loss",
    "evaluate_model",
    "evaluate_stats",
    "examples_interact",
    "fitting",
    "model_grad",
    "model_per_example_loss",
    "model_value_and_grad",
    "replace_leaves",
    "split_mask",
]

PyTree = Any
Batch = Mapping[str, Any]


class TrainOutput(NamedTuple):
    """The results of a model in training mode.

    Attributes:
      predictions: pytree of arrays of shape (n, ...).
      non_trainable: the model's non-trainable weights after the batch (statistics of batch normalization).
      regularization: scalar that is added to the mean loss of the batch.
    """

    predictions: PyTree
    non_trainable: PyTree
    regularization: Any = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model as pure functions.

    Frozen, and hashable by identity: a static argument of `jax.jit`. See fedjax.Model. As there, the functions may also
    be those of a plain pytree of params, all of which train: ``init(key) -> params``, ``apply_for_train(params, batch,
    rng) -> predictions``, ``apply_for_eval(params, batch) -> predictions``.

    Attributes:
      init: ``(key) -> ModelWeights``. A pretrained model ignores the key.
      apply_for_train: ``(weights, batch, rng) -> TrainOutput``. ``batch`` is a dict of arrays (n, ...); ``rng``
        is a JAX key.
      apply_for_eval: ``(weights, batch) -> predictions``.
      train_loss: ``(batch, predictions) -> float (n,)``: the loss of each example.
      eval_metrics: name to `Metric`.
      changes: pytree of bools, a prefix of ``weights.non_trainable``: which leaves `apply_for_train` may change. Those
        that it never changes (frozen parameters) need not be carried through training, client by client. If a floating
        leaf changes, the examples of a batch act on each other, and batches are not padded in training.
    """

    init: Callable[[Any], ModelWeights | PyTree]
    apply_for_train: Callable[[Any, Batch, Any], TrainOutput | PyTree]
    apply_for_eval: Callable[[Any, Batch], PyTree]
    train_loss: TrainLoss
    eval_metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    changes: Any = True

    def __post_init__(self) -> None:
        """Let a named loss ask the model whether its predictions are logits."""
        if isinstance(self.train_loss, NamedLoss):
            loss = self.train_loss.of_model(traced_kinds(self.apply_for_eval, lambda: self._given_shapes))
            object.__setattr__(self, "train_loss", loss)

    @functools.cached_property
    def shapes(self) -> ModelWeights:
        """The weights' shapes and dtypes, as `jax.ShapeDtypeStruct`s."""
        return as_model_weights(self._given_shapes)

    @functools.cached_property
    def _given_shapes(self) -> Any:
        return jax.eval_shape(self.init, jax.random.key(0))

    @functools.cached_property
    def of_weights(self) -> Model:
        """The model with functions of `ModelWeights`: itself, or one around it."""
        return self if isinstance(self._given_shapes, ModelWeights) else _of_weights(self)

    def replace(self, **changes: Any) -> Model:
        """Return a model with other functions, as FedJAX's dataclasses do."""
        return dataclasses.replace(self, **changes)


def _of_weights(model: Model) -> Model:
    """Return a model of plain params as one of `ModelWeights`."""

    def init(key: Any) -> ModelWeights:
        return ModelWeights(model.init(key), ())

    def apply_for_train(weights: ModelWeights, batch: Batch, rng: Any) -> TrainOutput:
        found = model.apply_for_train(weights.trainable, batch, rng)
        return found if isinstance(found, TrainOutput) else TrainOutput(found, ())

    def apply_for_eval(weights: ModelWeights, batch: Batch) -> PyTree:
        return model.apply_for_eval(weights.trainable, batch)

    for function in (init, apply_for_train, apply_for_eval):
        function.given = getattr(model, function.__name__)  # type: ignore[attr-defined]  # for error messages
    return Model(init, apply_for_train, apply_for_eval, model.train_loss, model.eval_metrics)


class BatchLoss(NamedTuple):
    """The results of `model_value_and_grad` in addition to the gradient.

    Attributes:
      loss: scalar, float32 or wider: the mean loss of the batch's examples, without regularization; 0 for a batch
        without any.
      num_examples: int32 scalar, the batch's examples without padding.
      weight: scalar, the sum of their weights in the mean; their number if all weigh the same.
      non_trainable: the weights that the batch has changed, with the others.
      predictions: pytree of arrays of shape (n, ...).
    """

    loss: Any
    num_examples: Any
    weight: Any
    non_trainable: PyTree
    predictions: PyTree


def as_model_weights(params: Any) -> ModelWeights:
    """Return ``params`` as weights: all of them train if they are a bare pytree."""
    return params if isinstance(params, ModelWeights) else ModelWeights(params, ())


def check_model(model: Any) -> Model:
    """Return the model with functions of `ModelWeights`.

    Raises:
      InputError: it is no `Model`.
    """
    if not isinstance(model, Model):
        raise InputError(
            f"a model is a federated.Model, as create_model_from_fn and its like return it, not {type(model).__name__}"
        )
    return model.of_weights


def check_weights(model: Model, weights: ModelWeights, what: str = "weights") -> None:
    """Refuse weights of something else.

    Args:
      model: the model.
      weights: pytrees of arrays.
      what: their name in error messages.

    Raises:
      InputError: they are not the model's in structure or shapes.
    """
    for kind in ("trainable", "non_trainable"):
        found, wanted = (
            {jax.tree_util.keystr(k): np.shape(v) for k, v in jax.tree.leaves_with_path(getattr(tree, kind))}
            for tree in (weights, model.shapes)
        )
        for name in [*wanted, *found]:
            if found.get(name) != wanted.get(name):
                raise InputError(
                    f"{what} are not those of the model: {kind} weights{name} have shape {found.get(name, 'none')}, "
                    f"the model's {wanted.get(name, 'none')}"
                )


@contextlib.contextmanager
def fitting(batch: Mapping[str, Any], which: str) -> Iterator[None]:
    """Name the data that a model was traced with in errors about data that do not fit.

    Args:
      batch: dict of arrays (n, ...).
      which: the batch's name in error messages.

    Raises:
      InputError: for any error but ours, and the runtime's (too little memory).
    """
    try:
        yield
    except (Tf2JaxError, RuntimeError):
        raise
    except Exception as error:  # libraries of models have exceptions of their own
        given = ", ".join(f"{name}: {_type_text(value)}" for name, value in batch.items())
        function = model_function(error)
        name = f" ({described(function)})" if function is not None else ""
        raise InputError(f"the model{name} does not take {which} ({given}): {first_line(error)}") from error


def _type_text(value: Any) -> str:
    shape = ",".join(map(str, np.shape(value)))
    return f"{value.dtype}[{shape}]" if hasattr(value, "dtype") else f"{type(value).__name__}[{shape}]"


def changing_leaves(model: Model, non_trainable: PyTree) -> list[bool]:
    """Return which leaves of the non-trainable weights training may change.

    Raises:
      InputError: ``model.changes`` is not a prefix of the non-trainable weights.
    """
    try:
        spread = jax.tree.map(
            lambda flag, part: [bool(flag)] * len(jax.tree.leaves(part)), model.changes, non_trainable
        )
    except ValueError as error:
        raise InputError(f"Model.changes does not fit the non-trainable weights: {error}") from error
    return [bool(flag) for flag in jax.tree.leaves(spread)]


def examples_interact(model: Model, non_trainable: PyTree) -> bool:
    """Return whether a batch's examples interact, as in batch normalization."""
    leaves = jax.tree.leaves(non_trainable)
    return any(
        flag and jnp.issubdtype(leaf.dtype, jnp.inexact)
        for flag, leaf in zip(changing_leaves(model, non_trainable), leaves, strict=True)
    )


def changing_values(model: Model, non_trainable: PyTree) -> list[Any]:
    """Return the leaves of the non-trainable weights that training may change."""
    flags, leaves = changing_leaves(model, non_trainable), jax.tree.leaves(non_trainable)
    return [leaf for flag, leaf in zip(flags, leaves, strict=True) if flag]


def replace_leaves(tree: PyTree, flags: Iterable[bool], leaves: Iterable[Any]) -> PyTree:
    """Return ``tree`` with the flagged leaves replaced by ``leaves``, in order."""
    old, treedef = jax.tree.flatten(tree)
    new = iter(leaves)
    return jax.tree.unflatten(treedef, [next(new) if f else leaf for f, leaf in zip(flags, old, strict=True)])


def split_mask(batch: Batch) -> tuple[dict[str, Any], jax.Array | None]:
    """Take the mask out of a padded batch, and make padding harmless.

    Padding becomes a copy of a real example: zeros may have an infinite derivative, which times the zero of a masked
    loss is NaN.

    Returns:
      ``(batch without "__mask__", mask)``; the mask is bool (n,), or None where the batch is not padded.
    """
    examples = {name: jnp.asarray(native(value)) for name, value in batch.items() if name != MASK_KEY}
    if MASK_KEY not in batch:
        return examples, None
    mask = jnp.asarray(batch[MASK_KEY]).astype(bool)
    first = jnp.argmax(mask)

    def fill(value: Any) -> Any:
        real = jax.lax.dynamic_index_in_dim(value, first, axis=0, keepdims=True)
        return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (value.ndim - 1)), value, real)

    return {name: fill(value) for name, value in examples.items()}, mask


def _losses(model: Model, weights: ModelWeights, batch: Batch, rng: Any) -> tuple[jax.Array, TrainOutput, Any]:
    """Return per-example float32 losses, the train output, and mask or None."""
    examples, mask = split_mask(batch)
    with of_model(model.apply_for_train):
        output = model.apply_for_train(weights, examples, rng)
    if not isinstance(output, TrainOutput):
        raise InputError(
            f"apply_for_train ({described(model.apply_for_train)}) returned a {type(output).__name__}; expected a "
            "TrainOutput(predictions, non_trainable), as init returns ModelWeights."
        )
    # A sum of losses, or a number of examples, may overflow half precision.
    with raised_by("train_loss", model.train_loss):
        losses = as_float(model.train_loss(examples, output.predictions))
    count = jnp.shape(next(iter(examples.values())))[0]
    if losses.shape != (count,):
        raise InputError(
            f"train_loss ({described(model.train_loss)}) returned shape {losses.shape} for a batch of {count} "
            f"examples; expected one loss for each example, shape ({count},). Reduce all axes but the first."
        )
    return (losses if mask is None else jnp.where(mask, losses, 0)), output, mask


def model_per_example_loss(model: Model) -> Callable[[Any, Batch, Any], jax.Array]:
    """Return ``(weights, batch, rng) -> float (n,)``: losses in training mode.

    They are float32 or wider, and 0 for padding. See fedjax.model_per_example_loss.

    Raises:
      InputError: it is not a model.
    """
    model = check_model(model)

    def per_example_loss(weights: Any, batch: Batch, rng: Any) -> jax.Array:
        return _losses(model, as_model_weights(weights), batch, rng)[0]

    return per_example_loss


def model_value_and_grad(
    model: Model, example_weight: Callable[[Batch], Any] | None = None, total_weight: Any = None
) -> Callable[[Any, Batch, Any], tuple[BatchLoss, PyTree]]:
    """Return ``(weights, batch, rng) -> (BatchLoss, gradient)``.

    The gradient is that of the mean loss with respect to the trainable weights. The mean is over the batch's examples
    without padding. Regularization is in the gradient.

    Args:
      model: the model.
      example_weight: ``(batch) -> (n,)``, weights of the examples in the mean, 0 or more; equal by default.
      total_weight: scalar, the divisor of the gradient's sum of weighted losses, in place of the weight of the
        batch's own examples: those of all batches, where a batch is a part of one sum. The loss that is returned is the
        batch's mean all the same.

    Raises:
      InputError: it is not a model.
    """
    model = check_model(model)

    def loss_fn(trainable: PyTree, non_trainable: PyTree, batch: Batch, rng: Any) -> tuple[Any, BatchLoss]:
        losses, output, mask = _losses(model, ModelWeights(trainable, non_trainable), batch, rng)
        count = jnp.int32(losses.shape[0]) if mask is None else jnp.sum(mask, dtype=jnp.int32)
        weight = count.astype(jnp.float32)
        if example_weight is not None:
            each = jnp.asarray(example_weight({k: v for k, v in batch.items() if k != MASK_KEY}), jnp.float32)
            each = each if mask is None else jnp.where(mask, each, 0)
            weight, losses = jnp.sum(each), losses * each
        total = jnp.sum(losses)
        loss = total / jnp.where(weight > 0, weight, 1).astype(losses.dtype)
        # A batch that is padding alone moves nothing.
        regularization = jnp.where(count > 0, output.regularization, 0)
        minimized = loss
        if total_weight is not None:
            minimized = total / jnp.where(total_weight > 0, total_weight, 1).astype(losses.dtype)
        return minimized + regularization, BatchLoss(loss, count, weight, output.non_trainable, output.predictions)

    def value_and_grad(weights: Any, batch: Batch, rng: Any) -> tuple[BatchLoss, PyTree]:
        weights = as_model_weights(weights)
        differentiated = jax.value_and_grad(loss_fn, has_aux=True)
        try:
            (_, aux), grads = differentiated(weights.trainable, weights.non_trainable, batch, rng)
        except (Tf2JaxError, RuntimeError):
            raise
        except Exception:  # client work may pass other weights, for which the model's error blames the data
            check_weights(model, weights)
            raise
        return aux, grads

    return value_and_grad


def model_grad(model: Model) -> Callable[[Any, Batch, Any], PyTree]:
    """Return ``(weights, batch, rng) -> gradient`` of the mean loss.

    See fedjax.model_grad.
    """
    value_and_grad = model_value_and_grad(model)
    return lambda weights, batch, rng: value_and_grad(weights, batch, rng)[1]


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(model: Model, weights: ModelWeights, batch: Batch) -> dict[str, Stat]:
    return evaluate_stats(model, weights, batch)


def evaluate_stats(model: Model, weights: ModelWeights, batch: Batch) -> dict[str, Stat]:
    """Return each metric's statistic, and the mean ``loss``'s, over a batch."""
    examples, mask = split_mask(batch)
    with of_model(model.apply_for_eval):
        predictions = model.apply_for_eval(weights, examples)
    stats = {name: evaluate_batch(m, examples, predictions, mask) for name, m in model.eval_metrics.items()}
    if "loss" not in stats:
        with raised_by("train_loss", model.train_loss):
            losses = jnp.asarray(model.train_loss(examples, predictions))
        kept = jnp.ones(losses.shape, jnp.int32) if mask is None else mask.astype(jnp.int32)
        stats["loss"] = MeanStat.new(losses, kept).reduce()
    return stats


def evaluate_model(model: Model, weights: Any, batches: Iterable[Batch]) -> dict[str, Any]:
    """Evaluate a model. See fedjax.evaluate_model.

    Args:
      model: the model.
      weights: its `ModelWeights`, or a bare pytree of parameters.
      batches: dicts of arrays, padded (with ``"__mask__"``) or not.

    Returns:
      Name to result for each of ``model.eval_metrics``, and the mean ``loss`` in evaluation mode.

    Raises:
      InputError: there is no batch, or one does not fit the model, or the weights do not.
    """
    weights, model = as_model_weights(weights), check_model(model)
    check_weights(model, weights)
    total: dict[str, Stat] | None = None
    for number, batch in enumerate(batches):
        if not isinstance(batch, Mapping):
            raise InputError(f"evaluate_model: a batch is a dict of arrays, not {type(batch).__name__}")
        with fitting(batch, f"batch {number}"):
            stats = _evaluate(model, weights, jax.tree.map(native, dict(batch)))
        total = stats if total is None else {name: total[name].merge(stat) for name, stat in stats.items()}
    if total is None:
        raise InputError("evaluate_model: there are no batches")
    return {name: stat.result() for name, stat in total.items()}


def evaluate_average_loss(
    weights: Any,
    batches: Iterable[Batch],
    rng: Any,
    per_example_loss: Callable[[Any, Batch, Any], Any],
    regularizer: Callable[[Any], Any] | None = None,
) -> jax.Array:
    """Return the mean loss over all examples. See fedjax.evaluate_average_loss.

    Args:
      weights: the model's weights.
      batches: dicts of arrays, padded or not.
      rng: a JAX key; each batch gets another one made from it.
      per_example_loss: as `model_per_example_loss` returns it.
      regularizer: ``(weights) -> scalar`` to add.

    Raises:
      InputError: there is no batch, or ``rng`` is no JAX key.
    """
    check_key(rng, "rng")
    total = None
    step = _jitted_sum(per_example_loss)
    for i, batch in enumerate(batches):
        stat = step(weights, jax.tree.map(native, dict(batch)), jax.random.fold_in(rng, i))
        total = stat if total is None else total.merge(stat)
    if total is None:
        raise InputError("evaluate_average_loss: there are no batches")
    loss = jnp.asarray(total.result())
    return loss if regularizer is None else loss + regularizer(weights)


@functools.lru_cache(maxsize=64)
def _jitted_sum(per_example_loss: Callable[..., Any]) -> Callable[..., MeanStat]:
    def step(weights: Any, batch: Batch, rng: Any) -> MeanStat:
        losses = jnp.asarray(per_example_loss(weights, batch, rng))
        kept = batch.get(MASK_KEY, jnp.ones(losses.shape, bool))
        return MeanStat.new(losses, jnp.asarray(kept).astype(jnp.int32)).reduce()

    return jax.jit(step)
