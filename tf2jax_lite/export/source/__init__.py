"""Readable JAX source from a traced function."""

from .blocks import Block, from_jaxpr
from .module import Entry, Ref, write_module
from .names import Names, identifier

__all__ = ["Block", "Entry", "Names", "Ref", "from_jaxpr", "identifier", "write_module"]
