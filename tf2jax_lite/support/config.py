"""Conversion options. Names and defaults are tf2jax's where it has the option.

Options are read once, at conversion, and captured in what the conversion returns: a jitted function never
changes its behaviour behind its cache. Checks of arguments also follow an override around the call: shapes and dtypes
are part of that cache's key. ``update_config`` sets the default of the whole process;
``override_config`` holds for a ``with`` block in the current thread (or task) alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .errors import ConfigError, UnknownOptionError
from .scoped import Scoped

__all__ = [
    "Config",
    "current_config",
    "get_config",
    "override_config",
    "set_value_check",
    "update_config",
    "with_active_checks",
]


@dataclasses.dataclass(frozen=True)
class Config:
    """All options and their defaults.

    Attributes:
      strict_shape_check: refuse arguments whose shape does not fit the one converted for.
      strict_dtype_check: refuse arguments whose dtype is not the one converted for.
      force_const_float32_to_bfloat16: read float32 constants of the graph as bfloat16.
      force_const_float64_to_bfloat16: read float64 constants of the graph as bfloat16.
      convert_custom_gradient: honour ``tf.custom_gradient``; otherwise differentiate the forward code.
      infer_relu_from_jax2tf: read ``max(x, 0)`` as a relu in graphs that jax2tf wrote, so that the gradient at 0 is 0.
      infer_cumulative_reduction_from_jax2tf: read windowed reductions that jax2tf wrote for cumulative ones as such.
      raise_on_prevent_gradient: differentiating through ``PreventGradient`` is an error.
      raise_on_missing_custom_gradient: refuse to convert where a custom gradient was not saved with the model,
        or cannot be traced; otherwise warn and differentiate the forward code.
      raise_on_lost_effect: refuse a stateful node without an implementation that TensorFlow would run although nothing
        uses its results (an insertion into a table); otherwise warn and leave it out.
      resize_bilinear_precision: matmul precision inside bilinear resizing: "default", "high" or "highest".
      enable_checkify_for_asserts: ``Assert`` and ``CheckNumerics`` nodes become ``jax.experimental.checkify`` checks.
      xlacallmodule_strict_checks: refuse to run a serialized module on a platform it was not lowered for.
      disable_assert_in_tensor_list_get_item: do not compare the element dtype of a tensor list with the node's.
      skip_variables_evaluation_inside_tf_tracing: inside the tracing of another tf.function, give params as
        ``jax.ShapeDtypeStruct`` without reading the variables.
      param_names: how params are named whose variables have one name: "variable" numbers them (``softplus``,
        ``softplus_1``), "path" names them after the attributes of the model that lead to the variables.
      xla_fallback: let TensorFlow's XLA bridge compile nodes whose ops have no implementation, for their static shapes,
        and import what comes out. TensorFlow is then needed whenever the function is traced.
      dynamic_shape_bound: inside ``jit``, the size to pad to for results whose size depends on data, and the capacity
        of lists that grow in loops of unknown length; 0 refuses them.
      loop_bound: what becomes of a loop that data may end early, of which an upper bound is known: "while" makes it
        ``lax.while_loop``, whose gradients compute its iterations again; "scan" a ``lax.scan`` up to the bound that
        keeps its results from the end on.
      loop_checkpoint: what ``lax.scan`` keeps for gradients: "none" keeps all that the body computes, "body" what the
        loop carries (the body runs again), "segments" about the square root of that (it runs twice again).
      jit_calls: compile functions with loops for calls with concrete arguments, outside of `jax.jit`, from the second
        call with equal shapes on; otherwise each such call runs op by op, and compiles its loops anew.
      max_nodes: how many nodes a graph may have, its functions' included; a larger one is refused before it is read.
      max_constant_bytes: how many bytes the constants of a graph may take together as they declare it, and one that is
        computed from them while converting; also one constant of a StableHLO module. A small file can declare much.
      max_result_bytes: how many bytes the result of one node may take, and any tensor of a StableHLO module: shapes of
        more come of damaged models, and end the process if XLA meets them.
      max_input_bytes: how many bytes the arrays of one .npz file may take, unpacked: inputs of a model, or training
        data. A client's file has ``max_client_bytes`` of its own.
      trusted: what a model may do besides computing, by name, separated by commas: ops that run code or touch files
        (``"PyFunc,ReadFile"``), paths of files outside of the model that its tables are read from, Keras' "Lambda", and
        "StableHLO" (payloads are then not read in another process first).
      xla_cpu_rules: the CPU lowering rules in force (docs/xla-cpu.md): True or "all", False or "none", or a set of
        names of rules. Without rules programs compile faster and convolutions and poolings run slower on CPU.
    """

    strict_shape_check: bool = True
    strict_dtype_check: bool = False
    force_const_float32_to_bfloat16: bool = False
    force_const_float64_to_bfloat16: bool = False
    convert_custom_gradient: bool = True
    infer_relu_from_jax2tf: bool = True
    infer_cumulative_reduction_from_jax2tf: bool = True
    raise_on_prevent_gradient: bool = True
    raise_on_missing_custom_gradient: bool = False
    raise_on_lost_effect: bool = True
    resize_bilinear_precision: str = "highest"
    enable_checkify_for_asserts: bool = False
    xlacallmodule_strict_checks: bool = True
    disable_assert_in_tensor_list_get_item: bool = False
    skip_variables_evaluation_inside_tf_tracing: bool = False
    param_names: str = "variable"
    xla_fallback: bool = False
    dynamic_shape_bound: int = 0
    loop_bound: str = "while"
    loop_checkpoint: str = "none"
    jit_calls: bool = True
    max_nodes: int = 500_000
    max_constant_bytes: int = 1 << 31
    max_result_bytes: int = 1 << 40
    max_input_bytes: int = 1 << 33
    trusted: str = ""
    xla_cpu_rules: bool | frozenset[str] = True


_TYPES = {field.name: type(field.default) for field in dataclasses.fields(Config)}
_CHOICES = {
    "resize_bilinear_precision": ("default", "high", "highest"),
    "param_names": ("variable", "path"),
    "loop_bound": ("while", "scan"),
    "loop_checkpoint": ("none", "body", "segments"),
}
_CHECKS = ("strict_shape_check", "strict_dtype_check")
_value_checks: dict[str, Callable[[Any], Any]] = {}
_lock = threading.Lock()
_defaults = Config()
_overrides: Scoped[tuple[str, Any]] = Scoped("config")


def _checked(name: str, value: Any) -> Any:
    if not isinstance(name, str) or name not in _TYPES:
        raise UnknownOptionError(f"there is no config option {name!r}; the options are {', '.join(sorted(_TYPES))}.")
    if name in _value_checks:
        return _value_checks[name](value)
    expected = _TYPES[name]
    if type(value) is not expected:
        raise ConfigError(f"config option {name!r} takes {expected.__name__}, got {value!r}.")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(f"config option {name!r} is one of {', '.join(_CHOICES[name])}, got {value!r}.")
    if expected is int and value < 0:
        raise ConfigError(f"config option {name!r} is not negative, got {value!r}.")
    return value


def set_value_check(name: str, check: Callable[[Any], Any]) -> None:
    """Set the function that checks an option whose values another package defines.

    Args:
      name: the option.
      check: returns a value in its canonical form; raises `ConfigError`.
    """
    _value_checks[name] = check


def current_config() -> Config:
    """Returns the options in force here, as one frozen value."""
    overrides = dict(_overrides.values())
    return dataclasses.replace(_defaults, **overrides) if overrides else _defaults


def with_active_checks(config: Config) -> Config:
    """Returns captured options with those checks of arguments that an `override_config` sets here.

    Args:
      config: the options captured at conversion, which hold for everything that shapes the graph.
    """
    checks = {name: value for name, value in _overrides.values() if name in _CHECKS}
    return dataclasses.replace(config, **checks) if checks else config


def get_config(name: str) -> bool | str | int | frozenset[str]:
    """Returns the value in force of one option.

    Raises:
      UnknownOptionError: there is no such option.
    """
    if not isinstance(name, str) or name not in _TYPES:
        _checked(name, None)
    return getattr(current_config(), name)


def update_config(name: str, value: Any) -> None:
    """Sets the process-wide default of one option.

    Raises:
      ConfigError: there is no such option, or the value has the wrong type.
    """
    global _defaults
    value = _checked(name, value)
    with _lock:
        _defaults = dataclasses.replace(_defaults, **{name: value})


@contextlib.contextmanager
def override_config(name: str, value: Any) -> Iterator[None]:
    """Sets one option inside a ``with`` block, for the current thread or task only.

    Raises:
      ConfigError: there is no such option, or the value has the wrong type.
    """
    with _overrides.holding((name, _checked(name, value))):
        yield
