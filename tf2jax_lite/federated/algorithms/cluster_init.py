"""Initial clusters of HypCluster.

Source: fedjax.algorithms.hyp_cluster.kmeans_init, a variant of k-means++.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import SumFactory
from tf2jax_lite.federated.client_work import ClientResult, ClientWork, build_model_delta_client_work
from tf2jax_lite.federated.compose import apply_non_trainable, initial_weights, reusable, round_keys
from tf2jax_lite.federated.execution import CohortRunner
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Batching, as_entries, cohort_of
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data import BatchHParams
from tf2jax_lite.learning.model import Model, check_model, evaluate_stats, pads_batches
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError


def loss_work(model: Model, clusters: bool = False) -> ClientWork:
    """Return the work whose output is the mean loss in evaluation mode.

    The weights are the message, or the client's own input. With ``clusters`` the message is the stacked weights of
    several models, and the output has shape (models,).
    """
    bare = dataclasses.replace(check_model(model), eval_metrics={})

    def stats(weights: PyTree, batch: Mapping[str, Any]) -> Any:
        return evaluate_stats(bare, weights, batch)["loss"]

    def client_init(state: Any, message: PyTree, key: Any, client_input: Any) -> Any:
        shape = (jax.tree.leaves(message)[0].shape[0],) if clusters else ()
        return {"loss": jnp.zeros(shape), "count": jnp.float32(0), "own": client_input}

    def client_step(state: Any, message: PyTree, carry: Any, batch: Mapping[str, Any]) -> Any:
        weights = message if carry["own"] is None else carry["own"]
        if clusters:  # sequential: functions of artifacts cannot be batched
            each = [stats(jax.tree.map(lambda w, k=k: w[k], weights), batch) for k in range(carry["loss"].shape[0])]
            found = jax.tree.map(lambda *values: jnp.stack(values), *each)
        else:
            found = stats(weights, batch)
        count = jnp.ravel(found.weight)[0].astype(jnp.float32)
        return {**carry, "loss": carry["loss"] + found.accum, "count": carry["count"] + count}

    def client_final(state: Any, message: PyTree, carry: Any) -> ClientResult:
        return ClientResult((), jnp.float32(1), [], {}, carry["loss"] / jnp.maximum(carry["count"], 1))

    pads = pads_batches(bare, training=False)
    return ClientWork(lambda: (), client_init, client_step, client_final, pads_batches=pads, drops_fill=True)


def _trained(work: ClientWork) -> ClientWork:
    """Return a work whose output is each client's update, without aggregation."""

    def client_final(state: Any, message: PyTree, carry: Any) -> ClientResult:
        result = work.client_final(state, message, carry)
        return ClientResult((), jnp.float32(1), [], {}, (result.update, result.non_trainable))

    return dataclasses.replace(work, client_final=client_final)


def kmeans_init(
    model: Model,
    num_clusters: int,
    clients: Sequence[Any],
    client_optimizer: Any,
    *,
    client_batching: Batching | None = None,
    params: Any = None,
    key: Any = None,
) -> list[ModelWeights]:
    """Choose the initial clusters of `build_hyp_cluster`.

    They are the weights of clients that are far from each other. Each client trains from the same weights. The first
    cluster begins as a client drawn by the key; each further one as the client whose loss, under the nearest cluster so
    far, exceeds that under its own weights by most. A pretrained model needs this: equal clusters stay equal.

    Args:
      model: the model.
      num_clusters: how many sets of weights.
      clients: as for ``next`` of a training process; those without data, or whose training ends in NaN, are left out.
      client_optimizer: an optax transformation.
      client_batching: see `compose_learning_process`.
      params: the weights that clients train from: the model's own by default.
      key: a JAX key, 0 by default: of the first choice, shuffling, and the model's random numbers.

    Returns:
      The weights, for ``initialize(params=...)``.

    Raises:
      InputError: there are fewer usable clients than clusters.
    """
    model = check_model(model)
    check_number("kmeans_init", "num_clusters", num_clusters, least=1, whole=True)
    key = jax.random.key(0) if key is None else key
    entries = reusable(as_entries(clients))
    if len(entries) < num_clusters:  # before anything is trained
        raise InputError(f"kmeans_init: {num_clusters} clusters need as many usable clients; there are {len(entries)}")
    start = initial_weights(model, key, params)
    nothing = SumFactory().create(())
    keys = round_keys(key, jnp.int32(0))

    def context(work: ClientWork, message: PyTree) -> Context:
        return Context(work.initialize(), nothing.initialize(), message, keys.clients, keys.aggregator)

    training = _trained(build_model_delta_client_work(model, client_optimizer))
    cohort = cohort_of(entries, client_batching, key, 0)
    changes = CohortRunner(training, nothing).run(context(training, start), cohort).outputs
    changes = {i: c for i, c in sorted(changes.items()) if all(np.isfinite(x).all() for x in jax.tree.leaves(c))}
    if len(changes) < num_clusters:
        raise InputError(f"kmeans_init: {num_clusters} clusters need as many usable clients; there are {len(changes)}")

    def moved(change: Any) -> ModelWeights:
        trainable = optax.tree.sub(start.trainable, change[0])
        return apply_non_trainable(model, start._replace(trainable=trainable), change[1], jnp.float32(1))

    candidates = [moved(change) for change in changes.values()]
    evaluation = None if client_batching is None else BatchHParams(client_batching.batch_size)
    measuring = loss_work(model)
    runner = CohortRunner(measuring, nothing)

    def losses(message: ModelWeights, own: Sequence[ModelWeights] | None = None) -> np.ndarray:
        here = cohort_of([entries[i] for i in changes], evaluation, key, 0, own)
        found = runner.run(context(measuring, message), here).outputs
        return np.array([found[i] for i in range(len(changes))], np.float64)

    best = losses(start, candidates)
    chosen = [int(jax.random.randint(jax.random.fold_in(key, num_clusters), (), 0, len(candidates)))]
    nearest = losses(candidates[chosen[0]])
    while len(chosen) < num_clusters:
        regret = np.nan_to_num(nearest - best, nan=-np.inf)
        regret[chosen] = -np.inf
        chosen.append(int(np.argmax(regret)))
        nearest = np.fmin(nearest, losses(candidates[chosen[-1]]))
    return [candidates[i] for i in chosen]
