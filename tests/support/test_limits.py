"""Sizes are looked at before memory is taken, and stray errors become ours."""

import pytest

import tf2jax_lite
from tf2jax_lite.errors import ExportError, InvalidModelError, LimitError, OpError
from tf2jax_lite.support import limits


def test_bytes_are_counted_in_integers_of_any_size():
    assert limits.check_bytes([3, 4], 8, "it") == 96
    assert limits.check_bytes([1 << 60, 0], 8, "it") == 0  # an empty array takes nothing
    with pytest.raises(LimitError, match="max_constant_bytes"):
        limits.check_bytes([1 << 40, 1 << 40], 4, "it")  # 2^82 does not fit in 64 bits
    with pytest.raises(InvalidModelError, match="shape"):
        limits.check_bytes([-1], 4, "it")
    with tf2jax_lite.override_config("max_constant_bytes", 95), pytest.raises(LimitError, match="96 bytes"):
        limits.check_bytes([3, 4], 8, "it")


def test_files_larger_than_any_protocol_buffer_are_not_read(tmp_path):
    with (tmp_path / "big.pb").open("wb") as file:
        file.truncate(limits.MAX_PROTO_BYTES + 1)  # a hole: nothing is on the disk
    with pytest.raises(LimitError, match="protocol buffer"):
        limits.read_bytes(tmp_path / "big.pb")
    with pytest.raises(InvalidModelError, match="not a regular file"):
        limits.read_bytes(tmp_path)
    with pytest.raises(InvalidModelError, match="cannot be read"):
        limits.read_bytes(tmp_path / "absent.pb")


def test_json_is_bounded_before_it_is_parsed(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, 2]}')
    assert limits.read_json(file) == {"a": [1, 2]}
    with pytest.raises(ExportError, match="13 bytes of JSON; at most 12"):
        limits.read_json(file, ExportError, limit=12)
    for text in ("[" * 100_000, "{", "\x80"):
        with pytest.raises(ExportError, match=r"a\.json"):
            limits.parse_json(text, "a.json", ExportError)
    with file.open("wb") as stream:
        stream.truncate(limits.MAX_JSON_BYTES + 1)  # a hole: nothing is on the disk
    with pytest.raises(InvalidModelError, match="bytes of JSON"):
        limits.read_json(file)
    with pytest.raises(InvalidModelError, match="not a regular file"):
        limits.read_json(tmp_path)


@pytest.mark.parametrize("error", [KeyError("a"), RecursionError(), MemoryError(), AssertionError("b")])
def test_stray_errors_become_ours_and_say_where(error):
    with pytest.raises(ExportError, match=r"file\.x"), limits.reading("file.x", ExportError):
        raise error


@pytest.mark.full
def test_our_own_errors_pass():
    with pytest.raises(OpError, match=r"(?m)^mine$"), limits.reading("file.x"):
        raise OpError("mine")
