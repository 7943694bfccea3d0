"""Casts against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import LoweringError
from tf2jax_lite.ops.registry import lookup
from tf2jax_lite.values.static import as_array

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(t) for t in ("float32", "float64", "float16")] + [BF16]
INTS = [np.dtype(t) for t in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
OTHERS = [np.dtype(t) for t in ("bool", "complex64", "complex128")]
ALL = [*FLOATS, *INTS, *OTHERS]
T = {t: tf.dtypes.as_dtype(t) for t in ALL}

PLAIN = np.array([[0, 1, -1, 3], [0.5, -0.5, 2.75, 120.9]])
# Out of range. Results of float64 and 16-bit floats depend on the position in a vector, so they are not compared.
WILD = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e20, 300.0, -300.0, 70000.0, -70000.0, -1.0, -1.5, 2.0**31])
# A multiple of the vector length: TensorFlow saturates (it wraps the elements that do not fill a vector).
BEYOND = np.tile([300.0, -300.0, 255.9, 256.0, 128.0, -129.0, 40000.0, -40000.0, -1.0, -0.9, 65504.0, -65504.0], 16)
NARROW = [t for t in INTS if t.itemsize < 4]
NEGATIVE = np.array([-1.0, -1.5, -300.0, -70000.0, -0.5])
# Halfway cases, overflow, underflow, and mantissas that end in ones.
HARD = np.array([1 / 3, -2 / 3, 0.3334, 1e-7, 1e-41, 65519.9, 65520, 1e30, -np.inf, np.nan, 1 + 2**-8, 1 + 3 * 2**-8])
HARD = np.concatenate([HARD, np.random.default_rng(0).normal(size=20)])


def _plain(dtype):
    if dtype.kind == "c":
        return (PLAIN + 1j * PLAIN[::-1]).astype(dtype)
    return (np.abs(PLAIN) if dtype.kind == "u" else PLAIN).astype(dtype)


def _exact(case):
    return case.using(rtol=0, atol=0)


CASES = [
    *(
        case("ToBool", v).using(name=f"{v.dtype}-{v.shape}-{i}")
        for i, v in enumerate(
            map(np.asarray, (np.float32(0), np.float32(np.nan), np.int8(-1), False, np.zeros(0), np.zeros((2, 1), int)))
        )
    ),
    *(_exact(case("Cast", _plain(a), DstT=T[b])) for a in ALL for b in ALL if not (a in FLOATS and b.kind == "u")),
    *(case("Cast", np.abs(PLAIN).astype(a), DstT=T[b]) for a in FLOATS for b in INTS if b.kind == "u"),
    *(
        case("Cast", WILD.astype(a), DstT=T[np.dtype(b)]).using(name=f"wild-{a}-{b}")
        for a in FLOATS
        for b in ("int32", "int64")
    ),
    *(
        case("Cast", BEYOND.astype(a), DstT=T[b]).using(name=f"beyond-{a}-{b}-{baked}", baked=baked)
        for a in FLOATS
        for b in NARROW
        for baked in ((), ("x",))
        if b != np.uint8 or a.name in ("float32", "bfloat16")  # other kernels saturate within int16's range only
    ),
    *(
        case("Cast", BEYOND.astype(np.complex64), DstT=T[b]).using(name=f"beyond-complex-{b}-{baked}", baked=baked)
        for b in NARROW
        for baked in ((), ("x",))
    ),
    *(
        case("Cast", NEGATIVE.astype(np.float32), DstT=T[np.dtype(b)]).using(name=f"negative-{b}")
        for b in ("uint32", "uint64")
    ),
    *(
        _exact(case("Cast", HARD.astype(a), DstT=T[b], Truncate=truncate)).using(name=f"hard-{a}-{b}-{truncate}")
        for a in FLOATS
        for b in FLOATS
        for truncate in (False, True)
        if a != b
    ),
    *(
        _exact(
            case("Cast", (HARD + 1j * HARD[::-1]).astype(np.complex128), DstT=tf.complex64, Truncate=truncate)
        ).using(name=f"hard-complex-{truncate}")
        for truncate in (False, True)
    ),
    *(
        case("Cast", np.array([300, -300, 2**31 - 1, -(2**31), 255, 65536]), DstT=T[b]).using(name=f"wrap-{b}")
        for b in INTS
    ),
    case("Cast", np.array([1 + 2j, 1j, 0, np.nan, complex(0, np.nan)], np.complex64), DstT=tf.bool).using(name="bool"),
    case("Cast", np.array([np.nan, -0.0, np.inf, 1e-45], np.float32), DstT=tf.bool).using(name="bool"),
    case("Cast", np.float32(2.5), DstT=tf.int32).using(name="scalar"),
    case("Cast", np.zeros((0, 2), np.float32), DstT=tf.int32).using(name="empty"),
    case("Cast", np.arange(6.0).reshape(2, 3), DstT=tf.int8).using(symbolic=("b, 3",), name="sym"),
    *(
        case("Cast", np.float32([1.5, -2.5, 100]), DstT=T[b]).using(baked=("x",), name=f"host-{b}")
        for b in (*FLOATS, *OTHERS, *INTS[:4])
    ),
    case("Cast", WILD.astype(np.float32), DstT=tf.int32).using(baked=("x",), name="host-wild"),
    _exact(case("Cast", HARD.astype(np.float32), DstT=tf.bfloat16, Truncate=True)).using(
        baked=("x",), name="host-trunc"
    ),
    case("Cast", np.complex64([1 + 2j, 3j]), DstT=tf.float32).using(baked=("x",), name="host-complex"),
    # Bitcast.
    *(
        case("Bitcast", x, type=t).using(baked=baked, name=f"{x.dtype}{x.shape}-{t.name}{baked}")
        for baked in ((), ("input",))
        for x, t in (
            (np.float32([1, -2, np.inf]), tf.int32),
            (np.float32([1, -2, np.inf]), tf.uint32),
            (np.float64([1, -2]), tf.int64),
            (np.float64([1, -2]), tf.int32),
            (np.float64([1, -2]), tf.uint8),
            (np.float32([[1, -2]]), tf.float64),
            (np.float32([[1, -2]]), tf.int64),
            (np.arange(8, dtype=np.uint8).reshape(2, 4), tf.float32),
            (np.arange(8, dtype=np.int8).reshape(2, 4), tf.uint32),
            (np.float16([1, -2]), tf.bfloat16),
            (np.float16([1, -2]), tf.uint16),
            (np.asarray([1, -2], BF16), tf.int16),
            (np.float32(1.5), tf.uint8),
            (np.float32([1, 2]), tf.float32),
            (np.complex64([1 + 2j, -3j]), tf.float32),
            (np.complex64([1 + 2j, -3j]), tf.int64),
            (np.complex64([1 + 2j, -3j]), tf.float64),
            (np.complex64([1 + 2j, -3j]), tf.uint8),
            (np.complex64([1 + 2j, -3j]), tf.complex128),
            (np.complex128([1 + 2j, -3j]), tf.float64),
            (np.complex128([1 + 2j, -3j]), tf.complex64),
            (np.complex128([1 + 2j, -3j]), tf.uint32),
            (np.float32([[1, 2], [3, -4]]), tf.complex64),
            (np.float64([1, 2]), tf.complex64),
            (np.float64([[1, 2]]), tf.complex128),
            (np.arange(16, dtype=np.uint8).reshape(2, 8) + np.uint8(60), tf.complex64),
            (np.zeros((0, 4), np.uint8), tf.float32),
        )
    ),
    case("Bitcast", np.uint8([[1, 2, 3]]), type=tf.float32).using(error="Cannot bitcast", name="shape"),
    case("Bitcast", np.arange(6, dtype=np.float32).reshape(3, 2), type=tf.int32).using(symbolic=("b, 2",), name="sym"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def test_64_bit_floats_need_x64():
    fn = tf2jax.convert_functional(tf.function(lambda x: tf.bitcast(x, tf.int64)), tf.TensorSpec((2,), tf.float32))
    with jax.enable_x64(False), pytest.raises(LoweringError, match="jax_enable_x64"):
        fn(np.float32([1, 2]))


@pytest.mark.full
def test_without_x64():
    fn = tf2jax.convert_functional(
        tf.function(lambda x: (tf.cast(x, tf.int64), tf.cast(x, tf.float64), tf.cast(x, tf.uint32))),
        tf.TensorSpec((3,), tf.float32),
    )
    with jax.enable_x64(False):
        a, b, c = jax.jit(fn)(np.float32([1.5, -2, np.nan]))
    assert a.dtype == np.int32 and a.tolist() == [1, -2, -(2**31)]
    assert b.dtype == np.float32
    assert c.dtype == np.uint32 and c.tolist()[:2] == [1, 2**32 - 2]


def test_folding_keeps_symbolic_dimensions():
    """Integer dimensions stay; as floats they are `RealSize`, castable back."""
    (b,) = jax.export.symbolic_shape("b")
    x = np.empty((), object)
    x[()] = b
    assert lookup("Cast").fold(x, DstT=np.dtype(np.int64)) is x

    def fn(y):
        b = y.shape[0]
        x = np.empty((), object)
        x[()] = b
        size = lookup("Cast").fold(x, DstT=np.dtype(np.float32))
        assert lookup("Cast").fold(size, DstT=np.dtype(np.int32)).item() == b
        assert isinstance(lookup("Cast").fold(size, DstT=np.dtype(np.float16)), jax.Array)
        return as_array(size)

    exported = jax.export.export(jax.jit(fn))(jax.ShapeDtypeStruct((b,), np.float32))
    np.testing.assert_array_equal(exported.call(jnp.ones(5, np.float32)), np.float32(5))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_cast_beyond_32_bits_equals_xla(source, dtype):
    """XLA saturates everywhere; TensorFlow's kernel returns the minimum."""
    x = np.array([1e10, -1e10, np.inf, -np.inf, np.nan, *WILD], source)
    want = tf.function(lambda x: tf.cast(x, T[dtype]), jit_compile=True)(x).numpy()
    convert = tf.function(lambda x: tf.cast(x, T[dtype]))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(
            jax.jit(tf2jax.convert_functional(convert, tf.TensorSpec(x.shape, source)))(x), want
        )
        folded = tf2jax.convert_functional(tf.function(lambda: convert(tf.constant(x))))()
    np.testing.assert_array_equal(folded, want)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_saturate_cast(dtype):
    x = BEYOND.astype(np.float32)
    fn = tf2jax.convert_functional(tf.function(lambda x: tf.saturate_cast(x, T[dtype])), tf.TensorSpec(x.shape))
    np.testing.assert_array_equal(jax.jit(fn)(x), tf.saturate_cast(x, T[dtype]).numpy())
