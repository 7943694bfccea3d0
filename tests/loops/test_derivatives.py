"""Derivatives of while loops against a masked scan and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.loops import checkpointing, derivatives

RANDOM = np.random.default_rng(0)
W = RANDOM.normal(size=(3, 3))
X = RANDOM.normal(size=3) * 0.1 + 0.1
WS = np.stack([W, W * 0.5, W * 2])
XS = np.stack([X, X * 2, X * 3])


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def loop(test, step, start):
    found, differentiable = derivatives.while_loop(test, step, start)
    assert differentiable
    return found


def masked(test, step, start, length=1500):
    def one(state, _):
        going, after = test(state), step(state)
        return jax.tree.map(lambda a, b: jnp.where(going, a, b), after, state), None

    return lax.scan(one, jax.tree.map(jnp.asarray, start), None, length=length)[0]


def assert_close(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


def search(run, limit):
    """Carry an integer, too, and a value that only the result depends on."""

    def fn(w, x):
        def step(state):
            i, x, c = state
            return i + 1, x * 1.01 + 0.02 * jnp.sin(w @ x), c + x[0]

        _, x, c = run(lambda state: jnp.sum(state[1] ** 2) < limit, step, (0, x, jnp.zeros((), x.dtype)))
        return jnp.sum(jnp.cos(x)) + c * c

    return fn


def hessian_backwards(fn, by):
    return jax.jacrev(jax.jacrev(fn, by), by)


def forwards_of_backwards(fn, by):
    return jax.jacfwd(jax.jacrev(fn, by), by)


def backwards_of_forwards(fn, by):
    return jax.jacrev(jax.jacfwd(fn, by), by)


def forwards_twice(fn, by):
    return jax.jacfwd(jax.jacfwd(fn, by), by)


def kept(fn, by):
    return jax.grad(jax.checkpoint(fn), by)


@pytest.mark.full
@pytest.mark.parametrize("limit", [0.0, 0.1, 2.0, 40.0])  # of no iteration, to hundreds
@pytest.mark.parametrize("order", [jax.grad, jax.jacfwd, kept], ids=lambda f: f.__name__)
def test_first_derivatives(order, limit):
    ours, theirs = search(loop, limit), search(masked, limit)
    assert_close(jax.jit(ours)(W, X), theirs(W, X))
    expected = jax.grad(theirs, (0, 1))(W, X)
    assert_close(jax.jit(order(ours, (0, 1)))(W, X), expected)
    assert_close(order(ours, (0, 1))(W, X), expected)


@pytest.mark.full
@pytest.mark.parametrize(
    "order",
    [hessian_backwards, forwards_of_backwards, backwards_of_forwards, forwards_twice],
    ids=lambda f: f.__name__,
)
def test_second_derivatives(order):
    ours, theirs = search(loop, 2.0), search(masked, 2.0)
    assert_close(jax.jit(order(ours, (0, 1)))(W, X), jax.jit(order(theirs, (0, 1)))(W, X))


@pytest.mark.full
def test_third_derivatives():
    def fn(run):
        def value(x):
            step = lambda s: (s[0] * jnp.sin(s[0]) + 1.0, s[1] + s[0])  # noqa: E731
            return jnp.sum(run(lambda s: s[1] < 3, step, (x, 0.0 * x))[0])

        return jax.jit(jax.grad(jax.grad(jax.grad(value))))(0.7)

    assert_close(fn(loop), fn(masked))


def unsymmetric(run):
    """Iterate with a derivative that is 0 by y, though y is read."""

    @jax.custom_vjp
    def scaled(x, y):
        return x * y

    def backwards(kept, ct):
        x, y = kept
        return jnp.sin(y) * x * ct, jnp.zeros_like(ct)

    # It calls itself, so that its derivative holds for the second order, too, as TensorFlow's does.
    scaled.defvjp(lambda x, y: (scaled(x, y), (x, y)), backwards)

    def value(xs):
        step = lambda s: (s[0] + 1, scaled(s[1], s[2]) * 1.3, s[2])  # noqa: E731
        return run(lambda s: s[0] < 3 + (s[1] > 90), step, (0, xs[0], xs[1]))[1]

    return jax.jit(jax.jacrev(jax.grad(value)))(jnp.asarray([1.1, 0.9]))


@pytest.mark.full
def test_derivatives_of_their_own_need_not_be_symmetric():
    found = unsymmetric(loop)
    assert_close(found, unsymmetric(lambda *args: masked(*args, length=4)))
    assert abs(found[0, 1] - found[1, 0]) > 0.1


def test_higher_orders_have_no_more_loops():
    def loops(order):
        fn = search(loop, 2.0)
        for _ in range(order):
            fn = lambda w, x, fn=fn: jnp.sum(jax.grad(fn, 1)(w, x))  # noqa: E731
        return jax.jit(fn).lower(W, X).as_text().count("stablehlo.while")

    assert loops(4) <= loops(1) * 8


@pytest.mark.full
def test_the_gradient_is_transposed():
    """Forwards by two backwards: the transpose of the transpose."""

    def twice(fn, *tangents):
        pull = jax.vjp(fn, W, X)[1]
        return jax.vjp(lambda ct: pull(ct), jnp.ones(()))[1](tangents)[0]

    assert_close(jax.jit(lambda: twice(search(loop, 2.0), W, X))(), jax.jvp(search(masked, 2.0), (W, X), (W, X))[1])


@pytest.mark.full
@pytest.mark.parametrize("by", ["x", "w", "both"])
@pytest.mark.parametrize("limit", [0.1, 40.0])
def test_of_many(by, limit):
    """Each ends where its data says."""
    axes, args = {"x": ((None, 0), (W, XS)), "w": ((0, None), (WS, X)), "both": ((0, 0), (WS, XS))}[by]
    ours, theirs = (search(run, limit) for run in (loop, masked))
    assert_close(
        jax.jit(jax.vmap(jax.grad(ours, (0, 1)), axes))(*args),
        jax.jit(jax.vmap(jax.grad(theirs, (0, 1)), axes))(*args),
    )
    of_many = [lambda *args, fn=fn: jnp.sum(jax.vmap(fn, axes)(*args) ** 2) for fn in (ours, theirs)]
    assert_close(*(jax.jit(jax.grad(fn, (0, 1)))(*args) for fn in of_many))
    assert_close(*(jax.jit(jax.jacfwd(fn, (0, 1)))(*args) for fn in of_many))


@pytest.mark.full
@pytest.mark.parametrize("slots", [2, 4, 6])
def test_any_number_of_iterations_with_few_slots(slots, monkeypatch):
    """All states fit, or some, or fewer than the stretches of slots."""
    monkeypatch.setattr(checkpointing, "_MIN_SLOTS", slots)
    monkeypatch.setattr(checkpointing, "_MAX_SLOTS", slots)

    def value(w, x, n, run):
        step = lambda s: (s[0] + 1, s[1] * 0.999 + 0.02 * jnp.sin(w @ s[1]))  # noqa: E731
        return jnp.sum(run(lambda s: s[0] < n, step, (0, x))[1] ** 2)

    ours, theirs = (
        jax.jit(jax.grad(lambda w, x, n, run=run: value(w, x, n, run), (0, 1)))
        for run in (loop, lambda *args: masked(*args, length=300))
    )
    for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65, 100, 257):
        assert_close(ours(W, X, n), theirs(W, X, n))


@pytest.mark.default_cases("40")
@pytest.mark.parametrize("max_trips", [1, 5, 40])
def test_a_bound_changes_nothing(max_trips):
    def value(x, max_trips):
        step = lambda s: (s[0] + 1, s[1] * jnp.sin(s[1]) + 1)  # noqa: E731
        start = (jnp.zeros((), np.int32), x)
        return jnp.sum(derivatives.while_loop(lambda s: s[0] < 1 + jnp.sum(x > 9), step, start, max_trips)[0][1])

    assert_close(
        jax.jit(jax.grad(value), static_argnums=1)(X, max_trips), jax.grad(lambda x: jnp.sum(x * jnp.sin(x) + 1))(X)
    )


@pytest.mark.full
def test_those_that_have_ended_may_have_no_derivative():
    """Roots of negatives, and at 0; a `where` would not stop NaN gradients."""

    def fn(c, x):
        step = lambda s: (s[0] + 1, s[1] + 0.2 * c + 0.1 * jnp.sqrt(c - jnp.sum(s[1])))  # noqa: E731
        return jnp.sum(loop(lambda s: (s[0] < 10) & (jnp.sum(s[1]) < 1.0), step, (0, x))[1] ** 2)

    xs = np.stack([X, X * 0.5, X * 0 - 1, X + 3])
    by_c, by_x = zip(*(jax.grad(fn, (0, 1))(1.0, x) for x in xs), strict=True)
    assert np.isfinite(by_c).all() and np.isfinite(by_x).all()
    assert_close(jax.jit(jax.vmap(jax.grad(fn, (0, 1)), (None, 0)))(1.0, xs), (np.stack(by_c), np.stack(by_x)))
    summed = jax.jit(jax.grad(lambda c, xs: jnp.sum(jax.vmap(fn, (None, 0))(c, xs)), (0, 1)))(1.0, xs)
    assert_close(summed, (np.sum(by_c), np.stack(by_x)))


def differences(fn, x, step=1e-6):
    return np.array([(fn(x + e) - fn(x - e)) / (2 * step) for e in np.eye(len(x)) * step])


def drawn(x):
    def step(state):
        key, a = state
        key, now = jax.random.split(key)
        return key, a * 1.3 + jax.random.normal(now, a.shape) * a

    return jnp.sum(loop(lambda s: jnp.sum(s[1] ** 2) < 50.0, step, (jax.random.key(0), x))[1])


def nested(x):
    def outer(s):
        return s + 0.1 * loop(lambda t: t < 5.0, lambda t: t * 1.5 + jnp.sin(t), s * 0.3 + 0.2)

    return loop(lambda s: s < 4.0, outer, jnp.sum(x))


def in_a_scan_and_a_branch(x):
    def body(c, _):
        c = lax.cond(c < 2.0, lambda c: nested(c[None]) * 0.4, lambda c: c * 0.5, c)
        return c, c

    return jnp.sum(lax.scan(body, jnp.sum(x), None, length=5)[1])


@pytest.mark.full
@pytest.mark.parametrize("fn", [drawn, nested, in_a_scan_and_a_branch], ids=lambda f: f.__name__)
def test_finite_differences(fn):
    """Keys that are carried, loops in loops, and what else loops are in."""
    expected = np.stack([differences(fn, x) for x in XS])
    for order in (jax.grad(fn), kept(fn, 0), jax.jacfwd(fn)):
        np.testing.assert_allclose(jax.jit(order)(X), expected[0], rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(fn)))(XS), expected, rtol=1e-5)
    hessian = jax.jit(jax.hessian(fn))(X)
    np.testing.assert_allclose(hessian, np.stack(differences(jax.jit(jax.grad(fn)), X)), rtol=1e-4, atol=1e-5)


def test_without_derivatives_it_is_a_while_loop_and_no_more():
    text = jax.jit(search(loop, 2.0)).lower(W, X).as_text()
    plain = jax.jit(search(lax.while_loop, 2.0)).lower(W, X).as_text()
    assert text.count("stablehlo.while") == plain.count("stablehlo.while") == 1
    for op in ("add", "dot_general", "reduce"):  # constants may stand twice
        assert text.count(f"stablehlo.{op}") == plain.count(f"stablehlo.{op}")


@pytest.mark.full
def test_effects_are_had_once():
    """The loop is as it was, and says that no gradient goes backwards through it."""

    def step(x):
        jax.debug.callback(lambda x: None, x)
        return x + 1.0

    found, differentiable = derivatives.while_loop(lambda x: jnp.sum(x) < 9.0, step, jnp.asarray(X))
    assert not differentiable
    assert_close(found, lax.while_loop(lambda x: jnp.sum(x) < 9.0, lambda x: x + 1.0, X))


@pytest.mark.full
def test_what_jax_says_of_a_state_that_changes_comes_through():
    with pytest.raises(TypeError, match="carry"):
        derivatives.while_loop(lambda x: jnp.sum(x) < 9.0, lambda x: x[:2], jnp.asarray(X))


@pytest.mark.full
def test_memory_does_not_grow_with_the_iterations():
    """The states of 100,000 iterations would take 400 MB."""

    def value(x, n):
        return jnp.sum(loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1])

    compiled = jax.jit(jax.grad(value)).lower(np.ones(500), 100_000).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 << 20
