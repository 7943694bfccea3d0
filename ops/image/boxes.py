"""Bounding boxes: random crops that cover a box enough, and boxes drawn on images.

`tf.image.sample_distorted_bounding_box` is as TensorFlow's CPU kernel
(core/kernels/image/sample_distorted_bounding_box_op.cc): attempts draw a shape and a position from one stream of Philox
words until a crop covers enough. All bits are the kernel's, which computes in single precision and rounds halves to
even.

TF: core/kernels/image/draw_bounding_box_op.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.common.precision import quotient
from tf2jax_lite.ops.random._samples import uint32_to_float
from tf2jax_lite.ops.random.philox import block, from_jax_key, scramble, skip
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

_F32, _I32 = np.float32, np.int32
_MARGIN = _F32(1e-7)  # distance of a product from the next half
_STEPS = 4  # of the generator in an attempt, which draws four numbers from 16 words


class _Box(NamedTuple):
    """Integer pixel coordinates; right and bottom are exclusive."""

    left: Any
    top: Any
    right: Any
    bottom: Any

    def area(self) -> Any:
        return ((self.right - self.left) * (self.bottom - self.top)).astype(_F32)

    def intersect(self, other: _Box) -> _Box:
        """Return the intersection of two boxes; zeros if it is empty."""
        left, top = jnp.maximum(self.left, other.left), jnp.maximum(self.top, other.top)
        right, bottom = jnp.minimum(self.right, other.right), jnp.minimum(self.bottom, other.bottom)
        empty = (left > right) | (top > bottom)
        return _Box(*(jnp.where(empty, 0, v) for v in (left, top, right, bottom)))


class _Attributes(NamedTuple):
    ratios: tuple[np.float32, np.float32]
    areas: tuple[np.float32, np.float32]
    attempts: int
    whole_image: bool


def _attributes(
    aspect_ratio_range: Sequence[float],
    area_range: Sequence[float],
    max_attempts: int,
    use_image_if_no_bounding_boxes: bool,
) -> _Attributes:
    for name, pair in (("aspect_ratio_range", aspect_ratio_range), ("area_range", area_range)):
        if len(pair) != 2 or not min(pair) > 0:
            raise OpError(f"{name} must be two positive numbers, not {list(pair)}")
    if max(area_range) > 1:
        raise OpError(f"area_range {list(area_range)} must not exceed 1")
    if max_attempts < 1:
        raise OpError(f"max_attempts must be positive, not {max_attempts}")
    ratios, areas = ((_F32(low), _F32(high)) for low, high in (aspect_ratio_range, area_range))
    return _Attributes(ratios, areas, max_attempts, use_image_if_no_bounding_boxes)


def _image_size(image_size: Any) -> tuple[Any, Any]:
    if image_size.shape != (3,):
        raise OpError(f"image_size must be height, width and channels, not of shape {image_size.shape}")
    sizes = static_value(image_size)
    if sizes is not None and not all(0 <= int(d) < np.iinfo(_I32).max for d in sizes[:2]):
        raise OpError(f"an image cannot be {sizes[0]} by {sizes[1]}")
    height, width = (jnp.asarray(image_size[i]).astype(_I32) for i in (0, 1))
    return height, width


def _objects(boxes: Any, height: Any, width: Any, whole_image: bool) -> _Box:
    """Return the boxes to cover, each coordinate as a vector; else the whole image."""
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise OpError(f"bounding_boxes must have shape [batch, boxes, 4], not {tuple(boxes.shape)}")
    if 0 in boxes.shape:
        if not whole_image:
            raise OpError("there are no bounding_boxes, and use_image_if_no_bounding_boxes is not set")
        corner = jnp.zeros(1, _I32)
        return _Box(corner, corner, width.reshape(1), height.reshape(1))
    values = static_value(boxes)
    if values is not None and not ((values >= 0) & (values <= 1)).all():
        raise OpError("the coordinates of bounding_boxes must be in [0, 1]")
    x_scale, y_scale = width.astype(_F32), height.astype(_F32)
    top, left, bottom, right = (jnp.asarray(boxes)[..., i].reshape(-1) for i in range(4))
    return _Box(
        *((v * s).astype(_I32) for v, s in ((left, x_scale), (top, y_scale), (right, x_scale), (bottom, y_scale)))
    )


def _nearest(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN).astype(_I32)


def _max_height(width: Any, ratio: Any) -> Any:
    """Return the largest integer whose product with ``ratio`` rounds to <= ``width``."""
    # The kernel divides in double precision. Here the remainder of a division is exact up to 4096 pixels, as the ratio
    # is split into parts of twelve bits.
    limit = width.astype(_F32) + _F32(0.5)
    coarse = lax.bitcast_convert_type(lax.bitcast_convert_type(ratio, np.uint32) & np.uint32(0xFFFFF000), _F32)

    def fits(height: Any) -> Any:
        return (limit - height * coarse) - height * (ratio - coarse) >= _MARGIN

    guess = jnp.floor(limit / ratio)
    height = jnp.where(fits(guess + 1), guess + 1, jnp.where(fits(guess), guess, guess - 1))
    return jnp.where(_nearest(height * ratio) > width, height - 1, height).astype(_I32)


def _words(key: Any, counter: Any, index: Any) -> Any:
    """Return 16 words of a stream from ``index``, rounded down to a multiple of four."""
    steps = skip(counter, (index >> np.uint32(2)) + lax.iota(np.uint32, _STEPS))
    return jnp.stack(block(steps, (key[0], key[1])), axis=1).reshape(-1)


def _uniform_below(words: Any, index: Any, limit: Any) -> tuple[Any, Any]:
    """Draw an integer in [0, limit) from words."""
    # Returns the index of the next word, and the integer. Words that would make small integers more probable are
    # skipped (SimplePhilox::Uniform): one in a million for images of 4096 pixels.
    limit = limit.astype(np.uint32)
    skipped = jnp.where((limit & (limit - 1)) == 0, 0, np.uint32(0xFFFFFFFF) % limit + 1)
    usable = (words >= skipped) & (lax.iota(np.uint32, words.shape[0]) >= index)
    used = jnp.argmax(usable).astype(np.uint32)
    return used + 1, (words[used] % limit).astype(_I32)


def _draw_crop(words: Any, index: Any, ratio: Any, height: Any, width: Any, areas: Any) -> tuple[Any, Any, _Box]:
    """Return the next word's index, whether a crop of this ratio exists, and the crop."""

    def draw(index: Any, active: Any, limit: Any) -> tuple[Any, Any]:
        next_index, number = _uniform_below(words, index, jnp.maximum(limit, 1))
        return jnp.where(active, next_index, index), jnp.where(active, number, 0)

    def columns_and_area(rows: Any) -> tuple[Any, Any]:
        columns = _nearest(rows.astype(_F32) * ratio)
        return columns, (columns * rows).astype(_F32)

    min_rows, max_rows = (_nearest(lax.sqrt(area / ratio)) for area in areas)
    max_rows = jnp.where(_nearest(max_rows.astype(_F32) * ratio) > width, _max_height(width, ratio), max_rows)
    max_rows = jnp.minimum(max_rows, height)
    rows = jnp.minimum(min_rows, max_rows)
    index, more = draw(index, rows < max_rows, max_rows - rows + 1)
    rows = rows + more
    # Rounding may have moved the area out of its range: one row more, or less.
    rows = rows + (columns_and_area(rows)[1] < areas[0])
    rows = rows - (columns_and_area(rows)[1] > areas[1])
    columns, area = columns_and_area(rows)
    fits = (areas[0] <= area) & (area <= areas[1]) & (columns <= width) & (rows <= height) & (columns > 0) & (rows > 0)
    index, top = draw(index, fits & (rows < height), height - rows)
    index, left = draw(index, fits & (columns < width), width - columns)
    return index, fits, _Box(left, top, left + columns, top + rows)


def _sample(
    key: Any, counter: Any, *, image_size: Any, bounding_boxes: Any, min_object_covered: Any, **options: Any
) -> tuple[Any, Any, Any]:
    """Return begin and size of the crop, like ``image_size``, and its float32 box."""
    attributes, covered = _attributes(**options), min_object_covered
    height, width = _image_size(image_size)
    objects = _objects(bounding_boxes, height, width, attributes.whole_image)
    if covered.shape != ():
        raise OpError(f"min_object_covered must be a scalar, not of shape {covered.shape}")
    min_covered = static_value(covered)
    if min_covered is not None and not min_covered >= 0:
        raise OpError(f"min_object_covered must not be negative, got {min_covered}")
    low, high = attributes.ratios
    areas = tuple(share * width.astype(_F32) * height.astype(_F32) for share in attributes.areas)

    def enough(crop: _Box) -> Any:
        sizes = objects.area()
        share = quotient(crop.intersect(objects).area(), jnp.maximum(sizes, 1))
        return (crop.area() >= 1) & jnp.any((sizes >= 1) & (share >= covered))

    def attempt(state: Any) -> Any:
        count, index, _, _ = state
        words, offset = _words(key, counter, index), index & np.uint32(3)
        # Rounded before the addition; LLVM knows that it is not NaN, so that `product` would not prevent the FMA.
        ratio = materialize(uint32_to_float(words[offset]) * (high - low)) + low
        next_offset, fits, crop = _draw_crop(words, offset + 1, ratio, height, width, areas)
        return count + 1, index - offset + next_offset, fits & enough(crop), crop

    zero = jnp.zeros((), _I32)
    image = _Box(zero, zero, width, height)
    accepted, crop = jnp.zeros((), bool), image
    if attributes.areas[0] <= attributes.areas[1]:
        start = (zero, jnp.zeros((), np.uint32), accepted, crop)
        *_, accepted, crop = while_loop(lambda s: ~s[2] & (s[0] < attributes.attempts), attempt, start)
    left, top, right, bottom = (jnp.where(accepted, c, i) for c, i in zip(crop, image, strict=True))
    dtype = jnp.asarray(image_size).dtype
    begin = jnp.stack([top, left, zero]).astype(dtype)
    size = jnp.stack([bottom - top, right - left, zero - 1]).astype(dtype)
    sides = ((top, height), (left, width), (bottom, height), (right, width))
    return begin, size, jnp.stack([quotient(v.astype(_F32), s.astype(_F32)) for v, s in sides]).reshape(1, 1, 4)


_CROPS = {
    "aspect_ratio_range": (0.75, 1.33),
    "area_range": (0.05, 1.0),
    "max_attempts": 100,
    "use_image_if_no_bounding_boxes": False,
}
_DRAWN = {"seed": 0, "seed2": 0, **_CROPS, "key:Key": REQUIRED}


@op(
    "StatelessSampleDistortedBoundingBox",
    inputs="image_size bounding_boxes min_object_covered seed",
    attributes=_CROPS,
    int64="pair",
)
def stateless_sample_distorted_bounding_box(*, seed, **operands):
    """Sample a crop that covers enough of a box, with TensorFlow's bits."""
    if seed.shape != (2,):
        raise OpError(f"seed must have shape [2], not {tuple(seed.shape)}")
    return _sample(*scramble(seed), **operands)


@op("SampleDistortedBoundingBoxV2", inputs="image_size bounding_boxes min_object_covered", attributes=_DRAWN)
@op(
    "SampleDistortedBoundingBox",
    inputs="image_size bounding_boxes",
    attributes={"min_object_covered": 0.1, **_DRAWN},
)
def sample_distorted_bounding_box(*, seed, seed2, key, min_object_covered, **operands):
    """Sample a crop that covers enough of a box, from the node's JAX key.

    As `stateless_sample_distorted_bounding_box`; the seeds are ignored.
    """
    covered = _F32(min_object_covered) if isinstance(min_object_covered, float) else min_object_covered
    return _sample(*from_jax_key(key), min_object_covered=covered, **operands)


# DefaultColorTable of draw_bounding_box_op.cc.
_COLORS = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    np.float32,
)


def _draw(images: Any, boxes: Any, colors: Any) -> Any:
    images, boxes = jnp.asarray(images), jnp.asarray(boxes)
    if images.ndim != 4 or boxes.ndim != 3:
        raise OpError(f"images have rank 4 and boxes rank 3, not {images.ndim} and {boxes.ndim}")
    height, width, depth = images.shape[1:]
    if depth not in (1, 3, 4) or boxes.shape[2] != 4:
        raise OpError(
            f"{depth} channels and {boxes.shape[2]} coordinates: 1, 3 or 4 channels, 4 coordinates are needed"
        )
    if boxes.shape[1] == 0:
        return images
    scale = jnp.stack([jnp.asarray(d).astype(np.float32) for d in (height - 1, width - 1) * 2])
    corners = (boxes * scale).astype(np.int32)
    top, left, bottom, right = (corners[..., i] for i in range(4))
    # A box with exchanged corners is not drawn; lines outside of the image are dropped.
    number = jnp.where((top <= bottom) & (left <= right), lax.iota(np.int32, boxes.shape[1]), -1)
    horizontal = _lines(number, (top, bottom), (left, right), height, width)
    vertical = _lines(number, (left, right), (top, bottom), width, height)
    last = jnp.maximum(horizontal, jnp.swapaxes(vertical, 1, 2))
    return jnp.where((last >= 0)[..., None], colors[last % len(colors)], images)


def _lines(number: Any, rows: tuple[Any, Any], ends: tuple[Any, Any], size: Any, length: Any) -> Any:
    """Return the highest number of the lines through each pixel, or -1."""
    pixel, (first, last) = lax.iota(np.int32, length), (e[..., None] for e in ends)
    lines = jnp.where((pixel >= first) & (pixel <= last), number[..., None], -1)
    drawn = jnp.full((number.shape[0], size, length), -1, np.int32)
    for row in rows:
        row = jnp.where(row < 0, size, row)  # a negative index would count from the end
        drawn = jax.vmap(lambda d, r, line: d.at[r].max(line, mode="drop"))(drawn, row, lines)
    return drawn


@op("DrawBoundingBoxes")
def draw_bounding_boxes(images, boxes):
    """Draw boxes in default colors, later ones over earlier ones."""
    table = np.where(np.arange(4) == 0, 1, _COLORS) if images.shape[-1] == 1 else _COLORS
    return _draw(images, boxes, jnp.asarray(table[:, : images.shape[-1]]).astype(images.dtype))


@op("DrawBoundingBoxesV2")
def draw_bounding_boxes_v2(images, boxes, colors):
    """Draw boxes in given colors, which are used cyclically."""
    colors = jnp.asarray(colors)
    if colors.ndim != 2 or colors.shape[1] < images.shape[-1]:
        raise OpError(f"colors have to be a matrix of {images.shape[-1]} columns or more, not {tuple(colors.shape)}")
    if colors.shape[0] == 0:
        return draw_bounding_boxes(images, boxes)
    return _draw(images, boxes, colors[:, : images.shape[-1]].astype(images.dtype))
