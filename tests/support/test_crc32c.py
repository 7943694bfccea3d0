"""Checksums of any length, in one piece or in several."""

import numpy as np
import pytest

from tf2jax_lite.support import crc32c


def by_bits(data):
    """Compute the checksum one bit at a time."""
    state = 0xFFFFFFFF
    for byte in bytes(data):
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def of(*pieces):
    state = crc32c.START
    for piece in pieces:
        state = crc32c.update(state, np.frombuffer(piece, np.uint8))
    return crc32c.checksum(state)


def test_checksum_of_the_check_sequence():
    assert of(b"123456789") == 0xE3069283
    assert of(b"") == 0 and of(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


@pytest.mark.parametrize("length", [1, 3, 4, 5, 511, 512, 513, 516, 1027, 4 * 8192, 4 * 8192 + 4, 4 * 20000 + 3])
def test_checksum_is_that_of_the_bits(length):
    data = np.random.RandomState(length).randint(0, 256, length, np.uint8)
    expected = by_bits(data)
    assert of(data) == expected
    cut = length // 8 * 4
    assert of(data[:cut], data[cut:]) == expected


def test_unmasked_inverts_the_mask():
    masked = ((0x12345678 >> 15 | 0x12345678 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert crc32c.unmasked(masked) == 0x12345678
