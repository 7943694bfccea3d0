"""Graphs with TensorFlow's gradients: loops, branches, Keras steps."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf2jax_lite as tf2jax

X = np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3)
KERAS = {"keras": keras, "tf_keras": tf_keras}


def for_loop(x):
    for _ in tf.range(3):
        x = tf.sin(x) * x
    return x


def while_with_maximum(x):
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 10.0, lambda y: (y * 1.2 + 1.0,), [x], maximum_iterations=20)[0]


def broken_off(x):
    y = x
    for _ in tf.range(8):
        y = tf.sin(y) + x
        if tf.reduce_sum(y) > 0.5:
            break
    return y


def branch_on_data(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.exp(x), lambda: tf.sin(x) * x)


def switch_on_data(x):
    index = tf.cast(x[0, 0] > 0.0, tf.int32) + 1
    return tf.switch_case(index, [lambda: x, lambda: tf.sin(x) * x, lambda: tf.exp(x)])


def branch_on_data_in_loop(x):
    y = x
    for _ in tf.range(4):
        if tf.reduce_sum(y) > 0.0:
            y = tf.sin(y)
        else:
            y = y * x + 0.5
    return y


def branch_on_counter_in_loop(x):
    y = x
    for i in tf.range(4):
        if i % 2 == 0:
            y = tf.sin(y) * x
        else:
            y = y * y
    return y


def nested_loops_of_changing_length(x):
    y = x
    for i in tf.range(3):
        for _ in tf.range(i):
            y = tf.sin(y) * x
    return y


def scan_over_rows(x):
    return tf.scan(lambda a, b: tf.tanh(a + b), tf.concat([x, x], 0))


def array_in_loop(x):
    array, h = tf.TensorArray(tf.float32, 4), x[0]
    for i in tf.range(4):
        h = tf.tanh(h * x[1])
        array = array.write(i, h)
    return array.stack() ** 2


def read_again_and_again_inside_of_a_broken_off_one(x):
    """Keep invariants in an inner loop's list, and such lists in an outer one."""
    start, total = x, tf.zeros([3, 3])
    for i in tf.range(4):
        if tf.reduce_sum(total) > 40.0:
            break
        for _ in tf.range(3):
            total += tf.matmul(tf.sin(start), tf.cast(i + 1, tf.float32) * x, transpose_a=True)
    return total * 2.0


FUNCTIONS = [
    for_loop,
    while_with_maximum,
    broken_off,
    branch_on_data,
    switch_on_data,
    branch_on_data_in_loop,
    branch_on_counter_in_loop,
    nested_loops_of_changing_length,
    scan_over_rows,
    array_in_loop,
    read_again_and_again_inside_of_a_broken_off_one,
]


@pytest.mark.default_cases("nested_loops_of_changing_length", "scan_over_rows")
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_tape(fn):
    inner = tf.function(fn)

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inner(x)
        return tape.gradient(y, x)

    jax_fn = tf2jax.convert_functional(gradient, tf.TensorSpec([2, 3]))
    np.testing.assert_allclose(jax.jit(jax_fn)(X), gradient(X), rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_tf_gradients_and_second_order():
    @tf.function
    def fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = tf.sin(y) * x
            first = tf.gradients(y, x)[0]
        return first, tape.gradient(first, x)

    actual = jax.jit(tf2jax.convert_functional(fn, tf.TensorSpec([2, 3])))(X)
    for e, a in zip(fn(X), actual, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


SEQUENCES = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
SEQUENCES[1, 2:] = SEQUENCES[2, 3:] = 0.0  # what Masking masks
LABELS = np.array([0, 1, 1, 0], np.int32)
STEPS = [
    ("keras", "LSTM", {}),
    ("tf_keras", "GRU", {"mask": True}),
    *(
        pytest.param(library, kind, options, marks=pytest.mark.full)
        for library, kind, options in [
            ("keras", "GRU", {"bidirectional": True, "mask": True}),
            ("keras", "LSTM", {"unroll": True, "length": 5}),
            ("keras", "SimpleRNN", {"length": 5}),
            ("keras", "LSTM", {"go_backwards": True, "mask": True}),
            ("tf_keras", "LSTM", {}),
            ("tf_keras", "GRU", {"bidirectional": True, "mask": True}),
        ]
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("library", "kind", "options"), STEPS)
def test_recurrent_training_step(library, kind, options):
    """Adam in the graph over four steps: losses and every variable agree."""
    K, options = KERAS[library], dict(options)
    K.utils.set_random_seed(0)
    inputs = K.Input((options.pop("length", None), 3))
    h = K.layers.Masking()(inputs) if options.pop("mask", False) else inputs
    bidirectional = options.pop("bidirectional", False)
    layer = getattr(K.layers, kind)(4, **options)
    h = (K.layers.Bidirectional(layer) if bidirectional else layer)(h)
    model = K.Model(inputs, K.layers.Dense(2)(h))
    optimizer = K.optimizers.Adam(0.05)
    optimizer.build(model.trainable_variables)
    loss_fn = K.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        grads = tape.gradient(loss, model.trainable_variables)
        if library == "keras":
            optimizer.apply(grads, model.trainable_variables)
        else:
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    specs = tf.TensorSpec(SEQUENCES.shape), tf.TensorSpec([4], tf.int32)
    jax_fn, params = tf2jax.convert(step, *specs)
    run = jax.jit(jax_fn)
    for _ in range(4):
        expected = step(SEQUENCES, LABELS)
        loss, params = run(params, SEQUENCES, LABELS)
        np.testing.assert_allclose(loss, expected, rtol=2e-4)
    variables = step.get_concrete_function(*specs).variables
    names = [v.name for v in variables]
    compared = [v for v in variables if names.count(v.name) == 1]
    assert len(compared) >= 10
    for v in compared:
        np.testing.assert_allclose(params[v.name.split(":")[0]], v.numpy(), rtol=2e-3, atol=2e-5, err_msg=v.name)
    text = str(jax.make_jaxpr(jax_fn)(params, SEQUENCES, LABELS))
    assert " while[" not in text, "a loop over time that could be counted was not"
