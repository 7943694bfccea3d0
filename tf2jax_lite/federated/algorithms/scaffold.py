"""SCAFFOLD: control variates take the clients' drift out of their steps.

Source: Karimireddy et al. 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import UnweightedMeanFactory
from tf2jax_lite.federated.client_work import ClientResult, ClientWork, build_model_delta_client_work
from tf2jax_lite.federated.compose import Cohorts, Composition, Counted, Finalizer, LearningState
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import check_metrics
from tf2jax_lite.learning.model import Model, check_model
from tf2jax_lite.learning.process import LearningProcess, MeasuredProcessOutput, ModelWeights, PyTree
from tf2jax_lite.learning.states import ByClient


class _Message(NamedTuple):
    weights: ModelWeights
    control: PyTree


class _Carry(NamedTuple):
    inner: Any
    control: PyTree


def _client_work(model: Model, learning_rate: float, train_metrics: Mapping[str, Any] | None) -> ClientWork:
    def work(correction: PyTree) -> ClientWork:
        shift = optax.stateless(lambda grads, _: jax.tree.map(jnp.add, grads, correction))
        sgd = optax.chain(shift, optax.sgd(learning_rate))
        return build_model_delta_client_work(model, sgd, client_weighting="uniform", train_metrics=train_metrics)

    def client_init(state: Any, message: _Message, key: Any, control: PyTree) -> _Carry:
        control = jax.tree.map(jnp.asarray, control)
        return _Carry(work(message.control).client_init(state, message.weights, key, None), control)

    def client_step(state: Any, message: _Message, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        correction = optax.tree.sub(message.control, carry.control)
        inner = work(correction).client_step(state, message.weights, carry.inner, batch)
        return carry._replace(inner=inner)

    def client_final(state: Any, message: _Message, carry: _Carry) -> ClientResult:
        found = work(message.control).client_final(state, message.weights, carry.inner)
        steps = jnp.maximum(carry.inner.step, 1).astype(jnp.float32)
        # Option II of the paper: c_i <- c_i - c + (x - y_i) / (K * lr).
        control = jax.tree.map(
            lambda own, server, update: own - server + update / (steps * learning_rate),
            carry.control,
            message.control,
            found.update,
        )
        update = {"weights": found.update, "control": optax.tree.sub(carry.control, control)}
        return found._replace(update=update, output=control)

    outer = work(None)
    functions = (outer.initialize, client_init, client_step, client_final, outer.advance)
    return ClientWork(*functions, outer.pads_batches, weights_of=lambda update: update["weights"])


def build_scaffold(
    model: Model,
    num_clients: int,
    client_learning_rate: float,
    *,
    server_learning_rate: float = 1.0,
    train_metrics: Mapping[str, Any] | None = None,
    aggregator: Any = None,
    client_diagnostics: bool = False,
    **cohorts: Any,
) -> LearningProcess[LearningState]:
    """Build SCAFFOLD, with the paper's option II for control variates.

    Clients step y <- y - lr * (g(y) - c_i + c); the server x <- x + server_lr * mean(y_i - x) and
    c <- c + |S|/N * mean(change of c_i). Every client counts the same.

    Args:
      model: the model.
      num_clients: N, how many clients there are in all.
      client_learning_rate: lr of the clients' SGD.
      server_learning_rate: of the server.
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: of ``{"weights": ..., "control": ...}``, both initial minus final; the unweighted mean by default.
      client_diagnostics: see `compose_learning_process`.
      **cohorts: ``client_batching``, ``client_execution``, ``clients_per_chunk`` and ``mesh`` of
        `compose_learning_process`.

    Returns:
      The process. ``client_data`` is a list of pairs ``(client id, data)`` or a sampler's triples: a client's control
      variate is kept under its id in the state's ``clients``, on the host. A client whose update is not finite keeps
      the one it had. The state's ``finalizer`` is the server's control variate c. Control variates are float32 or
      wider, as the means of gradients that they are round away in half precision.

    Raises:
      InputError: an option out of range; clients without ids, or one twice.
    """
    check_number("build_scaffold", "num_clients", num_clients, least=1, whole=True)
    check_number("build_scaffold", "client_learning_rate", client_learning_rate, above=0)
    check_number("build_scaffold", "server_learning_rate", server_learning_rate, above=0)
    # Numbers of NumPy's would widen bfloat16.
    client_rate, server_rate = float(client_learning_rate), float(server_learning_rate)
    model = check_model(model)
    template = model.shapes.trainable
    controls = jax.tree.map(lambda t: jax.ShapeDtypeStruct(t.shape, jnp.promote_types(t.dtype, jnp.float32)), template)
    none = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), controls)

    def finalize(control: PyTree, weights: ModelWeights, found: Counted) -> MeasuredProcessOutput:
        share = found.clients.astype(jnp.float32) / num_clients
        step = jax.tree.map(lambda w, u: w - server_rate * u, weights.trainable, found.aggregate["weights"])
        control = jax.tree.map(lambda c, d: c - share * d, control, found.aggregate["control"])
        return MeasuredProcessOutput(control, weights._replace(trainable=step), {})

    return Composition(
        "build_scaffold",
        model,
        _client_work(model, client_rate, check_metrics("build_scaffold", "train_metrics", train_metrics)),
        aggregator or UnweightedMeanFactory(),
        Finalizer(lambda weights: jax.tree.map(jnp.asarray, none), finalize),
        client_states=ByClient(none),
        client_diagnostics=client_diagnostics,
        cohorts=Cohorts.of(**cohorts),
        update_form={"weights": template, "control": controls},
        message=_Message,
        counts_clients=True,
    ).process()
