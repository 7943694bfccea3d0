"""Make a program that differs small, without drawing again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from .oracle import Finding, check
from .programs import PARAM, Node, Program, Ref, Refused, make_variables, run


def shrink(program: Program, finding: Finding, attempts: int = 40) -> tuple[Program, Finding]:
    """Return a minimal program that differs in the same way, and its finding.

    Every candidate is run: the node at fault alone, on values that are parameters; then, if it takes more than that,
    without one node after the other, its results becoming parameters; then without inner ones.
    """
    left = [attempts]

    def try_it(candidate: Program | None) -> bool:
        nonlocal program, finding
        if candidate is None or left[0] <= 0 or candidate.size() >= program.size():
            return False
        left[0] -= 1
        try:
            found = check(candidate).finding
        except Refused:
            return False
        if found is None or (found.kind, found.op) != (finding.kind, finding.op):
            return False
        program, finding = candidate, found
        return True

    known = [n.number for n in program.nodes if n.number == finding.number]
    if known:
        try_it(_without(program, {n.number for n in program.nodes} - set(known)))
        try_it(_ancestors(program, known))
    size = len(program.nodes)
    while size > 1 and finding.number < 0:  # an error that names no node: halves first
        size //= 2
        for start in range(0, len(program.nodes), max(size, 1)):
            try_it(_without(program, {n.number for n in program.nodes[start : start + size]}))
    for node in program.nodes:
        if node.number != finding.number:
            try_it(_without(program, {node.number}))
    for node in program.nodes:
        for candidate in _smaller_bodies(program, node):
            try_it(candidate)
    return program, finding


def _ancestors(program: Program, numbers: Iterable[int]) -> Program | None:
    needed = set(numbers)
    for node in reversed(program.nodes):
        if node.number in needed:
            needed |= {ref.node for ref in node.refs()}
    return _without(program, {n.number for n in program.nodes} - needed)


def _without(program: Program, numbers: set[int]) -> Program | None:
    """Return a program without some nodes, whose values become parameters."""
    if not numbers:
        return None
    try:
        values = run(program, [tf.constant(p) for p in program.params], make_variables(program))
    except Refused:
        return None
    nodes = [node for node in program.nodes if node.number not in numbers]
    wanted = sorted({ref for node in nodes for ref in node.refs() if ref.node == PARAM or ref.node in numbers})
    new = {ref: Ref(PARAM, index) for index, ref in enumerate(wanted)}
    params = tuple(np.asarray(values[ref].numpy()) for ref in wanted)
    return dataclasses.replace(program, params=params, nodes=tuple(_renamed(n, lambda r: new.get(r, r)) for n in nodes))


def _renamed(node: Node, rename: Callable[[Ref], Ref]) -> Node:
    inputs = tuple(
        [rename(v) if isinstance(v, Ref) else v for v in value]
        if isinstance(value, list)
        else rename(value)
        if isinstance(value, Ref)
        else value
        for value in node.inputs
    )
    return dataclasses.replace(node, inputs=inputs)


def _smaller_bodies(program: Program, node: Node) -> Iterable[Program]:
    """Yield programs in which a body of a node lacks what its results do not need."""
    for index, body in enumerate(node.bodies):
        needed = {ref.node for ref in body.results}
        for inner in reversed(body.nodes):
            if inner.number in needed:
                needed |= {ref.node for ref in inner.refs()}
        for dropped in ({n.number for n in body.nodes} - needed, *({n.number} for n in body.nodes)):
            kept = tuple(n for n in body.nodes if n.number not in dropped)
            defined = {n.number for n in kept} | {PARAM}
            used = [*body.results, *(ref for n in kept for ref in n.refs())]
            if not dropped or any(ref.node not in defined for ref in used):
                continue
            smaller = dataclasses.replace(body, nodes=kept)
            bodies = (*node.bodies[:index], smaller, *node.bodies[index + 1 :])
            changed = dataclasses.replace(node, bodies=bodies)
            yield dataclasses.replace(program, nodes=tuple(changed if n is node else n for n in program.nodes))
