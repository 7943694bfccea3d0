"""Permutations by swaps: as swapping one pair after the other in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tf2jax_lite.xla_cpu import swaps
from tf2jax_lite.xla_cpu.selection import using


def drawn(*shape):
    """Return random targets."""
    size = shape[-1]
    return np.random.default_rng(size).integers(np.arange(size), size, shape, np.int32)


def swapped(targets):
    """Return the permutation of one row of targets."""
    order = np.arange(targets.size, dtype=np.int32)
    for i, j in enumerate(targets):
        order[[i, j]] = order[[j, i]]
    return order


@pytest.mark.default_cases("True-50")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 50, 1000])
@pytest.mark.parametrize("rule", [True, False])
def test_permutation_equals_numpy(rule, size):
    targets = drawn(size)
    with using(None if rule else frozenset()):
        found = jax.jit(swaps.permutation_of_swaps)(targets)
        same = swaps.permutation_of_swaps(jnp.asarray(targets))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, swapped(targets))
    np.testing.assert_array_equal(found, same)


@pytest.mark.full
@pytest.mark.parametrize("rule", [True, False])
def test_permutation_of_rows_under_vmap(rule):
    targets = drawn(3, 2, 20)
    with using(None if rule else frozenset()):
        found = jax.jit(jax.vmap(jax.vmap(swaps.permutation_of_swaps), 1, 1))(targets)
    for row, expected in zip(found.reshape(-1, 20), targets.reshape(-1, 20), strict=True):
        np.testing.assert_array_equal(row, swapped(expected))


@pytest.mark.full
def test_permutation_without_narrow_types():
    """In 64-bit mode the loop's index is wider than the targets."""
    with jax.enable_x64(True):
        found = jax.jit(swaps.permutation_of_swaps)(drawn(30))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, swapped(drawn(30)))


@pytest.mark.full
def test_permutation_inside_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = PartitionSpec("i")
    fn = jax.shard_map(swaps.permutation_of_swaps, mesh=mesh, in_specs=(spec,), out_specs=spec)
    np.testing.assert_array_equal(jax.jit(fn)(drawn(40)), swapped(drawn(40)))


@pytest.mark.default_cases("shape0")
@pytest.mark.parametrize("shape", [(50_000,), (2, 50_000)])
def test_loop_changes_one_array_in_place(shape):
    """A copy in each step would take a hundred times as long."""
    text = jax.jit(swaps.permutation_of_swaps).lower(jnp.asarray(drawn(*shape))).compile().as_text()
    assert "sort" not in text
    assert not [line for line in text.splitlines() if " copy(" in line and "s32[50000]" in line]
