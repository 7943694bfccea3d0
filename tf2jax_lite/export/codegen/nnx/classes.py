"""Write a module of `flax.nnx` modules for the functions that read params.

Functions without params stay functions.
"""

from __future__ import annotations

import builtins
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tf2jax_lite.calling.params import param_path
from tf2jax_lite.export.codegen.entries import Entry, structure_text
from tf2jax_lite.export.codegen.formatter import define, docstring, statement
from tf2jax_lite.export.codegen.functions import FunctionWriter
from tf2jax_lite.export.codegen.idioms.defaults import DEFAULTS
from tf2jax_lite.export.codegen.module import ModuleWriter, PrintedEntry
from tf2jax_lite.export.codegen.structure.items import Function
from tf2jax_lite.export.codegen.structure.plans import role
from tf2jax_lite.export.codegen.templates import Def, Hole, Printed, Read, Ref, Stmt, parts_of

from .layers import BASES, LayerProgram, keywords_of
from .members import Members, call_words
from .variables import NON_TRAINABLE, variables_function

_NON_TRAINABLE = "NonTrainable"
_OWN = {"nnx", "rngs", "self"}
_KEY_DOC = "rngs: nnx.Rngs with a stream dropout or default, or a key."
_INIT = {"kernel_init": "nnx.initializers.zeros", "rngs": "nnx.Rngs(0)"}  # the values are replaced
_CONV = {
    "strides": "strides",
    "padding": "padding",
    "dilation": "kernel_dilation",
    "groups": "feature_group_count",
}


def class_names(identifiers: Mapping[str, str]) -> dict[str, str]:
    """Return unique names of public classes.

    Args:
      identifiers: key to a name in snake case.
    """
    taken = {_NON_TRAINABLE}
    return {key: _new_name(identifier, taken) for key, identifier in identifiers.items()}


def _new_name(identifier: str, taken: set[str]) -> str:
    """Return the name of a class, and add it to those that are taken.

    ``self_attention_1`` becomes ``SelfAttention1``.
    """
    name, count = "".join(word[:1].upper() + word[1:] for word in identifier.split("_")), 0
    if hasattr(builtins, name) or not name.isidentifier():
        name = f"{name}Module"
    found = name
    while found in taken:
        count += 1
        found = f"{name}{count}"
    taken.add(found)
    return found


def classes_writer(kinds: Mapping[str, str]) -> type[ModuleWriter]:
    """Return a writer of classes.

    Args:
      kinds: name of a param to the class of `flax.nnx` that holds it, or ``NonTrainable``; the module's constants are
        such, too.
    """

    class Writer(_ClassesWriter):
        variable_kinds = kinds

    return Writer


class _ClassesWriter(ModuleWriter):
    program_type = LayerProgram
    variable_kinds: Mapping[str, str] = {}

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._classes = {_NON_TRAINABLE, *(entry.name for entry in self.entries)}

    def support(self, used: Collection[str]) -> list[str]:
        """Return the functions and classes that the module has besides the model's."""
        load, *others = super().support(used)
        kinds = {name: self.variable_kinds.get(name, _NON_TRAINABLE) for name in (*self._taken, *self.constants)}
        other = NON_TRAINABLE * (_NON_TRAINABLE in kinds.values())
        return [other, load, variables_function(kinds), *others]

    def hint(self, function: Function) -> str:
        """Return the name of a function's role: of layers their kind."""
        hint, kind = super().hint(function), self._kind(function)
        if kind is None:
            return hint
        for value, scope in function.produced.items():
            own = role(scope)
            self.marks.hints[value] = kind if re.search(r"\d", own) else own
        return kind

    def _kind(self, function: Function) -> str | None:
        assert isinstance(self.program, LayerProgram)
        return self.program.kinds.get(function.key)

    def _function(self, function: Function) -> None:
        """Write an outlined function: as a class if it reads params."""
        if not function.bodies[0].reads:
            super()._function(function)
            return
        hint, kind = self.hint(function), self._kind(function)
        found = self.plan(function, _new_name(hint, self._classes), {*self.dims, *_OWN})
        late = call_words(found)
        early = [word for word in found.keywords if word not in late]
        init = define("__init__", ["self", *found.signature((), without=late)], 4)
        if kind in BASES:
            lines = _layer(kind, function)
            self._add_class(found.name, BASES[kind], [self.doc(function)], [*init, *_statements(lines)])
            return
        members = Members(early)
        args, lines = self.body(function, members, 8, {*_OWN, *self._classes})
        words = [word for word in found.words() if word in late]
        call = define("__call__", ["self", *args, *words], 4)
        body = [*init, *_statements(members.lines), "", *call, *lines]
        self._add_class(found.name, "nnx.Module", [self.doc(function)], body)

    def _add_class(self, name: str, base: str, doc: Sequence[str], body: Sequence[str]) -> None:
        self.chunks.append([f"class {name}({base}):", *docstring(doc, 4), "", *body])

    def _entry(self, printed: PrintedEntry) -> None:
        entry = printed.entry
        members = Members()
        lines = self.entry_body(printed, members, 8, {*_OWN, *self._classes})
        args = ["self", *entry.arguments, *(["*", "rngs"] if entry.rng else [])]
        key = ["        rng = rngs if isinstance(rngs, jax.Array) else rngs.dropout()"] * entry.rng
        _, *inner = entry.docstring([], _KEY_DOC) or [""]
        body = [
            *define("__init__", ["self", "params"], 4),
            *_statements(members.lines or ["pass"]),
            "",
            "    @classmethod",
            *define("from_params", ["cls", "params"], 4),
            *docstring(["Return the model with nested params: arrays, or the result of to_variables."], 8),
            "        return cls(to_variables(params))",
            "",
            *define("__call__", args, 4),
            *docstring(["Return the results.", *inner], 8),
            *key,
            *lines,
        ]
        self._add_class(entry.name, "nnx.Module", [entry.doc or "The model."], body)

    def last(self, entry: Entry, writer: FunctionWriter, results: Sequence[str]) -> list[Stmt]:
        """Return an entry's last statement; assign updated variables before it."""
        last = [writer.parse(f"return {structure_text(entry.structure, results)}")]
        updates = {param_path(name, self._taken): results[index] for name, index in entry.updates.items()}
        _assign_updates(writer, last, updates, {path: self.read(name) for name, path in self._paths(entry)})
        return last

    def _paths(self, entry: Entry) -> list[tuple[str, tuple[str, ...]]]:
        return [(name, param_path(name, self._taken)) for name in {*entry.updates, *entry.variables}]


def _statements(lines: Sequence[str]) -> list[str]:
    return [line for text in lines for line in statement(text, 8)]


def _layer(kind: str, function: Function) -> list[str]:
    """Return the statements of `__init__` of a class that is based on a layer of Flax."""
    texts = iter(function.plan.texts)
    sources = [
        (part, next(texts))
        for stmt in function.bodies[0].items[0].nodes  # type: ignore[attr-defined]
        for part in stmt.parts
        if isinstance(part, Read | Hole)
    ]
    kernel, *bias = [text for part, text in sources if isinstance(part, Read)]
    constants = [text for part, text in sources if isinstance(part, Hole)]
    lines = [f"kernel, bias = {kernel}, {bias[0]}"] if bias else [f"kernel = {kernel}"]
    options = dict(_INIT)
    if kind == "Linear":
        args = ["*kernel.shape"]
    elif kind == "Einsum":
        args = [constants[0], "kernel.shape", "bias.shape" if bias else "None"]
    else:
        parts = function.bodies[0].items[0].nodes[0].parts  # type: ignore[attr-defined]
        given = {word: constants[place] for word, place in (keywords_of(parts[5:]) or {}).items()}
        words = {word: text for word, text in given.items() if text != DEFAULTS["_conv"].get(word)}
        groups = f" * {words['groups']}" if "groups" in words else ""
        args = [f"kernel.shape[-2]{groups}", "kernel.shape[-1]", "kernel.shape[:-2]"]
        options = {**{_CONV[word]: text for word, text in words.items()}, **options}
    if not bias and kind != "Einsum":
        options = {"use_bias": "False", **options}
    lines.append(f"super().__init__({', '.join([*args, *(f'{k}={v}' for k, v in options.items())])})")
    return [*lines, "self.kernel, self.bias = kernel, bias" if bias else "self.kernel = kernel"]


def _assign_updates(
    writer: FunctionWriter,
    last: list[Stmt],
    updates: Mapping[tuple[str, ...], str],
    reads: Mapping[tuple[str, ...], str],
) -> None:
    """Add statements that assign updated variables after their new values.

    A variable that is read elsewhere, too, is read at the beginning instead, before it is assigned.
    """
    nodes = [node for node in writer.nodes if isinstance(node, Printed)]
    defined = {target: i for i, node in enumerate(nodes) for target in _targets(node)}
    makers = [
        {defined[p.id] for p in parts_of([n]) if isinstance(p, Ref) and p.id in defined} - {i}
        for i, n in enumerate(nodes)
    ]
    readers: dict[tuple[str, ...], set[int]] = {}
    for number, node in enumerate([*nodes, Printed(list(last), ())]):
        for part in parts_of([node]):
            if isinstance(part, Read):
                readers.setdefault(part.path, set()).add(number)
    paths = {text: path for path, text in reads.items()}
    places: dict[tuple[str, ...], int] = {}
    held: set[tuple[str, ...]] = set()
    for path, text in updates.items():
        match = re.fullmatch(r"_v(\d+)_", text)
        places[path] = defined.get(int(match[1]), len(nodes) - 1) if match else len(nodes) - 1
        if not _reach(makers, places[path], readers.get(path, set())) or len(nodes) in readers.get(path, ()):
            held.add(path)
        if text in paths and paths[text] in updates:
            held.add(paths[text])
    values = {path: writer.names.new(path[-1], writer.module.program.params.get(path)) for path in held}  # type: ignore[attr-defined]
    _replace([*nodes, *last], {path: Ref(int(text[2:-1])) for path, text in values.items()})
    after: dict[int, list[Printed]] = {}
    for path, text in updates.items():
        place = places[path]
        assignment = writer.parse(f"{reads[path]} = {values.get(paths.get(text, ()), text)}")
        scope = nodes[place].path if nodes and text not in paths else ()
        after.setdefault(place, []).append(Printed([assignment], scope))
    found: list[Any] = []
    for path, text in values.items():
        before = writer.parse(f"{text} = {reads[path]}")
        before.kept = True
        found.append(Printed([before], ()))
    found += after.get(-1, [])
    for number, node in enumerate(nodes):
        found += [node, *after.get(number, [])]
    writer.nodes[:] = found


def _targets(node: Printed) -> list[int]:
    return [target for inner in node.nodes if isinstance(inner, Stmt) for target in inner.targets]


def _reach(makers: Sequence[set[int]], start: int, wanted: set[int]) -> bool:
    """Return whether a statement depends on all of some others, or is one of them."""
    missing, seen, queue = wanted - {start}, {start}, deque([start])
    while queue and missing:
        for maker in makers[queue.popleft()] - seen:
            seen.add(maker)
            missing.discard(maker)
            queue.append(maker)
    return not missing


def _replace(nodes: Sequence[Any], values: Mapping[tuple[str, ...], Ref]) -> None:
    """Replace params by values in statements."""

    def new(parts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values.get(p.path, p) if isinstance(p, Read) else p for p in parts)

    for node in nodes if values else ():
        if isinstance(node, Stmt):
            node.parts = new(node.parts)
        elif isinstance(node, Def):
            node.args = [new(arg) for arg in node.args]
            _replace(node.body, values)
        else:
            _replace(node.nodes, values)
