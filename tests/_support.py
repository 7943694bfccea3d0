"""Helpers that many test files share."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from typer.testing import CliRunner

import tf2jax_lite
from tf2jax_lite.cli.app import app


def converted(function, *args, **options):
    """Convert a function for arrays' or specs' types; config options hold then."""
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function, autograph=False)
    specs = [arg if isinstance(arg, tf.TypeSpec) else tf.TensorSpec(np.shape(arg), arg.dtype) for arg in args]
    with contextlib.ExitStack() as overrides:
        for name, value in options.items():
            overrides.enter_context(tf2jax_lite.override_config(name, value))
        return tf2jax_lite.convert_functional(function, *specs)


def close(actual, expected, rtol=2e-5, atol=2e-6):
    """Fail unless pytrees of arrays have equal structure and close values."""
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=rtol, atol=atol), actual, expected)


def cast(value, dtype):
    """Return an array of a dtype, which may be ``"bfloat16"``."""
    return np.asarray(value).astype(jnp.bfloat16 if dtype == "bfloat16" else dtype)


def f32(value):
    """Return a float32 array."""
    return np.array(value, np.float32)


def invoke(*args):
    """Run a command of the shell in this process."""
    return CliRunner().invoke(app, [str(arg) for arg in args])
