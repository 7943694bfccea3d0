"""Match functions by their jaxpr, and replace each match by a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.export.codegen.block_ir import Block, Equation, Literal, Value, from_jaxpr
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation

from .graph import Graph, Replacement, Rule, rewrite_steps
from .matching import Match, find
from .shapes import new

Proposal = tuple[Sequence[Any], Mapping[str, Any]]
"""Types of the arrays, and static keywords, for which a candidate is tried."""


_MODULES = {"jax.nn": jax.nn, "jnp": jnp, "lax": lax}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A function, as it is written and as it is found.

    Attributes:
      name: its name in the source.
      identity: why it equals the reference, derivative included.
      reference: is traced; takes arrays, and static keywords.
      roots: primitives that compute its first result.
      propose: returns the argument types and static keywords that a step of a root primitive suggests.
      words: names of its last array arguments, which the source passes by keyword.
      weights: names of its last array arguments, params of a layer, which the source passes as a dict.
      emit: returns the steps to write instead of a call of ``name``, None for none.
      needs: a primitive or function among the steps shortly before a root; others are not compared at all.
    """

    name: str
    identity: str
    reference: Callable[..., Any]
    roots: tuple[str, ...]
    propose: Callable[[Graph, Equation], Iterable[Proposal]]
    words: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    emit: Callable[[Graph, Equation, Match], Replacement | None] | None = None
    needs: str = ""


def call(
    function: str,
    inputs: Sequence[Any],
    like: Equation,
    outputs: Any,
    keywords: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
    weights: Sequence[str] = (),
) -> Equation:
    """Return a step that calls a function by name.

    Args:
      function: its name in the source.
      inputs: its arrays.
      like: the step whose scope the call belongs to.
      outputs: the values that it computes, or the type of a new one.
      keywords: static arguments.
      words: names of the last arrays, which are passed by keyword.
      weights: names of the last arrays, which are passed as a dict.
    """
    params = {"function": function, "keywords": tuple((keywords or {}).items()), "words": tuple(words)}
    params |= {"weights": tuple(weights)} if weights else {}
    return new("call", params, inputs, like, outputs)


def as_rule(candidate: Candidate, rules: Mapping[str, Sequence[Rule]]) -> Rule:
    """Return the rule that replaces a function's jaxpr by its call.

    Args:
      candidate: the function.
      rules: rules that its own jaxpr is rewritten by, as the block is before it is compared.
    """
    patterns: dict[Any, Block | None] = {}
    inner: dict[Any, list[str]] = {}  # static keywords to the primitives of the function's derivative rules

    def rule(graph: Graph, step: Equation) -> Replacement | None:
        if candidate.needs and not any(graph.nearest(v, candidate.needs) for v in step.inputs):
            return None
        for avals, keywords in candidate.propose(graph, step):
            words = tuple(keywords.items())
            own = _inner_primitives(step)
            if inner.get(words, own) != own:
                continue  # no need to trace it at these shapes, too
            key = (tuple((tuple(a.shape), np.dtype(a.dtype)) for a in avals), words)
            if key not in patterns:
                pattern = trace(candidate.reference, avals, keywords, rules)
                if pattern is not None and not _has_results(candidate, avals, keywords, pattern.results):
                    pattern = None
                patterns[key] = pattern
                if pattern is not None:
                    inner.setdefault(words, _inner_primitives(pattern.steps[-1]))
            pattern = patterns[key]
            match = find(graph, step, pattern) if pattern is not None else None
            if match is None:
                continue
            if candidate.emit is not None:
                return candidate.emit(graph, step, match)
            first, *others = match.results
            fresh = [Value(v.aval, v.hint) for v in others]
            for old, value in zip(others, fresh, strict=True):
                graph.redirect(old, value)
            outputs, words = [first, *fresh], candidate.words
            return [call(candidate.name, match.arguments, step, outputs, keywords, words, candidate.weights)]
        return None

    return rule


def _has_results(
    candidate: Candidate, avals: Sequence[Any], keywords: Mapping[str, Any], results: Sequence[Any]
) -> bool:
    """Return whether the function in the source has results of the reference's types.

    Functions of `jax.nn` convert integers to floats, which TensorFlow's ops do not.
    """
    prefix, _, name = candidate.name.rpartition(".")
    fn = getattr(_MODULES.get(prefix), name, candidate.reference)
    if candidate.emit is not None or fn is candidate.reference:
        return True
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    first = len(structs) - len(candidate.words)
    by_name = dict(zip(candidate.words, structs[first:], strict=True))
    found = jax.eval_shape(lambda args, by_name: fn(*args, **by_name, **keywords), structs[:first], by_name)
    return [(f.shape, f.dtype) for f in jax.tree.leaves(found)] == [(r.aval.shape, r.aval.dtype) for r in results]


def _inner_primitives(step: Equation) -> list[str]:
    return [s.name for block in step.blocks.values() for s in block.steps]


def trace(
    fn: Callable[..., Any], avals: Sequence[Any], keywords: Mapping[str, Any], rules: Mapping[str, Sequence[Rule]]
) -> Block | None:
    """Return a function's block, rewritten by rules; None if it has no such arguments."""
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    try:
        block = from_jaxpr(jax.make_jaxpr(lambda *args: fn(*args, **keywords))(*structs))
    except (TypeError, ValueError, InconclusiveDimensionOperation):
        return None
    rewrite_all(block, rules)
    return block if block.steps and not isinstance(block.results[0], Literal) else None


def rewrite_all(block: Block, rules: Mapping[str, Sequence[Rule]]) -> None:
    """Rewrite a block and its inner functions, in place."""
    for step in block.steps:
        for inner in step.blocks.values():
            rewrite_all(inner, rules)
    rewrite_steps(block, rules)
