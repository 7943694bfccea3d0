"""CPU lowering rules by name: how one is described, and which are in force.

A rule is data: a name, a predicate, the function that computes the result in another way, and the kernels that XLA
compiles for it. Each primitive has one ordered tuple of rules; the first one that is in force and applies is taken
(`choose`). If a number of calls is given instead of names, a rule is in force where the run time that it saves in so
many calls outweighs the time to compile its kernels. The selection is part of the key of JAX's caches, so that no
function that was traced or compiled with another one is taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

import jax

from . import cost_model

Selection = frozenset[str] | int | None
"""Names of the rules in force; None for all that this JAX needs; a number for those that pay in so many calls."""

_context = jax.make_user_context(None)
_JAX = jax.__version_info__[:2]  # its XLA is jaxlib's of the same version
_log = logging.getLogger("tf2jax_lite.xla_cpu")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One CPU lowering rule.

    Attributes:
      name: switches the rule off or on (option ``xla_cpu_rules``); several primitives may share one.
      applies: whether the rule is for these parameters.
      lower: computes the result; None leaves it to XLA, so that no later rule is tried.
      reason: why the rule exists, or stands at its position.
      outline: whether the result is computed in a function of its own, which XLA does not inline.
      kernels: the number of kernels that XLA compiles for the rule, beyond those of its own lowering.
      saves: takes what ``applies`` takes; the run time saved in a call, in multiplications of XLA's convolution (see
        `cost_model.KERNEL_PRODUCTS`). Read for rules with ``kernels`` only.
      needless_since: the version of JAX whose XLA is as fast without the rule. From then on the rule is in force only
        where it is named. `choose` reads it; `is_enabled`, for rules chosen while tracing, does not.
    """

    name: str
    applies: Callable[..., bool]
    lower: Callable[..., Any] | None
    reason: str
    outline: bool = False
    kernels: int = 0
    saves: Callable[..., float] = lambda *args, **params: 0.0
    needless_since: tuple[int, int] | None = None

    def pays(self, calls: int, *args: Any, **params: Any) -> bool:
        """Return whether the rule saves its compile time in so many calls."""
        return self.kernels == 0 or calls * self.saves(*args, **params) >= self.kernels * cost_model.KERNEL_PRODUCTS


def current() -> Selection:
    """Return the selection in force here."""
    return _context.value


def is_enabled(name: str) -> bool:
    """Return whether a rule is in force here, for some shapes at least."""
    selected = current()
    return not isinstance(selected, frozenset) or name in selected


def in_force(rule: Rule) -> bool:
    """Return whether a rule is in force here: it is named, or this JAX needs it."""
    selected = current()
    if isinstance(selected, frozenset):
        return rule.name in selected
    return rule.needless_since is None or rule.needless_since > _JAX


def using(selected: Selection) -> contextlib.AbstractContextManager[Any]:
    """Put rules in force in this thread; functions traced inside keep them."""
    return contextlib.nullcontext() if current() == selected else _context(selected)


def choose(rules: Iterable[Rule], *args: Any, **params: Any) -> Rule | None:
    """Return the first rule in force that applies, or None for XLA's lowering."""
    selected = current()
    for rule in rules:
        if not ((rule.lower is None or in_force(rule)) and rule.applies(*args, **params)):
            continue
        if isinstance(selected, int) and not rule.pays(selected, *args, **params):
            continue
        _log.debug("%s", rule.name)
        return None if rule.lower is None else rule
    return None


def by_table(rules: Iterable[Rule], **constants: Any) -> Callable[..., Any]:
    """Return the lowering by a table: the first rule that applies, or None.

    Args:
      rules: take a primitive's operands and parameters.
      **constants: further keywords of `Rule.lower`.
    """

    def lower(*args: Any, **params: Any) -> Any:
        rule = choose(rules, *args, **params)
        return None if rule is None or rule.lower is None else rule.lower(*args, **params, **constants)

    return lower
