"""Mutators of files: bytes, protobufs, JSON, safetensors, SQLite, StableHLO.

Protocol buffers are changed field by field.

Each mutator takes a random generator and the bytes of a good file, and returns the bytes of a bad one.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.frontend.safety import checkpoint_index
from tf2jax_lite.support import crc32c

Mutator = Callable[[random.Random, bytes], bytes]

_NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 256, 65535, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 32, (1 << 63) - 1)
_TEXTS = (
    "",
    "^",
    ":",
    "x:0",
    "x:999999999999",
    "../../../tmp/out",
    "/etc/passwd",
    "\0",
    "a" * 300,
    "é\u202e",
    "PyFunc",
    "ReadFile",
    "WriteFile",
    "While",
    "StatefulPartitionedCall",
    "NextIteration",
    "Merge",
    "%s%n",
    "__class__",
)


def integer(rng: random.Random) -> int:
    """Return a number that is likely to be at some edge."""
    return rng.choice(_NUMBERS) if rng.random() < 0.7 else rng.getrandbits(rng.choice((4, 16, 40, 63)))


def flip_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flip, replaces, cuts, repeats or inserts bytes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not out:
            break
        at = rng.randrange(len(out))
        kind = rng.randrange(7)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.randrange(256)
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + rng.choice((1, 2, 4, 64))]
        elif kind == 4:
            out[at:at] = out[at : at + rng.choice((1, 8, 64))] * rng.choice((1, 2, 8))
        elif kind == 5:
            out[at : at + 4] = struct.pack("<I", integer(rng) & 0xFFFFFFFF)
        else:
            other = rng.randrange(len(out))
            size = rng.choice((1, 4, 16, 64))
            out[at : at + size] = out[other : other + size]
    return bytes(out)


# ---- protocol buffers ----


def proto_fields(make: Callable[[bytes], Any]) -> Mutator:
    """Return a mutator of fields of a message; ``make`` parses one."""

    def mutate(rng: random.Random, data: bytes) -> bytes:
        message = make(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            _mutate_message(rng, message, 0)
        return message.SerializePartialToString()

    return mutate


def _mutate_message(rng: random.Random, message: Any, depth: int) -> None:
    fields = message.ListFields()
    if not fields or (rng.random() < 0.05 and depth):
        _set_unset(rng, message)
        return
    weights = [max(1, min(value.ByteSize() if hasattr(value, "ByteSize") else 8, 400)) for _, value in fields]
    field, value = rng.choices(fields, weights)[0]
    if field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
        _mutate_repeated(rng, message, field, value, depth)
    elif field.type == field.TYPE_MESSAGE and rng.random() < 0.9:
        _mutate_message(rng, value, depth + 1)
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    elif field.type != field.TYPE_MESSAGE:
        _assign(rng, message, field)


def _assign(rng: random.Random, message: Any, field: Any) -> None:
    with contextlib.suppress(ValueError, TypeError):
        setattr(message, field.name, _scalar(rng, field, getattr(message, field.name)))


def _scalar(rng: random.Random, field: Any, old: Any) -> Any:
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        text = rng.choice(_TEXTS)
        if rng.random() < 0.3 and old:
            return flip_bytes(rng, old) if isinstance(old, bytes) else old[: rng.randrange(len(old) + 1)]
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    if field.type == field.TYPE_BOOL:
        return not old
    if field.type == field.TYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 7, 8, 9, 10, 14, 19, 20, 21, 22, 23, 27, 101, 120, 999))
    number = integer(rng)
    return number & 0x7FFFFFFF if field.type in (field.TYPE_INT32, field.TYPE_UINT32) else number


def _set_unset(rng: random.Random, message: Any) -> None:
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = rng.choice(list(fields))
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    try:
        if not repeated and field.type == field.TYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        elif not repeated:
            _assign(rng, message, field)
        elif field.type != field.TYPE_MESSAGE:
            getattr(message, field.name).append(_scalar(rng, field, b"" if field.type == field.TYPE_BYTES else 0))
    except (ValueError, TypeError, AttributeError):
        pass


def _mutate_repeated(rng: random.Random, message: Any, field: Any, value: Any, depth: int) -> None:
    if hasattr(value, "keys"):  # a map
        key = rng.choice(sorted(value.keys(), key=str))
        entry = value[key]
        if rng.random() < 0.15:
            del value[key]
        elif rng.random() < 0.15 and len(value) > 1 and hasattr(entry, "CopyFrom"):
            entry.CopyFrom(value[rng.choice(sorted(value.keys(), key=str))])
        elif hasattr(entry, "ListFields"):
            _mutate_message(rng, entry, depth + 1)
        elif isinstance(entry, str):
            value[key] = rng.choice((*_TEXTS, *map(str, value.values())))
        return
    at = rng.randrange(len(value))
    kind = rng.random()
    if kind < 0.12:
        del value[at]
    elif kind < 0.2:
        item = value[at]
        for _ in range(rng.choice((1, 1, 3, 50))):
            value.add().CopyFrom(item) if hasattr(item, "CopyFrom") else value.append(item)
    elif hasattr(value[at], "ListFields"):
        if kind < 0.3 and len(value) > 1:
            value[at].CopyFrom(value[rng.randrange(len(value))])
        else:
            _mutate_message(rng, value[at], depth + 1)
    elif kind < 0.5 and len(value) > 1:
        value[at] = value[rng.randrange(len(value))]
    else:
        with contextlib.suppress(ValueError, TypeError):
            value[at] = _scalar(rng, field, value[at])


def rewire(make: Callable[[bytes], Any]) -> Mutator:
    """Return a mutator of GraphDef inputs: cycles, dangling ones, recursion."""

    def mutate(rng: random.Random, data: bytes) -> bytes:
        message = make(data)
        graph = getattr(message, "graph_def", message)
        if hasattr(message, "meta_graphs"):
            graph = message.meta_graphs[0].graph_def
        bodies = [b for b in (graph.node, *(f.node_def for f in graph.library.function)) if len(b)]
        names = [f.signature.name for f in graph.library.function]
        for _ in range(rng.choice((1, 1, 2, 4))):
            nodes = rng.choice(bodies)
            node, other = rng.choice(nodes), rng.choice(nodes)
            kind = rng.randrange(6)
            if kind == 0 and node.input:
                node.input[rng.randrange(len(node.input))] = other.name
            elif kind == 1:
                node.input.append(rng.choice((other.name, "^" + other.name, "missing", f"{other.name}:7")))
            elif kind == 2:
                node.op = rng.choice((other.op, *names)) if names else other.op
            elif kind == 3 and names:
                for value in node.attr.values():
                    if value.HasField("func"):
                        value.func.name = rng.choice(names)
            elif kind == 4:
                node.attr[rng.choice(sorted(node.attr) or ["N"])].i = integer(rng)
            else:
                node.name = other.name
        return message.SerializePartialToString()

    return mutate


# ---- JSON, safetensors ----


def json_values(rng: random.Random, data: bytes) -> bytes:
    """Change values of a JSON document, or nests it."""
    try:
        document = json.loads(data)
    except ValueError:
        return flip_bytes(rng, data)
    if rng.random() < 0.03:
        depth = rng.choice((10, 500, 20000))
        return b"[" * depth + data + b"]" * depth
    for _ in range(rng.choice((1, 1, 2, 4))):
        document = _json_changed(rng, document)
    return json.dumps(document).encode()


_JSON = (None, True, -1, 0, 1 << 70, 1.5, "", "../x", "/etc/passwd", [], {}, [[[[]]]], {"dict": []}, float("nan"))


def _json_changed(rng: random.Random, item: Any) -> Any:
    if isinstance(item, dict) and item and rng.random() < 0.9:
        key = rng.choice(sorted(item))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in item.items() if k != key}
        if kind < 0.2:
            return {**item, rng.choice(_TEXTS): item[key]}
        if kind < 0.3:
            return {**item, key: item[rng.choice(sorted(item))]}
        return {**item, key: _json_changed(rng, item[key])}
    if isinstance(item, list) and item and rng.random() < 0.9:
        at = rng.randrange(len(item))
        if rng.random() < 0.15:
            return item[:at] + item[at + 1 :]
        if rng.random() < 0.15:
            return item + [item[at]] * rng.choice((1, 3, 100))
        return [*item[:at], _json_changed(rng, item[at]), *item[at + 1 :]]
    if isinstance(item, str) and rng.random() < 0.5:
        return rng.choice(_TEXTS)
    if isinstance(item, int) and rng.random() < 0.5:
        return integer(rng)
    return rng.choice(_JSON)


def safetensors_header(rng: random.Random, data: bytes) -> bytes:
    """Change the header of a safetensors file, or its length."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json_values(rng, data[8 : 8 + size])
    length = len(header) if rng.random() < 0.9 else integer(rng) & ((1 << 64) - 1)
    return struct.pack("<Q", length) + header + data[8 + size :]


# ---- LevelDB tables (indexes of checkpoints) ----


def write_table(pairs: Sequence[tuple[bytes, bytes]], *, is_packed: bool = False, size: int = 4) -> bytes:
    """Return a LevelDB table with correct checksums."""
    data, handles = b"", []

    def block(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        nonlocal data
        text, starts = b"", []
        for key, value in entries:
            starts.append(len(text))
            text += b"\0" + _varint(len(key)) + _varint(len(value)) + key + value
        starts = starts or [0]
        text += struct.pack(f"<{len(starts) + 1}I", *starts, len(starts))
        if is_packed:
            text = _varint(len(text)) + bytes([61 << 2]) + struct.pack("<H", len(text) - 1) + text
        place = _varint(len(data)) + _varint(len(text))
        data += text + bytes([is_packed]) + _masked_crc(text + bytes([is_packed]))
        return place

    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        handles.append((part[-1][0], block(part)))
    footer = block([]) + block(handles)
    return data + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def _masked_crc(data: bytes) -> bytes:
    state = crc32c.update(crc32c.START, np.frombuffer(data, np.uint8))
    total = crc32c.checksum(state)
    return struct.pack("<I", ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def table_entries(rng: random.Random, data: bytes) -> bytes:
    """Change keys, values or the order of a table's entries."""
    from tensorflow.core.protobuf import tensor_bundle_pb2

    pairs = list(checkpoint_index._entries(data))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(pairs))
        key, value = pairs[at]
        kind = rng.randrange(6)
        if kind < 3:
            made = tensor_bundle_pb2.BundleEntryProto if key else tensor_bundle_pb2.BundleHeaderProto
            pairs[at] = (key, proto_fields(made.FromString)(rng, value))
        elif kind == 3:
            pairs.insert(at, (key, pairs[rng.randrange(len(pairs))][1]))
        elif kind == 4:
            pairs[at] = (flip_bytes(rng, key), value)
            pairs = pairs if rng.random() < 0.3 else sorted(pairs)
        elif len(pairs) > 1:
            del pairs[at]
    return write_table(pairs, is_packed=rng.random() < 0.3, size=rng.choice((1, 4, 16)))


def table_blocks(rng: random.Random, data: bytes) -> bytes:
    """Change bytes of a block of a table, and repair its checksum."""
    start, size = rng.choice(_blocks(data))
    text = flip_bytes(rng, data[start : start + size])[:size].ljust(size, b"\0")
    text += data[start + size : start + size + 1]
    return data[:start] + text + _masked_crc(text) + data[start + size + 5 :]


def _blocks(data: bytes) -> list[tuple[int, int]]:
    """Return the places of a valid table's blocks, the index among them."""
    position, numbers = len(data) - 48, []
    for _ in range(4):
        number, position = checkpoint_index._number(data, position)
        numbers.append(number)
    found = [(numbers[2], numbers[3])]
    for _, handle in checkpoint_index._Table(data)._block(*found[0], len(data)):
        start, position = checkpoint_index._number(handle, 0)
        found.append((start, checkpoint_index._number(handle, position)[0]))
    return found


# ---- custom calls ----

_TARGETS = (
    "xla_ffi_python_cpu_callback",
    "xla_python_cpu_callback",
    "PadToStatic",
    "__cublas$gemm",
    "x",
    "a\0",
    "TopK",
)
_ELEMENTS = ("f32", "f64", "i32", "i64", "i1", "ui8", "complex<f32>", "bf16")


def custom_call(rng: random.Random, data: bytes) -> bytes:
    """Change a custom call: sizes, ranks, dtypes, attributes, target, place."""
    call = json.loads(data)
    sides = call["operands"], call["results"]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        side = rng.choice([s for s in sides if s] or [call["operands"]])
        at = rng.randrange(len(side)) if side else 0
        kind = rng.randrange(9)
        if kind < 3 and side and side[at][1]:
            side[at][1][rng.randrange(len(side[at][1]))] = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 64, 2000))
        elif kind == 3 and side:
            side[at][0] = rng.choice(_ELEMENTS)
        elif kind == 4 and side:
            side[at][1] = rng.choice((side[at][1][1:], [rng.randrange(5), *side[at][1]]))
        elif kind == 5 and side:
            side.insert(at, [side[at][0], [*side[at][1]]]) if rng.random() < 0.5 else side.pop(at)
        elif kind == 6:
            letters = [i for i, c in enumerate(call["config"]) if c.isdigit() or c in "tf"]
            if letters:
                where = rng.choice(letters)
                call["config"] = f"{call['config'][:where]}{rng.randrange(10)}{call['config'][where + 1 :]}"
        elif kind == 7:
            call["api_version"] = rng.randrange(5)
        elif rng.random() < 0.3:
            call["target"] = rng.choice((*_TARGETS, call["target"].replace("_s", "_d"), call["target"][:-1]))
        else:
            call["layout"] = rng.randrange(4)
    call["order"] = rng.choice((0, 0, 1, 2))
    call["dynamic"] = rng.random() < 0.4
    return json.dumps(call).encode()


# ---- text (StableHLO) ----

_PIECES = (
    "1000000000000",
    "-1",
    "?",
    "tensor<f32>",
    "tensor<99999999x99999999xf32>",
    "dense<0.0>",
    "@main",
    "%arg0",
    "%9",
    "{",
    "}",
    "stablehlo.while",
    "stablehlo.custom_call",
    '"',
    'dense<"0x00">',
    "i64",
    "complex<f64>",
    "!stablehlo.token",
    "func.call @main",
    "<" * 200,
)


def words(rng: random.Random, data: bytes) -> bytes:
    """Replace, swaps, removes or repeats words and lines of a text."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        parts = lines[at].split(b" ")
        where = rng.randrange(len(parts))
        kind = rng.randrange(6)
        if kind == 0:
            parts[where] = rng.choice(_PIECES).encode()
        elif kind == 1:
            del parts[where]
        elif kind == 2:
            parts[where] = rng.choice(lines[rng.randrange(len(lines))].split(b" "))
        elif kind == 3:
            lines.insert(at, lines[rng.randrange(len(lines))])
            continue
        elif kind == 4:
            parts[where] = flip_bytes(rng, parts[where])
        else:
            parts[where] = b"".join(
                str(integer(rng)).encode() if c.isdigit() else c.encode() for c in parts[where].decode("latin1")
            )[:500]
        lines[at] = b" ".join(parts)
    return b"\n".join(lines)
