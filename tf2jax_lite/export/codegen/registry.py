"""Register rules that print one primitive in one line of source.

Rules get an equation whose inputs are source text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tf2jax_lite.support.errors import ExportError

from . import literals


@dataclasses.dataclass(frozen=True)
class Equation:
    """An equation without inner functions, its inputs already as text.

    Attributes:
      name: the primitive.
      params: its parameters.
      typed: inputs as source; scalars with their dtype.
      loose: the same with bare scalars.
      inputs: abstract values of inputs.
      outputs: abstract values of results.
    """

    name: str
    params: dict[str, Any]
    typed: list[str]
    loose: list[str]
    inputs: list[Any]
    outputs: list[Any]

    @property
    def mixed(self) -> list[str]:
        """Inputs with bare scalars if another input tells the dtype."""
        return without_types(self.typed, self.loose)


def without_types(typed: list[str], loose: list[str]) -> list[str]:
    """Return operands of one dtype, with untyped numbers if another has the dtype."""
    named = any(t == bare and not is_number(t) for t, bare in zip(typed, loose, strict=True))
    return loose if named else typed


def is_number(text: str) -> bool:
    """Return whether an expression is a bare scalar."""
    return text in ("True", "False") or text.lstrip("-")[:1].isdigit()


def is_numpy(text: str) -> bool:
    """Return whether an expression is a number or a NumPy array."""
    return is_number(text) or text.startswith("np.")


Rule = Callable[[Equation], str]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule that prints some primitives."""

    def register(fn: Rule) -> Rule:
        for name in names:
            _RULES[name] = fn
        return fn

    return register


def expression(eqn: Equation) -> str:
    """Return the right-hand side for an equation.

    Raises:
      ExportError: the primitive has no rule.
    """
    found = _RULES.get(eqn.name)
    if found is None:
        raise ExportError(f"JAX's primitive {eqn.name!r} cannot be written as source")
    return found(eqn)


def call(fn: str, *args: str, **kwargs: Any) -> str:
    """Return a call; keyword values are Python values."""
    words = [f"{k}={v if isinstance(v, Raw) else literals.value(v)}" for k, v in kwargs.items() if v is not None]
    return f"{fn}({', '.join([*args, *words])})"


class Raw(str):
    """Source that is used as it stands."""


def tuple_of(items: list[str]) -> str:
    """Return a tuple of expressions."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
