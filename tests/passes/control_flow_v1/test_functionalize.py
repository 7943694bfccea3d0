"""Control flow v1: graphs give a session's results; errors name nodes."""

import random

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops
from tensorflow.python.ops import control_flow_v2_toggles

import tf2jax_lite
from tf2jax_lite.errors import LoweringError, UnsupportedError
from tf2jax_lite.passes.control_flow_v1.functionalize import OPS
from tf2jax_lite.pipeline.convert import graph_of

tf1 = tf.compat.v1
raw = tf.raw_ops


@pytest.fixture(autouse=True)
def _v1():
    before = control_flow_v2_toggles.control_flow_v2_enabled()
    control_flow_v2_toggles.disable_control_flow_v2()
    yield
    if before:
        control_flow_v2_toggles.enable_control_flow_v2()


def placeholder(name, dtype=tf.float32, shape=()):
    return tf1.placeholder(dtype, shape, name)


def flags(*names):
    return [placeholder(name, tf.bool) for name in names]


def converted(build):
    with tf.Graph().as_default() as graph:
        inputs, outputs = build()
    names = [t.name for t in outputs]
    fn, params = tf2jax_lite.convert_graph_def(graph.as_graph_def(), [t.name for t in inputs], names)
    assert not [n.op for _, n in graph_of(fn).walk() if n.op in OPS], "none of it is left"
    return graph, inputs, outputs, fn, params


# TensorFlow's graph optimizers break some of these graphs ("Retval does not have value"): the executor is the oracle.
PLAIN = tf1.ConfigProto()
PLAIN.graph_options.rewrite_options.disable_meta_optimizer = True


def check(build, feeds, rtol=1e-5, *, atol=1e-6, eager=True):
    graph, inputs, outputs, fn, params = converted(build)
    with tf1.Session(graph=graph, config=PLAIN) as session:
        jitted = jax.jit(fn)
        for number, values in enumerate(feeds):
            expected = session.run(outputs, dict(zip(inputs, values, strict=True)))
            # Outside jit predicates are known, so that branches are picked while tracing.
            for call in (jitted, fn) if eager and number == 0 else (jitted,):
                for found, value in zip(call(params, *values)[0], expected, strict=True):
                    np.testing.assert_allclose(found, value, rtol=rtol, atol=atol)
    return fn, params


def truths(count, *more):
    return [(*(bool(bits >> i & 1) for i in range(count)), *more) for bits in range(2**count)]


def one_predicate_tested_several_times():
    (p, q), x = flags("p", "q"), placeholder("x")
    y = tf1.cond(p, lambda: x + 1.0, lambda: x * 2.0)
    z = tf1.cond(p, lambda: tf.sin(y) + x, lambda: y * y)
    w = tf1.cond(q, lambda: z * 3.0, lambda: tf1.cond(p, lambda: y - z, lambda: z - x))
    return [p, q, x], [y, z, w]


def nested_either_way():
    """Return conds whose outer predicate is another's inner one."""
    (p, q), x = flags("p", "q"), placeholder("x")
    a = tf1.cond(p, lambda: tf1.cond(q, lambda: x + 1.0, lambda: x - 5.0), lambda: x * 2.0)
    b = tf1.cond(q, lambda: tf1.cond(p, lambda: a * x, lambda: a + 1.0), lambda: -a)
    return [p, q, x], [a, b, tf1.cond(p, lambda: a * b, lambda: a - b)]


def plain_switches_and_merges():
    """Return values of two independent predicates, negated, or value_index."""
    (p, q), x = flags("p", "q"), placeholder("x")
    off, on = (t[1] for t in (raw.Switch(data=x, pred=tf.logical_not(p)), raw.Switch(data=x, pred=p)))
    either = raw.Switch(data=2 * x, pred=q)
    both = on + either[1]
    joined = raw.Merge(inputs=[both, on * either[0], off])
    first = raw.Switch(data=x + 10.0, pred=tf.equal(joined[1], 0))
    again = raw.Merge(inputs=[first[0] * 2.0, first[1] * 3.0])
    return [p, q, x], [joined[0], joined[1], again[0]]


def known_predicate():
    """Return a constant predicate's side; the other one is not dead."""
    x = placeholder("x")
    return [x], [raw.Switch(data=x * 2.0, pred=tf.constant(True))[1] + 1.0]


@pytest.mark.default_cases("nested_either_way-", "plain_switches_and_merges-")
@pytest.mark.parametrize(
    "build, feeds",
    [
        (one_predicate_tested_several_times, truths(2, np.float32(3))),
        (nested_either_way, truths(2, np.float32(3))),
        (plain_switches_and_merges, truths(2, np.float32(3))),
        (known_predicate, [(np.float32(3),)]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_branches(build, feeds):
    check(build, feeds)


@pytest.mark.full
def test_case():
    def build():
        k, x = placeholder("k", tf.int32), placeholder("x")
        pairs = [(tf.equal(k, j), lambda j=j: x * j) for j in range(4)]
        return [k, x], [tf1.case(pairs, default=lambda: -x, exclusive=True)]

    check(build, [(np.int32(k), np.float32(2)) for k in (0, 3, 9)])


def nested_loops():
    """Two loops one after the other in a loop, with invariants from two frames up."""
    n, x = placeholder("n", tf.int32), placeholder("x")

    def body(i, a):
        _, b = tf1.while_loop(lambda j, b: j <= i, lambda j, b: (j + 1, b + x * tf.cast(j, tf.float32)), [0, a])
        _, c = tf1.while_loop(lambda j, b: j < 3, lambda j, b: (j + 1, b * 0.5), [0, b])
        return i + 1, c

    return [n, x], list(tf1.while_loop(lambda i, a: i < n, body, [0, x]))


def cond_in_loop_in_cond():
    p, n, x = *flags("p"), placeholder("n", tf.int32), placeholder("x")

    def loop():
        def body(i, a):
            return i + 1, tf1.cond(tf.equal(i % 2, 0), lambda: a + x, lambda: a * 1.5)

        return tf1.while_loop(lambda i, a: (i < n) & (a < 50.0), body, [0, x])[1]

    return [p, n, x], [tf1.cond(p, loop, lambda: -x)]


def value_of_the_condition_leaves():
    """Return the condition's intermediate value from body and exit."""
    n, x = placeholder("n"), placeholder("x")
    with tf_ops.control_dependencies(None):
        start = raw.Enter(data=x, frame_name="f")
        merge = raw.Merge(inputs=[start, start])
        square = merge[0] * merge[0]
        go = raw.LoopCond(input=square < raw.Enter(data=n, frame_name="f", is_constant=True))
        switch, other = raw.Switch(data=merge[0], pred=go), raw.Switch(data=square, pred=go)
        back = raw.NextIteration(data=switch[1] + other[1])
        merge[0].op._update_input(1, back)
        return [n, x], [raw.Exit(data=switch[0]), raw.Exit(data=tf.sin(other[0]))]


def beam_search():
    """Beams are kept in loop variables of which one grows by writes to a TensorArray."""
    scores = placeholder("scores", shape=(6, 3, 5))

    def body(time, total, beams, parents):
        flat = tf.reshape(total[:, None] + tf.nn.log_softmax(scores[time] * (2.0 + tf.tanh(total[:, None]))), [-1])
        total, index = tf.math.top_k(flat, 3)
        return time + 1, total, beams.write(time, index % 5), parents.write(time, index // 5)

    arrays = [tf.TensorArray(tf.int32, 6) for _ in range(2)]
    start = tf.constant([0.0, -1e4, -1e4])
    _, total, beams, parents = tf1.while_loop(lambda time, *_: time < 6, body, [0, start, *arrays])
    beams, parents = beams.stack(), parents.stack()

    def back(time, beam, path):
        return time - 1, tf.gather(parents[time], beam), path.write(time, tf.gather(beams[time], beam))

    path = tf.TensorArray(tf.int32, 6)
    *_, path = tf1.while_loop(lambda time, *_: time >= 0, back, [5, tf.range(3), path])
    return [scores], [total, path.stack()]


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.default_cases("value_of_the_condition_leaves-")
@pytest.mark.parametrize(
    "build, feeds",
    [
        (nested_loops, [(np.int32(4), np.float32(1.5)), (np.int32(0), np.float32(1.5))]),
        (cond_in_loop_in_cond, [(p, np.int32(n), np.float32(2)) for p, n in ((True, 5), (True, 0), (False, 5))]),
        (value_of_the_condition_leaves, [(np.float32(90), np.float32(2)), (np.float32(1), np.float32(2))]),
        (beam_search, [(numbers(6, 3, 5),)]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_loops(build, feeds):
    check(build, feeds)


def gradient_of_branches():
    (p, q), x = flags("p", "q"), placeholder("x")
    y = tf1.cond(p, lambda: tf1.cond(q, lambda: tf.sin(x) * x, lambda: tf.cos(x)), lambda: tf.exp(x))
    (first,) = tf1.gradients(y, x)
    return [p, q, x], [y, first, tf1.gradients(first, x)[0]]


def gradient_of_loop_in_cond():
    (p,), x = flags("p"), placeholder("x")
    loop = lambda: tf1.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.sin(a) * x), [0, x])[1]  # noqa: E731
    y = tf1.cond(p, loop, lambda: x * x)
    return [p, x], [y, tf1.gradients(y, x)[0]]


def gradient_of_cond_in_loop():
    x = placeholder("x")

    def body(i, a):
        return i + 1, tf1.cond(i < 2, lambda: tf.sin(a) * x, lambda: tf.cos(a) * a)

    y = tf1.while_loop(lambda i, a: i < 4, body, [0, x])[1]
    return [x], [y, tf1.gradients(y, x)[0]]


def gradient_of_nested_loops():
    """Return a gradient whose inner loop's stacks are on stacks."""
    x = placeholder("x")

    def body(i, a):
        return i + 1, tf1.while_loop(lambda j, b: j < 3, lambda j, b: (j + 1, tf.sin(b) * x), [0, a])[1]

    y = tf1.while_loop(lambda i, a: i < 4, body, [0, x])[1]
    return [x], [y, tf1.gradients(y, x)[0]]


def gradient_of_seq2seq():
    """Return an encoder that reads a TensorArray, a decoder that writes one."""
    x, w = placeholder("x", shape=(7, 2, 3)), placeholder("w", shape=(6, 3))
    steps = tf.TensorArray(tf.float32, 7).unstack(x)
    encode = lambda i, h: (i + 1, tf.tanh(tf.matmul(tf.concat([steps.read(i), h], 1), w)))  # noqa: E731
    _, state = tf1.while_loop(lambda i, h: i < 7, encode, [0, tf.zeros([2, 3])])

    def decode(i, h, last, out):
        h = tf.tanh(tf.matmul(tf.concat([last, h], 1), w))
        return i + 1, h, tf.nn.softmax(h), out.write(i, h)

    out = tf.TensorArray(tf.float32, 4)
    *_, out = tf1.while_loop(lambda i, *_: i < 4, decode, [0, state, tf.zeros([2, 3]), out])
    found = out.stack()
    return [x, w], [found, *tf1.gradients(tf.reduce_sum(found**2), [x, w])]


@pytest.mark.full
@pytest.mark.parametrize(
    "build, feeds",
    [
        (gradient_of_branches, truths(2, np.float32(0.7))),
        (gradient_of_loop_in_cond, truths(1, np.float32(0.7))),
        (gradient_of_cond_in_loop, [(np.float32(0.7),)]),
        (gradient_of_nested_loops, [(np.float32(0.7),)]),
        (gradient_of_seq2seq, [(numbers(7, 2, 3), numbers(6, 3))]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_gradients_inside_the_graph_and_of_the_converted_function(build, feeds):
    fn, params = check(build, feeds, rtol=1e-4, eager=False)
    for values in feeds[-1:]:
        *others, last = values
        scalar = last.ndim == 0  # the graphs differentiate what they return first, or the sum of its squares

        def loss(x, others=others, scalar=scalar):
            y = fn(params, *others, x)[0][0]
            return y if scalar else (y**2).sum()

        inside = jax.jit(fn)(params, *values)[0][1 if scalar else -1]
        np.testing.assert_allclose(jax.jit(jax.grad(loss))(last), inside, rtol=1e-3, atol=1e-5)


@pytest.mark.full
def test_a_long_loop_with_gradients_is_not_unrolled():
    def build():
        x = placeholder("x")
        y = tf1.while_loop(lambda i, a: i < 400, lambda i, a: (i + 1, tf.sin(a) * x), [0, x])[1]
        return [x], [y, tf1.gradients(y, x)[0]]

    fn, params = check(build, [(np.float32(1.1),)], rtol=1e-4)
    text = str(jax.make_jaxpr(fn)(params, np.float32(1.1)))
    assert text.count("scan[") == 2 and text.count("sin") < 10


def test_effects_happen_in_the_branch_taken_only_and_as_often_as_in_tensorflow():
    """Control edges alone order them; the condition counts its tests."""

    def build():
        (p,), x = flags("p"), placeholder("x")
        with tf1.variable_scope("", use_resource=True):
            a, asked = (tf1.get_variable(n, initializer=np.float32(0)) for n in ("a", "asked"))

        def then():
            with tf1.control_dependencies([a.assign_add(x, read_value=False)]):
                return tf.constant(1.0)

        y = tf1.cond(p, then, lambda: tf.constant(2.0))

        def go(i):
            with tf1.control_dependencies([asked.assign_add(1.0, read_value=False)]):
                return i < 3

        i = tf1.while_loop(go, lambda i: i + 1, [0])
        with tf1.control_dependencies([y, i]):
            return [p, x], [y, a.read_value(), asked.read_value(), tf.identity(i)]

    graph, inputs, outputs, fn, params = converted(build)
    assert {n: v.shape for n, v in params.items()} == {"a": (), "asked": ()}
    with tf1.Session(graph=graph, config=PLAIN) as session:
        session.run([v.initializer for v in graph.get_collection("variables")])
        params = {"a": np.float32(0), "asked": np.float32(0)}
        for p in (True, False, True):
            expected = session.run(outputs, {inputs[0]: p, inputs[1]: 5.0})
            found, params = jax.jit(fn)(params, p, np.float32(5))
            np.testing.assert_allclose(found, expected)
    assert params["a"] == 10 and params["asked"] == 12


@pytest.mark.default_cases("False-0")
@pytest.mark.parametrize("trips", [0, 1, 2])
@pytest.mark.parametrize("deep", [False, True])
def test_gradients_of_loops_that_do_not_run(trips, deep):
    """Stacks are empty, and the gradient's loop takes none, for any count."""

    def loop(x, v):
        return tf1.while_loop(lambda i, v: i < trips, lambda i, v: (i + 1, tf.tanh(v * x)), [0, v])[1]

    def build():
        (p,), x = flags("p"), placeholder("x")

        def inner(v):
            value = loop(x, v) * 1.5
            return tf1.cond(v > 0.1, lambda: loop(x, value) + value, lambda: value) if deep else value

        def body(i, v):
            return i + 1, tf1.cond(p, lambda: inner(v), lambda: tf.sin(v))

        y = tf1.while_loop(lambda i, v: i < 3, body, [0, x])[1]
        return [p, x], [y, tf1.gradients(y, x)[0]]

    check(build, truths(1, np.float32(0.3)))


def program(seed):
    """Return a builder of a random program of branches and loops."""
    draw = random.Random(seed)

    def block(depth, values, predicates):
        values = list(values)
        for _ in range(draw.randint(2, 3)):
            kind = draw.choice(["add", "sin", "cond", "cond", "loop"] if depth else ["add", "sin"])
            a, b = draw.choice(values), draw.choice(values)
            if kind == "add":
                values.append(a + 0.5 * b)
            elif kind == "sin":
                values.append(tf.sin(a))
            elif kind == "cond":
                p = draw.choice([*predicates, a > b])
                if draw.random() < 0.3:
                    p = tf.logical_not(p)
                values.append(
                    tf1.cond(
                        p, lambda: block(depth - 1, values, predicates), lambda: block(depth - 1, values, predicates)
                    )
                )
            else:
                trips = draw.randint(0, 3)
                body = lambda i, v: (i + 1, tf.tanh(block(depth - 1, [*values, v], predicates)))  # noqa: E731
                values.append(tf1.while_loop(lambda i, v, trips=trips: i < trips, body, [0, a])[1])
        return tf.add_n(values[-2:])

    def build():
        p, x = flags("p", "q"), [placeholder("x"), placeholder("y")]
        result = block(3, x, p)
        grads = tf1.gradients(result, x)
        return [*p, *x], [result, *(tf.zeros([]) if g is None else g for g in grads)]

    return build


@pytest.mark.default_cases("14")  # reads a value that no branch that runs computes
@pytest.mark.parametrize("seed", range(100))
def test_random_programs(seed):
    # Sines near one: one ulp of the input is 5e-6 in the derivative, in TensorFlow itself.
    check(program(seed), truths(2, np.float32(0.3), np.float32(-0.8)), rtol=2e-4, atol=2e-5, eager=False)


def test_unsupported_control_flow_raises_with_its_nodes():
    def dead():
        p, x = *flags("p"), placeholder("x")
        return [p, x], [raw.Switch(data=x, pred=p)[1] + 1.0]

    def race():
        p, x = *flags("p"), placeholder("x")
        return [p, x], [raw.Merge(inputs=[x, raw.Switch(data=x, pred=p)[1]], name="race")[0]]

    def endless():
        x = placeholder("x")
        return [x], [raw.Exit(data=raw.Enter(data=x, frame_name="strange"))]

    for build, words in (
        (dead, ["p:0", "Merge"]),
        (race, ["race", "which comes first"]),
        (endless, ["strange", "Enter"]),
    ):
        with pytest.raises(UnsupportedError) as caught:
            converted(build)
        assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.full
def test_stack_of_unknown_length_raises_when_it_is_called():
    def build():
        n, x = placeholder("n", tf.int32), placeholder("x")
        y = tf1.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tf.sin(a) * x), [0, x])[1]
        return [n, x], [tf1.gradients(y, x)[0]]

    *_, fn, params = converted(build)
    assert np.isfinite(fn(params, np.int32(3), np.float32(1))[0][0]), "outside jit the number is known"
    with pytest.raises(LoweringError, match="not known while tracing"):
        jax.jit(fn)(params, np.int32(3), np.float32(1))
