"""Conversion options. Options of tf2jax have its names and defaults.

Options are read once, at conversion, and captured by the converted function, so that a jitted function never changes
behind its cache. Checks of arguments also follow an override around the call, as shapes and dtypes are part of the
cache's key. ``update_config`` sets the default of the process; ``override_config`` applies to a ``with`` block in the
current thread (or task).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import difflib
import threading
from collections.abc import Callable, Collection, Iterator, Set
from typing import Any, Generic, NamedTuple, TypeVar

from .errors import ConfigError, UnknownOptionError

T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class _Entry(Generic[T]):
    value: T
    ended: bool = False


class Scoped(Generic[T]):
    """Active values, innermost last: none in threads, the creator's in tasks.

    Blocks may end in any order, and in another thread than they began in, as blocks in generators do; tokens of a
    ContextVar do not support that. (While a generator is suspended inside of a block, its value is active for its
    caller, as with ``numpy.errstate``.)
    """

    def __init__(self, name: str):
        self._entries: contextvars.ContextVar[tuple[_Entry[T], ...]] = contextvars.ContextVar(name, default=())

    def values(self) -> tuple[T, ...]:
        """Return the active values of this context."""
        return tuple([entry.value for entry in self._entries.get() if not entry.ended])

    @contextlib.contextmanager
    def holding(self, value: T) -> Iterator[None]:
        """Make a value active for a ``with`` block."""
        entry = _Entry(value)
        self._entries.set((*self._entries.get(), entry))
        try:
            yield
        finally:
            # A token of the ContextVar would restore the values before the block, including those of a block that began
            # before it and has ended since.
            here = self._entries.get()
            if any(e is entry for e in here):
                self._entries.set(tuple([e for e in here if e is not entry]))
            else:
                entry.ended = True  # ended in another context: contexts that still have the entry must ignore it


@dataclasses.dataclass(frozen=True)
class Config:
    """All options and their defaults, with the reason for which each can be set.

    Attributes:
      strict_shape_check: raise for arguments whose shape is not the one converted for. Off for models of fixed sizes
        that compute with others as well.
      strict_dtype_check: raise for arguments whose dtype is not the one converted for. On for programs that must not
        promote dtypes.
      force_const_float32_to_bfloat16: convert float32 constants of the graph to bfloat16, for models of which only the
        variables are narrow.
      force_const_float64_to_bfloat16: the same for float64 constants.
      convert_custom_gradient: use ``tf.custom_gradient``; otherwise differentiate the forward code, for forward mode.
      infer_relu_from_jax2tf: convert ``max(x, 0)`` to a relu in graphs exported with jax2tf, so that the gradient at 0
        is 0. Off for programs that mean a maximum.
      infer_cumulative_reduction_from_jax2tf: convert windowed reductions that jax2tf exported for cumulative ones back.
        Off for programs that mean windows.
      raise_on_prevent_gradient: raise when differentiating through ``PreventGradient``. Off for gradients of saved
        models, which TensorFlow does not differentiate.
      raise_on_lost_effect: raise for a stateful node without an implementation that TensorFlow would run for its side
        effect (an insertion into a table); otherwise warn and remove it, for models whose results do not need it.
      resize_bilinear_precision: the precision of the matrix products of bilinear resizing: "default", "high" or
        "highest". Lower ones are faster on TPU and GPU.
      enable_checkify_for_asserts: ``Assert`` and ``CheckNumerics`` nodes become ``jax.experimental.checkify`` checks,
        and so do indices, segment ids and labels out of range, which TensorFlow refuses on CPU. For debugging: such a
        function has to be wrapped by ``checkify.checkify``.
      xlacallmodule_strict_checks: raise when a serialized module runs on a platform that it was not lowered for. Off
        for modules that compute the same on all platforms.
      disable_assert_in_tensor_list_get_item: do not compare a tensor list's dtype with that of a node that reads it,
        for graphs whose nodes were changed.
      skip_variables_evaluation_inside_tf_tracing: while another tf.function is traced, return params as
        ``jax.ShapeDtypeStruct`` without reading the variables, for jax2tf around a converted function.
      param_names: the names of params whose variables have equal names: "path" uses the variables' attribute paths in
        the model, "variable" numbers them (``softplus``, ``softplus_1``).
      xla_fallback: compile nodes whose ops have no implementation with TensorFlow's XLA bridge, for their static
        shapes. TensorFlow is then needed whenever the function is traced. For ops that are not supported.
      dynamic_shape_bound: inside ``jit``, the size to pad results of data-dependent size to, and the capacity of lists
        that grow in loops of unknown length; 0 raises instead. Only users know it.
      loop_bound: the lowering of a loop with a known upper bound and a data-dependent exit: "while" is
        ``lax.while_loop``, whose gradients recompute its iterations; "scan" is a ``lax.scan`` up to the bound that
        keeps the results after the exit, for higher derivatives and accelerators.
      loop_checkpoint: the residuals of ``lax.scan`` for gradients: "none" keeps all intermediate values of the body,
        "body" keeps the carry (the body is recomputed), "segments" about the square root of that (recomputed twice).
        For models whose gradients do not fit into memory.
      scan_layers: lower consecutive layers of equal form as one ``lax.scan`` over stacked params, which traces and
        compiles one layer instead of all. ``params`` then has the layers' variables as one array under the name of the
        first layer's. Layers that assign variables stay as they are. For deep models: it changes the names of params.
      passes: the optional passes over graphs, rewrites of plans and optimizations of ``lax.scan`` bodies to run: True
        or "all", False or "none", names (a set, or text with commas), or names to leave out, each with a "-" before it.
        docs/architecture.md has the names. For debugging and ablation.
      xla_cpu_rules: the CPU lowering rules to apply, with values as for ``passes``. Without rules programs compile
        faster, and convolutions and poolings run slower on CPU.
      max_nodes: maximum number of nodes of a graph, including its functions, checked before it is read. This limit and
        the next two protect against hostile files; larger models need larger ones.
      max_constant_bytes: maximum number of bytes that the constants of a graph declare together, of one constant that
        is computed from them at conversion, of one constant of a StableHLO module, and of the weights of a Keras file
        together, unless they are in the file. A small file can declare much.
      max_input_bytes: maximum number of bytes of the arrays of one .npz file, unpacked: inputs of a model, or training
        data. Files of clients have ``max_client_bytes`` instead.
      trusted: names of effects to allow besides computing, separated by commas: ops that run code or touch files
        (``"PyFunc,ReadFile"``), paths of table files outside of the model, classes, functions and modules that a Keras
        file names ("Lambda"), and "StableHLO" (payloads are then not parsed in another process first).
    """

    strict_shape_check: bool = True
    strict_dtype_check: bool = False
    force_const_float32_to_bfloat16: bool = False
    force_const_float64_to_bfloat16: bool = False
    convert_custom_gradient: bool = True
    infer_relu_from_jax2tf: bool = True
    infer_cumulative_reduction_from_jax2tf: bool = True
    raise_on_prevent_gradient: bool = True
    raise_on_lost_effect: bool = True
    resize_bilinear_precision: str = "highest"
    enable_checkify_for_asserts: bool = False
    xlacallmodule_strict_checks: bool = True
    disable_assert_in_tensor_list_get_item: bool = False
    skip_variables_evaluation_inside_tf_tracing: bool = False
    param_names: str = "path"
    xla_fallback: bool = False
    dynamic_shape_bound: int = 0
    loop_bound: str = "while"
    loop_checkpoint: str = "none"
    scan_layers: bool = False
    passes: bool | frozenset[str] = True
    xla_cpu_rules: bool | frozenset[str] = True
    max_nodes: int = 500_000
    max_constant_bytes: int = 1 << 31
    max_input_bytes: int = 1 << 33
    trusted: str = ""


_TYPES = {field.name: type(field.default) for field in dataclasses.fields(Config)}
_CHOICES = {
    "param_names": ("variable", "path"),
    "resize_bilinear_precision": ("default", "high", "highest"),
    "loop_bound": ("while", "scan"),
    "loop_checkpoint": ("none", "body", "segments"),
}
_CHECKS = ("strict_shape_check", "strict_dtype_check")
_names: dict[str, Callable[[], tuple[Collection[str], Collection[str]]]] = {}
_lock = threading.Lock()
_defaults = Config()
_overrides: Scoped[tuple[str, Any]] = Scoped("config")


def _checked(name: str, value: Any) -> Any:
    if not isinstance(name, str) or name not in _TYPES:
        raise UnknownOptionError(f"there is no config option {name!r}; the options are {', '.join(sorted(_TYPES))}.")
    if name in _names:
        names, required = _names[name]()
        chosen = chosen_names(name, value, names, required)
        return {frozenset(names): True, frozenset(required): False}.get(chosen, chosen)
    expected = _TYPES[name]
    if type(value) is not expected:
        raise ConfigError(f"config option {name!r} takes {expected.__name__}, got {value!r}.")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(f"config option {name!r} is one of {', '.join(_CHOICES[name])}, got {value!r}.")
    if expected is int and value < 0:  # type: ignore[operator]
        raise ConfigError(f"config option {name!r} is not negative, got {value!r}.")
    return value


def chosen_names(option: str, value: object, names: Collection[str], required: Collection[str] = ()) -> frozenset[str]:
    """Return the names that an option such as ``passes`` chooses.

    Args:
      option: the option's name.
      value: "all", "none", names separated by commas, or names to leave out, each with a "-" before it; also a bool
        for the first two, or a collection of names.
      names: all there are.
      required: those that every value chooses.

    Raises:
      ConfigError: the value has another type, there is no such name, or it leaves out a required one.
    """
    if isinstance(value, bool):
        value = "all" if value else "none"
    if not isinstance(value, (str, Set, list, tuple)):
        raise ConfigError(f"config option {option!r} takes 'all', 'none' or names, got {value!r}.")
    items = [item.strip() for item in (value.split(",") if isinstance(value, str) else map(str, value))]
    if items in (["all"], ["none"]):
        return frozenset(names if items == ["all"] else required)
    listed = frozenset(item.removeprefix("-") for item in items)
    for name in sorted(listed.difference(names)):
        near = difflib.get_close_matches(name, names, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"The names are {', '.join(sorted(names))}."
        raise ConfigError(f"config option {option!r} has no name {name!r}. {hint}")
    if len({item.startswith("-") for item in items}) > 1:
        raise ConfigError(f"config option {option!r} takes names all or none of which have a '-', got {value!r}.")
    if not items or not items[0].startswith("-"):
        return listed.union(required)
    for name in sorted(listed.intersection(required)):
        raise ConfigError(f"config option {option!r} leaves out {name!r}, which is required for correct values.")
    return frozenset(names) - listed


def is_chosen(value: bool | frozenset[str], name: str) -> bool:
    """Return whether the value of an option such as ``passes`` has a name."""
    return value if isinstance(value, bool) else name in value


def set_names(option: str, names: Callable[[], tuple[Collection[str], Collection[str]]]) -> None:
    """Make an option choose names: its values are True, False or a frozenset.

    Args:
      option: the option.
      names: returns all names and the required ones, as `chosen_names` takes them. It is called for new values only:
        this package imports nothing above it.
    """
    _names[option] = names


def current_config() -> Config:
    """Return the options of the current context as one frozen value."""
    overrides = dict(_overrides.values())
    return dataclasses.replace(_defaults, **overrides) if overrides else _defaults


def with_active_checks(config: Config) -> Config:
    """Return captured options with an `override_config`'s argument checks.

    Args:
      config: the options captured at conversion.
    """
    checks = {name: value for name, value in _overrides.values() if name in _CHECKS}
    return dataclasses.replace(config, **checks) if checks else config


def get_config(name: str) -> bool | str | int | frozenset[str]:
    """Return the current value of one option.

    Args:
      name: the option's name; see `Config`.

    Returns:
      The value of the innermost `override_config` of this thread or task, else the process-wide default.

    Raises:
      UnknownOptionError: there is no such option.

    Example:
      >>> tf2jax.get_config("strict_shape_check")
      True
    """
    if not isinstance(name, str) or name not in _TYPES:
        _checked(name, None)
    return getattr(current_config(), name)


def update_config(name: str, value: Any) -> None:
    """Set the process-wide default of one option.

    Args:
      name: the option's name; see `Config`.
      value: a value of the option's type. Functions that are converted already keep theirs.

    Raises:
      ConfigError: there is no such option, or the value has the wrong type.

    Example:
      >>> tf2jax.update_config("max_nodes", 10_000_000)
    """
    global _defaults
    value = _checked(name, value)
    with _lock:
        _defaults = dataclasses.replace(_defaults, **{name: value})


@contextlib.contextmanager
def override_config(name: str, value: Any) -> Iterator[None]:
    """Set one option inside a ``with`` block, for the current thread or task only.

    Args:
      name: the option's name; see `Config`.
      value: a value of the option's type.

    Raises:
      ConfigError: there is no such option, or the value has the wrong type.

    Example:
      >>> with tf2jax.override_config("xla_cpu_rules", False):  # around the conversion
      ...     jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    """
    with _overrides.holding((name, _checked(name, value))):
        yield


class Entry(NamedTuple):
    """A step of an ordered list, which options switch off by name.

    Attributes:
      run: returns the value that it rewrites, and takes it as the first argument.
      effect: the rewrite in a few words, before -> after, where the name does not say it.
      required: whether results would be wrong, or missing, without it: no option switches it off.
    """

    name: str
    run: Callable[..., Any]
    reason: str
    effect: str = ""
    required: bool = False


def apply_entries(entries: Collection[Entry], names: Collection[str], value: Any, *args: Any) -> Any:
    """Apply the entries of these names in order.

    Args:
      names: names of entries, as `chosen_names` returns them.
    """
    for entry in entries:
        if entry.name in names:
            value = entry.run(value, *args)
    return value
