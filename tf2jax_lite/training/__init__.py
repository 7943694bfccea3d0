"""Training of artefacts, centrally and federated: what ``finetune`` and ``federate`` run. No TensorFlow."""

from .artifacts import TrainingReport, finetune_artifact
from .federated_artifacts import federate_artifact
from .federated_training import federate
from .finetuning import finetune
from .history import History

__all__ = ["History", "TrainingReport", "federate", "federate_artifact", "finetune", "finetune_artifact"]
