"""One frame of control flow v1 to a While node.

A frame has *loop variables*: a Merge of an Enter (the first value) and a NextIteration (the following ones). LoopCond
is the loop's predicate, and a Switch on it forwards a variable to the body or to an Exit. Each node of a frame is in
one of three parts: the *header*, which runs in every iteration and once more at the end; the *body*, behind the true
output of such a Switch; the *exit*, behind the false output, which runs once.

A pure header is copied into the condition and the body. A header with effects (assignments, prints, random numbers)
becomes a function that is called before the loop and at the end of each iteration, and the loop carries its results
(loop rotation): it then runs as often as in TensorFlow.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import FunctionLibrary, redirected
from tf2jax_lite.ir.traversal import topological_order
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError

from .if_regions import function_of, sinks


class _Part(enum.Enum):
    HEADER = "header"
    BODY = "body"
    EXIT = "exit"


@dataclasses.dataclass(frozen=True)
class _Variable:
    """A loop variable: its Merge, the first value (outside), and the next value."""

    merge: ir.Node
    first: ir.TensorRef
    following: ir.TensorRef


def while_of(
    library: FunctionLibrary,
    function: str,
    frame: Frame,
    is_pure: Callable[[ir.Node], bool],
    dtypes: Callable[[ir.TensorRef], ir.DType],
) -> list[ir.Node]:
    """Return the nodes that replace a loop in the enclosing frame.

    Loops inside must be While nodes already.

    Args:
      is_pure: returns whether a node has no effect and draws no random numbers.
    """
    return _Loop(library, function, frame, is_pure, dtypes).build()


class _Loop:
    def __init__(
        self,
        library: FunctionLibrary,
        function: str,
        frame: Frame,
        is_pure: Callable[[ir.Node], bool],
        dtypes: Callable[[ir.TensorRef], ir.DType],
    ):
        self._library = library
        self._function = function
        self._frame = frame
        self._is_pure = is_pure
        self._outer_dtypes = dtypes
        self._nodes = {node.name: node for node in frame.nodes}
        self._enters = {node.name: node for node in frame.enters}
        self._parts: dict[str, _Part] = {}
        self._alias: dict[ir.TensorRef, ir.TensorRef] = {}

    def build(self) -> list[ir.Node]:
        frame = self._frame
        nodes = topological_order(self._function, frame.nodes)
        predicate = self._predicate(nodes)
        variables = self._variables(nodes)
        parts = self._divide(nodes, {v.merge.name for v in variables})
        args, firsts = self._arguments(variables, parts)
        count = len(variables)  # loop constants follow them
        moved = {ref: ir.TensorRef(arg.name) for arg, ref in zip(args[count:], firsts[count:], strict=True)}
        header, body, after = (
            [self._rewired(node, moved) for node in parts[part]] for part in (_Part.HEADER, _Part.BODY, _Part.EXIT)
        )
        exits = [self._rewired(node, moved) for node in frame.exits]
        for node in frame.exits:
            if self._part(node.inputs[0]) is not _Part.EXIT:
                self._reject("an Exit reads a value that the loop's condition does not guard", [node.name])
        predicate = self._resolve(predicate, moved)
        following = [self._resolve(v.following, moved) for v in variables]
        following += [ir.TensorRef(arg.name) for arg in args[count:]]
        name = self._library.name(f"{frame.name}/While")
        control = dict.fromkeys(c for node in frame.enters for c in node.control)
        inside = {*self._nodes, *self._enters}
        control.update((c, None) for node in frame.nodes for c in node.control if c not in inside)
        loop = _LoopParts(
            self._library,
            name,
            args,
            firsts,
            predicate,
            following,
            header,
            body,
            tuple(control),
            frozenset(arg.name for arg in args[count:]),
        )
        used_later = _refs([*after, *exits])
        rotate = not all(map(self._is_pure, header))
        made, finals = (_rotated_loop if rotate else _copied_header_loop)(loop, used_later, self._where())
        gone = {node.name for node in (*header, *body)}
        for node in (*after, *exits):
            # Waiting for a node of the loop becomes waiting for the loop.
            kept = tuple(dict.fromkeys(name if c in gone else c for c in node.control))
            inputs = tuple(finals.get(ref, ref) for ref in node.inputs)
            node = dataclasses.replace(node, inputs=inputs, control=kept)
            made.append(_identity(node) if node.op == "Exit" else node)
        return made

    def _where(self) -> str:
        return f"loop {self._frame.name!r} in {self._function!r}"

    def _reject(self, why: str, names: Iterable[str]) -> None:
        listed = ", ".join(sorted(names)[:5])
        raise UnsupportedError(f"{self._where()} is not a loop that can be expressed in JAX: {why} ({listed}).")

    def _predicate(self, nodes: Sequence[ir.Node]) -> ir.TensorRef:
        found = [node for node in nodes if node.op == "LoopCond"]
        if len(found) != 1:
            names = [node.name for node in found] or [node.name for node in self._frame.enters]
            self._reject(f"it has {len(found)} LoopCond nodes, where a loop has one", names)
        self._alias[ir.TensorRef(found[0].name)] = found[0].inputs[0]
        return found[0].inputs[0]

    def _variables(self, nodes: Sequence[ir.Node]) -> list[_Variable]:
        found = []
        for node in nodes:
            back = [ref for ref in node.inputs if self._is(ref, "NextIteration")]
            if node.op != "Merge" or not back:
                continue
            start = [ref for ref in node.inputs if ref.node in self._enters]
            if len(node.inputs) != 2 or len(back) != 1 or len(start) != 1:
                self._reject("the inputs of a Merge are not one Enter and one NextIteration", [node.name])
            found.append(_Variable(node, self._enters[start[0].node].inputs[0], self._nodes[back[0].node].inputs[0]))
        firsts = {ref.node for variable in found for ref in variable.merge.inputs}
        unmerged = [
            node.name for node in self._frame.enters if node.name not in firsts and not node.attrs.get("is_constant")
        ]
        if unmerged:
            self._reject("values enter for the first iteration only, but are no loop variables", unmerged)
        return found

    def _is(self, ref: ir.TensorRef, op: str) -> bool:
        node = self._nodes.get(ref.node)
        return node is not None and node.op == op

    def _part(self, ref: ir.TensorRef) -> _Part:
        if ref in self._alias and self._is(ref, "Switch"):
            inner = self._part(self._alias[ref])
            part = _Part.BODY if ref.index else _Part.EXIT
            return part if inner is _Part.HEADER or inner is part else self._mixed([ref.node])
        return self._parts.get(ref.node, _Part.HEADER)

    def _mixed(self, names: Iterable[str]) -> _Part:
        self._reject("nodes that depend on both outputs of its Switch never run", names)
        return _Part.BODY

    def _divide(self, nodes: Sequence[ir.Node], merges: set[str]) -> dict[_Part, list[ir.Node]]:
        """Assign nodes to parts; Switches on the loop's own predicate become aliases."""
        parts: dict[_Part, list[ir.Node]] = {part: [] for part in _Part}
        for node in nodes:
            if node.name in merges or node.op == "LoopCond":
                continue
            if node.op == "Switch" and (ended := self._tests_end(node.inputs[1])) is not None:
                for index in (0, 1):
                    # A Switch on the negation has its outputs exchanged.
                    self._alias[ir.TensorRef(node.name, index)] = node.inputs[0]
                if ended:
                    self._reject("a Switch tests the negation of its condition", [node.name])
                continue
            found = {self._part(ref) for ref in node.inputs} | {
                self._parts[name] for name in node.control if name in self._parts
            }
            found.discard(_Part.HEADER)
            if len(found) > 1:
                self._mixed([node.name])
            part = next(iter(found), _Part.HEADER)
            self._parts[node.name] = part
            if node.op != "NextIteration":
                parts[part].append(node)
            elif part is _Part.EXIT:
                self._reject("a NextIteration reads a value that is only available after the loop", [node.name])
        return parts

    def _tests_end(self, ref: ir.TensorRef) -> bool | None:
        """Return whether a predicate negates the loop's own; None if it is another one."""
        negated = False
        node = self._nodes.get(ref.node)
        while node is not None and node.op in ("Identity", "LogicalNot"):
            negated ^= node.op == "LogicalNot"
            node = self._nodes.get(node.inputs[0].node)
        return negated if node is not None and node.op == "LoopCond" else None

    def _arguments(
        self, variables: Sequence[_Variable], parts: dict[_Part, list[ir.Node]]
    ) -> tuple[list[ir.Argument], list[ir.TensorRef]]:
        """Return the loop's arguments (variables, then constants) and outside values."""
        args = [ir.Argument(v.merge.name, v.merge.output_dtypes[0]) for v in variables]
        firsts = [v.first for v in variables]
        for node in self._frame.enters:
            if node.attrs.get("is_constant"):
                args.append(ir.Argument(node.name, node.output_dtypes[0]))
                firsts.append(node.inputs[0])
        inside = {*self._nodes, *self._enters}
        outer = dict.fromkeys(ref for nodes in parts.values() for node in nodes for ref in node.inputs)
        constant = set(firsts[len(variables) :])
        for ref in [*outer, *(v.following for v in variables)]:
            ref = self._resolve(ref, {})
            if ref.node not in inside and ref not in constant:
                # Graph optimizers remove the Enter of constants of enclosing frames.
                args.append(ir.Argument(str(ref), self._outer_dtypes(ref)))
                firsts.append(ref)
                constant.add(ref)
        return args, firsts

    def _resolve(self, ref: ir.TensorRef, moved: dict[ir.TensorRef, ir.TensorRef]) -> ir.TensorRef:
        while ref in self._alias:
            ref = self._alias[ref]
        if ref.index == 1 and self._is(ref, "Merge") and ref.node not in self._parts:
            self._reject("the value_index of a loop variable's Merge is read", [ref.node])
        inside = ref.node in self._nodes or ref.node in self._enters
        return ref if inside else moved.get(ref, ref)

    def _rewired(self, node: ir.Node, moved: dict[ir.TensorRef, ir.TensorRef]) -> ir.Node:
        inputs = tuple(self._resolve(ref, moved) for ref in node.inputs)
        control = tuple(c for c in node.control if c in self._parts)
        return dataclasses.replace(node, inputs=inputs, control=control)


@dataclasses.dataclass(frozen=True)
class _LoopParts:
    """The parts of a loop, and its functions and node under construction."""

    library: FunctionLibrary
    name: str
    args: list[ir.Argument]
    firsts: list[ir.TensorRef]
    predicate: ir.TensorRef
    following: list[ir.TensorRef]
    header: list[ir.Node]
    body: list[ir.Node]
    control: tuple[str, ...]
    constant: frozenset[str]

    def function(
        self, part: str, args: Sequence[ir.Argument], nodes: Sequence[ir.Node], outputs: Sequence[ir.TensorRef],
        role: str,
    ) -> ir.FunctionRef:  # fmt: skip
        """Add a function of some of the loop's nodes, without control edges from others."""
        present = {node.name for node in nodes}
        nodes = [
            node if all(c in present for c in node.control)
            else dataclasses.replace(node, control=tuple(c for c in node.control if c in present))
            for node in nodes
        ]  # fmt: skip
        name = self.library.name(f"{self.name}/{part}")
        made = function_of(self.library, name, args, nodes, outputs, role=role, constant=self.constant)
        return self.library.add(made)

    def loop(
        self, cond: ir.FunctionRef, body: ir.FunctionRef, inputs: Sequence[ir.TensorRef], args: Sequence[ir.Argument]
    ) -> ir.Node:
        """Return the While node."""
        dtypes = [arg.dtype for arg in args]
        return build.node("While", inputs, name=self.name, control=self.control, cond=cond, body=body, dtypes=dtypes)


_Moved = dict[ir.TensorRef, ir.TensorRef]


def _copied_header_loop(parts: _LoopParts, used_later: set[ir.TensorRef], where: str) -> tuple[list[ir.Node], _Moved]:
    """Make a loop with a pure header, copied into condition and body."""
    # Returns the nodes outside, and the tensors after the loop that correspond to tensors in it.
    role = f"the condition of {where},"
    cond = parts.function("cond", parts.args, _needed(parts.header, [parts.predicate]), [parts.predicate], role)
    reads = [ref for node in parts.body for ref in node.inputs]
    nodes = [*_needed(parts.header, [*reads, *parts.following]), *parts.body]
    body = parts.function("body", parts.args, nodes, parts.following, f"a variable of {where} for the next iteration,")
    made = [parts.loop(cond, body, parts.firsts, parts.args)]
    finals = {ir.TensorRef(arg.name): ir.TensorRef(parts.name, i) for i, arg in enumerate(parts.args)}
    own = {node.name: node for node in parts.header}
    if found := sorted((ref for ref in used_later if ref.node in own), key=str):
        header = parts.function("header", parts.args, _needed(parts.header, found), found, f"a value of {where},")
        inputs = [finals[ir.TensorRef(arg.name)] for arg in parts.args]
        name = parts.library.name(f"{parts.name}/final")
        call = build.node(
            "StatefulPartitionedCall", inputs, name=name, f=header, dtypes=[_dtype(own, ref) for ref in found]
        )
        made.append(call)
        finals.update((ref, ir.TensorRef(call.name, i)) for i, ref in enumerate(found))
    return made, finals


def _rotated_loop(parts: _LoopParts, used_later: set[ir.TensorRef], where: str) -> tuple[list[ir.Node], _Moved]:
    """Make a loop whose effectful header runs before it and after each iteration."""
    own = {node.name: node for node in parts.header}
    reads = {ref for node in parts.body for ref in node.inputs} | set(parts.following) | used_later
    shared = sorted((ref for ref in reads if ref.node in own), key=str)
    outputs = [parts.predicate, *shared]
    dtypes = [np.dtype(np.bool_), *(_dtype(own, ref) for ref in shared)]
    header = parts.function("header", parts.args, parts.header, outputs, f"a value of {where},")
    name = parts.library.name(f"{parts.name}/first")
    first = build.node(
        "StatefulPartitionedCall", parts.firsts, name=name, control=parts.control, f=header, dtypes=dtypes
    )
    go = ir.Argument(f"{parts.name}/go", dtypes[0])
    carried = [go, *(ir.Argument(str(ref), dtype) for ref, dtype in zip(shared, dtypes[1:], strict=True))]
    args = [*parts.args, *carried]
    cond = parts.function("cond", args, [], [ir.TensorRef(go.name)], role=where)
    moved = {ref: ir.TensorRef(str(ref)) for ref in shared}
    nodes = [redirected(node, moved) for node in parts.body]
    following = [moved.get(ref, ref) for ref in parts.following]
    # The header of the next iteration waits for all nodes of this one.
    again = build.node(
        "StatefulPartitionedCall", following, name=f"{parts.name}/next", control=sinks(nodes), f=header, dtypes=dtypes
    )
    results = [*following, *(ir.TensorRef(again.name, i) for i in range(len(dtypes)))]
    body = parts.function("body", args, [*nodes, again], results, f"a variable of {where} for the next iteration,")
    inputs = [*parts.firsts, *(ir.TensorRef(first.name, i) for i in range(len(dtypes)))]
    loop = parts.loop(cond, body, inputs, args)
    finals = {ir.TensorRef(arg.name): ir.TensorRef(parts.name, i) for i, arg in enumerate(parts.args)}
    finals.update((ref, ir.TensorRef(parts.name, len(parts.args) + 1 + i)) for i, ref in enumerate(shared))
    return [first, loop], finals


def _identity(node: ir.Node) -> ir.Node:
    return build.node("Identity", *node.inputs, T=node.output_dtypes[0], like=node)


def _dtype(nodes: dict[str, ir.Node], ref: ir.TensorRef) -> ir.DType:
    return nodes[ref.node].output_dtypes[ref.index]


def _refs(nodes: Iterable[ir.Node]) -> set[ir.TensorRef]:
    return {ref for node in nodes for ref in node.inputs}


def _needed(nodes: Sequence[ir.Node], refs: Iterable[ir.TensorRef]) -> list[ir.Node]:
    """Return those of ``nodes``, in order, that compute the values ``refs``."""
    by_name = {node.name: node for node in nodes}
    found: set[str] = set()
    stack = [ref.node for ref in refs]
    while stack:
        name = stack.pop()
        if name in by_name and name not in found:
            found.add(name)
            stack.extend(ref.node for ref in by_name[name].inputs)
            # A dead input makes a node dead also where it is only waited for.
            stack.extend(by_name[name].control)
    return [node for node in nodes if node.name in found]


@dataclasses.dataclass(eq=False)
class Frame:
    """A loop, or (without a parent) the function around all loops.

    Attributes:
      name: the frame's name, as its Enter nodes give it.
      parent: the frame that its Enter nodes read from.
      nodes: the nodes that run in it, without Enter and Exit.
    """

    name: str
    parent: Frame | None = None
    depth: int = 0
    nodes: list[ir.Node] = dataclasses.field(default_factory=list)
    enters: list[ir.Node] = dataclasses.field(default_factory=list)
    exits: list[ir.Node] = dataclasses.field(default_factory=list)
    children: dict[str, Frame] = dataclasses.field(default_factory=dict)

    def is_inside(self, other: Frame) -> bool:
        """Return whether this is ``other`` or a loop within it."""
        frame: Frame | None = self
        while frame is not None and frame.depth > other.depth:
            frame = frame.parent
        return frame is other


def find_frames(function: str, nodes: Iterable[ir.Node]) -> Frame:
    """Return the tree of frames of a function's nodes.

    Args:
      nodes: in topological order, except for edges from NextIteration to Merge.
    """
    root = Frame("")
    homes: dict[str, Frame] = {}

    def home(node: ir.Node) -> Frame:
        deepest, source = root, ""
        for name in (*(ref.node for ref in node.inputs), *node.control):
            found = homes.get(name)  # None for arguments and for back edges into a Merge
            if found is None or found is deepest:
                continue
            if found.is_inside(deepest):
                deepest, source = found, name
            elif not deepest.is_inside(found):
                raise UnsupportedError(
                    f"node {node.name!r} ({node.op}) in {function!r} reads {source!r} from loop {deepest.name!r} and "
                    f"{name!r} from loop {found.name!r}; neither is inside the other."
                )
        return deepest

    for node in nodes:
        frame = home(node)
        if node.op == "Enter":
            label = str(node.attrs.get("frame_name", ""))
            child = frame.children.get(label)
            if child is None:
                child = frame.children[label] = Frame(label, frame, frame.depth + 1)
            child.enters.append(node)
            homes[node.name] = child
        elif node.op == "Exit":
            if frame.parent is None:
                raise InvalidModelError(f"node {node.name!r} (Exit) in {function!r}: there is no loop to leave.")
            frame.exits.append(node)
            homes[node.name] = frame.parent
        else:
            frame.nodes.append(node)
            homes[node.name] = frame
    return root
