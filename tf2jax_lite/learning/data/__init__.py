"""Data of clients and of central training, in memory and in files.

Entries: `ClientDataset` (one client), `FederatedData` (many), the samplers, and the ``partition_*`` functions;
`open_data` for training data in files, `as_training_data` for Python values.

Read in this order:
  examples, client_dataset: examples as dicts of arrays; one client's examples and their batches.
  federated_data: many clients behind one interface, their samplers, all their examples as one dataset.
  selection: samplers that simulate devices.
  partition: clients from one dataset.
  sqlite, client_files, example_proto: files of clients, which are read without running code.
  rows, tables: examples in files one by one; CSV, JSON lines, images, data sets of the Hub.
  training_data: batches that start anywhere in an epoch.

Must not import other modules of `learning` but `checks`.
"""

from __future__ import annotations

from tf2jax_lite.learning.data.client_dataset import (
    Batches,
    BatchHParams,
    ClientDataset,
    PaddedBatchHParams,
    ShuffleRepeatBatchHParams,
)
from tf2jax_lite.learning.data.client_files import (
    NpzFolderFederatedData,
    TFFHDF5FederatedData,
    TFFSQLiteClientsIterator,
    TFFSQLiteFederatedData,
    npz_file_name,
)
from tf2jax_lite.learning.data.examples import (
    EXAMPLE_MASK_KEY,
    BatchPreprocessor,
    ClientPreprocessor,
    NoOpBatchPreprocessor,
    NoOpClientPreprocessor,
)
from tf2jax_lite.learning.data.federated_data import (
    ClientSampler,
    FederatedData,
    InMemoryFederatedData,
    PoissonSampler,
    SubsetFederatedData,
    UniformGetClientSampler,
    UniformShuffledClientSampler,
    WeightedSampler,
    buffered_shuffle_batch_client_datasets,
    padded_batch_client_datasets,
    padded_batch_federated_data,
    shuffle_repeat_batch_federated_data,
)
from tf2jax_lite.learning.data.partition import (
    partition_by_label,
    partition_dirichlet,
    partition_iid,
    partition_quantity_skew,
)
from tf2jax_lite.learning.data.rows import ArrayRecords, NpzShards, ParquetRows, Rows, TFRecords, open_rows
from tf2jax_lite.learning.data.selection import (
    AvailabilitySampler,
    DeadlineSampler,
    PowerOfChoiceSampler,
    lognormal_latency,
)
from tf2jax_lite.learning.data.sqlite import FedJAXSQLiteFederatedData, SQLiteFederatedData, SQLiteFederatedDataBuilder
from tf2jax_lite.learning.data.tables import HubRows, ImageFolder
from tf2jax_lite.learning.data.training_data import (
    Batch,
    Examples,
    InMemory,
    RowData,
    StreamedData,
    TrainingData,
    as_training_data,
    open_data,
)

__all__ = [
    "EXAMPLE_MASK_KEY",
    "ArrayRecords",
    "AvailabilitySampler",
    "Batch",
    "BatchHParams",
    "BatchPreprocessor",
    "Batches",
    "ClientDataset",
    "ClientPreprocessor",
    "ClientSampler",
    "DeadlineSampler",
    "Examples",
    "FedJAXSQLiteFederatedData",
    "FederatedData",
    "HubRows",
    "ImageFolder",
    "InMemory",
    "InMemoryFederatedData",
    "NoOpBatchPreprocessor",
    "NoOpClientPreprocessor",
    "NpzFolderFederatedData",
    "NpzShards",
    "PaddedBatchHParams",
    "ParquetRows",
    "PoissonSampler",
    "PowerOfChoiceSampler",
    "RowData",
    "Rows",
    "SQLiteFederatedData",
    "SQLiteFederatedDataBuilder",
    "ShuffleRepeatBatchHParams",
    "StreamedData",
    "SubsetFederatedData",
    "TFFHDF5FederatedData",
    "TFFSQLiteClientsIterator",
    "TFFSQLiteFederatedData",
    "TFRecords",
    "TrainingData",
    "UniformGetClientSampler",
    "UniformShuffledClientSampler",
    "WeightedSampler",
    "as_training_data",
    "buffered_shuffle_batch_client_datasets",
    "lognormal_latency",
    "npz_file_name",
    "open_data",
    "open_rows",
    "padded_batch_client_datasets",
    "padded_batch_federated_data",
    "partition_by_label",
    "partition_dirichlet",
    "partition_iid",
    "partition_quantity_skew",
    "shuffle_repeat_batch_federated_data",
]
