"""Federated algorithms, composed of building blocks.

Entries: the ``build_*`` functions exported here; each returns a learning process.

Read in this order:
  fed_avg, fed_opt: federated averaging, FedProx, FedSGD; adaptive server optimizers.
  scaffold, mime, agnostic: algorithms with state beyond the weights.
  hyp_cluster, cluster_init, kmeans: several models or centers at once.
  jax_averaging: averaging of a plain JAX loss, as in TensorFlow Federated.

Must not import `training`, `flower` or `core`.
"""

from .agnostic import build_agnostic_fed_avg
from .cluster_init import kmeans_init
from .fed_avg import build_fed_prox, build_fed_sgd, build_unweighted_fed_avg, build_weighted_fed_avg
from .fed_opt import build_fed_opt, server_optimizer
from .hyp_cluster import build_hyp_cluster
from .jax_averaging import build_jax_federated_averaging_process
from .kmeans import build_fed_kmeans
from .mime import build_mime, build_mime_lite
from .scaffold import build_scaffold

__all__ = [
    "build_agnostic_fed_avg",
    "build_fed_kmeans",
    "build_fed_opt",
    "build_fed_prox",
    "build_fed_sgd",
    "build_hyp_cluster",
    "build_jax_federated_averaging_process",
    "build_mime",
    "build_mime_lite",
    "build_scaffold",
    "build_unweighted_fed_avg",
    "build_weighted_fed_avg",
    "kmeans_init",
    "server_optimizer",
]
