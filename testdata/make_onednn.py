"""Record the results of TensorFlow's oneDNN kernels.

Usage: ``python testdata/make_onednn.py`` from the project's root.

The fused quantized ops run with TF_ENABLE_ONEDNN_OPTS=1 alone, which other tests must not have: so results are recorded
in ``onednn.npz``, with the inputs. ``cases`` is JSON: op, attributes, and names of inputs with their quantized types.
Numbers are such that processors without VNNI compute the same: filters of qint8 images are even, and products small.
"""

import json
import os
from pathlib import Path

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library

HERE = Path(__file__).parent
RNG = np.random.default_rng(0)
F = np.float32
PLAIN = {tf.qint8: tf.int8, tf.quint8: tf.uint8, tf.qint32: tf.int32}
QUANTIZED = {np.dtype(v.as_numpy_dtype): k for k, v in PLAIN.items()}
CASES, ARRAYS = [], {}


def record(op, inputs, **attrs):
    types = {k: QUANTIZED[v.dtype].name for k, v in inputs.items() if v.dtype in QUANTIZED}
    first = next(iter(inputs))

    @tf.function(autograph=False)
    def call(x):
        values = {k: x if k == first else tf.constant(v) for k, v in inputs.items()}
        values = {k: tf.bitcast(v, getattr(tf, types[k])) if k in types else v for k, v in values.items()}
        found = tf.nest.flatten(getattr(tf.raw_ops, op)(**values, **attrs))
        return [tf.bitcast(v, PLAIN[v.dtype]) if v.dtype in PLAIN else v for v in found]

    outputs = call(tf.constant(inputs[first]))
    number = len(CASES)
    ARRAYS.update({f"{number}/{k}": v for k, v in inputs.items()})
    ARRAYS.update({f"{number}/out_{i}": v.numpy() for i, v in enumerate(outputs)})
    CASES.append({"op": op, "attrs": attrs, "types": types, "inputs": list(inputs), "outputs": len(outputs)})


def convolution(op, channelwise, image=np.uint8, bias=F, stride=1, padding="SAME", dilation=1, padding_list=None):
    depthwise = "Depthwise" in op
    count = 3 if depthwise else 4
    low, high = -RNG.uniform(0.5, 1.5, count).astype(F), RNG.uniform(0.5, 1.5, count).astype(F)
    inputs = {
        "input": RNG.integers(0 if image == np.uint8 else -60, 100, (2, 6, 5, 3)).astype(image),
        "filter": (RNG.integers(-25, 25, (3, 3, 3, 1 if depthwise else 4)) * 2).astype(np.int8),
    }
    if "Bias" in op:
        floats = RNG.normal(size=count).astype(F)
        inputs["bias"] = floats if bias == F else (floats * 3000).astype(np.int32)
    inputs |= {"min_input": F(0 if image == np.uint8 else -2.5), "max_input": F(2.9)}
    inputs |= {"min_filter": low if channelwise else low[0], "max_filter": high if channelwise else high[0]}
    if "Requantize" in op:
        inputs |= {"min_freezed_output": F(0 if "Relu" in op else -9), "max_freezed_output": F(10)}
    attrs = {"strides": [1, stride, stride, 1], "padding": padding, "dilations": [1, dilation, dilation, 1]}
    record(op, inputs, **attrs, **({"padding_list": padding_list} if padding_list else {}))


def product(op, mode, bias, low):
    floats = RNG.normal(size=4).astype(F)
    inputs = {
        "a": RNG.integers(0, 100, (5, 7)).astype(np.uint8),
        "b": (RNG.integers(-30, 30, (7, 4)) * 2).astype(np.int8),
        "bias": floats if bias == F else (floats * 3000).astype(np.int32),
    }
    inputs |= {"min_a": F(low), "max_a": F(2.3), "min_b": F(-0.9), "max_b": F(1.2)}
    if op.endswith(("Requantize", "Dequantize")):
        inputs |= {"min_freezed_output": F(-8), "max_freezed_output": F(9)}
    record(op, inputs, input_quant_mode=mode, **({"Toutput": "float32"} if op.endswith("Dequantize") else {}))


CONV, DEPTHWISE, MATMUL = "QuantizedConv2D", "QuantizedDepthwiseConv2D", "QuantizedMatMulWithBias"
for each in (False, True):
    for end in ("PerChannel", "AndRelu", "AndReluAndRequantize"):
        convolution(CONV + end, each)
    for end in ("", "WithBias", "WithBiasAndRelu", "WithBiasAndReluAndRequantize"):
        convolution(DEPTHWISE + end, each)
    for end in ("WithBias", "WithBiasAndRelu", "WithBiasAndRequantize", "WithBiasAndReluAndRequantize"):
        for kind in (np.uint8, np.int8):
            convolution(CONV + end, each, kind)
    for op in (CONV + "WithBiasAndRequantize", CONV + "WithBiasAndReluAndRequantize"):
        for kind in (np.uint8, np.int8):
            convolution(op, each, kind, np.int32)
    convolution(DEPTHWISE + "WithBiasAndReluAndRequantize", each, bias=np.int32)
convolution(CONV + "AndRequantize", False)
convolution(CONV + "WithBias", True, stride=2, padding="VALID")
convolution(CONV + "WithBias", False, dilation=2)
convolution(CONV + "WithBiasAndRelu", False, padding="VALID", padding_list=[0, 0, 1, 2, 3, 1, 0, 0])
convolution(DEPTHWISE + "WithBias", True, stride=2)
for end in ("", "AndRelu", "AndRequantize", "AndReluAndRequantize", "AndDequantize"):
    product(MATMUL + end, "MIN_FIRST", F, 0)
    product(MATMUL + end, "SCALED", F, 0)
    if end != "AndRelu":
        product(MATMUL + end, "MIN_FIRST", np.int32, -1.1)
product(MATMUL + "AndDequantize", "SCALED", F, -1.1)
product(MATMUL + "AndDequantize", "SCALED", np.int32, -1.1)


def concatenation(kind, lows, highs):
    """QuantizedConcatV2, whose inputs are lists: ``tf.raw_ops`` lacks it."""
    count, limits = len(lows), np.iinfo(kind)
    parts = [RNG.integers(limits.min, limits.max + 1, (3, 2 + i)).astype(kind) for i in range(count)]
    number = len(CASES)

    @tf.function(autograph=False)
    def call(*values):
        found = op_def_library.apply_op(
            "QuantizedConcatV2", values=[tf.bitcast(v, QUANTIZED[np.dtype(v.dtype.as_numpy_dtype)]) for v in values],
            axis=1, input_mins=list(lows), input_maxes=list(highs),
        )  # fmt: skip
        return [tf.bitcast(found[0], kind), *found[1:]]

    ARRAYS.update({f"{number}/{i}": v for i, v in enumerate(parts)})
    ARRAYS.update({f"{number}/out_{i}": v.numpy() for i, v in enumerate(call(*map(tf.constant, parts)))})
    ends = {"input_mins": list(map(float, lows)), "input_maxes": list(map(float, highs))}
    CASES.append({"op": "QuantizedConcatV2", "attrs": ends, "parts": count})


for most in ([1.5, 1.5], [0.53, 1.27, 3.0], [6.0, 2.3]):
    concatenation(np.uint8, [F(0)] * len(most), list(map(F, most)))
    concatenation(np.int8, [F(-v) for v in most], list(map(F, most)))
concatenation(np.uint8, [F(-0.7), F(-1.9)], [F(2.2), F(1.1)])


def optimized(op, inputs, **attrs):
    """Add an op that TensorFlow's graph optimizer makes: ``tf.raw_ops`` lacks it."""
    number, names = len(CASES), list(inputs)

    @tf.function(autograph=False)
    def call(*values):
        given = dict(zip(names, values, strict=True))
        if "num_args" in attrs:
            given = {"x": given["x"], "y": given["y"], "args": values[2:]}
        more = {k: v for k, v in attrs.items() if k != "num_args"}
        return op_def_library.apply_op(op, name="made", **given, **more)

    ARRAYS.update({f"{number}/{k}": v for k, v in inputs.items()})
    ARRAYS[f"{number}/out_0"] = call(*map(tf.constant, inputs.values())).numpy()
    CASES.append({"op": op, "attrs": attrs, "optimized": names})


IMAGE, VECTORS = RNG.normal(size=(2, 4, 5, 3)).astype(F), RNG.normal(size=(2, 3)).astype(F)
optimized("_MklSwish", {"features": IMAGE})
optimized("_MklFusedMish", {"features": 4 * IMAGE})
optimized("_MklLayerNorm", {"x": IMAGE[0] + 3, "scale": VECTORS[0], "offset": VECTORS[1]}, epsilon=0.1)
for then in ([], ["Relu"], ["LeakyRelu"]):
    optimized(
        "_MklFusedInstanceNorm", {"x": IMAGE + 3, "gamma": VECTORS[0], "beta": VECTORS[1]}, fused_ops=then, epsilon=0.1,
        leakyrelu_alpha=0.3, reduction_axes=[1, 2],
    )  # fmt: skip
optimized(
    "_MklFusedInstanceNorm", {"x": IMAGE, "gamma": RNG.normal(size=4).astype(F), "beta": RNG.normal(size=4).astype(F)},
    fused_ops=[], epsilon=0.1, leakyrelu_alpha=0.3, reduction_axes=[2, 3],
)  # fmt: skip
for turned in (False, True):
    optimized(
        "_MklFusedBatchMatMulV2",
        {"x": IMAGE, "y": IMAGE if turned else IMAGE[:, :, :3], "scale": F(0.7), "mask": VECTORS[:, :1, None, None]},
        num_args=2, fused_ops=["Mul", "Add"], adj_x=False, adj_y=turned, epsilon=1e-4, leakyrelu_alpha=0.2,
    )  # fmt: skip

np.savez_compressed(HERE / "onednn.npz", cases=json.dumps(CASES), **ARRAYS)
