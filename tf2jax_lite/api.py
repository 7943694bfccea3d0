"""Public functions that convert; `tf2jax_lite` exports them as well."""

from tf2jax_lite.pipeline.convert import (
    convert,
    convert_from_restored,
    convert_functional,
    convert_functional_from_restored,
    convert_graph_def,
    convert_saved_model,
)

__all__ = [
    "convert",
    "convert_from_restored",
    "convert_functional",
    "convert_functional_from_restored",
    "convert_graph_def",
    "convert_saved_model",
]
