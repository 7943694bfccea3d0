"""Convolutions and matrix products as jax2tf exports them."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

from .harness import FLOATS, cast, compiled, i32, numbers, randoms

random = randoms()


def conv_numbers(lhs=(0, 3, 1, 2), rhs=(3, 2, 0, 1), out=(0, 3, 1, 2)):
    """Batch and feature (output and input feature), then spatial dimensions."""
    return numbers(
        "ConvolutionDimensionNumbers",
        input_batch_dimension=lhs[0],
        input_feature_dimension=lhs[1],
        input_spatial_dimensions=lhs[2:],
        kernel_output_feature_dimension=rhs[0],
        kernel_input_feature_dimension=rhs[1],
        kernel_spatial_dimensions=rhs[2:],
        output_batch_dimension=out[0],
        output_feature_dimension=out[1],
        output_spatial_dimensions=out[2:],
    )


HIGHEST = numbers("PrecisionConfig", operand_precision=[2, 2])
NHWC = conv_numbers()
NCHW = conv_numbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
ONE = conv_numbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
IMAGE = random(2, 5, 6, 4)
KERNEL = random(3, 2, 4, 6)
PADS = np.int32([[1, 0], [0, 2]])


def conv(
    lhs=IMAGE,
    rhs=KERNEL,
    strides=(1, 1),
    padding=PADS,
    base=(1, 1),
    inner=(1, 1),
    groups=1,
    numbers=NHWC,
    config=b"",
    **v2,
):
    return case(
        "XlaConvV2" if v2 else "XlaConv",
        lhs,
        rhs,
        i32(*strides),
        padding,
        i32(*base),
        i32(*inner),
        np.int32(groups),
        dimension_numbers=numbers,
        precision_config=config,
        **v2,
    )


def dot(lhs, rhs, contract, batch=((), ()), config=b"", **v2):
    proto = numbers(
        "DotDimensionNumbers",
        lhs_contracting_dimensions=contract[0],
        rhs_contracting_dimensions=contract[1],
        lhs_batch_dimensions=batch[0],
        rhs_batch_dimensions=batch[1],
    )
    return case("XlaDotV2" if v2 else "XlaDot", lhs, rhs, dimension_numbers=proto, precision_config=config, **v2)


CASES = [
    *(conv(cast(IMAGE, t), cast(KERNEL, t)) for t in ("float32", "float64", "bfloat16")),
    conv(strides=(2, 3)),
    conv(base=(2, 3)),
    conv(inner=(2, 2)),
    conv(padding=np.int32([[-2, 1], [1, -1]]), base=(2, 3)),
    conv(groups=2, rhs=random(3, 2, 2, 6)),
    conv(groups=4, rhs=random(3, 2, 1, 8)),
    conv(numbers=NCHW, lhs=random(2, 4, 5, 6), rhs=random(6, 4, 3, 2)),
    conv(
        numbers=ONE,
        lhs=random(2, 5, 3),
        rhs=random(2, 3, 4),
        strides=(1,),
        padding=np.int32([[1, 1]]),
        base=(1,),
        inner=(1,),
    ),
    conv(config=HIGHEST),
    conv().using(symbolic=("b, 5, 6, 4", "3, 2, 4, 6"), name="sym"),
    conv(padding=PADS.astype(np.int64), strides=(1, 1)).using(error="could not trace", name="types"),
    conv(preferred_element_type=tf.float32),
    conv(preferred_element_type=tf.float32, config=HIGHEST),
    conv(cast(IMAGE, "bfloat16"), cast(KERNEL, "bfloat16"), preferred_element_type=tf.float32),
    conv(cast(IMAGE, "int8"), cast(KERNEL, "int8"), preferred_element_type=tf.int32),
    conv(random(4, 5, 6, 4), random(3, 2, 4, 6), batch_group_count=2, preferred_element_type=tf.float32),
    *(dot(random(3, 4, dtype=t), random(4, 2, dtype=t), ([1], [0])) for t in (*FLOATS, "int32", "int64", "complex64")),
    dot(random(4, 3), random(2, 4), ([0], [1])),
    dot(random(2, 3, 4), random(2, 4, 5), ([2], [1]), ([0], [0])),
    dot(random(3, 2, 4), random(4, 5, 2), ([2], [0]), ([1], [2]), HIGHEST),
    dot(random(3, 2), random(4), ([], [])),
    dot(random(3, 4), random(4), ([1], [0])).using(symbolic=("b, 4", "4"), name="sym"),
    dot(random(3, 4), random(4, 2), ([1], [0]), preferred_element_type=tf.float32),
    dot(random(3, 4, dtype="int8"), random(4, 2, dtype="int8"), ([1], [0]), preferred_element_type=tf.int32),
    dot(random(3, 4, dtype="bfloat16"), random(4, 2, dtype="bfloat16"), ([1], [0]), preferred_element_type=tf.float32),
    *(
        case("XlaEinsum", random(*a, dtype=t), random(*b, dtype=t), equation=e)
        for e, a, b in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
            ("ab,cd->dacb", (2, 3), (1, 2)),
        )
        for t in ("float32", "bfloat16", "complex64")
    ),
]


@pytest.mark.parametrize("case", tiered(compiled(CASES)))
def test_case(case):
    check(case)


def test_negative_padding():
    # XLA:CPU reads out of bounds for it, in TensorFlow too; so the oracle gets a smaller image.
    def fn(x, padding):
        return gen_xla_ops.xla_conv(x, KERNEL, [1, 1], padding, [1, 1], [1, 1], 1, NHWC, b"")

    jax_fn = tf2jax.convert_functional(lambda x: fn(x, [[-1, 1], [0, -2]]), tf.TensorSpec(IMAGE.shape))
    expected = tf.function(fn, jit_compile=True)(IMAGE[:, 1:, :-2], [[0, 1], [0, 0]])
    np.testing.assert_allclose(jax.jit(jax_fn)(IMAGE), expected, rtol=1e-5)
