"""Per-FedAvg: weights that a step on a client's own examples personalizes.

Source: Fallah et al. 2020, "Personalized Federated Learning: A Meta-Learning Approach".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import MeanFactory
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import (
    ClientOptimizer,
    ClientWeighting,
    ValueAndGrad,
    build_model_delta_client_work,
)
from tf2jax_lite.federated.compose import LearningState, build_apply_optimizer_finalizer, compose_learning_process
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data import EXAMPLE_MASK_KEY
from tf2jax_lite.learning.model import BatchLoss, Model
from tf2jax_lite.learning.process import LearningProcess, ModelWeights, PyTree


def _halves(batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Return the even and the odd examples, and whether they are the same one.

    A single example is both halves. Padding is behind the examples.
    """
    count, mask = np.shape(next(iter(batch.values())))[0], batch.get(EXAMPLE_MASK_KEY)
    if count == 1:
        return dict(batch), dict(batch), jnp.bool_(True)
    alone = jnp.bool_(False) if mask is None else ~jnp.asarray(mask)[1]
    odd = jnp.where(alone, 0, np.arange(1, count, 2))
    even = np.arange(0, count, 2)
    return *({n: jnp.take(v, rows, axis=0) for n, v in batch.items()} for rows in (even, odd)), alone


def _meta_gradient(value_and_grad: ValueAndGrad, rate: float, first_order: bool) -> ValueAndGrad:
    """Return the gradient of the loss after a step of SGD of that rate."""

    def meta(weights: ModelWeights, batch: Mapping[str, Any], key: Any) -> tuple[BatchLoss, PyTree]:
        first, second, alone = _halves(batch)
        keys = jax.random.split(key)

        def inner(trainable: PyTree) -> tuple[PyTree, BatchLoss]:
            found, grads = value_and_grad(weights._replace(trainable=trainable), first, keys[0])
            return grads, found

        def stepped(tree: PyTree, direction: PyTree) -> PyTree:
            return optax.apply_updates(tree, jax.tree.map(lambda d: -rate * d, direction))

        if first_order:
            grads, before = inner(weights.trainable)
        else:
            grads, product, before = jax.vjp(inner, weights.trainable, has_aux=True)
        personal = ModelWeights(stepped(weights.trainable, grads), before.non_trainable)
        after, outer = value_and_grad(personal, second, keys[1])
        if not first_order:
            outer = stepped(outer, product(outer)[0])  # the Hessian is symmetric: its product from either side
        return after._replace(
            loss=jnp.where(after.num_examples > 0, after.loss, before.loss),
            num_examples=before.num_examples + jnp.where(alone, 0, after.num_examples),
            weight=before.weight + jnp.where(alone, 0, after.weight),
        ), outer

    return meta


@takes_tff_keywords
def build_per_fed_avg(
    model: Model,
    personal_learning_rate: float,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    first_order: bool = False,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    aggregator: Any = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build Per-FedAvg: federated averaging of the loss after a personal step.

    On each batch a client takes a trial step v = w - alpha * g(w) on the batch's even examples, and moves w by the
    gradient of the loss at v on its odd ones, (I - alpha * H(w)) g(v), where H is the Hessian on the even examples.

    Args:
      model: the model.
      personal_learning_rate: alpha, above 0.
      client_optimizer: of w, see `build_weighted_fed_avg`.
      server_optimizer: see `build_weighted_fed_avg`.
      first_order: leave H out: the paper's Per-FedAvg (FO), without a second differentiation of the model.
      client_weighting: ``"num_examples"`` or ``"uniform"``.
      aggregator: the weighted mean by default.
      **options: see `compose_learning_process`.

    Returns:
      The process. The loss in its metrics is that at v. `build_personalization_eval` evaluates clients after personal
      steps, with ``build_model_delta_client_work(model, optax.sgd(personal_learning_rate))``.

    Raises:
      InputError: an option does not fit.
    """
    check_number("build_per_fed_avg", "personal_learning_rate", personal_learning_rate, above=0)
    rate = float(personal_learning_rate)
    work = build_model_delta_client_work(
        model,
        client_optimizer,
        client_weighting=client_weighting,
        gradient=lambda value_and_grad: _meta_gradient(value_and_grad, rate, first_order),
    )
    return compose_learning_process(
        model,
        client_work=work,
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0)),
        **options,
    )
