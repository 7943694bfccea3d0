"""Artifacts and inputs of earlier versions load, with recorded results."""

from importlib import metadata
from pathlib import Path

import jax
import numpy as np
import pytest
from packaging.version import Version

import tf2jax_lite as tf2jax

STORED = Path(__file__).parent.parent.parent / "testdata" / "stored"
VERSIONS = sorted(p.name for p in STORED.iterdir() if p.name != "kinds")  # those are of test_stored_kinds
MODELS = ["tf1", "tf2"]


def recorded(version, model):
    with np.load(STORED / version / "values.npz") as data:
        values = dict(data)
    parts = ({}, {})
    for key, value in values.items():
        owner, kind, name = key.split("/")
        if owner == model:
            parts[kind == "out"][name] = value
    return parts


def agrees(results, expected):
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        actual = np.asarray(results[name])
        assert actual.shape == value.shape
        # Without 64-bit types JAX has int32 for TensorFlow's int64.
        assert actual.dtype.kind == value.dtype.kind
        np.testing.assert_allclose(actual, value, rtol=1e-5, atol=1e-6)


def test_this_release_is_stored():
    version = Version(metadata.version("tf2jax-lite"))
    assert version.is_devrelease or str(version) in VERSIONS, "run: python testdata/make_stored.py"


@pytest.mark.full
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_saved_model_converts(version, model):
    inputs, expected = recorded(version, model)
    jax_fn, params = tf2jax.convert_saved_model(STORED / version / model)
    results, updated = jax.jit(jax_fn)(params, **inputs)
    agrees(results, expected)
    if "calls" in params:
        assert int(updated["calls"]) == 1


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_artifact_loads(version, model, backend):
    inputs, expected = recorded(version, model)
    fn, params = tf2jax.load(STORED / version / f"artefact_{model}", backend=backend)
    results, updated = jax.jit(fn)(params, **inputs)
    agrees(results, expected)
    if "calls" in params:
        assert int(updated["calls"]) == 1


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_an_artifact_has_its_derivatives(version):
    """The custom gradient is half of the incoming one, clipped or not."""
    inputs, _ = recorded(version, "tf2")
    found = []
    for backend in ("stablehlo", "source"):
        fn, params = tf2jax.load(STORED / version / "artefact_tf2", backend=backend)
        trainable, other = tf2jax.split_params(params)

        def loss(trainable, fn=fn, other=other):
            return fn(tf2jax.merge_params(trainable, other), **inputs)[0]["probabilities"][:, 0].sum()

        found.append(jax.grad(loss)(trainable))
    jax_fn, params = tf2jax.convert_saved_model(STORED / version / "tf2")
    trainable, other = tf2jax.split_params(params)
    own = jax.grad(lambda t: jax_fn(tf2jax.merge_params(t, other), **inputs)[0]["probabilities"][:, 0].sum())(trainable)
    for gradients in found:
        for name, value in own.items():
            np.testing.assert_allclose(gradients[name], value, rtol=1e-4, atol=1e-6)
