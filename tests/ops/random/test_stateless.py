"""Stateless random ops: bits equal TensorFlow's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import known_ops
from tf2jax_lite.ops.random.philox import bits
from tf2jax_lite.ops.random.stateless import permutation

SEEDS = [np.array(s, np.int64) for s in ([1, 2], [-5, 2**40 + 3])] + [np.array([7, -9], np.int32)]
KEY, COUNTER = np.array([2**63 + 12345], np.uint64), np.array([2**64 - 2, 77], np.uint64)
PHILOX = np.int32(1)
FLOATS = ["float32", "float64", "float16", "bfloat16"]

CASES = [
    *(case("StatelessRandomGetKeyCounter", s).using(vmap=False) for s in SEEDS),
    *(case("StatelessRandomGetKeyCounterAlg", s).using(vmap=False) for s in SEEDS),
    case("StatelessRandomGetAlg"),
    *(
        case(f"StatelessRandom{kind}", np.array(shape, np.int32), SEEDS[i], dtype=tf.as_dtype(dtype)).using(
            vmap=False, name=f"{dtype}-{shape}-{i}"
        )
        for kind in ("Uniform", "Normal")
        for dtype in FLOATS
        for i, shape in enumerate(([7], [2, 3], [0, 4]))
    ),
    *(
        case(
            f"StatelessRandom{kind}V2", np.array(shape, np.int32), KEY, COUNTER, PHILOX, dtype=tf.as_dtype(dtype)
        ).using(vmap=False, name=f"{dtype}-{shape}")
        for kind in ("Uniform", "Normal")
        for dtype in FLOATS
        for shape in ([], [33])
    ),
    *(
        case("StatelessRandomUniformInt", np.array([9]), SEEDS[0], low, high).using(vmap=False, name=str(low.dtype))
        for low, high in ((np.int32(-3), np.int32(100)), (np.int64(-(2**40)), np.int64(2**50)))
    ),
    *(
        case("StatelessRandomUniformIntV2", np.array([9]), KEY, COUNTER, PHILOX, low, high).using(
            vmap=False, name=str(low.dtype)
        )
        for low, high in ((np.int32(-3), np.int32(100)), (np.int64(5), np.int64(2**62 + 1)))
    ),
    *(
        case("StatelessRandomUniformFullInt", np.array([5]), SEEDS[1], dtype=tf.as_dtype(d)).using(vmap=False)
        for d in ("int32", "int64", "uint32", "uint64")
    ),
    *(
        case("StatelessRandomUniformFullIntV2", np.array([5]), KEY, COUNTER, PHILOX, dtype=tf.as_dtype(d)).using(
            vmap=False
        )
        for d in ("int32", "int64", "uint32", "uint64")
    ),
    case("StatelessRandomUniformV2", np.array([2]), KEY, COUNTER, np.int32(2)).using(error="algorithm 2"),
    *(
        case("StatelessTruncatedNormal", np.array(shape, np.int32), SEEDS[i], dtype=tf.as_dtype(dtype)).using(
            vmap=False, name=f"{dtype}-{shape}"
        )
        for i, (dtype, shape) in enumerate(zip(FLOATS, ([7, 30], [2, 13], [], [0, 4]), strict=True), -1)
    ),
    *(
        case(
            "StatelessTruncatedNormalV2", np.array(shape, np.int64), KEY, COUNTER, np.int32(alg), dtype=tf.as_dtype(d)
        ).using(name=f"{d}-{shape}")
        for d, shape, alg in (("float32", [40], 3), ("float64", [5, 1], 1), ("float16", [5], 1), ("bfloat16", [9], 1))
    ),
    case("StatelessTruncatedNormalV2", np.array([2]), KEY, COUNTER, np.int32(2)).using(error="algorithm 2"),
    case("StatelessShuffle", np.arange(40, dtype=np.int32), KEY, COUNTER, PHILOX),
    case("StatelessShuffle", np.arange(26, dtype=np.float32).reshape(13, 2), KEY, COUNTER, np.int32(3)),
    case("StatelessShuffle", np.arange(70000), KEY, COUNTER, PHILOX).using(vmap=False, name="more-than-16-bits"),
    case("StatelessShuffle", np.float64(3), KEY, COUNTER, PHILOX).using(name="scalar"),
    case("StatelessShuffle", np.zeros([1, 2], bool), KEY, COUNTER, PHILOX).using(name="one"),
    case("StatelessShuffle", np.zeros([0, 2]), KEY, COUNTER, PHILOX).using(name="empty"),
    case("StatelessShuffle", np.arange(4), KEY, COUNTER, np.int32(2)).using(error="algorithm 2"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_without_64_bits(x64):
    """Keys and counters are 64-bit; bits agree in both of JAX's modes."""
    fn = tf.function(lambda seed: tf.random.stateless_uniform([11], seed))
    seed = np.array([3, 2**31 - 1], np.int32)
    with jax.enable_x64(x64):
        jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([2], tf.int32))
        np.testing.assert_array_equal(jax.jit(jax_fn)(seed), fn(seed))


@pytest.mark.full
def test_dropout_mask():
    def fn(x, seed):
        return tf.nn.experimental.stateless_dropout(x, rate=0.4, seed=seed)

    x, seed = np.ones((5, 7), np.float32), np.array([4, 5], np.int32)
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([5, 7]), tf.TensorSpec([2], tf.int32))
    np.testing.assert_allclose(jax.jit(jax_fn)(x, seed), fn(x, seed), rtol=1e-6)


# Without 64-bit mode: keys that TensorFlow's Python composes from words, and 64-bit integers in a range.
WITHOUT_64_BITS = {
    "a named algorithm": lambda seed: tf.random.stateless_uniform([7], seed, alg="philox"),
    "a named algorithm, dropout": lambda seed: tf.nn.experimental.stateless_dropout(
        tf.ones([3, 5]), 0.5, seed, rng_alg="philox"
    ),
    "int64": lambda seed: tf.random.stateless_uniform([9], seed, -3, 1000, tf.int64),
    "int64, a wide range": lambda seed: tf.random.stateless_uniform([9], seed, -(2**31), 2**31 - 1, tf.int64),
}


@pytest.mark.default_cases("seed1-int64, a wide range")
@pytest.mark.parametrize("name", WITHOUT_64_BITS)
@pytest.mark.parametrize("seed", [[5, -9], [-1, 2**31 - 1]])
def test_exact_without_64_bits(name, seed):
    """A seed argument is traced, and sign-extended to the high words."""
    function = tf.function(WITHOUT_64_BITS[name])
    with jax.enable_x64(False):
        jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([2], tf.int32))
        for run in (jax_fn, jax.jit(jax_fn)):
            np.testing.assert_array_equal(run(np.array(seed, np.int32)), function(tf.constant(seed)))


def test_uint64_in_loops_without_64_bits():
    """A carry that is one 32-bit word stays one: loops carry fixed specs."""

    def fn(x):
        step = tf.constant(3, tf.uint64)
        return tf.while_loop(
            lambda i, _: i < 4, lambda i, y: (i + 1, tf.bitwise.bitwise_xor(tf.bitwise.left_shift(y, step), y)), (0, x)
        )[1]

    with jax.enable_x64(False):
        jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([], tf.uint64))
        assert jax.jit(jax_fn)(np.uint32(5)) == fn(tf.constant(5, tf.uint64)).numpy()


@pytest.mark.parametrize("name", ["StatelessRandomUniform", "StatelessRandomNormal", "StatelessRandomUniformFullInt"])
def test_words_are_not_concatenated(name):
    """XLA:CPU concatenates by element: a mask took a hundred times as long."""
    dtype = np.uint32 if name.endswith("Int") else np.float32
    fn = known_ops()[name].fn
    closed = jax.make_jaxpr(lambda seed: fn(np.array([5, 7]), seed, dtype=dtype))(np.array([1, 2], np.int32))
    large = [e for e in closed.eqns if e.primitive.name in ("concatenate", "stack") and e.outvars[0].aval.size > 8]
    assert not large


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3, 4, 5, 9, 16, 100, 1000])
def test_permutations_of_many_keys(size):
    """Small sizes have rare cases: repeated targets, swaps with itself."""
    keys = np.random.default_rng(size).integers(0, 2**32, (50, 6), np.uint32)
    expected = [
        tf.raw_ops.StatelessShuffle(
            value=np.arange(size, dtype=np.int32), key=k[:2].view(np.uint64), counter=k[2:].view(np.uint64), alg=PHILOX
        )
        for k in keys
    ]
    found = jax.vmap(lambda k: permutation(k[:2], k[2:], size))(jnp.asarray(keys))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.full
def test_bits_without_lax_mulhi(monkeypatch):
    key, counter = (jnp.asarray(w, jnp.uint32) for w in ([2**32 - 1, 3], [5, 2**31, 0, 7]))
    expected = bits(key, counter, 64)
    monkeypatch.delattr(lax, "mulhi", raising=False)
    np.testing.assert_array_equal(bits(key, counter, 64), expected)


@pytest.mark.full
@pytest.mark.parametrize("dtype, count", [("float32", 400_001), ("float64", 100_001)])
def test_truncated_normal_with_many_rejections(dtype, count):
    """Some groups need more steps than all are drawn with; those are resampled alone."""
    graph = tf.function(lambda seed: tf.random.stateless_truncated_normal([count], seed, dtype=dtype), autograph=False)
    seed = np.array([5, 6], np.int32)
    with jax.enable_x64(dtype == "float64"):
        found = jax.jit(tf2jax.convert_functional(graph, seed))(seed)
    # In single precision the logarithms differ in their last bits, most near 1.
    np.testing.assert_allclose(found, graph(seed).numpy(), rtol=1e-5, atol=1e-5 if dtype == "float32" else 1e-12)
