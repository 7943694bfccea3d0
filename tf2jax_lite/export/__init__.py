"""Artifacts without TensorFlow: write, read, update.

`export_functions` and `load` are the entries. Read `stage` (one trace for all formats), `artifact`, `load`; `codegen`
prints readable source, `stablehlo_module` serializes, `params_file` and `interface_json` hold params and signatures.
"""

from .artifact import ExportReport, export_functions
from .load import load

__all__ = ["ExportReport", "export_functions", "load"]
