"""The jitted training step.

`learning.model.gradient_step` updates the weights, as it does for federated clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

from tf2jax_lite.learning.model import BatchLoss, Model, gradient_step, model_value_and_grad
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.learning.states import placed

from .exports import expanded
from .options import StepOptions
from .precision import float32_predictions, in_bfloat16
from .remat import rematerialized
from .sharding import DATA_AXIS, Placement

ValueAndGrad = Callable[[ModelWeights, Mapping[str, Any], Any], tuple[BatchLoss, PyTree]]


class FinetuneState(NamedTuple):
    """State of a training between steps.

    Attributes:
      weights: the model's `ModelWeights`.
      optimizer: the optimizer's state.
      loss_sum: float32 scalar, the sum of losses of the epoch's examples so far.
      num_examples: int32 scalar, their number.
      average: the moving average of the trainable weights; None without one.
    """

    weights: ModelWeights
    optimizer: Any
    loss_sum: Any
    num_examples: Any
    average: Any = None


def initial_state(
    weights: ModelWeights,
    optimizer: optax.GradientTransformation,
    options: StepOptions,
    placement: Placement | None = None,
) -> FinetuneState:
    """Return the state before the first step.

    The weights are copied: a step donates its state.

    Args:
      weights: initial weights.
      optimizer: the optimizer.
      options: how steps compute.
      placement: where arrays are; the default device if None.
    """

    def start(weights: ModelWeights) -> FinetuneState:
        average = None if options.ema_decay is None else weights.trainable
        zero = jnp.zeros(()), jnp.zeros((), jnp.int32)
        return FinetuneState(weights, optimizer.init(weights.trainable), *zero, average)

    if placement is None:
        return jax.tree.map(jnp.array, start(jax.tree.map(jnp.asarray, weights)))
    shardings = state_shardings(weights, optimizer, options, placement)
    return jax.jit(start, out_shardings=shardings)(placed(jax.device_get(weights), shardings.weights))


def state_shardings(
    weights: ModelWeights, optimizer: optax.GradientTransformation, options: StepOptions, placement: Placement
) -> FinetuneState:
    """Return the sharding of each array of a state; see `initial_state`."""
    found = placement.weight_shardings(weights)
    return FinetuneState(
        found,
        placement.optimizer_shardings(optimizer, weights.trainable, found.trainable),
        placement.replicated,
        placement.replicated,
        None if options.ema_decay is None else found.trainable,
    )


def make_step(
    model: Model,
    optimizer: optax.GradientTransformation,
    options: StepOptions,
    placement: Placement | None = None,
    shardings: FinetuneState | None = None,
) -> Callable[..., FinetuneState]:
    """Return the jitted training step ``(state, batch, key, number) -> state``.

    The state is donated: its memory is that of the next state.

    Args:
      model: the model.
      optimizer: the optimizer.
      options: how a step computes.
      placement: where arrays are.
      shardings: of the state, with a placement; see `state_shardings`.
    """
    if options.remat:
        model = rematerialized(model)
    if options.precision == "bf16":
        value_and_grad = in_bfloat16(model_value_and_grad(float32_predictions(model)))
    else:
        value_and_grad = model_value_and_grad(model)
    if placement is not None:
        value_and_grad = expanded(value_and_grad)
    value_and_grad = _gathering(value_and_grad, placement, shardings)
    value_and_grad = _accumulating(value_and_grad, options.microbatches, placement)

    def step(state: FinetuneState, batch: Mapping[str, Any], key: Any, number: Any) -> FinetuneState:
        weights, optimizer_state, found = gradient_step(
            value_and_grad, optimizer, state.weights, state.optimizer, batch, jax.random.fold_in(key, number)
        )
        average = state.average
        if options.ema_decay is not None:
            average = optax.incremental_update(weights.trainable, average, 1 - options.ema_decay)
        total = state.loss_sum + found.loss * found.num_examples
        return FinetuneState(weights, optimizer_state, total, state.num_examples + found.num_examples, average)

    keywords: dict[str, Any] = {} if shardings is None else {"out_shardings": shardings}
    return jax.jit(step, donate_argnums=0, **keywords)


def _gathering(
    value_and_grad: ValueAndGrad, placement: Placement | None, shardings: FinetuneState | None
) -> ValueAndGrad:
    """Return a gradient that gathers fully sharded weights, and is scattered."""
    if placement is None or shardings is None:
        return value_and_grad
    wanted = shardings.weights

    def gathered(weights: ModelWeights, batch: Mapping[str, Any], key: Any) -> tuple[BatchLoss, PyTree]:
        found, grads = value_and_grad(placement.gathered(weights, wanted), batch, key)
        return found, jax.lax.with_sharding_constraint(grads, wanted.trainable)

    return gathered


def _accumulating(value_and_grad: ValueAndGrad, microbatches: int, placement: Placement | None) -> ValueAndGrad:
    """Return a gradient that is computed part by part.

    Its memory is that of one part.

    A part has every ``microbatches``-th example: on a mesh, each device then has its share of each part. Examples that
    the number of parts does not divide are a part of their own. Statistics of batch normalization are those of parts.
    """
    if microbatches == 1:
        return value_and_grad

    def accumulated(weights: ModelWeights, batch: Mapping[str, Any], key: Any) -> tuple[BatchLoss, PyTree]:
        size = jnp.shape(next(iter(batch.values())))[0]
        whole = size - size % microbatches
        sizes = [(part, n) for part, n in (((0, whole), microbatches), ((whole, size), 1)) if part[1] > part[0]]

        def one(carry: Any, part: tuple[Any, Any]) -> tuple[Any, None]:
            non_trainable, loss, count, weight, total = carry
            examples, number = part
            found, grads = value_and_grad(
                ModelWeights(weights.trainable, non_trainable), examples, jax.random.fold_in(key, number)
            )
            total = jax.tree.map(lambda t, g: t + g.astype(t.dtype) * found.weight.astype(t.dtype), total, grads)
            return (
                found.non_trainable,
                loss + found.loss * found.num_examples,
                count + found.num_examples,
                weight + found.weight,
                total,
            ), None

        zeros = jax.tree.map(
            lambda w: jnp.zeros(jnp.shape(w), jnp.promote_types(w.dtype, jnp.float32)), weights.trainable
        )
        carry = (weights.non_trainable, jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.zeros(()), zeros)
        first = 0
        for (begin, end), parts in sizes:
            split = {name: _split(value[begin:end], parts, placement) for name, value in batch.items()}
            carry, _ = jax.lax.scan(one, carry, (split, first + jnp.arange(parts)))
            first += parts
        non_trainable, loss, count, weight, total = carry
        grads = jax.tree.map(lambda t, w: (t / weight.astype(t.dtype)).astype(w.dtype), total, weights.trainable)
        return BatchLoss(loss / count, count, weight, non_trainable, ()), grads

    return accumulated


def _split(value: Any, parts: int, placement: Placement | None) -> Any:
    """Return an array (n, ...) as (parts, n / parts, ...).

    Each part is sharded over the data axis if that divides it.
    """
    size = value.shape[0] // parts
    found = jnp.swapaxes(jnp.reshape(value, (size, parts, *value.shape[1:])), 0, 1)
    if placement is None:
        return found
    divisible = size % placement.mesh.shape[DATA_AXIS] == 0
    spec = PartitionSpec(None, DATA_AXIS) if divisible else PartitionSpec()
    return jax.lax.with_sharding_constraint(found, NamedSharding(placement.mesh, spec))
