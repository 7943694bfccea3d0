"""Recurrent cells against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
TIME, BATCH, INPUTS, CELLS = 4, 2, 3, 2
F32 = np.float32


def draw(*shape, dtype=F32, scale=1.0):
    return (RNG.normal(size=shape) * scale).astype(dtype)


def lstm(dtype=F32, batch=BATCH, scale=1.0, inputs=INPUTS):
    """Return cs_prev, h_prev, w, wci, wcf, wco, b."""
    return (
        *(draw(batch, CELLS, dtype=dtype) for _ in range(2)),
        draw(inputs + CELLS, 4 * CELLS, dtype=dtype, scale=scale),
        *(draw(CELLS, dtype=dtype) for _ in range(3)),
        draw(4 * CELLS, dtype=dtype),
    )


def sequence(op, length=TIME, dtype=F32, name="", batch=BATCH, scale=1.0, time=TIME, **attrs):
    x = draw(time, batch, INPUTS, dtype=dtype)
    return case(op, np.int64(length), x, *lstm(dtype, batch, scale), **attrs).using(name=name)


def padded(length):
    """Compare up to ``length``; past it results are 0 here, partly unset there."""

    def compare(expected, actual):
        for k, (e, a) in enumerate(zip(expected, actual, strict=True)):
            part = slice(None) if k in (1, 6) else slice(0, length)
            np.testing.assert_allclose(a[part], e[part], rtol=1e-5, atol=1e-6)
            assert not a[..., length:, :, :].any()

    return compare


def sequence_grad(op, length=TIME, dtype=F32, name="", **attrs):
    forward = sequence(op, length, dtype, **attrs)
    saved = getattr(tf.raw_ops, op)(**dict(zip(NAMES, map(tf.constant, forward.inputs), strict=True)), **attrs)
    saved = [np.nan_to_num(np.asarray(s)) for s in saved]
    grads = [draw(TIME, BATCH, CELLS, dtype=dtype) for _ in range(2)]
    grad_op = {"BlockLSTM": "BlockLSTMGrad", "BlockLSTMV2": "BlockLSTMGradV2"}[op]
    peephole = attrs.get("use_peephole", False)
    return case(grad_op, *forward.inputs, *saved, *grads, use_peephole=peephole).using(grad=False, name=name)


def cell_grad(use_peephole, dtype=F32):
    state = lstm(dtype)
    acts = [np.abs(draw(BATCH, CELLS, dtype=dtype)) / 4 for _ in range(6)]
    grads = [draw(BATCH, CELLS, dtype=dtype) for _ in range(2)]
    c = case("LSTMBlockCellGrad", draw(BATCH, INPUTS, dtype=dtype), *state, *acts, *grads, use_peephole=use_peephole)
    return c.using(grad=False)


def gru(batch=BATCH):
    weights = draw(INPUTS + CELLS, 2 * CELLS), draw(INPUTS + CELLS, CELLS), draw(2 * CELLS), draw(CELLS)
    return draw(batch, INPUTS), draw(batch, CELLS), *weights


NAMES = ("seq_len_max", "x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
CASES = [
    *(
        # TensorFlow uses BlockLSTMGrad for BlockLSTMV2, too, whose gates have another order: see the test below.
        c if op == "BlockLSTM" else c.using(grad=False)
        for op in ("BlockLSTM", "BlockLSTMV2")
        for c in (
            sequence(op, name="plain"),
            sequence(op, name="peephole", use_peephole=True),
            sequence(op, name="clip", cell_clip=0.3, use_peephole=True, scale=2.0),
            sequence(op, 2, name="short", use_peephole=True).using(compare=padded(2), vmap=False),
            sequence(op, 0, name="none", use_peephole=True).using(compare=padded(0), vmap=False),
            sequence(op, name="float16", dtype=np.float16, use_peephole=True).using(
                rtol=2e-2, atol=1e-2, grad_rtol=0.1
            ),
            sequence(op, name="symbolic", use_peephole=True).using(
                symbolic=("", "t, b, 3", "b, 2", "b, 2", "5, 8", "2", "2", "2", "8")
            ),
            sequence_grad(op, name="plain"),
            sequence_grad(op, name="peephole", use_peephole=True),
            sequence_grad(op, 2, name="short", use_peephole=True),
        )
    ),
    sequence("BlockLSTM", name="no-bias", forget_bias=0.0, cell_clip=-1.0),
    sequence("BlockLSTM", name="bias", forget_bias=2.5, cell_clip=0.0),
    case("BlockLSTM", np.int64(1), draw(2, 1, INPUTS), *lstm(inputs=4, batch=1)).using(error="do not fit"),
    *(
        case("LSTMBlockCell", draw(BATCH, INPUTS, dtype=d), *lstm(d, scale=2.0), **a).using(
            name=f"{np.dtype(d).name}-{i}", **({"rtol": 2e-2, "atol": 1e-2} if d == np.float16 else {})
        )
        for i, (d, a) in enumerate(
            (
                (F32, {}),
                (F32, {"use_peephole": True, "forget_bias": 0.5}),
                (F32, {"use_peephole": True, "cell_clip": 0.2}),
                (F32, {"cell_clip": 0.0}),
                (np.float16, {"use_peephole": True}),
            )
        )
    ),
    *(cell_grad(p) for p in (False, True)),
    cell_grad(True, np.float16).using(rtol=2e-2, atol=1e-2, name="float16"),
    case("GRUBlockCell", *gru()),
    case("GRUBlockCell", *gru(1)).using(name="one"),
    case("GRUBlockCell", *gru()).using(symbolic=("b, 3", "b, 2", "5, 4", "5, 2", "4", "2"), name="symbolic"),
    case("GRUBlockCell", draw(2, 4), *gru()[1:]).using(error="do not fit"),
    case("GRUBlockCellGrad", *gru(), *(np.abs(draw(BATCH, CELLS)) / 4 for _ in range(3)), draw(BATCH, CELLS)),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_gradient_of_block_lstm_v2():
    """BlockLSTMV2's gradient is BlockLSTMGradV2, unused by TensorFlow."""
    inputs = sequence("BlockLSTMV2", 3).inputs
    tensors = dict(zip(NAMES, map(tf.constant, inputs), strict=True))
    saved = tf.raw_ops.BlockLSTMV2(**tensors, use_peephole=True, cell_clip=0.3)
    grads = {n: draw(TIME, BATCH, CELLS) for n in ("cs_grad", "h_grad")}
    expected = tf.raw_ops.BlockLSTMGradV2(**tensors, **saved._asdict(), **grads, use_peephole=True)

    @tf.function
    def fn(*tensors):
        results = tf.raw_ops.BlockLSTMV2(**dict(zip(NAMES, tensors, strict=True)), use_peephole=True, cell_clip=0.3)
        return results.cs, results.h

    with jax.enable_x64(True):
        jax_fn = tf2jax.convert_functional(fn, *(tf.TensorSpec(v.shape, v.dtype) for v in inputs))
        _, pull = jax.vjp(lambda *floats: tuple(jax_fn(inputs[0], *floats)), *inputs[1:])
        actual = jax.jit(pull)(tuple(grads.values()))
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_allclose(a, e.numpy(), rtol=1e-4, atol=1e-5)
