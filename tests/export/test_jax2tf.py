"""A SavedModel by jax2tf: converted, differentiated, exported, run, verified.

testdata/make_jax2tf_cnn.py writes it.
"""

import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app

TESTDATA = Path(__file__).parent.parent.parent / "testdata"
MODEL = TESTDATA / "jax2tf_cnn"
IMAGES = np.random.default_rng(1).normal(size=(5, 8, 8, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def original():
    """Return the saved flax model, its variables, and the names' scheme."""
    spec = importlib.util.spec_from_file_location("make_jax2tf_cnn", TESTDATA / "make_jax2tf_cnn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return jax.jit(module.predict), jax.jit(module.variables)(), module._name


def run(*args):
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    out = tmp_path_factory.mktemp("jax2tf") / "out"
    report = json.loads(run("convert", MODEL, out, "--platforms", "cpu", "--json"))
    assert not report["warnings"]
    return out


def close(got, want, tol=1e-5):
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=tol, atol=tol), got, want)


@pytest.mark.full
def test_it_is_the_flax_model_again(original):
    fn, params = tf2jax.convert_saved_model(MODEL)
    predict, variables, name = original
    leaves = jax.tree.leaves_with_path(variables)
    assert set(params) == {name(path) for path, _ in leaves}
    params = {name(path): leaf for path, leaf in leaves}

    def everything(f):
        def run(p, x):
            out = f(p, x)
            return jnp.sum(jnp.sin(out["logits"])), out

        return jax.jit(jax.grad(run, (0, 1), has_aux=True))

    ours = everything(lambda p, x: fn(p, x)[0])(params, IMAGES)
    (weights, images), out = everything(predict)(variables, IMAGES)
    close(ours, (({name(path): leaf for path, leaf in jax.tree.leaves_with_path(weights)}, images), out))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_artifact(artifact, backend, original):
    fn, params = tf2jax.load(artifact, backend=backend)
    predict, variables, _ = original
    for size in (1, 5):  # the batch stays polymorphic
        close(jax.jit(fn)(params, IMAGES[:size])[0], predict(variables, IMAGES[:size]))

    def total(f):
        return lambda x: jnp.sum(jnp.sin(f(x)["logits"]))

    grads = jax.jit(
        lambda x: (jax.grad(total(lambda x: fn(params, x)[0]))(x), jax.grad(total(lambda x: predict(variables, x)))(x))
    )
    close(*grads(IMAGES))


@pytest.mark.full
def test_run_and_verify(artifact, tmp_path, original):
    np.savez(tmp_path / "x.npz", image=IMAGES)
    run("run", artifact, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    predict, variables, _ = original
    close(dict(np.load(tmp_path / "y.npz")), {k: np.asarray(v) for k, v in predict(variables, IMAGES).items()})
    found = json.loads(run("verify", MODEL, artifact, "--batch-size", 2, "--source", "--rtol", 1e-5, "--json"))
    assert found["signatures"][0]["ok"], found
