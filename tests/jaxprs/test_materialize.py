"""Values that XLA computes once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tf2jax_lite
from tf2jax_lite.jaxprs.materialize import materialize, materialize_if_traced

BLOCKS = 6


def blocks(x, weights, mark=lambda v: v):
    """Return a residual network, whose blocks' sums have two users each."""
    for w in weights:
        x = mark(jnp.maximum(x + (x.reshape(-1, x.shape[-1]) @ w).reshape(x.shape), 0))
    return x


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(16, 16)).astype(np.float32) / 8 for _ in range(BLOCKS)]
    return rng.normal(size=(2, 4, 4, 16)).astype(np.float32), weights


def additions(fn, *args):
    return jax.jit(fn).lower(*args).compile().as_text().count(" add(")


@pytest.mark.full
def test_sums_are_computed_once(arrays):
    """Each block's code had the first sum. `materialize` may become unneeded."""
    assert additions(lambda x, w: blocks(x, w, materialize), *arrays) == BLOCKS
    assert additions(blocks, *arrays) > 2 * BLOCKS


@pytest.mark.full
def test_cotangents_are_summed_once(arrays):
    """Cotangents are materialized, too."""
    marked, plain = (
        additions(jax.grad(lambda x, w, mark=mark: jnp.sum(blocks(x, w, mark)), 1), *arrays)
        for mark in (materialize, lambda v: v)
    )
    assert marked < plain


def test_nothing_is_copied(arrays):
    text = jax.jit(lambda x, w: blocks(x, w, materialize)).lower(*arrays).compile().as_text()
    assert " copy(" not in text


@pytest.mark.full
@pytest.mark.parametrize(
    "transform",
    [
        lambda fn: fn,
        jax.jit,
        lambda fn: lambda x, w: jax.jit(jax.vmap(fn, (0, None)))(x[:, None], w)[:, 0],
        lambda fn: lambda x, w: jax.jvp(lambda x: fn(x, w), (x,), (x + 1,)),
        lambda fn: jax.grad(lambda x, w: jnp.sum(jnp.sin(fn(x, w)))),
        lambda fn: jax.grad(lambda x, w: jnp.sum(jnp.sin(jax.checkpoint(fn)(x, w)))),
        lambda fn: lambda x, w: jax.grad(lambda y: jax.jvp(lambda x: jnp.sum(jnp.sin(fn(x, w))), (y,), (y,))[1])(x),
        lambda fn: lambda x, w: jax.lax.scan(lambda c, _: (fn(c, w[:2]), None), x, None, length=3)[0],
    ],
    ids=["op by op", "jit", "vmap", "jvp", "grad", "checkpoint", "reverse over forward", "scan"],
)
def test_values_and_derivatives_are_unchanged(arrays, transform):
    expected = transform(blocks)(*arrays)
    found = transform(lambda x, w: blocks(x, w, materialize))(*arrays)
    jax.tree.map(lambda e, f: np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-6), expected, found)


@pytest.mark.full
def test_only_cpu_materializes(arrays):
    for platform, count in (("cpu", BLOCKS), ("cuda", 0), ("tpu", 0)):
        exported = jax.export.export(jax.jit(lambda x, w: blocks(x, w, materialize)), platforms=[platform])(*arrays)
        assert exported.mlir_module().count('inlineable = "false"') == count
        if platform == "cpu":
            again = jax.export.deserialize(exported.serialize())
            np.testing.assert_allclose(again.call(*arrays), blocks(*arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_programs_for_several_platforms(arrays):
    """JAX inlines calls, and drops attributes, in refinement for a platform."""
    exported = jax.export.export(jax.jit(lambda x, w: blocks(x, w, materialize)), platforms=["cpu", "cuda"])(*arrays)
    exported = jax.export.deserialize(exported.serialize())
    assert additions(exported.call, *arrays) == BLOCKS
    np.testing.assert_allclose(exported.call(*arrays), blocks(*arrays), rtol=1e-5, atol=1e-6)


def test_values_of_one_type_share_a_function(arrays):
    text = jax.jit(lambda x, w: blocks(x, w, materialize)).lower(*arrays).as_text()
    assert (text.count("call @materialize"), text.count("func.func private @materialize")) == (BLOCKS, 1)


@pytest.mark.full
def test_from_stablehlo_reads_materialized_values(arrays):
    exported = jax.export.export(jax.jit(lambda x, w: blocks(x, w, materialize)))(*arrays)
    again = tf2jax_lite.from_stablehlo(exported.mlir_module_serialized)
    np.testing.assert_allclose(again(arrays[0], *arrays[1]), blocks(*arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spread", [True, False])
def test_inside_shard_map(arrays, spread):
    """Where values differ between devices, and where they do not."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    part = jax.sharding.PartitionSpec("i" if spread else None)
    same = jax.sharding.PartitionSpec()
    fn = jax.shard_map(lambda x, w: blocks(x, w, materialize), mesh=mesh, in_specs=(part, same), out_specs=part)
    np.testing.assert_allclose(jax.jit(fn)(*arrays), blocks(*arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_symbolic_sizes():
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(lambda x: materialize(x * 2) + 1))(jax.ShapeDtypeStruct((n, 3), np.float32))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(exported.call(x), x * 2 + 1)


@pytest.mark.full
def test_several_symbolic_sizes():
    """Equal MLIR types ?x3 share no function: sizes are static in calls."""
    (n,) = jax.export.symbolic_shape("n")

    def fn(x):
        rows = materialize(x * 2)
        return materialize(rows + 1), materialize(rows[::2]), materialize(jnp.concatenate([rows, rows]))

    exported = jax.export.export(jax.jit(fn))(jax.ShapeDtypeStruct((n, 3), np.float32))
    exported = jax.export.deserialize(exported.serialize())
    for size in (1, 5):
        x = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        expected = x * 2 + 1, x[::2] * 2, np.concatenate([x, x]) * 2
        jax.tree.map(np.testing.assert_array_equal, exported.call(x), expected)
    assert exported.mlir_module().count("func.func private @materialize") == 3


@pytest.mark.full
def test_materialize_if_traced_leaves_other_values():
    assert materialize_if_traced("a handle") == "a handle"
    x = jnp.ones(3)
    assert materialize_if_traced(x) is x
    assert not jax.make_jaxpr(materialize_if_traced)(np.arange(3)).eqns
    (eqn,) = jax.make_jaxpr(materialize_if_traced)(np.float32(1)).eqns
    assert eqn.primitive.name == "materialize"
