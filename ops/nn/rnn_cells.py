"""Fused LSTM and GRU cells and their gradients.

An LSTM op computes one step, or all steps of a sequence. As in TensorFlow, the gradient of an LSTM ignores the clipping
of the cell state, and the cotangents of all results but ``cs`` and ``h``.

TF: core/kernels/rnn/lstm_ops.cc, core/kernels/rnn/gru_ops.cc.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.common.derivatives import logistic
from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError

# Indices of the input gate, cell input, forget gate and output gate in the product with the weights.
_ICFO, _IFCO = (0, 1, 2, 3), (0, 2, 1, 3)


def _dot(a: Any, b: Any) -> Any:
    return lax.dot_general(a, b, (((a.ndim - 1,), (0,)), ((), ())), preferred_element_type=a.dtype)


def _check_lstm(x: Any, cs_prev: Any, h_prev: Any, w: Any, b: Any) -> None:
    if cs_prev.ndim != 2 or h_prev.shape != cs_prev.shape:
        raise OpError(f"cs_prev and h_prev must be matrices of the same shape, not {cs_prev.shape} and {h_prev.shape}")
    inputs, cells = x.shape[-1], cs_prev.shape[1]
    if w.shape != (inputs + cells, 4 * cells) or b.shape != (4 * cells,):
        raise OpError(f"w {w.shape} and b {b.shape} do not fit {inputs} inputs and {cells} cells")


def _gates(product: Any, order: tuple[int, ...]) -> list[Any]:
    """Return the gates as i, ci, f, o."""
    parts = jnp.split(product, 4, axis=-1)
    return [parts[k] for k in order]


def _clip(cs: Any, cell_clip: float) -> Any:
    if cell_clip <= 0:
        return cs

    @jax.custom_jvp
    def clip(cs: Any) -> Any:
        limit = jnp.asarray(cell_clip, cs.dtype)
        return lax.clamp(-limit, cs, limit)

    clip.defjvp(lambda primals, tangents: (clip(*primals), tangents[0]))
    return clip(cs)


def _lstm_step(
    x: Any,
    cs_prev: Any,
    h_prev: Any,
    w: Any,
    peep: tuple[Any, Any, Any] | None,
    b: Any,
    forget_bias: float,
    cell_clip: float,
    order: tuple[int, ...],
) -> tuple[Any, ...]:
    i, ci, f, o = _gates(_dot(jnp.concatenate([x, h_prev], axis=1), w) + b, order)
    f = f + jnp.asarray(forget_bias, f.dtype)
    if peep is not None:
        i, f = i + cs_prev * peep[0], f + cs_prev * peep[1]
    i, f, ci = logistic(i), logistic(f), lax.tanh(ci)
    cs = _clip(ci * i + cs_prev * f, cell_clip)
    co = lax.tanh(cs)
    o = logistic(o if peep is None else o + cs * peep[2])
    return i, cs, f, o, ci, co, o * co


def _differentiable_in_cs_and_h(results: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(r if k in (1, 6) else lax.stop_gradient(r) for k, r in enumerate(results))


@op("LSTMBlockCell")
def lstm_block_cell(x, cs_prev, h_prev, w, wci, wcf, wco, b, *, forget_bias=1.0, cell_clip=3.0, use_peephole=False):
    """Compute one step of an LSTM.

    Returns:
      i, cs, f, o, ci, co and h, [batch, cells] each.
    """
    x, cs_prev, h_prev, w, b = (jnp.asarray(v) for v in (x, cs_prev, h_prev, w, b))
    _check_lstm(x, cs_prev, h_prev, w, b)
    peep = (wci, wcf, wco) if use_peephole else None
    return _differentiable_in_cs_and_h(_lstm_step(x, cs_prev, h_prev, w, peep, b, forget_bias, cell_clip, _ICFO))


def _block_lstm(
    seq_len_max: Any,
    x: Any,
    cs_prev: Any,
    h_prev: Any,
    w: Any,
    peep: tuple[Any, Any, Any] | None,
    b: Any,
    forget_bias: float,
    cell_clip: float,
    order: tuple[int, ...],
) -> tuple[Any, ...]:
    x, cs_prev, h_prev, w, b = (jnp.asarray(v) for v in (x, cs_prev, h_prev, w, b))
    if x.ndim != 3:
        raise OpError(f"x has time, batch and inputs, not rank {x.ndim}")
    _check_lstm(x, cs_prev, h_prev, w, b)
    steps = lax.iota(jnp.int32, x.shape[0])

    def body(state: Any, item: Any) -> Any:
        step, x = item
        cs_prev, h_prev = state
        results = _lstm_step(x, cs_prev, h_prev, w, peep, b, forget_bias, cell_clip, order)
        valid = step < jnp.asarray(seq_len_max)
        # TensorFlow leaves the results other than cs and h uninitialized past the end.
        return (results[1], results[6]), tuple(jnp.where(valid, r, jnp.zeros_like(r)) for r in results)

    return _differentiable_in_cs_and_h(scan(body, (cs_prev, h_prev), (steps, x))[1])


@op("BlockLSTM", pattern=Pattern.MATERIALIZED)
def block_lstm(
    seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, *, forget_bias=1.0, cell_clip=3.0, use_peephole=False
):
    """Compute all steps of an LSTM.

    Args:
      seq_len_max: int64 scalar, number of valid time steps.

    Returns:
      i, cs, f, o, ci, co and h, [time, batch, cells] each; 0 past ``seq_len_max``.
    """
    peep = (wci, wcf, wco) if use_peephole else None
    return _block_lstm(seq_len_max, x, cs_prev, h_prev, w, peep, b, forget_bias, cell_clip, _ICFO)


@op("BlockLSTMV2", pattern=Pattern.MATERIALIZED)
def block_lstm_v2(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, *, cell_clip=0.0, use_peephole=False):
    """Compute all steps of an LSTM with gates in the order i, f, ci, o.

    As `block_lstm`, without a forget bias.
    """
    peep = (wci, wcf, wco) if use_peephole else None
    return _block_lstm(seq_len_max, x, cs_prev, h_prev, w, peep, b, 0.0, cell_clip, _IFCO)


# Gradients from results of the forward ops. These ops do not get the forget bias and the clip.


def _lstm_step_grad(
    cs_prev: Any,
    peep: tuple[Any, Any, Any] | None,
    saved: Any,
    cs_grad: Any,
    h_grad: Any,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Return gradients of a step: cs_prev; pre-activations of i, ci, f, o; peepholes."""
    i, cs, f, o, ci, co = saved
    d_o = o * (1 - o) * h_grad * co
    d_cs = (1 - co * co) * h_grad * o + cs_grad
    if peep is not None:
        d_cs = d_cs + d_o * peep[2]
    d_ci = (1 - ci * ci) * d_cs * i
    d_f = f * (1 - f) * d_cs * cs_prev
    d_i = i * (1 - i) * d_cs * ci
    d_prev = d_cs * f
    if peep is None:
        return d_prev, (d_i, d_ci, d_f, d_o), tuple(jnp.zeros(cs.shape[1:], cs.dtype) for _ in range(3))
    d_peep = tuple(total(d * c, 0) for d, c in ((d_i, cs_prev), (d_f, cs_prev), (d_o, cs)))
    return d_prev + d_i * peep[0] + d_f * peep[1], (d_i, d_ci, d_f, d_o), d_peep


@op("LSTMBlockCellGrad")
def lstm_block_cell_grad(
    x, cs_prev, h_prev, w, wci, wcf, wco, b, i, cs, f, o, ci, co, cs_grad, h_grad, *, use_peephole
):
    """Compute the gradients of `lstm_block_cell`.

    Returns:
      Gradients with respect to cs_prev, the pre-activations of the gates [batch, 4 * cells], and the three peepholes.
    """
    peep = (wci, wcf, wco) if use_peephole else None
    cs_prev, i, cs, f, o, ci, co = (jnp.asarray(v) for v in (cs_prev, i, cs, f, o, ci, co))
    d_prev, gates, d_peep = _lstm_step_grad(cs_prev, peep, (i, cs, f, o, ci, co), cs_grad, h_grad)
    return d_prev, jnp.concatenate(gates, axis=1), *d_peep


def _block_lstm_grad(
    seq_len_max: Any,
    x: Any,
    cs_prev: Any,
    h_prev: Any,
    w: Any,
    peep: tuple[Any, Any, Any] | None,
    saved: tuple[Any, ...],
    cs_grad: Any,
    h_grad: Any,
    order: tuple[int, ...],
) -> tuple[Any, ...]:
    x, cs_prev, h_prev, w = (jnp.asarray(v) for v in (x, cs_prev, h_prev, w))
    i, cs, f, o, ci, co, h = (jnp.asarray(v) for v in saved)
    inputs = x.shape[2]
    previous_cs = jnp.concatenate([cs_prev[None], cs[:-1]])
    previous_h = jnp.concatenate([h_prev[None], h[:-1]])

    def body(state: Any, item: Any) -> Any:
        d_cs, d_h = state
        step, x, c_prev, h_prev, *saved, cs_grad, h_grad = item
        valid = step < jnp.asarray(seq_len_max)

        def masked(value: Any) -> Any:
            return jnp.where(valid, value, jnp.zeros_like(value))

        d_prev, gates, d_peep = _lstm_step_grad(c_prev, peep, saved, cs_grad + d_cs, h_grad + d_h)
        d_gates = masked(jnp.concatenate([gates[k] for k in order], axis=1))
        d_xh = _dot(d_gates, w.T)
        d_w = _dot(jnp.concatenate([x, masked(h_prev)], axis=1).T, d_gates)
        parts = d_w, total(d_gates, 0), *map(masked, d_peep)
        return (masked(d_prev), d_xh[:, inputs:]), (d_xh[:, :inputs], parts)

    zeros = jnp.zeros_like(cs_prev)
    items = (lax.iota(jnp.int32, x.shape[0]), x, previous_cs, previous_h, i, cs, f, o, ci, co, cs_grad, h_grad)
    (d_cs_prev, d_h_prev), (d_x, parts) = scan(body, (zeros, zeros), items, reverse=True)
    d_w, d_b, *d_peep = (total(p, 0) for p in parts)
    return d_x, d_cs_prev, d_h_prev, d_w, *d_peep, d_b


def _grad_of(order: tuple[int, ...], name: str) -> Any:
    def grad(
        seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, i, cs, f, o, ci, co, h, cs_grad, h_grad, *, use_peephole
    ):
        """Return the gradients of `block_lstm` with respect to its float inputs, x to b."""
        peep, saved = ((wci, wcf, wco) if use_peephole else None), (i, cs, f, o, ci, co, h)
        return _block_lstm_grad(seq_len_max, x, cs_prev, h_prev, w, peep, saved, cs_grad, h_grad, order)

    return grad


op("BlockLSTMGrad")(_grad_of(_ICFO, "BlockLSTMGrad"))
op("BlockLSTMGradV2")(_grad_of(_IFCO, "BlockLSTMGradV2"))


@op("GRUBlockCell")
def gru_block_cell(x, h_prev, w_ru, w_c, b_ru, b_c):
    """Compute one step of a GRU.

    Returns:
      r, u, c and h, [batch, cells] each.
    """
    x, h_prev, w_ru, w_c = (jnp.asarray(v) for v in (x, h_prev, w_ru, w_c))
    rows, cells = x.shape[1] + h_prev.shape[1], h_prev.shape[1]
    if w_ru.shape != (rows, 2 * cells) or w_c.shape != (rows, cells):
        raise OpError(f"w_ru {w_ru.shape} and w_c {w_c.shape} do not fit {x.shape[1]} inputs and {cells} cells")
    r, u = jnp.split(logistic(_dot(jnp.concatenate([x, h_prev], axis=1), w_ru) + b_ru), 2, axis=1)
    c = lax.tanh(_dot(jnp.concatenate([x, h_prev * r], axis=1), w_c) + b_c)
    return r, u, c, u * h_prev + (1 - u) * c


@op("GRUBlockCellGrad")
def gru_block_cell_grad(x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, d_h):
    """Compute the gradients of `gru_block_cell`.

    Returns:
      Gradients with respect to x, h_prev, and the pre-activations of c and of (r, u).
    """
    inputs, w_ru, w_c = x.shape[1], jnp.asarray(w_ru), jnp.asarray(w_c)
    h_prev, r, u, c, d_h = (jnp.asarray(v) for v in (h_prev, r, u, c, d_h))
    d_c_bar = d_h * (1 - u) * (1 - c * c)
    d_u_bar = d_h * (h_prev - c) * u * (1 - u)
    d_xhr = _dot(d_c_bar, w_c.T)
    d_hr = d_xhr[:, inputs:]
    d_r_bar_u_bar = jnp.concatenate([d_hr * h_prev * r * (1 - r), d_u_bar], axis=1)
    d_xh = _dot(d_r_bar_u_bar, w_ru.T)
    d_x = d_xh[:, :inputs] + d_xhr[:, :inputs]
    return d_x, d_xh[:, inputs:] + d_hr * r + d_h * u, d_c_bar, d_r_bar_u_bar
