"""Partitioning of a graph into a host prefix and a numeric core.

TensorFlow runs the prefix (strings, decoders, tables). The prefix has the nodes that JAX cannot run, nodes on strings,
the ancestors of both, and nodes whose result shapes depend on values of the prefix, so that the core can be jitted. The
prefix must not depend on trained variables; if it would, the unsupported node is inside the model rather than before
it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import live_nodes
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.support.errors import UnsupportedError


@dataclasses.dataclass(frozen=True)
class HostPartition:
    """A partitioned function.

    Attributes:
      host: the prefix's nodes, in order.
      reasons: for the nodes that require TensorFlow, the reason.
      host_effects: names of prefix nodes that must run although no node reads them (assertions).
      boundary: the prefix's tensors that the core reads, with their dtypes; they are arguments of the core.
      passed: positions of the function's own arguments that the core reads as well.
      core: the core; its arguments are ``passed``, then ``boundary``, then those of ``captured``.
      captured: positions of the captured arguments that the core reads.
      dropped: positions of results that are strings, which the core cannot return.
    """

    host: tuple[ir.Node, ...]
    reasons: Mapping[str, str]
    host_effects: tuple[str, ...]
    boundary: tuple[tuple[ir.TensorRef, np.dtype], ...]
    passed: tuple[int, ...]
    core: ir.Function
    captured: tuple[int, ...]
    dropped: tuple[int, ...]


def partition_host(main: ir.Function, graph: ir.Graph) -> HostPartition:
    """Partition an inlined function.

    Args:
      main: the function, without calls (see `inline_calls`).
    """
    return _Partitioner(main, graph).run()


class _Partitioner:
    def __init__(self, main: ir.Function, graph: ir.Graph):
        self._ops = registry.ops_in_force()
        self._graph = graph
        self._effects = Summaries(graph.functions, self._ops)
        self._dtypes: dict[str, tuple[ir.DType, ...]] = {arg.name: (arg.dtype,) for arg in main.args}
        self._dtypes.update((node.name, node.output_dtypes) for node in main.nodes)
        self._captures = {main.args[c.index].name: c.value for c in graph.captures}
        self._dropped = tuple(i for i, ref in enumerate(main.outputs) if not self._is_array(ref))
        self._main = dataclasses.replace(
            main, outputs=tuple(ref for i, ref in enumerate(main.outputs) if i not in self._dropped)
        )
        self._live = live_nodes(self._main, [node.name for node in self._main.nodes if self._effectful(node)])
        self._nodes = {node.name: node for node in self._live}
        self._portable: dict[str, bool] = {}
        self._literal = self._literals()
        self._trained = self._downstream(self._reads_trained)
        self._host: set[str] = set()
        self._reasons: dict[str, str] = {}

    def run(self) -> HostPartition:
        self._collect()
        self._check_variables()
        return self._result()

    def _collect(self) -> None:
        for node in self._live:
            reason = self._reason(node)
            if reason:
                if node.name in self._trained:
                    raise UnsupportedError(
                        f"node {node.name!r} ({node.op}) only runs in TensorFlow and depends on trained variables: it "
                        "is inside the model rather than before it, and cannot be split off."
                    )
                self._reasons[node.name] = reason
                self._take(node)
        changed = True
        while changed:
            changed = False
            values = self._downstream(lambda node: node.name in self._host, through_shapes=False)
            for node in self._live:
                if node.name in self._host:
                    continue
                reads_opaque = any(ref.node in self._host and not self._is_array(ref) for ref in node.inputs)
                if reads_opaque or (node.name not in self._trained and self._belongs_before(node, values)):
                    self._take(node)
                    changed = True

    def _reason(self, node: ir.Node) -> str:
        """Return the reason why only TensorFlow can run a node; "" if JAX can."""
        if not self._runs_in_jax(node):
            return "has no counterpart in JAX"
        foreign = [ref for ref in node.inputs if not self._is_array(ref) and self._is_foreign(ref)]
        makes_strings = ir.STRING in node.output_dtypes and node.name not in self._literal
        if not foreign and not makes_strings:
            return ""
        strings = makes_strings or any(self._dtype(ref) == ir.STRING for ref in foreign)
        return "works on strings" if strings else "reads a table or dataset"

    def _is_foreign(self, ref: ir.TensorRef) -> bool:
        """Return whether a tensor is one that the lowering cannot represent."""
        # The lowering represents arrays, variables, lists and literals.
        if ref.node in self._captures:
            return not isinstance(self._captures[ref.node], (ir.Variable, np.ndarray))
        node = self._nodes.get(ref.node)
        if node is None:  # an argument
            return True
        return self._dtype(ref) == ir.STRING and ref.node not in self._literal

    def _runs_in_jax(self, node: ir.Node) -> bool:
        entry = self._ops.get(node.op)
        return entry is not None and all(self._function_runs(ref.name) for ref in node.functions)

    def _function_runs(self, name: str) -> bool:
        if name not in self._portable:
            self._portable[name] = True  # in case of a malformed recursive function
            function = self._graph.functions.get(name)
            self._portable[name] = function is None or all(self._runs_in_jax(node) for node in function.nodes)
        return self._portable[name]

    def _belongs_before(self, node: ir.Node, tainted: set[str]) -> bool:
        """Return whether a node's shapes depend on the prefix, or it only checks it."""
        entry = self._ops.get(node.op)
        if entry is None:
            return False
        if not node.output_dtypes and any(ref.node in tainted for ref in node.inputs):
            return not entry.writes
        if entry.bound is not None and any(ref.node in tainted for ref in node.inputs):
            return True
        position = 0
        for name, group in zip(entry.inputs, node.groups, strict=False):
            count = 1 if group is None else group
            if name in entry.static and any(ref.node in tainted for ref in node.inputs[position : position + count]):
                return True
            position += count
        return False

    def _take(self, node: ir.Node) -> None:
        """Move a node and its ancestors to the prefix."""
        stack = [node.name]
        while stack:
            name = stack.pop()
            current = self._nodes.get(name)
            if current is None or name in self._host:
                continue
            self._host.add(name)
            stack.extend(ref.node for ref in current.inputs)
            stack.extend(c for c in current.control if c not in self._trained)

    def _downstream(self, start: Callable[[ir.Node], bool], *, through_shapes: bool = True) -> set[str]:
        """Return the nodes for which ``start`` holds, and those that depend on them."""
        found: set[str] = set()
        for node in self._live:
            if start(node):
                found.add(node.name)
            elif any(ref.node in found for ref in node.inputs):
                entry = self._ops.get(node.op)
                if through_shapes or entry is None or entry.pattern is not Pattern.SHAPE_ONLY:
                    found.add(node.name)
        return found

    def _literals(self) -> set[str]:
        """Return the nodes that depend on constants alone."""
        # The lowering evaluates them, strings included.
        found: set[str] = set()
        for node in self._live:
            if self._runs_in_jax(node) and (
                node.op == "Const" or (node.inputs and all(ref.node in found for ref in node.inputs))
            ):
                found.add(node.name)
        return found

    def _reads_trained(self, node: ir.Node) -> bool:
        values = (self._captures.get(ref.node) for ref in node.inputs)
        return any(isinstance(v, ir.Variable) and v.trainable for v in values)

    def _check_variables(self) -> None:
        written = {self._main.args[int(which)].name for kind, which in self._written() if kind == "arg"}
        for node in self._live:
            if node.name not in self._host:
                continue
            for ref in node.inputs:
                value = self._captures.get(ref.node)
                if isinstance(value, ir.Variable) and (value.trainable or ref.node in written):
                    change = "training changes" if value.trainable else "the model writes"
                    raise UnsupportedError(
                        f"node {node.name!r} ({node.op}) would run in TensorFlow, before the converted core, but reads "
                        f"variable {value.name!r}, which {change}."
                    )

    def _written(self) -> frozenset[tuple[str, int | str]]:
        return self._effects.of_function(self._main).writes

    def _effectful(self, node: ir.Node) -> bool:
        # An unregistered op may have an effect; one without results has.
        return self._effects.effectful(node) or (node.op not in self._ops and not node.output_dtypes)

    def _result(self) -> HostPartition:
        main = self._main
        copied = self._copied_literals()
        core = [n for n in self._live if n.name not in self._host or n.name in copied]
        used = [ref for node in core for ref in node.inputs] + list(main.outputs)
        boundary: dict[ir.TensorRef, np.dtype] = {}
        for ref in used:
            dtype = self._dtype(ref)
            if ref.node in self._host and ref.node not in copied and isinstance(dtype, np.dtype):
                boundary.setdefault(ref, dtype)
        wanted = {ref.node for ref in used}
        captured = {c.index for c in self._graph.captures}
        passed = [i for i, arg in enumerate(main.args) if arg.name in wanted and i not in captured]
        kept = [i for i in sorted(captured) if main.args[i].name in wanted]
        names = {ref: f"{ref.node}:{ref.index}" for ref in boundary}
        args = [main.args[i] for i in passed]
        args += [ir.Argument(names[ref], dtype) for ref, dtype in boundary.items()]
        args += [main.args[i] for i in kept]

        def renamed(ref: ir.TensorRef) -> ir.TensorRef:
            return ir.TensorRef(names[ref]) if ref in names else ref

        nodes = tuple(
            dataclasses.replace(
                node,
                inputs=tuple(map(renamed, node.inputs)),
                control=tuple(c for c in node.control if c not in self._host and c in self._nodes),
            )
            for node in core
        )
        function = dataclasses.replace(
            main,
            args=tuple(args),
            nodes=nodes,
            outputs=tuple(map(renamed, main.outputs)),
            control_outputs=tuple(c for c in main.control_outputs if c in self._nodes and c not in self._host),
        )
        host = tuple(n for n in self._live if n.name in self._host)
        return HostPartition(
            host=host,
            reasons=self._reasons,
            host_effects=tuple(n.name for n in host if self._effectful(n)),
            boundary=tuple(boundary.items()),
            passed=tuple(passed),
            core=function,
            captured=tuple(kept),
            dropped=self._dropped,
        )

    def _copied_literals(self) -> set[str]:
        """Return the prefix's nodes that the core duplicates."""
        # Constants need not be arguments of the core.
        found: set[str] = set()
        stack = [ref.node for n in self._live if n.name not in self._host for ref in n.inputs]
        stack += [ref.node for ref in self._main.outputs]
        while stack:
            name = stack.pop()
            if name in self._host and name in self._literal and name not in found:
                found.add(name)
                stack.extend(ref.node for ref in self._nodes[name].inputs)
        return found

    def _dtype(self, ref: ir.TensorRef) -> ir.DType | None:
        types = self._dtypes.get(ref.node, ())
        return types[ref.index] if ref.index < len(types) else None

    def _is_array(self, ref: ir.TensorRef) -> bool:
        return isinstance(self._dtype(ref), np.dtype)
