"""HypCluster: several models, of which each client trains the best fitting.

Sources: Mansour et al. 2020, "Three Approaches for Personalization with Applications to Federated Learning";
fedjax.algorithms.hyp_cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators import SumFactory
from tf2jax_lite.federated.algorithms.cluster_init import loss_work
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.compose import LearningState, by_name, check_state, reusable, round_keys
from tf2jax_lite.federated.execution import CohortRunner
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Batching, Entry, as_entries, cohort_of
from tf2jax_lite.learning.checks import check_key, check_number
from tf2jax_lite.learning.data import BatchHParams
from tf2jax_lite.learning.model import Model
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights
from tf2jax_lite.support.errors import InputError


class HypClusterState(NamedTuple):
    """The server's state.

    Attributes:
      round: int32 scalar, rounds done.
      key: the training's JAX key.
      clusters: the training state of each cluster.
    """

    round: Any
    key: Any
    clusters: tuple[LearningState, ...]


def build_hyp_cluster(
    model: Model,
    num_clusters: int,
    client_optimizer: Any = None,
    server_optimizer: Any = None,
    *,
    process: LearningProcess[LearningState] | None = None,
    client_batching: Batching | None = None,
    **options: Any,
) -> LearningProcess[HypClusterState]:
    """Build HypCluster.

    Each client trains the cluster whose weights have the least mean loss on its data.

    Args:
      model: the model.
      num_clusters: how many sets of weights.
      client_optimizer: see `build_weighted_fed_avg`.
      server_optimizer: see `build_weighted_fed_avg`; each cluster has its own state.
      process: how a cluster trains; weighted FedAvg by default.
      client_batching: see `compose_learning_process`.
      **options: of FedAvg.

    Returns:
      The process. ``initialize(key, params=[weights of each cluster])``; without params the key draws them, a key for
      each cluster: a pretrained model ignores keys and needs params, see `kmeans_init`. ``get_model_weights(state)``
      gives a tuple. ``next`` takes the clients of `compose_learning_process`; metrics have ``clusters`` (each cluster's
      own, for those that were trained), ``client_cluster`` (for each client its cluster, -1 without data),
      ``clients`` (counts, as every process has them), and with ``client_diagnostics=True`` those, with each
      client's ``cluster_id``.

    Raises:
      InputError: an option out of range, or an aggregator with differential privacy: which cluster a client chooses,
        and so how many clients a cluster's sum is of, is not private. When called, weights that are not a list with
        those of each cluster.
    """
    check_number("build_hyp_cluster", "num_clusters", num_clusters, least=1, whole=True)
    if process is None and client_optimizer is None:
        raise InputError("build_hyp_cluster: give client_optimizer, or process")
    inner = process or build_weighted_fed_avg(
        model, client_optimizer, server_optimizer, client_batching=client_batching, **options
    )
    if "differential privacy" in inner.guarantees:
        raise InputError(
            "build_hyp_cluster: with differential privacy, which cluster a client chooses, and so how many clients a "
            "cluster's sum is of, is not private. Train one model with differential privacy, or clusters without."
        )
    chooser = CohortRunner(
        loss_work(model, clusters=True),
        SumFactory().create(()),
        options.get("client_execution", "auto"),
        options.get("clients_per_chunk"),
        options.get("mesh"),
    )
    evaluation = None if client_batching is None else BatchHParams(client_batching.batch_size)

    clusters = _Clusters(inner, chooser, num_clusters, evaluation)
    return LearningProcess(
        clusters.initialize,
        clusters.next,
        clusters.weights,  # type: ignore[arg-type]  (those of each cluster)
        clusters.set_weights,
        takes_client_ids=inner.takes_client_ids,
        guarantees=inner.guarantees,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Clusters:
    """The functions of a process of several models.

    Attributes:
      inner: the process of one model.
      chooser: runs the work that computes each cluster's loss on a client.
      count: number of clusters.
      batching: of the clients' examples for those losses.
    """

    inner: LearningProcess[LearningState]
    chooser: CohortRunner
    count: int
    batching: Batching | None

    def _by_cluster(self, name: str, given: Any) -> Sequence[Any]:
        # ModelWeights, a pair, are those of one model.
        if not isinstance(given, list | tuple) or isinstance(given, ModelWeights):
            raise InputError(
                f"build_hyp_cluster: {name} is a list with the weights of each cluster, not {type(given).__name__}"
            )
        if len(given) != self.count:
            raise InputError(f"build_hyp_cluster: {name} has {len(given)} entries for {self.count} clusters")
        return given

    def initialize(self, key: Any = None, *, params: Sequence[Any] | None = None) -> HypClusterState:
        key = jax.random.key(0) if key is None else key
        check_key(key)
        keys = jax.random.split(key, self.count)
        given = [None] * self.count if params is None else self._by_cluster("params", params)
        return HypClusterState(
            jnp.int32(0), key, tuple(self.inner.initialize(k, params=p) for k, p in zip(keys, given, strict=True))
        )

    def _choose(self, state: HypClusterState, clients: Sequence[Entry]) -> tuple[np.ndarray, dict[str, Any]]:
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *self.weights(state))
        keys = round_keys(state.key, state.round)
        context = Context((), self.chooser.aggregator.initialize(), stacked, keys.clients, keys.aggregator)
        found = self.chooser.run(context, cohort_of(clients, self.batching, state.key, int(state.round)))
        chosen = np.full(len(clients), -1)
        for index, losses in found.outputs.items():
            # NaN never wins, unless all are.
            chosen[index] = int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))
        return chosen, found.counts

    def next(self, state: HypClusterState, client_data: Sequence[Any]) -> LearningProcessOutput:
        check_state(state, HypClusterState)
        clients = reusable(as_entries(client_data))
        chosen, counts = self._choose(state, clients)
        clusters, metrics, diagnostics, refused = list(state.clusters), {}, [], []
        for cluster in range(self.count):
            indices = np.flatnonzero(chosen == cluster)
            if indices.size:
                clusters[cluster], found = self.inner.next(clusters[cluster], [clients[i] for i in indices])
                # Without ids, names are indices in the cluster's part of the cohort.
                here = indices.tolist().__getitem__ if clients[0].client_id is None else lambda name: name
                for name, own in found.pop("client_diagnostics", {}).items():
                    each = own if isinstance(own, list) else [own]
                    diagnostics += [(here(name), {"cluster_id": cluster, **entry}) for entry in each]
                refused += map(here, found.pop("refused_clients", ()))
                metrics[str(cluster)] = found
        new = HypClusterState(state.round + 1, state.key, tuple(clusters))
        trained = [found["clients"] for found in metrics.values()]
        counts |= {name: sum((c[name] for c in trained), np.int32(0)) for name in ("participated", "non_finite")}
        metrics = {"clusters": metrics, "client_cluster": chosen, "clients": counts}
        metrics |= {"client_diagnostics": by_name(diagnostics)} if diagnostics else {}
        metrics |= {"refused_clients": refused} if refused else {}
        return LearningProcessOutput(new, metrics)

    def weights(self, state: HypClusterState) -> tuple[ModelWeights, ...]:
        return tuple(self.inner.get_model_weights(s) for s in state.clusters)

    def set_weights(self, state: HypClusterState, weights: Sequence[Any]) -> HypClusterState:
        pairs = zip(state.clusters, self._by_cluster("weights", weights), strict=True)
        return state._replace(clusters=tuple(self.inner.set_model_weights(s, w) for s, w in pairs))
