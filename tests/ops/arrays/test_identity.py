"""Constants, placeholders and pass-through ops against TensorFlow."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import checkify

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import LoweringError
from tf2jax_lite.ops.registry import lookup

BF16 = ml_dtypes.bfloat16
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
I32 = np.int32
DTYPES = [
    "float32",
    "float64",
    "float16",
    BF16,
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


def _m(dtype):
    return (M % 3 - 1 if np.dtype(dtype).kind != "u" else M).astype(dtype)


CASES = [
    *(case("Const", value=tf.make_tensor_proto(_m(t)), dtype=tf.dtypes.as_dtype(t)) for t in DTYPES),
    *(
        case("Const", value=tf.make_tensor_proto(v), dtype=tf.dtypes.as_dtype(v.dtype)).using(name=f"{v.shape}")
        for v in (np.float32(2), np.zeros((0, 2), np.int64))
    ),
    *(case(o, x) for o in ("Identity", "Snapshot", "StopGradient", "GuaranteeConst") for x in (M, I32(3))),
    *(case(o, M).using(symbolic=("b, 3",), name="sym") for o in ("Identity", "StopGradient")),
    *(case(o, M).using(baked=("input",), name="host") for o in ("Identity", "Snapshot", "StopGradient")),
    case("DeepCopy", M),
    case("IdentityN", [M, I32(3)]),
    case("IdentityN", [M]).using(symbolic=("b, 3",), name="sym"),
    case("IdentityN", [M, I32(3)]).using(baked=("input",), name="host"),
    case("PreventGradient", M, message="no").using(grad=False),
    case("PreventGradient", M.astype(BF16)).using(grad=False, symbolic=("b, 3",), name="sym"),
    *(case(o, M, message="here") for o in ("CheckNumerics", "CheckNumericsV2")),
    *(case(o, M.astype(BF16), message="here").using(symbolic=("b, 3",)) for o in ("CheckNumerics", "CheckNumericsV2")),
    case("PlaceholderWithDefault", M, shape=[None, 3]),
    case("PlaceholderWithDefault", M, shape=[4, 3]).using(baked=("input",), name="host"),
    case("Placeholder", dtype=tf.float32, shape=[2]).using(error="not fed"),
    case("PlaceholderV2", dtype=tf.float32, shape=[2]).using(error="not fed"),
    case("NoOp"),
    case("ControlTrigger"),
    *(case("DeviceIndex", device_names=n) for n in (["GPU", "CPU"], ["CPU", "GPU"], ["GPU"], ["TPU", "GPU"])),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def _convert(fn, *specs):
    return tf2jax.convert_functional(tf.function(fn, autograph=False), *specs)


def test_prevent_gradient():
    fn = _convert(lambda x: tf.raw_ops.PreventGradient(input=x, message="not this one") * 2.0, tf.TensorSpec((2,)))
    x = np.float32([1, 2])
    np.testing.assert_array_equal(jax.jit(fn)(x), 2 * x)
    with pytest.raises(LoweringError, match="not this one"):
        jax.grad(lambda v: fn(v).sum())(x)
    for run in (fn, jax.jit(fn)):  # the exception of TensorFlow and tf2jax
        with pytest.raises(LookupError, match="not this one"):
            jax.grad(lambda v, run=run: run(v).sum())(x)
    with tf2jax.override_config("raise_on_prevent_gradient", False):
        fn = _convert(lambda x: tf.raw_ops.PreventGradient(input=x) * 2.0, tf.TensorSpec((2,)))
    np.testing.assert_array_equal(jax.grad(lambda v: fn(v).sum())(x), [2, 2])


@pytest.mark.default_cases("-inf-here {x} : Found Inf-1")
@pytest.mark.parametrize("op", [tf.raw_ops.CheckNumerics, tf.raw_ops.CheckNumericsV2], ids=["1", "2"])
@pytest.mark.parametrize(("bad", "says"), [(np.nan, "here {x} : Found NaN"), (-np.inf, "here {x} : Found Inf")])
def test_check_numerics_with_checkify(op, bad, says):
    def function(x):
        return op(tensor=x, message="here {x}") * 2.0

    x = np.float32([1, 2])
    plain = _convert(function, tf.TensorSpec((2,)))
    np.testing.assert_array_equal(plain(x * bad), 2 * x * bad)
    with tf2jax.override_config("enable_checkify_for_asserts", True):
        checked = checkify.checkify(jax.jit(_convert(function, tf.TensorSpec((2,)))))
        known = checkify.checkify(_convert(lambda: function(tf.constant(x * bad))))
    error, out = checked(x)
    error.throw()
    np.testing.assert_array_equal(out, 2 * x)
    for error, _ in (checked(x * bad), known()):
        with pytest.raises(checkify.JaxRuntimeError, match=re.escape(says)):
            error.throw()


@pytest.mark.full
def test_stop_gradient():
    fn = _convert(lambda x: x * tf.stop_gradient(x), tf.TensorSpec((2,)))
    np.testing.assert_array_equal(jax.grad(lambda v: fn(v).sum())(np.float32([1, 2])), [1, 2])


def test_fake_param():
    host = lookup("FakeParam").fold
    assert host(dtype=np.dtype(np.float32), shape=(2, None)).shape == (2, 0)
    assert host(dtype=np.dtype(np.int32), shape=None).dtype == np.int32
    assert lookup("FakeParam").fn(dtype=np.dtype(np.float32), shape=(2,)).tolist() == [0, 0]


def test_ops_that_raw_ops_leaves_out():
    assert lookup("_EagerConst").fn(M) is M
    assert lookup("_ArrayToList").fn([1, 2], out_types=()) == [1, 2]
    assert lookup("_ListToArray").fn([1, 2]) == [1, 2]
    assert lookup("HostConst").fold(value=np.int32([1]), dtype=np.dtype(np.int32)).tolist() == [1]


@pytest.mark.full_cases("complex128-False", "complex128-True")
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.complex128])
def test_constant_is_shared_by_both_x64_modes(dtype, first):
    """JAX caches array conversions; programs of both modes share constants."""
    value, kept = np.array(7, dtype), []
    const = lookup("Const").fn
    for x64 in (first, not first):
        with jax.enable_x64(x64):
            kept.append(jax.make_jaxpr(lambda x: jnp.where(x != 0, x, const(value=value)))(np.zeros(2, dtype)))
            (call,) = (eqn for eqn in kept[-1].eqns if "jaxpr" in eqn.params)
            assert [v.aval.dtype for v in call.invars[1:]] == [jax.dtypes.canonicalize_dtype(dtype)] * 2


TESTED_OTHERWISE = {"FakeParam", "HostConst", "_ArrayToList", "_EagerConst", "_ListToArray"}
