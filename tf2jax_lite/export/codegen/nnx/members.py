"""Declare the members of a class.

Members are attributes for the params that a function reads, and for the modules that it calls.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence

from tf2jax_lite.export.codegen.names import Names, identifier
from tf2jax_lite.export.codegen.structure.calls import Calls, Invocation, Iteration, call_of, head_of, joined
from tf2jax_lite.export.codegen.structure.plans import Plan
from tf2jax_lite.export.codegen.templates import Hole, Marks, Part, Read, Ref, Stmt
from tf2jax_lite.support.errors import ExportError

MODULE_ATTRIBUTES = frozenset(
    {"eval", "from_params", "iter_children", "iter_modules", "perturb", "set_attributes", "sow", "train"}
)
"""Names of methods, which no attribute may have."""

_SUBSCRIPT = re.compile(r'\[f?"(?:\{\w+\})?([^"{}]*)"\]')


def call_words(plan: Plan) -> set[str]:
    """Return a function's keywords that depend on symbolic sizes.

    Each call passes them.
    """
    return {word for word, holes in plan.keywords.items() if any(hole.dims for hole in holes)} | set(plan.dims)


class Members(Calls):
    """Attributes that a method reads, each with a line of `__init__`.

    Args:
      keywords: names of the constants that `__init__` takes.

    Attributes:
      lines: the statements of `__init__`.
    """

    def __init__(self, keywords: Collection[str] = ()):
        self.lines: list[str] = []
        self._keywords = keywords
        self._names = Names(taken=set(MODULE_ATTRIBUTES))
        self._attributes: dict[str, str] = {}

    def _member(self, source: str, hint: str) -> str:
        """Return the attribute with a value, given by its source in `__init__`."""
        if source not in self._attributes:
            name = self._attributes[source] = self._names.new(hint, "param")
            self.lines.append(f"self.{name} = {source}")
        return f"self.{self._attributes[source]}"

    def _constant(self, text: str) -> str:
        word, plus, offset = text.partition(" + ")
        return f"{self._member(word, word)}{plus}{offset}" if word in self._keywords else text

    def leaf(self, part: Read | Hole, text: str) -> str:
        """Return the source of a param or constant in a method."""
        if isinstance(part, Hole):
            return self._constant(text)
        parameter, scopes = text.partition("[")[0], _SUBSCRIPT.findall(text)
        words = [*([parameter] if parameter != "params" else []), *scopes]
        return f"{self._member(text, '_'.join(words[-2:]))}[...]"

    def call(self, call: Invocation, marks: Marks) -> Stmt:
        """Return a statement that calls a module, or a function without params."""
        if not call.plan.slots:
            given = [self._constant(text) for text in call.given]
            return call_of(dataclasses.replace(call, given=given), marks)
        source, words = self._construction(call)
        return _call(self._member(source, _role(call)), call, words)

    def loop(self, call: Invocation, loop: Iteration, marks: Marks) -> tuple[Stmt, Stmt]:
        """Return the first line of a loop over modules, and the call of one."""
        if not call.plan.slots:
            return super().loop(call, dataclasses.replace(loop, iterable=self._constant(loop.iterable)), marks)
        source, words = self._construction(call)
        names = {name for _, text in words for name in re.findall(r"[a-z_]\w*", str(text))}
        if names & {"i", *loop.head.variables}:
            raise ExportError("sizes that depend on symbolic dimensions differ between the iterations of a loop")
        variables = "".join(map(str, head_of(dataclasses.replace(loop, columns=())).parts)).removesuffix(":")
        name = _class_role(call.plan)
        modules = self._member(f"nnx.List([{source} {variables}])", f"{name}s")
        module = marks.number(name)
        sequences = [[modules], *(["(", *joined([[Ref(v)] for v in each]), ")"] for _, each in loop.columns)]
        targeted = [module, *(column for column, _ in loop.columns)]
        whole = ["zip(", *joined(sequences), ", strict=True)"] if loop.columns else sequences[0]
        first: list[Part] = ["for ", *joined([[Ref(v)] for v in targeted]), " in ", *whole, ":"]
        return Stmt(tuple(first), tuple(targeted)), _call(Ref(module), call, words)

    def _construction(self, call: Invocation) -> tuple[str, list[tuple[str, str]]]:
        """Return the source of a module, and the keywords of its calls."""
        plan, given = call.plan, call.given
        late = call_words(plan)
        named = list(zip(plan.words(), given[len(plan.slots) :], strict=True))
        early = [(w, text) for w, text in named if w not in late and text != plan.defaults.get(w)]
        args = [*given[: len(plan.slots)], *(f"{word}={text}" for word, text in early)]
        words = [(word, self._constant(text)) for word, text in named if word in late]
        return f"{plan.name}({', '.join(args)})", words


def _call(module: Part, call: Invocation, words: Sequence[tuple[str, str]]) -> Stmt:
    args = [*([value] for value in call.values), *([f"{word}={text}"] for word, text in words)]
    parts = [*joined([[Ref(value)] for value in call.targets]), *([" = "] if call.targets else [])]
    return Stmt(tuple(_merged([*parts, module, "(", *joined(args), ")"])), tuple(call.targets))


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Join neighboring text."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def _class_role(plan: Plan) -> str:
    return identifier(plan.name).rstrip("_0123456789") or "module"


def _role(call: Invocation) -> str:
    """Return a name for a module: the scope of its params, or its class."""
    plan, given = call.plan, call.given
    named = next((slot.keyword for slot in plan.slots if slot.keyword), None)
    text = dict(zip(plan.arguments(), given, strict=True)).get(named or "", "")
    if re.fullmatch(r'"[^"{}]*"', text):
        return text
    if len(plan.slots) == 1 and given[0].isidentifier() and given[0] != "params":
        return given[0]
    scopes = _SUBSCRIPT.findall(given[0]) if len(plan.slots) == 1 else []
    if not scopes or not identifier(scopes[-1], ""):
        return _class_role(plan)
    number = re.fullmatch(r"[^0-9A-Za-z]*(\d+)[^0-9A-Za-z]+(.+)", scopes[-1])
    return f"{number[2]}_{number[1]}" if number else scopes[-1]
