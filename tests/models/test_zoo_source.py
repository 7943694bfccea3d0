"""Exported source of the zoo's models: values and gradients are TensorFlow's."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

from .zoo import ZOO

NEAR = 1e-5
"""How far values and gradients may be from TensorFlow's, relative to the largest element of an array."""
ROUNDING = 1e-3
"""How far TensorFlow's gradients may be from those in double precision, relative to the largest element of all."""
TIMES = 4
"""How many times as far as TensorFlow's from those in double precision gradients may be."""


def names_of(variables):
    """Return the names of variables in params."""
    plain = [v if isinstance(v, tf.Variable) else v.value for v in variables]
    return [v.name.split(":")[0] for v in plain], plain


def specs_of(args, any_batch):
    def spec(x):
        shape = np.shape(x)
        return tf.TensorSpec([None, *shape[1:]] if any_batch else shape, np.asarray(x).dtype)

    return [tf.nest.map_structure(spec, a) for a in args]


def is_real(x):
    return np.issubdtype(np.asarray(x).dtype, np.floating)


def weighted(results):
    """Return a number that all elements of the results move differently."""
    return [np.cos(np.arange(np.size(r)) * 0.7).reshape(np.shape(r)).astype(np.asarray(r).dtype) for r in results]


def error(actual, expected, scale=None):
    """Return the largest difference, relative to the largest element."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    scale = expected if scale is None else np.asarray(scale, np.float64)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    difference = np.max(np.abs(actual - expected), initial=0, where=~same)
    return difference / max(np.max(np.abs(scale), initial=0, where=np.isfinite(scale)), 1e-30)


def by_tensorflow(function, args, variables, with_gradients):
    tensors = tf.nest.map_structure(tf.constant, args)
    real = [t for t in tf.nest.flatten(tensors) if t.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(real)
        results = tf.nest.flatten(function(*tensors))
        values = [r.numpy() for r in results]
        if not with_gradients:  # there may be no real results
            return values, {}
        chosen = [r for r in results if r.dtype.is_floating]
        weights = weighted([r.numpy() for r in chosen])
        loss = tf.add_n([tf.reduce_sum(tf.cast(w * r, chosen[0].dtype)) for w, r in zip(weights, chosen, strict=True)])
    names, plain = names_of(variables)
    gradients = tape.gradient(loss, [*real, *plain])
    gradients = [None if g is None else tf.convert_to_tensor(g).numpy() for g in gradients]
    return values, dict(zip([*range(len(real)), *names], gradients, strict=True))


def by_source(fn, params, args, names, with_gradients):
    leaves, tree = jax.tree.flatten(args)
    places = [i for i, x in enumerate(leaves) if is_real(x)]
    chosen = {name: jnp.asarray(params[name]) for name in names if name in params}

    def run(chosen, moving):
        given = list(leaves)
        for i, x in zip(places, moving, strict=True):
            given[i] = x
        results = jax.tree.leaves(fn({**params, **chosen}, *jax.tree.unflatten(tree, given))[0])
        real = [r for r in results if jnp.issubdtype(r.dtype, jnp.floating)]
        weights = weighted([np.zeros(r.shape, r.dtype) for r in real])
        return sum(jnp.sum(w * r) for w, r in zip(weights, real, strict=True)), results

    moving = [jnp.asarray(leaves[i]) for i in places]
    if not with_gradients:
        return jax.jit(run)(chosen, moving)[1], {}
    (_, results), (by_params, by_inputs) = jax.jit(jax.value_and_grad(run, (0, 1), has_aux=True))(chosen, moving)
    return results, {**dict(enumerate(by_inputs)), **by_params}


def disagreements(member, folder):
    """Return how a member's source disagrees with TensorFlow, by array.

    Rounding alone makes more than `NEAR` of some gradients. There the same function in double precision, without
    source, decides: it must be what TensorFlow approximates, and the source must be about as near to it as TensorFlow.
    Some gradients are 0 but for rounding, as that of the bias of attention's keys, which softmax is invariant to. There
    an error of one unit in the last place of the largest gradient is as good as none.
    """
    with jax.enable_x64(member.x64), contextlib.ExitStack() as stack:
        for option, value in member.options.items():
            stack.enter_context(tf2jax.override_config(option, value))
        function, args, variables = member.make()
        converted = tf2jax.convert(function, *specs_of(args, member.any_batch))
        report = tf2jax.export_functions({"model": converted}, folder / "source", stablehlo=False, random="tensorflow")
        assert not report.warnings
        values, gradients = by_tensorflow(function, args, variables, member.gradients)
        names = names_of(variables)[0]
        source = tf2jax.load(folder / "source", backend="source")
        found, derivatives = by_source(*source, args, names, member.gradients)
        assert [np.dtype(a.dtype) for a in found] == [e.dtype for e in values]
        theirs = {**{f"result {i}": v for i, v in enumerate(values)}, **gradients}
        ours = {**{f"result {i}": v for i, v in enumerate(found)}, **derivatives}
        theirs = {key: value for key, value in theirs.items() if value is not None}
        far = {key: e for key, value in theirs.items() if not (e := error(ours[key], value)) <= NEAR}
        if not far or member.x64:
            return {key: f"{e:.1e}" for key, e in far.items()}
    with jax.enable_x64(True):
        tf2jax.export_functions({"model": converted}, folder / "wide", dtype=np.float64, platforms=["cpu"])
        results, derivatives = by_source(*tf2jax.load(folder / "wide"), args, names, member.gradients)
    wide = {**{f"result {i}": v for i, v in enumerate(results)}, **derivatives}
    largest = max(np.max(np.abs(v), initial=0, where=np.isfinite(v)) for v in theirs.values())
    wrong = {}
    for key, e in far.items():
        own, other = (error(x, wide[key], largest) for x in (ours[key], theirs[key]))
        if not (other <= ROUNDING and own <= max(TIMES * other, np.finfo(np.float32).eps)):
            wrong[key] = f"{e:.1e}; {own:.1e} from float64, TensorFlow {other:.1e}"
    return wrong


@pytest.mark.default_cases("keras text_cnn")
@pytest.mark.parametrize("name", ZOO)
def test_source_agrees_with_tensorflow(name, tmp_path):
    assert not disagreements(ZOO[name], tmp_path)
