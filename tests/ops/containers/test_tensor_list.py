"""Tensor lists against TensorFlow, in functions that build and read them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.ops.containers import tensor_list
from tf2jax_lite.values.tensor_list import TensorList

raw = tf.raw_ops
F32 = tf.float32
ROW = [3]
ANY = -1


def filled(x):
    return raw.TensorListFromTensor(tensor=x, element_shape=ROW)


def stack(handle, count=-1):
    return raw.TensorListStack(input_handle=handle, element_shape=ROW, element_dtype=F32, num_elements=count)


def push(x):
    handle = raw.EmptyTensorList(element_shape=ROW, max_num_elements=ANY, element_dtype=F32)
    for i in range(4):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=x[i])
    return handle


def reserve_and_set(x):
    handle = raw.TensorListReserve(element_shape=ROW, num_elements=4, element_dtype=F32)
    for i in (2, 0, 3):
        handle = raw.TensorListSetItem(input_handle=handle, index=i, item=x[i])
    return stack(handle), raw.TensorListGetItem(input_handle=handle, index=1, element_shape=ROW, element_dtype=F32)


def pop(x):
    handle, last = raw.TensorListPopBack(input_handle=filled(x), element_shape=ROW, element_dtype=F32)
    return stack(handle), last, raw.TensorListLength(input_handle=handle)


def gather(x):
    handle = filled(x)
    # Unique indices: TensorFlow's gradient scatters, so that the last one wins; ours sums, which is correct.
    picked = raw.TensorListGather(input_handle=handle, indices=[3, 1, 0], element_shape=ROW, element_dtype=F32)
    one = raw.TensorListGetItem(input_handle=handle, index=2, element_shape=ROW, element_dtype=F32)
    return picked, one


def scatter(x):
    handle = raw.TensorListScatterV2(tensor=x, indices=[3, 0, 5, 1], element_shape=ROW, num_elements=6)
    again = raw.TensorListScatterIntoExistingList(input_handle=handle, tensor=x[:2] * 10.0, indices=[2, 0])
    return stack(again)


def scatter_v1(x):
    return stack(raw.TensorListScatter(tensor=x, indices=[1, 0, 3, 2], element_shape=ROW))


def concat(x):
    handle = raw.TensorListFromTensor(tensor=tf.reshape(x, [2, 2, 3]), element_shape=[2, 3])
    value, lengths = raw.TensorListConcatV2(
        input_handle=handle, element_dtype=F32, element_shape=[2, 3], leading_dims=tf.zeros([0], tf.int64)
    )
    old, _ = raw.TensorListConcat(input_handle=handle, element_dtype=F32, element_shape=[2, 3])
    return value, lengths, old


def concat_nothing(x):
    results = []
    for shape in ([5, 3], [-1, 3]):
        handle = raw.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=F32)
        results += raw.TensorListConcatV2(
            input_handle=handle, element_dtype=F32, element_shape=shape, leading_dims=tf.zeros([0], tf.int64)
        )
    return (*results, x)


def concat_elements_never_set(x):
    # Unset elements have the shape of set ones, and their first dimension unless it is declared.
    results = []
    for leading in ([], [1, 0, 3]):
        handle = raw.TensorListReserve(element_shape=-1, num_elements=3, element_dtype=F32)
        handle = raw.TensorListSetItem(input_handle=handle, index=1, item=x)
        results += raw.TensorListConcatV2(
            input_handle=handle, element_dtype=F32, element_shape=-1, leading_dims=np.array(leading, np.int64)
        )
    return tuple(results)


def split(x):
    handle = raw.TensorListSplit(tensor=x, element_shape=[-1, 3], lengths=np.array([2, 2], np.int64))
    return tuple(
        raw.TensorListGetItem(input_handle=handle, index=i, element_shape=[-1, 3], element_dtype=F32) for i in (0, 1)
    )


def resize(x):
    handle = raw.TensorListResize(input_handle=filled(x), size=6)
    short = raw.TensorListResize(input_handle=filled(x), size=2)
    return stack(handle), stack(short), raw.TensorListLength(input_handle=handle)


def element_shape(x):
    return raw.TensorListElementShape(input_handle=filled(x), shape_type=tf.int32) + 0 * tf.cast(x[0, 0], tf.int32)


def concat_lists(x):
    return stack(raw.TensorListConcatLists(input_a=filled(x), input_b=filled(x * 2.0), element_dtype=F32))


def grow_in_a_loop(x):
    handle = raw.EmptyTensorList(element_shape=ROW, max_num_elements=ANY, element_dtype=F32)
    for i in tf.range(4):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=x[i] * 2.0)
    return stack(handle)


def drain_in_a_loop(x):
    handle, total = filled(x), tf.zeros([3])
    for _ in tf.range(4):
        handle, last = raw.TensorListPopBack(input_handle=handle, element_shape=ROW, element_dtype=F32)
        total = total * 0.5 + last
    return total, raw.TensorListLength(input_handle=handle)


def keep_the_last(x):  # the last element of a loop's list, as a recurrent layer without return_sequences
    handle = raw.TensorListReserve(element_shape=ROW, num_elements=1, element_dtype=F32)
    state = tf.zeros([3])
    for i in tf.range(4):
        state = tf.tanh(state + x[i])
        handle = raw.TensorListSetItem(input_handle=handle, index=0, item=state * 2.0)
    return stack(handle), state


def push_batch(x):
    empty = raw.EmptyTensorList(element_shape=ROW, max_num_elements=ANY, element_dtype=F32)
    handles = tf.raw_ops.Pack(values=[empty, empty])
    for rows in (x[:2], x[2:] * 3.0):
        handles = raw.TensorListPushBackBatch(input_handles=handles, tensor=rows)
    again = raw.TensorListPushBackBatch(input_handles=raw.Pack(values=[filled(x), filled(x * 2.0)]), tensor=x[1:3])
    first, second = raw.Unpack(value=handles, num=2)
    return stack(first), stack(second), stack(raw.Unpack(value=again, num=2)[1])


FUNCTIONS = [
    push_batch,
    lambda x: stack(push(x)),
    reserve_and_set,
    pop,
    gather,
    scatter,
    scatter_v1,
    concat,
    concat_nothing,
    concat_elements_never_set,
    split,
    resize,
    element_shape,
    concat_lists,
    grow_in_a_loop,
    drain_in_a_loop,
    keep_the_last,
]
CASES = []
TESTED_OTHERWISE = {
    "EmptyTensorList",
    "TensorListConcat",
    "TensorListConcatLists",
    "TensorListConcatV2",
    "TensorListElementShape",
    "TensorListFromTensor",
    "TensorListGather",
    "TensorListGetItem",
    "TensorListLength",
    "TensorListPopBack",
    "TensorListPushBack",
    "TensorListPushBackBatch",
    "TensorListReserve",
    "TensorListResize",
    "TensorListScatter",
    "TensorListScatterIntoExistingList",
    "TensorListScatterV2",
    "TensorListSetItem",
    "TensorListSplit",
    "TensorListStack",
}
X = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


@pytest.mark.default_cases("push_batch", "reserve_and_set", "scatter_v1", "concat_nothing", "concat_lists")
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_against_tensorflow(fn):
    fn = tf.function(fn)
    with jax.enable_x64(True):
        jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([4, 3]))
        expected = tf.nest.flatten(fn(X))
        for run in (jax_fn, jax.jit(jax_fn)):
            for e, a in zip(expected, jax.tree.leaves(run(X)), strict=True):
                np.testing.assert_allclose(a, e)
                assert np.asarray(a).dtype == e.numpy().dtype
    if not expected[0].dtype.is_floating:
        return
    x = tf.constant(X)
    try:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(tf.nest.flatten(fn(x))[0]))
        wanted = tape.gradient(loss, x)
    except (LookupError, ValueError, tf.errors.OpError):
        return
    if wanted is None:
        return
    actual = jax.grad(lambda x: jnp.sum(jnp.sin(jax.tree.leaves(jax_fn(x))[0])))(X)
    np.testing.assert_allclose(actual, tf.convert_to_tensor(wanted), rtol=1e-5, atol=1e-6)


def test_index_out_of_range():
    def fn(x):
        return raw.TensorListGetItem(input_handle=filled(x), index=9, element_shape=ROW, element_dtype=F32)

    with pytest.raises(ValueError, match="out of range"):
        tf2jax.convert_functional(fn, tf.TensorSpec([4, 3]))(X)


@pytest.mark.full
def test_array_op_on_a_list_raises():
    @tf.function(input_signature=[tf.TensorSpec([4, 3])])
    def fn(x):
        return raw.TensorListLength(input_handle=tf.reshape(filled(x), []))

    with pytest.raises(tf2jax.errors.LoweringError, match=r"'Reshape'.*\. Input 0 is a variant \(TensorList\)"):
        tf2jax.convert_functional(fn, tf.TensorSpec([4, 3]))(X)


def test_concat_of_a_traced_length_gives_unused_slots_length_zero():
    def concatenated(length):
        lst = TensorList(jnp.ones((4, 2)), length, np.dtype(np.float32), (2,))
        return tensor_list.tensor_list_concat_v2(lst, np.int32([2]), np.int64([]), element_dtype=np.float32, bound=4)

    value, lengths = jax.jit(concatenated)(np.int32(3))
    assert value.shape == (8,)
    np.testing.assert_array_equal(lengths, [2, 2, 2, 0])
