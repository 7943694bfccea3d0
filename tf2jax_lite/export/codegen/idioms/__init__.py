"""Rewrite blocks to idiomatic JAX, where each rewrite is proved equal.

Idioms are calls of ``jax.nn``, ``jax.numpy`` and local helpers.

Entry: `rewrite` applies the idioms of `IDIOMS` in one pass over a block's steps.

Read in this order:
  table: the idioms, each with its identity.
  graph: definitions and uses of values; the pass.
  local_rules, products: rules for neighboring steps.
  candidates, matching, proposals: functions whose jaxpr is searched for, and the arguments they are tried with.
  references, helpers: functions that are traced for it, and those that generated modules define.

Must not import `functions` or `module`, which write rewritten blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence

from tf2jax_lite.export.codegen.block_ir import Block

from . import helpers
from .candidates import rewrite_all
from .graph import Rule
from .table import IDIOMS, Idiom

__all__ = ["HELPERS", "IDIOMS", "Idiom", "rewrite"]

HELPERS: dict[str, str] = {
    name: inspect.getsource(fn).rstrip() for name, fn in vars(helpers).items() if inspect.isfunction(fn)
}
"""Sources of the functions that generated modules define, by name."""


def rewrite(blocks: Sequence[Block], without: Collection[str] = ()) -> None:
    """Rewrite blocks and their inner functions to the idioms of `IDIOMS`, in place.

    Args:
      blocks: whole functions.
      without: names of idioms that are left out.
    """
    rules = rules_of(without)
    for block in blocks:
        rewrite_all(block, rules)


def rules_of(without: Collection[str] = ()) -> dict[str, list[Rule]]:
    """Return the rules of `IDIOMS` by primitive.

    Args:
      without: names of idioms that are left out.
    """
    rules: dict[str, list[Rule]] = {}
    for idiom in IDIOMS:
        if idiom.name in without:
            continue
        known: Mapping[str, Sequence[Rule]] = {name: list(found) for name, found in rules.items()}
        for primitive, rule in idiom.rules(known):
            rules.setdefault(primitive, []).append(rule)
    return rules
