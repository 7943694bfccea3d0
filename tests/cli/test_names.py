"""Names from untrusted models are printed literally, never interpreted.

They could be markup, terminal codes, or source.
"""

import shutil
import sys

import numpy as np
import pytest
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tf2jax_lite.cli import main
from tf2jax_lite.cli.shared import console
from tf2jax_lite.support.text import printable
from tools.reliability.commands import DIGITS
from tools.reliability.strange_protos import FLOAT, const, node

STRANGE = {
    "markup that ends nothing": "[/bold]",
    "markup": "[red]",
    "a title for the terminal": "\x1b]0;title\x07",
    "a byte that starts a code": "\x9b31m",
    "a line": "a\nError: all is well\n",
    "NUL": "a\0b",
    "text from right to left": "a\u202eb",
    "half a character": "\u2028",
    "quotes": '"""',
    "a backslash at the end": "a\\",
    "an emoji's name": ":skull:",
}


def frozen(folder, name):
    """Return a frozen graph with the name in its nodes and in a scope."""
    holder = node_def_pb2.NodeDef(name=f"x{name}", op="Placeholder")
    holder.attr["dtype"].type = FLOAT.as_datatype_enum
    holder.attr["shape"].shape.dim.add(size=2)
    nodes = [
        holder,
        const(f"w{name}", np.float32([1, 2])),
        node(f"m{name}", "Mul", holder.name, f"w{name}", T=FLOAT),
        node(f"{name}/a", "Tanh", f"m{name}", T=FLOAT),
        node(f"{name}/b", "AddV2", f"{name}/a", f"w{name}", T=FLOAT),
        node(f"y{name}", "Relu", f"{name}/b", T=FLOAT),
    ]
    (folder / "g.pb").write_bytes(graph_pb2.GraphDef(node=nodes, versions={"producer": 1882}).SerializeToString())
    return folder / "g.pb"


def saved(folder, name):
    """Return the demo with the name in signatures, tensors and variables."""
    shutil.copytree(DIGITS, folder / "m")
    file = folder / "m" / "saved_model.pb"
    found = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    meta_graph = found.meta_graphs[0]
    for key in [k for k in meta_graph.signature_def if not k.startswith("__")]:
        signature = meta_graph.signature_def.pop(key)
        for tensors in (signature.inputs, signature.outputs):
            for tensor in list(tensors):
                tensors[tensor + name].CopyFrom(tensors.pop(tensor))
        meta_graph.signature_def[key + name].CopyFrom(signature)
    for item in meta_graph.object_graph_def.nodes:
        if item.HasField("variable"):
            item.variable.name += name
    file.write_bytes(found.SerializeToString())
    return folder / "m"


@pytest.fixture
def shell(monkeypatch, capsys):
    monkeypatch.setattr(console, "width", 500)
    monkeypatch.setattr(sys, "argv", ["tf2jax-lite"])

    def call(*argv):
        """Run a command; return its exit code and all that it printed."""
        sys.argv[1:] = list(map(str, argv))
        try:
            main()
            code = 0
        except SystemExit as done:
            code = done.code or 0
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


@pytest.mark.default_cases("markup that ends nothing-frozen")
@pytest.mark.parametrize("make", [frozen, saved])
@pytest.mark.parametrize("kind", STRANGE)
def test_what_the_shell_prints(shell, tmp_path, kind, make):
    model = make(tmp_path, STRANGE[kind])
    for argv in (
        ["inspect", model],
        ["convert", model, tmp_path / "out", "--platforms", "cpu"],
        ["run", tmp_path / "out", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz"],
        ["verify", model, "--no-bisect"],
    ):
        code, printed = shell(*argv)
        assert code in (0, 1, 2) if argv[0] == "verify" else code in (0, 2), printed
        strange = {c for c in printed if not c.isprintable() and c != "\n"}
        assert not strange, printed
        assert "Traceback" not in printed
        if argv[0] == "inspect":
            assert "".join(printable(STRANGE[kind]).split()) in "".join(printed.split())
