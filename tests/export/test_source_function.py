"""With ``scan_layers``, source and StableHLO run equal layers by a scan."""

import importlib.util
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.calling import params as layer_stacks
from tf2jax_lite.errors import ExportError, MissingParamError
from tf2jax_lite.export.metadata import find_stacks, read_metadata, read_stacks
from tf2jax_lite.export.update import write_trained
from tf2jax_lite.stablehlo import api

LAYERS = 6
NNX = importlib.util.find_spec("flax")


def layers():
    rng = np.random.default_rng(0)
    variables = [
        [tf.Variable((0.3 * rng.normal(size=size)).astype(np.float32), name=f"layer_{i}/{name}")]
        for i in range(LAYERS)
        for name, size in (("kernel", (8, 8)), ("bias", (8,)))
    ]
    calls = tf.Variable(0, trainable=False, name="state/calls")

    @tf.function
    def fn(x):
        calls.assign_add(1)
        for i in range(LAYERS):
            (kernel,), (bias,) = variables[2 * i : 2 * i + 2]
            with tf.name_scope(f"layer_{i}"):
                hidden = tf.tanh(tf.matmul(x, kernel, name="mat_mul") + bias, name="tanh")
                x = tf.add(x * 2.0, tf.sin(hidden, name="sin") * hidden, name="out")
        return {"y": x, "twice": (2.0 * x, x)}

    return fn


@pytest.mark.full
def test_layers_run_by_a_scan(tmp_path):
    fn = layers()
    x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    expected = tf.nest.map_structure(lambda t: t.numpy(), fn(x))
    converted = tf2jax.convert(fn, tf.TensorSpec([None, 8]))
    report = tf2jax.export_functions({"f": converted}, tmp_path / "out", platforms=["cpu"], scan_layers=True)
    assert not report.warnings
    source = (tmp_path / "out" / "model.py").read_text()
    metadata = read_metadata(tmp_path / "out")
    stacks, shapes = metadata["stacked"], {name: info["shape"] for name, info in metadata["params"].items()}
    assert stacks.keys() == {"layer_0/kernel", "layer_0/bias"}
    assert "lax.scan(" in source and source.count("params[f") == 1
    module = api.read_exported((tmp_path / "out" / "model.stablehlo").read_bytes()).mlir_module()
    assert module.count("stablehlo.while") == 1 and module.count("stablehlo.dot_general") == 1
    gradients = []
    for backend, stack in itertools.product(("stablehlo", "source"), (False, True)):
        loaded, params = tf2jax.load(tmp_path / "out", backend=backend, stack_layers=stack)
        assert params["layer_0/kernel"].shape == ((LAYERS, 8, 8) if stack else (8, 8))
        results, after = loaded(params, x)
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5), expected, results)
        assert after.keys() == params.keys() and int(after["state/calls"]) == int(params["state/calls"]) + 1
        trainable, other = tf2jax.split_params(params)
        assert len(trainable) == (2 if stack else 2 * LAYERS)
        loss = lambda t, loaded=loaded, other=other: jnp.sum(loaded(tf2jax.merge_params(t, other), x)[0]["y"])  # noqa: E731
        found = jax.grad(loss)(trainable)
        gradients.append(layer_stacks.unstacked(found, stacks, shapes))
        with pytest.raises(MissingParamError, match="layer_0/kernel"):
            loaded({name: value for name, value in params.items() if name != "layer_0/kernel"}, x)
    for found in gradients[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gradients[0], found)
    trained = {name: value + 1 for name, value in params.items()}
    write_trained(tmp_path / "out", tmp_path / "trained", trained)
    jax.tree.map(np.testing.assert_array_equal, tf2jax.load(tmp_path / "trained")[1], trained)
    module = tf2jax.to_nnx(*tf2jax.load(tmp_path / "out", backend="source")) if NNX else None
    assert module is None or module.layer_0.kernel.shape == (LAYERS, 8, 8)


def test_layers_of_which_some_are_frozen_are_not_stacked():
    names = [f"layer_{i}/kernel" for i in range(3)]

    def stack_layers(params):
        kernels = [params[f"layer_{i}"]["kernel"] for i in range(3)]
        return {"layer_0": {"kernel": jnp.stack(kernels)}}

    def described(flags):
        same = {"constant": False, "moving_statistic": False, "shape": [2]}
        return {name: {"trainable": flag, **same} for name, flag in zip(names, flags, strict=True)}

    assert find_stacks(stack_layers, described([True] * 3)) == {names[0]: names}
    assert find_stacks(stack_layers, described([False, True, True])) == {}


def test_stacks_of_stacks():
    """Loops within loops stack params along two axes."""
    names = [[f"{i}/{j}" for j in range(3)] for i in range(2)]
    params = {name: np.full(4, i) for i, name in enumerate(layer_stacks.names_of(names))}
    found = layer_stacks.stacked({**params, "other": np.ones(2)}, {"0/0": names})
    assert found.keys() == {"0/0", "other"}
    np.testing.assert_array_equal(found["0/0"], np.broadcast_to(np.arange(6).reshape(2, 3, 1), (2, 3, 4)))
    again = layer_stacks.unstacked(found, {"0/0": names}, dict.fromkeys(params, (4,)))
    jax.tree.map(np.testing.assert_array_equal, again, {**params, "other": np.ones(2)})
    jax.tree.map(np.testing.assert_array_equal, layer_stacks.stacked(found, {"0/0": names}), found)


@pytest.mark.parametrize(
    "found", [[], {"a": ["b", "a"]}, {"a": ["a", "c"]}, {"a": ["a", "a"]}, {"a": []}, {"a": 3}, {"a": ["a", ["b", 1]]}]
)
def test_damaged_stacks(found):
    params = {"a": {"shape": [2]}, "b": {"shape": [2]}, "c": {"shape": [3]}}
    with pytest.raises(ExportError, match="stacked params cannot be read"):
        read_stacks({"params": params, "stacked": found})
    assert read_stacks({"params": params}) == {}


@pytest.mark.parametrize(
    ("name", "scope"), [("w\0", "l\0"), ("__class__", "__dict__"), ("a\nb", "{i.__class__}"), ("\0", "../l")]
)
def test_odd_names_of_params(name, scope, tmp_path):
    """Only files have them: TensorFlow itself refuses such names."""
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        y = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        for i in range(4):
            with tf.name_scope(f"SCOPE{i}"):
                kernel = tf.constant(np.random.default_rng(i).normal(size=(4, 4)).astype(np.float32), name="NAME")
                y = tf.nn.relu(tf.matmul(y, kernel) + tf.constant(np.arange(4.0, dtype=np.float32) + i, name="b"))
        tf.identity(y, name="y")
    proto = graph.as_graph_def()
    for node in proto.node:
        node.name = node.name.replace("NAME", name).replace("SCOPE", scope)
        for i, text in enumerate(node.input):
            node.input[i] = text.replace("NAME", name).replace("SCOPE", scope)
    converted = tf2jax.convert_graph_def(proto.SerializeToString(), ["x"], ["y"])
    expected = jax.tree.leaves(converted[0](converted[1], x)[0])[0]
    report = tf2jax.export_functions({"f": converted}, tmp_path / "out", platforms=["cpu"], scan_layers=True)
    assert not report.warnings
    for backend in ("stablehlo", "source"):
        loaded, params = tf2jax.load(tmp_path / "out", backend=backend)
        assert params[f"{scope}0/{name}"].shape == (4, 4, 4)
        np.testing.assert_allclose(jax.tree.leaves(loaded(params, x)[0])[0], expected, rtol=1e-5)
