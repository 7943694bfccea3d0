"""FedDyn: clients' losses with terms that follow the training.

Source: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import UnweightedMeanFactory
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import (
    ClientOptimizer,
    ClientResult,
    ClientWork,
    build_model_delta_client_work,
    optimizer_of,
)
from tf2jax_lite.federated.compose import Cohorts, Composition, Counted, Finalizer, LearningState
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, check_model
from tf2jax_lite.learning.process import LearningProcess, MeasuredProcessOutput, ModelWeights, PyTree
from tf2jax_lite.learning.states import ByClient


class _Carry(NamedTuple):
    inner: Any
    gradient: PyTree


def _client_work(
    model: Model, alpha: float, optimizer: ClientOptimizer, train_metrics: Mapping[str, Metric] | None
) -> ClientWork:
    def work(gradient: PyTree) -> ClientWork:
        def shifted(round_number: Any) -> optax.GradientTransformation:
            shift = optax.stateless(lambda grads, _: jax.tree.map(lambda g, h: g - h, grads, gradient))
            return optax.chain(shift, optimizer_of(optimizer, round_number))

        return build_model_delta_client_work(
            model, shifted, client_weighting="uniform", proximal_strength=alpha, train_metrics=train_metrics
        )

    def client_init(state: Any, message: ModelWeights, key: Any, gradient: PyTree) -> _Carry:
        gradient = jax.tree.map(jnp.asarray, gradient)
        return _Carry(work(gradient).client_init(state, message, key, None), gradient)

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        return carry._replace(inner=work(carry.gradient).client_step(state, message, carry.inner, batch))

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        found = work(carry.gradient).client_final(state, message, carry.inner)
        return found._replace(output=jax.tree.map(lambda g, d: g + alpha * d, carry.gradient, found.update))

    outer = work(None)
    return ClientWork(outer.initialize, client_init, client_step, client_final, outer.advance, outer.pads_batches)


@takes_tff_keywords
def build_fed_dyn(
    model: Model,
    num_clients: int,
    alpha: float,
    client_optimizer: ClientOptimizer,
    *,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    client_diagnostics: bool = False,
    **cohorts: Any,
) -> LearningProcess[LearningState]:
    """Build FedDyn.

    Client i steps along the gradient of its loss, less g_i, plus alpha * (y - x), and then
    g_i <- g_i - alpha * (y - x). The server: h <- h - alpha * |S|/N * mean(y - x), and x <- mean(y) - h / alpha.

    Args:
      model: the model.
      num_clients: N, how many clients there are in all.
      alpha: above 0; the paper's are 0.01 to 0.1.
      client_optimizer: see `build_weighted_fed_avg`.
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: of the changes; the unweighted mean by default.
      client_diagnostics: see `compose_learning_process`.
      **cohorts: ``client_batching``, ``client_execution``, ``clients_per_chunk`` and ``mesh`` of
        `compose_learning_process`.

    Returns:
      The process. Every client needs an id; its g_i is in the state's ``clients``, and h is the state's ``finalizer``,
      both float32 or wider.

    Raises:
      InputError: an option is out of range; clients without ids, or one twice.
    """
    check_number("build_fed_dyn", "num_clients", num_clients, least=1, whole=True)
    check_number("build_fed_dyn", "alpha", alpha, above=0)
    rate, model = float(alpha), check_model(model)
    template = model.shapes.trainable
    none = jax.tree.map(lambda t: np.zeros(t.shape, jnp.promote_types(t.dtype, jnp.float32)), template)

    def finalize(state: PyTree, weights: ModelWeights, found: Counted) -> MeasuredProcessOutput:
        share = found.clients.astype(jnp.float32) / num_clients
        state = jax.tree.map(lambda h, d: h + rate * share * d, state, found.aggregate)

        def moved(x: Any, d: Any, h: Any) -> Any:
            return jnp.where(share > 0, x - d - h / rate, x).astype(x.dtype)

        new = jax.tree.map(moved, weights.trainable, found.aggregate, state)
        return MeasuredProcessOutput(state, weights._replace(trainable=new), {})

    return Composition(
        "build_fed_dyn",
        model,
        _client_work(model, rate, client_optimizer, check_metrics("build_fed_dyn", "train_metrics", train_metrics)),
        UnweightedMeanFactory() if aggregator is None else aggregator,
        Finalizer(lambda weights: jax.tree.map(jnp.asarray, none), finalize),
        client_states=ByClient(none),
        client_diagnostics=client_diagnostics,
        cohorts=Cohorts.of(**cohorts),
        counts_clients=True,
    ).process()
