"""Imports every family of ops, so that each registers what it holds."""

from . import (
    tensor_list,
)

__all__ = ["tensor_list"]
