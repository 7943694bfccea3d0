"""The public place of `tf2jax_lite.finetuning` in earlier releases."""

from tf2jax_lite.finetuning import (
    History,
    TrainingReport,
    federate,
    federate_artifact,
    finetune,
    finetune_artifact,
)

__all__ = ["History", "TrainingReport", "federate", "federate_artifact", "finetune", "finetune_artifact"]
