"""Artifacts, which run without TensorFlow: write, read, update.

Entries: `export_functions` writes an artifact, `load` reads it; `load_host` its part that stays in TensorFlow.

Read in this order:
  stage: one trace of a function, from which all formats are written.
  symbolic_dims, dimension_syntax: symbolic dimensions of arguments, found by trial traces.
  artifact: the writer; codegen prints source, stablehlo_module serializes, params_file stores params.
  source_function: written source in place of the traced function.
  interface_json, metadata: the signature and metadata of an artifact, as JSON.
  load, reader, execution: the reader; one run with a check of memory; program_cache keeps compiled programs.
  host_part: the part of a split model that stays in TensorFlow, stored with its core.
  edited: an artifact whose source was edited, traced again.
  update, atomic_dir: copies with trained params, several artifacts in one, directories that appear atomically.
  hub: artifacts on the Hugging Face Hub.
  predictions: whether results are probabilities or logits.
  nnx: functions as `flax.nnx` modules.

Must not import TensorFlow (`host_part` loads it when it runs), `verification`, `cli` or the trainers.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .load import load

if TYPE_CHECKING:
    from .artifact import ExportReport, export_functions
    from .host_part import load_host

__all__ = ["ExportReport", "export_functions", "load", "load_host"]


def __getattr__(name: str) -> Any:
    if name in ("ExportReport", "export_functions"):  # a process that runs an artifact needs no writer
        return getattr(importlib.import_module(".artifact", __name__), name)
    if name == "load_host":
        return importlib.import_module(".host_part", __name__).load_host
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
