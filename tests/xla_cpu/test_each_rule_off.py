"""Each CPU rule off alone, or without jit: values and derivatives are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import ablation
from tf2jax_lite.xla_cpu import catalog, rules

# For each rule one of the ablation's cases that take it.
CASES = {
    "depthwise": "depthwise 3x3 stride 2",
    "depthwise_filter_gradient": "depthwise 3x3 stride 2, gradient",
    "grouped_pointwise": "8 groups 1x1",
    "grouped_as_depthwise": "64 groups 3x3",
    "grouped_loop": "16 groups 3x3",
    "pointwise": "1x1",
    "conv3d_as_2d": "3-D (3, 1, 1)",
    "swapped_operands_dilated": "transposed 4x4 stride 2, gradient",
    "polyphase": "transposed 4x4 stride 2",
    "patches_filter_gradient": "1x1, gradient",
    "filter_gradient_im2col": "3x3, one image, gradient",
    "swapped_operands": "3x3 to few channels, gradient",
    "conv3d_by_plane": "3-D, few channels",
    "width_folding": "3x3 of 3 channels to 16",
    "im2col": "3x3, few positions",
    "small_image_padding": "5x5 of an image of 4x4",
    "channels_last": "5x5 of an image of 4x4, gradient",
    "max_pool_of_slices": "max pool 3x3",
    "pool_by_dimension": "sum pool 13x13",
    "sum_pool_dilated": "sum pool, base dilation",
    "sum_pool_of_slices": "sum pool 3x3",
    "max_pool_tangent_by_dimension": "max pool 13x13, tangent",
    "max_pool_tangent": "max pool whole, tangent",
    "max_pool_gradient_by_dimension": "max pool 13x13, gradient",
    "max_pool_gradient": "max pool whole, gradient",
    "argmax_two_reductions": "argmax",
    "cumulative_in_parts": "cumsum of a long axis",
    "cumulative_by_rows": "cumsum over rows",
    "cumulative_logsumexp_tree": "cumlogsumexp along rows",
    "inverse_trig_polynomial": "atan2",
    "top_k_packed_sort": "top_k",
    "constant_dot_gather": "resize",
}
# Functions without a derivative of interest, and those that are one.
_NO_GRADIENT = ("argmax", "top_k")
_DERIVATIVES = (", gradient", ", tangent")

# Of the largest result. A sum of 2**20 numbers in another order differed by 5e-5 (JAX 0.10.2, AVX-512), others by
# less than 1e-5.
_TOLERANCE = 3e-5
_TOLERANCES = {"cumulative_in_parts": 2e-4}


def test_every_rule_has_a_case():
    assert set(CASES) == catalog.NAMES


def _compiled(fn, args, names):
    """Return the program's text and results, as float64."""
    with rules.using(names):
        lowered = jax.jit(fn).lower(*args)
    return lowered.as_text(), [np.asarray(v, np.float64) for v in jax.tree.leaves(lowered.compile()(*args))]


def _gradient(fn):
    """Return the gradient with respect to all arguments, of a weighted sum."""

    def total(*args):
        out = fn(*args)
        return jnp.sum(out * jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape))

    return lambda *args: jax.grad(total, tuple(range(len(args))))(*args)


def _functions_of(case):
    """Return a case's function, and its gradient where it has one, and arguments."""
    fn, shapes = ablation.cases("full")[case]
    rng = np.random.default_rng(0)
    args = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return [fn] if case in _NO_GRADIENT or case.endswith(_DERIVATIVES) else [fn, _gradient(fn)], args


@pytest.mark.default_cases("sum_pool_dilated")
@pytest.mark.parametrize("rule", CASES)
def test_values_and_derivatives_without_the_rule(rule):
    case = CASES[rule]
    functions, args = _functions_of(case)
    changed = False
    for function in functions:
        text, expected = _compiled(function, args, catalog.NAMES - {rule})
        with_rule, found = _compiled(function, args, catalog.NAMES)
        changed |= with_rule != text
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=_TOLERANCES.get(rule, _TOLERANCE) * np.abs(b).max())
    assert changed, f"{case} does not take {rule}"


@pytest.mark.default_cases("sum_pool_dilated", "argmax_two_reductions", "top_k_packed_sort", "constant_dot_gather")
@pytest.mark.parametrize("rule", CASES)
def test_disable_jit_keeps_values_and_derivatives(rule):
    """Without `jax.jit`, a CPU variant is evaluated by its lowering."""
    functions, args = _functions_of(CASES[rule])
    for function in functions:
        expected = jax.tree.leaves(jax.jit(function)(*args))
        with jax.disable_jit():
            found = jax.tree.leaves(function(*args))
        for a, b in zip(found, expected, strict=True):
            tolerance = _TOLERANCES.get(rule, _TOLERANCE) * np.abs(np.asarray(b, np.float64)).max()
            np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=0, atol=tolerance)
