"""Trains artifacts, centrally and federated, without TensorFlow.

Entries: `finetune_artifact` and `federate_artifact` for artifacts, `finetune` and `federate` for models.

Read in this order:
  trained_artifact: an artifact as a model with a loss; checks of examples.
  central_training, artifacts: epochs over one dataset; the artifact around it.
  federated_training, federated_artifacts: rounds over cohorts; the artifact around it.
  optimizers, algorithms: optax optimizers, federated algorithms and aggregators by name.
  datasets, domains: training data from files; domains of agnostic federated averaging.
  history: records of a training, as JSON lines and as a plot.

Must not import TensorFlow, the converter (`pipeline`, `frontend`, `lowering`) or `cli`.
"""

from .artifacts import TrainingReport, finetune_artifact
from .central_training import finetune
from .federated_artifacts import federate_artifact
from .federated_training import federate
from .history import History

__all__ = ["History", "TrainingReport", "federate", "federate_artifact", "finetune", "finetune_artifact"]
