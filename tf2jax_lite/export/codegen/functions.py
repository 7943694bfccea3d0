"""Prints blocks as Python functions, with structured control flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from tf2jax_lite.jaxprs.compat import scan_counts

from . import literals, rules_windows  # noqa: F401
from . import rules as primitives
from .block_ir import Block, Constant, Equation, Literal, Scope, Value
from .free_names import dimension_sources
from .templates import Def, Hole, Marks, Part, Printed, Ref, Stmt, parse, parts_of

_STRUCTURED: dict[str, Callable[[FunctionWriter, Equation], None]] = {}


def structured(*primitives: str) -> Callable[[_Writer], _Writer]:
    """Register a writer for primitives with inner functions, which take several lines."""

    def register(writer: _Writer) -> _Writer:
        _STRUCTURED.update(dict.fromkeys(primitives, writer))
        return writer

    return register


def tuple_of(items: Sequence[str]) -> str:
    """Return a tuple display."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def one_or_all(items: Sequence[str]) -> str:
    """Return the only item, or a tuple display."""
    return items[0] if len(items) == 1 else tuple_of(items)


_Writer = TypeVar("_Writer", bound="Callable[[FunctionWriter, Equation], None]")


class ModuleLike(Protocol):
    """The enclosing module, as a function sees it."""

    dims: Collection[str]
    """Names of symbolic dimensions, which are reserved."""
    reads: dict[str, tuple[str, ...]]
    """Names that stand for params: components of the params' names."""

    def constant(self, value: Constant) -> str:
        """Return the name that stands for a large constant."""
        ...

    def read_path(self, path: tuple[str, ...]) -> str:
        """Return the text that stands for a param or all params of a scope."""
        ...

    def custom(self, step: Equation) -> tuple[str, Sequence[str]]:
        """Return the name and leading size arguments of a function with derivative rules."""
        ...


class FunctionWriter:
    """Writes the statements of one Python function, inner functions included.

    Args:
      names: generates marks for values.
      module: the enclosing module; it holds large constants and functions with derivative rules.
      nodes: the statements written so far.
      env: text of values that are already defined.
      given: symbolic dimensions that module-level functions take as their first arguments.
      outermost: whether it stands outside of all functions.

    Attributes:
      missing: symbolic dimensions that such functions use without getting them as arguments or from shapes.
    """

    def __init__(
        self,
        names: Marks,
        module: ModuleLike,
        nodes: list[Any] | None = None,
        env: dict[int, str] | None = None,
        given: Sequence[str] = (),
        *,
        outermost: bool = False,
    ):
        self.names = names
        self.nodes: list[Any] = [] if nodes is None else nodes
        self.env: dict[int, str] = {} if env is None else env
        self.module = module
        self.like: list[tuple[str, str]] = []
        self.given = given
        self.outermost = outermost
        self.missing: set[str] = set()

    def parse(self, text: str, comment: str = "") -> Stmt:
        """Return a statement."""
        return parse(text, self.module.reads, self.module.dims, comment)

    def add(self, text: str, comment: str = "") -> None:
        """Add a statement."""
        self.nodes.append(self.parse(text, comment))

    def bind(self, value: Value, name: str) -> None:
        """Set the text of a value."""
        self.env[id(value)] = name

    def text(self, item: Value | Literal, *, typed: bool = True) -> str:
        """Return an operand."""
        if isinstance(item, Literal):
            return literals.scalar(item.array, typed=typed) if item.array.ndim == 0 else literals.array(item.array)
        if id(item) not in self.env and isinstance(item, Constant):
            self.env[id(item)] = self.module.constant(item)
        if isinstance(item, Scope):
            return self.module.read_path(item.path)
        return self.env[id(item)]

    def block(self, block: Block) -> list[str]:
        """Write a block's steps; its arguments are bound already. Returns its results."""
        for step in block.steps:
            self.step(step)
        return [self.text(r) for r in block.results]

    def step(self, step: Equation) -> None:
        """Write one step."""
        outer, self.nodes = self.nodes, []
        try:
            self._step(step)
        finally:
            nodes, self.nodes = self.nodes, outer
        if nodes:
            self.nodes.append(Printed(nodes, step.path))

    def _step(self, step: Equation) -> None:
        if step.name == "platform_index":  # part of `lax.platform_dependent`
            return
        writer = _STRUCTURED.get(step.name)
        if writer is not None:
            writer(self, step)
            return
        eqn = primitives.Equation(
            step.name,
            step.params,
            [self.text(v) for v in step.inputs],
            [self.text(v, typed=False) for v in step.inputs],
            [v.aval for v in step.inputs],
            [v.aval for v in step.outputs],
        )
        text = primitives.expression(eqn)
        for shape, source in self.like:
            text = text.replace(shape, source)
        same = eqn.typed[: len(step.outputs)]
        if same and len(same) == len(step.outputs) and text == (same[0] if len(same) == 1 else tuple_of(same)):
            for output, given in zip(step.outputs, same, strict=True):
                self.bind(output, given)
            return
        outputs = [step.outputs[i] for i in _ORDERS.get((step.name, len(step.outputs)), range(len(step.outputs)))]
        self.assign(outputs, text, sequence=step.name in _SEQUENCES or len(outputs) > 1)

    def assign(self, outputs: Sequence[Value], text: str, *, sequence: bool = False) -> None:
        """Write an assignment to new names."""
        names = named(self, outputs, "value")
        comment = literals.type_comment(outputs[0].aval) if len(outputs) == 1 and not self.like else ""
        if not sequence:
            self.add(f"{names[0]} = {text}", comment)
        else:
            self.add(f"{targets(names)} = {text}", comment)

    def function(
        self,
        name: str,
        args: list[str],
        block: Block,
        results: Callable[[list[str]], str],
        unpack: Sequence[str] = (),
        dims: Sequence[Value] = (),
        decorators: Sequence[str] = (),
    ) -> None:
        """Write an inner function.

        Args:
          name: its name.
          args: its arguments.
          block: its body; its arguments have names already.
          results: returns the expression to return, given the block's results.
          unpack: statements at its start.
          dims: values whose shapes define symbolic dimensions, for a module-level function.
          decorators: lines before it.
        """
        inner = FunctionWriter(self.names, self.module, [], self.env)
        inner.like = self.like
        if self.outermost:
            # Written in terms of its argument's shape, one function serves for all shapes.
            first = next((v for v in dims if len(v.aval.shape) > 0), None)
            inner.like = [(literals.shape(first.aval.shape), f"{self.env[id(first)]}.shape")] if first else []
        inner.add(f"return {results(inner.block(block))}")
        start = [self.parse(line) for line in unpack]
        if self.outermost:
            found = dimension_sources([(self.env[id(v)], v) for v in dims])
            used = {d for part in parts_of(inner.nodes) if isinstance(part, Hole) for d in part.dims}
            needed = used - set(self.given)
            self.missing |= needed - found.keys()
            start += [self.parse(f"{dim} = {source}") for dim, source in found.items() if dim in needed]
        every = [*self.given, *args] if self.outermost else args
        head = self.parse(name).parts[0]
        assert isinstance(head, Ref | str)
        parts: list[tuple[Part, ...]] = [self.parse(arg).parts for arg in every]
        self.nodes.append(Def(head, parts, [*start, *inner.nodes], list(decorators)))


_SEQUENCES = frozenset(
    """split sort top_k approx_top_k qr lu svd eigh eig schur hessenberg unstack rng_bit_generator
    optimization_barrier philox_key""".split()  # noqa: SIM905
)
_ORDERS = {("svd", 3): (1, 0, 2)}
"""Numbers of results in the order in which the function in `jax.lax` returns them, by primitive and their count."""


def targets(names: Sequence[str]) -> str:
    """Return names as a tuple display to assign to."""
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def named(writer: FunctionWriter, values: Sequence[Value], hint: str) -> list[str]:
    """Give values new names."""
    names = [writer.names.new(v.hint or hint, v.aval) for v in values]
    for value, name in zip(values, names, strict=True):
        writer.bind(value, name)
    return names


def share(writer: FunctionWriter, inner: Sequence[Value], outer: Sequence[Value | Literal]) -> None:
    """Bind inner arguments to the outer values, which a closure can read."""
    for value, source in zip(inner, outer, strict=True):
        writer.bind(value, writer.text(source))


def hint_of(step: Equation, default: str) -> str:
    """Return a name hint for a step's results."""
    return step.path[-1] if step.path else default


@structured("scan")
def _scan(writer: FunctionWriter, step: Equation) -> None:
    p, body = step.params, step.blocks["body"]
    consts, carry = scan_counts(p)
    share(writer, body.args[:consts], step.inputs[:consts])
    name = writer.names.new("step")
    carry_args = named(writer, body.args[consts : consts + carry], "state")
    slices = named(writer, body.args[consts + carry :], "x")
    unpack = [
        f"{targets(items)} = {whole}" for items, whole in ((carry_args, "carry"), (slices, "xs")) if len(items) > 1
    ]

    def parameter(items: Sequence[str], whole: str, unused: str) -> str:
        return whole if len(items) > 1 else items[0] if items else unused

    def results(texts: list[str]) -> str:
        parts = texts[:carry], texts[carry:]
        return f"{one_or_all(parts[0]) if carry else '()'}, {one_or_all(parts[1]) if parts[1] else 'None'}"

    args = [parameter(carry_args, "carry", "_"), parameter(slices, "xs", "_" if carry_args else "__")]
    writer.function(name, args, body, results, unpack)
    start = [writer.text(v) for v in step.inputs[consts : consts + carry]]
    xs = [writer.text(v) for v in step.inputs[consts + carry :]]
    args = [name, one_or_all(start) if start else "()", one_or_all(xs) if xs else "None"]
    if not xs:
        args.append(f"length={literals.dimension(p['length'])}")
    args.append(f"reverse={p['reverse']}")
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    left, right = outputs[:carry], outputs[carry:]
    halves = [one_or_all(left) if left else "_", one_or_all(right) if right else "_"]
    writer.add(f"{', '.join(halves)} = lax.scan({', '.join(args)})")


@structured("while")
def _while(writer: FunctionWriter, step: Equation) -> None:
    p = step.params
    cond, body = step.blocks["cond"], step.blocks["body"]
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    start = step.inputs[n_cond + n_body :]
    names = []
    for block, consts, count, role in (
        (cond, step.inputs[:n_cond], n_cond, "cond"),
        (body, step.inputs[n_cond : n_cond + n_body], n_body, "body"),
    ):
        share(writer, block.args[:count], consts)
        name = writer.names.new(f"{hint_of(step, 'loop')}_{role}")
        carry = named(writer, block.args[count:], "state")
        last = role == "cond"
        one = len(carry) == 1
        writer.function(
            name,
            [carry[0] if one else "carry"],
            block,
            (lambda texts: texts[0]) if last else one_or_all,
            [] if one else [f"{targets(carry)} = carry"],
        )
        names.append(name)
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    initial = one_or_all([writer.text(v) for v in start])
    writer.add(f"{one_or_all(outputs)} = lax.while_loop({names[0]}, {names[1]}, {initial})")


@structured("cond")
def _cond(writer: FunctionWriter, step: Equation) -> None:
    index, *operands = step.inputs
    names = []
    for number in range(len(step.params["branches"])):
        block = step.blocks[f"branch{number}"]
        share(writer, block.args, operands)
        role = ("false", "true")[number] if len(step.params["branches"]) == 2 else str(number)
        name = writer.names.new(f"{hint_of(step, 'branch')}_{role}")
        writer.function(name, [], block, lambda texts: one_or_all(texts) if texts else "()")
        names.append(name)
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    platforms = step.params.get("branches_platforms")
    if platforms is None:
        call = f"lax.switch({writer.text(index)}, [{', '.join(names)}])"
    else:  # selected by platform: branches that cannot be compiled for it are omitted
        words = [f"{word}={name}" for one, name in zip(platforms, names, strict=True) for word in one or ("default",)]
        call = f"lax.platform_dependent({', '.join(words)})"
    writer.add(f"{one_or_all(outputs)} = {call}" if outputs else call)


@structured("remat2", "remat", "checkpoint")
def _checkpoint(writer: FunctionWriter, step: Equation) -> None:
    block = step.blocks["body"]
    name = writer.names.new(f"{hint_of(step, 'checkpointed')}_fn")
    args = named(writer, block.args, "x")
    writer.function(name, args, block, one_or_all)
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    operands = ", ".join(writer.text(v) for v in step.inputs)
    writer.add(f"{one_or_all(outputs)} = jax.checkpoint({name})({operands})")
