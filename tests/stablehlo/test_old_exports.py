"""jax2tf's graphs before XlaCallModule: values, gradients, and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite as tf2jax

from .harness import same
from .old_jax2tf import convert
from .test_models import MODELS

R = np.random.RandomState(5)
X = R.randn(4, 5).astype(np.float32)
Y = R.randn(4, 5).astype(np.float32)
V = R.randn(6).astype(np.float32)
I = np.int32([[2], [0], [3], [2], [9]])  # noqa: E741
IMAGE = R.randn(2, 7, 7, 3).astype(np.float32)
ONE = (1, 1, 1, 1)


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")


def median(x):
    return jnp.sort(x, 1)[:, 2] + jnp.argsort(x[:, 0])


def search(x):
    return lax.while_loop(lambda c: jnp.sum(c**2) > 1, lambda c: c * 0.7, x)


def noise(x):
    _, bits = lax.rng_bit_generator(jnp.uint32([1, 2, 3, 4]), x.shape, np.uint32, lax.RandomAlgorithm.RNG_PHILOX)
    return x + (bits >> 8).astype(np.float32) * np.float32(2**-24)


def loss(fn):
    return lambda *args: sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(fn(*args)))


FUNCTIONS = {
    "dot": (lambda x, y: (lax.dot_general(x, y, (((1,), (1,)), ((), ()))), jnp.einsum("bi,bi->b", x, y)), (X, Y)),
    "relu": (lambda x: jax.nn.relu(x - 0.1) * 2, (X,)),
    "softmax": (jax.nn.log_softmax, (X,)),
    "gelu": (lambda x: jax.nn.gelu(x) + jax.nn.silu(x), (X,)),
    "gather": (lambda x, i: x[i[:, 0] % 4, 1:3], (jnp.asarray(X), I)),
    "gather_fill": (lambda x, i: jnp.nan_to_num(x.at[i[:, 0]].get(mode="fill")), (jnp.asarray(X), I)),
    "take": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (X, I)),
    "scatter": (lambda x, i, v: x.at[i[:, 0] % 4].set(v).at[0, 1].add(2.0), (jnp.asarray(X), I[:2], Y[:2])),
    "scatter_min": (lambda x, i: x.at[i[:, 0]].min(0.0).at[i[:, 0]].max(-0.5), (jnp.asarray(X), I)),
    "cumsum": (lambda x: jnp.cumsum(x, 0) + lax.cumsum(x, 1, reverse=True), (X,)),
    "cumprod": (lambda x: jnp.cumprod(x, 1), (X,)),
    "cummax": (lambda x: lax.cummax(x, 1) + lax.cummin(x, 0, reverse=True), (X,)),
    "max_pool": (pool, (IMAGE,)),
    "max_pool_gradient": (jax.grad(loss(pool)), (IMAGE,)),
    "sum_pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), ONE, "VALID"), (IMAGE,)),
    "convolution": (lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), (IMAGE, R.randn(3, 2, 3, 4).astype("f"))),
    "grouped": (
        lambda x, k: lax.conv_general_dilated(
            x, k, (1, 2), [(1, 0), (0, 2)], None, (2, 1), ("NHWC", "HWIO", "NHWC"), feature_group_count=3
        ),
        (IMAGE, R.randn(3, 2, 1, 6).astype("f")),
    ),
    "pad": (lambda x: lax.pad(x, jnp.float32(2), [(1, -1, 1), (-2, 0, 0)]), (X,)),
    "dynamic": (
        lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i, 1), (2, 3)), (0, i)),
        (X, np.int32(2)),
    ),
    "sort": (median, (X,)),
    "sort_keys": (
        lambda x, y: lax.sort((lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), y, x), num_keys=2)[1:],
        (X, Y),
    ),
    "precision": (lambda x: lax.reduce_precision(x, 5, 4), (X,)),
    "barrier": (lambda x, y: lax.optimization_barrier((x, y))[0] * y, (X, Y)),
    "scan": (lambda x: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), jnp.zeros(5), x, reverse=True), (X,)),
    "cond": (lambda x, p: lax.cond(p, jnp.sin, lambda v: v * 2, x), (X, np.bool_(False))),
    "while": (search, (X,)),
    **{f"model_{name}": MODELS[name] for name in ("mlp", "cnn", "transformer", "gru")},
    "train_cnn": (jax.grad(loss(MODELS["cnn"][0]), (1, 2)), MODELS["cnn"][1]),
}
# Cases without a derivative, or a relevant one, in reverse mode.
VALUES_ONLY = {"sort_keys", "while", "precision", "model_transformer", "train_cnn"}


@pytest.mark.default_cases("relu", "cumprod", "max_pool", "sort_keys")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    fn, args = FUNCTIONS[name]
    specs = [tf.TensorSpec(np.shape(a), np.asarray(a).dtype) for a in args]
    made = tf.function(convert(fn), autograph=False)
    graph = made.get_concrete_function(*specs).graph.as_graph_def()
    assert not any(n.op == "XlaCallModule" for n in graph.node)
    ours = tf2jax.convert_functional(made, *specs)
    want = [jnp.asarray(v) for v in jax.tree.leaves(fn(*args))]
    # The same graph under TensorFlow's compiler: both the writer and our conversion are right.
    theirs = tf.function(made, jit_compile=True, autograph=False)(*map(tf.constant, map(np.asarray, args)))
    same([jnp.asarray(v.numpy()) for v in theirs], want, 1e-4)
    which = tuple(i for i, a in enumerate(args) if np.asarray(a).dtype == np.float32)

    def everything(f):
        grads = () if name in VALUES_ONLY else jax.grad(loss(f), which)(*args)
        return jax.tree.leaves(f(*args)), grads

    got, want = jax.jit(lambda: (everything(ours), everything(fn)))()
    same(got[0], want[0], 1e-5 if not name.startswith(("model", "train")) else 1e-4)
    same(got[1], want[1], 1e-3)


def test_random_bits():
    with jax.enable_x64(True):  # the state is two 64-bit words
        made = tf.function(convert(noise), autograph=False)
        same(tf2jax.convert_functional(made, tf.TensorSpec((4, 5)))(X), [noise(X)])


@pytest.mark.full
def test_what_is_inferred():
    def fn(x):
        return jnp.cumsum(jax.nn.relu(x))

    made = tf.function(convert(fn), autograph=False)
    x = np.float32([-1, 0, 2, 0])
    inferred = tf2jax.convert_functional(made, tf.TensorSpec((4,)))
    assert "cumsum" in str(jax.make_jaxpr(inferred)(x))
    np.testing.assert_array_equal(jax.grad(lambda v: inferred(v)[0][-1])(x), [0, 0, 1, 0])
    with (
        tf2jax.override_config("infer_relu_from_jax2tf", False),
        tf2jax.override_config("infer_cumulative_reduction_from_jax2tf", False),
    ):
        plain = tf2jax.convert_functional(made, tf.TensorSpec((4,)))
    assert "cumsum" not in str(jax.make_jaxpr(plain)(x))
    np.testing.assert_array_equal(inferred(x)[0], plain(x)[0])
    assert jax.grad(lambda v: plain(v)[0][-1])(x)[1] != 0  # TensorFlow's Maximum


@pytest.mark.full
def test_saved_and_restored(tmp_path):
    fn, args = MODELS["mlp"]
    module = tf.Module()
    module.w = [tf.Variable(np.asarray(w)) for w in args[1:]]
    module.f = tf.function(
        lambda x: convert(fn)(x, *module.w), autograph=False, input_signature=[tf.TensorSpec((4, 8))]
    )
    tf.saved_model.save(module, str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    ours, params = tf2jax.convert_from_restored(restored.f)
    same(ours(params, args[0])[0], [fn(*args)], 1e-5)
    grads = jax.grad(lambda p: loss(lambda x: ours(p, x)[0])(args[0]))(params)
    want = jax.grad(loss(fn), (1, 2, 3, 4))(*args)
    assert sorted(g.shape for g in grads.values()) == sorted(g.shape for g in want)
    for grad in grads.values():
        assert any(g.shape == grad.shape and np.allclose(g, grad, atol=1e-4) for g in want)
