"""Small real files of every kind, made once for a run.

They are the same each time except for TensorFlow's names.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from . import keras_files

__all__ = ["make_corpus"]


def make_corpus(folder: Path) -> None:
    """Write the corpus: ``<target>/<name>`` with all that a target needs beside it."""
    for name, make in (
        ("graph", _graphs),
        ("saved_model", _saved_models),
        ("artifact", _artifacts),
        ("clients", _clients),
        ("stablehlo", _stablehlo),
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


def _artifacts(folder: Path) -> None:
    import tensorflow as tf

    import tf2jax_lite
    from tf2jax_lite.export import export_functions

    variable = tf.Variable(np.ones((4, 2), np.float32), name="w")
    converted = tf2jax_lite.convert(
        tf.function(lambda x: {"y": tf.tanh(x @ variable)}, autograph=False), tf.TensorSpec([None, 4], tf.float32)
    )
    export_functions({"serving_default": converted}, folder / "artifact" / "model", platforms=["cpu"])


def _clients(folder: Path) -> None:
    import h5py
    import safetensors.numpy

    from tf2jax_lite.federated.data import SQLiteFederatedDataBuilder

    place = folder / "clients"
    numbers = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "y": np.arange(4)}
    examples = {**numbers, "s": np.array([b"a"] * 4, object)}
    with SQLiteFederatedDataBuilder(place / "clients.sqlite") as builder:
        builder.add_many((f"client{i}", examples) for i in range(3))
    for name, save in (("plain.npz", np.savez), ("packed.npz", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, **numbers)
        (place / name).write_bytes(buffer.getvalue())
    with h5py.File(place / "clients.h5", "w") as file:
        for i in range(2):
            for name, value in numbers.items():
                file.create_dataset(f"examples/client{i}/{name}", data=value)
    (place / "tensors.safetensors").write_bytes(
        safetensors.numpy.save({**numbers, "h": np.zeros(4, np.float16)}, {"a": "b"})
    )
    _tff_sqlite(place / "tff.sqlite")


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


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import sys

    make_corpus(Path(sys.argv[1]))
