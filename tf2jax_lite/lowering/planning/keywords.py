"""Signatures of implementations made for the attributes of graph nodes."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable

from tf2jax_lite.ops.traits import Context

_INPUTS = "inputs"


def signature_of(attrs: Iterable[str], first: str | None = None) -> inspect.Signature:
    """Return a signature of any inputs, and attributes as keywords (None).

    Attributes whose names are no Python identifiers are left out: plans raise an error for them.
    """
    kinds = inspect.Parameter
    taken = {_INPUTS, first}
    names = sorted({a for a in attrs if a.isidentifier() and not keyword.iskeyword(a) and a not in taken})
    before = [] if first is None else [kinds(first, kinds.POSITIONAL_ONLY, annotation=Context)]
    after = [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in names]
    return inspect.Signature([*before, kinds(_INPUTS, kinds.VAR_POSITIONAL), *after])
