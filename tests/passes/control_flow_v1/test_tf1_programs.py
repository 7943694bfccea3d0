"""TF1 programs: values, graph gradients, and jax.grad.

Each builder returns the inputs and a result; tf.gradients of it by the floating inputs are further results.
"""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function as defun

from .test_functionalize import _v1, check, flags, numbers, placeholder  # noqa: F401  (_v1 is a fixture)

tf1 = tf.compat.v1


def static_rnn():
    x, w = placeholder("x", shape=(4, 2, 3)), placeholder("w", shape=(5, 8))
    h = c = tf.zeros([2, 2])
    outputs = []
    for step in tf.unstack(x):
        i, j, f, o = tf.split(tf.matmul(tf.concat([step, h], 1), w), 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        outputs.append(h)
    return [x, w], tf.stack(outputs)


def loop_in_cond_in_loop_in_cond():
    (p,), x = flags("p"), placeholder("x")

    def loop():
        def inner(i, a):
            return tf1.while_loop(lambda j, c: j < i, lambda j, c: (j + 1, c * x), [0, a])[1]

        def body(i, a, out):
            b = tf1.cond(tf.equal(i % 2, 0), lambda: tf.sin(a) * x, lambda: inner(i, a))
            return i + 1, b, out.write(i, b * a)

        _, a, out = tf1.while_loop(lambda i, *_: i < 4, body, [0, x, tf.TensorArray(tf.float32, 4)])
        return tf.reduce_sum(out.stack()) + a

    return [p, x], tf1.cond(p, loop, lambda: x * x)


def growing_shape():
    x = placeholder("x", shape=(3,))
    grow = lambda i, y: (i + 1, tf.concat([y, x * tf.cast(i, tf.float32)], 0))  # noqa: E731
    shapes = [tf.TensorShape([]), tf.TensorShape([None])]
    return [x], tf1.while_loop(lambda i, y: i < 4, grow, [0, x], shape_invariants=shapes)[1]


def call_by_name():
    """Return a node whose op is a function, with SymbolicGradient."""

    @defun.Defun(tf.float32, tf.float32, func_name="by_name")
    def fn(a, b):
        return tf.sin(a) * b

    x, z = placeholder("x", shape=(3,)), placeholder("z", shape=(3,))
    return [x, z], fn(x, z) * fn(z, fn(x, x))


def call_with_a_gradient_of_its_own():
    @defun.Defun(tf.float32, tf.float32, func_name="own_gradient")
    def gradient(x, dy):
        return dy * 3.0 * x

    @defun.Defun(tf.float32, func_name="has_own_gradient", grad_func=gradient)
    def fn(x):
        return x * x

    x = placeholder("x", shape=(3,))
    return [x], fn(x) * x


def called_function_of_version_2():
    @tf.function
    def fn(a):
        def body(i, a):
            return i + 1, tf1.cond(tf.reduce_sum(a) > 0, lambda: a * 0.5, lambda: a - 1.0)

        return tf1.while_loop(lambda i, a: i < 3, body, [0, a])[1]

    x = placeholder("x", shape=(3,))
    return [x], fn(x) + x


def variables_swap():
    x = placeholder("x")
    start = [0, x, x * 2, x + 1]
    _, a, b, c = tf1.while_loop(lambda i, *_: i < 5, lambda i, a, b, c: (i + 1, b, c * x, a + b), start)
    return [x], a * b * c


def array_split_and_joined():
    x = placeholder("x", shape=(6, 2))
    pieces, out = (tf.TensorArray(tf.float32, 3, infer_shape=False) for _ in range(2))
    pieces = pieces.split(x, [1, 2, 3])
    for i in range(3):
        out = out.write(i, pieces.read(i) * (i + 1.0))
    joined = out.concat()
    return [x], joined * joined


def array_scattered_and_gathered():
    x = placeholder("x", shape=(6, 2))
    y = tf.TensorArray(tf.float32, 6).scatter([5, 3, 1, 0, 2, 4], x).gather([1, 0, 2])
    return [x], y * y


def rows_gathered_in_a_loop():
    """Accumulate gradients of rows as IndexedSlices, as loop variables."""
    w = placeholder("w", shape=(4, 3))
    body = lambda i, a: (i + 1, a * tf.reduce_sum(tf.gather(w, [i, i + 1])))  # noqa: E731
    return [w], tf1.while_loop(lambda i, a: i < 3, body, [0, tf.ones([2])])[1]


def scans_and_folds():
    x = placeholder("x", shape=(4, 3))
    parts = [
        tf.scan(lambda a, b: tf.tanh(a * b), x),
        tf.foldr(lambda a, b: a + tf.sin(b), x),
        tf.foldl(lambda a, b: a * b, x),
        tf.map_fn(lambda a: a * tf.reduce_sum(a), x),
        tf.vectorized_map(lambda a: tf.sin(a) * a, x),
    ]
    return [x], tf.add_n([tf.reduce_sum(part) for part in parts])


def assertions_in_a_loop():
    x = placeholder("x")

    def body(i, a):
        with tf1.control_dependencies([tf1.assert_less(i, 10), tf1.Assert(a > -100, [a, i])]):
            return i + 1, a * 0.5

    return [x], tf1.while_loop(lambda i, a: i < 4, body, [0, x])[1]


def case_in_a_loop():
    x = placeholder("x")

    def body(i, a):
        return i + 1, tf1.case([(a > 10.0, lambda: a * 0.1), (a > 1.0, lambda: a * x)], default=lambda: a + x)

    return [x], tf1.while_loop(lambda i, a: i < 5, body, [0, x])[1]


def three_loops_deep():
    x = placeholder("x")
    outside = x * 2

    def first(i, a):
        def second(j, b):
            third = lambda k, d: (k + 1, d * 0.9 + outside * tf.cast(i + j, tf.float32) * 0.01)  # noqa: E731
            return j + 1, tf1.while_loop(lambda k, d: k < 2, third, [0, b])[1]

        return i + 1, tf1.while_loop(lambda j, b: j < i + 1, second, [0, a])[1]

    return [x], tf1.while_loop(lambda i, a: i < 3, first, [0, x])[1]


def as_long_as_the_array_is_short():
    x = placeholder("x", shape=(3,))
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, clear_after_read=False, element_shape=[]).write(0, x[0])
    grow = lambda a: (a.write(a.size(), a.read(a.size() - 1) * x[1]),)  # noqa: E731
    return [x], tf1.while_loop(lambda a: a.size() < 5, grow, [array]).stack()


def values_of_a_branch_in_a_later_one():
    (p,), x = flags("p"), placeholder("x", shape=(3,))
    z = tf.exp(x)
    y = tf1.cond(p, lambda: tf1.cond(z[0] > 1.0, lambda: z * x, lambda: z), lambda: x)
    return [p, x], tf1.cond(p, lambda: y * z, lambda: y + 1.0)


def structures_of_loop_variables():
    x, z = placeholder("x", shape=(2, 3)), placeholder("z", shape=(2, 3))
    body = lambda s: ({"i": s["i"] + 1, "p": (s["p"][1], s["p"][0] * tf.sin(z))},)  # noqa: E731
    found = tf1.while_loop(lambda s: s["i"] < 3, body, [{"i": tf.constant(0), "p": (x, z)}])
    found = found[0] if isinstance(found, (list, tuple)) else found
    return [x, z], found["p"][0]


ONE = [(np.float32(0.7),)]
ROW = [(numbers(3),)]
PROGRAMS = [
    (static_rnn, [(numbers(4, 2, 3), numbers(5, 8))]),
    (loop_in_cond_in_loop_in_cond, [(True, np.float32(0.7)), (False, np.float32(0.7))]),
    (growing_shape, ROW),
    (call_by_name, [(numbers(3), numbers(3) + 1)]),
    (call_with_a_gradient_of_its_own, ROW),
    (called_function_of_version_2, ROW),
    (variables_swap, ONE),
    (array_split_and_joined, [(numbers(6, 2),)]),
    (array_scattered_and_gathered, [(numbers(6, 2),)]),
    (rows_gathered_in_a_loop, [(numbers(4, 3),)]),
    (scans_and_folds, [(numbers(4, 3),)]),
    (assertions_in_a_loop, ONE),
    (case_in_a_loop, [(np.float32(0.5),), (np.float32(5.0),)]),
    (three_loops_deep, ONE),
    (as_long_as_the_array_is_short, ROW),
    (values_of_a_branch_in_a_later_one, [(True, numbers(3)), (False, numbers(3))]),
    (structures_of_loop_variables, [(numbers(2, 3), numbers(2, 3) + 1)]),
]
# The quick ones that stand for the others in every run.


@pytest.mark.default_cases("call_by_name", "call_with_a_gradient_of_its_own")
@pytest.mark.parametrize(("build", "feeds"), [pytest.param(*p, id=p[0].__name__) for p in PROGRAMS])
def test_values_and_gradients(build, feeds):
    def with_gradients():
        inputs, result = build()
        by = tf1.gradients(result, [x for x in inputs if x.dtype == tf.float32])
        return inputs, [result, *(tf.convert_to_tensor(g) for g in by)]

    fn, params = check(with_gradients, feeds, rtol=1e-4)
    for values in feeds:
        moving = [i for i, value in enumerate(values) if not isinstance(value, bool)]

        def total(chosen, values=values, moving=moving):
            given = list(values)
            for i, value in zip(moving, chosen, strict=True):
                given[i] = value
            return fn(params, *given)[0][0].sum()

        found = jax.jit(jax.grad(total))([values[i] for i in moving])
        for mine, theirs in zip(found, jax.jit(fn)(params, *values)[0][1:], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
