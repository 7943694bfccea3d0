"""Dependence of a jaxpr's results on the examples of a batch.

Abstract interpretation: each value has the axis along which its examples lie. Primitives without a rule mix examples,
so that results whose examples lie along an axis depend on each example alone: a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .compat import Literal, scan_counts
from .evaluate import parts


class Examples(NamedTuple):
    """Examples along an axis.

    Attributes:
      block: the number of successive elements of the axis that belong to one example.
    """

    axis: int
    block: int = 1


MIXED = Examples(-1, 0)
"""Of values that depend on several examples in another way."""
Tag = Examples | None
"""None: the value does not depend on examples."""


def examples_of_results(closed: Any, tags: Sequence[Tag]) -> list[Tag]:
    """Return where the examples of each result of a jaxpr lie."""
    jaxpr, _ = parts(closed)
    known: dict[Any, Tag] = dict(zip(jaxpr.constvars, [None] * len(jaxpr.constvars), strict=True))
    known.update(zip(jaxpr.invars, tags, strict=True))

    def read(atom: Any) -> Tag:
        return None if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        if all(tag is None for tag in given):
            found: Sequence[Tag] = [None] * len(eqn.outvars)
        elif any(tag is MIXED for tag in given) and eqn.primitive.name not in _CONTROL_FLOW:
            found = [MIXED] * len(eqn.outvars)
        else:
            found = _of_equation(eqn, given)
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _of_equation(eqn: Any, given: Sequence[Tag]) -> Sequence[Tag]:
    name, count = eqn.primitive.name, len(eqn.outvars)
    if name in _CONTROL_FLOW:
        return _CONTROL_FLOW[name](eqn, given)
    if name in ELEMENTWISE:
        return [_joined(given)] * count
    if name in _RULES:
        return [_RULES[name](eqn, given)] * count
    inner = next((eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params), None)
    if inner is not None and len(parts(inner)[0].invars) == len(given):
        found = examples_of_results(inner, given)
        return found if len(found) == count else [MIXED] * count
    return [MIXED] * count


def _joined(tags: Sequence[Tag]) -> Tag:
    """Return the examples of a value that is computed elementwise from several."""
    found = {tag for tag in tags if tag is not None}
    return MIXED if len(found) > 1 else next(iter(found), None)


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(atom.aval.shape)


def _moved(tag: Examples, axes: Sequence[int]) -> Tag:
    """Return the examples where ``axes`` lists the old axes of the new ones."""
    return tag._replace(axis=list(axes).index(tag.axis)) if tag.axis in axes else MIXED


def _reshaped(eqn: Any, given: Sequence[Tag]) -> Tag:
    tag, old, new = given[0], _shape(eqn.invars[0]), _shape(eqn.outvars[0])
    if tag is None or eqn.params.get("dimensions") is not None:
        return MIXED
    outer, elements = math.prod(old[: tag.axis]), tag.block * math.prod(old[tag.axis + 1 :])
    for axis, size in enumerate(new):
        inner = math.prod(new[axis + 1 :])
        whole = inner and elements % inner == 0 and math.prod(new[:axis]) == outer
        if whole and size * tag.block * inner == old[tag.axis] * elements and elements // inner:
            return Examples(axis, elements // inner)
    return MIXED


def _without(axes: str) -> Callable[[Any, Sequence[Tag]], Tag]:
    def rule(eqn: Any, given: Sequence[Tag]) -> Tag:
        tag, removed = _joined(given), eqn.params[axes]
        assert tag is not None
        rank = len(_shape(eqn.invars[0]))
        return _moved(tag, [axis for axis in range(rank) if axis not in [a % rank for a in removed]])

    return rule


def _along(axis: Callable[[Any], Any]) -> Callable[[Any, Sequence[Tag]], Tag]:
    """Return the rule of primitives that mix the elements of some axes."""

    def rule(eqn: Any, given: Sequence[Tag]) -> Tag:
        tag, found = _joined(given), axis(eqn)
        assert tag is not None
        axes = [found] if isinstance(found, int) else list(found)
        return MIXED if tag.axis in [a % len(_shape(eqn.invars[0])) for a in axes] else tag

    return rule


def _sliced(eqn: Any, given: Sequence[Tag]) -> Tag:
    """Of slices that keep the examples' axis, at equal places for all."""
    tag = given[0]
    if tag is None or any(other is not None for other in given[1:]):
        return MIXED
    kept = _shape(eqn.outvars[0])[tag.axis] == _shape(eqn.invars[0])[tag.axis]
    return tag if kept else MIXED


def _updated(eqn: Any, given: Sequence[Tag]) -> Tag:
    tag = _joined(given)
    if tag is None or any(index is not None for index in given[2:]):
        return MIXED
    whole = _shape(eqn.invars[0])[tag.axis]
    return tag if _shape(eqn.invars[1])[tag.axis] == whole else MIXED


def _padded(eqn: Any, given: Sequence[Tag]) -> Tag:
    tag = given[0]
    return tag if tag is not None and tuple(eqn.params["padding_config"][tag.axis]) == (0, 0, 0) else MIXED


def _windowed(eqn: Any, given: Sequence[Tag]) -> Tag:
    tag, params = _joined(given), eqn.params
    assert tag is not None
    sizes = [params[n][tag.axis] for n in ("window_dimensions", "window_strides") if n in params]
    return tag if all(size == 1 for size in sizes) and tuple(params["padding"][tag.axis]) == (0, 0) else MIXED


def _product(eqn: Any, given: Sequence[Tag]) -> Tag:
    contracted, batched = eqn.params["dimension_numbers"]
    free = [
        [a for a in range(len(_shape(atom))) if a not in contracted[i] and a not in batched[i]]
        for i, atom in enumerate(eqn.invars)
    ]
    found = []
    for i, tag in enumerate(given):
        if tag is None:
            continue
        if tag.axis in batched[i]:
            found.append(tag._replace(axis=list(batched[i]).index(tag.axis)))
        elif tag.axis in free[i] and given[1 - i] is None:
            before = len(batched[0]) + (len(free[0]) if i else 0)
            found.append(tag._replace(axis=before + free[i].index(tag.axis)))
        else:
            return MIXED
    return _joined(found)


def _convolved(eqn: Any, given: Sequence[Tag]) -> Tag:
    tag, numbers = given[0], eqn.params["dimension_numbers"]
    if tag is None or given[1] is not None or eqn.params["batch_group_count"] != 1 or tag.axis != numbers.lhs_spec[0]:
        return MIXED
    return tag._replace(axis=numbers.out_spec[0])


def _gathered(eqn: Any, given: Sequence[Tag]) -> Tag:
    numbers, (operand, indices) = eqn.params["dimension_numbers"], given[:2]
    rank = len(_shape(eqn.outvars[0]))
    places = [axis for axis in range(rank) if axis not in numbers.offset_dims]  # of the indices' axes but the last
    if indices is not None:
        at = places[indices.axis] if indices.axis < len(places) else None
        pairs = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
        fits = operand is None or (pairs.get(indices.axis) == operand.axis and operand.block == indices.block)
        return indices._replace(axis=at) if fits and at is not None else MIXED
    assert operand is not None
    collapsed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [axis for axis in range(len(_shape(eqn.invars[0]))) if axis not in collapsed]
    whole = operand.axis in kept and eqn.params["slice_sizes"][operand.axis] == _shape(eqn.invars[0])[operand.axis]
    return operand._replace(axis=numbers.offset_dims[kept.index(operand.axis)]) if whole else MIXED


def _of_matrices(eqn: Any, given: Sequence[Tag]) -> Tag:
    tag = _joined(given)
    return tag if tag is not None and tag.axis < len(_shape(eqn.invars[0])) - 2 else MIXED


def _scanned(eqn: Any, given: Sequence[Tag]) -> Sequence[Tag]:
    consts, carries = scan_counts(eqn.params)
    sliced = [
        tag if tag is None or tag is MIXED else _moved(tag, range(1, 1 << 8)) for tag in given[consts + carries :]
    ]

    def run(carry: Sequence[Tag]) -> list[Tag]:
        return examples_of_results(eqn.params["jaxpr"], [*given[:consts], *carry, *sliced])

    carry = _fixed_point(given[consts : consts + carries], lambda carry: run(carry)[:carries])
    stacked = [tag if tag is None or tag is MIXED else tag._replace(axis=tag.axis + 1) for tag in run(carry)[carries:]]
    return [*carry, *stacked]


def _looped(eqn: Any, given: Sequence[Tag]) -> Sequence[Tag]:
    params = eqn.params
    of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
    condition, body = given[:of_condition], given[of_condition : of_condition + of_body]
    carry = _fixed_point(
        given[of_condition + of_body :], lambda carry: examples_of_results(params["body_jaxpr"], [*body, *carry])
    )
    decides = examples_of_results(params["cond_jaxpr"], [*condition, *carry])[0]
    return carry if decides is None else [MIXED] * len(carry)


def _fixed_point(start: Sequence[Tag], step: Callable[[list[Tag]], Sequence[Tag]]) -> list[Tag]:
    carry = list(start)
    while True:
        after = [_joined(pair) for pair in zip(carry, step(carry), strict=True)]
        if after == carry:
            return carry
        carry = after


def _branched(eqn: Any, given: Sequence[Tag]) -> Sequence[Tag]:
    if given[0] is not None:
        return [MIXED] * len(eqn.outvars)
    branches = [examples_of_results(branch, given[1:]) for branch in eqn.params["branches"]]
    return [_joined(tags) for tags in zip(*branches, strict=True)]


_CONTROL_FLOW: dict[str, Callable[[Any, Sequence[Tag]], Sequence[Tag]]] = {
    "scan": _scanned,
    "while": _looped,
    "cond": _branched,
}
_RULES: dict[str, Callable[[Any, Sequence[Tag]], Tag]] = {
    "reshape": _reshaped,
    "broadcast_in_dim": lambda eqn, given: (
        given[0]._replace(axis=eqn.params["broadcast_dimensions"][given[0].axis]) if given[0] else MIXED
    ),
    "transpose": lambda eqn, given: _moved(given[0], eqn.params["permutation"]) if given[0] else MIXED,
    "squeeze": _without("dimensions"),
    **dict.fromkeys(
        ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"],
        _without("axes"),
    ),
    **dict.fromkeys(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"], _along(lambda e: e.params["axis"])),
    "sort": _along(lambda eqn: eqn.params["dimension"]),
    "rev": _along(lambda eqn: eqn.params["dimensions"]),
    "concatenate": _along(lambda eqn: eqn.params["dimension"]),
    "split": _along(lambda eqn: eqn.params["axis"]),
    "top_k": _along(lambda eqn: eqn.params.get("axis", -1)),
    "fft": _along(lambda eqn: range(-len(eqn.params["fft_lengths"]), 0)),
    "slice": _sliced,
    "dynamic_slice": _sliced,
    "dynamic_update_slice": _updated,
    "pad": _padded,
    **dict.fromkeys(["reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"], _windowed),
    "dot_general": _product,
    "conv_general_dilated": _convolved,
    "gather": _gathered,
    **dict.fromkeys(["cholesky", "triangular_solve", "lu", "eigh", "svd", "qr"], _of_matrices),
}


_NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj
    convert_element_type copy copy_p cos cosh device_put digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor
    forward_only ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt
    lt_to materialize max min mul mul_no_nan mulhi name ne neg nextafter not optimization_barrier or polygamma
    population_count pow pvary real reduce_precision regularized_incomplete_beta rem reverse_only reverse_only_tangent
    round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient
    sub tan tanh threefry2x32 xor zeta
"""

ELEMENTWISE = frozenset(_NAMES.split())
"""Operands are scalars or have the shape of the results, of which there may be several."""
