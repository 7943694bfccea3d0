"""Converted functions as `flax.nnx` modules. Needs the extra ``nnx``.

Entry: `wrap.to_nnx` makes a module of a function and its params.

Read in this order:
  modules: the classes of such modules; imports flax.
  wrap: checks arguments, and tells which variables train and which are moving statistics; modules of exported source
    as functions.
"""

from .wrap import as_function, import_nnx, to_nnx

__all__ = ["as_function", "import_nnx", "to_nnx"]
