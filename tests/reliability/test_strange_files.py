"""Files that no mutation of a good one makes, through the shell: refused with exit code 2, or read rightly.

Every case is a child process with an address space of 6 GiB and 60 seconds of processor time, so that what takes more
ends with another exit code. Slow: each starts a conversion.
"""

import json
import shutil
import sqlite3
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2, types_pb2

from .commands import DIGITS, Shell

FLOAT, INT, LONG, STRING, BOOL = tf.float32, tf.int32, tf.int64, tf.string, tf.bool


def attribute(value):
    found = attr_value_pb2.AttrValue()
    if isinstance(value, tf.DType):
        found.type = value.as_datatype_enum
    elif isinstance(value, bool):
        found.b = value
    elif isinstance(value, int):
        found.i = value
    elif isinstance(value, float):
        found.f = value
    elif isinstance(value, str):
        found.func.name = value
    elif isinstance(value, tf.TensorShape):
        found.shape.CopyFrom(value.as_proto())
    elif isinstance(value, list):
        found.list.type.extend(v.as_datatype_enum for v in value)
    else:
        found.tensor.CopyFrom(value if not isinstance(value, np.ndarray) else tf.make_tensor_proto(value))
    return found


def node(name, op, *inputs, **attrs):
    found = node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        found.attr[key].CopyFrom(attribute(value))
    return found


def const(name, value, dtype=None):
    value = np.asarray(value) if dtype is None else np.asarray(value, dtype.as_numpy_dtype)
    return node(name, "Const", dtype=tf.as_dtype(value.dtype), value=value)


X = node("x", "Placeholder", dtype=FLOAT, shape=tf.TensorShape([2]))


def function(name, args, result, nodes):
    """A function with one result; ``args`` is name to dtype, ``result`` a wire."""
    found = function_pb2.FunctionDef()
    found.signature.name = name
    for arg, dtype in args.items():
        found.signature.input_arg.add(name=arg, type=dtype.as_datatype_enum)
    wire, dtype = result
    found.signature.output_arg.add(name="out", type=dtype.as_datatype_enum)
    found.node_def.extend(nodes)
    found.ret["out"] = wire
    return found


def graph(*nodes, functions=()):
    found = graph_pb2.GraphDef(node=[X, *nodes])
    found.library.function.extend(functions)
    found.versions.producer = 1882
    return found


def grown(op, *inputs, **attrs):
    """A node that makes much of constants, and something of it that depends on the argument."""
    made = node("much", op, *(f"in{i}" for i in range(len(inputs))), **attrs)
    return graph(
        *(
            value if isinstance(value, node_def_pb2.NodeDef) else const(f"in{i}", value)
            for i, value in enumerate(inputs)
        ),
        made,
        node("zero", "Const", dtype=INT, value=np.int32([0])),
        node("flat", "Reshape", "much", "minus", T=FLOAT, Tshape=INT),
        const("minus", np.int32([-1])),
        node("first", "GatherV2", "flat", "zero", "axis", Tparams=FLOAT, Tindices=INT, Taxis=INT),
        const("axis", np.int32(0)),
        node("y", "AddV2", "x", "first", T=FLOAT),
    )


def loop_without_end():
    cond = function("cond", {"i": INT}, ("t:output:0", BOOL), [node("t", "Const", dtype=BOOL, value=np.asarray(True))])
    body = function(
        "body",
        {"i": INT},
        ("a:z:0", INT),
        [const("one", np.int32(1)), node("a", "AddV2", "i", "one:output:0", T=INT)],
    )
    return graph(
        const("start", np.int32(0)),
        node("w", "StatelessWhile", "start", T=[INT], cond="cond", body="body"),
        node("c", "Cast", "w", SrcT=INT, DstT=FLOAT),
        node("y", "AddV2", "x", "c", T=FLOAT),
        functions=[cond, body],
    )


def loop_of_itself():
    itself = function(
        "f",
        {"i": FLOAT},
        ("w:output:0", FLOAT),
        [node("w", "StatelessWhile", "i", T=[FLOAT], cond="f", body="f")],
    )
    return graph(node("y", "PartitionedCall", "x", f="f", Tin=[FLOAT], Tout=[FLOAT]), functions=[itself])


def named_like_an_op():
    code = node("p", "PyFunc", "i", Tin=[FLOAT], Tout=[FLOAT])
    code.attr["token"].s = b"token"
    return graph(
        node("y", "Relu", "x", T=FLOAT), functions=[function("Relu", {"i": FLOAT}, ("p:output:0", FLOAT), [code])]
    )


def gradient_of_itself():
    double = function("f", {"i": FLOAT}, ("a:z:0", FLOAT), [node("a", "AddV2", "i", "i", T=FLOAT)])
    found = graph(node("y", "PartitionedCall", "x", f="f", Tin=[FLOAT], Tout=[FLOAT]), functions=[double])
    found.library.gradient.add(function_name="f", gradient_func="f")
    return found


def code_that_nobody_calls():
    code = node("p", "PyFunc", "i", Tin=[FLOAT], Tout=[FLOAT])
    code.attr["token"].s = b"token"
    return graph(
        node("y", "Relu", "x", T=FLOAT), functions=[function("never", {"i": FLOAT}, ("p:output:0", FLOAT), [code])]
    )


def joined_strings():
    nodes = [const("s0", np.asarray(b"x" * 64, object))]
    for i in range(40):
        nodes.append(node(f"s{i + 1}", "StringJoin", f"s{i}", f"s{i}", N=2))
    nodes += [node("n", "StringLength", "s40"), node("c", "Cast", "n", SrcT=INT, DstT=FLOAT)]
    return graph(*nodes, node("y", "AddV2", "x", "c", T=FLOAT))


def short_content():
    found = const("c", np.zeros(1000, np.float32))
    found.attr["value"].tensor.tensor_content = b"abc"
    return graph(found, node("y", "AddV2", "x", "c", T=FLOAT))


def negative_dims():
    found = const("c", np.zeros(2, np.float32))
    found.attr["value"].tensor.tensor_shape.dim[0].size = -7
    return graph(found, node("y", "AddV2", "x", "c", T=FLOAT))


def of_the_future():
    found = graph(node("y", "Relu", "x", T=FLOAT))
    found.versions.producer = found.versions.min_consumer = 2**31 - 1
    return found


def very_many_dimensions():
    found = node_def_pb2.NodeDef(name="z", op="Placeholder")
    found.attr["dtype"].type = types_pb2.DT_FLOAT
    for _ in range(100_000):
        found.attr["shape"].shape.dim.add(size=1)
    return graph(found, node("y", "Relu", "z", T=FLOAT))


def deep_chain(count):
    nodes = [node("n0", "Relu", "x", T=FLOAT)]
    nodes += [node(f"n{i}", "Relu", f"n{i - 1}", T=FLOAT) for i in range(1, count)]
    return graph(*nodes)


def array_of(op):
    return graph(
        const("size", np.int32(2**31 - 1)),
        node("a", op, "size", dtype=FLOAT, element_shape=tf.TensorShape([1000])),
        const("i", np.int32(0)),
        node("wr", "TensorArrayWriteV3", "a", "i", "x", "a:1", T=FLOAT),
        node("y", "TensorArrayReadV3", "a", "i", "wr", dtype=FLOAT),
    )


BIG = np.int32([2**20, 2**20])
GRAPHS = {
    "a loop of itself": (loop_of_itself, 2),
    "a function named like an op": (named_like_an_op, (0, 2)),
    "a gradient of itself": (gradient_of_itself, (0, 2)),
    "code that nobody calls": (code_that_nobody_calls, (0, 2)),
    "two nodes of one name": (lambda: graph(*[node("y", "Relu", "x", T=FLOAT)] * 2), 2),
    "a control edge to nothing": (lambda: graph(node("y", "Relu", "x", "^nobody", T=FLOAT)), 2),
    "an array of 2^31": (lambda: array_of("TensorArrayV3"), (0, 2)),
    "fill": (lambda: grown("Fill", BIG, np.float32(1), T=FLOAT, index_type=INT), 2),
    "range": (lambda: grown("Range", *np.float32([0, 1e12, 1]), Tidx=FLOAT), 2),
    "tile": (lambda: grown("Tile", np.zeros((1, 1), np.float32), BIG, T=FLOAT, Tmultiples=INT), 2),
    "broadcast": (lambda: grown("BroadcastTo", np.float32(1), BIG, T=FLOAT, Tidx=INT), 2),
    "linspace": (lambda: grown("LinSpace", *np.float32([0, 1]), np.int64(2**40), T=FLOAT, Tidx=LONG), 2),
    "one hot": (
        lambda: grown("OneHot", np.zeros(1000, np.int32), np.int32(2**31 - 1), *np.float32([1, 0]), T=FLOAT, TI=INT),
        2,
    ),
    "diagonal": (lambda: grown("MatrixDiag", np.zeros(10**5, np.float32), T=FLOAT), 2),
    "pad": (lambda: grown("Pad", np.zeros(1, np.float32), np.int64([[0, 2**40]]), T=FLOAT, Tpaddings=LONG), 2),
    "random": (lambda: grown("RandomUniform", BIG, dtype=FLOAT, T=INT), 2),
    "a loop without end": (loop_without_end, (0, 2)),
    "joined strings": (joined_strings, 2),
    "less content than elements": (short_content, 2),
    "negative dimensions": (negative_dims, 2),
    "an attribute that is no number": (
        lambda: graph(node("y", "LeakyRelu", "x", T=FLOAT, alpha=float("nan"))),
        0,
    ),
    "a name of any letters": (lambda: graph(node("é\u202e/../x", "Relu", "x", T=FLOAT)), (0, 2)),
    "a version of the future": (of_the_future, (0, 2)),
    "100,000 dimensions": (very_many_dimensions, 2),
    "a chain of 20,000 nodes": (lambda: deep_chain(20_000), (0, 2)),
}


def artefact(change):
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


FILES = {
    "names outside of the artefact": artefact(names_outside),
    "a link for weights": artefact(linked),
    "a header of 2^63 bytes": artefact(long_header),
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
    "linked variables": linked_model,
    "a model without end": endless_model,
}


@pytest.fixture(scope="module")
def shell():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Shell(folder) as shell:
            done = shell.run("convert", DIGITS, folder / "base", "--platforms", "cpu", "--quiet")
            assert done.code == 0, done.out
            yield shell


def check(shell, argv, codes):
    done = shell.run(*argv, cpu_seconds=60, memory=6 << 30)
    assert done.code in (codes if isinstance(codes, tuple) else (codes,)), (done.code, done.out)
    assert "Traceback" not in done.out, done.out
    assert "root:x:0" not in done.out
    return done


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(shell, tmp_path, name):
    make, codes = GRAPHS[name]
    (tmp_path / "g.pb").write_bytes(make().SerializeToString())
    done = check(shell, ["convert", tmp_path / "g.pb", tmp_path / "out", "--platforms", "cpu", "--quiet"], codes)
    assert (tmp_path / "out").exists() == (done.code == 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.pb", "out"][: 2 if done.code == 0 else 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_files(shell, tmp_path, name):
    argv = FILES[name](tmp_path, shell.folder / "base")
    before = set(tmp_path.rglob("*"))
    check(shell, argv, 2)
    assert set(tmp_path.rglob("*")) == before
