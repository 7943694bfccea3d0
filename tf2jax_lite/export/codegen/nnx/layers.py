"""Write statements that compute the same as layers of Flax as these layers.

A statement with a layer has a member of the module's class: source that makes it in ``__init__``, and the params that
it is loaded from. Params that no layer reads are members, too.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.export.codegen import literals
from tf2jax_lite.export.codegen.structure.calls import joined
from tf2jax_lite.export.codegen.structure.items import Program
from tf2jax_lite.export.codegen.templates import CLOSE, LOAD, OPEN, Def, Hole, Part, Printed, Read, Ref, Stmt, parts_of

_ONES = ("gamma", "scale", "moving_variance", "variance", "var")
"""Last components of names of variables that are 1 in a new layer."""
_ZEROS = ("bias", "beta")
"""The same of variables of any rank that are 0."""


@dataclasses.dataclass
class _Call:
    """A statement that calls a function, or multiplies matrices (``@``)."""

    function: str
    args: list[Any]
    words: dict[str, Any]


@dataclasses.dataclass
class _Layer:
    """A layer of Flax.

    Attributes:
      name: of its class in `flax.nnx`.
      sizes: its first arguments.
      words: its keyword arguments.
      params: its attributes to the params that they hold.
      inputs: arguments of its call.
      targets: what is assigned; default: the statement's values.
    """

    name: str
    sizes: Sequence[Part]
    words: dict[str, Part]
    params: dict[str, Read]
    inputs: Sequence[Part]
    targets: Sequence[Part] = ()

    def statement(self, targets: Sequence[int], comment: str = "") -> Stmt:
        """Return the statement that calls it."""
        args = [*([size] for size in self.sizes), *([f"{word}=", value] for word, value in self.words.items())]
        load = [piece for name, read in self.params.items() for piece in (name, read)]
        assigned = self.targets or joined([[Ref(value)] for value in targets])
        made = [OPEN, f"nnx.{self.name}(", *joined([*args, ["rngs=rngs"]]), ")", LOAD, *load, CLOSE]
        return Stmt((*assigned, " = ", *made, "(", *self.inputs, ")"), tuple(targets), comment)


class LayerProgram(Program):
    """The functions of a module with layers of Flax.

    Attributes:
      variable_kinds: name of a param's path to the class that holds it.
    """

    indexed = False  # members of modules are named for their params
    inlined = 2

    def __init__(self, marks: Any) -> None:
        super().__init__(marks)
        self.variable_kinds: Mapping[tuple[str, ...], str] = {}
        self.shared: set[tuple[str, ...]] = set()

    def layers(self, equations: Sequence[Printed], results: Collection[int]) -> Sequence[Printed]:
        """Return equations with layers of Flax in place of their statements."""
        uses = Counter(part.id for part in parts_of(equations) if isinstance(part, Ref))
        uses.update(results)
        found: list[Printed | None] = list(equations)
        layers: dict[int, tuple[int, _Layer]] = {}  # result to the layer's place
        sums = {value: (n, bias) for n, e in enumerate(equations) for value, bias in _sums(e)}
        for number, equation in enumerate(equations):
            stmt = _only(equation)
            call = _parsed(stmt) if stmt is not None else None
            layer = self._layer(call, stmt) if call is not None and stmt is not None else None
            if layer is None or stmt is None:
                continue
            place, values = number, stmt.targets
            later, bias = sums.get(stmt.targets[0], (None, None))
            # One use is its definition.
            if later is not None and bias is not None and uses[stmt.targets[0]] == 2 and self._adds(layer, stmt, bias):
                layer.params["bias"] = bias
                found[number], place = None, later
                values = equations[later].nodes[0].targets
            elif "kernel" in layer.params and layer.name != "Einsum":
                layer.words = {**layer.words, "use_bias": "False"}
            found[place] = Printed([layer.statement(values)], equations[place].path)
            layers[values[0]] = place, layer
        for attention in _attentions(equations, layers, uses):
            self._write_attention(attention, found, layers, uses)
        kept = [equation for equation in found if equation is not None]
        for equation in kept:
            self._with_members(equation.nodes)
        self.shared |= _shared(parts_of(kept))
        return kept

    def _with_members(self, nodes: Sequence[Any]) -> None:
        for node in nodes:
            if isinstance(node, Stmt):
                node.parts = self.with_members(node.parts)
            elif isinstance(node, Def):
                self._with_members([inner for inner in node.body if isinstance(inner, Stmt)])

    def with_members(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return a statement's parts, with variables for params that no layer reads."""
        found: list[Part] = []
        inside = False
        for part in parts:
            inside = part == OPEN or (inside and part != CLOSE)
            found += self._variable(part) if isinstance(part, Read) and not inside else [part]
        return tuple(found)

    def _variable(self, read: Read) -> list[Part]:
        aval = self._aval(read)
        kind, shape = self.variable_kinds.get(read.path, "NonTrainable"), Hole(literals.shape(aval.shape), "shape")
        dtype = "" if aval.dtype == np.float32 else f", {literals.dtype(aval.dtype)}"
        if read.path in self.constants:
            name = Hole(literals.value("/".join(read.path)), "constant")
            value: list[Part] = ["_constant(", name, ", ", shape, f", {literals.dtype(aval.dtype)})"]
        elif (
            kind == "Param"
            and jnp.issubdtype(aval.dtype, jnp.inexact)
            and len(aval.shape) > 1
            and read.path[-1] not in _ZEROS
        ):
            value = ["nnx.initializers.lecun_normal()(rngs.params(), ", shape, f"{dtype})"]
        else:
            value = [f"jnp.{'ones' if read.path[-1] in _ONES else 'zeros'}(", shape, f"{dtype})"]
        made = f"{kind if kind == 'NonTrainable' else f'nnx.{kind}'}("
        return [OPEN, made, *value, ")", LOAD, "", read, CLOSE, "[...]"]

    def _layer(self, call: _Call, stmt: Stmt) -> _Layer | None:
        """Return the layer that a statement computes, except for its bias."""
        template = _TEMPLATES.get(call.function)
        found = template(self, call) if template is not None else None
        if found is None:
            return None
        if call.function == "_lstm_cell":
            hidden, cell = map(Ref, stmt.targets)
            found.targets = ["(", cell, ", ", hidden, "), _"]
        reads = list(found.params.values())
        dtypes = {self._aval(read).dtype for read in reads if self._aval(read) is not None}
        if any(self._aval(read) is None for read in reads) or len(dtypes) > 1:
            return None
        dtype = dtypes.pop() if dtypes else None
        if dtype is not None and not jnp.issubdtype(dtype, jnp.inexact):
            return None  # layers of Flax convert integers to floats
        floats = found.inputs[:1] if found.name not in ("Embed", "Dropout") else []
        if any(isinstance(x, Ref) and getattr(self.marks.avals[x.id], "dtype", None) != dtype for x in floats):
            return None
        if dtype is not None and dtype != np.float32:
            if found.name in _STATISTICAL:
                return None  # Flax computes statistics in float32
            found.words["param_dtype"] = literals.dtype(dtype)
        return found

    def _adds(self, layer: _Layer, stmt: Stmt, bias: Read) -> bool:
        """Return whether a param is a bias of a layer's output axes."""
        kernel, aval = layer.params.get("kernel"), self._aval(bias)
        if kernel is None or aval is None or aval.dtype != self._aval(kernel).dtype:
            return False
        if layer.name == "LinearGeneral":
            size = self._aval(kernel).shape[_contracted(layer) :]
        elif layer.name == "Einsum":
            equation = str(getattr(layer.sizes[0], "text", "")).strip('"')
            (left, right), result = equation.split("->")[0].split(","), equation.split("->")[1]
            own = [letter for letter in result if letter in right]
            if not own or not result.endswith("".join(own)) or set(own) & set(left):
                return False
            size = tuple(self.marks.avals[stmt.targets[0]].shape[-len(own) :])
            if aval.shape == size:
                layer.sizes = [*layer.sizes[:2], Hole(literals.shape(size), "bias_shape")]
        else:
            size = self.marks.avals[stmt.targets[0]].shape[-1:]
        return aval.shape == tuple(size)

    def _aval(self, part: Read) -> Any:
        return self.params.get(part.path, self.constants.get(part.path))

    def sizes(self, part: Read) -> tuple[int, ...]:
        """Return the shape of a param, () if it is none."""
        aval = self._aval(part)
        return aval.shape if aval is not None else ()

    def scope(self, part: Read, names: Mapping[str, str]) -> dict[str, Read]:
        """Return those params of a scope that have some names."""
        found = {attribute: Read((*part.path, name)) for attribute, name in names.items()}
        return {attribute: read for attribute, read in found.items() if self._aval(read) is not None}

    def _write_attention(
        self,
        attention: _Attention,
        found: list[Printed | None],
        layers: Mapping[int, tuple[int, _Layer]],
        uses: Mapping[int, int],
    ) -> None:
        """Write projections and attention as multi-head attention, if Flax's is equal."""
        query_uses = 1 + attention.reads
        counts = zip(attention.given, (query_uses, 2, 2), strict=False)
        projections = [layers.get(v) for v, count in counts if uses[v] == count]
        end = next(((n, o) for n, o in layers.values() if list(o.inputs) == [Ref(attention.result)]), None)
        if len(projections) < 3 or None in projections or end is None or uses[attention.result] != 2:
            return
        every = dict(zip(("query", "key", "value", "out"), [*projections, end], strict=True))
        parts = {name: layer for name, (_, layer) in every.items()}  # type: ignore[misc]
        if any(layer.name != "LinearGeneral" for layer in parts.values()):
            return
        query, key, values, out = (self.sizes(layer.params["kernel"]) for layer in parts.values())
        biased = {"bias" in layer.params for layer in parts.values()}
        if len(biased) > 1 or not len(query) == len(out) == 3 or key != values or not query[1:] == key[1:] == out[:2]:
            return
        words: dict[str, Part] = {
            "qkv_features": _number(query[1] * query[2], "qkv_features"),
            "out_features": _number(out[2], "out_features"),
            "in_kv_features": _number(key[0], "in_kv_features"),
        }
        if attention.rate is not None:
            words |= {"dropout_rate": attention.rate, "broadcast_dropout": "False", "deterministic": "False"}
        if not biased.pop():
            words["use_bias"] = "False"
        words |= {w: v for w, v in parts["query"].words.items() if w == "param_dtype"}
        words["decode"] = "False"
        inputs = [parts[name].inputs[0] for name in ("query", "key", "value")]
        args: list[list[Part]] = [[inputs[0]], *([[v] for v in inputs[1:]] if len({*inputs}) > 1 else [])]
        if attention.mask is not None:
            args.append(["mask=", attention.mask])
        sizes = [_number(query[1], "num_heads"), _number(query[0], "in_features")]
        params = {f"{name}.{n}": read for name, layer in parts.items() for n, read in layer.params.items()}
        place = end[0]
        targets = found[place].nodes[0].targets  # type: ignore[union-attr]
        for number in (*attention.indices, *(n for n, _ in projections)):  # type: ignore[misc]
            found[number] = None
        layer = _Layer("MultiHeadAttention", sizes, words, params, joined(args))
        found[place] = Printed([layer.statement(targets)], attention.path)


@dataclasses.dataclass
class _Attention:
    """Statements that attend to a sequence.

    Attributes:
      given: query, key and value.
      reads: how often the query is read.
      mask: where to attend to.
      rate: of the dropout of weights.
      result: the value that they compute.
      indices: positions of their equations.
      path: their scope.
    """

    given: Sequence[int]
    reads: int
    mask: Part | None
    rate: Part | None
    result: int
    indices: Sequence[int]
    path: tuple[str, ...]


def _attentions(
    equations: Sequence[Printed], layers: Mapping[int, tuple[int, _Layer]], uses: Mapping[int, int]
) -> Iterator[_Attention]:
    """Yield the attentions of a function."""
    statements = [_only(equation) for equation in equations]
    makers = {stmt.targets[0]: n for n, stmt in enumerate(statements) if stmt is not None and stmt.targets}

    def made(value: Any) -> tuple[int, _Call | None]:
        place = makers.get(value.id, -1) if isinstance(value, Ref) else -1
        stmt = statements[place] if place >= 0 else None
        return place, _parsed(stmt) if stmt is not None else None

    for number, stmt in enumerate(statements):
        call = _parsed(stmt) if stmt is not None else None
        if stmt is None or call is None or not call.args:
            continue
        path = equations[number].path
        if call.function == "_attention" and len(call.args) == 3 and {*call.words} <= {"mask", "lowest"}:
            lowest = _text(call.words.get("lowest", "-jnp.inf"))
            if "mask" not in call.words or lowest != "-jnp.inf":  # else rows without any position differ
                given = [v.id for v in call.args if isinstance(v, Ref)]
                yield _Attention(given, 1, call.words.get("mask"), None, stmt.targets[0], [number], path)
        elif call.function == "jnp.einsum" and len(call.args) == 3:
            indices, weights, rate = [number], call.args[1], None
            if isinstance(weights, Ref) and weights.id in layers and layers[weights.id][1].name == "Dropout":
                place, dropout = layers[weights.id]
                indices, weights, rate = [*indices, place], dropout.inputs[0], dropout.sizes[0]
            place, softmax = made(weights)
            scores_at, scores = made(softmax.args[0]) if softmax is not None and softmax.args else (-1, None)
            if softmax is None or softmax.function != "jax.nn.softmax" or len(softmax.args) > 1 or softmax.words:
                continue
            if scores is None or scores.function != "jnp.einsum" or len(scores.args) != 3:
                continue
            indices += [place, scores_at]
            if _letters(call, 0) != ("abcd", "adbe", "acbe"):
                continue
            for query, key in ((1, 2), (2, 1)):
                place, scaled = made(scores.args[query])
                if scaled is not None and scaled.function == "scaled" and _letters(scores, query - 1) == _SCORES:
                    given = [v.id for v in (scaled.args[0], scores.args[key], call.args[2]) if isinstance(v, Ref)]
                    inner = (statements[n].targets[0] for n in (*indices[1:], place))  # type: ignore[union-attr]
                    if all(uses[value] == 2 for value in inner):
                        yield _Attention(given, 2, None, rate, stmt.targets[0], [*indices, place], path)


_SCORES = ("abcd", "aecd", "acbe")


def _letters(call: _Call, first: int) -> tuple[str, ...]:
    """Return the axes of a product's operands and result, as letters in order.

    Args:
      first: the operand that letters begin with.
    """
    operands, result = _text(call.args[0]).strip('"').split("->")
    words = operands.split(",")
    table: dict[str, str] = {}
    ordered = (words[first], words[1 - first], result)
    return tuple("".join(table.setdefault(x, chr(97 + len(table))) for x in word) for word in ordered)


def _shared(parts: Iterable[Part]) -> set[tuple[str, ...]]:
    """Return the params that several members hold, as a table of embeddings."""
    holders: dict[tuple[str, ...], set[str]] = {}
    made = ""
    reading = False
    for part in parts:
        if part in (OPEN, LOAD, CLOSE):
            made, reading = "" if part == OPEN else made, part == LOAD
        elif isinstance(part, Read) and reading:
            holders.setdefault(part.path, set()).add(made)
        else:
            made += _text(part)
    return {path for path, found in holders.items() if len(found) > 1}


def _contracted(layer: _Layer) -> int:
    """Return the number of input axes of a `nnx.LinearGeneral`."""
    return str(layer.words.get("axis", "")).count("-") or 1


def _only(equation: Printed) -> Stmt | None:
    """Return an equation's only statement."""
    return equation.nodes[0] if len(equation.nodes) == 1 and isinstance(equation.nodes[0], Stmt) else None


def _sums(equation: Printed) -> list[tuple[int, Read]]:
    """Return the value and the param that an equation adds."""
    stmt = _only(equation)
    match stmt.parts if stmt is not None else ():
        case (Ref(), " = ", Ref() as value, " + ", Read() as bias):
            return [(value.id, bias)]
        case (Ref(), " = ", Read() as bias, " + ", Ref() as value):
            return [(value.id, bias)]
    return []


def _parsed(stmt: Stmt) -> _Call | None:
    """Return the call, or the product, that a statement is, or None."""
    text = "".join(part if isinstance(part, str) else f"_part{i}_" for i, part in enumerate(stmt.parts))
    if OPEN in text or not (_SCALED in text or " @ " in text or any(f" = {name}(" in text for name in _PARSED)):
        return None
    tree = ast.parse(text).body[0]

    def part(node: ast.expr) -> Any:
        name = re.fullmatch(r"_part(\d+)_", node.id) if isinstance(node, ast.Name) else None
        return stmt.parts[int(name[1])] if name else ast.unparse(node)

    match tree:
        case ast.Assign(value=ast.BinOp(op=ast.Mult(), left=x, right=ast.BinOp() as factor)):
            scaled = f"{ast.unparse(x)}.shape[-1] ** -0.5"
            names = {f"_part{i}_": getattr(p, "text", f"_part{i}_") for i, p in enumerate(stmt.parts)}
            same = {
                f"_part{i}_": f"_part{stmt.parts.index(p)}_" for i, p in enumerate(stmt.parts) if isinstance(p, Ref)
            }
            found = re.sub(r"_part\d+_", lambda m: {**names, **same}.get(m[0], m[0]), ast.unparse(factor))
            return _Call("scaled", [part(x)], {}) if found == scaled else None
        case ast.Assign(value=ast.BinOp(op=ast.MatMult(), left=left, right=right)):
            return _Call("@", [part(left), part(right)], {})
        case ast.Assign(value=ast.Call(func=function, args=args, keywords=words)):
            given = [item for arg in args for item in (arg.values if isinstance(arg, ast.Dict) else [arg])]
            return _Call(ast.unparse(function), list(map(part, given)), {w.arg or "": part(w.value) for w in words})
    return None


def _number(value: Any, hint: str) -> Hole:
    return Hole(literals.dimension(value), hint)


def _linear(program: LayerProgram, call: _Call) -> _Layer | None:
    match call.args:
        case [Ref() as x, Read() as kernel] if len(shape := program.sizes(kernel)) == 2:
            sizes = [_number(shape[0], "in_features"), _number(shape[1], "features")]
            return _Layer("Linear", sizes, {}, {"kernel": kernel}, [x])
    return None


def _einsum(program: LayerProgram, call: _Call) -> _Layer | None:
    match call.args:
        case [Hole() as equation, Ref() as x, Read() as kernel]:
            shape = program.sizes(kernel)
            (left, right), result = equation.text.strip('"').split("->")[0].split(","), equation.text.split("->")[1]
            result = result.strip('"')
            count = len(set(left) & set(right))
            if (
                left.endswith(right[:count])
                and result == left[: len(left) - count] + right[count:]
                and 0 < count < len(right)
            ):
                sizes = [_features(shape[:count], "in_features"), _features(shape[count:], "features")]
                words: dict[str, Part] = {}
                if count > 1:
                    words["axis"] = f"({', '.join(str(i - count) for i in range(count))})"
                return _Layer("LinearGeneral", sizes, words, {"kernel": kernel}, [x])
            return _Layer(
                "Einsum", [equation, Hole(literals.shape(shape), "shape"), "None"], {}, {"kernel": kernel}, [x]
            )
    return None


def _features(shape: Sequence[int], hint: str) -> Hole:
    return _number(shape[0], hint) if len(shape) == 1 else Hole(literals.shape(shape), hint)


_WORDS = {"strides": "strides", "padding": "padding", "dilation": "kernel_dilation", "groups": "feature_group_count"}


def _conv(program: LayerProgram, call: _Call) -> _Layer | None:
    match call.args:
        case [Ref() as x, Read() as kernel] if program.sizes(kernel):
            *window, inputs, outputs = program.sizes(kernel)
        case _:
            return None
    words = {_WORDS[word]: value for word, value in call.words.items()}
    if call.function == "_conv1d" and not _text(words.get("padding", '"')).startswith('"'):
        return None  # of images
    if call.function == "_depthwise_conv":
        words["feature_group_count"] = _number(inputs, "groups")
        outputs *= inputs
    else:
        groups = _text(words.get("feature_group_count", "1"))
        if not groups.isdecimal():
            return None
        inputs *= int(groups)
    name, first, last = "Conv", _number(inputs, "in_features"), _number(outputs, "features")
    if call.function == "_conv_transpose":
        name, first, last = "ConvTranspose", _number(outputs, "in_features"), _number(inputs, "features")
        words["transpose_kernel"] = "True"
    sizes = [first, last, Hole(literals.shape(tuple(window)), "kernel_size")]
    return _Layer(name, sizes, words, {"kernel": kernel}, [x])


def _text(part: Part) -> str:
    return part.text if isinstance(part, Hole) else str(part)


def _embed(program: LayerProgram, call: _Call) -> _Layer | None:
    match call.args, {word: _text(value) for word, value in call.words.items()}:
        case [Read() as table, Ref() as x], {"axis": "0", "mode": '"fill"', "fill_value": "0" | "0.0"}:
            if len(shape := program.sizes(table)) == 2 and shape[0] > 1:
                sizes = [_number(shape[0], "num_embeddings"), _number(shape[1], "features")]
                return _Layer("Embed", sizes, {}, {"embedding": table}, [x])
    return None


def _layer_norm(program: LayerProgram, call: _Call) -> _Layer | None:
    match [*call.args, *call.words.values()]:
        case [Ref() as x, Read() as gamma, Read() as beta, Hole() as epsilon]:
            params = {"scale": gamma, "bias": beta}
            return _norm(program, "LayerNorm", x, params, epsilon)
    return None


def _norm(program: LayerProgram, name: str, x: Ref, params: dict[str, Read], epsilon: Part) -> _Layer | None:
    sizes = {program.sizes(read) for read in params.values()}
    shape = getattr(program.marks.avals[x.id], "shape", ())
    if len(sizes) != 1 or len(size := sizes.pop()) != 1 or tuple(shape[-1:]) != size:
        return None
    words: dict[str, Part] = {"epsilon": epsilon, "use_fast_variance": "False"}
    words |= {f"use_{word}": "False" for word in ("scale", "bias") if word not in params}
    return _Layer(name, [_number(size[0], "features")], words, params, [x])


_KERAS = {"scale": "gamma", "bias": "beta", "mean": "moving_mean", "var": "moving_variance"}


def _batch_norm(program: LayerProgram, call: _Call) -> _Layer | None:
    words = dict(call.words)
    match call.args:
        case [Ref() as x, Read() as scope]:
            layer = _norm(program, "BatchNorm", x, program.scope(scope, _KERAS), words.get("epsilon", "0.001"))
            if layer is not None and "momentum" in words:
                layer.words = {"momentum": words["momentum"], **layer.words}
            elif layer is not None and "train" in words:
                layer.inputs = [x, ", use_running_average=True"]
            return layer
        case [Ref() as x, Read() as mean, Read() as variance, Read() as gamma, Read() as beta, Hole() as epsilon]:
            params = {"scale": gamma, "bias": beta, "mean": mean, "var": variance}
            return _norm(program, "BatchNorm", x, params, epsilon)
    return None


def _dropout(program: LayerProgram, call: _Call) -> _Layer | None:
    return _Layer("Dropout", [call.words.get("rate", "0.5")], {}, {}, call.args[:1])


def _lstm_cell(program: LayerProgram, call: _Call) -> _Layer | None:
    match call.args:
        case [Ref() as x, Ref() as hidden, Ref() as cell, Read() as kernel, Read() as recurrent, Read() as bias]:
            sizes = [
                _number(program.sizes(kernel)[0], "in_features"),
                _number(program.sizes(recurrent)[0], "hidden_features"),
            ]
            params = {"dense_i.kernel": kernel, "dense_h.kernel": recurrent, "dense_h.bias": bias}
            return _Layer("OptimizedLSTMCell", sizes, {}, params, ["(", cell, ", ", hidden, "), ", x])
    return None


_TEMPLATES: dict[str, Callable[[LayerProgram, _Call], _Layer | None]] = {
    "@": _linear,
    "jnp.einsum": _einsum,
    **dict.fromkeys(("_conv", "_conv1d", "_depthwise_conv", "_conv_transpose"), _conv),
    "jnp.take": _embed,
    "_normalize_rows": _layer_norm,
    **dict.fromkeys(("_normalize", "_moving_batch_norm", "_batch_norm"), _batch_norm),
    "_dropout": _dropout,
    "_lstm_cell": _lstm_cell,
}
"""The layer that a call of a function may be, by function."""
_STATISTICAL = ("BatchNorm", "LayerNorm")
_PARSED = (*_TEMPLATES, "_attention", "jax.nn.softmax")
_SCALED = ".shape["
