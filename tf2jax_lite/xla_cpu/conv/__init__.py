"""CPU lowering rules of convolutions, by shape.

`rule` is the entry and tries the rules in order; `params` describes one convolution. The other modules are one rule
each, named for the transformation: `winograd`, `width_folding`, `input_dilation`, `grouped` and so on.
"""
