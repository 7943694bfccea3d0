"""Signatures of implementations that are made for the attributes which the nodes of a graph have."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable

from tf2jax_lite.ops.traits import Context

__all__ = ["signature_of"]

_INPUTS = "inputs"


def signature_of(attrs: Iterable[str], first: str | None = None) -> inspect.Signature:
    """Returns a signature that takes any inputs, and each of some attributes as a keyword, None by default.

    Those whose names Python has no parameters for are left out: plans refuse them as attributes that are not known.

    Args:
      attrs: names of attributes, as nodes have them.
      first: a parameter before the inputs, for the context.
    """
    kinds = inspect.Parameter
    taken = {_INPUTS, first}
    names = sorted({a for a in attrs if a.isidentifier() and not keyword.iskeyword(a) and a not in taken})
    before = [] if first is None else [kinds(first, kinds.POSITIONAL_ONLY, annotation=Context)]
    after = [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in names]
    return inspect.Signature([*before, kinds(_INPUTS, kinds.VAR_POSITIONAL), *after])
