"""Print elementwise primitives as calls of ``jax.lax`` and infix operators.

Primitives that return their operand print as the operand.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from . import literals
from .idioms.defaults import DEFAULTS
from .registry import Equation, Raw, call, is_number, is_numpy, rule, tuple_of, without_types

__all__: list[str] = []


_INFIX = {
    "add": "+",
    "add_any": "+",  # how JAX adds up tangents
    "sub": "-",
    "mul": "*",
    "mod": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_UNARY = [
    "acosh",
    "bessel_i0e",
    "bessel_i1e",
    "conj",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "lgamma",
    "population_count",
    "rsqrt",
    "stop_gradient",
]
_NUMPY = {
    **{
        name: name
        for name in (
            "abs",
            "cbrt",
            "ceil",
            "cos",
            "cosh",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "imag",
            "log",
            "log1p",
            "log2",
            "real",
            "sign",
            "sin",
            "sinh",
            "sqrt",
            "square",
            "tan",
            "tanh",
        )
    },
    "acos": "arccos",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "is_finite": "isfinite",
}
"""Primitives that functions of `jax.numpy` bind for all dtypes, by the function's name."""
_BINARY = [
    "atan2",
    "complex",
    "igamma",
    "igammac",
    "mulhi",
    "nextafter",
    "polygamma",
    "pow",
    "rem",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "zeta",
    "igamma_grad_a",
]


def _operation(left: str, operator: str, right: str) -> str:
    if is_numpy(left) and is_numpy(right):
        left = f"jnp.asarray({left})"
    if operator == "+" and right.startswith("-") and is_number(right):
        operator, right = "-", right[1:]
    return f"{left} {operator} {right}"


@rule(*_INFIX)
def _infix(eqn: Equation) -> str:
    left, right = eqn.mixed
    if eqn.name == "ne" and left == right:
        return f"jnp.isnan({left})"
    return _operation(left, _INFIX[eqn.name], right)


@rule("div")
def _div(eqn: Equation) -> str:
    if jnp.issubdtype(eqn.outputs[0].dtype, jnp.inexact):
        return _operation(eqn.mixed[0], "/", eqn.mixed[1])
    return call("lax.div", *eqn.typed)


@rule("neg")
def _neg(eqn: Equation) -> str:
    return f"-{eqn.typed[0]}"


@rule("not")
def _not(eqn: Equation) -> str:
    return f"~{eqn.typed[0]}"


@rule(*_UNARY)
def _unary(eqn: Equation) -> str:
    return call(f"lax.{eqn.name}", eqn.typed[0])


@rule(*_NUMPY)
def _numpy(eqn: Equation) -> str:
    return call(f"jnp.{_NUMPY[eqn.name]}", eqn.typed[0])


@rule("logistic")
def _logistic(eqn: Equation) -> str:
    return call("jax.nn.sigmoid", eqn.typed[0])


@rule("clz")
def _clz(eqn: Equation) -> str:
    return call("lax.clz", eqn.typed[0])


@rule("max", "min")
def _extremum(eqn: Equation) -> str:
    return call({"max": "jnp.maximum", "min": "jnp.minimum"}[eqn.name], *eqn.mixed)


@rule(*_BINARY)
def _binary(eqn: Equation) -> str:
    return call(f"lax.{eqn.name}", *eqn.typed)


@rule("lt_to", "le_to", "eq_to")
def _in_total_order(eqn: Equation) -> str:
    return call(f"lax.{eqn.name}_p.bind", *eqn.typed)


@rule("one_minus_square")  # of JAX since 0.12, written for those before it, too
def _one_minus_square(eqn: Equation) -> str:
    x = eqn.typed[0]
    return f"(1 + {x}) * (1 - {x})"


@rule("polynomial")  # likewise
def _polynomial(eqn: Equation) -> str:
    x, *coefficients, total = eqn.typed
    for coefficient in reversed(coefficients):
        total = f"{coefficient} + {x} * ({total})"
    return total


@rule("regularized_incomplete_beta")
def _betainc(eqn: Equation) -> str:
    return call("lax.betainc", *eqn.typed)


@rule("random_gamma_grad")
def _gamma_grad(eqn: Equation) -> str:
    return call("lax.random_gamma_grad", *eqn.typed)


@rule("integer_pow")
def _integer_pow(eqn: Equation) -> str:
    x, exponent = eqn.typed[0], eqn.params["y"]
    if exponent == 2:
        return call("jnp.square", x)
    fn = "jnp.power" if exponent > 0 and jnp.issubdtype(eqn.inputs[0].dtype, jnp.floating) else "lax.integer_pow"
    return call(fn, x, str(exponent))


@rule("round")
def _round(eqn: Equation) -> str:
    return call("lax.round", eqn.typed[0], literals.value(eqn.params["rounding_method"]))


@rule("mul_no_nan")
def _mul_no_nan(eqn: Equation) -> str:
    # The plain product: JAX could not transpose the comparison, were it written out.
    return _operation(eqn.typed[0], "*", eqn.typed[1])


@rule("select_n")
def _select_n(eqn: Equation) -> str:
    which, *cases = eqn.typed
    if len(cases) != 2 or eqn.inputs[0].dtype != np.bool_:
        return call("lax.select_n", which, *cases)
    cases = without_types(eqn.typed[1:], eqn.loose[1:])
    return call("jnp.where", which, cases[1], cases[0])


@rule("clamp")
def _clamp(eqn: Equation) -> str:
    return call("lax.clamp", *eqn.typed)


@rule("convert_element_type")
def _convert(eqn: Equation) -> str:
    if eqn.inputs[0].dtype == eqn.params["new_dtype"]:
        return eqn.typed[0]
    dtype = literals.dtype(eqn.params["new_dtype"])
    if jnp.issubdtype(eqn.inputs[0].dtype, jnp.complexfloating):  # of which astype takes the real part with a warning
        return call("lax.convert_element_type", eqn.typed[0], dtype)
    return f"{eqn.typed[0]}.astype({dtype})"


@rule("bitcast_convert_type")
def _bitcast(eqn: Equation) -> str:
    return call("lax.bitcast_convert_type", eqn.typed[0], literals.dtype(eqn.params["new_dtype"]))


@rule("reduce_precision")
def _reduce_precision(eqn: Equation) -> str:
    p = eqn.params
    return call(
        "lax.reduce_precision", eqn.typed[0], exponent_bits=p["exponent_bits"], mantissa_bits=p["mantissa_bits"]
    )


@rule(
    "copy",
    "copy_p",
    "forward_only",
    "reverse_only",
    "device_put",
    "sharding_constraint",
    "optimization_barrier",
    "name",
    "materialize",
)
def _same(eqn: Equation) -> str:
    if eqn.name == "optimization_barrier":
        return f"lax.optimization_barrier({tuple_of(eqn.typed)})"
    return eqn.typed[0] if len(eqn.typed) == 1 else tuple_of(eqn.typed)


@rule("dim_as_value")
def _dim_as_value(eqn: Equation) -> str:
    # NumPy takes no symbolic dimension, which a size is where the module is exported once more.
    return call("jnp.asarray", literals.dimension(eqn.params["dim"]), literals.dtype(eqn.outputs[0].dtype))


@rule("scale_by_size")
def _scale_by_size(eqn: Equation) -> str:
    return f"{eqn.typed[0]} {eqn.params['operator']} {eqn.typed[-1]}.shape[-1] ** {eqn.params['exponent']}"


@rule("call")
def _call(eqn: Equation) -> str:
    p, args = eqn.params, list(eqn.mixed)
    if layer := p.get("weights", ()):
        pairs = zip(layer, args[-len(layer) :], strict=True)
        args[-len(layer) :] = ["{" + ", ".join(f"{literals.value(name)}: {text}" for name, text in pairs) + "}"]
    count = len(args) - len(p["words"])
    words = dict(zip(p["words"], map(Raw, args[count:]), strict=True))
    defaults = {name: Raw(text) for name, text in DEFAULTS.get(p["function"], {}).items()}
    return call(p["function"], *args[:count], **{**defaults, **words, **dict(p["keywords"])})
