"""Training data beyond memory, from files of several kinds.

Batches start anywhere in an epoch.

Entries: `open_data` for paths, `as_training_data` for Python values.

Read in this order:
  batches: the interface of training data, and arrays in memory.
  rows: examples in files, one by one: .npz shards, ArrayRecord, TFRecord, Parquet.
  clients: clients' data from files.
  pipeline: Grain's input pipeline over rows, and data that is streamed.

Must not import the rest of `finetuning`.
"""

from .batches import Batch, InMemory, TrainingData
from .pipeline import Examples, RowData, StreamedData, as_training_data, open_data
from .rows import ArrayRecords, NpzShards, ParquetRows, Rows, TFRecords, open_rows

__all__ = [
    "ArrayRecords",
    "Batch",
    "Examples",
    "InMemory",
    "NpzShards",
    "ParquetRows",
    "RowData",
    "Rows",
    "StreamedData",
    "TFRecords",
    "TrainingData",
    "as_training_data",
    "open_data",
    "open_rows",
]
