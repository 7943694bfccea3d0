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

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Option, partial_fold
from tf2jax_lite.support.errors import OpError, PreventedGradientError
from tf2jax_lite.values.static import canonical


def _constant(*, value: Any, dtype: Any = None) -> Any:
    value = np.asarray(value)
    # JAX caches conversions by array identity, in both x64 modes. An array that is narrowed to 32 bits gets another
    # identity, as programs in the other mode read the same constant.
    narrowed = value.dtype.kind in "iufc" and canonical(value.dtype) != value.dtype
    return value.view() if narrowed else value


@op("Const", "HostConst", fold=_constant)
def const(*, value, dtype=None):
    """Return a constant."""
    return _constant(value=value, dtype=dtype)


@op("Identity", "Snapshot", "GuaranteeConst", "_EagerConst", int64="per_word", fold=partial_fold(lambda input: input))
def identity(input):
    """Return the input."""
    return input


@op("DeepCopy", fold=lambda x: x)
def deep_copy(x):
    """Return the input, as JAX arrays are immutable."""
    return x


@op("IdentityN", "_ListToArray", int64="per_word", fold=lambda input: list(input))
def identity_n(input):
    """Return the inputs."""
    return list(input)


@op("_ArrayToList", fold=lambda input: list(input))
def array_to_list(input, *, out_types=()):
    """Return the inputs. TF: _ArrayToList (core/ops/function_ops.cc)."""
    return list(input)


@op("StopGradient", fold=lambda input: input)
def stop_gradient(input):
    """Return the input, which gets no gradient."""
    return lax.stop_gradient(input)


@op("PreventGradient")
def prevent_gradient(input, *, message="", raise_on_prevent_gradient: Option[bool] = True):
    """Return the input, whose gradient is an error."""
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


def _check_numerics(tensor, *, message, enable_checkify_for_asserts: Option[bool] = False):
    """Return the tensor."""
    # NaN and infinity, errors in TensorFlow, pass unless ``enable_checkify_for_asserts`` is configured
    # (``jax_debug_nans`` finds NaN as well).
    if enable_checkify_for_asserts:
        text = message.replace("{", "{{").replace("}", "}}")
        checkify.check(~jnp.any(jnp.isnan(tensor)), f"{text} : Found NaN values.")
        checkify.check(~jnp.any(jnp.isinf(tensor)), f"{text} : Found Inf values.")
    return tensor


check_numerics = op("CheckNumerics", "CheckNumericsV2", fold=_check_numerics)(_check_numerics)


@op("NoOp", "ControlTrigger")
def no_op():
    """Do nothing."""
    return ()


@op("Placeholder", "PlaceholderV2")
def placeholder(*, dtype, shape=None):
    """Raise: a placeholder that is not an input has no value."""
    raise OpError("the placeholder is not fed; name it among the inputs")


@op("PlaceholderWithDefault", fold=lambda input: input)
def placeholder_with_default(input, *, shape=None):
    """Return the default."""
    return input


def _fold_fake_param(*, dtype: Any, shape: Any = ()) -> Any:
    return np.zeros([d or 0 for d in shape or ()], dtype)


@op("FakeParam", fold=_fold_fake_param)
def fake_param(*, dtype, shape=()):
    """Return zeros for a value that is never used.

    Args:
      shape: its shape, in which unknown dimensions (None) are 0.
    """
    return _fold_fake_param(dtype=dtype, shape=shape)


def _fold_device_index(*, device_names: Sequence[str]) -> Any:
    names = list(device_names)
    return np.array(names.index("CPU") if "CPU" in names else len(names), np.int32)


@op("DeviceIndex", fold=_fold_device_index)
def device_index(*, device_names):
    """Return the position of "CPU" in ``device_names``.

    All branches compute the same, so the answer does not depend on JAX's device.
    """
    return _fold_device_index(device_names=device_names)
