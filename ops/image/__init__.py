"""Image resizing, cropping, projection, color conversion and box selection.

Read `resize` first; its methods are products with matrices of weights. `crop` has pixels at given coordinates,
`boxes` random crops that cover enough of given boxes, with TensorFlow's bits, and boxes drawn on images.

Never imports `ops.nn`, `ops.quantization` or `ops.state`.
"""

from . import boxes, color, crop, nms, resize  # noqa: F401
