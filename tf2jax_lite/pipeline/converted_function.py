"""A loaded graph as a pure JAX function of params and arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.calling import x64_params
from tf2jax_lite.calling.interface import Interface, in_kind, is_key
from tf2jax_lite.calling.params import VariableName
from tf2jax_lite.dynamic_shapes import driver, size_comparisons
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.lowering.interpreter.assigned_variables import Wanted, separately
from tf2jax_lite.lowering.interpreter.compiled_calls import CompiledCalls, computes_in_64_bits, is_worth_compiling
from tf2jax_lite.lowering.interpreter.int64_narrowing import warn_if_narrowed
from tf2jax_lite.lowering.merging.rank_variants import Choice
from tf2jax_lite.support.config import Config, with_active_checks
from tf2jax_lite.support.errors import DtypeMismatchError, InputError, MissingParamError
from tf2jax_lite.support.gc_pause import paused
from tf2jax_lite.values import static
from tf2jax_lite.values.int64 import to_32_bits

__all__ = ["AnnotatedFunction", "ConvertedFunction"]


class AnnotatedFunction:
    """A converted function with its signature: callable, and what it takes and gives can be looked at.

    Attributes:
      fn: the pure function itself.
      structured_inputs: ``(args, kwargs)`` with ``tf.TensorSpec`` leaves, as TensorFlow describes them.
      structured_outputs: the results' structure with ``tf.TensorSpec`` leaves.
      signature: the ``inspect.Signature`` by which arguments bind, without ``params`` and ``rng``.
      host: what runs in TensorFlow before it, if it is the core of a model that was split; else None.
      xla_fallback_nodes: names of the nodes that TensorFlow's XLA bridge compiles (see ``config.xla_fallback``).
    """

    host: Any = None

    def __init__(
        self,
        fn: Callable[..., Any],
        structured_inputs: Any,
        structured_outputs: Any,
        signature: inspect.Signature,
        *,
        xla_fallback_nodes: Sequence[str] = (),
    ):
        self.fn = fn
        self.structured_inputs = structured_inputs
        self.structured_outputs = structured_outputs
        self.signature = signature
        self.xla_fallback_nodes = tuple(xla_fallback_nodes)
        self.__signature__ = inspect.signature(fn)
        self.__name__ = getattr(fn, "__name__", "converted_function")
        self.__qualname__ = self.__name__
        self.__doc__ = getattr(fn, "__doc__", None)
        self.__wrapped__ = fn

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"AnnotatedFunction({self.__name__}{self.signature})"


@dataclasses.dataclass(frozen=True, eq=False)
class ConvertedFunction:
    """A checked program with its interface: everything a call needs, fixed at conversion."""

    program: Program
    interface: Interface
    config: Config
    loose: bool = False

    @property
    def variables(self) -> dict[str, ir.Variable]:
        """The captured variables by name."""
        found = (c.value for c in self.program.graph.captures if isinstance(c.value, ir.Variable))
        return {v.name: v for v in found}

    def params(self) -> dict[str, Any]:
        """Returns the variables' values at conversion, as params."""
        out: dict[str, Any] = {}
        for name, variable in self.variables.items():
            value = variable.value
            if value is None:
                shape = tuple(d or 0 for d in variable.shape or ())
                value = jax.ShapeDtypeStruct(shape, variable.dtype)
            if name in self.program.wide:
                value = x64_params.as_param(value, name)
            out[VariableName(name, variable.trainable)] = value
        return out

    def call(
        self, params: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], rng: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Runs the function once and returns results and updated params."""
        bound = self.interface.bind(args, kwargs, with_active_checks(self.config))
        flat, state = self.flat_call(params, bound.flat, rng, loose=bound.loose)
        return self.interface.results(flat), state

    def flat_call(
        self, params: Mapping[str, Any], inputs: Sequence[Any], rng: Any = None, *, loose: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Runs the function on flat tensor inputs, unchecked, and returns flat results and updated params."""
        params, alike = self._checked_params(params)
        loose = loose or not alike
        key = _typed_key(rng)
        given = [*params.values(), *inputs, *([] if key is None else [key])]
        moving = [i for i, v in enumerate(given) if isinstance(v, jax.core.Tracer)]
        # What tracing makes stays, and the more of it there is, the longer each collection takes.
        with paused() if moving else contextlib.nullcontext():
            if self.program.reads_late and moving:
                return self._run_twice(params, inputs, key, loose, given, moving)
            if moving or self._compiled is None:
                return self._run(params, inputs, key, loose, "both")

            def eager() -> tuple[list[Any], dict[str, Any]]:
                return self._run(params, inputs, key, loose, "both")

            return self._compiled.call(eager, params, inputs, key, loose)

    @functools.cached_property
    def _compiled(self) -> CompiledCalls | None:
        if not self.config.jit_calls or not is_worth_compiling(self.program):
            return None

        def run(params: Any, inputs: Any, key: Any, loose: bool) -> tuple[list[Any], dict[str, Any]]:
            # Without `driver.traced`: a result whose size depends on data must not be padded.
            flat, state = size_comparisons.decided(
                lambda met: self._run_once(params, inputs, key, loose, "both", undecided=met, pads=False)
            )
            return flat, {name: value for name, value in state.items() if value is not params.get(name)}

        return CompiledCalls(run, in_64_bits=computes_in_64_bits(self.program))

    def _run_twice(
        self,
        params: Mapping[str, Any],
        inputs: Sequence[Any],
        key: Any,
        loose: bool,
        given: Sequence[Any],
        moving: Sequence[int],
    ) -> tuple[list[Any], dict[str, Any]]:
        """Runs the function for its results and for its new values, which have different derivatives."""
        form: list[Any] = []  # what is known while tracing, and for what is not, None
        names: dict[str, Any] = {}

        def run(chosen: list[Any], wanted: Wanted) -> tuple[list[Any], list[Any]]:
            args = list(given)
            for i, value in zip(moving, chosen, strict=True):
                args[i] = value
            before = dict(zip(params, args, strict=False))
            rest = args[len(before) :]
            flat, after = self._run(before, rest[: len(inputs)], None if key is None else rest[-1], loose, wanted)
            form[:] = [None if isinstance(v, jax.Array) else v for v in flat]
            changed = {name: v for name, v in after.items() if v is not before.get(name)}
            names.clear()
            names.update(dict.fromkeys(changed))
            return [v for v in flat if isinstance(v, jax.Array)], [jnp.asarray(v) for v in changed.values()]

        results, new = separately(run, [given[i] for i in moving])
        remaining = iter(results)
        flat = [next(remaining) if v is None else v for v in form]
        return flat, {**params, **dict(zip(names, new, strict=True))}

    def _run(
        self, params: Mapping[str, Any], inputs: Sequence[Any], key: Any, loose: bool, wanted: Wanted
    ) -> tuple[list[Any], dict[str, Any]]:
        def run(met: list[str] | None) -> Any:
            def once(given: Mapping[str, Any], inputs: Sequence[Any], key: Any, **sized: Any) -> Any:
                return self._run_once(given, inputs, key, loose, wanted, undecided=met, **sized)

            limit = self.config.dynamic_shape_bound or None
            single = _single(inputs, self.program.graph.main.args)
            return driver.traced(once, (dict(params), list(inputs), key), limit, self.interface.result_names, single)

        return size_comparisons.decided(run)

    def _run_once(
        self,
        params: Mapping[str, Any],
        inputs: Sequence[Any],
        key: Any,
        loose: bool,
        wanted: Wanted,
        **sized: Any,
    ) -> tuple[list[Any], dict[str, Any]]:
        state = dict(params)
        given = x64_params.enter(state, self.program.wide)
        initial = dict(state) if wanted == "results" else None
        silent = wanted == "state"
        trace = Trace(self.program, state, key, loose=self.loose or loose, initial=initial, silent=silent, **sized)
        captured = [_captured(capture.value) for capture in self.program.graph.captures]
        if sized.get("extents") is not None:
            inputs = _with_limits(inputs, self.interface.ragged)
        flat = trace.call(self.program.graph.main, [*inputs, *captured], trace.root_frame())
        flat = [v.settled() if isinstance(v, Choice) else v for v in flat]
        x64_params.leave(trace.state, given)
        kept = {name: value for name, value in trace.state.items() if not name.startswith(static.LOCAL)}
        for value in flat:
            warn_if_narrowed(value, f"a result of {self.interface.name}")
        return [_result(v) for v in flat], kept

    def _checked_params(self, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """Returns params in the kinds of their variables, and whether all have the dtypes of their variables."""
        missing = [name for name in self.variables if name not in params]
        if missing:
            shown = ", ".join(map(repr, map(str, missing[:10]))) + (", ..." if len(missing) > 10 else "")
            raise MissingParamError(
                f"{self.interface.name}: Some parameters are missing, [{shown}]. "
                "Pass params as convert() returned them, or as the function returned them."
            )
        alike, raised = True, {}
        config = with_active_checks(self.config)
        for name, variable in self.variables.items():
            value = params[name]
            if not hasattr(value, "dtype") and not isinstance(value, (bool, int, float, complex)):
                raise InputError(f"{self.interface.name}: param {name!r} is no array, but a {type(value).__name__}.")
            if hasattr(getattr(value, "dtype", None), "as_numpy_dtype"):  # TensorFlow's own
                value = raised[name] = np.asarray(value)
            if name in self.program.wide:
                continue
            if config.strict_shape_check:
                self._check_param_shape(name, getattr(value, "shape", ()), variable.shape)
            if getattr(value, "dtype", variable.dtype) == variable.dtype or self._same_dtype(
                name, value, variable, config
            ):
                continue
            found = in_kind(value, variable.dtype)
            if found is None:
                alike = False
            else:
                raised[name] = found
        return {**params, **raised} if raised else params, alike

    def _check_param_shape(self, name: str, shape: Any, expected: ir.Shape) -> None:
        if expected is None:
            return
        if len(shape) != len(expected) or any(
            e is not None and isinstance(a, int) and a != e for a, e in zip(shape, expected, strict=True)
        ):
            raise InputError(
                f"{self.interface.name}: param {name!r} has shape {tuple(shape)}, but the variable has {expected}. "
                "The check is off with override_config('strict_shape_check', False) around conversion or call."
            )

    def _same_dtype(self, name: str, value: Any, variable: ir.Variable, config: Config) -> bool:
        given = value.dtype
        known = not jnp.issubdtype(given, jax.dtypes.extended) and np.dtype(given) not in (object, jax.dtypes.float0)
        if known and static.canonical(given) == static.canonical(variable.dtype):
            return True
        if known and not config.strict_dtype_check:
            return False
        raise DtypeMismatchError(
            f"{self.interface.name}: param {name!r} has dtype {given}, but the variable has {variable.dtype}. Cast it, "
            "or switch the check off with override_config('strict_dtype_check', False)."
        )


def _with_limits(inputs: Sequence[Any], ragged: Sequence[tuple[int, int]]) -> list[Any]:
    """Returns inputs with row splits of which what they are computed of tells that they end where the values do."""
    out = list(inputs)
    for first, rank in ragged:
        for place in range(first + 1, first + 1 + rank):
            whole = out[place + 1].shape[0] - 1 if place < first + rank else out[first].shape[0]
            if isinstance(out[place], jax.Array):
                out[place] = jnp.clip(out[place], 0, jnp.asarray(whole, out[place].dtype))
    return out


def _single(inputs: Sequence[Any], args: Sequence[ir.Argument]) -> dict[int, list[int]]:
    """Return for inputs the axes that have size 1 where the signature leaves the size open: those of a batch of one."""
    found = {}
    for i, (value, arg) in enumerate(zip(inputs, args, strict=False)):
        if isinstance(value, jax.Array) and arg.shape is not None and len(arg.shape) == value.ndim:
            axes = [a for a, size in enumerate(arg.shape) if size is None and value.shape[a] == 1]
            found.update({i: axes} if axes else {})
    return found


def _captured(value: Any) -> Any:
    if isinstance(value, ir.Variable):
        return static.VariableHandle(value.name, value.dtype, value.shape)
    return value


def _result(value: Any) -> Any:
    value = to_32_bits(value)
    if static.is_static(value):
        if static.is_string(value) or (value.dtype == object and not value.size):
            return np.asarray(value)
        value = static.as_array(value)
        return jax.device_put(value) if isinstance(value, np.ndarray) else value
    return value


def _typed_key(rng: Any) -> Any:
    """Takes a typed key, or the raw uint32 kind of old."""
    if rng is None:
        return None
    if is_key(rng):
        if rng.shape != ():
            raise InputError(f"rng is one key, got an array of keys of shape {rng.shape}; use jax.vmap for several.")
        return rng
    if isinstance(rng, (np.ndarray, jax.Array)) and rng.dtype == np.uint32 and rng.ndim == 1:
        try:
            return jax.random.wrap_key_data(rng if isinstance(rng, jax.Array) else jax.device_put(rng))
        except TypeError as error:  # as many words as a key of another kind has
            raise InputError(f"rng is no key of the kind that JAX is set to: {error}") from None
    raise InputError(f"rng is a JAX PRNG key (jax.random.key(seed)), got {type(rng).__name__}.")
