"""A writer of jax2tf's graphs before XlaCallModule: an op a primitive.

jax dropped that writer, and such SavedModels are still served. Only for tests: it takes what they use.
"""

import functools

import jax
import numpy as np
import tensorflow as tf
from jax import lax
from tensorflow.compiler.tf2xla.ops import gen_xla_ops as xla
from tensorflow.compiler.xla import xla_data_pb2

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Literal, scan_counts

RULES = {}


def convert(fn):
    """Return ``fn`` as a TensorFlow function of flat arrays that gives a list."""

    def run(*args):
        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype.as_numpy_dtype) for a in args]
        closed = jax.make_jaxpr(fn)(*specs)
        with tf.name_scope("jax2tf_fn_"):
            return evaluate(closed.jaxpr, closed.consts, *args)

    return run


def evaluate(jaxpr, consts, *args):
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(tf.constant, consts), *args], strict=True))

    def read(var):
        if isinstance(var, Literal):
            return tf.constant(np.asarray(var.val, var.aval.dtype))
        return env[var]

    for eqn in jaxpr.eqns:
        rule = RULES[eqn.primitive.name]
        found = rule(eqn, *map(read, eqn.invars), **eqn.params)
        found = found if eqn.primitive.multiple_results else [found]
        for var, value in zip(eqn.outvars, found, strict=True):
            env[var] = tf.ensure_shape(value, var.aval.shape)
    return [tf.convert_to_tensor(read(var)) for var in jaxpr.outvars]


def rule(*names):
    def register(fn):
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return register


def proto(kind, **fields):
    return getattr(xla_data_pb2, kind)(**fields).SerializeToString()


def scalars(fn, *dtypes):
    return tf.function(fn, autograph=False).get_concrete_function(*(tf.TensorSpec((), d) for d in dtypes))


def region(fn, dtype, count=2):
    return scalars(fn, *[tf.as_dtype(dtype)] * count)


def plain(fn):
    return lambda eqn, *args, **_: fn(*args)


for _names, _fn in {
    ("add", "add_any"): tf.add,
    ("sub",): tf.subtract,
    ("mul",): tf.multiply,
    ("div",): tf.divide,
    ("max",): tf.maximum,
    ("min",): tf.minimum,
    ("pow",): tf.pow,
    ("rem",): tf.truncatemod,
    ("round",): tf.round,
    ("neg",): tf.negative,
    ("exp",): tf.exp,
    ("log",): tf.math.log,
    ("tanh",): tf.tanh,
    ("logistic",): tf.sigmoid,
    ("sin",): tf.sin,
    ("cos",): tf.cos,
    ("sqrt",): tf.sqrt,
    ("rsqrt",): tf.math.rsqrt,
    ("square",): tf.square,
    ("abs",): tf.abs,
    ("sign",): tf.sign,
    ("erf",): tf.math.erf,
    ("stop_gradient", "copy", "copy_p"): tf.identity,
    ("eq",): tf.equal,
    ("ne",): tf.not_equal,
    ("lt",): tf.less,
    ("le",): tf.less_equal,
    ("gt",): tf.greater,
    ("ge",): tf.greater_equal,
    ("and",): lambda a, b: tf.logical_and(a, b) if a.dtype == tf.bool else tf.bitwise.bitwise_and(a, b),
    ("or",): lambda a, b: tf.logical_or(a, b) if a.dtype == tf.bool else tf.bitwise.bitwise_or(a, b),
    ("not",): tf.logical_not,
    ("xor",): tf.bitwise.bitwise_xor,
    ("shift_right_logical",): tf.bitwise.right_shift,
    ("shift_left",): tf.bitwise.left_shift,
}.items():
    rule(*_names)(plain(_fn))


@rule("integer_pow")
def _integer_pow(eqn, x, y, **_):
    return tf.pow(x, tf.cast(y, x.dtype))


@rule("convert_element_type")
def _convert(eqn, x, new_dtype, **_):
    return tf.cast(x, new_dtype)


@rule("bitcast_convert_type")
def _bitcast(eqn, x, new_dtype, **_):
    return tf.bitcast(x, new_dtype)


@rule("select_n")
def _select(eqn, which, *cases):
    return tf.where(which, cases[1], cases[0])


@rule("broadcast_in_dim")
def _broadcast(eqn, x, *_, shape, broadcast_dimensions, **__):
    form = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        form[axis] = size
    return tf.broadcast_to(tf.reshape(x, form), shape)


@rule("reshape", "squeeze", "expand_dims")
def _reshape(eqn, x, *_, dimensions=None, **__):
    x = x if eqn.primitive.name != "reshape" or dimensions is None else tf.transpose(x, dimensions)
    return tf.reshape(x, eqn.outvars[0].aval.shape)


@rule("transpose")
def _transpose(eqn, x, permutation):
    return tf.transpose(x, permutation)


@rule("rev")
def _rev(eqn, x, dimensions):
    return tf.reverse(x, dimensions)


@rule("iota")
def _iota(eqn, *, dtype, shape, dimension, **_):
    line = tf.cast(tf.range(shape[dimension]), dtype)
    return tf.broadcast_to(tf.reshape(line, [-1 if i == dimension else 1 for i in range(len(shape))]), shape)


@rule("concatenate")
def _concatenate(eqn, *args, dimension):
    return tf.concat(args, dimension)


@rule("slice")
def _slice(eqn, x, start_indices, limit_indices, strides):
    return tf.strided_slice(x, start_indices, limit_indices, strides or [1] * len(start_indices))


@rule("split")
def _split(eqn, x, sizes, axis):
    return tf.split(x, sizes, axis)


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")
def _reduce(eqn, x, axes, **_):
    fns = {"and": tf.reduce_all, "or": tf.reduce_any}
    kind = eqn.primitive.name.removeprefix("reduce_")
    return (fns.get(kind) or getattr(tf, f"reduce_{kind}"))(x, axes)


@rule("argmax")
def _argmax(eqn, x, axes, index_dtype):
    return tf.argmax(x, axes[0], index_dtype)


# ---- Xla ops ----


@rule("dot_general")
def _dot(eqn, a, b, dimension_numbers, preferred_element_type=None, **_):
    (ca, cb), (ba, bb) = dimension_numbers
    numbers = proto(
        "DotDimensionNumbers",
        lhs_contracting_dimensions=ca,
        rhs_contracting_dimensions=cb,
        lhs_batch_dimensions=ba,
        rhs_batch_dimensions=bb,
    )
    dtype = preferred_element_type or eqn.outvars[0].aval.dtype
    return xla.xla_dot_v2(a, b, numbers, b"", tf.as_dtype(dtype))


@rule("conv_general_dilated")
def _conv(
    eqn,
    a,
    b,
    window_strides,
    padding,
    lhs_dilation,
    rhs_dilation,
    dimension_numbers,
    feature_group_count,
    batch_group_count,
    **_,
):
    lhs, rhs, out = dimension_numbers
    numbers = proto(
        "ConvolutionDimensionNumbers",
        input_batch_dimension=lhs[0],
        input_feature_dimension=lhs[1],
        input_spatial_dimensions=lhs[2:],
        kernel_output_feature_dimension=rhs[0],
        kernel_input_feature_dimension=rhs[1],
        kernel_spatial_dimensions=rhs[2:],
        output_batch_dimension=out[0],
        output_feature_dimension=out[1],
        output_spatial_dimensions=out[2:],
    )
    return xla.xla_conv_v2(
        a,
        b,
        window_strides,
        np.int32(padding),
        lhs_dilation,
        rhs_dilation,
        feature_group_count,
        numbers,
        b"",
        tf.as_dtype(eqn.outvars[0].aval.dtype),
        batch_group_count,
    )


@rule("pad")
def _pad(eqn, x, value, padding_config):
    return xla.xla_pad(x, value, *(np.int32(v) for v in zip(*padding_config, strict=True)))


def _window(fn, start):
    def write(eqn, x, window_dimensions, window_strides, padding, base_dilation, window_dilation):
        init = tf.constant(start(x.dtype.as_numpy_dtype), x.dtype)
        sizes = window_dimensions, window_strides, base_dilation, window_dilation, np.int32(padding)
        return xla.xla_reduce_window(x, init, *sizes, region(fn, x.dtype))

    return write


def _lowest(dtype):
    return -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def _highest(dtype):
    return -_lowest(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


_MONOIDS = {
    "sum": (tf.add, lambda d: 0),
    "prod": (tf.multiply, lambda d: 1),
    "max": (tf.maximum, _lowest),
    "min": (tf.minimum, _highest),
}


def _cumulative(fn, start):
    def write(eqn, x, axis, reverse):
        one = [1] * x.shape.rank
        size = [n if i == axis else 1 for i, n in enumerate(x.shape)]
        pads = [((0, n - 1) if reverse else (n - 1, 0)) if i == axis else (0, 0) for i, n in enumerate(x.shape)]
        init = tf.constant(start(x.dtype.as_numpy_dtype), x.dtype)
        return xla.xla_reduce_window(x, init, size, one, one, one, np.int32(pads), region(fn, x.dtype))

    return write


for _kind, (_fn, _start) in _MONOIDS.items():
    rule(f"reduce_window_{_kind}")(_window(_fn, _start))
    rule(f"cum{_kind}")(_cumulative(_fn, _start))


@rule("select_and_scatter_add")
def _select_and_scatter(eqn, source, operand, select_prim, window_dimensions, window_strides, padding):
    compare = {"ge": tf.greater_equal, "le": tf.less_equal}[select_prim.name]
    zero = tf.constant(0, operand.dtype)
    select, scatter = region(compare, operand.dtype), region(tf.add, operand.dtype)
    sizes = window_dimensions, window_strides, np.int32(padding)
    return xla.xla_select_and_scatter(operand, *sizes, source, zero, select, scatter)


@rule("dynamic_slice")
def _dynamic_slice(eqn, x, *starts, slice_sizes):
    return xla.xla_dynamic_slice(x, tf.stack(starts), np.asarray(slice_sizes, starts[0].dtype.as_numpy_dtype))


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn, x, update, *starts):
    return xla.xla_dynamic_update_slice(x, update, tf.stack(starts))


@rule("gather")
def _gather(eqn, x, indices, dimension_numbers, slice_sizes, indices_are_sorted, mode, fill_value, **_):
    n = dimension_numbers
    numbers = proto(
        "GatherDimensionNumbers",
        offset_dims=n.offset_dims,
        collapsed_slice_dims=n.collapsed_slice_dims,
        start_index_map=n.start_index_map,
        index_vector_dim=indices.shape.rank - 1,
    )
    out = xla.xla_gather(x, indices, np.int32(slice_sizes), numbers, indices_are_sorted)
    if mode != lax.GatherScatterMode.FILL_OR_DROP:
        return out
    last = np.int32([x.shape[d] - slice_sizes[d] for d in n.start_index_map])
    inside = tf.reduce_all((indices >= 0) & (indices <= last), -1)
    axes = [i for i in range(out.shape.rank) if i not in n.offset_dims]
    inside = _broadcast(None, inside, shape=out.shape, broadcast_dimensions=axes)
    fill = np.nan if out.dtype.is_floating else out.dtype.min
    return tf.where(inside, out, tf.constant(fill if fill_value is None else fill_value, out.dtype))


@rule("scatter", "scatter-add", "scatter-mul", "scatter-max", "scatter-min", "scatter_add", "scatter_mul")
def _scatter(eqn, x, indices, updates, dimension_numbers, indices_are_sorted, **_):
    kind = eqn.primitive.name.replace("_", "-").removeprefix("scatter").removeprefix("-")
    fns = {"": lambda a, b: b, "add": tf.add, "mul": tf.multiply, "max": tf.maximum, "min": tf.minimum}
    n = dimension_numbers
    numbers = proto(
        "ScatterDimensionNumbers",
        update_window_dims=n.update_window_dims,
        inserted_window_dims=n.inserted_window_dims,
        scatter_dims_to_operand_dims=n.scatter_dims_to_operand_dims,
        index_vector_dim=indices.shape.rank - 1,
    )
    return xla.xla_scatter(x, indices, updates, region(fns[kind], x.dtype), numbers, indices_are_sorted)


@rule("sort")
def _sort(eqn, *args, dimension, is_stable, num_keys):
    def less(*pairs):
        out = tf.constant(False)
        for a, b in reversed([(pairs[2 * i], pairs[2 * i + 1]) for i in range(num_keys)]):
            out = (a < b) | ((a == b) & out)
        return out

    comparator = scalars(less, *(a.dtype for a in args for _ in range(2)))
    return xla.xla_variadic_sort(args, np.int32(dimension), comparator, is_stable)


@rule("top_k")
def _top_k(eqn, x, k, **_):
    return list(tf.math.top_k(x, k))


@rule("rng_bit_generator")
def _bits(eqn, key, shape, dtype, algorithm, **_):
    # XLA's op takes the state as 64-bit words, JAX has 32-bit ones.
    state = tf.bitcast(tf.reshape(key, [2, 2]), tf.uint64)
    made, bits = xla.xla_rng_bit_generator(1, state, np.int32(shape), tf.as_dtype(dtype))
    return [tf.reshape(tf.bitcast(made, tf.uint32), [4]), bits]


@rule("reduce_precision")
def _reduce_precision(eqn, x, exponent_bits, mantissa_bits):
    return xla.xla_reduce_precision(x, exponent_bits, mantissa_bits)


@rule("optimization_barrier")
def _barrier(eqn, *args):
    return xla.xla_optimization_barrier(list(args))


# ---- calls and control flow ----


@rule("jit", "pjit", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint", "custom_lin")
def _call(eqn, *args, **params):
    inner = params.get("jaxpr") or params["call_jaxpr"]
    closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    with tf.name_scope(f"jit_{params.get('name', 'call').strip('<>')}_"):
        return evaluate(closed.jaxpr, closed.consts, *args)


@rule("while")
def _while(eqn, *args, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts, **_):
    cond = functools.partial(evaluate, cond_jaxpr.jaxpr, cond_jaxpr.consts, *args[:cond_nconsts])
    split = cond_nconsts + body_nconsts
    body = functools.partial(evaluate, body_jaxpr.jaxpr, body_jaxpr.consts, *args[cond_nconsts:split])
    return tf.while_loop(lambda *c: cond(*c)[0], lambda *c: body(*c), list(args[split:]))


@rule("cond")
def _cond(eqn, which, *args, branches, **_):
    return tf.switch_case(tf.cast(which, tf.int32), [lambda b=b: evaluate(b.jaxpr, b.consts, *args) for b in branches])


@rule("scan")
def _scan(eqn, *args, length, reverse, jaxpr, **_):
    num_consts, num_carry = scan_counts(eqn.params)
    consts, xs = args[:num_consts], args[num_consts + num_carry :]
    ys = [tf.zeros(v.aval.shape, v.aval.dtype) for v in eqn.outvars[num_carry:]]

    def start(i, value):
        return tf.stack([length - 1 - i if reverse else i, *[0] * (value.shape.rank - 1)])

    def body(i, *state):
        carry, ys = state[:num_carry], state[num_carry:]
        rows = [tf.reshape(xla.xla_dynamic_slice(x, start(i, x), np.int32([1, *x.shape[1:]])), x.shape[1:]) for x in xs]
        out = evaluate(jaxpr.jaxpr, jaxpr.consts, *consts, *carry, *rows)
        ys = [
            xla.xla_dynamic_update_slice(y, new[None], start(i, y)) for y, new in zip(ys, out[num_carry:], strict=True)
        ]
        return [i + 1, *out[:num_carry], *ys]

    state = [tf.constant(0), *args[num_consts : num_consts + num_carry], *ys]
    return tf.while_loop(lambda i, *_: i < length, lambda *s: body(*s), state)[1:]
