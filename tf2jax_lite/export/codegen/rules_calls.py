"""Calls of functions by name, which idioms are rewritten to."""

from __future__ import annotations

from .registry import Equation, Raw, call, rule

__all__: list[str] = []


@rule("call")
def _call(eqn: Equation) -> str:
    p = eqn.params
    count = len(eqn.mixed) - len(p["words"])
    words = dict(zip(p["words"], map(Raw, eqn.mixed[count:]), strict=True))
    return call(p["function"], *eqn.mixed[:count], **words, **dict(p["keywords"]))
