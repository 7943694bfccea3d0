"""Federated k-means.

Source: tff.learning.algorithms.build_fed_kmeans; mini-batch k-means of Sculley 2010.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators import SumFactory
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.compose import Cohorts, Composition, Finalizer, LearningState, check_state
from tf2jax_lite.federated.execution import Execution
from tf2jax_lite.federated.execution.cohort import Batching
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import MASK_KEY
from tf2jax_lite.learning.model import Model
from tf2jax_lite.learning.process import LearningProcess, MeasuredProcessOutput, ModelWeights
from tf2jax_lite.support.errors import InputError


def _work(data_key: str) -> ClientWork:
    def client_init(state: Any, message: ModelWeights, key: Any, client_input: Any) -> Any:
        centers = message.trainable
        return {"sums": jnp.zeros_like(centers), "counts": jnp.zeros(centers.shape[0]), "distance": jnp.float32(0)}

    def client_step(state: Any, message: ModelWeights, carry: Any, batch: Mapping[str, Any]) -> Any:
        centroids = message.trainable
        if data_key not in batch:
            raise InputError(
                f"build_fed_kmeans: a batch has no {data_key!r} (data_key); it has {sorted(batch.keys() - {MASK_KEY})}"
            )
        points = jnp.asarray(batch[data_key]).astype(centroids.dtype)
        if points.shape[1:] != centroids.shape[1:]:
            raise InputError(
                f"build_fed_kmeans: points have shape {points.shape[1:]}, and data_shape is {centroids.shape[1:]}"
            )
        flat, centers = points.reshape(points.shape[0], -1), centroids.reshape(centroids.shape[0], -1)
        distances = jnp.sum(jnp.square(flat[:, None] - centers[None]), axis=-1)
        mask = jnp.asarray(batch.get(MASK_KEY, jnp.ones(points.shape[0], bool)))
        hot = jax.nn.one_hot(jnp.argmin(distances, axis=1), centroids.shape[0]) * mask[:, None]
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
) -> LearningProcess[LearningState]:
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
    counts = jax.ShapeDtypeStruct((num_clusters,), jnp.float32)

    def given(params: Any) -> ModelWeights:
        pair = params if isinstance(params, ModelWeights) else ModelWeights(params, np.ones(num_clusters, np.float32))
        return ModelWeights(
            _array("centroids", pair.trainable, shape), _array("weights", pair.non_trainable, shape[:1])
        )

    def column(values: Any) -> Any:
        return jnp.reshape(values, (num_clusters,) + (1,) * len(data_shape))

    def finalize(state: Any, before: ModelWeights, found: Any) -> MeasuredProcessOutput:
        centroids, weights = before.trainable, before.non_trainable + found["counts"]
        some = weights > 0
        sums = centroids * column(before.non_trainable) + found["sums"]
        moved = jnp.where(column(some), sums / column(jnp.where(some, weights, 1)), centroids)
        return MeasuredProcessOutput((), ModelWeights(moved, weights), {})

    def draw(key: Any) -> ModelWeights:
        return ModelWeights(jax.random.uniform(key, shape), jnp.ones(num_clusters))

    def no_predictions(*args: Any) -> Any:
        raise InputError("build_fed_kmeans: centroids predict nothing.")

    process = Composition(
        "build_fed_kmeans",
        Model(draw, no_predictions, no_predictions, no_predictions, changes=False),
        _work(data_key),
        aggregator or SumFactory(),
        Finalizer(lambda weights: (), finalize),
        cohorts=Cohorts(client_batching, client_execution, clients_per_chunk, mesh),
        update_form={"sums": jax.ShapeDtypeStruct(shape, jnp.float32), "counts": counts},
        checks_predictions=False,
    ).process()

    def initialize(key: Any = None, *, params: Any = None) -> LearningState:
        return process.initialize(key, params=None if params is None else given(params))

    def set_model_weights(state: LearningState, weights: Any) -> LearningState:
        check_state(state, LearningState)
        return process.set_model_weights(state, given(weights))

    return dataclasses.replace(process, initialize=initialize, set_model_weights=set_model_weights)


def _array(name: str, value: Any, shape: tuple[int, ...]) -> jax.Array:
    try:
        array = np.asarray(value)
        if array.shape == shape and jnp.issubdtype(array.dtype, jnp.number):
            return jnp.array(array, jnp.float32)
        found = f"{array.dtype}{list(array.shape)}"
    except (TypeError, ValueError) as error:  # rows of different lengths, JAX keys
        found = f"{type(value).__name__} ({error})"
    raise InputError(f"build_fed_kmeans: {name} are numbers of shape {list(shape)}, not {found}")
