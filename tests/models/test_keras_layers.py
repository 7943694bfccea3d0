"""Keras' own layer tests, which its wheel brings: each layer converts.

Their calls of ``run_layer_test`` compare the layer with its conversion, in inference and in training mode: values,
changed variables and gradients, under ``jit``.
"""

import importlib
import inspect
import unittest
from pathlib import Path

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.models.agreement import relative_error
from tf2jax_lite.frontend.concrete.concrete_function import variables_by_name

LAYERS = Path(keras.__file__).parent / "src" / "layers"
MODULES = sorted(
    ".".join(["keras", "src", "layers", *path.relative_to(LAYERS).with_suffix("").parts])
    for path in LAYERS.rglob("*_test.py")
    if "run_layer_test" in path.read_text()
)
RTOL, RTOL_16_BITS = 1e-3, 2e-2

# Names of tests with the reason for which nothing is compared.
_FLOAT8 = "TensorFlow's gradient fails; float8 values differ by 0.4 %"
EXPLAINED = {
    "BatchNormalizationTest.test_bn_basics training=True": "-1 and 1 of a batch of two: the gradient is round-off",
    "DenseTest.test_quantize_dtype_argument_float8": _FLOAT8,
    "EinsumDenseTest.test_quantize_dtype_argument_float8": _FLOAT8,
    "MergingLayersTest.test_sparse": "under jit, the number of non-zeros of the result needs a bound",
    "RandomElasticTransformTest.test_layer training=True": "under jit, a size follows from a random number",
}


@pytest.mark.nightly
@pytest.mark.skipif(not MODULES, reason="this wheel of Keras has no tests")
@pytest.mark.parametrize("module", MODULES or [""])
def test_layers_of_kerass_own_tests(module, monkeypatch):
    try:
        tests = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"Keras' test needs a library: {error}")
    compared, problems = 0, []

    def run_layer_test(case, layer_cls, init_kwargs=None, **options):
        nonlocal compared
        for training in (False, True):
            name = f"{type(case).__name__}.{case._testMethodName} training={training}"
            if any(name.startswith(known) for known in EXPLAINED):
                continue
            called = _called(layer_cls, init_kwargs or {}, options, training)  # an error here is one of Keras' tests
            if called is None:
                continue
            try:
                compared += _compare(*called)
            except Exception as error:
                problems.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")

    monkeypatch.setattr(keras.src.testing.TestCase, "run_layer_test", run_layer_test)
    for kind in vars(tests).values():
        if inspect.isclass(kind) and issubclass(kind, keras.src.testing.TestCase) and kind.__module__ == module:
            for name in unittest.defaultTestLoader.getTestCaseNames(kind):
                if "run_layer_test" in inspect.getsource(getattr(kind, name)):
                    _run(kind(name))
    assert not problems, "\n".join(problems)
    print(f"{module}: {compared} comparisons")


def _run(case):
    """Run a test of Keras, whose own checks do not count."""
    case.setUp()
    try:
        getattr(case, case._testMethodName)()
    except Exception:
        pass
    finally:
        case.tearDown()


def _called(layer_cls, init_kwargs, options, training):
    """Return a built layer and its arguments; None if there is nothing to compare."""
    shape, data, call = options.get("input_shape"), options.get("input_data"), options.get("call_kwargs") or {}
    if data is None and shape is None:
        return None
    if data is None:
        dtype = options.get("input_dtype") or keras.tree.map_shape_structure(lambda _: "float32", shape)
        kinds = options.get("input_sparse", False), options.get("input_ragged", False)
        data = keras.src.testing.test_case.create_eager_tensors(shape, dtype, *kinds)
    layer = layer_cls(**init_kwargs)
    given = {**data, **call} if isinstance(data, dict) else call
    positional = () if isinstance(data, dict) else (data,)
    layer(*positional, **given)
    if layer._call_has_training_arg:
        return layer, positional, {**given, "training": training}
    return None if training else (layer, positional, given)


def _compare(layer, positional, given):
    """Compare a layer with its conversion; return 1."""
    positional, given = tf.nest.map_structure(_as_tensor, (positional, given))
    tensors = [leaf for leaf in tf.nest.flatten((positional, given)) if tf.is_tensor(leaf)]
    function = tf.function(
        lambda tensors: layer(*_filled((positional, given), tensors)[0], **_filled((positional, given), tensors)[1])
    )
    concrete = function.get_concrete_function(list(map(tf.type_spec_from_value, tensors)))
    converted, params = tf2jax.convert(function, list(map(tf.type_spec_from_value, tensors)))
    arrays = [_components(tensor) for tensor in tensors]
    variables = variables_by_name(concrete)
    watched = [t for t in tensors if isinstance(t, tf.Tensor) and t.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        expected = tf.nest.flatten(function(tensors), expand_composites=True)
        loss = tf.add_n(
            [
                tf.constant(0.0),
                *(tf.reduce_sum(tf.sin(tf.cast(y, tf.float32))) for y in expected if y.dtype.is_floating),
            ]
        )
    actual, updated = jax.jit(converted)(params, arrays)
    _close("values", expected, jax.tree.leaves(actual))
    for name, variable in variables.items():
        _close(f"variable {name}", [variable], [updated[name]])
    trained = [name for name, variable in variables.items() if variable.trainable and variable.dtype.is_floating]
    try:
        gradients = tape.gradient(loss, [*(variables[name] for name in trained), *watched])
    except LookupError:  # an op without a gradient in TensorFlow
        return 1
    positions = [i for i, t in enumerate(tensors) if any(t is w for w in watched)]

    def total(trainable, inputs):
        whole = [inputs[positions.index(i)] if i in positions else array for i, array in enumerate(arrays)]
        results = converted({**params, **trainable}, whole)[0]
        floating = [y for y in jax.tree.leaves(results) if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum((jnp.sum(jnp.sin(y.astype(jnp.float32))) for y in floating), jnp.float32(0))

    own = jax.jit(jax.grad(total, (0, 1)))({n: params[n] for n in trained}, [arrays[i] for i in positions])
    names = [*trained, *(f"argument {i}" for i in positions)]
    dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
    scale = max((float(np.max(np.abs(g), initial=0)) for g in dense if g is not None), default=0)
    for name, wanted, found in zip(names, dense, [*(own[0][n] for n in trained), *own[1]], strict=True):
        if wanted is not None:  # some are zero up to rounding (a key's bias): errors are relative to the largest
            _close(f"gradient of {name}", [wanted], [found], scale)
    return 1


def _as_tensor(leaf):
    return tf.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def _filled(structure, tensors):
    """Return a structure with other tensors in place of its own."""
    left = iter(tensors)
    return tf.nest.map_structure(lambda leaf: next(left) if tf.is_tensor(leaf) else leaf, structure)


def _components(tensor):
    parts = [np.asarray(part) for part in tf.nest.flatten(tensor, expand_composites=True)]
    return parts[0] if isinstance(tensor, tf.Tensor) else tuple(parts)


def _close(what, expected, actual, scale=0.0):
    for wanted, found in zip(expected, actual, strict=True):
        wanted, found = np.asarray(wanted), np.asarray(found)
        if wanted.dtype.kind in "OS":
            continue
        same = np.array_equal(np.isfinite(wanted.astype(np.float64)), np.isfinite(found.astype(np.float64)))
        tolerance = RTOL if wanted.dtype.itemsize > 2 or wanted.dtype.kind in "biu" else RTOL_16_BITS
        wanted, found = np.nan_to_num(wanted.astype(np.float64)), np.nan_to_num(found.astype(np.float64))
        error = relative_error(wanted, found) if not scale else np.max(np.abs(wanted - found), initial=0) / scale
        assert same and error <= tolerance, f"{what}: relative error {error:.3g}"
