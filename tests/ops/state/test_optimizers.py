"""Optimizer steps against TensorFlow: variables and slots after three steps."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RNG = np.random.default_rng(0)
# op: (slots, scalars by OpDef name, the gradient's name, further attributes)
STEPS = {
    "ResourceApplyGradientDescent": ([], {"alpha": 0.1}, "delta", [{}]),
    "ResourceApplyMomentum": (["accum"], {"lr": 0.1, "momentum": 0.9}, "grad", [{}, {"use_nesterov": True}]),
    "ResourceApplyKerasMomentum": (["accum"], {"lr": 0.1, "momentum": 0.9}, "grad", [{}, {"use_nesterov": True}]),
    "ResourceApplyAdagrad": (["accum"], {"lr": 0.1}, "grad", [{}, {"update_slots": False}]),
    "ResourceApplyAdagradV2": (["accum"], {"lr": 0.1, "epsilon": 1e-3}, "grad", [{}]),
    "ResourceApplyAdadelta": (["accum", "accum_update"], {"lr": 0.1, "rho": 0.9, "epsilon": 1e-3}, "grad", [{}]),
    "ResourceApplyAdam": (
        ["m", "v"],
        {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3},
        "grad",
        [{}, {"use_nesterov": True}],
    ),
    "ResourceApplyAdamWithAmsgrad": (
        ["m", "v", "vhat"],
        {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3},
        "grad",
        [{}],
    ),
    "ResourceApplyAdaMax": (
        ["m", "v"],
        {"beta1_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3},
        "grad",
        [{}],
    ),
    "ResourceApplyRMSProp": (
        ["ms", "mom"],
        {"lr": 0.1, "rho": 0.9, "momentum": 0.5, "epsilon": 1e-3},
        "grad",
        [{}],
    ),
    "ResourceApplyCenteredRMSProp": (
        ["mg", "ms", "mom"],
        {"lr": 0.01, "rho": 0.9, "momentum": 0.5, "epsilon": 1.0},
        "grad",
        [{}],
    ),
    "ResourceApplyAddSign": (["m"], {"lr": 0.1, "alpha": 1.0, "sign_decay": 0.5, "beta": 0.9}, "grad", [{}]),
    "ResourceApplyPowerSign": (["m"], {"lr": 0.1, "logbase": 1.0, "sign_decay": 0.5, "beta": 0.9}, "grad", [{}]),
    "ResourceApplyProximalGradientDescent": ([], {"alpha": 0.1, "l1": 0.3, "l2": 0.2}, "delta", [{}]),
    "ResourceApplyProximalAdagrad": (["accum"], {"lr": 0.1, "l1": 0.3, "l2": 0.2}, "grad", [{}]),
    "ResourceApplyFtrl": (
        ["accum", "linear"],
        {"lr": 0.1, "l1": 0.3, "l2": 0.2, "lr_power": -0.5},
        "grad",
        [{}, {"multiply_linear_by_lr": True}],
    ),
    "ResourceApplyFtrlV2": (
        ["accum", "linear"],
        {"lr": 0.1, "l1": 0.3, "l2": 0.2, "l2_shrinkage": 0.1, "lr_power": -0.5},
        "grad",
        [{}, {"multiply_linear_by_lr": True}],
    ),
}
CASES = []
TESTED_OTHERWISE = set(STEPS)


@pytest.mark.default_cases(
    "ResourceApplyAdamWithAmsgrad-attrs11-float64",
    "ResourceApplyAdaMax-attrs12-float32",
    "ResourceApplyAddSign-attrs15-float32",
    "ResourceApplyPowerSign-attrs16-float64",
    "ResourceApplyFtrl-attrs20-float64",
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "attrs"), [(n, a) for n, s in STEPS.items() for a in s[3]])
def test_steps(name, attrs, dtype):
    slots, scalars, gradient, _ = STEPS[name]
    names = ["var", *slots]
    start = {n: RNG.uniform(0.5, 1.5, (2, 3)).astype(dtype) for n in names}
    variables = {n: tf.Variable(v, name=n) for n, v in start.items()}
    raw = getattr(tf.raw_ops, name)

    @tf.function
    def fn(grad):
        for v in variables.values():
            v.read_value()  # a handle alone does not identify the variable
        handles = {n: v.handle for n, v in variables.items()}
        raw(**handles, **{k: tf.constant(v, dtype) for k, v in scalars.items()}, **{gradient: grad}, **attrs)
        return tf.constant(0)

    with jax.enable_x64(True):
        jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([2, 3], dtype))
        run = jax.jit(jax_fn)
        for _ in range(3):
            grad = RNG.normal(size=(2, 3)).astype(dtype)
            fn(grad)
            _, params = run(params, grad)
    for n, v in variables.items():
        assert params[n].dtype == dtype
        np.testing.assert_allclose(params[n], v.numpy(), rtol=1e-5 if dtype == np.float32 else 1e-9, atol=1e-7)
