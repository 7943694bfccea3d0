"""Write a module of source: entry functions, and functions for name scopes.

Repeated parts of scopes become functions, too.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.calling.params import param_path
from tf2jax_lite.support.errors import ExportError

from . import free_names, idioms, literals, rules_solvers  # noqa: F401
from .block_ir import Constant, Equation
from .constants import name_constants, pass_constants
from .derivative_rules import stop_gradients_of_loops, write_rules
from .entries import Entry, is_read, leaves_of, nested_text, structure_text
from .formatter import define, docstring, statement, tidy
from .free_names import check_multiple, dimensions, roots
from .functions import FunctionWriter
from .hyperparameters import Shared, share, with_defaults, write_scales
from .idioms.candidates import rewrite_all
from .jax_random import draw_from_key
from .modes import merge_modes
from .names import RESERVED, Names
from .norms import (
    has_updates,
    pass_layers,
    write_batch_norms,
    write_dense_layers,
    write_layer_norms,
    write_without_training,
)
from .roles import name_roles, role_of_layer
from .scans import has_uncounted_loop, simplify_scans
from .structure.calls import FUNCTIONS, Calls
from .structure.items import Body, Function, Program
from .structure.plans import KIND_DOCS, Plan, block_role, common_role, kind, leaves, parts, plan, role
from .structure.render import lay_out, nodes_of
from .structure.scopes import structure
from .structure.sequences import Header
from .support_functions import SUPPORT, load_params, stack_layers
from .templates import Hole, Marks, Printed, Read, Ref, Stmt, mark, parts_of

_PUBLIC = re.compile(r"^(?:def|class) ([^\W_]\w*)", re.MULTILINE)
_FORWARD_ONLY = (
    "",
    "Gradients: forward mode only (jax.jvp, jax.jacfwd). Values decide how often a lax.while_loop",
    "iterates, and reverse mode would have to store each iteration.",
)
_COPY = "    params = jax.tree.map(lambda array: array, params)  # new dicts, which layers update"
_MERGE = "    params = _merged(params, state)"
_PARAMS_DOC = (
    "params: nested dicts of arrays by scope, as load_params returns them.",
    "params: nested dicts of arrays by scope, as load_params returns those of params.safetensors.",
    "state: dicts of arrays that do not train, those of state.safetensors.",
)
_KEY_DOC = "rng: a key, as jax.random.key makes it."
_BOTH_MODES = "Return the model's results in inference mode, or in training mode."
_HELPERS = {name[1:] for name in (*idioms.HELPERS, *SUPPORT)}
_LONGEST_DOC = 104  # characters of a docstring in one line
_LISTED = 3  # arrays whose shapes docstrings say
_NAMED = 4  # layers that docstrings name
_TOO_DEEP = "loops and branches are nested deeper than Python can read"


def write_module(
    entries: Sequence[Entry],
    title: Sequence[str],
    *,
    shape_comments: bool = False,
    scan_layers: bool = False,
    random: str = "jax",
    state: Collection[str] | None = None,
    writer: type[ModuleWriter] | None = None,
) -> tuple[str, dict[str, Any]]:
    """Write a module.

    Args:
      entries: its public functions.
      title: lines of its docstring.
      shape_comments: whether to write shapes behind all lines, not only in docstrings.
      scan_layers: whether to write loops over layers of one shape as `jax.lax.scan`, with params that are stacked.
      random: how numbers of seeds in variables are drawn: ``"jax"`` by `jax.random` of a key, ``"tensorflow"`` as
        TensorFlow does.
      state: names of the variables that do not train, which functions take apart, as large constants; None: functions
        take all as one.
      writer: prints the structure; default: as functions.

    Returns:
      The source, and constants too large for it: they are read from ``params`` under these names.

    Raises:
      ExportError: something has no source, or is nested deeper than Python can read.
    """
    given: dict[Any, tuple[str, ...]] = {}
    try:
        for entry in entries:
            simplify_scans(entry.block)
        rules = idioms.rules_of()
        for entry in entries:
            rewrite_all(entry.block, rules)
        names = {name for entry in entries for name in entry.variables}
        for entry in entries:
            if random == "jax":
                draw_from_key(entry)
            if not scan_layers:  # a scan has stacked copies of params, which are not updated
                write_batch_norms(entry, names, rules)
        if writer is None:
            for entry in entries:
                pass_layers(entry.block, dict(zip(map(id, entry.block.args), entry.variables, strict=False)), names)
            write_layer_norms({entry.name: (entry.block, entry.variables) for entry in entries}, names)
        entries = merge_modes(entries, rules)
        if writer is None:
            write_dense_layers(entries, names)
        trains = any(has_updates(entry.block) for entry in entries)
        for entry in entries:
            if not trains:
                write_without_training(entry.block)
            pass_constants(entry.block)
            stop_gradients_of_loops(entry.block)
            write_scales(entry.block)
            for value, name in zip(entry.block.args[len(entry.variables) :], entry.inputs, strict=False):
                value.hint = name
            name_roles(entry.block)
        shared = share([entry.block for entry in entries]) if writer is None else {}
        takes_state = state is not None and _takes_state(entries, state)
        while True:  # until functions with derivative rules, which may call each other, get all sizes they need
            module = (writer or ModuleWriter)(entries, title, dict(given), shape_comments=shape_comments)
            module.program.scan_layers = scan_layers
            module.hyperparameters = shared
            module.state = state if takes_state else None
            module.print_entries()
            lacks_state = state is not None and bool(module.constants) > takes_state
            if module.given == given and not lacks_state:
                break
            given, takes_state = module.given, takes_state or lacks_state
        for entry in entries:
            for function in entry.callers or [entry]:
                function.state = takes_state
        text, constants = module.write()
        unknown = free_names.undefined(text)
    except RecursionError as error:
        raise ExportError(_TOO_DEEP) from error
    except SyntaxError as error:
        deep = isinstance(error, IndentationError) or "nested" in str(error)
        raise ExportError(_TOO_DEEP if deep else f"the generated source is invalid ({error}); this is a bug") from error
    if unknown:
        raise ExportError(f"the generated source uses undefined names {', '.join(unknown)}; this is a bug")
    return text, constants


def _takes_state(entries: Sequence[Entry], state: Collection[str]) -> bool:
    """Return whether functions use arrays that do not train."""
    if any(isinstance(v, Constant) for entry in entries for v in entry.block.used()):
        return True
    return any(is_read(name, entry) for entry in entries for name in entry.variables if name in state)


@dataclasses.dataclass
class PrintedEntry:
    """An entry whose equations are printed, and outlined to functions."""

    entry: Entry
    body: Body
    args: dict[str, int]
    last: list[Any]


class ModuleWriter:
    """Writes a module of functions.

    Args:
      entries: its public functions.
      title: lines of its docstring.
      given: the sizes that functions with derivative rules are passed, by key.
      shape_comments: whether to write shapes behind all lines.
    """

    program_type: type[Program] = Program

    def __init__(
        self,
        entries: Sequence[Entry],
        title: Sequence[str],
        given: dict[Any, tuple[str, ...]],
        *,
        shape_comments: bool,
    ):
        self.hyperparameters: Shared = {}
        self.state: Collection[str] | None = None
        self.entries = entries
        self.title = title
        self.shape_comments = shape_comments
        self.functions = Names(taken=_HELPERS)
        self.chunks: list[list[str]] = []
        self.constants: dict[str, Any] = {}
        self.marks = Marks()
        self.program = self.program_type(self.marks)
        self.reads: dict[str, tuple[str, ...]] = {}
        self._read_names: dict[tuple[str, ...], str] = {}
        self._names: dict[int, str] = {}
        self._equal: dict[Any, Constant] = {}
        self._public = [name for e in entries for name in ([c.name for c in e.callers] or [e.name])]
        self._taken = {v for e in entries for v in e.variables}
        self._scopes = {name[:i] for name in self._taken for i, c in enumerate(name) if c == "/"}
        self._seen: dict[str, str] = {}
        self._customs: dict[Any, tuple[str, int]] = {}
        self.given = given
        self.dims: Collection[str] = frozenset(
            d for e in entries for d in dimensions(e.inputs, e.block.args, len(e.variables))
        )
        self._printed: list[PrintedEntry] = []

    def print_entries(self) -> None:
        """Print the equations of all entries."""
        for entry in self.entries:
            self._print(entry)

    def write(self) -> tuple[str, dict[str, Any]]:
        """Return the source, and large constants by name."""
        self.program.count_places(printed.body.items for printed in self._printed)
        for function in self.program.functions.values():
            if not function.inline:
                self._function(function)
        for printed in self._printed:
            self._entry(printed)
        body = "\n\n\n".join("\n".join(tidy(chunk)) for chunk in self.chunks) + "\n"
        helpers = _used_helpers(body)
        chosen = [(name, text) for name, text in idioms.HELPERS.items() if name in helpers]
        texts = [with_defaults(text, self.hyperparameters.get(name, {})) for name, text in chosen]
        body = "".join(f"{text}\n\n\n" for text in texts) + body
        head = docstring(self.title, 0)
        used = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
        text = "".join(f"{text}\n\n\n" for text in self.support(used) if text)
        body = text + body
        used |= {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        imports = [
            line
            for name, line in (
                ("functools", "import functools"),
                ("math", "import math"),
                ("pathlib", "import pathlib"),
                ("jax", "import jax"),
                ("jnp", "import jax.numpy as jnp"),
                ("np", "import numpy as np"),
                ("nnx", "from flax import nnx"),
                ("lax", "from jax import lax"),
            )
            if name in used
        ]
        public = sorted([*self._public, *_PUBLIC.findall(text)])
        names = f"__all__ = [{', '.join(literals.value(n) for n in public)}]"
        if len(names) > 88:
            names = "\n".join(["__all__ = [", *(f"    {literals.value(n)}," for n in public), "]"])
        standard = [line for line in imports if line in ("import functools", "import math", "import pathlib")]
        others = [line for line in imports if line not in standard]
        blank = [""] if standard else []
        return "\n".join([*head, "", *standard, *blank, *others, "", names, "", "", body]), self.constants

    def support(self, used: Collection[str]) -> list[str]:
        """Return the module's support functions, with empty text where one has no use.

        Args:
          used: names that the model's functions use.
        """
        stack = stack_layers(self._stacks())
        used = {*used, *(n.id for n in ast.walk(ast.parse(stack)) if isinstance(n, ast.Name))}
        return [
            load_params([*self._taken, *self.constants], self._of_complex(), stacks=bool(stack)),
            stack,
            *(text for name, text in SUPPORT.items() if name in used),
        ]

    def _stacks(self) -> list[tuple[tuple[str, ...], ...]]:
        """Return the paths of params that are only read stacked.

        These params may be stacked before a call.
        """
        total: Counter[tuple[str, ...]] = Counter()
        for printed in self._printed:
            total.update(printed.body.reads)
            total.update(part.path for part in parts_of(printed.last) if isinstance(part, Read))
            total.update(param_path(name, self._taken) for name in printed.entry.updates)

        def count(paths: Sequence[tuple[str, ...]], reads: Counter[tuple[str, ...]]) -> int:
            starts = set(paths)
            return sum(n for read, n in reads.items() if any(read[:i] in starts for i in range(len(read) + 1)))

        return [
            paths
            for paths, loops in self.program.stacks.items()
            if count(paths, total) == sum(count(paths, Counter(loop.reads)) for loop in loops)
        ]

    def _of_complex(self) -> set[str]:
        """Return the names of complex params and constants."""
        avals = {n: a.aval for e in self.entries for n, a in zip(e.variables, e.block.args, strict=False)}
        return {n for n, a in {**avals, **self.constants}.items() if np.issubdtype(a.dtype, np.complexfloating)}

    def read(self, name: str) -> str:
        """Return the text that stands for a param."""
        return self.read_path(param_path(name, self._taken))

    def read_path(self, path: tuple[str, ...]) -> str:
        """Return the text that stands for a param or all params of a scope."""
        if path not in self._read_names:
            self._read_names[path] = f"_p{len(self.reads)}_"
            self.reads[self._read_names[path]] = path
        return self._read_names[path]

    def constant(self, value: Constant) -> str:
        """Name a large constant; equal ones have one name."""
        same = self._equal.setdefault(value.content, value)
        if same is not value and id(value) not in self._names:
            self._names[id(value)] = self._names[id(same)]
        if id(value) not in self._names:
            base = f"constants/{value.hint or 'array'}"
            name, count = base, 0
            while name in self.constants or name in self._taken or name in self._scopes:
                count += 1
                name = f"{base}_{count}"
            self._names[id(value)] = name
            self.constants[name] = value.array
            self.program.constants[param_path(name, self._taken)] = value.aval
        return self.read(self._names[id(value)])

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
            name = f"_{self.functions.new(role(step.path[-1]) if step.path else 'function')}"
            self._customs[key] = name, len(step.inputs)
            given = self.given.get(key, ())
            writer = FunctionWriter(self.marks, self, [], given=given, outermost=True)
            write_rules(writer, step, name)
            if writer.missing:
                self.given[key] = tuple(sorted({*given, *writer.missing}))
            lines, _ = lay_out(self._filled(writer.nodes), [], self.marks, {*RESERVED, *self.dims}, indent=0)
            text = "\n".join(lines).strip("\n")
            same = self._seen.setdefault(re.sub(rf"\b{name}(?=\b|_)", "@", text), name)
            self._customs[key] = same, len(step.inputs)
            if same == name:
                self.chunks.append(text.split("\n"))
        name, count = self._customs[key]
        if count != len(step.inputs):
            raise ExportError("functions with large constants call each other in their derivative rules")
        return name, self.given.get(key, ())

    def _print(self, entry: Entry) -> None:
        name_constants(entry.block)
        writer = FunctionWriter(self.marks, self)
        count = len(entry.variables)
        arrays = entry.block.args[count : count + len(entry.inputs)]
        args: dict[str, int] = {}
        for value, name in zip(arrays, entry.inputs, strict=True):
            args[name] = self.marks.number(name, value.aval)
            writer.bind(value, mark(args[name]))
        if entry.train is not None:
            args["train"] = self.marks.number("train")
            writer.bind(entry.train, mark(args["train"]))
        if entry.rng:
            args["rng"] = self.marks.number("rng", entry.block.args[-1].aval)
            writer.bind(entry.block.args[-1], mark(args["rng"]))
        for variable, name in zip(entry.block.args[:count], entry.variables, strict=True):
            writer.bind(variable, self.read(name))
            self.program.params[param_path(name, self._taken)] = variable.aval
        results = writer.block(entry.block)
        last = self.last(entry, writer, results)
        used = [p.id for p in parts_of(last) if isinstance(p, Ref)]
        items = structure([n for n in writer.nodes if isinstance(n, Printed)], used, self.program)
        self._printed.append(PrintedEntry(entry, Body(items, self.program), args, last))

    def last(self, entry: Entry, writer: FunctionWriter, results: Sequence[str]) -> list[Stmt]:
        """Return an entry's last statements, which return results and updated params.

        Args:
          entry: the entry.
          writer: has the entry's statements; may get more.
          results: source of the block's results.
        """
        returned = structure_text(entry.structure, results)
        if entry.callers:
            return [writer.parse(f"return {returned}")]
        return [writer.parse(f"return {returned}, {self._after(entry, results)}")]

    def _after(self, entry: Entry, results: Sequence[str]) -> str:
        """Return the source of the params that a function returns."""
        if self.state is None:
            return self._updated("params", entry.updates.keys(), entry, results)
        trained = self._trained(entry)
        state = self._updated("state", entry.updates.keys() - trained, entry, results)
        return f"{self._updated('given', trained, entry, results)}, {state}" if trained else state

    def _trained(self, entry: Entry) -> set[str]:
        return {name for name in entry.updates if name not in (self.state or ())}

    def _updated(self, dicts: str, names: Collection[str], entry: Entry, results: Sequence[str]) -> str:
        """Return the source of nested dicts with new values of variables."""
        copied = dicts != "params" and not entry.in_place.isdisjoint(names)
        base = f"_selected(params, {dicts})" if copied else dicts
        updates = {param_path(n, self._taken): results[i] for n, i in entry.returned.items() if n in names}
        return f"_updated({base}, {nested_text(updates)})" if updates else base

    def _filled(self, nodes: Sequence[Any], calls: Calls = FUNCTIONS) -> list[Any]:
        """Return statements that read from all params and contain constants inline."""
        texts = [_read_part(part) for part in parts_of(nodes) if isinstance(part, Read | Hole)]
        return nodes_of(nodes, iter(texts), {}, (), self.program, calls)[0]

    def _function(self, function: Function) -> None:
        """Write an outlined function."""
        hint = self.hint(function)
        hint = f"{hint}_layer" if hint in _HELPERS else hint
        found = self.plan(function, "", set(self.dims))
        hint = hint if any(function.scopes) else block_role(function, self.functions.all())
        found.name = f"_{self.functions.new(hint, 'scope')}"
        args, lines = self.body(function, FUNCTIONS, 4)
        self.chunks.append([*define(found.name, found.signature(args), 0), *docstring([self.doc(function)], 4), *lines])

    def hint(self, function: Function) -> str:
        """Return the name of an outlined function's role.

        Callers' values for its results get hints for their names.
        """
        scopes = [scope for scope in function.scopes if scope]
        hint = common_role(scopes, kind(function.bodies[0])) if scopes else "block"
        for value, scope in function.produced.items():
            # A number says which layer it is, which the function that calls this one may be called for others of.
            own = role(scope)
            self.marks.hints[value] = role_of_layer(hint if re.search(r"\d", own) else own)
        return hint

    def plan(self, function: Function, name: str, taken: set[str]) -> Plan:
        """Return the parameters of an outlined function.

        Args:
          function: it.
          name: its name.
          taken: names that its parameters may not have.
        """
        named = not self.program.scan_layers  # scans stack whole subtrees
        indexed = self.program.indexed
        found = function.plan = plan(function, name, Names(taken=taken), self.marks, named=named, indexed=indexed)
        return found

    def results(self, function: Function) -> list[int]:
        """Return the values that an outlined function returns."""
        return [function.bodies[0].items[n].output_at(inner, self.program) for n, inner in function.results]

    def body(
        self, function: Function, calls: Calls, indent: int, reserved: Collection[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Return the names of an outlined function's arguments, and its lines.

        Args:
          function: it, with its parameters.
          calls: writes params, constants and calls.
          indent: spaces before each line.
          reserved: names that its values may not have.
        """
        found, body, results = function.plan, function.bodies[0], self.results(function)
        nodes, alias = nodes_of(body.items, iter(found.texts), found.headers, results, self.program, calls)
        if results:
            nodes.append(_return(results))
        variables = {v for header in found.headers.values() for v in header.variables}
        parameters = [*(slot.parameter for slot in found.slots), *found.words()]
        taken = {*RESERVED, *self.dims, *parameters, *variables, *reserved} - {"rng"}
        before = [self.marks.hints[value] for value in body.free]
        for value, every in zip(body.free, zip(*(b.free for b in function.bodies), strict=True), strict=True):
            if len({role(self.marks.hints[v]) for v in every}) > 1:  # a name of one call would mislead
                self.marks.hints[value] = "x"
        lines, given = lay_out(
            nodes, body.free, self.marks, taken, alias=alias, single="x", indent=indent, comments=self.shape_comments
        )
        for value, hint in zip(body.free, before, strict=True):
            self.marks.hints[value] = hint
        args = [given[v] for v in body.free]
        start = [f"{' ' * indent}{d} = {args[i]}.shape[{axis}]" for d, (i, axis) in found.derived.items()]
        return args, [*start, *lines]

    def doc(self, function: Function) -> str:
        """Return an outlined function's docstring, with its input and output shapes."""

        def shapes(values: Sequence[int]) -> str:
            avals = [a for v in values if (a := self.marks.avals[v]) is not None and isinstance(a.dtype, np.dtype)]
            return ", ".join(map(literals.type_comment, avals)) if len(avals) <= _LISTED else f"{len(avals)} arrays"

        scopes = [scope for scope in function.scopes if scope]
        named = [name.replace("_", " ") for name in parts(function.bodies[0]) if name != "dropout"]
        named = [*named[:_NAMED], "others"] if len(named) > _NAMED + 1 else named or ["a repeated block"]
        *others, last = named
        title = KIND_DOCS.get(
            kind(function.bodies[0]), f"Apply {' and '.join([', '.join(others), last][not others :])}"
        )
        if scopes:
            own = "" if title in KIND_DOCS.values() else f"Compute {function.plan.name.strip('_').replace('_', ' ')}"
            paths = [slot.prefixes[0][-1:] for slot in function.plan.slots]
            layer = next((path[0] for path in paths if path and scopes[0].startswith(path[0])), scopes[0])
            title = f"{own or title} ({layer})" if own.removeprefix("Compute ") != layer.replace("_", " ") else own
        free, results = function.bodies[0].free, self.results(function)
        text = f"{title}: {shapes(free)} -> {shapes(results) or 'nothing'}."
        return text if len(text) <= _LONGEST_DOC else f"{title}: {len(free)} -> {len(results)} arrays."

    def _entry(self, printed: PrintedEntry) -> None:
        entry = printed.entry
        lines = self.entry_body(printed, FUNCTIONS, 4)
        forward_only = _FORWARD_ONLY if has_uncounted_loop(entry.block) else ()
        if not entry.callers:
            self._add_entry(entry, forward_only, lines)
            return
        name = f"_{self.functions.new('model')}"
        modes = {"train": "train=False", "rng": "rng=None"}
        args = ["params", *entry.arguments, *(modes[word] for word in printed.args if word in modes)]
        self.chunks.append([*define(name, args, 0), *docstring([_BOTH_MODES], 4), *lines])
        for caller in entry.callers:
            words = ["train=True"] * ("train" in printed.args) + ["rng=rng"] * caller.rng
            given = ["params", *entry.arguments, *(words if caller.rng or caller.in_place else [])]
            call = f"return {name}({', '.join(given)}), {self._after(caller, [])}"
            self._add_entry(caller, forward_only, statement(call, 4))

    def _add_entry(self, entry: Entry, more_doc: Sequence[str], lines: Sequence[str]) -> None:
        """Add a public function."""
        given, before, after = _PARAMS_DOC[:1], [_COPY] if entry.in_place else [], "params"
        if self.state is not None:
            given, before, after = _PARAMS_DOC[1:], [_MERGE], "state"
            if self._trained(entry):
                before, after = ["    given = params", _MERGE], "params and state"
        doc = entry.docstring(given, _KEY_DOC, f", and {after} with updated variables")
        doc = [*doc, *more_doc] if doc else []
        args = ["params", *(["state"] if self.state is not None else []), *entry.arguments]
        head = define(entry.name, [*args, *(["*", "rng"] if entry.rng else [])], 0)
        self.chunks.append([*head, *(docstring(doc, 4) if doc else []), *before, *lines])

    def entry_body(self, printed: PrintedEntry, calls: Calls, indent: int, reserved: Collection[str] = ()) -> list[str]:
        """Return the lines of an entry.

        Args:
          printed: it.
          calls: writes params, constants and calls.
          indent: spaces before each line.
          reserved: names that its values may not have.
        """
        entry, body = printed.entry, printed.body
        dims = dimensions(entry.inputs, entry.block.args, len(entry.variables))
        headers: dict[int, Header] = {}
        found = leaves([body], headers)
        texts = [_read(leaf.values[0]) for leaf in found]
        used = [p.id for p in parts_of(printed.last) if isinstance(p, Ref)]
        nodes, alias = nodes_of(body.items, iter(texts), headers, used, self.program, calls)
        nodes += self._filled(printed.last, calls)
        fixed = {value: name for name, value in printed.args.items()}
        variables = {v for header in headers.values() for v in header.variables}
        own = {"given", "state"} if self.state is not None else set()
        taken = {*RESERVED, *own, *dims, *variables, *self._public, *reserved} - {"rng", "outputs"}
        lines, _ = lay_out(
            nodes, list(fixed), self.marks, taken, fixed, alias, indent=indent, comments=self.shape_comments
        )
        mentioned = free_names.loaded(lines)
        count = len(entry.variables)
        arrays = entry.block.args[count : count + len(entry.inputs)]
        needed = {d: source for d, source in dims.items() if d in mentioned}
        sources = dict(leaf for name, structure in entry.arguments.items() for leaf in leaves_of(structure, name))
        before = [
            f"{name} = jnp.asarray({sources[i]}, {literals.dtype(value.aval.dtype)})"
            for i, (name, value) in enumerate(zip(entry.inputs, arrays, strict=True))
            if name in mentioned or name in roots(needed)
        ]
        for dim, source in needed.items():
            before += [f"{dim} = {source}", *check_multiple(dim, source)]
        return [*(f"{' ' * indent}{line}" for line in before), *lines]


def _used_helpers(text: str) -> set[str]:
    """Return the names of the helpers that a module uses, directly or not."""
    found: set[str] = set()
    pending = [text]
    while pending:
        names = {n.id for n in ast.walk(ast.parse(pending.pop())) if isinstance(n, ast.Name)}
        new = (names & idioms.HELPERS.keys()) - found
        found |= new
        pending += [idioms.HELPERS[name] for name in new]
    return found


def _read(value: Any) -> str:
    """Return the source of a param, read from all params, or of a constant."""
    if isinstance(value, Hole):
        return value.text
    return "params" + "".join(f"[{literals.value(part)}]" for part in value)


def _read_part(part: Any) -> str:
    return _read(part.path if isinstance(part, Read) else part)


def _return(results: Sequence[int]) -> Stmt:
    parts = [piece for value in results for piece in (Ref(value), ", ")][:-1]
    return Stmt(("return ", *parts))
