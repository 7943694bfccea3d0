"""Cheap search for expanded calls; `recognizer` proves or drops each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.stablehlo.interpreter.dot_conv_fft import precision_of
from tf2jax_lite.stablehlo.parsing.module import Op, Region, TensorType

from .known_calls import ARITY, COMPLEX, POLYNOMIALS, Idiom, frozen
from .subgraph_match import Makers


def candidates(region: Region, makers: Makers) -> Iterator[Idiom]:
    """Yield the candidate idioms of a region's own ops, each once.

    Args:
      region: the region.
      makers: the defining ops of its function's values.
    """
    seen: dict[Idiom, None] = {}
    for op in region.ops:
        for found in _of_op(op, region, makers):
            seen[found] = None
    yield from seen


Search = Callable[[Op, Region, Makers], Iterator[Idiom]]
_SEARCHES: dict[str, list[Search]] = {}
"""The searches that start at an op, by its name."""


def _starts_at(*names: str) -> Callable[[Search], Search]:
    """Register a search that starts at ops of these names."""

    def register(search: Search) -> Search:
        for name in names:
            _SEARCHES.setdefault(name, []).append(search)
        return search

    return register


def _of_op(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    for search in _SEARCHES.get(op.name, ()):
        yield from search(op, region, makers)
    named = op.where.rpartition("/")[2]
    if named in _NAMED and not op.name.startswith("chlo."):
        for type_ in _float_types([op] if op.name != "stablehlo.constant" else region.ops):
            yield _function(named, type_)


_NAMED = frozenset(["bessel_i0e", "erfc", "nextafter", "polygamma", "zeta", *POLYNOMIALS])
"""Functions whose name is in the location of their expansion."""


def _words(*shape: int) -> TensorType:
    return TensorType(np.dtype(np.uint32), shape)


def _function(name: str, type_: TensorType) -> Idiom:
    return Idiom(name, (type_,) * ARITY.get(name, 1))


def _tensors(types: Sequence[Any]) -> bool:
    return all(isinstance(t, TensorType) and t.is_static for t in types)


# ---- special functions ----

_MIN_FLOATS = 4  # carried by a series


@_starts_at("stablehlo.complex")
def _complex_function(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    if _tensors(op.types[:1]):
        for function in COMPLEX:
            yield _function(function, op.types[0])


@_starts_at("stablehlo.while")
def _series(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a series: a loop over floats of one shape, ended by a bool."""
    floats = [t for t in op.types if _is_float(t)]
    masks = [t for t in op.types if isinstance(t, TensorType) and t.dtype == np.bool_]
    shapes = {t.shape for t in op.types if isinstance(t, TensorType)} - {()}
    if len(floats) < _MIN_FLOATS or len(masks) != 1 or len(shapes) > 1:
        return
    shape = max(shapes, default=())
    for dtype in sorted({t.dtype for t in _float_types(region.ops) if t.shape == shape}, key=str):
        for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "betainc"):
            yield _function(name, TensorType(dtype, shape))


def _float_types(ops: Sequence[Op]) -> list[TensorType]:
    """Return the floating types of the ops' results, at most four."""
    found = {t: None for op in ops for t in op.types if _is_float(t)}
    return list(found)[:4]


def _is_float(type_: Any) -> bool:
    return isinstance(type_, TensorType) and type_.is_static and jnp.issubdtype(type_.dtype, jnp.floating)


# ---- products ----


@_starts_at("stablehlo.dot_general")
def _products(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    if not _tensors((*op.operand_types, *op.types)):
        return
    maker = makers.ops.get(op.operands[0])
    if maker is not None and maker[0].name == "stablehlo.select":
        yield from _ragged_dot(op)
    maker = makers.ops.get(op.operands[1])
    if maker is not None and maker[0].name == "stablehlo.transpose" and maker[0].operands[0] == op.operands[0]:
        yield from _symmetric_product(op, region, makers)


def _ragged_dot(op: Op) -> Iterator[Idiom]:
    """Find a ragged dot: operands repeated by group, with others' rows masked."""
    lhs, rhs = op.operand_types
    dims = op.attrs["dot_dimension_numbers"]
    left, right = dims["lhs_contracting_dimensions"], dims["rhs_contracting_dimensions"]
    batch = dims["lhs_batching_dimensions"], dims["rhs_batching_dimensions"]
    if len(lhs.shape) != 3 or len(rhs.shape) != 3 or left[0] == 0 or right[0] == 0:
        return
    contract = (((left[0] - 1,), (right[0] - (batch[0] != ()),)), ((), ()))
    if batch == ((), ()) and left[1:] == right[1:] == (0,):  # each group has a matrix of its own
        types = _rows(lhs), rhs
        numbers = ((contract[0][0], right[:1]), contract[1]), (2 - left[0],), (0,)
    elif batch == ((0,), (0,)) and len(left) == len(right) == 1:  # each group gives one
        types = _rows(lhs), _rows(rhs)
        numbers = contract, contract[0][0], ()
    else:
        return
    precision = precision_of(op.attrs)
    for preferred in (None, op.types[0].dtype):
        for width in (np.int32, *((np.int64,) if jax.config.read("jax_enable_x64") else ())):
            options = {"numbers": numbers, "precision": precision, "preferred": preferred}
            sizes = TensorType(np.dtype(width), lhs.shape[:1])
            yield Idiom("ragged_dot", (*types, sizes), tuple(options.items()))


def _rows(type_: TensorType) -> TensorType:
    return TensorType(type_.dtype, type_.shape[1:])


@_starts_at("chlo.top_k", "stablehlo.composite")
def _top_k(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a top_k along another axis than the last."""
    if op.name != "chlo.top_k" and op.attrs["name"] != "chlo.top_k":
        return
    k = op.attrs.get("k", op.attrs.get("composite_attributes", {}).get("k"))
    maker = makers.ops.get(op.operands[0])
    if k is None or maker is None or maker[0].name != "stablehlo.transpose" or not _tensors(op.operand_types):
        return
    options = (("k", int(np.asarray(k))), ("axis", int(maker[0].attrs["permutation"][-1])))
    yield Idiom("top_k", maker[0].operand_types, options)


def _symmetric_product(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find alpha * a @ a.T + beta * c, with constant factors."""

    def factor(value: int) -> float | None:
        maker = makers.ops.get(value)
        if maker is None or maker[0].name != "stablehlo.multiply":
            return None
        scale = makers.ops.get(maker[0].operands[0])
        while scale is not None and scale[0].name == "stablehlo.broadcast_in_dim":
            scale = makers.ops.get(scale[0].operands[0])
        if scale is None or scale[0].name != "stablehlo.constant" or scale[0].attrs["value"].size != 1:
            return None
        return float(scale[0].attrs["value"].reshape(()))

    scaled = {v for other in region.ops if op.results[0] in other.operands for v in other.results}
    for total in region.ops:
        if total.name == "stablehlo.add" and total.operands[0] in scaled:
            alpha, beta = map(factor, total.operands)
            if alpha is not None and beta is not None:
                options = (("alpha", alpha), ("beta", beta))
                yield Idiom("symmetric_product", (op.operand_types[0], op.types[0]), options)


@_starts_at("stablehlo.convolution")
def _complex_convolution(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a complex convolution, expanded to three real ones."""

    def whole(value: int) -> TensorType | None:
        maker = makers.ops.get(value)
        if maker is not None and maker[0].name in ("stablehlo.add", "stablehlo.subtract"):
            maker = makers.ops.get(maker[0].operands[0])
        if maker is None or maker[0].name not in ("stablehlo.real", "stablehlo.imag"):
            return None
        return maker[0].operand_types[0]

    lhs, rhs = (whole(v) for v in op.operands)
    if lhs is not None and rhs is not None and _tensors((lhs, rhs)):
        yield Idiom("convolution", (lhs, rhs), (("attributes", frozen(dict(op.attrs))),))


# ---- windows ----


@_starts_at("stablehlo.reduce_window")
def _window_tangent(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a max pooling's tangent on GPU and TPU: pairs packed in wide words."""
    if len(op.types) != 1 or not _tensors(op.operand_types) or op.types[0].dtype not in (np.uint32, np.uint64):
        return
    shape = op.operand_types[0].shape
    rank = len(shape)
    ones = (1,) * rank
    padding = np.asarray(op.attrs.get("padding", np.zeros((rank, 2), int))).reshape(-1, 2)
    window = [op.attrs.get(name) or ones for name in ("window_dimensions", "window_strides")]
    window += [padding, *(op.attrs.get(name) or ones for name in ("base_dilations", "window_dilations"))]
    packed = {o.operand_types[0] for o in region.ops if o.name == "stablehlo.bitcast_convert"}
    for type_ in packed:
        if _is_float(type_) and type_.shape == shape:
            for kind in ("max", "min"):
                options = (("kind", kind), ("window", frozen(window)))
                for platform in ("cuda", "tpu"):
                    yield Idiom("window_tangent", (type_, type_), options, platform)


# ---- factorizations ----

_KERNEL = re.compile(r"(lapack|cusolver|hipsolver)_[sdcz]?(\w+?)_ffi")
_PLATFORM = {"lapack": "cpu", "cusolver": "cuda", "hipsolver": "rocm"}
_FACTORIZATIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "potrf": (("cholesky", {"symmetrize_input": False}),),
    "getrf": (("lu", {}),),
    "geqrf": (("qr", {"full_matrices": False}), ("qr", {"full_matrices": True}), ("qr_raw", {})),
    "syevd": tuple(("eigh", {"symmetrize_input": False, "lower": lower}) for lower in (True, False)),
    "heevd": tuple(("eigh", {"symmetrize_input": False, "lower": lower}) for lower in (True, False)),
    "gesdd": (
        ("svd", {"full_matrices": False}),
        ("svd", {"full_matrices": True}),
        ("svd", {"compute_uv": False}),
    ),
    "geev": tuple(
        ("eig", {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right})
        for left, right in ((False, False), (False, True), (True, False), (True, True))
    ),
    "gehrd": (("hessenberg", {}),),
    "gees": (("schur", {}), ("schur", {"compute_schur_vectors": False})),
}


@_starts_at("stablehlo.custom_call")
def _kernels(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    match = _KERNEL.fullmatch(str(op.attrs.get("call_target_name", "")))
    if match is None or not op.operand_types or not isinstance(op.operand_types[0], TensorType):
        return
    type_ = op.operand_types[0]
    if type_.is_static:
        for name, options in _FACTORIZATIONS.get(match[2], ()):
            yield Idiom(name, (type_,), tuple(options.items()), _PLATFORM[match[1]])


@_starts_at("stablehlo.while")
def _permutation(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a loop over pivots that carries a permutation."""
    if len(op.types) > 6 or not _tensors(op.types) or any(t.dtype.kind != "i" for t in op.types):
        return
    found = {t for t in op.types if t.shape and t.dtype == np.int32}
    for pivots in found:
        for order in found:
            if order.shape[:-1] == pivots.shape[:-1] and order.shape[-1] >= pivots.shape[-1]:
                options = (("permutation_size", order.shape[-1]),)
                yield Idiom("lu_pivots_to_permutation", (pivots,), options)


@_starts_at("stablehlo.scatter")
def _cholesky_update(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a Cholesky update, unrolled by row, each with a rotation in a branch."""
    if len(op.operand_types) != 3 or not _is_float(op.operand_types[0]):
        return
    matrix, _, row = op.operand_types
    size = matrix.shape[-1] if len(matrix.shape) == 2 else 0
    branches = sum(other.name == "stablehlo.case" for other in region.ops)
    if matrix.shape == (size, size) and row.shape == (size,) and branches >= size > 0:
        yield Idiom("cholesky_update", (matrix, TensorType(matrix.dtype, (size,))))


# ---- random numbers ----


@_starts_at("stablehlo.rng_bit_generator")
def _bit_generator(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    if op.types[1].is_static:
        algorithm = str(op.attrs.get("rng_algorithm", "DEFAULT"))
        options = {"shape": op.types[1].shape, "dtype": op.types[1].dtype, "algorithm": algorithm}
        yield Idiom("rng_bit_generator", (_words(4),), tuple(options.items()))


@_starts_at("func.call")
def _randomness(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a call of threefry or of jax.random: random bits, new keys, gamma variates."""
    callee, types = str(op.attrs.get("callee", "")), op.operand_types
    if not _tensors((*types, *op.types)):
        return
    if callee.startswith("_threefry_split") and len(types) == 1:
        batch = len(types[0].shape) - 1
        yield from _splits(types[0], op.types[0].shape[batch:-1])
    elif callee.startswith("_threefry_fold_in") and len(types) == 2:
        if 0 in (len(types[0].shape) - 1, len(types[1].shape)) or types[0].shape[:-1] == types[1].shape:
            yield Idiom("fold_in", types, (("impl", "threefry2x32"),))
        if types[0] == _words(2, 2) and types[1].shape == ():
            for dtype in dict.fromkeys((types[1].dtype, np.dtype(np.int32))):
                yield Idiom("fold_in", (_words(4), TensorType(dtype, ())), (("impl", "rbg"),))
    elif callee.startswith("_gamma") and len(types) == 2 and len(op.types) == 1:
        batch = len(types[0].shape) - 1
        shape = op.types[0].shape[batch:]
        for mapped in (False, True)[: 1 + bool(batch and types[1].shape)]:
            for log_space in (False, True):
                options = {"shape": shape, "log_space": log_space, "mapped": mapped}
                yield Idiom("gamma", types, tuple(options.items()))
    elif callee.startswith("threefry2x32") and len(types) == 4:
        for batch, shape in _batches(types[0].shape, types[2].shape):
            yield from _drawn(batch, shape, region)


@_starts_at("func.call")
def _implementation(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find calls of ``lgamma_impl`` and similar, JAX's lowering since 0.12."""
    function, found, _ = str(op.attrs["callee"]).partition("_impl")
    if found and function in _NAMED and _is_float(op.types[0]):
        yield _function(function, op.types[0])


def _batches(keys: tuple[int, ...], counts: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield shapes of key batches and of results, whose words have one rank."""
    if not keys:
        yield (), counts
    elif len(keys) == len(counts):
        for i in range(1, len(keys) + 1):
            if set(keys[i:]) <= {1} and set(counts[:i]) <= {1}:
                yield keys[:i], counts[i:]


def _drawn(batch: tuple[int, ...], shape: tuple[int, ...], region: Region) -> Iterator[Idiom]:
    made = {t for inner in region.ops for t in inner.types}
    for width in (32, 8, 16, *((64,) if jax.config.read("jax_enable_x64") else ())):
        dtype = np.dtype(f"uint{width}")
        if TensorType(dtype, (*batch, *shape)) in made:
            yield Idiom("bits", (_words(*batch, 2),), (("shape", shape), ("dtype", dtype.name)))
    if batch and shape:
        yield from _splits(_words(*batch, 2), shape)


def _splits(keys: TensorType, shape: tuple[int, ...]) -> Iterator[Idiom]:
    yield Idiom("split", (keys,), (("shape", shape), ("impl", "threefry2x32")))
    if keys == _words(2, 2):  # an rbg key is two of the others
        yield Idiom("split", (_words(4),), (("shape", shape), ("impl", "rbg")))


@_starts_at("stablehlo.concatenate")
def _seeds(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find the high and the low word of a seed."""
    (made,), parts = op.types, op.operand_types
    if not _tensors((made, *parts)) or made.dtype != np.uint32 or made.shape[-1:] != (2,):
        return
    batch = made.shape[:-1]
    if parts != (_words(*batch, 1),) * 2:
        return
    shifted = {o.operand_types[0]: None for o in region.ops if o.name == "stablehlo.shift_right_logical"}
    joined = any(o.name == op.name and op.results[0] in o.operands and o.types == (_words(4),) for o in region.ops)
    for type_ in shifted:
        if type_.shape == batch:
            for impl in ("threefry2x32", *(("rbg",) if joined else ())):
                yield Idiom("seed", (type_,), (("impl", impl),))
