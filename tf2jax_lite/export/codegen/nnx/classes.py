"""Write a module of `flax.nnx` modules for the functions that read params.

Functions without params stay functions.
"""

from __future__ import annotations

import builtins
import dataclasses
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tf2jax_lite.calling.params import param_path
from tf2jax_lite.export.codegen import literals
from tf2jax_lite.export.codegen.entries import Entry, structure_text
from tf2jax_lite.export.codegen.formatter import define, docstring
from tf2jax_lite.export.codegen.free_names import loaded
from tf2jax_lite.export.codegen.functions import FunctionWriter
from tf2jax_lite.export.codegen.module import ModuleWriter, PrintedEntry
from tf2jax_lite.export.codegen.structure.items import Code, Function, Loop
from tf2jax_lite.export.codegen.templates import OPEN, Def, Printed, Read, Ref, Stmt, parts_of

from .layers import LayerProgram
from .members import KERAS_NAMES, Members, call_words
from .variables import NON_TRAINABLE, variables_function

_NON_TRAINABLE = "NonTrainable"
_OWN = {"nnx", "rngs", "self"}
_BOTH = "The model; train() and eval() set its mode."
_KEY_DOC = "rngs: nnx.Rngs with a stream dropout or default, or a key."
_LOAD = f'''def _load(layer, params):
    """Set the variables of a layer; params have the names of Flax or of Keras."""
    names = {{
{"".join(f"        {literals.value(k)}: {literals.value(v)},{chr(10)}" for k, v in KERAS_NAMES.items())}    }}
    for name, held in list(vars(layer).items()):
        if isinstance(held, nnx.Module | nnx.Variable):
            given = params[name] if name in params else params[names[name]]
            if isinstance(held, nnx.Module):
                _load(held, given)
            elif given.shape == held.shape:
                setattr(layer, name, given)
            else:  # a depthwise kernel
                setattr(layer, name, type(given)(given[...].reshape(held.shape)))'''


_CONSTANT = '''def _constant(name, shape, dtype):
    """Read a large constant from the files beside this one; else `load` sets it."""
    from safetensors import safe_open

    folder = pathlib.Path(__file__).parent
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            if name in file.keys():
                return jnp.asarray(file.get_tensor(name), dtype)
    return jax.ShapeDtypeStruct(shape, dtype)'''


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
    program: LayerProgram  # type: ignore[assignment]
    program_type = LayerProgram
    variable_kinds: Mapping[str, str] = {}

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.program.variable_kinds = {
            param_path(name, self._taken): self.variable_kinds.get(name, _NON_TRAINABLE) for name in self._taken
        }
        self._classes = {_NON_TRAINABLE, *(entry.name for entry in self.entries if not entry.callers)}
        for entry in self.entries:
            if entry.callers:
                entry.name = _new_name("model", self._classes)
        self._public = [entry.name for entry in self.entries]

    def support(self, used: Collection[str]) -> list[str]:
        """Return the functions and classes that the module has besides the model's."""
        load, *others = super().support(used)
        kinds = {name: self.variable_kinds.get(name, _NON_TRAINABLE) for name in (*self._taken, *self.constants)}
        other = NON_TRAINABLE * (_NON_TRAINABLE in kinds.values())
        return [
            other,
            load,
            variables_function(kinds),
            _LOAD * ("_load" in used),
            _CONSTANT * ("_constant" in used),
            *others,
        ]

    def _function(self, function: Function) -> None:
        """Write an outlined function: as a class if it has members."""
        if not _has_members(function.bodies[0].items):
            super()._function(function)
            return
        found = self.plan(function, _new_name(self.hint(function), self._classes), {*self.dims, *_OWN})
        found.is_class = True
        late = call_words(found)
        early = [word for word in found.keywords if word not in late]
        members = Members(early)
        args, lines = self.body(function, members, 8, {*_OWN, *self._classes})
        init, load = members.init_lines(), members.load_lines()
        found.init_words = members.mentioned(early, init)
        found.load_words = members.mentioned([*(slot.parameter for slot in found.slots), *early], load)
        words = [word for word in found.words() if word in late]
        body = [
            *define("__init__", ["self", *found.with_defaults(found.init_words), "*", "rngs"], 4),
            *init,
            "",
            *(_method("load", found.with_defaults(found.load_words), load) if load else []),
            *define("__call__", ["self", *args, *words], 4),
            *lines,
        ]
        self._add_class(found.name, [self.doc(function)], body)

    def _add_class(self, name: str, doc: Sequence[str], body: Sequence[str]) -> None:
        self.chunks.append([f"class {name}(nnx.Module):", *docstring(doc, 4), "", *body])

    def _entry(self, printed: PrintedEntry) -> None:
        entry, modes = printed.entry, printed.entry.callers or [printed.entry]
        members = Members()
        lines = self.entry_body(printed, members, 8, {*_OWN, *self._classes})
        drawn = "rng" in loaded(lines)
        for mode in modes:
            mode.name, mode.training = entry.name, mode.rng or bool(mode.in_place)
        args = ["self", *entry.arguments, *(["*", "rngs"] if drawn else [])]
        key = ["        rng = rngs if isinstance(rngs, jax.Array) else rngs.dropout()"] * drawn
        _, *inner = dataclasses.replace(entry, rng=drawn).docstring([], _KEY_DOC) or [""]
        mode = "train" if all(mode.training for mode in modes) else "eval"
        load = members.load_lines()
        doc = f"Return the model with nested params, or to_variables of them, after {mode}()."
        body = [
            *define("__init__", ["self", "*", "rngs"], 4),
            *members.init_lines(),
            "",
            *(_method("load", ["params"], load) if load else []),
            "    @classmethod",
            *define("from_params", ["cls", "params"], 4),
            *docstring([doc], 8),
            "        model = cls(rngs=nnx.Rngs(0))",
            *["        model.load(to_variables(params))"] * bool(load),
            f"        model.{mode}()",
            "        return model",
            "",
            *define("__call__", args, 4),
            *docstring(["Return the results.", *inner], 8),
            *key,
            *lines,
        ]
        self._add_class(entry.name, [_BOTH if entry.callers else entry.doc or "The model."], body)

    def last(self, entry: Entry, writer: FunctionWriter, results: Sequence[str]) -> list[Stmt]:
        """Return an entry's last statement; assign updated variables before it."""
        last = [writer.parse(f"return {structure_text(entry.structure, results)}")]
        updates = {param_path(name, self._taken): results[index] for name, index in entry.returned.items()}
        _assign_updates(writer, last, updates, {path: self.read(name) for name, path in self._paths(entry)})
        for stmt in last:
            stmt.parts = self.program.with_members(stmt.parts)
        return last

    def _paths(self, entry: Entry) -> list[tuple[str, tuple[str, ...]]]:
        return [(name, param_path(name, self._taken)) for name in {*entry.updates, *entry.variables}]


def _method(name: str, args: Sequence[str], lines: Sequence[str]) -> list[str]:
    return [*define(name, ["self", *args], 4), *docstring(["Set the variables to params."], 8), *lines, ""]


def _has_members(items: Sequence[Any]) -> bool:
    """Return whether items of a function have members of a class."""
    for item in items:
        match item:
            case Stmt():
                found = OPEN in item.parts
            case Code() | Printed():
                found = _has_members(item.nodes)
            case Def():
                found = _has_members(item.body)
            case _:
                called = item.calls[0] if isinstance(item, Loop) else item
                found = _has_members(called.body.items)
        if found:
            return True
    return False


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
