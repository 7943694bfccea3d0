"""Counted loops as scans: carried buffers become their inputs and outputs.

TensorFlow's loops read their inputs from lists, and write their results into lists that they carry; so do the while
loops that JAX lowers its scans to, and gradients of loops. XLA copies such a buffer in each iteration, as one element
is read and another written, so that a gradient takes quadratic time in the number of iterations. As the ``xs`` and
``ys`` of ``lax.scan`` elements are not copied.

`find_accesses` finds reads and writes of consecutive elements, `replace_buffers` rewrites a body by them. They serve
loops that are optimized further (`tf2jax_lite.lowering.scan_opt`) and `scan_counted`, which runs a while loop.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import (
    ClosedJaxpr,
    InconclusiveDimensionOperation,
    Literal,
    Var,
    bind,
    jaxpr_as_fun,
    max_dim,
    min_dim,
)
from tf2jax_lite.jaxprs.evaluate import without_unread

from .batch_steps import read_elements
from .body import Body, Deferred, reshaped, run_loop, trace_body, value_of, variables
from .induction import (
    COMPARISONS,
    INDEXING,
    RESHAPES,
    Access,
    Affine,
    consecutive,
    index_values,
    induction_variables,
    is_integer,
    is_static,
)

_REMOVALS = (lax.reshape_p, lax.squeeze_p)
_VIEWS = (lax.reshape_p, lax.squeeze_p, lax.broadcast_in_dim_p)


class Write(NamedTuple):
    """A carried buffer with one element written per iteration, consecutively.

    Attributes:
      value: the element that an iteration writes: a variable of the jaxpr, or a literal.
      keeps_axis: whether the element has the indexed axis, of size 1.
    """

    value: Any
    access: Access
    keeps_axis: bool

    def after_loop(self, start: Any, rows: Any) -> Any:
        """Return the buffer after the loop, given all elements along the first axis."""
        axis, first, step = self.access
        if step < 0:
            rows = rows[::-1] if isinstance(rows, np.ndarray) else lax.rev(rows, (0,))
        if axis:
            rows = jnp.moveaxis(rows, 0, axis)
        if rows.shape[axis] == start.shape[axis]:
            return rows
        if isinstance(rows, np.ndarray) and isinstance(start, np.ndarray):
            return np.concatenate([start[:first], rows, start[first + len(rows) :]])
        return lax.dynamic_update_slice_in_dim(value_of(start), rows, first, axis)


class Accesses(NamedTuple):
    """Consecutive accesses of a loop's iterations.

    Attributes:
      reads: for variables that are elements of a stack, the equation that reads them, and the index.
      writes: for carried buffers, the write.
    """

    reads: Mapping[Any, tuple[Any, Access]]
    writes: Mapping[Any, Write]


def unchanged_values(body: Body) -> dict[Any, Any]:
    """Return the carried values that no iteration changes."""
    pairs = zip(body.carry.items(), body.carry_out, strict=True)
    return {v: value_of(x) for (v, x), after in pairs if v is after}


def find_accesses(
    body: Body, eqns: Sequence[Any], constants: Mapping[Any, Any], indices: Mapping[Any, Any]
) -> Accesses:
    """Return the consecutive accesses of a body.

    Args:
      eqns: its equations, with calls that read elements inlined.
      constants: loop-invariant variables and their values.
      indices: static integers in all iterations, see `index_values`.
    """
    uses = collections.Counter(v for e in eqns for v in variables(e.invars))
    uses.update(variables(body.results))
    defined_by = {v: e for e in eqns for v in e.outvars}
    slices = collections.defaultdict(list)
    for eqn in eqns:
        if eqn.primitive is lax.dynamic_slice_p:
            slices[eqn.invars[0]].append(eqn)
    writes = {}
    for buffer, result in zip(body.carry, body.carry_out, strict=True):
        eqn = defined_by.get(result) if isinstance(result, Var) else None
        if eqn is None or eqn.invars[:1] != [buffer] or uses[result] != 1:
            continue
        write, index = _written(eqn, indices)
        if write is None or uses[buffer] != 1 + len(slices[buffer]):
            continue
        if all(_reads_before_write(e, index, write.access, indices) for e in slices[buffer]):
            writes[buffer] = write
    stacks = constants.keys() | writes.keys()
    reads = {}
    for eqn in (e for stack, found in slices.items() if stack in stacks for e in found):
        access, _ = _read(eqn, indices)
        if access is not None:
            reads[eqn.outvars[0]] = eqn, access
    return Accesses(reads, writes)


def _read(eqn: Any, indices: Mapping[Any, Any]) -> tuple[Access | None, Any]:
    """Return the access by which iterations read consecutive elements, and the index."""
    stack, *starts = eqn.invars
    shape, sizes = stack.aval.shape, eqn.params["slice_sizes"]
    varying = [d for d, v in enumerate(starts) if isinstance(v, Var) and sizes[d] != shape[d]]
    # An axis of one element is whole, whichever index is read.
    varying = varying or [d for d, v in enumerate(starts) if isinstance(v, Var) and v in indices]
    if len(varying) != 1 or sizes[varying[0]] != 1 or starts[varying[0]] not in indices:
        return None, None
    index = indices[starts[varying[0]]]
    return consecutive(index, varying[0], shape), index


def _written(eqn: Any, indices: Mapping[Any, Any]) -> tuple[Write | None, Any]:
    """Return an equation's write of one element, and the index; None for others."""
    shape = eqn.invars[0].aval.shape
    if eqn.primitive is lax.scatter_p:
        _, index, value = eqn.invars
        if not _writes_one_element(eqn.params["dimension_numbers"], len(shape)):
            return None, None
        axis, keeps_axis = 0, False
    elif eqn.primitive is lax.dynamic_update_slice_p:
        _, value, *starts = eqn.invars
        partial = [d for d, (size, n) in enumerate(zip(value.aval.shape, shape, strict=True)) if size != n]
        partial = partial or [d for d, v in enumerate(starts) if isinstance(v, Var) and v in indices]
        if len(partial) != 1 or value.aval.shape[partial[0]] != 1:
            return None, None
        axis, keeps_axis = partial[0], True
        index = starts[axis]
    else:
        return None, None
    numbers = indices.get(index) if isinstance(index, Var) else None
    if isinstance(numbers, np.ndarray):
        numbers = numbers.reshape(-1)
    access = None if numbers is None else consecutive(numbers, axis, shape)
    return (None, None) if access is None else (Write(value, access, keeps_axis), numbers)


def _writes_one_element(dimensions: Any, rank: int) -> bool:
    """Return whether a scatter writes one element along the first axis."""
    return (
        tuple(dimensions.update_window_dims) == tuple(range(rank - 1))
        and tuple(dimensions.inserted_window_dims) == tuple(dimensions.scatter_dims_to_operand_dims) == (0,)
        and not tuple(dimensions.operand_batching_dims)
    )


def _reads_before_write(eqn: Any, written: Any, access: Access, indices: Mapping[Any, Any]) -> bool:
    """Return whether iterations read elements, each before its write."""
    found, read = _read(eqn, indices)
    if found is None or found.axis != access.axis:
        return False
    if isinstance(read, Affine):
        ahead = read.plus(written, -1)
        return ahead.step == 0 and ahead.always(lambda d: d * access.step >= 0) is True
    when = {int(index): trip for trip, index in enumerate(written)}
    return all(trip <= when.get(int(index), trip) for trip, index in enumerate(read))


def inline_reads(eqns: Sequence[Any]) -> list[Any]:
    """Return equations with calls inlined that only read elements or index."""
    return [inner for eqn in eqns for inner in _inlined(eqn)]


def _inlined(eqn: Any) -> list[Any]:
    if eqn.primitive.name != "jit":
        return [eqn]
    inner, consts = eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts
    primitives = {e.primitive for e in inner.eqns if e.primitive.name != "dim_as_value"}
    defined = {v for e in inner.eqns for v in e.outvars}
    results = inner.outvars
    reads = primitives <= INDEXING and lax.dynamic_slice_p in primitives
    if consts or not (reads or all(map(_is_scalar_integer, defined))):
        return [eqn]
    if not all(isinstance(v, Var) and v in defined for v in results) or len(set(results)) < len(results):
        return [eqn]
    names = dict(zip((*inner.invars, *results), (*eqn.invars, *eqn.outvars), strict=True))
    names.update({v: Var(v.aval) for v in defined if v not in names})
    return [
        e.replace(
            invars=[v if isinstance(v, Literal) else names[v] for v in e.invars],
            outvars=[names[v] for v in e.outvars],
        )
        for e in inner.eqns
    ]


def _is_scalar_integer(v: Any) -> bool:
    return getattr(v.aval, "shape", None) == () and is_integer(v.aval.dtype)


def replace_buffers(
    body: Body,
    eqns: Sequence[Any],
    writes: Mapping[Any, Write],
    xs: Mapping[Any, Any],
    ends: Mapping[Any, Any],
    rows: Mapping[Any, Any],
) -> Body:
    """Return a body that returns elements instead of carrying their buffers.

    Args:
      eqns: its equations; those that define ``xs`` and the buffers' new values go.
      writes: see `Accesses`; the element has no axis of size 1.
      ends: the last values of other variables that are not carried any longer.
      rows: the elements of buffers in all iterations, where they are known before the loop.
    """
    carried = [v for v in body.carry if v not in writes and v not in ends]
    after = dict(zip(body.carry, body.carry_out, strict=True))
    removed = {*xs, *(after[v] for v in writes)}
    stacked = [v for v in writes if v not in rows]

    def finish(carry: list[Any], ys: list[Any]) -> Any:
        values = dict(zip(carried, carry, strict=True)) | dict(ends)
        elements = dict(zip(stacked, ys, strict=False)) | dict(rows)
        values |= {v: write.after_loop(body.carry[v], elements[v]) for v, write in writes.items()}
        return body.finish([values[v] for v in body.carry], ys[len(stacked) :])

    return dataclasses.replace(
        body,
        eqns=[e for e in eqns if removed.isdisjoint(e.outvars)],
        carry={v: body.carry[v] for v in carried},
        carry_out=[after[v] for v in carried],
        xs=xs,
        ys=[*(writes[v].value for v in stacked), *body.ys],
        finish=finish,
    )


def without_axis(writes: Mapping[Any, Write], eqns: Sequence[Any]) -> tuple[dict[Any, Write], list[Any]]:
    """Return writes of elements without the indexed axis, and equations to remove it."""
    defined_by = {v: e for e in eqns for v in e.outvars}
    found, added = {}, []
    for buffer, (value, access, keeps_axis) in writes.items():
        if keeps_axis:
            shape = value.aval.shape
            narrow = value.aval.update(shape=(*shape[: access.axis], *shape[access.axis + 1 :]))
            source = defined_by.get(value) if isinstance(value, Var) else None
            if source is not None and _adds_axis(source, narrow.shape):
                value = source.invars[0]
            else:
                added.append(reshaped(value, Var(narrow)))
                value = added[-1].outvars[0]
        found[buffer] = Write(value, access, keeps_axis=False)
    return found, added


def _adds_axis(eqn: Any, shape: Sequence[Any]) -> bool:
    """Return whether an equation only adds an axis of size 1 to a value."""
    if eqn.primitive not in _VIEWS or tuple(eqn.invars[0].aval.shape) != tuple(shape):
        return False
    order = eqn.params.get("broadcast_dimensions", ())
    return list(order) == sorted(order) and eqn.params.get("dimensions") is None


# ---- while loops ----


class _Test(NamedTuple):
    """The condition of a loop: comparisons of integers, all of which have to hold."""

    jaxpr: Any
    comparisons: list[Any]

    def trips(self, counters: Mapping[int, Affine]) -> Any:
        """Return how often the condition holds, None if that is not static.

        Args:
          counters: the carried counters by position.
        """
        values = index_values(self.jaxpr.eqns, {}, {self.jaxpr.invars[i]: c for i, c in counters.items()}, 1)
        found: Any = None
        for eqn in self.comparisons:
            number = _holds(eqn, values)
            if number is None:
                return None
            same = found is None or _is_true(lambda a=found, b=number: a == b)
            found = number if same else min_dim(found, number)
        return found


def _holds(eqn: Any, values: Mapping[Any, Any]) -> Any:
    """Return for how many iterations a comparison of `Affine` integers holds, or None."""
    sides = [
        Affine(0, int(v.val), 1) if isinstance(v, Literal) and not v.aval.shape else values.get(v) for v in eqn.invars
    ]
    a, b = sides[::-1] if eqn.primitive in (lax.gt_p, lax.ge_p) else sides
    if not isinstance(a, Affine) or not isinstance(b, Affine):
        return None
    step, distance = a.step - b.step, b.first - a.first + (eqn.primitive in (lax.le_p, lax.ge_p))
    if step <= 0:
        return None
    return distance if step == 1 else (distance + step - 1) // step


def _is_true(test: Callable[[], Any]) -> bool:
    """Return whether sizes pass a test, False if that depends on symbolic dimensions."""
    try:
        return bool(test())
    except InconclusiveDimensionOperation:
        return False


def _condition(test: Callable[[list[Any]], Any], start: Sequence[Deferred], static: Mapping[int, Any]) -> _Test | None:
    """Return a loop's condition on static carried integers; None for others."""
    jaxpr = jax.make_jaxpr(test)([value.aval for value in start]).jaxpr
    jaxpr = jaxpr.replace(eqns=inline_reads(jaxpr.eqns))
    defined_by = {v: e for e in jaxpr.eqns for v in e.outvars}
    found: list[Any] = []
    pending = list(jaxpr.outvars)
    while pending:
        v = pending.pop()
        eqn = defined_by.get(v) if isinstance(v, Var) else None
        if eqn is not None and (eqn.primitive in (lax.and_p, *RESHAPES) or eqn.primitive.name == "materialize"):
            pending += eqn.invars
        elif eqn is not None and eqn.primitive in COMPARISONS:
            found.append(eqn)
        else:
            return None
    test_of = _Test(jaxpr, found)
    # Whichever way they count, if they do: values are known but for their steps.
    ways = ({i: Affine(step, first, 1) for i, first in static.items()} for step in (1, -1))
    return test_of if any(test_of.trips(way) is not None for way in ways) else None


def scan_counted(
    test: Callable[[list[Any]], Any],
    step: Callable[[list[Any]], list[Any]],
    start: Sequence[Deferred],
    static: Mapping[int, Any],
) -> list[Any] | None:
    """Run a while loop that counts as ``lax.scan``.

    Args:
      static: the carried integers that are static in the first iteration, by position; values may be symbolic.

    Returns:
      The last carry, in which counters are integers or symbolic dimensions. None for loops that do not count, or whose
      trip count is not static, and where values vary between the devices of a mesh.
    """
    condition = _condition(test, start, static) if static else None
    if condition is None:
        return None
    body = trace_body(lambda carry, x: (step(carry), None), list(start), (), None, _run)
    if body is None:
        return None
    body = dataclasses.replace(body, eqns=inline_reads(body.eqns))
    carry = list(body.carry)
    starts = {carry[i]: value for i, value in static.items()}
    counters = induction_variables(body, body.eqns, starts)
    trips = condition.trips({i: counters[v] for i, v in enumerate(carry) if v in counters})
    if trips is None:
        return None
    if isinstance(trips, int) and trips <= 0:
        return [static[i] if i in static else value.make() for i, value in enumerate(start)]
    if not isinstance(trips, int) and not _is_true(lambda: trips >= 0):
        trips = max_dim(trips, 0)
    body = dataclasses.replace(body, trips=trips)
    counters = induction_variables(body, body.eqns, starts)
    final = _raised(body, counters).run()
    return [counters[v].after if v in counters else value for v, value in zip(carry, final, strict=True)]


def counted_scan(eqn: Any, sizes: Sequence[Any]) -> ClosedJaxpr | None:
    """Return a ``while`` equation's program as a scan; None if it does not count.

    Args:
      sizes: for each operand the integer or the symbolic dimension that it is; None for others.
    """
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    counts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    avals = [v.aval for v in eqn.invars]
    static = {i: size for i, size in enumerate(sizes[sum(counts) :]) if size is not None}
    if cond.out_avals[0].shape or not static:
        return None
    counted = False

    def run(*operands: Any) -> list[Any]:
        nonlocal counted

        def constants(first: int, count: int) -> list[Any]:  # made where they are read, so that they stay static
            every = zip(operands[first:], sizes[first:], avals[first:], strict=True)
            return [v if size is None else _number(size, aval.dtype) for v, size, aval in list(every)[:count]]

        def test(carry: list[Any]) -> Any:
            return jaxpr_as_fun(cond)(*constants(0, counts[0]), *carry)[0]

        def step(carry: list[Any]) -> list[Any]:
            return jaxpr_as_fun(body)(*constants(counts[0], counts[1]), *carry)

        start = operands[sum(counts) :]
        made = [Deferred(v.aval, functools.partial(jnp.asarray, x)) for v, x in zip(eqn.outvars, start, strict=True)]
        final = scan_counted(test, step, made, static)
        counted = final is not None
        results = zip(final or start, eqn.outvars, strict=True)
        return [_number(x, v.aval.dtype) if isinstance(x, int) or is_symbolic_dim(x) else x for x, v in results]

    closed = jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals))
    return closed if counted else None


def _number(size: Any, dtype: Any) -> Any:
    """Return an integer or a symbolic dimension as an array."""
    return np.asarray(size, dtype) if isinstance(size, int) else lax.convert_element_type(jnp.asarray(size), dtype)


def _raised(body: Body, counters: Mapping[Any, Affine]) -> Body:
    """Return a body that carries neither buffers nor counters that it does not read."""
    unchanged = unchanged_values(body)
    body = dataclasses.replace(body, constants={**body.constants, **unchanged, **_generated_stacks(body)})
    static = {v: c for v, c in body.constants.items() if is_static(c)}
    indices = index_values(body.eqns, static, counters, body.trips)
    reads, writes = find_accesses(body, body.eqns, body.constants, indices)
    accesses = [access for _, access in reads.values()] + [write.access for write in writes.values()]
    backwards = bool(accesses) and all(access.step < 0 for access in accesses)
    if backwards:  # the scan runs backwards instead
        reads = {v: (eqn, access._replace(step=1)) for v, (eqn, access) in reads.items()}
        writes = {v: write._replace(access=write.access._replace(step=1)) for v, write in writes.items()}
    body, xs = _with_inputs(body, reads)
    writes, squeezes = without_axis(writes, body.eqns)
    eqns = [*body.eqns, *squeezes]
    numbers = {v: _Numbers(counter, v.aval.dtype, backwards) for v, counter in counters.items()}
    ends = unchanged | {v: counter.after for v, counter in counters.items()}
    found = replace_buffers(body, eqns, writes, {**xs, **numbers}, ends, {})
    live = without_unread(ClosedJaxpr(found.jaxpr, ()), lambda eqn: False).jaxpr.eqns
    used = {v for e in live for v in variables(e.invars)}.union(variables(found.results))
    inputs = {v: x.values() if isinstance(x, _Numbers) else x for v, x in found.xs.items() if v in used}
    return dataclasses.replace(found, eqns=live, xs=inputs, loop=functools.partial(_run, reverse=backwards))


class _Numbers(NamedTuple):
    """A counter's values in all iterations, in the order in which the scan takes them."""

    counter: Affine
    dtype: Any
    backwards: bool

    def values(self) -> Any:
        """Return the array."""
        step, first, trips = self.counter.step, self.counter.first, self.counter.trips
        if self.backwards:
            step, first = -step, self.counter.after - step
        numbers = lax.broadcasted_iota(self.dtype, (trips,), 0)
        numbers = numbers * np.asarray(step, self.dtype) if step != 1 else numbers
        return numbers if isinstance(first, int) and first == 0 else numbers + _number(first, self.dtype)


def _generated_stacks(body: Body) -> dict[Any, Any]:
    """Return the stacks, read by element, that one equation makes of no variables."""
    stacks = {e.invars[0] for e in body.eqns if e.primitive is lax.dynamic_slice_p}
    return {
        e.outvars[0]: bind(e, *(v.val for v in e.invars))[0]
        for e in body.eqns
        if e.primitive in (lax.iota_p, lax.broadcast_in_dim_p) and e.outvars[0] in stacks and not variables(e.invars)
    }


def _with_inputs(body: Body, reads: Mapping[Any, tuple[Any, Access]]) -> tuple[Body, dict[Any, Any]]:
    """Return a body that takes elements, without the indexed axis, as inputs."""
    elements: dict[Any, Any] = {}
    xs, names, views = {}, {}, {}
    for v, (eqn, access) in reads.items():
        stack, *starts = eqn.invars
        shape, sizes = v.aval.shape, eqn.params["slice_sizes"]
        value = body.constants[stack] if stack in body.constants else value_of(body.carry[stack])
        key = stack, access, tuple(sizes), tuple(map(str, starts))
        if key not in elements:
            element = Var(v.aval.update(shape=(*shape[: access.axis], *shape[access.axis + 1 :])))
            starts = [start.val if isinstance(start, Literal) else 0 for start in starts]
            xs[element] = read_elements(value, starts, sizes, access, body.trips)
            elements[key] = element
        views[v] = elements[key]
    eqns: list[Any] = []
    for eqn in body.eqns:
        source = views.get(eqn.invars[0]) if eqn.invars and isinstance(eqn.invars[0], Var) else None
        if source is not None and eqn.primitive in _REMOVALS and eqn.outvars[0].aval.shape == source.aval.shape:
            names[eqn.outvars[0]] = source  # the body removes the axis itself
        elif len(eqn.outvars) == 1 and eqn.outvars[0] in views:
            eqns.append(reshaped(views[eqn.outvars[0]], eqn.outvars[0]))
        else:
            eqns.append(eqn)

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [names.get(v, v) if isinstance(v, Var) else v for v in atoms]

    eqns = [e.replace(invars=renamed(e.invars)) for e in eqns]
    return dataclasses.replace(body, eqns=eqns, carry_out=renamed(body.carry_out), ys=renamed(body.ys)), xs


def _run(body: Body, reverse: bool = False) -> tuple[list[Any], list[Any]]:
    def scan(step: Any, carry: Any, xs: Any, trips: Any) -> Any:
        if isinstance(trips, int) or xs:  # JAX takes a symbolic length only from the arrays
            length = trips if isinstance(trips, int) else None
            return lax.scan(step, carry, xs, length=length, reverse=reverse)
        numbers = lax.broadcasted_iota(np.int32, (trips,), 0)
        return lax.scan(lambda carry, _: step(carry, xs), carry, numbers, reverse=reverse)

    return run_loop(body, scan)
