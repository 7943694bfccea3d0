import numpy as np

from tf2jax_lite.ops import tensor_list as tl


def test_push_then_stack():
    handle = tl.empty_tensor_list(np.int32(-1), np.int32(-1), element_dtype=np.dtype("float32"))
    for i in range(3):
        handle = tl.tensor_list_push_back(handle, np.full(2, i, np.float32), element_dtype=np.dtype("float32"))
    stacked = tl.tensor_list_stack(handle, np.int32(-1), element_dtype=np.dtype("float32"))
    np.testing.assert_array_equal(stacked, [[0, 0], [1, 1], [2, 2]])
