"""A function made ready to run: inputs are slots, attributes are keywords, dead values are dropped."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.lowering.scheduling.materialize import Passage, shared_results
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import InvalidModelError, OpError, UnsupportedAttributeError

from .dilated_conv import mark_dilated
from .transpose_sinking import mark_turned

__all__ = ["Plan", "Step", "make_plan"]

# Attributes that steer kernels, placement or shape inference and cannot change a result.
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


@dataclasses.dataclass(slots=True)
class Step:
    """One node made ready to run."""

    node: ir.Node
    op: registry.Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    static: tuple[bool, ...]  # for each input group
    kwargs: Mapping[str, Any]
    functions: Mapping[str, Any]  # attributes that name functions, to be made callables
    release: tuple[int, ...]
    dtypes: tuple[np.dtype | None, ...]
    heavy: bool  # whether it reads its operands from memory, many times each
    passage: Passage | None = None  # of the function that it is a call of; see `sharing`
    shared: tuple[int, ...] = ()  # positions of results that are computed once; see `sharing`
    turned: Callable[..., list[Any]] | None = None  # runs it in the place of its op; see `turned`, `dilated`

    @property
    def stable_id(self) -> int:
        """What tells the node's random key from others'."""
        return stable_id(self.node.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A function's steps; slots 0 to n-1 hold its n arguments."""

    function: ir.Function
    steps: tuple[Step, ...]
    size: int
    outputs: tuple[int, ...]
    passage: Passage


def stable_id(name: str) -> int:
    """Returns a 32-bit number for a name: the same in every process and whatever else the graph holds."""
    return zlib.crc32(name.encode("utf-8", "surrogateescape"))


def _out_of_place(node: ir.Node, function: str, first: Mapping[str, int]) -> InvalidModelError:
    strangers = [str(ref) for ref in node.inputs if ref.node not in first]
    return InvalidModelError(
        f"node {node.name!r} ({node.op}) of {function!r} takes {', '.join(strangers)}, which does not come before it: "
        "what is inside of a loop or a branch cannot be used outside."
    )


def make_plan(
    function: ir.Function,
    nodes: Sequence[ir.Node],
    config: Config,
    ops: Mapping[str, registry.Op],
    outputs: Sequence[ir.TensorRef] | None = None,
    *,
    heavy: Callable[[ir.Node, registry.Op], bool] = lambda node, entry: entry.pattern is Pattern.CONTRACTION,
    passage: Callable[[ir.Node, registry.Op], Passage | None] = lambda node, entry: None,
) -> Plan:
    """Prepares ``nodes`` of ``function``; ``ops`` must hold every op.

    ``heavy`` tells a node that reads its operands from memory, many times each; ``passage`` is asked first, and says
    of a node that is nothing but a call what it calls.

    Raises:
      UnsupportedAttributeError: a node carries an attribute that its op does not handle, or attributes that exclude
        each other.
    """
    first = {arg.name: i for i, arg in enumerate(function.args)}  # the slot of each node's output 0
    size = len(first)
    steps: list[Step] = []
    forms: dict[object, tuple[registry.Op, Any, Any, tuple[bool, ...], tuple[np.dtype | None, ...], Any, bool]] = {}
    for node in nodes:
        form = forms.get(node.form)
        if form is None:
            entry = ops[node.op]
            kwargs, functions = node_kwargs(node, entry, function.name)
            if entry.check is not None:
                try:
                    entry.check(kwargs)
                except OpError as error:
                    raise UnsupportedAttributeError(
                        f"node {node.name!r} ({node.op}) in {function.name!r}: {error}"
                    ) from None
            for name in entry.config_options:
                kwargs[name] = getattr(config, name)
            if entry.bound is not None:
                kwargs[entry.bound] = config.dynamic_shape_bound or None
            names = entry.inputs
            static = tuple(i < len(names) and names[i] in entry.static for i in range(len(node.groups)))
            dtypes = tuple([d if isinstance(d, np.dtype) else None for d in node.output_dtypes])
            through = passage(node, entry)
            is_heavy = through is None and heavy(node, entry)
            form = forms[node.form] = (entry, kwargs, functions, static, dtypes, through, is_heavy)
        entry, kwargs, functions, static, dtypes, through, is_heavy = form
        count = len(dtypes)
        try:
            inputs = tuple([first[name] + index for name, index in node.inputs])
        except KeyError:
            raise _out_of_place(node, function.name, first) from None
        first[node.name] = size
        outputs_of = (size,) if count == 1 else tuple(range(size, size + count))
        steps.append(Step(node, entry, inputs, outputs_of, static, kwargs, functions, (), dtypes, is_heavy, through))
        size += count
    wanted = function.outputs if outputs is None else outputs
    inside = [str(ref) for ref in wanted if ref.node not in first]
    if inside:
        raise InvalidModelError(
            f"{function.name!r} returns {', '.join(inside)}, which it does not compute: what is inside of a loop or a "
            "branch cannot be asked for from outside."
        )
    results = tuple([first[ref.node] + ref.index for ref in wanted])
    keep = bytearray(size)
    for slot in results:
        keep[slot] = 1
    for step in reversed(steps):
        release = []
        for slot in (*step.inputs, *step.outputs):
            if not keep[slot]:
                keep[slot] = 1
                release.append(slot)
        if release:
            step.release = tuple(release)
    fed = [isinstance(arg.dtype, np.dtype) for arg in function.args]
    found, own_passage = shared_results(steps, results, fed, size)
    for index, positions in found.items():
        steps[index].shared = positions
    mark_turned(steps, results)
    mark_dilated(steps, results)
    return Plan(function, tuple(steps), size, results, own_passage)


def node_kwargs(node: ir.Node, entry: registry.Op, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the keywords that a node's attributes become: plain values, and references to functions.

    Raises:
      UnsupportedAttributeError: an attribute is not handled, or one that the op needs is missing.
    """
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
            f"node {node.name!r} ({node.op}) in {where!r}: the graph does not give attribute(s) {sorted(missing)}."
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
