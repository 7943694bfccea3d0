"""XlaCallModule: a StableHLO module in a TensorFlow graph, run in JAX."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Option
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError, UnsupportedError
from tf2jax_lite.values import static
from tf2jax_lite.values.symbolic_float import is_float_dim

# Version 1 holds MHLO; 10 is what TensorFlow 2.21 and jax 0.10 write.
_OLDEST, _NEWEST = 2, 10
# A module for any of these runs where JAX says "gpu".
_PLATFORMS = {"gpu": ("cuda", "rocm", "gpu")}


@op("XlaCallModule")
def xla_call_module(
    ctx: Context,
    args: list[Any],
    *,
    version: int,
    module: str,
    Sout: Any = None,
    dim_args_spec: Sequence[str] = (),
    platforms: Sequence[str] = (),
    function_list: Sequence[ir.FunctionRef] = (),
    has_token_input_output: bool = False,
    disabled_checks: Sequence[str] = (),
    use_shardy_partitioner: bool = False,
    xlacallmodule_strict_checks: Option[bool] = True,
    infer_relu_from_jax2tf: Option[bool] = True,
) -> list[Any]:
    """Call a serialized StableHLO module. See the op XlaCallModule and jax2tf."""
    if not _OLDEST <= version <= _NEWEST:
        raise UnsupportedAttributeError(
            f"version {version} of XlaCallModule; versions {_OLDEST} to {_NEWEST} can be read"
            + (" (older ones hold MHLO, which no jax reads any more)" if version < _OLDEST else "")
        )
    here = _platform()
    strict = xlacallmodule_strict_checks and "platform" not in disabled_checks
    _check_platform(here, platforms, strict)
    from tf2jax_lite.stablehlo import api  # few models need it

    parsed = api.parse(module.encode("utf-8", "surrogateescape"))
    args = [v if static.is_symbolic(v) and not is_float_dim(v) else static.as_array(v) for v in args]
    sizes = [_dimension(args, spec) for spec in dim_args_spec]
    frame = ctx.frame.enter(ctx.step)
    return api.evaluate(
        parsed,
        [*sizes, *args],
        platforms=platforms,
        platform=here,
        functions=[ctx.trace.callable(ref, frame) for ref in function_list],
        infer_relu=infer_relu_from_jax2tf,
        cast=ctx.trace.promote_dtypes,
    )


def _platform() -> str:
    device = jax.config.jax_default_device
    if device is not None:
        return str(getattr(device, "platform", device)).lower()
    return jax.default_backend().lower()


def _check_platform(here: str, platforms: Sequence[str], strict: bool) -> None:
    names = [name.lower() for name in platforms]
    if not names or any(name in names for name in _PLATFORMS.get(here, (here,))):
        return
    text = f"this module was made for {', '.join(names)}, and JAX runs on {here}"
    if strict:
        raise UnsupportedError(
            f"{text}. Convert with tf2jax_lite.override_config('xlacallmodule_strict_checks', False) to run it "
            "anyway; its operations are not tied to a platform."
        )
    warnings.warn(text, stacklevel=2)


def _dimension(args: list[Any], spec: str) -> Any:
    try:
        index, axis = (int(part) for part in spec.split("."))
        size = args[index].shape[axis]
    except (ValueError, IndexError) as error:
        raise OpError(f"dim_args_spec {spec!r} names no dimension of an argument") from error
    return static.dims_array((size,), np.int32).reshape(())
