"""Write a script that reproduces one node's difference in both programs."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.support.errors import ExportError

from .eager_ops import CannotRun, single_call, tf_dtype
from .results import Suspect

_HEAD = '''"""{title}

{place}
Run it with Python where tensorflow and tf2jax_lite are installed; inputs.npz stands beside it. Exit code 1: it differs.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import ml_dtypes  # noqa: F401  (numpy learns bfloat16 and its kin)
import numpy as np
import tensorflow as tf

import tf2jax_lite

jax.config.update("jax_enable_x64", True)
tf.config.set_visible_devices([], "GPU")
data = np.load(Path(__file__).parent / "inputs.npz", allow_pickle=False)
'''

_TAIL = """

arguments = [{arguments}]
# Converted first: params are variables as they are before the call.
jax_fn, params = tf2jax_lite.convert(call, *[tf.TensorSpec(a.shape, a.dtype) for a in arguments])
expected = tf.nest.flatten(call(*map(tf.constant, arguments)))
actual = jax.tree.leaves(jax_fn(params, *arguments)[0])

differs = False
for index, (e, a) in enumerate(zip(expected, actual)):
    e, a = np.asarray(e), np.asarray(a)
    print(f"result {{index}}: TensorFlow {{e.dtype}}{{list(e.shape)}}, JAX {{a.dtype}}{{list(a.shape)}}")
    if e.dtype != a.dtype or e.shape != a.shape:
        differs = True
        continue
    if e.dtype.kind in "biu":
        wrong = e != a
    else:
        wide = np.complex128 if e.dtype.kind == "c" else np.float64
        e, a = e.astype(wide), a.astype(wide)
        scale = np.max(np.abs(e[np.isfinite(e)]), initial=0) or 1.0
        wrong = ~np.isclose(a, e, rtol={rtol!r}, atol={rtol!r} * scale, equal_nan=True)
    print(f"  {{int(np.sum(wrong))}} of {{wrong.size}} elements differ")
    for position in np.argwhere(wrong)[:10]:
        index = tuple(int(i) for i in position)
        print(f"  {{list(index)}}: TensorFlow {{e[index]}}, JAX {{a[index]}}")
    differs = differs or bool(np.any(wrong))
print("DIFFERS" if differs else "agrees")
sys.exit(int(differs))
"""


def write_repro(suspect: Suspect, folder: Path, rtol: float | None = None) -> Path:
    """Write ``repro.py`` and ``inputs.npz`` for one node; return the script's path."""
    node: ir.Node = suspect.step.node
    try:
        text, arrays = _script(suspect, node, 1e-4 if rtol is None else rtol)
    except CannotRun as reason:
        raise ExportError(f"no reproduction of {suspect.path} ({suspect.op}): {reason}") from None
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / "inputs.npz", buffer.getvalue())
        script = folder / "repro.py"
        write_file(script, text.encode("utf-8", "replace"))
    except OSError as error:
        raise ExportError(f"{folder}: cannot be written: {error}") from error
    return script


class _Writer:
    """Collects arrays, and gives the expressions that read them."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def array(self, name: str, value: Any) -> str:
        value = np.asarray(value)
        if value.dtype == object or value.dtype.kind in "SU":
            raise CannotRun("it works on strings")
        if value.dtype.kind in "biufc":
            self.arrays[name] = value
            return f'data["{name}"]'
        # numpy's file format has no bfloat16: its bits are stored.
        self.arrays[name] = value.view(np.dtype(f"u{value.dtype.itemsize}"))
        return f'data["{name}"].view("{value.dtype.name}")'

    def attribute(self, name: str, value: Any) -> str:
        if isinstance(value, list):
            items = [self.attribute(f"{name}_{i}", v) for i, v in enumerate(value)]
            return f"[{', '.join(items)}]"
        if isinstance(value, (np.dtype, ir.OpaqueType)):
            return f"tf.{tf_dtype(value).name}"
        if isinstance(value, np.ndarray):
            return f"tf.make_tensor_proto({self.array(f'attribute_{name}', value)})"
        if isinstance(value, (bool, int, float, str, tuple, type(None))):
            return f'float("{value}")' if isinstance(value, float) and not np.isfinite(value) else repr(value)
        raise CannotRun(f"attribute {name} cannot be written")


def _script(suspect: Suspect, node: ir.Node, rtol: float) -> tuple[str, dict[str, np.ndarray]]:
    inputs, attributes = single_call(node)
    if any(isinstance(d, ir.OpaqueType) for d in node.output_dtypes):
        raise CannotRun("a result is no array")
    writer = _Writer()
    setup: list[str] = []
    parameters: list[str] = []
    arguments: list[str] = []
    variables: list[str] = []
    call: dict[str, str] = {}
    position = 0
    for index, (name, group) in enumerate(inputs):
        items = []
        for i in range(1 if group is None else group):
            label = _identifier(name) + ("" if group is None else f"_{i}")
            value, described = suspect.arrays[position], suspect.inputs[position]
            position += 1
            if value is None:
                raise CannotRun(f"input {name} has no value outside TensorFlow")
            array = writer.array(label, value)
            if described.get("dtype") == "resource":
                setup.append(f"{label} = tf.Variable({array})")
                variables.append(label)
                items.append(f"{label}.handle")
            elif suspect.step.static[index]:
                setup.append(f"{label} = {array}")
                items.append(f"tf.constant({label})")
            else:
                parameters.append(label)
                arguments.append(array)
                items.append(label)
        call[name] = items[0] if group is None else f"[{', '.join(items)}]"
    for name, value in attributes.items():
        call[name] = writer.attribute(name, value)
    lines = [_HEAD.format(title=_title(suspect), place=_place(suspect))]
    lines += [f"{line}\n" for line in setup]
    body = "".join(f"        {name}={value},\n" for name, value in call.items())
    if node.output_dtypes:
        inner = f"    return tf.raw_ops.{node.op}(\n{body}    )\n"
    else:  # an assignment: the variable's new value is the result
        values = ", ".join(f"{v}.read_value()" for v in variables)
        inner = f"    tf.raw_ops.{node.op}(\n{body}    )\n    return [{values}]\n"
    lines.append(f"\n\n@tf.function(autograph=False)\ndef call({', '.join(parameters)}):\n{inner}")
    lines.append(_TAIL.format(arguments=", ".join(arguments), rtol=rtol))
    return "".join(lines), writer.arrays


def _title(suspect: Suspect) -> str:
    return f"{suspect.op} differs between TensorFlow and JAX: node {_safe(suspect.path)}."


def _place(suspect: Suspect) -> str:
    lines = [f"It stands in function {_safe(suspect.function)}."]
    if suspect.location:
        lines.append(f"Made at {_safe(suspect.location)}.")
    if suspect.iteration:
        lines.append(f"Iteration of the loops around it: {suspect.iteration}.")
    return "\n".join(lines) + "\n"


def _safe(text: str) -> str:
    """Replace unusual characters in a model's names, for use in a docstring."""
    return re.sub(r"[^\w./:@ -]", "?", text, flags=re.ASCII)


def _identifier(name: str) -> str:
    return (
        f"{name}_" if name in ("input", "data", "allow_pickle", "lambda", "call", "file", "tf", "np", "jax") else name
    )
