"""CPU lowering rules of convolutions, chosen by shape.

`rule` is the entry: the ordered table `RULES`, one named rule with its reason per line. Read it first, then
`jaxprs.convolutions` (`ConvParams`, which predicates and lowerings take, and array operations) and `xla_cpu.cost_model`
(all thresholds). The other modules have a rule or two each and are named for the transformation:

- one product: `matmul`, `im2col`;
- groups: `depthwise`, `grouped`, `grouped_as_depthwise`;
- zeros between values: `input_dilation` (polyphase);
- better shapes for XLA's own convolution: `channels_last`, `padding`, `filter_grad`, `width_folding`;
- 3-D: `conv3d`.

Must not import the rules of other primitives, `ops`, or anything above.
"""
