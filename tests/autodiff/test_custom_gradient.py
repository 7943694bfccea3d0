"""Custom gradients under every transform: as jax.custom_vjp, and forwards.

Forward mode is the transpose.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.sharding import Mesh, PartitionSpec

import tf2jax_lite as tf2jax
from tests._support import close
from tf2jax_lite.autodiff.custom_gradient import Refusal, with_custom_gradient
from tf2jax_lite.errors import ForwardModeError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 3)).astype(np.float32)
W = RANDOM.normal(size=(3, 2)).astype(np.float32)
DX, DW = RANDOM.normal(size=X.shape).astype(np.float32), RANDOM.normal(size=W.shape).astype(np.float32)
FACTOR = np.float32(3)
REFUSAL = Refusal("not linear", "node", "Op", ())


def _results(x, w):
    return [jnp.tanh(x) @ w, jnp.sum(x)]


def _gradient(args, results, saved, cotangents):
    (x, w), (y, total), (factor,) = args, results, saved
    dy, dtotal = cotangents
    return [(dy * y) @ w.T * factor + dtotal * total * x, jnp.sin(x).T @ dy * factor]


def ours(x, w, factor=FACTOR):
    results = [jax.lax.stop_gradient(v) for v in _results(x, w)]
    return with_custom_gradient(_gradient, [x, w], results, [factor], REFUSAL)


@jax.custom_vjp
def reference(x, w, factor=FACTOR):
    return _results(x, w)


def _enter(x, w, factor=FACTOR):
    results = reference(x, w, factor)
    return results, (x, w, results, factor)


def _leave(residuals, cotangents):
    x, w, results, factor = residuals
    return *_gradient([x, w], results, [factor], cotangents), None


reference.defvjp(_enter, _leave)


def loss(fn):
    def of(x, w, *rest):
        y, total = fn(x, w, *rest)
        return jnp.sum(jnp.sin(y)) * total

    return of


def along(jacobians, tangents):
    """Return products of `jax.jacrev`'s Jacobians with tangents."""

    def product(jacobian, tangent):
        return jnp.sum(jacobian * tangent, tuple(range(-tangent.ndim, 0)))

    return [sum(map(product, some, tangents)) for some in jacobians]


@pytest.mark.full
def test_backwards():
    expected = jax.grad(loss(reference), (0, 1))(X, W)
    close(jax.grad(loss(ours), (0, 1))(X, W), expected)
    close(jax.jit(jax.grad(loss(jax.jit(ours)), (0, 1)))(X, W), expected)
    close(jax.grad(loss(jax.checkpoint(ours)), (0, 1))(X, W), expected)


@pytest.mark.full
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint])
def test_forwards(wrap):
    fn = wrap(ours)
    jacobians = jax.jacrev(reference, (0, 1))(X, W)
    close(jax.jvp(fn, (X, W), (DX, DW))[1], along(jacobians, (DX, DW)))
    close(jax.jit(lambda *d: jax.jvp(fn, (X, W), d)[1])(DX, DW), along(jacobians, (DX, DW)))
    close(jax.jvp(lambda x: fn(x, W), (X,), (DX,))[1], along(jacobians, (DX, 0 * DW)))
    close(jax.jacfwd(fn, (0, 1))(X, W), jacobians)
    results, linear = jax.linearize(fn, X, W)
    close(results, reference(X, W))
    close(linear(DX, DW), along(jacobians, (DX, DW)))


def test_nothing_of_it_is_left_backwards():
    """No code of the transpose, and none of the forward code's derivative."""
    texts = [str(jax.make_jaxpr(jax.grad(loss(fn), (0, 1)))(X, W)) for fn in (ours, reference)]
    assert "custom_gradient_tangent" not in texts[0]
    for name in (" sin ", " cos ", " tanh ", " dot_general"):
        assert texts[0].count(name) == texts[1].count(name)


@pytest.mark.full
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (2, 1)])
def test_batches(axes):
    """Gradients of what is one for all of a batch are added up."""
    many = [v if a is None else np.stack([v, 2 * v, -v], a) for v, a in zip((X, W), axes, strict=True)]
    moved = [d if a is None else np.stack([d, d + 1, d * d], a) for d, a in zip((DX, DW), axes, strict=True)]

    def by_one(x, w):
        each = [[v if a is None else jnp.take(v, i, a) for v, a in zip((x, w), axes, strict=True)] for i in range(3)]
        return sum(loss(reference)(*some) for some in each)

    close(jax.vmap(ours, axes)(*many), jax.vmap(reference, axes)(*many))
    # Not with JAX's vmap of the reference: it adds up twice what comes to results that are one for all.
    gradients = jax.grad(lambda x, w: jnp.sum(jax.vmap(loss(ours), axes)(x, w)), (0, 1))(*many)
    close(gradients, jax.grad(by_one, (0, 1))(*many))
    each = jax.vmap(lambda x, w: jax.grad(loss(ours), (0, 1))(x, w), axes)(*many)
    close(each, jax.vmap(lambda x, w: jax.grad(loss(reference), (0, 1))(x, w), axes)(*many))

    def one(x, w, dx, dw):
        return along(jax.jacrev(reference, (0, 1))(x, w), (dx, dw))

    expected = jax.vmap(one, axes * 2)(*many, *moved)
    close(jax.vmap(lambda x, w, dx, dw: jax.jvp(ours, (x, w), (dx, dw))[1], axes * 2)(*many, *moved), expected)
    # The derivative of a batch of calls, not the calls' derivatives; and tangents of arguments that are one for all.
    close(jax.jvp(jax.vmap(ours, axes), tuple(many), tuple(moved))[1], expected)
    jacobians = jax.jacfwd(jax.vmap(ours, axes), (0, 1))(*many)
    close(along(jacobians, moved), expected)


@pytest.mark.full
def test_only_what_is_saved_differs_in_a_batch():
    factors = np.float32([1, 2, 5])

    expected = jax.grad(lambda x: sum(loss(reference)(x, W, f) * f for f in factors))(X)
    close(jax.grad(lambda x: jnp.sum(jax.vmap(loss(ours), (None, None, 0))(x, W, factors) * factors))(X), expected)
    jacobian = jnp.stack([jax.jacrev(lambda x, f=f: reference(x, W, f)[0])(X) for f in factors])
    moved = jax.jvp(lambda x: jax.vmap(ours, (None, None, 0))(x, W, factors)[0], (X,), (DX,))[1]
    close(moved, jnp.sum(jacobian * DX, (-1, -2)))


@pytest.mark.full
def test_second_derivatives():
    """They are those of the gradient function's code in every mix of modes.

    The code need not be symmetric.
    """

    def moved(x, w):
        """Return the loss's derivative along DX, by the reference's gradient."""
        return jnp.sum(jax.grad(loss(reference))(x, w) * DX)

    def forwards(x, w):
        return jax.jvp(lambda x: loss(ours)(x, w), (x,), (DX,))[1]

    expected = jax.grad(moved, (0, 1))(X, W)
    close(jax.grad(forwards, (0, 1))(X, W), expected)
    close(jax.jvp(forwards, (X, W), (DX, DW))[1], jnp.sum(expected[0] * DX) + jnp.sum(expected[1] * DW))
    hessian = jax.jacrev(jax.grad(loss(reference)))(X, W)
    close(jax.hessian(loss(ours))(X, W), hessian)
    close(jax.jacrev(jax.grad(loss(ours)))(X, W), hessian)
    close(jax.jacrev(jax.jacfwd(loss(ours)))(X, W), hessian)
    close(jax.jit(jax.jacfwd(jax.jacfwd(loss(ours))))(X, W), hessian)


@pytest.mark.full
def test_loops_and_branches():
    def run(fn):
        def of(x):
            body = lambda c, _: (c + 0.1 * fn(c, W @ W.T)[0], jnp.sum(c))  # noqa: E731
            c, sums = jax.lax.scan(body, x, None, length=3)
            return jax.lax.cond(jnp.sum(c) > -1e9, lambda c: jnp.sum(fn(c, W)[0]), jnp.sum, c) + jnp.sum(sums)

        return of

    def until(fn):
        cond = lambda s: s[0] < 3  # noqa: E731
        return lambda x: jnp.sum(jax.lax.while_loop(cond, lambda s: (s[0] + 1, fn(s[1], W @ W.T)[0]), (0, x))[1])

    expected = jax.grad(run(reference))(X)
    close(jax.grad(run(ours))(X), expected)
    close(jax.jvp(run(ours), (X,), (DX,))[1], jnp.sum(expected * DX))
    x = X
    for _ in range(3):
        tangent = DX if x is X else tangent  # noqa: F821
        jacobian = jax.jacrev(lambda x: reference(x, W @ W.T)[0])(x)
        tangent, x = jnp.sum(jacobian * tangent, (-1, -2)), reference(x, W @ W.T)[0]
    close(jax.jvp(until(ours), (X,), (DX,))[1], jnp.sum(tangent))


@pytest.mark.full
@pytest.mark.parametrize("varied", ["data", "both"])
def test_inside_shard_map(varied):
    """Arguments equal on all devices get the sum of gradients, as in JAX."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    specs = (PartitionSpec("d"), PartitionSpec("d") if varied == "both" else PartitionSpec())

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=(PartitionSpec("d"), specs[1]))
    def gradients(x, w):
        return jax.grad(loss(ours), (0, 1))(x, w)

    close(gradients(X, W), jax.grad(loss(reference), (0, 1))(X, W))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=specs * 2, out_specs=PartitionSpec("d"))
    def moved(x, w, dx, dw):
        return jax.jvp(lambda *a: ours(*a)[0], (x, w), (dx, dw))[1]

    jacobians = jax.jacrev(lambda *a: reference(*a)[:1], (0, 1))(X, W)
    close(jax.jit(moved)(X, W, DX, DW), along(jacobians, (DX, DW))[0])


NOT_LINEAR = {
    "clipped": lambda dy: jnp.clip(dy, -1, 1),
    "squared": lambda dy: dy * dy,
    "where": lambda dy: jnp.where(dy > 0, dy, 2 * dy),
    "normed": lambda dy: dy / jnp.sqrt(jnp.sum(dy * dy)),
}
LINEAR = {
    "where": lambda dy: jnp.where(jnp.arange(3) > 1, dy, 2 * dy),
    "an offset": lambda dy: 2 * dy + jnp.float32([1, 1, 2]),
    "a loop": lambda dy: jax.lax.fori_loop(0, 3, lambda i, v: v * 2 + jnp.roll(v, 1), dy),
    "a call": lambda dy: jax.jit(lambda v: jnp.cumsum(v) * 3)(dy),
    "sorted by something else": lambda dy: dy[jnp.argsort(jnp.float32([3, 1, 2]))],
}


@pytest.mark.default_cases("clipped")
@pytest.mark.parametrize("name", NOT_LINEAR)
def test_what_is_not_linear_is_refused(name):
    fn = lambda x: with_custom_gradient(lambda a, r, s, c: [NOT_LINEAR[name](c[0])], [x], [x], (), REFUSAL)[0]  # noqa: E731
    x = jnp.float32([1, -2, 3])
    close(jax.vjp(fn, x)[1](x)[0], NOT_LINEAR[name](x))
    for derivative in (lambda: jax.jvp(fn, (x,), (x,)), lambda: jax.jit(jax.jacfwd(fn))(x)):
        with pytest.raises(ForwardModeError, match="not linear") as error:
            derivative()
        assert (error.value.node, error.value.op) == ("node", "Op")


@pytest.mark.full
@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_is_not(name):
    fn = lambda x: with_custom_gradient(lambda a, r, s, c: [LINEAR[name](c[0])], [x], [x], (), REFUSAL)[0]  # noqa: E731
    x, t = jnp.float32([1, -2, 3]), jnp.float32([0.3, 0.5, -2])
    jacobian = jax.vmap(lambda e: LINEAR[name](e) - LINEAR[name](0 * e))(jnp.eye(3))
    close(jax.jvp(fn, (x,), (t,))[1], jacobian @ t)


@pytest.mark.full
def test_complex_numbers():
    """Around a function TensorFlow's ForwardAccumulator gives the same."""

    @tf.custom_gradient
    def squared(x):
        return x * x, lambda dy: dy * tf.math.conj(3.0 * x)

    fn = tf.function(squared)
    x, t = tf.constant([1 + 2j, 0.5 - 1j], tf.complex64), tf.constant([0.3 - 1j, 2 + 1j], tf.complex64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    gradient = tape.gradient(y, x)
    jax_fn = tf2jax.convert_functional(fn, x)
    _, moved = jax.jvp(jax_fn, (x.numpy(),), (t.numpy(),))
    close(moved, 3 * x.numpy() * t.numpy())
    # A gradient of TensorFlow's is the conjugate of JAX's.
    close(jnp.conj(jax.vjp(jax_fn, x.numpy())[1](np.ones(2, np.complex64))[0]), gradient.numpy())
