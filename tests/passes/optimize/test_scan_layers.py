"""Equal consecutive layers become one scan over stacked variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite.errors import MissingParamError

WIDTH = 6
X = np.random.default_rng(0).normal(size=(3, WIDTH)).astype(np.float32)


class Weights:
    """Variables of layers, made on demand, with different values."""

    def __init__(self):
        self._draw = np.random.default_rng(1)
        self.all = {}

    def __call__(self, name, *shape):
        if name not in self.all:
            self.all[name] = tf.Variable(self._draw.normal(size=shape).astype(np.float32) * 0.4, name=name)
        return self.all[name]

    def dense(self, i, x, name="w", width=WIDTH):
        """Return a dense layer's result."""
        return x @ self(f"{name}{i}", x.shape[-1], width) + self(f"{name}{i}_bias", width)


def residual(weights, x):
    for i in range(4):
        x = x + tf.tanh(weights.dense(i, x))
    return x


def hidden_states(weights, x):
    states = []
    for i in range(4):
        x = x + tf.tanh(weights.dense(i, x))
        states.append(x)
    return states


def inner_values(weights, x):
    scores = []
    for i in range(3):
        scores.append(tf.nn.softmax(weights.dense(i, x)))
        x = x * scores[-1] + x
    return x, scores[1], scores[2]


def two_carries(weights, x):
    h = tf.zeros_like(x)
    for i in range(4):
        h = tf.tanh(weights.dense(i, x) + h)
        x = x + tf.sin(h)
    return x, h


def shared_operands(weights, x):
    scale, mask = tf.sigmoid(x @ weights("scale", WIDTH, WIDTH)), tf.cast(x > 0, tf.float32)
    for i in range(4):
        x = tf.tanh(weights.dense(i, x) * mask) + scale
    return x


def shared_variable(weights, x):
    for i in range(4):
        x = tf.tanh(weights.dense(i, x) + weights("shared", WIDTH))
    return x


def other_first_layer(weights, x):
    for i, width in enumerate((4, 4, 4, 4)):
        x = tf.tanh(weights.dense(i, x, width=width))
    return x


def calls(weights, x):
    for i in range(4):
        weights.dense(i, x)  # makes its variables outside
        x = tf.function(lambda x, i=i: x + tf.tanh(weights.dense(i, x)))(x)
    return x


def branches(weights, x):
    for i in range(3):
        y = weights.dense(i, x)
        x = tf.cond(tf.reduce_sum(y) > 0, lambda x=x, y=y: x + y, lambda x=x, y=y: x - tf.tanh(y))
    return x


def blocks_in_layers(weights, x):
    for i in range(3):
        for j in range(2):
            x = x + tf.tanh(weights.dense(f"{i}_{j}", x))
        x = x * weights(f"scale{i}", WIDTH)
    return x


def towers(weights, x):
    a = b = x
    for i in range(3):
        a, b = tf.tanh(weights.dense(i, a, "a")), tf.nn.relu(weights.dense(i, b, "b"))
    return a, b


def two_runs(weights, x):
    for i in range(3):
        x = x + tf.tanh(weights.dense(i, x, "a"))
    x = tf.exp(-x) @ weights("between", WIDTH, WIDTH)
    for i in range(2):
        x = x + tf.nn.relu(weights.dense(i, x, "b"))
    return x


def gathered_constant(weights, x):
    for i in range(3):
        x = x + tf.gather(weights.dense(i, x), tf.constant([1, 0, 2, 3, 5, 4]), axis=1)
    return x


def with_gradients(weights, x):
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.sin(residual(weights, x)))
    return total, *tape.gradient(total, [weights.all[f"w{i}"] for i in range(4)])


def sizes_change(weights, x):
    for i in range(3):
        x = tf.tanh(weights.dense(i, x))[:, :-1] @ tf.ones((WIDTH - 1, WIDTH))
        x = tf.concat([x, x[:1]], 0)
    return x


def other_constants(weights, x):
    for i in range(3):
        x = x + tf.tanh(weights.dense(i, x) * (i + 1.0))
    return x


def read_elsewhere(weights, x):
    y = residual(weights, x)
    return y, tf.add_n([tf.reduce_sum(w * w) for w in weights.all.values()])


def assigned(weights, x):
    for i in range(3):
        x = tf.tanh(weights.dense(i, x))
        weights(f"mean{i}", WIDTH).assign(tf.reduce_mean(x, 0))
    return x


def tied(weights, x):
    for _ in range(4):
        x = tf.tanh(weights.dense(0, x))
    return x


CASES = {
    "residual": (residual, [4]),
    "hidden states": (hidden_states, [4]),
    "inner values": (inner_values, [3]),
    "two carries": (two_carries, [4]),
    "shared operands": (shared_operands, [4]),
    "shared variable": (shared_variable, [4]),
    "other first layer": (other_first_layer, [3]),
    "calls": (calls, [4]),
    "branches": (branches, [3]),
    "blocks in layers": (blocks_in_layers, [3]),
    "towers": (towers, [3]),
    "two runs": (two_runs, [3, 2]),
    "gathered constant": (gathered_constant, [3]),
    "with gradients": (with_gradients, [4]),
    "sizes change": (sizes_change, []),
    "other constants": (other_constants, []),
    "read elsewhere": (read_elsewhere, []),
    "assigned": (assigned, []),
    "tied": (tied, []),
}


def converted(function, *args, scan_layers=True):
    """Return the function of TensorFlow, its variables, and its conversion."""
    weights = Weights()
    function(weights, *map(tf.constant, args))
    traced = tf.function(lambda *a: function(weights, *a), autograph=False)
    with tf2jax_lite.override_config("scan_layers", scan_layers):
        own = tf2jax_lite.convert(traced, *(tf.TensorSpec((None, *a.shape[1:])) for a in args))
    return traced, {w.name.split(":")[0]: w for w in weights.all.values()}, own


def scans(fn, params, *args):
    """Return the lengths of the scans of a converted function."""
    jaxpr = jax.make_jaxpr(lambda p, *a: fn(p, *a)[0])(params, *args)
    return [eqn.params["length"] for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]


def separated(fn, params):
    """Return each layer's params by themselves."""
    parts = {n: params[stack][k] for stack, names in fn.layer_stacks.items() for k, n in enumerate(names)}
    return {**params, **parts}


@pytest.mark.default_cases("residual", "inner values", "two carries", "shared operands", "towers", "sizes change")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_tf(name):
    function, lengths = CASES[name]
    traced, variables, (fn, params) = converted(function, X)
    assert scans(fn, params, X) == lengths

    def loss(params, x):
        return sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(fn(params, x)[0]))

    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        expected = traced(x)
        total = tf.add_n([tf.reduce_sum(tf.sin(v)) for v in tf.nest.flatten(expected)])
    reads = [n for n in variables if not n.startswith("mean")]
    gradients, with_respect_to_x = tape.gradient(total, ([variables[n] for n in reads], x))
    own = jax.jit(lambda p, x: fn(p, x)[0])(params, X)
    for a, b in zip(jax.tree.leaves(own), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    found, of_x = jax.jit(jax.grad(loss, (0, 1)))(params, X)
    found = separated(fn, found)
    np.testing.assert_allclose(of_x, with_respect_to_x, rtol=1e-4, atol=1e-5)
    for n, gradient in zip(reads, gradients, strict=True):
        np.testing.assert_allclose(found[n], gradient, rtol=1e-4, atol=1e-5, err_msg=n)


def test_functions_take_stacked_and_separate_params():
    _, variables, (fn, params) = converted(residual, X)
    assert set(params) == {"w0", "w0_bias"} and params["w0"].shape == (4, WIDTH, WIDTH)
    assert all(name.trainable for name in params)
    assert fn.layer_stacks == {"w0": [f"w{i}" for i in range(4)], "w0_bias": [f"w{i}_bias" for i in range(4)]}
    separate = {name: v.numpy() for name, v in variables.items()}
    results, state = fn(separate, X)
    np.testing.assert_array_equal(results, fn(params, X)[0])
    assert set(state) == set(separate) and set(fn(params, X)[1]) == set(params)
    del separate["w2"]
    with pytest.raises(MissingParamError, match=r"lack 1 variable.*w2"):
        fn(separate, X)


@pytest.mark.full
def test_vmap():
    _, _, (fn, params) = converted(residual, X)
    batched = jax.vmap(lambda x: fn(params, x[None])[0][0])(X)
    np.testing.assert_allclose(batched, fn(params, X)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_layers_draw_different_random_numbers():
    def drops(weights, x):
        masks = []
        for i in range(3):
            masks.append(tf.random.uniform(tf.shape(x)))
            x = weights.dense(i, x) * masks[-1]
        return masks, x

    _, _, (fn, params) = converted(drops, X)
    masks = np.stack(fn(params, X, rng=jax.random.key(0))[0][0])
    assert scans(lambda p, x: fn(p, x, rng=jax.random.key(0)), params, X) == [3]
    assert len(np.unique(masks)) == masks.size and (masks >= 0).all() and (masks < 1).all()


@pytest.mark.full
def test_checkpoints_of_the_carry():
    gradients = []
    for mode in ("none", "body", "segments"):
        with tf2jax_lite.override_config("loop_checkpoint", mode):
            _, _, (fn, params) = converted(residual, X)
        gradients.append(jax.grad(lambda p, fn=fn: jnp.sum(fn(p, X)[0]))(params))
        remat = "remat" in str(jax.make_jaxpr(lambda p, fn=fn: fn(p, X)[0])(params))
        assert remat == (mode != "none")
    for other in gradients[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), gradients[0], other)


@pytest.mark.full
def test_saved_model_and_artifact(tmp_path):
    traced, variables, _ = converted(residual, X)
    module = tf.Module()
    module.variables_of_layers = list(variables.values())
    module.call = tf.function(traced, input_signature=[tf.TensorSpec((None, WIDTH), name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    with tf2jax_lite.override_config("scan_layers", True):
        fn, params = tf2jax_lite.convert_saved_model(tmp_path / "model")
    (result,) = fn(params, x=X)[0].values()
    np.testing.assert_allclose(result, traced(X), rtol=1e-5, atol=1e-6)
    assert scans(lambda p, x: fn(p, x=x), params, X) == [4]
    tf2jax_lite.export_functions({"model": (fn, params)}, tmp_path / "artifact", platforms=["cpu"])
    for backend in ("stablehlo", "source"):
        loaded, stored = tf2jax_lite.load(tmp_path / "artifact", backend=backend)
        (result,) = loaded(stored, x=X)[0].values()
        np.testing.assert_allclose(result, traced(X), rtol=1e-5, atol=1e-6)
