"""`doctor` says what the installation is, for bug reports."""

import importlib.metadata
import json

import jax
import tensorflow as tf

from tests._support import invoke
from tf2jax_lite.cli import doctor


def test_json_names_versions_devices_and_extras(monkeypatch):
    monkeypatch.setenv("JAX_NO_OPTION", "b")
    monkeypatch.setenv("TF_VAR_password", "secret")  # of Terraform
    done = invoke("doctor", "--json")
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert found["versions"]["jax"] == importlib.metadata.version("jax")
    assert found["versions"]["tensorflow"] == tf.__version__
    assert len(found["jax"]["devices"]) == len(jax.devices())
    assert found["jax"]["x64"] is jax.config.jax_enable_x64
    assert found["tensorflow"] == {"gpus": [gpu.name for gpu in tf.config.list_physical_devices("GPU")]}
    assert found["variables"]["JAX_NO_OPTION"] == "b"
    assert "TF_VAR_password" not in found["variables"]


def test_extras_list_their_missing_distributions(monkeypatch):
    requirements = ["numpy>=2.0", 'numpy>=2; extra == "a"', 'no-such-library[x]>=3; extra == "a"', 'jax; extra == "b"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requirements)
    assert doctor.environment()["extras"] == {"a": ["no-such-library"], "b": []}


def test_text_shows_errors_of_drivers(monkeypatch):
    def fail():
        raise RuntimeError("the driver is too old\nand more")

    monkeypatch.setattr(jax, "devices", fail)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: fail())
    done = invoke("doctor")
    assert done.exit_code == 0
    assert "(the driver is too old). Installed are: cpu" in " ".join(done.output.split())
    assert "GPUs that TensorFlow sees: RuntimeError: the driver is too old\n" in done.output
