"""Run artifacts in processes that cannot import TensorFlow.

`.ci/without-tensorflow` runs this file where TensorFlow is not installed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
STORED = sorted((ROOT / "testdata" / "stored").iterdir())[-1]
# `find_spec` and `import` find no module whose entry is None.
ABSENT = "import sys; sys.modules.update(dict.fromkeys(['tensorflow', 'keras', 'tf_keras', 'h5py']))\n"
EXTRA = "pip install 'tf2jax-lite[tensorflow]'"


def python(code):
    """Run code in a process without TensorFlow; return what it prints."""
    done = subprocess.run([sys.executable, "-c", ABSENT + code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(*args):
    """Run a command of the shell in a process without TensorFlow."""
    code = f"{ABSENT}from tf2jax_lite.cli import main; sys.argv[0] = 'tf2jax-lite'; main()"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, env=environment
    )


def test_names_resolve_and_converters_say_what_to_install():
    code = """
import jax, jax.export, numpy as np
from tf2jax_lite import *
import tf2jax_lite, tf2jax_lite.ops, tf2jax_lite.federated, tf2jax_lite.finetuning
from tf2jax_lite.errors import MissingLibraryError

def raised(call):
    try:
        call(None)
    except MissingLibraryError as error:
        return str(error)

def imported(_):
    from tf2jax_lite.api import convert

def exported(_):
    export_to_tf("artifact", "out")

converters = [getattr(tf2jax_lite, name) for name in sorted(tf2jax_lite.__all__) if name.startswith("convert")]
for call in [*converters, verify, imported, exported]:
    print(call.__name__, raised(call))
print(convert.__doc__)
register_op("NoTensorFlow")(lambda x: x)
exported = jax.export.export(jax.jit(lambda x: x * 2 + 1))(np.arange(3.0))
print(from_stablehlo(exported.mlir_module_serialized)(np.float32([1, 2, 3])))
"""
    *lines, values = python(code).splitlines()
    assert values == "[3. 5. 7.]"
    assert len(lines) == 10 and lines[0].startswith("convert ")
    assert all(EXTRA in line for line in lines)


@pytest.mark.parametrize(
    "args",
    [
        ("convert", "model", "out"),
        ("inspect", "model.keras"),
        ("verify", "model"),
        ("export-tf", "model", "out"),
        ("demo",),
    ],
    ids=lambda args: args[0],
)
def test_commands_of_tensorflow_say_what_to_install(args):
    done = shell(*args)
    assert done.returncode == 2
    assert EXTRA in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def values(tmp_path):
    """Write files of a stored artifact's inputs; return its stored values."""
    with np.load(STORED / "values.npz") as data:
        values = dict(data)
    np.savez(tmp_path / "inputs.npz", features=values["features"])
    examples = {name: values[name] for name in ("features", "y")}
    np.savez(tmp_path / "examples.npz", **examples)
    np.savez(tmp_path / "clients.npz", client_id=values["client_id"], **examples)
    return values


def test_run_gives_the_stored_results(values, tmp_path):
    done = shell("run", STORED / "keras", "--signature", "serving_default", "--input", tmp_path / "inputs.npz",
                 "--output", tmp_path / "results.npz", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (name,) = json.loads(done.stdout)
    with np.load(tmp_path / "results.npz") as found:
        np.testing.assert_allclose(found[name], values["keras"], rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [
        ("finetune", "--from-logits", "--data", "examples.npz", "--epochs", "1", "--eval", "examples.npz"),
        (
            "federate",
            "--from-logits",
            "--data",
            "clients.npz",
            "--rounds",
            "1",
            "--clients-per-round",
            "2",
            "--eval",
            "examples.npz",
        ),
    ],
    ids=lambda command: command[0],
)
def test_training_changes_the_params(values, tmp_path, command):
    name, *options = [str(tmp_path / word) if word.endswith(".npz") else word for word in command]
    done = shell(name, STORED / "keras", "--out", tmp_path / "out", "--json", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report
    code = f"""
import tf2jax_lite as tf2jax, numpy as np
before, after = (tf2jax.load(folder)[1] for folder in ({str(STORED / "keras")!r}, {str(tmp_path / "out")!r}))
print(sorted(name for name in before if not np.array_equal(before[name], after[name])))
"""
    assert "kernel" in python(code)
