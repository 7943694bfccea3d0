"""Indexes that have two readings, or that take much memory; Snappy."""

import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from tf2jax_lite.errors import InvalidModelError, LimitError
from tf2jax_lite.frontend.safety import checkpoint_index
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint
from tf2jax_lite.support import crc32c

HEADER = tensor_bundle_pb2.BundleHeaderProto(num_shards=1).SerializeToString()


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def block(pairs, *, interval=16, restarts=None):
    """Return the content of a block, whose keys share prefixes between restarts."""
    data, starts, last = b"", [], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % interval == 0:
            starts.append(len(data))
        else:
            shared = next(
                (i for i, (a, b) in enumerate(zip(key, last, strict=False)) if a != b), min(len(key), len(last))
            )
        data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    starts = restarts if restarts is not None else starts or [0]
    return data + b"".join(struct.pack("<I", s) for s in starts) + struct.pack("<I", len(starts))


def table(blocks, *, keys=None, handles=None, packed=None):
    """Return a LevelDB table of blocks, with correct checksums."""
    data, offsets = b"", []

    def add(content, kind):
        nonlocal data
        place = varint(len(data)) + varint(len(content))
        kind = bytes([kind])
        state = crc32c.update(crc32c.START, np.frombuffer(content + kind, np.uint8))
        total = crc32c.checksum(state)
        data += content + kind + struct.pack("<I", ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFFFFFF)
        return place

    for content in blocks:
        offsets.append(add(packed(content), 1) if packed else add(content, 0))
    nothing = add(block([]), 0)
    keys = [bytes([255, i]) for i in range(len(offsets))] if keys is None else keys
    pairs = list(zip(keys, offsets if handles is None else handles(offsets), strict=True))
    index = block(pairs, interval=1)
    footer = nothing + (add(packed(index), 1) if packed else add(index, 0))
    return data + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def literals(data):
    """Return Snappy's format without copies."""
    out = varint(len(data))
    for i in range(0, len(data), 1 << 16):
        part = data[i : i + (1 << 16)]
        out += bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part
    return out


def value(*shape, dtype=1):
    entry = tensor_bundle_pb2.BundleEntryProto(dtype=dtype, size=4 * int(np.prod(shape)))
    for size in shape:
        entry.shape.dim.add(size=size)
    return entry.SerializeToString()


def read(data):
    return checkpoint_index.read_index(Path("v.index"), data)[1]


V, W = (b"v", value(2)), (b"w", value(3))
START = (b"", HEADER)
GOOD = [START, V, W]


@pytest.mark.parametrize("interval", [1, 2, 16])
@pytest.mark.parametrize("packed", [None, literals])
def test_tables_of_leveldb(interval, packed):
    names = [b"", *(b"layer/%03d" % i for i in range(100))]
    pairs = [(name, value(i) if i else HEADER) for i, name in enumerate(names)]
    blocks = [block(part, interval=interval) for part in (pairs[:40], pairs[40:41], pairs[41:])]
    found = read(table(blocks, keys=[b"layer/0385", b"layer/039", b"z"], packed=packed))
    assert [(name, entry.shape.dim[0].size) for name, entry in found.items()] == [
        (name.decode(), i) for i, name in enumerate(names) if i
    ]


def shared_prefixes():
    """Return a block whose keys are 1 MB each, and take 9 bytes."""
    key = b"k" * (1 << 20)
    data = varint(0) + varint(0) + varint(len(HEADER)) + HEADER + varint(0) + varint(len(key)) + varint(0) + key
    rest = b"".join(varint(len(key) + i * 4) + varint(4) + varint(0) + struct.pack(">I", i) for i in range(4000))
    return data + rest + struct.pack("<II", 0, 1)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (table([block([START, V, V])]), "keys do not increase"),
        (table([block([START, W, V])]), "keys do not increase"),
        (table([block([START, W]), block([V])], keys=[b"w", b"x"]), "keys do not increase"),
        (table([block([START, W]), block([(b"x", value(1))])], keys=[b"v", b"x"]), "keys do not increase"),
        (table([block([START, V]), block([W])], keys=[b"x", b"x"]), "keys do not increase"),
        (table([block([START, V]), block([(b"vv", value(1))])], keys=[b"vw", b"x"]), "keys do not increase"),
        (table([block(GOOD)], keys=[b"v"]), "keys do not increase"),
        (table([block([V, W])]), "no header"),
        (table([]), "no header|restarts"),
        (table([block([])]), "restarts"),
        (table([block(GOOD, restarts=[])]), "begin with a restart"),
        (table([block(GOOD, interval=1, restarts=[0, 1])]), "restarts"),
        (table([block([START, (b"v", value(2)), (b"va", value(3))], restarts=[0, 17])]), "restarts"),
        (table([block(GOOD)] * 2, keys=[b"x", b"y"], handles=lambda offsets: offsets[:1] * 2), "blocks overlap"),
        (table([block(GOOD), block([(b"x", V[1])])], keys=[b"w", b"x"], handles=lambda p: p[::-1]), "keys|header"),
        (table([block(GOOD)], handles=lambda _: [varint(0) + varint(1 << 40)]), "outside"),
        (table([block(GOOD)], packed=lambda data: varint(1 << 20) + b"\0"), "smaller|cut short"),
        (table([block(GOOD)], packed=lambda data: varint(1 << 40) + literals(data)), "memory"),
        (table([block([START, (b"v", value(*[1] * 65))])]), "65 dimensions"),
        (table([block([(b"", b"\x1a\x02\x10\x02"), V])]), "version 2"),
        (table([shared_prefixes()]), "memory"),
    ],
)  # fmt: skip
def test_indexes_of_more_than_one_reading(data, match):
    began = time.process_time()
    with pytest.raises(InvalidModelError, match=match) as raised:
        read(data)
    assert isinstance(raised.value, LimitError) == (match == "memory")
    assert time.process_time() - began < 5


def test_names_that_decode_alike_are_two():
    assert len(read(table([block([START, (b"v\xfe", value(1)), (b"v\xff", value(2))])]))) == 2


@pytest.mark.parametrize("compress", [b"\x0c\x08abc\x01\x03\x05\x03", b"\x0c\x08abc\x22\x03\0"])
def test_snappy_copies(compress):
    assert checkpoint_index.unpack_snappy(compress) == b"abc" * 4


def test_snappy_agrees_with_arrow():
    arrow = pytest.importorskip("pyarrow")
    rng = random.Random(0)
    for size in (0, 1, 59, 60, 61, 300, 70_000):
        data = b"".join(rng.choice((b"layer/", b"kernel", b"a" * 70, rng.randbytes(9))) for _ in range(size))[:size]
        packed = arrow.compress(data, codec="snappy", asbytes=True)
        assert checkpoint_index.unpack_snappy(packed) == data
        for _ in range(30):
            broken = bytearray(packed)
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            try:
                found = checkpoint_index.unpack_snappy(bytes(broken))
            except (ValueError, IndexError):
                continue
            assert found == arrow.decompress(bytes(broken), len(found), codec="snappy", asbytes=True)


@pytest.fixture
def parts(tmp_path):
    """Return the prefix of a checkpoint with a variable in parts, and its value."""
    whole = np.arange(600.0, dtype=np.float32).reshape(300, 2)
    with tf.Graph().as_default():
        pieces = [whole[:70], whole[70:200], whole[200:]]
        tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "p"),
            tensor_names=["v", "v", "v\xff\0"],
            shape_and_slices=["300 2 0,70:-", "300 2 70,230:-", "300 2 0,300:0,2"],
            tensors=[pieces[0], np.concatenate(pieces[1:]), whole],
        )
        with tf.compat.v1.Session() as session:
            session.run(session.graph.get_operations()[-1])
    return str(tmp_path / "p"), whole


def test_parts_of_tensors(parts):
    prefix, whole = parts
    found = Checkpoint(prefix)
    np.testing.assert_array_equal(found.read(("v", "")), whole)
    np.testing.assert_array_equal(found.read(("v", "300 2 10,20:-")), whole[10:30])
    assert found.stored(("v", "")) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda e: setattr(e[b"v"].slices[0].extent[0], "start", 1),
        lambda e: setattr(e[b"v"].slices[0].extent[0], "length", 80),
        lambda e: setattr(e[b"v"].slices[1].extent[0], "length", 1 << 40),
        lambda e: setattr(e[b"v"], "dtype", 2),
        lambda e: setattr(e[sorted(e)[0]].shape.dim[0], "size", 7),
        lambda e: setattr(e[sorted(e)[0]].shape.dim[1], "size", 1),
        lambda e: e[b"v"].slices.add().CopyFrom(e[b"v"].slices[0]),
    ],
)
def test_parts_that_are_not_those_of_their_tensor(parts, change):
    """TensorFlow copies with the extents of the tensor, not with the part's shape."""
    prefix, _ = parts
    index = Path(f"{prefix}.index")
    pairs = dict(checkpoint_index._entries(index.read_bytes()))
    header = pairs.pop(b"")
    entries = {k: tensor_bundle_pb2.BundleEntryProto.FromString(v) for k, v in pairs.items()}
    change(entries)
    index.write_bytes(table([block([(b"", header), *((k, e.SerializeToString()) for k, e in entries.items())])]))
    with pytest.raises(InvalidModelError, match=r"part of|shape"):
        Checkpoint(prefix)


def stored_text(folder, lengths, *, count=None, dtype=7):
    """Write a checkpoint of strings (7) or variants (21); return its prefix."""
    text = b"abc" * 5
    data = b"".join(map(varint, lengths)) + bytes(4) + text
    entry = tensor_bundle_pb2.BundleEntryProto(dtype=dtype, size=len(data))
    entry.shape.dim.add(size=len(lengths) if count is None else count)
    (folder / "p.index").write_bytes(table([block([START, (b"s", entry.SerializeToString())])]))
    (folder / "p.data-00000-of-00001").write_bytes(data)
    return folder / "p"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"lengths": [7, 8]}, None),
        ({"lengths": [7, 16]}, "cannot be read"),
        ({"lengths": [(1 << 32) - 1, 0]}, "cannot be read"),
        ({"lengths": [1 << 63], "dtype": 21}, "cannot be read"),
        ({"lengths": [7, 8], "count": 1 << 40}, "more than the"),
        ({"lengths": [7, 8], "count": 20}, "cannot be read"),
    ],
)
def test_strings_that_announce_more_than_there_is(given, match, tmp_path):
    prefix = stored_text(tmp_path, **given)
    if match is None:
        assert ("s", "") in Checkpoint(prefix)
        return
    with pytest.raises(InvalidModelError, match=match):
        Checkpoint(prefix)


def test_tensorflow_reads_the_index_that_was_checked(parts):
    prefix, whole = parts
    found = Checkpoint(prefix)
    Path(f"{prefix}.index").write_bytes(b"another index")
    np.testing.assert_array_equal(found.read(("v", "")), whole)
    copy = Path(found.checked_prefix).parent
    assert copy.is_dir()
    del found
    assert not copy.exists()
