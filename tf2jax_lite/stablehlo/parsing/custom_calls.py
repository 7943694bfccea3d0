"""Custom calls that modules from elsewhere may make, in the form that JAX writes.

XLA passes buffers to a handler without comparing their sizes, and the handlers of LAPACK trust them: too small a
result is written beyond its end. So a target has to be in the list below, with operands, results and attributes that
fit each other as in JAX's own modules (0.9 to 0.12). `child_process` imports this module without its package: it needs
the standard library alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Tensor = tuple[str, tuple[int | None, ...]]
"""A tensor's element type as in MLIR, and its shape; None is a dynamic size."""


@dataclasses.dataclass(frozen=True)
class CustomCall:
    """A custom call; operands and results are None where they are no tensors."""

    target: str
    api_version: int
    config: Any
    operands: Sequence[Tensor | None]
    results: Sequence[Tensor | None]
    shape_operands: Sequence[int] = ()
    called: Sequence[str] = ()
    layouts: Sequence[Sequence[int]] | None = None
    batch_dims: str | None = None

    @property
    def data(self) -> list[Tensor | None]:
        """Its operands without those that have the shapes of results."""
        return [operand for i, operand in enumerate(self.operands) if i not in self.shape_operands]

    @property
    def is_dynamic(self) -> bool:
        """Whether it has to be looked at again with the sizes of a call."""
        tensors = [*self.data, *self.results]
        return self.target not in _EXPANDED and any(t is not None and None in t[1] for t in tensors)


# ---- kernels: patterns of operands and results, with their attributes ----

# T stands for the kernel's dtype, S and Z for T if it is real or complex, R and C for the real and complex dtype of T's
# precision, i for int32, u for uint32. In shapes, * is the batch, a^b the smaller of two sizes.
_Pattern = tuple[str, Mapping[str, Any]]
_SIDES = {"diag": "NU", "trans_x": "NTC", "uplo": "LU"}
_FACTORS = "T[*,m,n] -> T[*,m,n] R[*,m^n] T[*,m,m] T[*,n,n] i[*]"
_THIN = "T[*,m,n] -> T[*,m,n] R[*,m^n] T[*,m,m^n] T[*,m^n,n] i[*]"
_SHARED: dict[str, list[_Pattern]] = {
    "getrf": [("T[*,m,n] -> T[*,m,n] i[*,m^n] i[*]", {})],
    "geqrf": [("T[*,m,n] -> T[*,m,n] T[*,m^n]", {})],
    "orgqr": [("T[*,m,n] T[*,k] -> T[*,m,n] ; k<=n n<=m", {})],
    "ormqr": [
        ("T[*,m,l] T[*,k] T[*,m,n] -> T[*,m,n] ; k<=l l<=m", {"left": True, "transpose": bool}),
        ("T[*,n,l] T[*,k] T[*,m,n] -> T[*,m,n] ; k<=l l<=n", {"left": False, "transpose": bool}),
    ],
}
_LAPACK: dict[str, list[_Pattern]] = {
    **_SHARED,
    "potrf": [("T[*,n,n] -> T[*,n,n] i[*]", {"uplo": "LU"})],
    "geqp3": [("T[*,m,n] i[*,n] -> T[*,m,n] i[*,n] T[*,m^n]", {})],
    "syevd": [("T[*,n,n] -> T[*,n,n] R[*,n] i[*]", {"mode": "VN", "uplo": "LU"})],
    "gesdd": [(_FACTORS, {"mode": "AN"}), (_THIN, {"mode": "SN"})],
    "gesvd": [(_FACTORS, {"mode": "AN"}), (_THIN, {"mode": "SN"})],
    "geev": [
        ("S[*,n,n] -> S[*,n] S[*,n] C[*,n,n] C[*,n,n] i[*]", {"compute_left": "VN", "compute_right": "VN"}),
        ("Z[*,n,n] -> Z[*,n] Z[*,n,n] Z[*,n,n] i[*]", {"compute_left": "VN", "compute_right": "VN"}),
    ],
    "gees": [  # sort "S" would call a function
        ("S[*,n,n] -> S[*,n,n] S[*,n,n] S[*,n] S[*,n] i[*] i[*]", {"mode": "VN", "sort": "N"}),
        ("Z[*,n,n] -> Z[*,n,n] Z[*,n,n] Z[*,n] i[*] i[*]", {"mode": "VN", "sort": "N"}),
    ],
    "gehrd": [("T[*,n,n] -> T[*,n,n] T[*,n-1] i[*]", {"low": 1, "high": "=n"})],
    "sytrd": [("T[*,n,n] -> T[*,n,n] R[*,n] R[*,n-1] T[*,n-1] i[*]", {"uplo": "LU"})],
    "gtsv": [("T[*,n] T[*,n] T[*,n] T[*,n,k] -> T[*,n] T[*,n] T[*,n] T[*,n,k] i[*]", {})],
    "trsm": [
        ("T[*,m,m] T[*,m,n] -> T[*,m,n]", {"side": "L", **_SIDES}),
        ("T[*,n,n] T[*,m,n] -> T[*,m,n]", {"side": "R", **_SIDES}),
    ],
}
_COMPLEX_NAMES = {"syevd": "heevd", "sytrd": "hetrd", "orgqr": "ungqr", "ormqr": "unmqr"}
_SVD = {"compute_uv": bool, "transposed": False}
_GPU_SVD: list[_Pattern] = [
    (_FACTORS, {**_SVD, "full_matrices": True}),
    (_THIN, {**_SVD, "full_matrices": False}),
    ("T[*,m,n] -> T[*,m,n] R[*,m^n] T[] T[] i[*]", {**_SVD, "compute_uv": False, "full_matrices": bool}),
]
_TURNED: list[_Pattern] = [  # U and V change places
    (
        pattern.replace("T[*,m,m^n] T[*,m^n,n]", "T[*,m^n,n] T[*,m,m^n]").replace(
            "T[*,m,m] T[*,n,n]", "T[*,n,n] T[*,m,m]"
        ),
        {**config, "transposed": True},
    )
    for pattern, config in _GPU_SVD
]
_GPU: dict[str, list[_Pattern]] = {
    **{f"solver_{name}_ffi": patterns for name, patterns in _SHARED.items()},
    "solver_potrf_ffi": [("T[*,n,n] -> T[*,n,n] i[*]", {"lower": bool})],
    "solver_syevd_ffi": [("T[*,n,n] -> T[*,n,n] R[*,n] i[*]", {"lower": bool, "algorithm": (0, 1, 2)})],
    "solver_sytrd_ffi": [("T[*,n,n] -> T[*,n,n] R[*,n] R[*,n-1] T[*,n-1] i[*]", {"lower": bool})],
    "solver_gesvd_ffi": [*_GPU_SVD, *_TURNED],
    "solver_gesdd_ffi": _GPU_SVD,
    "solver_gesvdj_ffi": [
        (_FACTORS, {"compute_uv": bool, "full_matrices": True}),
        (_THIN.replace("T[*,m^n,n]", "T[*,n,m^n]"), {"compute_uv": bool, "full_matrices": False}),
    ],
    "sparse_gtsv2_ffi": [("T[*,n] T[*,n] T[*,n] T[*,n,k] -> T[*,n,k]", {})],
    "_lu_pivots_to_permutation": [("i[*,k] -> i[*,n] ; k<=n", {})],
    "_threefry2x32_ffi": [("u[*] u[*] u[*] u[*] -> u[*] u[*]", {})],
}
_ELEMENTS = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
_REAL = {"complex<f32>": "f32", "complex<f64>": "f64"}
_COMPLEX = {real: name for name, real in _REAL.items()}
_KERNELS: dict[str, tuple[str | None, list[_Pattern]]] = {
    **{
        f"lapack_{letter}{_COMPLEX_NAMES.get(name, name) if letter in 'cz' else name}_ffi": (element, patterns)
        for name, patterns in _LAPACK.items()
        for letter, element in _ELEMENTS.items()
    },
    **{f"{prefix}{name}": (None, patterns) for prefix in ("cu", "hip") for name, patterns in _GPU.items()},
}
# Of TPUs, whose compiler expands them; the text of their configuration is looked at by it.
_TPU: dict[str, str] = {
    "Eigh": "T[*,n,n] -> T[*,n,n] R[*,n]",
    "Qr": "T[*,m,n] -> T[*,m,n] T[*,m^n]",
    "LuDecomposition": "T[*,m,n] -> T[*,m,n] i[*,m^n] i[*,m]",
    "ProductOfElementaryHouseholderReflectors": "T[*,m,n] T[*,k] -> T[*,m,n] ; k<=n n<=m",
}
_VALUE = re.compile(r"(\w)\[([^\]]*)\]")


class _Mismatch(Exception):
    pass


class _Sizes(dict[str, Any]):
    """Sizes by their letters in a pattern; None if not known."""

    def size(self, text: str) -> int | None:
        if "^" in text:
            sizes = [self.size(part) for part in text.split("^")]
            return None if None in sizes else min(s for s in sizes if s is not None)
        if text.endswith("-1"):
            size = self.size(text[:-2])
            return None if size is None else max(size - 1, 0)
        return self[text]

    def meet(self, text: str, found: int | None) -> None:
        if text not in self and text.isalpha():
            self[text] = found
        expected = self.size(text)
        if None not in (found, expected) and found != expected:
            raise _Mismatch(f"a size is {found} where {text} is {expected}")

    def shape(self, text: str, shape: Sequence[int | None]) -> None:
        names = [name for name in text.split(",") if name]
        batch = len(shape) - len(names) + 1 if "*" in names else 0
        if batch < 0 or len(shape) != len(names) + (batch - 1 if "*" in names else 0):
            raise _Mismatch(f"the rank is {len(shape)}")
        if "*" in names:
            known = self.setdefault("*", tuple(shape[:batch]))
            if len(known) != batch or any(
                None not in pair and pair[0] != pair[1] for pair in zip(known, shape, strict=False)
            ):
                raise _Mismatch(f"the batch is {list(shape[:batch])}, not {list(known)}")
            names = names[1:]
        for name, size in zip(names, shape[batch:], strict=True):
            self.meet(name, size)


def _element(letter: str, kind: str | None) -> str | None:
    if letter in "iu":
        return "i32" if letter == "i" else "ui32"
    if kind is None or (letter == "S" and kind in _REAL) or (letter == "Z" and kind in _COMPLEX):
        return None
    return {"R": _REAL.get(kind, kind), "C": _COMPLEX.get(kind, kind)}.get(letter, kind)


def _match(pattern: str, kind: str | None, call: CustomCall) -> _Sizes:
    """Return a call's sizes by the letters of a pattern; raise `_Mismatch`."""
    values, _, conditions = pattern.partition(";")
    sizes = _Sizes()
    for side, found in zip(values.split("->"), (call.data, call.results), strict=True):
        expected = _VALUE.findall(side)
        if len(expected) != len(found):
            raise _Mismatch(f"it has {len(found)} arrays where {len(expected)} belong")
        for (letter, shape), tensor in zip(expected, found, strict=True):
            if tensor is None:
                raise _Mismatch("a value is no tensor")
            if kind is None and letter not in "iu" and tensor[0] in _ELEMENTS.values():
                kind = tensor[0]
            if tensor[0] != _element(letter, kind):
                raise _Mismatch(f"an array is of {tensor[0]}, which does not fit the others")
            sizes.shape(shape, tensor[1])
    for condition in conditions.split():
        low, high = (sizes[name] for name in condition.split("<="))
        if None not in (low, high) and low > high:
            raise _Mismatch(f"{condition} does not hold: {low}, {high}")
    return sizes


def _check_config(config: Any, allowed: Mapping[str, Any], sizes: _Sizes) -> None:
    if not isinstance(config, dict) or config.keys() - allowed.keys():
        raise _Mismatch(f"its attributes are {str(config)[:200]}, not {', '.join(allowed) or 'none'}")
    for name, wanted in allowed.items():
        if name not in config:
            if name == "transposed" and wanted is False:  # of gesdd, and older versions
                continue
            raise _Mismatch(f"it lacks the attribute {name}")
        value = config[name]
        if wanted is bool:
            fits = isinstance(value, bool)
        elif isinstance(wanted, bool):
            fits = value is wanted
        elif isinstance(wanted, str) and wanted.startswith("="):
            fits = sizes[wanted[1:]] in (None, value) and type(value) is int
        elif isinstance(wanted, str):
            fits = type(value) is int and value in wanted.encode()
        else:
            fits = type(value) is int and value in (wanted if isinstance(wanted, tuple) else (wanted,))
        if not fits:
            raise _Mismatch(f"the attribute {name} is {str(value)[:100]}")


def _check_kernel(call: CustomCall) -> None:
    kind, patterns = _KERNELS[call.target]
    if call.called:
        raise _Mismatch("it calls other functions")
    if call.api_version not in (1, 4):  # JAX keeps attributes of the typed interface, 4, beside version 1
        raise _Mismatch(f"the version of its interface is {call.api_version}")
    problems = []
    for pattern, allowed in patterns:
        try:
            _check_config(call.config, allowed, _match(pattern, kind, call))
        except _Mismatch as problem:
            problems.append(problem)
    if len(problems) == len(patterns):
        raise problems[0]
    _check_layouts(call)


def _check_layouts(call: CustomCall) -> None:
    """Layouts are by rows, or by columns within each matrix."""
    tensors = [t for t in (*call.operands, *call.results) if t is not None]
    layouts = [None] * len(tensors) if call.layouts is None else call.layouts
    if len(layouts) != len(tensors):
        raise _Mismatch(f"it has {len(layouts)} layouts of {len(tensors)} arrays")
    for layout, (_, shape) in zip(layouts, tensors, strict=True):
        rows = list(range(len(shape)))[::-1]
        if layout is not None and layout != rows and layout != [*rows[1::-1], *rows[2:]]:
            raise _Mismatch(f"the layout {str(layout)[:100]} is neither by rows nor by columns")
    if call.batch_dims is not None:
        ranks = [len(operand[1]) for operand in call.data if operand is not None]
        if not call.batch_dims.isdecimal() or len(call.batch_dims) > 3 or int(call.batch_dims) > min(ranks, default=0):
            raise _Mismatch(f"num_batch_dims is {call.batch_dims[:20]!r}")


# ---- annotations, and calls that XLA expands ----


def _same(call: CustomCall) -> None:
    """Results are the operands."""
    if len(call.data) != len(call.results):
        raise _Mismatch(f"{len(call.data)} operands have {len(call.results)} results")
    for given, made in zip(call.data, call.results, strict=True):
        _same_type(given, made)


def _same_type(given: Tensor | None, made: Tensor | None) -> None:
    if given is None or made is None or given[0] != made[0] or len(given[1]) != len(made[1]):
        raise _Mismatch(f"the operand {given} becomes {made}")
    if any(None not in pair and pair[0] != pair[1] for pair in zip(given[1], made[1], strict=True)):
        raise _Mismatch(f"the operand {given} becomes {made}")


def _parts(call: CustomCall) -> None:
    """Results are parts of the operands, or the whole of them."""
    if len(call.data) != len(call.results):
        raise _Mismatch(f"{len(call.data)} operands have {len(call.results)} results")
    for given, made in zip(call.data, call.results, strict=True):
        if given is None or made is None or given[0] != made[0] or len(given[1]) != len(made[1]):
            raise _Mismatch(f"the operand {given} becomes {made}")
        for pair in zip(given[1], made[1], strict=True):
            low, high = sorted(size or 0 for size in pair)
            if None not in pair and low != high and (low == 0 or high % low):
                raise _Mismatch(f"the operand {given} becomes {made}")


def _assertion(call: CustomCall) -> None:
    if call.results or not call.operands or call.operands[0] != ("i1", ()):
        raise _Mismatch("it takes a boolean and returns nothing")
    if not all(t in (("i32", ()), ("i64", ())) for t in call.operands[1:]):
        raise _Mismatch("it takes integers beside the boolean")


def _top_k(call: CustomCall) -> None:
    data, (values, indices) = call.data, call.results
    k = next((t for t in data[1:] if t), None)
    if len(data) > 1 and (call.target != "stablehlo.dynamic_top_k" or k not in (("i32", ()), ("i64", ()))):
        raise _Mismatch("it has operands beside the array")
    if data[0] is None or values is None or indices is None or not data[0][1]:
        raise _Mismatch("a value is no tensor with an axis")
    _same_type((data[0][0], (*data[0][1][:-1], values[1][-1] if values[1] else None)), values)
    _same_type(("i32", values[1]), indices)
    if None not in (values[1][-1], data[0][1][-1]) and values[1][-1] > data[0][1][-1]:  # type: ignore[operator]
        raise _Mismatch(f"it takes {values[1][-1]} of {data[0][1][-1]}")


def _approx_top_k(call: CustomCall) -> None:
    config, count = call.config, len(call.results)
    if not isinstance(config, dict) or len(call.called) != 1 or not count:
        raise _Mismatch("it lacks its attributes, its comparator or its results")
    axis = config.get("reduction_dim")
    wanted = 2 * count + (call.target == "stablehlo.dynamic_approx_top_k")
    if len(call.data) != wanted or type(axis) is not int:
        raise _Mismatch(f"it has {len(call.data)} operands, and reduces the axis {axis!r}")
    for given, start, made in zip(call.data[:count], call.data[count : 2 * count], call.results, strict=True):
        if given is None or made is None or start != (given[0], ()) or len(given[1]) != len(made[1]):
            raise _Mismatch(f"the operand {given} with the start {start} becomes {made}")
        if given[1] and not 0 <= axis < len(given[1]):
            raise _Mismatch(f"the axis {axis} of rank {len(given[1])}")
        _same_type((given[0], (*given[1][:axis], made[1][axis], *given[1][axis + 1 :])), made)
        if None not in (given[1][axis], made[1][axis]) and made[1][axis] > given[1][axis]:  # type: ignore[operator]
            raise _Mismatch(f"it takes {made[1][axis]} of {given[1][axis]}")


def _window(call: CustomCall) -> None:
    count = len(call.results)
    if len(call.called) != 1 or not count or len(call.data) != 2 * count + 5:
        raise _Mismatch(f"it has {len(call.data)} operands and {count} results")
    for given, start, made in zip(call.data[:count], call.data[count : 2 * count], call.results, strict=True):
        if given is None or made is None or start != (given[0], ()):
            raise _Mismatch(f"the operand {given} with the start {start} becomes {made}")
        _same_type((given[0], (None,) * len(given[1])), made)


def _random_bits(call: CustomCall) -> None:
    if len(call.operands) != 2 or len(call.results) != 2:
        raise _Mismatch("it takes a state and a shape, and returns a state and an array")
    _same_type(call.operands[0], call.results[0])
    shape, made = call.operands[1], call.results[1]
    if shape is None or made is None or shape[0] not in ("i32", "i64") or shape[1] != (len(made[1]),):
        raise _Mismatch(f"the shape {shape} does not fit the result {made}")


def _new(call: CustomCall) -> None:
    if call.data or len(call.results) != 1:
        raise _Mismatch("it takes no operands and returns one array")


def _any(call: CustomCall) -> None:
    """Allow functions of TensorFlow, which the interpreter alone can call."""


_EXPANDED: dict[str, Callable[[CustomCall], None]] = {
    "shape_assertion": _assertion,
    "stablehlo.dynamic_approx_top_k": _approx_top_k,
    "stablehlo.dynamic_reduce_window": _window,
    "stablehlo.dynamic_rng_bit_generator": _random_bits,
    "stablehlo.dynamic_top_k": _top_k,
    "tf.call_tf_function": _any,
}
_OTHERS: dict[str, Callable[[CustomCall], None]] = {
    **_EXPANDED,
    "AllocateBuffer": _new,
    "ApproxTopK": _approx_top_k,
    "LayoutConstraint": _same,
    "SPMDFullToShardShape": _parts,
    "SPMDShardToFullShape": _parts,
    "Sharding": _same,
    "TopK": _top_k,
    "annotate_device_placement": _same,
    "mhlo.topk": _top_k,
    "xla.sdy.FuncResultSharding": _same,
    "xla.sdy.GlobalToLocalShape": _parts,
    "xla.sdy.LocalToGlobalShape": _parts,
    "xla.sdy.PropagationBarrier": _same,
}
TARGETS = frozenset({*_KERNELS, *_TPU, *_OTHERS})
"""The targets that may be called."""

_OLD = ("lapack_", "blas_", "hipsolver_", "cusolver_", "hipblas_", "cublas_")


def refusal(target: str) -> str:
    """Return the reason for which a target that is not listed is refused."""
    if "callback" in target:
        return (
            f"{target!r} calls a Python function of the process that wrote the module (pure_callback, io_callback, "
            "debug.print), which is not in the module"
        )
    if target.startswith(_OLD) and not target.endswith("_ffi"):
        return f"custom call {target!r} is the form of an older jax; export the module again"
    return f"custom call {target!r} is not one that jax writes itself and that jax.lax has a name for"


def mismatch(call: CustomCall) -> str | None:
    """Return the fault of a call of a listed target; None if it has JAX's form."""
    try:
        if call.target in _KERNELS:
            _check_kernel(call)
        elif call.target in _TPU:
            _match(_TPU[call.target], None, call)
        else:
            _OTHERS[call.target](call)
    except (_Mismatch, ValueError) as problem:
        return f"custom call {call.target!r} does not have the form that jax writes: {problem}"
    return None
