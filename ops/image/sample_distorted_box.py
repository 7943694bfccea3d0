"""Random crops of images that cover enough of given boxes: tf.image.sample_distorted_bounding_box.

As TensorFlow's kernel for CPUs draws them: a shape and a place at a time from one stream of Philox words, until a crop
covers what it has to. Numbers are those of the kernel, which rounds in single precision and to the nearest even number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.common.rounding import quotient
from tf2jax_lite.ops.random._samplers import float_units
from tf2jax_lite.ops.random.philox import block, scramble, skip
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value
from tf2jax_lite.xla_cpu.materialize import materialize

__all__: list[str] = []

_F32, _I32 = np.float32, np.int32
_NEARLY = _F32(1e-7)  # how much below a half a product has to stay
_STEPS = 4  # of the generator at a time: an attempt draws four numbers of 16 words


class _Box(NamedTuple):
    """Whole pixels; the ends are outside."""

    left: Any
    top: Any
    right: Any
    bottom: Any

    def area(self) -> Any:
        return ((self.right - self.left) * (self.bottom - self.top)).astype(_F32)

    def meet(self, other: _Box) -> _Box:
        """Returns what two boxes share; an empty one if they share nothing."""
        left, top = jnp.maximum(self.left, other.left), jnp.maximum(self.top, other.top)
        right, bottom = jnp.minimum(self.right, other.right), jnp.minimum(self.bottom, other.bottom)
        apart = (left > right) | (top > bottom)
        return _Box(*(jnp.where(apart, 0, v) for v in (left, top, right, bottom)))


class _Attributes(NamedTuple):
    ratios: tuple[np.float32, np.float32]
    areas: tuple[np.float32, np.float32]
    attempts: int
    whole_image: bool


def _attributes(
    aspect_ratio_range: Sequence[float], area_range: Sequence[float], max_attempts: int, whole_image: bool
) -> _Attributes:
    for name, pair in (("aspect_ratio_range", aspect_ratio_range), ("area_range", area_range)):
        if len(pair) != 2 or not min(pair) > 0:
            raise OpError(f"{name} must be two positive numbers, not {list(pair)}")
    if max(area_range) > 1:
        raise OpError(f"area_range {list(area_range)} must not exceed 1")
    if max_attempts < 1:
        raise OpError(f"max_attempts must be positive, not {max_attempts}")
    ratios, areas = ((_F32(low), _F32(high)) for low, high in (aspect_ratio_range, area_range))
    return _Attributes(ratios, areas, max_attempts, whole_image)


def _image_size(image_size: Any) -> tuple[Any, Any]:
    if image_size.shape != (3,):
        raise OpError(f"image_size must be height, width and channels, not of shape {image_size.shape}")
    found = static_value(image_size)
    if found is not None and not all(0 <= int(d) < np.iinfo(_I32).max for d in found[:2]):
        raise OpError(f"an image cannot be {found[0]} by {found[1]}")
    height, width = (jnp.asarray(image_size[i]).astype(_I32) for i in (0, 1))
    return height, width


def _objects(boxes: Any, height: Any, width: Any, whole_image: bool) -> _Box:
    """Returns the boxes to cover, each coordinate as a vector."""
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise OpError(f"bounding_boxes must have shape [batch, boxes, 4], not {tuple(boxes.shape)}")
    if 0 in boxes.shape:
        if not whole_image:
            raise OpError("there are no bounding_boxes, and use_image_if_no_bounding_boxes is not set")
        corner = jnp.zeros(1, _I32)
        return _Box(corner, corner, width.reshape(1), height.reshape(1))
    found = static_value(boxes)
    if found is not None and not ((found >= 0) & (found <= 1)).all():
        raise OpError("the coordinates of bounding_boxes must be in [0, 1]")
    across, down = width.astype(_F32), height.astype(_F32)
    top, left, bottom, right = (jnp.asarray(boxes)[..., i].reshape(-1) for i in range(4))
    return _Box(*((v * s).astype(_I32) for v, s in ((left, across), (top, down), (right, across), (bottom, down))))


def _nearest(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN).astype(_I32)


def _highest(width: Any, ratio: Any) -> Any:
    """Returns the largest whole number whose product with ``ratio`` rounds to ``width`` at most.

    The kernel divides in double precision. Here the remainder of a division is exact up to 4096 pixels: products of
    twelve bits.
    """
    room = width.astype(_F32) + _F32(0.5)
    coarse = lax.bitcast_convert_type(lax.bitcast_convert_type(ratio, np.uint32) & np.uint32(0xFFFFF000), _F32)

    def fits(height: Any) -> Any:
        return (room - height * coarse) - height * (ratio - coarse) >= _NEARLY

    guess = jnp.floor(room / ratio)
    height = jnp.where(fits(guess + 1), guess + 1, jnp.where(fits(guess), guess, guess - 1))
    return jnp.where(_nearest(height * ratio) > width, height - 1, height).astype(_I32)


def _words(key: Any, counter: Any, at: Any) -> Any:
    """Returns the words of a stream from the last multiple of four on, more than an attempt needs."""
    steps = skip(counter, (at >> np.uint32(2)) + lax.iota(np.uint32, _STEPS))
    return jnp.stack(block(steps, (key[0], key[1])), axis=1).reshape(-1)


def _below(words: Any, at: Any, limit: Any) -> tuple[Any, Any]:
    """Draws a whole number below another one: returns where to go on, and the number.

    Words that would favour small numbers are left out: one in a million, of images of 4096 pixels.
    """
    limit = limit.astype(np.uint32)
    skewed = jnp.where((limit & (limit - 1)) == 0, 0, np.uint32(0xFFFFFFFF) % limit + 1)
    fair = (words >= skewed) & (lax.iota(np.uint32, words.shape[0]) >= at)
    place = jnp.argmax(fair).astype(np.uint32)
    return place + 1, (words[place] % limit).astype(_I32)


def _crop(words: Any, at: Any, ratio: Any, height: Any, width: Any, areas: Any) -> tuple[Any, Any, _Box]:
    """Draws a crop of a shape.

    Args:
      words: random ones.
      at: which of them to take next.
      ratio: of width to height.
      height: of the image.
      width: of the image.
      areas: the smallest and the largest, in pixels.

    Returns:
      Which word to take next, whether there is such a crop, and the crop.
    """

    def drawn(at: Any, wanted: Any, limit: Any) -> tuple[Any, Any]:
        after, number = _below(words, at, jnp.maximum(limit, 1))
        return jnp.where(wanted, after, at), jnp.where(wanted, number, 0)

    def shaped(rows: Any) -> tuple[Any, Any]:
        columns = _nearest(rows.astype(_F32) * ratio)
        return columns, (columns * rows).astype(_F32)

    lowest, most = (_nearest(lax.sqrt(area / ratio)) for area in areas)
    most = jnp.where(_nearest(most.astype(_F32) * ratio) > width, _highest(width, ratio), most)
    most = jnp.minimum(most, height)
    rows = jnp.minimum(lowest, most)
    at, more = drawn(at, rows < most, most - rows + 1)
    rows = rows + more
    # Rounding may have brought the area out of its range: a row more, or less.
    rows = rows + (shaped(rows)[1] < areas[0])
    rows = rows - (shaped(rows)[1] > areas[1])
    columns, area = shaped(rows)
    fits = (areas[0] <= area) & (area <= areas[1]) & (columns <= width) & (rows <= height) & (columns > 0) & (rows > 0)
    at, top = drawn(at, fits & (rows < height), height - rows)
    at, left = drawn(at, fits & (columns < width), width - columns)
    return at, fits, _Box(left, top, left + columns, top + rows)


def _sampled(
    key: Any, counter: Any, image_size: Any, boxes: Any, covered: Any, attributes: _Attributes
) -> tuple[Any, Any, Any]:
    height, width = _image_size(image_size)
    objects = _objects(boxes, height, width, attributes.whole_image)
    if covered.shape != ():
        raise OpError(f"min_object_covered must be a number, not of shape {covered.shape}")
    least = static_value(covered)
    if least is not None and not least >= 0:
        raise OpError(f"min_object_covered must not be negative, got {least}")
    low, high = attributes.ratios
    areas = tuple(share * width.astype(_F32) * height.astype(_F32) for share in attributes.areas)

    def enough(crop: _Box) -> Any:
        sizes = objects.area()
        share = quotient(crop.meet(objects).area(), jnp.maximum(sizes, 1))
        return (crop.area() >= 1) & jnp.any((sizes >= 1) & (share >= covered))

    def attempt(state: Any) -> Any:
        count, at, _, _ = state
        words, inside = _words(key, counter, at), at & np.uint32(3)
        # Rounded before it is added to; LLVM knows it for a number, so that `product` would not do.
        ratio = materialize(float_units(words[inside]) * (high - low)) + low
        after, fits, crop = _crop(words, inside + 1, ratio, height, width, areas)
        return count + 1, at - inside + after, fits & enough(crop), crop

    zero = jnp.zeros((), _I32)
    whole = _Box(zero, zero, width, height)
    found, crop = jnp.zeros((), bool), whole
    if attributes.areas[0] <= attributes.areas[1]:
        start = (zero, jnp.zeros((), np.uint32), found, crop)
        *_, found, crop = while_loop(lambda s: ~s[2] & (s[0] < attributes.attempts), attempt, start)
    left, top, right, bottom = (jnp.where(found, ours, all_of_it) for ours, all_of_it in zip(crop, whole, strict=True))
    dtype = jnp.asarray(image_size).dtype
    begin = jnp.stack([top, left, zero]).astype(dtype)
    size = jnp.stack([bottom - top, right - left, zero - 1]).astype(dtype)
    sides = ((top, height), (left, width), (bottom, height), (right, width))
    return begin, size, jnp.stack([quotient(v.astype(_F32), s.astype(_F32)) for v, s in sides]).reshape(1, 1, 4)


@op("StatelessSampleDistortedBoundingBox", words="whole")
def stateless_sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    min_object_covered: Any,
    seed: Any,
    *,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
) -> tuple[Any, Any, Any]:
    """Crops as TensorFlow does for a seed. See tf.raw_ops.StatelessSampleDistortedBoundingBox."""
    if seed.shape != (2,):
        raise OpError(f"seed must have shape [2], not {tuple(seed.shape)}")
    attributes = _attributes(aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
    return _sampled(*scramble(seed), image_size, bounding_boxes, min_object_covered, attributes)


def _streams(key: Any) -> tuple[Any, Any]:
    words = jax.random.bits(key, (6,), np.uint32)
    return words[:2], words[2:]


@op("SampleDistortedBoundingBoxV2", needs_key=True)
def sample_distorted_bounding_box_v2(
    image_size: Any,
    bounding_boxes: Any,
    min_object_covered: Any,
    *,
    seed: int = 0,
    seed2: int = 0,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Crops as TensorFlow does, from the node's own key. See tf.raw_ops.SampleDistortedBoundingBoxV2."""
    attributes = _attributes(aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
    return _sampled(*_streams(key), image_size, bounding_boxes, min_object_covered, attributes)


@op("SampleDistortedBoundingBox", needs_key=True)
def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    *,
    seed: int = 0,
    seed2: int = 0,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Crops as TensorFlow does, from the node's own key. See tf.raw_ops.SampleDistortedBoundingBox."""
    attributes = _attributes(aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
    return _sampled(*_streams(key), image_size, bounding_boxes, _F32(min_object_covered), attributes)
