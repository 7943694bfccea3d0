"""Image resizing, cropping, projection, color conversion and box selection.

Read `resize` first; its methods are products with matrices of weights (`_resampling`). The other modules stand alone:

- `scale_and_translate`: resampling by a kernel.
- `crop_and_resize`, `projective_transform`, `glimpse`: pixels at given coordinates, on `_pixels`.
- `color`, `draw_boxes`: color conversion and adjustment; bounding boxes drawn on images.
- `nms`: non-maximum suppression, whose loops are in `_greedy_nms`.
- `legacy`: ops of old graphs.
- `sample_distorted_box`: random crops that cover enough of given boxes, with TensorFlow's bits.

Never imports `ops.nn`, `ops.quantization` or `ops.state`.
"""

from . import (  # noqa: F401
    color,
    crop_and_resize,
    draw_boxes,
    glimpse,
    legacy,
    nms,
    projective_transform,
    resize,
    sample_distorted_box,
    scale_and_translate,
)
