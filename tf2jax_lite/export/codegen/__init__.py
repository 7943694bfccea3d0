"""Jaxpr to readable Python.

`module.write_module` is the entry: `block_ir` makes a tree of blocks, the `rules_*` modules print one equation each,
`functions` control flow, `derivative_rules` custom derivatives, `formatter` breaks lines. Imports nothing above
`tf2jax_lite.autodiff` but `export`.
"""

from .block_ir import Block, from_jaxpr
from .module import Entry, Ref, write_module
from .names import Names, identifier

__all__ = ["Block", "Entry", "Names", "Ref", "from_jaxpr", "identifier", "write_module"]
