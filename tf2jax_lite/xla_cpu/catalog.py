"""All CPU lowering rules: each primitive's table, and names that select.

The option ``xla_cpu_rules`` and `optimize` take these names; `selection` turns a value into the set that
`tf2jax_lite.xla_cpu.rules.using` puts in force.
"""

from __future__ import annotations

import functools

from jax import lax

from tf2jax_lite.support.config import chosen_names

from . import argmax, constant_dot, cumulative, inverse_trig, pooling, top_k
from .conv import rule as conv_rule
from .rules import Rule, Selection

TABLES: dict[str, tuple[Rule, ...]] = {
    "conv_general_dilated": (*conv_rule.RULES, *conv_rule.LAYOUT_RULES),
    "reduce_window_max": pooling.MAX_RULES,
    "reduce_window_sum": pooling.SUM_RULES,
    "select_and_gather_add": pooling.TANGENT_RULES,
    "select_and_scatter_add": pooling.GRADIENT_RULES,
    "argmax, argmin": argmax.RULES,
    "cumsum": cumulative.SUM_RULES,
    "cumprod": cumulative.PRODUCT_RULES,
    "cumlogsumexp": cumulative.LOGSUMEXP_RULES,
    "atan2, atan, asin, acos": inverse_trig.RULES[lax.atan2_p],
    "top_k": top_k.RULES,
    "dot_general with constant weights": constant_dot.RULES,
}
"""The rules of each primitive, in the order in which they are tried."""


@functools.cache
def rules_by_name() -> dict[str, Rule]:
    """Return the rules that can be switched off, by name.

    Of a name in several tables it is the first rule.
    """
    found: dict[str, Rule] = {}
    for rule in (rule for rules in TABLES.values() for rule in rules if rule.lower is not None):
        found.setdefault(rule.name, rule)
    return found


NAMES = frozenset(rules_by_name())
"""The names of all rules that can be switched off."""


def selection(value: object) -> Selection:
    """Return the rules that a value of the option ``xla_cpu_rules`` puts in force.

    Args:
      value: as `chosen_names` takes it.

    Raises:
      ConfigError: the value has another type, or there is no such rule.
    """
    names = chosen_names("xla_cpu_rules", value, NAMES)
    return None if names == NAMES else names
