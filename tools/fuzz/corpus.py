"""Small real files of every kind, made once for a run.

They are the same each time except for TensorFlow's names.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.frontend.safety import checkpoint_index

from . import keras_files
from .mutators import write_table

__all__ = ["checkpoint_state", "make_corpus"]


def make_corpus(folder: Path) -> None:
    """Write the corpus: ``<target>/<name>`` with all that a target needs beside it."""
    for name, make in (
        ("graph", _graphs),
        ("saved_model", _saved_models),
        ("checkpoint", _checkpoints),
        ("artifact", _artifacts),
        ("clients", _clients),
        ("stablehlo", _stablehlo),
        ("calls", _calls),
        ("keras", lambda folder: keras_files.make_seeds(folder / "keras")),
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
        make(folder)


def _functions() -> dict[str, Any]:
    import tensorflow as tf

    weights = tf.constant(np.arange(12, dtype=np.float32).reshape(4, 3) / 7)

    def dense(x: Any) -> Any:
        return tf.nn.softmax(tf.matmul(x, weights) + tf.reshape(tf.range(3.0), [1, 3]))

    def shapes(x: Any) -> Any:
        n = tf.shape(x)[0]
        tiled = tf.tile(tf.fill([2, 3], 1.5), [n, 2])
        return tf.pad(tiled, [[0, 1], [1, 0]])[1:, :] + tf.reduce_sum(tf.broadcast_to([1.0, 2.0], [4, 2]))

    def loop(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, tf.cond(tf.reduce_sum(y) > 3.0, lambda: y * 0.5, lambda: y + 1.0)

        return tf.while_loop(lambda i, y: i < 5, body, (tf.constant(0), x))[1]

    @tf.function
    def inner(x: Any) -> Any:
        return tf.stack([x, x * 2.0])

    def calls(x: Any) -> Any:
        a, b = tf.split(inner(x), 2)
        return tf.concat([a, inner(tf.squeeze(b, 0))], 0)

    return {"dense": dense, "shapes": shapes, "loop": loop, "calls": calls}


def _graphs(folder: Path) -> None:
    import tensorflow as tf

    for name, function in _functions().items():
        concrete = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec([2, 4], tf.float32))
        (folder / "graph" / f"{name}.pb").write_bytes(concrete.graph.as_graph_def().SerializeToString())
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2])
        tf.compat.v1.disable_control_flow_v2()
        try:
            y = tf.compat.v1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, x])[1]
            tf.compat.v1.cond(y[0] > 0, lambda: y + 1, lambda: y - 1)
        finally:
            tf.compat.v1.enable_control_flow_v2()
    (folder / "graph" / "v1.pb").write_bytes(graph.as_graph_def().SerializeToString())


def _saved_models(folder: Path) -> None:
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable(np.ones((4, 2), np.float32), name="w")
            names = tf.constant(["a", "b"])
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(names, tf.constant([1, 2])), default_value=0
            )

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return tf.tanh(x @ self.w)

    model = Model()
    tf.saved_model.save(model, str(folder / "saved_model" / "v2"), signatures=model.__call__)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        w = tf.compat.v1.get_variable("w", [4, 2], use_resource=True)
        y = tf.identity(tf.matmul(x, w), name="y")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(folder / "saved_model" / "v1"), {"x": x}, {"y": y})
        sparse = tf.compat.v1.sparse_placeholder(tf.float32, [None, 4])
        ragged = tf.compat.v1.ragged.placeholder(tf.float32, 1, [])
        ends = {"s": sparse, "r": ragged}, {"y": tf.sparse.sparse_dense_matmul(sparse, w), "r": ragged * 2.0}
        tf.compat.v1.saved_model.simple_save(session, str(folder / "saved_model" / "v1_composite"), *ends)


def _checkpoints(folder: Path) -> None:
    """Write indexes: of plain tensors, with Snappy blocks, and of tensors in parts."""
    import tensorflow as tf

    place = folder / "checkpoint"
    variables = {f"v{i}": tf.Variable(np.arange(6 * i, dtype=np.float32).reshape(2, 3 * i)) for i in range(5)}
    tf.train.Checkpoint(**variables).write(str(place / "plain"))
    whole = np.arange(24, dtype=np.float32).reshape(6, 4)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.raw_ops.SaveV2(
            prefix=str(place / "parts"),
            tensor_names=["v", "v", "text"],
            shape_and_slices=["6 4 0,2:-", "6 4 2,4:-", ""],
            tensors=[whole[:2], whole[2:], tf.constant([b"ab", b"c"])],
        )
        session.run(graph.get_operations()[-1])
    pairs = list(checkpoint_index._entries((place / "plain.index").read_bytes()))
    (place / "packed.index").write_bytes(write_table(pairs, is_packed=True))
    (place / "packed.data-00000-of-00001").write_bytes((place / "plain.data-00000-of-00001").read_bytes())


def _artifacts(folder: Path) -> None:
    import tensorflow as tf

    import tf2jax_lite
    from tf2jax_lite.export import export_functions
    from tf2jax_lite.pipeline.keras_training import TrainingFacts

    variable = tf.Variable(np.ones((4, 2), np.float32), name="w")
    converted = tf2jax_lite.convert(
        tf.function(lambda x: {"y": tf.tanh(x @ variable)}, autograph=False), tf.TensorSpec([None, 4], tf.float32)
    )
    converted[0].training = TrainingFacts(masks_losses=True, refused={"w": "the constraint NonNeg"})
    export_functions({"serving_default": converted}, folder / "artifact" / "model", platforms=["cpu"])


def _clients(folder: Path) -> None:
    import h5py
    import safetensors.numpy

    from tf2jax_lite.federated import CheckpointFile
    from tf2jax_lite.learning.data import SQLiteFederatedDataBuilder

    place = folder / "clients"
    numbers = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "y": np.arange(4)}
    examples = {**numbers, "s": np.array([b"a"] * 4, object)}
    with SQLiteFederatedDataBuilder(place / "clients.sqlite") as builder:
        builder.add_many((f"client{i}", examples) for i in range(3))
    for name, save in (("plain.npz", np.savez), ("packed.npz", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, **numbers)
        (place / name).write_bytes(buffer.getvalue())
    for name, order in (("rows.npy", "C"), ("columns.npy", "F")):
        np.save(place / name, np.asarray(numbers["x"], order=order))
    with h5py.File(place / "clients.h5", "w") as file:
        for i in range(2):
            for name, value in numbers.items():
                file.create_dataset(f"examples/client{i}/{name}", data=value)
    (place / "tensors.safetensors").write_bytes(
        safetensors.numpy.save({**numbers, "h": np.zeros(4, np.float16)}, {"a": "b"})
    )
    _tff_sqlite(place / "tff.sqlite")
    with h5py.File(place / "strings.h5", "w") as file:
        for name, layout in (("together", {}), ("chunks", {"chunks": (2,)})):
            text = np.array([b"a", b"bc", b"", b"defg"], object)
            file.create_dataset(f"examples/client/{name}", data=text, dtype=h5py.string_dtype(), **layout)
    arrays = {"w/lora_a": np.ones((4, 2), np.float32), "w/lora_b": np.ones((2, 3), np.float32)}
    (place / "lora.adapters").write_bytes(safetensors.numpy.save(arrays, {"rank": "2", "alpha": "4.0"}))
    users = {"a": {"x": [[1.5, 2], [3, 4]], "y": ["to", "be"]}, "b": {"x": [[5, 6]], "y": ["or"]}}
    (place / "leaf.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    _fedjax(place, examples)
    _rows(folder, numbers)
    CheckpointFile(place / "checkpoint").save(
        3, checkpoint_state(["a", b"b", 3, ("c", 0.5)]), {"history": [{"x": 1.0}]}
    )


def checkpoint_state(ids: Sequence[Any]) -> dict[str, Any]:
    """Return a training's state with entries for some clients."""
    from tf2jax_lite.federated import ByClient

    entries = {client_id: {"c": np.full(3, i, np.float32)} for i, client_id in enumerate(ids)}
    return {"w": np.ones((2, 3), np.float32), "clients": ByClient({"c": np.zeros(3, np.float32)}, entries)}


def _fedjax(place: Path, examples: dict[str, Any]) -> None:
    import sqlite3
    import zlib

    import msgpack

    def extension(array: Any) -> Any:
        if array.dtype == object:
            return msgpack.ExtType(4, msgpack.packb((array.shape, list(array.flat)), use_bin_type=True))
        return msgpack.ExtType(1, msgpack.packb((array.shape, array.dtype.name, array.tobytes()), use_bin_type=True))

    record = msgpack.packb(examples, default=extension, strict_types=True)
    (place / "record.msgpack").write_bytes(record)
    (place / "fedjax.sqlite").unlink(missing_ok=True)
    with sqlite3.connect(place / "fedjax.sqlite") as connection:
        connection.execute("CREATE TABLE federated_data (client_id BLOB PRIMARY KEY, data BLOB, num_examples INTEGER)")
        rows = [(name, zlib.compress(record), 4) for name in (b"a", b"b")]
        connection.executemany("INSERT INTO federated_data VALUES (?, ?, ?)", rows)
    connection.close()


def _rows(folder: Path, numbers: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from tf2jax_lite.learning.data.example_proto import new_example

    place = folder / "rows"
    place.mkdir(exist_ok=True)
    np.savez(place / "plain.npz", **numbers)
    np.savez_compressed(place / "packed.npz", **numbers)
    columns = {name: list(value) if value.ndim > 1 else value for name, value in numbers.items()}
    for name, options in (("plain", {"compression": "none", "use_dictionary": False}), ("packed", {})):
        parquet.write_table(pa.table(columns), place / f"{name}.parquet", row_group_size=3, **options)
    records = b""
    for i in range(4):
        example = new_example()
        example.features.feature["x"].float_list.value.extend(numbers["x"][i])
        example.features.feature["y"].int64_list.value.append(i)
        data = example.SerializeToString()
        records += len(data).to_bytes(8, "little") + bytes(4) + data + bytes(4)
    (place / "plain.tfrecord").write_bytes(records)


def _tff_sqlite(path: Path) -> None:
    import sqlite3

    import tensorflow as tf

    features = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0]))}
    example = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        connection.execute("CREATE TABLE examples (client_id TEXT, split_name TEXT, serialized_example_proto BLOB)")
        for i in range(2):
            connection.execute("INSERT INTO client_metadata VALUES (?, 'train', 2)", [f"c{i}"])
            for _ in range(2):
                connection.execute("INSERT INTO examples VALUES (?, 'train', ?)", [f"c{i}", example])
    connection.close()


def _stablehlo(folder: Path) -> None:
    import jax
    import jax.export
    import jax.numpy as jnp

    def dense(x: Any, w: Any) -> Any:
        return jax.nn.softmax(jnp.tanh(x @ w) + jnp.arange(3.0))

    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda i, v: jax.lax.cond(v[0] > 2, lambda u: u * 0.5, lambda u: u + 1.0, v), x)

    def various(x: Any) -> Any:
        return jnp.sort(x, axis=1), jnp.cumsum(x, 0), jax.lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME")

    place = folder / "stablehlo"
    for name, fn, shapes in (
        ("dense", dense, ((2, 4), (4, 3))),
        ("loop", loop, ((3,),)),
        ("various", various, ((4, 4),)),
    ):
        exported = jax.export.export(jax.jit(fn))(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes))
        (place / f"{name}.mlir").write_text(exported.mlir_module())
        (place / f"{name}.bin").write_bytes(exported.mlir_module_serialized)
        (place / f"{name}.export").write_bytes(bytes(exported.serialize()))


def _calls(folder: Path) -> None:
    """Write the custom calls that JAX makes for linear algebra on CPUs."""
    import jax
    import jax.export
    from jax import lax

    functions: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
        "cholesky": (lax.linalg.cholesky, [(3, 3)]),
        "lu": (lax.linalg.lu, [(4, 3)]),
        "qr": (lambda x: lax.linalg.qr(x, full_matrices=False), [(4, 3)]),
        "eigh": (lax.linalg.eigh, [(3, 3)]),
        "eig": (lax.linalg.eig, [(3, 3)]),
        "schur": (lax.linalg.schur, [(3, 3)]),
        "hessenberg": (lax.linalg.hessenberg, [(3, 3)]),
        "tridiagonal": (lax.linalg.tridiagonal, [(3, 3)]),
        "svd": (lambda x: lax.linalg.svd(x, full_matrices=False), [(2, 4, 3)]),
        "svd_full": (lambda x: lax.linalg.svd(x, full_matrices=True), [(4, 3)]),
        "triangular": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), [(2, 3, 3), (2, 3, 2)]),
        "tridiagonal_solve": (lax.linalg.tridiagonal_solve, [(3,), (3,), (3,), (3, 2)]),
    }
    pattern = re.compile(r"custom_call @(lapack_\w+)\(.*?mhlo.backend_config = (\{.*?\}).* : \((.*)\) -> (.*) loc")
    for name, (function, shapes) in functions.items():
        for dtype in (np.float32, np.complex64):
            specs = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
            text = jax.export.export(jax.jit(function), platforms=["cpu"])(*specs).mlir_module()
            for target, config, *sides in pattern.findall(text):
                types = [re.findall(r"tensor<((?:\d+x)*)(\w+(?:<f32>)?)>", side) for side in sides]
                given, made = ([[e, [int(d) for d in dims.split("x")[:-1]]] for dims, e in side] for side in types)
                call = {"target": target, "config": config, "operands": given, "results": made}
                (folder / "calls" / f"{name}-{target}.json").write_text(json.dumps(call))


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import sys

    make_corpus(Path(sys.argv[1]))
