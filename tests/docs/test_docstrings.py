"""Each top-level name has an example in its docstring, which runs."""

import dataclasses
import doctest
import importlib
import inspect

import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.ops import registry
from tf2jax_lite.support import config

# What an example takes for granted: files by name, besides those in memory.
FILES = {
    "convert_from_restored": "MODEL",
    "convert_functional_from_restored": "RELU",
    "convert_saved_model": "MODEL",
    "convert_graph_def": "frozen.pb",
    "load": "OUT",
    "load_host": "TEXT",
    "export_to_tf": "TUNED",
}


def parsed(name):
    """Return the examples of a docstring."""
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(tf2jax, name)) or "")


def save(file, model):
    """Write a file of `FILES`."""
    import tensorflow as tf

    if file == "MODEL":
        module = tf.Module()
        module.weights, module.call = model.weights, model
        tf.saved_model.save(module, file, model.get_concrete_function(tf.TensorSpec([None, 3])))
    elif file == "RELU":
        module = tf.Module()
        module.call = tf.function(tf.nn.relu, input_signature=[tf.TensorSpec([None], name="x")])
        tf.saved_model.save(module, file, module.call)
    elif file == "frozen.pb":
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
            tf.nn.softmax(x, name="probs")
        tf.io.write_graph(graph, ".", file, as_text=False)
    elif file == "OUT":
        tf2jax.export_functions({"predict": tf2jax.convert(model, tf.TensorSpec([None, 3]))}, file, platforms=["cpu"])
    elif file == "TEXT":
        module = tf.Module()
        module.call = tf.function(
            lambda text: tf.cast(tf.strings.length(text), tf.float32),
            input_signature=[tf.TensorSpec([None], tf.string, name="text")],
        )
        tf.saved_model.save(module, file, module.call)
        _, jax_fn, params = tf2jax.convert_saved_model(file, split_host=True)
        tf2jax.export_functions({"serving_default": (jax_fn, params)}, "OUT", platforms=["cpu"])
    else:
        save("MODEL", model)
        functions = {"serving_default": tf2jax.convert_saved_model("MODEL")}
        tf2jax.export_functions(functions, file, platforms=["cpu"], options={"model": "MODEL"})


@pytest.fixture
def _restored(monkeypatch):
    monkeypatch.setattr(config, "_defaults", config._defaults)
    yield
    registry._registry.pop("MyScale", None)


@pytest.mark.full
@pytest.mark.parametrize("name", tf2jax.__all__)
@pytest.mark.usefixtures("_restored")
def test_example_of_a_top_level_name_runs(name, tmp_path, monkeypatch):
    import jax
    import jax.export
    import jax.numpy as jnp
    import optax
    import tensorflow as tf

    weights = tf.Variable(tf.ones([3, 2]), name="weights")

    @tf.function
    def model(x):
        return tf.matmul(x, weights)

    model.weights = weights
    monkeypatch.chdir(tmp_path)
    if name in FILES:
        save(FILES[name], model)
    jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    given = {"tf": tf, "jax": jax, "jnp": jnp, "np": np, "optax": optax, "tf2jax": tf2jax, "model": model}
    given |= {"x": np.ones((2, 3), np.float32), "jax_fn": jax_fn, "params": params}
    examples = parsed(name)
    test = doctest.DocTest(examples, given, name, None, 0, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failed = runner.run(test)
    assert examples and not failed.failed


@pytest.mark.parametrize("name", tf2jax.__all__)
def test_each_top_level_name_has_an_example(name):
    assert "\nExample:\n" in inspect.getdoc(getattr(tf2jax, name)) and parsed(name)


MODULES = ("", ".aggregators", ".data", ".datasets", ".metrics", ".optimizers")


@pytest.mark.parametrize("module", MODULES)
def test_each_public_federated_name_describes_its_arguments(module):
    found = importlib.import_module(f"tf2jax_lite.federated{module}")
    missing = []
    for name in getattr(found, "__all__", [name for name in dir(found) if not name.startswith("_")]):
        value = getattr(found, name)
        described = inspect.isfunction(value) or (inspect.isclass(value) and dataclasses.is_dataclass(value))
        if described and inspect.signature(value).parameters and value.__module__.startswith("tf2jax_lite"):
            text = inspect.getdoc(value) or ""
            missing += [name] * ("Args:\n" not in text and "Attributes:\n" not in text)
    assert missing == []
