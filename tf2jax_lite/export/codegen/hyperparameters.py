"""Write hyperparameters that all calls of a helper share as its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import literals
from .block_ir import Block, Equation, Literal

Shared = Mapping[str, Mapping[str, str]]
"""Source of the hyperparameters by helper and parameter."""

_PARAMETERS = ("epsilon", "momentum", "rate", "scale", "lowest")
_ATTENTION = ("scale", "mask", "lowest")
_STEPS = {"batch_norm": "_batch_norm", "jax_dropout": "_dropout"}
"""Steps that are calls of a helper, with hyperparameters among their params."""


def share(blocks: Sequence[Block]) -> dict[str, dict[str, str]]:
    """Return hyperparameters that all calls of a helper share, and remove them.

    Args:
      blocks: whole functions; changed in place.
    """
    steps: list[tuple[str, Equation]] = [(name, s) for block in blocks for s in _steps(block) if (name := _helper(s))]
    found: dict[str, dict[str, str]] = {}
    for helper in {name for name, _ in steps}:
        own = [step for name, step in steps if name == helper]
        for word in _PARAMETERS:
            values = {text for step in own if (text := _value(step, word)) is not None}
            if len(values) == 1 and "" not in values:  # a computed one has no source here
                found.setdefault(helper, {})[word] = values.pop()
                for step in own:
                    _remove(step, word)
    return found


def write_scales(block: Block) -> None:
    """Write factors of attention's scores in terms of the size that is summed over."""
    makers = {id(v): s for s in block.steps for v in s.outputs}
    for step in block.steps:
        for inner in step.blocks.values():
            write_scales(inner)
        if step.params.get("function") == "_attention":
            _scale_attention(step)
        if step.name == "einsum":
            for item, letters in zip(step.inputs, step.params["operands"], strict=True):
                if letters and letters[-1] not in step.params["result"]:
                    _scale(makers.get(id(item)))
        if step.name in _SCALES:
            product = makers.get(id(step.inputs[0]))
            if product is not None and product.name == "einsum":
                ends = [
                    v
                    for v, w in zip(product.inputs, product.params["operands"], strict=True)
                    if w[-1:] and w[-1] not in product.params["result"]
                ]
                _scale(step, *ends[-1:])


_SCALES = {"mul": ("*", -0.5), "div": ("/", 0.5)}


def _scale(step: Equation | None, *sized: Any) -> None:
    """Write a product with a power of the last axis's size.

    Args:
      step: the product.
      *sized: the value whose axis it is, if not the operand.
    """
    if step is None or step.name not in _SCALES or len(step.inputs) != 2:
        return
    x, factor = step.inputs if not isinstance(step.inputs[0], Literal) or step.name == "div" else step.inputs[::-1]
    operator, exponent = _SCALES[step.name]
    if isinstance(x, Literal) or not isinstance(factor, Literal) or factor.array.ndim:
        return
    of = sized[0] if sized else x
    if _is_power(of.aval.shape[-1:], factor, exponent):
        step.name, step.params = "scale_by_size", {"operator": operator, "exponent": exponent}
        step.inputs = [x, *sized]


def _is_power(sizes: Sequence[Any], factor: Literal, exponent: float) -> bool:
    """Return whether a factor is a power of the only size."""
    size = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], int) else 0
    return size > 1 and factor.array == np.asarray(size**exponent, factor.array.dtype)


def _scale_attention(step: Equation) -> None:
    """Pass scale and mask of attention by keyword, and no scale that is the default."""
    query, scale = step.inputs[0], step.inputs[3]
    words = _ATTENTION[: len(step.inputs) - 3]
    step.params = {**step.params, "words": words}
    if isinstance(scale, Literal) and _is_power(query.aval.shape[-1:], scale, -0.5):
        _remove(step, "scale")


def with_defaults(text: str, defaults: Mapping[str, str]) -> str:
    """Return a helper's source with defaults of its parameters."""
    head, colon, body = text.partition(":\n")
    for word, value in defaults.items():
        head = re.sub(rf"\b{word}(?:=[^,)]*)?(?=[,)])", f"{word}={value}", head)
    return head + colon + body


def _steps(block: Block) -> Iterator[Equation]:
    for step in block.steps:
        yield step
        for inner in step.blocks.values():
            yield from _steps(inner)


def _helper(step: Equation) -> str:
    function = step.params.get("function", "")
    return _STEPS.get(step.name) or (function if function.startswith("_") else "")


def _value(step: Equation, word: str) -> str | None:
    """Return the source of a call's hyperparameter, None if it has none."""
    if step.name in _STEPS:
        value = step.params.get(word)
        return None if value is None else literals.value(value)
    if word in dict(step.params["keywords"]):
        return literals.value(dict(step.params["keywords"])[word])
    words = step.params["words"]
    item: Any = step.inputs[len(step.inputs) - len(words) + words.index(word)] if word in words else None
    if item is None:
        return None
    return literals.scalar(item.array, typed=False) if isinstance(item, Literal) else ""


def _remove(step: Equation, word: str) -> None:
    if step.name in _STEPS:
        step.params = {**step.params, word: None}
        return
    words, keywords = list(step.params["words"]), dict(step.params["keywords"])
    keywords.pop(word, None)
    if word in words:
        del step.inputs[len(step.inputs) - len(words) + words.index(word)]
        words.remove(word)
    step.params = {**step.params, "words": tuple(words), "keywords": tuple(keywords.items())}
