"""Rules for dot_general, convolution, FFT, factorizations, triangular solves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.support.errors import UnsupportedError

from .core import OpContext, materialize, rule
from .shapes import dims_of

_PRECISIONS = {"DEFAULT": lax.Precision.DEFAULT, "HIGH": lax.Precision.HIGH, "HIGHEST": lax.Precision.HIGHEST}


def precision_of(attrs: Mapping[str, Any]) -> Any:
    """Return the attributes' precision as jax.lax takes it; None by default."""
    config = attrs.get("precision_config") or ()
    if all(p == "DEFAULT" for p in config):
        return None
    found = tuple(_PRECISIONS[p] for p in config)
    return found[0] if len(set(found)) == 1 else found


def _algorithm(ctx: OpContext) -> Any:
    algorithm = ctx.attr("algorithm")
    if not isinstance(algorithm, dict):
        return None
    names = {"tf32": "TF32", "f8E5M2": "F8_E5M2"}

    def dtype(text: str) -> Any:
        return text if text in names else np.dtype(_FLOATS[text])

    parts = (algorithm["lhs_precision_type"], algorithm["rhs_precision_type"], algorithm["accumulation_type"])
    count = algorithm["num_primitive_operations"]
    key: Any = (*map(str, parts), count)
    if key in _ALGORITHMS:
        return getattr(lax.DotAlgorithmPreset, _ALGORITHMS[key])
    try:
        return lax.DotAlgorithm(
            lhs_precision_type=dtype(str(parts[0])),
            rhs_precision_type=dtype(str(parts[1])),
            accumulation_type=dtype(str(parts[2])),
            lhs_component_count=algorithm["lhs_component_count"],
            rhs_component_count=algorithm["rhs_component_count"],
            num_primitive_operations=count,
            allow_imprecise_accumulation=algorithm["allow_imprecise_accumulation"],
        )
    except KeyError:
        raise UnsupportedError(f"dot algorithm {algorithm} has no counterpart in JAX") from None


_FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64"}
_ALGORITHMS = {
    ("f16", "f16", "f16", 1): "F16_F16_F16",
    ("f16", "f16", "f32", 1): "F16_F16_F32",
    ("bf16", "bf16", "bf16", 1): "BF16_BF16_BF16",
    ("bf16", "bf16", "f32", 1): "BF16_BF16_F32",
    ("bf16", "bf16", "f32", 3): "BF16_BF16_F32_X3",
    ("bf16", "bf16", "f32", 6): "BF16_BF16_F32_X6",
    ("bf16", "bf16", "f32", 9): "BF16_BF16_F32_X9",
    ("tf32", "tf32", "f32", 1): "TF32_TF32_F32",
    ("tf32", "tf32", "f32", 3): "TF32_TF32_F32_X3",
    ("f32", "f32", "f32", 1): "F32_F32_F32",
    ("f64", "f64", "f64", 1): "F64_F64_F64",
}


@rule("stablehlo.dot_general")
def _dot_general(ctx: OpContext, lhs: Any, rhs: Any) -> Any:
    numbers = ctx.attr("dot_dimension_numbers")
    preferred = ctx.dtype
    algorithm = _algorithm(ctx)
    return lax.dot_general(
        lhs,
        rhs,
        (
            (numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"]),
            (numbers["lhs_batching_dimensions"], numbers["rhs_batching_dimensions"]),
        ),
        precision=precision_of(ctx.op.attrs) if algorithm is None else algorithm,
        preferred_element_type=preferred,
    )


@rule("stablehlo.dot")
def _dot(ctx: OpContext, lhs: Any, rhs: Any) -> Any:
    return lax.dot_general(
        lhs,
        rhs,
        (((lhs.ndim - 1,), (0,)), ((), ())),
        precision=precision_of(ctx.op.attrs),
        preferred_element_type=ctx.dtype,
    )


@rule("stablehlo.convolution")
def _convolution(ctx: OpContext, lhs: Any, rhs: Any) -> Any:
    rank = lhs.ndim - 2
    padding = ctx.attr("padding")
    pairs = [(0, 0)] * rank if padding is None else np.asarray(padding).reshape(-1, 2).tolist()
    return _convolve(ctx, lhs, rhs, [(int(a), int(b)) for a, b in pairs])


@rule("stablehlo.dynamic_conv", lazy=True)
def _dynamic_convolution(ctx: OpContext, lhs: Any, rhs: Any, padding: Any) -> Any:
    flat = dims_of(ctx, padding, "the padding of a convolution")
    return _convolve(ctx, materialize(lhs), materialize(rhs), list(zip(flat[::2], flat[1::2], strict=True)))


def _convolve(ctx: OpContext, lhs: Any, rhs: Any, padding: list[tuple[Any, Any]]) -> Any:
    return convolution(lhs, rhs, {**ctx.op.attrs, "padding": padding}, ctx.dtype)


def convolution(lhs: Any, rhs: Any, attrs: Mapping[str, Any], preferred: Any) -> Any:
    """Convolve.

    Args:
      lhs: the array, of any rank from 2 on.
      attrs: the attributes of a ``stablehlo.convolution``; missing ones have defaults.
      preferred: the dtype of the result; None for that of the operands.
    """
    numbers = attrs["dimension_numbers"]
    rank = lhs.ndim - 2

    def ones(name: str) -> tuple[int, ...]:
        found = attrs.get(name)
        return (1,) * rank if found is None else tuple(found)

    spatial = numbers["kernel_spatial_dimensions"]
    reversal = attrs.get("window_reversal") or (0,) * rank
    reversed_axes = tuple(spatial[i] for i, flag in enumerate(np.asarray(reversal).reshape(-1)) if flag)
    if reversed_axes:
        rhs = lax.rev(rhs, reversed_axes)
    found = attrs.get("padding")
    padding: Any = [(0, 0)] * rank if found is None else [(low, high) for low, high in found]
    if not all(isinstance(n, (int, np.integer)) for pair in padding for n in pair):
        lhs, padding = _padded(lhs, rhs, attrs, padding, ones)
        attrs = {**attrs, "lhs_dilation": None}
    return lax.conv_general_dilated(
        lhs,
        rhs,
        window_strides=ones("window_strides"),
        padding=padding,
        lhs_dilation=ones("lhs_dilation"),
        rhs_dilation=ones("rhs_dilation"),
        dimension_numbers=lax.ConvDimensionNumbers(
            (
                numbers["input_batch_dimension"],
                numbers["input_feature_dimension"],
                *numbers["input_spatial_dimensions"],
            ),
            (numbers["kernel_output_feature_dimension"], numbers["kernel_input_feature_dimension"], *spatial),
            (
                numbers["output_batch_dimension"],
                numbers["output_feature_dimension"],
                *numbers["output_spatial_dimensions"],
            ),
        ),
        feature_group_count=attrs.get("feature_group_count", 1),
        batch_group_count=attrs.get("batch_group_count", 1),
        precision=precision_of(attrs),
        preferred_element_type=preferred,
    )


def _padded(lhs: Any, rhs: Any, attrs: Mapping[str, Any], padding: Any, ones: Any) -> tuple[Any, Any]:
    """Pad by symbolic numbers, which jax.lax's convolutions take as names only."""
    numbers = attrs["dimension_numbers"]
    axes, spatial = numbers["input_spatial_dimensions"], numbers["kernel_spatial_dimensions"]
    if set(ones("lhs_dilation")) <= {1}:
        windows = [(rhs.shape[d] - 1) * step + 1 for d, step in zip(spatial, ones("rhs_dilation"), strict=True)]
        sizes = [lhs.shape[d] for d in axes]
        if list(lax.padtype_to_pads(sizes, windows, ones("window_strides"), "SAME")) == padding:
            return lhs, "SAME"
    config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * lhs.ndim
    for axis, (low, high), step in zip(axes, padding, ones("lhs_dilation"), strict=True):
        config[axis] = (low, high, step - 1)
    return lax.pad(lhs, np.zeros((), lhs.dtype), config), [(0, 0)] * len(axes)


@rule("stablehlo.fft")
def _fft(ctx: OpContext, x: Any) -> Any:
    return lax.fft(x, getattr(lax.FftType, ctx.attr("fft_type")), tuple(ctx.attr("fft_length")))


@rule("stablehlo.cholesky")
def _cholesky(ctx: OpContext, x: Any) -> Any:
    if ctx.attr("lower", False):
        return lax.linalg.cholesky(x, symmetrize_input=False)
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    factor = lax.linalg.cholesky(lax.transpose(x, axes).conj(), symmetrize_input=False)
    return lax.transpose(factor.conj(), axes)


@rule("stablehlo.triangular_solve")
def _triangular_solve(ctx: OpContext, a: Any, b: Any) -> Any:
    transpose = ctx.attr("transpose_a", "NO_TRANSPOSE")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=bool(ctx.attr("left_side")),
        lower=bool(ctx.attr("lower")),
        transpose_a=transpose != "NO_TRANSPOSE",
        conjugate_a=transpose == "ADJOINT",
        unit_diagonal=bool(ctx.attr("unit_diagonal")),
    )
