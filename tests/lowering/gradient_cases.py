"""The constructs of docs/reference/custom-gradients.md as cases."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.array([0.3, -0.2, 1.7], np.float32)
SAME, REFUSED, NONE, UNSAVED = "same", "raises", "-", "TensorFlow cannot save it"


@dataclasses.dataclass(frozen=True)
class Case:
    """One construct.

    Attributes:
      build: returns the function, of one float32 vector, and the variables it reads.
      forward_mode: SAME, or REFUSED where the gradient function has no transpose.
      transposed: whether TensorFlow's ForwardAccumulator takes the case (it fails at some).
      second: SAME, or NONE where TensorFlow itself has no second derivative.
      saved: SAME, or what happens where the model cannot be saved or restored with its gradients.
      expected: the gradient of `loss`, where TensorFlow fails to take it.
    """

    text: str
    build: Callable[[], tuple[Callable[..., Any], list[Any]]]
    forward_mode: str = SAME
    transposed: bool = True
    second: str = SAME
    saved: str = SAME
    expected: Callable[[np.ndarray], np.ndarray] | None = None


def _clip(x: Any) -> Any:
    @tf.custom_gradient
    def clip(x: Any) -> Any:
        return tf.identity(x) * 2.0, lambda dy: tf.clip_by_value(dy, -0.5, 0.9) * x

    return clip(x)


def _bad_square(x: Any) -> Any:
    """Return a square with another gradient, of what it captures."""

    @tf.custom_gradient
    def square(x: Any) -> Any:
        y = tf.tanh(x) * x
        return y * x, lambda dy: dy * (3.0 * y + tf.sin(x))

    return square(x)


def plain(fn: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: (fn, [])


def _several() -> Any:
    @tf.custom_gradient
    def both(x: Any, y: Any) -> Any:
        z = tf.tanh(x)
        return (z * y, x - y), lambda dz, dw: (dz * z * 10.0 * y + dw, dw * x)

    def fn(x: Any) -> Any:
        a, b = both(x, x * 2.0)
        return a * a + tf.sin(b)

    return fn, []


def _structures() -> Any:
    @tf.custom_gradient
    def both(pair: Any) -> Any:
        a, b = pair["a"], pair["b"]
        return {"sum": a + b, "product": a * b}, lambda dproduct, dsum: {"a": dsum * 2.0 * b, "b": dproduct * a * b}

    def fn(x: Any) -> Any:
        found = both({"a": x, "b": x * x})
        return found["sum"] * tf.exp(found["product"])

    return fn, []


def _keywords() -> Any:
    @tf.custom_gradient
    def scaled(x: Any, y: Any = 2.0) -> Any:
        return x * y, lambda dy: (dy * y * x, dy * x)

    return lambda x: scaled(x, x + 1.0), []


def _outer_tensor() -> Any:
    def fn(x: Any) -> Any:
        outer = tf.exp(x)

        @tf.custom_gradient
        def inner(z: Any) -> Any:
            return z * 2.0, lambda dy: dy * outer

        return inner(tf.sin(x))

    return fn, []


def _outside_constant() -> Any:
    constant = tf.constant([1.0, 2.0, 3.0])

    @tf.custom_gradient
    def inner(x: Any) -> Any:
        return x * x, lambda dy: dy * constant * x

    return inner, []


def _variables() -> Any:
    v = tf.Variable([3.0, 2.0, 1.0], name="v")

    @tf.custom_gradient
    def inner(x: Any) -> Any:
        def grad(dy: Any, variables: Any = None) -> Any:
            assert len(variables) == 1
            return dy * v * v, [dy * 7.0 * x]

        return x * v, grad

    return lambda x: inner(x) * v, [v]


def _gradient_only_variable() -> Any:
    v = tf.Variable([3.0, 2.0, 1.0], name="only")

    @tf.custom_gradient
    def inner(x: Any) -> Any:
        return x * 2.0, lambda dy: dy * v * x

    return inner, []


def _none() -> Any:
    @tf.custom_gradient
    def inner(x: Any, y: Any) -> Any:
        return x * y, lambda dy: (dy * y * 3.0, None)

    return lambda x: inner(x, tf.sin(x)), []


def _nested() -> Any:
    @tf.custom_gradient
    def inner(x: Any) -> Any:
        y = _bad_square(x)
        return y * x, lambda dy: dy * y * 5.0

    return lambda x: inner(tf.sin(x)) * x, []


def _custom_in_gradient() -> Any:
    @tf.custom_gradient
    def outer(x: Any) -> Any:
        return x * x, lambda dy: _bad_square(dy) * x

    return lambda x: outer(x) * x, []


def _overlapping() -> Any:
    @tf.custom_gradient
    def first(x: Any) -> Any:
        return tf.sin(x), lambda dy: dy * x * 2.0

    @tf.custom_gradient
    def second(x: Any, y: Any) -> Any:
        return x * y, lambda dy: (dy * y * y, dy * x)

    def fn(x: Any) -> Any:
        a = first(x)
        b = second(a, x)
        return second(b, a) + a

    return fn, []


def _while(x: Any) -> Any:
    for _ in tf.range(3):
        x = _bad_square(x) * 0.5
    return x


def _while_outer(x: Any) -> Any:
    outer = tf.exp(x)

    @tf.custom_gradient
    def inner(z: Any) -> Any:
        return z * 0.5, lambda dy: dy * outer

    for _ in tf.range(3):
        x = inner(x)
    return x


def _cond(x: Any) -> Any:
    # TensorFlow cannot take the gradient of a branch whose custom gradient captures a tensor from outside it.
    if tf.reduce_sum(x) > 0:
        return _bad_square(tf.identity(x))
    return _stable(tf.identity(x))


def _cond_outer(x: Any) -> Any:
    outer = tf.exp(x)

    @tf.custom_gradient
    def inner(z: Any) -> Any:
        return z * 0.5, lambda dy: dy * outer

    return tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: x)


def _call() -> Any:
    inner = tf.function(_bad_square)
    return lambda x: inner(x) * x, []


def _wrapped_function() -> Any:
    body = tf.function(lambda x: tf.exp(x) * x)

    @tf.custom_gradient
    def inner(x: Any) -> Any:
        y = body(x)
        return y, lambda dy: dy * y * 2.0

    return inner, []


def _straight_through(x: Any) -> Any:
    @tf.custom_gradient
    def rounded(x: Any) -> Any:
        return tf.round(x), lambda dy: dy

    return rounded(x * 3.0) * x


def _recompute() -> Any:
    v = tf.Variable([0.5, 2.0, 1.0], name="v")

    @tf.recompute_grad
    def block(x: Any) -> Any:
        return tf.sin(x * v) * tf.exp(x)

    return lambda x: block(x * x) + x, [v]


def _recompute_closure() -> Any:
    def fn(x: Any) -> Any:
        outer = tf.exp(x)
        return tf.recompute_grad(lambda z: tf.sin(z) * outer)(x * x)

    return fn, []


def _recompute_closure_of_the_argument() -> Any:
    def fn(x):
        outer = tf.sin(x)
        return tf.recompute_grad(lambda z: z * tf.exp(outer))(x)

    return fn, []


def _recompute_custom() -> Any:
    return lambda x: tf.recompute_grad(lambda z: _bad_square(tf.sin(z)) * z)(x), []


def _registered(name: str, gradient: Any) -> str:
    with contextlib.suppress(KeyError):  # a second registration
        tf.RegisterGradient(name)(gradient)
    return name


def _override(x: Any) -> Any:
    name = _registered("GuidedRelu", lambda op, dy: tf.where(dy > 0.4, dy, 0.0) * op.outputs[0] + op.inputs[0])
    with tf.compat.v1.get_default_graph().gradient_override_map({"Relu": name}):
        return tf.nn.relu(x) * x


def _override_two(x: Any) -> Any:
    name = _registered("LopsidedMul", lambda op, dy: (dy * op.inputs[1] * 2.0, None))
    with tf.compat.v1.get_default_graph().gradient_override_map({"Mul": name}):
        y = tf.multiply(x, tf.sin(x))
    return y * x


def _override_call() -> Any:
    inner = tf.function(lambda x: tf.exp(x))

    def fn(x: Any) -> Any:
        name = _registered("OfTheCall", lambda op, dy: dy * op.outputs[0] * op.inputs[0])
        graph = tf.compat.v1.get_default_graph()
        with graph.gradient_override_map({"PartitionedCall": name}):
            return inner(x)

    return fn, []


def _stable(x: Any) -> Any:
    """Return a value whose forward code has a NaN gradient."""

    @tf.custom_gradient
    def root(x: Any) -> Any:
        return tf.sqrt(tf.nn.relu(x)), lambda dy: dy * x * x

    return root(x)


CASES = {
    "clip": Case("one input, a gradient that clips", plain(_clip), forward_mode=REFUSED),
    "captures": Case("a gradient of captured forward tensors", plain(_bad_square)),
    "stable": Case("a stable gradient where the forward code's is NaN", plain(_stable)),
    "several": Case("several inputs and results", _several),
    "structures": Case("structures in and out", _structures),
    "keywords": Case("default arguments", _keywords),
    "outer tensor": Case("a gradient that captures a tensor from outside", _outer_tensor),
    "outside constant": Case(
        "a gradient that captures a constant from outside the function",
        _outside_constant,
        transposed=False,
        saved=UNSAVED,
    ),
    "variables": Case("`variables=`", _variables),
    "gradient-only variable": Case(
        "a variable that only the gradient reads", _gradient_only_variable, transposed=False, saved=UNSAVED
    ),
    "none": Case("a gradient that is None", _none),
    "nested": Case("nested custom gradients", _nested),
    "in gradient": Case("a custom gradient inside a gradient function", _custom_in_gradient, forward_mode=REFUSED),
    "overlapping": Case("overlapping custom gradients", _overlapping),
    "while": Case("inside a loop", plain(_while), transposed=False),
    "while, outer": Case("inside a loop, capturing a tensor from outside it", plain(_while_outer)),
    "cond": Case(
        "inside branches",
        plain(_cond),
        transposed=False,
    ),
    "cond, outer": Case(
        "inside a branch, capturing a tensor from outside it, where TensorFlow fails",
        plain(_cond_outer),
        transposed=False,
        second=NONE,
        expected=lambda x: np.cos(x / 2) * [1, 2, 0.5] * np.exp(x),
    ),
    "call": Case("inside a called function", _call),
    "wrapped function": Case("around a called function", _wrapped_function),
    "silu": Case("tf.nn.silu", plain(lambda x: tf.nn.silu(x) * x)),
    "straight-through": Case("straight-through estimators", plain(_straight_through)),
    "straight-through, stopped": Case(
        "straight-through by tf.stop_gradient", plain(lambda x: (x + tf.stop_gradient(tf.round(x) - x)) * x)
    ),
    "stop_gradient": Case("tf.stop_gradient", plain(lambda x: tf.stop_gradient(tf.exp(x)) * x * x)),
    "recompute": Case("tf.recompute_grad: jax.checkpoint", _recompute, transposed=False, second=NONE),
    "recompute, closure": Case(
        "tf.recompute_grad of a closure: what it closes over gets none",
        _recompute_closure,
        transposed=False,
        second=NONE,
    ),
    "recompute, closure of the argument": Case(
        "the same where that depends on the argument itself",
        _recompute_closure_of_the_argument,
        transposed=False,
        second=NONE,
    ),
    "recompute, custom": Case(
        "a custom gradient inside tf.recompute_grad", _recompute_custom, transposed=False, second=NONE
    ),
    "override": Case("gradient_override_map, one input", plain(_override), forward_mode=REFUSED, saved=UNSAVED),
    "override, two": Case("gradient_override_map, two inputs, one None", plain(_override_two), saved=UNSAVED),
    "override, call": Case(
        "gradient_override_map of a call: TensorFlow takes the body's gradient", _override_call, saved=UNSAVED
    ),
}


def loss(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scalar of a function's result that no derivative of is constant."""
    return lambda x: tf.reduce_sum(tf.sin(fn(x)) * tf.constant([1.0, 2.0, 0.5]))


def tape_gradients(fn: Callable[..., Any], variables: list[Any]) -> tuple[Any, Any]:
    """Return TensorFlow's gradients, and those of their sum of squares."""
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = fn(x)
        first = inner.gradient(y, [x, *variables], unconnected_gradients="zero")
        total = tf.add_n([tf.reduce_sum(g * g) for g in first])
    return [g.numpy() for g in first], outer.gradient(total, x, unconnected_gradients="zero")


class Subject:
    """A case converted, with what its functions give."""

    def __init__(self, case: Case):
        fn, self.variables = case.build()
        self.fn = tf.function(loss(fn))
        self.jax_fn, self.params = tf2jax.convert(self.fn, tf.TensorSpec([3]))

    def value(self, params: Any, x: Any) -> Any:
        return self.jax_fn(params, x)[0]

    def total(self, x: Any) -> Any:
        by_params, by_x = jax.grad(self.value, (0, 1))(self.params, x)
        read = [by_params[v.name.split(":")[0]] for v in self.variables]
        return sum((g * g).sum() for g in [by_x, *read]), (by_x, *read)


def close(actual: Any, expected: Any) -> bool:
    return np.allclose(actual, expected, rtol=2e-4, atol=1e-5)


def measure(case: Case, *, saved: bool) -> dict[str, str]:
    """Return what a case gives in each column, the last one only if ``saved``."""
    subject = Subject(case)
    row = {"forward": SAME if close(subject.value(subject.params, X), subject.fn(tf.constant(X))) else "differs"}
    second, first = jax.jit(jax.grad(subject.total, has_aux=True))(X)
    if case.expected is not None:
        expected = [case.expected(X.astype(np.float64))]
        row["second order"] = NONE
    elif case.second == NONE:
        with tf.GradientTape() as tape:
            x = tf.constant(X)
            tape.watch(x)
            y = subject.fn(x)
        expected = [g.numpy() for g in tape.gradient(y, [x, *subject.variables])]
        row["second order"] = NONE
    else:
        expected, expected_second = tape_gradients(subject.fn, subject.variables)
        row["second order"] = SAME if close(second, expected_second) else "differs"
    row["reverse"] = SAME if all(map(close, first, expected)) else "differs"
    row["forward mode"] = forwards(subject, expected[0], transposed=case.transposed)
    if saved:
        row["saved and restored"] = saved_and_restored(case, expected)
    return row


def forwards(subject: Subject, gradient: Any, *, transposed: bool) -> str:
    """Return forward mode's outcome, against gradient and ForwardAccumulator."""
    along = np.array([0.7, -1.3, 0.4], np.float32)
    expected = [along.astype(np.float64) @ gradient]
    if transposed:
        # Only around functions does TensorFlow heed custom gradients here.
        x = tf.constant(X)
        with tf.autodiff.ForwardAccumulator(x, tf.constant(along)) as accumulator:
            y = subject.fn(x)
        expected.append(accumulator.jvp(y))

    def tangent(x: Any) -> Any:
        return jax.jvp(lambda x: subject.value(subject.params, x), (x,), (along,))[1]

    try:
        found = [tangent(X), jax.jit(tangent)(X), jax.jacfwd(lambda x: subject.value(subject.params, x))(X) @ along]
    except tf2jax.Tf2JaxError as error:
        return REFUSED if "reverse rule only" in str(error) else "fails"
    return SAME if all(close(a, e) for a in found for e in expected) else "differs"


def saved_and_restored(case: Case, expected: list[Any]) -> str:
    """Return how the gradients of a case come out that went through a SavedModel."""
    module = tf.Module()
    fn, module.kept = case.build()
    module.fn = tf.function(loss(fn), input_signature=[tf.TensorSpec([3])])
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
            tf.saved_model.save(module, directory, options=options)
        except Exception:
            return UNSAVED
        restored = tf.saved_model.load(directory)
        jax_fn, params = tf2jax.convert_from_restored(restored.fn)
        by_x = jax.jit(jax.grad(lambda x: jax_fn(params, x)[0]))(X)
        if any("custom gradient" in str(w.message) for w in seen):
            return "warns"
        return SAME if close(by_x, expected[0]) else "differs"


COLUMNS = ("forward", "reverse", "forward mode", "second order", "saved and restored")


def claimed(case: Case) -> dict[str, str]:
    """Return the row of the page."""
    return dict(zip(COLUMNS, (SAME, SAME, case.forward_mode, case.second, case.saved), strict=True))
