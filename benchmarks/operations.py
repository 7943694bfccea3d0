"""The suite operations: single TensorFlow operations against ``tf.function``.

Calls and gradients are timed.

Models spend most of their time in convolutions and products, which other suites look at. This one looks for the
operation that takes many times what TensorFlow takes, wherever it is met.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tf2jax_lite

from .records import Result
from .timing import in_turns, seconds, waited

Make = Callable[[np.random.Generator], np.ndarray]


def normal(*shape: int) -> Make:
    """Make standard normal numbers."""
    return lambda rng: rng.normal(size=shape).astype(np.float32)


def between(*shape: int) -> Make:
    """Make uniform numbers between 0.05 and 0.95."""
    return lambda rng: rng.uniform(0.05, 0.95, size=shape).astype(np.float32)


def whole(bound: int, *shape: int) -> Make:
    """Make int32 numbers below a bound."""
    return lambda rng: rng.integers(0, bound, size=shape).astype(np.int32)


def corners(*shape: int) -> Make:
    """Make boxes with sides of up to a fifth."""

    def make(rng: np.random.Generator) -> np.ndarray:
        low = rng.uniform(size=(*shape, 2))
        return np.concatenate([low, low + rng.uniform(high=0.2, size=(*shape, 2))], -1).astype(np.float32)

    return make


def positive_definite(count: int, side: int) -> Make:
    """Make symmetric matrices with positive eigenvalues."""

    def make(rng: np.random.Generator) -> np.ndarray:
        a = rng.normal(size=(count, side, side)).astype(np.float32)
        return a @ a.transpose(0, 2, 1) + side * np.eye(side, dtype=np.float32)

    return make


def banded(*shape: int) -> Make:
    """Make lower triangular matrices of few bands."""

    def make(rng: np.random.Generator) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32) + 4 * (np.arange(shape[-2])[:, None] == 0).astype(np.float32)

    return make


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation."""

    name: str
    fn: Callable[..., Any]
    inputs: tuple[Make, ...]


IMAGES, SEQUENCES, ROWS, LONG = normal(4, 128, 128, 32), normal(16, 256, 256), normal(64, 1024), normal(1, 100, 768)
MATRICES = positive_definite(16, 64)
OPERATIONS = tuple(
    Operation(*entry)
    for entry in (
        ("sum over the first axis", lambda tf, x: tf.reduce_sum(x, 0), (normal(8, 64, 64, 64),)),
        ("maximum over the first axis", lambda tf, x: tf.reduce_max(x, 0), (normal(8, 64, 64, 64),)),
        ("variance over the first axis", lambda tf, x: tf.math.reduce_variance(x, 0), (normal(8, 64, 64, 64),)),
        ("sum over the last axis", lambda tf, x: tf.reduce_sum(x, -1), (normal(8, 64, 64, 64),)),
        ("mean of images", lambda tf, x: tf.reduce_mean(x, [1, 2]), (normal(8, 56, 56, 256),)),
        ("argmax", lambda tf, x: tf.argmax(x, -1), (normal(64, 32000),)),
        ("argmax over the first axis", lambda tf, x: tf.argmax(x, 0), (normal(64, 32000),)),
        ("cumsum", lambda tf, x: tf.cumsum(x, -1), (normal(64, 8192),)),
        ("softmax", lambda tf, x: tf.nn.softmax(x), (normal(64, 32000),)),
        ("softmax, not last", lambda tf, x: tf.nn.softmax(x, 1), (normal(32, 197, 768),)),
        ("softmax over the first axis", lambda tf, x: tf.nn.softmax(x, 0), (normal(64, 32000),)),
        ("logsumexp", lambda tf, x: tf.reduce_logsumexp(x, -1), (normal(64, 32000),)),
        ("sort", lambda tf, x: tf.sort(x), (ROWS,)),
        ("argsort", lambda tf, x: tf.argsort(x), (ROWS,)),
        ("top_k, 8 of 32000", lambda tf, x: tf.math.top_k(x, 8), (normal(64, 32000),)),
        ("top_k, half", lambda tf, x: tf.math.top_k(x, 512), (ROWS,)),
        ("nth_element", lambda tf, x: tf.raw_ops.NthElement(input=x, n=300), (ROWS,)),
        ("searchsorted", lambda tf, x, y: tf.searchsorted(tf.sort(x), y), (normal(32, 1000), normal(32, 2000))),
        ("gather", lambda tf, x, i: tf.gather(x, i), (normal(30000, 256), whole(30000, 8, 512))),
        ("gather_nd", lambda tf, x, i: tf.gather_nd(x, i), (normal(128, 128, 64), whole(128, 4096, 2))),
        ("scatter_nd", lambda tf, i, x: tf.scatter_nd(i, x, [1000, 64]), (whole(1000, 20000, 1), normal(20000, 64))),
        (
            "unsorted_segment_sum",
            lambda tf, x, i: tf.math.unsorted_segment_sum(x, i, 500),
            (normal(20000, 64), whole(500, 20000)),
        ),
        ("one_hot", lambda tf, i: tf.one_hot(i, 1000), (whole(1000, 4096),)),
        ("transpose", lambda tf, x: tf.transpose(x, [0, 3, 1, 2]), (normal(8, 56, 56, 64),)),
        ("mirror pad", lambda tf, x: tf.pad(x, [[0, 0], [3, 3], [3, 3], [0, 0]], "REFLECT"), (IMAGES,)),
        ("reverse_sequence", lambda tf, x, n: tf.reverse_sequence(x, n, 1, 0), (SEQUENCES, whole(256, 16))),
        ("gelu", lambda tf, x: tf.nn.gelu(x), (normal(64, 3072),)),
        ("lgamma", lambda tf, x: tf.math.lgamma(x), (between(256, 1024),)),
        ("erfinv", lambda tf, x: tf.math.erfinv(x), (between(256, 1024),)),
        ("atan2", lambda tf, x: tf.atan2(x, 1 - x), (between(256, 1024),)),
        ("acos", lambda tf, x: tf.acos(x), (between(256, 1024),)),
        ("batch norm", lambda tf, x, g: _batch_norm(tf, x, g), (IMAGES, normal(32))),
        ("resize, smaller", lambda tf, x: tf.image.resize(x, [224, 224]), (normal(8, 500, 375, 3),)),
        ("resize, larger", lambda tf, x: tf.image.resize(x, [256, 256]), (normal(4, 128, 128, 16),)),
        ("resize, cubic", lambda tf, x: tf.image.resize(x, [256, 256], "bicubic"), (normal(4, 128, 128, 3),)),
        ("resize, antialias", lambda tf, x: tf.image.resize(x, [64, 64], antialias=True), (normal(4, 256, 256, 3),)),
        ("resize, nearest", lambda tf, x: tf.image.resize(x, [256, 256], "nearest"), (normal(4, 128, 128, 16),)),
        ("hue", lambda tf, x: tf.image.adjust_hue(x, 0.1), (between(4, 256, 256, 3),)),
        ("ssim", lambda tf, x, y: tf.image.ssim(x, y, 1.0), (between(2, 128, 128, 3), between(2, 128, 128, 3))),
        (
            "crop_and_resize",
            lambda tf, x, b, i: tf.image.crop_and_resize(x, b, i, [14, 14]),
            (normal(2, 64, 64, 64), lambda rng: np.sort(between(100, 4)(rng), 1), whole(2, 100)),
        ),
        ("non-maximum suppression", lambda tf, b, s: _suppressed(tf, b, s), (corners(1917), between(1917))),
        ("the same of 90 classes", lambda tf, b, s: _by_class(tf, b, s), (corners(1, 1917, 1), between(1, 1917, 90))),
        ("isotonic", lambda tf, x: tf.nn.isotonic_regression(x, axis=-1)[0], (normal(64, 500),)),
        ("draw boxes", lambda tf, x, b: _boxes(tf, x, b), (between(4, 256, 256, 3), corners(4, 50))),
        ("extract_patches", lambda tf, x: _patches(tf, x), (normal(4, 128, 128, 3),)),
        ("depth_to_space", lambda tf, x: tf.nn.depth_to_space(x, 2), (normal(4, 64, 64, 64),)),
        ("max_pool3d", lambda tf, x: tf.nn.max_pool3d(x, 2, 2, "SAME"), (normal(2, 32, 32, 32, 16),)),
        ("dilation2d", lambda tf, x, w: _dilation(tf, x, w), (normal(2, 64, 64, 16), normal(3, 3, 16))),
        ("lrn", lambda tf, x: tf.nn.local_response_normalization(x, 5), (normal(4, 56, 56, 64),)),
        ("conv1d", lambda tf, x, w: tf.nn.conv1d(x, w, 1, "SAME"), (normal(16, 256, 128), normal(5, 128, 128))),
        ("conv2d, dilated", lambda tf, x, w: _dilated(tf, x, w), (normal(2, 64, 64, 64), normal(3, 3, 64, 64))),
        (
            "conv2d, dilated by blocks",
            lambda tf, x, w: _by_blocks(tf, x, w),
            (normal(4, 64, 64, 128), normal(3, 3, 128, 64)),
        ),
        ("conv2d, 9x9 to 3", lambda tf, x, w: _convolved(tf, x, w), (normal(1, 128, 128, 32), normal(9, 9, 32, 3))),
        (
            "conv2d, as wide as the image",
            lambda tf, x, w: _unpadded(tf, x, w),
            (normal(4, 64, 128, 1), normal(5, 128, 1, 64)),
        ),
        ("conv2d_transpose", lambda tf, x, w: _transposed(tf, x, w), (normal(4, 32, 32, 64), normal(3, 3, 32, 64))),
        ("conv3d", lambda tf, x, w: _volume(tf, x, w), (normal(1, 24, 24, 24, 16), normal(3, 3, 3, 16, 32))),
        ("conv3d, 48", lambda tf, x, w: _volume(tf, x, w), (normal(1, 48, 48, 48, 16), normal(3, 3, 3, 16, 16))),
        ("depthwise, two for one", lambda tf, x, w: _depthwise(tf, x, w), (normal(4, 64, 64, 32), normal(3, 3, 32, 2))),
        ("conv2d, 32 groups", lambda tf, x, w: _convolved(tf, x, w), (normal(1, 56, 56, 128), normal(3, 3, 4, 128))),
        ("conv1d, 16 groups", lambda tf, x, w: tf.nn.conv1d(x, w, 1, "SAME"), (LONG, normal(128, 48, 768))),
        ("matmul", lambda tf, x, y: x @ y, (normal(512, 512), normal(512, 512))),
        ("attention", lambda tf, q, k, v: _attention(tf, q, k, v), (normal(4, 8, 256, 64),) * 3),
        ("attention, 1024 tokens", lambda tf, q, k, v: _attention(tf, q, k, v), (normal(1, 4, 1024, 32),) * 3),
        ("cholesky", lambda tf, x: tf.linalg.cholesky(x), (MATRICES,)),
        ("solve", lambda tf, x, y: tf.linalg.solve(x, y), (MATRICES, normal(16, 64, 8))),
        ("banded solve", lambda tf, x, y: _banded(tf, x, y), (banded(16, 3, 256), normal(16, 256, 4))),
        ("inverses of 3x3", lambda tf, x: tf.linalg.inv(x), (positive_definite(5000, 3),)),
        ("singular values", lambda tf, x: tf.linalg.svd(x, compute_uv=False), (normal(8, 48, 32),)),
        ("rfft", lambda tf, x: tf.abs(tf.signal.rfft(x)), (ROWS,)),
        ("stft", lambda tf, x: tf.abs(tf.signal.stft(x, 400, 160)), (normal(4, 16000),)),
        ("scan", lambda tf, x: tf.scan(lambda a, b: a * 0.9 + b, x), (normal(500, 64),)),
        ("scan of 8x256", lambda tf, x: tf.scan(lambda a, b: tf.tanh(a * 0.9 + b), x), (normal(256, 8, 256),)),
        ("random normal", lambda tf, s: tf.random.stateless_normal([512, 1024], s), (whole(9, 2),)),
        ("random truncated", lambda tf, s: tf.random.stateless_truncated_normal([512, 1024], s), (whole(9, 2),)),
        ("random gamma", lambda tf, s: tf.random.stateless_gamma([20000], s, 2.5), (whole(9, 2),)),
        ("shuffle", lambda tf, x, s: tf.random.experimental.stateless_shuffle(x, s), (normal(10000, 8), whole(9, 2))),
        (
            "shuffle, 60000",
            lambda tf, x, s: tf.random.experimental.stateless_shuffle(x, s),
            (normal(60000), whole(9, 2)),
        ),
    )
)
SMALL = ("sum over the last axis", "one_hot")


def _batch_norm(tf: Any, x: Any, gain: Any) -> Any:
    return tf.nn.batch_normalization(x, *tf.nn.moments(x, [0, 1, 2]), gain, gain, 1e-3)


def _suppressed(tf: Any, boxes: Any, scores: Any) -> Any:
    return tf.image.non_max_suppression_padded(boxes, scores, 100, 0.6, 0.3, pad_to_max_output_size=True)


def _by_class(tf: Any, boxes: Any, scores: Any) -> Any:
    return tf.image.combined_non_max_suppression(boxes, scores, 100, 100, 0.6, 0.3)[:2]


def _patches(tf: Any, x: Any) -> Any:
    return tf.image.extract_patches(x, [1, 8, 8, 1], [1, 4, 4, 1], [1, 1, 1, 1], "VALID")


def _dilation(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.dilation2d(x, w, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])


def _convolved(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.conv2d(x, w, 1, "SAME")


def _unpadded(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.conv2d(x, w, 1, "VALID")


def _volume(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.conv3d(x, w, [1] * 5, "SAME")


def _dilated(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.conv2d(x, w, 1, "SAME", dilations=2)


def _by_blocks(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.convolution(x, w, padding="SAME", dilations=6)


def _transposed(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.conv2d_transpose(x, w, [4, 64, 64, 32], 2, "SAME")


def _depthwise(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME")


def _attention(tf: Any, q: Any, k: Any, v: Any) -> Any:
    return tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8.0) @ v


def _banded(tf: Any, x: Any, y: Any) -> Any:
    return tf.linalg.banded_triangular_solve(x, y)


def _boxes(tf: Any, x: Any, b: Any) -> Any:
    return tf.image.draw_bounding_boxes(x, b, np.eye(3, dtype=np.float32))


def _gradient_in_tf(fn: Callable[..., Any], positions: tuple[int, ...]) -> Callable[..., Any]:
    import tensorflow as tf

    def gradient(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([args[i] for i in positions])
            loss: Any = sum(tf.reduce_sum(v * v) for v in tf.nest.flatten(fn(*args)) if v.dtype == tf.float32)
        if isinstance(loss, int):  # none of the results is of floats
            return []
        found = tape.gradient(loss, [args[i] for i in positions])
        return [tf.convert_to_tensor(g) for g in found if g is not None]

    return gradient


def _gradient(fn: Callable[..., Any], positions: tuple[int, ...]) -> Callable[..., Any]:
    def loss(some: Mapping[int, Any], args: tuple[Any, ...]) -> Any:
        found = fn(*(some.get(i, a) for i, a in enumerate(args)))
        return sum(jnp.sum(v * v) for v in jax.tree.leaves(found) if v.dtype == np.float32)

    return lambda *args: jax.grad(loss)({i: args[i] for i in positions}, args)


def _result(operation: Operation, what: str) -> Result | None:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    values = [make(rng) for make in operation.inputs]
    fn = functools.partial(operation.fn, tf)
    tensors = [tf.constant(v) for v in values]
    converted = tf2jax_lite.convert_functional(tf.function(fn, autograph=False), *tensors)
    if what == "gradient":
        positions = tuple(i for i, v in enumerate(values) if v.dtype == np.float32)
        if not positions:
            return None
        fn, converted = _gradient_in_tf(fn, positions), _gradient(converted, positions)
    graph = tf.function(fn, autograph=False)
    try:
        if not tf.nest.flatten(graph(*tensors)):
            return None
    except LookupError:  # TensorFlow has no gradient of it
        return None
    arrays = [jnp.asarray(v) for v in values]
    start = time.process_time()
    compiled = jax.jit(converted).lower(*arrays).compile()
    compiling = time.process_time() - start
    times = in_turns(
        {
            "tf2jax_lite": waited(compiled, *arrays),
            "tensorflow": lambda: seconds(lambda: tf.nest.flatten(graph(*tensors))[-1].numpy()),
        },
        budget=0.7,
    )
    return {"name": operation.name, "what": what}, {"times": times, "compile": compiling}


def operations(options: Any) -> Iterator[Result]:
    """Yield times of each operation, and of its float inputs' gradients.

    The gradient is that of the squares' sum.
    """
    for operation in OPERATIONS:
        if options.size != "full" and operation.name not in SMALL:
            continue
        for what in ("call", "gradient"):
            found = _result(operation, what)
            jax.clear_caches()
            if found is not None:
                yield found
