"""The suite channels: depthwise convolutions with and without channel blocks.

TensorFlow is measured beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.catalog import rule_names
from tf2jax_lite.xla_cpu.conv import cost_model
from tf2jax_lite.xla_cpu.selection import using

from .cpu_rules import Form
from .timing import in_turns, ratios, seconds

FORMS = (
    Form("depthwise", 8, 112, 32, 0, 3),
    Form("depthwise", 8, 112, 64, 0, 3),
    Form("depthwise", 8, 56, 72, 0, 3),
    Form("depthwise", 8, 56, 128, 0, 3),
    Form("depthwise", 8, 56, 144, 0, 3),
    Form("depthwise", 8, 28, 40, 0, 3),
    Form("depthwise", 8, 28, 256, 0, 3),
    Form("depthwise", 8, 14, 512, 0, 3),
    Form("depthwise", 8, 28, 72, 0, 5),
    Form("depthwise", 8, 14, 672, 0, 5),
    Form("depthwise", 1, 32, 256, 0, 7),
    Form("depthwise", 8, 32, 256, 0, 7),
    Form("depthwise", 8, 28, 192, 0, 7),
    Form("depthwise", 8, 14, 384, 0, 7),
    Form("depthwise", 8, 7, 768, 0, 7),
)
SMALL = (Form("depthwise", 2, 8, 256, 0, 7),)


def main(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield records by form: result, if blocks matter, and filter gradient."""
    for form in SMALL if options.size == "small" else FORMS:
        x, w = form.arguments()
        run = form.plain(True)
        many_taps = form.window**2 >= cost_model.DEPTHWISE_BLOCK_MIN_TAPS
        if many_taps and form.inputs >= cost_model.DEPTHWISE_BLOCK_MIN_CHANNELS:
            blocks = jax.jit(run).lower(x, w).compile()
            with using(rule_names() - {"depthwise_blocks"}):
                whole = jax.jit(run).lower(x, w).compile()
            yield _measured(form, "result", blocks, whole, _tensorflow(form), (x, w))
        grad = form.plain(False)(x, w)
        ours = jax.jit(lambda x, w, grad, run=run: jax.vjp(lambda w: run(x, w), w)[1](grad)[0])
        before = jax.jit(lambda x, w, grad, form=form: _one_reduction(form, x, grad))
        args = (x, w, grad)
        new, old = (fn.lower(*args).compile() for fn in (ours, before))
        yield _measured(form, "gradient by the filter", new, old, _tensorflow_filter(form), args)


def _one_reduction(form: Form, x: Any, grad: Any) -> Any:
    """Compute the filter gradient as one reduction over everything but the channels."""
    margin = form.window // 2
    padded = jnp.pad(x, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    taps = [(i, j) for i in range(form.window) for j in range(form.window)]
    products = [padded[:, i : i + form.side, j : j + form.side] * grad for i, j in taps]
    zeros = [np.zeros((), x.dtype)] * len(products)
    sums = lax.reduce(products, zeros, lambda a, b: [p + q for p, q in zip(a, b, strict=True)], (0, 1, 2))
    return jnp.stack(sums).reshape(form.window, form.window, 1, form.inputs)


def _tensorflow(form: Form) -> Callable[..., Any]:
    import tensorflow as tf

    return tf.function(form.tensorflow(), autograph=False)


def _tensorflow_filter(form: Form) -> Callable[..., Any]:
    import tensorflow as tf

    def gradient(x: Any, w: Any, grad: Any) -> Any:
        return tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
            input=x,
            filter_sizes=(form.window, form.window, form.inputs, 1),
            out_backprop=grad,
            strides=[1, form.stride, form.stride, 1],
            padding="SAME",
        )

    return tf.function(gradient, autograph=False)


def _measured(
    form: Form, what: str, ours: Any, before: Any, tensorflow: Callable[..., Any], args: tuple[Any, ...]
) -> dict[str, Any]:
    import tensorflow as tf

    constants = [tf.constant(a) for a in args]
    times = in_turns(
        {
            "tf2jax_lite": lambda: seconds(lambda: jax.block_until_ready(ours(*args))),
            "before": lambda: seconds(lambda: jax.block_until_ready(before(*args))),
            "tensorflow": lambda: seconds(lambda: tensorflow(*constants).numpy()),
        },
        rounds=20,
    )
    return {"form": str(form), "what": what, "times": times, "ratios": ratios(times)}
