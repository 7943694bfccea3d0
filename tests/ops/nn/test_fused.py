"""Fused convolutions against CPU kernels, or else the composition."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_library

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import UnsupportedAttributeError
from tf2jax_lite.ops import registry

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)
IMAGE, FILTER = RNG.normal(size=(2, 6, 5, 3)).astype(np.float32), RNG.normal(size=(2, 3, 3, 4)).astype(np.float32)
BIAS, SCALE, OFFSET, MEAN = (RNG.normal(size=4).astype(np.float32) for _ in range(4))
VARIANCE = RNG.uniform(0.5, 2, 4).astype(np.float32)
NORM = [SCALE, OFFSET, MEAN, VARIANCE]
PADS, NO_PADS = np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32), np.zeros((4, 2), np.int32)
# TensorFlow's mirroring kernels return the first image's result for all images of a batch (a bug): one image.
ONE = IMAGE[:1]
SIZE = np.array([8, 7], np.int32)
PLAIN = {"strides": [1, 1, 1, 1], "padding": "VALID"}
STRIDED = {"strides": [1, 2, 1, 1], "padding": "SAME"}
HALF = {"rtol": 5e-2, "atol": 5e-2}


def fused(args, fused_ops, image=IMAGE, filter=FILTER, **attrs):
    # An explicit name: in a graph no name may begin with an underscore.
    attrs = {"num_args": len(args), "fused_ops": fused_ops, "name": "fused", **PLAIN, **attrs}
    return case("_FusedConv2D", image, filter, args, [], **attrs).using(
        name="-".join(
            map(str, [*fused_ops, image.dtype, *(v for k, v in attrs.items() if k in ("padding", "epsilon"))])
        )
    )


def fused_product(op, left, right, args, fused_ops, **attrs):
    settings = "-".join(f"{k}={v}" for k, v in attrs.items())
    attrs = {"fused_ops": fused_ops, "name": "fused", **attrs}
    return case(op, left, right, args, **attrs).using(name="-".join([*fused_ops, settings]))


ROWS, COLUMNS = RNG.normal(size=(3, 5)).astype(np.float32), RNG.normal(size=(5, 4)).astype(np.float32)
PAIRED, SAME = RNG.normal(size=6).astype(np.float32), {"strides": [1, 2, 2, 1], "padding": "SAME"}
ALL = ([], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"], ["Tanh"], ["Sigmoid"], ["GeluApproximate"], ["GeluExact"])
CHANNELS = np.concatenate([IMAGE, IMAGE[..., :1] * 2], -1)
EMPTY = np.zeros(0, np.float32)


CASES = [
    *(
        case("FusedPadConv2D", ONE.astype(d), PADS, FILTER.astype(d), mode=m, **f).using(
            name=f"{np.dtype(d).name}-{m}", **(HALF if d in (np.float16, BF16) else {})
        )
        for d, m, f in (
            (np.float32, "REFLECT", PLAIN),
            (np.float32, "SYMMETRIC", STRIDED),
            (np.float64, "REFLECT", STRIDED),
            (np.float16, "SYMMETRIC", PLAIN),
            (BF16, "REFLECT", PLAIN),
        )
    ),
    case("FusedPadConv2D", ONE, NO_PADS, FILTER, mode="REFLECT", **PLAIN).using(symbolic=("b, 6, 5, 3", "2, 3, 3, 4")),
    case("FusedPadConv2D", ONE, PADS * 4, FILTER, mode="REFLECT", **PLAIN).using(error="less than"),
    case("FusedPadConv2D", ONE, np.ones((4, 2), np.int32), FILTER, mode="REFLECT", **PLAIN).using(error="only height"),
    *(
        case(
            "FusedResizeAndPadConv2D", ONE.astype(d), s, p, FILTER.astype(d), mode=m, resize_align_corners=a, **f
        ).using(name=f"{np.dtype(d).name}-{m}-{a}-{s}", **(HALF if d == np.float16 else {"rtol": 1e-5, "atol": 1e-5}))
        for d, s, p, m, a, f in (
            (np.float32, SIZE, PADS, "REFLECT", False, PLAIN),
            (np.float32, SIZE, PADS, "SYMMETRIC", True, STRIDED),
            (np.float32, SIZE // 2, NO_PADS, "REFLECT", False, PLAIN),
            (np.float64, SIZE, PADS, "REFLECT", False, STRIDED),
            (np.float16, SIZE, NO_PADS, "SYMMETRIC", False, PLAIN),
        )
    ),
    *(fused([BIAS], ["BiasAdd", *a]) for a in ([], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"])),
    fused([BIAS], ["BiasAdd", "LeakyRelu"], leakyrelu_alpha=0.5, **STRIDED),
    fused([BIAS.astype(float)], ["BiasAdd", "Relu"], IMAGE.astype(float), FILTER.astype(float), dilations=[1, 2, 1, 1]),
    fused([BIAS], ["BiasAdd"], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0]),
    *(fused(NORM, ["FusedBatchNorm", *a]) for a in ([], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"])),
    fused(NORM, ["FusedBatchNorm"], epsilon=0.1, **STRIDED),
    fused([BIAS], ["BiasAdd", "Sign"]).using(error="'Sign' is none of"),
    fused([BIAS, BIAS], ["BiasAdd"]).using(error="2 arguments do not fit"),
    fused([BIAS], ["BiasAdd"], filter_format="OIHW").using(error="filter_format"),
    *(fused_product("_FusedMatMul", ROWS, COLUMNS, [BIAS], ["BiasAdd", *a]) for a in ALL),
    fused_product("_FusedMatMul", ROWS.T, COLUMNS.T, [BIAS], ["BiasAdd"], transpose_a=True, transpose_b=True),
    fused_product("_FusedMatMul", ROWS, COLUMNS, [BIAS], ["BiasAdd", "LeakyRelu"], leakyrelu_alpha=0.5),
    fused_product("_FusedMatMul", ROWS, COLUMNS, [BIAS], ["BiasAdd", "Sign"]).using(error="'Sign' is none of"),
    *(
        case("_UnaryOpsComposition", np.array([0.1, 0.5, 0.9], d), op_names=n, name="composed").using(
            name="-".join([np.dtype(d).name, *n])
        )
        for d, n in (
            (np.float32, ["Exp", "Tanh", "Neg", "Ceil"]),
            (np.float64, ["Acos", "Square", "Rsqrt", "Log1p", "Inv"]),
            (np.float64, ["Neg", "Elu", "Expm1", "Abs", "Asin", "Atan", "Atanh", "Cosh", "Acosh"]),
            (
                np.float64,
                ["Cos", "Sin", "Sinh", "Asinh", "Tan", "Sqrt", "Log", "Sigmoid", "Selu", "Relu6", "Reciprocal"],
            ),
            (np.float16, ["Neg", "Exp", "Relu"]),
            (np.float32, ["Rint", "Floor", "Round"]),
        )
    ),
    case("_UnaryOpsComposition", np.ones(2), op_names=["Cast"], name="composed").using(error="'Cast' is not supported"),
]


TESTED_OTHERWISE = {"_FusedBatchNormEx", "_FusedConv3D", "_FusedDepthwiseConv2dNative"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    try:
        check(case)
    except tf.errors.UnimplementedError as error:
        pytest.skip(f"TensorFlow has no such kernel for this processor: {error.message[:80]}")


ACTIVATIONS = {
    "Tanh": tf.tanh,
    "Sigmoid": tf.sigmoid,
    "GeluApproximate": lambda x: tf.nn.gelu(x, approximate=True),
    "GeluExact": tf.nn.gelu,
}


@pytest.mark.full
@pytest.mark.parametrize("activation", ["Relu", *ACTIVATIONS])
def test_activations_of_gpu_kernels(activation):
    product = tf.nn.bias_add(tf.nn.conv2d(IMAGE, FILTER, 1, "VALID"), BIAS)
    side = RNG.normal(size=product.shape).astype(np.float32)
    names = ["BiasAdd", "Add", "Relu"] if activation == "Relu" else ["BiasAdd", activation]
    args = [BIAS, side] if activation == "Relu" else [BIAS]
    expected = tf.nn.relu(product + side) if activation == "Relu" else ACTIVATIONS[activation](product)
    settings = fused(args, names).attrs
    more = {
        "explicit_paddings": [],
        "data_format": "NHWC",
        "filter_format": "HWIO",
        "dilations": [1, 1, 1, 1],
        "use_cudnn_on_gpu": True,
        "epsilon": 1e-4,
        "leakyrelu_alpha": 0.2,
    }

    @tf.function
    def fn(x):
        return op_def_library.apply_op(
            "_FusedConv2D", input=x, filter=FILTER, args=list(map(tf.constant, args)), host_args=[], **more, **settings
        )

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(IMAGE.shape, tf.float32))
    np.testing.assert_allclose(jax.jit(jax_fn)(IMAGE), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.default_cases("Elu-settings1")
@pytest.mark.parametrize(("activation", "settings"), [("Relu", PLAIN), ("Elu", SAME), (None, SAME)])
def test_fused_depthwise_conv2d(activation, settings):
    """TensorFlow's kernel may fail: it is compared with the composition."""
    filter, activations = FILTER[..., :2], {"Relu": tf.nn.relu, "Elu": tf.nn.elu, None: tf.identity}
    product = tf.nn.depthwise_conv2d(IMAGE, filter, **settings) + PAIRED
    names = ["BiasAdd", activation] if activation else ["BiasAdd"]
    more = {"data_format": "NHWC", "dilations": [1, 1, 1, 1], "epsilon": 1e-4, "leakyrelu_alpha": 0.2, "name": "fused"}

    @tf.function
    def fn(x, filter, bias):
        return op_def_library.apply_op(
            "_FusedDepthwiseConv2dNative", input=x, filter=filter, args=[bias], fused_ops=names, **more, **settings
        )

    jax_fn = tf2jax.convert_functional(fn, *(tf.TensorSpec(a.shape, tf.float32) for a in (IMAGE, filter, PAIRED)))
    expected = activations[activation](product).numpy()
    np.testing.assert_allclose(jax.jit(jax_fn)(IMAGE, filter, PAIRED), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.default_cases("Relu-1-False-float16")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("mode", "sides", "training"), [("Identity", 0, False), ("Relu", 0, True), ("Relu", 1, True), ("Relu", 1, False)]
)
def test_fused_batch_norm_ex(mode, sides, training, dtype):
    """TensorFlow's kernel of _FusedBatchNormEx fails: as the composition."""
    image = CHANNELS.astype(dtype)
    vectors = [SCALE, OFFSET, *((EMPTY, EMPTY) if training else (MEAN, VARIANCE))]
    sides = [image[::-1].copy()] * sides
    names = ("scale", "offset", "mean", "variance")
    named = dict(zip(names, map(tf.constant, vectors), strict=True))
    settings = {"epsilon": 0.1, "exponential_avg_factor": 1.0, "data_format": "NHWC", "is_training": training}
    y, *others = tf.raw_ops.FusedBatchNormV3(x=image, **named, **settings)
    y = sum(sides, y)
    expected = [tf.nn.relu(y) if mode == "Relu" else y, *others[:2]]

    @tf.function
    def fn(x):
        return op_def_library.apply_op(
            "_FusedBatchNormEx", x=x, **named, side_input=sides, activation_mode=mode, name="fused", **settings
        )

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(image.shape, dtype))
    actual = jax.jit(jax_fn)(image)
    tolerance = 1e-2 if dtype == np.float16 else 1e-5
    for e, a in zip(expected, actual, strict=False):
        assert a.dtype == e.numpy().dtype
        np.testing.assert_allclose(a, e.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.default_cases("names1-settings1")
@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (["BiasAdd"], {"padding": "SAME"}),
        (["BiasAdd", "LeakyRelu"], {"padding": "VALID", "leakyrelu_alpha": 0.4}),
        (["BiasAdd", "Add", "Relu"], {"padding": "VALID", "padding_list": [0, 0, 1, 0, 0, 2, 1, 1, 0, 0]}),
    ],
)
def test_fused_conv3d(names, settings):
    """TensorFlow has a kernel with oneDNN only: compared with the composition."""
    volume = RNG.normal(size=(2, 4, 3, 5, 3)).astype(np.float32)
    filter = RNG.normal(size=(2, 1, 2, 3, 4)).astype(np.float32)
    pads = np.reshape(settings.get("padding_list", [0] * 10), (5, 2))
    padded = tf.pad(volume, pads)
    expected = tf.nn.conv3d(padded, filter, [1] * 5, settings["padding"]) + BIAS
    args = [BIAS]
    if "Add" in names:
        args.append(RNG.normal(size=expected.shape).astype(np.float32))
        expected = expected + args[-1]
    if len(names) > 1:
        expected = tf.nn.relu(expected) if names[-1] == "Relu" else tf.nn.leaky_relu(expected, 0.4)
    more = {"data_format": "NDHWC", "dilations": [1] * 5, "epsilon": 1e-4, "leakyrelu_alpha": 0.2, "padding_list": []}

    def fused_conv3d(x, **settings):
        settings = {**more, "strides": [1] * 5, "fused_ops": names, "name": "fused", **settings}
        constants = list(map(tf.constant, args))
        return op_def_library.apply_op("_FusedConv3D", input=x, filter=filter, args=constants, **settings)

    spec = tf.TensorSpec(volume.shape, tf.float32)
    jax_fn = tf2jax.convert_functional(tf.function(lambda x: fused_conv3d(x, **settings)), spec)
    np.testing.assert_allclose(jax.jit(jax_fn)(volume), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_fused_conv3d_with_two_paddings_raises():
    fn = registry.lookup("_FusedConv3D").fn
    settings = {"num_args": 0, "strides": [1] * 5, "padding": "SAME", "padding_list": [0] * 10}
    with pytest.raises(UnsupportedAttributeError, match="together with padding_list"):
        fn(np.zeros((1, 2, 2, 2, 1)), np.zeros((1, 1, 1, 1, 1)), [], **settings)
