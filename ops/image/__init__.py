"""Image resizing, cropping, projection, color conversion and box selection.

Read `resize` first; its methods are products with matrices of weights. `crop` has pixels at given coordinates,
`sample_distorted_box` random crops that cover enough of given boxes, with TensorFlow's bits.

Never imports `ops.nn`, `ops.quantization` or `ops.state`.
"""

from . import color, crop, draw_boxes, nms, resize, sample_distorted_box  # noqa: F401
