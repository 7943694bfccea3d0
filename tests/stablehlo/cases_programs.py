"""Random numbers, control flow and custom derivatives: data for the sweep."""

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import case
from .values import KEY, D, I, M, P, Q, S, V


def typed(draw, impl="threefry2x32"):
    return lambda data, *rest: draw(jax.random.wrap_key_data(data, impl=impl), *rest)


def random(name, draw, *rest, **options):
    return case(f"random_{name}", typed(draw), KEY, *rest, **options)


r = jax.random
RANDOM = [
    case("threefry2x32", lambda k: jax.extend.random.threefry_2x32(k, jnp.arange(6, dtype=np.uint32)), KEY),
    *(random(f"bits_{n}", lambda k, n=n: r.bits(k, (5,), n)) for n in ("uint8", "uint16", "uint32")),
    random("bits_matrix", lambda k: r.bits(k, (2, 3)), vmap=True),
    random("split", lambda k: r.key_data(r.split(k, 3)), vmap=True),
    random("split_shape", lambda k: r.key_data(r.split(k, (2, 2)))),
    random("fold_in", lambda k, i: r.key_data(r.fold_in(k, i)), np.int32(7), vmap=True),
    case("random_seed", lambda i: r.key_data(r.key(i)), np.int32(7)),
    random("clone", lambda k: r.key_data(r.clone(k))),
    random("uniform", lambda k: r.uniform(k, (3,)), vmap=True),
    random("normal", lambda k: r.normal(k, (3,)), vmap=True),
    random("normal_bfloat16", lambda k: r.normal(k, (3,), jnp.bfloat16)),
    random("truncated_normal", lambda k: r.truncated_normal(k, -1, 1, (3,))),
    random("randint", lambda k: r.randint(k, (5,), 0, 9)),
    random("permutation", lambda k: r.permutation(k, 7)),
    random("choice", lambda k: r.choice(k, 7, (3,), replace=False)),
    random("categorical", lambda k, x: r.categorical(k, x), M),
    random("bernoulli", lambda k, p: r.bernoulli(k, p), np.float32([0.2, 0.8])),
    random("gumbel", lambda k: (r.gumbel(k, (3,)), r.laplace(k, (2,)), r.exponential(k, (2,)), r.cauchy(k, (2,)))),
    random("gamma", lambda k, a: r.gamma(k, a), P, grad=True, second=False, tol=1e-3),
    random("beta", lambda k, a: (r.beta(k, a, 2.0), r.dirichlet(k, a)), P, tol=1e-3),
    random("poisson", lambda k: (r.poisson(k, 3.0, (4,)), r.binomial(k, 5, 0.3, (4,)))),
    random("multivariate", lambda k, c: r.multivariate_normal(k, jnp.zeros(3), c), S, tol=1e-4),
    random("reparametrized", lambda k, m: m + r.normal(k, m.shape) * jnp.exp(m), V, grad=True),
    *(
        case(
            f"random_{i}",
            typed(lambda k: (r.uniform(k, (3,)), r.key_data(r.split(k)), r.key_data(r.fold_in(k, 3))), i),
            np.uint32([1, 2, 3, 4]),
            size=1.5,
        )
        for i in ("rbg", "unsafe_rbg")
    ),
    *(
        case(
            f"rng_bit_generator_{a}",
            lambda k, a=a: lax.rng_bit_generator(k, (3,), algorithm=lax.RandomAlgorithm[a]),
            np.uint32([1, 2, 3, 4]),
        )
        for a in ("RNG_PHILOX", "RNG_THREE_FRY", "RNG_DEFAULT")
    ),
]


@jax.custom_jvp
def cubed(x):
    return x**3


cubed.defjvps(lambda t, ans, x: 3 * x**2 * t)


@jax.custom_vjp
def scaled(x):
    return 2 * x


scaled.defvjp(lambda x: (2 * x, None), lambda _, ct: (2 * ct,))
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
SPEC = jax.sharding.PartitionSpec


def named(x):
    with jax.named_scope("outer"):
        return jax.jit(lambda y: jnp.sin(y), inline=True)(x) + jax.named_call(jnp.cos, name="inner")(x)


CONTROL = [
    case("cond", lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), np.bool_(True), V, **D),
    case(
        "switch",
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp, jnp.tanh, lambda v: v * 2], x),
        np.int32(3),
        V,
        **D,
    ),
    case("switch_outside", lambda i, x: lax.switch(i, [jnp.sin, jnp.cos], x), np.int32(-3), V, **D),
    case("while", lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + x, x), Q, vmap=True),
    case(
        "while_captured",
        lambda x, y: lax.while_loop(lambda c: c[0].sum() < y, lambda c: (c[0] * x, c[1] + y), (x, y)),
        Q,
        np.float32(99),
    ),
    case("fori", lambda x: lax.fori_loop(0, 4, lambda i, c: c * x[i] + i, jnp.float32(1)), V, **D),
    case("fori_reverse", lambda x: lax.fori_loop(0, 4, lambda i, c: c * x[3 - i], jnp.float32(1)), V, **D),
    case("fori_two_arrays", lambda x: lax.fori_loop(0, 3, lambda i, c: c.at[i + 1].set(c[i] * x[i]), x), V, **D),
    case("fori_bound", lambda n, x: lax.fori_loop(0, n, lambda i, c: c * x, x), np.int32(3), Q, vmap=True),
    case("scan", lambda x: lax.scan(lambda c, a: (c * a, c + a), jnp.float32(1), x), V, **D),
    case("scan_reverse", lambda x: lax.scan(lambda c, a: (c * a, c + a), jnp.float32(1), x, reverse=True), V, **D),
    case(
        "scan_nested",
        lambda x: lax.scan(lambda c, a: lax.scan(lambda d, b: (d * b, d + a.sum()), c, a), jnp.float32(1), x),
        M,
        **D,
    ),
    case("scan_unrolled", lambda x: lax.scan(lambda c, a: (c * a, c), jnp.float32(1), x, unroll=2), V, size=2, **D),
    case(
        "scan_pytrees",
        lambda x, i: lax.scan(lambda c, a: ({"n": c["n"] + a["i"]}, a["x"] * 2), {"n": 0}, {"x": x, "i": i}),
        V,
        I,
        **D,
    ),
    case(
        "scan_key",
        lambda k: lax.scan(
            lambda c, _: (r.key_data(r.split(r.wrap_key_data(c))[0]), r.normal(r.wrap_key_data(c))), k, None, 3
        ),
        KEY,
    ),
    case("map", lambda x: (lax.map(jnp.sin, x), lax.map(jnp.cos, x, batch_size=2)), V, size=2, **D),
    case("custom_jvp", cubed, V, **D),
    case("custom_vjp", lambda x: scaled(x) * x, V, forward=False, **D),  # JAX has none
    case("remat", lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x), V, **D),
    case("remat_gradient", jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), V, grad=True),
    case("jit", lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) + 1)(x), V, **D),
    case("named", named, V, **D),
    case(
        "sharding_constraint",
        lambda x: lax.with_sharding_constraint(x * 2, jax.sharding.NamedSharding(MESH, SPEC("d"))) + 1,
        V,
        **D,
    ),
    case(
        "shard_map",
        lambda x: jax.shard_map(jnp.sin, mesh=MESH, in_specs=SPEC("d"), out_specs=SPEC("d"))(x),
        V,
        size=3,
        **D,
    ),
    case("device_put", lambda x: jax.device_put(x) * 2, V, **D),
    case("platform_dependent", lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), V, grad=True),
    case("composite", lambda x: lax.composite(lambda v: jnp.sin(v) * 2, "my.scaled")(x), V, size=2),
    case(
        "linear_call",
        lambda x: jax.custom_derivatives.linear_call(lambda _, v: 2 * v, lambda _, ct: 2 * ct, (), x),
        V,
        grad=True,  # JAX does not batch it
    ),
    case(
        "gradient_of_scan",
        jax.grad(lambda x: lax.scan(lambda c, a: (jnp.sin(c * a), None), jnp.float32(1), x)[0]),
        V,
        **D,
    ),
    case("hessian", jax.hessian(lambda x: jnp.sin(x).sum() * x.prod()), V, vmap=True),
]
