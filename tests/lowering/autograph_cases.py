"""Functions with control flow of every kind, for test_autograph.py.

Each takes ``x``, float32 of shape [2, 3], and perhaps an int32 ``n``.
"""

import tensorflow as tf

F32 = tf.float32


def _f(i):
    return tf.cast(i, F32)


# ---- for and while ----


def for_over_range(x):
    for i in tf.range(4):
        x = tf.sin(x) + _f(i)
    return x


def for_over_rows(x):
    total = tf.zeros([3])
    for row in x:
        total += row * row
    return total


def for_over_range_with_step(x):
    for i in tf.range(10, 0, -3):
        x = x * 0.9 + _f(i)
    return x


def for_over_shape(x):
    for i in tf.range(tf.shape(x)[1]):
        x = x + x[:, i : i + 1] * 0.1
    return x


def while_counting_down(x):
    i = tf.constant(10)
    while i > 0:
        x = x * 0.9 + _f(i)
        i -= 3
    return x, i


def while_with_float_counter(x):
    t = tf.constant(0.0)
    while t < 1.0:
        x = x * 0.9 + t
        t += 0.125
    return x


def while_with_three_conditions(x):
    i, j = tf.constant(0), tf.constant(20.0)
    while i < 10 and j > 3.0 and i * i < 50:
        x = x + _f(i)
        i += 1
        j = j * 0.8
    return x, i, j


def collatz(x):
    n, steps = tf.constant(27), tf.constant(0)
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
        x = x * 0.99
    return x, steps


def while_flag(x):
    go, i = tf.constant(True), tf.constant(0)
    while go:
        x = x * 1.1
        i += 1
        go = i < 4
    return x


def nested_for(x):
    for i in tf.range(3):
        for j in tf.range(i):
            x = tf.sin(x) + _f(i * j)
    return x


def inner_loop_counts_for_the_outer(x):
    n = tf.constant(0)
    while n < 20:
        k = tf.constant(0)
        while k < 3:
            k += 1
            n += k
        x = x + _f(n)
    return x, n


def static_vector_that_grows(x):
    v, i = tf.constant([1.0]), tf.constant(0)
    while i < 4:
        tf.autograph.experimental.set_loop_options(shape_invariants=[(v, tf.TensorShape([None]))])
        v = tf.concat([v, v[-1:] * 2.0], 0)
        i += 1
    return x * tf.reduce_sum(v)


# ---- break, continue, return ----


def break_on_counter(x):
    for i in tf.range(10):
        if i > 3:
            break
        x = x + 0.3
    return x


def continue_on_data(x):
    total = tf.zeros_like(x)
    for _ in tf.range(6):
        x = x * 1.2
        if x[0, 0] < -1.5:
            continue
        total += x
    return total


def early_return(x):
    if tf.reduce_sum(x) > -100.0:
        return x * 2.0
    x = x + 1.0
    return tf.sin(x)


def loop_in_branch_in_nested_function(x):
    def grow(y, times):
        for _ in tf.range(times):
            y = y + tf.sin(y)
        return y

    return grow(x, 3) if tf.reduce_sum(x) < 100.0 else -x


def python_list(x):
    items = [x]
    for _ in range(3):
        items.append(items[-1] * 2.0)
    return tf.stack(items)


# ---- functional forms ----


def map_fn(x):
    return tf.map_fn(lambda r: (r * 2.0, tf.reduce_sum(r)), x, fn_output_signature=(F32, F32))


def scan(x):
    return tf.scan(lambda a, b: a * 0.5 + b, x)


def scan_backwards(x):
    return tf.scan(lambda a, b: a * 0.5 + b, x, reverse=True, initializer=tf.ones([3]))


def folds(x):
    left = tf.foldl(lambda a, b: a + tf.sin(b), x)
    return left, tf.foldr(lambda a, b: a * 0.3 + tf.sin(b), x, initializer=tf.zeros([3]))


def vectorized_map(x):
    return tf.vectorized_map(lambda r: tf.reduce_sum(tf.sin(r)) * r, x)


def while_loop(x):
    return tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, tf.tanh(x) * 1.5), [0, x])


def while_loop_that_only_maximum_iterations_ends(x):
    return tf.while_loop(lambda x: tf.constant(True), lambda x: (x * 1.1,), [x], maximum_iterations=5)


def while_loop_with_shape_invariants(x):
    return tf.while_loop(
        lambda i, x: i < 3,
        lambda i, x: (i + 1, tf.concat([x, x[:1]], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 3])],
    )[1]


def while_loop_on_its_own_shape(x):
    return tf.while_loop(
        lambda y: tf.shape(y)[0] < 7,
        lambda y: (tf.concat([y, y[:1] * 2.0], 0),),
        [x],
        shape_invariants=[tf.TensorShape([None, 3])],
    )


def while_loop_that_shrinks(x):
    return tf.while_loop(
        lambda y: tf.shape(y)[1] > 1, lambda y: (y[:, 1:] * 2.0,), [x], shape_invariants=[tf.TensorShape([2, None])]
    )


# ---- branches ----


def branch_on_data(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.exp(x), lambda: -x)


def branches_of_different_shapes_on_a_shape(x):
    return x[:1] if tf.shape(x)[0] > 5 else tf.concat([x, x], 0)


def branches_of_different_shapes_on_a_counter(x):
    y = x[:, :1]
    for i in tf.range(3):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(y, tf.TensorShape([2, None]))])
        if i == 1:
            y = tf.concat([y, x], 1)
        else:
            y = tf.concat([y, x[:, :1]], 1)
    return y


def switch_case_in_a_loop(x):
    total = tf.zeros_like(x)
    for i in tf.range(4):  # 2 and 3 are out of range: the last branch
        inner = lambda: tf.cond(x[0, 0] > 0.0, lambda: x, lambda: x * 2.0)  # noqa: E731
        total += tf.switch_case(i, [inner, lambda: x * 3.0])
    return total


def case_by_predicates(x):
    s = tf.reduce_sum(x)
    return tf.case([(s > 5.0, lambda: x), (s > -5.0, lambda: x * x)], default=lambda: -x)


# ---- TensorArray ----


def array_of_dynamic_size(x):
    array = tf.TensorArray(F32, 0, dynamic_size=True, clear_after_read=False)
    for i in tf.range(4):
        array = array.write(i, x * _f(i))
    return array.stack(), array.read(1), array.read(1), array.size()


def array_with_gaps(x):
    array = tf.TensorArray(F32, 4, element_shape=[3])
    for i in tf.range(2):
        array = array.write(i * 2, x[i])
    return array.stack()


def array_of_unequal_elements(x):
    array = tf.TensorArray(F32, 3, infer_shape=False)
    array = array.write(0, x[:1]).write(1, x).write(2, x[:0])
    return array.concat()


def array_split_unequally(x):
    array = tf.TensorArray(F32, 2, infer_shape=False, element_shape=[None, 3]).split(tf.concat([x, x], 0), [1, 3])
    return array.read(0), array.read(1), array.concat()


def array_unstack_gather_scatter(x):
    rows = tf.TensorArray(F32, 2).unstack(x)
    other = tf.TensorArray(F32, 4).scatter([3, 1], x * 2.0)
    other = other.write(0, x[0]).write(2, x[1])
    return rows.gather([1, 0]), other.stack(), rows.read(0)


def arrays_that_grow_in_turn(x):
    even = tf.TensorArray(F32, 0, dynamic_size=True, element_shape=[3])
    odd = tf.TensorArray(F32, 0, dynamic_size=True, element_shape=[3])
    for i in tf.range(5):
        if i % 2 == 0:
            even = even.write(even.size(), x[0] * _f(i))
        else:
            odd = odd.write(odd.size(), x[1] + _f(i))
    return even.stack(), odd.stack()


def array_written_on_data(x):
    array = tf.TensorArray(F32, 4, element_shape=[3])
    for i in tf.range(4):
        if tf.reduce_sum(x) + _f(i) > 1.0:
            array = array.write(i, x[0] * _f(i))
    return array.stack()


def arrays_in_while(x):
    a = tf.TensorArray(F32, 0, dynamic_size=True)
    b = tf.TensorArray(tf.int32, 0, dynamic_size=True)
    i = 0
    while i < 4:
        a = a.write(i, x[0] * 2.0)
        b = b.write(b.size(), i * i)
        i += 1
    return a.stack(), b.stack()


# ---- other things inside bodies ----


def custom_gradient_in_a_loop(x):
    @tf.custom_gradient
    def square(y):
        return y * y, lambda dy: dy * 0.5 * y

    for _ in tf.range(3):
        x = square(x) + 0.1
    return x


def assertions_in_a_loop(x):
    for i in tf.range(3):
        tf.debugging.assert_less(i, 5)
        tf.debugging.assert_greater(tf.reduce_sum(x), -1e6)
        x = x * 1.5
    return x


DIFFERENTIABLE = [f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == __name__]
DIFFERENTIABLE.remove(_f)


# ---- ended by data: no gradient goes backwards without a bound, and none is asked for here ----


def while_on_data(x):
    n = 0
    while tf.reduce_sum(x) < 20.0:
        x = x + 1.5
        n += 1
    return x, n


def while_loop_with_maximum(x):
    return tf.while_loop(lambda x: tf.reduce_sum(x) < 10.0, lambda x: (x + 1.0,), [x], maximum_iterations=20)


def break_on_data(x):
    seen = tf.TensorArray(F32, 0, dynamic_size=True, element_shape=[3])
    for i in tf.range(10):
        if tf.reduce_sum(x) > 5.0:
            break
        seen = seen.write(i, x[0])
        x = x + 0.3
    return x, seen.size()


def nested_while_on_data(x):
    i = 0
    while i < 3:
        while tf.reduce_sum(x) < _f(i):
            x = x + 0.5
        i += 1
    return x


ENDED_BY_DATA = [while_on_data, while_loop_with_maximum, break_on_data, nested_while_on_data]


# ---- ended by an argument ----


def range_of_argument(x, n):
    for i in tf.range(n):
        x = x * 1.1 + _f(i)
    return x


def range_from_argument(x, n):
    for i in tf.range(n, 20, 3):
        x = x * 1.1 + _f(i)
    return x


def array_filled_up_to_argument(x, n):
    array = tf.TensorArray(F32, 5, element_shape=[2, 3])
    for i in tf.range(n):
        array = array.write(i, x * _f(i))
    return array.stack()


def switch_out_of_range(x, n):
    return tf.switch_case(n, [lambda: x + 1.0, lambda: x * 3.0, lambda: tf.tanh(x)])


ENDED_BY_ARGUMENT = [range_of_argument, range_from_argument, array_filled_up_to_argument, switch_out_of_range]
