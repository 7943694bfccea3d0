"""While loops that count become scans: values, gradients, carried buffers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.lowering.scan_opt.scans import carried_shapes
from tf2jax_lite.loops.body import Deferred
from tf2jax_lite.loops.counted import scan_counted

X = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)


def read(x, i, axis):
    return lax.squeeze(lax.dynamic_slice_in_dim(x, i, 1, axis), (axis,))


def write(x, value, i, axis):
    return lax.dynamic_update_slice_in_dim(x, jnp.expand_dims(value, axis), i, axis)


def mapped(axis, first=0, step=1):
    """Read an element of x, and write its sine at the same index."""

    def body(i, x, out):
        at = first + step * i
        return write(out, jnp.sin(read(x, at, axis)), at, axis)

    return body


# The body, the first value of the counter, its limit, and whether the buffer leaves the carry.
LOOPS = {
    "axis 0": (mapped(0), 0, 4, True),
    "axis 2": (mapped(2), 0, 5, True),
    "a part": (mapped(1, 1), 0, 2, True),
    "backwards": (mapped(0, 3, -1), 0, 4, True),
    "counter from 2": (mapped(2, -2), 2, 7, True),
    "backwards in part": (mapped(1, 2, -1), 0, 2, True),
    "one iteration": (mapped(0, 2), 0, 1, True),
    "none": (mapped(0), 0, 0, True),
    "every other": (mapped(2, 0, 2), 0, 3, False),
    "out of range": (mapped(1, 2), 0, 3, False),
    "counter is read": (lambda i, x, out: write(out, read(x, i, 0) * i.astype(np.float32), i, 0), 0, 4, True),
    "adds to it": (lambda i, x, out: write(out, read(out, i, 0) + read(x, i, 0), i, 0), 0, 4, True),
    "reads its writes": (lambda i, x, out: write(out, read(out, i, 0) + read(x, i, 0), i + 1, 0), 0, 3, False),
    "read as a whole": (lambda i, x, out: write(out, read(x, i, 0) + out.sum(), i, 0), 0, 4, False),
    "two axes": (lambda i, x, out: lax.dynamic_update_slice(out, x[:1, :1] * 2, (i, i, 0)), 0, 3, False),
}


@pytest.mark.parametrize(("body", "first", "limit", "leaves"), LOOPS.values(), ids=LOOPS)
def test_scan_counted(body, first, limit, leaves):
    def run(x, counted):
        start = np.int32(first), x, jnp.cos(x)
        test = lambda carry: carry[0] < limit  # noqa: E731
        step = lambda carry: [carry[0] + 1, carry[1], body(*carry)]  # noqa: E731
        if not counted:
            return lax.fori_loop(first, limit, lambda i, out: body(i, x, out), jnp.cos(x))
        values = [Deferred(jax.typeof(v), lambda v=v: jnp.asarray(v)) for v in start]
        found = scan_counted(test, step, values, {0: first})
        assert found is not None
        assert found[0] == max(first, limit)
        return found[2]

    ours, theirs = (jax.jit(lambda x, c=c: run(x, c)) for c in (True, False))
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-6)
    gradients = [jax.jit(jax.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x))))) for f in (ours, theirs)]
    np.testing.assert_allclose(gradients[0](X), gradients[1](X), rtol=1e-5, atol=1e-6)
    assert (X.shape not in carried_shapes(jax.make_jaxpr(lambda x: run(x, True))(X).jaxpr)) == leaves


@pytest.mark.parametrize(
    ("step", "limit"),
    [
        (lambda i, x: [i * 2 + 1, x + 1], 4),
        (lambda i, x: [i + 1, x + 1], None),
    ],
    ids=["no counter", "traced limit"],
)
def test_scan_counted_other_loops_none(step, limit):
    def run(x):
        start = np.int32(0), x
        top = x.sum().astype(np.int32) if limit is None else limit
        values = [Deferred(jax.typeof(v), lambda v=v: jnp.asarray(v)) for v in start]
        return scan_counted(lambda carry: carry[0] < top, lambda carry: step(*carry), values, {0: 0})

    assert jax.eval_shape(run, X) is None
