"""Writes a module of source: entry functions, and one function per TensorFlow name scope."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tf2jax_lite.support.errors import ExportError

from . import free_names, idioms, literals, rules_solvers  # noqa: F401
from .block_ir import Block, Constant, Equation, Literal, Value
from .constants import pass_constants
from .derivative_rules import write_rules
from .formatter import define, docstring, tidy
from .free_names import dimension_sources, loaded
from .functions import FunctionWriter, tuple_of
from .names import Names, identifier

__all__ = ["Entry", "Ref", "write_module"]

_MIN_STEPS = 2  # smaller scopes are inlined


@dataclasses.dataclass(frozen=True)
class Ref:
    """A leaf in the structure of results: which result of the block."""

    index: int


@dataclasses.dataclass
class Entry:
    """One public function of the module.

    Attributes:
      name: its unique name in the source.
      block: its computation. Its arguments are the variables, the inputs, and the key, in this order.
      variables: names of the variables that it takes.
      inputs: names of its arrays, in the block's order.
      arguments: its parameters: names, each with a structure of `Ref` leaves into ``inputs``.
      rng: whether it takes a key.
      structure: of its results: dicts, lists and tuples with `Ref` leaves, and plain values.
      updates: variable name to the index of the result that is its new value.
      doc: lines of its docstring.
    """

    name: str
    block: Block
    variables: list[str]
    inputs: list[str]
    arguments: Mapping[str, Any]
    rng: bool
    structure: Any
    updates: Mapping[str, int]
    doc: Sequence[str] = ()


_TOO_DEEP = "loops and branches are nested deeper than Python can read"


def write_module(entries: Sequence[Entry], title: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Write a module.

    Args:
      entries: its public functions.
      title: lines of its docstring.

    Returns:
      The source, and constants too large for it: they are read from ``params`` under these names.

    Raises:
      ExportError: something has no source, or is nested deeper than Python can read.
    """
    given: dict[Any, tuple[str, ...]] = {}
    try:
        idioms.rewrite([entry.block for entry in entries])
        for entry in entries:
            pass_constants(entry.block)
        while True:  # until functions with derivative rules, which may call each other, get all sizes they need
            module = _Module(entries, title, dict(given))
            text, constants = module.write()
            if module.given == given:
                break
            given = module.given
        unknown = free_names.undefined(text)
    except RecursionError as error:
        raise ExportError(_TOO_DEEP) from error
    except SyntaxError as error:
        deep = isinstance(error, IndentationError) or "nested" in str(error)
        raise ExportError(_TOO_DEEP if deep else f"the generated source is invalid ({error}); this is a bug") from error
    if unknown:
        raise ExportError(f"the generated source uses undefined names {', '.join(unknown)}; this is a bug")
    return text, constants


class _Module:
    """Writes a module; ``given`` are the sizes that functions with derivative rules are passed, by key."""

    def __init__(self, entries: Sequence[Entry], title: Sequence[str], given: dict[Any, tuple[str, ...]]):
        self.entries = entries
        self.title = title
        self.functions = Names(taken={name[1:] for name in idioms.HELPERS})
        self.chunks: list[list[str]] = []
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._taken = {v for e in entries for v in e.variables}
        self._seen: dict[str, str] = {}
        self._customs: dict[Any, tuple[str, int]] = {}
        self.given = given
        self.dims: Collection[str] = frozenset(d for e in entries for d in _dimensions(e))
        self.used = {id(v) for e in entries for v in e.block.used()}

    def write(self) -> tuple[str, dict[str, Any]]:
        for entry in self.entries:
            self._entry(entry)
        body = "\n\n\n".join("\n".join(tidy(chunk)) for chunk in self.chunks) + "\n"
        used = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
        body = "".join(f"{text}\n\n\n" for name, text in idioms.HELPERS.items() if name in used) + body
        head = docstring(self.title, 0)
        used = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
        imports = [
            line
            for name, line in (
                ("functools", "import functools\n"),
                ("jax", "import jax"),
                ("jnp", "import jax.numpy as jnp"),
                ("np", "import numpy as np"),
                ("lax", "from jax import lax"),
            )
            if name in used
        ]
        public = [e.name for e in self.entries]
        names = f"__all__ = [{', '.join(literals.value(n) for n in public)}]"
        if len(names) > 88:
            names = "\n".join(["__all__ = [", *(f"    {literals.value(n)}," for n in public), "]"])
        return "\n".join([*head, "", *imports, "", names, "", "", body]), self.constants

    def constant(self, value: Constant) -> str:
        """Name a large constant."""
        if id(value) not in self._names:
            base = f"constants/{value.hint or 'array'}"
            name, count = base, 0
            while name in self.constants or name in self._taken:
                count += 1
                name = f"{base}_{count}"
            self._names[id(value)] = name
            self.constants[name] = value.array
        return f"params[{literals.value(self._names[id(value)])}]"

    def custom(self, step: Equation) -> tuple[str, Sequence[str]]:
        """Write a function with derivative rules, once.

        Returns:
          Its name, and the symbolic dimensions that it is passed before its inputs.

        Raises:
          ExportError: functions call each other in their rules, and one of them has large constants.
        """
        key = step.params["key"]
        if key not in self._customs:
            # Locals never begin with an underscore, so these names are free in every function.
            name = f"_{self.functions.new(step.path[-1] if step.path else 'function')}"
            self._customs[key] = name, len(step.inputs)
            given = self.given.get(key, ())
            writer = FunctionWriter(Names(taken={*self.dims}), self, [], 0, given=given)
            write_rules(writer, step, name)
            if writer.missing:
                self.given[key] = tuple(sorted({*given, *writer.missing}))
            lines = "\n".join(writer.lines).strip("\n")
            same = self._seen.setdefault(re.sub(rf"\b{name}(?=\b|_)", "@", lines), name)
            self._customs[key] = same, len(step.inputs)
            if same == name:
                self.chunks.append(lines.split("\n"))
        name, count = self._customs[key]
        if count != len(step.inputs):
            raise ExportError("functions with large constants call each other in their derivative rules")
        return name, self.given.get(key, ())

    def _entry(self, entry: Entry) -> None:
        _name_constants(entry.block)
        dims = _dimensions(entry)
        names = Names(taken={*dims, *entry.inputs, *entry.arguments, *(e.name for e in self.entries)})
        lines: list[str] = []
        main = FunctionWriter(names, self, lines)
        count = len(entry.variables)
        arrays = entry.block.args[count : count + len(entry.inputs)]
        variables = dict(zip(map(id, entry.block.args[:count]), entry.variables, strict=True))
        for value, name in zip(arrays, entry.inputs, strict=True):
            main.bind(value, name)
        if entry.rng:
            main.bind(entry.block.args[-1], "rng")
        for variable in entry.block.args[:count]:
            main.bind(variable, f"params[{literals.value(variables[id(variable)])}]")

        for scope, steps in _runs(entry.block):
            if scope is None:
                for step in steps:
                    _read(main, [step], variables)
                    main.step(step)
            else:
                self._scope(main, scope, steps, entry.block, variables, dims)

        results = [main.text(r) for r in entry.block.results]
        updates = [f"{literals.value(n)}: {results[i]}" for n, i in entry.updates.items()]
        state = "{" + ", ".join(["**params", *updates]) + "}" if updates else "params"
        main.add(f"outputs = {_structure(entry.structure, results)}")
        main.add(f"return outputs, {state}")
        used = loaded(lines)
        before = [
            f"    {name} = jnp.asarray({name}, {literals.dtype(value.aval.dtype)})"
            for name, value in zip(entry.inputs, arrays, strict=True)
            if name in used or name in _roots({d: v for d, v in dims.items() if d in used})
        ]
        for dim, source in dims.items():
            if dim in used:
                before += [f"    {dim} = {source}", *_check_multiple(dim, source)]
        args = ["params", *entry.arguments]
        if entry.rng:
            args += ["*", "rng"]
        unpacked = [
            f"    {entry.inputs[i]} = {source}"
            for name, structure in entry.arguments.items()
            if not isinstance(structure, Ref)
            for i, source in _leaves(structure, name)
            if entry.inputs[i] in used or entry.inputs[i] in _roots(dims)
        ]
        doc = list(entry.doc)
        text = docstring(doc, 4) if doc else []
        self.chunks.append([*define(entry.name, args, 0), *text, *unpacked, *before, *lines])

    def _scope(
        self,
        main: FunctionWriter,
        scope: str,
        steps: list[Equation],
        block: Block,
        variables: Mapping[int, str],
        dims: Mapping[str, str],
    ) -> None:
        inside = {id(v) for step in steps for v in _defined(step)}
        free: dict[int, Value] = {}
        reads: dict[int, Value] = {}
        for step in steps:
            for item in (*step.inputs, *step.captured()):
                if isinstance(item, Literal) or id(item) in inside:
                    continue
                kind = reads if id(item) in variables or isinstance(item, Constant) else free
                kind.setdefault(id(item), item)
        outputs = [v for step in steps for v in step.outputs if id(v) in _used_outside(block, steps)]
        args = {id(v): main.text(v) for v in free.values()}
        inner = FunctionWriter(Names(taken={*dims, *args.values()}), self)
        inner.env.update(args)
        for key, value in reads.items():
            if key in variables:
                source = f"params[{literals.value(variables[key])}]"
                hint = variables[key].rsplit("/", 1)[-1]
            else:
                assert isinstance(value, Constant)
                source, hint = self.constant(value), value.hint or "constant"
            name = inner.names.new(hint)
            inner.add(f"{name} = {source}", literals.type_comment(value.aval))
            inner.bind(value, name)
        for step in steps:
            inner.step(step)
        given = [inner.text(v) for v in outputs]
        inner.add(f"return {given[0] if len(given) == 1 else ', '.join(given)}")
        used = loaded(inner.lines)
        names = [*(["params"] if reads else []), *args.values(), *(d for d in dims if d in used)]
        body = "\n".join([", ".join(names), *inner.lines])
        name = self._seen.get(body)
        if name is None:
            name = f"_{self.functions.new(scope, 'scope')}"
            self._seen[body] = name
            doc = docstring([f"TensorFlow scope {scope}."], 4)
            self.chunks.append([*define(name, names, 0), *doc, *inner.lines])
        targets = [main.names.new(v.hint) for v in outputs]
        for value, target in zip(outputs, targets, strict=True):
            main.bind(value, target)
        comment = literals.type_comment(outputs[0].aval) if len(outputs) == 1 else ""
        main.add(f"{', '.join(targets)} = {name}({', '.join(names)})", comment)


def _read(main: FunctionWriter, steps: Sequence[Equation], variables: Mapping[int, str]) -> None:
    """Assign the variables that steps use to local names."""
    for step in steps:
        for item in (*step.inputs, *step.captured()):
            key = id(item)
            if key in variables and main.env[key].startswith("params["):
                name = main.names.new(variables[key].rsplit("/", 1)[-1])
                main.add(f"{name} = {main.env[key]}", literals.type_comment(item.aval))
                main.env[key] = name


def _name_constants(block: Block) -> None:
    for step in block.steps:
        for item in (*step.inputs, *step.captured()):
            if isinstance(item, Constant) and not item.hint:
                item.hint = identifier("_".join(step.path[-2:])) if step.path else "array"


def _dimensions(entry: Entry) -> dict[str, str]:
    """Return the symbolic dimensions, each with an expression for it."""
    count = len(entry.variables)
    found = dimension_sources(list(zip(entry.inputs, entry.block.args[count:], strict=False)))
    needed = {
        d
        for value in entry.block.args
        if hasattr(value.aval, "shape")
        for dim in value.aval.shape
        for d in literals.dimension_variables(dim)
    }
    if needed - found.keys():
        raise ExportError(f"no input tells the dimensions {sorted(needed - found.keys())} directly")
    return found


def _check_multiple(dim: str, source: str) -> list[str]:
    """Return lines that raise `ValueError` unless a size is the required multiple of a dimension."""
    size, _, times = source.partition(" // ")
    if not times:
        return []
    return [
        f"    if {size} != {times} * {dim}:",
        f'        raise ValueError(f"{size} must be a multiple of {times}, not {{{size}}}")',
    ]


def _defined(step: Equation) -> list[Value]:
    """Return the values that a step and its inner functions define."""
    inner = [
        v
        for block in step.blocks.values()
        for v in (*block.args, *(d for inner_step in block.steps for d in _defined(inner_step)))
    ]
    return [*step.outputs, *inner]


def _used_outside(block: Block, steps: list[Equation]) -> set[int]:
    ours = {id(s) for s in steps}
    used = {id(r) for r in block.results}
    for step in block.steps:
        if id(step) not in ours:
            used |= {id(v) for v in (*step.inputs, *step.captured())}
    return used


def _runs(block: Block) -> list[tuple[str | None, list[Equation]]]:
    """Split a block into runs of steps of one scope."""
    paths = [step.path[:-1] for step in block.steps if step.path]
    prefix = _common(paths)
    runs: list[tuple[str | None, list[Equation]]] = []
    for step in block.steps:
        rest = step.path[len(prefix) : -1] if step.path[: len(prefix)] == tuple(prefix) else ()
        scope = rest[0] if rest else None
        if runs and (runs[-1][0] == scope or not step.path):
            runs[-1][1].append(step)
        else:
            runs.append((scope, [step]))
    if len({scope for scope, _ in runs}) < 2:
        return [(None, block.steps)]
    return [(scope if len(steps) >= _MIN_STEPS else None, steps) for scope, steps in runs]


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the components that all paths begin with."""
    first, last = (min(paths), max(paths)) if paths else ((), ())
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


def _structure(structure: Any, results: Sequence[str]) -> str:
    if isinstance(structure, Ref):
        return results[structure.index]
    if isinstance(structure, Mapping):
        items = [f"{literals.value(str(k))}: {_structure(v, results)}" for k, v in structure.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(structure, list):
        return f"[{', '.join(_structure(v, results) for v in structure)}]"
    if isinstance(structure, tuple):
        return tuple_of([_structure(v, results) for v in structure]) if structure else "()"
    return literals.value(structure)


def _leaves(structure: Any, source: str) -> list[tuple[int, str]]:
    """Return the arrays in a structure: number and the source that reads it."""
    if isinstance(structure, Ref):
        return [(structure.index, source)]
    if isinstance(structure, Mapping):
        return [x for k, v in structure.items() for x in _leaves(v, f"{source}[{literals.value(str(k))}]")]
    if isinstance(structure, (list, tuple)):
        return [x for i, v in enumerate(structure) for x in _leaves(v, f"{source}[{i}]")]
    return []


def _roots(dims: Mapping[str, str]) -> set[str]:
    return {source.split(".")[0] for source in dims.values()}
