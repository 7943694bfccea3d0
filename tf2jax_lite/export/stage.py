"""Trace a converted function once, for every export format.

Shapes are fixed or symbolic.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.structures import OutputRef, TensorArgument, walk
from tf2jax_lite.dynamic_shapes.dim_expr import Constraint
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.lowering.interpreter.diagnostics import needed_constraint
from tf2jax_lite.pipeline.converted_function import ConvertedFunction
from tf2jax_lite.support.errors import ExportError, InputError
from tf2jax_lite.values import static

from .codegen import identifier
from .dimension_syntax import is_size


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One array argument of an exported function.

    Attributes:
      name: the argument's name (a path such as ``inputs/ids`` inside structures).
      dtype: numpy dtype.
      shape: ints, names of symbolic dimensions, multiples of such (``8*h``), and sums (``b+1``, ``p+n``).
    """

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class Staged:
    """A traced function.

    Attributes:
      jaxpr: of variables (in the order of ``variables``), inputs and, if ``rng``, a key, to flat results followed by
        the variables' new values.
      variables: names of the variables that are arguments.
      inputs: the array arguments.
      rng: whether the last argument is a PRNG key.
      outputs: structure of the results, with `OutputRef` leaves.
      results: abstract values of the flat results.
      updates: names of the variables that the function assigns to.
      function: the traced function.
      constraints: on symbolic dimensions, for JAX; they hold for all sizes, or all that TensorFlow supports.
    """

    jaxpr: Any
    variables: list[str]
    inputs: list[InputSpec]
    rng: bool
    outputs: Any
    results: list[Any]
    updates: list[str]
    function: Any
    constraints: tuple[Constraint, ...] = ()

    def restrictions(self) -> list[str]:
        """Return the constraints that do not hold for all sizes."""
        return [str(constraint) for constraint in self.constraints if not constraint.holds_for_all()]

    def arguments(self) -> list[jax.ShapeDtypeStruct]:
        """Return the array arguments, with symbolic dimensions."""
        return _arrays(self.inputs, self.constraints)


def input_specs(
    converted: ConvertedFunction,
    shapes: Mapping[str, str] | Sequence[str] | None = None,
    dtype: Any = None,
    *,
    one_batch: bool = False,
) -> list[InputSpec]:
    """Return the array arguments of a function, with names for unknown dimensions.

    The first unknown dimension is ``b``; others get a name each.

    Args:
      converted: the function.
      shapes: for each argument (by name, or in order) a shape such as ``"b, 224, 224, 3"``.
      dtype: replaces the dtype of floating arguments.
      one_batch: use ``b`` for all unknown first dimensions.

    Raises:
      InputError: a shape contradicts the signature, or there is no such argument.
      ExportError: an argument has no numeric dtype, or no known rank.
    """
    ordered = _arguments(converted)
    given = given_shapes(shapes, [name for name, _ in ordered])
    taken = {identifier(name) for name, _ in ordered}
    if not one_batch:  # unknown dimensions differ from those of given shapes unless the function needs it
        taken.update(d for shape in given.values() for d in _WORD.findall(shape))
    dimensions = _Dimensions(taken, one_batch)
    specs = []
    for name, leaf in ordered:
        if leaf.dtype is None:
            raise ExportError(f"argument {name} is not numeric ({leaf}); JAX has no such arrays")
        if name in given:
            shape = _parsed(name, given[name], leaf.shape)
        elif leaf.shape is None:
            raise ExportError(f"the rank of argument {name} is not known; give its shape (shapes=)")
        else:
            shape = tuple(dimensions.name(i, d) for i, d in enumerate(leaf.shape))
        floating = dtype is not None and jnp.issubdtype(leaf.dtype, jnp.floating)
        specs.append(InputSpec(name, np.dtype(dtype if floating else leaf.dtype), shape))
    return specs


_WORD = re.compile(r"[a-z][a-z0-9_]*")


def argument_names(converted: ConvertedFunction) -> list[str]:
    """Return array arguments' names in order; paths such as ``inputs/ids``."""
    return [name for name, _ in _arguments(converted)]


def _arguments(converted: ConvertedFunction) -> list[tuple[str, TensorArgument]]:
    return sorted(converted.interface.tensors().items(), key=lambda item: item[1].index)


class _Dimensions:
    """Generates names for unknown dimensions."""

    def __init__(self, taken: set[str], one_batch: bool):
        self._taken = taken
        self._one_batch = one_batch
        self._batch = next((name for name in ("b", "batch", "batch_size") if name not in taken), "")
        self._count = 0
        self._given: set[str] = set()

    def name(self, axis: int, size: int | None) -> int | str:
        """Return a known size, or a name for an unknown one."""
        if size is not None:
            return size
        if axis == 0 and (self._one_batch or self._batch not in self._given):
            self._batch = self._batch or self._numbered()
            self._given.add(self._batch)
            return self._batch
        return self._numbered()

    def _numbered(self) -> str:
        while True:
            self._count += 1
            name = f"d{self._count}"
            if name not in self._taken:
                return name


def given_shapes(shapes: Mapping[str, str] | Sequence[str] | None, names: list[str]) -> dict[str, str]:
    """Return the given shapes by argument.

    Raises:
      InputError: there are more shapes than arguments, or there is no such argument.
    """
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        if len(shapes) > len(names):
            raise InputError(f"{len(shapes)} shapes for {len(names)} argument(s): {', '.join(names)}")
        shapes = dict(zip(names, shapes, strict=False))
    unknown = sorted(set(shapes) - set(names))
    if unknown:
        raise InputError(f"no argument {unknown[0]!r}; there are {', '.join(names) or 'none'}")
    return dict(shapes)


def _parsed(name: str, text: str, declared: tuple[int | None, ...] | None) -> tuple[int | str, ...]:
    parts = [part.strip() for part in text.strip().strip("()[]").split(",") if part.strip()]
    shape: list[int | str] = []
    for part in parts:
        if not part.isdigit() and not is_size(part):
            raise InputError(
                f"shape {text!r} of argument {name}: {part!r} is neither a number nor like b, 8*h, b+1 or p+n"
            )
        shape.append(int(part) if part.isdigit() else part.replace(" ", ""))
    if declared is not None:
        fits = len(declared) == len(shape) and all(
            d is None or not isinstance(s, int) or d == s for d, s in zip(declared, shape, strict=True)
        )
        if not fits:
            raise InputError(f"shape {text!r} of argument {name} contradicts its signature {list(declared)}")
        shape = [s if d is None else d for d, s in zip(declared, shape, strict=True)]
    return tuple(shape)


def stage(
    converted: ConvertedFunction, specs: Sequence[InputSpec], params: Mapping[str, Any], *, loose: bool = False
) -> Staged:
    """Trace a converted function.

    Args:
      converted: the function.
      specs: shapes and dtypes of its array arguments.
      params: variable name to an object with a shape and a dtype.
      loose: dtypes differ from those that TensorFlow recorded.

    Raises:
      ExportError: the function needs fixed sizes.
    """
    constraints: dict[str, Constraint] = {}
    while True:
        try:
            return _staged(converted, specs, params, loose, tuple(constraints.values()))
        except Exception as error:
            constraint = needed_constraint(error)
            if constraint is not None and str(constraint) not in constraints and len(constraints) < _MAX_CONSTRAINTS:
                constraints[str(constraint)] = constraint
                continue
            if constraint is not None or isinstance(error, InconclusiveDimensionOperation):
                raise ExportError(_SYMBOLIC.format(converted.interface.name, error)) from error
            raise


def _arrays(specs: Sequence[InputSpec], constraints: Sequence[Constraint]) -> list[jax.ShapeDtypeStruct]:
    scope = _scope(tuple(map(str, constraints)))
    inputs = []
    for spec in specs:
        dims = ", ".join(str(d) for d in spec.shape)
        shape = jax.export.symbolic_shape(dims, scope=scope) if dims else ()
        inputs.append(jax.ShapeDtypeStruct(shape, static.canonical(spec.dtype)))
    return inputs


@functools.cache
def _scope(constraints: tuple[str, ...]) -> jax.export.SymbolicScope:
    """Return one scope for equal constraints, so that sizes are comparable."""
    return jax.export.SymbolicScope(constraints)


def _staged(
    converted: ConvertedFunction,
    specs: Sequence[InputSpec],
    params: Mapping[str, Any],
    loose: bool,
    constraints: tuple[Constraint, ...],
) -> Staged:
    names = list(converted.variables)
    inputs = _arrays(specs, constraints)
    variables = [jax.ShapeDtypeStruct(np.shape(params[n]), static.canonical(params[n].dtype)) for n in names]
    rng = converted.draws
    key = [jax.eval_shape(lambda: jax.random.key(0))] if rng else []
    updates: list[str] = []

    def function(variables: list[Any], inputs: list[Any], key: list[Any]) -> Any:
        before = dict(zip(names, variables, strict=True))
        flat, after = converted.flat_call(before, inputs, key[0] if key else None, promote_dtypes=loose)
        updates[:] = [n for n in after if n not in before or after[n] is not before[n]]
        return [jnp.asarray(v) for v in flat], [after[n] for n in updates]

    jaxpr, (results, _) = jax.make_jaxpr(function, return_shape=True)(variables, inputs, key)
    outputs = converted.interface.outputs
    _check_outputs(outputs)
    return Staged(jaxpr, names, list(specs), rng, outputs, list(results), updates, function, constraints)


_MAX_CONSTRAINTS = 16
_SYMBOLIC = "{}: a computation needs the size of a symbolic dimension; give fixed shapes (shapes=). {}"


def _check_outputs(outputs: Any) -> None:
    for _, leaf in walk(outputs):
        if not (leaf is None or isinstance(leaf, (OutputRef, bool, int, float, str))):
            raise ExportError(f"a result of type {type(leaf).__name__} cannot be written into an artifact")
