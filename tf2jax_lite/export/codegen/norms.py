"""Write normalizations, dense layers and cells as calls with a layer's params.

In training, a batch normalization updates moving statistics: the new averages are those of the batch's mean and
variance.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.calling.params import param_path

from .block_ir import Block, Equation, Literal, Scope
from .entries import Entry
from .idioms.candidates import call, trace
from .idioms.graph import Graph, Item
from .idioms.matching import arguments_of
from .idioms.shapes import aval, new, scalar_literal

STEP = "batch_norm"
_STATISTICS = ("moving_mean", "moving_variance")
_WEIGHTS: tuple[str, ...] = ("gamma", "beta")
_ROWS = "_normalize_rows"
_SEVERAL = 2  # dense layers for which there is a function


@dataclasses.dataclass
class _Normalization:
    """Operands of ``(x - mean) / sqrt(variance + epsilon)``, scaled and shifted."""

    x: Item
    mean: Item
    variance: Item
    weights: dict[str, Item]
    epsilon: np.ndarray


def write_batch_norms(entry: Entry, names: Collection[str], rules: Mapping[str, Any]) -> None:
    """Write batch normalizations, and updates of moving statistics by them.

    Args:
      entry: a function after its idioms are written; changed in place.
      names: names of all params.
      rules: the local rules of idioms, by primitive.
    """
    graph = Graph(entry.block)
    for step in entry.block.steps:
        graph.finish(step)
    variables = dict(zip(map(id, entry.block.args), entry.variables, strict=False))
    averages = _averages(entry, graph, variables)
    for place, step in enumerate(entry.block.steps):
        found = _normalization(graph, step, rules)
        if found is None:
            continue
        given = {word: variables.get(id(item)) for word, item in found.weights.items()}
        statistics = [found.mean, found.variance]
        momentum = None
        if any(id(item) in averages for item in statistics):
            if not _is_of_batch(graph, found, rules):
                continue
            known = [averages.get(id(item), ("", None)) for item in statistics]
            owners, momenta = [name for name, _ in known], {m for _, m in known}
            if len(momenta) != 1 or None in momenta:
                continue
            (momentum,) = momenta
        else:
            owners = [variables.get(id(item)) for item in statistics]
        given.update(zip(_STATISTICS, owners, strict=True))
        scope = _scope(given, names)
        if scope is None:
            continue
        params = {"epsilon": float(str(found.epsilon)), "momentum": momentum}
        inputs = [found.x, _params_of(scope), Literal(np.asarray(momentum is not None))]
        entry.block.steps[place] = new(STEP, params, inputs, step, step.outputs)
        if momentum is not None:
            entry.in_place |= {name for name in owners if name}
    entry.drop_unused_results()


def _scope(given: Mapping[str, str | None], names: Collection[str]) -> tuple[str, ...] | None:
    """Return the path of the layer that has all params of some roles, or None."""
    paths = {role: param_path(name, names) for role, name in given.items() if name is not None}
    scopes = {path[:-1] for path in paths.values()}
    if len(paths) < len(given) or len(scopes) != 1 or any(path[-1] != role for role, path in paths.items()):
        return None
    (scope,) = scopes
    others = {path[-1] for path in (param_path(name, names) for name in names) if path[:-1] == scope}
    return scope if others & {*_WEIGHTS} == given.keys() & {*_WEIGHTS} else None


def _averages(entry: Entry, graph: Graph, variables: Mapping[int, str]) -> dict[int, tuple[str, float]]:
    """Return values of moving averages: the variable, and its former value's factor."""
    found: dict[int, tuple[str, float]] = {}
    read = [id(v) for v in entry.block.used()]
    for name, index in entry.updates.items():
        result = entry.block.results[index]
        terms = [graph.definition(v) for v in _operands(graph.definition(result), "add")]
        if len(terms) != 2 or read.count(id(result)) != 1:
            continue
        products = [(v, scalar_literal(k)) for t in terms for v, k in [_operands(t, "mul") or (None, None)] if k]
        if len(products) != 2 or any(k is None or k.dtype != np.float32 for _, k in products):
            continue
        (old, factor), (value, rest) = products
        momentum = float(str(factor))
        if variables.get(id(old)) == name and read.count(id(old)) == 1 and rest == np.float32(1 - momentum):
            found[id(value)] = name, momentum
    return found


def _operands(step: Equation | None, name: str) -> list[Any]:
    return step.inputs if step is not None and step.name == name else []


def _normalization(graph: Graph, step: Equation, rules: Mapping[str, Any]) -> _Normalization | None:
    """Return the normalization that a step computes."""
    if step.params.get("function") == "_normalize":
        x, mean, variance, gamma, beta, epsilon = step.inputs
        number = scalar_literal(epsilon)
        return number if number is None else _Normalization(x, mean, variance, {"gamma": gamma, "beta": beta}, number)
    x = step.outputs[0].aval if step.name == "add" else None
    root = next((r for v in step.inputs if (r := graph.nearest(v, "rsqrt"))), None) if x is not None else None
    shifted = graph.definition(root.inputs[0]) if root is not None else None
    epsilon = next((n for v in _operands(shifted, "add") if (n := scalar_literal(v)) is not None), None)
    if x is None or epsilon is None or len(x.shape) < 2:
        return None
    vector = aval(x.shape[-1:], x.dtype)
    kept = aval((*[1] * (len(x.shape) - 1), x.shape[-1]), x.dtype)
    for words in (("gamma",), ("beta",), ()):
        for mean in (vector, kept):
            avals = [x, mean, vector, *[vector] * len(words)]
            pattern = trace(_normalized, avals, {"words": words, "epsilon": epsilon}, rules)
            found = arguments_of(graph, step.outputs, pattern) if pattern is not None else None
            if found is not None:
                given, middle, variance, *weights = found
                return _Normalization(given, middle, variance, dict(zip(words, weights, strict=True)), epsilon)
    return None


def _normalized(x: Any, mean: Any, variance: Any, *weights: Any, words: Sequence[str], epsilon: Any) -> Any:
    """Normalize as `tf.nn.batch_normalization` does."""
    given = dict(zip(words, weights, strict=True))
    scale = lax.rsqrt(variance + epsilon)
    scale = scale * given["gamma"] if "gamma" in given else scale
    return x * scale + (given["beta"] - mean * scale if "beta" in given else -mean * scale)


def _is_of_batch(graph: Graph, found: _Normalization, rules: Mapping[str, Any]) -> bool:
    """Return whether the mean and variance are those of all axes but the last."""
    pattern = trace(_moments, [found.x.aval], {}, rules)
    given = arguments_of(graph, [found.mean, found.variance], pattern) if pattern is not None else None
    return given is not None and given[0] is found.x


def _moments(x: Any) -> Any:
    """Compute the mean and variance of channels as `tf.nn.moments` does."""
    axes = tuple(range(x.ndim - 1))
    mean = jnp.mean(x, axis=axes, keepdims=True)
    squares = jnp.square(x - lax.stop_gradient(mean))
    return jnp.squeeze(mean, axes), jnp.squeeze(jnp.mean(squares, axis=axes, keepdims=True), axes)


def write_layer_norms(blocks: Mapping[str, tuple[Block, Sequence[str]]], names: Collection[str]) -> None:
    """Pass layers to normalizations of the last axis, if each has a layer's params.

    Args:
      blocks: name of a function to its block and the names of the variables that it takes.
      names: names of all params.
    """
    found: list[tuple[Block, int, tuple[str, ...]]] = []
    for block, own in blocks.values():
        variables = dict(zip(map(id, block.args), own, strict=False))
        for place, step in enumerate(block.steps):
            if any(inner.has(_ROWS) for inner in step.blocks.values()):
                return
            if step.params.get("function") == _ROWS:
                given = dict(zip(_WEIGHTS, (variables.get(id(v)) for v in step.inputs[1:3]), strict=True))
                scope = _scope(given, names)
                if scope is None:
                    return
                found.append((block, place, scope))
    for block, place, scope in found:
        step = block.steps[place]
        inputs = [step.inputs[0], _params_of(scope), *step.inputs[3:]]
        block.steps[place] = call("_layer_norm", inputs, step, step.outputs, words=step.params["words"])


def pass_layers(block: Block, variables: Mapping[int, str], names: Collection[str]) -> None:
    """Pass the scope that has them instead of a dict of params.

    Args:
      block: changed in place, inner functions, too.
      variables: name of each value that is a param, by identity.
      names: names of all params.
    """
    for step in block.steps:
        for inner, pairs in step.closures():
            pass_layers(inner, {id(arg): variables[id(v)] for arg, v in pairs if id(v) in variables}, names)
        if step.name == "call" and (layer := step.params.get("weights")):
            count = len(step.inputs) - len(layer)
            given = {word: variables.get(id(v)) for word, v in zip(layer, step.inputs[count:], strict=True)}
            scope = _scope(given, names)
            if scope is not None:
                step.inputs = [*step.inputs[:count], _params_of(scope)]
                step.params = {key: value for key, value in step.params.items() if key != "weights"}


def write_dense_layers(entries: Sequence[Entry], names: Collection[str]) -> None:
    """Write products with a kernel, plus a bias, as calls, if there are several.

    Args:
      entries: functions; changed in place.
      names: names of all params.
    """
    found: list[tuple[Block, Equation, Item, tuple[str, ...]]] = []
    for entry in entries:
        found += _dense_layers(entry.block, dict(zip(map(id, entry.block.args), entry.variables, strict=False)), names)
    if len(found) < _SEVERAL:
        return
    for block, step, x, scope in found:
        made = call("_dense", [x, _params_of(scope)], step, step.outputs)
        block.steps[block.steps.index(step)] = made
        block.prune()


def _dense_layers(
    block: Block, variables: Mapping[int, str], names: Collection[str]
) -> Iterator[tuple[Block, Equation, Item, tuple[str, ...]]]:
    """Yield sums that are dense layers, with their block, input, and layer's path."""
    makers = {id(v): step for step in block.steps for v in step.outputs}
    uses = Counter(id(v) for v in block.used())
    for step in block.steps:
        for inner, pairs in step.closures():
            own = {id(arg): variables[id(v)] for arg, v in pairs if id(v) in variables}
            yield from _dense_layers(inner, own, names)
        for product, bias in (step.inputs, step.inputs[::-1]) if step.name == "add" else ():
            maker = makers.get(id(product))
            if maker is None or maker.name != "dot_general" or uses[id(product)] > 1 or id(bias) not in variables:
                continue
            x, kernel = maker.inputs
            axes = ((len(x.aval.shape) - 1,), (0,)), ((), ())
            numbers = tuple(tuple(map(tuple, pair)) for pair in maker.params["dimension_numbers"])
            plain = numbers == axes and maker.params["precision"] is None and len(kernel.aval.shape) == 2
            same_dtype = len({v.aval.dtype for v in (x, kernel, bias, *step.outputs)}) == 1
            scope = _scope({"kernel": variables.get(id(kernel)), "bias": variables.get(id(bias))}, names)
            if plain and same_dtype and bias.aval.shape == kernel.aval.shape[-1:] and scope is not None:
                yield block, step, x, scope


def _params_of(scope: tuple[str, ...]) -> Scope:
    return Scope(aval((), np.dtype(np.float32)), path=scope)


def write_without_training(block: Block) -> None:
    """Write the normalizations of a module that has no training mode."""
    for place, step in enumerate(block.steps):
        if step.name == STEP:
            words = {"epsilon": step.params["epsilon"]}
            block.steps[place] = call("_moving_batch_norm", step.inputs[:2], step, step.outputs, words)


def has_updates(block: Block) -> bool:
    """Return whether a block has a normalization that updates params."""
    return any(step.name == STEP and step.params["momentum"] is not None for step in block.steps)
