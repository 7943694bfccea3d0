"""The protocol of variants, and its implementation by tensor lists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.ops.ragged.variant import Ragged
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.tensor_list import TensorList
from tf2jax_lite.values.variant import Variant, add_variants


def packed(*elements):
    return TensorList(jnp.stack(elements), len(elements), np.dtype(np.float32), ())


@pytest.mark.parametrize("method", ["zeros_like", "conj", "unstack"])
def test_missing_method_raises(method):
    with pytest.raises(OpError, match="is not supported for a Variant"):
        getattr(Variant(), method)()


def test_add_variants_without_variants_is_none():
    assert add_variants([np.float32(1), jnp.ones(2)]) is None


def test_add_variants_of_lists_ignores_numbers():
    lst = packed(1.0, 2.0)
    np.testing.assert_array_equal(add_variants([np.float32(5), lst, lst]).buffer, [2, 4])


def test_zeros_like_of_rows_leaves_elements_unset():
    rows = TensorList(None, 2, items=(Ragged((np.ones(3),)), None))
    assert rows.zeros_like().items == (None, None)
    np.testing.assert_array_equal(packed(1.0, 2.0).zeros_like().buffer, [0, 0])


def test_stack_and_unstack_lists():
    batch = packed(1.0, 2.0).stack([packed(3.0, 4.0)])
    first, second = batch.unstack()
    np.testing.assert_array_equal(first.buffer, [1, 2])
    np.testing.assert_array_equal(second.buffer, [3, 4])
    with pytest.raises(OpError, match="lengths that differ"):
        packed(1.0).stack([packed(1.0, 2.0)])


def test_join_of_lists_has_the_larger_capacity():
    short, long = packed(1.0), packed(1.0, 2.0, 3.0)
    spec = specs.join_specs([specs.spec_of(short), specs.spec_of(long)])
    coerced = specs.coerce(short, spec)
    assert coerced.capacity == 3 and int(coerced.length) == 1
    assert jax.tree.structure(coerced) == jax.tree.structure(specs.coerce(long, spec))


@pytest.mark.full
def test_join_of_different_arrays_raises():
    with pytest.raises(OpError, match="different shapes or dtypes"):
        specs.join_specs([specs.spec_of(jnp.ones(2)), specs.spec_of(jnp.ones(3))])
