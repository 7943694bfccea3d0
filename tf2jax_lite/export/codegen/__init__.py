"""Source generation: readable Python from a jaxpr.

Entry: `module.write_module` writes the source of an artifact's functions.

Read in this order:
  block_ir: the tree of blocks; a jaxpr with calls inlined and dead equations eliminated.
  registry, rules: one line of source per equation; `rules_*` are the rules by kind of primitive.
  literals, names, free_names: constants and identifiers of the source.
  scans, jax_random: scans without repeated carries, dropout by a key; before and after idioms.
  norms, modes: normalizations with the params of a layer; inference and training as one function.
  hyperparameters, roles: defaults that all calls share; names of values.
  functions, derivative_rules, own_derivatives, constants: control flow, custom derivatives, those that JAX derives
    anyway, large constants as arguments.
  templates: printed statements, with references to values, params and constants instead of names.
  structure: functions for scopes and repeated parts, loops, params of functions, and names of values.
  entries, module, support_functions, formatter: public functions, the module, functions that read params, line breaks.
  nnx: the module as `flax.nnx` modules.

Must not import `api`, `frontend`, `lowering` or `ops`: generated source depends on JAX only.
"""

from .block_ir import Block, from_jaxpr
from .entries import Entry, Result, leaves_of
from .module import write_module
from .names import Names, identifier
from .nnx.classes import class_names, classes_writer
from .nnx.moving_statistics import moving_statistics

__all__ = [
    "Block",
    "Entry",
    "Names",
    "Result",
    "class_names",
    "classes_writer",
    "from_jaxpr",
    "identifier",
    "leaves_of",
    "moving_statistics",
    "write_module",
]
