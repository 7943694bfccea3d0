"""A traced function as a tree of blocks: JAX's jaxpr with calls inlined and dead equations gone.

Derivative rules (``jax.custom_jvp``, ``jax.custom_vjp``) are recovered by
differentiating the one equation that holds them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.autodiff.custom_gradient import NODE, TANGENT, has_offset, transposed
from tf2jax_lite.jaxprs import compat
from tf2jax_lite.jaxprs.compat import COMPOSITE, ClosedJaxpr, Jaxpr, bind, composite_jaxpr
from tf2jax_lite.support.errors import ExportError, ForwardModeError, LoweringError, OpError

from .literals import is_uniform, ramp

__all__ = ["Block", "Constant", "Equation", "Literal", "Value", "from_jaxpr"]

_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_lin", "xla_call"}
_SMALL = 16  # constants of up to this many elements are written into the source


@dataclasses.dataclass(eq=False)
class Value:
    """Something computed or passed in."""

    aval: Any
    hint: str = ""


@dataclasses.dataclass(eq=False)
class Constant(Value):
    """An array that is too large for the source."""

    array: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Literal:
    """A small constant."""

    array: np.ndarray

    @property
    def aval(self) -> Any:
        """Its shape and dtype."""
        return jax.ShapeDtypeStruct(self.array.shape, self.array.dtype)


@dataclasses.dataclass(eq=False)
class Equation:
    """One step. ``blocks`` are its inner functions by role.

    A function whose derivative is refused has the refusal's message as ``params["refused"]``, and no rule.
    """

    name: str
    params: dict[str, Any]
    inputs: list[Value | Literal]
    outputs: list[Value]
    path: tuple[str, ...]
    blocks: dict[str, Block] = dataclasses.field(default_factory=dict)

    def captured(self) -> list[Value | Literal]:
        """Returns all that inner functions use, their own values included."""
        return [v for block in self.blocks.values() for v in block.used()]


@dataclasses.dataclass(eq=False)
class Block:
    """A function: arguments, steps, results."""

    args: list[Value]
    steps: list[Equation]
    results: list[Value | Literal]

    def used(self) -> list[Value | Literal]:
        """Returns all that its steps and those of inner functions use."""
        return [v for step in self.steps for v in (*step.inputs, *step.captured())] + list(self.results)

    def has(self, name: str) -> bool:
        """Returns whether an equation of this name is in it, or in its inner functions."""
        return any(s.name == name or any(b.has(name) for b in s.blocks.values()) for s in self.steps)

    def prune(self) -> None:
        """Drops steps whose results nobody uses."""
        needed = {id(r) for r in self.results}
        kept = []
        for step in reversed(self.steps):
            if any(id(v) in needed for v in step.outputs):
                kept.append(step)
                needed |= {id(v) for v in step.inputs} | {id(v) for v in step.captured()}
        self.steps = kept[::-1]


def from_jaxpr(closed: ClosedJaxpr) -> Block:
    """Returns a traced function as a block.

    Raises:
      ExportError: it calls back to Python.
    """
    return _Reader().block(closed, ())


class _Reader:
    """Reads jaxprs. Constants shared between them stay shared."""

    def __init__(self) -> None:
        self._constants: dict[int, Value | Literal] = {}
        self._kept: list[Any] = []
        self._open: dict[str, object] = {}  # functions with derivative rules that are being read: rules may call them

    def block(self, closed: ClosedJaxpr, path: tuple[str, ...]) -> Block:
        args = [Value(var.aval) for var in closed.jaxpr.invars]
        steps: list[Equation] = []
        results = self._inline(closed.jaxpr, [self._constant(c) for c in closed.consts], args, path, steps)
        block = Block(args, steps, results)
        block.prune()
        return block

    def _constant(self, array: Any) -> Value | Literal:
        if id(array) not in self._constants:
            found: Value | Literal
            key = jnp.issubdtype(array.dtype, jax.dtypes.extended)
            if not key and (np.size(array) <= _SMALL or ramp(np.asarray(array)) or is_uniform(np.asarray(array))):
                found = Literal(np.asarray(array))
            else:
                found = Constant(jax.ShapeDtypeStruct(np.shape(array), array.dtype), array=array)
            self._constants[id(array)] = found
            self._kept.append(array)  # so that its id stays taken
        return self._constants[id(array)]

    def _inline(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value | Literal],
        args: Sequence[Value | Literal],
        path: tuple[str, ...],
        steps: list[Equation],
    ) -> list[Value | Literal]:
        env: dict[Any, Value | Literal] = {}
        env.update(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Value | Literal:
            return Literal(np.asarray(atom.val)) if isinstance(atom, compat.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            inputs = [read(atom) for atom in eqn.invars]
            here = (*path, *_path(eqn))
            name = eqn.primitive.name
            if name in _CALLS or name in (COMPOSITE, TANGENT):
                if name == TANGENT:
                    inner = transposed(eqn)
                elif name == COMPOSITE:
                    inner = composite_jaxpr(eqn)
                else:
                    inner = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
                closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
                consts_in = [self._constant(c) for c in closed.consts]
                env.update(zip(eqn.outvars, self._inline(closed.jaxpr, consts_in, inputs, here, steps), strict=True))
                continue
            outputs = [Value(var.aval, here[-1] if here else "") for var in eqn.outvars]
            env.update(zip(eqn.outvars, outputs, strict=True))
            step = Equation(name, dict(eqn.params), inputs, outputs, here)
            self._inner(step, eqn)
            steps.append(step)
        return [read(atom) for atom in jaxpr.outvars]

    def _inner(self, step: Equation, eqn: Any) -> None:
        """Reads an equation's inner functions."""
        params = step.params
        if step.name == "scan":
            step.blocks["body"] = self.block(params["jaxpr"], ())
        elif step.name == "while":
            step.blocks["cond"] = self.block(params["cond_jaxpr"], ())
            step.blocks["body"] = self.block(params["body_jaxpr"], ())
        elif step.name == "cond":
            for index, branch in enumerate(params["branches"]):
                step.blocks[f"branch{index}"] = self.block(branch, ())
        elif step.name in ("remat2", "checkpoint", "remat"):
            step.blocks["body"] = self.block(ClosedJaxpr(params["jaxpr"], ()), ())
        elif step.name in ("custom_jvp_call", "custom_vjp_call", NODE):
            # Functions that compute the same may have different rules: only what a function's own rule calls is it.
            if step.name == NODE:
                form = f"{step.name} {id(params['gradient'])}"
            else:
                consts = [id(c) for c in getattr(params["call_jaxpr"], "consts", ())]
                form = f"{step.name} {params['call_jaxpr']} {consts} {[str(v.aval) for v in step.inputs]}"
            if form in self._open:
                step.params = {"key": self._open[form]}
                return
            key = self._open[form] = object()
            step.params = {"key": key}
            try:
                if step.name == NODE:
                    self._custom_gradient(step, eqn)
                else:
                    (self._custom_jvp if step.name == "custom_jvp_call" else self._custom_vjp)(step, eqn)
            except (LoweringError, OpError) as error:  # the values are to be had all the same
                step.params = {"key": key, "refused": str(error)}
                step.blocks = {"primal": step.blocks["primal"]}
            finally:
                del self._open[form]
        elif step.name == "custom_linear_solve":
            found = zip(params["jaxprs"]._fields, params["jaxprs"], strict=True)
            # JAX makes the product with the transpose of what it is given.
            step.blocks = {r: self.block(jaxpr, ()) for r, jaxpr in found if jaxpr is not None and r != "vecmat"}
        elif step.name in ("reduce", "reduce_window"):
            inner = params["jaxpr"]
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, params["consts"])
            step.blocks["body"] = self.block(closed, ())
        elif "callback" in step.name:
            raise ExportError("the function calls back to Python, which an artefact cannot hold")

    def _custom_gradient(self, step: Equation, eqn: Any) -> None:
        args, first = [Value(v.aval) for v in step.inputs], eqn.params["args"]
        step.blocks["primal"] = Block(args, [], [*args[first : first + eqn.params["results"]]])
        if has_offset(eqn):
            self._reverse_rule(step, eqn)
            return
        # Backwards, JAX transposes forward rules: if there are any, and no loop is in them that data ends.
        with contextlib.suppress(ForwardModeError):
            self._forward_rule(step, eqn)
            if not step.blocks["jvp"].has("while"):
                return
            del step.blocks["jvp"]
        self._reverse_rule(step, eqn)

    def _custom_jvp(self, step: Equation, eqn: Any) -> None:
        step.blocks["primal"] = self.block(eqn.params["call_jaxpr"], ())
        self._forward_rule(step, eqn)

    def _custom_vjp(self, step: Equation, eqn: Any) -> None:
        step.blocks["primal"] = self.block(eqn.params["call_jaxpr"], ())
        self._reverse_rule(step, eqn)

    def _forward_rule(self, step: Equation, eqn: Any) -> None:
        function = _alone(eqn)
        avals = [v.aval for v in step.inputs]
        inexact = [i for i, a in enumerate(avals) if jnp.issubdtype(a.dtype, jnp.inexact)]

        def rule(primals: list[Any], tangents: list[Any]) -> Any:
            def call(*chosen: Any) -> Any:
                given = list(primals)
                for i, value in zip(inexact, chosen, strict=True):
                    given[i] = value
                return function(*given)

            primals_out, tangents_out = jax.jvp(call, [primals[i] for i in inexact], tangents)
            return primals_out, [t for t in tangents_out if t.dtype != jax.dtypes.float0]

        structs = [_struct(a) for a in avals]
        closed = jax.make_jaxpr(rule)(structs, [structs[i] for i in inexact])
        step.blocks["jvp"] = self.block(closed, ())

    def _reverse_rule(self, step: Equation, eqn: Any) -> None:
        function = _alone(eqn)
        structs = [_struct(v.aval) for v in step.inputs]
        inexact = [i for i, s in enumerate(structs) if jnp.issubdtype(s.dtype, jnp.inexact)]
        trees: list[Any] = []

        def forward(*args: Any) -> Any:
            def call(*chosen: Any) -> Any:
                given = list(args)
                for i, value in zip(inexact, chosen, strict=True):
                    given[i] = value
                return function(*given)

            results, pull = jax.vjp(call, *(args[i] for i in inexact))
            leaves, tree = jax.tree.flatten(pull)
            trees.append(tree)
            return results, leaves

        closed, (results, leaves) = jax.make_jaxpr(forward, return_shape=True)(*structs)
        step.blocks["forward"] = self.block(closed, ())

        def backward(leaves: Any, cotangents: Any) -> Any:
            given = [
                c if jnp.issubdtype(c.dtype, jnp.inexact) else np.zeros(c.shape, jax.dtypes.float0) for c in cotangents
            ]
            return jax.tree.unflatten(trees[-1], leaves)(given)

        closed = jax.make_jaxpr(backward)(leaves, results)
        # Inputs that get no gradient get none in the source, not zeros: those would go on backwards, and 0 times
        # infinity is NaN.
        moving = [i for i, zero in enumerate(_zeros(closed.jaxpr)) if not zero]
        chosen = jax.make_jaxpr(lambda *args: [backward(*args)[i] for i in moving])(leaves, results)
        step.blocks["backward"] = self.block(chosen, ())
        step.params = {**step.params, "gradients": [inexact[i] for i in moving]}


def _alone(eqn: Any) -> Any:
    """Returns an equation as a function of its inputs, its derivative rule alive."""
    return functools.partial(bind, eqn)


def _zeros(jaxpr: Any) -> list[bool]:
    """Tells for each result whether it is zeros whatever the arguments are."""

    def is_zero(value: Any) -> bool:
        return isinstance(value, compat.Literal) and np.ndim(value.val) == 0 and value.val == 0

    made = [e.outvars[0] for e in jaxpr.eqns if e.primitive.name == "broadcast_in_dim" and is_zero(e.invars[0])]
    return [is_zero(v) or any(v is zero for zero in made) for v in jaxpr.outvars]


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _path(eqn: Any) -> tuple[str, ...]:
    """Returns the scopes of an equation: TensorFlow's node names, which hold slashes themselves; no transformations."""
    text = re.sub(r"\b(?:jvp|transpose|vmap)\(|\)", "", str(eqn.source_info.name_stack))
    return tuple(part for part in text.split("/") if part)
