"""Simplify scans: no carried value twice, and a reversed scan for reversed inputs.

Recurrent layers of TensorFlow carry the same state in several shapes, and reverse sequences before and after a loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.jaxprs.compat import scan_counts

from .block_ir import Block, Equation, Literal, Value

Item = Value | Literal

_COPIES = ("materialize", "copy", "copy_p")
_MOVES = (*_COPIES, "reshape", "squeeze", "expand_dims", "transpose", "broadcast_in_dim")


def simplify_scans(block: Block) -> None:
    """Simplify the scans of a block, inner functions included, in place."""
    definitions: dict[int, Equation] = {}
    steps: list[Equation] = []
    for step in block.steps:
        for inner in step.blocks.values():
            simplify_scans(inner)
        made = _Scan(step, definitions).simplified() if step.name == "scan" else [step]
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


class _Scan:
    """A scan that is rewritten.

    Args:
      step: its equation.
      definitions: the steps before it, by their results.
    """

    def __init__(self, step: Equation, definitions: Mapping[int, Equation]):
        self.step, self.definitions = step, definitions
        self.body = step.blocks["body"]
        self.consts, self.count = scan_counts(step.params)
        end = self.consts + self.count
        self.start, self.carry = step.inputs[self.consts : end], self.body.args[self.consts : end]
        self.xs = list(zip(self.body.args[end:], step.inputs[end:], strict=True))
        self.makers = {id(v): s for s in self.body.steps for v in s.outputs}

    def simplified(self) -> list[Equation]:
        """Return the steps that compute the same."""
        sunk = self._sunk()
        kept = [k for k in range(self.count) if k not in sunk]
        outer = dict(zip(map(id, self.body.args), self.step.inputs[: self.consts], strict=False))
        steps = [*self._uniform_constants(outer), *self.body.steps]
        same = self._congruent(steps, kept)
        own = [k for k in kept if same[k] == k]
        body = Block([], steps, [*(self.body.results[k] for k in own), *self.body.results[self.count :]])
        _replace(body, {id(self.carry[k]): self.carry[j] for k, j in same.items() if k != j})
        body.prune()
        used = {id(v) for v in body.used()}
        inputs = [(arg, outer[id(arg)]) for arg in self.body.args if id(arg) in outer and id(arg) in used]
        xs = [(arg, item) for arg, item in self.xs if id(arg) in used]
        reverse, xs = self._reversed(xs)
        body.args = [*(a for a, _ in inputs), *(self.carry[k] for k in own), *(a for a, _ in xs)]
        operands = [*(v for _, v in inputs), *(self.start[k] for k in own), *(v for _, v in xs)]
        outputs, ys = self.step.outputs, self.step.outputs[self.count :]
        flipped = [Value(v.aval, v.hint) if reverse else v for v in ys]
        params = {"length": self.step.params["length"], "reverse": self.step.params["reverse"] != reverse}
        params |= {"num_consts": len(inputs), "num_carry": len(own)}
        scan = dataclasses.replace(self.step, params=params, inputs=operands, blocks={"body": body})
        scan.outputs = [*(outputs[k] for k in own), *flipped]
        after = [self._step("copy", {}, outputs[j], outputs[k]) for k, j in same.items() if k != j]
        after += [self._step("rev", {"dimensions": (0,)}, a, b) for a, b in zip(flipped, ys, strict=True) if a is not b]
        for k, (j, chain) in sunk.items():
            item = outputs[same[j]]
            for move in chain:
                value = outputs[k] if move is chain[-1] else Value(move.outputs[0].aval, move.outputs[0].hint)
                after.append(self._step(move.name, move.params, item, value))
                item = value
        return [scan, *after]

    def _step(self, name: str, params: Any, item: Item, output: Value) -> Equation:
        return Equation(name, params, [item], [output], self.step.path)

    def _sunk(self) -> dict[int, tuple[int, list[Equation]]]:
        """Return carried values that only repeat another one in another shape.

        Returns:
          For each the other one, and the steps that compute it after the loop.
        """
        uses = set(map(id, self.body.used()[: -len(self.body.results) or None]))
        results = {id(r): k for k, r in enumerate(self.body.results[: self.count])}
        found: dict[int, tuple[int, list[Equation]]] = {}
        for k in range(self.count):
            chain: list[Equation] = []
            item = self.body.results[k]
            while id(self.carry[k]) not in uses and (step := self.makers.get(id(item))) is not None:
                if step.name not in _MOVES or len(step.inputs) != 1:
                    break
                chain.append(step)
                item = step.inputs[0]
                if (j := results.get(id(item))) is not None and j != k and j not in found:
                    if self._start_equally(k, j):
                        found[k] = j, chain[::-1]
                    break
        return found

    def _start_equally(self, k: int, j: int) -> bool:
        """Return whether two carried values begin with equal values."""
        a, b = (self._uniform(self.start[i]) for i in (k, j))
        uniform = a is not None and b is not None and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        return uniform or self.start[k] is self.start[j]

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
                steps.append(self._step("broadcast_in_dim", params, Literal(np.asarray(number, arg.aval.dtype)), arg))
        return steps

    def _congruent(self, steps: Sequence[Equation], kept: Sequence[int]) -> dict[int, int]:
        """Return for each carried value the first one that always equals it."""
        same: dict[int, int] = {}
        for k in kept:
            aval = self.carry[k].aval
            leaders = [j for j in same.values() if _same_type(self.carry[j].aval, aval) and self._start_equally(k, j)]
            same[k] = leaders[0] if leaders else k
        while True:
            numbers = _value_numbers(steps, {id(self.carry[k]): ("carry", j) for k, j in same.items()})
            leader: dict[Any, int] = {}
            results = {k: _number_of(self.body.results[k], numbers) for k in kept}
            refined = {k: leader.setdefault((same[k], results[k]), k) for k in kept}
            if refined == same:
                return same
            same = refined

    def _reversed(self, xs: list[tuple[Value, Item]]) -> tuple[bool, list[tuple[Value, Item]]]:
        """Return whether all inputs are reversed, and then what they are reversed from."""
        found = []
        for arg, item in xs:
            step = self.definitions.get(id(item))
            while step is not None and step.name in _COPIES:
                step = self.definitions.get(id(step.inputs[0]))
            if step is None or step.name != "rev" or tuple(step.params["dimensions"]) != (0,):
                return False, xs
            found.append((arg, step.inputs[0]))
        return bool(found), found


def _same_type(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(map(_equal, a.shape, b.shape))


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


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
