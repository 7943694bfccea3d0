"""Control flow, there and back: scans are scans again, with derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.stablehlo.harness import case, check, imported, same

R = np.random.RandomState(1)
V = R.randn(5).astype(np.float32)
M = R.randn(5, 3).astype(np.float32)
W = R.randn(3, 3).astype(np.float32)
D = {"grad": True, "vmap": True}


def rnn(x, w):
    return lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c * 2), jnp.zeros(3), x)


def inner_scan(x):
    return lax.scan(lambda c, a: (jnp.sin(c) + a, c * a), 0.0, x)


def two_arrays(x, y):
    return lax.scan(lambda c, a: (c + a[0] * a[1][0], (c, a[0] * c)), jnp.float32(1), (x, y))


CASES = [
    case("cond", lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), np.bool_(True), V, **D),
    case("cond_operands", lambda p, x: lax.cond(p > 1, lambda: x.sum(), lambda: x[0] * 2), np.int32(1), V, grad=True),
    case("switch", lambda p, x: lax.switch(p, [jnp.sin, jnp.cos, jnp.tan], x), np.int32(7), V, **D),
    case("platform", lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), V, grad=True),
    case("fori", lambda x: lax.fori_loop(0, 5, lambda i, c: c * jnp.cos(c) + i, x), V, **D),
    case("fori_reads", lambda x: lax.fori_loop(0, 5, lambda i, c: c * x[i] + i, jnp.float32(1)), V, **D),
    case("fori_from_two", lambda x: lax.fori_loop(2, 5, lambda i, c: c + x[i - 1] * x[4 - i], jnp.float32(0)), V, **D),
    case(
        "fori_writes",
        lambda x: lax.fori_loop(0, 5, lambda i, c: c.at[i].set(x[i] * i), jnp.zeros(7)),
        V,
        size=None,
        **D,
    ),
    case("fori_reads_what_it_writes", lambda x: lax.fori_loop(1, 5, lambda i, c: c.at[i].add(c[i - 1]), x), V, **D),
    case("fori_unknown", lambda x, n: lax.fori_loop(0, n, lambda i, c: c * i + 1, x), V, np.int32(3), vmap=True),
    case("while", lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), V, vmap=True),
    case("while_counts", lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)), V),
    case("scan", rnn, M, W, **D),
    case("scan_reverse", lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x, reverse=True), V, **D),
    case("scan_two_arrays", two_arrays, V, M, **D),
    case("scan_only_carry", lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3), V, **D),
    case("scan_only_map", lambda x: lax.map(lambda a: a.sum() * a, x), M, **D),
    case("scan_of_constants", lambda x: lax.scan(lambda c, a: (c * a, a), x, jnp.arange(4.0)), V, **D),
    case("scan_unrolled", lambda x: lax.scan(lambda c, a: (c * a, c), 1.0, x, unroll=2), V, grad=True, size=None),
    case("scan_nested", lambda x: lax.scan(lambda c, a: (c + 1, inner_scan(a + c)[1]), 0.0, x), M, **D),
    case("scan_in_while", lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: inner_scan(c)[1] + 2, x), V),
    case("scan_in_cond", lambda p, x: lax.cond(p, lambda: inner_scan(x)[1], lambda: x), np.bool_(True), V, **D),
    case("cond_in_scan", lambda x: lax.scan(lambda c, a: (lax.cond(c > 0, jnp.sin, jnp.cos, a), c), 1.0, x), V, **D),
    case("scan_gradient", jax.grad(lambda x, w: rnn(x, w)[0].sum(), (0, 1)), M, W, grad=True, second=False, vmap=True),
    case("scan_dimension_one", lambda x: lax.scan(lambda c, a: (c + a, a), jnp.zeros(5), x.T), M, **D),
    case("scan_of_none", lambda x: lax.scan(lambda c, a: (c + a, a), jnp.zeros(3), x[:0]), M, size=None),
    case("scan_bool", lambda x: lax.scan(lambda c, a: (c & (a > 0), c), True, x), V),
    case("remat", jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), V, grad=True),
    case("jit_in_scan", lambda x: lax.scan(lambda c, a: (jax.jit(jnp.tanh)(c) + a, c), 0.0, x), V, **D),
]


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)


@pytest.mark.full_cases("scan", "scan_gradient", "jit_in_scan")
@pytest.mark.parametrize("name", [c.name for c in CASES if c.name.startswith(("scan", "fori", "jit_in"))])
def test_counted_loops_become_scans(name):
    (case,) = (c for c in CASES if c.name == name)
    args = [jnp.asarray(a) for a in case.args]
    text = str(jax.make_jaxpr(imported(case.fn, *args))(*args))
    assert ("while[" in text) == (name in ("fori_unknown", "scan_in_while"))
    if name.startswith("scan") and name not in ("scan_unrolled",):
        assert "dynamic_slice" not in text and "dynamic_update_slice" not in text, text


@pytest.mark.full
@pytest.mark.parametrize("name", ["fori_unknown", "while", "while_counts", "scan_in_while"])
def test_reverse_mode_gradients_of_data_dependent_loops(name):
    """Those of JAX's own loops go forwards only."""
    (case,) = (c for c in CASES if c.name == name)
    args = [jnp.asarray(a) for a in case.args]
    fn = imported(case.fn, *args)
    last = lambda f: lambda *args: jnp.sin(jax.tree.leaves(f(*args))[-1])  # noqa: E731
    expected = jax.jit(jax.jacfwd(last(case.fn)))(*args)
    same(jax.jit(jax.jacrev(last(fn)))(*args), expected)
    same(jax.jacfwd(last(fn))(*args), expected)
    many = [jnp.stack([a, a[::-1] if a.ndim else a + 1]) for a in args]
    same(jax.jit(jax.vmap(jax.jacrev(last(fn))))(*many), jax.vmap(jax.jacfwd(last(case.fn)))(*many))


@pytest.mark.full
def test_custom_derivatives_of_imported_code_can_be_given():
    fn = imported(jax.nn.relu, V)
    assert jax.grad(lambda x: fn(x).sum())(jnp.zeros(5)).sum() == 0
    plain = imported(jax.nn.relu, V, infer_relu=False)
    assert jax.grad(lambda x: plain(x).sum())(jnp.zeros(5)).sum() == 2.5


@pytest.mark.full
def test_names_of_functions_are_scopes():
    @jax.jit
    def attention(x):
        return jnp.sin(x)

    fn = imported(lambda x: attention(x) + 1, V)
    (eqn, _) = jax.make_jaxpr(fn)(V).eqns
    assert "attention" in str(eqn.source_info.name_stack)


@pytest.mark.full
def test_several_platforms():
    def fn(x):
        return lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    exported = jax.export.export(jax.jit(fn), platforms=["tpu", "cpu"])(jax.ShapeDtypeStruct((5,), np.float32))
    from tf2jax_lite import from_stablehlo

    same(from_stablehlo(exported.mlir_module_serialized, platforms=exported.platforms)(V), fn(V))
    with pytest.raises(ValueError, match="platforms="):
        from_stablehlo(exported.mlir_module_serialized)(V)
