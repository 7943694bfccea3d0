"""Federated k-means.

Source: tff.learning.algorithms.build_fed_kmeans; mini-batch k-means of Sculley 2010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators import SumFactory
from tf2jax_lite.federated.aggregators.base import as_aggregator
from tf2jax_lite.federated.aggregators.privacy import aggregation_key
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.compose import check_state, keep_finite, round_keys
from tf2jax_lite.federated.execution import CohortRunner, Execution
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Batching, as_entries, cohort_of
from tf2jax_lite.learning.checks import check_key, check_number
from tf2jax_lite.learning.metrics import MASK_KEY
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights, round_metrics
from tf2jax_lite.support.errors import InputError


class KMeansState(NamedTuple):
    """The server's state.

    Attributes:
      round: int32 scalar, rounds done.
      key: the JAX key.
      centroids: float32 (clusters, *data_shape).
      weights: float32 (clusters,), how many points each centroid stands for.
      aggregator: the aggregator's state.
    """

    round: Any
    key: Any
    centroids: Any
    weights: Any
    aggregator: Any


def _work(data_key: str) -> ClientWork:
    def client_init(state: Any, message: Any, key: Any, client_input: Any) -> Any:
        return {"sums": jnp.zeros_like(message), "counts": jnp.zeros(message.shape[0]), "distance": jnp.float32(0)}

    def client_step(state: Any, message: Any, carry: Any, batch: Mapping[str, Any]) -> Any:
        if data_key not in batch:
            raise InputError(
                f"build_fed_kmeans: a batch has no {data_key!r} (data_key); it has {sorted(batch.keys() - {MASK_KEY})}"
            )
        points = jnp.asarray(batch[data_key]).astype(message.dtype)
        if points.shape[1:] != message.shape[1:]:
            raise InputError(
                f"build_fed_kmeans: points have shape {points.shape[1:]}, and data_shape is {message.shape[1:]}"
            )
        flat, centers = points.reshape(points.shape[0], -1), message.reshape(message.shape[0], -1)
        distances = jnp.sum(jnp.square(flat[:, None] - centers[None]), axis=-1)
        mask = jnp.asarray(batch.get(MASK_KEY, jnp.ones(points.shape[0], bool)))
        hot = jax.nn.one_hot(jnp.argmin(distances, axis=1), message.shape[0]) * mask[:, None]
        return {
            "sums": carry["sums"] + jnp.tensordot(hot, points, axes=(0, 0)),
            "counts": carry["counts"] + jnp.sum(hot, axis=0),
            "distance": carry["distance"] + jnp.sum(jnp.where(mask, jnp.min(distances, axis=1), 0)),
        }

    def client_final(state: Any, message: Any, carry: Any) -> ClientResult:
        measured = {"distance": carry["distance"], "num_examples": jnp.sum(carry["counts"])}
        return ClientResult({k: carry[k] for k in ("sums", "counts")}, jnp.float32(1), [], measured)

    return ClientWork(lambda: (), client_init, client_step, client_final, drops_fill=True)


def build_fed_kmeans(
    num_clusters: int,
    data_shape: Sequence[int],
    *,
    data_key: str = "x",
    aggregator: Any = None,
    client_batching: Batching | None = None,
    client_execution: Execution = "auto",
    clients_per_chunk: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> LearningProcess[KMeansState]:
    """Build federated k-means.

    Clients send the sum and the number of the points nearest to each centroid. centroid <- (weight * centroid + sum) /
    (weight + number), and weight <- weight + number; weights start at 1. Where the new weight is not above 0 (noise of
    an aggregator, say), the centroid stays.

    Args:
      num_clusters: how many centroids.
      data_shape: the shape of one point.
      data_key: the batch's key of the points.
      aggregator: of ``{"sums", "counts"}``; their sum by default.
      client_batching: see `compose_learning_process`.
      client_execution: see `compose_learning_process`.
      clients_per_chunk: see `compose_learning_process`.
      mesh: see `compose_learning_process`.

    Returns:
      The process. ``initialize(key, params=centroids)``; without params centroids are drawn uniformly from [0, 1).
      Params, and the argument of ``set_model_weights``, are centroids ``(clusters, *data_shape)``, whose weights are
      then 1, or ``ModelWeights(centroids, weights)`` as ``get_model_weights`` returns them.

    Raises:
      InputError: an option out of range; centroids or weights are not numeric, or have another shape.
    """
    check_number("build_fed_kmeans", "num_clusters", num_clusters, least=1, whole=True)
    if not isinstance(data_shape, tuple | list):
        raise InputError(f"build_fed_kmeans: data_shape is a tuple of sizes, as in (28, 28); not {data_shape!r}")
    for size in data_shape:
        check_number("build_fed_kmeans", "each size of data_shape", size, least=1, whole=True)
    shape = (num_clusters, *data_shape)
    sums = jax.ShapeDtypeStruct(shape, jnp.float32)
    template = {"sums": sums, "counts": jax.ShapeDtypeStruct((num_clusters,), jnp.float32)}
    aggregation = as_aggregator(aggregator or SumFactory(), template)
    runner = CohortRunner(_work(data_key), aggregation, client_execution, clients_per_chunk, mesh)

    def given(params: Any) -> ModelWeights:
        pair = params if isinstance(params, ModelWeights) else ModelWeights(params, np.ones(num_clusters, np.float32))
        return ModelWeights(
            _array("centroids", pair.trainable, shape), _array("weights", pair.non_trainable, shape[:1])
        )

    def initialize(key: Any = None, *, params: Any = None) -> KMeansState:
        key = jax.random.key(0) if key is None else key
        check_key(key)
        start = given(jax.random.uniform(key, shape) if params is None else params)
        return KMeansState(jnp.int32(0), key, start.trainable, start.non_trainable, aggregation.initialize())

    def next_fn(state: KMeansState, client_data: Sequence[Any]) -> LearningProcessOutput:
        check_state(state, KMeansState)
        keys = round_keys(state.key, state.round)
        key = aggregation_key(aggregation, keys.aggregator)
        context = Context((), state.aggregator, state.centroids, keys.clients, key)
        result = runner.run(context, cohort_of(as_entries(client_data), client_batching, state.key, int(state.round)))
        found = aggregation.report(state.aggregator, result.total.aggregate, key)
        weights = state.weights + found.result["counts"]

        def column(values: Any) -> Any:
            return jnp.reshape(values, (num_clusters,) + (1,) * len(data_shape))

        some = weights > 0
        moved = (state.centroids * column(state.weights) + found.result["sums"]) / column(jnp.where(some, weights, 1))
        moved = jnp.where(column(some), moved, state.centroids)
        kept, refused = keep_finite((state.centroids, state.weights, state.aggregator), (moved, weights, found.state))
        new = KMeansState(state.round + 1, state.key, *kept)
        metrics = {
            "client_work": {"train": result.total.measurements},
            "aggregator": found.measurements,
            "clients": result.counts | {"round_refused": refused},
        }
        return LearningProcessOutput(new, round_metrics(aggregation, metrics, result.refused))

    def set_model_weights(state: KMeansState, weights: Any) -> KMeansState:
        check_state(state, KMeansState)
        new = given(weights)
        return state._replace(centroids=new.trainable, weights=new.non_trainable)

    return LearningProcess(
        initialize,
        next_fn,
        lambda state: ModelWeights(state.centroids, state.weights),
        set_model_weights,
        guarantees=aggregation.guarantees,
    )


def _array(name: str, value: Any, shape: tuple[int, ...]) -> jax.Array:
    try:
        array = np.asarray(value)
        if array.shape == shape and jnp.issubdtype(array.dtype, jnp.number):
            return jnp.array(array, jnp.float32)
        found = f"{array.dtype}{list(array.shape)}"
    except (TypeError, ValueError) as error:  # rows of different lengths, JAX keys
        found = f"{type(value).__name__} ({error})"
    raise InputError(f"build_fed_kmeans: {name} are numbers of shape {list(shape)}, not {found}")
