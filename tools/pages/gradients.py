"""docs/gradients.md, written by ``python -m tools.pages.gradients``."""

from __future__ import annotations

from pathlib import Path

from tests.lowering.gradient_cases import CASES, claimed

PAGE = Path(__file__).parents[2] / "docs" / "gradients.md"
_HEAD = """# Gradients

Written by `python -m tools.pages.gradients`; `tests/lowering/test_gradient_cases.py` measures each row against
`tf.GradientTape`, the last column through `tf.saved_model.save` and `load`.

- **same**: TensorFlow's numbers. For forward mode: the derivative along a vector, against the gradient's product with
  it and, where TensorFlow has that, against `tf.autodiff.ForwardAccumulator`.
- **refused**: an error says that there is a reverse rule only.
- **-**: TensorFlow itself has none (it fails, or `tf.recompute_grad` refuses).

| construct | forward | reverse | forward mode | second order | saved and restored |
| --- | --- | --- | --- | --- | --- |
"""

_TAIL = """
## How it works

TensorFlow marks a node whose gradient is replaced. Its gradient function is traced once, at conversion, and one
primitive (`autodiff/custom_gradient.py`) stands on the node, which does what `jax.custom_vjp` does, and more. The
results of the forward code get no gradient, so that code is not even differentiated (where zeros could become NaN). A
second derivative goes through the gradient function, through what it captures, and meets the node's own gradient
again. What a gradient function draws has its own key, the same in every evaluation of one call.

- `tf.recompute_grad` (and `keras.remat`) becomes `jax.checkpoint` around the nodes between arguments and results: the
  same random numbers in the forward and the backward pass, and every derivative that JAX can take. As in TensorFlow,
  tensors that the function closes over get no gradient.
- Forward mode (`jax.jvp`, `jax.jacfwd`, Gauss-Newton products) takes the transpose of the gradient function, as
  `tf.autodiff.ForwardAccumulator` does around a `tf.function`. A gradient function that is not linear in the gradients
  it gets has none (TensorFlow gives a number all the same, which depends on where functions begin): `ForwardModeError`
  says so with the node's name, inside `jax.jit` when JAX compiles. `override_config("convert_custom_gradient", False)`
  differentiates the forward code instead. What a gradient function adds whatever it gets is not seen forwards. In an
  artifact's source custom gradients are `jax.custom_jvp`, but `jax.custom_vjp`, without forward mode, where that would
  lose something backwards: they are not linear, add something whatever they get, or hold a data-dependent loop.
- What a gradient function captures is a constant of the first derivative: nothing flows back through the code that
  made it, not even zeros, which a loop over log(0) would turn into NaN (`tf.nn.ctc_loss`).
- Custom gradients inside gradient functions are converted as far as a further derivative gets to them
  (not behind `tf.stop_gradient`, as in solvers of TensorFlow Probability, which run themselves in their gradients), and
  three deep: some contain themselves, without end. A derivative of the fourth order through such a nest raises
  `ReverseModeError` (forwards, `ForwardModeError`).
- A model saved without its custom gradients (`experimental_custom_gradients=False`, or a frozen graph) converts with a
  warning that lists the nodes; `override_config("raise_on_missing_custom_gradient", True)` makes that an error.
  TensorFlow does not save gradients of gradient functions: second derivatives of a restored model are those of the
  gradient function's own code.
- `tf.stop_gradient` is `jax.lax.stop_gradient`. `PreventGradient` is an error when differentiated, unless
  `raise_on_prevent_gradient` is off.
- Of functions that have one implementation for CPU and another for accelerators (samplers of TensorFlow
  Probability), the one for CPU is converted, as TensorFlow runs it there.
- Gamma variables: the derivative with respect to `alpha` keeps the quantile, as in TensorFlow. In float32 and above
  1000, TensorFlow's kernel loses up to 14 % to rounding, which ours does not.
- `gradient_override_map` holds for any op but calls of functions, for which TensorFlow takes the body's gradient.

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
    rows = [f"| {case.text} | {' | '.join(claimed(case).values())} |\n" for case in CASES.values()]
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    PAGE.write_text(page())
