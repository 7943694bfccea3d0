"""The harness of op cases: the op agrees with TensorFlow in every use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.ops import registry

# Relative and absolute tolerance by result dtype; integers, booleans and the like must be equal.
TOLERANCE = {
    "float64": (1e-10, 1e-12),
    "complex128": (1e-10, 1e-12),
    "float32": (1e-5, 1e-6),
    "complex64": (1e-5, 1e-6),
    "float16": (5e-3, 1e-3),
    "bfloat16": (2e-2, 1e-2),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One op on one set of inputs.

    Attributes:
      inputs: in OpDef order: numpy arrays, or a list of them for a list input.
      attrs: attributes with the OpDef's names, as ``tf.raw_ops`` takes their values.
      grad: compare gradients with TensorFlow's, where TensorFlow has one for the op.
      grad_rtol, grad_atol: tolerances of gradients, instead of ten times those of values.
      jit: also run under ``jax.jit`` (off for results whose shape depends on values).
      vmap: also run under ``jax.vmap``, against a loop.
      baked: names of inputs that are constants of the graph although the op does not need them static.
      symbolic: a shape with symbolic dimensions for each traced input, such as ``("b, 3", "b")``: the op is exported
        with them and run on the inputs.
      compare: compares (expected, actual), both lists of numpy arrays, instead of element by element
        (for results that are only determined up to sign or order).
      error: what the converted op's error must contain; then TensorFlow is not asked.
      xla: compile TensorFlow's side with XLA, for ops without a CPU kernel.
      tier: "default", "full" or "nightly"; None lets `tests.ops.batches.tiered` choose.
    """

    op: str
    inputs: tuple[Any, ...] = ()
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = ""
    rtol: float | None = None
    atol: float | None = None
    grad: bool = True
    grad_rtol: float | None = None
    grad_atol: float | None = None
    jit: bool = True
    vmap: bool = True
    baked: tuple[str, ...] = ()
    symbolic: tuple[str, ...] = ()
    compare: Callable[[list[np.ndarray], list[np.ndarray]], None] | None = None
    error: str = ""
    xla: bool = False
    tier: str | None = None

    def using(self, **changes: Any) -> Case:
        """Return the case with other settings."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        if self.name:
            return f"{self.op}-{self.name}"
        parts = []
        for value in self.inputs[:2]:
            if isinstance(value, list):
                parts.append(f"{len(value)}x")
            else:
                parts.append(f"{value.dtype}{'x'.join(map(str, value.shape)) or '()'}")
        parts += [f"{k}={v.name if isinstance(v, tf.DType) else v}" for k, v in self.attrs.items()]
        return "-".join([self.op, *parts])[:120]


def case(op: str, *inputs: Any, **attrs: Any) -> Case:
    """Return a case from inputs (lists of arrays stay lists) and attributes."""

    def convert(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], (np.ndarray, np.generic)):
            return [np.asarray(v) for v in value]
        return value if isinstance(value, list) and not value else np.asarray(value)

    return Case(op, tuple(map(convert, inputs)), attrs)


def check(case: Case) -> None:
    """Compare with TensorFlow: eager, jit, vmap; gradients; export.

    Runs in JAX's 64-bit mode, and values of at most 32 bits in the other mode, too.
    """
    with jax.enable_x64(True):
        _check(case)


def _check(case: Case) -> None:
    if case.error:
        try:
            subject = Subject(case)
            subject.converted(*subject.traced_arrays)
        except Exception as error:  # the type is ours, the text is the case's (or TensorFlow does not even trace it)
            assert type(error).__module__.startswith("tf2jax_lite"), repr(error)
            assert case.error in str(error) or "could not trace" in str(error), str(error)
            return
        raise AssertionError(f"no error, though one with {case.error!r} is expected")
    subject = Subject(case)
    traced = subject.traced_arrays
    expected = subject.tensorflow(*traced)
    compare(case, expected, subject.converted(*traced), "eager")
    if case.jit:
        _check_compiled(case, subject, expected)
    if case.symbolic:
        check_export(case, subject, expected)
    check_without_x64([subject], [expected])


def check_without_x64(subjects: list[Subject], expected: list[list[Any]]) -> None:
    """Compare ops of at most 32 bits with TensorFlow in JAX's default mode."""
    wide = ("int64", "uint64", "float64", "complex128")
    chosen = [
        (subject, values)
        for subject, values in zip(subjects, expected, strict=True)
        if subject.case.jit and not any(np.asarray(v).dtype.name in wide for v in [*subject.traced_arrays, *values])
    ]
    if not chosen:
        return

    def program(inputs: list[Any]) -> list[Any]:
        return [subject.converted(*args) for (subject, _), args in zip(chosen, inputs, strict=True)]

    with jax.enable_x64(False):
        compiled = jax.jit(program, compiler_options=fast_options())([s.traced_arrays for s, _ in chosen])
    for (subject, values), found in zip(chosen, compiled, strict=True):
        compare(subject.case, values, found, "without x64")


def _check_compiled(case: Case, subject: Subject, expected: list[Any]) -> None:
    """Compare ``jit``, gradient and ``vmap`` in one program, to compile once."""
    traced = subject.traced_arrays
    gradient = Gradient.of(case, subject) if case.grad else None
    stacked, other = batched_inputs(traced) if case.vmap and traced else ([], [])

    def program(args: Any, batch: Any, variables: Any, cotangents: Any) -> Any:
        return (
            subject.converted(*args),
            jax.vmap(subject.converted)(*batch) if batch else [],
            gradient.backward(variables, cotangents) if gradient is not None else [],
        )

    points, upstream = ([], []) if gradient is None else (gradient.points, gradient.cotangents)
    values, batched, gradients = jax.jit(program, compiler_options=fast_options())(traced, stacked, points, upstream)
    compare(case, expected, values, "jit")
    if gradient is not None:
        gradient.compare(gradients)
    if stacked:
        rows = [expected, [np.asarray(v) for v in subject.converted(*other)]]
        for index, row in enumerate(rows):
            compare(case, row, [np.asarray(v)[index] for v in batched], f"vmap row {index}", 10.0)


def compare(case: Case, expected: list[Any], actual: list[Any], how: str, scale: float = 1.0) -> None:
    """Fail unless results have equal dtypes, shapes, and close values."""
    assert len(expected) == len(actual), f"{how}: {len(actual)} results, TensorFlow has {len(expected)}"
    # TensorFlow gives a scalar string as bytes, which numpy would take for an array of a dtype of its own.
    expected = [np.asarray(e, object) if isinstance(e, bytes) else np.asarray(e) for e in expected]
    actual = [np.asarray(a) for a in actual]
    for index, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if e.dtype == object:
            continue
        assert a.dtype == e.dtype, f"{how}: result {index} has dtype {a.dtype}, TensorFlow {e.dtype}"
        assert a.shape == e.shape, f"{how}: result {index} has shape {a.shape}, TensorFlow {e.shape}"
    if case.compare is not None:
        case.compare(expected, actual)
        return
    for index, (e, a) in enumerate(zip(expected, actual, strict=True)):
        _close(case, e, a, f"{how}, result {index}", scale)


def _close(case: Case, expected: np.ndarray, actual: np.ndarray, what: str, scale: float = 1.0) -> None:
    if expected.dtype.name not in TOLERANCE:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    rtol, atol = TOLERANCE[expected.dtype.name]
    rtol = case.rtol if case.rtol is not None else rtol
    atol = case.atol if case.atol is not None else atol
    wide = np.complex128 if np.issubdtype(expected.dtype, np.complexfloating) else np.float64
    np.testing.assert_allclose(
        actual.astype(wide), expected.astype(wide), rtol=rtol * scale, atol=atol * scale, err_msg=what
    )


class Subject:
    """A case as TensorFlow's and as converted function of traced inputs."""

    def __init__(self, case: Case):
        self.case = case
        self.entry = registry.lookup(case.op)
        assert self.entry is not None, f"{case.op} is not registered"
        op_def = op_def_registry.get(case.op)
        self._names = [arg.name for arg in op_def.input_arg]
        implied = {n for a in op_def.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
        self._defaults = {
            a.name: _attr_value(a.default_value)
            for a in op_def.attr
            if a.HasField("default_value") and a.name not in implied
        }
        assert len(self._names) == len(case.inputs), f"{case.op} takes {self._names}"
        self._is_list = [isinstance(v, list) for v in case.inputs]
        baked = {*self.entry.static, *case.baked}
        # Registered names may differ from the OpDef's: position counts.
        own = self.entry.inputs
        self._baked = [
            (i < len(own) and own[i] in baked) or self._names[i] in case.baked or _has_strings(v)
            for i, v in enumerate(case.inputs)
        ]
        self.traced_arrays: list[np.ndarray] = []
        for value, is_baked in zip(case.inputs, self._baked, strict=True):
            if not is_baked:
                self.traced_arrays.extend(value if isinstance(value, list) else [value])
        self.function = tf.function(self.call_op, autograph=False)
        self.converted = self._convert()

    def _assemble(self, traced: tuple[Any, ...], bake: Callable[[Any], Any]) -> list[Any]:
        remaining = iter(traced)
        inputs = []
        for value, is_baked in zip(self.case.inputs, self._baked, strict=True):
            if is_baked:
                inputs.append([bake(v) for v in value] if isinstance(value, list) else bake(value))
            elif isinstance(value, list):
                inputs.append([next(remaining) for _ in value])
            else:
                inputs.append(next(remaining))
        return inputs

    def call_op(self, *traced: Any) -> list[Any]:
        inputs = self._assemble(traced, tf.constant)
        named = dict(zip(self._names, inputs, strict=True))
        result = op_def_library.apply_op(self.case.op, **named, **{**self._defaults, **self.case.attrs})
        return [] if isinstance(result, tf.Operation) or result is None else tf.nest.flatten(result)

    def tensorflow(self, *traced: Any) -> list[np.ndarray]:
        if not self.case.xla:
            return [t.numpy() for t in self.function(*map(tf.constant, traced))]
        compiled = tf.function(self.call_op, autograph=False, jit_compile=True)
        with tf.device("cpu:0"):
            return [t.numpy() for t in compiled(*map(tf.constant, traced))]

    def _convert(self) -> Callable[..., list[Any]]:
        shapes = self.case.symbolic or [None] * len(self.traced_arrays)
        specs = [
            tf.TensorSpec(v.shape if s is None else _dimensions(s), v.dtype)
            for s, v in zip(shapes, self.traced_arrays, strict=True)
        ]
        return tf2jax.convert_functional(self.function, *specs)


def _dimensions(text: str) -> list[int | None]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [int(part) if part.isdecimal() else None for part in parts]


def _attr_value(proto: Any) -> Any:
    kind = proto.WhichOneof("value")
    value = getattr(proto, kind)
    if kind == "type":
        return tf.dtypes.as_dtype(value)
    if kind == "list":
        lists = [getattr(value, f) for f in ("s", "i", "f", "b", "shape") if getattr(value, f)]
        return list(lists[0]) if lists else [tf.dtypes.as_dtype(t) for t in value.type]
    return value


def _has_strings(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return any(v.dtype.kind in "SUO" for v in items)


def _is_inexact(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


# The errors of TensorFlow for ops without a gradient.
NO_GRADIENT = (LookupError, TypeError, ValueError, NotImplementedError, tf.errors.OpError)


@dataclasses.dataclass
class Gradient:
    """A case's gradient at TensorFlow's values for random upstream gradients."""

    case: Case
    expected: list[Any]
    points: list[np.ndarray]
    cotangents: list[np.ndarray]
    backward: Callable[[Any, Any], Any]

    @classmethod
    def of(cls, case: Case, subject: Subject) -> Gradient | None:
        """Return TensorFlow's gradient, or None if there is nothing to compare with."""
        traced = subject.traced_arrays
        wanted = differentiable(traced)
        if not wanted:
            return None
        tensors = [tf.constant(v) for v in traced]
        try:
            with tf.GradientTape() as tape:
                tape.watch([tensors[i] for i in wanted])
                results = subject.function(*tensors)
            inexact, upstream = upstream_gradients(results)
            expected = tape.gradient(
                [results[i] for i in inexact], [tensors[i] for i in wanted], list(map(tf.constant, upstream))
            )
        except NO_GRADIENT:
            return None
        return cls.from_tensorflow(case, subject, inexact, upstream, expected)

    @classmethod
    def from_tensorflow(
        cls, case: Case, subject: Subject, inexact: list[int], upstream: list[np.ndarray], expected: list[Any]
    ) -> Gradient | None:
        """Return TensorFlow's gradients and our function, or None without any."""
        if not inexact or all(g is None for g in expected):
            return None
        traced = subject.traced_arrays
        wanted = differentiable(traced)

        def function(*variables: Any) -> list[Any]:
            args: list[Any] = list(traced)
            for i, value in zip(wanted, variables, strict=True):
                args[i] = value
            outputs = subject.converted(*args)
            return [outputs[i] for i in inexact]

        def backward(variables: Any, cotangents: Any) -> Any:
            return jax.vjp(function, *variables)[1](cotangents)

        # JAX's cotangents are linear in the tangents; TensorFlow's complex gradients are their conjugates.
        return cls(case, expected, [traced[i] for i in wanted], [_conjugate(u) for u in upstream], backward)

    def compare(self, actual: Any) -> None:
        """Fail unless dtypes, shapes and values are TensorFlow's."""
        case = self.case
        loose = case.using(
            rtol=case.grad_rtol if case.grad_rtol is not None else case.rtol,
            atol=case.grad_atol if case.grad_atol is not None else case.atol,
        )
        for index, (e, a) in enumerate(zip(self.expected, actual, strict=True)):
            if e is None:
                np.testing.assert_array_equal(np.asarray(a).astype(np.complex128), 0, err_msg=f"gradient {index}")
                continue
            e = tf.convert_to_tensor(e).numpy()
            a = _conjugate(np.asarray(a))
            assert a.dtype == e.dtype, f"gradient {index} has dtype {a.dtype}, TensorFlow {e.dtype}"
            assert a.shape == e.shape, f"gradient {index} has shape {a.shape}, TensorFlow {e.shape}"
            _close(loose, e, a, f"gradient {index}", 1.0 if case.grad_rtol is not None else 10.0)


def differentiable(traced: list[np.ndarray]) -> list[int]:
    """Return the positions of the inputs whose gradients are compared."""
    return [i for i, v in enumerate(traced) if _is_inexact(v) and v.dtype.name in TOLERANCE]


def upstream_gradients(results: list[tf.Tensor]) -> tuple[list[int], list[np.ndarray]]:
    """Return positions of differentiable results, and random upstreams."""
    rng = np.random.default_rng(0)
    inexact = [i for i, r in enumerate(results) if r.dtype.is_floating or r.dtype.is_complex]
    drawn = [np.asarray(rng.uniform(0.5, 1.5, r.shape), r.dtype.as_numpy_dtype) for r in results]
    return inexact, [drawn[i] for i in inexact]


def _conjugate(value: np.ndarray) -> np.ndarray:
    return np.conj(value) if np.iscomplexobj(value) else value


def batched_inputs(traced: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return inputs stacked with other ones, and these other ones."""
    # Halving keeps values inside nearly every domain (probabilities, positive definite matrices); indices stay.
    other = [(v * np.asarray(0.5, v.dtype)).astype(v.dtype) if _is_inexact(v) else v for v in traced]
    return [np.stack([a, b]) for a, b in zip(traced, other, strict=True)], other


def check_export(case: Case, subject: Subject, expected: list[np.ndarray]) -> None:
    scope = jax.export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), value.dtype)
        for shape, value in zip(case.symbolic, subject.traced_arrays, strict=True)
    ]
    exported = jax.export.export(jax.jit(subject.converted))(*specs)
    compare(case, expected, exported.call(*subject.traced_arrays), "export")
