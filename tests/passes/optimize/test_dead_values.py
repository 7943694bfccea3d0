"""Dead values are removed through calls, branches, loops; effects stay."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import checkify

import tf2jax_lite as tf2jax
from tf2jax_lite import ir
from tf2jax_lite.passes.optimize import dead_values
from tf2jax_lite.pipeline.convert import graph_of
from tf2jax_lite.support.config import Config

X = np.array([0.3, 0.5, 0.7], np.float32)
SPEC = tf.TensorSpec([3])


def costly(x):
    """Return a value with primitives that a jaxpr shows if computed."""
    return tf.math.igamma(x * x + 1.0, x * x)


def small(x):
    return tf.reduce_sum(x * x) < 10.0


def nested_loops(x):
    def step(i, x):
        y = tf.while_loop(small, lambda y: (tf.sin(y) * x + y * 1.5,), [x])[0]
        return i + 1, y - tf.sin(x) * 2.0

    return tf.while_loop(lambda i, x: tf.reduce_sum(x * x) + tf.cast(i, tf.float32) < 20.0, step, [0, x])[1]


def three_loops(x):
    def inner(x):
        return tf.while_loop(small, lambda y: (tf.sin(y) * x + y * 1.5,), [x])[0]

    def middle(x):
        return tf.while_loop(small, lambda y: (inner(y) + y,), [x])[0] - tf.sin(x)

    return tf.while_loop(lambda x: tf.reduce_sum(x) < 30.0, lambda x: (middle(x) * 1.3,), [x])


def branch_in_loop(x):
    def step(y):
        y = tf.cond(tf.reduce_sum(y) > 2.0, lambda: tf.exp(y * 0.1) * y, lambda: tf.sin(y) * x + y)
        return (tf.switch_case(tf.cast(y[0], tf.int32) % 2, [lambda: y * tf.sin(y) + y, lambda: y + tf.tanh(y)]),)

    return tf.while_loop(small, step, [x])[0]


def loop_in_branch(x):
    def looped():
        return tf.while_loop(small, lambda y: (y * tf.exp(x),), [x])[0]

    return tf.cond(tf.reduce_sum(x) > 1.0, looped, lambda: tf.sin(x))


def loop_in_call(x):
    @tf.function
    def called(x, y):
        return tf.while_loop(small, lambda y: (y * tf.exp(x),), [y])[0]

    return tf.while_loop(lambda y: tf.reduce_sum(y) < 50.0, lambda y: (called(x, y) * 1.7,), [x])[0]


def counted(x):
    for _ in tf.range(5):
        x = tf.sin(x) * x + tf.while_loop(small, lambda y: (y * 2.0 + tf.sin(y),), [x])[0]
    return x


WITH_GRADIENTS = [nested_loops, three_loops, branch_in_loop, loop_in_branch, loop_in_call, counted]


def primitives(jaxpr):
    """Return all primitives of a jaxpr, nested ones too, and their carries."""
    found = []
    for eqn in jaxpr.eqns:
        found.append((eqn.primitive.name, len(eqn.outvars)))
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += primitives(inner)
    return sorted(found)


@pytest.mark.full
@pytest.mark.parametrize("fn", WITH_GRADIENTS, ids=lambda fn: fn.__name__)
def test_intermediate_values_of_unused_gradients_are_removed(fn):
    """TensorFlow's loops collect what gradients need; results are as before."""
    function = tf.function(fn)
    before = jax.make_jaxpr(tf2jax.convert_functional(function, SPEC))(X).jaxpr
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = function(x)
    tape.gradient(expected, x)
    graph = function.get_concrete_function(SPEC).graph.as_graph_def()
    assert "TensorListPushBack" in str(graph) or fn is loop_in_branch

    jax_fn = tf2jax.convert_functional(function, SPEC)
    assert primitives(jax.make_jaxpr(jax_fn)(X).jaxpr) == primitives(before)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), jax.jit(jax_fn)(X), expected)


def unread_loop_variable(x):
    return tf.while_loop(lambda x, _: small(x), lambda x, y: (x * 2.0, costly(y)), [x, x])[0]


def unread_chain(x):
    def step(x, a, b, c):
        return x * 2.0, costly(b), costly(c), costly(a) + x

    return tf.while_loop(lambda x, *_: small(x), step, [x, x, x, x])[0]


def unread_start(x):
    return tf.while_loop(lambda x, _: small(x), lambda x, y: (x * 2.0, y + 1.0), [x, costly(x)])[0]


def unread_across_loops(x):
    def step(x, y):
        _, z = tf.while_loop(lambda a, _: small(a), lambda a, b: (a * 1.5, costly(b)), [x, y])
        return x * 2.0, z

    return tf.while_loop(lambda x, _: small(x), step, [x, x])[0]


def unread_branch_results(x):
    return tf.cond(x[0] > 0.4, lambda: (x * 2.0, costly(x)), lambda: (x, x + 1.0))[0]


def unread_case_results(x):
    index = tf.cast(x[0] * 10.0, tf.int32)
    return tf.switch_case(index, [lambda: (x, costly(x)), lambda: (x + 1.0, x), lambda: (x * 2.0, costly(x))])[0]


def unread_argument(x):
    @tf.function
    def called(x, y):
        return x * 2.0, costly(y)

    return called(x, costly(x))[0]


def two_readers(x):
    @tf.function
    def called(x):
        return tf.while_loop(lambda x, _: small(x), lambda x, y: (x * 2.0, y + 1.0), [x, costly(x)])

    return called(x)[0], called(x + 1.0)[0]


UNREAD = [
    unread_loop_variable,
    unread_chain,
    unread_start,
    unread_across_loops,
    unread_branch_results,
    unread_case_results,
    unread_argument,
    two_readers,
]


@pytest.mark.full
@pytest.mark.parametrize("fn", UNREAD, ids=lambda fn: fn.__name__)
def test_dead_values_are_not_computed(fn):
    jax_fn = tf2jax.convert_functional(tf.function(fn), SPEC)
    assert "igamma" not in str(jax.make_jaxpr(jax_fn)(X))
    jax.tree.map(np.testing.assert_allclose, jax.jit(jax_fn)(X), fn(tf.constant(X)))


def read_after_rounds(x):
    """Each variable is read one iteration later by the one before it."""

    def step(a, b, c, d):
        return a + b, b + c, c + d, costly(d)

    return tf.while_loop(lambda a, *_: small(a), step, [x, x, x, x])[0]


def read_by_the_condition(x):
    def going(x, y):
        return tf.reduce_sum(y) > 0.2

    return tf.while_loop(going, lambda x, y: (x * 2.0, costly(y)), [x, x])[0]


def read_in_two_ways(x):
    @tf.function
    def called(x, y):
        return x * 2.0, costly(y), x + y

    a = called(x, x)
    b = called(x + 1.0, a[1])
    return tf.while_loop(lambda x, _: small(x), lambda x, y: (called(x, y)[0], called(x, y)[2]), [b[0], b[2]])


READ = [read_after_rounds, read_by_the_condition, read_in_two_ways]


@pytest.mark.full
@pytest.mark.parametrize("fn", READ, ids=lambda fn: fn.__name__)
def test_live_values_stay(fn):
    jax_fn = tf2jax.convert_functional(tf.function(fn), SPEC)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), jax.jit(jax_fn)(X), fn(tf.constant(X)))
    assert "igamma" in str(jax.make_jaxpr(jax_fn)(X))


class Assigning(tf.Module):
    """Variables that a function assigns, whose results are dead."""

    def __init__(self):
        self.total = tf.Variable(tf.zeros([3]), name="total")

    def in_loop(self, x):
        def step(x, y):
            self.total.assign_add(y)
            return x * 2.0, y + 1.0

        return tf.while_loop(lambda x, _: small(x), step, [x, x])[0]

    def in_branch(self, x):
        def assigned():
            self.total.assign_add(tf.sin(x))
            return x, x * 2.0

        return tf.cond(x[0] > 0.0, assigned, lambda: (x, x))[0]

    def in_call(self, x):
        @tf.function
        def called(x, y):
            self.total.assign_add(y)
            return x, y * 2.0

        called(x, tf.sin(x))
        return tf.while_loop(lambda x: small(x), lambda x: (called(x, x * 3.0)[0] * 2.0,), [x])[0]

    def before_a_read(self, x):
        def step(x, y):
            self.total.assign(self.total * 0.5 + y)
            return x * 2.0 + self.total, y + 1.0

        return tf.while_loop(lambda x, _: small(x), step, [x, x])[0]


@pytest.mark.full
@pytest.mark.parametrize("name", ["in_loop", "in_branch", "in_call", "before_a_read"])
@pytest.mark.parametrize("taped", [False, True])
def test_assignments_stay(name, taped):
    module = Assigning()
    function = tf.function(getattr(module, name))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = function(x)
    if taped:
        tape.gradient(result, x)
    module.total.assign(tf.zeros([3]))
    jax_fn, params = tf2jax.convert(function, SPEC)
    result = function(x)
    found, params = jax.jit(jax_fn)(params, X)
    np.testing.assert_allclose(found, result, rtol=1e-6)
    np.testing.assert_allclose(params["total"], module.total, rtol=1e-6)


def printing(x, y):
    tf.print("seen", y)
    return x * 2.0, y + 1.0


def asserting(x, y):
    with tf.control_dependencies([tf.Assert(y[0] < 3.0, ["too large", y])]):
        y = tf.identity(y)
    return x * 2.0, y + 1.0


@pytest.mark.default_cases("asserting")
@pytest.mark.parametrize("step", [printing, asserting])
def test_prints_and_assertions_stay(step, capfd):
    def fn(x):
        return tf.while_loop(lambda x, _: small(x), step, [x, x * 0.0])[0]

    with tf2jax.override_config("enable_checkify_for_asserts", True):
        jax_fn = tf2jax.convert_functional(tf.function(fn), SPEC)
    if step is asserting:
        checked = checkify.checkify(jax.jit(jax_fn))
        checked(X)[0].throw()
        with pytest.raises(checkify.JaxRuntimeError, match="too large"):
            checked(X * 0.01)[0].throw()
        return
    jax.block_until_ready(jax.jit(jax_fn)(X))
    jax.effects_barrier()
    assert "seen" in "".join(capfd.readouterr())


@pytest.mark.full
def test_random_numbers_are_the_same():
    """Random numbers depend on the nodes that draw them, not on other nodes."""

    def fn(x):
        def step(x, y):
            return x + tf.random.uniform([3], 0.5, 1.0), costly(y) + tf.random.normal([3])

        return tf.while_loop(lambda x, _: small(x), step, [x, x])

    key = jax.random.key(3)
    both, first = (tf2jax.convert_functional(tf.function(f), SPEC)(X, rng=key) for f in (fn, lambda x: fn(x)[0]))
    np.testing.assert_array_equal(both[0], first)


@pytest.mark.full
def test_versions_of_a_function_have_names_of_their_own():
    jax_fn, _ = tf2jax.convert(tf.function(read_in_two_ways), SPEC)
    graph = graph_of(jax_fn)
    called = [name for name in graph.functions if "called" in name]
    assert len(called) > 1
    assert all(graph.functions[name].name == name for name in graph.functions)


def chains(depth, width=4):
    """Nested loops, each with one more live variable per visit of the enclosing ones."""

    def looped(depth, values):
        def step(*values):
            inner = looped(depth - 1, list(values)) if depth else [v * 1.5 for v in values]
            return [*inner[1:], inner[0] + 1.0]

        return tf.while_loop(lambda first, *_: first < 10.0, step, values)

    return lambda x: looped(depth, [x[i % 3] + float(i) for i in range(width)])[0]


@pytest.mark.full
@pytest.mark.parametrize("budget", [0, dead_values._MAX_VISITS_PER_NODE])
def test_work_is_bounded(monkeypatch, budget):
    """Beyond the budget, the graph stays unchanged."""
    monkeypatch.setattr(dead_values, "_MAX_VISITS_PER_NODE", budget)
    function = tf.function(chains(3))
    np.testing.assert_allclose(tf2jax.convert_functional(function, SPEC)(X), function(X), rtol=1e-5)
    jaxpr = jax.make_jaxpr(tf2jax.convert_functional(tf.function(unread_chain), SPEC))(X)
    assert ("igamma" in str(jaxpr)) == (budget == 0)


def _ref(name, index=0):
    return ir.TensorRef(name, index)


def _malformed(op, inputs, read, **functions):
    """Return a graph with one node, of which result ``read`` is returned."""
    attrs = {name: ir.FunctionRef(function) for name, function in functions.items()}
    dtype = np.dtype(np.float32)
    node = ir.Node("node", op, tuple(map(_ref, inputs)), (None,), (), attrs, output_dtypes=(dtype, dtype))
    args = (ir.Argument("x", dtype), ir.Argument("y", dtype))
    one = ir.Function("one", args, (), (_ref("x"),))
    two = ir.Function("two", args, (), (_ref("gone"), _ref("x", 3)))
    main = ir.Function("main", args, (node,), (_ref("node", read),))
    return ir.Graph(main, {"one": one, "two": two})


MALFORMED = {
    "no such function": _malformed("PartitionedCall", "xy", 0, f="gone"),
    "no such result": _malformed("PartitionedCall", "xy", 5, f="two"),
    "results of what is not there": _malformed("PartitionedCall", "xy", 0, f="two"),
    "too few inputs": _malformed("PartitionedCall", "x", 0, f="two"),
    "inputs that are not there": _malformed("PartitionedCall", ["gone", "x"], 1, f="two"),
    "too few results": _malformed("StatelessIf", "xxy", 0, then_branch="one", else_branch="two"),
    "no condition": _malformed("While", "xy", 0, body="two"),
    "condition as body": _malformed("While", "xy", 0, cond="two", body="two"),
    "body of fewer results": _malformed("While", "xy", 0, cond="two", body="one"),
    "loop of what is not there": _malformed("While", "xy", 1, cond="one", body="two"),
}


@pytest.mark.full_cases("loop of what is not there")
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_graphs_stay_unchanged(name):
    main = dead_values.run(MALFORMED[name], Config()).main
    assert [str(ref) for ref in main.outputs] == [str(ref) for ref in MALFORMED[name].main.outputs]
