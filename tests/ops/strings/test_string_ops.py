"""Formatting, joining and hashing of static strings and of traced integers."""

import sys

import jax
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import Tf2JaxError

BF16 = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
NUMBERS = {
    np.int64: [0, 7, -1, 10, 99, -100, 2**31, -(2**31), 10**15 + 1, 2**63 - 1, -(2**63)],
    np.uint64: [0, 9, 10**19, 2**64 - 1, 4294967296, 4294967295],
    np.int32: [0, -5, 2**31 - 1, -(2**31), 1000000000],
    np.uint32: [0, 2**32 - 1],
    np.int16: [0, -(2**15), 12345],
    np.uint8: [0, 200, 99],
}

CASES = [
    case("AsString", np.array([b"a", b"bcd"]), width=3).using(jit=False),
    case("ZerosLike", np.array([[b"a", b"bcd"]], object)).using(jit=False, name="text"),
    *(
        case("AsString", np.array(v), **attrs).using(jit=False)
        for v in (
            np.float32([1 / 3, -1e10, 1e-7, NAN, INF, -INF, -0.0]),
            np.float64([[1 / 3, 1e17]]),
            np.float16([1 / 3]),
            np.array([1 / 3], BF16),
            np.array([1 / 3 + 2j], np.complex64),
        )
        for attrs in (
            {},
            {"precision": 2},
            {"scientific": True},
            {"shortest": True},
            {"scientific": True, "precision": 1},
            {"width": 12},
            {"shortest": True, "precision": 3},
            {"fill": "0"},
            *({"width": 12, "fill": f} for f in " 0-+"),
        )
        if v.dtype != np.complex64 or "width" not in attrs
    ),
    *(
        case("AsString", v, **attrs).using(jit=False)
        for v in (np.int32([1, -200]), np.uint8([200]), np.int64([2**62]), np.uint64([2**63]), np.array([True, False]))
        for attrs in ({}, {"width": 6}, {"width": 6, "fill": "0"}, {"width": 6, "fill": "-"})
    ),
    case("AsString", np.int32([1]), precision=2).using(error="precision is not supported", jit=False),
    case("AsString", np.float32([1]), scientific=True, shortest=True).using(error="exclude each other"),
    case("AsString", np.float32([1]), fill="x").using(error="fill"),
    case("StringJoin", [], separator="-").using(jit=False, grad=False),
    case("StringJoin", [np.array([b"a", b"b"]), np.array([b"c", b"\xff"])]).using(jit=False),
    case("StringJoin", [np.array([[b"a"], [b"b"]]), np.array(b"x"), np.array([[b"c"], [b"d"]])], separator=", ").using(
        jit=False
    ),
    case("StringJoin", [np.array([b"a", b"b"]), np.array([b"c"])]).using(error="neither equal nor scalar"),
    case("Fingerprint", np.arange(24.0).reshape(2, 3, 4), np.array(b"farmhash64")).using(grad=False),
    case("Fingerprint", np.float32([[0.5, -1], [3, NAN]]), np.array(b"farmhash64")).using(grad=False),
    case("Fingerprint", np.arange(300).reshape(2, 150), np.array(b"farmhash64")),
    case("Fingerprint", np.array([True, False]), np.array(b"farmhash64")),
    case("Fingerprint", np.array([[1 + 2j], [0]], np.complex64), np.array(b"farmhash64")).using(grad=False),
    case("Fingerprint", np.array([b"abc", b""]), np.array(b"farmhash64")),
    case("Fingerprint", np.array([[b"abc", b"x"], [b"", b"yz"]]), np.array(b"farmhash64")),
    case("Fingerprint", np.zeros((0, 3)), np.array(b"farmhash64")).using(grad=False, vmap=False),
    case("Fingerprint", np.zeros((2, 0)), np.array(b"farmhash64")).using(grad=False),
    case("Fingerprint", np.array([1]), np.array(b"md5")).using(error="farmhash64 only"),
    *(
        case("StringLength", np.array([[b"abc", "äöü€😀".encode(), b""]]), unit=unit).using(jit=False)
        for unit in ("BYTE", "UTF8_CHAR")
    ),
]
LONG = [bytes(np.random.default_rng(n).integers(0, 256, n, np.uint8)) for n in (0, 1, 3, 4, 7, 8, 15, 16, 17, 31)]
LONG += [bytes(np.random.default_rng(n).integers(0, 256, n, np.uint8)) for n in (32, 33, 63, 64, 65, 128, 129, 500)]
for buckets in (1, 10, 1 << 20, 65537, 2**63 - 1):
    CASES += [
        case("StringToHashBucketFast", np.array(LONG, object), num_buckets=buckets),
        case("StringToHashBucket", np.array(LONG, object), num_buckets=buckets),
        case("StringToHashBucketStrong", np.array(LONG, object), num_buckets=buckets, key=[7, -(2**62)]),
    ]
CASES += [
    case("StringToHashBucketFast", np.zeros((0, 2), object), num_buckets=3),
    case("AsString", np.zeros((0, 2), bool)).using(jit=False),
    case("Identity", np.zeros((0, 2), object)).using(jit=False),
    case("ZerosLike", np.zeros((2, 0), object)).using(jit=False),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def both(function, *args, x64=True, batched=True):
    """Compare a function's results under jit and vmap with TensorFlow's."""
    args = [np.asarray(a) for a in args]
    compiled = tf.function(function)
    expected = [t.numpy() for t in tf.nest.flatten(compiled(*map(tf.constant, args)))]
    with jax.enable_x64(x64):
        converted = tf2jax.convert_functional(compiled, *(tf.TensorSpec(a.shape, a.dtype) for a in args))
        results = jax.tree.leaves(jax.jit(converted, compiler_options=fast_options())(*args))
        mapped = jax.jit(jax.vmap(converted), compiler_options=fast_options())
        rows = jax.tree.leaves(mapped(*(np.stack([a, a]) for a in args))) if batched else []
    for e, a in zip(expected, results, strict=True):
        assert a.dtype == e.dtype or not x64
        np.testing.assert_array_equal(a, e)
    for e, a in zip(expected, rows, strict=False):
        np.testing.assert_array_equal(a[1], e)


FORMATS = [(np.int64, -1, ""), (np.int64, 25, "0"), (np.int64, 7, "-"), (np.int64, 7, "+"), (np.int64, 3, " ")]
FORMATS += [(np.uint64, 8, "+"), (np.int32, -1, ""), (np.uint32, 3, " "), (np.int16, 8, ""), (np.uint8, 5, "0")]


@pytest.mark.default_cases("uint8-5-0")
@pytest.mark.parametrize("dtype, width, fill", FORMATS, ids=lambda v: getattr(v, "__name__", str(v)))
def test_traced_integers_are_formatted_as_in_tensorflow(dtype, width, fill):
    """The length and a hash are equal; the text itself cannot be returned."""

    def text(x):
        written = tf.strings.as_string(x, width=width, fill=fill)
        return tf.strings.length(written), tf.strings.to_hash_bucket_fast(written, 2**62)

    both(text, np.array(NUMBERS[dtype], dtype), batched=False)


@pytest.mark.full
def test_traced_text_is_joined_moved_and_hashed():
    def text(x, m):
        words = tf.strings.join(["a", tf.strings.as_string(x), tf.strings.as_string(m)], separator="_-_")
        words = tf.transpose(tf.reshape(words, [2, 3]))
        more = tf.concat([words, tf.constant([["longer than those beside it", ""]])], 0)
        more = tf.stack([more, tf.gather(more, [3, 2, 1, 0])])
        strong = tf.strings.to_hash_bucket_strong(more[0], 9, [1, 2])
        return tf.strings.to_hash_bucket_fast(more, 1000003), strong, tf.strings.length(more, unit="UTF8_CHAR")

    numbers = [5, -60, 7000, 0, 12, 123456789]
    for x64 in (True, False):
        both(text, np.array(numbers), np.array([True, False] * 3), x64=x64, batched=x64)


@pytest.mark.full
def test_hash_of_traced_text_longer_than_one_block():
    def text(x):
        written = tf.strings.as_string(x)
        long = tf.strings.join([written] * 9, separator=",")
        return tf.strings.to_hash_bucket_fast(long, 2**61), tf.strings.to_hash_bucket(long, 50)

    both(text, np.array([0, -1, 123, 123456, 12345678901, -(2**62)]), batched=False)


@pytest.mark.full
def test_branches_return_text_of_one_capacity():
    def text(x, flag):
        chosen = tf.cond(flag, lambda: tf.strings.as_string(x), lambda: tf.strings.as_string(x + 7))
        return tf.strings.to_hash_bucket_fast(chosen, 1000)

    for flag in (True, False):
        both(text, np.array([3, 99]), np.array(flag))


def test_traced_text_is_printed(capfd):
    def show(x):
        tf.print(
            tf.strings.join(["<", tf.strings.as_string(x), ">"]), tf.strings.as_string(x), output_stream=sys.stdout
        )
        return x

    converted = tf2jax.convert_functional(tf.function(show), tf.TensorSpec([2], tf.int32))
    jax.block_until_ready(jax.jit(converted)(np.int32([-3, 40])))
    jax.effects_barrier()
    assert '["<-3>" "<40>"] ["-3" "40"]' in capfd.readouterr().out


REFUSED = {
    "float32 that is not known": lambda x: tf.strings.length(tf.strings.as_string(tf.cast(x, tf.float32))),
    "strings that are not known": lambda x: tf.strings.as_string(x),
    "JAX has no string arrays": lambda x: tf.strings.as_string(x) == "a",
}


@pytest.mark.parametrize("message", REFUSED)
def test_unsupported_use_raises(message):
    converted = tf2jax.convert_functional(tf.function(REFUSED[message]), tf.TensorSpec([2], tf.int32))
    with pytest.raises(Tf2JaxError, match=message):
        jax.jit(converted)(np.int32([1, 2]))


def test_fingerprint_of_truncated_float64_raises():
    converted = tf2jax.convert_functional(tf.function(tf.fingerprint), tf.TensorSpec([2, 2], tf.float64))
    with pytest.raises(Tf2JaxError, match="the bytes of float64"):
        jax.jit(converted)(np.ones((2, 2)))


IDS = np.array([[1, 22, -5], [1048576, 0, 7]])
LAYERS = {
    "hashing": (lambda: keras.layers.Hashing(10), [IDS]),
    "hashing-mask": (lambda: keras.layers.Hashing(10, mask_value=22), [IDS]),
    "hashing-salt": (lambda: keras.layers.Hashing(10, salt=[137, 42]), [IDS]),
    "hashing-one-hot": (lambda: keras.layers.Hashing(5, output_mode="one_hot"), [IDS[:, :1]]),
    "hashing-multi-hot": (lambda: keras.layers.Hashing(70, output_mode="multi_hot"), [IDS]),
    "hashing-count": (lambda: keras.layers.Hashing(3, output_mode="count"), [IDS]),
    "crossing": (lambda: keras.layers.HashedCrossing(12), [(IDS[0], IDS[1])]),
    "crossing-one-hot": (lambda: keras.layers.HashedCrossing(12, output_mode="one_hot"), [(IDS[0], IDS[1])]),
}


@pytest.mark.default_cases("hashing-salt-True")
@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_keras_layers_hash_integers(name, x64):
    make, args = LAYERS[name]
    layer = make()
    args = tf.nest.flatten(args)
    both(lambda *a: layer(a[0] if len(a) == 1 else a), *args, x64=x64, batched=False)
