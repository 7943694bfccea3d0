"""A runnable function: slots as inputs, keywords, and values' last uses."""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import InvalidModelError, OpError, UnsupportedAttributeError

from .materialize import CalleeSummary

# Attributes of kernels, placement or shape inference that cannot change a result.
INERT = frozenset(
    {
        "T",
        "N",
        "allow_bfloat16_output_tensor",
        "config",
        "config_proto",
        "container",
        "cudnn_frontend",
        "data_format_hint",
        "debug_name",
        "executor_type",
        "lower_using_switch_merge",
        "output_shapes",
        "parallel_iterations",
        "read_only_resources",
        "shared_name",
        "swap_memory",
        "use_cudnn_on_gpu",
        "use_inter_op_parallelism",
        "use_locking",
        "validate_indices",
        "validate_shape",
        "xla_must_compile",
    }
)


class Step(NamedTuple):  # a frozen dataclass takes six times as long to make
    """One node made ready to run.

    Attributes:
      static: for each input group whether it must be static.
      functions: attributes that name functions, to be made callables.
      dtypes: the recorded dtypes of its results; None for variants and resources.
      rereads_operands: whether it reads its operands from memory, many times each.
      callee: the summary of the function that it calls, if it is nothing but a call.
      release: slots without a later use.
      materialized: positions of results that are computed once; see `tf2jax_lite.lowering.planning.materialize`.
      override: runs the step instead of its op; see `transpose_sinking`, `dilated_conv`.
    """

    node: ir.Node
    op: registry.Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    static: tuple[bool, ...]
    kwargs: Mapping[str, Any]
    functions: Mapping[str, Any]
    dtypes: tuple[np.dtype | None, ...]
    rereads_operands: bool
    callee: CalleeSummary | None = None
    release: tuple[int, ...] = ()
    materialized: tuple[int, ...] = ()
    override: Override | None = None

    @property
    def stable_id(self) -> int:
        """The number that the node's random key is derived from."""
        return stable_id(self.node.name)


Apply = Callable[[Step, list[Any], Any], list[Any]]
"""Runs a step, given its inputs and its frame, and returns its results."""

Override = Callable[[Apply, Step, list[Any], Any], list[Any]]
"""Runs a step by other means than its op, or by ``apply``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A function's steps.

    Attributes:
      size: the number of slots. Slots 0 to n-1 hold the n arguments.
      summary: the uses of its arguments and the cost of its results, for its callers; None if unknown.
    """

    function: ir.Function
    steps: tuple[Step, ...]
    size: int
    outputs: tuple[int, ...]
    summary: CalleeSummary | None = None

    def with_steps(self, changed: Mapping[int, Mapping[str, Any]]) -> Plan:
        """Return the plan with fields of some steps replaced, given by the steps' indices."""
        if not changed:
            return self
        steps = [s._replace(**changed[i]) if i in changed else s for i, s in enumerate(self.steps)]
        return dataclasses.replace(self, steps=tuple(steps))


class Steps:
    """A plan as `match` reads a graph: operations are step indices, values are slots.

    Steps whose result others read, or that are overridden, produce nothing here.
    """

    def __init__(self, plan: Plan):
        self._steps = plan.steps
        uses = Counter(slot for step in plan.steps for slot in step.inputs)
        uses.update(plan.outputs)
        self._made_by = {
            slot: i
            for i, step in enumerate(plan.steps)
            for slot in step.outputs
            if step.override is None and uses[step.outputs[0]] == 1
        }

    def producer(self, value: int, through: Collection[Any] = ()) -> int | None:
        """See `tf2jax_lite.support.patterns.Graph`."""
        return self._made_by.get(value)

    def kind(self, operation: int) -> Any:
        """Return the function of a step's op; None for one that has no hash."""
        fn = self._steps[operation].op.fn
        return fn if isinstance(fn, Hashable) else None

    def operands(self, operation: int) -> Sequence[int]:
        """Return a step's input slots."""
        return self._steps[operation].inputs

    def number(self, value: int) -> int | None:
        """Return None: constants are values of slots."""
        return None


def stable_id(name: str) -> int:
    """Return a 32-bit number for a name: the same in every process and in every graph."""
    return zlib.crc32(name.encode("utf-8", "surrogateescape"))


def _used_out_of_scope(node: ir.Node, function: str, first: Mapping[str, int]) -> InvalidModelError:
    undefined = [str(ref) for ref in node.inputs if ref.node not in first]
    return InvalidModelError(
        f"node {node.name!r} ({node.op}) of {function!r} takes {', '.join(undefined)}, which does not come before it: "
        "values inside a loop or a branch cannot be used outside of it."
    )


class _NodePlan(NamedTuple):
    """The parts of a step that depend on the node's spec alone.

    They do not depend on its name and inputs.
    """

    op: registry.Op
    static: tuple[bool, ...]
    kwargs: Mapping[str, Any]
    functions: Mapping[str, Any]
    dtypes: tuple[np.dtype | None, ...]
    rereads_operands: bool
    callee: CalleeSummary | None


def make_plan(
    function: ir.Function,
    nodes: Sequence[ir.Node],
    config: Config,
    ops: Mapping[str, registry.Op],
    outputs: Sequence[ir.TensorRef] | None = None,
    *,
    rereads_operands: Callable[[ir.Node, registry.Op], bool] = lambda node, entry: entry.pattern is Pattern.CONTRACTION,
    callee: Callable[[ir.Node, registry.Op], CalleeSummary | None] = lambda node, entry: None,
) -> Plan:
    """Prepare nodes of a function.

    Args:
      ops: implementations by name; they must include every op.
      rereads_operands: whether a node reads its operands from memory, many times each.
      callee: the summary of the function that a node calls, if it is nothing but a call.
    """
    first = {arg.name: i for i, arg in enumerate(function.args)}  # the slot of each node's output 0
    size = len(first)
    drafts: list[tuple[ir.Node, _NodePlan, tuple[int, ...], tuple[int, ...]]] = []
    prepared: dict[object, _NodePlan] = {}
    for node in nodes:
        found = prepared.get(node.spec)
        if found is None:
            found = prepared[node.spec] = _prepare(node, function.name, config, ops, rereads_operands, callee)
        try:
            inputs = tuple([first[name] + index for name, index in node.inputs])
        except KeyError:
            raise _used_out_of_scope(node, function.name, first) from None
        first[node.name] = size
        count = len(found.dtypes)
        slots = (size,) if count == 1 else tuple(range(size, size + count))
        drafts.append((node, found, inputs, slots))
        size += count
    wanted = function.outputs if outputs is None else outputs
    inside = [str(ref) for ref in wanted if ref.node not in first]
    if inside:
        raise InvalidModelError(
            f"{function.name!r} returns {', '.join(inside)}, which it does not compute: values inside a loop "
            "or a branch are not available outside of it."
        )
    results = tuple([first[ref.node] + ref.index for ref in wanted])
    releases = _releases([(*inputs, *slots) for _, _, inputs, slots in drafts], results, size)
    steps = [
        Step(node, found.op, inputs, slots, *found[1:], release)
        for (node, found, inputs, slots), release in zip(drafts, releases, strict=True)
    ]
    return Plan(function, tuple(steps), size, results)


def _prepare(
    node: ir.Node,
    where: str,
    config: Config,
    ops: Mapping[str, registry.Op],
    rereads_operands: Callable[[ir.Node, registry.Op], bool],
    callee: Callable[[ir.Node, registry.Op], CalleeSummary | None],
) -> _NodePlan:
    """Return a step's parts that depend on its node's spec; see `make_plan`."""
    entry = ops[node.op]
    kwargs, functions = node_kwargs(node, entry, where)
    if entry.check is not None:
        types = {name: node.attrs.get(key) for name, key in zip(entry.inputs, node.input_types, strict=False)}
        try:
            entry.check(kwargs, {name: dtype for name, dtype in types.items() if isinstance(dtype, np.dtype)})
        except OpError as error:
            raise UnsupportedAttributeError(f"node {node.name!r} ({node.op}) in {where!r}: {error}") from None
    for name in entry.config_options:
        kwargs[name] = getattr(config, name)
    if entry.always_pads and entry.bound is not None:
        kwargs[entry.bound] = config.dynamic_shape_bound or None
    names = entry.inputs
    static = tuple(i < len(names) and names[i] in entry.static for i in range(len(node.groups)))
    dtypes = tuple([d if isinstance(d, np.dtype) else None for d in node.output_dtypes])
    summary = callee(node, entry)
    rereads = summary is None and rereads_operands(node, entry)
    return _NodePlan(entry, static, kwargs, functions, dtypes, rereads, summary)


def _releases(slots: Sequence[Sequence[int]], results: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Return for each step its read or written slots without a later use."""
    used = bytearray(size)
    for slot in results:
        used[slot] = 1
    found = []
    for mine in reversed(slots):
        release = []
        for slot in mine:
            if not used[slot]:
                used[slot] = 1
                release.append(slot)
        found.append(tuple(release))
    return found[::-1]


def node_kwargs(node: ir.Node, entry: registry.Op, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return keywords for attributes: plain values, references to functions."""
    kwargs: dict[str, Any] = {}
    functions: dict[str, Any] = {}
    known = entry.attrs
    for name, value in node.attrs.items():
        if name in known:
            if not entry.needs_context and _is_function(value):
                functions[name] = value
            else:
                kwargs[name] = value
        elif not (
            name[:1] == "_" or name in INERT or name in node.implied or _is_type(value) or _is_nothing(value, node)
        ):
            raise UnsupportedAttributeError(
                f"node {node.name!r} ({node.op}) in {where!r}: attribute {name}={value!r} is not handled by the "
                f"implementation at {entry.source}. Register one that takes it (tf2jax_lite.override_op)."
            )
    if not entry.required_attrs:
        return kwargs, functions
    missing = entry.required_attrs - kwargs.keys() - functions.keys()
    if missing:
        raise UnsupportedAttributeError(
            f"node {node.name!r} ({node.op}) in {where!r}: the graph has no attribute(s) {sorted(missing)}."
        )
    return kwargs, functions


def _is_function(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], ir.FunctionRef)
    return isinstance(value, ir.FunctionRef)


def _is_nothing(value: Any, node: ir.Node) -> bool:
    # The types of no results: a call of a function that only assigns variables.
    return isinstance(value, list) and not value and not node.output_dtypes


def _is_type(value: Any) -> bool:
    # Types decide results only where no input shows them; a test holds each op's signature to that.
    if isinstance(value, list):
        return bool(value) and all(map(_is_type, value))
    return value is None or isinstance(value, (np.dtype, ir.OpaqueType))
