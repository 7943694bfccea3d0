"""Calls of functions by name, which idioms are rewritten to."""

from __future__ import annotations

from .idioms.defaults import DEFAULTS
from .registry import Equation, Raw, call, rule

__all__: list[str] = []


@rule("call")
def _call(eqn: Equation) -> str:
    p = eqn.params
    count = len(eqn.mixed) - len(p["words"])
    words = dict(zip(p["words"], map(Raw, eqn.mixed[count:]), strict=True))
    defaults = {name: Raw(text) for name, text in DEFAULTS.get(p["function"], {}).items()}
    return call(p["function"], *eqn.mixed[:count], **{**defaults, **words, **dict(p["keywords"])})
