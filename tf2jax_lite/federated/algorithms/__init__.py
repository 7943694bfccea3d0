"""Federated algorithms, composed of building blocks.

Entries: the ``build_*`` functions exported here; each returns a learning process.

Read in this order:
  fed_avg: federated averaging, FedProx, FedSGD, FedOpt; keywords with the names of TFF.
  fed_nova, fed_dyn, scaffold: algorithms against the drift of clients that differ.
  mime, agnostic: algorithms with a first pass over the clients.
  apfl, ditto, per_fed_avg: models of clients' own, and weights that are easily made such a model.
  fed_buff: a server that waits for some of the clients that train.
  hyp_cluster, cluster_init, kmeans: several models or centers at once.
  recon: a model whose local part clients reconstruct in each round.
  jax_averaging: averaging of a plain JAX loss, as in TensorFlow Federated.

Must not import `training`, `flower` or `core`.
"""

from tf2jax_lite.federated.algorithms.agnostic import build_agnostic_fed_avg
from tf2jax_lite.federated.algorithms.apfl import apfl_model_weights, build_apfl
from tf2jax_lite.federated.algorithms.cluster_init import kmeans_init
from tf2jax_lite.federated.algorithms.ditto import build_ditto, ditto_model_weights
from tf2jax_lite.federated.algorithms.fed_avg import (
    build_fed_opt,
    build_fed_prox,
    build_fed_sgd,
    build_unweighted_fed_avg,
    build_unweighted_fed_avg_with_optimizer_schedule,
    build_unweighted_fed_prox,
    build_weighted_fed_avg,
    build_weighted_fed_avg_with_optimizer_schedule,
    build_weighted_fed_prox,
)
from tf2jax_lite.federated.algorithms.fed_buff import build_fed_buff
from tf2jax_lite.federated.algorithms.fed_dyn import build_fed_dyn
from tf2jax_lite.federated.algorithms.fed_nova import build_fed_nova
from tf2jax_lite.federated.algorithms.hyp_cluster import build_hyp_cluster
from tf2jax_lite.federated.algorithms.jax_averaging import build_jax_federated_averaging_process
from tf2jax_lite.federated.algorithms.kmeans import build_fed_kmeans
from tf2jax_lite.federated.algorithms.mime import (
    build_mime,
    build_mime_lite,
    build_mime_lite_with_optimizer_schedule,
    build_unweighted_mime_lite,
    build_weighted_mime_lite,
)
from tf2jax_lite.federated.algorithms.per_fed_avg import build_per_fed_avg
from tf2jax_lite.federated.algorithms.recon import build_fed_recon, build_fed_recon_eval
from tf2jax_lite.federated.algorithms.scaffold import build_scaffold
from tf2jax_lite.learning.optimizers import server_optimizer

__all__ = [
    "apfl_model_weights",
    "build_agnostic_fed_avg",
    "build_apfl",
    "build_ditto",
    "build_fed_buff",
    "build_fed_dyn",
    "build_fed_kmeans",
    "build_fed_nova",
    "build_fed_opt",
    "build_fed_prox",
    "build_fed_recon",
    "build_fed_recon_eval",
    "build_fed_sgd",
    "build_hyp_cluster",
    "build_jax_federated_averaging_process",
    "build_mime",
    "build_mime_lite",
    "build_mime_lite_with_optimizer_schedule",
    "build_per_fed_avg",
    "build_scaffold",
    "build_unweighted_fed_avg",
    "build_unweighted_fed_avg_with_optimizer_schedule",
    "build_unweighted_fed_prox",
    "build_unweighted_mime_lite",
    "build_weighted_fed_avg",
    "build_weighted_fed_avg_with_optimizer_schedule",
    "build_weighted_fed_prox",
    "build_weighted_mime_lite",
    "ditto_model_weights",
    "kmeans_init",
    "server_optimizer",
]
