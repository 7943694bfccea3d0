"""Converted functions as flax.nnx modules, under nnx's transformations."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorflow as tf
from flax import nnx

import tf2jax_lite as tf2jax
from tests._support import close
from tf2jax_lite.errors import InputError, MissingKeyError, MissingLibraryError, MissingParamError
from tf2jax_lite.export.codegen import from_jaxpr, moving_statistics

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


class Normalized(tf.Module):
    """A product, batch normalization in both modes, a counter, and noise."""

    def __init__(self):
        super().__init__()
        value = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
        self.kernel = tf.Variable(value, name="dense/kernel")
        self.mean = tf.Variable(tf.zeros(2), name="norm/train/mean", trainable=False)
        self.variance = tf.Variable(tf.ones(2), name="norm/train/variance", trainable=False)
        self.frozen = tf.Variable(tf.ones(2), name="frozen", trainable=False)
        self.count = tf.Variable(0, name="count")

    @tf.function
    def infer(self, x):
        y = tf.matmul(x, self.kernel) * self.frozen
        return (y - self.mean) * tf.math.rsqrt(self.variance + 1e-3)

    @tf.function
    def train(self, x):
        y = tf.matmul(x, self.kernel) * self.frozen
        mean, variance = tf.nn.moments(y, [0])
        self.mean.assign_sub((self.mean - mean) * 0.25)
        self.variance.assign(self.variance * 0.75 + variance * 0.25)
        self.count.assign_add(1)
        return (y - mean) * tf.math.rsqrt(variance + 1e-3)

    @tf.function
    def noise(self, x):
        return x + tf.random.normal(tf.shape(x))


@pytest.fixture(scope="module")
def model():
    return Normalized()


def wrapped(model, mode="infer"):
    return tf2jax.to_nnx(*tf2jax.convert(getattr(model, mode), X))


@pytest.mark.default_cases("infer")
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_variables_by_scope_and_kind(model, mode):
    module = wrapped(model, mode)
    kinds = {type(v).__name__ for _, v in nnx.iter_graph(module) if isinstance(v, nnx.Variable)}
    # "train" is a method of modules.
    assert isinstance(module.dense.kernel, nnx.Param)
    assert type(module.norm.train_.mean) is type(module.norm.train_.variance) is nnx.BatchStat
    assert type(module.frozen).__name__ == "NonTrainable"
    assert kinds == {"Param", "BatchStat", "NonTrainable"}
    if mode == "train":  # an integer has no gradient
        assert type(module.count).__name__ == "NonTrainable"


@pytest.mark.full
def test_call_returns_results_and_writes_updates(model):
    module = wrapped(model, "train")
    fn, params = tf2jax.convert(model.train, X)
    results, after = fn(params, X)
    close(module(X), results)
    close(
        [module.norm.train_.mean[...], module.norm.train_.variance[...], module.count[...]],
        [after["norm/train/mean"], after["norm/train/variance"], after["count"]],
    )
    assert module.count[...] == 1
    nnx.jit(lambda module, x: module(x))(module, X)
    assert module.count[...] == 2


@pytest.mark.full
def test_split_merge_and_state(model):
    module = wrapped(model)
    graph, params, others = nnx.split(module, nnx.Param, ...)
    assert list(nnx.to_flat_state(params)) and [path for path, _ in nnx.to_flat_state(params)] == [("dense", "kernel")]
    close(nnx.merge(graph, params, others)(X), module(X))
    nnx.update(module, jax.tree.map(jnp.zeros_like, params))
    close(module(X), np.zeros((4, 2), np.float32))


@pytest.mark.full
def test_optimizer_trains_the_params(model):
    module = wrapped(model, "train")
    optimizer = nnx.Optimizer(module, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda module: jnp.mean((module(x) - 1) ** 2 + x[:, :2]))(module)
        optimizer.update(module, grads)
        return loss, grads

    before = module.dense.kernel[...]
    loss, grads = step(module, optimizer, X)
    fn, params = tf2jax.convert(model.train, X)
    expected = jax.grad(lambda kernel: jnp.mean((fn({**params, "dense/kernel": kernel}, X)[0] - 1) ** 2 + X[:, :2]))(
        jnp.asarray(params["dense/kernel"])
    )
    close(grads["dense"]["kernel"][...], expected)
    close(module.dense.kernel[...], before - 0.1 * expected)
    assert module.count[...] == 1 and np.isfinite(loss)


@pytest.mark.full
def test_sharding_metadata_gives_partition_specs(model):
    module = wrapped(model)
    module.dense.kernel.set_metadata(out_sharding=(None, "model"))
    specs = nnx.get_partition_spec(nnx.state(module))
    assert specs["dense"]["kernel"].get_value() == jax.P(None, "model")
    close(module(X), wrapped(model)(X))


def test_keys_come_from_rngs(model):
    fn, params = tf2jax.convert(model.noise, X)
    module = tf2jax.to_nnx(fn, params)
    with pytest.raises(MissingKeyError, match=r"rngs=nnx.Rngs\(seed\)"):
        module(X)
    with pytest.raises(MissingKeyError, match="neither"):
        module(X, rngs=nnx.Rngs(params=0))
    with pytest.raises(InputError, match="got int"):
        module(X, rngs=3)
    close(module(X, rngs=jax.random.key(3)), fn(params, X, rng=jax.random.key(3))[0])
    rngs = nnx.Rngs(dropout=0)
    first, second = module(X, rngs=rngs), module(X, rngs=rngs)
    assert not np.allclose(first, second)
    own = tf2jax.to_nnx(fn, params, rngs=nnx.Rngs(0))
    run = nnx.jit(lambda module, x: module(x))
    assert not np.allclose(run(own, X), run(own, X))


@pytest.mark.full
def test_abstract_module_from_shapes(model):
    fn, params = tf2jax.convert(model.infer, X)
    module = tf2jax.to_nnx(fn, {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in params.items()})
    nnx.update(module, nnx.state(wrapped(model)))
    close(module(X), wrapped(model)(X))


def test_errors_name_the_remedy(model, monkeypatch):
    fn, params = tf2jax.convert(model.infer, X)
    with pytest.raises(InputError, match=r"as tf2jax_lite\.convert"):
        tf2jax.to_nnx(lambda params, x: x, params)
    with pytest.raises(InputError, match="train"):
        tf2jax.to_nnx(fn, {str(name): np.asarray(value) for name, value in params.items()})
    with pytest.raises(MissingParamError, match="dense/kernel"):
        tf2jax.to_nnx(fn, {k: v for k, v in params.items() if k != "dense/kernel"})
    with pytest.raises(InputError, match=r"nnx\.Rngs"):
        tf2jax.to_nnx(fn, params, rngs=0)
    monkeypatch.setitem(sys.modules, "flax.nnx", None)
    with pytest.raises(MissingLibraryError, match=r"tf2jax-lite\[nnx\]"):
        tf2jax.to_nnx(fn, params)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (lambda v, x: 0.9 * v + 0.1 * x.mean(0), True),
        (lambda v, x: v - (v - x.mean(0)) * 0.1, True),
        (lambda v, x: v + x.mean(0), False),
        (lambda v, x: 0.5 * v, False),
        (lambda v, x: x.mean(0) * v, False),
    ],
)
def test_moving_averages_are_statistics(update, expected):
    block = from_jaxpr(jax.make_jaxpr(lambda v, x: (x, update(v, x)))(X[0], X))
    assert moving_statistics(block, ["v"], {"v": 1}) == ({"v"} if expected else set())
