"""Arrays that the sweep over primitives works on."""

import numpy as np

R = np.random.RandomState(7)


def f32(*shape, scale=1.0):
    return (R.randn(*shape) * scale).astype(np.float32)


V = np.float32([-1.3, 0.2, 0.7, 1.9])
U = np.float32([-0.8, -0.2, 0.3, 0.6])  # within (-1, 1)
P = np.float32([0.3, 0.9, 1.7, 4.2])
Q = np.float32([2.1, 0.6, 3.3, 1.4])
I = np.int32([-5, 0, 3, 77])  # noqa: E741
N = np.uint32([0, 1, 77, 2**31 + 5])
WORDS = np.uint32([2**32 - 1, 77, 0x9ABCDEF0, 2**31 + 5])  # their products fill two words
C = (V + 1j * V[::-1]).astype(np.complex64)
C2 = (Q - 1j * V).astype(np.complex64)
M = f32(3, 4)
A = f32(3, 3)
S = (A @ A.T + 3 * np.eye(3)).astype(np.float32)
IMAGE = f32(2, 5, 4, 3)
KEY = np.uint32([1, 2])
D = {"grad": True, "vmap": True}
B = {"vmap": True}
