"""Turn while loops whose trip counts are sizes into scans.

A loop over a symbolic dimension, as TensorFlow's recurrent layers of unknown length are, stays a ``while_loop`` in the
traced function. Source is traced for known sizes, so that it is a ``lax.scan`` there, with derivatives of both modes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim, min_dim

from .block_ir import Block, Equation, Literal, Value

Item = Value | Literal

_COPIES = ("materialize", "copy", "copy_p")
_MOVES = (*_COPIES, "reshape", "squeeze", "expand_dims", "transpose", "broadcast_in_dim")
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max_dim,
    "min": min_dim,
}


class _Index(NamedTuple):
    """An integer in iteration t of a loop: ``first + step * t``."""

    first: Any
    step: int


def scan_counted_loops(block: Block, known: Mapping[int, Any] | None = None) -> None:
    """Replace while loops with counted trips by scans, inner functions included.

    Args:
      block: changed in place.
      known: sizes that are values of outer functions, by identity.
    """
    sizes = dict(known or {})
    definitions: dict[int, Equation] = {}
    steps: list[Equation] = []
    for step in block.steps:
        _define(step, sizes)
        for inner, pairs in step.closures():
            given = {id(arg): size for arg, item in pairs if (size := _size(item, sizes)) is not None}
            scan_counted_loops(inner, given)
        made = [step]
        if step.name == "while":
            with contextlib.suppress(InconclusiveDimensionOperation):  # whether it counts depends on the sizes
                made = _Loop(step, sizes, definitions).as_scan() or made
        steps += made
        definitions.update((id(v), s) for s in made for v in s.outputs)
    block.steps = steps
    block.prune()


def has_uncounted_loop(block: Block) -> bool:
    """Return whether a while loop is differentiated that has no reverse mode."""
    return any(
        "key" not in step.params and (step.name == "while" or any(map(has_uncounted_loop, step.blocks.values())))
        for step in block.steps
    )


def _size(item: Item, sizes: Mapping[int, Any]) -> Any:
    """Return the size that an integer is, None if unknown."""
    if isinstance(item, Literal):
        return int(item.array) if item.array.ndim == 0 and item.array.dtype.kind in "iu" else None
    return sizes.get(id(item))


def _define(step: Equation, sizes: dict[int, Any]) -> None:
    """Add the size that a step computes."""
    if len(step.outputs) != 1 or step.outputs[0].aval.shape or not _is_integer(step.outputs[0]):
        return
    found = None
    if step.name == "dim_as_value":
        found = step.params["dim"]
    else:
        operands = [_size(v, sizes) for v in step.inputs]
        if not any(o is None or isinstance(o, _Index) for o in operands):
            found = _computed(step, operands)
    if found is not None:
        sizes[id(step.outputs[0])] = found


def _computed(step: Equation, operands: Sequence[Any]) -> Any:
    if step.name in ("convert_element_type", *_COPIES):
        return operands[0]
    return _ARITHMETIC[step.name](*operands) if step.name in _ARITHMETIC else None


def _is_integer(item: Item) -> bool:
    return isinstance(item.aval.dtype, np.dtype) and item.aval.dtype.kind in "iu"


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


def _aval(shape: Sequence[Any], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


class _Loop:
    """A while loop that is rewritten.

    Args:
      step: its equation.
      sizes: sizes among the values before it, by identity.
      definitions: the steps before it, by their results.
    """

    def __init__(self, step: Equation, sizes: Mapping[int, Any], definitions: Mapping[int, Equation]):
        self.step, self.sizes, self.definitions = step, sizes, definitions
        p = step.params
        self.cond, self.body = step.blocks["cond"], step.blocks["body"]
        self.consts = step.inputs[p["cond_nconsts"] :][: p["body_nconsts"]]
        self.start = step.inputs[p["cond_nconsts"] + p["body_nconsts"] :]
        self.carry = self.body.args[p["body_nconsts"] :]
        self.makers = {id(v): s for s in self.body.steps for v in s.outputs}
        self.before: list[Equation] = []
        self.after: list[Equation] = []
        self._order: dict[int, tuple[Any, int]] = {}  # first row, and direction, of the rows of carried buffers

    def as_scan(self) -> list[Equation] | None:
        """Return the steps of the loop as a scan; None if it is not counted."""
        counters = self._counters()
        self.trips = self._trip_count(counters)
        if self.trips is None or (isinstance(self.trips, int) and self.trips < 1):
            return None
        indices = self._indices(counters)
        fixed = {
            k: self.start[k]
            for k, (arg, result) in enumerate(zip(self.carry, self.body.results, strict=True))
            if result is arg
        }
        outer: dict[int, Item] = dict(zip(map(id, self.body.args), self.consts, strict=False))
        outer.update((id(self.carry[k]), item) for k, item in fixed.items())
        xs: list[tuple[Value, Item]] = []
        steps = [self._read(step, indices, outer, xs) for step in self.body.steps]
        written = {k: ys for k in range(len(self.carry)) if (ys := self._written(k, indices)) is not None}
        removed = {id(self.body.results[k]) for k in written}
        steps = [s for s in steps if not any(id(v) in removed for v in s.outputs)]
        kept = [k for k in range(len(self.carry)) if not (k in counters or k in written or k in fixed)]
        sunk = self._sunk(kept)
        kept = [k for k in kept if k not in sunk]
        same = _congruent(self, steps, kept)
        steps = [*self._uniform_constants(outer), *steps]
        body = Block([], steps, [self.body.results[k] for k in kept if same[k] == k])
        body.results += written.values()
        _replace(body, {id(self.carry[k]): self.carry[j] for k, j in same.items() if k != j})
        body.prune()
        used = {id(v) for v in body.used()}
        for k, counter in counters.items():
            if id(self.carry[k]) in used:
                xs.append((self.carry[k], self._numbers(counter, self.carry[k].aval.dtype)))
        xs = [(arg, item) for arg, item in xs if id(arg) in used]
        inputs = [(arg, outer[id(arg)]) for arg in self.body.args if id(arg) in outer and id(arg) in used]
        own = [k for k in kept if same[k] == k]
        reverse, xs = self._reversed(xs)
        body.args = [*(a for a, _ in inputs), *(self.carry[k] for k in own), *(a for a, _ in xs)]
        ends = {k: self._fresh(self.step.outputs[k]) for k in own}
        rows = {k: self._rows(k, v) for k, v in written.items()}
        operands = [*(v for _, v in inputs), *(self.start[k] for k in own), *(v for _, v in xs)]
        params = {"length": self.trips, "reverse": reverse}
        params |= {"num_consts": len(inputs), "num_carry": len(own)}
        scan = Equation("scan", params, operands, [*ends.values(), *rows.values()], self.step.path, {"body": body})
        self._finish(counters, fixed, sunk, same, ends, rows, reverse)
        return [*self.before, scan, *self.after]

    # ---- the trip count ----

    def _counters(self) -> dict[int, _Index]:
        """Return the carried integers to which each iteration adds a constant."""
        found = {}
        for k, (arg, result) in enumerate(zip(self.carry, self.body.results, strict=True)):
            step, first = self.makers.get(id(result)), _size(self.start[k], self.sizes)
            if step is None or first is None or step.name not in ("add", "sub"):
                continue
            operands = step.inputs if step.inputs[0] is arg or step.name == "sub" else step.inputs[::-1]
            by = _size(operands[1], {})
            if operands[0] is arg and by is not None and by != 0:
                found[k] = _Index(first, by if step.name == "add" else -by)
        return found

    def _trip_count(self, counters: Mapping[int, _Index]) -> Any:
        """Return the number of iterations, None if values decide it."""
        count = self.step.params["cond_nconsts"]
        values: dict[int, Any] = {id(a): counters[k] for k, a in enumerate(self.cond.args[count:]) if k in counters}
        for arg, item in zip(self.cond.args[:count], self.step.inputs, strict=False):
            values[id(arg)] = _size(item, self.sizes)
        makers = {}
        for step in self.cond.steps:
            if step.name in ("convert_element_type", *_COPIES) and _is_integer(step.outputs[0]):
                values[id(step.outputs[0])] = values.get(id(step.inputs[0]))
            else:
                _define(step, values)
            makers[id(step.outputs[0])] = step
        trips: Any = None
        pending = [self.cond.results[0]]
        while pending:
            step = makers.get(id(pending.pop()))
            if step is not None and step.name in ("and", *_MOVES):
                pending += step.inputs
                continue
            found = None if step is None else _trips_of(step, values)
            if found is None:
                return None
            trips = found if trips is None or _equal(trips, found) else min_dim(trips, found)
        if trips is None or isinstance(trips, int):
            return trips
        try:
            return trips if trips >= 0 else max_dim(trips, 0)
        except InconclusiveDimensionOperation:
            return max_dim(trips, 0)

    # ---- what iterations read and write ----

    def _indices(self, counters: Mapping[int, _Index]) -> dict[int, _Index]:
        """Return the integers of the body that are linear in the iteration."""
        found = {id(self.carry[k]): counter for k, counter in counters.items()}
        sizes = {id(a): _size(v, self.sizes) for a, v in zip(self.body.args, self.consts, strict=False)}
        negative: dict[int, bool] = {}
        for step in self.body.steps:
            _define(step, sizes)
            if len(step.outputs) != 1:
                continue
            output, operands = step.outputs[0], [found.get(id(v)) for v in step.inputs]
            sides = [_size(v, sizes) for v in step.inputs]
            if step.name == "lt" and operands[0] is not None and sides[1] == 0:
                if _least(operands[0], self.trips) >= 0:
                    negative[id(output)] = False
            elif step.name == "select_n" and negative.get(id(step.inputs[0])) is False:
                if operands[1] is not None:
                    found[id(output)] = operands[1]
            elif step.name in ("broadcast_in_dim", "reshape", "squeeze", "convert_element_type", *_COPIES):
                if operands[0] is not None and output.aval.shape in ((), (1,)) and _is_integer(output):
                    found[id(output)] = operands[0]
            elif step.name in ("add", "sub") and not output.aval.shape:
                a, b = (o or (None if s is None else _Index(s, 0)) for o, s in zip(operands, sides, strict=True))
                if a is not None and b is not None and (operands[0] or operands[1]):
                    sign = 1 if step.name == "add" else -1
                    found[id(output)] = _Index(a.first + sign * b.first, a.step + sign * b.step)
        return found

    def _read(
        self, step: Equation, indices: Mapping[int, _Index], outer: Mapping[int, Item], xs: list[tuple[Value, Item]]
    ) -> Equation:
        """Return a step, with an element of a stack as an input of the scan."""
        if step.name != "dynamic_slice" or step.params["slice_sizes"][0] != 1:
            return step
        stack, index, *others = step.inputs
        whole = outer.get(id(stack)) if isinstance(stack, Value) else None
        number, output = indices.get(id(index)), step.outputs[0]
        if whole is None or number is None or any(_size(v, {}) != 0 for v in others):
            return step
        if not all(_equal(a, b) for a, b in zip(output.aval.shape[1:], stack.aval.shape[1:], strict=True)):
            return step
        length = stack.aval.shape[0]
        least = _least(number, self.trips)
        if abs(number.step) != 1 or not (least >= 0 and least + self.trips <= length):
            return step
        rows = whole
        if not _equal(self.trips, length):
            limits = (least + self.trips, *stack.aval.shape[1:])
            starts = (least, *[0] * len(others))
            params = {"start_indices": starts, "limit_indices": limits, "strides": None}
            rows = self._add(self.before, "slice", params, [rows], _aval((self.trips, *limits[1:]), stack.aval.dtype))
        if number.step < 0:
            rows = self._add(self.before, "rev", {"dimensions": (0,)}, [rows], rows.aval)
        known = next((arg for arg, item in xs if item is rows), None)
        arg = known or Value(_aval(output.aval.shape[1:], output.aval.dtype), step.outputs[0].hint)
        if known is None:
            xs.append((arg, rows))
        kept = tuple(range(1, len(output.aval.shape)))
        params = {"shape": output.aval.shape, "broadcast_dimensions": kept, "sharding": None}
        return Equation("broadcast_in_dim", params, [arg], [output], step.path)

    def _written(self, k: int, indices: Mapping[int, _Index]) -> Item | None:
        """Return the element of a carried buffer that each iteration writes."""
        arg, result = self.carry[k], self.body.results[k]
        step = self.makers.get(id(result))
        uses = Counter(map(id, self.body.used()))
        if step is None or step.name != "scatter" or step.inputs[0] is not arg:
            return None
        _, index, value = step.inputs
        number, numbers = indices.get(id(index)), step.params["dimension_numbers"]
        rank = len(arg.aval.shape)
        if number is None or abs(number.step) != 1 or uses[id(arg)] != 1 or uses[id(result)] != 1:
            return None
        is_element = tuple(numbers.update_window_dims) == tuple(range(rank - 1)) and not numbers.operand_batching_dims
        if not is_element or tuple(numbers.inserted_window_dims) != (0,):
            return None
        least = _least(number, self.trips)
        if not (least >= 0 and least + self.trips <= arg.aval.shape[0]):
            return None
        if not isinstance(least, int) and not _equal(self.trips, arg.aval.shape[0]):
            return None
        self._order[k] = least, number.step
        return value

    def _sunk(self, kept: Sequence[int]) -> dict[int, tuple[int, list[Equation]]]:
        """Return carried values that only repeat another one in another shape.

        Returns:
          For each the other one, and the steps that compute it after the loop.
        """
        uses = set(map(id, self.body.used()))
        results = {id(self.body.results[k]): k for k in kept}
        found: dict[int, tuple[int, list[Equation]]] = {}
        for k in kept:
            if id(self.carry[k]) in uses:
                continue
            chain: list[Equation] = []
            item = self.body.results[k]
            while (step := self.makers.get(id(item))) is not None and step.name in _MOVES and len(step.inputs) == 1:
                chain.append(step)
                item = step.inputs[0]
                if (j := results.get(id(item))) is not None and j != k and j not in found:
                    if self._is_uniform_pair(k, j):
                        found[k] = j, chain[::-1]
                    break
        return found

    def _is_uniform_pair(self, k: int, j: int) -> bool:
        """Return whether two carried values begin with the same number everywhere."""
        a, b = (self._uniform(self.start[i]) for i in (k, j))
        return a is not None and b is not None and a.dtype == b.dtype and a.tobytes() == b.tobytes()

    def _uniform(self, item: Item) -> np.ndarray | None:
        """Return the number that all elements of an array are, None if they differ."""
        step = self.definitions.get(id(item))
        while step is not None and step.name in _MOVES and len(step.inputs) == 1:
            item = step.inputs[0]
            step = self.definitions.get(id(item))
        if not isinstance(item, Literal) or not item.array.size:
            return None
        numbers = {x.tobytes(): x for x in item.array.reshape(-1)}
        return numbers.popitem()[1] if len(numbers) == 1 else None

    def _uniform_constants(self, outer: dict[int, Item]) -> list[Equation]:
        """Return steps for constants of one number, which are taken from ``outer``."""
        steps = []
        for arg in self.body.args:
            number = self._uniform(outer[id(arg)]) if id(arg) in outer and arg.aval.shape else None
            if number is not None:
                del outer[id(arg)]
                params = {"shape": arg.aval.shape, "broadcast_dimensions": (), "sharding": None}
                literal = Literal(np.asarray(number, arg.aval.dtype))
                steps.append(Equation("broadcast_in_dim", params, [literal], [arg], self.step.path))
        return steps

    def starts_equal(self, k: int, j: int) -> bool:
        """Return whether two carried values begin with equal values."""
        return self.start[k] is self.start[j] or self._is_uniform_pair(k, j)

    # ---- the scan ----

    def _add(self, steps: list[Equation], name: str, params: Any, inputs: Sequence[Item], like: Any) -> Value:
        output = Value(like, self.step.path[-1] if self.step.path else "")
        steps.append(Equation(name, params, list(inputs), [output], self.step.path))
        return output

    def _fresh(self, value: Value) -> Value:
        return Value(value.aval, value.hint)

    def _number(self, size: Any, dtype: Any, steps: list[Equation]) -> Item:
        """Return a size as an integer."""
        if isinstance(size, int):
            return Literal(np.asarray(size, dtype))
        value = self._add(steps, "dim_as_value", {"dim": size}, [], _aval((), np.dtype(np.int32)))
        params = {"new_dtype": dtype, "weak_type": False, "sharding": None}
        return self._add(steps, "convert_element_type", params, [value], _aval((), dtype))

    def _numbers(self, counter: _Index, dtype: Any) -> Value:
        """Return a counter's values in all iterations."""
        like = _aval((self.trips,), dtype)
        params = {"dtype": dtype, "shape": (self.trips,), "dimension": 0, "sharding": None}
        numbers = self._add(self.before, "iota", params, [], like)
        if counter.step != 1:
            numbers = self._add(self.before, "mul", {}, [numbers, Literal(np.asarray(counter.step, dtype))], like)
        if not _equal(counter.first, 0):
            numbers = self._add(
                self.before, "add", {}, [numbers, self._number(counter.first, dtype, self.before)], like
            )
        return numbers

    def _reversed(self, xs: list[tuple[Value, Item]]) -> tuple[bool, list[tuple[Value, Item]]]:
        """Return whether the scan runs backwards, and its inputs in that order."""
        made = {id(v): s for s in self.before for v in s.outputs}
        found = []
        for arg, item in xs:
            step = made.get(id(item)) or self.definitions.get(id(item))
            while step is not None and step.name in _COPIES:
                step = self.definitions.get(id(step.inputs[0]))
            if step is None or step.name != "rev" or tuple(step.params["dimensions"]) != (0,):
                return False, xs
            found.append((arg, step.inputs[0]))
        return bool(found), found

    def _rows(self, k: int, value: Item) -> Value:
        return Value(_aval((self.trips, *value.aval.shape), value.aval.dtype), self.step.outputs[k].hint)

    def _finish(
        self,
        counters: Mapping[int, _Index],
        fixed: Mapping[int, Item],
        sunk: Mapping[int, tuple[int, list[Equation]]],
        same: Mapping[int, int],
        ends: Mapping[int, Value],
        rows: Mapping[int, Value],
        reverse: bool,
    ) -> None:
        """Add the steps that compute the loop's results."""
        outputs = self.step.outputs

        def return_(k: int, item: Item) -> None:
            self.after.append(Equation("copy", {}, [item], [outputs[k]], self.step.path))

        for k, counter in counters.items():
            end = self._number(counter.first + counter.step * self.trips, outputs[k].aval.dtype, self.after)
            return_(k, end)
        for k, item in fixed.items():
            return_(k, item)
        for k, j in same.items():
            return_(k, ends[j])
        for k, (j, chain) in sunk.items():
            item: Item = ends[same[j]]
            for step in chain:
                item = self._add(self.after, step.name, step.params, [item], step.outputs[0].aval)
            return_(k, item)
        for k, item in rows.items():
            least, direction = self._order[k]
            if (direction < 0) != reverse:
                item = self._add(self.after, "rev", {"dimensions": (0,)}, [item], item.aval)
            if not _equal(self.trips, outputs[k].aval.shape[0]):
                zeros = [Literal(np.asarray(0, np.int32))] * (len(item.aval.shape) - 1)
                given = [self.start[k], item, Literal(np.asarray(least, np.int32)), *zeros]
                item = self._add(self.after, "dynamic_update_slice", {}, given, outputs[k].aval)
            return_(k, item)


def _least(index: _Index, trips: Any) -> Any:
    """Return the least value of an index."""
    return index.first if index.step >= 0 else index.first + index.step * (trips - 1)


def _trips_of(step: Equation, values: Mapping[int, Any]) -> Any:
    """Return for how many iterations a comparison holds, None if it is unknown."""
    mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
    if step.name not in mirrored:
        return None
    name, (a, b) = step.name, (values.get(id(v)) if isinstance(v, Value) else _size(v, {}) for v in step.inputs)
    if isinstance(b, _Index):
        name, a, b = mirrored[name], b, a
    if not isinstance(a, _Index) or b is None or isinstance(b, _Index):
        return None
    if (a.step > 0) != (name in ("lt", "le")):
        return None
    distance = (b - a.first) * (1 if a.step > 0 else -1) + (name in ("le", "ge"))
    return (distance + abs(a.step) - 1) // abs(a.step) if abs(a.step) > 1 else distance


def _congruent(loop: _Loop, steps: Sequence[Equation], kept: Sequence[int]) -> dict[int, int]:
    """Return for each carried value the first one that always equals it."""
    same: dict[int, int] = {}
    for k in kept:
        aval = loop.carry[k].aval
        found = (j for j in same.values() if _same_type(loop.carry[j].aval, aval) and loop.starts_equal(k, j))
        same[k] = next(found, k)
    while True:
        numbers = _value_numbers(steps, {id(loop.carry[k]): ("carry", j) for k, j in same.items()})
        results = {k: _number_of(loop.body.results[k], numbers) for k in kept}
        leaders: dict[Any, int] = {}
        refined = {k: leaders.setdefault((same[k], results[k]), k) for k in kept}
        if refined == same:
            return same
        same = refined


def _same_type(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(map(_equal, a.shape, b.shape))


def _value_numbers(steps: Sequence[Equation], numbers: dict[int, Any]) -> dict[int, Any]:
    """Return numbers of values, equal for values that are computed equally."""
    table: dict[Any, int] = {}
    for step in steps:
        key: Any = id(step)
        if not step.blocks:
            params = sorted((name, repr(value)) for name, value in step.params.items())
            key = (step.name, tuple(params), tuple(_number_of(v, numbers) for v in step.inputs))
        number = table.setdefault(key, len(table))
        numbers.update((id(v), (number, i)) for i, v in enumerate(step.outputs))
    return numbers


def _number_of(item: Item, numbers: Mapping[int, Any]) -> Any:
    if isinstance(item, Literal):
        return item.array.dtype.str, item.array.shape, item.array.tobytes()
    return numbers.get(id(item), ("outer", id(item)))


def _replace(block: Block, others: Mapping[int, Value]) -> None:
    """Replace values of a block, inner functions included."""
    if not others:
        return
    for step in block.steps:
        step.inputs = [others.get(id(v), v) for v in step.inputs]
        for inner in step.blocks.values():
            _replace(inner, others)
    block.results = [others.get(id(r), r) for r in block.results]
