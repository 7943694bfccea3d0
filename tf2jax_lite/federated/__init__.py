"""Federated and central training of JAX models, with the names of FedJAX and TFF.

Entries: `build_weighted_fed_avg` and the other ``build_*`` functions return processes, `train_model` runs them.
Aggregators and metrics are in ``federated.aggregators`` and ``federated.metrics``. The subpackages `core` and `flower`
need extras: they are imported on first use, and ``import *`` omits their names.

Read in this order:
  client_work, compose: the work of a client, and processes composed of building blocks.
  row_selection: models of which each client trains the rows that its examples use.
  aggregators: sums and means of clients' updates, private, robust, secure or compressed.
  execution: the execution of a cohort on devices.
  analytics, fairness: statistics of clients' data; metrics' distributions over clients.
  algorithms, training: processes composed of blocks; rounds with evaluations and the best weights.
  flower, core: real federations, and computations of the federated language.
  datasets, tokenizers, models: standard data sets, their examples as numbers, and models for them.
  optimizers, tree_util, data, metrics: FedJAX's optimizers and functions on pytrees; names of `learning`.

Must not import `verification`, `finetuning`, `artifacts` or `cli`; TensorFlow only inside of functions.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tf2jax_lite.federated.client_work import (
    ClientResult,
    ClientWeighting,
    ClientWork,
    ClientWorkProcess,
    build_fed_sgd_client_work,
    build_model_delta_client_work,
    local_model_weights,
    with_error_feedback,
    with_local_weights,
)
from tf2jax_lite.federated.compose import (
    DistributionProcess,
    Distributor,
    Finalizer,
    FinalizerProcess,
    LearningAlgorithmState,
    LearningState,
    Survey,
    Surveyed,
    broadcast_distributor,
    build_add_finalizer,
    build_apply_optimizer_finalizer,
    build_broadcast_process,
    compose_learning_process,
)
from tf2jax_lite.federated.row_selection import select_rows
from tf2jax_lite.learning.checkpoints import Checkpoint, CheckpointFile, CheckpointStore
from tf2jax_lite.learning.data import (
    EXAMPLE_MASK_KEY,
    AvailabilitySampler,
    Batches,
    BatchHParams,
    BatchPreprocessor,
    ClientDataset,
    ClientPreprocessor,
    ClientSampler,
    DeadlineSampler,
    FederatedData,
    FedJAXSQLiteFederatedData,
    InMemoryFederatedData,
    NoOpBatchPreprocessor,
    NoOpClientPreprocessor,
    NpzFolderFederatedData,
    PaddedBatchHParams,
    PoissonSampler,
    PowerOfChoiceSampler,
    ShuffleRepeatBatchHParams,
    SQLiteFederatedData,
    SQLiteFederatedDataBuilder,
    SubsetFederatedData,
    TFFHDF5FederatedData,
    TFFSQLiteClientsIterator,
    TFFSQLiteFederatedData,
    UniformGetClientSampler,
    UniformShuffledClientSampler,
    WeightedSampler,
    buffered_shuffle_batch_client_datasets,
    lognormal_latency,
    npz_file_name,
    padded_batch_client_datasets,
    padded_batch_federated_data,
    partition_by_label,
    partition_dirichlet,
    partition_iid,
    partition_quantity_skew,
    shuffle_repeat_batch_federated_data,
)
from tf2jax_lite.learning.loop import run_rounds, train_model
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.model import (
    BatchLoss,
    Model,
    TrainOutput,
    evaluate_average_loss,
    evaluate_model,
    model_grad,
    model_per_example_loss,
)
from tf2jax_lite.learning.partial import freeze, merge_lora, with_lora
from tf2jax_lite.learning.process import (
    AggregationProcess,
    ClientUpdates,
    LearningProcess,
    LearningProcessOutput,
    MeasuredProcessOutput,
    ModelWeights,
)
from tf2jax_lite.learning.recorder import (
    CSVFileReleaseManager,
    JSONLinesReleaseManager,
    LoggingReleaseManager,
    MemoryReleaseManager,
    ReleaseManager,
    TensorBoardReleaseManager,
    plot_history,
    read_history,
)
from tf2jax_lite.learning.sources import (
    create_model_from_artifact,
    create_model_from_converted,
    create_model_from_flax,
    create_model_from_fn,
    create_model_from_haiku,
    create_model_from_stax,
    create_model_from_tf,
    from_keras_model,
)
from tf2jax_lite.learning.states import ByClient

from . import aggregators, algorithms, analytics, data, datasets, metrics, models, optimizers, tokenizers, tree_util
from .algorithms import (
    apfl_model_weights,
    build_agnostic_fed_avg,
    build_apfl,
    build_ditto,
    build_fed_buff,
    build_fed_dyn,
    build_fed_kmeans,
    build_fed_nova,
    build_fed_opt,
    build_fed_prox,
    build_fed_recon,
    build_fed_recon_eval,
    build_fed_sgd,
    build_hyp_cluster,
    build_jax_federated_averaging_process,
    build_mime,
    build_mime_lite,
    build_mime_lite_with_optimizer_schedule,
    build_per_fed_avg,
    build_scaffold,
    build_unweighted_fed_avg,
    build_unweighted_fed_avg_with_optimizer_schedule,
    build_unweighted_fed_prox,
    build_unweighted_mime_lite,
    build_weighted_fed_avg,
    build_weighted_fed_avg_with_optimizer_schedule,
    build_weighted_fed_prox,
    build_weighted_mime_lite,
    ditto_model_weights,
    kmeans_init,
    server_optimizer,
)
from .algorithms.evaluation import (
    AverageLossEvaluator,
    ModelEvaluator,
    build_fed_eval,
    build_fed_multi_model_eval,
    build_personalization_eval,
)
from .execution import (
    for_each_client,
    for_each_client_backend,
    get_for_each_client_backend,
    set_for_each_client_backend,
)
from .fairness import fairness_summary
from .optimizers import Optimizer
from .tree_util import (
    BatchExample,
    BatchPrediction,
    ClientId,
    FederatedAlgorithm,
    OptState,
    Params,
    PRNGKey,
    PyTree,
    SingleExample,
    SinglePrediction,
    dataclass,
)

if TYPE_CHECKING:
    from . import core as core
    from . import flower as flower
    from .core import jax_computation as jax_computation
    from .core import set_default_context as set_default_context

# Names that need an extra, and their subpackages.
_EXTRAS = {"core": "core", "flower": "flower", "jax_computation": "core", "set_default_context": "core"}

__all__ = [
    "EXAMPLE_MASK_KEY",
    "AggregationProcess",
    "AvailabilitySampler",
    "AverageLossEvaluator",
    "BatchExample",
    "BatchHParams",
    "BatchLoss",
    "BatchPrediction",
    "BatchPreprocessor",
    "Batches",
    "ByClient",
    "CSVFileReleaseManager",
    "Checkpoint",
    "CheckpointFile",
    "CheckpointStore",
    "ClientDataset",
    "ClientId",
    "ClientPreprocessor",
    "ClientResult",
    "ClientSampler",
    "ClientUpdates",
    "ClientWeighting",
    "ClientWork",
    "ClientWorkProcess",
    "DeadlineSampler",
    "DistributionProcess",
    "Distributor",
    "FedJAXSQLiteFederatedData",
    "FederatedAlgorithm",
    "FederatedData",
    "Finalizer",
    "FinalizerProcess",
    "InMemoryFederatedData",
    "JSONLinesReleaseManager",
    "LearningAlgorithmState",
    "LearningProcess",
    "LearningProcessOutput",
    "LearningState",
    "LoggingReleaseManager",
    "MeasuredProcessOutput",
    "MemoryReleaseManager",
    "Model",
    "ModelEvaluator",
    "ModelWeights",
    "NoOpBatchPreprocessor",
    "NoOpClientPreprocessor",
    "NpzFolderFederatedData",
    "OptState",
    "Optimizer",
    "PRNGKey",
    "PaddedBatchHParams",
    "Params",
    "PoissonSampler",
    "PowerOfChoiceSampler",
    "PyTree",
    "ReleaseManager",
    "SQLiteFederatedData",
    "SQLiteFederatedDataBuilder",
    "ShuffleRepeatBatchHParams",
    "SingleExample",
    "SinglePrediction",
    "SubsetFederatedData",
    "Survey",
    "Surveyed",
    "TFFHDF5FederatedData",
    "TFFSQLiteClientsIterator",
    "TFFSQLiteFederatedData",
    "TensorBoardReleaseManager",
    "TrainOutput",
    "UniformGetClientSampler",
    "UniformShuffledClientSampler",
    "WeightedSampler",
    "aggregators",
    "algorithms",
    "analytics",
    "apfl_model_weights",
    "broadcast_distributor",
    "buffered_shuffle_batch_client_datasets",
    "build_add_finalizer",
    "build_agnostic_fed_avg",
    "build_apfl",
    "build_apply_optimizer_finalizer",
    "build_broadcast_process",
    "build_ditto",
    "build_fed_buff",
    "build_fed_dyn",
    "build_fed_eval",
    "build_fed_kmeans",
    "build_fed_multi_model_eval",
    "build_fed_nova",
    "build_fed_opt",
    "build_fed_prox",
    "build_fed_recon",
    "build_fed_recon_eval",
    "build_fed_sgd",
    "build_fed_sgd_client_work",
    "build_hyp_cluster",
    "build_jax_federated_averaging_process",
    "build_mime",
    "build_mime_lite",
    "build_mime_lite_with_optimizer_schedule",
    "build_model_delta_client_work",
    "build_per_fed_avg",
    "build_personalization_eval",
    "build_scaffold",
    "build_unweighted_fed_avg",
    "build_unweighted_fed_avg_with_optimizer_schedule",
    "build_unweighted_fed_prox",
    "build_unweighted_mime_lite",
    "build_weighted_fed_avg",
    "build_weighted_fed_avg_with_optimizer_schedule",
    "build_weighted_fed_prox",
    "build_weighted_mime_lite",
    "compose_learning_process",
    "create_model_from_artifact",
    "create_model_from_converted",
    "create_model_from_flax",
    "create_model_from_fn",
    "create_model_from_haiku",
    "create_model_from_stax",
    "create_model_from_tf",
    "data",
    "dataclass",
    "datasets",
    "ditto_model_weights",
    "evaluate_average_loss",
    "evaluate_model",
    "fairness_summary",
    "for_each_client",
    "for_each_client_backend",
    "freeze",
    "from_keras_model",
    "get_for_each_client_backend",
    "kmeans_init",
    "local_model_weights",
    "lognormal_latency",
    "merge_lora",
    "metrics",
    "model_grad",
    "model_per_example_loss",
    "models",
    "named_loss",
    "npz_file_name",
    "optimizers",
    "padded_batch_client_datasets",
    "padded_batch_federated_data",
    "partition_by_label",
    "partition_dirichlet",
    "partition_iid",
    "partition_quantity_skew",
    "plot_history",
    "read_history",
    "run_rounds",
    "select_rows",
    "server_optimizer",
    "set_for_each_client_backend",
    "shuffle_repeat_batch_federated_data",
    "tokenizers",
    "train_model",
    "tree_util",
    "with_error_feedback",
    "with_local_weights",
    "with_lora",
]


def __getattr__(name: str) -> Any:
    if name not in _EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = importlib.import_module(f".{_EXTRAS[name]}", __name__)
    return package if name == _EXTRAS[name] else getattr(package, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXTRAS})
