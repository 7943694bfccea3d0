"""Trains artifacts, centrally and federated, without TensorFlow.

Entries: `finetune_artifact` and `federate_artifact` for artifacts, `finetune` and `federate` for models.

Read in this order:
  trained_artifact: an artifact as a model with a loss; checks of examples.
  steps: the jitted training step; sharding, precision, remat and exports change how it computes.
  central_training, artifacts: epochs as rounds of a learning process, and batches; the artifact around it.
  data: training data in memory and in files; clients' data.
  adapters, stopping, callbacks: low-rank adapters, the best epoch, and records of a training while it runs.
  federated_training, federated_artifacts: rounds over cohorts; the artifact around it.
  optimizers, metrics, algorithms: optax optimizers, metrics, federated algorithms and aggregators by name.
  domains: domains of agnostic federated averaging.
  history: records of a training, as JSON lines and as a plot.

Must not import TensorFlow, the converter (`pipeline`, `frontend`, `lowering`) or `cli`.
"""

from .adapters import merge_adapters
from .artifacts import TrainingReport, finetune_artifact
from .callbacks import Callback
from .central_training import finetune
from .data import RowData, StreamedData, open_data
from .federated_artifacts import federate_artifact
from .federated_training import federate
from .history import History

__all__ = [
    "Callback",
    "History",
    "RowData",
    "StreamedData",
    "TrainingReport",
    "federate",
    "federate_artifact",
    "finetune",
    "finetune_artifact",
    "merge_adapters",
    "open_data",
]
