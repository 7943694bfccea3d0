"""Optimizer steps on rows: static, traced, repeated, negative indices."""

import jax
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf2jax_lite as tf2jax

BF16 = tf.bfloat16.as_numpy_dtype
RNG = np.random.default_rng(0)
# op: (slots, scalars by OpDef name, further attributes)
STEPS = {
    "ResourceApplyAdagradDA": (
        ["gradient_accumulator", "gradient_squared_accumulator"],
        {"lr": 0.1, "l1": 0.2, "l2": 0.3, "global_step": 3},
        [{}],
    ),
    "ResourceSparseApplyProximalGradientDescent": ([], {"alpha": 0.1, "l1": 0.3, "l2": 0.2}, [{}]),
    "ResourceSparseApplyMomentum": (["accum"], {"lr": 0.1, "momentum": 0.9}, [{}, {"use_nesterov": True}]),
    "ResourceSparseApplyKerasMomentum": (["accum"], {"lr": 0.1, "momentum": 0.9}, [{}, {"use_nesterov": True}]),
    "ResourceSparseApplyAdagrad": (["accum"], {"lr": 0.1}, [{}, {"update_slots": False}]),
    "ResourceSparseApplyAdagradV2": (["accum"], {"lr": 0.1, "epsilon": 1e-2}, [{}, {"update_slots": False}]),
    "ResourceSparseApplyProximalAdagrad": (["accum"], {"lr": 0.1, "l1": 0.3, "l2": 0.2}, [{}]),
    "ResourceSparseApplyAdagradDA": (
        ["gradient_accumulator", "gradient_squared_accumulator"],
        {"lr": 0.1, "l1": 0.2, "l2": 0.3, "global_step": 3},
        [{}],
    ),
    "ResourceSparseApplyAdadelta": (["accum", "accum_update"], {"lr": 0.1, "rho": 0.9, "epsilon": 1e-3}, [{}]),
    "ResourceSparseApplyRMSProp": (["ms", "mom"], {"lr": 0.1, "rho": 0.9, "momentum": 0.5, "epsilon": 1e-3}, [{}]),
    "ResourceSparseApplyCenteredRMSProp": (
        ["mg", "ms", "mom"],
        {"lr": 0.01, "rho": 0.9, "momentum": 0.5, "epsilon": 1.0},
        [{}],
    ),
    "ResourceSparseApplyFtrl": (
        ["accum", "linear"],
        {"lr": 0.1, "l1": 0.3, "l2": 0.2, "lr_power": -0.5},
        [{}, {"multiply_linear_by_lr": True}, {"lr_power": -0.7}, {"lr_power": 0.0}],
    ),
    "ResourceSparseApplyFtrlV2": (
        ["accum", "linear"],
        {"lr": 0.1, "l1": 0.3, "l2": 0.2, "l2_shrinkage": 0.1, "lr_power": -0.5},
        [{}, {"multiply_linear_by_lr": True}],
    ),
}
CASES = []
TESTED_OTHERWISE = set(STEPS)
DIFFERENT, REPEATED = np.array([3, 0, 1], np.int32), np.array([2, 0, 2, 2], np.int64)
REAL = ("ResourceSparseApplyProximal", "ResourceSparseApplyAdagradDA", "ResourceSparseApplyFtrl")
NO_BF16 = (*REAL[:2], "ResourceSparseApplyRMSProp", "ResourceSparseApplyCenteredRMSProp")


def steps(name, attrs, dtype, index_lists, shape=(4, 3), traced=True, scalars=None):
    """Run both ops, a step for each index list, and compare variables."""
    slots, values, _ = STEPS[name]
    rng = np.random.default_rng(0)  # independent of the order of tests
    values = {**values, **(scalars or {}), **{k: v for k, v in attrs.items() if k in values}}
    attrs = {k: v for k, v in attrs.items() if k not in values}
    sparse = "Sparse" in name
    start = {n: rng.uniform(0.5, 1.5, shape).astype(dtype) for n in ("var", *slots)}
    variables = {n: tf.Variable(v, name=n) for n, v in start.items()}
    raw = getattr(tf.raw_ops, name)
    first = index_lists[0]

    def call(grad, indices):
        for v in variables.values():
            v.read_value()  # a handle alone does not identify the variable
        handles = {n: v.handle for n, v in variables.items()}
        constants = {k: tf.constant(v, np.int64 if k == "global_step" else dtype) for k, v in values.items()}
        raw(**handles, **constants, grad=grad, **({"indices": indices} if sparse else {}), **attrs)
        return tf.constant(0)

    fn = tf.function(call if traced else lambda grad: call(grad, tf.constant(first)))
    grad_shape = (len(first), *shape[1:]) if sparse else shape
    specs = [tf.TensorSpec(grad_shape, dtype)] + [tf.TensorSpec(first.shape, first.dtype)] * traced
    with jax.enable_x64(True):
        jax_fn, params = tf2jax.convert(fn, *specs)
        run = jax.jit(jax_fn)
        for indices in index_lists:
            grad = rng.normal(size=grad_shape).astype(dtype)
            fn(grad, *[indices] * traced)
            _, params = run(params, grad, *[indices] * traced)
    tolerance = {np.float32: 1e-5, np.float64: 1e-9, np.complex64: 1e-5, np.float16: 1e-2}.get(dtype, 5e-2)
    for n, v in variables.items():
        assert params[n].dtype == dtype
        wide = np.complex128 if dtype == np.complex64 else np.float64
        np.testing.assert_allclose(
            np.asarray(params[n]).astype(wide), v.numpy().astype(wide), rtol=tolerance, atol=tolerance / 10, err_msg=n
        )


@pytest.mark.full
@pytest.mark.parametrize(("name", "attrs"), [(n, a) for n, s in STEPS.items() for a in s[2]])
def test_repeated_rows_are_updated_in_order(name, attrs):
    steps(name, attrs, np.float64, [REPEATED, np.array([3, 1, 0, 2]), REPEATED[::-1].copy()])


@pytest.mark.default_cases(
    "none-ResourceSparseApplyKerasMomentum",
    "none-ResourceSparseApplyProximalAdagrad",
    "none-ResourceSparseApplyAdagradDA",
    "none-ResourceSparseApplyRMSProp",
    "none-ResourceSparseApplyCenteredRMSProp",
    "none-ResourceSparseApplyFtrlV2",
)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("indices", [DIFFERENT, REPEATED, DIFFERENT[:0]], ids=["different", "repeated", "none"])
def test_static_indices(name, indices):
    steps(name, {}, np.float32, [indices, indices], traced=False)


@pytest.mark.full
@pytest.mark.parametrize("name", [n for n in STEPS if "Sparse" in n])
def test_vectors(name):
    steps(name, {}, np.float32, [np.array([2, 0, 2, 2], np.int32)], shape=(4,))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((n, d) for n in STEPS if "Sparse" in n and not n.startswith(REAL) for d in (np.float16, np.complex64)),
        *((n, BF16) for n in STEPS if "Sparse" in n and not n.startswith(NO_BF16)),
    ],
)
def test_dtypes(name, dtype):
    steps(name, {}, dtype, [REPEATED])


@pytest.mark.default_cases("ResourceSparseApplyProximalGradientDescent")
@pytest.mark.parametrize("name", [n for n, s in STEPS.items() if "l1" in s[1]])
def test_zero_penalty(name):
    steps(name, {}, np.float64, [REPEATED], scalars={"l1": 0.0, "l2": 0.0})


@pytest.mark.full
def test_traced_indices_out_of_range_are_skipped():
    var = tf.Variable(np.ones((3, 2), np.float32), name="var")

    @tf.function
    def fn(grad, indices):
        var.read_value()
        one = tf.constant(1.0)
        tf.raw_ops.ResourceSparseApplyProximalGradientDescent(
            var=var.handle, alpha=one, l1=one * 0, l2=one * 0, grad=grad, indices=indices
        )
        return tf.constant(0)

    jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([3, 2], tf.float32), tf.TensorSpec([3], tf.int32))
    grad, indices = np.ones((3, 2), np.float32), np.array([-1, 1, 3], np.int32)
    _, updated = jax.jit(jax_fn)(params, grad, indices)
    np.testing.assert_array_equal(updated["var"], [[1, 1], [0, 0], [1, 1]])
    with pytest.raises(tf2jax.errors.LoweringError, match="out of range"):
        jax_fn(params, grad, indices)


@pytest.mark.full
@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Ftrl"])
def test_training_step_of_an_embedding(name):
    """Keras makes sparse gradients' rows unique: dynamic, without padding."""
    ids, targets = np.array([1, 2, 2, 0]), np.ones((4, 3), np.float32)
    table = tf.Variable(np.float32(RNG.normal(size=(5, 3))), name="table")
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(tf_keras.optimizers.legacy, name)(0.1, **options)
    optimizer._create_all_weights([table])

    @tf.function(autograph=False)
    def step(ids, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.gather(table, ids) - targets) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return loss

    own, params = tf2jax.convert(step, tf.TensorSpec([4], tf.int64), tf.TensorSpec([4, 3]))
    run = jax.jit(own)
    for shift in range(3):
        _, params = run(params, (ids + shift) % 5, targets)
        step(tf.constant((ids + shift) % 5), targets)
    np.testing.assert_allclose(params["table"], table, rtol=1e-6, atol=1e-6)
