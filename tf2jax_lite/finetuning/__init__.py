"""Central training of models: meshes, adapters, precision, the step.

Entries: `finetune_artifact` and `federate_artifact` for artifacts, `finetune` and `federate` for models.

Read in this order:
  central_training: epochs as rounds of a learning process, and batches.
  steps: the jitted training step; sharding, precision, remat and exports change how it computes.
  heads, adapters: new last layers; low-rank adapters.
  callbacks: functions called while a training runs, the best epoch.

Must not import TensorFlow, the converter (`frontend`, `lowering`) or `cli`; `artifacts` and `federated` on first use
only.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf2jax_lite.artifacts.federate import federate_artifact
    from tf2jax_lite.artifacts.finetune import TrainingReport, finetune_artifact
    from tf2jax_lite.federated.training import federate
    from tf2jax_lite.learning.data import RowData, StreamedData, open_data
    from tf2jax_lite.learning.recorder import History

    from .adapters import Adapters, load_adapters, merge_adapters
    from .callbacks import Callback
    from .central_training import finetune
    from .heads import replace_head

# Modules of the names: those of `artifacts` import modules of this package.
_MODULES = {
    "Adapters": "finetuning.adapters",
    "Callback": "finetuning.callbacks",
    "History": "learning.recorder",
    "RowData": "learning.data",
    "StreamedData": "learning.data",
    "TrainingReport": "artifacts.finetune",
    "federate": "federated.training",
    "federate_artifact": "artifacts.federate",
    "finetune": "finetuning.central_training",
    "finetune_artifact": "artifacts.finetune",
    "load_adapters": "finetuning.adapters",
    "merge_adapters": "finetuning.adapters",
    "open_data": "learning.data",
    "replace_head": "finetuning.heads",
}

__all__ = [
    "Adapters",
    "Callback",
    "History",
    "RowData",
    "StreamedData",
    "TrainingReport",
    "federate",
    "federate_artifact",
    "finetune",
    "finetune_artifact",
    "load_adapters",
    "merge_adapters",
    "open_data",
    "replace_head",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tf2jax_lite.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
