"""CPU lowering rules of convolutions, chosen by shape.

`rule` is the entry: the ordered table `RULES`, one named rule with its reason per line. Read it first, then `params`
(`ConvParams`, which predicates and lowerings take, and their shared array operations) and `cost_model` (all
thresholds). The other modules have a rule or two each and are named for the transformation:

- one product: `matmul`, `im2col`, `winograd`, `kernel_dilation` (to Winograd);
- groups: `depthwise`, `channel_blocking` (of depthwise), `grouped`, `grouped_as_depthwise`;
- zeros between values: `input_dilation` (polyphase);
- better shapes for XLA's own convolution: `width_folding`, `narrow_image`, `row_packing`, `padding`;
- 3-D: `conv3d`, `conv3d_planes`.

Must not import the rules of other primitives, `ops`, or anything above.
"""
