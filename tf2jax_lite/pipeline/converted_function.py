"""The users' function: a planned graph as a pure function of params."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.calling import integers
from tf2jax_lite.calling.coercion import in_kind, is_key
from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.calling.params import Stacks, VariableName, stacked, unstacked
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.lowering.interpreter.assigned_variables import Wanted
from tf2jax_lite.lowering.interpreter.int64_narrowing import warn_if_narrowed
from tf2jax_lite.lowering.merging.branch_variants import RankVariants
from tf2jax_lite.support.config import Config, with_active_checks
from tf2jax_lite.support.errors import DtypeMismatchError, InputError, MissingParamError
from tf2jax_lite.support.html_page import code, escaped, fragment, table
from tf2jax_lite.values import static
from tf2jax_lite.values.int64 import to_32_bits

from .retracing import Retracing


class AnnotatedFunction:
    """A converted function: a callable with descriptions of its arguments and results.

    Attributes:
      fn: the pure function itself.
      converted: its program and interface.
      structured_inputs: ``(args, kwargs)`` with ``tf.TensorSpec`` leaves, as TensorFlow describes them.
      structured_outputs: the results' structure with ``tf.TensorSpec`` leaves.
      signature: the ``inspect.Signature`` of the arguments, without ``params`` and ``rng``.
      training: of a Keras model's function, its `keras_training.TrainingFacts`; else None.
      host: the `HostFunction` that runs before it, if it is the core of a split model; else None.
      xla_fallback_nodes: names of the nodes that TensorFlow's XLA bridge compiles (see ``config.xla_fallback``).
      layer_stacks: for the name of each stacked param, the names of the layers' variables (see ``config.scan_layers``).

    Example:
      >>> jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
      >>> list(jax_fn.signature.parameters)
      ['x']
    """

    host: Any = None
    training: Any = None

    def __init__(
        self,
        fn: Callable[..., Any],
        converted: ConvertedFunction,
        structured_inputs: Any,
        structured_outputs: Any,
        signature: inspect.Signature,
        *,
        sizes: Callable[..., Any],
        xla_fallback_nodes: Sequence[str] = (),
        layer_stacks: Stacks | None = None,
    ):
        self.fn = fn
        self.converted = converted
        self._sizes = sizes
        self.structured_inputs = structured_inputs
        self.structured_outputs = structured_outputs
        self.signature = signature
        self.xla_fallback_nodes = tuple(xla_fallback_nodes)
        self.layer_stacks = dict(layer_stacks or {})
        self.__signature__ = inspect.signature(fn)
        self.__name__ = getattr(fn, "__name__", "converted_function")
        self.__qualname__ = self.__name__
        self.__doc__ = getattr(fn, "__doc__", None)
        self.__wrapped__ = fn

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **kwargs)

    def sizes(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes of the arrays that a call with the same arguments returns.

        Inside ``jit``, ``config.dynamic_shape_bound`` pads results of data-dependent size. Their sizes tell where the
        padding begins. Computing both in one jitted function costs little more than one of them.

        Returns:
          The structure of the results, with an int32 vector for each array: its shape in TensorFlow, as ``tf.shape``
          returns it. Without data-dependent sizes it is the shape of the array.
        """
        return self._sizes(*args, **kwargs)

    def __repr__(self) -> str:
        return f"AnnotatedFunction({self.__name__}{self.signature})"

    def _repr_html_(self) -> str:
        """Return arguments and results as a table, for a notebook."""
        args, kwargs = self.structured_inputs
        by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [name for name, parameter in self.signature.parameters.items() if parameter.kind in by_position]
        given = {(names[i] if i < len(names) else f"args[{i}]"): value for i, value in enumerate(args)} | dict(kwargs)
        rows = [["argument", *cells] for name, value in given.items() for cells in _leaves({name: value})]
        rows += [["result", *cells] for cells in _leaves(self.structured_outputs)]
        body = [f"<p>{code(self.__name__)} as a function of <code>(params, arguments)</code></p>"]
        body.append(table(("", "name", "dtype", "shape"), rows))
        if self.xla_fallback_nodes:
            body.append(f"<p>Compiled by TensorFlow: {', '.join(map(code, self.xla_fallback_nodes))}</p>")
        return fragment(body)


def _leaves(tree: Any) -> Iterator[list[str]]:
    """Yield the name, dtype and shape of each leaf, as cells; of a literal its value."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is None)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "result"
        if hasattr(leaf, "dtype"):
            shape = leaf.shape
            known = getattr(shape, "rank", 0) is not None
            sizes = f"[{', '.join('?' if d is None else str(d) for d in shape)}]" if known else "?"
            yield [code(name), escaped(getattr(leaf.dtype, "name", leaf.dtype)), escaped(sizes)]
        else:
            yield [code(name), "literal", code(repr(leaf))]


@dataclasses.dataclass(frozen=True, eq=False)
class ConvertedFunction:
    """A planned graph with its interface and options, all fixed at conversion.

    Attributes:
      promote_dtypes: whether operands of ops may differ in dtype, so that they are promoted as by JAX.
    """

    program: Program
    interface: Interface
    config: Config
    promote_dtypes: bool = False

    @property
    def variables(self) -> dict[str, ir.Variable]:
        """The captured variables by name."""
        found = (c.value for c in self.program.graph.captures if isinstance(c.value, ir.Variable))
        return {v.name: v for v in found}

    @property
    def draws(self) -> bool:
        """Whether the function draws random numbers."""
        return bool(self.program.random_nodes)

    @functools.cached_property
    def stacks(self) -> dict[str, list[str]]:
        """For the name of each stacked variable, the names of its layers'."""
        return {name: list(v.layers) for name, v in self.variables.items() if v.layers}

    def params(self) -> dict[str, Any]:
        """Return the variables' values at conversion, as params."""
        out: dict[str, Any] = {}
        for name, variable in self.variables.items():
            value = variable.value
            if value is None:
                shape = tuple(d or 0 for d in variable.shape or ())
                value = jax.ShapeDtypeStruct(shape, variable.dtype)
            if name in self.program.wide:
                value = integers.as_param(value, name)
            out[VariableName(name, variable.trainable)] = value
        return out

    def call(
        self, params: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], rng: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Run the function once and return results and updated params."""
        bound = self.interface.bind(args, kwargs, with_active_checks(self.config))
        flat, state = self.flat_call(params, bound.flat, rng, promote_dtypes=bound.promote_dtypes)
        return self.interface.results(flat), state

    def sizes(self, params: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], rng: Any) -> Any:
        """Return the shapes of the results of `call`, in their structure."""
        bound = self.interface.bind(args, kwargs, with_active_checks(self.config))
        if any(name in params for names in self.stacks.values() for name in names[1:]):
            params = stacked(params, self.stacks)
        params, same_dtypes = self._checked_params(params)
        promote_dtypes = bound.promote_dtypes or not same_dtypes
        return self.interface.results(self._retracing.sizes(params, bound.flat, _typed_key(rng), promote_dtypes))

    def flat_call(
        self, params: Mapping[str, Any], inputs: Sequence[Any], rng: Any = None, *, promote_dtypes: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Run on flat inputs, unchecked; return flat results and updated params."""
        is_separate = any(name in params for names in self.stacks.values() for name in names[1:])
        if is_separate:
            params = stacked(params, self.stacks)
        params, same_dtypes = self._checked_params(params)
        promote_dtypes = promote_dtypes or not same_dtypes
        results, state = self._retracing.call(params, inputs, _typed_key(rng), promote_dtypes)
        if is_separate:
            shapes = {name: tuple(d or 0 for d in (self.variables[name].shape or ())[1:]) for name in self.stacks}
            state = unstacked(state, self.stacks, shapes)
        return results, state

    @functools.cached_property
    def _retracing(self) -> Retracing:
        return Retracing(self.program, self.interface, self.config, self._run_once)

    def _run_once(
        self,
        params: Mapping[str, Any],
        inputs: Sequence[Any],
        key: Any,
        promote_dtypes: bool,
        wanted: Wanted,
        **sized: Any,
    ) -> tuple[list[Any], dict[str, Any]]:
        state = dict(params)
        given = integers.enter(state, self.program.wide)
        initial = dict(state) if wanted == "results" else None
        silent = wanted in ("state", "sizes")
        trace = Trace(
            self.program,
            state,
            key,
            promote_dtypes=self.promote_dtypes or promote_dtypes,
            initial=initial,
            suppress_effects=silent,
            **sized,
        )
        captured = [_captured(capture.value) for capture in self.program.graph.captures]
        if sized.get("tracker") is not None:
            inputs = _with_bounded_splits(inputs, self.interface.ragged)
        flat = trace.call(self.program.graph.main, [*inputs, *captured], trace.root_frame())
        flat = [v.resolved() if isinstance(v, RankVariants) else v for v in flat]
        integers.leave(trace.state, given)
        kept = {name: value for name, value in trace.state.items() if not name.startswith(static.LOCAL)}
        for value in flat:
            warn_if_narrowed(value, f"a result of {self.interface.name}")
        results = [_result(v) for v in flat]
        return ([_shape(v) for v in results], {}) if wanted == "sizes" else (results, kept)

    def _checked_params(self, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """Return coerced params, and whether all have their variables' dtypes."""
        missing = [name for name in self.variables if name not in params]
        if missing:
            listed = ", ".join(map(repr, map(str, missing[:10]))) + (", ..." if len(missing) > 10 else "")
            raise MissingParamError(
                f"{self.interface.name}: Some parameters are missing, [{listed}]. "
                "Pass params as convert() returned them, or as the function returned them."
            )
        same_dtypes, coerced = True, {}
        config = with_active_checks(self.config)
        for name, variable in self.variables.items():
            value = params[name]
            if not hasattr(value, "dtype") and not isinstance(value, (bool, int, float, complex)):
                raise InputError(
                    f"{self.interface.name}: param {name!r} is not an array, but a {type(value).__name__}."
                )
            if hasattr(getattr(value, "dtype", None), "as_numpy_dtype"):  # a tensor or variable of TensorFlow
                value = coerced[name] = np.asarray(value)
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
                same_dtypes = False
            else:
                coerced[name] = found
        return {**params, **coerced} if coerced else params, same_dtypes

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
        numeric = not jnp.issubdtype(given, jax.dtypes.extended) and np.dtype(given) not in (object, jax.dtypes.float0)
        if numeric and static.canonical(given) == static.canonical(variable.dtype):
            return True
        if numeric and not config.strict_dtype_check:
            return False
        raise DtypeMismatchError(
            f"{self.interface.name}: param {name!r} has dtype {given}, but the variable has {variable.dtype}. Cast it, "
            "or switch the check off with override_config('strict_dtype_check', False)."
        )


def _with_bounded_splits(inputs: Sequence[Any], ragged: Sequence[tuple[int, int]]) -> list[Any]:
    """Return inputs with row splits clipped to the number of values."""
    # Interval analysis finds their bound so.
    out = list(inputs)
    for first, rank in ragged:
        for index in range(first + 1, first + 1 + rank):
            length = out[index + 1].shape[0] - 1 if index < first + rank else out[first].shape[0]
            if isinstance(out[index], jax.Array):
                out[index] = jnp.clip(out[index], 0, jnp.asarray(length, out[index].dtype))
    return out


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


def _shape(value: Any) -> Any:
    """Return a result's shape as ``tf.shape`` does, with data-dependent sizes."""
    shape = np.shape(value)
    if all(isinstance(size, int) for size in shape):
        return jax.device_put(np.asarray(shape, np.int32))
    return jnp.stack([jnp.asarray(size).astype(np.int32) for size in shape])


def _typed_key(rng: Any) -> Any:
    """Return a typed key for a typed or a raw (uint32) key."""
    if rng is None:
        return None
    if is_key(rng):
        if rng.shape != ():
            raise InputError(f"rng is one key, got an array of keys of shape {rng.shape}; use jax.vmap for several.")
        return rng
    if isinstance(rng, (np.ndarray, jax.Array)) and rng.dtype == np.uint32 and rng.ndim == 1:
        try:
            return jax.random.wrap_key_data(rng if isinstance(rng, jax.Array) else jax.device_put(rng))
        except TypeError as error:  # a key of another PRNG implementation
            raise InputError(f"rng is not a key of JAX's default PRNG implementation: {error}") from None
    raise InputError(f"rng is a JAX PRNG key (jax.random.key(seed)), got {type(rng).__name__}.")
