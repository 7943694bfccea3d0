"""Helpers of all subpackages.

  validation: checks of options.
  user_functions: errors that name a user's function.
  placement: arrays on one device.
  fractions: exact shares of counts.

Must not import other subpackages of `federated`.
"""
