"""Artefacts without TensorFlow: params, StableHLO and readable source; and reading them back."""

from .artifact import ExportReport, export_functions
from .load import load

__all__ = ["ExportReport", "export_functions", "load"]
