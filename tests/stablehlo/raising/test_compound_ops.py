"""Powers, select chains, tiles and stacks become one equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import tf2jax_lite as tf2jax
from tests.stablehlo.harness import case, check, equations, imported, same

V = np.float32([-1.3, 0.2, 0.7, 1.9])
C = (V + 1j * V[::-1]).astype(np.complex64)
I = np.int32([-5, 0, 3, 7])  # noqa: E741
M = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
D = {"grad": True, "vmap": True}
K = np.uint32([[1, 2], [3, 4], [5, 6]])


def key(data):
    return jax.random.wrap_key_data(data)


def total(draw, axes=0):
    return jax.vmap(draw, axes)


MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
SPEC = jax.sharding.PartitionSpec


def over_one_device(fn):
    return jax.shard_map(fn, mesh=MESH, in_specs=SPEC("d"), out_specs=SPEC(), check_vma=False)


def collectives(v):
    return (
        lax.psum(v.sum(), "d"),
        lax.pmax((v > 0).astype(np.int32), "d"),
        lax.all_gather(v, "d"),
        lax.ppermute(v, "d", [(0, 0)]),
        lax.ppermute(v, "d", []),
        lax.all_to_all(v[None], "d", 0, 0),
        lax.psum_scatter(v[:1], "d"),
        v * lax.axis_index("d"),
    )


CASES = [
    case("powers", lambda x: [lax.integer_pow(x, n) for n in (3, 4, 5, 6, 7, 8, 9, 13, -2, -3, -6)], V, **D),
    case("power_of_a_power", lambda x: lax.integer_pow(lax.integer_pow(x, 3), 4), V, **D),
    case("powers_of_complex_numbers", lambda x: (x**3, x**-2), C, **D),
    case("powers_of_integers", lambda x: (x**3, x**5), I, vmap=True),
    case("products_in_another_order", lambda x: (x * x * x * x, x * (x * (x * x)), (x * x * x) * (x * x)), V, **D),
    case("product_of_two", lambda x, y: (x * y * x * y, x**3 * y**3), V, V[::-1].copy(), **D),
    case("power_of_a_scalar", lambda x: lax.integer_pow(x[0], 3) + x, V, **D),
    case("inverse_of_integers", lambda x: lax.div(jnp.int32(1), x * x), I + 9, vmap=True),
    case("power_in_a_loop", lambda x: lax.fori_loop(0, 3, lambda i, c: lax.integer_pow(c, 3) / 2, x), V, **D),
    case("four_cases", lambda i, x: lax.select_n(i, x, 2 * x, 3 * x, x + 1), np.int32([0, 3, -4, 9]), V, **D),
    case("five_cases", lambda i, x: lax.select_n(i, x, 2 * x, 3 * x, x + 1, x), np.int32(2), V, **D),
    case("other_bounds", lambda i, x: jnp.where(i < 1, x, jnp.where(i < 3, 2 * x, 3 * x)), I, V, **D),
    case("not_in_order", lambda i, x: jnp.where(i < 2, jnp.where(i < 5, x, 7.0), 3 * x), I, V, **D),
    case("two_indices", lambda i, x: jnp.where(i < 1, x, jnp.where(i + 1 < 2, 2 * x, 3 * x)), I, V, **D),
    case("tiles", lambda x: (jnp.tile(x, (2, 3)), jnp.tile(x, (1, 2)), jnp.tile(x[0], 5)), M, **D),
    case(
        "stacks", lambda x: (jnp.stack([x, 2 * x, x], 1), jnp.stack([x[0, 0], x[1, 1]]), jnp.stack([x, x], -1)), M, **D
    ),
    case(
        "no_stacks", lambda x: (jnp.concatenate([x[None], x[None]], 1), jnp.stack([x]), jnp.stack([1, x.size])), M, **D
    ),
    case("no_tiles", lambda x: (jnp.repeat(x, 2, 0), jnp.broadcast_to(x[:, None], (3, 2, 4)).reshape(6, 4)), M, **D),
    case(
        "keys_of_many", lambda d: jax.vmap(lambda k: jax.random.key_data(jax.random.split(key(k), 3)))(d), K, size=None
    ),
    case(
        "keys_of_many_each",
        jax.vmap(lambda k, i: jax.random.key_data(jax.random.fold_in(key(k), i))),
        K,
        I[:3],
        size=None,
    ),
    case("draws_of_many", jax.vmap(lambda k: jax.random.normal(key(k), (4,))), K, vmap=True),
    case("seeds_of_many", jax.vmap(lambda i: jax.random.key_data(jax.random.key(i))), I, size=None),
    case(
        "variates_of_many_each",
        jax.vmap(lambda k, a: jax.random.gamma(key(k), a, (2,))),
        K,
        abs(V[:3]),
        grad=True,
        second=False,
        tol=1e-3,
    ),
    case("collectives_of_one_device", over_one_device(collectives), V, size=2, **D),
    case("functions_of_constants", lambda x: (lax.lgamma(jnp.float32(2.5)) * x, lax.digamma(jnp.float32(0.3)) + x), V),
    case("constants_and_others", lambda x: lax.lgamma(x + 2) - lax.lgamma(jnp.float32(2.5)), V, tol=1e-4, **D),
    case("inverse_of_a_constant", lambda x: lax.erf_inv(jnp.float32(0.5)) + lax.bessel_i1e(jnp.float32(0.5)) * x, V),
    case("largest_along_an_axis", lambda x: (lax.top_k(x, 2, axis=0), lax.top_k(x + 1, 3, axis=0)), M, size=None, **D),
    case("insertion_positions", lambda x: jnp.searchsorted(jnp.sort(x), x + 0.1, method="scan"), V, vmap=True),
    case(
        "gradient_of_groups",
        lambda x, w: jax.grad(lambda x, w: jnp.sum(jnp.sin(lax.ragged_dot(x, w, np.int32([2, 4])))), (0, 1))(x, w),
        np.float32(np.arange(18).reshape(6, 3) / 9),
        np.float32(np.arange(24).reshape(2, 3, 4) / 9),
        size=None,
    ),
]


@pytest.mark.default_cases("seeds_of_many", "largest_along_an_axis")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(case):
    check(case)


def primitives(fn, *args):
    return [eqn.primitive.name for eqn in jax.make_jaxpr(fn)(*args).eqns]


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (lambda x: lax.integer_pow(x, 7), (V,), ["integer_pow"]),
        (lambda x: 1 / (x * x), (V,), ["integer_pow"]),
        (lambda x: ((x * x) * x) * x, (V,), ["integer_pow", "mul"]),  # not squared twice
        (lambda i, x: lax.select_n(i, x, 2 * x, x), (I, V), ["mul", "select_n"]),
        (lambda i, x: jnp.where(i < 1, x, jnp.where(i < 3, 2 * x, x)), (I, V), None),  # 1 and 3 are no cases in a row
        (lambda x: jnp.tile(x, (2, 3)), (M,), ["tile"]),
        (lambda x: jnp.repeat(x, 2, 0), (M,), None),
    ],
)
def test_raised_and_left_patterns(fn, args, expected):
    found = primitives(imported(fn, *args), *args)
    if expected is None:
        assert not {"integer_pow", "tile"} & set(found) and max(len(e.invars) for e in _eqns(fn, args)) <= 3
    else:
        assert found == expected


def _eqns(fn, args):
    return jax.make_jaxpr(imported(fn, *args))(*args).eqns


@pytest.mark.full
def test_powers_of_dimensions_are_known_while_tracing():
    (b,) = export.symbolic_shape("b")
    fn = lambda x: x.sum() * jnp.arange(x.shape[0] ** 3).size  # noqa: E731
    exported = export.export(jax.jit(fn))(jax.ShapeDtypeStruct((b,), np.float32))
    ours = tf2jax.from_stablehlo(exported.mlir_module_serialized)
    same(ours(V), fn(V))
    assert equations(ours, V) <= equations(fn, V) + 2


@pytest.mark.full
def test_keys_made_from_constants_cost_nothing():
    fn = lambda x: x + jax.random.uniform(jax.random.fold_in(jax.random.key(7), 3), x.shape)  # noqa: E731
    assert equations(imported(fn, V), V) <= 1.3 * equations(fn, V)
    same(imported(fn, V)(V), fn(V))


@pytest.mark.default_cases("-inf-max-cuda")
@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize(("start", "reduce"), [(-np.inf, lax.max), (np.inf, lax.min)])
def test_tangents_of_windows_made_for_other_platforms(platform, start, reduce):
    """Those put a number and its tangent into one word, of 64 bits on GPUs."""

    def pool(x):
        return lax.reduce_window(x, np.asarray(start, x.dtype), reduce, (2, 3), (1, 1), "SAME")

    def fn(x):
        return jax.jvp(pool, (x,), (jnp.cos(x),))

    exported = export.export(jax.jit(fn), platforms=[platform])(M)
    ours = tf2jax.from_stablehlo(exported.mlir_module_serialized)
    same(ours(M), fn(M))
    same(jax.vmap(ours)(np.stack([M, -M])), jax.vmap(fn)(np.stack([M, -M])))
    same(jax.grad(lambda x: ours(x)[1].sum())(M), jax.grad(lambda x: fn(x)[1].sum())(M))


@pytest.mark.full
def test_words_of_64_bits_are_refused_where_jax_has_none():
    text = """
    func.func @main(%x: tensor<3xui64>) -> tensor<3xui64> {
      %c = stablehlo.constant dense<32> : tensor<3xui64>
      %r = stablehlo.shift_left %x, %c : tensor<3xui64>
      return %r : tensor<3xui64>
    }"""
    with pytest.raises(ValueError, match=r"shift_left.*need jax_enable_x64"):
        tf2jax.from_stablehlo(text)(np.arange(3, dtype=np.uint32))
    with jax.enable_x64(True):
        same(tf2jax.from_stablehlo(text)(np.arange(3, dtype=np.uint64)), np.arange(3, dtype=np.uint64) << np.uint64(32))
