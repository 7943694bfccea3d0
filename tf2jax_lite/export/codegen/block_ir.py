"""Represent traced functions as blocks, with inlined calls and no dead equations.

Only `jax.extend.core` is used. Derivative rules (``jax.custom_jvp``, ``jax.custom_vjp``) are recovered by
differentiating the one equation that holds them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.autodiff.custom_gradient import NODE, TANGENT, has_offset, transposed, zero_results
from tf2jax_lite.jaxprs import compat
from tf2jax_lite.jaxprs.compat import COMPOSITE, ClosedJaxpr, Jaxpr, bind, composite_jaxpr, jaxpr_as_fun
from tf2jax_lite.loops.counted import counted_scan
from tf2jax_lite.loops.derivatives import DERIVATIVES, as_loops
from tf2jax_lite.loops.induction import Affine, index_values
from tf2jax_lite.loops.while_loop import LOOP_START, WITH_RESIDUALS
from tf2jax_lite.support.errors import ExportError, ForwardModeError, LoweringError, OpError

from .literals import has_short_source
from .own_derivatives import differentiable_results

_STREAM = [((2,), "uint32"), ((4,), "uint32")]
_NAMED = {"philox_key": [((2,), "int32")], "philox_uniform": _STREAM, "philox_normal": _STREAM}
"""Inner functions that stay one equation, by name, with the arguments that they have a function in source for."""
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_lin", "xla_call"}
_SMALL = 16  # constants of up to this many elements are written into the source


@dataclasses.dataclass(eq=False)
class Value:
    """A computed value or an argument."""

    aval: Any
    hint: str = ""


@dataclasses.dataclass(eq=False)
class Constant(Value):
    """An array that is too large for the source."""

    array: Any = None

    @functools.cached_property
    def content(self) -> Any:
        """A key that arrays with equal elements share."""
        if jnp.issubdtype(self.array.dtype, jax.dtypes.extended):
            return id(self.array)
        array = np.asarray(self.array)
        return array.dtype.name, array.shape, hashlib.sha256(array.tobytes()).digest()


@dataclasses.dataclass(eq=False)
class Scope(Value):
    """All params of a scope, as a dict."""

    path: tuple[str, ...] = ()


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

    A function without a supported derivative has the error message as ``params["refused"]``, and no rule.
    """

    name: str
    params: dict[str, Any]
    inputs: list[Value | Literal]
    outputs: list[Value]
    path: tuple[str, ...]
    blocks: dict[str, Block] = dataclasses.field(default_factory=dict)

    def captured(self) -> list[Value | Literal]:
        """Return all values that inner functions use, their own included."""
        return [v for block in self.blocks.values() for v in block.used()]

    def closures(self) -> Iterator[tuple[Block, list[tuple[Value, Value | Literal]]]]:
        """Yield inner functions, with the arguments that are outer values."""
        for role, block in self.blocks.items():
            given: Sequence[Value | Literal] = ()
            if self.name == "while":
                first = 0 if role == "cond" else self.params["cond_nconsts"]
                given = self.inputs[first : first + self.params[f"{role}_nconsts"]]
            elif self.name == "scan":
                given = self.inputs[: compat.scan_counts(self.params)[0]]
            elif self.name == "cond":
                given = self.inputs[1:]
            yield block, list(zip(block.args, given, strict=False))


@dataclasses.dataclass(eq=False)
class Block:
    """A function: arguments, steps, results."""

    args: list[Value]
    steps: list[Equation]
    results: list[Value | Literal]

    def used(self) -> list[Value | Literal]:
        """Return all values that its steps and those of inner functions use."""
        return [v for step in self.steps for v in (*step.inputs, *step.captured())] + list(self.results)

    def has(self, name: str) -> bool:
        """Return whether it or an inner function has an equation or call of a name."""
        return any(
            name in (s.name, s.params.get("function")) or any(b.has(name) for b in s.blocks.values())
            for s in self.steps
        )

    def prune(self) -> None:
        """Eliminate steps whose results are unused."""
        needed = {id(r) for r in self.results}
        kept = []
        for step in reversed(self.steps):
            if any(id(v) in needed for v in step.outputs):
                kept.append(step)
                needed |= {id(v) for v in step.inputs} | {id(v) for v in step.captured()}
        self.steps = kept[::-1]


def from_jaxpr(closed: ClosedJaxpr) -> Block:
    """Return a traced function as a block.

    Raises:
      ExportError: it calls back to Python.
    """
    return _Reader().block(closed, ())


class _Reader:
    """Reads jaxprs. Constants shared between them stay shared."""

    def __init__(self) -> None:
        self._constants: dict[int, Value | Literal] = {}
        self._kept: list[Any] = []
        self._sizes: dict[int, tuple[Value, Any]] = {}  # integers that are static, and the values, which keep their ids
        self._open: dict[str, object] = {}  # functions whose derivative rules are being read; the rules may call them
        self._with_rules = True

    def block(self, closed: ClosedJaxpr, path: tuple[str, ...], given: Sequence[Value | Literal] = ()) -> Block:
        args = [Value(var.aval) for var in closed.jaxpr.invars]
        for arg, item in zip(args, given, strict=False):  # that it takes from outside
            if (size := self._size(item)) is not None:
                self._sizes[id(arg)] = arg, size
        steps: list[Equation] = []
        results = self._inline(closed.jaxpr, [self._constant(c) for c in closed.consts], args, path, steps)
        block = Block(args, steps, results)
        block.prune()
        return block

    def _constant(self, array: Any) -> Value | Literal:
        if id(array) not in self._constants:
            found: Value | Literal
            key = jnp.issubdtype(array.dtype, jax.dtypes.extended)
            if not key and (np.size(array) <= _SMALL or has_short_source(np.asarray(array))):
                found = Literal(np.asarray(array))
            else:
                found = Constant(jax.ShapeDtypeStruct(np.shape(array), array.dtype), array=array)
            self._constants[id(array)] = found
            self._kept.append(array)  # keeps its id unique
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
            if isinstance(atom, compat.Literal):  # may hold a Python number
                return Literal(np.asarray(atom.val, _struct(atom.aval).dtype))
            return env[atom]

        for eqn in jaxpr.eqns:
            inputs = [read(atom) for atom in eqn.invars]
            here = (*path, *_path(eqn))
            name = eqn.primitive.name
            if name == NODE and not self._with_rules:
                first = eqn.params["args"]
                env.update(zip(eqn.outvars, inputs[first : first + eqn.params["results"]], strict=True))
                continue
            own = differentiable_results(jaxpr, eqn) if name == NODE and eqn.params["derived"] else None
            if own is not None:
                env.update(zip(eqn.outvars, map(read, own), strict=True))
                continue
            if name in (LOOP_START, WITH_RESIDUALS):  # identities with derivatives, which need JAX's primitives alone
                env.update(zip(eqn.outvars, inputs, strict=False))
                continue
            kept = _named_call(eqn)
            if kept is not None:
                outputs = [Value(var.aval, here[-1] if here else "") for var in eqn.outvars]
                env.update(zip(eqn.outvars, outputs, strict=True))
                steps.append(Equation(kept, {}, inputs, outputs, here))
                continue
            if name == "while":
                counted = counted_scan(eqn, list(map(self._size, inputs)))
                if counted is not None:
                    consts_in = [self._constant(c) for c in counted.consts]
                    results = self._inline(counted.jaxpr, consts_in, inputs, here, steps)
                    env.update(zip(eqn.outvars, results, strict=True))
                    continue
            without_rule = name in ("custom_jvp_call", "custom_vjp_call") and not self._with_rules
            if name in _CALLS or without_rule or name in (COMPOSITE, TANGENT, *DERIVATIVES):
                if name == TANGENT:
                    inner = transposed(eqn)
                elif name in DERIVATIVES:
                    inner = as_loops(eqn)
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
            self._note(eqn, inputs, outputs)
            step = Equation(name, dict(eqn.params), inputs, outputs, here)
            if name in _INNER_READERS:
                _INNER_READERS[name](self, step, eqn)
            elif "callback" in name:
                raise ExportError("the function calls back to Python, which an artifact cannot hold")
            steps.append(step)
        return [read(atom) for atom in jaxpr.outvars]

    def _size(self, item: Value | Literal) -> Any:
        """Return the static integer or symbolic dimension that a value is, or None."""
        if isinstance(item, Literal):
            return int(item.array) if item.array.ndim == 0 and item.array.dtype.kind in "iu" else None
        return self._sizes[id(item)][1] if id(item) in self._sizes else None

    def _note(self, eqn: Any, inputs: Sequence[Value | Literal], outputs: Sequence[Value]) -> None:
        """Remember the sizes that an equation computes."""
        pairs = [(v, self._size(item)) for v, item in zip(eqn.invars, inputs, strict=True)]
        known = {v: Affine(0, size, 1) for v, size in pairs if size is not None and not isinstance(v, compat.Literal)}
        found = index_values([eqn], {}, known, 1)
        for v, output in zip(eqn.outvars, outputs, strict=True):
            if isinstance(number := found.get(v), Affine):
                self._sizes[id(output)] = output, number.first

    def scan(self, step: Equation, eqn: Any) -> None:
        given = step.inputs[: compat.scan_counts(eqn.params)[0]]
        step.blocks["body"] = self.block(eqn.params["jaxpr"], (), given)

    def while_loop(self, step: Equation, eqn: Any) -> None:
        cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        if cond.out_avals[0].shape:
            count = eqn.params["cond_nconsts"]
            cond, body = _with_scalar_condition(cond, body, count)
            step.inputs = [*step.inputs[:count], *step.inputs]
            step.params["body_nconsts"] += count
        step.blocks["cond"] = self.block(cond, ())
        first = step.params["cond_nconsts"]
        step.blocks["body"] = self.block(body, (), step.inputs[first:][: step.params["body_nconsts"]])

    def cond(self, step: Equation, eqn: Any) -> None:
        for index, branch in enumerate(eqn.params["branches"]):
            step.blocks[f"branch{index}"] = self.block(branch, (), step.inputs[1:])

    def checkpoint(self, step: Equation, eqn: Any) -> None:
        step.blocks["body"] = self.block(ClosedJaxpr(eqn.params["jaxpr"], ()), ())

    def reduction(self, step: Equation, eqn: Any) -> None:
        inner = eqn.params["jaxpr"]
        closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, eqn.params["consts"])
        step.blocks["body"] = self.block(closed, ())

    def linear_solve(self, step: Equation, eqn: Any) -> None:
        found = zip(eqn.params["jaxprs"]._fields, eqn.params["jaxprs"], strict=True)
        # JAX derives the product with the transpose from the product.
        step.blocks = {r: self.block(jaxpr, ()) for r, jaxpr in found if jaxpr is not None and r != "vecmat"}

    def custom_gradient(self, step: Equation, eqn: Any) -> None:
        self._with_derivative(step, eqn, f"{step.name} {id(eqn.params['gradient'])}", self._custom_gradient)

    def custom_jvp(self, step: Equation, eqn: Any) -> None:
        self._with_derivative(step, eqn, _identity(step, eqn), self._custom_jvp)

    def custom_vjp(self, step: Equation, eqn: Any) -> None:
        self._with_derivative(step, eqn, _identity(step, eqn), self._custom_vjp)

    def _with_derivative(self, step: Equation, eqn: Any, identity: str, read: Callable[[Equation, Any], None]) -> None:
        """Read a function with its derivative rule, or refer to the one being read.

        Equal functions may have different rules, so only a call from a function's own rule is a recursive one.
        """
        if identity in self._open:
            step.params = {"key": self._open[identity]}
            return
        key = self._open[identity] = object()
        step.params = {"key": key}
        try:
            read(step, eqn)
        except (LoweringError, OpError) as error:  # the function can be evaluated nonetheless
            step.params = {"key": key, "refused": str(error)}
            step.blocks = {"primal": step.blocks["primal"]}
        finally:
            del self._open[identity]

    def _custom_gradient(self, step: Equation, eqn: Any) -> None:
        args, first = [Value(v.aval) for v in step.inputs], eqn.params["args"]
        step.blocks["primal"] = Block(args, [], [*args[first : first + eqn.params["results"]]])
        if has_offset(eqn):
            self._reverse_rule(step, eqn)
            return
        # JAX transposes forward rules for reverse mode, unless they have a loop with a data-dependent trip count.
        with contextlib.suppress(ForwardModeError):
            self._forward_rule(step, eqn)
            if not step.blocks["jvp"].has("while"):
                return
            del step.blocks["jvp"]
        self._reverse_rule(step, eqn)

    def _primal(self, eqn: Any) -> Block:
        """Read a function that has a derivative rule, without inner derivative rules.

        The rule replaces the function's derivative, so those inside of it are unused.
        """
        outer, self._with_rules = self._with_rules, False
        try:
            return self.block(eqn.params["call_jaxpr"], ())
        finally:
            self._with_rules = outer

    def _custom_jvp(self, step: Equation, eqn: Any) -> None:
        step.blocks["primal"] = self._primal(eqn)
        self._forward_rule(step, eqn)

    def _custom_vjp(self, step: Equation, eqn: Any) -> None:
        step.blocks["primal"] = self._primal(eqn)
        self._reverse_rule(step, eqn)

    def _forward_rule(self, step: Equation, eqn: Any) -> None:
        function = functools.partial(bind, eqn)  # with its derivative rule
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
        function = functools.partial(bind, eqn)  # with its derivative rule
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
        # Inputs without a gradient get None in the source rather than zeros, which would propagate: 0 times infinity
        # is NaN.
        moving = [i for i, zero in enumerate(zero_results(closed)) if not zero]
        chosen = jax.make_jaxpr(lambda *args: [backward(*args)[i] for i in moving])(leaves, results)
        step.blocks["backward"] = self.block(chosen, ())
        step.params = {**step.params, "gradients": [inexact[i] for i in moving]}


_INNER_READERS: dict[str, Callable[[_Reader, Equation, Any], None]] = {
    "scan": _Reader.scan,
    "while": _Reader.while_loop,
    "cond": _Reader.cond,
    **dict.fromkeys(("remat2", "checkpoint", "remat"), _Reader.checkpoint),
    **dict.fromkeys(("reduce", "reduce_window"), _Reader.reduction),
    "custom_linear_solve": _Reader.linear_solve,
    "custom_jvp_call": _Reader.custom_jvp,
    "custom_vjp_call": _Reader.custom_vjp,
    NODE: _Reader.custom_gradient,
}
"""Readers of the inner functions of equations, by primitive."""


def _with_scalar_condition(cond: ClosedJaxpr, body: ClosedJaxpr, count: int) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Return the functions of a loop under vmap with a scalar condition.

    The loop runs until all examples end. The body leaves the carry of those that have ended, and takes the constants of
    the condition before its own.

    Args:
      cond: returns one boolean for each example.
      body: the body.
      count: number of constants of the condition.
    """
    own = len(body.in_avals) - (len(cond.in_avals) - count)

    def any_of(*args: Any) -> Any:
        return jnp.any(*jaxpr_as_fun(cond)(*args))

    def step(*args: Any) -> Any:
        carry = args[count + own :]
        (moves,) = jaxpr_as_fun(cond)(*args[:count], *carry)
        new = jaxpr_as_fun(body)(*args[count:])
        return [
            jnp.where(moves.reshape(moves.shape + (1,) * (jnp.ndim(n) - moves.ndim)), n, c)
            for n, c in zip(new, carry, strict=True)
        ]

    structs = [_struct(a) for a in cond.in_avals]
    others = [_struct(a) for a in body.in_avals]
    return jax.make_jaxpr(any_of)(*structs), jax.make_jaxpr(step)(*structs[:count], *others)


def _named_call(eqn: Any) -> str | None:
    """Return the name of an inner function that is not inlined, else None."""
    name = eqn.params.get("name", "") if eqn.primitive.name in _CALLS else ""
    given = [(tuple(v.aval.shape), str(v.aval.dtype)) for v in eqn.invars]
    if given != _NAMED.get(name) or eqn.outvars[0].aval.dtype not in (np.uint32, np.float32):
        return None
    return name


def _identity(step: Equation, eqn: Any) -> str:
    """Return text that is the same for calls of one function with a derivative rule."""
    inner = eqn.params["call_jaxpr"]
    consts = [id(c) for c in getattr(inner, "consts", ())]
    return f"{step.name} {inner} {consts} {[str(v.aval) for v in step.inputs]}"


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _path(eqn: Any) -> tuple[str, ...]:
    """Return an equation's name scopes without the names of JAX's transformations.

    These are TensorFlow's node names.
    """
    text = re.sub(r"\b(?:jvp|transpose|vmap)\(|\)", "", str(eqn.source_info.name_stack))
    return tuple(part for part in text.split("/") if part)
