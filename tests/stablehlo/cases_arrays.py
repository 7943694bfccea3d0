"""Reductions, shapes, indexing and sorting: data for the sweep."""

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import case
from .values import IMAGE, B, C, D, I, M, N, Q, V, f32


def cumulative(name, x=M, **options):
    return case(
        name, lambda x: (getattr(lax, name)(x, 0), getattr(lax, name)(x, 1, reverse=True)), x, **{**D, **options}
    )


def window(name, op, start, *form, x=IMAGE, **options):
    return case(f"reduce_window_{name}", lambda x: lax.reduce_window(x, start, op, *form), x, **{**D, **options})


ONE = (1, 1, 1, 1)
REDUCTIONS = [
    case("reduce_sum", lambda x: (x.sum(0), x.sum((0, 1)), x.sum(())), M, **D),
    case("reduce_max", lambda x: (x.max(0), x.min(1), x.max()), M, **D),
    case("reduce_prod", lambda x: (jnp.prod(x, 0), jnp.prod(x)), M, **D),
    case("reduce_logic", lambda x: ((x > 0).any(0), (x > 0).all(1), jnp.bitwise_xor.reduce(x > 0, axis=0)), M, **B),
    case("reduce_bits", lambda x: (lax.reduce_or(x, (0,)), lax.reduce_and(x, (0,)), lax.reduce_xor(x, (0,))), I, **B),
    case("reduce_integers", lambda x: (x.sum(), jnp.prod(x), x.max(), x.min()), I, **B),
    case("reduce_complex", lambda x: (x.sum(), jnp.prod(x)), C, **D),
    case("reduce_general", lambda x: lax.reduce(x, np.float32(0), lambda a, b: a * b + a + b, (0,)), M, **B),
    case(
        "reduce_two",
        lambda x: lax.reduce((x, 2 * x), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
        M,
        **B,
    ),
    case("reduce_low_precision", lambda x: (x.sum(0), x.max(1)), jnp.asarray(M, jnp.bfloat16), tol=1e-2),
    case("argmax", lambda x: (lax.argmax(x, 0, np.int32), lax.argmin(x, 1, np.int32)), M, **B),
    case("argmax_integers", lambda x: (jnp.argmax(x), jnp.argmin(x), jnp.argmax(x > 0)), I, **B),
    case("argmax_uint8", lambda x: lax.argmax(x, 0, np.uint8), M, **B),
    *(cumulative(n) for n in ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]),
    *(cumulative(n, I.reshape(2, 2), grad=False) for n in ["cumsum", "cumprod", "cummax", "cummin"]),
    cumulative("cumsum", C.reshape(2, 2)),
    window("max", lax.max, -np.inf, (1, 2, 3, 1), (1, 2, 1, 1), "SAME"),
    window("min", lax.min, np.inf, (1, 2, 2, 1), ONE, "VALID"),
    window("sum", lax.add, 0.0, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
    window("sum_dilated", lax.add, 0.0, (1, 2, 2, 1), ONE, "VALID", None, (1, 2, 1, 1)),
    window("max_dilated", lax.max, -np.inf, (1, 2, 2, 1), ONE, "VALID", None, (1, 2, 1, 1), grad=False),
    window("sum_base_dilated", lax.add, 0.0, (1, 2, 2, 1), ONE, "VALID", (1, 2, 1, 1), grad=False),
    window("padded", lax.add, 0.0, (1, 2, 2, 1), ONE, [(0, 0), (2, 1), (0, 3), (0, 0)]),
    window("start", lax.add, 2.0, (1, 2, 2, 1), ONE, "VALID", grad=False),
    window("max_start", lax.max, 0.5, (1, 2, 2, 1), ONE, "VALID", grad=False),
    window("product", lax.mul, 1.0, (1, 2, 2, 1), ONE, "VALID", grad=False),
    window("general", lambda a, b: a * b + a + b, 0.0, (1, 2, 2, 1), ONE, "VALID", grad=False),
    window("integers", lax.max, -(2**31), (2,), (1,), "VALID", x=I, grad=False),
    case(
        "reduce_window_two",
        lambda x: lax.reduce_window(
            (x, x * 2), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (2, 2), (1, 1), "VALID"
        ),
        M,
    ),
    case(
        "select_and_scatter_add",
        jax.grad(lambda x: jnp.sin(lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")).sum()),
        IMAGE,
        tol=1e-4,
        **D,
    ),
    case(
        "select_and_scatter_min",
        jax.grad(lambda x: jnp.sin(lax.reduce_window(x, np.inf, lax.min, (1, 2, 3, 1), ONE, "VALID")).sum()),
        IMAGE,
        tol=1e-4,
        **D,
    ),
    case(
        "select_and_gather_add",
        lambda x: jax.jvp(
            lambda y: lax.reduce_window(y, -np.inf, lax.max, (2, 2), (1, 1), "VALID"), (x,), (jnp.cos(x),)
        )[1],
        M,
        tol=1e-4,
        vmap=True,
    ),
    case("reduce_and_scatter_segments", lambda x: jax.ops.segment_max(x, jnp.array([0, 1, 0]), 2), M, **D),
    case("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x, reverse=True), V, size=1.5, **D),
    case("logsumexp", lambda x: (jax.nn.logsumexp(x, 0), jax.nn.softmax(x, 1), jax.nn.log_softmax(x)), M, **D),
]

SHAPES = [
    case("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (1,)) * 2, V, **D),
    case("concatenate", lambda x: lax.concatenate([x, 2 * x, x[:, :1]], 1), M, **D),
    case("expand_dims", lambda x: (lax.expand_dims(x, (0, 2)), lax.squeeze(x[None], (0,))), M, **D),
    case("iota", lambda x: (x * lax.broadcasted_iota(np.float32, (3, 4), 1), lax.iota(np.uint8, 3)), M, **D),
    case(
        "pad",
        lambda x: (lax.pad(x, jnp.float32(2), [(1, -1, 1), (-2, 0, 0)]), jnp.pad(x, 1, mode="edge")),
        M,
        size=2,
        **D,
    ),
    case("rev", lambda x: lax.rev(x, (0, 1)) * 2, M, **D),
    case("reshape", lambda x: (x.reshape(2, 6), lax.reshape(x, (12,), (1, 0))), M, **D),
    case("slice", lambda x: (lax.slice(x, (1, 0), (3, 3), (1, 2)), x[::-1, ::2]), M, **D),
    case("split", lambda x: lax.split(x, (1, 3), 1), M, **D),
    case("transpose", lambda x: lax.transpose(x, (1, 0)) * 2, M, **D),
    case("tile", lambda x: jnp.tile(x, (2, 3)), M, **D),
    case("optimization_barrier", lambda x: lax.optimization_barrier((x, 2 * x)), M, **D),
    case("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, -i), (2, 2)), M, np.int32(2), **D),
    case("dynamic_slice_outside", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)), M, np.int32(9), **D),
    case("dynamic_update_slice", lambda x, i: lax.dynamic_update_slice(x, 2 * x[:2, :2], (i, 0)), M, np.int32(1), **D),
    case("empty", lambda x: (x.sum(0), x.reshape(0, 2), jnp.concatenate([x, x])), np.zeros((0, 4), np.float32)),
]

WHERE = np.int32([[2], [0], [9], [2], [-1]])


def gather(name, mode, indices=WHERE, **options):
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return case(
        f"gather_{name}",
        lambda x, i: jnp.nan_to_num(lax.gather(x, i, numbers, (1, 3), mode=mode, **options)),
        M,
        indices,
        size=1.5,
        **D,
    )


def scatter(name, fn, mode, indices=WHERE, x=M, **options):
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    vmap = options.pop("vmap", True)
    grad = options.pop("grad", True)
    updates = (f32(len(indices), 4) * 3).astype(np.asarray(x).dtype)
    return case(
        f"scatter_{name}_{mode}",
        lambda x, i, u: fn(x, i, u, numbers, mode=mode, **options),
        x,
        indices,
        updates,
        grad=grad,
        vmap=vmap,
        size=1.5,
        tol=1e-4,
    )


INSIDE = np.int32([[2], [0]])
INDEXING = [
    *(gather(m, m) for m in ("clip", "fill")),
    gather("promised", "promise_in_bounds", INSIDE),
    gather("sorted", "clip", np.int32([[0], [1]]), indices_are_sorted=True, unique_indices=True),
    case("gather_fill_value", lambda x, i: x.at[i[:, 0]].get(mode="fill", fill_value=-7.0), M, WHERE, size=1.5, **D),
    case(
        "gather_batched",
        lambda x, i: jax.vmap(lambda a, j: a[j])(x, i),
        M,
        np.int32([[1, 2], [0, 3], [1, 1]]),
        size=1.5,
        **D,
    ),
    case(
        "gather_windows",
        lambda x, i: jax.vmap(lambda j: lax.dynamic_slice(x, (j, j), (2, 2)))(i),
        M,
        np.int32([0, 1, 5]),
        size=2,
        **D,
    ),
    case(
        "take_along_axis",
        lambda x, i: jnp.take_along_axis(x, i, 1, mode="clip"),
        M,
        np.int32([[1], [3], [0]]),
        size=1.5,
        **D,
    ),
    *(scatter("add", lax.scatter_add, m) for m in ("clip", "drop")),
    *(scatter("sub", lax.scatter_sub, m) for m in ("drop",)),
    *(scatter("set", lax.scatter, m, INSIDE) for m in ("clip", "drop", "promise_in_bounds")),
    *(scatter("mul", lax.scatter_mul, m, INSIDE, unique_indices=True) for m in ("drop",)),
    *(scatter("mul_repeated", lax.scatter_mul, m, grad=False) for m in ("clip", "drop")),
    scatter("min", lax.scatter_min, "clip", INSIDE),  # outside, JAX's own gradient is infinite: see test_primitives.py
    scatter("min", lax.scatter_min, "drop"),
    *(scatter("max", lax.scatter_max, m) for m in ("drop",)),
    scatter("add", lax.scatter_add, "drop", x=(M * 3).astype(np.int32), grad=False),
    scatter("max", lax.scatter_max, "drop", x=M.astype(jnp.bfloat16), grad=False),
    scatter("or", lax.scatter_max, "drop", x=M > 0, grad=False),
    case("scatter_apply", lambda x, i: x.at[i[:, 0]].apply(jnp.sin), M, INSIDE, **B),
    case("scatter_apply_outside", lambda x, i: x.at[i[:, 0]].apply(lambda v: v * 2 + 1), M, WHERE, **B),
    case("scatter_windows", lambda x, i: x.at[i, 1:3].add(x[:2, :2]), M, np.int32([2, 0]), **D),
    case(
        "scatter_batched",
        lambda x, i: jax.vmap(lambda a, j: a.at[j].add(2.0))(x, i),
        M,
        np.int32([[1], [3], [0]]),
        size=1.5,
        **D,
    ),
    case("scatter_complex", lambda x, i: x.at[i].add(2 * x[:2]), C, np.int32([1, 3]), **D),
]

SORTING = [
    case("sort", lambda x: (lax.sort(x, dimension=0), lax.sort(x, dimension=1, is_stable=False)), M, **D),
    case("sort_two_keys", lambda x, y, z: lax.sort((x, y, z), num_keys=2), np.int32([1, 0, 1, 0]), Q, V, **D),
    case("sort_one_key", lambda x, y, z: lax.sort((x, y, z), num_keys=1), np.int32([1, 0, 1, 0]), Q, V, **D),
    case(
        "sort_nan",
        lambda x: (jnp.sort(x), jnp.argsort(x, descending=True)),
        np.float32([1, np.nan, -np.inf, -0.0, 0.0]),
    ),
    case("sort_bool", lambda x: (jnp.sort(x), jnp.argsort(x)), V > 0.5, **B),
    case("sort_unsigned", lambda x: (jnp.sort(x), jnp.sort(x, descending=True)), N, **B),
    case("sort_bfloat16", jnp.sort, jnp.asarray(V, jnp.bfloat16), **B),
    case("sort_complex", jnp.sort, C, **B),
    case("top_k", lambda x: lax.top_k(x, 2), M, **D),
    case("top_k_integers", lambda x: lax.top_k(x, 2), I, **B),
    case("approx_max_k", lambda x: lax.approx_max_k(x, 2), M, grad=True),
    case("approx_min_k", lambda x: lax.approx_min_k(x, 2, reduction_dimension=0, recall_target=0.8), M),
    case(
        "approx_no_aggregation",
        lambda x: lax.approx_max_k(x, 2, aggregate_to_topk=False, reduction_input_size_override=8),
        M,
    ),
]
