"""A CPU lowering rule, the rules in force, and the primitives that have rules.

XLA's CPU backend runs some convolutions and poolings many times slower than the same sums written as other
operations. Which is faster depends on the platform and on the shape, and is known only when a program is compiled,
after differentiation and batching. So a rule is data: a name, a predicate on a primitive's operands and parameters, and
the function that computes the result in another way. Each primitive has one ordered table of rules; the first one that
is in force and applies is taken (`choose`). `transform` makes programs ask the tables.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

import jax

Selection = frozenset[str] | None
"""Names of the rules in force; None for all."""

CpuLowering = Callable[..., Any]
"""Takes a primitive's operands and parameters; returns the result, or None for the primitive itself."""

_lowerings: dict[Any, CpuLowering] = {}
_context = jax.make_user_context(None)
_log = logging.getLogger("tf2jax_lite.xla_cpu")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One CPU lowering rule.

    Attributes:
      name: switches the rule off or on (option ``xla_cpu_rules``); several primitives may share one.
      applies: whether the rule is for these operands and parameters.
      lower: computes the result; None leaves it to XLA, so that no later rule is tried.
      reason: why the rule exists, or stands at its position.
    """

    name: str
    applies: Callable[..., bool]
    lower: Callable[..., Any] | None
    reason: str


def with_cpu_rules(primitive: Any, lowering: CpuLowering) -> None:
    """Give a JAX primitive a lowering on CPU, which consults a table of rules."""
    _lowerings[primitive] = lowering


def cpu_lowering(primitive: Any) -> CpuLowering | None:
    """Return the lowering of `with_cpu_rules`, or None."""
    return _lowerings.get(primitive)


def current() -> Selection:
    """Return the names of the rules in force here."""
    return _context.value


def using(selected: Selection) -> contextlib.AbstractContextManager[Any]:
    """Put rules in force in this thread; functions traced inside keep them."""
    return contextlib.nullcontext() if current() == selected else _context(selected)


def choose(rules: Iterable[Rule], *args: Any, **params: Any) -> Rule | None:
    """Return the first rule in force that applies, or None for XLA's lowering."""
    selected = current()
    for rule in rules:
        if (rule.lower is None or selected is None or rule.name in selected) and rule.applies(*args, **params):
            _log.debug("%s", rule.name)
            return None if rule.lower is None else rule
    return None


def by_table(rules: Iterable[Rule], **constants: Any) -> CpuLowering:
    """Return the lowering by a table: the first rule that applies, or None.

    Args:
      rules: take a primitive's operands and parameters.
      **constants: further keywords of `Rule.lower`.
    """

    def lower(*args: Any, **params: Any) -> Any:
        rule = choose(rules, *args, **params)
        return None if rule is None or rule.lower is None else rule.lower(*args, **params, **constants)

    return lower
