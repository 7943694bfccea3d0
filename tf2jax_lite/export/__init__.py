"""Artifacts, which run without TensorFlow: write, read, update.

Entries: `export_functions` writes an artifact, `load` reads it.

Read in this order:
  stage: one trace of a function, from which all formats are written.
  symbolic_dims, dimension_syntax: symbolic dimensions of arguments, found by trial traces.
  artifact: the writer; codegen prints source, stablehlo_module serializes, params_file stores params.
  source_function: written source in place of the traced function.
  interface_json, metadata: the signature and metadata of an artifact, as JSON.
  load, reader, execution: the reader; one run with a check of memory; program_cache keeps compiled programs.
  edited: an artifact whose source was edited, traced again.
  update, bundle, atomic_dir: copies with trained params, several artifacts, directories that appear atomically.
  hub: artifacts on the Hugging Face Hub.
  predictions: whether results are probabilities or logits.
  nnx: functions as `flax.nnx` modules.

Must not import TensorFlow, `verification`, `cli` or the trainers.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .load import load

if TYPE_CHECKING:
    from .artifact import ExportReport, export_functions

__all__ = ["ExportReport", "export_functions", "load"]


def __getattr__(name: str) -> Any:
    if name in ("ExportReport", "export_functions"):  # a process that runs an artifact needs no writer
        return getattr(importlib.import_module(".artifact", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
