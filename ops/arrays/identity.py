"""Constants, placeholders, and ops that pass values on.

Kernels: constant_op.cc, identity_op.cc, identity_n_op.cc, check_numerics_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify

from tf2jax_lite import ir
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Option, partial_fold
from tf2jax_lite.support.errors import OpError, PreventedGradientError
from tf2jax_lite.values.static import canonical
from tf2jax_lite.values.tensors import Tensor
from tf2jax_lite.values.types import Array, PartialShape


def _constant(*, value: Any, dtype: Any = None) -> Any:
    value = np.asarray(value)
    # JAX caches conversions by array identity, in both x64 modes. An array that is narrowed to 32 bits gets another
    # identity, as programs in the other mode read the same constant.
    narrowed = value.dtype.kind in "iufc" and canonical(value.dtype) != value.dtype
    return value.view() if narrowed else value


@op("Const", "HostConst", fold=_constant)
def const(*, value: np.ndarray, dtype: ir.DType | None = None) -> Tensor:
    """Return a constant. TF: tf.raw_ops.Const."""
    return _constant(value=value, dtype=dtype)


@op("Identity", "Snapshot", "GuaranteeConst", "_EagerConst", int64="per_word", fold=partial_fold(lambda input: input))
def identity(input: Tensor) -> Tensor:
    """Return the input. TF: tf.raw_ops.Identity."""
    return input


@op("DeepCopy", fold=lambda x: x)
def deep_copy(x: Tensor) -> Tensor:
    """Return the input, as JAX arrays are immutable. TF: tf.raw_ops.DeepCopy."""
    return x


@op("IdentityN", "_ListToArray", int64="per_word", fold=lambda input: list(input))
def identity_n(input: list[Tensor]) -> list[Tensor]:
    """Return the inputs. TF: tf.raw_ops.IdentityN."""
    return list(input)


@op("_ArrayToList", fold=lambda input, *, out_types=(): list(input))
def array_to_list(input: list[Tensor], *, out_types: Sequence[ir.DType] = ()) -> list[Tensor]:
    """Return the inputs. TF: _ArrayToList (core/ops/function_ops.cc)."""
    return list(input)


@op("StopGradient", fold=lambda input: input)
def stop_gradient(input: Tensor) -> Tensor:
    """Return the input, which gets no gradient. TF: tf.raw_ops.StopGradient."""
    return lax.stop_gradient(input)


@op("PreventGradient")
def prevent_gradient(input: Tensor, *, message: str = "", raise_on_prevent_gradient: Option[bool] = True) -> Tensor:
    """Return the input, whose gradient is an error. TF: tf.raw_ops.PreventGradient.

    Args:
      input: an array.
      message: the reason, for the error.
      raise_on_prevent_gradient: config option; if False, gradients pass.

    Raises:
      PreventedGradientError: when the result is differentiated.
    """
    if not raise_on_prevent_gradient:
        return input

    @jax.custom_jvp
    def node(x: Any) -> Any:
        return x

    @node.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise PreventedGradientError(
            f"gradient explicitly disabled by a PreventGradient node{': ' + message if message else ''}. "
            "Allow it with override_config('raise_on_prevent_gradient', False) at conversion."
        )

    return node(jnp.asarray(input))


def _check_numerics(tensor: Array, *, message: str, enable_checkify_for_asserts: Option[bool] = False) -> Array:
    """Return the tensor. TF: tf.raw_ops.CheckNumerics.

    NaN and infinity, errors in TensorFlow, pass unless ``enable_checkify_for_asserts`` is configured
    (``jax_debug_nans`` finds NaN as well).

    Args:
      tensor: floats of any shape.
      message: the start of the error's text.
      enable_checkify_for_asserts: config option; checks with `jax.experimental.checkify`.
    """
    if enable_checkify_for_asserts:
        text = message.replace("{", "{{").replace("}", "}}")
        checkify.check(~jnp.any(jnp.isnan(tensor)), f"{text} : Found NaN values.")
        checkify.check(~jnp.any(jnp.isinf(tensor)), f"{text} : Found Inf values.")
    return tensor


check_numerics = op("CheckNumerics", "CheckNumericsV2", fold=_check_numerics)(_check_numerics)


@op("NoOp", "ControlTrigger")
def no_op() -> tuple[()]:
    """Do nothing. TF: tf.raw_ops.NoOp."""
    return ()


@op("Placeholder", "PlaceholderV2")
def placeholder(*, dtype: ir.DType, shape: PartialShape | None = None) -> Tensor:
    """Raise: a placeholder that is not an input has no value.

    TF: tf.raw_ops.Placeholder.

    Raises:
      OpError: always.
    """
    raise OpError("the placeholder is not fed; name it among the inputs")


@op("PlaceholderWithDefault", fold=lambda input, *, shape=None: input)
def placeholder_with_default(input: Tensor, *, shape: PartialShape | None = None) -> Tensor:
    """Return the default. TF: tf.raw_ops.PlaceholderWithDefault."""
    return input


def _fold_fake_param(*, dtype: Any, shape: Any = ()) -> Any:
    return np.zeros([d or 0 for d in shape or ()], dtype)


@op("FakeParam", fold=_fold_fake_param)
def fake_param(*, dtype: ir.DType, shape: PartialShape | None = ()) -> Tensor:
    """Return zeros for a value that is never used. TF: tf.raw_ops.FakeParam.

    Args:
      dtype: dtype of the result.
      shape: its shape, in which unknown dimensions (None) are 0.
    """
    return _fold_fake_param(dtype=dtype, shape=shape)


def _fold_device_index(*, device_names: Sequence[str]) -> Any:
    names = list(device_names)
    return np.array(names.index("CPU") if "CPU" in names else len(names), np.int32)


@op("DeviceIndex", fold=_fold_device_index)
def device_index(*, device_names: Sequence[str]) -> Tensor:
    """Return the position of "CPU" in ``device_names``. TF: tf.raw_ops.DeviceIndex.

    All branches compute the same, so the answer does not depend on JAX's device.
    """
    return _fold_device_index(device_names=device_names)
