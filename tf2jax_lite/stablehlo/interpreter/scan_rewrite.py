"""Rewrites the body of a counted loop for a scan, before it is traced.

Induction variables are a * t + b in iteration t. Calls with such an argument, or with a whole carry, are inlined. A
slice at an induction variable becomes an element of the scan's ``xs``, an update an element of its ``ys``. Other ops
stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf2jax_lite.stablehlo.parsing.module import Op, Region, TensorType, finish, free_values, numbers, renamed

from .core import Run
from .induction import Affine, AffineVector, StaticBool, constants, integer

# Maximum depth of inlined calls.
_MAX_INLINE = 20


@dataclasses.dataclass(frozen=True)
class _Element:
    """An element of xs with an additional axis of size 1."""

    number: int
    shape: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class _Expanded:
    """A value with an additional axis of size 1."""

    number: int
    shape: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Access:
    """The index, t * a + b along ``axis``, that iteration t reads or writes."""

    source: int
    axis: int
    a: int
    b: Any


@dataclasses.dataclass(frozen=True)
class _Update:
    access: Access
    number: int


@dataclasses.dataclass
class Plan:
    """A loop as a scan.

    Attributes:
      trips: the number of iterations.
      body: arguments are the carries and then the elements of xs; returns are the carries and then those of ys.
      carried: positions of the carries that stay carries.
      reads: for each of xs, the array and its index.
      writes: for each of ys, the position of the carry that it fills, and the index.
      fixed: positions of loop-invariant carries.
      counted: final values of eliminated induction variables, by position of the carry.
      arguments: numbers of the loop's own arguments.
    """

    trips: Any
    body: Region
    carried: list[int]
    reads: list[Access]
    writes: list[tuple[int, Access]]
    fixed: list[int]
    counted: dict[int, Any]
    arguments: tuple[int, ...]


def is_fixed(body: Region, i: int) -> bool:
    """Return whether a carry is loop-invariant."""
    return body.returns[i] == body.args[i]


class Rewrite:
    """One pass over a loop's body.

    Args:
      run: the evaluation of the module.
      body: the body.
      env: values of enclosing regions.
      args: initial values of the carries.
      trips: the number of iterations.
      starts: initial values of the carries that are assumed to count up by one, by position.
      blocked: carries that must not become xs, since they are written, too.
    """

    def __init__(
        self,
        run: Run,
        body: Region,
        env: Mapping[int, Any],
        args: Sequence[Any],
        trips: Any,
        starts: Mapping[int, Any],
        blocked: set[int],
    ):
        self.run, self.body, self.env, self.trips = run, body, env, trips
        self.starts, self.blocked = starts, blocked
        self.known: dict[int, Any] = {}
        self.types: dict[int, Any] = dict(zip(body.args, body.types, strict=True))
        self.reads: dict[Access, int] = {}
        self.out: list[Op] = []
        self.carries = {number: i for i, number in enumerate(body.args)}
        for i, value in starts.items():
            self.known[body.args[i]] = Affine(1, value)
        self.shapes = {number: getattr(value, "shape", None) for number, value in zip(body.args, args, strict=True)}
        for i, value in enumerate(args):
            fixed = integer(value)
            if fixed is not None and is_fixed(body, i):
                self.known[body.args[i]] = Affine(0, fixed)
        mapping = {v: v for v in body.args}
        self._ops(body.ops, mapping, 0)
        self.returns = tuple(mapping.get(v, v) for v in body.returns)

    # ---- results ----

    def returned(self, i: int) -> Any:
        """Return the known form of a carry after an iteration."""
        return self.known.get(self.returns[i])

    def invalid_reads(self) -> set[int]:
        """Return the carries that became xs although they are written."""
        return {p.source for p in self.reads if p.source in self.carries and not self._fixed(self.carries[p.source])}

    def _fixed(self, i: int) -> bool:
        return self.returns[i] == self.body.args[i]

    def plan(self, induction: set[int]) -> Plan:
        """Return the plan; ``induction`` has positions of induction variables."""
        body, count = self.body, len(self.body.args)
        fixed = [i for i in range(count) if self._fixed(i)]
        writes: dict[int, _Update] = {
            i: found
            for i in range(count)
            if isinstance(found := self.returned(i), _Update) and found.access.source == body.args[i]
        }
        # Induction variables stay carries if they are used, and so do buffers that are read as a whole.
        dropped = set(induction)
        while True:
            carried = [i for i in range(count) if i not in fixed and i not in dropped and i not in writes]
            returns = [self.returns[i] for i in carried] + [u.number for u in writes.values()]
            args = [body.args[i] for i in carried] + list(self.reads.values())
            ops = finish(args, self.out, returns)
            used = {*returns}
            for op in ops:
                used.update(op.operands)
                for region in op.regions:
                    used |= free_values(region)
            again = {i for i in dropped if body.args[i] in used}
            kept = {i for i in writes if body.args[i] in used}
            if not again and not kept:
                break
            dropped -= again
            for i in kept:
                del writes[i]
        reads = [(access, number) for access, number in self.reads.items() if number in used]
        args = [body.args[i] for i in carried] + [number for _, number in reads]
        types = [self.types.get(v) for v in args]
        return Plan(
            trips=self.trips,
            body=Region(tuple(args), tuple(types), finish(args, self.out, returns), tuple(returns)),
            carried=carried,
            reads=[access for access, _ in reads],
            writes=[(i, u.access) for i, u in writes.items()],
            fixed=fixed,
            counted={i: self.starts[i] + self.trips for i in dropped},
            arguments=body.args,
        )

    # ---- the pass ----

    def _ops(self, ops: Sequence[Op], mapping: dict[int, int], depth: int) -> None:
        for op in ops:
            operands = tuple(mapping.get(v, v) for v in op.operands)
            if op.name == "func.call" and depth < _MAX_INLINE and self._inlines(op.attrs["callee"], operands):
                callee = self.run.function(op.attrs["callee"]).body
                inner = dict(zip(callee.args, operands, strict=True))
                self._ops(callee.ops, inner, depth + 1)
                for result, value in zip(op.results, callee.returns, strict=True):
                    mapping[result] = inner[value]
                continue
            if op.name == "stablehlo.select" and isinstance(choice := self.known.get(operands[0]), StaticBool):
                mapping[op.results[0]] = operands[1 if choice.value else 2]
                continue
            results = tuple(next(numbers) for _ in op.results)
            mapping.update(zip(op.results, results, strict=True))
            self.types.update(zip(results, op.types, strict=True))
            regions = tuple(renamed(region, mapping) for region in op.regions)
            self.out.append(dataclasses.replace(op, operands=operands, results=results, regions=regions))
            if op.name == "func.call":
                callee = self.run.function(op.attrs["callee"]).body
                for result, value in zip(op.results, callee.returns, strict=True):
                    if value in callee.args:  # forwarded
                        mapping[result] = operands[callee.args.index(value)]
            elif len(results) == 1 and isinstance(op.types[0], TensorType):
                alias = self._learn(op, operands, results[0])
                if alias is not None:
                    mapping[op.results[0]] = alias

    def _inlines(self, callee: str, operands: Sequence[int]) -> bool:
        """Return whether to inline a call on an induction variable or whole array."""
        for number in operands:
            known = self.known.get(number)
            if isinstance(known, Affine) and known.a != 0:
                return True
            if number in self.carries and self._is_array(number):
                fixed = is_fixed(self.body, self.carries[number])
                wanted = ("dynamic_slice", "real_dynamic_slice") if fixed else ("dynamic_update_slice",)
                if _mentions(self.run, callee, wanted):
                    return True
        return False

    def _is_array(self, number: int) -> bool:
        type_ = self.types.get(number)
        return isinstance(type_, TensorType) and len(type_.shape) > 0

    def _learn(self, op: Op, operands: tuple[int, ...], result: int) -> int | None:
        """Record the known form of a result; return an equal value, if there is one."""
        name = op.name.removeprefix("stablehlo.")
        plain = name.removeprefix("dynamic_")
        if name == "dynamic_slice":
            starts = [self._affine(v) for v in operands[1:]]
            return self._slice(op, operands[0], starts, op.attrs["slice_sizes"])
        if name == "real_dynamic_slice":
            return self._real_slice(op, operands)
        if name == "dynamic_update_slice":
            self._update(op, operands, result)
        elif plain == "reshape" and isinstance(element := self.known.get(operands[0]), _Element):
            return element.number if element.shape == op.types[0].shape else None
        elif plain in ("reshape", "broadcast_in_dim") and self._expands(op):
            self.known[result] = _Expanded(operands[0], op.operand_types[0].shape)
        if (vector := self._vector_of(name, op, operands)) is not None:
            self.known[result] = vector
        if op.types[0].shape == () and (found := self._scalar(name, op, operands)) is not None:
            self.known[result] = found
        return None

    @staticmethod
    def _expands(op: Op) -> bool:
        before, after = op.operand_types[0].shape, op.types[0].shape
        if len(after) != len(before) + 1:
            return False
        axes = op.attrs.get("broadcast_dimensions")
        if axes is None:
            return any(after == (*before[:i], 1, *before[i:]) for i in range(len(after)))
        new = [i for i in range(len(after)) if i not in axes]
        return len(new) == 1 and after == (*before[: new[0]], 1, *before[new[0] :]) and list(axes) == sorted(axes)

    def _affine(self, number: int) -> Affine | None:
        found = self.known.get(number)
        if found is None and number not in self.types:  # of an enclosing region
            value = integer(self.env.get(number))
            return None if value is None else Affine(0, value)
        return found if isinstance(found, Affine) else None

    def _scalar(self, name: str, op: Op, operands: tuple[int, ...]) -> Any:
        if name == "constant":
            value = integer(op.attrs["value"])
            return None if value is None else Affine(0, value)
        if name == "convert" and op.types[0].dtype.kind in "iu":
            return self._affine(operands[0])
        parts = [self._affine(v) for v in operands]
        if not parts or any(p is None for p in parts) or len(parts) > 2:
            return None
        x: Any = parts[0]
        y: Any = parts[-1]
        if name == "add":
            return Affine(x.a + y.a, x.b + y.b)
        if name == "subtract":
            return Affine(x.a - y.a, x.b - y.b)
        if name == "negate":
            return Affine(-x.a, -x.b)
        if name == "multiply" and (x.a == 0 or y.a == 0) and isinstance(x.b, int) and isinstance(y.b, int):
            return Affine(x.a * y.b + y.a * x.b, x.b * y.b)
        if name == "compare":
            return self._compared(op.attrs["comparison_direction"], Affine(x.a - y.a, x.b - y.b))
        return None

    def _compared(self, direction: str, difference: Affine) -> StaticBool | None:
        tests: dict[str, Callable[[Any], Any]] = {
            "LT": lambda d: d < 0,
            "LE": lambda d: d <= 0,
            "GT": lambda d: d > 0,
            "GE": lambda d: d >= 0,
        }
        if direction not in tests:
            return None
        try:
            first = bool(tests[direction](difference.b))
            last = bool(tests[direction](difference.a * (self.trips - 1) + difference.b))
        except Exception:  # symbolic dimensions do not always compare
            return None
        return StaticBool(first) if first == last else None

    # ---- vectors of indices ----

    def _affine_vector(self, number: int) -> tuple[Affine | None, ...] | None:
        found = self.known.get(number)
        if isinstance(found, AffineVector):
            return found.items
        if found is None and number not in self.types:
            return constants(self.env.get(number))
        return None

    def _vector_of(self, name: str, op: Op, operands: tuple[int, ...]) -> AffineVector | None:
        type_ = op.types[0]
        if len(type_.shape) != 1 or type_.dtype.kind not in "iu" or type_.shape[0] is None or type_.shape[0] > 16:
            return None
        if name == "constant":
            items = constants(op.attrs["value"])
            return None if items is None else AffineVector(items)
        if name == "reshape" and op.operand_types[0].shape == ():
            return AffineVector((self._affine(operands[0]),))
        parts = [self._affine_vector(v) for v in operands]
        unknown = (None,) * type_.shape[0]
        if name == "concatenate":
            sizes = [t.shape[0] for t in op.operand_types]
            filled = [p if p is not None else (None,) * n for p, n in zip(parts, sizes, strict=True)]
            return AffineVector(tuple(item for part in filled for item in part))
        if name in ("add", "subtract"):
            sign = 1 if name == "add" else -1
            rows = zip(*(p or unknown for p in parts), strict=True)
            return AffineVector(tuple(x and y and Affine(x.a + sign * y.a, x.b + sign * y.b) for x, y in rows))
        if name == "clamp":
            return AffineVector(tuple(map(self._clamped, *(p or unknown for p in parts))))
        return None

    def _clamped(self, low: Affine | None, x: Affine | None, high: Affine | None) -> Affine | None:
        if low is None or x is None or high is None:
            return None
        below = self._compared("LE", Affine(low.a - x.a, low.b - x.b))
        above = self._compared("LE", Affine(x.a - high.a, x.b - high.b))
        return x if below == above == StaticBool(True) else None

    # ---- slices and updates ----

    def _place(self, source: int, sizes: Any, starts: Sequence[Affine | None], whole: Any = ()) -> Access | None:
        """Return a slice's axis at the loop counter, if other axes are whole."""
        shape = self.shapes.get(source) or getattr(self.env.get(source), "shape", None)
        if shape is None or len(shape) != len(starts):
            return None
        axis = None
        for i, (start, length, size) in enumerate(zip(starts, shape, sizes, strict=True)):
            if start is not None and abs(start.a) == 1 and size == 1 and axis is None:
                axis = i
            elif not (size is None and i in whole) and size != length:
                return None
        start = None if axis is None else starts[axis]
        if axis is None or start is None:
            return None
        low = start.b if start.a == 1 else start.b - (self.trips - 1)
        try:
            inside = low >= 0 and low + self.trips <= shape[axis]
        except Exception:  # symbolic dimensions do not always compare
            return None
        return Access(source, axis, start.a, start.b) if inside else None

    def _real_slice(self, op: Op, operands: tuple[int, ...]) -> int | None:
        starts, limits, steps = (self._affine_vector(v) for v in operands[1:])
        if starts is None or limits is None or steps is None or any(s != Affine(0, 1) for s in steps):
            return None
        sizes = []
        for first, last in zip(starts, limits, strict=True):
            if first is None or last is None or first.a != last.a:
                return None
            sizes.append(last.b - first.b)
        return self._slice(op, operands[0], starts, sizes)

    def _slice(self, op: Op, source: int, starts: Sequence[Affine | None], sizes: Any) -> int | None:
        outer = source not in self.types
        if not outer and (source not in self.carries or source in self.blocked):
            return None
        access = self._place(source, sizes, starts)
        if access is None:
            return None
        shape = op.types[0].shape
        squeezed = (*shape[: access.axis], *shape[access.axis + 1 :])
        if access not in self.reads:
            number = next(numbers)
            self.reads[access] = number
            self.types[number] = TensorType(op.types[0].dtype, squeezed)
        number = self.reads[access]
        # A reshape to take the axis away again goes; anything else finds it there.
        expanded = next(numbers)
        type_, axis = op.types[0], {"axis": access.axis}
        self.out.append(
            Op("loop.expand", (number,), (expanded,), (type_,), (self.types[number],), axis, where=op.where)
        )
        self.types[expanded] = type_
        self.known[expanded] = _Element(number, squeezed)
        return expanded

    def _update(self, op: Op, operands: tuple[int, ...], result: int) -> None:
        source, update = operands[:2]
        if source not in self.carries:
            return
        type_, whole = op.operand_types[1], op.types[0].shape
        starts = [self._affine(v) for v in operands[2:]]
        # A dynamic size of both is taken to be the same; running the loop checks that.
        unknown = {i for i, size in enumerate(whole) if size is None and type_.shape[i] is None}
        access = self._place(source, type_.shape, starts, unknown)
        if access is None:
            return
        squeezed = (*type_.shape[: access.axis], *type_.shape[access.axis + 1 :])
        known = self.known.get(update)
        if isinstance(known, (_Expanded, _Element)) and known.shape == squeezed:
            number = known.number
        else:
            number = next(numbers)
            made = TensorType(type_.dtype, squeezed)
            axis = {"axis": access.axis}
            self.out.append(Op("loop.squeeze", (update,), (number,), (made,), (type_,), axis, where=op.where))
            self.types[number] = made
        self.known[result] = _Update(access, number)


def _mentions(run: Run, callee: str, names: tuple[str, ...], depth: int = 0) -> bool:
    if depth > _MAX_INLINE:
        return False
    for op in run.function(callee).body.ops:
        if op.name.removeprefix("stablehlo.") in names:
            return True
        if op.name == "func.call" and _mentions(run, op.attrs["callee"], names, depth + 1):
            return True
    return False
