"""Lists of one repeated element: reading an element skips the list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import close
from tests.lowering.scan_opt.scans import all_equations, carried_shapes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2, 3)).astype(np.float32)
W = RNG.normal(size=(3, 3)).astype(np.float32)
raw = tf.raw_ops


def empty(shape=(3, 3)):
    return raw.EmptyTensorList(element_shape=list(shape), max_num_elements=-1, element_dtype=tf.float32)


def push(lst, value):
    return raw.TensorListPushBack(input_handle=lst, tensor=value)


def pop(lst, shape=(3, 3)):
    return raw.TensorListPopBack(input_handle=lst, element_shape=list(shape), element_dtype=tf.float32)


def filled(value, lst=None, trips=6):
    lst = empty() if lst is None else lst
    return tf.while_loop(lambda i, _: i < trips, lambda i, lst: (i + 1, push(lst, value(i))), (0, lst))[1]


def emptied(x, lst, step=lambda h, w, lst: (tf.tanh(h @ w), lst), trips=6):
    def body(i, h, lst):
        rest, w = pop(lst)
        return (i + 1, *step(h + x[i], tf.ensure_shape(w, (3, 3)), rest))

    return tf.while_loop(lambda i, *_: i < trips, body, (0, tf.zeros_like(x[0]), lst))[1:]


def weights(x, w):
    return emptied(x, filled(lambda i: w))[0]


def computed(x, w):
    return emptied(x, filled(lambda i: tf.transpose(tf.sin(w))))[0]


def a_number(x, w):
    return emptied(x, filled(lambda i: tf.eye(3)))[0] + tf.reduce_sum(w)


def others_below(x, w):
    """Start a loop with a list of something else."""
    return emptied(x, filled(lambda i: w, push(empty(), w * 2.0), 5))[0]


def others_above(x, w):
    return emptied(x, push(filled(lambda i: w, trips=5), w * 2.0))[0]


def pushed_back(x, w):
    """Pop an element, push another one and pop it."""
    h, lst = emptied(x, filled(lambda i: w, trips=12), lambda h, w, lst: (tf.tanh(h @ w), lst))
    h, lst = emptied(x + h, push(lst, w + 1.0))
    return h + pop(lst)[1][:2]


def replaced(x, w):
    """In each iteration."""

    def step(h, taken, lst):
        return tf.tanh(h @ taken), push(pop(lst)[0], taken * 0.5)

    return emptied(x, filled(lambda i: w, trips=12), step, 5)[0]


def stacked(x, w):
    lst = filled(lambda i: w)
    all_ = raw.TensorListStack(input_handle=lst, element_shape=[3, 3], element_dtype=tf.float32, num_elements=-1)
    one = raw.TensorListGetItem(input_handle=lst, index=2, element_shape=[3, 3], element_dtype=tf.float32)
    zeros = raw.TensorListStack(
        input_handle=tf.zeros_like(lst), element_shape=[3, 3], element_dtype=tf.float32, num_elements=-1
    )
    return x @ all_ + one[:2] + zeros[:, :2] + tf.cast(raw.TensorListLength(input_handle=lst), tf.float32)


def set_afterwards(x, w):
    lst = raw.TensorListSetItem(input_handle=filled(lambda i: w), index=4, item=w * 3.0)
    return emptied(x, lst)[0]


def chosen(x, w):
    lst = tf.cond(tf.reduce_sum(x) > 0, lambda: filled(lambda i: w), lambda: filled(lambda i: w * 2.0))
    return emptied(x, lst)[0]


def chosen_from_one(x, w):
    lst = filled(lambda i: w)
    lst = tf.cond(tf.reduce_sum(x) > 0, lambda: lst, lambda: pop(push(lst, w * 2.0))[0])
    return emptied(x, lst)[0]


def made_in_a_loop(x, w):
    """Carry a list that a loop fills with uniform elements in each iteration."""

    def body(i, h, lst):
        return i + 1, emptied(x + h, lst)[0], filled(lambda j: w * tf.cast(i, tf.float32))

    _, h, lst = tf.while_loop(lambda i, *_: i < 3, body, (0, tf.zeros([2, 3]), filled(lambda i: w)))
    return emptied(x + h, lst)[0]


def changed_by_the_loop(x, w):
    """Not the same in all iterations."""
    return emptied(x, filled(lambda i: w * tf.cast(i, tf.float32)))[0]


# Functions, and whether the list is read in the end.
FUNCTIONS = {
    weights: False,
    computed: False,
    a_number: False,
    others_below: True,
    others_above: True,
    pushed_back: True,
    replaced: True,
    stacked: False,
    set_afterwards: True,
    chosen: True,
    chosen_from_one: True,
    made_in_a_loop: False,
    changed_by_the_loop: True,
}


def reads_stacks(jaxpr):
    """Return whether weights are taken from a stack, as xs or by index."""
    for eqn in all_equations(jaxpr):
        shapes = [v.aval.shape for v in eqn.invars]
        if eqn.primitive.name in ("scan", "dynamic_slice") and any(s[1:] == (3, 3) and len(s) == 3 for s in shapes):
            return True
    return False


@pytest.mark.full
@pytest.mark.parametrize(("function", "read"), FUNCTIONS.items(), ids=lambda f: getattr(f, "__name__", ""))
def test_values_and_gradients(function, read):
    graph = tf.function(function, autograph=False)
    converted = tf2jax.convert_functional(graph, *(tf.TensorSpec(v.shape, v.dtype) for v in (X, W)))
    assert reads_stacks(jax.make_jaxpr(converted)(X, W).jaxpr) == read
    x, w = tf.constant(X), tf.constant(W)
    with tf.GradientTape() as tape:
        tape.watch((x, w))
        loss = tf.reduce_sum(tf.sin(graph(x, w)))
    upstream = [tf.convert_to_tensor(g) for g in tape.gradient(loss, (x, w))]

    def ours(x, w):
        return jnp.sum(jnp.sin(converted(x, w)))

    close(converted(X, W), graph(x, w))
    close(jax.jit(converted)(X, W), graph(x, w))
    for actual, gradient in zip(jax.jit(jax.grad(ours, (0, 1)))(X, W), upstream, strict=True):
        np.testing.assert_allclose(actual, gradient, rtol=1e-4, atol=1e-5)
    both = jax.jit(jax.vmap(converted, (0, None)))(np.stack([X, -X]), W)
    close(both[1], graph(-x, w))


@pytest.mark.full
def test_a_variable_that_the_loop_reads():
    """TensorFlow's gradient keeps the weights of each iteration, read again."""
    v = tf.Variable(W, name="w")

    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            body = lambda i, h: (i + 1, tf.tanh(h @ tf.cast(v, tf.float32) + x[i]))  # noqa: E731
            loss = tf.reduce_sum(tf.while_loop(lambda i, _: i < 6, body, (0, x[0]))[1])
        return tape.gradient(loss, v)

    converted, params = tf2jax.convert(gradient, tf.TensorSpec(X.shape, tf.float32))
    traced = jax.make_jaxpr(lambda p, x: converted(p, x)[0])(params, X).jaxpr
    assert not reads_stacks(traced)
    assert (6, 3, 3) not in carried_shapes(traced)
    close(jax.jit(lambda p, x: converted(p, x)[0])(params, X), gradient(tf.constant(X)))
