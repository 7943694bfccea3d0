"""Draw programs; TensorFlow runs each node as it is drawn.

Dtypes, shapes and values are known so.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (numpy knows bfloat16 by name)
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tests.ops import test_drawn
from tests.ops.harness import Case

from . import material
from .programs import ERRORS, PARAM, Node, Program, Ref, run_node

MAX_ELEMENTS = 2000
MAX_DEPTH = 2
FLOATS = ["float32"] * 6 + ["float64", "float16", "bfloat16"]
SHAPES = [(), (1,), (3,), (4,), (2, 3), (3, 1), (1, 4), (2, 3, 4), (0, 2)]


class Writer:
    """Writes one program, or one inner program, node by node.

    Args:
      depth: how many programs are around this one. Only the outermost takes further parameters.
    """

    def __init__(
        self, rng: random.Random, params: Sequence[np.ndarray], variables: Mapping[str, tf.Variable], depth: int = 0
    ):
        self.rng = rng
        self.params = list(params)
        self.variables = variables
        self.depth = depth
        self.nodes: list[Node] = []
        self.values: dict[Ref, Any] = {Ref(PARAM, i): tf.constant(p) for i, p in enumerate(params)}
        self.arrays: dict[Ref, np.ndarray] = {Ref(PARAM, i): p for i, p in enumerate(params)}
        self._next = 0

    # Nodes.

    def add(self, kind: str, op: str = "", inputs: Sequence[Any] = (), **settings: Any) -> list[Ref] | None:
        """Add a node; return its results, or None if TensorFlow rejects its size."""
        node = Node(self._next, kind, op, tuple(inputs), **settings)
        before = {name: v.numpy() for name, v in self.variables.items()} if node.bodies else {}
        try:
            results = run_node(node, self.values, self.variables)
            arrays = [r.numpy() for r in results if r.dtype not in (tf.variant, tf.resource)]
        except ERRORS:
            results = arrays = []
        arrays = [np.asarray(a) for a in arrays]
        if not arrays or len(arrays) != len(results) or sum(a.size for a in arrays) > MAX_ELEMENTS:
            for name, value in before.items():
                self.variables[name].assign(value)
            return None
        self._next += 1
        self.nodes.append(node)
        refs = [Ref(node.number, i) for i in range(len(arrays))]
        self.values.update(zip(refs, results, strict=True))
        self.arrays.update(zip(refs, arrays, strict=True))
        if node.bodies:  # what it did to variables is seen by reading them
            for name in sorted(written(node)):
                self.add("read", name)
        return refs

    def op(self, op: str, *inputs: Any, **attrs: Any) -> Ref | None:
        """Add an op with one result."""
        if any(i is None for i in inputs):
            return None
        refs = self.add("op", op, inputs, attrs=attrs)
        return refs[0] if refs else None

    def pick(self, accept: Any = material.is_number) -> Ref | None:
        """Return one of the values that fit, later ones more often."""
        fitting = [ref for ref, array in self.arrays.items() if accept(array)]
        if not fitting:
            return None
        return fitting[max(self.rng.randrange(len(fitting)) for _ in range(2))]

    def param(self, value: np.ndarray) -> Ref | np.ndarray:
        """Return a new parameter; inside of another program, a constant."""
        if self.depth:
            return value
        ref = Ref(PARAM, len(self.params))
        self.params.append(value)
        self.values[ref], self.arrays[ref] = tf.constant(value), value
        return ref

    # Values that fit a place.

    def shaped(self, ref: Ref | None, dtype: Any, shape: tuple[int, ...]) -> Ref | None:
        """Return a value with another one's elements, cast and repeated or cut to a shape."""
        if ref is None:
            return None
        dtype = np.dtype(dtype)
        if self.arrays[ref].dtype != dtype:
            ref = self.op("Cast", ref, DstT=tf.dtypes.as_dtype(dtype))
        if ref is None or self.arrays[ref].shape == shape:
            return ref
        size, wanted = self.arrays[ref].size, int(np.prod(shape))
        if size != wanted:
            if not size or not wanted:
                return None
            if self.arrays[ref].ndim != 1:
                ref = self.op("Reshape", ref, np.array([-1], np.int32))
            ref = self.op("GatherV2", ref, np.arange(wanted, dtype=np.int32) % size, np.int32(0))
        return self.op("Reshape", ref, np.array(shape, np.int32))

    def unit(self, ref: Ref | None, dtype: Any, shape: tuple[int, ...]) -> Ref | None:
        """Return a value's elements in a shape, finite and within -1 and 1."""
        if ref is not None and self.arrays[ref].dtype.kind == "c":
            ref = self.op("Real", ref, Tout=tf.float32 if self.arrays[ref].dtype == np.complex64 else tf.float64)
        ref = self.op("Tanh", self.shaped(ref, dtype, shape))
        if ref is None or np.isfinite(self.arrays[ref].astype(np.float64)).all():
            return ref
        return self.op("SelectV2", self.op("IsFinite", ref), ref, self.op("ZerosLike", ref))

    def like(self, template: np.ndarray) -> Any:
        """Return a value of a template's dtype and shape, with similar elements."""
        how, kind = self.rng.random(), template.dtype.kind
        if not material.is_number(template):
            return template
        if how < 0.12:
            return self.param(template)
        if how < 0.2:
            return template
        if how < 0.4:
            same = self.pick(lambda a: a.dtype == template.dtype and a.shape == template.shape)
            if same is not None:
                return same
        source = self.pick()
        name = template.dtype.name
        if kind in "fcV":
            real = {"complex64": "float32", "complex128": "float64"}.get(name, name)
            change = self.unit(source, real, template.shape if self.rng.random() < 0.6 else ())
            if kind == "c" and change is not None:
                change = self.op("Cast", change, DstT=tf.dtypes.as_dtype(name))
            found = self.op("AddV2", template, self.op("Mul", template * np.asarray(0.125, name), change))
        else:
            found = self.op("Greater", self.unit(source, "float32", template.shape), np.float32(0))
            if kind != "b" and found is not None:
                other = template.flatten()[np.random.default_rng(self.rng.randrange(2**16)).permutation(template.size)]
                found = self.op("SelectV2", found, template, other.reshape(template.shape))
        return template if found is None else found

    # Steps.

    def step(self) -> None:
        """Add a few nodes that belong together."""
        kind = self.rng.random()
        if kind < 0.42:
            self.elementwise()
        elif kind < 0.88 or self.depth >= MAX_DEPTH:
            self.case()
        elif kind < 0.92:
            self.variable()
        else:
            self.compound()

    def elementwise(self) -> None:
        """Add an op of one or two arguments."""
        if self.rng.random() < 0.5:
            op = self.rng.choice(sorted(test_drawn.UNARY))
            x = self.pick(lambda a: a.dtype.name in test_drawn.UNARY[op])
            if x is not None and op not in material.LEFT_OUT:
                self.op(op, x)
            return
        op = self.rng.choice(sorted(test_drawn.BINARY))
        x = self.pick(lambda a: a.dtype.name in test_drawn.BINARY[op])
        if x is None:
            return
        array = self.arrays[x]
        y: Any = self.pick(lambda a: a.dtype == array.dtype and _broadcasts(a.shape, array.shape))
        if self.rng.random() < 0.3:
            y = self.shaped(self.pick(), array.dtype, array.shape)
        if y is None or (op in INTEGER_DIVISIONS and array.dtype.kind in "iu" and not self.arrays[y].all()):
            return
        self.op(op, *((x, y) if self.rng.random() < 0.5 else (y, x)))

    def case(self) -> None:
        """Add an op as its own tests use it, fed with values of this program."""
        entry = None
        while entry is None:
            op = self.rng.choice(list(material.cases()))
            entry = self.rng.choice(material.cases()[op])
            if not entry.jit and self.rng.random() < 0.8:
                entry = None  # a graph that has it is not compiled
            elif self.depth and entry.compare is not None:
                entry = None  # results that are right up to a sign, say: values inside are not compared so
        inputs = [self._input(entry, i) for i in range(len(entry.inputs))]
        self.add(
            "op",
            entry.op,
            inputs,
            attrs=dict(entry.attrs),
            rtol=entry.rtol,
            atol=entry.atol,
            compare=entry.compare,
            jit=entry.jit,
        )

    def _input(self, entry: Case, index: int) -> Any:
        value, op = entry.inputs[index], material.registered()[entry.op]
        baked = op.static | set(entry.baked)
        if (index < len(op.inputs) and op.inputs[index] in baked) or baked - set(op.inputs):
            return value
        feed = self._as_it_is if material.is_whole(entry.op) else self.like
        return list(map(feed, value)) if isinstance(value, list) else feed(value)

    def _as_it_is(self, value: np.ndarray) -> Any:
        return self.param(value) if material.is_number(value) else value

    def variable(self) -> None:
        """Add something that happens to a variable."""
        name = self.rng.choice(sorted(self.variables))
        start = self.variables[name].numpy()
        kind = self.rng.choice(["read", "assign", "add"])
        if kind == "read":
            self.add("read", name)
            return
        value = self.unit(self.pick(), start.dtype, start.shape)
        if value is not None:
            self.add(kind, name, (value,))

    def compound(self) -> None:
        """Add a call, a branch or a loop."""
        kind = self.rng.choice(["call", "cond", "case", "while", "while"])
        refs = [ref for ref in (self.pick() for _ in range(self.rng.randint(1, 3))) if ref is not None]
        if not refs:
            return
        if kind == "while":
            self.loop(refs)
            return
        bodies = []
        for _ in range({"call": 1, "cond": 2, "case": 3}[kind]):
            inner = self.inner(refs)
            closing = bodies[0][1] if bodies else None
            if closing is None:
                results = [r for r in (inner.pick() for _ in range(self.rng.randint(1, 2))) if r is not None]
                closing = [inner.arrays[r] for r in results]
            else:
                results = [inner.shaped(inner.pick(), c.dtype, c.shape) for c in closing]
                results = [r or inner.op("Identity", c) for r, c in zip(results, closing, strict=True)]
            if not results or None in results:
                return
            bodies.append((inner.program(results), closing))
        first: list[Any] = []
        if kind == "cond":
            first = [self._predicate()]
        elif kind == "case":
            picked = self.shaped(self.pick(), np.int32, ())
            first = [self.op("FloorMod", picked, np.int32(4)) if picked is not None else np.int32(1)]
        if first and first[0] is None:
            return
        self.add(kind, "", (*first, *refs), bodies=tuple(body for body, _ in bodies))

    def _predicate(self) -> Any:
        if self.rng.random() < 0.2:
            return np.bool_(self.rng.random() < 0.5)
        return self.op("Greater", self.unit(self.pick(), "float32", ()), np.float32(0.1))

    def loop(self, refs: list[Ref]) -> None:
        """Add a loop over some values."""
        count = self.rng.randint(0, 4)
        inner = self.inner(refs)
        results = []
        for index, ref in enumerate(refs):
            array = self.arrays[ref]
            found = inner.shaped(inner.pick(), array.dtype, array.shape)
            if array.dtype.kind in "fV" and found is not None and self.rng.random() < 0.8:
                # What is multiplied over and over again grows, and its round-off with it.
                half = inner.op("Mul", Ref(PARAM, index), np.asarray(0.5, array.dtype))
                found = inner.op("AddV2", inner.unit(found, array.dtype, array.shape), half)
            results.append(found if found is not None else Ref(PARAM, index))
        if None in results:
            return
        numeric = self.arrays[refs[0]].dtype.kind not in "cb"
        limit = None if self.rng.random() < 0.6 or not numeric else self.rng.choice([-1.0, 0.5, 2.0, 10.0])
        attrs = {"count": count, "limit": limit, "stack": limit is None and self.rng.random() < 0.4}
        if self.rng.random() < 0.25:
            attrs["tally"] = self.rng.choice(sorted(self.variables))
        self.add("while", "", refs, attrs=attrs, bodies=(inner.program(results),))

    def inner(self, refs: Sequence[Ref]) -> Writer:
        """Return a writer of an inner program, with some nodes written."""
        copies = {name: tf.Variable(v.numpy(), name=name) for name, v in self.variables.items()}
        writer = Writer(self.rng, [self.arrays[r] for r in refs], copies, self.depth + 1)
        for _ in range(self.rng.randint(1, 3)):
            writer.step()
        return writer

    def program(self, results: Sequence[Ref] = ()) -> Program:
        """Return the program so far."""
        return Program(tuple(self.params), tuple(self.nodes), tuple(results))


INTEGER_DIVISIONS = {"FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod"}


def written(node: Node) -> set[str]:
    """Return the names of the variables that a node writes."""
    if node.kind in ("assign", "add"):
        return {node.op}
    return _tallies(node).union(*(written(n) for body in node.bodies for n in body.nodes))


def _tallies(node: Node) -> set[str]:
    """Return the name of the variable that a loop's condition assigns to."""
    return {node.attrs["tally"]} if node.attrs.get("tally") else set()


def _broadcasts(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(one, two)
    except ValueError:
        return False
    return True


def write(seeds: Sequence[int], size: int) -> Program:
    """Return a program of about ``size`` nodes: a step for each number."""
    rng = random.Random(len(seeds) and seeds[0])
    starts = []
    for _ in range(rng.randint(1, 3)):
        shape = rng.choice(SHAPES)
        values = np.random.default_rng(rng.randrange(2**16)).normal(size=shape)
        starts.append(np.asarray(values).astype(rng.choice(FLOATS)))
    starts.append(np.asarray(rng.randrange(5), rng.choice(["int32", "int64"])))
    variables = {"v": np.float32([0.5, -1.0]), "w": np.asarray(2.0)}
    live = {name: tf.Variable(value, name=name) for name, value in variables.items()}
    writer = Writer(rng, starts, live)
    for seed in seeds:
        writer.rng = random.Random(seed)
        writer.step()
        if sum(n.size() for n in writer.nodes) >= size:
            break
    program = writer.program()
    used = set().union(*(_variables(node) for node in program.nodes)) if program.nodes else set()
    return Program(program.params, program.nodes, (), {n: v for n, v in variables.items() if n in used})


def _variables(node: Node) -> set[str]:
    own = {node.op} if node.kind in ("read", "assign", "add") else _tallies(node)
    return own.union(*(_variables(n) for body in node.bodies for n in body.nodes))


# Most are small: compiling is what takes time, and it grows with the size.
SIZES = [*range(1, 9)] * 20 + [10, 12, 16, 20, 30, 50, 100, 200]
NUMBERS = st.integers(0, 2**32 - 1)


@st.composite
def programs(draw: st.DrawFn, sizes: Sequence[int] = SIZES) -> Program:
    """Draw programs of 1 to about 200 nodes."""
    size = draw(st.sampled_from(sizes))
    return write(draw(st.lists(NUMBERS, min_size=(size + 1) // 2, max_size=size)), size)
