"""Derivatives of decompositions, also at repeated or zero values.

The functions do not depend on the choice of vectors, which is arbitrary in both.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RNG = np.random.default_rng(0)
ANY = RNG.normal(size=(3, 3))
REAL = np.stack(
    [
        ANY,
        ANY + ANY.T,
        np.eye(3),
        np.diag([2.0, 2.0, 1.0]),
        np.zeros((3, 3)),
        np.array([[1.0, 2, 0], [-2, 1, 0], [0, 0, 3]]),  # conjugate eigenvalues
    ]
)
COMPLEX = np.concatenate([REAL, ANY + 1j * RNG.normal(size=(2, 3, 3))])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def back(left, values, right):
    return tf.matmul(left * tf.cast(values, left.dtype)[..., None, :], right)


def of_singular_values(x):
    s, u, v = tf.linalg.svd(x)
    return back(u, tf.sqrt(s + 1), tf.linalg.adjoint(v))


def of_hermitian(x):
    values, vectors = tf.linalg.eigh(x + tf.linalg.adjoint(x))
    return back(vectors, tf.exp(values), tf.linalg.adjoint(vectors))


def of_any(x):
    values, vectors = tf.linalg.eig(x)
    return back(vectors, tf.exp(values), tf.linalg.inv(vectors))


def projection(x, first):
    """Return the projection onto vectors from one on, completing ones included."""
    tall = x if x.shape[-2] > x.shape[-1] else tf.linalg.adjoint(x)
    _, u, _ = tf.linalg.svd(tall, full_matrices=True)
    return tf.matmul(u[..., first:], u[..., first:], adjoint_b=True)


FUNCTIONS = {
    "svd": of_singular_values,
    "singular_values": lambda x: tf.linalg.svd(x, compute_uv=False),
    "svd_of_tall": lambda x: of_singular_values(x[..., :2]),
    "svd_of_wide": lambda x: of_singular_values(x[..., :2, :]),
    "eigh": of_hermitian,
    "eigvalsh": lambda x: tf.linalg.eigvalsh(x + tf.linalg.adjoint(x)),
    "eig": of_any,
    "eigvals": lambda x: tf.abs(tf.linalg.eigvals(x)) ** 2,
    "lengths": lambda x: tf.abs(tf.linalg.eig(x + np.diag([1.0, 4.0, 9.0]))[1]),
    "pinv": tf.linalg.pinv,
}


def loss(x):
    """Return a number for each matrix of a batch ``[n, ...]``."""
    parts = (tf.math.real(x), tf.math.imag(x))
    return sum(tf.reduce_sum(tf.sin(part), axis=range(1, x.shape.rank)) for part in parts)


def gradients(function, x):
    """Return TensorFlow's gradient, ours (conjugated), and by forward mode."""

    def theirs(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(function(x))
        return tape.gradient(value, x)

    call, _ = tf2jax.convert(tf.function(lambda x: loss(function(x)), autograph=False), x)
    losses = lambda x: call({}, x)[0]  # noqa: E731
    ours = jax.jit(jax.grad(lambda x: losses(x).sum()))(x)
    basis = np.eye(x[0].size, dtype=x.dtype).reshape(-1, *x[0].shape)
    forward = jax.jit(jax.vmap(lambda t: jax.jvp(losses, (x,), (jnp.broadcast_to(t, x.shape),))[1]))(basis)
    return tf.function(theirs, autograph=False)(tf.constant(x)).numpy(), np.conj(ours), forward.T.reshape(x.shape)


@pytest.mark.default_cases("svd_of_tall-complex", "lengths-real")
@pytest.mark.parametrize("matrices", [REAL, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients(function, matrices):
    if function == "pinv":
        matrices = REAL  # tf.linalg.pinv takes real matrices only
    expected, actual, forward = gradients(FUNCTIONS[function], matrices)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(forward, expected.real, rtol=1e-6, atol=1e-8)


@pytest.mark.full
@pytest.mark.parametrize("matrices", [REAL[:1], COMPLEX[-2:]], ids=["real", "complex"])
@pytest.mark.parametrize("first", [1, 2])
def test_completed_vectors(first, matrices):
    """One completing vector, for which TensorFlow has the gradient."""
    for x in (matrices[..., :2], matrices[..., :2, :]):
        expected, actual, _ = gradients(lambda x: projection(x, first), x)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.full
def test_more_completed_vectors():
    """TensorFlow has no gradient; their span is the others' complement."""

    def others(x):
        u = tf.linalg.svd(tf.linalg.adjoint(x))[1]
        return tf.eye(3, dtype=x.dtype) - tf.matmul(u, u, adjoint_b=True)

    x = REAL[:2, :1]
    completed, _ = tf2jax.convert(tf.function(lambda x: loss(projection(x, 1)), autograph=False), x)
    actual = jax.grad(lambda x: completed({}, x)[0].sum())(x)
    np.testing.assert_allclose(actual, gradients(others, x)[1], rtol=1e-6, atol=1e-8)


@pytest.mark.full
@pytest.mark.parametrize("function", [of_singular_values, of_hermitian])
def test_single_precision(function):
    """The regularizer is the same in float32: gradients near the identity stay finite."""
    x = np.stack([np.eye(3), np.diag([1, 1, 1 + 1e-6]), ANY])
    call, _ = tf2jax.convert(tf.function(lambda x: loss(function(x)), autograph=False), x.astype(np.float32))
    actual = jax.grad(lambda x: call({}, x)[0].sum())(x.astype(np.float32))
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, gradients(function, x.astype(np.float32))[0], rtol=1e-4, atol=1e-4)
