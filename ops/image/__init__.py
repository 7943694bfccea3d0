"""Image resizing, warping, color conversion and box selection.

`resize` first; `nms` has non-maximum suppression, whose loop is in `_greedy_nms`. Never imports `ops.nn`,
`ops.quantization` or `ops.state`.
"""

from . import color, crop_and_resize, legacy, nms, resize, sample_distorted_box  # noqa: F401
