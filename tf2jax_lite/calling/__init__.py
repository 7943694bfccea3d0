"""Calling convention: argument binding, params, results.

`interface` first: it binds arguments, checks them and assembles results. `params` is the dict of variables,
`composite_values` takes composite tensors apart, `x64_params` keeps 64-bit state as 32-bit words. Neither traces nor
imports TensorFlow.
"""
