"""Values that XLA is to compute once, although several operations use them.

XLA's CPU backend fuses cheap operations into each of their users, and takes an operation with one large operand for
cheap however costly that operand is. In a residual network each block's sum ends in such an operation (a rectifier), so
that every block adds up all the blocks before it again, in code of its own. `materialize` ends this: the sum is written
to memory once, where a convolution or a product would have it anyway.

On CPU it is a call of an identity function that is not inlined; XLA neither looks through it nor copies anything.
Elsewhere it lowers to nothing. It is linear, and cotangents are materialized as values are: the cotangents of all users
of a value are summed once, too. ``lax.optimization_barrier`` does not serve: XLA removes it before fusion.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .compat import Primitive, ir, is_traced, register


def materialize(value: Any) -> Any:
    """Return an array unchanged, to be computed once on CPU.

    Args:
      value: an array of any shape and floating or complex dtype.
    """
    return _materialize_p.bind(value)


def materialize_if_traced(value: Any) -> Any:
    """Return traced floating or complex arrays materialized, others as is."""
    if not is_traced(value) or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return materialize(value)


def _lower_on_cpu(ctx: Any, value: Any) -> Any:
    """Lower `materialize` to a call that is not inlined.

    The function is built here, as JAX's own calls pass on the platform's index where a module is for several
    platforms, and are inlined when that is known.
    """
    module, type_ = ctx.module_context, value.type
    # Types that MLIR writes as the same (?x?x8) may differ when the sizes of an exported function become static.
    key = _materialize_p, type_, ctx.avals_in[0].shape
    function = module.cached_primitive_lowerings.get(key)
    if function is None:
        attributes = {
            "sym_name": ir.StringAttr.get("materialize"),
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
    # Neither XLA nor JAX inlines it; JAX would in its refinement of exported modules.
    call.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get({"inlineable": ir.StringAttr.get("false")})
    call.attributes["no_inline"] = ir.UnitAttr.get()
    return call.results


_materialize_p = Primitive("materialize")
register(
    _materialize_p,
    impl=lambda x: x,
    abstract=lambda x: x,
    linear=lambda cotangent, _: [_materialize_p.bind(cotangent)],
    batch="elementwise",
    lowering=lambda ctx, x: [x],
    cpu_lowering=_lower_on_cpu,
)
