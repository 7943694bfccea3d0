"""Training of artifacts, centrally and federated, without TensorFlow.

`finetune_artifact` and `federate_artifact` are the entries for files, `finetune` and `federate` for functions.
`trained_artifact` says which arrays are inputs and what the loss is.
"""

from .artifacts import TrainingReport, finetune_artifact
from .central_training import finetune
from .federated_artifacts import federate_artifact
from .federated_training import federate
from .history import History

__all__ = ["History", "TrainingReport", "federate", "federate_artifact", "finetune", "finetune_artifact"]
