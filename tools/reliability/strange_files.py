"""Files other than graphs that no mutation of a good one makes."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sqlite3
import struct
import warnings
import zipfile

import numpy as np
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

from .commands import DIGITS


def artifact(change):
    def make(folder, base):
        shutil.copytree(base, folder / "a")
        change(folder / "a")
        np.savez(folder / "x.npz", image=np.zeros((1, 8, 8, 1), np.float32))
        return ["run", folder / "a", "--input", folder / "x.npz", "--output", folder / "y.npz"]

    return make


def names_outside(place):
    found = json.loads((place / "metadata.json").read_text())
    found["files"] = {f"../../{name}": entry for name, entry in found["files"].items()}
    (place / "metadata.json").write_text(json.dumps(found))


def linked(place):
    (place / "params.safetensors").unlink()
    (place / "params.safetensors").symlink_to("/etc/passwd")


def long_header(place):
    data = (place / "params.safetensors").read_bytes()
    (place / "params.safetensors").write_bytes(struct.pack("<Q", 2**63) + data[8:])


def database(statements):
    def make(folder, base):
        connection = sqlite3.connect(folder / "c.sqlite")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return ["federate", base, "--data", folder / "c.sqlite", "--out", folder / "out", "--rounds", "1", "--quiet"]

    return make


WITHOUT_END = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i"


def keras(config):
    def make(folder, base):
        with zipfile.ZipFile(folder / "m.keras", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("metadata.json", json.dumps({"keras_version": "3.12.0", "date_saved": ""}))
            archive.writestr("config.json", config())
            archive.writestr("model.weights.h5", b"")
        return ["convert", folder / "m.keras", folder / "out", "--quiet"]

    return make


def vocabulary():
    layer = {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [layer]}})


def linked_model(folder, base):
    shutil.copytree(DIGITS, folder / "m")
    shutil.rmtree(folder / "m" / "variables")
    (folder / "m" / "variables").symlink_to("/proc/self")
    return ["convert", folder / "m", folder / "out", "--quiet"]


def endless_model(folder, base):
    (folder / "m").mkdir()
    (folder / "m" / "saved_model.pb").symlink_to("/dev/zero")
    return ["inspect", folder / "m"]


def metadata(change):
    """Return an artifact with other text, or another file, as metadata."""

    def write(place):
        file = place / "metadata.json"
        text = change(file.read_text())
        file.unlink()
        if text is None:
            os.mkfifo(file)
        else:
            file.write_text(text)

    return artifact(write)


def instead(name, make):
    """Return an artifact in which something else replaces a file."""

    def write(place):
        (place / name).unlink()
        make(place / name)

    return artifact(write)


def tensors(change):
    """Return an artifact whose params have a changed header, that metadata confirm."""

    def write(place):
        file = place / "params.safetensors"
        data = file.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
        found = json.loads((place / "metadata.json").read_text())
        found["files"]["params.safetensors"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        (place / "metadata.json").write_text(json.dumps(found))

    return artifact(write)


def _first(header):
    return next(entry for name, entry in header.items() if name != "__metadata__")


def _overlapping(header):
    for entry in header.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = _first(header)["data_offsets"]


def inputs(write):
    """``run`` with an input file that ``write`` makes."""

    def make(folder, base):
        write(folder / "x.npz")
        return ["run", base, "--input", folder / "x.npz", "--output", folder / "y.npz"]

    return make


def _npy(shape, data=b""):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped(*members):
    def write(path):
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
            warnings.simplefilter("ignore")
            for name, data in members:
                archive.writestr(name, data)

    return inputs(write)


def _wrong_sum(path):
    np.savez(path, image=np.zeros((1, 8, 8, 1), np.float32))
    data = bytearray(path.read_bytes())
    data[-200 if len(data) > 400 else 150] ^= 0xFF
    path.write_bytes(data)


def _objects(path):
    np.savez(path, image=np.array([print], object))


def model(change):
    """Return the demo's SavedModel with a change."""

    def make(folder, base):
        shutil.copytree(DIGITS, folder / "m")
        change(folder / "m")
        return ["convert", folder / "m", folder / "out", "--quiet"]

    return make


def proto(change):
    def write(place):
        found = saved_model_pb2.SavedModel.FromString((place / "saved_model.pb").read_bytes())
        change(found)
        (place / "saved_model.pb").write_bytes(found.SerializeToString())

    return model(write)


def _unknown_functions(found):
    for node in found.meta_graphs[0].object_graph_def.nodes:
        for i in range(len(node.function.concrete_functions)):
            node.function.concrete_functions[i] = "unknown"


def _other_shapes(found):
    for node in found.meta_graphs[0].object_graph_def.nodes:
        for dim in node.variable.shape.dim:
            dim.size += 1


def _children_in_a_circle(found):
    nodes = found.meta_graphs[0].object_graph_def.nodes
    for node in nodes:
        for child in node.children:
            child.node_id = len(nodes) + 5


def pipe(name, besides=lambda place: None):
    def write(place):
        besides(place)
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).unlink(missing_ok=True)
        os.mkfifo(place / name)

    return model(write)


def _in_text(place):
    found = saved_model_pb2.SavedModel.FromString((place / "saved_model.pb").read_bytes())
    (place / "saved_model.pbtxt").write_text(text_format.MessageToString(found))


def _crafted_index(place):
    file = place / "variables" / "variables.index"
    data = bytearray(file.read_bytes())
    data[len(data) // 2 :: 7] = bytes(b ^ 0x55 for b in data[len(data) // 2 :: 7])
    file.write_bytes(data)


def clients(*rows):
    """Return a database in this package's layout with other values in it."""
    return database(
        [
            "CREATE TABLE format (v)",
            "INSERT INTO format VALUES ('tf2jax_lite federated data 1')",
            "CREATE TABLE clients (client_id, num_examples, crc32, examples)",
            *(f"INSERT INTO clients VALUES {row}" for row in rows),
        ]
    )


PICKLE = "x'" + pickle.dumps(print).hex() + "'"


FILES = {
    "names outside of the artifact": artifact(names_outside),
    "a link for weights": artifact(linked),
    "a header of 2^63 bytes": artifact(long_header),
    "a view without end": database(
        [
            f"CREATE VIEW clients AS {WITHOUT_END} AS client_id, x'00' AS examples, 1 AS size FROM n",
            "CREATE TABLE format (v)",
        ]
    ),
    "a view for a TFF table": database(
        [f"CREATE VIEW examples AS {WITHOUT_END} AS client_id FROM n", "CREATE TABLE client_metadata (client_id)"]
    ),
    "a configuration of a gigabyte": keras(lambda: b" " * (1 << 29)),
    "a vocabulary of the system": keras(vocabulary),
    "metadata that are a pipe": metadata(lambda text: None),
    "metadata of devices": instead("metadata.json", lambda file: file.symlink_to("/dev/zero")),
    "metadata of another version": metadata(lambda text: text.replace('"format_version": ', '"format_version": 99')),
    "metadata that nest": metadata(lambda text: '{"signatures": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "metadata of numbers that are none": metadata(lambda text: text.replace('"params": {', '"params": {"x": NaN, ')),
    "metadata of huge numbers": metadata(lambda text: text.replace('"format_version": ', '"format_version": 1e400')),
    "metadata of endless numbers": metadata(
        lambda text: text.replace('"format_version": ', '"format_version": 1' + "0" * 9999)
    ),
    "metadata with two of a key": metadata(lambda text: text.replace("{", '{"files": {}, "params": {}, ', 1) + "}"),
    "weights that are a folder": instead("params.safetensors", lambda file: file.mkdir()),
    "weights that are a pipe": instead("params.safetensors", os.mkfifo),
    "weights that lead to themselves": instead("params.safetensors", lambda file: file.symlink_to(file.name)),
    "a program that is a pipe": instead("model.serve.stablehlo", os.mkfifo),
    "weights that overlap": tensors(_overlapping),
    "weights before the beginning": tensors(lambda header: _first(header).update(data_offsets=[-8, 0])),
    "weights of 2^62": tensors(lambda header: _first(header).update(shape=[2**62, 2**62])),
    "inputs that are a pipe": inputs(os.mkfifo),
    "inputs that never end": inputs(lambda file: file.symlink_to("/dev/zero")),
    "inputs of Python objects": inputs(_objects),
    "inputs with a wrong checksum": inputs(_wrong_sum),
    "two inputs of one name": zipped(*[("image.npy", _npy((1, 8, 8, 1), b"\0" * 256))] * 2),
    "an input of 2^62": zipped(("image.npy", _npy((2**62, 8)))),
    "an input outside of the archive": zipped(("../../image.npy", _npy((1, 8, 8, 1), b"\0" * 256))),
    "unknown functions": proto(_unknown_functions),
    "variables of other shapes": proto(_other_shapes),
    "objects that are not there": proto(_children_in_a_circle),
    "a model that is a pipe": pipe("saved_model.pb"),
    "a model that is a pipe, and one in text": pipe("saved_model.pb", _in_text),
    "a fingerprint that is a pipe": pipe("fingerprint.pb"),
    "debugging information that is a pipe": pipe("debug/saved_model_debug_info.pb"),
    "an index that is a pipe": pipe("variables/variables.index"),
    "variables that are a pipe": pipe("variables/variables.data-00000-of-00001"),
    "a crafted index": model(_crafted_index),
    "clients of pickles": clients(f"('a', 1, 0, {PICKLE})"),
    "clients without a name": clients("(NULL, 1, 0, x'00')", "(9e999, 1, 0, x'00')"),
    "two clients of one name": clients("('a', 1, 0, x'00')", "('a', 1, 0, x'00')"),
    "a client of 2^62 examples": clients("('a', 4611686018427387904, 0, x'00')"),
    "linked variables": linked_model,
    "a model without end": endless_model,
}
