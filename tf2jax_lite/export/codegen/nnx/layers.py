"""Find layers among a function's equations.

Layers are products and convolutions with a param, a bias, and normalizations.

Each becomes a call of a function of its own in any name scope, so that it is a module of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.export.codegen.structure.items import Call, Code, Program
from tf2jax_lite.export.codegen.templates import Hole, Part, Printed, Read, Ref, Stmt, parts_of

BASES = {"Linear": "nnx.Linear", "Einsum": "nnx.Einsum", "Conv": "nnx.Conv"}
"""Base classes of layers that compute the same as a layer of Flax; see `tests/export/codegen/nnx/test_layers.py`."""
_HELPERS = {"_normalize_rows(": "LayerNorm", "_normalize(": "BatchNorm", "_lstm_cell(": "LSTMCell"}


class LayerCall(Call):
    """A call of a layer, which stands for equations of a name scope.

    Attributes:
      path: the scopes.
    """

    def __init__(self, call: Call, path: tuple[str, ...]):
        self.__dict__.update(call.__dict__)
        self.path = path


class LayerProgram(Program):
    """The functions of a module, layers among them.

    Attributes:
      kinds: of the functions that are layers, by key.
    """

    indexed = False  # attributes of modules are named for their params

    def __init__(self, marks: Any) -> None:
        super().__init__(marks)
        self.kinds: dict[int, str] = {}

    def layers(self, equations: Sequence[Printed], results: Collection[int]) -> Sequence[Any]:
        """Return equations with calls in place of layers."""
        uses = Counter(part.id for part in parts_of(equations) if isinstance(part, Ref))
        uses.update(results)
        sums = {}
        for number, equation in enumerate(equations):
            if (found := _sum(equation)) is not None:
                sums[found[0]] = number, found[1]
        items: list[Any] = list(equations)
        for number, equation in enumerate(equations):
            stmt = _only(equation)
            if stmt is None or (kind := self._kind(stmt)) is None:
                continue
            statements: list[Any] = [stmt]
            place = number
            if kind in BASES:
                value = stmt.targets[0]
                later, bias = sums.get(value, (None, None))
                # One use is its definition.
                if later is not None and bias is not None and uses[value] == 2 and self._adds(kind, stmt, bias):
                    statements.append(_only(equations[later]))
                    items[number], place = None, later
            items[place] = self._call(statements, equations[place].path, kind)
        return [item for item in items if item is not None]

    def _call(self, statements: list[Any], path: tuple[str, ...], kind: str) -> LayerCall:
        code = Code(statements, path, self)
        values = statements[-1].targets
        first = next(part.path for part in statements[0].parts if isinstance(part, Read))
        call = self.call([code], values.__contains__, first[-2] if len(first) > 1 else kind)
        self.kinds[call.function.key] = kind
        return LayerCall(call, path)

    def _kind(self, stmt: Stmt) -> str | None:
        """Return the kind of layer that a statement is, None if it is none."""
        texts = [part for part in stmt.parts if isinstance(part, str)]
        reads = [part.path for part in stmt.parts if isinstance(part, Read)]
        for helper, kind in _HELPERS.items():
            if any(text.endswith(f" = {helper}") for text in texts):
                return kind if reads and len({path[:-1] for path in reads}) == 1 else None
        match stmt.parts:
            case (Ref(), " = ", Ref() as x, " @ ", Read() as kernel) if self._rank(kernel) == 2:
                kind = "Linear"
            case (Ref(), " = jnp.einsum(", Hole(), ", ", Ref() as x, ", ", Read() as kernel, ")"):
                kind = "Einsum"
            case (Ref(), " = _conv(", Ref() as x, ", ", Read() as kernel, *rest) if keywords_of(rest) is not None:
                kind = "Conv"
            case _:
                return None
        dtype = self._dtype(kernel)
        if dtype is None or self._dtype(x) != dtype:
            return None
        # Layers of Flax convert integers to floats.
        return kind if jnp.issubdtype(dtype, jnp.inexact) else None

    def _adds(self, kind: str, stmt: Stmt, bias: Read) -> bool:
        """Return whether a param's shape is that of the kernel's output axes."""
        kernel, value = next(part for part in stmt.parts if isinstance(part, Read)), Ref(stmt.targets[0])
        shape = self.params[bias.path].shape
        if self._dtype(bias) != self._dtype(kernel):
            return False
        if kind != "Einsum":
            return shape == self.params[kernel.path].shape[-1:]
        equation = next(part.text for part in stmt.parts if isinstance(part, Hole)).strip('"')
        (left, right), result = equation.split("->")[0].split(","), equation.split("->")[1]
        own = [letter for letter in result if letter in right]
        ends = bool(own) and result.endswith("".join(own)) and not set(own) & set(left)
        return ends and shape == tuple(self.marks.avals[value.id].shape[-len(own) :])

    def _rank(self, part: Read) -> int:
        return len(self.params[part.path].shape) if part.path in self.params else -1

    def _dtype(self, part: Ref | Read) -> Any:
        """Return the dtype of a value or a param, None if it is not known."""
        aval = self.marks.avals[part.id] if isinstance(part, Ref) else self.params.get(part.path)
        return getattr(aval, "dtype", None)


def _only(equation: Printed) -> Stmt | None:
    """Return an equation's only statement."""
    return equation.nodes[0] if len(equation.nodes) == 1 and isinstance(equation.nodes[0], Stmt) else None


def _sum(equation: Printed) -> tuple[int, Read] | None:
    """Return the value and the param that an equation adds."""
    stmt = _only(equation)
    match stmt.parts if stmt is not None else ():
        case (Ref(), " = ", Ref() as value, " + ", Read() as bias) | (
            Ref(),
            " = ",
            Read() as bias,
            " + ",
            Ref() as value,
        ):
            return value.id, bias
    return None


def keywords_of(parts: Sequence[Part]) -> dict[str, int] | None:
    """Return the keywords of constants at the end of a call, by position.

    Returns:
      Position of each keyword's constant; None if the call has other parts.
    """
    found: dict[str, int] = {}
    *pairs, end = parts
    if end != ")" or len(pairs) % 2:
        return None
    for place in range(0, len(pairs), 2):
        before, value = pairs[place], pairs[place + 1]
        if not isinstance(before, str) or not isinstance(value, Hole) or not before.endswith("="):
            return None
        found[before.removeprefix(", ").removesuffix("=")] = place // 2
    return found
