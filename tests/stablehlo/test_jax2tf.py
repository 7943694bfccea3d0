"""JAX to TensorFlow by jax2tf and back, in SavedModels and mixed graphs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax
from jax.experimental import jax2tf

import tf2jax_lite as tf2jax

from .harness import same

R = np.random.RandomState(4)
X = R.randn(2, 3).astype(np.float32)
V = R.randn(4).astype(np.float32)
W = R.randn(3, 3).astype(np.float32)


def through_tf(fn, *args, specs=None, **options):
    made = tf.function(jax2tf.convert(fn, **options), autograph=False)
    specs = specs or [tf.TensorSpec(np.shape(a), np.asarray(a).dtype) for a in args]
    return tf2jax.convert_functional(made, *specs)


@jax.custom_vjp
def wrong_sine(x):
    return jnp.sin(x)


wrong_sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * 2 * x,))

FUNCTIONS = {
    "arithmetic": (lambda x, w: (jnp.tanh(x @ w) + 1, x.sum()), (X, W)),
    "scan": (lambda x, w: lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c), jnp.zeros(3), x), (X, W)),
    "indexing": (lambda x, i: jnp.asarray(x).at[i].add(jnp.sin(x)[i]), (X, np.int32([1]))),
    "cond": (lambda x, p: lax.cond(p, jnp.sin, jnp.cos, x), (X, np.bool_(True))),
    "custom_vjp": (lambda x: wrong_sine(x).sum() + x.sum(), (X,)),
    "stop_gradient": (lambda x: (x * lax.stop_gradient(x)).sum(), (X,)),
    "relu": (jax.nn.relu, (np.float32([-1, 0, 2]),)),
    "linalg": (lambda w: jnp.linalg.inv(w @ w.T + 3 * jnp.eye(3)), (W,)),
    "nested_jit": (lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) * 2)(x) + 1, (X,)),
    "structures": (lambda d: {"a": d["x"] + 1, "b": [d["y"] * d["x"]]}, ({"x": X, "y": X},)),
    "relu_in_scan": (lambda x: lax.scan(lambda c, a: (jax.nn.relu(c + a), None), 0.0, x)[0], (V,)),
}


@pytest.mark.default_cases("stop_gradient")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    fn, args = FUNCTIONS[name]
    specs = [jax.tree.map(lambda a: tf.TensorSpec(np.shape(a), np.asarray(a).dtype), a) for a in args]
    ours = through_tf(fn, *args, specs=specs)

    def total(f):
        return lambda *a: sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(f(*a)))

    def everything(f):
        second = jax.grad(lambda *a: sum(jnp.sum(g**2) for g in jax.tree.leaves(jax.grad(total(f))(*a))))
        if name == "linalg":  # takes long to compile
            second = total(f)
        if name == "custom_vjp":  # TensorFlow's second order is another: see the next test
            second = total(f)
        if name == "stop_gradient":  # its trace in the gradient function is lost with that function's own gradient
            second = total(f)
        batch = jax.tree.map(lambda a: jnp.stack([a, a]), args)
        return f(*args), jax.grad(total(f))(*args), second(*args), jax.vmap(f)(*batch)

    got, want = jax.jit(lambda: (everything(ours), everything(fn)))()
    same(got, want, 1e-4)


@pytest.mark.full
def test_second_order_of_a_custom_vjp_is_that_of_tensorflow():
    """JAX differentiates the forward rule; TensorFlow uses custom gradients."""
    fn = FUNCTIONS["custom_vjp"][0]
    ours = through_tf(fn, X, specs=[tf.TensorSpec(X.shape)])
    in_tf = tf.function(jax2tf.convert(fn), autograph=False)
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.sin(in_tf(x))
        squares = tf.reduce_sum(inner.gradient(y, x) ** 2)
    first = jax.grad(lambda a: jnp.sin(ours(a)))
    same(jax.jit(jax.grad(lambda a: jnp.sum(first(a) ** 2)))(X), outer.gradient(squares, x).numpy(), 1e-4)


@pytest.mark.default_cases("stop_gradient")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_is_the_transpose_of_jax2tf_gradients(name):
    fn, args = FUNCTIONS[name]
    specs = [jax.tree.map(lambda a: tf.TensorSpec(np.shape(a), np.asarray(a).dtype), a) for a in args]
    ours = through_tf(fn, *args, specs=specs)
    moving = [i for i, a in enumerate(args) if all(np.asarray(v).dtype == np.float32 for v in jax.tree.leaves(a))]
    tangents = [jax.tree.map(lambda v: np.cos(v, dtype=np.float32), args[i]) for i in moving]

    def along(f):
        def of(*some):
            now = list(args)
            for i, value in zip(moving, some, strict=True):
                now[i] = value
            return jax.tree.map(jnp.sin, f(*now))

        return of

    _, moved = jax.jit(lambda: jax.jvp(along(ours), [args[i] for i in moving], tangents))()
    _, pull = jax.vjp(along(fn), *(args[i] for i in moving))
    for k, tangent in enumerate(jax.tree.leaves(moved)):
        bars = [jnp.zeros_like(v) for v in jax.tree.leaves(moved)]
        bars[k] = jnp.cos(tangent)
        gradients = pull(jax.tree.unflatten(jax.tree.structure(moved), bars))
        expected = sum(jnp.vdot(g, t) for g, t in zip(*map(jax.tree.leaves, (gradients, tangents)), strict=True))
        np.testing.assert_allclose(jnp.vdot(bars[k], tangent), expected, rtol=1e-4)


@pytest.mark.full
def test_forward_mode_without_jax2tf_gradients():
    fn = FUNCTIONS["scan"][0]
    with tf2jax.override_config("raise_on_prevent_gradient", False):
        ours = through_tf(fn, X, W, with_gradient=False)
    tangents = (jnp.ones_like(X), jnp.ones_like(W))
    same(jax.jvp(ours, (X, W), tangents), jax.jvp(fn, (X, W), tangents))
    with tf2jax.override_config("convert_custom_gradient", False):
        ours = through_tf(fn, X, W)
    same(jax.jvp(ours, (X, W), tangents), jax.jvp(fn, (X, W), tangents))


def polymorphic(x):
    first = jnp.concatenate([x, jnp.zeros_like(x)]).reshape(-1) + jnp.arange(x.shape[0] * 6)
    last = lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(3), x)
    return first, x[-1], x[1:], x.mean(0), jnp.pad(x, ((1, 1), (0, 0))), x[::2], jax.nn.softmax(x, 0), last


@pytest.mark.full
def test_polymorphic_batch():
    ours = through_tf(polymorphic, specs=[tf.TensorSpec((None, 3))], polymorphic_shapes=["b, ..."])
    for size in (2, 5):
        x = R.randn(size, 3).astype(np.float32)
        same(jax.jit(ours)(x), polymorphic(x))
    (b,) = jax.export.symbolic_shape("b", constraints=["b >= 2"])
    exported = jax.export.export(jax.jit(ours))(jax.ShapeDtypeStruct((b, 3), np.float32))
    same(exported.call(x), polymorphic(x))


@pytest.mark.full
def test_polymorphic_batch_and_length():
    def fn(x, w):
        return lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c), jnp.zeros((x.shape[1], 3)), x)

    specs = [tf.TensorSpec((None, None, 3)), tf.TensorSpec((3, 3))]
    ours = through_tf(fn, specs=specs, polymorphic_shapes=["t, b, 3", None])
    x = R.randn(4, 2, 3).astype(np.float32)
    same(ours(x, W), fn(x, W))
    text = str(jax.make_jaxpr(ours)(x, W))
    assert "while[" not in text and "dynamic_slice" not in text


@pytest.mark.full
def test_shapes_that_do_not_fit_are_refused():
    ours = through_tf(lambda x: x.sum(), specs=[tf.TensorSpec((None, None))], polymorphic_shapes=["b, b"])
    assert ours(np.ones((2, 2), np.float32)) == 4
    with pytest.raises(ValueError, match="polymorphic shapes"):
        ours(np.ones((2, 3), np.float32))


def test_platforms():
    def fn(x):
        return lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)

    several = through_tf(fn, X, native_serialization_platforms=("cuda", "cpu", "tpu"))
    same(several(X), jnp.sin(X))
    other = through_tf(lambda x: jnp.sin(x), X, native_serialization_platforms=("cuda",))
    with pytest.raises(ValueError, match=r"made for cuda.*xlacallmodule_strict_checks"):
        other(X)
    with tf2jax.override_config("xlacallmodule_strict_checks", False):
        other = through_tf(lambda x: jnp.sin(x), X, native_serialization_platforms=("cuda",))
    with pytest.warns(UserWarning, match="made for cuda"):
        same(other(X), jnp.sin(X))


@pytest.mark.full
def test_tensorflow_inside_jax_inside_tensorflow():
    def fn(x):
        return jax2tf.call_tf(lambda y: tf.sin(y) * 2)(x) + 1

    same(through_tf(fn, X)(X), jnp.sin(X) * 2 + 1)


@pytest.mark.full
def test_inside_tensorflow_control_flow():
    inner = jax2tf.convert(lambda x: jnp.tanh(x) * 1.5)

    @tf.function(autograph=False)
    def fn(x):
        looped = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, inner(v)), (0, x))[1]
        return tf.cond(tf.reduce_sum(looped) > 0, lambda: inner(looped), lambda: looped) + tf.reduce_mean(x)

    ours = tf2jax.convert_functional(fn, tf.TensorSpec((2, 3)))
    same(jax.jit(ours)(X), fn(X).numpy(), 1e-5)
    grad = jax.grad(lambda x: ours(x).sum())(X)
    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        total = tf.reduce_sum(fn(x))
    same(grad, tape.gradient(total, x).numpy(), 1e-5)


@pytest.mark.full
def test_saved_model(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(W)
    module.f = tf.function(
        lambda x: jax2tf.convert(lambda w, x: jax.nn.relu(x @ w), polymorphic_shapes=[None, "b, ..."])(module.w, x),
        autograph=False,
        input_signature=[tf.TensorSpec((None, 3))],
    )
    tf.saved_model.save(module, str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    fn, params = tf2jax.convert_from_restored(restored.f)
    same(fn(params, X)[0], jax.nn.relu(X @ W))
    grad = jax.grad(lambda params: fn(params, X)[0].sum())(params)
    (key,) = grad
    same(grad[key], jax.grad(lambda w: jax.nn.relu(X @ w).sum())(W))


@pytest.mark.full
def test_versions():
    module = tf.function(jax2tf.convert(jnp.sin), autograph=False).get_concrete_function(tf.TensorSpec((2, 3)))
    graph = module.graph.as_graph_def()
    (node,) = (n for n in graph.node if n.op == "XlaCallModule")
    output = f"{node.name}:0"
    name = next(n.name for n in graph.node if n.op == "Placeholder")
    for version, message in ((1, "MHLO"), (99, "versions 2 to")):
        node.attr["version"].i = version
        fn, params = tf2jax.convert_graph_def(graph, [name], output)
        with pytest.raises(ValueError, match=message):
            fn(params, X)
    node.attr["version"].i = 4
    fn, params = tf2jax.convert_graph_def(graph, [name], output)
    same(fn(params, X)[0], jnp.sin(X))
    node.attr["module"].s = b"ML\xefRdamaged"
    fn, params = tf2jax.convert_graph_def(graph, [name], output)
    with pytest.raises(ValueError, match="cannot be read"):
        fn(params, X)
