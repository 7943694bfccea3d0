"""Clients' data: datasets in memory and in files, samplers, partitioners.

Entries: `ClientDataset` (one client), `FederatedData` (many), the samplers, and the ``partition_*`` functions.

Read in this order:
  examples, hparams, preprocessor, client_dataset: one client's examples and their batches.
  federated_data, pooled: many clients behind one interface; all their examples as one dataset.
  seeds, samplers: reproducible random streams; the clients of a round.
  partition: clients from one dataset.
  records, npz_folder, sqlite, sqlite_file: own file formats, which are read without running code.
  example_proto, tff_hdf5, tff_sqlite: files of TensorFlow Federated. fedjax_sqlite: files of FedJAX.

Must not import `algorithms`, `running` or `metrics`.
"""

from __future__ import annotations

from tf2jax_lite.federated.data.client_dataset import Batches, ClientDataset
from tf2jax_lite.federated.data.examples import EXAMPLE_MASK_KEY
from tf2jax_lite.federated.data.federated_data import FederatedData, InMemoryFederatedData, SubsetFederatedData
from tf2jax_lite.federated.data.fedjax_sqlite import FedJAXSQLiteFederatedData
from tf2jax_lite.federated.data.hparams import BatchHParams, PaddedBatchHParams, ShuffleRepeatBatchHParams
from tf2jax_lite.federated.data.npz_folder import NpzFolderFederatedData, npz_file_name
from tf2jax_lite.federated.data.partition import (
    partition_by_label,
    partition_dirichlet,
    partition_iid,
    partition_quantity_skew,
)
from tf2jax_lite.federated.data.pooled import (
    padded_batch_client_datasets,
    padded_batch_federated_data,
    shuffle_repeat_batch_federated_data,
)
from tf2jax_lite.federated.data.preprocessor import (
    BatchPreprocessor,
    ClientPreprocessor,
    NoOpBatchPreprocessor,
    NoOpClientPreprocessor,
)
from tf2jax_lite.federated.data.samplers import (
    ClientSampler,
    UniformGetClientSampler,
    UniformShuffledClientSampler,
    WeightedSampler,
)
from tf2jax_lite.federated.data.sqlite import SQLiteFederatedData, SQLiteFederatedDataBuilder
from tf2jax_lite.federated.data.tff_hdf5 import TFFHDF5FederatedData
from tf2jax_lite.federated.data.tff_sqlite import TFFSQLiteFederatedData

__all__ = [
    "EXAMPLE_MASK_KEY",
    "BatchHParams",
    "BatchPreprocessor",
    "Batches",
    "ClientDataset",
    "ClientPreprocessor",
    "ClientSampler",
    "FedJAXSQLiteFederatedData",
    "FederatedData",
    "InMemoryFederatedData",
    "NoOpBatchPreprocessor",
    "NoOpClientPreprocessor",
    "NpzFolderFederatedData",
    "PaddedBatchHParams",
    "SQLiteFederatedData",
    "SQLiteFederatedDataBuilder",
    "ShuffleRepeatBatchHParams",
    "SubsetFederatedData",
    "TFFHDF5FederatedData",
    "TFFSQLiteFederatedData",
    "UniformGetClientSampler",
    "UniformShuffledClientSampler",
    "WeightedSampler",
    "npz_file_name",
    "padded_batch_client_datasets",
    "padded_batch_federated_data",
    "partition_by_label",
    "partition_dirichlet",
    "partition_iid",
    "partition_quantity_skew",
    "shuffle_repeat_batch_federated_data",
]
