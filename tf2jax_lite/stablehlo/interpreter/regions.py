"""Classify small computations: a monoid, a comparison, or neither."""

from __future__ import annotations

from typing import Any

from tf2jax_lite.stablehlo.parsing.module import Op, Region


def single_op(region: Region) -> str:
    """Return the op of a region of two scalars, or "".

    It is "first" or "second" for an argument. Ops that mind the order of their operands count only if they take the two
    arguments in order.
    """
    if len(region.returns) != 1 or len(region.args) != 2:
        return ""
    result = region.returns[0]
    if not region.ops:
        return {region.args[0]: "first", region.args[1]: "second"}.get(result, "")
    if len(region.ops) != 1:
        return ""
    (op,) = region.ops
    if op.results != (result,):
        return ""
    name = op.name.removeprefix("stablehlo.")
    if op.operands == region.args or (op.operands == region.args[::-1] and name in _COMMUTATIVE):
        return name if name != "compare" else str(op.attrs["comparison_direction"])
    return ""


_COMMUTATIVE = {"add", "multiply", "maximum", "minimum", "and", "or", "xor"}


def expression(region: Region, value: int, constants: Any = None) -> Any:
    """Return a region's value as ("arg", i), ("constant", x), or (op, detail, ...)."""
    made: dict[int, Op] = {v: op for op in region.ops for v in op.results}
    args = {v: i for i, v in enumerate(region.args)}

    def build(number: int, depth: int) -> Any:
        if number in args:
            return ("arg", args[number])
        op = made.get(number)
        if op is None:
            return ("outer", number) if constants is None else ("constant", _plain(constants(number)))
        if depth > 40:
            return ("deep",)
        name = op.name.removeprefix("stablehlo.")
        if name == "constant":
            value = op.attrs["value"]
            return ("constant", _plain(value.reshape(-1)[0].item()) if value.size else None)
        detail = str(op.attrs.get("comparison_direction", ""))
        return (name, detail, *(build(v, depth + 1) for v in op.operands))

    return build(value, 0)


def _plain(value: Any) -> Any:
    return "nan" if value != value else value  # so that it compares equal
