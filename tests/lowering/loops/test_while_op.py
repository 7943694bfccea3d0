"""Bounded loops: masked scans, checkpoints, gradients, lists, randomness."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import converted
from tf2jax_lite.errors import LoweringError, ReverseModeError
from tf2jax_lite.jaxprs.compat import scan_counts
from tf2jax_lite.lowering.interpreter import constant_folding

X = np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3)
SPEC = tf.TensorSpec([2, 3])


def convert(fn, *specs, **options):
    return converted(fn, *(specs or (SPEC,)), **options)


def total(results):
    return sum(jnp.sum(r.astype(jnp.float32)) for r in jax.tree.leaves(results))


def tf_gradient(fn, x):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = sum(tf.reduce_sum(tf.cast(r, tf.float32)) for r in tf.nest.flatten(fn(x)))
    return tape.gradient(loss, x)


@tf.function
def with_maximum(x):
    return tf.while_loop(
        lambda x: tf.reduce_sum(x) < 10.0, lambda x: (x + tf.sin(x) + 1.0,), [x], maximum_iterations=20
    )


@tf.function
def with_break(x):
    n = tf.constant(0)
    for i in tf.range(12):
        if tf.reduce_sum(x) > 5.0:
            break
        x = x + 0.3 * x * x
        n += i
    return x, n


@tf.function
def with_result_of_break(x):
    found = tf.zeros_like(x)
    for i in tf.range(6):
        x = x * 1.1 + 0.1 * tf.cast(i, tf.float32)
        if tf.reduce_sum(x) > 2.0:
            found = x * 3.0
            break
    return found, x


@pytest.mark.full
@pytest.mark.parametrize("fn", [with_maximum, with_break, with_result_of_break], ids=["maximum", "break", "result"])
def test_masked_scan(fn):
    jax_fn = convert(fn, loop_bound="scan")
    xs = np.stack([X, X * 0.1, X + 20.0])  # the last ends at once
    values, gradients = jax.jit(lambda xs: (jax.vmap(jax_fn)(xs), jax.vmap(jax.grad(lambda x: total(jax_fn(x))))(xs)))(
        xs
    )
    for i, x in enumerate(xs):
        for e, a in zip(tf.nest.flatten(fn(x)), jax.tree.leaves(values), strict=True):
            np.testing.assert_allclose(a[i], e, rtol=1e-5)
        np.testing.assert_allclose(gradients[i], tf_gradient(fn, x), rtol=1e-4)
    assert "while[" not in str(jax.make_jaxpr(jax_fn)(X))


@pytest.mark.full
@pytest.mark.parametrize("mapped", [False, True])
def test_what_comes_after_the_end_does_not_poison_the_gradient(mapped):
    """Past the end the body takes a negative's root, with derivative NaN."""

    @tf.function
    def fn(x):
        def body(i, x):
            return i + 1, x + 0.2 + 0.1 * tf.sqrt(1.0 - tf.reduce_sum(x))

        return tf.while_loop(lambda i, x: i < 10 and tf.reduce_sum(x) < 1.0, body, [0, x])[1]

    jax_fn = convert(fn, loop_bound="scan")
    gradient = jax.grad(lambda x: total(jax_fn(x)))
    actual = jax.jit(jax.vmap(gradient))(np.stack([X, X * 0.5]))[0] if mapped else jax.jit(gradient)(X)
    np.testing.assert_allclose(actual, tf_gradient(fn, X), rtol=1e-4)


@pytest.mark.full
def test_captured_values_and_variables_in_a_masked_scan():
    """Constants and written variables are frozen at the end, with finite gradients."""
    scale, count = tf.Variable(1.5, name="scale"), tf.Variable(0.0, name="count", trainable=False)

    @tf.function
    def fn(x):
        for _ in tf.range(9):
            if tf.reduce_sum(x) > 1.0:
                break
            x = x + 0.03 * scale * tf.sqrt(2.5 - tf.reduce_sum(x))
            count.assign_add(1.0)
        return tf.reduce_sum(x)

    with tf2jax.override_config("loop_bound", "scan"):
        jax_fn, params = tf2jax.convert(fn, SPEC)
    gradients, updated = jax.jit(jax.vmap(jax.grad(lambda p, x: jax_fn(p, x), has_aux=True), in_axes=(None, 0)))(
        params, np.stack([X, X + 0.1])
    )
    with tf.GradientTape() as tape:
        loss = fn(X)
    np.testing.assert_allclose(gradients["scale"][0], tape.gradient(loss, scale), rtol=1e-4)
    assert updated["count"][0] == count.numpy() > 1
    assert np.isfinite(gradients["scale"]).all()


@pytest.mark.full
def test_random_numbers_do_not_depend_on_the_kind_of_loop():
    """Masked scans draw while loops' numbers: keys fold the iteration in."""

    @tf.function
    def fn(x):
        for _ in tf.range(8):
            if tf.reduce_sum(x) > 4.0:
                break
            x = x + tf.random.uniform([2, 3])
        return x

    key = jax.random.key(0)
    plain, masked = (jax.jit(convert(fn, loop_bound=kind))(X, rng=key) for kind in ("while", "scan"))
    np.testing.assert_array_equal(plain, masked)


# ---- reverse mode through loops with data-dependent trip counts, without any option ----


@tf.function
def without_maximum(x):
    return tf.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: (x + 1.0 + tf.sin(x),), [x])


@tf.function
def within_a_loop(x):
    total = tf.zeros([])
    for i in tf.range(3):
        y = x * (tf.cast(i, tf.float32) + 1.0)
        while tf.reduce_sum(y * y) > 0.3:
            y = y * 0.8 - 0.01 * tf.sin(y)
        total += tf.reduce_sum(y * x)
    return total


@tf.function
def one_in_another(x):
    while tf.reduce_sum(x) < 40.0:
        y = x
        while tf.reduce_sum(y) < 5.0:
            y = y * y * 0.1 + y + 0.5
        x = x + y
    return x


@tf.function
def long_and_short(x):
    """About 2,000 iterations, or none: more than states are kept at once."""
    return tf.while_loop(
        lambda i, x: tf.reduce_max(x) > 0.3, lambda i, x: (i + 1, x * 0.999 + 1e-4 * tf.sin(x)), [0, x * 2.0]
    )


def exponential(x):
    return tf.linalg.expm(x[:, :2] * 5.0)


@tf.function
def written_lists(x):
    """Integers and a list are carried, too."""
    parts = tf.TensorArray(tf.float32, 12, element_shape=[2, 3])
    i = 0
    while i < 12 and tf.reduce_sum(x) < 30.0:
        x = x * 1.2 + 1.0
        parts = parts.write(i, tf.sin(x))
        i += 1
    return parts.stack(), i


@tf.function
def in_a_branch(x):
    if tf.reduce_sum(x) < 10.0:
        while tf.reduce_sum(x) < 7.0:
            x = x + tf.exp(-x)
        return x
    return x * 2.0


ENDED_BY_DATA = [
    with_maximum,
    with_break,
    with_result_of_break,
    without_maximum,
    within_a_loop,
    one_in_another,
    long_and_short,
    exponential,
    written_lists,
    in_a_branch,
]


@pytest.mark.default_cases("with_maximum")
@pytest.mark.parametrize("fn", ENDED_BY_DATA, ids=lambda fn: getattr(fn, "__name__", "") or fn.python_function.__name__)
def test_gradients_backwards_forwards_and_of_many(fn):
    function = tf.function(fn)
    jax_fn = convert(function)
    xs = np.stack([X, X * 0.1, X + 20.0 * (fn is not exponential)])
    loss = lambda x: total(jax_fn(x))  # noqa: E731
    gradients, summed = jax.jit(
        lambda xs: (jax.vmap(jax.grad(loss))(xs), jax.grad(lambda xs: jnp.sum(jax.vmap(loss)(xs)))(xs))
    )(xs)
    forwards = jax.jit(jax.jacfwd(loss))(X)
    for i, x in enumerate(xs):
        expected = tf_gradient(function, x)
        np.testing.assert_allclose(gradients[i], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(summed[i], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(X), tf_gradient(function, X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(forwards, tf_gradient(function, X), rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_gradients_of_weights_and_assigned_variables():
    """Read values have gradients; assigned variables end as in TensorFlow."""
    weight, count = tf.Variable(0.7, name="weight"), tf.Variable(0.0, name="count", trainable=False)

    @tf.function
    def fn(x):
        while tf.reduce_sum(x) < 9.0:
            x = x + weight * tf.sigmoid(x)
            count.assign_add(1.0)
        return tf.reduce_sum(x * x)

    jax_fn, params = tf2jax.convert(fn, SPEC)
    gradients, updated = jax.jit(jax.grad(jax_fn, has_aux=True))(params, X)
    with tf.GradientTape() as tape:
        loss = fn(X)
    np.testing.assert_allclose(gradients["weight"], tape.gradient(loss, weight), rtol=1e-4)
    assert updated["count"] == count.numpy() > 1


@pytest.mark.full
def test_random_numbers_are_the_same_going_backwards():
    @tf.function
    def fn(x):
        for _ in tf.range(8):
            if tf.reduce_sum(x) > 4.0:
                break
            x = x + tf.random.uniform([2, 3]) * x * x + 0.3
        return x

    key = jax.random.key(3)
    of = {kind: convert(fn, loop_bound=kind) for kind in ("while", "scan")}
    plain, masked = (jax.jit(jax.grad(lambda x, fn=f: total(fn(x, rng=key))))(X) for f in of.values())
    np.testing.assert_allclose(plain, masked, rtol=1e-5)


@pytest.mark.full
def test_gradients_of_gradients():
    jax_fn = convert(without_maximum)
    loss = lambda x: total(jax_fn(x)) ** 2  # noqa: E731
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            value = tf.reduce_sum(without_maximum(x)) ** 2
        gradient = inner.gradient(value, x)
    expected = tf.reshape(outer.jacobian(gradient, x, experimental_use_pfor=False), [6, 6])
    for order in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f)), lambda f: jax.jacrev(jax.jacfwd(f))):
        np.testing.assert_allclose(np.reshape(jax.jit(order(loss))(X), (6, 6)), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.full
def test_gradients_of_custom_gradients():
    """Of which second derivatives are not symmetric."""

    @tf.custom_gradient
    def scaled(x, y):
        def gradient(dy):
            return tf.sin(y) * x * dy, tf.zeros_like(y)

        return x * y, gradient

    @tf.function
    def fn(x):
        y = x[1]
        return tf.while_loop(lambda z: z < 3.0, lambda z: [scaled(z, y) * 1.5], [x[0]])[0]

    x = tf.constant([1.1, 0.9])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            value = fn(x)
        gradient = inner.gradient(value, x)
    jax_fn = tf2jax.convert_functional(fn, jax.ShapeDtypeStruct((2,), jnp.float32))
    np.testing.assert_allclose(jax.grad(jax_fn)(x.numpy()), gradient, rtol=1e-5)
    expected = outer.jacobian(gradient, x)
    np.testing.assert_allclose(jax.jit(jax.jacrev(jax.grad(jax_fn)))(x.numpy()), expected, rtol=1e-5)


@pytest.mark.full
def test_iterations_with_effects_do_not_run_again():
    """They print: gradients backwards raise, and forward mode works."""

    @tf.function
    def fn(x):
        def body(x):
            tf.print(tf.reduce_sum(x))
            return (x + tf.sin(x) + 1.0,)

        return tf.while_loop(lambda x: tf.reduce_sum(x) < 10.0, body, [x], maximum_iterations=20)

    jax_fn = convert(fn)
    with pytest.raises(
        ReverseModeError, match=r"'while'.*effects.*At most 20 iterations.*'loop_bound', 'scan'.*jax\.jvp"
    ) as info:
        jax.grad(lambda x: total(jax_fn(x)))(X)
    assert isinstance(info.value, LoweringError) and info.value.node == "while"
    tangent = jax.jit(lambda x: jax.jvp(lambda x: total(jax_fn(x)), (x,), (jnp.ones_like(x),))[1])(X)
    np.testing.assert_allclose(tangent, np.sum(tf_gradient(fn, X)), rtol=1e-4)
    # What does not pass through the loop has its gradient.
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(x) + total(jax_fn(jax.lax.stop_gradient(x))))(X), 1.0)


@pytest.mark.default_cases("segments")
@pytest.mark.parametrize("mode", ["body", "segments"])
def test_checkpoint(mode):
    @tf.function
    def fn(x):
        for i in tf.range(11):
            x = tf.sin(x) + 0.1 * tf.cast(i, tf.float32) * x
        return x

    jax_fn = convert(fn, loop_checkpoint=mode)
    gradient = jax.grad(lambda x: total(jax_fn(x)))
    np.testing.assert_allclose(jax.jit(gradient)(X), tf_gradient(fn, X), rtol=1e-4)
    np.testing.assert_allclose(jax_fn(X), fn(X), rtol=1e-5)
    # What is kept from the forward pass: "body" keeps one carry for each iteration, "segments" 3 carries of 3 segments
    # and those of the 2 iterations that are left; without either there are two more arrays for each iteration.
    kept = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(lambda x: total(jax_fn(x)), x)[1], X))
    carries = sum(leaf.size for leaf in kept if leaf.dtype == np.float32) / X.size
    assert carries <= {"body": 12, "segments": 7}[mode]


@pytest.mark.full
@pytest.mark.parametrize("options", [{"dynamic_shape_bound": 16}, {"dynamic_shape_bound": 1}])
def test_lists_in_loops_of_unknown_length(options):
    """TensorFlow's loop gradients push to lists; a low capacity gives NaN."""

    @tf.function
    def fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            while tf.reduce_sum(y) < 10.0:
                y = tf.exp(0.1 * y) * y * 1.3 + 1.0
        return tape.gradient(y, x)

    actual = jax.jit(convert(fn, **options))(X)
    if options["dynamic_shape_bound"] == 16:
        np.testing.assert_allclose(actual, fn(X), rtol=1e-4)
    else:
        assert np.isnan(actual).all()
    with pytest.raises(LoweringError, match="dynamic_shape_bound"):
        jax.jit(convert(fn))(X)
    np.testing.assert_allclose(convert(fn)(X), fn(X), rtol=1e-4)  # outside jit nothing is unknown


@pytest.mark.full
def test_changing_shapes_are_refused_by_the_variable_s_name():
    @tf.function
    def fn(x):
        return tf.while_loop(
            lambda longer: tf.reduce_sum(longer) < 10.0,
            lambda longer: (tf.concat([longer, longer[:1]], 0),),
            [x],
            shape_invariants=[tf.TensorShape([None, 3])],
        )[0]

    x = np.ones([2, 3], np.float32)
    with pytest.raises(LoweringError, match=r"'while_placeholder' changes .* from float32\[2, 3\] to float32\[3, 3\]"):
        jax.jit(convert(fn))(x)
    np.testing.assert_array_equal(convert(fn)(x), fn(x))  # outside jit it is unrolled


@pytest.mark.full
def test_a_condition_may_ask_for_the_shape_of_what_does_not_change():
    def function(x):
        return tf.while_loop(lambda i, y: i < tf.shape(x)[0], lambda i, y: (i + 1, y * x[i]), (0, tf.ones(3)))[1]

    fn = tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec([None, 3]))
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: fn(x).sum()))(X), X[::-1], rtol=1e-6)


@pytest.mark.full
def test_trip_counts_need_only_what_the_condition_reads():
    """A big loop is counted by its counter, and scanned without it."""

    @tf.function
    def fn(x):
        return tf.while_loop(lambda i, x: i < 5000, lambda i, x: (i + 1, tf.cos(x)), [0, x])[1]

    jaxpr = jax.make_jaxpr(convert(fn))(X)
    (scan,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
    assert (scan.params["length"], *scan_counts(scan.params)) == (5000, 0, 1)
    assert [eqn.primitive.name for eqn in scan.params["jaxpr"].eqns] == ["cos"]


@tf.function
def one_loop_after_another(x):
    for _ in tf.range(100):
        x = tf.sin(x)
    for _ in tf.range(100):
        x = tf.cos(x)
    for _ in tf.range(100):
        x = tf.tanh(x)
    return x


@pytest.mark.default_cases("300-1")
@pytest.mark.parametrize(("steps", "counted"), [(1 << 20, 3), (500, 2), (300, 1), (100, 0)])
def test_counting_iterations_is_bounded_for_a_whole_trace(monkeypatch, steps, counted):
    """Counting stops after a budget for all loops; the others still run."""
    monkeypatch.setattr(constant_folding, "_MAX_STEPS", steps)
    fn = convert(one_loop_after_another)
    text = str(jax.make_jaxpr(fn)(X))
    assert (text.count("scan["), text.count("while[")) == (counted, 3 - counted)
    np.testing.assert_allclose(fn(X), one_loop_after_another(X), rtol=1e-5)


def _push(lst, value):
    return tf.raw_ops.TensorListPushBack(input_handle=lst, tensor=value)


def _pop(lst):
    lst, value = tf.raw_ops.TensorListPopBack(input_handle=lst, element_shape=[2, 3], element_dtype=tf.float32)
    return lst, tf.ensure_shape(value, [2, 3])


def _extended(step, x):
    """Make a list one element longer in each iteration."""
    lst = tf.raw_ops.EmptyTensorList(element_shape=[2, 3], max_num_elements=-1, element_dtype=tf.float32)
    body = lambda i, h, lst: (i + 1, *step(h, lst))  # noqa: E731
    _, h, lst = tf.while_loop(lambda i, *_: i < 4, body, (0, x, _push(lst, x)))
    return h + tf.reduce_sum(
        tf.raw_ops.TensorListStack(input_handle=lst, element_shape=[2, 3], element_dtype=tf.float32, num_elements=-1), 0
    )


def _taken_back(h, lst):
    lst, value = _pop(_push(_push(lst, tf.sin(h)), h * 2.0))
    lst, more = _pop(_push(_push(lst, value), h * 3.0))
    lst, value = _pop(lst)
    return value + more * 0.1, lst


def _taken_back_by_a_loop(h, lst):
    """Make a list longest after an inner loop, and before another one."""
    _, lst = tf.while_loop(lambda j, _: j < 3, lambda j, lst: (j + 1, _push(lst, h * tf.cast(j, tf.float32))), (0, lst))

    def take(j, h, lst):
        lst, value = _pop(lst)
        return j + 1, tf.tanh(h + value), lst

    return tf.while_loop(lambda j, *_: j < 2, take, (0, h, lst))[1:]


def _taken_back_before_a_loop(h, lst):
    h, lst = _taken_back(h, lst)
    lst, _ = _pop(lst)
    return h, tf.while_loop(lambda j, _: j < 2, lambda j, lst: (j + 1, _push(_pop(lst)[0], h)), (0, _push(lst, h)))[1]


@pytest.mark.full
@pytest.mark.parametrize("step", [_taken_back, _taken_back_by_a_loop, _taken_back_before_a_loop])
def test_lists_that_are_longer_within_an_iteration(step):
    fn = tf.function(lambda x: _extended(step, x), autograph=False)
    converted = convert(fn)
    np.testing.assert_allclose(jax.jit(converted)(X), fn(X), rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda x: total(converted(x))))(X)
    np.testing.assert_allclose(gradient, tf_gradient(fn, X), rtol=1e-4, atol=1e-5)


def _length(lst):
    return tf.raw_ops.TensorListLength(input_handle=lst)


def _read(lst, back=1):
    value = tf.raw_ops.TensorListGetItem(
        input_handle=lst, index=_length(lst) - back, element_shape=[2, 3], element_dtype=tf.float32
    )
    return tf.ensure_shape(value, [2, 3])


def _write(lst, index, value):
    return tf.raw_ops.TensorListSetItem(input_handle=lst, index=index, item=value, resize_if_index_out_of_bounds=True)


def _resize(lst, size):
    return tf.raw_ops.TensorListResize(input_handle=lst, size=size)


def _tried_twice(h, lst):
    """Another push goes onto a list that the iteration does not return."""
    longer = _push(_push(lst, tf.sin(h)), h * 0.7)
    return tf.tanh(_read(longer) + 0.3 * _read(longer, 2)), _push(lst, h * 0.5)


def _tried_where_data_says(h, lst):
    def tried():
        longer = _push(_push(_push(lst, tf.sin(h)), h * 0.7), h * 0.2)
        return _read(longer) + 0.3 * _read(longer, 2)

    return tf.tanh(h + tf.cond(tf.reduce_sum(h) > 0.1, tried, lambda: _read(lst))), _push(lst, h * 0.5)


def _tried_in_a_loop(h, lst):
    longer = tf.while_loop(
        lambda j, _: j < 3, lambda j, lst: (j + 1, _push(lst, h * tf.cast(j, tf.float32))), (0, lst)
    )[1]
    return tf.tanh(h + _read(longer) + 0.3 * _read(longer, 2)), _push(lst, h * 0.5)


def _tried_in_a_dynamic_loop(h, lst):
    def more(h, lst):
        longer = _push(_push(lst, h * 0.9), h * 0.4)
        return 0.5 * h + _read(longer, 2), _push(lst, h)

    h2, longer = tf.while_loop(lambda h, _: tf.reduce_sum(h * h) > 0.2, more, (h, lst), maximum_iterations=3)
    return tf.tanh(h2 + _read(longer)), _push(lst, h * 0.5)


def _written_at_its_end(h, lst):
    longer = _push(lst, tf.sin(h))
    longer = _write(longer, _length(longer), h * 0.7)
    return tf.tanh(_read(longer) + 0.3 * _read(longer, 2)), _push(lst, h * 0.5)


def _pushed_in_one_branch(h, lst):
    """Return a list of equal length from branches, longer inside one."""
    both = lambda: _taken_back(h, lst)  # noqa: E731
    h, lst = tf.cond(tf.reduce_sum(h) > 0.1, both, lambda: (h * 0.5 + _read(lst), _push(lst, h)))
    return tf.tanh(h), lst


def _pushed_more_in_one_branch(h, lst):
    more = lambda: _push(_push(lst, h * 0.5), h * 0.25)  # noqa: E731
    lst = tf.cond(tf.reduce_sum(h) > 0.1, more, lambda: _pop(_push(_push(lst, h), h * 2.0))[0])
    return tf.tanh(h + _read(_push(_push(lst, h * 0.1), h * 0.2), 2)), lst


def _extended_after_an_element_was_taken(h, lst):
    """Elements that are added unset are zeros, whatever was in their place."""
    shorter = _pop(lst)[0]
    extended = _resize(shorter, 12)
    at_the_end = tf.raw_ops.TensorListGetItem(
        input_handle=extended, index=_length(shorter), element_shape=[2, 3], element_dtype=tf.float32
    )
    return tf.tanh(h + tf.ensure_shape(at_the_end, [2, 3])), _push(lst, h * 0.5)


def _written_past_where_an_element_was_taken(h, lst):
    longer = _write(_pop(lst)[0], _length(lst), h)
    return tf.tanh(h + _read(longer, 2)), _push(lst, h * 0.5)


TEMPORARIES = [
    _tried_twice,
    _tried_where_data_says,
    _tried_in_a_loop,
    _tried_in_a_dynamic_loop,
    _written_at_its_end,
    _pushed_in_one_branch,
    _pushed_more_in_one_branch,
    _extended_after_an_element_was_taken,
    _written_past_where_an_element_was_taken,
]


def _sum_of(lst, bound=16):
    """Return the elements of a dynamic list, weighted by their indices."""
    indices = [tf.minimum(k, _length(lst) - 1) for k in range(bound)]
    values = [
        tf.raw_ops.TensorListGetItem(input_handle=lst, index=k, element_shape=[2, 3], element_dtype=tf.float32)
        for k in indices
    ]
    return tf.add_n([tf.ensure_shape(v, [2, 3]) * (1.0 + 0.1 * k) for k, v in enumerate(values)])


def _looped(step, go, x, **options):
    lst = tf.raw_ops.EmptyTensorList(element_shape=[2, 3], max_num_elements=-1, element_dtype=tf.float32)
    body = lambda i, h, lst: (i + 1, *step(h, lst))  # noqa: E731
    _, h, lst = tf.while_loop(go, body, (0, x, _push(_push(lst, x), x * 0.3)), **options)
    return h, _sum_of(lst), _length(lst)


ENDS = {
    "counted": (lambda i, *_: i < 4, {}),
    "maximum": (lambda i, h, _: tf.reduce_sum(h * h) < 5.5, {"maximum_iterations": 4}),
    "data": (lambda i, h, _: tf.cast(i, tf.float32) < 3.0 + tf.reduce_sum(h * h) * 0.01, {}),
}


@pytest.mark.default_cases("_tried_in_a_loop-maximum", "_extended_after_an_element_was_taken-data")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("step", TEMPORARIES, ids=lambda step: step.__name__)
def test_lists_that_are_not_carried_have_capacity(step, end):
    """A carried list's capacity was the returned one's: other pushes were lost."""
    go, options = ENDS[end]
    fn = tf.function(lambda x: _looped(step, go, x, **options), autograph=False)
    converted = convert(fn, **({"dynamic_shape_bound": 16} if end == "data" else {}))
    for x in (X, X + 0.2):
        for result, expected in zip(jax.jit(converted)(x), fn(x), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_elements_written_beyond_the_capacity_are_nan():
    """A traced index has no upper bound: a lost element is noticed."""

    def step(h, lst):
        return tf.tanh(_read(_write(lst, _length(lst) + tf.cast(h[0, 0] < 9.0, tf.int32) * 3, h))), _push(lst, h)

    fn = tf.function(lambda x: _looped(step, ENDS["counted"][0], x), autograph=False)
    h, elements, length = jax.jit(convert(fn))(X)
    assert np.isnan(h).all() and np.isnan(elements).any() and length == 6


def _emptied(h, lst):
    empty = tf.raw_ops.EmptyTensorList(element_shape=[2, 3], max_num_elements=-1, element_dtype=tf.float32)
    return tf.tanh(h + _read(lst)), _push(empty, h)


def _cut(h, lst):
    return tf.tanh(h + _read(lst)), _resize(_push(lst, h), 2)


def _pushed_after_an_element_was_taken(h, lst):
    shorter, value = _pop(lst)
    return tf.tanh(h + value), _push(_push(shorter, h), h * 0.5)


@pytest.mark.full
@pytest.mark.parametrize("end", ["maximum", "data"])
@pytest.mark.parametrize("step", [_emptied, _cut], ids=lambda step: step.__name__)
def test_lists_that_each_iteration_makes_shorter(step, end):
    """Their length is constant: they need no bound, and had no fixpoint."""
    go, options = ENDS[end]
    fn = tf.function(lambda x: _looped(step, go, x, **options), autograph=False)
    for result, expected in zip(jax.jit(convert(fn))(X), fn(X), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    "step, end, capacity",
    [
        (lambda h, lst: (h * 0.5, _push(lst, h)), "counted", 6),
        (lambda h, lst: (h * 0.5, _push(lst, h)), "maximum", 6),
        (_taken_back, "counted", 8),
        (_taken_back, "maximum", 8),
        (_pushed_after_an_element_was_taken, "maximum", 6),
    ],
)
def test_carried_lists_do_not_grow_within_an_iteration(step, end, capacity):
    go, options = ENDS[end]
    fn = tf.function(lambda x: _looped(step, go, x, **options)[1:], autograph=False)
    text = str(jax.make_jaxpr(convert(fn))(X))
    body = text[text.index("scan[" if end == "counted" else "while[") :]
    assert f"f32[{capacity},2,3]" in text and f"f32[{capacity + 1},2,3]" not in text
    assert "concatenate" not in body and "pad" not in body


@pytest.mark.full
def test_elements_past_a_bound_that_are_taken_back_are_nan():
    """A list may outgrow its bound, and be no longer than it in the end."""

    def body(i, h, lst):
        push = lambda: (h, _push(lst, h))  # noqa: E731

        def pop():
            shorter, value = _pop(lst)
            return h * 0.5 + value, shorter

        return i + 1, *tf.cond(i < n, push, pop)

    n = 4
    go = lambda i, h, _: tf.cast(i, tf.float32) < 7.0 + tf.reduce_sum(h * h) * 0.0  # noqa: E731

    @tf.function(autograph=False)
    def fn(x):
        lst = tf.raw_ops.EmptyTensorList(element_shape=[2, 3], max_num_elements=-1, element_dtype=tf.float32)
        return tf.while_loop(go, body, (0, x, _push(lst, x)))[1]

    np.testing.assert_allclose(jax.jit(convert(fn, dynamic_shape_bound=5))(X), fn(X), rtol=1e-5)
    assert np.isnan(jax.jit(convert(fn, dynamic_shape_bound=4))(X)).all()
