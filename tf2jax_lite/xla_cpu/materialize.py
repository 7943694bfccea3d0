"""Values that XLA is to compute once, although several operations use them.

XLA's CPU backend puts cheap operations into each of their users, and takes an operation with one large operand for
cheap whatever that operand is made of. In a residual network each block's sum ends in such an operation (a rectifier),
so that every block adds up all the blocks before it anew, in code of its own. A mark on the sum ends this: the sum is
written to memory once, where a convolution or a product would have it anyway.

On CPU a mark is a call that gives its argument back; XLA neither looks through it nor copies anything. Elsewhere it is
nothing at all. Its derivative is linear, and cotangents are marked as values are: what all the users of a value send
back is summed once, too.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from tf2jax_lite.jaxprs.compat import Primitive, ir, is_traced, register

__all__ = ["call_marked", "lower_once", "once", "once_if_traced"]


def once(value: Any) -> Any:
    """Returns an array unchanged, to be computed once on CPU.

    Args:
      value: an array of any shape and floating or complex dtype.
    """
    return _once.bind(value)


def once_if_traced(value: Any) -> Any:
    """Returns what `once` does for an array that is traced, and anything else as it is."""
    if not is_traced(value) or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return once(value)


def call_marked(call: Any) -> Any:
    """Returns an operation, a call, marked to stay one: for XLA, and for JAX's refinement of exported modules."""
    marks: dict[str, Any] = {"inlineable": ir.StringAttr.get("false")}
    call.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(marks)
    call.attributes["no_inline"] = ir.UnitAttr.get()
    return call


def lower_once(ctx: Any, value: Any) -> Any:
    """Lowers a mark.

    Its function is written by hand, as JAX's own calls take the index of the platform with them where a module is for
    several platforms, and are put in place when that is known.

    Args:
      ctx: what a lowering rule gets.
      value: what is marked.
    """
    module, type_ = ctx.module_context, value.type
    # Types that MLIR writes alike (?x?x8) may become different ones when the sizes of an exported function are known.
    key = _once, type_, ctx.avals_in[0].shape
    function = module.cached_primitive_lowerings.get(key)
    if function is None:
        attributes = {
            "sym_name": ir.StringAttr.get("once"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([type_], [type_])),
            "sym_visibility": ir.StringAttr.get("private"),
        }
        function = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=module.ip)
        module.symbol_table.insert(function)  # under another name, should that be taken
        block = ir.Block.create_at_start(function.regions[0], [type_])
        ir.Operation.create("func.return", operands=[block.arguments[0]], ip=ir.InsertionPoint(block))
        module.cached_primitive_lowerings[key] = function
    callee = ir.FlatSymbolRefAttr.get(ir.StringAttr(function.attributes["sym_name"]).value)
    call = ir.Operation.create("func.call", results=[type_], operands=[value], attributes={"callee": callee})
    return call_marked(call).results


_once = Primitive("once")
register(
    _once,
    impl=lambda x: x,
    abstract=lambda x: x,
    linear=lambda cotangent, _: [once(cotangent)],
    batch="elementwise",
    lowering=lambda ctx, x: [x],
    cpu_lowering=lower_once,
)
