"""A checked graph with its plans: one per conversion, shared by every call."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Collection, Iterable, Mapping

from tf2jax_lite import ir
from tf2jax_lite.ir.providers import NodeCompiler, NodeEvaluator
from tf2jax_lite.ir.traversal import CALLS, live_nodes, needed_nodes
from tf2jax_lite.lowering import scan_opt
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.passes.analysis.effects import Effects, Summaries
from tf2jax_lite.passes.analysis.static_values import may_compare_sizes, may_have_dynamic_sizes, runtime_dependent
from tf2jax_lite.support.call_graph import callees_first
from tf2jax_lite.support.config import Config, is_chosen
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedOpsError
from tf2jax_lite.support.gc_pause import paused
from tf2jax_lite.support.op_traits import rationale

from . import rewrites
from .compiled_ops import evaluated_ops, fallback_ops
from .materialize import CalleeSummary
from .plan import Plan, make_plan
from .rewrites import rewrite


class Program:
    """The functions of a graph, checked, and planned once each.

    Args:
      compiler: compiles nodes without an implementation; without one they raise an error.
      evaluator: evaluates nodes without an implementation whose inputs are all static at conversion; without one they
        raise an error.

    Attributes:
      random_nodes: names of the nodes that draw random numbers.
      fallback_nodes: names of the nodes that are compiled, as ``function/node`` outside the main function.
      scan_optimizations: names of the optimizations of scans that the options choose.
      reads_late: whether a variable may be read after an assignment to it.
      compares_sizes: whether a node may compare sizes; see `may_compare_sizes`.
      has_dynamic_sizes: whether a size may depend on data.
      narrowing: names of the nodes that were reported to narrow constants of 64 bits; see `int64_narrowing`.
    """

    @paused()
    def __init__(
        self,
        graph: ir.Graph,
        config: Config,
        compiler: NodeCompiler | None = None,
        evaluator: NodeEvaluator | None = None,
    ):
        self.graph = graph
        self.evaluator = evaluator
        self.config = config
        self._rewrites = {name for name in rewrites.NAMES if is_chosen(config.passes, name)}
        self.scan_optimizations = {name for name in scan_opt.NAMES if is_chosen(config.passes, name)}
        self._ops = registry.ops_in_force()  # the implementations at conversion hold for the program's life
        self._compiled: Mapping[str, registry.Op] = {}
        if compiler is not None:
            self._compiled = fallback_ops((node for _, node in graph.walk()), self._ops, compiler)
            self._ops.update(self._compiled)
        self.evaluated: frozenset[str] = frozenset()
        self._runtime_dependent: frozenset[tuple[str, str]] = frozenset()  # of evaluated ops, with a traced input
        if evaluator is not None:
            evaluated = evaluated_ops(graph.specs, self._ops, evaluator)
            self._ops.update(evaluated)
            self.evaluated = frozenset(evaluated)
            self._runtime_dependent = runtime_dependent(graph, self._ops, evaluated) if evaluated else frozenset()
        self._effects = Summaries(graph.functions, self._ops, unknown=config.raise_on_lost_effect)
        # TensorFlow runs every stateful node of a function whose name is an op.
        self._whole = {
            n.attrs["f"].name
            for function in (graph.main, *graph.functions.values())
            for n in function.callers
            if "_by_name" in n.attrs and "f" in n.attrs
        }
        self._lock = threading.RLock()
        self._plans: dict[tuple[str, tuple[ir.TensorRef, ...] | None, bool], Plan] = {}
        self._live: dict[str, tuple[ir.Node, ...]] = {}
        self._with_contractions: dict[str, bool] = {}
        self._holding: dict[tuple[str, str], bool] = {}
        self.random_nodes: tuple[str, ...] = ()
        self.fallback_nodes: tuple[str, ...] = ()
        self.wide = self._wide_variables()
        self.narrowing: set[str] = set()
        self.reads_late = self._effects.of_function(graph.main).reads_after_assign
        self._check()

    @functools.cached_property
    def compares_sizes(self) -> bool:
        """See the class."""
        return may_compare_sizes(self.graph, self._ops)

    @functools.cached_property
    def has_dynamic_sizes(self) -> bool:
        """See the class."""
        if self._compiled or self.evaluated:  # nothing is known about the sizes of their results
            return True
        return may_have_dynamic_sizes(self.graph, self._ops)

    def function(self, name: str) -> ir.Function:
        """Return a library function."""
        try:
            return self.graph.functions[name]
        except KeyError:
            raise InvalidModelError(f"the graph calls function {name!r}, which its library does not hold.") from None

    def plan(self, function: ir.Function) -> Plan:
        """Return the plan of a whole function."""
        return self._plan(function, None, False)

    def plan_of(self, function: ir.Function, outputs: Iterable[ir.TensorRef], *, effects: bool) -> Plan:
        """Return a function's plan for outputs, with or without side effects."""
        return self._plan(function, tuple(outputs), effects)

    def effects(self, function: ir.Function) -> Effects:
        """Return the effect summary of a function."""
        return self._effects.of_function(function)

    def _wide_variables(self) -> frozenset[str]:
        """Return variables of 64-bit state, such as that of a random generator."""
        captured = {c.index: c.value for c in self.graph.captures}
        names = set()
        for kind, which in self._effects.of_function(self.graph.main).int64_state:
            value = captured.get(int(which)) if kind == "arg" else which
            names.add(value.name if isinstance(value, ir.Variable) else str(value))
        return frozenset(names)

    def _plan(self, function: ir.Function, outputs: tuple[ir.TensorRef, ...] | None, effects: bool) -> Plan:
        key = (function.name, outputs, effects)
        found = self._plans.get(key)
        if found is None:
            with self._lock:
                if outputs is None:
                    nodes = self._nodes(function)
                elif effects:
                    nodes = needed_nodes(function, self._effects.effects_in(function), outputs)
                else:
                    nodes = live_nodes(function, (), outputs)
                found = make_plan(
                    function,
                    nodes,
                    self.config,
                    self._ops,
                    outputs,
                    rereads_operands=self._rereads_operands,
                    callee=self._callee,
                )
                found = rewrite(found, self._rewrites)
                self._plans[key] = found
        return found

    def _callee(self, node: ir.Node, entry: registry.Op) -> CalleeSummary | None:
        """Return the summary of a called function; None for others than plain calls."""
        called = node.attrs.get("f") if node.op in CALLS and entry.needs_context else None
        return self.plan(self.function(called.name)).summary if isinstance(called, ir.FunctionRef) else None

    def _rereads_operands(self, node: ir.Node, entry: registry.Op) -> bool:
        """Return whether a node, or one in a function that it calls, is a contraction."""
        return entry.pattern is Pattern.CONTRACTION or any(self._has_contraction(ref.name) for ref in node.functions)

    def _has_contraction(self, name: str) -> bool:
        found = self._with_contractions.get(name)
        if found is None:
            self._with_contractions[name] = False  # for a function that calls itself, which is refused elsewhere
            function = self.graph.functions.get(name)
            found = function is not None and (
                any(op in self._ops and self._ops[op].pattern is Pattern.CONTRACTION for op in function.ops)
                or any(self._has_contraction(ref.name) for node in function.callers for ref in node.functions)
            )
            self._with_contractions[name] = found
        return found

    def holds(self, function: ir.Function, op: str) -> bool:
        """Return whether a function, or one that it calls, has a node of that op."""
        key = (function.name, op)
        found = self._holding.get(key)
        if found is None:
            self._holding[key] = False  # for a function that calls itself, which is refused elsewhere
            called = (self.graph.functions.get(ref.name) for node in function.callers for ref in node.functions)
            found = op in function.ops or any(inner is not None and self.holds(inner, op) for inner in called)
            self._holding[key] = found
        return found

    def _nodes(self, function: ir.Function) -> tuple[ir.Node, ...]:
        if function.name not in self._live:
            whole = function.name in self._whole
            self._live[function.name] = live_nodes(function, self._effects.effects_in(function), everything=whole)
        return self._live[function.name]

    def _check(self) -> None:
        unsupported: list[tuple[str, str, str]] = []
        effects: set[str] = set()
        random: list[str] = []
        compiled: list[str] = []
        order: list[ir.Function] = []
        callees: dict[str, list[str]] = {}
        stack = [self.graph.main]
        seen = {function.name for function in stack}
        while stack:
            function = stack.pop()
            order.append(function)
            callees[function.name] = []
            prefix = "" if function is self.graph.main else f"{function.name}/"
            if self._compiled:
                compiled += [prefix + node.name for node in self._nodes(function) if node.op in self._compiled]
            live = {node.name for node in self._nodes(function)}
            if self._runtime_dependent:
                unsupported += [
                    (node.op, node.name, function.name)
                    for node in self._nodes(function)
                    if (function.name, node.name) in self._runtime_dependent
                ]
            quiet: set[ir.NodeSpec] = set()  # of nodes without anything to note
            for node in self._effects.notable(function):
                if node.spec in quiet or node.name not in live:
                    continue
                entry = self._ops.get(node.op)
                if entry is None:
                    unsupported.append((node.op, node.name, function.name))
                    if self._effects.changes_unknown(node):
                        effects.add(node.op)
                    continue
                if entry.draws_random(node.attrs):
                    random.append(prefix + node.name)
                elif not node.functions:
                    quiet.add(node.spec)
                for ref in node.functions:
                    callees[function.name].append(ref.name)
                    if ref.name not in seen:
                        seen.add(ref.name)
                        stack.append(self.function(ref.name))
        if unsupported:
            raise unsupported_error(unsupported, effects)
        callees_first(callees)  # raises on recursion
        if not self.config.raise_on_lost_effect:
            self._warn_of_lost(order)
        self.random_nodes = tuple(random)
        self.fallback_nodes = tuple(compiled)
        for function in order:
            self.plan(function)

    def _warn_of_lost(self, functions: Iterable[ir.Function]) -> None:
        strict = Summaries(self.graph.functions, self._ops)
        pending, seen, lost = list(functions), set(), []
        while pending:
            function = pending.pop(0)
            if function.name in seen:
                continue
            seen.add(function.name)
            for node in live_nodes(function, strict.effects_in(function), everything=function.name in self._whole):
                if strict.changes_unknown(node):
                    lost.append(f"  {node.op}: node {node.name!r} in function {function.name!r}")
                pending += [self.graph.functions[r.name] for r in node.functions if r.name in self.graph.functions]
        if lost:
            warnings.warn(
                f"{len(lost)} node(s) that change something in TensorFlow are left out:\n" + "\n".join(lost),
                stacklevel=2,
            )


def unsupported_error(nodes: list[tuple[str, str, str]], effects: Collection[str] = ()) -> UnsupportedOpsError:
    """Return the error that lists (op, node, function); ``effects`` are ops."""
    ops = sorted({op for op, _, _ in nodes})
    lines = [
        f"  {op}: node {node!r} in function {function!r}"
        + (f" ({rationale(op)})" if rationale(op) else ", which has side effects" * (op in effects))
        for op, node, function in sorted(nodes)
    ]
    lost = "To leave out nodes whose results are unused: override_config('raise_on_lost_effect', False). "
    return UnsupportedOpsError(
        f"{len(ops)} op(s) of this graph have no implementation: {', '.join(ops)}\n"
        + "\n".join(lines)
        + f"\n{lost * bool(effects)}"
        + "Add one with @tf2jax_lite.register_op(name), or, if these nodes only prepare the inputs, "
        "leave them in TensorFlow: convert_saved_model(..., split_host=True).",
        ops,
        nodes,
    )
