"""Federated and central training of JAX models, with the names of FedJAX and TFF.

Entries: `build_weighted_fed_avg` and the other ``build_*`` functions return processes, `training.run_rounds` runs them.
Aggregators and metrics are in ``federated.aggregators`` and ``federated.metrics``. All names are imported on first
use, so that extras (`core`, `flower`) need not be installed; ``import *`` omits names that need one.

Read in this order:
  process, model, client_work, blocks, compose: the types, and the building blocks of a process.
  algorithms, aggregators, metrics, data: subpackages of such blocks, and of clients' data.
  running: the execution of a cohort; device_placement and convolutions serve it.
  model_sources, model_libraries, partial, local_weights: models from artifacts and libraries; trained parts of them.
  training, states, checkpoint, evaluation, events, plots: many rounds, resumption, and their records.
  flower, core: real federations, and computations of the federated language.

Must not import `verification`, `finetuning` or `cli`; TensorFlow only inside of functions.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aggregators, algorithms, data, metrics
    from . import core as core
    from . import flower as flower
    from .algorithms import (
        build_agnostic_fed_avg,
        build_fed_kmeans,
        build_fed_opt,
        build_fed_prox,
        build_fed_sgd,
        build_hyp_cluster,
        build_jax_federated_averaging_process,
        build_mime,
        build_mime_lite,
        build_scaffold,
        build_unweighted_fed_avg,
        build_weighted_fed_avg,
        kmeans_init,
        server_optimizer,
    )
    from .blocks import (
        Distributor,
        Finalizer,
        broadcast_distributor,
        build_add_finalizer,
        build_apply_optimizer_finalizer,
    )
    from .checkpoint import Checkpoint, CheckpointFile, Checkpoints, CheckpointStore
    from .client_work import ClientResult, ClientWork, build_fed_sgd_client_work, build_model_delta_client_work
    from .compose import LearningState, Survey, Surveyed, compose_learning_process
    from .core import jax_computation as jax_computation
    from .core import set_default_context as set_default_context
    from .data import (
        Batches,
        BatchHParams,
        BatchPreprocessor,
        ClientDataset,
        ClientPreprocessor,
        FederatedData,
        InMemoryFederatedData,
        NoOpBatchPreprocessor,
        NoOpClientPreprocessor,
        NpzFolderFederatedData,
        PaddedBatchHParams,
        ShuffleRepeatBatchHParams,
        SQLiteFederatedData,
        SQLiteFederatedDataBuilder,
        SubsetFederatedData,
        TFFHDF5FederatedData,
        TFFSQLiteFederatedData,
        UniformGetClientSampler,
        UniformShuffledClientSampler,
        WeightedSampler,
        npz_file_name,
        padded_batch_client_datasets,
        padded_batch_federated_data,
        partition_by_label,
        partition_dirichlet,
        partition_iid,
        partition_quantity_skew,
        shuffle_repeat_batch_federated_data,
    )
    from .evaluation import build_fed_eval, build_personalization_eval
    from .local_weights import local_model_weights, with_local_weights
    from .losses import named_loss
    from .model import (
        BatchLoss,
        Model,
        TrainOutput,
        evaluate_average_loss,
        evaluate_model,
        model_grad,
        model_per_example_loss,
    )
    from .model_libraries import create_model_from_flax, create_model_from_haiku
    from .model_sources import (
        create_model_from_artifact,
        create_model_from_converted,
        create_model_from_fn,
        create_model_from_tf,
    )
    from .partial import freeze, merge_lora, with_lora
    from .plots import plot_history
    from .process import (
        AggregationProcess,
        ClientUpdates,
        LearningProcess,
        LearningProcessOutput,
        MeasuredProcessOutput,
        ModelWeights,
    )
    from .states import ByClient
    from .training import read_history, run_rounds

_PACKAGES = ("aggregators", "algorithms", "core", "data", "flower", "metrics")
_LAZY = {
    "build_agnostic_fed_avg": ".algorithms",
    "build_fed_kmeans": ".algorithms",
    "build_fed_opt": ".algorithms",
    "build_fed_prox": ".algorithms",
    "build_fed_sgd": ".algorithms",
    "build_hyp_cluster": ".algorithms",
    "kmeans_init": ".algorithms",
    "build_jax_federated_averaging_process": ".algorithms",
    "build_mime": ".algorithms",
    "build_mime_lite": ".algorithms",
    "build_scaffold": ".algorithms",
    "build_unweighted_fed_avg": ".algorithms",
    "build_weighted_fed_avg": ".algorithms",
    "server_optimizer": ".algorithms",
    "Distributor": ".blocks",
    "Finalizer": ".blocks",
    "broadcast_distributor": ".blocks",
    "build_add_finalizer": ".blocks",
    "build_apply_optimizer_finalizer": ".blocks",
    "Checkpoint": ".checkpoint",
    "CheckpointFile": ".checkpoint",
    "CheckpointStore": ".checkpoint",
    "Checkpoints": ".checkpoint",
    "ClientResult": ".client_work",
    "ClientWork": ".client_work",
    "build_fed_sgd_client_work": ".client_work",
    "build_model_delta_client_work": ".client_work",
    "LearningState": ".compose",
    "Survey": ".compose",
    "Surveyed": ".compose",
    "compose_learning_process": ".compose",
    "jax_computation": ".core",
    "set_default_context": ".core",
    "BatchHParams": ".data",
    "BatchPreprocessor": ".data",
    "Batches": ".data",
    "ClientDataset": ".data",
    "ClientPreprocessor": ".data",
    "FederatedData": ".data",
    "InMemoryFederatedData": ".data",
    "NoOpBatchPreprocessor": ".data",
    "NoOpClientPreprocessor": ".data",
    "NpzFolderFederatedData": ".data",
    "PaddedBatchHParams": ".data",
    "SQLiteFederatedData": ".data",
    "SQLiteFederatedDataBuilder": ".data",
    "ShuffleRepeatBatchHParams": ".data",
    "SubsetFederatedData": ".data",
    "TFFHDF5FederatedData": ".data",
    "TFFSQLiteFederatedData": ".data",
    "UniformGetClientSampler": ".data",
    "UniformShuffledClientSampler": ".data",
    "WeightedSampler": ".data",
    "npz_file_name": ".data",
    "padded_batch_client_datasets": ".data",
    "padded_batch_federated_data": ".data",
    "partition_by_label": ".data",
    "partition_dirichlet": ".data",
    "partition_iid": ".data",
    "partition_quantity_skew": ".data",
    "shuffle_repeat_batch_federated_data": ".data",
    "build_fed_eval": ".evaluation",
    "build_personalization_eval": ".evaluation",
    "local_model_weights": ".local_weights",
    "with_local_weights": ".local_weights",
    "named_loss": ".losses",
    "BatchLoss": ".model",
    "Model": ".model",
    "TrainOutput": ".model",
    "evaluate_average_loss": ".model",
    "evaluate_model": ".model",
    "model_grad": ".model",
    "model_per_example_loss": ".model",
    "create_model_from_flax": ".model_libraries",
    "create_model_from_haiku": ".model_libraries",
    "create_model_from_artifact": ".model_sources",
    "create_model_from_converted": ".model_sources",
    "create_model_from_fn": ".model_sources",
    "create_model_from_tf": ".model_sources",
    "freeze": ".partial",
    "merge_lora": ".partial",
    "with_lora": ".partial",
    "plot_history": ".plots",
    "AggregationProcess": ".process",
    "ClientUpdates": ".process",
    "LearningProcess": ".process",
    "LearningProcessOutput": ".process",
    "MeasuredProcessOutput": ".process",
    "ModelWeights": ".process",
    "ByClient": ".states",
    "read_history": ".training",
    "run_rounds": ".training",
}

__all__ = [
    "AggregationProcess",
    "BatchHParams",
    "BatchLoss",
    "BatchPreprocessor",
    "Batches",
    "ByClient",
    "Checkpoint",
    "CheckpointFile",
    "CheckpointStore",
    "Checkpoints",
    "ClientDataset",
    "ClientPreprocessor",
    "ClientResult",
    "ClientUpdates",
    "ClientWork",
    "Distributor",
    "FederatedData",
    "Finalizer",
    "InMemoryFederatedData",
    "LearningProcess",
    "LearningProcessOutput",
    "LearningState",
    "MeasuredProcessOutput",
    "Model",
    "ModelWeights",
    "NoOpBatchPreprocessor",
    "NoOpClientPreprocessor",
    "NpzFolderFederatedData",
    "PaddedBatchHParams",
    "SQLiteFederatedData",
    "SQLiteFederatedDataBuilder",
    "ShuffleRepeatBatchHParams",
    "SubsetFederatedData",
    "Survey",
    "Surveyed",
    "TFFHDF5FederatedData",
    "TFFSQLiteFederatedData",
    "TrainOutput",
    "UniformGetClientSampler",
    "UniformShuffledClientSampler",
    "WeightedSampler",
    "aggregators",
    "algorithms",
    "broadcast_distributor",
    "build_add_finalizer",
    "build_agnostic_fed_avg",
    "build_apply_optimizer_finalizer",
    "build_fed_eval",
    "build_fed_kmeans",
    "build_fed_opt",
    "build_fed_prox",
    "build_fed_sgd",
    "build_fed_sgd_client_work",
    "build_hyp_cluster",
    "build_jax_federated_averaging_process",
    "build_mime",
    "build_mime_lite",
    "build_model_delta_client_work",
    "build_personalization_eval",
    "build_scaffold",
    "build_unweighted_fed_avg",
    "build_weighted_fed_avg",
    "compose_learning_process",
    "create_model_from_artifact",
    "create_model_from_converted",
    "create_model_from_flax",
    "create_model_from_fn",
    "create_model_from_haiku",
    "create_model_from_tf",
    "data",
    "evaluate_average_loss",
    "evaluate_model",
    "freeze",
    "kmeans_init",
    "local_model_weights",
    "merge_lora",
    "metrics",
    "model_grad",
    "model_per_example_loss",
    "named_loss",
    "npz_file_name",
    "padded_batch_client_datasets",
    "padded_batch_federated_data",
    "partition_by_label",
    "partition_dirichlet",
    "partition_iid",
    "partition_quantity_skew",
    "plot_history",
    "read_history",
    "run_rounds",
    "server_optimizer",
    "shuffle_repeat_batch_federated_data",
    "with_local_weights",
    "with_lora",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LAZY, *_PACKAGES})
