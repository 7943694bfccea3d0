"""docs/gradients.md, written by ``python -m tools.pages.gradients``."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.lowering.gradient_cases import CASES, SAME, claimed

PAGE = Path(__file__).parents[2] / "docs" / "gradients.md"
_HEAD = """# Gradients

```python
import jax
import numpy as np
import tensorflow as tf
import tf2jax_lite as tf2jax

weights = tf.Variable(tf.ones([3]), name="weights")


@tf.custom_gradient
def scaled(x):
    return 2.0 * x, lambda dy: 3.0 * dy  # kept: derivatives are TensorFlow's, not those of the forward code


jax_fn, params = tf2jax.convert(tf.function(lambda x: tf.reduce_sum(scaled(x) * weights)), tf.TensorSpec([3]))
x = np.ones(3, np.float32)
grads = jax.grad(lambda params, x: jax_fn(params, x)[0], argnums=(0, 1))(params, x)
np.testing.assert_array_equal(grads[0]["weights"], [2, 2, 2])
np.testing.assert_array_equal(grads[1], [3, 3, 3])
```

`jax.grad`, `jax.vjp`, `jax.jvp` and derivatives of any order work, and agree with `tf.GradientTape`. Loops with a
data-dependent trip count have [reverse mode](control-flow.md#reverse-mode-of-data-dependent-loops), too.

- `tf.recompute_grad` and `keras.remat` become `jax.checkpoint`, with the same random numbers in both passes. As in
  TensorFlow, tensors that the function closes over get no gradient.
- `tf.stop_gradient` is `jax.lax.stop_gradient`. `PreventGradient` raises when differentiated, unless
  `raise_on_prevent_gradient` is off.
- A model saved without its custom gradients (`experimental_custom_gradients=False`, or a frozen graph) converts with a
  warning that lists the nodes; `warnings.simplefilter("error")` makes that an error.
- Forward mode of a custom gradient is the transpose of its gradient function. If that is not linear in the incoming
  gradients, `jax.jvp` and `jax.jacfwd` raise `ForwardModeError`;
  `override_config("convert_custom_gradient", False)` differentiates the forward code instead. Source of an artifact has
  no forward mode where a gradient function is not linear, adds a constant, or holds a data-dependent loop.
- Custom gradients inside gradient functions are converted three deep. A derivative of the fourth order through such a
  nest raises `ReverseModeError` (forwards, `ForwardModeError`).
- TensorFlow does not save gradients of gradient functions: second derivatives of a restored model are those of the
  gradient function's own code.
- Functions with one implementation for CPU and another for accelerators (samplers of TensorFlow Probability) convert
  as on a CPU.
- The derivative of gamma variables with respect to `alpha` keeps the quantile, as in TensorFlow, without the loss of up
  to 14 % to rounding that TensorFlow's float32 kernel has above 1000.
- `gradient_override_map` holds for any op but calls of functions, for which TensorFlow uses the body's gradient.

## Tested constructs

Values, gradients, forward mode, second derivatives, and these of the saved and restored model are TensorFlow's for:

"""
_TABLE = """
With exceptions (TensorFlow itself has no derivative where there is a "-"):

| construct | forward mode | second order | saved and restored |
| --- | --- | --- | --- |
"""

_TAIL = """
## Where they are not TensorFlow's

- Where TensorFlow defines no gradient (None) and there is one, it is taken: by the values of `tf.one_hot`, the ends of
  `tf.raw_ops.LinSpace`, `l2_regularizer` of `tf.linalg.lstsq`, through `tf.image.hsv_to_rgb` and `tf.sparse.concat`;
  the second derivatives of bilinear `tf.image.resize` and of fake quantization. `tf.stop_gradient` makes them none in
  both.
- Where TensorFlow's is not the derivative, by finite differences: `tf.math.cumprod` over a zero (TensorFlow gives 0),
  `TensorArray.gather` with an index twice (TensorFlow keeps the last one's), `tf.raw_ops.SparseToDense` with an index
  twice (TensorFlow gives it to each, though the last alone is seen), and complex arguments of `tf.math.cumprod`,
  `xlogy`, `xlog1py`, `xdivy`, `multiply_no_nan`, `segment_prod`, `tf.linalg.det`, `lstsq`, `sqrtm` and
  `tridiagonal_solve`.
  Gradients that the graph itself takes (`tf.GradientTape` in the converted function) are TensorFlow's, there, too.
- Gradients with respect to complex arguments are JAX's: the conjugates of TensorFlow's.
"""


def page() -> str:
    """Return docs/gradients.md."""
    same, rows = [], []
    for case in CASES.values():
        _, _, *others = claimed(case).values()  # values and reverse mode are the same in each
        if set(others) == {SAME}:
            same.append(case.text)
        else:
            rows.append(f"| {case.text} | {' | '.join(others)} |\n")
    return f"{_HEAD}{textwrap.fill('; '.join(same), 120)}.\n{_TABLE}{''.join(rows)}{_TAIL}"


if __name__ == "__main__":
    PAGE.write_text(page())
