"""One line of source for each equation: JAX's primitives as calls of ``jax.lax`` and infix operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.errors import ExportError

from . import literals

__all__ = ["Equation", "Raw", "call", "expression", "rule"]


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
        named = any(t == bare and not _is_number(t) for t, bare in zip(self.typed, self.loose, strict=True))
        return self.loose if named else self.typed


def _is_number(text: str) -> bool:
    return text in ("True", "False") or text.lstrip("-")[:1].isdigit()


Rule = Callable[[Equation], str]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers how primitives are written."""

    def register(fn: Rule) -> Rule:
        for name in names:
            _RULES[name] = fn
        return fn

    return register


def expression(eqn: Equation) -> str:
    """Returns the right-hand side for an equation.

    Raises:
      ExportError: the primitive has no spelling in public JAX.
    """
    found = _RULES.get(eqn.name)
    if found is None:
        raise ExportError(f"JAX's primitive {eqn.name!r} cannot be written as source")
    return found(eqn)


def call(fn: str, *args: str, **kwargs: Any) -> str:
    """Returns a call; keyword values are Python values."""
    words = [f"{k}={v if isinstance(v, Raw) else literals.value(v)}" for k, v in kwargs.items() if v is not None]
    return f"{fn}({', '.join([*args, *words])})"


class Raw(str):
    """Source that is used as it stands."""


_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
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
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bessel_i0e",
    "bessel_i1e",
    "cbrt",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "imag",
    "is_finite",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "population_count",
    "real",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "tan",
    "tanh",
]
_BINARY = [
    "atan2",
    "complex",
    "igamma",
    "igammac",
    "max",
    "min",
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


@rule(*_INFIX)
def _infix(eqn: Equation) -> str:
    left, right = eqn.mixed
    if eqn.name == "ne" and left == right:
        return f"jnp.isnan({left})"
    if all(_is_number(v) or "(" in v for v in (left, right)):
        return f"jnp.asarray({left}) {_INFIX[eqn.name]} {right}"
    return f"{left} {_INFIX[eqn.name]} {right}"


@rule("div")
def _div(eqn: Equation) -> str:
    left, right = eqn.mixed
    if jnp.issubdtype(eqn.outputs[0].dtype, jnp.inexact):
        return f"{left} / {right}"
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


@rule("clz")
def _clz(eqn: Equation) -> str:
    return call("lax.clz", eqn.typed[0])


@rule(*_BINARY)
def _binary(eqn: Equation) -> str:
    return call(f"lax.{eqn.name}", *eqn.typed)


@rule("regularized_incomplete_beta")
def _betainc(eqn: Equation) -> str:
    return call("lax.betainc", *eqn.typed)


@rule("random_gamma_grad")
def _gamma_grad(eqn: Equation) -> str:
    return call("lax.random_gamma_grad", *eqn.typed)


@rule("integer_pow")
def _integer_pow(eqn: Equation) -> str:
    return call("lax.integer_pow", eqn.typed[0], str(eqn.params["y"]))


@rule("round")
def _round(eqn: Equation) -> str:
    return call("lax.round", eqn.typed[0], literals.value(eqn.params["rounding_method"]))


@rule("select_n")
def _select_n(eqn: Equation) -> str:
    which, *cases = eqn.typed
    if len(cases) == 2 and eqn.inputs[0].dtype == np.bool_:
        return call("lax.select", which, cases[1], cases[0])
    return call("lax.select_n", which, *cases)


@rule("clamp")
def _clamp(eqn: Equation) -> str:
    return call("lax.clamp", *eqn.typed)


@rule("convert_element_type")
def _convert(eqn: Equation) -> str:
    if eqn.inputs[0].dtype == eqn.params["new_dtype"]:
        return eqn.typed[0]
    return call("lax.convert_element_type", eqn.typed[0], literals.dtype(eqn.params["new_dtype"]))


@rule("bitcast_convert_type")
def _bitcast(eqn: Equation) -> str:
    return call("lax.bitcast_convert_type", eqn.typed[0], literals.dtype(eqn.params["new_dtype"]))


@rule("reduce_precision")
def _reduce_precision(eqn: Equation) -> str:
    p = eqn.params
    return call(
        "lax.reduce_precision", eqn.typed[0], exponent_bits=p["exponent_bits"], mantissa_bits=p["mantissa_bits"]
    )


@rule("broadcast_in_dim")
def _broadcast_in_dim(eqn: Equation) -> str:
    shape = literals.shape(eqn.params["shape"])
    if not eqn.inputs[0].shape and eqn.typed[0] != eqn.loose[0]:
        return call("jnp.full", shape, eqn.loose[0], literals.dtype(eqn.inputs[0].dtype))
    return call("lax.broadcast_in_dim", eqn.typed[0], shape, literals.value(eqn.params["broadcast_dimensions"]))


@rule("reshape")
def _reshape(eqn: Equation) -> str:
    if eqn.params.get("dimensions") is not None:
        raise ExportError("a reshape that permutes dimensions")
    return call("lax.reshape", eqn.typed[0], literals.shape(eqn.params["new_sizes"]))


@rule("squeeze")
def _squeeze(eqn: Equation) -> str:
    return call("lax.squeeze", eqn.typed[0], literals.value(eqn.params["dimensions"]))


@rule("transpose")
def _transpose(eqn: Equation) -> str:
    return call("lax.transpose", eqn.typed[0], literals.value(tuple(eqn.params["permutation"])))


@rule("rev")
def _rev(eqn: Equation) -> str:
    return call("lax.rev", eqn.typed[0], literals.value(tuple(eqn.params["dimensions"])))


@rule("concatenate")
def _concatenate(eqn: Equation) -> str:
    return call("lax.concatenate", f"[{', '.join(eqn.typed)}]", str(eqn.params["dimension"]))


@rule("stack")
def _stack(eqn: Equation) -> str:
    return call("jnp.stack", f"[{', '.join(eqn.typed)}]", axis=eqn.params["axis"])


@rule("unstack")
def _unstack(eqn: Equation) -> str:
    return call("jnp.unstack", eqn.typed[0], axis=eqn.params["axis"])


@rule("tile")
def _tile(eqn: Equation) -> str:
    return call("jnp.tile", eqn.typed[0], literals.shape(eqn.params["reps"]))


@rule("split")
def _split(eqn: Equation) -> str:
    return call("lax.split", eqn.typed[0], literals.shape(eqn.params["sizes"]), axis=eqn.params["axis"])


@rule("pad")
def _pad(eqn: Equation) -> str:
    return call("lax.pad", *eqn.typed, literals.value(tuple(eqn.params["padding_config"])))


@rule("slice")
def _slice(eqn: Equation) -> str:
    p = eqn.params
    strides = p["strides"]
    parts = [literals.shape(p["start_indices"]), literals.shape(p["limit_indices"])]
    if strides is not None:
        parts.append(literals.shape(strides))
    return call("lax.slice", eqn.typed[0], *parts)


@rule("dynamic_slice")
def _dynamic_slice(eqn: Equation) -> str:
    starts = _tuple(eqn.loose[1 : 1 + len(eqn.inputs[0].shape)])
    return call("lax.dynamic_slice", eqn.typed[0], starts, literals.shape(eqn.params["slice_sizes"]))


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation) -> str:
    return call("lax.dynamic_update_slice", eqn.typed[0], eqn.typed[1], _tuple(eqn.loose[2:]))


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


@rule("iota")
def _iota(eqn: Equation) -> str:
    p = eqn.params
    dtype = literals.dtype(p["dtype"])
    if len(p["shape"]) == 1:
        return call("lax.iota", dtype, literals.dimension(p["shape"][0]))
    return call("lax.broadcasted_iota", dtype, literals.shape(p["shape"]), str(p["dimension"]))


@rule("gather")
def _gather(eqn: Equation) -> str:
    p = eqn.params
    sizes = Raw(literals.shape(p["slice_sizes"]))
    kwargs: dict[str, Any] = {"dimension_numbers": Raw(_numbers(p["dimension_numbers"])), "slice_sizes": sizes}
    kwargs["mode"] = Raw(_mode(p["mode"]))
    if p["unique_indices"]:
        kwargs["unique_indices"] = True
    if p["indices_are_sorted"]:
        kwargs["indices_are_sorted"] = True
    return call("lax.gather", *eqn.typed, **kwargs, fill_value=p["fill_value"])


@rule("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
def _scatter(eqn: Equation) -> str:
    p = eqn.params
    kwargs: dict[str, Any] = {"dimension_numbers": Raw(_numbers(p["dimension_numbers"]))}
    if p["indices_are_sorted"]:
        kwargs["indices_are_sorted"] = True
    if p["unique_indices"]:
        kwargs["unique_indices"] = True
    kwargs["mode"] = Raw(_mode(p["mode"]))
    return call(f"lax.{eqn.name}", *eqn.typed, **kwargs)


def _mode(mode: Any) -> str:
    return f"lax.GatherScatterMode.{jax.lax.GatherScatterMode.from_any(mode).name}"


def _numbers(numbers: Any) -> str:
    fields = [(name, getattr(numbers, name)) for name in numbers._fields if name != "mode"]
    given = [f"{name}={literals.value(v)}" for name, v in fields if v != () or "batching" not in name]
    return f"lax.{type(numbers).__name__}({', '.join(given)})"


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(eqn: Equation) -> str:
    return call(f"lax.{eqn.name}", eqn.typed[0], axes=tuple(int(a) for a in eqn.params["axes"]))


@rule("argmax", "argmin")
def _argmax(eqn: Equation) -> str:
    p = eqn.params
    return call(f"lax.{eqn.name}", eqn.typed[0], str(p["axes"][0]), literals.dtype(p["index_dtype"]))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: Equation) -> str:
    p = eqn.params
    return call(f"lax.{eqn.name}", eqn.typed[0], axis=p["axis"], reverse=p["reverse"] or None)


@rule("sort")
def _sort(eqn: Equation) -> str:
    p = eqn.params
    kwargs = {"dimension": p["dimension"], "is_stable": p["is_stable"]}
    if len(eqn.typed) == 1:
        return f"({call('lax.sort', eqn.typed[0], **kwargs)},)"
    return call("lax.sort", _tuple(eqn.typed), **kwargs, num_keys=p["num_keys"])


@rule("top_k")
def _top_k(eqn: Equation) -> str:
    axis = eqn.params.get("axis", len(eqn.inputs[0].shape) - 1)
    return call("lax.top_k", eqn.typed[0], str(eqn.params["k"]), axis=axis)


@rule("dot_general")
def _dot_general(eqn: Equation) -> str:
    p = eqn.params
    (left, right), batch = p["dimension_numbers"]
    a, b = eqn.inputs
    same = a.dtype == b.dtype == eqn.outputs[0].dtype
    plain = not any(batch) and tuple(left) == (len(a.shape) - 1,) and tuple(right) == (0,) and len(b.shape) == 2
    if plain and same and p["precision"] is None and len(a.shape) >= 1:
        return f"{eqn.typed[0]} @ {eqn.typed[1]}"
    numbers = tuple(tuple(tuple(int(d) for d in side) for side in pair) for pair in p["dimension_numbers"])
    kwargs: dict[str, Any] = {}
    if p["precision"] is not None:
        kwargs["precision"] = Raw(_precision(p["precision"]))
    if p["preferred_element_type"] is not None and not same:
        kwargs["preferred_element_type"] = p["preferred_element_type"]
    return call("lax.dot_general", *eqn.typed, literals.value(numbers), **kwargs)


def _precision(precision: Any) -> str:
    if isinstance(precision, (tuple, list)):
        return f"({', '.join(f'lax.Precision.{p.name}' for p in precision)})"
    return literals.value(precision)


@rule("conv_general_dilated")
def _conv(eqn: Equation) -> str:
    p = eqn.params
    numbers = p["dimension_numbers"]
    rank = len(numbers.lhs_spec)
    letters = "DHW"[-(rank - 2) :] if rank <= 5 else "0123456789"[: rank - 2]
    kwargs: dict[str, Any] = {
        "window_strides": tuple(p["window_strides"]),
        "padding": tuple((int(a), int(b)) for a, b in p["padding"]),
    }
    for name in ("lhs_dilation", "rhs_dilation"):
        if any(d != 1 for d in p[name]):
            kwargs[name] = tuple(p[name])
    kwargs["dimension_numbers"] = (
        _spec(numbers.lhs_spec, "NC", letters),
        _spec(numbers.rhs_spec, "OI", letters),
        _spec(numbers.out_spec, "NC", letters),
    )
    for name in ("feature_group_count", "batch_group_count"):
        if p[name] != 1:
            kwargs[name] = p[name]
    if p["precision"] is not None:
        kwargs["precision"] = Raw(_precision(p["precision"]))
    if p["preferred_element_type"] not in (None, eqn.inputs[0].dtype):
        kwargs["preferred_element_type"] = p["preferred_element_type"]
    return call("lax.conv_general_dilated", *eqn.typed, **kwargs)


def _spec(places: Any, first: str, letters: str) -> str:
    out = [""] * len(places)
    for letter, place in zip(first + letters, places, strict=True):
        out[place] = letter
    return "".join(out)


@rule("fft")
def _fft(eqn: Equation) -> str:
    p = eqn.params
    return call("lax.fft", eqn.typed[0], literals.value(p["fft_type"].name), literals.shape(p["fft_lengths"]))


@rule("cholesky")
def _cholesky(eqn: Equation) -> str:
    return call("lax.linalg.cholesky", eqn.typed[0], symmetrize_input=False)


@rule("triangular_solve")
def _triangular_solve(eqn: Equation) -> str:
    p = eqn.params
    words = {k: p[k] for k in ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal") if p[k]}
    return call("lax.linalg.triangular_solve", *eqn.typed, **words)


@rule("qr")
def _qr(eqn: Equation) -> str:
    return call("lax.linalg.qr", eqn.typed[0], full_matrices=eqn.params["full_matrices"])


@rule("lu")
def _lu(eqn: Equation) -> str:
    return call("lax.linalg.lu", eqn.typed[0])


@rule("svd")
def _svd(eqn: Equation) -> str:
    p = eqn.params
    text = call("lax.linalg.svd", eqn.typed[0], full_matrices=p["full_matrices"], compute_uv=p["compute_uv"])
    if not p["compute_uv"]:
        return f"({text},)"
    return f"[{text}[i] for i in (1, 0, 2)]"


@rule("eigh")
def _eigh(eqn: Equation) -> str:
    return call(
        "lax.linalg.eigh", eqn.typed[0], lower=eqn.params["lower"], sort_eigenvalues=False, symmetrize_input=False
    )


@rule("copy", "copy_p", "forward_only", "device_put", "sharding_constraint", "optimization_barrier", "name")
def _same(eqn: Equation) -> str:
    if eqn.name == "optimization_barrier":
        return f"lax.optimization_barrier({_tuple(eqn.typed)})"
    return eqn.typed[0] if len(eqn.typed) == 1 else _tuple(eqn.typed)


@rule("random_wrap")
def _random_wrap(eqn: Equation) -> str:
    return call("jax.random.wrap_key_data", eqn.typed[0], impl=eqn.params["impl"].name)


@rule("random_unwrap")
def _random_unwrap(eqn: Equation) -> str:
    return call("jax.random.key_data", eqn.typed[0])


@rule("random_seed")
def _random_seed(eqn: Equation) -> str:
    return call("jax.random.key", eqn.typed[0], impl=eqn.params["impl"].name)


@rule("random_fold_in")
def _random_fold_in(eqn: Equation) -> str:
    return call("jax.random.fold_in", *eqn.typed)


@rule("random_bits")
def _random_bits(eqn: Equation) -> str:
    p = eqn.params
    return call("jax.random.bits", eqn.typed[0], literals.shape(p["shape"]), f"np.uint{p['bit_width']}")


@rule("random_split")
def _random_split(eqn: Equation) -> str:
    return call("jax.random.split", eqn.typed[0], literals.shape(eqn.params["shape"]))


@rule("rng_bit_generator")
def _rng_bit_generator(eqn: Equation) -> str:
    p = eqn.params
    return call(
        "lax.rng_bit_generator", eqn.typed[0], literals.shape(p["shape"]), literals.dtype(p["dtype"]),
        algorithm=p["algorithm"],
    )  # fmt: skip


@rule("dim_as_value")
def _dim_as_value(eqn: Equation) -> str:
    return f"{literals.dtype(eqn.outputs[0].dtype)}({literals.dimension(eqn.params['dim'])})"
