"""Run every demo's ``model.py`` in an environment of JAX and safetensors."""

import json
import subprocess
import sys
import sysconfig
import textwrap
import venv
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import tf2jax_lite as tf2jax
from tf2jax_lite.export.reader import flat_results
from tf2jax_lite.pipeline.model_files import convert_file

from .demo_set import DEMO_SET

RUN = """
    import importlib.util, inspect, json, sys
    import numpy as np
    import jax

    for name in ("tensorflow", "tf2jax_lite", "keras"):
        assert importlib.util.find_spec(name) is None, name
    folder, inputs, out = sys.argv[1:]
    sys.path.insert(0, folder)
    import model

    with np.load(inputs) as data:
        arrays = [data[name] for name in data.files]
    names = [n for n in ("params", "state") if n in inspect.signature(model.serving_default).parameters]
    params = [model.load_params(f"{folder}/{name}.safetensors") for name in names]
    results, *_ = jax.jit(model.serving_default)(*params, *arrays)
    np.savez(out, *[np.asarray(leaf) for leaf in jax.tree.leaves(results)])
"""


def required(*names):
    """Return installed distributions, and those that they require, by name."""
    found, pending = {}, list(names)
    while pending:
        if (name := pending.pop()) not in found:
            found[name] = metadata.distribution(name)
            needed = map(Requirement, found[name].requires or ())
            pending += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with links to JAX and safetensors."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for distribution in required("jax", "safetensors").values():
        for name in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            (packages / name).symlink_to(distribution.locate_file(name))
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


@pytest.mark.default_cases("jax2tf")
@pytest.mark.parametrize("name", DEMO_SET)
def test_model_runs_with_jax_alone(name, python, tmp_path):
    path, inputs = DEMO_SET[name].make(tmp_path)
    functions = convert_file(path, signatures=["serving_default"])
    tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"], stablehlo=False)
    np.savez(tmp_path / "x.npz", **inputs)
    script = textwrap.dedent(RUN)
    command = [python, "-I", "-c", script, tmp_path / "out", tmp_path / "x.npz", tmp_path / "y.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ((fn, params),) = functions.values()
    expected = list(flat_results(fn(params, *inputs.values())[0]).values())
    with np.load(tmp_path / "y.npz") as found:
        assert len(found.files) == len(expected)
        for key, value in zip(found.files, expected, strict=True):
            value = np.asarray(value)
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())
    assert json.loads((tmp_path / "out" / "metadata.json").read_text())["source"]
