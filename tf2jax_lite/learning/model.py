"""A model for training: pure functions of its weights. See fedjax.Model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.calling.integers import check_integers
from tf2jax_lite.export.predictions import LOGITS, prediction_kinds
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.jaxprs.independence import Examples, examples_of_results
from tf2jax_lite.learning.checks import check_key, described, first_line, model_function, of_model, raised_by
from tf2jax_lite.learning.data.examples import EXAMPLE_FILL_KEY
from tf2jax_lite.learning.losses import TrainLoss, WeightedLosses
from tf2jax_lite.learning.metrics import MASK_KEY, MeanStat, Metric, Stat, evaluate_batch
from tf2jax_lite.learning.metrics.metric import as_float
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import InputError, Tf2JaxError
from tf2jax_lite.xla_cpu import optimize

_FLAGS = (MASK_KEY, EXAMPLE_FILL_KEY)
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
      init: ``(key) -> ModelWeights``. A pretrained model ignores the key. ``lambda key: None`` if callers give the
        weights, which are then not checked.
      apply_for_train: ``(weights, batch, rng) -> TrainOutput``. ``batch`` is a dict of arrays (n, ...); ``rng``
        is a JAX key.
      apply_for_eval: ``(weights, batch) -> predictions``.
      train_loss: ``(batch, predictions) -> float (n,)``: the loss of each example; or `WeightedLosses`, whose weighted
        mean is the batch's loss.
      eval_metrics: name to `Metric`.
      changes: pytree of bools, a prefix of ``weights.non_trainable``: which leaves `apply_for_train` may change. Those
        that it never changes (frozen parameters) need not be carried through training, client by client.
      independent: of ``"train"`` and ``"eval"``, whether predictions depend on each example alone, as an artifact
        records it; else the operations of `apply_for_train` and `apply_for_eval` tell. See `examples_interact`.
      rows: which rows of the weights a client has, see `federated.select_rows`; None for all.
    """

    init: Callable[[Any], ModelWeights | PyTree]
    apply_for_train: Callable[[Any, Batch, Any], TrainOutput | PyTree]
    apply_for_eval: Callable[[Any, Batch], PyTree]
    train_loss: TrainLoss
    eval_metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    changes: Any = True
    independent: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    rows: Any = None

    @functools.cached_property
    def shapes(self) -> ModelWeights:
        """The weights' shapes and dtypes, as `jax.ShapeDtypeStruct`s."""
        return as_model_weights(self._given_shapes)

    @functools.cached_property
    def client_shapes(self) -> ModelWeights:
        """The shapes of the weights that a client trains."""
        return self.shapes if self.rows is None else self.rows.shapes(self.shapes)

    @functools.cached_property
    def _given_shapes(self) -> Any:
        return jax.eval_shape(self.init, jax.random.key(0))

    @functools.cached_property
    def constants(self) -> PyTree:
        """The non-trainable weights; None if training, or the key, changes them."""
        shapes = self.shapes.non_trainable
        if not jax.tree.leaves(shapes):
            return shapes
        if any(changing_leaves(self, shapes)):
            return None
        with jax.ensure_compile_time_eval():  # under jit, too
            found, other = (as_model_weights(self.init(jax.random.key(seed))).non_trainable for seed in (0, 1))
        same = jax.tree.map(lambda a, b: np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True), found, other)
        return found if all(jax.tree.leaves(same)) else None

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
    return Model(
        init, apply_for_train, apply_for_eval, model.train_loss, model.eval_metrics, independent=model.independent
    )


class BatchLoss(NamedTuple):
    """The results of `model_value_and_grad` in addition to the gradient.

    Attributes:
      loss: scalar, float32 or wider: the mean loss of the batch's examples, without regularization, and without those
        that fill the batch; 0 for a batch without any.
      num_examples: int32 scalar, the batch's examples without padding and fill.
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


def whole_weights(model: Model, params: Any) -> ModelWeights:
    """Return a model's weights, given as `ModelWeights` or as the trainable ones.

    Raises:
      InputError: they are the trainable ones, and the model's others are not known without a state.
    """
    if isinstance(params, ModelWeights):
        return params
    constants = model.constants
    if constants is None:
        names = [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in _leaves(model.shapes.non_trainable)]
        raise InputError(
            f"these are trainable weights alone, and the model has others, which training or a key determine "
            f"({', '.join(names[:5])}). Give a training's state.weights instead of its state.params."
        )
    return ModelWeights(params, constants)


def _leaves(tree: PyTree) -> list[Any]:
    return jax.tree.leaves_with_path(tree)


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
    if not jax.tree.leaves(model.shapes):  # see Model.init
        return
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


def examples_interact(model: Model, batch: Batch, *, training: bool = True) -> bool:
    """Return whether a batch's examples may act on each other.

    They do in batch normalization, in losses added for a whole batch (``add_loss``, activity regularizers), in means
    over the batch, and in in-batch negatives; and where the operations do not prove that they do not. Such a batch is
    not padded: padding would change losses and gradients.

    Args:
      model: the model.
      batch: dict of arrays (n, ...), or their shapes.
      training: of the model in training mode; else in evaluation mode.
    """
    leaves = jax.tree.leaves(model.shapes.non_trainable)
    flags = changing_leaves(model, model.shapes.non_trainable)
    moves = (flag and jnp.issubdtype(leaf.dtype, jnp.inexact) for flag, leaf in zip(flags, leaves, strict=True))
    if training and any(moves):
        return True
    examples = {
        name: jax.ShapeDtypeStruct(np.shape(value), jnp.result_type(value))
        for name, value in batch.items()
        if name != MASK_KEY
    }
    key, known = (training, str(examples)), vars(model).setdefault("_interactions", {})
    if key not in known:
        try:
            known[key] = not _is_independent(model, examples, training)
        except Exception:  # of a model that is not traced with these shapes alone
            known[key] = True
    return known[key]


def pads_batches(model: Model, *, training: bool = True) -> Callable[[Batch], bool]:
    """Return ``(batch) -> whether it may be padded``, for arrays or their shapes."""
    return lambda batch: not examples_interact(model, batch, training=training)


def _is_independent(model: Model, examples: Batch, training: bool) -> bool:
    """Return whether losses and predictions depend on their example alone."""

    def run(weights: ModelWeights, batch: Batch, rng: Any) -> TrainOutput:
        if training:
            return model.apply_for_train(weights, batch, rng)
        return TrainOutput(model.apply_for_eval(weights, batch), ())

    def results(weights: ModelWeights, batch: Batch, rng: Any) -> Any:
        output = run(weights, batch, rng)
        return (output.predictions, model.train_loss(batch, output.predictions)), output.regularization

    rng, each = jax.eval_shape(lambda: jax.random.key(0)), Examples(0)
    recorded = model.independent.get("train" if training else "eval")
    if recorded is not None:
        output = jax.eval_shape(run, model.client_shapes, examples, rng)
        closed = jax.make_jaxpr(lambda found, batch: model.train_loss(batch, found))(output.predictions, examples)
        tags: list[Any] = [each] * (len(jax.tree.leaves(output.predictions)) + len(examples))
        return recorded and all(tag in (None, each) for tag in examples_of_results(closed, tags))
    closed, shapes = jax.make_jaxpr(results, return_shape=True)(model.client_shapes, examples, rng)
    tags = [*[None] * len(jax.tree.leaves(model.shapes)), *[each] * len(examples), None]
    found, count = examples_of_results(closed, tags), len(jax.tree.leaves(shapes[0]))
    return all(tag in (None, each) for tag in found[:count]) and all(tag is None for tag in found[count:])


def changing_values(model: Model, non_trainable: PyTree) -> list[Any]:
    """Return the leaves of the non-trainable weights that training may change."""
    flags, leaves = changing_leaves(model, non_trainable), jax.tree.leaves(non_trainable)
    return [leaf for flag, leaf in zip(flags, leaves, strict=True) if flag]


def replace_leaves(tree: PyTree, flags: Iterable[bool], leaves: Iterable[Any]) -> PyTree:
    """Return ``tree`` with the flagged leaves replaced by ``leaves``, in order."""
    old, treedef = jax.tree.flatten(tree)
    new = iter(leaves)
    return jax.tree.unflatten(treedef, [next(new) if f else leaf for f, leaf in zip(flags, old, strict=True)])


def native_batch(batch: Batch) -> dict[str, Any]:
    """Return a batch whose arrays have native byte order."""
    return {name: jax.tree.map(native, value) for name, value in batch.items()}


def split_mask(batch: Batch) -> tuple[dict[str, Any], jax.Array | None]:
    """Take the masks out of a batch, and make padding harmless.

    Padding becomes a copy of a real example: zeros may have an infinite derivative, which times the zero of a masked
    loss is NaN.

    Returns:
      ``(batch without "__mask__" and "__fill__", mask)``; the mask is bool (n,), or None where the batch is not padded.
    """
    check_integers(batch, "a batch")
    examples = {name: jnp.asarray(native(value)) for name, value in batch.items() if name not in _FLAGS}
    if MASK_KEY not in batch:
        return examples, None
    mask = jnp.asarray(batch[MASK_KEY]).astype(bool)
    first = jnp.argmax(mask)

    def fill(value: Any) -> Any:
        real = jax.lax.dynamic_index_in_dim(value, first, axis=0, keepdims=True)
        return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (value.ndim - 1)), value, real)

    return {name: fill(value) for name, value in examples.items()}, mask


def counted_mask(batch: Batch) -> jax.Array | None:
    """Return which examples count, bool (n,): neither padding nor fill; None if all."""
    mask, fill = batch.get(MASK_KEY), batch.get(EXAMPLE_FILL_KEY)
    if fill is None:
        return mask
    counted = ~jnp.asarray(fill, bool)
    return counted if mask is None else counted & jnp.asarray(mask, bool)


def _unshared(tree: PyTree) -> PyTree:
    """Return a pytree in new containers, which a function may assign to."""
    return jax.tree.map(lambda leaf: leaf, tree)


def _losses(model: Model, weights: ModelWeights, batch: Batch, rng: Any) -> tuple[jax.Array, TrainOutput, Any]:
    """Return per-example float32 losses, the train output, and mask or None."""
    examples, mask = split_mask(batch)
    with of_model(model.apply_for_train):
        output = model.apply_for_train(_unshared(weights), dict(examples), rng)
    if not isinstance(output, TrainOutput):
        raise InputError(
            f"apply_for_train ({described(model.apply_for_train)}) returned a {type(output).__name__}; expected a "
            "TrainOutput(predictions, non_trainable), as init returns ModelWeights."
        )
    return example_losses(model, examples, output.predictions, mask), output, mask


def example_losses(model: Model, examples: Batch, predictions: PyTree, mask: jax.Array | None = None) -> jax.Array:
    """Return losses (n,) whose mean over real examples is the batch's.

    They are float32 or wider; padding has loss 0.

    Raises:
      InputError: the loss does not return one value for each example.
    """
    with raised_by("train_loss", model.train_loss):
        found = model.train_loss(dict(examples), _unshared(predictions))
        parts = found if isinstance(found, WeightedLosses) else (found,)
        # A sum of losses, or a number of examples, may overflow half precision.
        losses, *weighted = map(as_float, parts)
    count = jnp.shape(next(iter(examples.values())))[0]
    if losses.shape != (count,):
        raise InputError(
            f"train_loss ({described(model.train_loss)}) returned shape {losses.shape} for a batch of {count} "
            f"examples; expected one loss for each example, shape ({count},). Reduce all axes but the first."
        )
    if mask is not None:
        losses, *weighted = (jnp.where(mask, part, 0) for part in (losses, *weighted))
    if not weighted:
        return losses
    total = jnp.sum(weighted[0])
    number = count if mask is None else jnp.sum(mask)
    return losses * (weighted[0] * (number / jnp.where(total > 0, total, 1)).astype(losses.dtype))


def check_predictions(model: Model, weights: ModelWeights, batch: Batch) -> None:
    """Check that a model's first predictions suit its loss.

    A cross entropy of probabilities does not take logits.
    Traced programs see no values, so the entries of training and evaluation call this with their first batch. It runs
    the model once, for such a loss, and does nothing for later batches.

    Raises:
      InputError: the loss does not take the predictions.
    """
    if "_is_checked" in vars(model) or not getattr(model.train_loss, "takes_probabilities", False):
        return
    leaves = jax.tree.leaves((weights, dict(batch)))
    if any(is_traced(leaf) or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        return
    examples = split_mask(batch)[0]
    with of_model(model.apply_for_eval):
        predictions = jax.jit(model.apply_for_eval)(weights, examples)
    model.train_loss.check_predictions(predictions)  # type: ignore[attr-defined]
    if "_has_known_kinds" not in vars(model):
        warn_of_logits(model, prediction_kinds(jax.make_jaxpr(model.apply_for_eval)(weights, examples)))
    vars(model)["_is_checked"] = True


def warn_of_logits(model: Model, kinds: Iterable[Any]) -> None:
    """Warn if a loss of probabilities gets provable logits."""
    vars(model)["_has_known_kinds"] = True
    if getattr(model.train_loss, "takes_probabilities", False) and set(kinds) == {LOGITS}:
        warnings.warn(
            "the loss takes probabilities, as in Keras, and the model ends in a linear layer, which returns logits: "
            "say from_logits=True.",
            stacklevel=3,
        )


def model_per_example_loss(model: Model) -> Callable[[Any, Batch, Any], jax.Array]:
    """Return ``(weights, batch, rng) -> float (n,)``: losses in training mode.

    They are float32 or wider, and 0 for padding. See fedjax.model_per_example_loss.

    Args:
      model: whose loss in training mode is computed.

    Raises:
      InputError: it is not a model.
    """
    model = check_model(model)

    def per_example_loss(weights: Any, batch: Batch, rng: Any) -> jax.Array:
        weights = whole_weights(model, weights)
        check_predictions(model, weights, batch)
        return _losses(model, weights, batch, rng)[0]

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
        weight, each = count.astype(jnp.float32), None
        if example_weight is not None:
            each = jnp.asarray(example_weight({k: v for k, v in batch.items() if k not in _FLAGS}), jnp.float32)
            each = each if mask is None else jnp.where(mask, each, 0)
            weight, losses = jnp.sum(each), losses * each
        total = jnp.sum(losses)
        loss = total / jnp.where(weight > 0, weight, 1).astype(losses.dtype)
        # A batch that is padding alone moves nothing.
        regularization = jnp.where(count > 0, output.regularization, 0)
        minimized = loss
        if total_weight is not None:
            minimized = total / jnp.where(total_weight > 0, total_weight, 1).astype(losses.dtype)
        if EXAMPLE_FILL_KEY in batch:  # the loss that is reported is that of the others
            kept: Any = counted_mask(batch)
            count = jnp.sum(kept, dtype=jnp.int32)
            weights = jnp.where(kept, 1 if each is None else each, 0).astype(losses.dtype)
            loss = jnp.sum(jnp.where(kept, losses, 0)) / jnp.where(jnp.sum(weights) > 0, jnp.sum(weights), 1)
        return minimized + regularization, BatchLoss(loss, count, weight, output.non_trainable, output.predictions)

    def value_and_grad(weights: Any, batch: Batch, rng: Any) -> tuple[BatchLoss, PyTree]:
        weights = whole_weights(model, weights)
        check_predictions(model, weights, batch)
        differentiated = jax.value_and_grad(loss_fn, has_aux=True)
        try:
            (_, aux), grads = differentiated(weights.trainable, weights.non_trainable, batch, rng)
        except (Tf2JaxError, RuntimeError):
            raise
        except Exception:  # client work may pass other weights, for which the model's error blames the data
            if model.rows is None:
                check_weights(model, weights)
            raise
        return aux, grads

    return value_and_grad


def model_grad(model: Model, regularizer: Callable[[Any], Any] | None = None) -> Callable[..., PyTree]:
    """Return ``(params, batch, rng=None) -> gradient`` of the mean loss.

    See fedjax.model_grad. The gradient has the structure of the weights: of `ModelWeights` it has zeros for those that
    are not trained.

    Args:
      model: whose loss in training mode is differentiated.
      regularizer: ``(params) -> scalar`` to add, of the weights as they are given.
    """
    value_and_grad = model_value_and_grad(model)
    add = regularizer or (lambda params: 0.0)

    def grad(params: Any, batch: Batch, rng: Any = None) -> PyTree:
        grads = value_and_grad(params, batch, rng)[1]
        whole = isinstance(params, ModelWeights)
        if regularizer is not None:
            added = jax.grad(lambda p: add(params._replace(trainable=p) if whole else p))
            grads = jax.tree.map(jnp.add, grads, added(params.trainable if whole else params))
        return ModelWeights(grads, jax.tree.map(jnp.zeros_like, params.non_trainable)) if whole else grads

    return grad


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(model: Model, weights: ModelWeights, batch: Batch) -> dict[str, Stat]:
    return evaluate_stats(model, weights, batch)


def evaluate_stats(model: Model, weights: ModelWeights, batch: Batch) -> dict[str, Stat]:
    """Return each metric's statistic, and the mean ``loss``'s, over a batch."""
    examples, mask = split_mask(batch)
    with of_model(model.apply_for_eval):
        predictions = model.apply_for_eval(_unshared(weights), dict(examples))
    stats = {}
    for name, metric in model.eval_metrics.items():
        stats[name] = evaluate_batch(metric, examples, _unshared(predictions), mask)
    if "loss" not in stats:
        losses = example_losses(model, examples, predictions, mask)
        kept = jnp.ones(losses.shape, jnp.int32) if mask is None else mask.astype(jnp.int32)
        stats["loss"] = MeanStat.new(losses, kept).reduce()
    return stats


def evaluate_model(model: Model, weights: Any, batches: Iterable[Batch]) -> dict[str, Any]:
    """Evaluate a model. See fedjax.evaluate_model.

    Args:
      model: the model.
      weights: its `ModelWeights`, or its trainable weights, such as ``state.params``, if no others change in training.
      batches: dicts of arrays, padded (with ``"__mask__"``) or not.

    Returns:
      Name to result for each of ``model.eval_metrics``, and the mean ``loss`` in evaluation mode.

    Raises:
      InputError: there is no batch, or one does not fit the model, or the weights do not.
    """
    model = check_model(model)
    weights = whole_weights(model, weights)
    check_weights(model, weights)
    total: dict[str, Stat] | None = None
    for number, batch in enumerate(batches):
        if not isinstance(batch, Mapping):
            raise InputError(f"evaluate_model: a batch is a dict of arrays, not {type(batch).__name__}")
        check_integers(batch, f"evaluate_model: batch {number}")
        batch = _without_padding(model, native_batch(batch))
        with fitting(batch, f"batch {number}"):
            check_predictions(model, weights, batch)
            stats = _evaluate(model, weights, dict(batch))
        total = stats if total is None else {name: total[name].merge(stat) for name, stat in stats.items()}
    if total is None:
        raise InputError("evaluate_model: there are no batches")
    return {name: stat.result() for name, stat in total.items()}


def _without_padding(model: Model, batch: Batch) -> Batch:
    """Return a batch without padding if its examples act on each other."""
    mask = batch.get(MASK_KEY)
    if mask is None or not getattr(mask, "is_fully_addressable", True) or np.all(mask):
        return batch
    if not examples_interact(model, batch, training=False):
        return batch
    kept = np.asarray(mask, bool)
    return {name: np.asarray(value)[kept] for name, value in batch.items() if name != MASK_KEY} if kept.any() else batch


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
        check_integers(batch, f"evaluate_average_loss: batch {i}")
        stat = step(weights, native_batch(batch), jax.random.fold_in(rng, i))
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


def with_cpu_rules(model: Model, backend: str | None = None) -> Model:
    """Return the model with `xla_cpu.optimize` in both modes on a CPU backend.

    Args:
      model: the model.
      backend: ``"cpu"``, or another; JAX's default backend if None.
    """
    if (backend or jax.default_backend()) != "cpu":
        return model
    return dataclasses.replace(
        model, apply_for_train=_optimized(model.apply_for_train), apply_for_eval=_optimized(model.apply_for_eval)
    )


def _optimized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``optimize(function)`` that is the function while jit is disabled."""
    faster = optimize(function)

    @functools.wraps(faster)
    def call(*args: Any) -> Any:
        return (function if jax.config.jax_disable_jit else faster)(*args)

    return call


def gradient_step(
    value_and_grad: Callable[[ModelWeights, Mapping[str, Any], Any], tuple[BatchLoss, PyTree]],
    optimizer: optax.GradientTransformation,
    weights: ModelWeights,
    optimizer_state: PyTree,
    batch: Mapping[str, Any],
    key: Any,
    adjust: Callable[[PyTree], PyTree] | None = None,
) -> tuple[ModelWeights, PyTree, BatchLoss]:
    """Update weights by the gradient of one batch.

    Args:
      value_and_grad: as `model_value_and_grad` returns it.
      optimizer: the optimizer.
      weights: the weights before the step.
      optimizer_state: the optimizer's state before the step.
      batch: dict of arrays (n, ...).
      key: a JAX key for the model's random numbers.
      adjust: ``(gradient) -> gradient``, of terms that depend on the weights alone.

    Returns:
      The weights, the optimizer's state, and the batch's `BatchLoss`.
    """
    found, grads = value_and_grad(weights, batch, key)
    if adjust is not None:
        grads = adjust(grads)
    updates, optimizer_state = optimizer.update(grads, optimizer_state, weights.trainable)
    trainable = optax.apply_updates(weights.trainable, updates)
    return ModelWeights(trainable, found.non_trainable), optimizer_state, found
