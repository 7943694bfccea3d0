"""Values that are static at conversion, through calls, branches and loops."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import UnsupportedOpsError
from tf2jax_lite.lowering.interpreter.constant_folding import FoldingBudget
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.static_values import StaticValues, runtime_dependent
from tf2jax_lite.pipeline.convert import graph_of

WORDS = np.array([b" a", b"bcd ", b"2"], object)


def letters(words):
    return tf.strings.length(tf.strings.strip(words))


inner = tf.function(letters, autograph=False)


def counted(i, total, words, x):
    return i + 1, total + letters(words)[1] * x, words, x


STATIC = {
    "a call": lambda x: inner(WORDS) * x,
    "several calls": lambda x: (inner(WORDS) + inner(WORDS[::-1])) * x,
    "calls in calls": lambda x: tf.function(lambda w: inner(tf.strings.upper(w)), autograph=False)(WORDS) * x,
    "branches": lambda x: tf.cond(x > 0, lambda: letters(tf.identity(WORDS)), lambda: x + letters(WORDS[::-1])),
    "captured by branches": lambda x: (
        lambda w: tf.switch_case(x, [lambda: letters(w), lambda: inner(w) * x, lambda: letters(w) + 1])
    )(tf.strings.upper(WORDS)),
    "a static choice": lambda x: x * letters(tf.cond(tf.constant(True), lambda: WORDS, lambda: WORDS[::-1])),
    "kept in a loop": lambda x: tf.while_loop(lambda i, *_: i < 3, counted, (0, 0, tf.identity(WORDS), x))[1],
    "dynamic trip count": lambda x: tf.while_loop(lambda i, *_: i < x, counted, (0, 0, tf.identity(WORDS), x))[1],
    "invariant of a loop": lambda x: (
        letters(tf.while_loop(lambda i, w: i < 3, lambda i, w: (i + 1, w), (0, tf.identity(WORDS)))[1]) * x
    ),
    "counted by a loop": lambda x: tf.while_loop(
        lambda i, _: i < 3, lambda i, n: (i + 1, n + letters(tf.gather(WORDS, i)) * x), (0, 0)
    )[1],
    "elements in a loop": lambda x: tf.map_fn(lambda w: letters(w) * x, WORDS, fn_output_signature=tf.int32),
    "static trip count by strings": lambda x: (
        x
        * tf.while_loop(
            lambda i, w: letters(w) < 9, lambda i, w: (i + 1, w + "a"), (0, tf.strings.as_string(tf.constant(0)))
        )[0]
    ),
    "made in a loop": lambda x: (
        letters(tf.while_loop(lambda i, w: i < 3, lambda i, w: (i + 1, tf.strings.upper(w) + "a"), (0, WORDS))[1]) * x
    ),
}
DYNAMIC = {
    "an argument": lambda x: letters(tf.strings.as_string(x)),
    "one call of two": lambda x: inner(WORDS) + inner(tf.strings.as_string([x, x, x])),
    "counted by a loop with a data-dependent trip count": lambda x: tf.while_loop(
        lambda i, _: i < x, lambda i, n: (i + 1, n + letters(tf.gather(WORDS, i))), (0, 0)
    )[1],
    "a data-dependent choice": lambda x: letters(tf.cond(x > 0, lambda: WORDS, lambda: WORDS[::-1])),
}


@pytest.mark.default_cases("elements in a loop")
@pytest.mark.parametrize("name", STATIC)
def test_static_inputs_are_evaluated_at_conversion(name):
    function = tf.function(STATIC[name], autograph=False)
    converted = tf2jax.convert_functional(function, tf.TensorSpec([], tf.int32))
    for run in (converted, jax.jit(converted)):
        np.testing.assert_array_equal(run(np.int32(2)), function(tf.constant(2)))


@pytest.mark.parametrize("name", DYNAMIC)
def test_runtime_dependent_inputs_raise(name):
    function = tf.function(DYNAMIC[name], autograph=False)
    with pytest.raises(UnsupportedOpsError, match="StringStrip: node"):
        tf2jax.convert_functional(function, tf.TensorSpec([], tf.int32))


def test_loops_that_are_too_long_to_unroll_raise():
    words = np.repeat(WORDS, 200)
    function = tf.function(
        lambda x: tf.map_fn(lambda w: letters(w) * x, words, fn_output_signature=tf.int32), autograph=False
    )
    with pytest.raises(ValueError, match="element of a list of strings is taken at an index that is not known"):
        jax.jit(tf2jax.convert_functional(function, tf.TensorSpec([], tf.int32)))(np.int32(2))


@pytest.mark.full
def test_evaluation_by_tensorflow_spends_many_steps(monkeypatch):
    """An op that TensorFlow evaluates costs more of the budget, by size."""
    spent = []
    spend = FoldingBudget.spend
    monkeypatch.setattr(FoldingBudget, "spend", lambda self, steps: (spent.append(steps), spend(self, steps))[1])
    function = tf.function(
        lambda x: (
            tf.while_loop(lambda i, w: letters(w) < 200, lambda i, w: (i + 1, w + "a"), (0, tf.constant("")))[0] * x
        ),
        autograph=False,
    )
    result = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec([], tf.int32)))(np.int32(2))
    np.testing.assert_array_equal(result, function(2))
    assert sum(steps > 50 for steps in spent) > 150 and max(spent) == 50 + 200 // 8


@pytest.mark.parametrize("callees", [4, 40])
def test_a_caller_is_analyzed_once_for_all_its_callees(callees, monkeypatch):
    """Results of all callees change: the caller's analysis must not repeat for each."""
    visited = []
    visit = StaticValues._visit
    monkeypatch.setattr(
        StaticValues, "_visit", lambda self, function: (visited.append(function.name), visit(self, function))[1]
    )

    @tf.function(autograph=False)
    def sums(x):
        for i in range(callees):
            x = tf.function(lambda y, i=i: y * i + y, autograph=False)(x)
        return x

    graph = graph_of(tf2jax.convert_functional(sums, tf.TensorSpec([], tf.int32)))
    visited.clear()
    found = runtime_dependent(graph, registry.ops_in_force(), {"Mul"})
    assert len({function for function, _ in found}) == callees == len(visited) - visited.count(graph.main.name)
    assert visited.count(graph.main.name) == 2
