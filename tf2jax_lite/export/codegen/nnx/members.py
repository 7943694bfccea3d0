"""Declare the members of a class.

Members are layers of Flax, modules of other classes, variables, and constants. ``__init__`` makes them, and ``load``
sets their variables to params.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from tf2jax_lite.export.codegen import literals
from tf2jax_lite.export.codegen.formatter import loop, statement
from tf2jax_lite.export.codegen.names import Names, identifier
from tf2jax_lite.export.codegen.structure.calls import Calls, Invocation, Iteration, call_of, head_of, joined
from tf2jax_lite.export.codegen.structure.plans import Plan
from tf2jax_lite.export.codegen.templates import CLOSE, LOAD, OPEN, Hole, Marks, Part, Read, Ref, Stmt
from tf2jax_lite.support.errors import ExportError

MODULE_ATTRIBUTES = frozenset(
    {"eval", "from_params", "iter_children", "iter_modules", "load", "perturb", "set_attributes", "sow", "train"}
)
"""Names of methods, which no attribute may have."""

KERAS_NAMES = {
    "bias": "beta",
    "embedding": "embeddings",
    "mean": "moving_mean",
    "out": "attention_output",
    "scale": "gamma",
    "var": "moving_variance",
}
"""Name of a layer's attribute to the one that Keras has for it."""

_SUBSCRIPT = re.compile(r'\[f?"(?:\{\w+\})?([^"{}]*)"\]')
_DEFAULTS = re.compile(
    r', (?:strides=(?:1|\(1(?:, 1)*\))|padding="SAME"|kernel_dilation=(?:1|\(1(?:, 1)*\))|feature_group_count=1'
    r"|momentum=0\.99)(?=[,)])"
)
"""Arguments that are the defaults of Flax's layers."""
_ATTENTION = re.compile(r"nnx\.MultiHeadAttention\(\w+, (\w+),.*")


def call_words(plan: Plan) -> set[str]:
    """Return a function's keywords that depend on symbolic sizes.

    Each call passes them.
    """
    return {word for word, holes in plan.keywords.items() if any(hole.dims for hole in holes)} | set(plan.dims)


class Members(Calls):
    """The members of a class, each with a line of `__init__` and of `load`.

    Args:
      keywords: names of the constants that `__init__` takes.

    Attributes:
      init: the statements of `__init__`.
      load: those of `load`: statements, or the first line and the body of a loop.
    """

    def __init__(self, keywords: Collection[str] = ()):
        self.init: list[str] = []
        self.load: list[str | tuple[str, str]] = []
        self._keywords = keywords
        self._names = Names(taken=set(MODULE_ATTRIBUTES))
        self._attributes: dict[tuple[str, ...], str] = {}
        self._holders: dict[str, str] = {}  # source of a param to the variable that holds it

    def init_lines(self) -> list[str]:
        """Return the lines of `__init__`."""
        return [line for text in self.init or ["pass"] for line in statement(text, 8)]

    def load_lines(self) -> list[str]:
        """Return the lines of `load`."""
        lines: list[str] = []
        for found in self.load:
            head, body = ("", found) if isinstance(found, str) else found
            lines += [*(loop(head, 8) if head else []), *statement(body, 12 if head else 8)]
        return lines

    def mentioned(self, words: Collection[str], lines: Sequence[str]) -> list[str]:
        """Return the words that lines of source use."""
        used = {name for line in lines for name in re.findall(r"[A-Za-z_]\w*", line)}
        return [word for word in words if word in used]

    def _member(self, source: str, hint: str, *key: str) -> tuple[str, bool]:
        """Return the attribute with a value, and whether it is new.

        Args:
          source: of the value in `__init__`.
          hint: a name like that of the attribute.
          *key: what else tells values of one source apart.
        """
        new = (source, *key) not in self._attributes
        if new:
            name = self._attributes[source, *key] = self._names.new(hint, "param")
            self.init.append(f"self.{name} = {source}")
        return f"self.{self._attributes[source, *key]}", new

    def _constant(self, text: str) -> str:
        word, plus, offset = text.partition(" + ")
        return f"{self._member(word, word)[0]}{plus}{offset}" if word in self._keywords else text

    def fill(self, parts: Sequence[Part], texts: Iterator[str]) -> tuple[Part, ...]:
        """Return a statement's parts with source for params, constants and members."""
        found: list[Part] = []
        made: list[str] = []
        params: list[str] = []
        current: list[str] | None = None
        for part in parts:
            if part == OPEN:
                made, params = [], []
                current = made
            elif part == LOAD:
                current = params
            elif part == CLOSE:
                current = None
                found.append(self._layer("".join(made), dict(zip(params[::2], params[1::2], strict=True))))
            elif current is not None:
                current.append(next(texts) if isinstance(part, Read | Hole) else str(part))
            else:
                found.append(self._constant(next(texts)) if isinstance(part, Hole) else part)
        return tuple(_merged(found))

    def _layer(self, source: str, params: dict[str, str]) -> str:
        """Return the attribute of a layer, or of a variable, that holds params."""
        source = _ATTENTION.sub(_without_equal_sizes, _DEFAULTS.sub("", source))
        if "" in params:
            if params[""] in self._holders:
                return self._holders[params[""]]
            parameter, scopes = params[""].partition("[")[0], _SUBSCRIPT.findall(params[""])
            words = [*([parameter] if parameter != "params" else []), *scopes]
            member, _ = self._member(source, "_".join(words[-2:]), params[""])
            self._holders[params[""]] = member
            self.load.append(f"{member} = {params['']}")
            return member
        scope = _scope(params)
        kind = source.removeprefix("nnx.Optimized").removeprefix("nnx.").partition("(")[0]
        first = next(iter(params.values()), "").rpartition("[")[0] if scope is None else scope
        member, new = self._member(source, _role(first, identifier(kind)), *params.values())
        if new and params:
            given = scope if scope is not None else _nested(params)
            self.load.append(f"_load({member}, {given})")
            for name, text in params.items():
                held = self._holders.setdefault(text, f"{member}.{name}")
                if held != f"{member}.{name}":
                    self.init.append(f"{member}.{name} = {held}")
        return member

    def call(self, call: Invocation, marks: Marks) -> Stmt:
        """Return a statement that calls a module, or a function without members."""
        if not call.plan.is_class:
            given = [self._constant(text) for text in call.given]
            return call_of(dataclasses.replace(call, given=given), marks)
        source, loaded, words = self._construction(call)
        member, new = self._member(
            source, _role(call.given[0] if call.plan.slots else "", _class_role(call.plan), call), loaded
        )
        if new and loaded:
            self.load.append(f"{member}.load({loaded})")
        return _call(member, call, words)

    def loop(self, call: Invocation, loop: Iteration, marks: Marks) -> tuple[Stmt, Stmt]:
        """Return the first line of a loop over modules, and the call of one."""
        if not call.plan.is_class:
            return super().loop(call, dataclasses.replace(loop, iterable=self._constant(loop.iterable)), marks)
        source, loaded, words = self._construction(call)
        names = {name for _, text in words for name in re.findall(r"[a-z_]\w*", str(text))}
        if names & {"i", *loop.head.variables}:
            raise ExportError("sizes that depend on symbolic dimensions differ between the iterations of a loop")
        name = _class_role(call.plan)
        made = f"nnx.List([{source} for {' in '.join(_iteration(loop, source))}])"
        modules, new = self._member(made, f"{name}s", loaded, loop.iterable)
        if new and loaded:
            variables, iterable = _iteration(loop, loaded)
            targets = f"({variables})" if "," in variables else variables
            head = f"for {name}, {targets} in zip({modules}, {iterable}, strict=True):"
            if variables == "i":
                head = f"for i, {name} in enumerate({modules}):"
            elif variables == "_":
                head = f"for {name} in {modules}:"
            self.load.append((head, f"{name}.load({loaded})"))
        module = marks.number(name)
        sequences = [[modules], *(["(", *joined([[Ref(v)] for v in each]), ")"] for _, each in loop.columns)]
        targeted = [module, *(column for column, _ in loop.columns)]
        whole = ["zip(", *joined(sequences), ", strict=True)"] if loop.columns else sequences[0]
        first: list[Part] = ["for ", *joined([[Ref(v)] for v in targeted]), " in ", *whole, ":"]
        return Stmt(tuple(first), tuple(targeted)), _call(Ref(module), call, words)

    def _construction(self, call: Invocation) -> tuple[str, str, list[tuple[str, str]]]:
        """Return a module's source, arguments of its `load`, and keywords of its calls."""
        plan, given = call.plan, call.given
        named = dict(zip(plan.words(), given[len(plan.slots) :], strict=True))
        early = [f"{word}={named[word]}" for word in plan.init_words if named[word] != plan.defaults.get(word)]
        slots = dict(zip((slot.parameter for slot in plan.slots), given, strict=False))
        loaded = [slots[word] if word in slots else f"{word}={named[word]}" for word in plan.load_words]
        words = [(word, self._constant(named[word])) for word in plan.words() if word in call_words(plan)]
        return f"{plan.name}({', '.join([*early, 'rngs=rngs'])})", ", ".join(loaded), words


def _iteration(loop: Iteration, text: str) -> tuple[str, str]:
    """Return those variables of a loop that a text uses, and their iterable."""
    used = set(re.findall(r"[A-Za-z_]\w*", text))
    head, iterable = loop.head, loop.iterable
    if head.table:
        columns = head.variables[head.indexed :]
        kept = [column for column in columns if column in used]
        if not iterable.isidentifier():
            rows = [row.elts if len(columns) > 1 else [row] for row in ast.parse(iterable, mode="eval").body.elts]  # type: ignore[attr-defined]
            chosen = [[ast.get_source_segment(iterable, row[columns.index(c)]) or "" for c in kept] for row in rows]
            rest = ", ".join(row[0] if len(kept) == 1 else f"({', '.join(row)})" for row in chosen)
            iterable = f"({rest})" if kept else str(len(rows))
        elif not kept:
            iterable = f"len({iterable})"
        else:
            kept = columns
        head = dataclasses.replace(head, table=bool(kept), variables=[*["i"] * head.indexed, *kept])
    head = dataclasses.replace(
        head,
        indexed=head.indexed and "i" in used,
        variables=[*["i"] * (head.indexed and "i" in used), *(head.variables[head.indexed :] if head.table else [])],
    )
    line = "".join(map(str, head_of(dataclasses.replace(loop, head=head, iterable=iterable, columns=())).parts))
    variables, _, source = line.removeprefix("for ").removesuffix(":").partition(" in ")
    return variables, source


def _without_equal_sizes(attention: re.Match[str]) -> str:
    """Return the source of multi-head attention without sizes of their default."""
    return re.sub(rf" (?:qkv|out|in_kv)_features={attention[1]},", "", attention[0])


def _scope(params: dict[str, str]) -> str | None:
    """Return the scope that holds params by the names of Flax or Keras, or None."""
    scopes = set()
    for name, text in params.items():
        words = name.split(".")
        choices = itertools.product(*([word, KERAS_NAMES.get(word, word)] for word in words))
        ends = ["".join(f"[{literals.value(part)}]" for part in choice) for choice in choices]
        scopes.add(next((text.removesuffix(end) for end in ends if text.endswith(end)), None))
    return scopes.pop() if len(scopes) == 1 else None


def _nested(params: dict[str, str]) -> str:
    """Return the source of nested dicts for params by dotted name."""
    groups: dict[str, dict[str, str]] = {}
    for name, text in params.items():
        first, _, rest = name.partition(".")
        groups.setdefault(first, {})[rest] = text
    items = [f"{literals.value(key)}: {inner[''] if '' in inner else _nested(inner)}" for key, inner in groups.items()]
    return f"{{{', '.join(items)}}}"


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


def _role(source: str, default: str, call: Invocation | None = None) -> str:
    """Return a name for a member: the scope of its params, or a default.

    Args:
      source: of its params.
      default: the name without a scope.
      call: of the module that it is.
    """
    if call is not None:
        plan = call.plan
        named = next((slot.keyword for slot in plan.slots if slot.keyword), None)
        text = dict(zip(plan.arguments(), call.given, strict=True)).get(named or "", "")
        if re.fullmatch(r'"[^"{}]*"', text):
            return text
        if len(plan.slots) != 1:
            return default
    if source.isidentifier() and source != "params":
        return source
    scopes = _SUBSCRIPT.findall(source)
    if not scopes or not identifier(scopes[-1], ""):
        return default
    number = re.fullmatch(r"[^0-9A-Za-z]*(\d+)[^0-9A-Za-z]+(.+)", scopes[-1])
    return f"{number[2]}_{number[1]}" if number else scopes[-1]
